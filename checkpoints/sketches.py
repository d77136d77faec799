"""Updates as seeded random sketches: k numbers a client in place of P, from which lengths and angles are told."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .weights import Layout

#: of all runs, so that any two rounds compare
SEED = 0
#: parameters for which one draw of buckets and signs is made, and held, at a time
BLOCK = 2**18


def sketch(layout: Layout, start: np.ndarray, clients: np.ndarray, k: int) -> np.ndarray:
    """Counted sketches of the updates Δ_i = w_i − start, [C, k] float32.

    Parameter j has a bucket h(j) in 0..k−1 and a sign s(j) = ±1, drawn from (seed, layer, block) and never stored; the
    same for all clients, rounds and runs of one layout::

        S_i[b] = Σ_{j: h(j) = b} s(j) Δ_i[j]

    Sketches add up as updates do: the sketch of Σ p_i Δ_i is Σ p_i S_i. Products are unbiased over the draw, and where
    no few parameters hold most of an update's length

        E ⟨S_a, S_b⟩ = ⟨Δ_a, Δ_b⟩,  sd ‖S_a‖² ≈ √(2/k) ‖Δ_a‖²,  sd of a cosine ρ ≈ (1 − ρ²)/√k.

    Source: Charikar, Chen and Farach-Colton, Finding Frequent Items in Data Streams, ICALP 2002, whose sketch it is.

    Args:
        start: [P]; clients: [C, P].
        k: numbers a client.

    >>> from .weights import Entry
    >>> layout = Layout((Entry("w", (3000,), "float32", "parameter"),))
    >>> start, moved = np.zeros(3000, np.float32), np.ones((1, 3000), np.float32)
    >>> found = sketch(layout, start, moved, 1024)
    >>> found.shape, bool(abs((found**2).sum() / 3000 - 1) < 3 * (2 / 1024) ** 0.5)
    ((1, 1024), True)
    """
    sums = np.zeros((len(clients), k))
    for where, buckets, signs in _blocks(layout, k):
        for own, part in zip(sums, clients[:, where], strict=True):  # of rows on the disk these columns alone are read
            moved = np.subtract(part, start[where], dtype=np.float64)
            moved *= signs
            own += np.bincount(buckets, weights=moved, minlength=k)
    return sums.astype(np.float32)


def _blocks(layout: Layout, k: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Where a block of parameters lies, its buckets and its signs."""
    for layer, where in enumerate(layout.slices.values()):
        for block, begin in enumerate(range(where.start, where.stop, BLOCK)):
            end = min(begin + BLOCK, where.stop)
            draws = np.random.Philox(key=np.array([SEED, layer << 32 | block], np.uint64)).random_raw(end - begin)
            # of 32 bits one of k, as even as 2^32 / k is large; a sign of another bit
            buckets = ((draws >> np.uint64(32)) * np.uint64(k)) >> np.uint64(32)
            signs = np.where(draws & np.uint64(1), 1.0, -1.0)
            yield slice(begin, end), buckets.astype(np.intp), signs
