"""Basin statistics against surfaces whose minimum is known."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedscope.landscape import Basin, Plane, PlaneModel, basin_of


def quadratic(a: Any, b: Any, centre: tuple[float, float], curvature: tuple[float, float, float], least: float) -> Any:
    """least + (x, y) H (x, y) / 2 about a centre, H = [[p, r], [r, q]]."""
    x, y = a - centre[0], b - centre[1]
    p, q, r = curvature
    return least + 0.5 * (p * x * x + q * y * y) + r * x * y


def plane_of(
    centre: tuple[float, float],
    anchors: list[tuple[float, float]],
    curvature: tuple[float, float, float] = (2.0, 1.0, 0.5),
    least: float = 0.3,
) -> Plane:
    """A plane of a quadratic loss, on a grid of 13 x 11 points over [-3, 3] x [-2, 2]."""
    a, b = np.linspace(-3, 3, 13), np.linspace(-2, 2, 11)
    loss = quadratic(a[None, :], b[:, None], centre, curvature, least)
    places = [*anchors, tuple(np.mean(anchors, axis=0))]
    models = tuple(
        PlaneModel(
            *(f"m{k}", x, y, 0.0, float(quadratic(x, y, centre, curvature, least)), 0.1, np.nan, np.nan),
            role="mean" if k == len(anchors) else "anchor",
        )
        for k, (x, y) in enumerate(places)
    )
    return Plane(a, b, loss, loss * 0, models, 0.0, "none", {})


RING = [(2.0, 0.1), (-1.0, 1.5), (-1.2, -1.4)]


@given(
    x=st.floats(-2, 2),
    y=st.floats(-1.2, 1.2),
    p=st.floats(0.5, 4),
    q=st.floats(0.5, 4),
    tilt=st.floats(-0.9, 0.9),
    least=st.floats(0, 2),
)
def test_the_minimum_of_a_quadratic_is_found_between_the_grid_points(
    x: float, y: float, p: float, q: float, tilt: float, least: float
) -> None:
    """Where the grid's least point is not the one beside the true minimum (a tilted valley), it is that grid point."""
    plane = plane_of((x, y), RING, (p, q, tilt * (p * q) ** 0.5), least)
    found = basin_of(plane)
    assert found is not None
    row, column = np.unravel_index(int(np.argmin(plane.loss)), plane.loss.shape)
    if found.on_edge or max(abs(plane.a[column] - x) / 0.5, abs(plane.b[row] - y) / 0.4) > 0.999:
        assert found.loss <= plane.loss.min() + 1e-12
        return
    assert (found.a, found.b, found.loss) == pytest.approx((x, y, least), abs=1e-9)


def test_distances_angles_and_losses_are_those_of_the_drawing() -> None:
    found = basin_of(plane_of((0.25, -0.1), RING))
    assert found is not None
    for model, (x, y) in zip(found.models, RING, strict=False):
        dx, dy = x - 0.25, y + 0.1
        assert model.distance == pytest.approx(np.hypot(dx, dy), abs=1e-9)
        assert model.angle == pytest.approx(np.degrees(np.arctan2(dy, dx)), abs=1e-6)
        assert model.excess_loss == pytest.approx(0.5 * (2 * dx * dx + dy * dy) + 0.5 * dx * dy, abs=1e-9)
    middle = np.mean(RING, axis=0)
    assert found.mean.distance == pytest.approx(np.hypot(middle[0] - 0.25, middle[1] + 0.1), abs=1e-9)
    anchors = np.mean([model.distance for model in found.models[:3]])
    assert found.deviation == pytest.approx(found.mean.distance / anchors)
    assert sum(found.gaps) == pytest.approx(360)
    assert not found.on_edge


@given(x=st.floats(-2.5, 2.5), y=st.floats(-1.6, 1.6))
def test_models_ring_the_minimum_where_it_lies_inside_their_triangle(x: float, y: float) -> None:
    found = basin_of(plane_of((x, y), RING, (1.0, 1.0, 0.0)))
    assert found is not None
    # barycentric coordinates of the minimum, another way to say inside
    corners = np.array([[*corner, 1.0] for corner in RING]).T
    weights = np.linalg.solve(corners, [found.a, found.b, 1.0])
    if np.abs(weights).min() > 1e-6:
        assert found.ringed == bool((weights > 0).all())
    assert ("around it" in found.sentence()) == found.ringed


def test_a_minimum_at_the_border_is_said_to_be_there() -> None:
    found = basin_of(plane_of((4.0, 0.0), RING))
    assert found is not None
    assert found.on_edge
    assert found.a == 3.0
    assert "at the edge of the range" in found.sentence()
    assert "on one side of it" in found.sentence()


def test_models_outside_of_the_range_are_named() -> None:
    plane = plane_of((0.0, 0.0), [(2.0, 0.1), (5.0, 1.5), (5.0, -1.5)])  # m0 alone is on the grid, m3 is their mean
    found = basin_of(plane)
    assert found is not None
    assert found.outside == ("m1", "m2", "m3")
    assert found.sentence().endswith("on one side of it; outside of the range: m1, m2, m3")
    assert not found.beyond
    far = basin_of(plane_of((4.0, 0.0), [(2.0, 0.1), (5.0, 1.5), (5.0, -1.5)]))
    assert far is not None
    assert (far.beyond, far.a) == (True, 4.0)
    assert "(loss 0.301, a model outside of the range)" in far.sentence()
    assert far.caption().startswith("distance to the minimum (a model outside of the range): ")
    inside = basin_of(plane_of((0.0, 0.0), RING))
    assert inside is not None
    assert inside.outside == ()
    on_corner = basin_of(plane_of((0.0, 0.0), [(3.0, 2.0), (-3.0, 2.0), (0.0, -2.0)]))
    assert on_corner is not None
    assert on_corner.outside == ()


def test_points_that_are_not_finite_are_passed_over() -> None:
    plane = plane_of((0.25, -0.1), RING)
    plane.loss[:5] = np.nan  # up to the row below the minimum's
    found = basin_of(plane)
    assert found is not None
    row, column = np.unravel_index(int(np.nanargmin(plane.loss)), plane.loss.shape)
    assert (found.a, found.b) == (plane.a[column], plane.b[row]), "no parabola through points that are not there"
    plane.loss[:] = np.inf
    assert basin_of(plane) is None


@given(
    width=st.floats(0.05, 3), x=st.floats(-1, 1), y=st.floats(-1, 1), height=st.floats(0.5, 50), grid=st.integers(3, 21)
)
def test_no_minimum_is_below_zero_below_the_mean_or_above_the_grid(
    width: float, x: float, y: float, height: float, grid: int
) -> None:
    """A narrow well in a plateau, as on coarse grids, where a parabola through nine points tells nothing."""
    a = np.linspace(-3, 3, grid)

    def well(p: Any, q: Any) -> Any:
        return height * (1 - np.exp(-((p - x) ** 2 + (q - y) ** 2) / width))

    plane = plane_of((x, y), RING)
    models = tuple(replace(model, loss=float(well(model.a, model.b))) for model in plane.models)
    found = basin_of(replace(plane, a=a, b=a, loss=well(a[None, :], a[:, None]), models=models))
    assert found is not None
    assert found.loss >= 0
    assert found.mean.excess_loss >= 0
    assert all(model.excess_loss >= 0 for model in found.anchors), "they are points of the plane"
    assert found.loss <= well(a[None, :], a[:, None]).min() + 1e-12 * height


def test_a_parabola_that_misses_the_points_is_not_taken() -> None:
    """One low point among eight of 10: least squares put 10 - 9 * 5/9 = 5 in its place, not 1."""
    plane = plane_of((0.25, -0.1), RING, least=200.0)
    plane.loss[:], plane.loss[5, 7] = 10.0, 1.0
    found = basin_of(plane)
    assert found is not None
    assert (found.a, found.b, found.loss) == (plane.a[7], plane.b[5], 1.0)
    # a vertex far below, of a steep side that the parabola tells; what is about the point it does not
    plane.loss[:], plane.loss[4:7, 6:9] = 150.0, [[103, 102, 141], [102, 100, 140], [103, 102, 141]]
    found = basin_of(plane)
    assert found is not None
    assert (found.a, found.b, found.loss) == (plane.a[7], plane.b[5], 100.0)


def test_a_parabola_below_zero_is_not_taken_where_no_loss_is() -> None:
    """Its nine points lie on it, all above 0, and its vertex between them below."""
    plane = plane_of((0.25, -0.1), RING, (2.0, 2.0, 0.0), least=-0.01)
    assert plane.loss.min() > 0
    found = basin_of(replace(plane, models=tuple(replace(model, loss=5.0) for model in plane.models)))
    assert found is not None
    assert found.loss == plane.loss.min()
    below = basin_of(plane_of((0.25, -0.1), RING, least=-1.0))  # another program's loss may be
    assert below is not None
    assert below.loss == pytest.approx(-1.0)


def test_a_minimum_of_zero_is_not_rounded_below_it() -> None:
    for x in np.linspace(-1, 1, 9):
        found = basin_of(plane_of((float(x), 0.47), RING, least=0.0))
        assert found is not None
        assert 0 <= found.loss < 1e-12
        assert (found.a, found.b) == pytest.approx((x, 0.47), abs=1e-9)


SURFACES: dict[str, Callable[[Any, Any], Any]] = {
    # smooth, not quadratic, least at (0, 0), where they are 0
    "exponential": lambda u, v: np.exp(u) - u + np.cosh(v) - 2,
    "a well": lambda u, v: 1 - np.exp(-(u * u + v * v) / 2),
    "steep walls": lambda u, v: np.log(np.cosh(u)) + np.exp(v) - v - 1,
    "hyperboloid": lambda u, v: np.sqrt(1 + u * u + v * v) - 1,
    "a bent valley": lambda u, v: (v - u * u / 2) ** 2 + u * u / 4,
}


@given(
    surface=st.sampled_from(sorted(SURFACES)),
    grid=st.sampled_from([5, 9, 11, 15, 21, 51]),
    steep=st.floats(0.3, 6),
    narrow=st.floats(0.3, 1),
    angle=st.floats(0, 3.1),
    x=st.floats(-1, 1),
    y=st.floats(-1, 1),
    least=st.floats(0, 2),
)
@example("exponential", 5, 3.0, 1.0, 0.0, 0.55, 0.0, 0.2)  # along its axes three points a way lie on any parabola
@example("exponential", 9, 5.0, 0.5, 0.7, 0.3, 0.2, 0.2)
def test_what_a_parabola_claims_is_so_at_the_place(
    surface: str, grid: int, steep: float, narrow: float, angle: float, x: float, y: float, least: float
) -> None:
    """The loss there, and the place: closed forms, from coarse grids to fine ones. Elsewhere the claim is a point."""

    def loss(a: Any, b: Any) -> Any:
        p, q, c, s = a - x, b - y, np.cos(angle), np.sin(angle)
        return least + SURFACES[surface](steep * (c * p + s * q), steep * narrow * (c * q - s * p))

    a = np.linspace(-2, 2, grid)
    models = tuple(replace(model, loss=100.0) for model in plane_of((0, 0), RING).models)
    plane = replace(plane_of((0, 0), RING), a=a, b=a, loss=loss(a[None, :], a[:, None]), models=models)
    found = basin_of(plane)
    assert found is not None
    if found.step:
        assert found.loss == plane.loss.min()
        return
    added = plane.loss.min() - found.loss
    assert -2 * added - 1e-9 < loss(found.a, found.b) - found.loss < added + 1e-9
    assert np.hypot(found.a - x, found.b - y) < 0.25 * (a[1] - a[0]) + 1e-4


def test_a_parabola_that_points_farther_away_deny_is_not_taken() -> None:
    """Along its axes a surface passes through three points of any parabola: e^a - a and e^b - b in steps of 2."""
    ends = np.linspace(-3.5, 4.5, 5)
    own = np.exp(ends) - ends
    plane = replace(plane_of((0.25, -0.1), RING), a=ends, b=ends, loss=own[:, None] + own[None, :])
    plane = replace(plane, models=tuple(replace(model, loss=1000.0) for model in plane.models))
    found = basin_of(plane)
    assert found is not None
    assert (found.a, found.b, found.loss) == (0.5, 0.5, plane.loss.min())
    assert found.step == 2.0
    # with the three points a way alone nothing can be said
    three = replace(plane, a=ends[1:4], b=ends[1:4], loss=plane.loss[1:4, 1:4])
    found = basin_of(three)
    assert found is not None
    assert found.step == 2.0
    # nor where those farther away are not finite
    plane.loss[[0, 4]] = np.nan
    found = basin_of(plane)
    assert found is not None
    assert found.step == 2.0


def test_no_parabola_is_laid_through_interpolated_points() -> None:
    plane = plane_of((0.25, -0.1), RING)
    computed = np.ones(plane.loss.shape, dtype=bool)
    computed[0, 0] = False
    taken = basin_of(replace(plane, computed=computed))
    assert taken is not None
    assert taken.step == 0
    row, column = np.unravel_index(int(np.argmin(plane.loss)), plane.loss.shape)
    computed[row + 1, column] = False
    found = basin_of(replace(plane, computed=computed))
    assert found is not None
    assert (found.a, found.b, found.step) == (plane.a[column], plane.b[row], 0.5)


@pytest.mark.parametrize("policy", ["none", "interpolate", "keep", "re-estimate"])
def test_a_model_on_the_plane_below_the_surface_is_the_minimum(policy: str) -> None:
    """The mean always; three anchors, whose statistics are the surface's; never a round's clients."""
    plane = replace(plane_of((0.25, -0.1), RING), normalization_policy=policy)

    def lowered(index: int, **changes: Any) -> Basin:
        models = tuple(replace(m, loss=0.1) if i == index else m for i, m in enumerate(plane.models))
        found = basin_of(replace(plane, models=models, **changes))
        assert found is not None
        return found

    mean = lowered(3)
    assert (mean.loss, mean.mean.distance, mean.deviation) == (0.1, 0.0, 0.0)
    anchor = lowered(1)
    assert (anchor.a, anchor.b, anchor.loss) == pytest.approx((*RING[1], 0.1))
    assert lowered(1, attrs={"kind": "clients"}).loss == pytest.approx(0.3), "beside the plane"
    outside = lowered(3, a=plane.a + 5)
    assert outside.on_edge
    assert outside.loss == 0.1


def test_the_table_has_a_row_for_the_minimum_and_one_a_model(tmp_path: Path) -> None:
    found = basin_of(plane_of((0.25, -0.1), RING))
    assert isinstance(found, Basin)
    found.save(tmp_path / "x.basin.csv")
    with (tmp_path / "x.basin.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["minimum", "m0", "m1", "m2", "m3"]
    assert float(rows[0]["a"]) == pytest.approx(0.25, abs=1e-9)
    assert rows[0]["angle"] == ""
    assert float(rows[4]["distance"]) == found.mean.distance


def coarse(points: int) -> Plane:
    """A plane of a loss with a sharp minimum at (0.1, 0), which no parabola tells; its mean is at (0, 0)."""

    def loss(x: Any, y: Any) -> Any:
        return np.sqrt(np.hypot(x - 0.1, y))

    ends = np.linspace(-2, 2, points)
    corners = [(2.0, 0.0), (-1.0, 1.5), (-1.0, -1.5)]
    models = [
        PlaneModel(f"m{k}", x, y, 0.0, float(loss(x, y)), 0.1, np.nan, np.nan, "mean" if k == 3 else "anchor")
        for k, (x, y) in enumerate([*corners, (0.0, 0.0)])
    ]
    return Plane(ends, ends, loss(*np.meshgrid(ends, ends)), np.zeros((points, points)), tuple(models), 0.0, "none", {})


def test_a_distance_below_the_grids_step_is_said_to_be_that() -> None:
    found = basin_of(coarse(5))
    assert found is not None
    assert (found.mean.distance, found.step) == (0.0, 1.0)
    assert found.sentence().startswith("the mean is less than the grid's step, 1, from the minimum of the plane (loss")
    assert found.caption() == (
        "distance to the minimum: the mean less than the grid's step, 1; the three 1.9 on average, all around it"
    )
    fine = basin_of(coarse(81))
    assert fine is not None
    assert fine.step == pytest.approx(0.05)
    assert fine.sentence().startswith("the mean is 0.1 from the minimum"), "two steps"
    findings = coarse(5).findings()["basin"]
    assert (findings["deviation"], findings["step"]) == (0.0, 1.0)


def test_a_parabola_tells_more_than_the_grids_step() -> None:
    found = basin_of(plane_of((0.05, 0.02), RING))
    assert found is not None
    assert found.step == 0.0
    assert "grid's step" not in found.sentence()
