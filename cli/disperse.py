"""``fedscope disperse``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import Count, Output, output_options, refuse_given

if TYPE_CHECKING:
    from ..decomposition.dispersion import Dispersion


@click.command(
    "disperse",
    epilog="Example:  fedscope disperse runs/ima --rounds 1,20,last    A map of the models:  "
    "fedscope disperse runs/fma runs/ima --embed tsne",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    metavar="1,20,last",
    help="Which rounds, or all with their clients.  [default: the first and last of these; with --embed all]",
)
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
    help="Instead, a map of the clients' and global models of these rounds, from their exact distances.",
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
    rounds: str | None,
    layers: tuple[str, ...],
    fdr: float,
    embed: str | None,
    perplexity: float | None,
    seed: int,
    device: str,
    output: Output,
) -> None:
    """How the clients of a round differ: dispersion and skewness of every parameter over clients, by layer.

    Of every parameter the coefficient of variation σ/|μ| (cv), skewness and excess kurtosis over the clients; from 8
    clients on the share whose skewness D'Agostino's test rejects.
    """
    from ..asking.runs import identity, open_runs
    from ..checkpoints import Partial, versions
    from ..decomposition.dispersion import Dispersion, refuse_rate, round_numbers, round_sentence
    from ..training import resolve_device
    from .dispersing import asked_rounds, default_base, dispersed, looked_into, maps_of, refuse_unequal
    from .results import FIGURE, figures, kinds, obtain, say

    if embed is not None:
        refuse_given(["fdr"], f"belongs to the test of skewness; leave it out with --embed {embed}")
        map_models(runs, rounds, embed, perplexity, layers, seed, device, output)
        return
    refuse_given(["perplexity", "seed"], "belongs to a map of models; give --embed tsne with it")
    refuse_rate(fdr)
    opened = open_runs(runs)
    refuse_unequal(opened, layers)
    asked, where = asked_rounds(opened, rounds), resolve_device(device)
    deep = looked_into(asked, layers)
    base = output.out or default_base(opened, rounds, layers, fdr)
    settings: dict[str, Any] = {
        "run": [identity(run) for run in opened],
        "rounds": [[run.name, number] for run, number in asked],
        "layers": list(layers),
        "fdr": fdr,
        "device": where,
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Dispersion:
        # Neither rounds nor layers enter the fingerprint: asking for more goes on with the rounds that are done.
        question = {"run": settings["run"], "fdr": fdr, "device": where, "versions": versions()}
        with Partial(partial, question) as store:
            measured = dispersed(asked, fdr, store, where)
        return Dispersion(measured, fdr, maps_of(deep, measured, layers), attrs)

    main = Path(f"{base}.dispersion.json")
    taken = kinds(base, "dispersion.csv", "layers.skewness.csv", "layers.map.csv", "layers.pdf", "layers.png", *FIGURE)
    result = obtain(
        compute, lambda _: Dispersion.load(base), lambda made: made.save(base), main, settings, output, taken
    )
    tables = kinds(base, "dispersion.csv", "layers.skewness.csv", "layers.map.csv", "dispersion.json")
    written = [*tables, *figures(base, result.figure(output.inches, output.title))]
    if result.maps:
        written += figures(Path(f"{base}.layers"), result.layers_figure(output.inches, output.title))
    else:
        for path in kinds(base, "layers.pdf", "layers.png"):
            path.unlink(missing_ok=True)  # of a result that this one has replaced
    say(
        "\n".join(round_sentence(one, fdr) for one in result.rounds),
        written,
        as_json=output.as_json,
        rounds=[round_numbers(one) for one in result.rounds],
    )


def map_models(
    runs: Sequence[Path],
    rounds: str | None,
    method: str,
    perplexity: float | None,
    layers: Sequence[str],
    seed: int,
    device: str,
    output: Output,
) -> None:
    """``--embed``: where the models lie by their distances."""
    from .embeddings import asked_of, embedded, tell

    asked = asked_of(runs, rounds, method, perplexity=perplexity, layers=layers, seed=seed, device=device)
    tell(asked, embedded(asked, output), output)
