"""``fedscope updates``."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import Output, output_options, rounds_option


@click.command(
    "updates",
    epilog="Example:  fedscope updates runs/ima    Several runs in one figure:  fedscope updates runs/fma runs/ima",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option("all", "Which rounds; all means all with recorded clients.")
@click.option(
    "--layers",
    metavar="each|PATTERN",
    help="The same by layer, of one run: each alone, or names together as conv*,fc or /^blocks/.",
)
@output_options
def command(runs: tuple[Path, ...], rounds: str | None, layers: str | None, output: Output) -> None:
    """Whether the clients' updates agree: cosines between updates, and how much of them cancels in the mean.

    An update is a client's model minus the model that it was sent. No data are needed, and nothing is evaluated.

    --layers says in which layer updates agree least and cancel most. fedscope layers RUN lists the names.
    """
    from ...decomposition.updates.analysis import updates
    from ..run_analysis import answer

    answer(updates.prepare(runs, rounds=rounds, layers=layers), output)
