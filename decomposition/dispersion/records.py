"""What is known of the dispersion of a layer and of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .moments import Array

#: the ``layer`` of the row that stands for the whole model
WHOLE = "all"


@dataclass(frozen=True)
class LayerDispersion:
    """One parameter tensor of a round, or the whole model, over C clients; None where a value does not exist.

    Attributes:
        layer: its ``state_dict`` key, or ``"all"``.
        parameters: M; ``constant`` of them are the same in all clients, of ``zero_mean`` others the mean is 0, and
            ``nonfinite`` are NaN or infinite in some client, or so large that their powers are.
        mean_cv, median_cv: of σ/|μ|, without all three.
        high_share: share of M whose cv, scaled to 0..1 over the layer, exceeds FedSA's threshold (eq. 5, 6); of the
            whole model the layers' together.
        skew_mean_abs: mean |skewness|, biased as scipy's, without constant and nonfinite parameters.
        tested: to how many D'Agostino's test was put, 0 for fewer than 8 clients; ``rejected`` so many of them at the
            false discovery rate of the result, within the layer.
        kurtosis_mean: mean excess kurtosis, biased, of those that have a skewness.
    """

    layer: str
    parameters: int
    constant: int
    zero_mean: int
    nonfinite: int
    mean_cv: float | None
    high_share: float | None
    skew_mean_abs: float | None
    tested: int
    rejected: int
    kurtosis_mean: float | None
    median_cv: float | None

    @property
    def skew_rejected_share(self) -> float | None:
        """``rejected`` / ``tested``; None where there was no test."""
        return self.rejected / self.tested if self.tested else None


@dataclass(frozen=True)
class RoundDispersion:
    """One round of a run: C ``clients``, a record a layer in the model's order, and one of the whole model."""

    run: str
    round: int
    clients: int
    layers: tuple[LayerDispersion, ...]
    whole: LayerDispersion

    @property
    def rows(self) -> tuple[LayerDispersion, ...]:
        """The layers, then the whole model."""
        return (*self.layers, self.whole)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers, for the store of an interrupted analysis; floats survive exactly."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RoundDispersion:
        """The inverse of :meth:`to_json`."""
        layers = tuple(LayerDispersion(**layer) for layer in value["layers"])
        return cls(**{**value, "layers": layers, "whole": LayerDispersion(**value["whole"])})


@dataclass(frozen=True, eq=False)
class SkewHistogram:
    """How many parameters of a layer have a skewness between ``edges`` [B + 1]: ``counts`` [B], and ``expected`` [B],
    the shares of independent normal values."""

    edges: Array
    counts: npt.NDArray[np.int64]
    expected: Array


@dataclass(frozen=True, eq=False)
class Cells:
    """H hexagons of a map: their centres ``mean`` (μ) and ``deviation`` (σ), how many parameters each holds (``count``)
    and their mean ``skewness``, [H] each; ``width`` in μ and ``height`` in log10 σ from one centre to the next but one.
    """

    width: float
    height: float
    mean: Array
    deviation: Array
    count: npt.NDArray[np.int64]
    skewness: Array


@dataclass(frozen=True, eq=False)
class LayerMap:
    """One layer of a round over C ``clients``, parameter by parameter."""

    run: str
    round: int
    layer: str
    clients: int
    histogram: SkewHistogram
    cells: Cells
