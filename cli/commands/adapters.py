"""``fedscope adapters``."""

from __future__ import annotations

from pathlib import Path

import click

from ...analysis.settings import EvaluationConfig
from ..options import Output, output_options, refuse_given, rounds_option, source_options


@click.command("adapters", epilog="Example:  fedscope adapters runs/lora")
@click.argument("run", type=click.Path(path_type=Path))
@rounds_option("all", "Which rounds; all means all with recorded clients.")
@click.option(
    "--cost",
    is_flag=True,
    help="Measure what averaging factors costs: its loss less that of the mean of products, with an interval. Asked "
    "for by --data or --model, too.",
)
@source_options("test", files=True)
@output_options
def command(run: Path, rounds: str | None, cost: bool, source: EvaluationConfig, output: Output) -> None:
    """How far the mean of LoRA adapters is from the mean of what they do, by layer and round, and which mean the run's
    server has made.

    An adapter adds B·A to a layer. The mean of all B times the mean of all A is not the mean of the products. No data
    are needed but for --cost.
    """
    from ...decomposition.adapters.analysis import IDLE, adapters
    from ..run_analysis import answer

    if not cost and source.data is None and source.model is None:
        refuse_given(["split", "limit", "seed", "precision", "standardise", "accept_data", "base", "task"], IDLE)
    answer(adapters.prepare(run, rounds=rounds, cost=cost, **vars(source)), output)
