"""``fedscope decompose``."""

from __future__ import annotations

from pathlib import Path

import click

from ..asking.source import Source
from .options import Output, output_options, source_options


@click.command("decompose", epilog="Example:  fedscope decompose runs/ima --rounds 1,20,40,last --draws local:4")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    metavar="1,20,last",
    help="Which rounds, or all with their clients.  [default: the first and last of these; with rounds:R the last, "
    "because R rounds come before it]",
)
@click.option(
    "--draws",
    default="local:4",
    show_default=True,
    metavar="local:R|rounds:R|runs",
    help="Where the R draws of the cohort come from: replays of the local training; the last R rounds of one cohort; "
    "the RUNs themselves, which differ in their seed.",
)
@click.option(
    "--of",
    type=click.Choice(["global", "averaged", "both"]),
    default="global",
    show_default=True,
    help="Which average: of the round's clients, or of all clients in the window of an average over rounds.",
)
@click.option(
    "--loss",
    type=click.Choice(["squared", "cross-entropy", "zero-one"]),
    default="squared",
    show_default=True,
    help="Which loss; only the squared one has all factors.",
)
@click.option(
    "--outputs",
    type=click.Choice(["probabilities", "logits"]),
    default="probabilities",
    show_default=True,
    help="Which outputs f(x) of a client the squared loss averages and compares.",
)
@click.option(
    "--on",
    type=click.Choice(["all", "cohort"]),
    default="all",
    show_default=True,
    help="D: the training data of all clients, or of those that are averaged.",
)
@source_options("train", files=True)
@output_options
def command(
    runs: tuple[Path, ...],
    rounds: str | None,
    draws: str,
    of: str,
    loss: str,
    outputs: str,
    on: str,
    source: Source,
    output: Output,
) -> None:
    """What makes up the global model's loss: bias, variance, covariance and locality, adding up to what is measured.

    --split train takes all clients' training data (the paper's D).
    """
    from ..questions.decompose import decompose
    from .answering import answer

    asked = decompose.prepare(
        runs, rounds=rounds, draws=draws, of=of, loss=loss, outputs=outputs, on=on, **vars(source)
    )
    answer(asked, output)
