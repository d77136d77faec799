"""``fedscope curves``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options import Count, Output, output_options


@click.command(
    "curves",
    epilog="Example:  fedscope curves runs/fma runs/ima --smooth 7 --out figures/fma-ima    "
    "Other columns:  fedscope curves runs/ima --measure train_loss --measure test_accuracy --last 100    "
    "Rounds to 90 %:  fedscope curves runs/fma runs/ima --target 0.9",
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
    default=10,
    show_default=True,
    help="Print mean and deviation over this many last measured rounds.",
)
@click.option(
    "--smooth", default=0, metavar="ROUNDS", help="Smooth the curves in the figure (Savitzky-Golay) with this window."
)
@click.option(
    "--target",
    type=float,
    metavar="ACCURACY",
    help="0.8: print the first round with 80 %, and how many parameters were sent until then.",
)
@click.option(
    "--bands",
    is_flag=True,
    help="Draw runs that differ only in their seed as one line, their mean, with a band of one s.d. over seeds.",
)
@output_options
def command(runs: tuple[Path, ...], output: Output, **settings: Any) -> None:
    """Loss, error and client spread over rounds, as measured during training.

    test_loss and test_error are those of the model that a user would deploy: the averaged model if the run has one,
    else the global model. A sweep's folder stands for all its complete runs.
    """
    from ...questions.curves import curves
    from ..answering import answer

    answer(curves.prepare(runs, **settings), output)
