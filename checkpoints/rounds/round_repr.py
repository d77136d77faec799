"""What ``repr`` shows of a round."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING

from ..io.errors import FedscopeError, list_few
from ..io.repr_screen import screen

if TYPE_CHECKING:
    from .round import Round

#: of a round's numbers those that are told
TOLD = ("test_loss", "test_error", "averaged_test_loss", "averaged_test_error")


def describe_round(round_: Round) -> str:
    """Describe a round on one screen: whose models are there, and its test numbers; one that cannot be read says why,
    because a repr never fails."""
    try:
        ids = round_.client_ids
        kept = "all models" if round_.has_clients else f"{len(round_.sampled_ids)} models kept"
        kept = kept if round_.has_clients or round_.has_sample else "no model of theirs kept"
        kept += ", each from a start of its own" if round_.own_starts else ""
        told = [
            f"clients: {len(ids)} ({list_few(ids)}), {kept}",
            f"models: {', '.join(round_.models) or 'none'}, each of {round_.layout.size:,} parameters",
            *([words] if (words := metrics_words(round_.metrics)) else []),
        ]
    except (FedscopeError, OSError) as error:
        told = [f"it cannot be read: {error}"]
    return screen(f"Round {round_.label}", told, ['read("global")', "clients()", "weights", "metrics"])


def metrics_words(metrics: Mapping[str, float | int | None]) -> str:
    """Name the test numbers that there are.

    >>> metrics_words({"round": 3, "test_loss": 0.4, "test_error": 0.125, "averaged_test_loss": float("nan")})
    'test_loss 0.4, test_error 0.125'
    """
    known = {name: metrics.get(name) for name in TOLD}
    return ", ".join(f"{name} {value:.4g}" for name, value in known.items() if value is not None and not isnan(value))
