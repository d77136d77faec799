"""``fedscope wima``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ..options import Output, choice, output_options, rounds_option, source_options


@click.command(
    "wima",
    epilog="Example:  fedscope wima runs/fma --windows 5,10,20    Over other rounds, the head alone:  "
    "fedscope wima runs/fma runs/ima --rounds last:20 --parts classifier",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--windows",
    metavar="5,10,50",
    help="How many of the last global models to average.  [default: those of 5,10,50,100,200 that the run is long "
    "enough for]",
)
@rounds_option("last:10", "Which rounds, or all; last:100 means the last hundred.")
@choice(
    "--parts",
    ["all", "features", "classifier"],
    "Parameters to average: all, those before the head, or the head's; the others are the global model's.",
)
@source_options("test", files=True)
@output_options
def command(runs: tuple[Path, ...], source: EvaluationConfig, output: Output, **settings: Any) -> None:
    """How many rounds an average needs: the error of the mean of the last W global models.

    WIMA averages for evaluation only. So any run with recorded global models is enough for every window, and nothing is
    trained again.
    """
    from ...decomposition.windows.analysis import wima
    from ..run_analysis import answer

    answer(wima.prepare(runs, **settings, **vars(source)), output)
