"""``fedscope decompose``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...asking.measured_on import Source
from ..options import Output, choice, output_options, panel_option, rounds_option, source_options


@click.command(
    "decompose",
    epilog="Example:  fedscope decompose runs/ima --rounds 1,20,40,last --draws local:4    "
    "Distances and errors alone:  fedscope decompose runs/ima --panel distance --panel error",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option("the first and last of these; with rounds:R the last, because R rounds come before it")
@click.option(
    "--draws",
    default="local:4",
    show_default=True,
    metavar="local:R|rounds:R|runs|none",
    help="Where the R draws of the cohort come from: replays of the local training; the last R rounds of one cohort; "
    "the RUNs themselves, which differ in their seed; or none, the recorded models alone.",
)
@choice(
    "--of",
    ["global", "averaged", "both"],
    "Which average: of the round's clients, or of all clients in the window of an average over rounds.",
)
@choice("--loss", ["squared", "cross-entropy", "zero-one"], "Which loss; only the squared one has all factors.")
@choice(
    "--outputs",
    ["probabilities", "logits"],
    "Which outputs f(x) of a client the squared loss averages and compares.",
)
@choice("--on", ["all", "cohort"], "D: the training data of all clients, or of those that are averaged.")
@panel_option(["factors", "clients", "distance", "error"])
@source_options("train", files=True)
@output_options
def command(runs: tuple[Path, ...], panels: tuple[str, ...], source: Source, output: Output, **settings: Any) -> None:
    """What makes up the global model's loss: bias, variance, covariance and locality, adding up to what is measured.

    --split train takes all clients' training data (the paper's D).
    """
    from ...questions.decompose import decompose
    from ..answering import answer

    answer(decompose.prepare(runs, **settings, **vars(source)), output, panels=panels)
