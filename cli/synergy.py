"""``fedscope synergy``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from .options import Count, Output, output_options

if TYPE_CHECKING:
    from ..checkpoints import Run
    from ..decomposition import Synergy


@click.command(
    "synergy",
    epilog="Example:  fedscope synergy runs/ima@40 --quantile 0.99",
)
@click.argument("round_", metavar="RUN@ROUND")
@click.option("--classes", type=Count(1), default=4, show_default=True, help="C: micro-classes of squared deviations.")
@click.option("--clusters", type=Count(1), default=4, show_default=True, help="S: the most clusters of clients.")
@click.option(
    "--cv-threshold",
    type=float,
    default=0.2,
    show_default=True,
    help="Scaled coefficient of variation above which a parameter is high.",
)
@click.option(
    "--sim-threshold",
    type=float,
    default=0.2,
    show_default=True,
    help="Similarity above which a client joins one of S clusters.",
)
@click.option(
    "--similarity",
    type=click.Choice(["model", "layer"]),
    default="model",
    show_default=True,
    help="Over what clients are compared and clustered (FedSA's server: layer).",
)
@click.option(
    "--quantile",
    type=float,
    metavar="0.99",
    help="Quantile of the coefficient of variation that is scaled to 1.  [default: its maximum, as in the paper]",
)
@click.option("--seed", type=Count(0), default=0, show_default=True, help="Draws the permutations of the p-values.")
@output_options
def command(
    round_: str,
    classes: int,
    clusters: int,
    cv_threshold: float,
    sim_threshold: float,
    similarity: Literal["model", "layer"],
    quantile: float | None,
    seed: int,
    output: Output,
) -> None:
    """Which parameters the clients of a round disagree about, and whether clients with like labels disagree alike.

    FedSA's diagnosis (high dispersion, micro-classes MIC, clusters MAC and their weights), whatever method trained the
    run. A layer of all clients is read at once: at most 0.19 GB for 20 of ResNet-18.
    """
    from ..asking.runs import identity
    from ..checkpoints import FedscopeError, Round, recorded_clients
    from ..decomposition import Synergy, synergy
    from ..decomposition.label_agreement import label_agreement
    from ..decomposition.synergies import Criteria
    from ..decomposition.synergy_words import as_numbers, sentence
    from .results import FIGURE, figures, kinds, obtain, say

    run, number = open_round(round_)
    recorded: Round = recorded_clients(run, number, start=False)
    if len(recorded.client_ids) < 2:
        raise FedscopeError(
            f"{run.path}@{number} has a cohort of one, so there is nobody to disagree with; train with more "
            "clients a round (--clients, --participation)"
        )
    criteria: dict[str, Any] = {
        **{"classes": classes, "clusters": clusters, "cv_threshold": cv_threshold},
        **{"sim_threshold": sim_threshold, "similarity": similarity, "quantile": quantile},
    }
    Criteria(**criteria)  # refuses what is out of range before anything is read
    settings: dict[str, Any] = {"run": identity(run), "round": number, "asked": criteria, "seed": seed}

    def compute(attrs: dict[str, Any], partial: Path) -> Synergy:
        about = {**attrs, "source": f"{run.name}@{number}"}
        ids = recorded.client_ids
        found = synergy(recorded, **criteria, keep_masks=True, provenance=about)
        if run.partition is not None:
            own = found.clusters[0] if found.scope == "model" else None
            agreed = label_agreement(own, found.mean_similarity, run.partition.label_counts[ids], seed=seed)
            found = replace(found, attrs={**found.attrs, "labels": agreed.to_json()})
        return found

    file = Path(f"{output.out or run.path / 'figures' / f'synergy-{number}{_variant(criteria)}'}.nc")
    taken = kinds(file.with_suffix(""), *FIGURE)
    result = obtain(compute, Synergy.load, lambda made: made.save(file), file, settings, output, taken)
    say(
        sentence(result),
        [file, *figures(file.with_name(file.name.removesuffix(".nc")), result.figure(output.inches, output.title))],
        as_json=output.as_json,
        **as_numbers(result),
    )


def open_round(address: str) -> tuple[Run, int]:
    """The run and the number of ``RUN@ROUND``.

    Raises:
        FedscopeError: a file, a run without a round, or one of a round's models.
    """
    from ..checkpoints import FedscopeError, Run, parse_address

    if "@" not in address:
        hint = f", as in {address}@last" if (Path(address) / "run.json").is_file() else ", as in runs/ima@40"
        raise FedscopeError(f"{address} names no round; give RUN@ROUND{hint}")
    found = parse_address(address)
    if found.round is None or found.which is not None:
        whole = address.rpartition("/")[0] if found.which is not None else "RUN@ROUND"
        raise FedscopeError(f"{address} names a model, but all clients of a round are asked for; give {whole}")
    run = Run.open(found.path)
    return run, run.round(found.round).number


def _variant(criteria: dict[str, Any]) -> str:
    """What a default name says of a scale and a comparison that are not the default."""
    scale = "" if criteria["quantile"] is None else f"-q{criteria['quantile']:g}"
    return scale + ("-layer" if criteria["similarity"] == "layer" else "")
