"""Places of models in the basin that a plane shows: about its minimum, on one side of it, at its rim.

The mean is that of the plane's models. Of three clients it is not the round's global model, which averages all clients;
Zhou et al. name that as a possible cause of the gap between the mean and the minimum (section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints.io.errors import list_few
from ...results.tables import write_csv

if TYPE_CHECKING:
    from .result import Plane, PlaneModel

COLUMNS = ("model", "a", "b", "off_plane", "distance", "angle", "loss", "excess_loss", "own_loss")
#: how far a parabola may be off the nine points about a minimum: as a share of their rise from it, and of what its
#: vertex is below the least of them; and how far a curve of the third order may be off it at the vertex, as a share of
#: the latter
MISFIT, ADDED, BEND = 0.1, 1 / 2, 1 / 3


@dataclass(frozen=True)
class BasinModel:
    """A model seen from the minimum of its plane.

    Attributes:
        label: as in the plane; a, b, off_plane, loss: the plane's.
        distance: in the plane, from the minimum to the model's projection, L2.
        angle: of that way, in degrees from the a axis, -180 to 180.
        excess_loss: the model's own loss less the minimum's.
        role, own_loss: as in the plane.
    """

    label: str
    a: float
    b: float
    off_plane: float
    distance: float
    angle: float
    loss: float
    excess_loss: float
    role: str = "shown"
    own_loss: float = float("nan")


@dataclass(frozen=True)
class Basin:
    """The minimum of a plane's loss surface, and where the plane's models lie about it.

    Attributes:
        a, b: of the minimum, in L2 distance; loss: there.
        on_edge: whether it lies on the border of the grid, or beyond, so that the surface may fall further outside.
        models: the anchors (three, or a round's clients), their mean, then the models shown.
        gaps: between neighbouring anchors, seen from the minimum, in degrees; they add up to 360.
        step: the grid's, the larger of the two, where nothing tells the minimum's place more closely: it is a point of
            the grid, or a model. 0 where it is the vertex of a parabola.
        beyond: True if the minimum is a model that lies outside of the grid's range; nothing else there is known.
        outside: labels of the models that do, which no figure shows.
    """

    a: float
    b: float
    loss: float
    on_edge: bool
    models: tuple[BasinModel, ...]
    gaps: tuple[float, ...]
    step: float = 0.0
    beyond: bool = False
    outside: tuple[str, ...] = ()

    @property
    def anchors(self) -> tuple[BasinModel, ...]:
        """The models that the plane was made from."""
        return tuple(model for model in self.models if model.role == "anchor")

    @property
    def ringed(self) -> bool:
        """True if the anchors stand round the minimum: no gap of 180 degrees, so it lies inside their polygon."""
        return max(self.gaps) < 180

    @property
    def mean(self) -> BasinModel:
        """The anchors' mean; its distance is the paper's deviation from the centre of the basin.

        Of three clients it is not the global model, a possible cause of that distance (section 4.1).
        """
        return next(model for model in self.models if model.role == "mean")

    @property
    def anchor_distance(self) -> float:
        """The anchors' average distance from the minimum, in the plane."""
        return float(np.mean([model.distance for model in self.anchors]))

    @property
    def deviation(self) -> float:
        """The mean's distance from the minimum over the anchors' average one: 0 in the centre, 1 as far as they."""
        return self.mean.distance / self.anchor_distance

    def sentence(self) -> str:
        """Describe it in a sentence, for captions.

        >>> from fedscope.landscape.planes.basins import Basin, BasinModel
        >>> roles = [(2.0, "anchor"), (2.0, "anchor"), (2.0, "anchor"), (0.5, "mean")]
        >>> models = [BasinModel("m", 0, 0, 0, d, 0, 1, 0.5, role) for d, role in roles]
        >>> Basin(0, 0, 0.5, False, tuple(models), (100.0, 120.0, 140.0)).sentence()
        'the mean is 0.5 from the minimum of the plane (loss 0.5); the three are 2 from it on average, around it'
        """
        where = "around it" if self.ringed else "on one side of it"
        edge = f", {self._edge()}" if self.on_edge else ""
        outside = f"; outside of the range: {list_few(self.outside)}" if self.outside else ""
        return (
            f"the mean is {self._far(self.mean.distance)} from the minimum of the plane (loss {self.loss:.3g}{edge}); "
            f"{self._who()} are {self._far(self.anchor_distance)} from it on average, {where}{outside}"
        )

    def caption(self) -> str:
        """Describe it below a figure, whose table has the minimum's loss."""
        where = "all around it" if self.ringed else "all on one side of it"
        edge = f" ({self._edge()})" if self.on_edge else ""
        return (
            f"distance to the minimum{edge}: the mean {self._far(self.mean.distance).rstrip(',')}; {self._who()} "
            f"{self._far(self.anchor_distance)} on average, {where}"
        )

    def _edge(self) -> str:
        """Where a minimum lies that may not be the plane's."""
        return "a model outside of the range" if self.beyond else "at the edge of the range"

    def _far(self, distance: float) -> str:
        """A distance in words: where the minimum lies is known to the grid's step alone, unless a parabola tells it."""
        return f"{distance:.2g}" if distance >= self.step else f"less than the grid's step, {self.step:.2g},"

    def _who(self) -> str:
        return "the three" if len(self.anchors) == 3 else f"the {len(self.anchors)} clients"

    def save(self, path: Path | str) -> None:
        """Write ``BASE.basin.csv``: a row for the minimum, then one a model; a cell that does not apply is empty."""
        minimum = ["minimum", self.a, self.b, 0.0, 0.0, None, self.loss, 0.0, None]
        models = [[getattr(model, name) for name in ("label", *COLUMNS[1:])] for model in self.models]
        write_csv(Path(path), COLUMNS, [minimum, *models])


def basin_of(plane: Plane) -> Basin | None:
    """Find the places of a plane's models in its basin.

    None where no point of the grid is finite, and for planes that have no anchors with a mean (a trajectory's).

    The minimum is the least of these:

    - the least point of the grid;
    - the vertex of the parabola through it and its eight neighbours (least squares; exact for a quadratic loss), if it
      lies within one step of the middle one, is not below 0 where no loss is, and the parabola tells the losses about
      it. The nine points it misses by at most a tenth of the median rise from the middle one to the others, and by at
      most half of what its vertex is below the middle one. Curves of the third order through a point two steps from
      the middle one, along each axis, are at the vertex at most a third of that away from it; without such points
      there is none. So the loss at the vertex is what the parabola says, mostly within half of what it adds. On coarse
      grids it tells nothing, nor does it of points that were interpolated (``adaptive``);
    - the models that lie on the plane, measured themselves: the mean, and three anchors. So none of them is below the
      minimum.

    Losses on the surface and of the models are as the plane has them; nothing is evaluated.
    """
    loss = np.where(np.isfinite(plane.loss), plane.loss, np.inf)
    if not np.isfinite(loss).any() or plane.mean is None:
        return None
    row, column = (int(k) for k in np.unravel_index(int(np.argmin(loss)), loss.shape))
    found = (float(loss[row, column]), float(plane.a[column]), float(plane.b[row]))
    step = coarse = float(max(np.diff(plane.a).max(), np.diff(plane.b).max()))
    if 0 < row < len(plane.b) - 1 and 0 < column < len(plane.a) - 1:
        about = np.s_[row - 1 : row + 2, column - 1 : column + 2]
        # of interpolated points a parabola would tell the interpolation
        measured = plane.computed is None or bool(plane.computed[about].all())
        vertex = _vertex(plane.a, plane.b, loss, row, column) if measured else None
        found, step = (found, step) if vertex is None else (vertex, 0.0)
    for model in _on_plane(plane):
        if model.loss < found[0]:  # not of a NaN
            found, step = (model.loss, model.a, model.b), coarse
    least, a, b = found
    on_edge = not (plane.a[0] < a < plane.a[-1] and plane.b[0] < b < plane.b[-1])
    models = tuple(
        BasinModel(
            label=model.label,
            a=model.a,
            b=model.b,
            off_plane=model.off_plane,
            distance=float(np.hypot(model.a - a, model.b - b)),
            angle=float(np.degrees(np.arctan2(model.b - b, model.a - a))),
            loss=model.loss,
            excess_loss=model.loss - least,
            role=model.role,
            own_loss=model.own_loss,
        )
        for model in plane.models
    )
    angles = sorted(model.angle for model in models if model.role == "anchor")
    gaps = [*np.diff(angles).tolist(), 360 - (angles[-1] - angles[0])]
    outside = tuple(model.label for model in plane.models if not _is_within(plane, model.a, model.b))
    return Basin(a, b, least, on_edge, models, tuple(gaps), step, not _is_within(plane, a, b), outside)


def _is_within(plane: Plane, a: float, b: float) -> bool:
    """Check for a place in the grid's range, of whose ends a model on them may miss some by rounding."""
    return all(
        ends[0] - (some := 1e-9 * (ends[-1] - ends[0])) <= at <= ends[-1] + some
        for at, ends in ((a, plane.a), (b, plane.b))
    )


def _on_plane(plane: Plane) -> tuple[PlaneModel, ...]:
    """Return the models that are points of the surface: they have normalization statistics of its policy, too."""
    return tuple(m for m in plane.models if m.role == "mean" or (m.role == "anchor" and plane.span == "models"))


def _vertex(
    a: np.ndarray, b: np.ndarray, losses: np.ndarray, row: int, column: int
) -> tuple[float, float, float] | None:
    """Loss and place of the minimum of the parabola through 3 x 3 points, if it tells them and its minimum is sound."""
    loss = losses[row - 1 : row + 2, column - 1 : column + 2]
    if not np.isfinite(loss).all():
        return None
    step_a, step_b = a[column + 1] - a[column], b[row + 1] - b[row]
    x, y = np.meshgrid((a[column - 1 : column + 2] - a[column]) / step_a, (b[row - 1 : row + 2] - b[row]) / step_b)
    x, y = x.ravel(), y.ravel()
    fit, *_ = np.linalg.lstsq(_terms(x, y), loss.ravel(), rcond=None)
    c, p, q, xx, xy, yy = fit
    rounding = 1e-12 * float(np.abs(loss).max())
    # the median, as a steep side, which three points a way cannot doubt, would excuse any misfit
    rise = float(np.median(np.delete(loss.ravel(), 4))) - float(loss[1, 1])
    hessian = np.array([[2 * xx, xy], [xy, 2 * yy]])
    if not (np.linalg.eigvalsh(hessian) > 0).all():
        return None
    step = np.linalg.solve(hessian, -np.array([p, q]))
    if np.abs(step).max() > 1:
        return None
    value = c + 0.5 * float(np.array([p, q]) @ step)
    added = float(loss[1, 1]) - value
    if added < -rounding or (loss.min() >= 0 and value < -rounding):
        return None
    misfit = float(np.abs(_terms(x, y) @ fit - loss.ravel()).max())
    if misfit > min(MISFIT * rise, ADDED * added) + rounding:
        return None
    if _bend(fit, losses, row, column, step) > BEND * added + rounding:
        return None
    value = max(value, 0.0) if loss.min() >= 0 else value  # a minimum of 0, rounded
    return float(value), float(a[column] + step[0] * step_a), float(b[row] + step[1] * step_b)


def _terms(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The terms of a parabola at points [N], in steps from the middle: [N, 6]."""
    return np.stack([np.ones(len(x)), x, y, x * x, x * y, y * y], axis=1)


def _bend(fit: np.ndarray, losses: np.ndarray, row: int, column: int, step: np.ndarray) -> float:
    """How far curves of the third order are off a parabola at a step from the middle, summed over both axes.

    Three points a way lie on a parabola whatever the loss is between them: nothing but a fourth one doubts it. A curve
    that is off by r two steps from the middle is off by r t (t^2 - 1) / 6 at t; r is the larger one of both sides.
    Infinite where there is no finite fourth point.
    """
    far = 0.0
    for way, t in zip((np.array([0, 1]), np.array([1, 0])), step, strict=True):
        off = []
        for side in (-2, 2):
            at = np.array([row, column]) + side * way
            if (at >= 0).all() and (at < losses.shape).all() and np.isfinite(losses[tuple(at)]):
                y, x = side * way[:, None]
                off.append(abs(float((_terms(x, y) @ fit)[0]) - float(losses[tuple(at)])))
        if not off:
            return float("inf")
        far += max(off) * abs(float(t)) * (1 - float(t) ** 2) / 6
    return far
