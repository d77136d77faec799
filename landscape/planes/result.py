"""Losses on a plane: the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ...results import ArrayResult, along
from ...results.arrays import Variable
from .basins import basin_of
from .file_checks import refuse_damaged_plane
from .summary import align_findings, meets_aim, plane_sentence, surface_sentence

#: the units of coordinates, but for surfaces of other programs
L2 = "L2 distance"
#: of the models in a plane's file: what each column is, and its unit
MODEL_COLUMNS: dict[str, tuple[str, str | None]] = {
    "label": ("model", None),
    "a": ("coordinate along u", L2),
    "b": ("coordinate along v", L2),
    "off_plane": ("distance from the plane", L2),
    "loss": ("mean cross-entropy of the model itself", "nat"),
    "error": ("share misclassified by the model itself", "1"),
    "stored_loss": ("test loss recorded by the run", "nat"),
    "stored_error": ("test error recorded by the run", "1"),
    "role": ("what the model is to the plane", None),
    "own_loss": ("mean cross-entropy with the model's own normalization statistics", "nat"),
    "own_error": ("share misclassified with the model's own normalization statistics", "1"),
}
#: what --json says of a plane, and of each of its models
ATTRS = (
    *("data", "split", "samples", "client", "points_held_out", "held_out_loss_error", "normalization_effect"),
    *("calibration_samples", "statistics_of", "held_out_loss_low", "held_out_loss_bands", "held_out_beyond"),
)
MODEL = ("label", "role", "loss", "error", "off_plane", "own_loss", "own_error")
SURFACE = ("program", "split", "units", "holes")


@dataclass(frozen=True)
class PlaneModel:
    """A model on a plane or off it.

    Attributes:
        label: as it is called in figures.
        a, b: coordinates of its projection, in L2 distance.
        off_plane: its distance from the plane, 0 up to rounding for the anchors and their mean.
        loss, error: measured on the model itself, not read off the grid, with normalization statistics of the
            surface's policy.
        stored_loss, stored_error: what its run recorded, NaN where it did not.
        role: ``anchor`` (one of the models that the plane was made from), ``mean`` (the anchors' unweighted one),
            ``path`` (of a trajectory), ``origin`` (of random directions) or ``shown``.
        own_loss, own_error: with the statistics that the model holds itself (the mean: its anchors' mean ones); other
            numbers than ``loss`` and ``error`` where the policy is ``keep`` or ``re-estimate``.
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
    own_loss: float = float("nan")
    own_error: float = float("nan")


@dataclass(frozen=True, eq=False)
class Plane(ArrayResult):
    """L(w_1 + a û + b v̂) on a grid; see :class:`~fedscope.landscape.planes.basis.orthonormal_axes.Basis` for the axes
    through three models, :class:`~fedscope.landscape.planes.basis.plane_bases.PlaneBasis` for others.

    Attributes:
        a, b: coordinates of the grid in L2 distance, [A] and [B].
        loss: mean cross-entropy in nats, [b, a]; NaN and infinity are kept.
        error: share misclassified, [b, a].
        models: the models that the plane was made from, their mean, then the models shown; see ``PlaneModel.role``.
        cos_uv: û·v̂, 0 up to rounding.
        normalization_policy: how points and models got their normalization statistics
            (:class:`~fedscope.evaluation.normalization.Normalization`); ``none`` for models without any, ``unknown``
            for surfaces of other programs.
        attrs: provenance: kind of plane, data, samples, precision, device, versions and whatever the caller gave.
        computed: which points were measured, [b, a] bool; the others were interpolated (``adaptive``). None: all.
    """

    command = kind = "plane"
    collected = "many_planes:Planes"
    needed = dict.fromkeys(("a", "b", "loss", "error", *(f"model_{name}" for name in MODEL_COLUMNS)), "")
    optional = {"computed": ""}
    derived = (".basin.csv",)
    grows = ("adaptive",)
    paged: ClassVar = {"": "page"}

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
    def span(self) -> str:
        """The models it was made from: ``models`` (three), ``clients``, ``trajectory``, ``random``, or ``surface``
        (another program's)."""
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

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``b``, ``a`` and ``model``; see formats.md for the names."""
        units, nats = (str(self.attrs.get(key, usual)) for key, usual in (("units", L2), ("loss_units", "nat")))
        coords = {
            "b": along("b", self.b, "coordinate along v", units),
            "a": along("a", self.a, "coordinate along u", units),
            "model": along("model", np.arange(len(self.models)), "anchors, their mean, shown; see model_role"),
        }
        variables = {
            "loss": along("b a", self.loss, "mean loss", nats),
            "error": along("b a", self.error, "share misclassified", "1"),
        }
        for name, (about, unit) in MODEL_COLUMNS.items():
            column = np.array([getattr(model, name) for model in self.models], dtype=float if unit else object)
            if unit == "nat":
                about, unit = about.replace("cross-entropy", "loss" if "task" in self.attrs else "cross-entropy"), nats
            variables[f"model_{name}"] = along("model", column, about, unit)
        if self.computed is not None:
            computed = self.computed.astype(np.int8)
            variables["computed"] = along("b a", computed, "1 where measured, 0 where interpolated")
        return coords, variables

    def head(self) -> dict[str, Any]:
        """Attributes of the file besides :attr:`attrs`."""
        return {"cos_uv": self.cos_uv, "normalization_policy": self.normalization_policy}

    @classmethod
    def refuse_damaged(cls, path: Path, values: Mapping[str, np.ndarray], attrs: Mapping[str, Any]) -> None:
        """See :func:`refuse_damaged_plane`."""
        refuse_damaged_plane(path, values, attrs)

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """Build the result from what :meth:`arrays` gave."""
        columns = zip(*(values[f"model_{field.name}"].tolist() for field in fields(PlaneModel)), strict=True)
        return cls(
            **{name: values[name] for name in ("a", "b", "loss", "error")},
            models=tuple(PlaneModel(*row) for row in columns),
            cos_uv=float(attrs.pop("cos_uv")),
            normalization_policy=str(attrs.pop("normalization_policy")),
            attrs=attrs,
            computed=values["computed"].astype(bool) if "computed" in values else None,
        )

    def is_enough(self, asked: Mapping[str, Any]) -> bool:
        """Whether this is the answer to the same question with another budget (``adaptive``): its aim is met, or no
        more points may be measured than were."""
        share = asked.get("adaptive")
        if share is None or self.computed is None or meets_aim(self):
            return True
        return bool(share <= max(self.attrs.get("adaptive") or 0, self.computed.mean()))

    def derive(self, base: Path | str, *, again: bool = True) -> list[Path]:
        """Write the places of the models about the minimum, as ``BASE.basin.csv``; none where there is no such
        place."""
        basin, path = basin_of(self), Path(f"{base}.basin.csv")
        if not again and path.exists():
            return [path]
        if basin is None:
            path.unlink(missing_ok=True)  # of a result that this one has replaced
            return []
        basin.save(path)
        return [path]

    def page(self, title: str | None = None, **colours: Any) -> str:
        """A web page that needs nothing else: the loss as a surface one can turn, and as a contour plot.

        Args:
            title: above it.
            colours: as of :meth:`figure`.
        """
        return self.paging("")(self, title, **colours)

    def summary(self) -> str:
        """Describe the plane with its numbers, or the surface that was read of another program."""
        return surface_sentence(self) if self.span == "surface" else plane_sentence(self)

    def findings(self) -> dict[str, Any]:
        """Return the basin and the models; of another program's surface what it says of itself."""
        grid = [len(self.b), len(self.a)]
        if self.span == "surface":
            return {"grid": grid, **{key: self.attrs[key] for key in SURFACE}}
        basin = basin_of(self)
        about = {**asdict(basin), "ringed": basin.ringed, "deviation": basin.deviation} if basin is not None else None
        computed = self.loss.size if self.computed is None else int(self.computed.sum())
        return {
            **({"basin": about} if about is not None else {}),
            **{key: self.attrs[key] for key in ATTRS if key in self.attrs},
            **align_findings(self.attrs),
            "normalization_policy": self.normalization_policy,
            "kind": self.span,
            "models": [{key: getattr(model, key) for key in MODEL} for model in self.models],
            "grid": grid,
            "points_computed": computed,
            "points_interpolated": self.loss.size - computed,
        }
