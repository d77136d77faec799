"""Losses on the plane through three models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import nn

from ..checkpoints import FedscopeError, Model, Variable, mean, stack
from .evaluator import Evaluator
from .geometry import Basis, fits_module, same_layout
from .replica import Replica
from .samples import Samples
from .storing import normalization_policy, precision_error, provenance_of, read_result, write_result
from .visiting import Progress, coarse_to_fine, fingerprint, visit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Range = tuple[float, float]


@dataclass(frozen=True)
class PlaneModel:
    """A model on or beside a plane.

    Attributes:
        label: as it is called in figures.
        a, b: coordinates of its projection, in L2 distance.
        off_plane: its distance from the plane, 0 up to rounding for the anchors and their mean.
        loss, error: measured on the model itself, not read off the grid.
        stored_loss, stored_error: what its run recorded, NaN where it did not.
    """

    label: str
    a: float
    b: float
    off_plane: float
    loss: float
    error: float
    stored_loss: float
    stored_error: float


@dataclass(frozen=True, eq=False)
class Plane:
    """L(w_1 + a û + b v̂) on a grid; see :class:`Basis` for the axes.

    Attributes:
        a, b: coordinates of the grid in L2 distance, [A] and [B].
        loss: mean cross-entropy in nats, [b, a]; NaN and infinity are kept.
        error: share misclassified, [b, a].
        models: the three anchors, their unweighted mean, then the models shown.
        cos_uv: û·v̂, 0 up to rounding.
        normalization_policy: ``interpolate`` where normalization statistics were combined like the parameters (running
            variances not below 0, integer buffers from the first anchor), ``none`` for models without any.
        attrs: provenance: data, samples, precision, device, versions and whatever the caller gave.
    """

    a: np.ndarray
    b: np.ndarray
    loss: np.ndarray
    error: np.ndarray
    models: tuple[PlaneModel, ...]
    cos_uv: float
    normalization_policy: str
    attrs: dict[str, Any]

    @property
    def anchors(self) -> tuple[PlaneModel, ...]:
        """The three models that span the plane."""
        return self.models[:3]

    @property
    def mean(self) -> PlaneModel:
        """The anchors' unweighted mean."""
        return self.models[3]

    @property
    def shown(self) -> tuple[PlaneModel, ...]:
        """Further models, projected."""
        return self.models[4:]

    def save(self, path: Path | str) -> None:
        """Write ``BASE.nc``: dimensions ``b``, ``a`` and ``model``; see cli.md for the names."""
        columns: dict[str, Variable] = {}
        for name, about in MODEL_COLUMNS.items():
            values = np.array(
                [getattr(model, name) for model in self.models], dtype=object if name == "label" else float
            )
            columns[f"model_{name}"] = (("model",), values, about)
        write_result(
            Path(path),
            "plane",
            coords={
                "b": (("b",), self.b, {"long_name": "distance along v", "units": "L2 distance"}),
                "a": (("a",), self.a, {"long_name": "distance along u", "units": "L2 distance"}),
                "model": (("model",), np.arange(len(self.models)), {"long_name": "three anchors, their mean, shown"}),
            },
            variables={
                "loss": (("b", "a"), self.loss, {"long_name": "mean cross-entropy", "units": "nat"}),
                "error": (("b", "a"), self.error, {"long_name": "share misclassified", "units": "1"}),
                **columns,
            },
            attrs={**self.attrs, "cos_uv": self.cos_uv, "normalization_policy": self.normalization_policy},
        )

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            FedscopeError: no such file, or not a plane's.
        """
        needed = ("a", "b", "loss", "error", *(f"model_{name}" for name in MODEL_COLUMNS))
        values, attrs = read_result(Path(path), "plane", needed)
        rows = zip(*(values[f"model_{name}"] for name in MODEL_COLUMNS), strict=True)
        models = tuple(PlaneModel(str(label), *(float(x) for x in numbers)) for label, *numbers in rows)
        return cls(
            a=values["a"],
            b=values["b"],
            loss=values["loss"],
            error=values["error"],
            models=models,
            cos_uv=float(attrs.pop("cos_uv")),
            normalization_policy=str(attrs.pop("normalization_policy")),
            attrs=attrs,
        )

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Filled contours of the loss (from 6 inches on with the error beside it); ``width`` in inches."""
        from .plane_figure import draw_plane

        return draw_plane(self, width, title)

    def page(self, title: str | None = None) -> str:
        """A web page that needs nothing else: the loss as a surface one can turn, and as a contour plot."""
        from .plane_page import draw_page

        return draw_page(self, title)


MODEL_COLUMNS: dict[str, dict[str, str]] = {
    "label": {"long_name": "model"},
    "a": {"long_name": "coordinate along u", "units": "L2 distance"},
    "b": {"long_name": "coordinate along v", "units": "L2 distance"},
    "off_plane": {"long_name": "distance from the plane", "units": "L2 distance"},
    "loss": {"long_name": "mean cross-entropy of the model itself", "units": "nat"},
    "error": {"long_name": "share misclassified by the model itself", "units": "1"},
    "stored_loss": {"long_name": "test loss recorded by the run", "units": "nat"},
    "stored_error": {"long_name": "test error recorded by the run", "units": "1"},
}


def plane(
    module: nn.Module,
    samples: Samples,
    anchors: Sequence[Model],
    *,
    shown: Sequence[Model] = (),
    grid: int | tuple[int, int] = 51,
    margin: float = 0.3,
    ranges: tuple[Range, Range] | None = None,
    device: str = "cpu",
    precision: str = "float32",
    workers: int | None = None,
    progress: Progress | None = None,
    partial: Path | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Plane:
    """Measure the losses on the plane through three models, and of these, their mean and further models exactly.

    Args:
        module: the architecture.
        samples: what the loss is measured on.
        anchors: the three models, the first one at the origin and the second on the a axis.
        shown: models to project onto the plane.
        grid: points a side, or (points along a, points along b).
        margin: room round all the models, as a share of their greater extent; the default range is a square.
        ranges: ((a from, a to), (b from, b to)) instead.
        progress: called with (points done, points in all).
        partial: where finished points are kept; the same call goes on from there. The caller removes the file once
            the result is saved.
        provenance: becomes part of ``Plane.attrs``.

    Raises:
        FedscopeError: not three anchors, different layouts, anchors with NaN, identical or collinear ones, a grid of
            less than 2 x 2, an empty range.
    """
    if len(anchors) != 3:
        raise FedscopeError(f"a plane goes through three models, but {len(anchors)} were given")
    counts = (grid, grid) if isinstance(grid, int) else grid
    if min(counts) < 2:
        raise FedscopeError(f"a grid of {counts[0]} x {counts[1]} points shows no surface; give at least 2 (--grid 51)")
    if not margin >= 0:
        raise FedscopeError(f"a margin of {margin:g} would cut models off; give 0 or more (--margin 0.3)")
    labels = [model.label for model in (*anchors, *shown)]
    same_layout([model.weights for model in (*anchors, *shown)], labels)
    corners = [model.weights for model in anchors]
    basis = Basis.of(corners, labels[:3])
    evaluator = Evaluator(module, samples, device=device, precision=precision, workers=workers)
    fits_module(evaluator.layout, anchors)

    middle = Model("mean", f"mean({', '.join(labels[:3])})", mean(stack(corners)), None, None, None, None, None)
    exact = [*anchors, middle, *shown]
    places = [basis.project(model.weights.parameters) for model in exact]
    frame, cos_uv, angle = basis.frame, basis.cos_uv, basis.angle
    del basis  # its three float64 vectors are not needed any more
    if ranges is None:
        ranges = _square(np.array([place[:2] for place in places]), margin)
    a, b = (_axis(span, count, name) for span, count, name in zip(ranges, counts, "ab", strict=True))

    # The exact models come first, so that they are known however early the analysis is interrupted.
    shape = (len(b), len(a))
    order = [*range(len(exact)), *(len(exact) + i for i in coarse_to_fine(shape))]

    def form(i: int, replica: Replica) -> None:
        if i < len(exact):
            replica.load(exact[i].weights.parameters, exact[i].weights.buffers)
            return
        row, column = divmod(i - len(exact), shape[1])
        replica.combine(corners, frame.coefficients(float(a[column]), float(b[row])))

    identity = fingerprint("plane", module, evaluator, [model.weights for model in exact], a=a.tolist(), b=b.tolist())
    loss, error = visit(evaluator, order, form, progress=progress, partial=partial, fingerprint=identity)
    models = tuple(
        PlaneModel(model.label, *place, float(loss[i]), float(error[i]), _or_nan(model.loss), _or_nan(model.error))
        for i, (model, place) in enumerate(zip(exact, places, strict=True))
    )
    return Plane(
        a=a,
        b=b,
        loss=loss[len(exact) :].reshape(shape),
        error=error[len(exact) :].reshape(shape),
        models=models,
        cos_uv=cos_uv,
        normalization_policy=normalization_policy(corners[0]),
        attrs={
            **provenance_of(evaluator, [*anchors, *shown], provenance),
            "u_length": frame.u_length,
            "v_length": frame.v_length,
            "angle": angle,
            **precision_error(module, evaluator, [model.weights for model in exact], loss[: len(exact)]),
        },
    )


def _square(places: np.ndarray, margin: float) -> tuple[Range, Range]:
    places = places[np.isfinite(places).all(axis=1)]  # a shown model may be broken
    low, high = places.min(axis=0), places.max(axis=0)
    half = (0.5 + margin) * float((high - low).max())
    centre = (low + high) / 2
    return (centre[0] - half, centre[0] + half), (centre[1] - half, centre[1] + half)


def _axis(span: Range, count: int, name: str) -> np.ndarray:
    low, high = float(span[0]), float(span[1])
    if not (np.isfinite([low, high]).all() and low < high):
        raise FedscopeError(f"the range {low:g} to {high:g} of {name} is empty; give the smaller end first")
    return np.linspace(low, high, count)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)
