"""Refined surfaces: exact where they must be, within their budget, and honest about the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import LinearNDInterpolator, RBFInterpolator

from fedscope.checkpoints import FedscopeError
from fedscope.landscape import Plane
from fedscope.landscape.planes.drawing.color_scales import scale_of
from fedscope.landscape.planes.point_counts import budget
from fedscope.landscape.planes.surface import adaptive
from fedscope.landscape.planes.surface.adaptive import Measure, Refined, refine
from fedscope.plotting.levels import depth

Surface = Callable[[np.ndarray, np.ndarray], np.ndarray]


def axes(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates a and b of all points from -1 to 1, [b, a]."""
    b, a = np.meshgrid(*(np.linspace(-1, 1, count) for count in shape), indexing="ij")
    return a, b


def recorded(loss: np.ndarray, error: np.ndarray) -> tuple[Measure, list[list[int]]]:
    """A surface to measure, and the list of what is asked of it."""
    calls: list[list[int]] = []

    def measure(points: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        calls.append(list(points))
        return loss.ravel()[list(points)], error.ravel()[list(points)]

    return measure, calls


def refined(loss: np.ndarray, error: np.ndarray | None = None, **more: float) -> tuple[Refined, list[list[int]]]:
    measure, calls = recorded(loss, np.zeros_like(loss) if error is None else error)
    return refine((loss.shape[0], loss.shape[1]), measure, **more), calls  # type: ignore[arg-type]


def joined(calls: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(calls))


def valley(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 0.1 + (b - a**2) ** 2 + 0.1 * a**2


def ripples(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 2 + np.sin(3 * a + b) * np.cos(2 * b)


def steep(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(2 * a**2 + b**2 + a * b)


def test_the_square_of_a_parabola_and_a_tilted_error_are_exact() -> None:
    # sqrt(loss) is in the span of the interpolant's polynomials, the error is linear
    a, b = axes((51, 51))
    loss, error = (0.7 + a**2 - 0.3 * a * b + 0.5 * b**2 + 0.2 * b) ** 2, 0.5 + 0.2 * a - 0.1 * b
    found, calls = refined(loss, error)
    np.testing.assert_allclose(found.loss, loss, rtol=1e-8)
    np.testing.assert_allclose(found.error, error, atol=1e-12)
    assert max(found.loss_error, found.loss_relative, found.error_error, found.error_rms) < 1e-7
    # the lattice, the held-out points and one step
    assert len(calls) == 2
    assert found.computed.sum() == sum(map(len, calls)) == 49 + found.held_out
    assert found.unknown == 0


def test_losses_below_zero_are_interpolated_themselves() -> None:
    a, b = axes((40, 40))
    loss = a**2 - 0.3 * a * b + 0.5 * b**2 - 0.2
    np.testing.assert_allclose(refined(loss)[0].loss, loss, atol=1e-9)


@pytest.mark.parametrize("surface", [valley, ripples, steep])
@pytest.mark.parametrize("shape", [(51, 51), (31, 90), (400, 7)])
def test_smooth_surfaces_are_good_everywhere(surface: Surface, shape: tuple[int, int]) -> None:
    loss = surface(*axes(shape))
    found, _ = refined(loss)
    assert found.loss_error <= 0.0025
    # half the tolerance at the held-out points leaves room for the points between them
    assert np.abs(found.loss - loss).max() <= 0.005 * np.ptp(loss)
    assert found.computed.mean() < 0.15


def test_a_finer_tolerance_takes_more_points_and_gets_them_right() -> None:
    loss = steep(*axes((51, 51)))
    (coarse, _), (fine, _) = refined(loss, tolerance=0.05), refined(loss, tolerance=0.001)
    assert coarse.computed.sum() < fine.computed.sum() <= 390
    assert np.abs(fine.loss - loss).max() < 0.001 * np.ptp(loss) < np.abs(coarse.loss - loss).max()


def round_one(power: float, valley: float) -> np.ndarray:
    """As on the plane of a first round: the loss from 2.7 to 18,428, which grows with a power of the distance."""
    a, b = axes((51, 51))
    x, y = a + 0.1, b - 0.05
    distance = x**2 + 1.7 * y**2 + 0.3 * x * y
    rise = distance**power + valley * (x**2 + y**2)
    return 2.7 + (18428 - 2.7) * (rise - rise.min()) / np.ptp(rise)


@pytest.mark.parametrize(("power", "valley"), [(2.0, 0.0), (2.5, 0.0), (2.0, 0.02)])
def test_a_loss_over_four_decades_is_right_near_its_minimum_and_as_drawn(
    power: float, valley: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the range as the only measure, 0.5 % of it are 92 nats, 34 times the least loss."""
    loss = round_one(power, valley)
    low = loss <= np.quantile(loss, 0.1)
    edges = scale_of([Plane(np.arange(51), np.arange(51), loss, loss, (), 0.0, "none", {})], "loss").edges

    def worst(found: Refined) -> tuple[float, float]:
        """Of all points: relative error over the lowest tenth, bands of the figure's own colour scale."""
        relative = np.abs(found.loss - loss)[low] / loss[low]
        drawn = [depth(np.clip(values, edges[0], edges[-1]), edges) for values in (found.loss, loss)]
        return float(relative.max()), float(np.abs(drawn[0] - drawn[1]).max())

    found, _ = refined(loss)
    relative, bands = worst(found)
    assert relative <= 0.02
    assert bands <= 0.25
    assert found.beyond <= 0.5
    assert max(found.loss_low / 0.02, found.loss_bands / 0.25, found.loss_error / 0.005) <= found.beyond * 1.5
    assert found.computed.mean() <= 0.15
    monkeypatch.setattr(adaptive, "BANDS", np.inf)
    monkeypatch.setattr(adaptive, "ITSELF", np.inf)
    by_range, _ = refined(loss)
    assert by_range.loss_error <= 0.0025
    assert worst(by_range)[0] > 0.02, "a surface on which it makes no difference proves nothing"


def test_points_go_where_the_surface_is_hard_to_tell() -> None:
    a, b = axes((51, 51))
    loss = 1 + 0.2 * a + np.maximum(0, 2 * b + 0.3 * a - 0.7)  # a kink
    _, calls = refined(loss)
    late = np.array(joined(calls[1:]))
    distance = np.abs(2 * b + 0.3 * a - 0.7).ravel()
    # points spread evenly would have the median of all
    assert np.median(distance[late]) < 0.5 * np.median(distance)


def test_what_is_reported_is_what_held_out_points_say() -> None:
    a, b = axes((51, 51))
    loss = 1 + a**2 + 4 * (a + 0.4 * b > 0.13)  # no smooth surface has a cliff
    error = np.round(20 * (0.5 + 0.3 * np.sin(4 * a * b))) / 20
    found, calls = refined(loss, error)
    asked = joined(calls)
    assert found.computed.sum() == len(asked) == 390
    # in the order of the grid, because Qhull may cut a square along either diagonal
    fitted, held = sorted(calls[0][:49] + joined(calls[1:-1])), calls[0][49:] + calls[-1]
    at = np.stack([axis.ravel() for axis in np.meshgrid(*2 * [np.linspace(0, 1, 51)], indexing="ij")], axis=-1)
    again = RBFInterpolator(at[fitted], np.sqrt(loss.flat[fitted]), kernel="quintic")(at) ** 2
    linear = LinearNDInterpolator(at[fitted], error.flat[fitted])(at)
    rest = ~found.computed.ravel()
    np.testing.assert_allclose(found.loss.ravel()[rest], again[rest], rtol=1e-6)
    np.testing.assert_allclose(found.error.ravel()[rest], linear[rest], atol=1e-9)
    off, misses = np.abs(again - loss.ravel())[held], np.abs(linear - error.ravel())[held]
    assert found.held_out == len(held) == len(set(held) - set(fitted))
    assert found.loss_error == pytest.approx(off.max() / np.ptp(loss.flat[asked]), rel=1e-6)
    assert found.loss_relative == pytest.approx((off / loss.flat[held]).max(), rel=1e-6)
    assert found.error_error == pytest.approx(misses.max(), abs=1e-9)
    assert found.error_rms == pytest.approx(np.sqrt((misses**2).mean()), abs=1e-9)
    assert found.loss_error > 0.1
    assert found.unknown == 0


@pytest.mark.parametrize("which", [3, 60])
def test_a_spike_is_either_in_the_surface_or_in_the_report(which: int) -> None:
    loss = valley(*axes((51, 51)))
    at = refined(loss)[1][0][which]  # a lattice point, a held-out one
    loss.flat[at] += 20
    found, calls = refined(loss)
    assert found.loss.flat[at] == loss.flat[at]
    if which < 49:
        # fitted, so that it is in the surface, and points gather about it
        (row, column), (rows, columns) = divmod(at, 51), np.divmod(np.array(calls[4]), 51)
        assert np.median(np.hypot(rows - row, columns - column)) < 10
        # no smooth surface has a spike: between the points round it, it is more than half the tolerance off
        assert np.abs(found.loss - loss).max() < 0.01 * np.ptp(loss)
    else:
        assert found.loss_error > 0.5
        assert found.computed.sum() == 390


def test_held_out_points_are_spread_over_the_surface_and_seeded() -> None:
    loss = valley(*axes((51, 51)))
    first, again, other = (refined(loss, seed=seed)[1][0] for seed in (0, 0, 1))
    assert first == again != other
    assert first[:49] == other[:49]
    held = np.array(first[49:])
    assert len(set(held) - set(first[:49])) == len(held) >= 40
    ninth = held // 51 // 17 * 3 + held % 51 // 17
    assert (np.bincount(ninth, minlength=9) >= 2).all()


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(2, 45), st.integers(2, 45)),
    share=st.floats(0.01, 1),
    seed=st.integers(0, 3),
    broken=st.sampled_from([0.0, 0.0, 0.01, 0.5, 1.0]),
)
def test_the_budget_holds_and_measured_values_are_kept(
    shape: tuple[int, int], share: float, seed: int, broken: float
) -> None:
    draw = np.random.default_rng(seed)
    loss, error = draw.exponential(size=shape), draw.random(shape)
    loss[draw.random(shape) < broken] = draw.choice([np.nan, np.inf, -np.inf])
    found, calls = refined(loss, error, share=share, seed=seed)
    asked = joined(calls)
    # noise cannot be interpolated: all that may be spent is spent, on no point twice
    assert len(asked) == len(set(asked)) == budget(shape, share)
    assert sorted(asked) == np.flatnonzero(found.computed).tolist()
    np.testing.assert_array_equal(found.loss[found.computed], loss[found.computed])
    np.testing.assert_array_equal(found.error[found.computed], error[found.computed])
    rest = ~found.computed
    assert np.isnan(found.loss[rest]).sum() == np.isnan(found.error[rest]).sum() == found.unknown
    if np.isfinite(loss).all():
        assert found.unknown == 0


def test_where_nothing_is_saved_everything_is_computed() -> None:
    for shape in [(2, 2), (5, 5), (6, 400), (400, 6), (16, 16)]:
        loss = np.random.default_rng(0).random(shape)
        found, calls = refined(loss)
        assert calls == [list(range(loss.size))]
        np.testing.assert_array_equal(found.loss, loss)
        assert found.computed.all()
        assert (found.held_out, found.loss_error, found.error_error, found.unknown) == (0, 0, 0, 0)
    assert budget((17, 17)) == 43
    assert budget((400, 7)) == 420
    assert budget((10, 10), 0.57) == 57  # 0.57 * 100 is 56.99...


def test_an_interrupted_refinement_goes_on_from_its_store() -> None:
    loss, error = steep(*axes((51, 51))), valley(*axes((51, 51)))
    measure, calls = recorded(loss, error)
    whole = refine((51, 51), measure, tolerance=0.0005)
    assert len(calls) > 3
    store: dict[int, tuple[float, float]] = {}
    measured: list[int] = []

    def interrupted(stop: int) -> Measure:
        def through(points: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
            for i in points:
                if i not in store:
                    if len(measured) == stop:
                        raise KeyboardInterrupt
                    measured.append(i)
                    store[i] = float(loss.flat[i]), float(error.flat[i])
            values = np.array([store[i] for i in points])
            return values[:, 0], values[:, 1]

        return through

    for stop in (20, 110, 150):
        with pytest.raises(KeyboardInterrupt):
            refine((51, 51), interrupted(stop), tolerance=0.0005)
    again = refine((51, 51), interrupted(10**6), tolerance=0.0005)
    assert measured == joined(calls)
    for name in Refined.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nothing_is_interpolated_beside_what_is_not_finite(bad: float) -> None:
    a, b = axes((51, 51))
    broken = a + 0.6 * b > 0.5
    loss = np.where(broken, bad, valley(a, b))
    found, _ = refined(loss, tolerance=0.01)
    # the finite part is convex, so no triangle between finite points reaches out of it
    assert not np.isfinite(found.loss[broken]).any()
    np.testing.assert_array_equal(found.loss[found.computed], loss[found.computed])
    assert np.isnan(found.loss[~found.computed & broken]).all()
    sure = np.isfinite(found.loss)
    assert np.abs(found.loss[sure] - loss[sure]).max() < 0.01 * np.ptp(loss[~broken])
    assert found.loss_error <= 0.01
    # the border was looked for: without it, triangles as wide as an eighth of the plane would be left out
    assert (~sure & ~broken).mean() < 0.02
    assert found.unknown == (~found.computed & ~sure).sum() > 0
    assert np.isnan(found.error[~found.computed & ~sure]).all()


@pytest.mark.parametrize("share", [0.03, 0.05, 0.15])
def test_a_budget_too_small_for_the_border_leaves_it_out(share: float) -> None:
    a, b = axes((51, 51))
    broken = a**2 + b**2 > 0.9  # the finite part is convex again
    loss = np.where(broken, np.nan, valley(a, b))
    found, _ = refined(loss, share=share)
    assert found.computed.sum() == budget((51, 51), share)
    assert not np.isfinite(found.loss[broken]).any()
    assert found.unknown == np.isnan(found.loss[~found.computed]).sum() > 0


@pytest.mark.parametrize("which", [24, 60])
def test_a_hole_of_what_is_not_finite_is_computed_where_the_budget_allows(which: int) -> None:
    a, b = axes((51, 51))
    easy = (1 + a**2 + b**2) ** 2  # reached at once, were it not for the hole
    at = refined(easy)[1][0][which]  # a lattice point, a held-out one
    broken = (np.abs(a - a.flat[at]) < 0.1) & (np.abs(b - b.flat[at]) < 0.1)
    found, _ = refined(np.where(broken, np.nan, easy))
    assert found.computed[broken].all()
    assert found.unknown == 0
    assert found.computed.sum() < 390
    assert found.loss_error <= 0.0025


@pytest.mark.parametrize("columns", [[], [0], [25, 26], [0, 50]])
@pytest.mark.parametrize("rows", [[0, 50], [0, 25, 50], range(51)])
def test_too_few_finite_values_are_not_made_into_a_surface(rows: Sequence[int], columns: list[int]) -> None:
    loss = np.full((51, 51), np.nan)
    loss[np.ix_(rows, columns)] = 1.0
    found, _ = refined(loss)
    assert found.computed.sum() == 390
    assert not np.isfinite(found.loss[~np.isfinite(loss)]).any()
    np.testing.assert_array_equal(found.loss[found.computed], loss[found.computed])
    assert found.unknown == 51 * 51 - 390
    assert (found.held_out, found.loss_error) == (0, float("inf"))


def test_rounding_is_not_taken_for_a_surface() -> None:
    noise = 1e-9 * np.random.default_rng(0).random((51, 51))
    for loss in (np.full((51, 51), 2.3), np.zeros((51, 51)), 2.3 + noise):
        found, calls = refined(loss)
        assert len(calls) == 2
        assert found.loss_error < 0.0025
        np.testing.assert_allclose(found.loss, loss, rtol=1e-7)


def test_a_value_from_the_nearest_points_is_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = valley(*axes((101, 101)))
    monkeypatch.setattr(adaptive, "MANY", 60)
    monkeypatch.setattr(adaptive, "NEIGHBOURS", 40)
    found, _ = refined(loss, tolerance=0.002)
    assert np.abs(found.loss - loss).max() <= 0.002 * np.ptp(loss)


@pytest.mark.parametrize(
    ("share", "tolerance", "message"),
    [
        (0.0, 0.005, "a share of 0 of the points cannot be computed; give one above 0 and at most 1"),
        (1.5, 0.005, "a share of 1.5 "),
        (float("nan"), 0.005, "a share of nan "),
        (0.15, 0.0, r"no interpolation is within 0 of the range; give a tolerance above 0 \(0.005\)"),
        (0.15, float("nan"), "no interpolation is within nan"),
    ],
)
def test_a_share_and_a_tolerance_must_make_sense(share: float, tolerance: float, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        refined(np.zeros((30, 30)), share=share, tolerance=tolerance)
