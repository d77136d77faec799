"""What a map's axes mean, and how far it can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoints.errors import spans

if TYPE_CHECKING:
    from .result import Embedding


def axis_words(result: Embedding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of the axes of a PCA, long, shorter and shortest."""
    shares = result.explained or (float("nan"), float("nan"))
    first, second = (
        (f"component {i}: $L_2$ distance ({100 * share:.0f} %)", f"component {i} ({100 * share:.0f} %)", f"PC {i}")
        for i, share in enumerate(shares, start=1)
    )
    return first, second


def remark(result: Embedding) -> str:
    """Below the figure: the method, what the axes are, and how far neighbours are to be believed."""
    trusted = f"trustworthiness {result.trustworthiness:.3f}"
    where = rounds_words(result)
    if result.method == "pca":
        shares = result.explained or (float("nan"), float("nan"))
        said = f"PCA: $L_2$ distances, {100 * sum(shares):.0f} % of the variance on this plane; {trusted}"
    else:
        said = f"t-SNE of $L_2$ distances: axes have no unit; perplexity {result.perplexity:.3g}, {trusted}"
    return f"{said}{where}"


def rounds_words(result: Embedding) -> str:
    """Which layers, and which round where it is only one."""
    layers = result.attrs.get("asked_layers")
    said = f"; only {', '.join(layers)}" if layers else ""
    return said + (f"; round {result.rounds[0]}" if len(result.rounds) == 1 else "")


def sentence(result: Embedding) -> str:
    """The map in words, and how far clients are from the mean of their round, run by run."""
    how = {"pca": "PCA", "tsne": "t-SNE"}[result.method]
    rounds = f"round{'s' if len(result.rounds) > 1 else ''} {spans(result.rounds)}"
    said = f"{how} of {len(result.points):,} models of {', '.join(result.runs)}, {rounds}: "
    if result.explained is not None:
        said += f"{100 * sum(result.explained):.3g} % of the variance on the plane"
    else:
        said += f"perplexity {result.perplexity:.3g}, KL divergence {result.kl_divergence:.3g} nats"
    said += f", trustworthiness {result.trustworthiness:.3f}"
    lines = [said]
    for run in result.runs:
        if all(name != run for name, _, _ in result.spreads):
            lines.append(f"{run}: one client a round, so that there is no distance to a mean")
            continue
        own = sorted((number, mean) for name, number, mean in result.spreads if name == run)
        means = [f"{mean:.3g} in round {number}" for number, mean in (own[:1] if len(own) == 1 else [own[0], own[-1]])]
        lines.append(f"{run}: mean L2 distance of clients to their round's mean {', '.join(means)}")
    return "\n".join(lines)
