"""``fedscope curves``."""

from __future__ import annotations

from pathlib import Path

import click

from .options import Output, output_options


@click.command("curves", epilog="Example:  fedscope curves runs/fma runs/ima --smooth 7 --out figures/fma-ima")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--smooth", default=0, metavar="ROUNDS", help="Window of a Savitzky-Golay smoothing (odd), for the figure."
)
@output_options
def command(runs: tuple[Path, ...], smooth: int, output: Output) -> None:
    """Loss, error and client spread over rounds, as they were measured while training."""
    from ..training import Curves, curves, refuse_smoothing
    from .results import FIGURE, figures, kinds, obtain, say
    from .sources import identity, open_run

    opened = [open_run(path) for path in runs]
    for run in opened:
        refuse_smoothing(smooth, run.name, len(run.rounds))
    base = output.out or opened[0].path / "figures" / ("curves-" + "-".join(run.name for run in opened))
    # Metrics grow while a run trains, so the last round belongs to what tells one result from another.
    settings = {
        "run": [{**identity(run), "rounds": run.rounds[-1] if run.rounds else 0} for run in opened],
    }
    result = obtain(
        lambda attrs, _: curves(opened, attrs=attrs),
        lambda _: Curves.load(base),
        lambda made: made.save(base),
        Path(f"{base}.curves.json"),
        settings,
        output,
        kinds(base, "curves.csv", *FIGURE),
    )
    tables = [Path(f"{base}.curves.{kind}") for kind in ("csv", "json")]
    written = [*tables, *figures(base, result.figure(output.inches, output.title, smoothing=smooth))]
    parts, numbers = [], {}
    for curve in result.runs:
        mean, deviation, count = curve.tail()
        parts.append(f"{curve.run} {100 * mean:.1f} ± {100 * deviation:.1f} % ({count} rounds)")
        numbers[curve.run] = {"mean": mean, "deviation": deviation, "rounds": count}
    say(
        "test error of the deployed model, mean ± deviation over the last measured rounds: " + ", ".join(parts),
        written,
        as_json=output.as_json,
        test_error=numbers,
    )
