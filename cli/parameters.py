"""``fedscope parameters``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ..asking.runs import parse_rounds
from .options import Count, Output, output_options, refuse_given

if TYPE_CHECKING:
    from ..checkpoints import Round, Run
    from ..decomposition.parameters import Parameters, Place


@click.command("parameters", epilog="Example:  fedscope parameters runs/ima --round last --top 4")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--parameter",
    "names",
    multiple=True,
    metavar="NAME",
    help='A parameter, as in "conv1.weight[3,0,2,2]" (indices from 0); repeatable.  [default: the most skewed]',
)
@click.option("--round", "number", default="last", show_default=True, metavar="20", help="Which round.")
@click.option(
    "--top",
    type=Count(1),
    default=4,
    show_default=True,
    help="Without --parameter: so many, the most skewed of each layer first.",
)
@click.option("--tsne", is_flag=True, help="Many parameters as points instead, by what the clients do to them.")
@click.option(
    "--sample",
    type=Count(1),
    default=5000,
    show_default=True,
    help="Of --tsne: how many parameters, at most 20000 (100000 with torchdr), in proportion to the layers.",
)
@click.option("--perplexity", type=float, default=30.0, show_default=True, help="Of --tsne: neighbours of a point.")
@click.option(
    "--colour",
    type=click.Choice(["layer", "skewness", "dispersion"]),
    default="layer",
    show_default=True,
    help="Of --tsne: what colours mean; only the drawing hangs on it.",
)
@click.option(
    "--backend",
    type=click.Choice(["sklearn", "torchdr"]),
    default="sklearn",
    show_default=True,
    help="Of --tsne: torchdr runs on a GPU (pip install 'fedscope[gpu]').",
)
@click.option(
    "--device", default="auto", show_default=True, help="Of --backend torchdr: cpu, cuda or auto (cuda if there)."
)
@click.option("--seed", type=Count(0), default=0, show_default=True, help="Seed of samples and of the t-SNE.")
@output_options
def command(
    runs: tuple[Path, ...],
    names: tuple[str, ...],
    number: str,
    top: int,
    tsne: bool,
    sample: int,
    perplexity: float,
    colour: Literal["layer", "skewness", "dispersion"],
    backend: str,
    device: str,
    seed: int,
    output: Output,
) -> None:
    """Single parameters over the clients of a round: the density, and where averaging puts the global value.

    The first RUN's clients make the densities; the global models of further RUNs are marked in them. Give branches of
    one run (fedscope train --from RUN@ROUND), whose clients are the same, to compare servers.
    """
    from ..asking.runs import open_run
    from ..checkpoints import FedscopeError, recorded_clients

    opened = [open_run(path, "--round") for path in runs]
    asked = parse_rounds(number, opened[0].rounds, str(opened[0].path), option="--round")
    if len(asked) > 1:
        raise FedscopeError(f"--round {number} names {len(asked)} rounds; give one, as in --round {asked[-1]}")
    # one number for all runs: their last rounds may differ
    rounds = [recorded_clients(opened[0], asked[0], start=False), *(run.round(asked[0]) for run in opened[1:])]
    if not tsne:
        refuse_given(
            ["sample", "perplexity", "colour", "backend", "device"], "belongs to --tsne; give both, or neither"
        )
        draw_densities(opened, rounds, names, top, seed, output)
        return
    if len(runs) > 1:
        raise FedscopeError(f"--tsne maps a sample of one run's parameters, but {len(runs)} runs were given; give one")
    if names:
        raise FedscopeError("--tsne maps a sample of all parameters, but --parameter was given; leave it out")
    refuse_given(["top"], "belongs to densities, and --tsne maps a sample of all parameters; leave it out")
    draw_tsne(opened[0], rounds[0], sample, perplexity, backend, device, seed, colour, output)


def draw_densities(
    runs: Sequence[Run], rounds: Sequence[Round], names: Sequence[str], top: int, seed: int, output: Output
) -> None:
    """Densities of single parameters: compute or read, draw, and say."""
    from ..asking.runs import identity
    from ..checkpoints import FedscopeError
    from ..decomposition.parameters import Parameters, most_skewed, parse_place, read_values, refer, refuse_other_layout
    from ..decomposition.parameters.result import MOST
    from ..decomposition.parameters.tables import summary_json
    from ..decomposition.parameters.words import sentences
    from .progress import progress
    from .results import FIGURE, figures, kinds, obtain, say

    first = rounds[0]
    for run, round_ in zip(runs[1:], rounds[1:], strict=True):
        refuse_other_layout(first, round_)
        if "global" not in round_.models:
            raise FedscopeError(f"{run.path}@{round_.number} did not record its global model; give another --round")
    if top > MOST:
        raise FedscopeError(f"--top {top} asks for a panel each; take {MOST} at most")
    chosen = tuple(dict.fromkeys(parse_place(name, first.layout) for name in names))
    others = "".join(f"-{run.name}" for run in runs[1:])
    what = "".join(f"-{slugged(place)}" for place in chosen[:3]) + (f"-and-{len(chosen) - 3}" if chosen[3:] else "")
    base = output.out or runs[0].path / "figures" / f"parameters{others}-{first.number}{what}"
    settings: dict[str, Any] = {
        "run": [identity(run) for run in runs],
        "round": first.number,
        "parameters": [place.name for place in chosen] or None,
        "top": None if chosen else top,
        "seed": seed,
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Parameters:
        with progress("parameters") as report:
            places = chosen or most_skewed(first, top, report)
        values = [read_values(round_, places, run.name) for run, round_ in zip(runs, rounds, strict=True)]
        size = {"size": first.layout.size, "same_start": same_starts(runs, rounds)}
        return Parameters(tuple(place.name for place in places), tuple(values), refer(first, seed), {**attrs, **size})

    main = Path(f"{base}.parameters.json")
    taken = kinds(base, "parameters.csv", *FIGURE)
    result = obtain(
        compute, lambda _: Parameters.load(base), lambda made: made.save(base), main, settings, output, taken
    )
    say(
        sentences(result),
        [Path(f"{base}.parameters.csv"), main, *figures(base, result.figure(output.inches, output.title))],
        as_json=output.as_json,
        parameters=[summary_json(summary) for summary in result.summaries],
        reference=vars(result.reference) if result.reference else None,
    )


def slugged(place: Place) -> str:
    """A parameter as a part of a file name."""
    return re.sub(r"[^\w.]+", "-", place.name).strip("-")


def same_starts(runs: Sequence[Run], rounds: Sequence[Round]) -> bool:
    """Whether the same clients with the same data were sent one model: then their servers can be compared."""
    import numpy as np

    def facts(run: Run, round_: Round) -> list[np.ndarray]:
        ids = round_.client_ids
        labels = [] if run.partition is None else [run.partition.label_counts[ids]]
        return [round_.read("start").parameters, ids, *labels]

    if any("start" not in round_.models for round_ in rounds):
        return False
    first, *others = (facts(run, round_) for run, round_ in zip(runs, rounds, strict=True))
    return all(
        len(first) == len(own) and all(np.array_equal(x, y) for x, y in zip(first, own, strict=True)) for own in others
    )


def draw_tsne(
    run: Run,
    round_: Round,
    sample: int,
    perplexity: float,
    backend: str,
    device: str,
    seed: int,
    colour: Literal["layer", "skewness", "dispersion"],
    output: Output,
) -> None:
    """A map of many parameters: compute or read, draw, and say."""
    from ..asking.runs import identity
    from ..decomposition.parameters import ParameterMap, map_parameters
    from ..training import resolve_device
    from .progress import progress
    from .results import FIGURE, figures, kinds, obtain, say

    base = output.out or run.path / "figures" / f"parameters-tsne-{round_.number}"
    settings: dict[str, Any] = {
        "run": identity(run),
        "round": round_.number,
        "sample": sample,
        "perplexity": perplexity,
        "backend": backend,
        "device": resolve_device(device) if backend != "sklearn" else "cpu",
        "seed": seed,
    }

    def compute(attrs: dict[str, Any], partial: Path) -> ParameterMap:
        with progress("parameters") as report:
            return map_parameters(
                round_,
                run.name,
                sample=sample,
                perplexity=perplexity,
                seed=seed,
                backend=backend,
                device=settings["device"],
                attrs=attrs,
                progress=report,
            )

    main = Path(f"{base}.parameters-tsne.json")
    taken = kinds(base, "parameters-tsne.csv", *FIGURE)
    result = obtain(
        compute, lambda _: ParameterMap.load(base), lambda made: made.save(base), main, settings, output, taken
    )
    numbers = {
        "run": result.run,
        "round": result.round,
        "clients": result.clients,
        "points": len(result.layers),
        "parameters": result.attrs["parameters"],
        "high": int(result.high.sum()),
    }
    say(
        f"{result.run}, round {result.round}: {numbers['points']:,} of {numbers['parameters']:,} parameters as points "
        f"by the updates of {result.clients} clients, {numbers['high']} of them of high dispersion in their layer",
        [
            Path(f"{base}.parameters-tsne.csv"),
            main,
            *figures(base, result.figure(output.inches, output.title, colour)),
        ],
        as_json=output.as_json,
        **numbers,
    )
