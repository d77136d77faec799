"""``fedscope synergy``."""

from __future__ import annotations

from typing import Any

import click

from ..option_types import Count, Share
from ..options import Output, choice, output_options


@click.command("synergy", epilog="Example:  fedscope synergy runs/ima@40 --quantile 0.99")
@click.argument("run", metavar="RUN@ROUND")
@click.option("--rounds", metavar="40", help="Which round, if RUN names none.")
@click.option(
    "--classes", type=Count(1), default=4, show_default=True, help="Number C of micro-classes of squared deviations."
)
@click.option(
    "--clusters", type=Count(1), default=4, show_default=True, help="Largest number S of clusters of clients."
)
@click.option(
    "--cv-threshold",
    type=Share(),
    default=0.2,
    show_default=True,
    help="A parameter is high above this scaled coefficient of variation.",
)
@click.option(
    "--sim-threshold",
    type=Share(),
    default=0.2,
    show_default=True,
    help="A client joins one of S clusters above this similarity.",
)
@choice(
    "--similarity",
    ["model", "layer"],
    "Compare and cluster clients over the model, or layer by layer (as FedSA's server).",
)
@click.option(
    "--quantile",
    type=Share(),
    metavar="0.99",
    help="Scale this quantile of the coefficient of variation to 1.  [default: its maximum, as in the paper]",
)
@click.option("--seed", type=Count(0), default=0, show_default=True, help="Seed of the permutations for the p-values.")
@output_options
def command(run: str, output: Output, **settings: Any) -> None:
    """Which parameters the clients of a round disagree about, and whether clients with similar labels disagree alike.

    This is FedSA's diagnosis (high dispersion, micro-classes MIC, clusters MAC and their weights), for runs of any
    method. It reads one layer of all clients at once: at most 0.19 GB for 20 clients of ResNet-18.
    """
    from ...decomposition.synergy.analysis import synergy
    from ..run_analysis import answer

    answer(synergy.prepare(run, **settings), output)
