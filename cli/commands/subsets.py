"""``fedscope subsets``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ..option_types import Count
from ..options import (
    Output,
    align_option,
    choice,
    measured_settings,
    output_options,
    rounds_option,
    source_options,
    statistics_option,
)


@click.command("subsets", epilog="Example:  fedscope subsets runs/ima --rounds 1,20,last")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option("the first and last of these")
@click.option(
    "--sizes",
    metavar="1,2,5,10",
    help="Numbers m of clients in an average, or all.  [default: all; with more than 20 clients, 12 from 1 to C]",
)
@click.option(
    "--subsets",
    type=Count(1),
    default=20,
    show_default=True,
    help="Number of subsets of each size, drawn with --seed; all of them if there are no more.",
)
@choice("--weights", ["samples", "uniform"], "Weights of a subset's clients: by number of samples, or equal.")
@click.option(
    "--data-of",
    metavar="own|all|client-7|3,8|clients|every",
    help="Whose training data: of each average its members'; all clients'; client 7's; each of the round's clients'; "
    "or these and all.",
)
@align_option
@statistics_option
@source_options("test", files=True)
@output_options
def command(runs: tuple[Path, ...], source: EvaluationConfig, output: Output, **settings: Any) -> None:
    """How many models an average needs: the error of averages of m of a round's C clients, for m = 1 to C.

    A cohort of C clients has C averages of one client (the clients themselves) and one average of all. --split train
    uses all clients' training data.
    """
    from ...decomposition.subsets.analysis import subsets as question
    from ..run_analysis import answer

    # --data-of has a split of its own
    answer(question.prepare(runs, **settings, **measured_settings(source)), output)
