"""Updates as seeded random sketches: k numbers a client in place of P, from which lengths and angles are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..io.errors import FedscopeError
from ..models.weights import Layout
from .disk_matrix import as_disk_matrix

#: how many numbers a sketch may have: with fewer a cosine is off by a quarter and more
LEAST, MOST = 16, 1_000_000
#: the values of a parameter, by its name, at some places of it, flat
Model = Callable[[str, slice], np.ndarray]
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

    >>> from fedscope.checkpoints import TensorEntry
    >>> layout = Layout((TensorEntry("w", (3000,), "float32", "parameter"),))
    >>> start, moved = np.zeros(3000, np.float32), np.ones((1, 3000), np.float32)
    >>> found = sketch(layout, start, moved, 1024)
    >>> found.shape, bool(abs((found**2).sum() / 3000 - 1) < 3 * (2 / 1024) ** 0.5)
    ((1, 1024), True)
    """
    rows = [_row_reader(layout, clients, row) for row in range(len(clients))]
    return sketch_updates(layout, reader(layout, start), rows, k)


def sketch_updates(layout: Layout, start: Model, clients: Sequence[Model], k: int) -> np.ndarray:
    """Sketch the updates of models that lie in no vectors [P], parameter by parameter; nothing is held but a block of
    one.

    Args:
        layout: whose parameters, in its order, the buckets and signs are drawn for.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged
        return _sums(layout, start, clients, k).astype(np.float32)


def sketch_whole(layout: Layout, models: Sequence[Model], k: int) -> np.ndarray:
    """Sketches of models themselves, [n, k] float64: that of one less that of another is the sketch of the way between.

    In float64, because the way between two models is short compared with both.

    >>> from fedscope.checkpoints import TensorEntry
    >>> layout = Layout((TensorEntry("w", (50,), "float32", "parameter"),))
    >>> start, moved = np.linspace(1, 2, 50), np.linspace(1, 3, 50)
    >>> one, other = sketch_whole(layout, [reader(layout, start), reader(layout, moved)], 16)
    >>> bool(np.allclose(other - one, sketch(layout, start, moved[None], 16)[0], atol=1e-5))
    True
    """
    nothing = np.zeros(1)
    with np.errstate(over="ignore", invalid="ignore"):
        return _sums(layout, lambda name, part: nothing, models, k)


def reader(layout: Layout, vector: np.ndarray) -> Model:
    """Make a reader of a model that lies in a vector [P]."""
    return lambda name, part: vector[layout.slices[name]][part]


def _row_reader(layout: Layout, clients: np.ndarray, row: int) -> Model:
    """Make a reader of one of several models [C, P]; of those on the disk what is asked for is read."""
    there = as_disk_matrix(clients)
    if there is None:
        return reader(layout, clients[row])

    def read(name: str, part: slice) -> np.ndarray:
        begin = layout.slices[name].start
        return there.read(row, slice(begin + part.start, begin + part.stop))

    return read


def _sums(layout: Layout, start: Model, clients: Sequence[Model], k: int) -> np.ndarray:
    sums = np.zeros((len(clients), k))
    for name, part, buckets, signs in _blocks(layout, k):
        begin = start(name, part)
        for own, client in zip(sums, clients, strict=True):
            moved = np.subtract(client(name, part), begin, dtype=np.float64)
            moved *= signs
            own += np.bincount(buckets, weights=moved, minlength=k)
    return sums


def refuse_size(k: int, place: str) -> None:
    """Refuse a size that says nothing, or is none; 0 is for no sketches.

    Args:
        place: of the setting, ``record.sketch``.

    Raises:
        FedscopeError: names the value, the place and the sizes.
    """
    if k and not LEAST <= k <= MOST:
        raise FedscopeError(
            f"{place} = {k} is not a size for a sketch, whose cosines are off by 1/√k; give {LEAST} "
            f"to {MOST:,} numbers a client, or 0 for none"
        )


def _blocks(layout: Layout, k: int) -> Iterator[tuple[str, slice, np.ndarray, np.ndarray]]:
    """Yield a parameter's name, where a block of it begins and ends, its buckets and its signs."""
    for layer, (name, where) in enumerate(layout.slices.items()):
        size = where.stop - where.start
        for block, begin in enumerate(range(0, size, BLOCK)):
            end = min(begin + BLOCK, size)
            draws = np.random.Philox(key=np.array([SEED, layer << 32 | block], np.uint64)).random_raw(end - begin)
            # of 32 bits one of k, as even as 2^32 / k is large; a sign of another bit
            buckets = ((draws >> np.uint64(32)) * np.uint64(k)) >> np.uint64(32)
            signs = np.where(draws & np.uint64(1), 1.0, -1.0)
            yield name, slice(begin, end), buckets.astype(np.intp), signs
