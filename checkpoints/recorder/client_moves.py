"""How far clients have moved in a round, in some of their parameters: one client at a time, or all of them in a few
coordinates. Their matrix is never made: in float64 it is as large as a round of clients may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..models.weights import Layout
from .coerce_models import ModelTensors, numbers_of

#: coordinates that are looked at, at most: of a model, and of a cohort
COORDINATES, ALL_COORDINATES = 2**18, 2**22
#: numbers of a cohort that are float64 at a time
AT_ONCE = 2**17


class SampledParameters:
    """A model's parameters as float64; of more than :data:`COORDINATES`, every so many of each tensor's.

    Args:
        clients: how many there are in a round; of many, fewer parameters are looked at.
    """

    def __init__(self, layout: Layout, clients: int) -> None:
        fit = min(COORDINATES, ALL_COORDINATES // max(1, clients))
        self._layout, self._stride = layout, max(1, -(-layout.size // max(1, fit)))

    def tensors(self, model: ModelTensors) -> Iterator[tuple[np.ndarray, str]]:
        """Yield the chosen numbers of each tensor as they are stored, and the dtype that they have."""
        for entry in self._layout.parameters:
            yield model.arrays[entry.name].reshape(-1)[:: self._stride], model.dtypes[entry.name]

    def vector(self, model: ModelTensors, out: np.ndarray | None = None) -> np.ndarray:
        """Return the chosen numbers, [n].

        Args:
            out: what they are written to; by default a new array.
        """
        if out is None:
            out = np.empty(sum(len(values) for values, _ in self.tensors(model)))
        end = 0
        for values, dtype in self.tensors(model):
            end += len(values)
            out[end - len(values) : end] = numbers_of(values, dtype)
        return out


class ClientMoves:
    """Δ_k = w_k - ``origin`` of a round's clients, n coordinates each.

    Args:
        origin: [n], what they are counted from.
        p: [C], the clients' weights; those of weight 0 are in no weighted mean, whatever they are.
    """

    def __init__(
        self, sampled: SampledParameters, origin: np.ndarray, clients: Sequence[ModelTensors], p: np.ndarray
    ) -> None:
        self._sampled, self._origin, self._clients, self.p = sampled, origin, clients, p

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield Δ_k by k; each lasts until the next one."""
        row = np.empty(len(self._origin))
        for client in self._clients:
            self._sampled.vector(client, row)
            row -= self._origin
            yield row

    @cached_property
    def weighted_mean(self) -> np.ndarray:
        """Σ p_k Δ_k."""
        total = np.zeros(len(self._origin))
        for weight, row in zip(self.p, self, strict=True):
            if weight > 0:
                row *= weight
                total += row
        return total

    @cached_property
    def plain_mean(self) -> np.ndarray:
        """The mean with equal weights."""
        total = np.zeros(len(self._origin))
        for row in self:
            total += row
        total /= len(self)
        return total

    def median(self) -> np.ndarray:
        """Compute the median, coordinate by coordinate."""
        found, step, end = np.empty(len(self._origin)), max(1, AT_ONCE // len(self)), 0
        for tensors in zip(*map(self._sampled.tensors, self._clients), strict=True):
            for first in range(0, len(tensors[0][0]), step):
                rows = [numbers_of(values[first : first + step], dtype) for values, dtype in tensors]
                at = slice(end, end := end + len(rows[0]))
                block = np.array(rows, np.float64) - self._origin[at]
                found[at] = np.median(block, axis=0, overwrite_input=True)
        return found

    def spread(self) -> float:
        """Compute how far the finite ones are from their plain mean, the root mean square."""
        mean, finite = np.zeros(len(self._origin)), []
        for row in self:
            finite.append(bool(np.isfinite(row).all()))
            if finite[-1]:
                mean += row
        mean /= sum(finite)
        squares = [float(np.square(row - mean).sum()) for row, counts in zip(self, finite, strict=True) if counts]
        return float(np.sqrt(np.mean(squares)))


def fit(d: np.ndarray, vectors: Sequence[np.ndarray]) -> tuple[list[float], float]:
    """Return the coefficients of the vectors that come nearest to d, and ||what is left||.

    They are found from the triangle of a QR decomposition, which is made by rows, a part of them at a time.
    """
    scale = [float(np.linalg.norm(vector)) or 1.0 for vector in vectors]
    triangle: Any = np.zeros((0, len(vectors) + 1))
    for at in range(0, len(d), AT_ONCE // 4):
        part = slice(at, at + AT_ONCE // 4)
        columns = [vector[part] / size for vector, size in zip(vectors, scale, strict=True)]
        triangle = np.linalg.qr(np.vstack([triangle, np.stack([*columns, d[part]], axis=1)]), mode="r")
    # what counts as 0 is a share of the largest singular value that grows with the rows, of which there are len(d)
    least = np.finfo(np.float64).eps * max(len(d), len(vectors))
    found, *_ = np.linalg.lstsq(triangle[:, :-1], triangle[:, -1], rcond=least)
    rates, left = [], d.copy()
    for value, vector, size in zip(found.tolist(), vectors, scale, strict=True):
        rates.append(value / size)
        left -= rates[-1] * vector
    return rates, float(np.linalg.norm(left))
