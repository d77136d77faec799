"""Losses between two models of which only some layers move: the result.

The cut of "Layer-wise linear mode connectivity" (arXiv 2307.06966).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ...plotting.style import describe_alignment, describe_errors, describe_statistics
from ...results import ArrayResult, along
from ...results.arrays import Variable
from ..planes.summary import align_findings, precision_words
from .barriers import height_words
from .betas import coverage_findings, coverage_words, measured_parts


@dataclass(frozen=True, eq=False)
class LayerLine(ArrayResult):
    """Losses between two models A and B where some layers are β w_A + (1−β) w_B and the others stay at A, or at B.

    Attributes:
        ends: the labels of A (β = 1) and B (β = 0).
        layers: what moves: a layer's name, ``to NAME`` for all up to that one, or a pattern; ``all layers`` is last.
        parameters: how many parameters that are, [layer].
        beta: where the losses were measured, [beta]; 0 and 1 are among them.
        loss: mean cross-entropy in nats, [others, layer, beta]: first with the others at A, then at B.
        error: share misclassified, [others, layer, beta].
        barrier: the greatest excess of the loss over the straight line between the two ends of this line, of which
            one is A or B, [others, layer]; as in :class:`~fedscope.Line`, whose numbers those of ``all layers`` are.
        barrier_beta: where that is, [others, layer]; NaN where the barrier is.
        attrs: provenance; ``layers`` is what was asked for.
        barrier_stderr: its standard error over samples, paired, since all models meet the same ones; NaN where there is
            no barrier. It covers which samples were drawn, and not that the highest of several points was chosen.
    """

    command: ClassVar[str] = "line"
    kind: ClassVar[str] = "line-layers"
    drawn: ClassVar = {"": "layer_figure:draw_layers"}
    needed = {
        **{"layer": "", "others": "", "beta": "beta", "parameters": "layer"},
        **{"loss": "others layer beta", "error": "others layer beta"},
        **{"barrier": "others layer", "barrier_beta": "others layer"},
        "barrier_stderr": "others layer",
    }

    ends: tuple[str, str]
    layers: tuple[str, ...]
    parameters: np.ndarray
    beta: np.ndarray
    loss: np.ndarray
    error: np.ndarray
    barrier: np.ndarray
    barrier_beta: np.ndarray
    attrs: dict[str, Any]
    barrier_stderr: np.ndarray

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``others``, ``layer`` and ``beta``; see formats.md for the names."""
        what = "mean loss" if "task" in self.attrs else "mean cross-entropy"
        nats = str(self.attrs.get("loss_units", "nat"))
        coords = {
            "others": along("others", np.array(self.ends, dtype=object), "model at which the other layers stay"),
            "layer": along("layer", np.array(self.layers, dtype=object), "layers that move"),
            "beta": along("beta", self.beta, "weight of the first model in the layers that move", "1"),
        }
        variables = {
            "loss": along("others layer beta", self.loss, what, nats),
            "error": along("others layer beta", self.error, "share misclassified", "1"),
            "barrier": along("others layer", self.barrier, "loss barrier", nats),
            "barrier_stderr": along(
                "others layer", self.barrier_stderr, "standard error of the loss barrier over samples", nats
            ),
            "barrier_beta": along("others layer", self.barrier_beta, "beta of the barrier", "1"),
            "parameters": along("layer", self.parameters, "parameters that move", "1"),
        }
        return coords, variables

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """Build the result of what :meth:`arrays` gave."""
        first, second = (str(end) for end in values.pop("others"))
        layers = tuple(str(layer) for layer in values.pop("layer"))
        if not layers or not len(values["beta"]):
            raise ValueError("no layer, or no point")
        return cls((first, second), layers, **values, attrs=attrs)

    @property
    def known_barriers(self) -> np.ndarray:
        """The barriers, [others, layer]: NaN where no point between the ends was measured, which older files have as
        0."""
        return self.barrier if measured_parts(self.beta) else np.full_like(self.barrier, np.nan)

    @property
    def carrier(self) -> tuple[int, int] | None:
        """The place [others, layer] of the greatest barrier of a part of the model, of those that are known; None where
        no part has one."""
        parts = self.known_barriers[:, :-1]
        known = np.where(np.isnan(parts), 0.0, parts)
        if not known.size or known.max() <= 0:
            return None
        others, layer = np.unravel_index(int(known.argmax()), known.shape)
        return int(others), int(layer)

    def summary(self) -> str:
        """Say in a sentence which layer carries the barrier."""
        named = f"loss barrier between {self.ends[0]} and {self.ends[1]}"
        broken = int(np.count_nonzero(~np.isfinite(self.loss)))
        words = f"{named}: {self._barriers()}"
        words += describe_errors(words, "samples")
        if gaps := coverage_words(self.beta):
            words += f"; {gaps}"
        if broken:
            words += f"; {broken:,} of {self.loss.size:,} losses are not finite"
        statistics = describe_statistics(self.attrs, str(self.attrs.get("normalization_policy", "none")))
        aligned = describe_alignment(self.attrs, self.ends[0])
        return "; ".join(filter(None, [words, statistics, aligned])) + precision_words(self.attrs)

    def _barriers(self) -> str:
        whole = f"all layers together {self._height(0, -1)}"
        if np.isnan(self.known_barriers).all():
            return "unknown"
        return self._parts(whole) if len(self.layers) > 1 else whole

    def _parts(self, whole: str) -> str:
        parts = self.known_barriers[:, :-1]
        if self.attrs.get("layers") == "cumulative":
            return f"{self._growth()}, {whole}"
        if np.isnan(parts).all():
            return f"unknown of {self.layers[0] if len(self.layers) == 2 else 'every layer alone'}, {whole}"
        if self.carrier is None:
            few = f"{self.layers[0]} have none" if len(self.layers) == 2 else "no layer has one alone"
            return f"{few}{' where it is known' if np.isnan(parts).any() else ''}, {whole}"
        others, layer = self.carrier
        height = self._height(others, layer)
        other = self._height(1 - others, layer)
        stay = f"with the others at {self.ends[others]}, {other} with them at {self.ends[1 - others]}"
        most = f"greatest in {self.layers[layer]}" if len(self.layers) > 2 else f"of {self.layers[layer]}"
        return f"{most}, {height} {stay}; {whole}"

    def _growth(self) -> str:
        """With which layer the barrier of the first layers grows most, the higher one of the two lines."""
        return growth_words(np.fmax(*self.known_barriers), self.layers)

    def _height(self, others: int, layer: int) -> str:
        error = plus_minus(self.barrier_stderr[others, layer])
        return height_words(self.known_barriers[others, layer], self.barrier_beta[others, layer], error)

    def findings(self) -> dict[str, Any]:
        """Return the barriers by layer, with the others at A and at B, and which part of the lines was measured where
        it is not all."""
        return {
            "layers": list(self.layers),
            "others": list(self.ends),
            "barrier": self.known_barriers,
            "barrier_stderr": self.barrier_stderr,
            **coverage_findings(self.beta),
            **align_findings(self.attrs),
        }


def growth_words(heights: np.ndarray, layers: Sequence[str], average: str = "") -> str:
    """Say with which layer the barrier of the first layers grows most.

    Args:
        heights: of the first layer, the first two and so on, [layer]; NaN where it is unknown, and so are the steps
            there.
        layers: ``to NAME``, the last one of all.
        average: what the steps are over, behind the number.

    >>> layers = ("to conv1", "to conv2", "all layers")
    >>> growth_words(np.array([0.0, 0.5, 0.75]), layers), growth_words(np.array([0.25, 0.25, np.nan]), layers)
    ('grows most with conv2, by 0.5', 'grows most with conv1, by 0.25, of what is known')
    >>> growth_words(np.array([np.nan, np.nan, 0.5]), layers), growth_words(np.array([0.0, 0.0, np.nan]), layers)
    ('its growth is unknown', 'no first layers have one where it is known')
    """
    with np.errstate(invalid="ignore"):
        steps = np.diff(heights, prepend=0.0)
    if np.isnan(steps).all():
        return "its growth is unknown"
    partly = bool(np.isnan(steps).any())
    most = int(np.nanargmax(steps))
    if steps[most] <= 0:
        return f"no first layers have one{' where it is known' if partly else ''}"
    name = "the last layer" if most == len(steps) - 1 else layers[most].removeprefix("to ")
    height = f"{steps[most]:.3g}" if np.isfinite(steps[most]) else "infinitely much"
    return f"grows most with {name}, by {height}{average}{', of what is known' if partly else ''}"


def plus_minus(stderr: float | None) -> str:
    """Return a standard error behind a number; "" where there is none.

    >>> plus_minus(0.0213), plus_minus(float("nan"))
    (' ± 0.021', '')
    """
    return f" ± {stderr:.2g}" if stderr is not None and stderr > 0 else ""
