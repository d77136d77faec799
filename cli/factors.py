"""What ``fedscope decompose`` does with one run: draws, factors, words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .options import Source

if TYPE_CHECKING:
    from ..checkpoints import Partial, Partition, Run
    from ..decomposition import ErrorCurve, Outputs, RunFactors
    from ..landscape import Samples
    from ..training import Dataset


def parse_draws(text: str) -> int:
    """R of ``local:R``.

    Raises:
        FedscopeError: another source, or R that is not a whole number from 2.
    """
    from ..checkpoints import FedscopeError

    source, _, number = text.partition(":")
    if source != "local":
        raise FedscopeError(f"--draws {text}: {source!r} is not a source of draws here; use local:R, as in local:4")
    if not number.isdigit():
        raise FedscopeError(f"--draws {text}: {number!r} is not a number of draws; write local:4")
    if int(number) < 2:
        raise FedscopeError(f"--draws {text}: R = {number} gives no variance and no covariance; use local:2 or more")
    return int(number)


def decompose_run(
    run: Run, rounds: Sequence[int], count: int, outputs: Outputs, source: Source, device: str, store: Partial
) -> RunFactors:
    """The factors of a run's rounds; finished rounds are kept in ``store``."""
    from ..decomposition import RoundFactors, RunFactors, decompose_round, membership_labels, membership_train
    from ..training import Replayer, config_of, data_of
    from .progress import progress

    dataset = data_of(run)
    replayer = Replayer.of(run, dataset, device=device)
    partition = replayer.federation.partition
    samples = global_training_data(dataset, partition) if source.split == "train" else dataset.samples("test")
    population = source.split == "train" and (source.limit is None or source.limit >= len(samples))
    if source.limit is not None:
        samples = samples.limit(source.limit, source.seed)
    done: list[RoundFactors] = []
    for number in rounds:
        key = f"{run.path}@{number}"
        if key in store.done:
            done.append(RoundFactors.from_json(store.done[key]))
            continue
        with progress(f"{key} replays") as report:
            cohort = replayer.local_draws(number, count, report)
        round_ = run.round(number)
        members = (
            membership_train(partition, cohort.client_ids, samples.indices)
            if source.split == "train"
            else membership_labels(partition.label_counts, cohort.client_ids, samples.y.numpy())
        )
        with progress(f"{key} samples") as report:
            factors = decompose_round(
                replayer.federation.engine.module,
                samples,
                cohort,
                members,
                globals_=round_.read("global") if "global" in round_.models else None,
                averaged=round_.read("averaged") if "averaged" in round_.models else None,
                outputs=outputs,
                population=population,
                device=device,
                precision=source.precision,
                progress=report,
            )
        store.add(key, factors.to_json())
        done.append(factors)
        del cohort, members  # R times a round's clients, before the next round's draws are made
    return RunFactors(run.name, config_of(run).model.name, tuple(done), error_curves(run))


def global_training_data(dataset: Dataset, partition: Partition) -> Samples:
    """D: all clients' training data, without what clients keep aside as their test part."""
    from dataclasses import replace

    import numpy as np

    samples = dataset.samples("train")
    rows = np.unique(np.concatenate(partition.clients))
    if len(rows) == len(samples.y):
        return samples
    return replace(samples, x=samples.x[rows], y=samples.y[rows], indices=rows)


def error_curves(run: Run) -> tuple[ErrorCurve, ...]:
    """The test errors that were measured while training, for the figure's lower panel."""
    import numpy as np

    from ..decomposition import ErrorCurve

    metrics = run.metrics()
    curves = []
    for label, column in (("global", "test_error"), ("averaged", "averaged_test_error")):
        there = ~np.isnan(metrics[column])
        if there.any():
            rounds, error = metrics["round"][there].astype(int), metrics[column][there]
            curves.append(ErrorCurve(label, tuple(rounds.tolist()), tuple(error.tolist())))
    return tuple(curves)


def sentence(run: RunFactors) -> str:
    """The last decomposed round in words, with its numbers."""
    last = run.rounds[-1]

    def shown(factor: str) -> str:
        row = last.row(factor)
        if row.value is None:
            return "not defined"
        error = "" if row.stderr_draws is None else f" ± {row.stderr_draws:.1g}"
        return f"{row.value:.3g}{error}"

    split = (
        f"training bias {shown('train_bias')}, heterogeneous bias {shown('heter_bias')}, cross {shown('bias_cross')}"
        if last.split
        else f"bias {shown('bias')}"
    )
    closure = last.row("closure_error").value or 0.0
    return (
        f"{run.run}, round {last.round}: {split}, variance {shown('variance')}, covariance {shown('covariance')}, "
        f"locality {shown('locality')} = loss {shown('fma_loss')} (closes to {closure:.0e})"
    )


def as_numbers(run: RunFactors) -> list[dict[str, Any]]:
    """Every round's factors, for --json."""
    return [
        {"run": run.run, "round": one.round}
        | {row.factor: row.value for row in one.rows if row.estimate in ("measured", "unbiased")}
        for one in run.rounds
    ]
