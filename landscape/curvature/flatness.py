"""Rises of the loss within a distance of a model, at worst and on average.

A distance is ‖ε‖ ≤ ρ, or relative to the model's filters: ‖T⁻¹ε‖ ≤ ρ, where T multiplies a filter's entries by its
length ‖w_f‖ (Kwon et al., "ASAM: Adaptive Sharpness-Aware Minimization", ICML 2021, section 3, filter-wise). Parameters
of one dimension (biases, scales and shifts) are then not moved, as in Li et al. 2018, and a change of scale between
layers that leaves the function as it is leaves the relative rises as they are too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...checkpoints import FedscopeError, Weights
from ...evaluation.evaluator import Evaluator
from ...results import deviation_over
from ..planes.basis.plane_bases import filter_normalised, gaussian_direction

#: loss and gradient [P] at parameters [P]
Slope = Callable[[np.ndarray], tuple[float, np.ndarray]]

# Directions of different purposes must not be the same.
STARTS, DRAWS = 10_000, 20_000
# An ascent ends when its step is so short, relative to the radius.
SHORTEST = 1e-2


@dataclass(frozen=True)
class Ball:
    """All w + ε with ‖ε‖ ≤ ``radius``, or with ``relative`` ‖T⁻¹ε‖ ≤ ``radius``.

    Attributes:
        moved: which of the parameters ε moves, bool [P]; None: all. The others have ε = 0.
        label: what the model is called in sentences.

    Raises:
        FedscopeError: a radius that is not a positive number; a relative one about a model whose filters are all 0.
    """

    model: Weights
    radius: float
    relative: bool = False
    moved: np.ndarray | None = None
    label: str = "the model"

    def __post_init__(self) -> None:
        if not 0 < self.radius < np.inf:
            raise FedscopeError(f"a radius of {self.radius:g} is not a ball about a model; give a positive number")
        if self.relative and not self.scale.any():
            among = "" if self.moved is None else " among its trained parameters"
            raise FedscopeError(
                f"{self.label} has no filter that is not 0{among}, so nothing is relative to one; give a radius in "
                "weight space"
            )

    @cached_property
    def scale(self) -> np.ndarray:
        """The diagonal of T, float64 [P]; ones where the ball is not relative. 0 where nothing is moved.

        >>> import torch
        >>> from fedscope.checkpoints import Layout
        >>> layout = Layout.of(torch.nn.Linear(2, 1))
        >>> Ball(Weights(layout, np.array([3.0, 4.0, 7.0], np.float32), {}), 0.1, relative=True).scale.tolist()
        [5.0, 5.0, 0.0]
        """
        layout = self.model.layout
        if not self.relative:
            return np.ones(layout.size) if self.moved is None else self.moved.astype(np.float64)
        scale = np.zeros(layout.size)
        for entry in layout.parameters:
            if len(entry.shape) < 2:
                continue
            where = layout.slices[entry.name]
            rows = self.model.parameters[where].astype(np.float64).reshape(entry.shape[0], -1)
            scale[where] = np.repeat(np.linalg.norm(rows, axis=1), rows.shape[1])
        return scale if self.moved is None else np.where(self.moved, scale, 0.0)

    @property
    def dimensions(self) -> int:
        """The number of parameters that are moved."""
        return self.model.layout.size if self.moved is None else int(self.moved.sum())

    def at(self, u: np.ndarray) -> np.ndarray:
        """Return the parameters w + ρ T u, float64 [P], of a point u [P] of the unit ball."""
        return np.asarray(self.model.parameters + self.radius * self.scale * u)

    def uphill(self, gradient: np.ndarray) -> np.ndarray:
        """Return the unit vector u in which the loss rises fastest, T∇L / ‖T∇L‖; 0 where the gradient is."""
        return _unit(self.scale * gradient)


def sam_step(ball: Ball, slope: Slope) -> float:
    """L(w + ρ g/‖g‖) − L(w) with g = ∇L(w): the rise that one step of SAM sees, on all samples.

    Source: Foret et al., "Sharpness-Aware Minimization", ICLR 2021, equation 2. FedSAM and FedSWA take g and L of a
    client's mini-batch.
    """
    loss, gradient = slope(ball.at(np.zeros(ball.model.layout.size)))
    return slope(ball.at(ball.uphill(gradient)))[0] - loss


def worst_rise(ball: Ball, slope: Slope, *, starts: int = 1, steps: int = 20, seed: int = 0) -> float:
    """A lower bound of max L(w + ε) − L(w) over the ball: the highest point that gradient ascents found.

    Ascents begin at the SAM step and at ``starts`` seeded points drawn uniformly from the sphere. Each goes
    u ← Π(u + s g_u/‖g_u‖) with Π the projection onto the unit ball; where that is no higher, s is halved and the step
    tried again, else it is doubled. Each takes at most ``steps`` gradients. So the value is never below
    :func:`sam_step`'s, and more starts or steps can only raise it.

    A loss that is infinite ends the search: the rise is infinite. Points of loss NaN are not taken.
    """
    loss, gradient = slope(ball.at(np.zeros(ball.model.layout.size)))
    if not np.isfinite(loss):
        return float("nan")
    begins = [ball.uphill(gradient)]
    layout = ball.model.layout
    allowed = ball.scale > 0
    begins += [_unit(gaussian_direction(layout, seed, STARTS + i) * allowed) for i in range(starts)]
    found = [_ascend(ball, slope, u, steps) for u in begins]
    finite = [value for value in found if not np.isnan(value)]
    return max(finite) - loss if finite else float("nan")


def mean_rise(ball: Ball, evaluator: Evaluator, *, draws: int = 10, seed: int = 0) -> tuple[float, float]:
    """E L(w + ε) − L(w) over the ball, and its standard error over ``draws`` seeded directions.

    Each direction is taken with both signs, which cancels the gradient's part of the rise and its scatter. Draws are
    uniform in the ball, because the worst case is taken over the same; in many dimensions that is its sphere. Twice
    differentiable losses rise by ρ² tr(H) / (2 (P + 2)) as ρ → 0, with P the parameters that are moved.

    In a relative ball, directions are Gaussian with every filter as long as the model's (Li et al. 2018), scaled to
    ‖T⁻¹ε‖ = ρ: with F filters that are not 0, each is moved by ρ/√F of its length.

    One draw has no standard error (NaN).
    """
    model = ball.model
    offsets = [_offset(ball, seed, i) for i in range(draws)]
    models = _Moved(model, offsets)
    loss, _ = evaluator.models(models)
    rises = (loss[1::2] + loss[2::2]) / 2 - loss[0]
    return float(rises.mean()), float(deviation_over(rises) / np.sqrt(draws))


class _Moved(Sequence[Weights]):
    """w, w + ε_1, w − ε_1, w + ε_2, ...: each is formed when it is asked for, so that one per worker is in memory."""

    def __init__(self, model: Weights, offsets: Sequence[Callable[[], np.ndarray]]) -> None:
        self.model, self.offsets = model, offsets

    def __len__(self) -> int:
        return 1 + 2 * len(self.offsets)

    def __getitem__(self, i: int) -> Weights:  # type: ignore[override]
        if i == 0:
            return self.model
        sign = 1 if i % 2 else -1
        moved = self.model.parameters + sign * self.offsets[(i - 1) // 2]()
        return Weights(self.model.layout, moved, self.model.buffers)


def _offset(ball: Ball, seed: int, number: int) -> Callable[[], np.ndarray]:
    """ε of a draw, made when called."""
    layout = ball.model.layout

    def make() -> np.ndarray:
        direction = gaussian_direction(layout, seed, DRAWS + number)
        if ball.moved is not None:
            direction = np.where(ball.moved, direction, 0.0)
        if ball.relative:
            moved = filter_normalised(direction, ball.model)
            with np.errstate(divide="ignore", invalid="ignore"):
                length = np.linalg.norm(np.where(ball.scale > 0, moved / ball.scale, 0.0))
            return np.asarray(moved * (ball.radius / length))
        share = np.random.default_rng([seed, DRAWS + number, 1]).uniform() ** (1 / ball.dimensions)
        return np.asarray(_unit(direction) * (ball.radius * share))

    return make


def _ascend(ball: Ball, slope: Slope, u: np.ndarray, steps: int) -> float:
    """Compute the highest loss of an ascent from u."""
    best, gradient = slope(ball.at(u))
    step = 1.0
    for _ in range(steps - 1):
        if step < SHORTEST or not np.isfinite(best):
            break
        trial = u + step * ball.uphill(gradient)
        trial /= max(1.0, float(np.linalg.norm(trial)))
        loss, slope_there = slope(ball.at(trial))
        if loss > best:
            gain, best, u, gradient = loss - best, loss, trial, slope_there
            step = min(2 * step, 4.0)
            if gain < 1e-6 * abs(best):
                break
        else:
            step /= 2
    return best


def _unit(vector: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector
