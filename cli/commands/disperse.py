"""``fedscope disperse``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options import Count, Output, output_options, refuse_given, rounds_option


@click.command(
    "disperse",
    epilog="Example:  fedscope disperse runs/ima --rounds 1,20,last    A map of the models:  "
    "fedscope disperse runs/fma runs/ima --embed tsne",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option("the first and last of these; with --embed all")
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="NAME",
    help="A parameter to look into, in the last of the rounds; repeat it for more.  [default: the most skewed]",
)
@click.option(
    "--fdr",
    type=float,
    default=0.05,
    show_default=True,
    help="False discovery rate of the test of skewness, within a layer and over the model.",
)
@click.option(
    "--embed",
    type=click.Choice(["tsne", "pca"]),
    help="Instead, a map of the clients' and global models of these rounds, from their exact distances, or from "
    "sketches where models were not kept.",
)
@click.option(
    "--perplexity", type=float, help="Of t-SNE, less than the number of models.  [default: 30, fewer of few models]"
)
@click.option(
    "--seed",
    type=Count(0),
    default=0,
    show_default=True,
    help="Of t-SNE, which begins at the principal components here and draws nothing: every seed makes one map.",
)
@click.option("--device", default="auto", show_default=True, help="Where statistics and distances are computed.")
@output_options
def command(
    runs: tuple[Path, ...],
    fdr: float,
    embed: str | None,
    perplexity: float | None,
    seed: int,
    output: Output,
    **asked: Any,
) -> None:
    """How the clients of a round differ: dispersion and skewness of every parameter over clients, by layer.

    Of every parameter the coefficient of variation σ/|μ| (cv), skewness and excess kurtosis over the clients; from 8
    clients on the share whose skewness D'Agostino's test rejects.
    """
    from ..answering import answer

    if embed is None:
        from ...questions.disperse import disperse

        refuse_given(["perplexity", "seed"], "belongs to a map of models; give --embed tsne with it")
        answer(disperse.prepare(runs, fdr=fdr, **asked), output)
        return
    from ...questions.embed import embed as embed_models

    refuse_given(["fdr"], f"belongs to the test of skewness; leave it out with --embed {embed}")
    answer(embed_models.prepare(runs, embed, perplexity=perplexity, seed=seed, **asked), output)
