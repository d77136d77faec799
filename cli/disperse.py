"""``fedscope disperse``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import Count, Output, output_options

if TYPE_CHECKING:
    from ..checkpoints import Partial, Run
    from ..decomposition.dispersion import Dispersion, LayerMap, RoundDispersion


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
@click.option("--seed", type=Count(0), default=0, show_default=True, help="Of t-SNE.")
@click.option("--device", default="auto", show_default=True, help="Where the distances are computed: cpu, cuda.")
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
    from ..checkpoints import FedscopeError, Partial, versions
    from ..decomposition.dispersion import Dispersion, refuse_rate, round_numbers, round_sentence
    from .results import figures, obtain, say
    from .sources import identity, open_runs

    if embed is not None:
        map_models(runs, rounds, embed, perplexity, layers, seed, device, output)
        return
    if perplexity is not None:
        raise FedscopeError(f"--perplexity {perplexity:g} belongs to a map of models; give --embed tsne with it")
    refuse_rate(fdr)
    opened = open_runs(runs)
    refuse_unequal(opened, layers)
    asked = asked_rounds(opened, rounds)
    base = output.out or default_base(opened, rounds, layers, fdr)
    settings: dict[str, Any] = {
        "run": [identity(run) for run in opened],
        "rounds": [[run.name, number] for run, number in asked],
        "layers": list(layers),
        "fdr": fdr,
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Dispersion:
        # Neither rounds nor layers enter the fingerprint: asking for more goes on with the rounds that are done.
        question = {"run": settings["run"], "fdr": fdr, "versions": versions()}
        with Partial(partial, question) as store:
            measured = dispersed(asked, fdr, store)
        return Dispersion(measured, fdr, maps_of(opened, measured, layers), attrs)

    main = Path(f"{base}.dispersion.json")
    result = obtain(compute, lambda _: Dispersion.load(base), lambda made: made.save(base), main, settings, output)
    kinds = ("dispersion.csv", "layers.skewness.csv", "layers.map.csv", "dispersion.json")
    written = [*(Path(f"{base}.{kind}") for kind in kinds), *figures(base, result.figure(output.inches, output.title))]
    if result.maps:
        written += figures(Path(f"{base}.layers"), result.layers_figure(output.inches, output.title))
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


def refuse_unequal(runs: Sequence[Run], layers: Sequence[str]) -> None:
    """Refuse what no common table could hold, before anything is read.

    Raises:
        FedscopeError: two runs of different layouts; a layer that is no parameter.
    """
    from ..checkpoints import FedscopeError
    from ..checkpoints.errors import listed, nearest

    for run in runs[1:]:
        difference = runs[0].layout.difference(run.layout)
        if difference is not None:
            raise FedscopeError(
                f"{runs[0].path} and {run.path} trained different models, whose layers have no common rows "
                f"({difference}); ask for one of them at a time"
            )
    known = list(runs[0].layout.slices)
    for layer in layers:
        if layer not in known:
            hint = nearest(layer, known) or f"; it has {listed(known)}"
            raise FedscopeError(f"--layer {layer}: {runs[0].path} has no such parameter{hint}")


def asked_rounds(runs: Sequence[Run], rounds: str | None) -> list[tuple[Run, int]]:
    """Every round of every run.

    Raises:
        FedscopeError: a round that a run does not have; without clients, or with only one.
    """
    from ..decomposition.dispersion import count_clients
    from .sources import client_rounds

    asked = [(run, number) for run in runs for number in client_rounds(run, rounds)]
    for run, number in asked:
        count_clients(run.round(number))
    return asked


def dispersed(asked: Sequence[tuple[Run, int]], fdr: float, store: Partial) -> tuple[RoundDispersion, ...]:
    """Every round's dispersion; finished rounds are kept in ``store``."""
    from ..decomposition.dispersion import RoundDispersion, disperse_round
    from .progress import progress, within

    expected, before = sum(run.layout.size for run, _ in asked), 0
    done: list[RoundDispersion] = []
    with progress("disperse") as report:
        for run, number in asked:
            key = f"{run.path}@{number}"
            if key not in store.done:
                found = disperse_round(
                    run.round(number), run=run.name, fdr=fdr, progress=within(report, before, expected)
                )
                store.add(key, found.to_json())
            done.append(RoundDispersion.from_json(store.done[key]))
            before += run.layout.size
            report(before, expected)
    return tuple(done)


def maps_of(runs: Sequence[Run], rounds: Sequence[RoundDispersion], layers: Sequence[str]) -> tuple[LayerMap, ...]:
    """The layers asked for, in the last round of every run; none of fewer than three clients."""
    from ..decomposition.dispersion import map_layer, most_skewed

    last = {one.run: one for one in rounds}
    deep = [run for run in runs if last[run.name].clients >= 3]
    if not deep:
        return ()
    chosen = [*dict.fromkeys(layers)] or [found for found in [most_skewed(last[deep[0].name])] if found]
    return tuple(map_layer(run.round(last[run.name].round), name, run=run.name) for name in chosen for run in deep)


def default_base(runs: Sequence[Run], rounds: str | None, layers: Sequence[str], fdr: float) -> Path:
    """``RUN/figures/disperse-<what>``, where what is not the default is part of the name."""
    from .names import slug

    words = [
        *(run.name for run in runs[1:]),
        slug(rounds or "1,last"),
        *layers,
        *([] if fdr == 0.05 else [f"fdr{fdr:g}"]),
    ]
    return runs[0].path / "figures" / f"disperse-{'-'.join(words)}"
