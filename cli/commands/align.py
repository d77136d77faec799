"""``fedscope align``."""

from __future__ import annotations

from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ..options import Output, choice, output_options, rounds_option, source_options


@click.command(
    "align",
    epilog="Example:  fedscope align a.pt b.pt c.pt --model nets:small --data npz:mnist.npz --out aligned/m    "
    "A round's clients:  fedscope align runs/ima@20",
)
@click.argument("models", nargs=-1, required=True, metavar="A B [C ...] | RUN@ROUND")
@choice("--by", ["weights", "activations"], "Match units by their weights, or by what they answer on training samples.")
@choice("--to", ["first", "mean"], "Match each model to the first, or to the mean of those that are aligned already.")
@rounds_option("the one of RUN@ROUND")
@source_options("test", files=True)
@output_options
def command(models: tuple[str, ...], source: EvaluationConfig, output: Output, **settings: Any) -> None:
    """Bring the units of models into one order, and repair their average.

    The command writes the aligned models, OUT.0.safetensors and so on, and OUT.repaired.safetensors, their mean with
    renormalised activations. It measures the plain mean, the aligned one and the repaired one.

    RUN@ROUND tells which share of a round's clients' units would move against the model that they were sent; --rounds
    asks several rounds of a run.
    """
    from ...landscape.alignment.analysis import align
    from ..run_analysis import answer

    answer(align.prepare(models, **settings, **vars(source)), output)
