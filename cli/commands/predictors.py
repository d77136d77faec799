"""``fedscope predictors``."""

from __future__ import annotations

from pathlib import Path

import click

from ...analysis.settings import EvaluationConfig
from ..options import Output, output_options, rounds_option, source_options


@click.command("predictors", epilog="Example:  fedscope predictors runs/fma --rounds every:5")
@click.argument("run", type=click.Path(path_type=Path))
@rounds_option("all", "Which rounds; all means all that have their clients and the model these were sent.")
@source_options("test", files=True)
@output_options
def command(run: Path, rounds: str | None, source: EvaluationConfig, output: Output) -> None:
    """What predicts that the mean of a round's clients has a lower loss than they have: cosines, sign conflicts,
    barriers between pairs, overlap of subspaces and effective rank.

    Each is correlated by ranks with what the mean gains, over the rounds, with a 95 % interval. Where that includes 0
    the number is no better than chance in this run.
    """
    from ...decomposition.predictors.analysis import predictors
    from ..run_analysis import answer

    answer(predictors.prepare(run, rounds=rounds, **vars(source)), output)
