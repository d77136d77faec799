"""Analysis: every model of a round on every client's data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, client_rounds
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, resolve_run
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError, Run
from ...checkpoints.io.errors import list_few, rounds_have
from ...evaluation.device import precision_of
from ...training.inputs.samples import (
    common_samples,
    dataset_of,
    describe_samples,
    given_settings,
    limit_samples,
    module_for,
    require_own_data,
)
from ...training.settings.own_code import OwnCode
from ...training.settings.registry import method_name
from ...training.user_code.kept_source import refuse_unnamed
from ...training.user_code.provided_code import code_of_objects, with_given
from ..draws.given_code import code_settings
from .result import SERVER, Matrix, RoundMatrix


@analysis
def matrix(run: RunLike, *, rounds: Rounds = None, **measured: Unpack[EvaluationSettings]) -> PreparedAnalysis[Matrix]:
    """Measure every model of a round on every client's own data and on the test split, and what the average gains each
    client at home.

    Models are the clients', and ``start``, ``global`` and ``averaged`` as far as they were recorded; of a round whose
    clients start from models of their own, and which has none of these, ``merged``, the mean of all of them. Of a
    personal method the clients' models are those that they use themselves, in the rounds that it made; of a method of
    your own they are so where its code is given (``code={"client": FedX}``). See
    :func:`~fedscope.decomposition.matrix.losses.losses_at` for the formulas, and
    :func:`~fedscope.decomposition.matrix.significance.is_sure` for which clients count as surely worse.

    Args:
        run: ``RUN@60`` is a run with ``rounds=60``.
        rounds: which, or ``all`` with their clients; the last of these by default.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``train``, where a client's
            own are the samples that it trained on; in the test data they are those of its classes.

    Raises:
        FedscopeError: rounds without clients, or without any model that they share; a run without a partition; code of
            what the run does not name.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> [cell.place for cell in fedscope.matrix(run).rounds[-1].cells][:1]
    ['client-0']
    >>> folder.cleanup()
    """
    source = EvaluationConfig.of("train", measured)
    opened, asked_rounds = resolve_run(run, rounds)

    def prepare() -> SettingsAndCompute[Matrix]:
        dataset = dataset_of([opened], source)
        require_own_data(opened)
        asked = client_rounds(opened, asked_rounds if asked_rounds is not None else "last")
        refuse_unshared(opened, asked)
        samples, module = common_samples([opened], dataset, source), module_for(opened, source, dataset)
        test = None if source.split == "test" else limit_samples(dataset, replace(source, split="test"))
        refuse_unnamed(opened, code_of_objects(source.code))
        personal = [number for number in asked if uses_own_models(opened, number, source)]
        settings: dict[str, Any] = {
            "run": identity(opened, asked),
            "rounds": asked,
            **given_settings([opened], source, module=module),
            **describe_samples(samples, source.seed if source.limit else None),
            "test_samples": len(samples if test is None else test),
            "models": models_words(asked, personal),
            **(code_settings([(opened, personal)], source) if personal else {}),
            "device": source.compute.name,
            "precision": precision_of(module, source.precision),
        }

        def task(number: int) -> WorkUnit[RoundMatrix]:
            def measure(report: Report) -> RoundMatrix:
                from .rounds import round_matrix

                partition = opened.partition
                assert partition is not None, "just required"
                own = None
                if number in personal:
                    from .personal import own_models

                    own = own_models(opened, number, dataset, source, module)
                return round_matrix(
                    module,
                    samples,
                    test,
                    opened.round(number),
                    partition,
                    own=own,
                    compute=source.compute,
                    progress=report,
                )

            return WorkUnit(f"{opened.path}@{number}", RoundMatrix, measure, len(samples))

        def compute(attrs: dict[str, Any], work: Execution) -> Matrix:
            with work.store(settings, *ROUNDS) as store:
                return Matrix(opened.name, tuple(work.each("matrix", map(task, asked), store)), attrs)

        return settings, compute

    name = f"matrix-{source.split}-{slug_rounds(asked_rounds or 'last')}"
    return single_result(Matrix, opened.path / "figures", name, prepare)


def uses_own_models(run: Run, number: int, source: EvaluationConfig) -> bool:
    """Check whether the clients of a round use other models than those that they send, as far as the method that made
    it is known: one of the user's own by the code that was given for it."""
    if run.is_foreign or run.config is None:
        return False
    from ...training.loop.run_history import config_at

    client = config_at(run, number).client
    named = with_given(code_of_objects(source.code), "client", method_name(client))
    return bool(named.thing.personal if isinstance(named, OwnCode) else client.personal)


def models_words(rounds: Sequence[int], personal: Collection[int]) -> str | list[str]:
    """Say which models of clients are measured: in a word, or for each round, where a branch and its history differ.

    >>> models_words([1, 2], []), models_words([2, 5], [5])
    ('sent', ['sent', 'personal'])
    """
    words = ["personal" if number in personal else "sent" for number in rounds]
    return words[0] if len(set(words)) == 1 else words


def refuse_unshared(run: Run, rounds: list[int]) -> None:
    """Say before computing that there is nothing to compare the clients with.

    Raises:
        FedscopeError: a round that has none of the models that all clients share.
    """
    for number in rounds:
        round_ = run.round(number)
        if not set(SERVER) & set(round_.models) and not round_.own_starts:
            have = [t for t in run.rounds if run.round(t).has_clients and set(SERVER) & set(run.round(t).models)]
            told = rounds_have(have, "one", list_few(have)) if have else "no round has one"
            raise FedscopeError(
                f"{run.path}@{number} recorded its clients, but no model that they share (start, global, averaged), so "
                f"there is nothing to compare them with; {told}"
            )
