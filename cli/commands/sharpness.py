"""``fedscope sharpness``."""

from __future__ import annotations

from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ..option_types import Count, Share
from ..options import Output, output_options, refuse_given, rounds_option, source_options


@click.command(
    "sharpness",
    epilog="Example:  fedscope sharpness runs/fma@last runs/ima@last    Over rounds:  "
    "fedscope sharpness runs/fma runs/ima --rounds 1,20,last",
)
@click.argument("models", nargs=-1, required=True, metavar="RUN@ROUND|RUN ...")
@rounds_option("last", "Which rounds of every RUN, or all.")
@click.option(
    "--data-of",
    metavar="own|all|client-7|every",
    help="Whose training data: of clients' models their own; all clients'; client 7's; every one's and all, compared.",
)
@click.option(
    "--layers",
    metavar="each|PATTERN",
    help="Only these layers move: each alone, or names together as conv*,fc or /^blocks/; all of them last.",
)
@click.option("--rho", type=Share(), default=0.05, show_default=True, help="Radius of the ball, an L2 distance.")
@click.option(
    "--relative",
    type=Share(),
    default=0.1,
    show_default=True,
    help="Radius relative to the lengths of the model's filters.",
)
@click.option(
    "--draws", type=Count(1), default=10, show_default=True, help="Random directions for the means over the balls."
)
@click.option("--top", type=Count(1), default=5, show_default=True, help="Number of largest eigenvalues.")
@click.option("--probes", type=Count(1), default=10, show_default=True, help="Random vectors for the trace.")
@click.option(
    "--density",
    type=Count(0),
    default=0,
    show_default=True,
    metavar="STEPS",
    help="Also the spectral density, in this many steps, such as 64; needs pip install 'fedscope[hessian]'.",
)
@click.option("--frozen", is_flag=True, help="Count frozen parameters, too; by default only trained ones.")
@click.option("--no-hessian", is_flag=True, help="Only rises of the loss: no eigenvalues, trace or density.")
@source_options("train", files=True)
@output_options
def command(
    models: tuple[str, ...], no_hessian: bool, source: EvaluationConfig, output: Output, **settings: Any
) -> None:
    """How sharp the loss is at models: the Hessian's eigenvalues and trace, and how far the loss rises nearby.

    A model is RUN@ROUND[/WHICH] or a file. RUN alone stands for its models of --rounds. The loss is the training loss,
    which methods like FedSAM claim to make flatter; --split test measures the test loss. --seed also draws directions.

    --layers says in which layer the loss is sharp. fedscope layers RUN lists the names.

    --data-of every compares all clients' data with each client's: the flatness distance.
    """
    from ...landscape.curvature.analysis import sharpness
    from ..run_analysis import answer

    if no_hessian:
        refuse_given(("density", "top", "probes"), "is of the Hessian, which --no-hessian leaves out; leave one out")
    answer(sharpness.prepare(models, hessian=not no_hessian, **settings, **vars(source)), output)
