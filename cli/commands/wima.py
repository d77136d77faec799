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
    "fedscope wima runs/fma runs/ima --rounds last:20 --parts classifier    Checkpoints of one training:  "
    "fedscope wima steps --model nets.py:small --data npz:mnist.npz --windows 2,all --weights uniform,linear",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--windows",
    metavar="5,10,50",
    help="How many of the last global models to average.  [default: those of 5,10,50,100,200 that the run is long "
    "enough for; of checkpoints 2,4,8,... and all]",
)
@rounds_option("last:10", "Which rounds, or all; last:100 means the last hundred.")
@choice(
    "--parts",
    ["all", "features", "classifier"],
    "Parameters to average: all, those before the head, or the head's; the others are the global model's.",
)
@click.option(
    "--checkpoints",
    is_flag=True,
    help="Average the clients of RUN@ROUND, which are checkpoints of one training, the last one the newest. A folder "
    "of checkpoints needs no such option.",
)
@click.option(
    "--weights",
    metavar="uniform,linear,...",
    help="How checkpoints weigh by their age: uniform, linear, cosine, minus_sqrt, ema or ema:0.99.  [default: the "
    "first five]",
)
@source_options("test", files=True)
@output_options
def command(runs: tuple[Path, ...], source: EvaluationConfig, output: Output, **settings: Any) -> None:
    """How many rounds an average needs: the error of the mean of the last W global models.

    WIMA averages for evaluation only. So any run with recorded global models is enough for every window, and nothing is
    trained again.

    A folder of checkpoints of one training, instead of a run, has their last W averaged, in the order of their names;
    so has --checkpoints those that fedscope import made the clients of a round. They are read once for all windows and
    weightings.
    """
    from ...decomposition.windows.analysis import wima
    from ..run_analysis import answer

    answer(wima.prepare(runs, **settings, **vars(source)), output)
