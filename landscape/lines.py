"""Losses along the segment between two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import nn

from ..checkpoints import FedscopeError, Model
from .evaluator import Evaluator
from .geometry import fits_module, same_layout
from .normalization import Normalization
from .points import Points
from .replica import Replica
from .samples import Samples
from .storing import precision_errors, provenance_of, read_result, write_result
from .visiting import Progress, Visits, calibration_identity, coarse_to_fine, fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Line:
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
    """

    pairs: tuple[str, ...]
    ends: tuple[tuple[str, str], ...]
    beta: np.ndarray
    loss: np.ndarray
    error: np.ndarray
    barrier: np.ndarray
    barrier_beta: np.ndarray
    attrs: dict[str, Any]

    def save(self, path: Path | str) -> None:
        """Write ``BASE.nc``: dimensions ``pair`` and ``beta``; see cli.md for the names."""
        write_result(
            Path(path),
            "line",
            coords={
                "pair": (("pair",), np.array(self.pairs, dtype=object), {"long_name": "pair of models"}),
                "beta": (("beta",), self.beta, {"long_name": "weight of the first model", "units": "1"}),
            },
            variables={
                "loss": (("pair", "beta"), self.loss, {"long_name": "mean cross-entropy", "units": "nat"}),
                "error": (("pair", "beta"), self.error, {"long_name": "share misclassified", "units": "1"}),
                "barrier": (("pair",), self.barrier, {"long_name": "loss barrier", "units": "nat"}),
                "barrier_beta": (("pair",), self.barrier_beta, {"long_name": "beta of the barrier", "units": "1"}),
            },
            attrs={**self.attrs, "ends": [list(two) for two in self.ends]},
        )

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            FedscopeError: no such file, or not a line's.
        """
        both, one = ("pair", "beta"), ("pair",)
        dims = {"beta": ("beta",), "loss": both, "error": both, "barrier": one, "barrier_beta": one}
        values, attrs = read_result(Path(path), "line", ("pair", *dims), dims=dims)
        ends = tuple((str(a), str(b)) for a, b in attrs.pop("ends"))
        pairs = tuple(str(pair) for pair in values.pop("pair"))
        return cls(pairs=pairs, ends=ends, attrs=attrs, **values)

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Loss above error over β (beside it from 6 inches on), a colour a pair; ``width`` in inches."""
        from .line_figure import draw_line

        return draw_line(self, width, title)


def betas_on(span: tuple[float, float], points: int) -> np.ndarray:
    """``points`` equally spaced β on ``span``, 0 and 1 exactly among them where the span holds them.

    >>> betas_on((-0.5, 1.5), 5).tolist()
    [-0.5, 0.0, 0.5, 1.0, 1.5]
    >>> betas_on((0.5, 1.25), 2).tolist()
    [0.5, 1.0, 1.25]

    Raises:
        FedscopeError: fewer than two points, or a span that does not rise.
    """
    low, high = float(span[0]), float(span[1])
    if points < 2 or not low < high:
        raise FedscopeError(
            f"{points} points from {low:g} to {high:g} make no line; give at least 2, the smaller end first"
        )
    betas = np.linspace(low, high, points)
    step = (high - low) / (points - 1)
    for end in (0.0, 1.0):
        nearest = int(np.argmin(np.abs(betas - end)))
        if abs(betas[nearest] - end) < 1e-9 * step:
            betas[nearest] = end
        elif low < end < high:
            betas = np.sort(np.append(betas, end))
    return betas


def line(
    module: nn.Module,
    samples: Samples,
    pairs: Sequence[tuple[Model, Model]],
    *,
    betas: int | Sequence[float] | np.ndarray = 81,
    device: str = "cpu",
    normalization: str = "interpolate",
    calibration: Samples | None = None,
    precision: str = "float32",
    workers: int | None = None,
    progress: Progress | None = None,
    partial: Path | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Line:
    """Measure the losses along the segments between pairs of models, and beyond both ends.

    Args:
        module: the architecture.
        samples: what the loss is measured on.
        pairs: (A, B): β = 1 is A, β = 0 is B.
        betas: how many points on [−0.5, 1.5], or the points themselves; 0 and 1 are added where they are missing.
        normalization: where the normalization statistics of points come from; see :class:`Normalization`. The ends
            have their own in any case.
        calibration: the samples on which ``re-estimate`` measures them.
        progress: called with (points done, points in all).
        partial: where finished points are kept; the same call goes on from there. The caller removes the file once
            the result is saved.
        provenance: becomes part of ``Line.attrs``.

    Raises:
        FedscopeError: no pairs, different layouts, a pair of one and the same model.
    """
    if not pairs:
        raise FedscopeError("a line needs a pair of models, but none was given; give A B")
    beta = betas_on((-0.5, 1.5), betas) if isinstance(betas, int) else np.asarray(betas, dtype=np.float64)
    if not np.isfinite(beta).all():
        raise FedscopeError("the points of a line must be finite numbers")
    beta = np.union1d(beta, [0.0, 1.0])
    for pair in pairs:
        same_layout([model.weights for model in pair], [model.label for model in pair])
        if np.array_equal(pair[0].weights.parameters, pair[1].weights.parameters):
            raise FedscopeError(
                f"{pair[0].label} and {pair[1].label} are the same model (distance 0); a line needs two different ones"
            )
    evaluator = Evaluator(module, samples, device=device, precision=precision, workers=workers)
    models = [model for pair in pairs for model in pair]
    fits_module(evaluator.layout, models)
    shape = (len(pairs), len(beta))
    order = [pair * shape[1] + point for point in coarse_to_fine(shape[1:]) for pair in range(shape[0])]

    inputs = evaluator.prepare(calibration.x) if calibration is not None else None
    policy = Normalization.of(module, models[0].weights.buffers, normalization, inputs)

    def form(i: int, replica: Replica) -> None:
        pair, point = divmod(i, shape[1])
        ends = [model.weights for model in pairs[pair]]
        own = {1.0: ends[0], 0.0: ends[1]}.get(float(beta[point]))
        if own is not None:
            replica.load(own.parameters, own.buffers)
        else:
            Points(ends, lambda k: (float(beta[k]), 1.0 - float(beta[k])), policy).form(point, replica)

    weights = [model.weights for model in models]
    identity = fingerprint(
        "line",
        module,
        evaluator,
        weights,
        beta=beta.tolist(),
        normalization=policy.policy,
        calibration=calibration_identity(policy.policy, calibration),
    )
    visits = Visits(evaluator, form, len(order), progress=progress, partial=partial, fingerprint=identity)
    visits.measure(order)
    loss, error = visits.loss.reshape(shape), visits.error.reshape(shape)
    barriers = [barrier_of(beta, curve) for curve in loss]
    at = [int(np.flatnonzero(beta == end)[0]) for end in (1.0, 0.0)]
    return Line(
        pairs=tuple(f"{a.label} - {b.label}" for a, b in pairs),
        ends=tuple((a.label, b.label) for a, b in pairs),
        beta=beta,
        loss=loss,
        error=error,
        barrier=np.array([height for height, _ in barriers]),
        barrier_beta=np.array([where for _, where in barriers]),
        attrs={
            **provenance_of(evaluator, samples, models, provenance),
            "normalization_policy": policy.policy,
            **({"calibration_samples": len(calibration or ())} if policy.policy == "re-estimate" else {}),
            **precision_errors(module, evaluator, weights, loss[None, :, at].reshape(1, -1))[0],
        },
    )


def barrier_of(beta: np.ndarray, loss: np.ndarray) -> tuple[float, float]:
    """The greatest excess of ``loss`` [beta] over the straight line between its values at β = 0 and 1, and its β.

    >>> import numpy as np
    >>> barrier_of(np.array([0.0, 0.5, 1.0]), np.array([1.0, 5.0, 3.0]))
    (3.0, 0.5)
    """
    inside = (beta >= 0) & (beta <= 1)
    beta, loss = beta[inside], loss[inside]
    at_0, at_1 = loss[beta == 0][0], loss[beta == 1][0]
    with np.errstate(invalid="ignore"):
        excess = loss - (beta * at_1 + (1 - beta) * at_0)
        top = int(np.argmax(excess))
    return float(excess[top]), float(beta[top])
