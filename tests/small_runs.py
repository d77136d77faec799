"""Settings of runs of a few clients and a tiny network, for what methods of somebody's own keep from round to round."""

from __future__ import annotations

from typing import Any


def small(rounds: int) -> dict[str, Any]:
    """Four clients, of whom two play a round; measured after the last one."""
    return {
        "data": {"clients": 4},
        "model": {"hidden": [4]},
        "client": {"epochs": 1},
        "run": {"rounds": rounds, "participation": 0.5, "evaluate_clients": 0, "evaluate_every": rounds},
    }
