"""What is known of the dispersion of a layer and of a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoints.results import Kept
from .moments import Array
from .skew_test import FEWEST

#: the ``layer`` of the row that stands for the whole model
WHOLE = "all"


@dataclass(frozen=True)
class LayerDispersion(Kept):
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

    def numbers(self) -> dict[str, Any]:
        """All of them by name."""
        return {**vars(self), "skew_rejected_share": self.skew_rejected_share}


@dataclass(frozen=True)
class RoundDispersion(Kept):
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

    def most_skewed(self) -> str | None:
        """The layer with the greatest share rejected, else with the greatest mean |skewness|; the first layer of
        equals, None where no layer has a skewness. Layers of fewer than 100 parameters make no histogram, and count
        only where there are no others."""
        layers = [row for row in self.layers if row.parameters >= 100] or self.layers
        for name in ("skew_rejected_share", "skew_mean_abs"):
            known = {row.layer: value for row in layers if (value := getattr(row, name)) is not None}
            if any(value > 0 for value in known.values()):
                return max(known, key=lambda layer: known[layer])
        return None

    def summary(self, fdr: float) -> str:
        """The round in words, tested at a false discovery rate; what does not exist is said.

        >>> layer = LayerDispersion("fc.weight", 4, 1, 0, 0, 0.5, 0.25, 0.9, 0, 0, -1.0, 0.25)
        >>> print(RoundDispersion("fma", 3, 5, (layer,), layer).summary(0.05))
        fma, round 3: of 4 parameters over 5 clients (1 constant) the median cv is 0.25, 25 % are of high dispersion, \
the mean |skewness| is 0.9; no test of skewness, which needs 8 clients
        """
        whole = self.whole
        words = (
            f"{self.run}, round {self.round}: of {whole.parameters:,} parameters over {self.clients} clients"
            f"{_left_out(whole)} {_shown('the median cv is', whole.median_cv)}, "
            f"{_share(whole.high_share)} of high dispersion, "
        )
        if self.clients < 3:
            return f"{words}no skewness, which needs 3 clients, and no test of it, which needs {FEWEST}"
        words += _shown("the mean |skewness| is", whole.skew_mean_abs)
        if self.clients < FEWEST:
            return f"{words}; no test of skewness, which needs {FEWEST} clients"
        if whole.skew_rejected_share is None:
            return f"{words}; no test of skewness, because no parameter can be tested"
        rate = f"{100 * fdr:g} %"
        share = f"{100 * whole.skew_rejected_share:.3g} %"
        words += f"; skewness is rejected for {share} (false discovery rate {rate} over the model)"
        most = next((row for row in self.layers if row.layer == self.most_skewed()), None)
        if most is not None and most.rejected:
            words += f", and with {rate} within each layer most in {most.layer}: {most.rejected:,} of {most.tested:,}"
        return words

    def numbers(self) -> dict[str, Any]:
        """The round as plain values."""
        layers = [row.numbers() for row in self.layers]
        return {
            "run": self.run,
            "round": self.round,
            "clients": self.clients,
            "layers": layers,
            "all": self.whole.numbers(),
        }


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


def _left_out(whole: LayerDispersion) -> str:
    words = [
        f"{count:,} {what}"
        for count, what in (
            (whole.constant, "constant"),
            (whole.zero_mean, "with a mean of 0, without a cv"),
            (whole.nonfinite, "NaN or infinite in some client"),
        )
        if count
    ]
    return f" ({', '.join(words)})" if words else ""


def _shown(words: str, value: float | None) -> str:
    return f"{words} {'unknown' if value is None else f'{value:.3g}'}"


def _share(value: float | None) -> str:
    return "an unknown share is" if value is None else f"{100 * value:.3g} % are"
