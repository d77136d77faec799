"""``fedscope curves``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import Count, Output, output_options

if TYPE_CHECKING:
    from ..training import Curve


@click.command(
    "curves",
    epilog="Example:  fedscope curves runs/fma runs/ima --smooth 7 --out figures/fma-ima    "
    "Other columns:  fedscope curves runs/ima --measure train_loss --measure test_accuracy --last 100",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="COLUMN",
    help="A column of metrics.csv, or accuracy for its error, as test_accuracy; repeatable, a panel each.  "
    "[default: test_loss and test_error]",
)
@click.option(
    "--last",
    type=Count(1),
    default=10,
    show_default=True,
    help="Of how many measured rounds, the last ones, mean and deviation are printed.",
)
@click.option("--smooth", default=0, metavar="ROUNDS", help="Window of a Savitzky-Golay smoothing, for the figure.")
@output_options
def command(runs: tuple[Path, ...], measures: tuple[str, ...], last: int, smooth: int, output: Output) -> None:
    """Loss, error and client spread over rounds, as they were measured while training.

    test_loss and test_error are those of the model that a user would deploy: the averaged one where there is one.
    """
    from dataclasses import replace

    from ..asking.runs import identity, open_run
    from ..training import USUAL, Curves, curves
    from .results import FIGURE, figures, kinds, obtain, say

    opened = [open_run(path) for path in runs]
    measures = tuple(dict.fromkeys(measures))
    asked, measured = measures or USUAL, curves(opened)
    measured.drawable(asked, smooth)  # refused before anything is written
    what = "-".join([*(run.name for run in opened), *measures])
    base = output.out or opened[0].path / "figures" / f"curves-{what}"
    # Metrics grow while a run trains, so the last round belongs to what tells one result from another.
    settings = {
        "run": [{**identity(run), "rounds": run.rounds[-1] if run.rounds else 0} for run in opened],
    }
    result = obtain(
        lambda attrs, _: replace(measured, attrs=attrs),
        lambda _: Curves.load(base),
        lambda made: made.save(base),
        Path(f"{base}.curves.json"),
        settings,
        output,
        kinds(base, "curves.csv", *FIGURE),
    )
    tables = [Path(f"{base}.curves.{kind}") for kind in ("csv", "json")]
    figure = result.figure(output.inches, output.title, smoothing=smooth, measures=asked)
    told = measures or ("test_error",)
    say(
        "\n".join(sentence(result.runs, name, last) for name in told),
        [*tables, *figures(base, figure)],
        as_json=output.as_json,
        **{name: numbers(result.runs, name, last) for name in told},
    )


def sentence(curves: Sequence[Curve], name: str, last: int) -> str:
    """A measure's mean and deviation over the last rounds of every run, in words."""
    from ..training import measure_of

    measure, parts = measure_of(name), []
    deployed = " of the deployed model" if measure.column in ("test_loss", "test_error") else ""
    for curve in curves:
        mean, deviation, count = curve.tail(name, last)
        if not count:
            parts.append(f"{curve.run} not measured")
            continue
        digits, scale, unit = (".1f", 100, " %") if measure.is_share else (".3g", 1, "")
        spread = f" ± {scale * deviation:{digits}}" if count > 1 else ""
        few = ", all that were measured" if count < last else ""
        rounds = f"{count} round{'s' if count > 1 else ''}{few}"
        parts.append(f"{curve.run} {scale * mean:{digits}}{spread}{unit} ({rounds})")
    return f"{measure.words}{deployed}, mean ± deviation over the last measured rounds: {', '.join(parts)}"


def numbers(curves: Sequence[Curve], name: str, last: int) -> dict[str, dict[str, float | int]]:
    """The same for --json."""
    tails = {curve.run: curve.tail(name, last) for curve in curves}
    return {
        run: {"mean": mean, "deviation": deviation, "rounds": count} for run, (mean, deviation, count) in tails.items()
    }
