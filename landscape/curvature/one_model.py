"""Measures of one model, in parts that are kept one by one when an analysis is interrupted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Weights
from ...evaluation.evaluator import Evaluator
from .derivatives import Derivatives
from .flatness import Ball, mean_rise, sam_step, worst_rise
from .hessian import TOGETHER, eigenvalues, most_negative, spectral_density, trace
from .result import CurvatureMeasure

# Of a forward pass over all samples, measured on the papers' CNN and on a perceptron: a gradient, a Hessian's product.
GRADIENT, PRODUCT = 3, 8
# Products that an end of the spectrum takes; a guess, for the progress alone.
PRODUCTS = 40


@dataclass(frozen=True)
class SharpnessSettings:
    """The settings of :func:`~fedscope.landscape.curvature.many_models.sharpness`.

    Attributes:
        top: how many of the largest eigenvalues.
        probes: Rademacher vectors for the trace.
        density: Lanczos steps of the spectral density; 0 leaves it out, others need curvlinops.
        rho: ρ; the default is SAM's.
        relative: ρ_rel; at the default, SAM's step of 0.05, which in this measure is 0.06 long on a trained perceptron
            and 0.07 on the papers' CNN, is inside. (ASAM's 0.5 is for a T of single weights; filter by filter it is
            far from local: at its worst the perceptron's loss rises 23 times.)
        draws: directions of ``ball_mean`` and ``filter_mean``, each with both signs.
        starts: random starts of the ascents for the worst cases, besides the SAM step.
        steps: gradients of one ascent.
        seed: of all directions, probes and starts, which are the same for every model.
        hessian: whether to ask for the Hessian at all.

    Raises:
        FedscopeError: a radius or count that makes no sense.
    """

    top: int = 5
    probes: int = 10
    density: int = 0
    rho: float = 0.05
    relative: float = 0.1
    draws: int = 10
    starts: int = 1
    steps: int = 20
    seed: int = 0
    hessian: bool = True

    def __post_init__(self) -> None:
        for name, value in (("rho", self.rho), ("relative", self.relative)):
            if not 0 < value < math.inf:
                raise FedscopeError(f"--{name} {value:g} is not a radius about a model; give a positive number")
        least = {"top": 1, "probes": 1, "draws": 1, "starts": 0, "steps": 1, "density": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise FedscopeError(f"--{name} {getattr(self, name)} is too small; give {low} or more")
        if 0 < self.density < 3:
            raise FedscopeError(f"--density {self.density} steps resolve nothing; give 3 or more, as in --density 64")


@dataclass
class CurvatureContext:
    """One model while it is measured: ``known`` grows by each part's measures, ``tick`` counts forward passes.

    Attributes:
        moved: which parameters are trained, bool [P]; None: all.
        label: what the model is called in sentences.
        layers: whether only some layers move, of which there may be no filters: what is relative to these is then None.
    """

    w: Weights
    asked: SharpnessSettings
    evaluator: Evaluator
    derivatives: Derivatives
    moved: np.ndarray | None
    tick: Callable[[int], None]
    label: str = "the model"
    layers: bool = False
    known: dict[str, CurvatureMeasure] = field(default_factory=dict)

    def ball(self, relative: bool) -> Ball:
        """Return the ball that rises are asked for in."""
        return Ball(self.w, self.asked.relative if relative else self.asked.rho, relative, self.moved, self.label)

    @property
    def has_no_filters(self) -> bool:
        """True if the layers that move, as normalization layers, have no filter that is not 0."""
        if not self.layers or self.moved is None:
            return False
        places = [self.w.layout.slices[entry.name] for entry in self.w.layout.parameters if len(entry.shape) > 1]
        return not any((self.moved[where] & (self.w.parameters[where] != 0)).any() for where in places)

    @property
    def size(self) -> int:
        """P, or as many of it as are trained: the Hessian is [size, size]."""
        return self.w.layout.size if self.moved is None else int(self.moved.sum())

    def slope(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss and gradient."""
        answer = self.derivatives.gradient(self.w, parameters)
        self.tick(GRADIENT)
        return answer

    def product(self, vectors: np.ndarray) -> np.ndarray:
        """H v for rows v [K, size], as many together as share their passes."""
        parts = []
        for first in range(0, len(vectors), TOGETHER):
            rows = vectors[first : first + TOGETHER]
            parts.append(self._cut(self.derivatives.products(self.w, self._whole(rows))))
            self.tick(PRODUCT * len(rows))
        return np.concatenate(parts)

    def _whole(self, rows: np.ndarray) -> np.ndarray:
        """Rows [K, size] as [K, P], 0 where nothing is trained."""
        if self.moved is None:
            return rows
        whole = np.zeros((len(rows), len(self.moved)))
        whole[:, self.moved] = rows
        return whole

    def _cut(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.moved is None else rows[:, self.moved]


@dataclass(frozen=True)
class CurvaturePart:
    """A part: its key in the store, the passes it may take, and how its numbers are made.

    ``measure`` returns measures, and the spectrum as two lists where there is one.
    """

    name: str
    passes: int
    names: tuple[str, ...]
    measure: Callable[[CurvatureContext], Sequence[CurvatureMeasure] | tuple[list[float], list[float]] | None]


def parts_of(asked: SharpnessSettings) -> tuple[CurvaturePart, ...]:
    """Return the parts that were asked for, in an order in which each finds what it needs."""
    climb = GRADIENT * (1 + (1 + asked.starts) * asked.steps)
    mean = 1 + 2 * asked.draws
    parts = [
        CurvaturePart("loss", 1, ("loss", "error"), _loss),
        CurvaturePart("sam", 3 * GRADIENT, ("gradient_norm", "sam"), _sam),
        CurvaturePart("worst_case", climb, ("worst_case",), partial(_worst, "worst_case", False)),
        CurvaturePart("ball_mean", mean, ("ball_mean",), partial(_mean, "ball_mean", False)),
        CurvaturePart("filter_mean", mean, ("filter_mean",), partial(_mean, "filter_mean", True)),
        CurvaturePart("filter_worst_case", climb, ("filter_worst_case",), partial(_worst, "filter_worst_case", True)),
    ]
    if not asked.hessian:
        return tuple(parts)
    names = tuple(f"eigenvalue_{i + 1}" for i in range(asked.top))
    parts += [
        CurvaturePart("eigenvalues", (PRODUCTS + asked.top) * PRODUCT, names, _eigenvalues),
        CurvaturePart("eigenvalue_min", PRODUCTS * PRODUCT, ("eigenvalue_min",), _most_negative),
        CurvaturePart("trace", asked.probes * PRODUCT, ("trace",), _trace),
    ]
    if asked.density:
        parts.append(CurvaturePart("density", asked.density * PRODUCT, (), _density))
    return tuple(parts)


def measure_part(part: CurvaturePart, about: CurvatureContext) -> dict[str, Any]:
    """A part's numbers as JSON holds them; NaN where the loss or what is derived from it is not finite."""
    loss = about.known.get("loss")
    broken = loss is not None and loss.value is not None and not math.isfinite(loss.value)
    answer: Any = [CurvatureMeasure(name, math.nan) for name in part.names] or None
    if not broken:
        with suppress(FloatingPointError):
            answer = part.measure(about)
    if answer is None or isinstance(answer, tuple):
        return {"measures": [], "spectrum": answer}
    return {"measures": [[one.name, one.value, one.radius, one.stderr] for one in answer], "spectrum": None}


def read_measures(value: Mapping[str, Any]) -> list[CurvatureMeasure]:
    """Read the measures that :func:`measure_part` gave."""
    return [CurvatureMeasure(*row) for row in value["measures"]]


def _loss(about: CurvatureContext) -> list[CurvatureMeasure]:
    loss, error = about.evaluator.models(about.w)
    known = [] if math.isnan(error[0]) else [CurvatureMeasure("error", float(error[0]))]  # not every task has one
    return [CurvatureMeasure("loss", float(loss[0])), *known]


def _sam(about: CurvatureContext) -> list[CurvatureMeasure]:
    _, gradient = about.slope(about.w.parameters)
    ball = about.ball(relative=False)
    length = CurvatureMeasure("gradient_norm", float(np.linalg.norm(gradient)))
    return [length, CurvatureMeasure("sam", sam_step(ball, about.slope), ball.radius)]


def _worst(name: str, relative: bool, about: CurvatureContext) -> list[CurvatureMeasure]:
    if relative and about.has_no_filters:
        return [CurvatureMeasure(name, None)]
    asked, ball = about.asked, about.ball(relative)
    rise = worst_rise(ball, about.slope, starts=asked.starts, steps=asked.steps, seed=asked.seed)
    return [CurvatureMeasure(name, rise, ball.radius)]


def _mean(name: str, relative: bool, about: CurvatureContext) -> list[CurvatureMeasure]:
    if relative and about.has_no_filters:
        return [CurvatureMeasure(name, None)]
    asked, ball = about.asked, about.ball(relative)
    rise, stderr = mean_rise(ball, about.evaluator, draws=asked.draws, seed=asked.seed)
    return [CurvatureMeasure(name, rise, ball.radius, None if math.isnan(stderr) and asked.draws == 1 else stderr)]


def _eigenvalues(about: CurvatureContext) -> list[CurvatureMeasure]:
    asked = about.asked
    found = eigenvalues(about.product, about.size, asked.top, asked.seed)
    measures = [
        CurvatureMeasure(f"eigenvalue_{i}", one.value, None, one.residual) for i, one in enumerate(found, start=1)
    ]
    return [*measures, *(CurvatureMeasure(f"eigenvalue_{i}", None) for i in range(len(found) + 1, asked.top + 1))]


def _most_negative(about: CurvatureContext) -> list[CurvatureMeasure]:
    largest = about.known["eigenvalue_1"].value
    size, seed = about.size, about.asked.seed
    found = () if largest is None else most_negative(about.product, size, largest, seed)
    measures = [CurvatureMeasure("eigenvalue_min", smallest.value, None, smallest.residual) for smallest in found]
    return measures or [CurvatureMeasure("eigenvalue_min", None)]


def _trace(about: CurvatureContext) -> list[CurvatureMeasure]:
    value, stderr = trace(about.product, about.size, about.asked.probes, about.asked.seed)
    return [CurvatureMeasure("trace", value, None, stderr if about.asked.probes > 1 else None)]


def _density(about: CurvatureContext) -> tuple[list[float], list[float]] | None:
    low, high = about.known["eigenvalue_min"].value, about.known["eigenvalue_1"].value
    if low is None or high is None or not math.isfinite(high - low):
        return None
    grid, density = spectral_density(about.product, about.size, (low, high), about.asked.density, about.asked.seed)
    return grid.tolist(), density.tolist()
