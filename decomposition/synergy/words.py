"""A diagnosis of synergy in words."""

from __future__ import annotations

from math import factorial
from typing import TYPE_CHECKING

from ...checkpoints.errors import listed

if TYPE_CHECKING:
    from .result import Synergy


def sentence(result: Synergy) -> str:
    """What is high, which clients go together, what is left out, and what that has to do with the clients' labels."""
    high = sum(layer.high_count for layer in result.layers)
    every = sum(layer.entries for layer in result.layers)
    share = f"{100 * result.high_share:.2g} %"
    said = f"{result.attrs['source']}: {high:,} of {every:,} parameters of high dispersion ({share}); {_groups(result)}"
    parts = [said, broken(result, 12), by_definition(result), _labels(result)]
    return "\n".join(part for part in parts if part)


def broken(result: Synergy, most: int) -> str:
    """Which clients diverged and which layers, at most so many by name, are left out; "" where everything is finite."""
    ids, layers = result.diverged, result.not_finite
    if not ids and not layers:
        return ""
    left = f"{len(layers):,} of {len(result.layers):,} layers left out"
    names = f"{left} ({listed(layers, most)})" if layers else left
    if not ids:  # finite weights whose squares are not
        return f"dispersion is not finite: {names}"
    who = f"client{'s' if len(ids) > 1 else ''} {listed(ids)} {'have' if len(ids) > 1 else 'has'}"
    return f"{who} parameters that are not finite: {names}"


def by_definition(result: Synergy) -> str:
    """What would be so whatever two clients are; "" for more of them."""
    if len(result.client_ids) != 2 or not result.high_share:
        return ""
    return "two clients: (w₁ − μ)² = (w₂ − μ)² always, so their similarity is 1 by definition"


def _groups(result: Synergy) -> str:
    """Which clients go together."""
    ids = result.client_ids
    if not result.high_share:
        return "nothing is of high dispersion, so clients form no clusters"
    if result.scope == "layer":
        sizes = [len(own) for own, layer in zip(result.clusters, result.layers, strict=True) if layer.high_count]
        where = "" if len(sizes) == len(result.layers) else f" with high entries ({len(sizes)} of {len(result.layers)})"
        some = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        return f"{some} cluster{'' if max(sizes) == 1 else 's'} of the {len(ids)} clients a layer{where}"
    groups = [", ".join(str(ids[k]) for k in own) for own in result.clusters[0]]
    said = f"{len(groups)} cluster{'' if len(groups) == 1 else 's'} of {len(ids)} clients"
    said += f" ({'; '.join(groups)})" if groups else ""
    if left := result.left_out[0]:
        said += f", {', '.join(str(ids[k]) for k in left)} in none"
    return said


def _labels(result: Synergy) -> str:
    """What clusters and similarities have to do with labels."""
    found = result.attrs.get("labels")
    if found is None:
        return "labels: the run has no partition.h5, so nothing is known of them"
    parts = []
    if found["rand"] is None:
        parts.append(f"{_no_rand(result, found['label_sets'])}, so there is no Rand index")
    else:
        alone = ", those in no cluster as clusters of one" if result.left_out[0] else ""
        p = _p(found["rand_p"], found.get("rand_least"))
        parts.append(
            f"adjusted Rand index of clusters and the {found['label_sets']} label sets {found['rand']:.3g} ({p}){alone}"
        )
    if found["correlation"] is None:
        parts.append("no correlation of similarity with label overlap exists")
    else:
        clients = len(result.client_ids)
        least = found.get("correlation_least")
        behind = f"all {factorial(clients)} matchings" if least else f"{found['permutations']:,} permutations"
        parts.append(
            f"rank correlation of similarity with label overlap {found['correlation']:.3g} "
            f"({_p(found['correlation_p'], least)}, {behind})"
        )
    return "labels: " + "; ".join(parts)


def _no_rand(result: Synergy, sets: int) -> str:
    """Why there is no Rand index."""
    clients = len(result.client_ids)
    if result.scope == "layer":
        return "each layer has its own clusters"
    if not result.high_share:
        return "there are no clusters"
    if sets == 1 or sets == clients:
        return f"the {clients} clients have {'one label set' if sets == 1 else f'{sets} different label sets'}"
    if len(result.clusters[0]) == 1 and not result.left_out[0]:
        return f"the {clients} clients form one cluster"
    return f"each of the {clients} clients is a cluster of its own"


def _p(value: float, least: float | None) -> str:
    """With so few clients that it matters, also the least that is possible."""
    return f"p = {value:.2g}" + ("" if least is None else f", least possible {least:.2g}")
