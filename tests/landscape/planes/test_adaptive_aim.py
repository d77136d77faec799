"""Adaptive surfaces go on until their aim holds: from the usual number of points, from what a smaller budget measured,
at most to all points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.landscape.planes.point_counts import NEAR_MINIMUM, SurfaceBudget, budget
from fedscope.landscape.planes.surface.adaptive import Tolerances, refine
from fedscope.landscape.planes.surface.surfaces import (
    EarlierSurface,
    Surface,
    adaptive_surfaces,
    expected_visits,
)

SHAPE, SMALL = (31, 31), (25, 25)
FIRST = 4  # models come before the grid's points


class Visits:
    """Stands in for the evaluation of models: closed forms [S, N], and what was asked of them."""

    def __init__(self, *losses: np.ndarray) -> None:
        self.truth = np.stack([np.concatenate([np.ones(FIRST), loss.ravel()]) for loss in losses])
        self.loss, self.error = np.full_like(self.truth, np.nan), np.full_like(self.truth, np.nan)
        self.asked: list[int] = []
        self.expected = 0.0

    def measure(self, order: Sequence[int], *_: Any) -> None:
        new = [i for i in order if i not in set(self.asked)]
        self.asked += new
        self.loss[:, new], self.error[:, new] = self.truth[:, new], self.truth[:, new] / 10

    def expect(self, more: float) -> None:
        self.expected += more

    @property
    def points(self) -> list[int]:
        return [i - FIRST for i in self.asked if i >= FIRST]


def places(shape: tuple[int, int] = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    b, a = np.meshgrid(*(np.linspace(-1, 1, count) for count in shape), indexing="ij")
    return a, b


def valley(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 0.1 + (b - a**2) ** 2 + 0.1 * a**2


def ripples(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 2 + np.sin(3 * a + b) * np.cos(2 * b)


def steep(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(2 * a**2 + b**2 + a * b)


def ravine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A bent trench, a few points wide, which 15 % do not tell, in a gentle bowl."""
    return 1.2 + 0.3 * (a**2 + b**2) - np.exp(-(((b - 0.4 * np.sin(3 * a)) / 0.25) ** 2))


def noise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).exponential(size=a.shape)


def surface(visits: Visits, share: float, earlier: Sequence[EarlierSurface] = (), shape: Any = SHAPE) -> Surface:
    return adaptive_surfaces(visits, FIRST, SurfaceBudget(shape, share), lambda: None, None, earlier)[0]  # type: ignore[arg-type]


def ended(loss: np.ndarray, share: float, shape: Any = SHAPE) -> EarlierSurface:
    """What a budget ended at."""
    found = surface(Visits(loss), share, shape=shape)
    assert found.computed is not None
    return EarlierSurface(found.loss, found.error, found.computed, found.about, enough=False)


@pytest.mark.parametrize("form", [valley, ripples, steep])
def test_what_the_usual_points_tell_is_as_within_their_budget(form: Callable[..., np.ndarray]) -> None:
    loss = form(*places((51, 51)))
    whole, within = Visits(loss), Visits(loss)
    free, limited = surface(whole, 1.0, shape=loss.shape), surface(within, 0.15, shape=loss.shape)
    assert free.about == limited.about
    assert free.loss.tobytes() == limited.loss.tobytes()
    assert free.error.tobytes() == limited.error.tobytes()
    assert whole.asked == within.asked
    assert len(whole.points) <= 0.15 * loss.size
    assert whole.expected == 0, "nothing more is expected than was said"


def test_a_ravine_that_the_usual_points_do_not_tell_is_gone_on_with_until_the_aim_holds() -> None:
    loss = ravine(*places())
    limited, free = surface(Visits(loss), 0.15), surface(visits := Visits(loss), 1.0)
    assert limited.about["held_out_beyond"] > 1, "a surface on which it makes no difference proves nothing"
    assert free.about["held_out_beyond"] <= 1
    assert free.about["points_unknown"] == 0
    assert free.computed is not None
    assert limited.computed is not None
    assert 0.15 < free.computed.mean() < 0.6
    assert free.computed[limited.computed].all()
    assert len(visits.points) == len(set(visits.points)) == free.computed.sum()
    np.testing.assert_array_equal(free.loss[free.computed], loss[free.computed])
    allowed = Tolerances.of(loss.ravel(), 0.005).at(loss)
    off, off_before = (np.abs(found.loss - loss) / allowed for found in (free, limited))
    # held-out points tell the greatest error within a small factor; most are far below
    assert off.max() < 4
    assert np.mean(off > 1) < 0.01 < np.mean(off_before > 1)
    assert off_before.max() > 10


def test_noise_is_measured_whole_and_is_off_by_nothing() -> None:
    loss = noise(*places((19, 25)))
    found = surface(visits := Visits(loss), 1.0, shape=loss.shape)
    assert found.computed is not None
    assert found.computed.all()
    np.testing.assert_array_equal(found.loss, loss)
    assert sorted(visits.points) == list(range(loss.size))
    assert found.about["points_computed"] == loss.size
    assert {value for key, value in found.about.items() if key != "points_computed"} == {0}


def test_what_is_not_finite_is_measured_until_nothing_is_unknown() -> None:
    a, b = places()
    loss = np.where(a + 0.3 * b > 0.6, np.nan, (1 + a**2 + b**2) ** 2)  # easy, were it not for the end
    assert surface(Visits(loss), 0.15).about["points_unknown"] > 0
    found = surface(Visits(loss), 1.0)
    assert found.about["points_unknown"] == 0
    assert found.computed is not None
    assert found.computed[np.isnan(loss)].all()
    assert not found.computed.all()
    np.testing.assert_array_equal(np.isnan(found.loss), np.isnan(loss))


def test_a_surface_that_a_budget_ended_goes_on_where_it_was() -> None:
    loss = ravine(*places())
    whole, earlier = surface(Visits(loss), 1.0), ended(loss, 0.15)
    found = surface(visits := Visits(loss), 1.0, [earlier])
    assert found.about["held_out_beyond"] <= 1
    assert found.about["points_taken_over"] == earlier.computed.sum()
    assert found.computed is not None
    assert whole.computed is not None
    # that it had measured the points round the minimum already is the only difference
    assert found.computed.sum() < 1.25 * whole.computed.sum()
    np.testing.assert_array_equal(found.loss[found.computed], loss[found.computed])
    assert not set(visits.points) & set(np.flatnonzero(earlier.computed)), "no point is measured twice"
    assert len(visits.points) == found.computed.sum() - earlier.computed.sum()


@pytest.mark.parametrize("stop", [100, 200, 300])
def test_an_interrupted_surface_chooses_the_same_points_whatever_else_is_in_its_store(stop: int) -> None:
    loss = ravine(*places())
    whole = surface(visits := Visits(loss), 1.0)
    again = Visits(loss)
    again.measure([*visits.asked[:stop], *range(FIRST + 40, FIRST + 60)])
    found = surface(again, 1.0)
    assert found.about == whole.about
    assert found.loss.tobytes() == whole.loss.tobytes()
    np.testing.assert_array_equal(found.computed, whole.computed)


@pytest.mark.parametrize(("before", "then"), [(0.05, 1.0), (0.06, 0.08), (0.1, 0.2), (0.25, 0.3), (0.15, 0.18)])
def test_every_budget_is_gone_on_from_and_holds(before: float, then: float) -> None:
    loss = ravine(*places())
    earlier = ended(loss, before)
    assert earlier.computed.sum() <= before * loss.size
    # what was interpolated is of no use
    spoilt = replace(earlier, loss=np.where(earlier.computed, earlier.loss, -1e9))
    found = surface(visits := Visits(loss), then, [spoilt])
    assert found.computed is not None
    assert found.computed[earlier.computed].all()
    assert not set(visits.points) & set(np.flatnonzero(earlier.computed))
    assert found.computed.sum() == earlier.computed.sum() + len(visits.points) <= then * loss.size
    assert found.computed.sum() > earlier.computed.sum()
    assert found.about["held_out_beyond"] <= 1 or then < 1
    np.testing.assert_array_equal(found.loss[found.computed], loss[found.computed])


def test_of_two_data_sets_only_the_one_that_needs_it_goes_on() -> None:
    loss, other = ravine(*places()), ripples(*places())
    earlier = [ended(loss, 0.15), replace(ended(other, 0.15), enough=True)]
    visits = Visits(loss, other)
    first, second = adaptive_surfaces(visits, FIRST, SurfaceBudget(SHAPE, 1.0), lambda: None, None, earlier)  # type: ignore[arg-type]
    assert first.about["held_out_beyond"] <= 1
    assert second.about == earlier[1].about
    assert second.loss is earlier[1].loss
    assert first.computed is not None
    assert len(visits.points) == first.computed.sum() - earlier[0].computed.sum()


def test_steps_and_held_out_points_do_not_grow_with_the_budget() -> None:
    """Twice the least step at most, and the points held out from the start stay those of the usual budget."""
    plan = SurfaceBudget(SMALL, 1.0)
    loss, sized = noise(*places(SMALL)), plan.without_spared(plan.usual)
    known = refine(SMALL, lambda p: (loss.flat[p], loss.flat[p]), share=sized / loss.size).computed
    calls: list[list[int]] = []

    def measure(points: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        calls.append(list(points))
        return loss.flat[points], loss.flat[points]

    refine(SMALL, measure, share=1.0, known=known, sized=sized)
    assert calls[0] == np.flatnonzero(known).tolist()
    assert calls[1] == [], "lattice and held-out points are those of before"
    steps = [len(call) for call in calls[2:]]
    assert max(steps[:-1]) == 2 * (sized // 10)
    assert sum(steps) == loss.size - sized


@settings(max_examples=15, deadline=None)
@given(
    shape=st.tuples(st.integers(7, 33), st.integers(7, 33)),
    share=st.floats(0.02, 1),
    part=st.floats(0, 0.5),
    seed=st.integers(0, 3),
    broken=st.sampled_from([0.0, 0.02, 1.0]),
)
def test_known_points_of_any_kind_are_kept_and_count(
    shape: tuple[int, int], share: float, part: float, seed: int, broken: float
) -> None:
    draw = np.random.default_rng(seed)
    loss, known = draw.exponential(size=shape), draw.random(shape) < part
    loss[draw.random(shape) < broken] = np.inf
    asked: list[int] = []

    def measure(points: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        asked.extend(points)
        return loss.flat[points], np.zeros(len(points))

    found = refine(shape, measure, share=share, known=known, seed=seed)
    assert len(asked) == len(set(asked))
    assert sorted(asked) == np.flatnonzero(found.computed).tolist()
    assert found.computed[known].all()
    # noise cannot be told: all that may be spent is spent
    assert found.computed.sum() == max(budget(shape, share), int(known.sum()))
    np.testing.assert_array_equal(found.loss[found.computed], loss[found.computed])
    if found.computed.all():
        assert (found.beyond, found.held_out, found.unknown) == (0, 0, 0)


def test_what_is_expected_doubles_when_it_is_spent_and_never_passes_what_may_be() -> None:
    loss = noise(*places(SMALL))
    plan = SurfaceBudget(SMALL, 1.0)
    assert expected_visits(plan, 1, fewer=False) == 93
    assert expected_visits(SurfaceBudget(SMALL, 0.08), 1, fewer=False) == 50
    assert expected_visits(plan, 9, fewer=False) == loss.size
    told: list[tuple[int, float]] = []

    class Watched(Visits):
        def measure(self, order: Sequence[int], *more: Any) -> None:
            super().measure(order, *more)
            told.append((len(self.points), 93 + self.expected))

    surface(Watched(loss), 1.0, shape=SMALL)
    assert sorted({of for _, of in told}) == [93, 186, 372, 625]
    assert all(done <= of + NEAR_MINIMUM for done, of in told)
    earlier = ended(loss, 0.15, SMALL)
    assert expected_visits(plan, 1, [earlier], fewer=False) == earlier.computed.sum()
    assert expected_visits(plan, 1, [replace(earlier, enough=True)], fewer=False) == 0
    assert expected_visits(SurfaceBudget(SMALL, 0.2), 1, [earlier], fewer=False) == 125 - earlier.computed.sum()
