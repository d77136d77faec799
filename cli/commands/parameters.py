"""``fedscope parameters``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..option_types import Count, Number
from ..options import Output, choice, output_options, refuse_given


@click.command("parameters", epilog="Example:  fedscope parameters runs/ima --round last --top 4")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--parameter",
    "names",
    multiple=True,
    metavar="NAME",
    help='A parameter, as in "conv1.weight[3,0,2,2]" (indices from 0); repeatable.  [default: the most skewed]',
)
@click.option("--round", "number", metavar="20", help="Which round.  [default: last]")
@click.option(
    "--top",
    type=Count(1),
    default=4,
    show_default=True,
    help="Without --parameter: number of parameters, the most skewed of each layer first.",
)
@click.option(
    "--tsne", is_flag=True, help="Draw many parameters as points instead, placed by what the clients do to them."
)
@click.option(
    "--sample",
    type=Count(1),
    default=5000,
    show_default=True,
    help="With --tsne: number of parameters, at most 20000 (60000 with torchdr), in proportion to the layers.",
)
@click.option(
    "--perplexity", type=Number(), default=30.0, show_default=True, help="With --tsne: neighbours of a point."
)
@choice(
    "--colour",
    ["layer", "skewness", "dispersion"],
    "With --tsne: what colours mean; it changes only the drawing.",
)
@choice("--backend", ["sklearn", "torchdr"], "With --tsne: torchdr runs on a GPU (pip install 'fedscope[gpu]').")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="With --backend torchdr: cpu, cuda, mps, xpu, or auto.",
)
@click.option("--seed", type=Count(0), default=0, show_default=True, help="Seed of the sample and of t-SNE.")
@output_options
def command(
    runs: tuple[Path, ...],
    names: tuple[str, ...],
    number: str | None,
    top: int,
    tsne: bool,
    colour: str,
    seed: int,
    output: Output,
    **how: Any,
) -> None:
    """Single parameters across the clients of a round: their density, and where averaging puts the global value.

    The densities are those of the first RUN's clients. The global models of further RUNs are marked in them. To compare
    servers, give branches of one run (fedscope train --from RUN@ROUND): their clients are the same.
    """
    from ...decomposition.parameters.analysis import IDLE_TOP, parameters
    from ..run_analysis import answer

    asked: dict[str, Any] = {"rounds": number, "parameters": names, "seed": seed}
    if not tsne:
        refuse_given([*how, "colour"], "belongs to --tsne; give both, or neither")
        if names:
            refuse_given(["top"], IDLE_TOP)
        answer(parameters.prepare(runs, top=top, **asked), output)
        return
    question = parameters.prepare(runs, tsne=True, **how, **asked)
    refuse_given(["top"], "belongs to densities, and --tsne maps a sample of all parameters; leave it out")
    answer(question, output, colour=colour)
