"""Losses on a plane: the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..checkpoints import FedscopeError, Variable
from .plane_gate import refuse_damaged_plane
from .storing import read_result, write_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlaneModel:
    """A model on or beside a plane.

    Attributes:
        label: as it is called in figures.
        a, b: coordinates of its projection, in L2 distance.
        off_plane: its distance from the plane, 0 up to rounding for the anchors and their mean.
        loss, error: measured on the model itself, not read off the grid.
        stored_loss, stored_error: what its run recorded, NaN where it did not.
        role: ``anchor`` (one of the models that the plane was made from), ``mean`` (the anchors' unweighted one),
            ``path`` (of a trajectory), ``origin`` (of random directions) or ``shown``.
    """

    label: str
    a: float
    b: float
    off_plane: float
    loss: float
    error: float
    stored_loss: float
    stored_error: float
    role: str = "shown"


@dataclass(frozen=True, eq=False)
class Plane:
    """L(w_1 + a û + b v̂) on a grid; see :class:`Basis` for the axes through three models, :class:`Span` for others.

    Attributes:
        a, b: coordinates of the grid in L2 distance, [A] and [B].
        loss: mean cross-entropy in nats, [b, a]; NaN and infinity are kept.
        error: share misclassified, [b, a].
        models: the models that the plane was made from, their mean, then the models shown; see ``PlaneModel.role``.
        cos_uv: û·v̂, 0 up to rounding.
        normalization_policy: how points got their normalization statistics (:class:`Normalization`); ``none`` for
            models without any, ``unknown`` for surfaces of other programs.
        attrs: provenance: kind of plane, data, samples, precision, device, versions and whatever the caller gave.
        computed: which points were measured, [b, a] bool; the others were interpolated (``adaptive``). None: all.
    """

    a: np.ndarray
    b: np.ndarray
    loss: np.ndarray
    error: np.ndarray
    models: tuple[PlaneModel, ...]
    cos_uv: float
    normalization_policy: str
    attrs: dict[str, Any]
    computed: np.ndarray | None = None

    @property
    def kind(self) -> str:
        """``models`` (through three), ``clients``, ``trajectory``, ``random``, or ``surface`` (another program's)."""
        return str(self.attrs.get("kind", "models"))

    @property
    def anchors(self) -> tuple[PlaneModel, ...]:
        """The models that the plane was made from: three, or a round's clients."""
        return self._of("anchor")

    @property
    def mean(self) -> PlaneModel | None:
        """The anchors' unweighted mean."""
        return next(iter(self._of("mean")), None)

    @property
    def path(self) -> tuple[PlaneModel, ...]:
        """The models of a trajectory, in order."""
        return self._of("path")

    @property
    def shown(self) -> tuple[PlaneModel, ...]:
        """Further models, projected."""
        return self._of("shown")

    def _of(self, role: str) -> tuple[PlaneModel, ...]:
        return tuple(model for model in self.models if model.role == role)

    def save(self, path: Path | str) -> None:
        """Write ``BASE.nc``: dimensions ``b``, ``a`` and ``model``; see cli.md for the names."""
        columns: dict[str, Variable] = {}
        for name, about in MODEL_COLUMNS.items():
            words = name in ("label", "role")
            values = np.array([getattr(model, name) for model in self.models], dtype=object if words else float)
            columns[f"model_{name}"] = (("model",), values, about)
        if self.computed is not None:
            about = {"long_name": "1 where measured, 0 where interpolated"}
            columns["computed"] = (("b", "a"), self.computed.astype(np.int8), about)
        units, nats = (str(self.attrs.get(key, usual)) for key, usual in (("units", L2), ("loss_units", "nat")))
        write_result(
            Path(path),
            "plane",
            coords={
                "b": (("b",), self.b, {"long_name": "coordinate along v", "units": units}),
                "a": (("a",), self.a, {"long_name": "coordinate along u", "units": units}),
                "model": (
                    ("model",),
                    np.arange(len(self.models)),
                    {"long_name": "anchors, their mean, shown; see model_role"},
                ),
            },
            variables={
                "loss": (("b", "a"), self.loss, {"long_name": "mean loss", "units": nats}),
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
        columns = [f"model_{name}" for name in MODEL_COLUMNS if name != "role"]
        needed = ("a", "b", "loss", "error", *columns)
        values, attrs = read_result(Path(path), "plane", needed, optional=("model_role", "computed"))
        missing = [name for name in ("cos_uv", "normalization_policy") if name not in attrs]
        if missing:
            raise FedscopeError(f"{path} does not say its {', '.join(missing)}; compute the plane again with --force")
        refuse_damaged_plane(Path(path), values, attrs)
        count = len(values["model_a"])
        # files from before roles were written: three anchors, their mean, shown ones
        roles = values.get("model_role", np.array([*["anchor"] * 3, "mean", *["shown"] * count][:count], dtype=object))
        models = []
        for i, (label, role) in enumerate(zip(values["model_label"], roles, strict=True)):
            numbers = {name.removeprefix("model_"): float(values[name][i]) for name in columns[1:]}
            models.append(PlaneModel(label=str(label), role=str(role), **numbers))
        return cls(
            a=values["a"],
            b=values["b"],
            loss=values["loss"],
            error=values["error"],
            models=tuple(models),
            cos_uv=float(attrs.pop("cos_uv")),
            normalization_policy=str(attrs.pop("normalization_policy")),
            attrs=attrs,
            computed=values["computed"].astype(bool) if "computed" in values else None,
        )

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Filled contours of the loss (from 6 inches on with the error beside it); ``width`` in inches."""
        from .plane_figure import draw_plane

        return draw_plane(self, width, title)

    def page(self, title: str | None = None) -> str:
        """A web page that needs nothing else: the loss as a surface one can turn, and as a contour plot."""
        from .plane_page import draw_page

        return draw_page(self, title)


#: the units of coordinates, but for surfaces of other programs
L2 = "L2 distance"
MODEL_COLUMNS: dict[str, dict[str, str]] = {
    "label": {"long_name": "model"},
    "a": {"long_name": "coordinate along u", "units": L2},
    "b": {"long_name": "coordinate along v", "units": L2},
    "off_plane": {"long_name": "distance from the plane", "units": L2},
    "loss": {"long_name": "mean cross-entropy of the model itself", "units": "nat"},
    "error": {"long_name": "share misclassified by the model itself", "units": "1"},
    "stored_loss": {"long_name": "test loss recorded by the run", "units": "nat"},
    "stored_error": {"long_name": "test error recorded by the run", "units": "1"},
    "role": {"long_name": "what the model is to the plane"},
}
