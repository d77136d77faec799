"""``fedscope disperse``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..option_types import Count, Number, Share
from ..options import Output, output_options, refuse_given, rounds_option


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
    help="A parameter, or a layer's parameters by name or pattern (conv*), to show in detail, in the last of the "
    "rounds; repeatable.  [default: the most skewed]",
)
@click.option(
    "--fdr",
    type=Share(),
    default=0.05,
    show_default=True,
    help="False discovery rate of the test of skewness, within a layer and over the model.",
)
@click.option(
    "--embed",
    type=click.Choice(["tsne", "pca"]),
    help="Draw instead a map of these rounds' client and global models, from exact distances, or from sketches if the "
    "models were not kept.",
)
@click.option(
    "--perplexity",
    type=Number(),
    help="Perplexity of t-SNE, less than the number of models.  [default: 30, less with few models]",
)
@click.option(
    "--seed",
    type=Count(0),
    default=0,
    show_default=True,
    help="Seed of t-SNE. It starts here from the principal components, so every seed gives the same map.",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Device that computes statistics and distances: cpu, cuda, mps, xpu, or auto.",
)
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

    For every parameter: the coefficient of variation σ/|μ| (cv), skewness and excess kurtosis over the clients. With 8
    or more clients: also the share of parameters for which D'Agostino's test finds skewness.
    """
    from ..run_analysis import answer

    if embed is None:
        from ...decomposition.dispersion.analysis import disperse

        refuse_given(["perplexity", "seed"], "belongs to a map of models; give --embed tsne with it")
        answer(disperse.prepare(runs, fdr=fdr, **asked), output)
        return
    from ...decomposition.embedding.analysis import embed as embed_models

    refuse_given(["fdr"], f"belongs to the test of skewness; leave it out with --embed {embed}")
    answer(embed_models.prepare(runs, embed, perplexity=perplexity, seed=seed, **asked), output)
