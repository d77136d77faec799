"""Analysis: units of models in one order, and their average repaired."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from ...analysis.analysis import (
    PreparedAnalysis,
    SettingsAndCompute,
    analysis,
    fit_file_name,
    place_of,
    single_result,
    slug_rounds,
)
from ...analysis.execution import Execution
from ...analysis.rounds import Rounds, client_rounds, rounds_text
from ...analysis.run_identity import identity
from ...analysis.settings import EvaluationConfig, EvaluationSettings, refuse_unknown_choice
from ...checkpoints import FedscopeError, Run, parse_address, refuse_own_starts
from ...evaluation.calibration_batches import batches_settings
from ...training.inputs.models import ModelLike, as_list, load_into_same, names_of, resolve_models
from ..run_alone import is_run
from .result import Alignment, label_of_repaired, model_suffixes
from .step import calibration_samples

#: what units are matched by, and to what
BY, TO = ("weights", "activations"), ("first", "mean")


@analysis
def align(
    models: ModelLike | Sequence[ModelLike],
    *,
    by: str = "weights",
    to: str = "first",
    rounds: Rounds = None,
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Alignment]:
    """Bring the units of models into one order, and repair their average.

    Networks that were trained apart may compute the same with their units in another order. The order of the first
    model's is kept; each other model is permuted, which changes nothing of what it computes. The mean of the aligned
    models is measured beside the plain one, and once more with its activations renormalised (REPAIR; of models with
    BatchNorm its statistics are measured on the mean).

    Args:
        models: two or more: addresses, files, ``nn.Module`` s or state dicts. ``RUN@ROUND`` alone: the clients of that
            round, against the model that they were sent; only the share of units that would move is told.
        by: ``weights`` (Git Re-Basin, algorithm 1) or ``activations``, correlated on training samples.
        to: ``first``: each model is matched to the first; ``mean``: to the mean of those that are aligned already.
        rounds: of a run: several rounds.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``. Activations are
            taken on training samples, at most 2,000.

    Raises:
        FedscopeError: a single model; models of other widths; a network without units that could be permuted.

    >>> import fedscope, torch
    >>> nets = [torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)) for _ in range(2)]
    >>> x = torch.randn(40, 2)
    >>> aligned = fedscope.align(nets, data=(x, (x[:, 0] > 0).long()))
    >>> [row.model for row in aligned.averages][2:], len(aligned.models)
    (['mean', 'mean of aligned', 'mean repaired'], 3)

    Source: Ainsworth et al., "Git Re-Basin", arXiv 2209.04836; Jordan et al., "REPAIR", arXiv 2211.08403.
    """
    source = EvaluationConfig.of("test", measured)
    refuse_unknown_choice("by", by, BY)
    refuse_unknown_choice("to", to, TO)
    given = as_list(models)
    names = names_of(given)
    asked_rounds = rounds_text(rounds)
    cohorts = _cohorts(names, asked_rounds)
    if not cohorts and len(given) < 2:
        raise FedscopeError(
            f"{' '.join(names) or 'nothing'} alone cannot be aligned; give two models or more, or RUN@ROUND for a "
            "round's clients"
        )
    files = [str(one) for one in given if isinstance(one, str | Path)]
    if twice := next((name for name in files if files.count(name) > 1), ""):
        raise FedscopeError(f"{twice} is given twice, and its units are in its own order; give each model once")
    parts = cohorts or [("", given)]

    def prepare() -> SettingsAndCompute[Alignment]:
        from ...evaluation.normalization import statistics_of

        first = resolve_models(parts[0][1], source)
        calibration = calibration_samples(first.dataset, first.samples, source)
        settings = {
            **first.settings,
            "by": by,
            "to": to,
            "reference": first.models[0].label if not cohorts else "the model that clients were sent",
            **({"rounds": [word for word, _ in parts]} if cohorts else {}),
            **({"run": [identity(first.runs[0], [int(word) for word, _ in parts])]} if cohorts else {}),
            "calibration_samples": len(calibration),
            "calibration_split": calibration.split,
            **(batches_settings(len(calibration)) if not cohorts and statistics_of(first.module) else {}),
        }

        def compute(attrs: dict[str, Any], work: Execution) -> Alignment:
            from ...evaluation.unlike_buffers import warn_of_averaged
            from .measure_alignment import Aligner, measure_means
            from .several import mean_of

            aligner = Aligner(first.module, calibration, source.compute, option="--by")
            attrs = {**attrs, "aligned": 0 if cohorts else len(given), "stopped": list(aligner.specification.stopped)}
            rows, averages, made = [], [], {}
            with work.progress("align") as report:
                for done, (_, members) in enumerate(parts):
                    own = load_into_same(first, members) if done else first.models
                    weights = [model.weights for model in own]
                    labels = [m.label for m in own]
                    aligned, moved = aligner.align(weights, labels, by, to)
                    rows += moved
                    report(done + 1, len(parts))
            if not cohorts:
                layout = weights[0].layout
                buffers = {one.name: [w.buffers[one.name] for w in weights] for one in layout.buffers}
                warn_of_averaged(buffers, layout.names)
                plain, better = (layout.flatten(mean_of([w.arrays() for w in some])) for some in (weights, aligned))
                repaired, left = aligner.repaired(aligned)
                attrs |= {"unrepaired": list(left)} if left else {}
                averages = measure_means(
                    first.module,
                    first.samples,
                    source.compute,
                    list(zip(labels, weights, strict=True)),
                    [plain, better, repaired],
                )
                made = {**dict(zip(labels, aligned, strict=True)), label_of_repaired(labels): repaired}
            return Alignment(tuple(rows), tuple(averages), attrs, made)

        return settings, compute

    folder, name = place_of("align", names)
    if asked_rounds is not None:
        folder, name = Path(names[0]) / "figures", f"align-rounds-{slug_rounds(asked_rounds)}"
    how = "" if by == "weights" else f"-{by}"
    beside = () if cohorts else model_suffixes(len(given))
    name = fit_file_name(f"{name}{how}{'' if to == 'first' else '-mean'}")
    return single_result(Alignment, folder, name, prepare, beside)


def _cohorts(names: Sequence[str], rounds: str | None) -> list[tuple[str, list[str]]]:
    """Of a run's rounds the model that clients were sent and the clients, by round; none where models are given.

    Raises:
        FedscopeError: rounds without a run; a round without its clients or the model that they were sent.
    """
    alone = names[0] if len(names) == 1 else ""
    address = parse_address(alone) if "@" in alone else None
    of_round = address is not None and address.round is not None and address.which is None
    if rounds and of_round:
        raise FedscopeError(f"{alone} names its round, and so does --rounds {rounds}; leave one out")
    if rounds and not (alone and is_run(alone)):
        raise FedscopeError(f"--rounds {rounds} is of one run, but got {' '.join(names)}; give RUN alone")
    if not rounds and not of_round:
        return []
    path = alone.rpartition("@")[0] or alone
    run = Run.open(path)
    asked = rounds if rounds is not None else str(address.round if address else "")
    found = []
    for number in client_rounds(run, asked):
        round_ = run.round(number)
        refuse_own_starts(run, [number], f"align {alone}", remedy="give two of its clients' models, or ")
        if "start" not in round_.models:
            raise FedscopeError(
                f"{path}@{number} has not recorded the model that its clients were sent; give another round"
            )
        clients = [f"{path}@{number}/client-{k}" for k in round_.client_ids.tolist()]
        found.append((str(number), [f"{path}@{number}/start", *clients]))
    return found
