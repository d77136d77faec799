"""``fedscope line``."""

from __future__ import annotations

from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ..option_types import Count, Share
from ..options import Output, align_option, measured_settings, normalization_option, output_options, source_options


@click.command(
    "line",
    epilog="Example:  fedscope line runs/fma@last runs/ima@last    All pairs of a round's clients:  "
    "fedscope line runs/ima@20 --clients",
)
@click.argument("models", nargs=-1, required=True, metavar="A B [A B ...] | RUN | RUN@ROUND")
@click.option("--clients", is_flag=True, help="The barriers between all pairs of a round's clients, as a heat map.")
@click.option(
    "--layers",
    metavar="each|cumulative|PATTERN",
    help="Only these layers move and the others stay: each alone, the first l, or names as conv*,fc or /^blocks/.",
)
@click.option(
    "--rounds",
    metavar="1,20,last",
    help="Of RUN alone: the same line in each of these rounds, or all; with --layers a heat map of barriers.",
)
@click.option(
    "--data-of",
    metavar="own|all|client-7|3,8|clients|every",
    help="Measure on these clients' own training data, a curve each; on all clients'; or on every one's and all.",
)
@click.option("--points", type=Count(3), help="Points on a line.  [default: 81; 11 with --clients or --layers]")
@click.option(
    "--range",
    type=Share(),
    nargs=2,
    help="Ends of the lines, as beta.  [default: -0.5 1.5; 0 1 with --clients or --layers]",
)
@normalization_option
@align_option
@source_options("test", files=True)
@output_options
def command(models: tuple[str, ...], source: EvaluationConfig, output: Output, **settings: Any) -> None:
    """Losses along the segment between two models: beta is 0 at B and 1 at A. Several pairs make several curves.

    A model is RUN@ROUND[/WHICH] or a file: runs/ima@40, runs/ima@last/global, runs/ima@40/client-17, best.pt.

    RUN alone is the line from the start of its last recorded round to the server's model after it.

    --clients measures linear mode connectivity: the loss barrier between every two clients of a round.

    --layers says which layer carries the barrier between two models. fedscope layers RUN lists the names. RUN --layers
    each --rounds all says it of every round.
    """
    from ...landscape.lines.analysis import line
    from ..run_analysis import answer

    answer(line.prepare(models, **settings, **measured_settings(source)), output)  # --data-of has a split of its own
