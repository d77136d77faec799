"""``fedscope curves``."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from pathlib import Path
from typing import Any

import click

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import quoted
from ..option_types import Count, HomePath, Share
from ..options import Output, output_options, refuse_given
from ..printing import say, say_json

#: of the options that all results have, those of figures and of where these lie
DRAWN = ("out", "width", "title", "redraw")


@click.command(
    "curves",
    epilog="Example:  fedscope curves runs/fma runs/ima --smooth 7 --out figures/fma-ima    "
    "Other columns:  fedscope curves runs/ima --measure train_loss --measure test_accuracy --last 100    "
    "Rounds to 90 %:  fedscope curves runs/fma runs/ima --target 0.9    "
    "In TensorBoard, while it trains:  fedscope curves runs/ima --tensorboard events --follow",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="COLUMN",
    help="A column of metrics.csv, or its error as accuracy (test_accuracy); repeatable, one panel each. "
    "[default: test_loss and test_error]",
)
@click.option(
    "--last",
    type=Count(1),
    help="Print mean and deviation over this many last measured rounds.  [default: a tenth of them, 10 at most]",
)
@click.option(
    "--smooth", default=0, metavar="ROUNDS", help="Smooth the curves in the figure (Savitzky-Golay) with this window."
)
@click.option(
    "--target",
    type=Share(),
    metavar="ACCURACY",
    help="0.8: print the first round with 80 %, and how many parameters were sent until then.",
)
@click.option(
    "--bands",
    is_flag=True,
    help="Draw runs that differ only in their seed as one line, their mean, with a band of one s.d. over seeds.",
)
@click.option(
    "--tensorboard",
    type=HomePath(),
    metavar="DIR",
    help="Write the numbers as TensorBoard's event files, a folder a run, instead of tables and figures.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="With --tensorboard: go on as rounds come, until every run has all of its rounds; of a sweep every run.",
)
@output_options
def command(runs: tuple[Path, ...], tensorboard: Path | None, follow: bool, output: Output, **settings: Any) -> None:
    """Loss, error and client spread over rounds, as measured during training.

    test_loss and test_error are those of the model that a user would deploy: the averaged model if the run has one,
    else the global model. A sweep's folder stands for all its complete runs.
    """
    if tensorboard is not None:
        refuse_given([*settings, *DRAWN], "is for tables and figures, and --tensorboard writes neither; leave out one")
        export(runs, tensorboard, output, following=follow)
        return
    if follow:
        raise FedscopeError("--follow keeps TensorBoard's event files up to date; say where, with --tensorboard DIR")
    from ...training.curves.analysis import curves
    from ..run_analysis import answer

    answer(curves.prepare(runs, **settings), output)


def export(given: Sequence[Path], folder: Path, output: Output, *, following: bool) -> None:
    """Write runs' events, as they are or as they grow, and say where they lie."""
    from ...training.curves.analysis import growing_runs, whole_runs
    from ...training.curves.follow import follow
    from ...training.curves.tensorboard import export_events
    from ..progress import progress

    look = f"look at them: tensorboard --logdir {quoted(folder)}"
    if following:
        runs = growing_runs(given)
        say(f"fedscope: writing {count(runs)} into {folder} as rounds come; {look}; Ctrl-C ends this", err=True)
        with progress("rounds") as report:
            files = follow(runs, folder, force=output.force, report=report)
    else:
        files = export_events(whole_runs(given), folder, force=output.force)
    if output.as_json:
        say_json({"files": [str(path) for path in files]})
        return
    say(f"{count(files)} as TensorBoard's event files; {look}")
    for path in files:
        say(f"  {path}")


def count(runs: Sized) -> str:
    """Count runs, in words."""
    return f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
