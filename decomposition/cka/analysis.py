"""Analysis: the similarity of models' answers to the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ...analysis.analysis import PreparedAnalysis, PreparedStep, Step, analysis, fit_file_name, place_of, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, rounds_of_several, rounds_text
from ...analysis.run_identity import identity
from ...analysis.runs import open_runs, recorded_pair
from ...analysis.settings import EvaluationConfig, EvaluationSettings, at_least, refuse_unknown_choice
from ...checkpoints import FedscopeError, Run, parse_address
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.files import is_model_folder
from ...checkpoints.models.layer_selections import layers_file_word
from ...checkpoints.models.layer_words import is_pattern, modules_named
from ...training.inputs.first_layout import layout_of_first
from ...training.inputs.models import ModelLike, ResolvedModels, as_list, expand_all, names_of, resolve_models
from ...training.inputs.samples import read_as
from .model_result import ModelCKA, ModelCKAs
from .result import ClientCKA, ClientCKAs, LayersCKA, layer_ends

if TYPE_CHECKING:
    from .hsic import Estimator

Similarity = ClientCKA | ClientCKAs | ModelCKA | ModelCKAs


@analysis
def cka(
    models: ModelLike | Sequence[ModelLike],
    *,
    rounds: Rounds = None,
    layer: str | Sequence[str] = "output",
    estimator: Estimator = "unbiased",
    batch: int | None = None,
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Similarity]:
    """Measure how alike models answer the same inputs: linear CKA of all pairs, 1 where they differ by a rotation and a
    scale.

    Of whole runs it is between the clients of each of their rounds, and of each client with the round's global model;
    of several models one matrix. See :func:`~fedscope.decomposition.cka.pairs.round_similarity` for the formulas.

    Args:
        models: one or more runs, or two or more models: addresses (``runs/ima@60/global``; ``runs/ima@all/global`` is a
            model a round), files, ``nn.Module`` s, state dicts.
        rounds: which of every run, or ``all`` with their clients, the first and last of these by default; of several,
            those of one client are left out.
        layer: a submodule, whose outputs are compared, or several for a result each; ``output`` is the logits. A
            pattern, ``conv*,fc1`` or ``/^blocks/``, stands for the layers that it names.
        estimator: of HSIC on a minibatch, ``unbiased`` or ``biased``, which is high for any features that outnumber the
            samples.
        batch: samples of a minibatch, at most; by default 256, or an eighth of the samples where that is less.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``, and ``seed`` also
            shuffles the samples before they are cut into minibatches.

    Raises:
        FedscopeError: runs and models together; one model alone; rounds without clients, or with one; a layer that
            there is not; fewer samples than the estimator needs.

    >>> import fedscope, torch
    >>> nets = [torch.nn.Linear(2, 2) for _ in range(3)]
    >>> x = torch.randn(40, 2)
    >>> alike = fedscope.cka(nets, data=(x, (x[:, 0] > 0).long()))
    >>> alike.cka.shape, round(float(alike.cka[0, 0]), 6)
    ((3, 3), 1.0)

    Source: Kornblith et al., "Similarity of Neural Network Representations Revisited", ICML 2019.
    """
    source = EvaluationConfig.of("test", measured)
    refuse_unknown_choice("estimator", estimator, ("unbiased", "biased"))
    if batch is not None:
        at_least("batch", batch, 4)
    words = (layer,) if isinstance(layer, str) else tuple(layer)
    asked = SimilaritySettings(words, estimator, batch, source)
    given, names = as_list(models), names_of(as_list(models))
    whole = [name for model, name in zip(given, names, strict=True) if isinstance(model, str) and _is_run(model)]
    others = [name for name in names if name not in whole]
    if whole and others:
        raise FedscopeError(
            f"{whole[0]} is a run, and {others[0]} a model; give runs only, or models only, as in {whole[0]}@last"
        )
    if others and rounds is not None:
        raise FedscopeError(
            f"--rounds {rounds_text(rounds)} is for whole runs, but {others[0]} names a model; give its run instead"
        )
    if any(map(is_pattern, words)):
        named = modules_named(open_runs(whole)[0].layout if whole else layout_of_first(expand_all(given)), words)
        asked = replace(asked, layers=named, words=words)
    return _of_runs(whole, rounds_text(rounds), asked) if whole else _of_models(given, asked)


@dataclass(frozen=True)
class SimilaritySettings:
    """Settings for every pair of models.

    Attributes:
        layers: the modules that are compared; words: as they were given, where a pattern was among them.
    """

    layers: tuple[str, ...]
    estimator: Estimator
    batch: int | None
    source: EvaluationConfig
    words: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """The part of a default name that tells a layer and an estimator that are not the default."""
        if self.words:
            word = "-".join(map(layers_file_word, self.words))
            return fit_file_name(f"-{word}") + ("-biased" if self.estimator == "biased" else "")
        layer = "" if len(self.layers) > 1 or self.layers == ("output",) else f"-{self.layers[0].replace('/', '-')}"
        return layer + ("-biased" if self.estimator == "biased" else "")

    def settings(self, resolved: ResolvedModels) -> dict[str, Any]:
        """Return the provenance of a result, but for its layer.

        Raises:
            FedscopeError: fewer samples than the estimator needs.
        """
        from .hsic import minibatches, usual_batch

        count, seed = len(resolved.samples), self.source.seed
        batch = self.batch or usual_batch(count)
        batches = len(minibatches(count, batch, seed, self.estimator))
        return {**resolved.settings, "estimator": self.estimator, "batch": batch, "batches": batches, "seed": seed}

    def by_layer(self, settings: dict[str, Any], taken: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the provenance of a result a layer, with what is taken of outputs that are no tensor."""
        said = {layer: {"features": taken[layer]} if layer in taken else {} for layer in self.layers}
        return [{**settings, "layer": layer, **said[layer]} for layer in self.layers]

    def taken(self, resolved: ResolvedModels) -> dict[str, str]:
        """Say what is taken of layers' outputs that are no tensor, by layer."""
        from .activations import taken_in

        found = taken_in(resolved.module, resolved.samples, resolved.models[0].weights, self.layers)
        for words in found.values():
            warn_user(words)
        return found

    def of(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings as arguments."""
        return (
            {"layers": self.layers}
            | {name: settings[name] for name in ("estimator", "batch", "seed")}
            | {"compute": self.source.compute}
        )


def _is_run(given: str) -> bool:
    """Tell whether it is meant for a run; what is neither an address nor a file is refused with those that there
    are."""
    if is_model_folder(given):
        return False
    return Path(given).is_dir() or ("@" not in given and not Path(given).suffix)


def _of_runs(paths: Sequence[str], rounds: str | None, asked: SimilaritySettings) -> PreparedAnalysis[Similarity]:
    """Return the clients of whole runs over rounds: a result a run and layer."""
    runs = open_runs(paths)
    found = [rounds_of_several(run, rounds, "is no pair") for run in runs]
    numbers, notes = [own for own, _ in found], [said for _, said in found]
    for run, own in zip(runs, numbers, strict=True):
        for number in own:
            recorded_pair(run, number)

    @cache
    def resolved() -> ResolvedModels:
        firsts = [run.round(own[0]) for run, own in zip(runs, numbers, strict=True)]
        named = zip(runs, firsts, strict=True)
        return resolve_models(
            [f"{run.path}@{first.number}/client-{first.client_ids[0]}" for run, first in named],
            asked.source,
            together=False,
        )

    @cache
    def taken() -> dict[str, str]:
        return asked.taken(resolved())

    layers = layer_ends(asked.layers)
    each = [tuple(f".{run.name}{end}" if len(runs) > 1 else end for end in layers) for run in runs]

    def part(run: Run, own: list[int], said: list[str], ends: tuple[str, ...]) -> Step[ClientCKA]:
        return Step(
            ClientCKA,
            lambda: _ready(run, own, said, resolved(), asked, taken()),
            ends,
            bring_up=partial(_with_errors, run),
        )

    def join(results: list[ClientCKA]) -> Similarity:
        every = [end for ends in each for end in ends]
        return results[0] if len(results) == 1 else ClientCKAs(dict(zip(every, results, strict=True)))

    what = "-".join([asked.source.split, *(run.name for run in runs[1:]), slug_rounds(rounds or "1,last")])
    parts = tuple(part(*one) for one in zip(runs, numbers, notes, each, strict=True))
    return PreparedAnalysis(runs[0].path / "figures", f"cka-{what}{asked.variant}", parts, join, drawn=tuple(layers))


def _ready(
    run: Run,
    numbers: Sequence[int],
    notes: Sequence[str],
    resolved: ResolvedModels,
    asked: SimilaritySettings,
    taken: Mapping[str, str],
) -> PreparedStep[ClientCKA]:
    """One run's results, one a layer, which keep what was left out of them.

    Args:
        taken: of outputs that are no tensor, by layer.
    """
    read_as(resolved.module, run)
    settings = {**asked.settings(resolved), "run": [identity(run, numbers)], "rounds": list(numbers)}
    settings = {key: value for key, value in settings.items() if key not in ("addresses", "models_sha256")}

    def task(number: int) -> WorkUnit[LayersCKA]:
        round_ = run.round(number)
        has_global = "global" in round_.models

        def measure(report: Report) -> LayersCKA:
            from .pairs import round_similarity

            found = round_similarity(
                resolved.module,
                resolved.samples,
                round_.clients(),
                number=number,
                client_ids=round_.client_ids,
                globals_=round_.read("global") if has_global else None,
                progress=report,
                **asked.of(settings),
            )
            return LayersCKA(found)

        return WorkUnit(str(number), LayersCKA, measure, settings["batches"] * (len(round_.client_ids) + has_global))

    def compute(attrs: list[dict[str, Any]], work: Execution) -> list[ClientCKA]:
        errors = _test_errors(run)
        with work.store({**settings, "layers": asked.layers}, *ROUNDS) as store:
            rounds = work.each(f"cka of {run.name}", map(task, numbers), store)
        said = {"left_out": list(notes)} if notes else {}
        by_layer = zip(*(one.layers for one in rounds), strict=True)
        return [
            ClientCKA(tuple(replace(one, test_error=errors.get(one.round, nan)) for one in layer), {**own, **said})
            for layer, own in zip(by_layer, attrs, strict=True)
        ]

    return PreparedStep(asked.by_layer(settings, taken), compute)


def _of_models(given: Sequence[ModelLike], asked: SimilaritySettings) -> PreparedAnalysis[Similarity]:
    """Any models: a matrix a layer."""
    models = expand_all(given)
    if len(models) < 2:
        (name,) = names_of(models)
        address = parse_address(name) if isinstance(models[0], str) else None
        hint = ""
        if address is not None and address.round is not None:
            Run.open(address.path).round(address.round)  # refused where the run has no such round
            of_round = command_line("cka", address.path, "--rounds", address.round)
            hint = f" (a round's clients are compared by {of_round})"
        raise FedscopeError(f"{name} is one model, and similarity is between two or more; name another{hint}")

    def prepare() -> PreparedStep[ModelCKA]:
        resolved = resolve_models(models, asked.source, together=False)
        settings = asked.settings(resolved)

        def compute(attrs: list[dict[str, Any]], work: Execution) -> Sequence[ModelCKA]:
            from .pairs import model_similarity

            with work.progress("cka") as report:
                how = {**asked.of(settings), "progress": report, "provenance": attrs}
                return model_similarity(resolved.module, resolved.samples, resolved.models, **how)

        return PreparedStep(asked.by_layer(settings, asked.taken(resolved)), compute)

    ends = tuple(layer_ends(asked.layers))

    def join(results: list[ModelCKA]) -> Similarity:
        return results[0] if len(results) == 1 else ModelCKAs(dict(zip(ends, results, strict=True)))

    folder, name = place_of("cka", names_of(given))
    return PreparedAnalysis(folder, f"{name}{asked.variant}", (Step(ModelCKA, prepare, ends),), join, drawn=ends)


def _with_errors(run: Run, stored: ClientCKA) -> ClientCKA:
    """Return a result with the test errors that its run says now (``fedscope measure`` adds to them); the same object
    where it has them already."""
    import numpy as np

    errors = _test_errors(run)
    rounds = tuple(replace(one, test_error=errors.get(one.round, nan)) for one in stored.rounds)
    now, there = ([one.test_error for one in own] for own in (rounds, stored.rounds))
    return stored if np.array_equal(now, there, equal_nan=True) else replace(stored, rounds=rounds)


def _test_errors(run: Run) -> dict[int, float]:
    """Read the test error of the global model while training, by round; a run of another program may not know."""
    if not (run.path / "metrics.csv").exists():
        return {}
    metrics = run.all_metrics()
    return dict(zip(metrics["round"].astype(int).tolist(), metrics["test_error"].tolist(), strict=True))
