"""``fedscope decompose``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import data_options, device_options, figure_options, parse_rounds

if TYPE_CHECKING:
    from ..checkpoints import Partial, Run
    from ..decomposition import Decomposition, ErrorCurve, RunFactors


@click.command("decompose", epilog="Example:  fedscope decompose runs/ima --rounds 1,20,40,last --draws local:4")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--rounds", default="1,last", show_default=True, metavar="1,20,last", help="Which rounds, or all.")
@click.option(
    "--draws",
    default="local:4",
    show_default=True,
    metavar="local:R",
    help="Where the R draws of the cohort come from: replays of the local training.",
)
@click.option(
    "--outputs",
    type=click.Choice(["probabilities", "logits"]),
    default="probabilities",
    show_default=True,
    help="Which outputs f(x) of a client are averaged and compared.",
)
@data_options("train")
@device_options
@figure_options
def command(
    runs: tuple[Path, ...],
    rounds: str,
    draws: str,
    outputs: str,
    split: str,
    limit: int | None,
    seed: int,
    device: str,
    precision: str,
    out: Path | None,
    width: float | None,
    title: str | None,
    redraw: bool,
    force: bool,
    as_json: bool,
) -> None:
    """What makes up the global model's loss: bias, variance, covariance and locality, adding up to what is measured.

    --split train takes all clients' training data (the paper's D).
    """
    from ..checkpoints import Partial, Run, versions
    from ..decomposition import Decomposition
    from ..training import recorded_clients, resolve_device
    from .results import figures, obtain, say
    from .sources import identity

    count = parse_draws(draws)
    opened = [Run.open(path) for path in runs]
    asked = [parse_rounds(rounds, run.rounds, str(run.path)) for run in opened]
    for run, numbers in zip(opened, asked, strict=True):
        for number in numbers:
            recorded_clients(run, number)
    base = out or opened[0].path / "figures" / f"decompose-{split}-{'-'.join(run.name for run in opened)}"
    settings: dict[str, Any] = {
        "run": [identity(run) for run in opened],
        "rounds": asked,
        "draws": draws,
        "outputs": outputs,
        "split": split,
        "limit": limit,
        "seed": seed if limit else None,
        "device": resolve_device(device),
        "precision": precision,
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Decomposition:
        # Rounds do not enter the fingerprint: asking for more of them goes on with those that are done.
        store = Partial(
            partial, {key: value for key, value in {**settings, "versions": versions()}.items() if key != "rounds"}
        )
        parts = [
            decompose_run(
                run,
                numbers,
                count,
                outputs=outputs,
                split=split,
                limit=limit,
                seed=seed,
                device=settings["device"],
                precision=precision,
                store=store,
            )
            for run, numbers in zip(opened, asked, strict=True)
        ]
        return Decomposition(tuple(parts), split=split, draws=draws, attrs=attrs)

    def save(made: Decomposition) -> None:
        made.save(base)
        Path(f"{base}.factors.csv.partial").unlink(missing_ok=True)

    main = Path(f"{base}.factors.csv")
    result = obtain(compute, lambda _: Decomposition.load(base), save, main, settings, force=force, redraw=redraw)
    written = [main, Path(f"{base}.clients.csv"), *figures(base, result.figure(width or 3.5, title))]
    said = [sentence(part) for part in result.runs]
    say("; ".join(said), written, as_json=as_json, rounds=[value for part in result.runs for value in as_numbers(part)])


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
    run: Run,
    rounds: Sequence[int],
    count: int,
    *,
    outputs: str,
    split: str,
    limit: int | None,
    seed: int,
    device: str,
    precision: str,
    store: Partial,
) -> RunFactors:
    """The factors of a run's rounds; finished rounds are kept in ``store``."""
    from ..decomposition import RoundFactors, RunFactors, decompose_round, membership_labels, membership_train
    from ..training import Replayer, config_of, data_of
    from .progress import progress

    dataset = data_of(run)
    replayer = Replayer.of(run, dataset, device=device)
    partition = replayer.federation.partition
    samples = global_training_data(dataset, partition) if split == "train" else dataset.samples("test")
    population = split == "train" and (limit is None or limit >= len(samples.y))
    if limit is not None:
        samples = samples.limit(limit, seed)
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
            if split == "train"
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
                outputs=outputs,  # type: ignore[arg-type]
                population=population,
                device=device,
                precision=precision,
                progress=report,
            )
        store.add(key, factors.to_json())
        done.append(factors)
    return RunFactors(run.name, config_of(run).model.name, tuple(done), error_curves(run))


def global_training_data(dataset: Any, partition: Any) -> Any:
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
