"""Losses along the segment between two models: the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...checkpoints import Variable
from ...checkpoints.results import ArrayResult, along
from ..sentences import ends_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Line(ArrayResult):
    """L(β w_1 + (1−β) w_2) for pairs of models (Zhou et al., Figures 5b, 5c, 7c).

    Attributes:
        pairs: ``A - B`` for each pair; ``ends`` are the labels of A (β = 1) and B (β = 0).
        beta: where the losses were measured, [beta]; 0 and 1 are among them, and there the models themselves.
        loss: mean cross-entropy in nats, [pair, beta].
        error: share misclassified, [pair, beta].
        barrier: the greatest excess of the loss over the straight line between the two ends, [pair]:
            max over 0 ≤ β ≤ 1 of L(β) − (β L(1) + (1−β) L(0)); 0 where the loss never rises above it, NaN where an
            end or a point between is NaN.
        barrier_beta: where that is, [pair].
        attrs: provenance: data, samples, precision, device, versions and whatever the caller gave.
        own_loss, own_error: of the ends with the normalization statistics that they hold themselves, [pair, end], A
            (β = 1) first: other numbers than the curve's where the policy is ``keep`` or ``re-estimate``.
    """

    command = kind = "line"
    needed = {
        **{"pair": "", "beta": "beta", "loss": "pair beta", "error": "pair beta"},
        **{"barrier": "pair", "barrier_beta": "pair", "own_loss": "pair end", "own_error": "pair end"},
    }

    pairs: tuple[str, ...]
    ends: tuple[tuple[str, str], ...]
    beta: np.ndarray
    loss: np.ndarray
    error: np.ndarray
    barrier: np.ndarray
    barrier_beta: np.ndarray
    attrs: dict[str, Any]
    own_loss: np.ndarray
    own_error: np.ndarray

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``pair``, ``beta`` and ``end``; see formats.md for the names."""
        what = "mean loss" if "task" in self.attrs else "mean cross-entropy"
        nats = str(self.attrs.get("loss_units", "nat"))
        own = "{} of the ends with their own normalization statistics"
        coords = {
            "pair": along("pair", np.array(self.pairs, dtype=object), "pair of models"),
            "beta": along("beta", self.beta, "weight of the first model", "1"),
            "end": along("end", np.array([1.0, 0.0]), "beta of the end", "1"),
        }
        variables = {
            "loss": along("pair beta", self.loss, what, nats),
            "error": along("pair beta", self.error, "share misclassified", "1"),
            "barrier": along("pair", self.barrier, "loss barrier", nats),
            "barrier_beta": along("pair", self.barrier_beta, "beta of the barrier", "1"),
            "own_loss": along("pair end", self.own_loss, own.format(what), nats),
            "own_error": along("pair end", self.own_error, own.format("share misclassified"), "1"),
        }
        return coords, variables

    def head(self) -> dict[str, Any]:
        """Attributes of the file besides :attr:`attrs`."""
        return {"ends": [list(two) for two in self.ends]}

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """The inverse of :meth:`arrays`."""
        ends = tuple((str(a), str(b)) for a, b in attrs.pop("ends"))
        return cls(tuple(str(pair) for pair in values.pop("pair")), ends, **values, attrs=attrs)

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Loss above error over β (beside it from 6 inches on), a colour a pair; ``width`` in inches."""
        from .figure import draw_line

        return draw_line(self, width, title)

    def summary(self) -> str:
        """The barriers in words."""
        barriers = ", ".join(
            f"{barrier:.3g} at beta = {beta:.2f} ({label})" if barrier else f"none ({label})"
            for barrier, beta, label in zip(self.barrier, self.barrier_beta, self.pairs, strict=True)
        )
        begin = "loss barrier (greatest excess over the straight line between the ends)"
        return f"{begin}: {barriers}{ends_words(self)}"

    def findings(self) -> dict[str, Any]:
        """The barriers."""
        return {"barrier": self.barrier}
