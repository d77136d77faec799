"""A factor of FedSWA's bound, as far as notes on the paper give it."""

from __future__ import annotations

import math

# Above this power of ten a float has no room.
LARGEST = 308


def bound_factor(steps: int, rounds: int) -> float:
    """c̃ = 1 + (2 + 1/(K T))^(K−1)/T; infinite where a float cannot hold it.

    Known from a third party's notes on the paper. What we have of them does not say what K and T count. Our reading is
    that of FedSWA's other formulas: K local steps of a client in a round, and T rounds.

    Args:
        steps: K, at least 1.
        rounds: T, at least 1.

    Source: notes on Liu et al., "Improving Generalization in Federated Learning with Highly Heterogeneous Data via
    Momentum-Based Stochastic Controlled Weight Averaging", ICML 2025; not checked against the paper.

    >>> bound_factor(1, 60), bound_factor(2, 4), bound_factor(5000, 10)  # 1 + 1/60, 1 + (2 + 1/8)/4
    (1.0166666666666666, 1.53125, inf)
    """
    power = (steps - 1) * math.log10(2 + 1 / (steps * rounds))
    return math.inf if power > LARGEST else float(1 + (2 + 1 / (steps * rounds)) ** (steps - 1) / rounds)


def said_of_bound(steps: tuple[int, int], rounds: int) -> str:
    """Describe the bound, for the fewest and the most steps of a client.

    >>> said_of_bound((2, 2), 4)  # doctest: +ELLIPSIS
    "FedSWA's c̃ = 1 + (2 + 1/(K T))^(K−1)/T is 1.53 for K = 2 and T = 4 (known from notes on the paper, ...
    """
    values = [f"{bound_factor(one, rounds):.3g}".replace("inf", f"above 1e{LARGEST}") for one in dict.fromkeys(steps)]
    counts = " to ".join(str(one) for one in dict.fromkeys(steps))
    return (
        f"FedSWA's c̃ = 1 + (2 + 1/(K T))^(K−1)/T is {' to '.join(values)} for K = {counts} and T = {rounds} (known "
        "from notes on the paper, not checked against it; K local steps in a round, T rounds: our reading)"
    )
