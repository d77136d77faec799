"""The rules of the papers' claims: five outcomes as functions of numbers, and what becomes of numbers of finished
units."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paper_script import PAPERS, imported

pytestmark = pytest.mark.same_elsewhere

#: of the pages
NAMED = ("ima", "wima", "fedsa", "fedswa")


@pytest.fixture(scope="module")
def made() -> Iterator[SimpleNamespace]:
    """The modules of the script."""
    with imported() as modules:
        yield modules


def numbers(made: SimpleNamespace, *values: tuple[float, ...]) -> list[Any]:
    return [made.verdicts.Number(str(i), *one) for i, one in enumerate(values)]


YES, NO, OPEN = (2.0, 1.0, 3.0), (-2.0, -3.0, -1.0), (1.0, -1.0, 3.0)


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        ((YES,), "reproduced"),
        ((YES, YES), "reproduced"),
        ((NO,), "contradicted"),
        ((NO, OPEN), "contradicted"),
        ((YES, NO), "mixed"),
        ((YES, NO, OPEN), "mixed"),
        ((OPEN,), "undecided"),
        ((YES, OPEN), "undecided"),
        ((), "not tested at this size"),
        # on the bound is not apart from it
        (((1.0, 0.0, 2.0),), "undecided"),
        (((-1.0, -2.0, 0.0),), "undecided"),
        # no interval decides nothing
        (((5.0, math.nan, math.nan),), "undecided"),
    ],
)
def test_a_claim_of_all_is_what_each_interval_says(made: SimpleNamespace, of: tuple[Any, ...], kind: str) -> None:
    assert made.outcomes.above("c", "r", numbers(made, *of)).kind == kind


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        ((0.8, 0.76, 0.84), "reproduced"),
        ((0.8, 0.74, 0.84), "undecided"),
        ((0.9, 0.86, 0.94), "contradicted"),
        ((0.7, 0.66, 0.74), "contradicted"),
        ((0.8, 0.5, 1.0), "undecided"),
    ],
)
def test_a_claim_of_near_is_between_two_bounds(made: SimpleNamespace, one: tuple[float, ...], kind: str) -> None:
    assert made.outcomes.inside("c", "r", numbers(made, one), 0.75, 0.85).kind == kind


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        ((0.01, -0.026, 0.046), "reproduced"),
        ((-0.05, -0.07, -0.031), "contradicted"),
        ((-0.03, -0.05, 0.0), "undecided"),
    ],
)
def test_at_least_as_good_need_not_be_better(made: SimpleNamespace, one: tuple[float, ...], kind: str) -> None:
    assert made.outcomes.at_least("c", "r", numbers(made, one), 0.03).kind == kind


@pytest.mark.parametrize(
    ("effect", "parts", "kind"),
    [
        (YES, (YES, OPEN, OPEN), "reproduced"),
        (YES, (OPEN, OPEN), "reproduced"),  # what no part shows alone, all of them do
        (YES, (YES, NO), "mixed"),
        (NO, (NO, OPEN), "contradicted"),
        (NO, (NO, YES), "mixed"),
        (OPEN, (YES, OPEN), "undecided"),
        (OPEN, (YES, NO), "mixed"),
        (OPEN, (NO, OPEN), "undecided"),
    ],
)
def test_a_claim_in_general_is_the_pooled_effects(
    made: SimpleNamespace, effect: tuple[float, ...], parts: tuple[Any, ...], kind: str
) -> None:
    found = made.outcomes.in_general("c", "r", numbers(made, effect)[0], numbers(made, *parts))
    assert found.kind == kind
    assert len(found.numbers) == 1 + len(parts)


@pytest.mark.parametrize(
    ("effects", "parts", "kind"),
    [
        ((YES, YES), (YES, OPEN, OPEN, YES), "reproduced"),
        ((YES, YES), (YES, NO), "mixed"),
        ((YES, NO), (OPEN, OPEN), "mixed"),
        ((NO, OPEN), (NO, OPEN), "contradicted"),
        ((NO, OPEN), (YES, OPEN), "mixed"),
        ((YES, OPEN), (YES, OPEN), "undecided"),
        ((YES, OPEN), (YES, NO), "mixed"),
        ((OPEN, OPEN), (NO, OPEN), "undecided"),
    ],
)
def test_a_claim_of_several_pooled_effects_needs_all_of_them(
    made: SimpleNamespace, effects: tuple[Any, ...], parts: tuple[Any, ...], kind: str
) -> None:
    found = made.outcomes.in_each("c", "r", numbers(made, *effects), numbers(made, *parts))
    assert (found.kind, found.effects, len(found.numbers)) == (kind, len(effects), len(effects) + len(parts))


@pytest.mark.parametrize("count", [1, 2, 16])
def test_sides_are_those_of_holm_and_chance_alone_turns_few(made: SimpleNamespace, count: int) -> None:
    """Against Holm's procedure on scipy's p-values; without an effect 5 % of 1,000 worlds at most, ± 1.4 %."""
    import numpy as np
    from scipy.stats import ttest_1samp

    draws = np.random.default_rng(count).standard_t(4, (1000, count, 3))
    turned = 0
    for world in draws:
        found = made.outcomes.sides_of(
            [made.outcomes.over_seeds("x", dict(enumerate(own))) for own in world], 0, math.inf
        )
        chances = [ttest_1samp(own, 0.0).pvalue for own in world]
        expected = [0] * count
        for rank, i in enumerate(np.argsort(chances)):
            if chances[i] > 0.05 / (count - rank):
                break
            expected[i] = 1 if world[i].mean() > 0 else -1
        assert found == expected
        turned += any(found)
    assert turned / 1000 < 0.05 + 2 * 0.007


def test_of_two_bounds_a_number_must_be_apart_from_both(made: SimpleNamespace) -> None:
    """An interval of 0.02 on each side; 0.04 from one bound and 0.03 from the other: 3 × 1.96 / 2 deviations."""
    from scipy.stats import norm

    (one,) = numbers(made, (0.54, 0.52, 0.56))
    assert made.outcomes.chance(one, 0.50, 0.57) == pytest.approx(2 * norm.sf(1.5 * norm.ppf(0.975)))
    assert made.outcomes.chance(one, 0.60, 0.70) == pytest.approx(2 * norm.sf(3 * norm.ppf(0.975)))
    (sure,) = numbers(made, (0.5, 0.5, 0.5))
    assert made.outcomes.chance(sure, 0.0, math.inf) == 0.0


def test_the_interval_over_seeds_is_students(made: SimpleNamespace) -> None:
    from scipy.stats import ttest_1samp

    values = [0.0022, 0.0046, 0.0040]
    found = made.outcomes.over_seeds("x", dict(enumerate(values)))
    ends = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    alone = made.outcomes.over_seeds("x", {0: 1.0})
    assert (alone.value, math.isnan(alone.low), math.isnan(alone.high)) == (1.0, True, True)


def test_pooled_is_the_mean_over_cases_by_seed_and_wants_every_seed(made: SimpleNamespace) -> None:
    cases = {"a": {0: 1.0, 1: 5.0}, "b": {1: 1.0, 0: 3.0}}
    assert made.outcomes.pooled("x", cases).seeds == (2.0, 3.0)
    with pytest.raises(ValueError, match="not every case has the seeds"):
        made.outcomes.pooled("x", {"a": {0: 1.0, 1: 5.0}, "b": {0: 1.0}})


@pytest.mark.parametrize("effect", [0.3, 0.6, 1.5])
def test_the_seeds_that_would_decide_have_the_power(made: SimpleNamespace, effect: float) -> None:
    import numpy as np
    from scipy.stats import nct, t

    values = np.array([-1.0, 0.0, 1.0]) + effect  # deviation 1
    n = made.outcomes.seeds_needed(made.outcomes.over_seeds("x", dict(enumerate(values))), 0.0)

    def power(count: int) -> float:
        edge, shift = t.ppf(0.975, count - 1), effect * count**0.5
        return float(nct.sf(edge, count - 1, shift) + nct.cdf(-edge, count - 1, shift))

    assert power(n) >= 0.8 > power(n - 1)
    draws = np.random.default_rng(0).normal(effect, 1, (4000, n))
    statistic = draws.mean(1) / draws.std(1, ddof=1) * n**0.5
    assert (abs(statistic) > t.ppf(0.975, n - 1)).mean() == pytest.approx(power(n), abs=0.03)


def test_more_seeds_never_find_less_however_large_the_effect(made: SimpleNamespace) -> None:
    import numpy as np
    from scipy.stats import t

    counts, sizes = (2, 3, 4, 6, 10, 20, 50, 200, 1000), np.geomspace(0.02, 100, 40)
    found = np.array([[made.outcomes.power(n, float(size)) for n in counts] for size in sizes])
    assert np.isfinite(found).all()
    assert (np.diff(found, axis=0) > -1e-6).all()
    assert (np.diff(found, axis=1) > -1e-6).all()
    draws = np.random.default_rng(0).normal(7.78, 1, (20_000, 2))  # scipy has no number for the far tail of this one
    often = (abs(draws.mean(1) / draws.std(1, ddof=1) * 2**0.5) > t.ppf(0.975, 1)).mean()
    assert made.outcomes.power(2, 7.78) == pytest.approx(often, abs=0.01)
    two = made.outcomes.over_seeds("x", {0: 5 / 7, 1: 6 / 7})
    assert made.outcomes.above("c", "r", [two]).why == "3 seeds would decide at this effect and spread"
    # Holm's correction may leave open what one interval alone would decide: two seeds more than found it
    clear = made.outcomes.over_seeds("x", {0: 1.0, 1: 1.001, 2: 1.002})
    assert made.outcomes.seeds_needed(clear, 0.0) == 4


def test_an_undecided_outcome_says_what_would_decide_it(made: SimpleNamespace) -> None:
    outcomes = made.outcomes
    cost = outcomes.Cost(3, 400, 1.6)
    open_ = outcomes.over_seeds("x", {0: 0.0, 1: 1.0, 2: 2.0})
    assert outcomes.above("c", "r", [open_], cost).why == (
        "10 seeds would decide at this effect and spread, of 400 rounds and about 1.6 hours each"
    )
    alone = outcomes.over_seeds("x", {0: 1.0})
    assert outcomes.above("c", "r", [alone], cost).why == (
        "of 1 without an interval 1 as claimed; a single seed has no interval over seeds; 3 would give one, of 400 "
        "rounds and about 1.6 hours each"
    )
    none = outcomes.over_seeds("x", {0: -1.0, 1: 1.0})
    assert "more than 1,000 seeds" in outcomes.above("c", "r", [none], cost).why
    # of another interval than over seeds: as if seeds had the deviation of 1 that it says
    assert outcomes.above("c", "r", numbers(made, (1.0, 1 - 1.96, 1 + 1.96))).why == (
        "10 seeds would decide at this effect if they spread as the interval does"
    )
    assert outcomes.untested("c", "r", "not run", cost).why == (
        "not run; 3 seeds of 400 rounds and about 1.6 hours each would be a first test"
    )


def test_how_often_which_way_is_said_of_several(made: SimpleNamespace) -> None:
    found = made.outcomes.above("c", "r", numbers(made, NO, OPEN, NO, NO, OPEN, NO))
    assert (found.kind, found.why) == (
        "contradicted",
        "as claimed in 0 of 6, the other way in 4 and not apart in 2",
    )


def test_a_bound_that_turns_the_outcome_is_said_with_its_curve(made: SimpleNamespace) -> None:
    outcomes = made.outcomes
    shares = {0.1: (-0.475, -0.499, -0.368), 0.2: (-0.375, -0.458, -0.232), 0.25: (0.275, 0.115, 0.392)}

    def judge(bound: float) -> Any:
        return outcomes.above("c", "r", numbers(made, shares[bound]))

    found = outcomes.over_bound("within … s.d.", 0.1, (0.1, 0.2, 0.25), judge)
    assert (found.kind, found.depends, found.why) == ("mixed", True, "it depends on a bound of ours")
    assert found.curve == (
        ("0.1", "contradicted"),
        ("0.2", "contradicted"),
        ("0.25", "reproduced"),
    )
    same = outcomes.over_bound("…", 0.1, (0.1, 0.2), judge)
    assert (same.kind, same.depends) == ("contradicted", False)
    # one that leaves it open at another value does not turn it
    shares[0.3] = (0.1, -0.1, 0.3)
    assert outcomes.over_bound("…", 0.25, (0.25, 0.3), judge).kind == "reproduced"


def test_without_a_finished_unit_nothing_is_tested_and_each_claim_says_what_would(made: SimpleNamespace) -> None:
    found = made.long_rules.judged({}, made.plan.costs(made.plan.Scale()))
    every = [one for of in found.values() for own in of.values() for one in own]
    assert {one.kind for one in every} == {"not tested at this size"}
    assert all("seeds of" in one.why and "hours each" in one.why for one in every)
    claims = [one.claim for one in every]
    assert len(set(claims)) == len(claims), "one claim is counted once"
    assert set(found["ima"]) == {"fig1", "fig2", "fig3", "fig4a", "fig4b", "fig5b", "fig5c", "fig7c", "fig8", "fig10"}
    assert set(found["wima"]) == {"fig1", "table2", "table4"}


def curves(folder: Path, run: str, errors: dict[int, tuple[float, float | None]]) -> None:
    rows = [f"{t},{plain},{'' if mean is None else mean}" for t, (plain, mean) in errors.items()]
    head = "round,test_error,averaged_test_error"
    (folder / f"{run}.metrics.csv").write_text("\n".join([head, *rows]) + "\n")


def finished(home: Path, name: str, seconds: int = 7200) -> Path:
    folder = home / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "unit.json").write_text(json.dumps({"unit": name, "seconds": seconds, "cores": 2}))
    return folder


def wima(made: SimpleNamespace, home: Path, seeds: int, level: float, gain: float) -> dict[str, Any]:
    """WIMA's outcomes by figure, of made-up curves at a level of error and with a gain."""
    folders = {}
    for seed in range(seeds):
        folder = folders[f"wima-a0-{seed}"] = finished(home, f"wima-a0-{seed}")
        rough = {t: level + 0.01 * (-1) ** (t // 10) + 0.001 * seed for t in range(10, 1001, 10)}
        smooth = {t: level - gain + 0.001 * (-1) ** (t // 10) for t in rough}
        curves(folder, "fedavg", {t: (rough[t], smooth[t]) for t in rough})
    long = made.long_kept.Long(folders, made.plan.costs(made.plan.Scale()))
    return {"fig1": made.long_wima.smoother(long), "table2": made.long_wima.gains(long)}


def test_three_seeds_decide_one_does_not_and_none_is_no_test(made: SimpleNamespace, tmp_path: Path) -> None:
    kinds = [wima(made, tmp_path / str(n), n, 0.5, 0.05)["table2"].kind for n in (3, 1)]
    assert kinds == ["reproduced", "undecided"]
    worse = wima(made, tmp_path / "worse", 3, 0.5, -0.05)["table2"]
    assert worse.kind == "contradicted"
    assert worse.numbers[0].value == pytest.approx(-0.049, abs=1e-6)
    smooth = wima(made, tmp_path / "3", 3, 0.5, 0.05)["fig1"]
    assert smooth.numbers[0].value == pytest.approx(math.log(10))


def test_a_model_that_has_not_learnt_gives_no_verdict(made: SimpleNamespace, tmp_path: Path) -> None:
    found = wima(made, tmp_path, 3, 0.85, 0.05)["table2"]
    assert found.kind == "not tested at this size"
    assert found.why == (
        "in round 1,000, the last, the test error is above 70 %: 86.0 % in seed 0 at alpha 0, 86.1 % in seed 1 at "
        "alpha 0, 86.2 % in seed 2 at alpha 0; 3 seeds of more than 1,000 rounds and about 2 hours each would be a "
        "first test"
    ), "with measured hours"
    assert "3 seeds of more than " in found.why, "as many of that length are there"
    # the bound is on the way: at 75 % it would have been a verdict, which does not turn anything
    level = wima(made, tmp_path / "between", 3, 0.73, 0.05)["table2"]
    assert dict(level.curve)["0.75"] == "reproduced"
    assert level.kind == "not tested at this size"


def test_each_level_of_skew_is_judged_by_its_own_seeds_and_what_it_has_learnt(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    wima(made, tmp_path, 3, 0.5, 0.05)
    folders = {f"wima-a0-{seed}": tmp_path / f"wima-a0-{seed}" for seed in range(3)}
    for seed, level in ((1, 0.9), (2, 0.5)):
        folder = folders[f"wima-a0.05-{seed}"] = finished(tmp_path, f"wima-a0.05-{seed}")
        curves(folder, "fedavg", dict.fromkeys(range(10, 1001, 10), (level, level - 0.01 * seed)))
    long = made.long_kept.Long(folders, made.plan.costs(made.plan.Scale()))
    found = made.long_wima.gains(long)
    assert [(one.where, len(one.seeds)) for one in found.numbers] == [("alpha 0", 3)]
    assert found.kind == "reproduced"
    assert found.learnt == (
        "the test error of round 1,000 alone, at most 70 %. Judged is alpha 0: seed 0 51.0 %, 50.0 % on average over "
        "the last 10 measured rounds, at most 70 % in 100 of 100; seed 1 51.1 %, 50.1 % on average over the last 10 "
        "measured rounds, at most 70 % in 100 of 100; seed 2 51.2 %, 50.2 % on average over the last 10 measured "
        "rounds, at most 70 % in 100 of 100. Left out is alpha 0.05: seed 1 90.0 %, 90.0 % on average over the last 10 "
        "measured rounds, at most 70 % in 0 of 100; seed 2 50.0 %, 50.0 % on average over the last 10 measured rounds, "
        "at most 70 % in 100 of 100"
    )
    assert f"- What has learnt is judged by {found.learnt}." in made.page._judged(found)
    assert "over the last 50 measured rounds" in made.long_wima.smoother(long).learnt
    curves(folders["wima-a0.05-1"], "fedavg", dict.fromkeys(range(10, 1001, 10), (0.5, 0.48)))
    made.long_kept.metrics.cache_clear()
    found = made.long_wima.gains(long)
    assert [(one.where, one.seeds) for one in found.numbers][1] == ("alpha 0.05", pytest.approx((0.02, 0.02)))


def test_windows_are_told_apart_by_their_errors(
    made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {1: 0.6, 5: 0.55, 10: 0.54, 50: 0.53, 100: 0.52, 200: 0.54}

    def loaded(kind: str, base: Path) -> SimpleNamespace:
        seed = int(base.parent.name[-1])
        rows = [
            SimpleNamespace(window=w, error=error + 0.01 * seed + 0.00001 * w * seed) for w, error in errors.items()
        ]
        return SimpleNamespace(rounds=[SimpleNamespace(round=t, rows=rows) for t in (990, 1000)])

    wima(made, tmp_path, 3, 0.5, 0.05)
    monkeypatch.setattr(made.long_wima, "loaded", loaded)
    long = made.long_kept.Long(
        {f"wima-a0-{seed}": tmp_path / f"wima-a0-{seed}" for seed in range(3)}, made.plan.costs(made.plan.Scale())
    )
    assert made.long_wima.any_window(long).kind == "reproduced"
    assert [one.value for one in made.long_wima.any_window(long).numbers] == pytest.approx(
        [0.04996, 0.05991, 0.06951, 0.07901, 0.05801]
    )
    assert made.long_wima.longer(long).numbers[0].value == pytest.approx(0.02905)
    assert made.long_wima.too_long(long).numbers[0].value == pytest.approx(0.021)
    errors |= {5: 0.45, 200: 0.45}
    assert made.long_wima.longer(long).kind == made.long_wima.too_long(long).kind == "contradicted"
    errors[50] = 0.8
    assert made.long_wima.any_window(long).kind == "mixed"
    del errors[200]
    assert "windows of 100 and 200 were not asked" in made.long_wima.too_long(long).why


def plane(good: bool, jitter: float) -> SimpleNamespace:
    """Three clients and their mean in a bowl, or with the mean on a ridge and above its clients."""
    import numpy as np

    a = b = np.linspace(-1.0, 1.0, 41)
    around = np.hypot(*np.meshgrid(a - 0.15, b))
    # a mean at the middle of three clients on a circle of 0.5; where it is good the lowest point lies beside it
    loss = 1.0 + 20 * around**2 if good else 3.0 - 2 * np.hypot(*np.meshgrid(a, b))
    surface = {(x, y): 1.0 + 20 * ((x - 0.15) ** 2 + y**2) if good else 3.0 - 2 * math.hypot(x, y) for x, y in PLACES}
    errors = [0.8, 0.79, 0.82, 0.5 if good else 0.9]
    roles = ["anchor"] * 3 + ["mean"]
    models = [
        SimpleNamespace(role=role, a=x, b=y, loss=surface[x, y] + 0.01 * jitter, error=error + 0.01 * jitter)
        for role, (x, y), error in zip(roles, PLACES, errors, strict=True)
    ]
    return SimpleNamespace(a=a, b=b, loss=loss + 0.01 * jitter, models=models)


PLACES = ((0.5, 0.0), (-0.25, 0.433), (-0.25, -0.433), (0.0, 0.0))


def line(good: bool) -> SimpleNamespace:
    """From IMA's model, at 1, to FMA's, at 0: lowest at the former or at the latter."""
    import numpy as np

    beta = np.linspace(-0.5, 1.5, 81)
    loss = 1 + (beta - (0.9 if good else 0.1)) ** 2
    return SimpleNamespace(beta=beta, loss=np.array([loss]), ends=[("device@300/global", "device@400/global")])


class World:
    """Finished units in which all claims hold, or none."""

    def __init__(self, made: SimpleNamespace, home: Path, *, good: bool) -> None:
        self.made, self.home, self.good = made, home, good
        self.folders: dict[str, Path] = {}
        for seed in range(3):
            own = {name: finished(home, f"{name}-{seed}") for name in ("device", "silo", "silo-decay")}
            own["device-ima"] = finished(home, f"device-{seed}-ima")
            self.folders |= {folder.name: folder for folder in own.values()}
            plain = {t: (0.85 if t <= 40 else 0.5 + 0.001 * seed, None) for t in range(1, 401)}
            curves(own["device"], "device", plain)
            curves(own["device-ima"], "device", plain)
            for start, gain in ((200, 0.02), (300, 0.04)):
                ahead = gain if good else -gain
                curves(own["device-ima"], f"ima-{start}", {t: (own_, own_ - ahead) for t, (own_, _) in plain.items()})
                (own["device-ima"] / f"fig5c-{start}.nc").touch()
            for t in (20, 200, 400):
                (own["device"] / f"fig1.round-{t}.nc").touch()
            for t in (10, 100, 200):
                (own["silo"] / f"fig8.round-{t}.nc").touch()
            far = 0.1 if good else 2.0
            basin = "model,distance\nminimum,0\na,1\nb,1.5\nc,2\nmean," + str(far + 0.01 * seed)
            (own["device"] / "fig1.globals.basin.csv").write_text(basin)
            for run in ("silo", "silo-decay"):
                curves(own[run], run, {t: (self.error(run, t, seed), None) for t in range(1, 401)})

    def error(self, run: str, t: int, seed: int) -> float:
        """Falls to round 30; then it rises, more without decay; or the other way round."""
        value = 0.9 - 0.0133 * t if t < 30 else 0.5 + 0.0002 * (t - 30)
        if not self.good:
            value = 1.0 - value
        return value + (0.02 if (run == "silo") is self.good else 0.0) + 0.001 * seed

    def factors(self, run: str, t: int, seed: int) -> dict[str, float]:
        """Bias and distance rise to round 40 and then move with the error; with decay the distance dips at 75."""
        late = max(0, t - 40)
        if self.good:
            bias, far, share, locality = 0.74 + 0.0002 * t, 1.0 + 0.01 * min(t, 40) + 0.0001 * late, 0.0, 0.1
        else:
            bias, far, share, locality = 0.74 - 0.0002 * min(t, 40) + 0.0002 * late, 1 - 0.01 * min(t, 40), 0.2, -0.2
            far += 0.002 * late
        far += 0.2 if (run == "silo") is self.good else 0.0
        if t == 75 and run == "silo-decay":
            far += -0.05 if self.good else 0.05
        own = {"train_bias": share, "heter_bias": bias, "variance": 0.01, "covariance": 0.0, "locality": locality}
        return {**{name: value + 0.0001 * seed for name, value in own.items()}, "fma_loss": 0.9, "delta_max": far}

    def loaded(self, kind: str, base: Path) -> Any:
        name, seed = base.parent.name, int(base.parent.name.removesuffix("-ima")[-1])
        run = name.rpartition("-")[0]
        if kind == "Plane":
            return plane(self.good, seed)
        if kind == "Line":
            if base.name.startswith("fig5c"):
                return line(self.good)
            made = line(self.good)
            made.loss = 1 + (made.beta[None] - (0.5 if self.good else -2.0)) ** 2
            return made
        if kind == "Explanation":
            rounds = [
                SimpleNamespace(
                    round=t,
                    rows=[
                        SimpleNamespace(factor=factor, estimate="plugin", value=value)
                        for factor, value in self.factors(run, t, seed).items()
                    ],
                )
                for t in self.made.plan.Scale().decomposed
            ]
            return SimpleNamespace(decomposition=SimpleNamespace(runs=[SimpleNamespace(run=run, rounds=rounds)]))
        if kind == "ClientCKA":
            far = 0.1 if run == "silo" else 0.0
            value = (0.3 - far if self.good else 0.7 + far) + 0.001 * seed
            rounds = [SimpleNamespace(round=t, mean=value) for t in self.made.plan.Scale().decomposed]
            return SimpleNamespace(rounds=rounds)
        assert kind == "Subsets", kind

        def sized(m: int) -> float:
            if run == "device":
                return (0.8 if self.good else 0.6) + 0.001 * seed
            return (0.5 + 0.3 / m if self.good else 0.5 + 0.1 * math.log(m)) + 0.001 * seed

        sizes = [SimpleNamespace(m=m, error_mean=sized(m)) for m in range(1, 11)]
        return SimpleNamespace(rounds=[SimpleNamespace(round=t, sizes=sizes) for t in (1, 20, 40, 75, 200, 400)])


@pytest.mark.parametrize(("lowest", "kind"), [(0.9, "reproduced"), (1.2, "reproduced"), (1.6, "contradicted")])
def test_far_beyond_imas_model_is_not_near_it(
    made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowest: float, kind: str
) -> None:
    import numpy as np

    world = World(made, tmp_path, good=True)
    beta = np.linspace(-1.0, 2.0, 31)
    found = SimpleNamespace(beta=beta, loss=(beta - lowest)[None] ** 2, ends=[])
    monkeypatch.setattr(made.long_device, "loaded", lambda *_: found)
    long = made.long_kept.Long(world.folders, made.plan.costs(made.plan.Scale()))
    assert made.long_device.near_lowest(long).kind == kind


@pytest.mark.parametrize(("good", "kind"), [(True, "reproduced"), (False, "contradicted")])
def test_each_rule_finds_what_the_paper_says_and_its_contrary(
    made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: bool, kind: str
) -> None:
    world = World(made, tmp_path, good=good)
    for module in (made.long_device, made.long_silo):
        monkeypatch.setattr(module, "loaded", world.loaded)
    long = made.long_kept.Long(world.folders, made.plan.costs(made.plan.Scale()))
    found = {
        one.claim: one
        for of in (made.long_device.device(long), made.long_silo.silo(long))
        for own in of.values()
        for one in own
    }
    expected = dict.fromkeys(found, kind)
    for claim in found:
        if claim.startswith("FedASAM"):
            expected[claim] = "not tested at this size"
        elif not good and "misses the minimum" in claim:
            expected[claim] = "reproduced"  # a mean above its clients has something below it
        elif not good and ("both dominate" in claim or "rise slightly" in claim):
            expected[claim] = "mixed"  # one half holds: heterogeneous bias is great by arithmetic, and it rises
    assert {claim: one.kind for claim, one in found.items()} == expected


def outcomes_of_pages(made: SimpleNamespace) -> dict[str, list[Any]]:
    results = PAPERS / "results"
    papers = {name: made.page.answered(getattr(made, name).paper(False), results / name) for name in NAMED}
    found: dict[str, list[Any]] = made.findings.outcomes(papers, results)
    return found


def test_what_is_open_on_the_pages_names_the_seeds_rounds_and_hours_that_would_decide(made: SimpleNamespace) -> None:
    every = [one for own in outcomes_of_pages(made).values() for one in own]
    assert len(every) > 60
    claims = [one.claim for one in every]
    assert len(set(claims)) == len(claims), "one claim is counted once"
    open_ = [one for one in every if one.kind in (made.outcomes.UNDECIDED, made.outcomes.UNTESTED)]
    lacking = [
        one.claim
        for one in open_
        if not re.search(r"[\d,]+ (seeds|would give one).* of (more than )?[\d,]+\s+rounds", one.why)
    ]
    assert lacking == []
    assert [one.claim for one in open_ if not re.search(r"about [\d.]+ hours each", one.why)] == []
    mixed = [one for one in every if one.kind == made.outcomes.MIXED]
    assert [one.claim for one in mixed if not re.search(r"\d+ (of \d+|pairs)|a bound of ours", one.why)] == []


def test_the_pooled_gain_over_the_eight_methods_is_reproduced(made: SimpleNamespace) -> None:
    """By seed the mean over the methods is 0.22, 0.46 and 0.40 points, worked out from the table by hand."""
    found, *_ = made.ima_methods_rules.methods(PAPERS / "results" / "ima", made.ima_methods.METHODS)
    assert [round(100 * one, 2) for one in found.numbers[0].seeds] == [0.22, 0.46, 0.40]
    assert [round(100 * one, 2) for one in (found.numbers[0].low, found.numbers[0].high)] == [0.05, 0.67]
    assert found.kind == "reproduced"


def test_fedsas_peak_depends_on_the_bound(made: SimpleNamespace) -> None:
    """1 of 40 parameters at 0.1 standard deviations, 5 at 0.2 and 31 at 0.25."""
    found = made.fedsa_rules.peaks(PAPERS / "results" / "fedsa")[0]
    assert (found.kind, found.depends) == ("mixed", True)
    assert dict(found.curve) | {"0.1": "contradicted", "0.2": "contradicted", "0.25": "reproduced"} == dict(found.curve)
    assert 40 * (found.numbers[0].value + 0.5) == pytest.approx(1)


def test_findings_say_of_how_many_long_runs_they_are(made: SimpleNamespace, tmp_path: Path) -> None:
    """Of a second seed that is like the first, each number stands, and each comparison counts twice."""
    results = tmp_path / "results"
    shutil.copytree(PAPERS / "results" / "ima", results / "ima")
    for first in (PAPERS / "results" / "long").glob("*/*-0"):
        shutil.copytree(first, results / "long" / first.parent.name / first.name)
    of = made.findings_ima
    told = {name: " ".join(getattr(of, name)(results / "ima")) for name in ("locality", "three", "basin")}
    for first in results.glob("long/*/*-0"):
        again = shutil.copytree(first, first.with_name(f"{first.name[:-1]}1"))
        about = json.loads((again / "unit.json").read_text()) | {"unit": again.name}
        (again / "unit.json").write_text(json.dumps(about))
    twice = {name: " ".join(getattr(of, name)(results / "ima")) for name in told}
    assert all("one run" in words.lower() for words in told.values())
    assert "2 runs each, it is -0.34 (-0.34 to -0.34)" in twice["locality"]
    counted = re.findall(r"(\d+) of (\d+)", told["three"])
    assert re.findall(r"(\d+) of (\d+)", twice["three"]) == [(str(2 * int(a)), str(2 * int(b))) for a, b in counted]
    assert "In 2 runs of its 400 rounds" in twice["three"]
    assert "Each is of one seed" in told["basin"]
    assert re.search(r"The first claim is [\w ]+ there, the second is reproduced\.", twice["basin"])


@pytest.mark.parametrize(
    ("own", "kind"),
    [((0.6, 0.6, 0.6), "reproduced"), ((0.6, 0.3, 0.6), "reproduced"), ((0.3, 0.6, 0.6), "not tested at this size")],
)
def test_methods_that_have_learnt_too_little_are_left_out(
    made: SimpleNamespace, own: tuple[float, ...], kind: str
) -> None:
    reached = {name: made.learnt.Level(value, 1.0) for name, value in zip("abc", own, strict=True)}
    asked = []

    def judge(there: list[str]) -> Any:
        asked.append(there)
        return made.outcomes.above("c", "r", numbers(made, *[YES for _ in there]))

    found = made.learnt.where_learnt("c", "r", reached, judge, made.outcomes.Cost(3, 10, 1.0), needed=("a",))
    assert found.kind == kind
    assert len(found.numbers) == (3 if "not" in kind else sum(value >= 0.5 for value in own))
    if "not" in kind:
        assert "a's accuracy is 30 %, in the paper 100 %" in found.why


def test_long_results_of_one_identity_are_never_averaged_with_anothers(
    made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [SimpleNamespace(window=window, error=0.5) for window in (1, 5, 100, 200)]
    means = SimpleNamespace(rounds=[SimpleNamespace(round=1000, rows=rows)])
    monkeypatch.setattr(made.long_wima, "loaded", lambda *_: means)
    for commit, seeds, gain in (("a" * 40, 3, 0.05), ("b" * 40, 2, -0.05)):
        wima(made, tmp_path / f"{commit[:10]}-data-machine", seeds, 0.5, gain)
        for path in tmp_path.glob(f"{commit[:10]}*/*/unit.json"):
            about = json.loads(path.read_text()) | {"commit": commit, "data": "data", "machine": "machine"}
            path.write_text(json.dumps(about))
    half = tmp_path / "aaaaaaaaaa-data-machine" / "wima-a0-2" / "unit.json"
    half.write_text(half.read_text()[:30])
    found = made.long_pages.groups(tmp_path, "wima")
    assert [[len(number.seeds) for number in one.outcomes["table2"][0].numbers] for one in found] == [[2], [2]]
    assert [one.outcomes["table2"][0].kind for one in found] == ["reproduced", "contradicted"]
    assert "wima-a0-2" not in found[0].said
    about = [
        {"seconds": 1800.0},
        {"seconds": 5400, "cores": 2},
        {"seconds": 1800, "cores": 1},
        {"seconds": 0, "cores": 8},
        {"seconds": 360, "cores": 15, "device": "NVIDIA H200"},
    ]
    assert made.long_pages._hours(about) == (
        "1.0 hours on one core and 1.5 hours on two cores and 0.0 hours on 8 cores and 0.1 hours on one NVIDIA H200"
    )
    short = made.outcomes.Outcome("c", "r", "contradicted", "", (), key="gains")
    (settled,) = made.long_pages.settled([short], "table2", "wima", found)
    assert (settled.long, settled.outcome.kind, settled.short) == (True, "reproduced", short)
    # of one seed they are shown, and the short ones count
    for path in tmp_path.glob("*/wima-a0-1"):
        shutil.rmtree(path)
    found = made.long_pages.groups(tmp_path, "wima")
    assert found[0].outcomes["table2"][0].kind == "undecided"
    (settled,) = made.long_pages.settled([short], "table2", "wima", found)
    assert (settled.long, settled.outcome) == (False, short)
    # but where the short ones could not test it
    untested = made.outcomes.untested("c", "r", "too little is learnt")
    untested = made.outcomes.replace(untested, key="gains")
    (settled,) = made.long_pages.settled([untested], "table2", "wima", found)
    assert (settled.long, settled.outcome.kind, settled.short) == (True, "undecided", untested)
    assert made.page._claims(None, [settled])[0] == (
        "Where long runs have tested a claim with several seeds, or short runs could not test it, theirs counts. "
        "*Changed after results were seen; before, theirs counted with several seeds alone.*"
    )
    # where no short run is about a claim, the list says what the page does
    (settled,) = made.long_pages.settled([], "table2", "wima", found)
    assert (settled.long, settled.outcome.kind) == (True, "undecided")


def test_a_long_claim_that_turns_untested_stays_on_the_page_with_its_reason(
    made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [SimpleNamespace(window=window, error=0.9) for window in (1, 5, 100, 200)]
    means = SimpleNamespace(rounds=[SimpleNamespace(round=1000, rows=rows)])
    monkeypatch.setattr(made.long_wima, "loaded", lambda *_: means)
    wima(made, tmp_path / "aaaaaaaaaa-data-machine", 2, 0.9, 0.05)
    for path in tmp_path.glob("*/*/unit.json"):
        about = json.loads(path.read_text()) | {"commit": "a" * 40, "data": "data", "machine": "machine"}
        path.write_text(json.dumps(about))
    (found,) = made.long_pages.groups(tmp_path, "wima")
    assert [len(found.shown(name)) for name in ("fig1", "table2", "table4")] == [1, 1, 3]
    assert {one.kind for one in found.shown("table4")} == {"not tested at this size"}
    assert made.long_pages.groups(tmp_path, "ima") == [], "of claims without a finished unit nothing is said"
    figure = next(one for one in made.wima.paper(False).figures if one.name == "table4")
    figure = made.outcomes.replace(figure, long=lambda _: None)
    head, said, *claims = made.page._long(None, figure, [found])
    assert (head, said) == ("### The long runs", found.said)
    assert len(claims) == 3
    assert all("above 70 %: 91.0 % in seed 0 at alpha 0, 91.1 % in seed 1 at alpha 0; " in one for one in claims)


def test_a_claim_of_runs_names_the_seed_that_has_learnt_too_little(made: SimpleNamespace, tmp_path: Path) -> None:
    folders = {seed: finished(tmp_path, f"device-{seed}") for seed in (0, 1)}
    for seed, folder in folders.items():
        curves(folder, "device", {200: (0.8, None), 400: (0.6 + 0.151 * seed, None)})
    cost = made.outcomes.Cost(3, 400, 2.0)
    claim = made.long_kept.Claim("c", "r", {"device": folders}, (200, 400), cost)
    assert claim.judged(lambda *_: None).why == (
        "in no round is the test error at most 70 % in every seed; nearest is round 400, in which seed 1 has 75.1 %; "
        "3 seeds of more than 400 rounds and about 2 hours each would be a first test"
    )


def test_what_a_seed_costs_is_measured_where_one_is_finished(made: SimpleNamespace, tmp_path: Path) -> None:
    for name, seconds in (("silo-0", 9000), ("silo-1", 10800), ("device-0-ima", 5400)):
        finished(tmp_path / "aaaaaaaaaa-data-machine", name, seconds)
    for path in tmp_path.glob("*/*/unit.json"):
        about = json.loads(path.read_text()) | {"commit": "a" * 40, "data": "data", "machine": "machine"}
        path.write_text(json.dumps(about))
    estimated, own = made.plan.costs(made.plan.Scale()), made.costs.plan(tmp_path)
    assert {name: own[name].hours for name in ("silo", "device-ima", "silo-decay")} == {
        "silo": 2.75,
        "device-ima": 1.5,
        "silo-decay": estimated["silo-decay"].hours,
    }
    kept = PAPERS / "results" / "long"
    (_, folders), *_ = made.units.groups(kept)
    long = made.long_kept.Long(folders, made.costs.plan())
    assert made.costs.planned("silo") == long.cost("silo"), "short claims and long ones say the same"


@pytest.mark.parametrize("hits", [0, 5, 12, 13, 20, 27, 40])
def test_a_share_of_a_count_is_tested_exactly(made: SimpleNamespace, hits: int) -> None:
    from scipy.stats import binomtest

    number = made.fedsa_rules.share("x", hits, 40, less=0.5)
    assert made.outcomes.chance(number, 0.0, math.inf) == pytest.approx(binomtest(hits, 40, 0.5).pvalue)


def test_fedsas_values_are_not_nearer_by_the_exact_test_and_how_thin_it_is_is_said(made: SimpleNamespace) -> None:
    """Two of 12 of 40: by the exact test 0.01659, against Holm's 0.05 / 3."""
    found = made.fedsa_rules.peaks(PAPERS / "results" / "fedsa")[1]
    assert [40 * (one.value + 0.5) for one in found.numbers] == pytest.approx([12, 17, 12])
    assert (found.kind, found.why) == (
        "contradicted",
        "as claimed in 0 of 3, the other way in 2 and not apart in 1; 12 of 40 has p = 0.0166 against 0.0167; "
        "parameters of one network are not independent",
    )


@pytest.mark.slow
def test_the_rules_take_the_numbers_of_finished_units(
    made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made.long_kept, "LEARNT", 0.95)  # ten rounds on digits teach little
    monkeypatch.setattr(made.long_kept, "BOUNDS", (0.95,))
    command = [sys.executable, str(PAPERS / "long"), "--quick", "--runs", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    folders = {path.parent.name: path.parent for path in tmp_path.glob("finished/*/*/unit.json")}
    costs = made.plan.costs(made.plan.QUICK)
    every = [one for of in made.long_rules.judged(folders, costs).values() for own in of.values() for one in own]
    taken = [one for one in every if one.kind != "not tested at this size"]
    assert len(taken) > 25, [one.claim for one in every if one not in taken]
    assert all(len(number.seeds) == 2 for one in taken for number in one.numbers)
    assert all(math.isfinite(number.value) for one in taken for number in one.numbers)
    # of one seed alone
    some = {name: folder for name, folder in folders.items() if "-0" in name and not name.endswith("-1")}
    alone = [one for of in made.long_rules.judged(some, costs).values() for own in of.values() for one in own]
    assert {one.kind for one in alone} <= {"undecided", "not tested at this size"}
    drawn = {
        figure.name: found[0]
        for paper in (made.ima.paper(False), made.wima.paper(False))
        for figure in paper.figures
        if (found := figure.long(folders)) is not None
    }
    assert drawn == dict.fromkeys(("fig1", "fig2", "fig3", "fig4a", "fig4b", "fig5b", "fig5c", "fig8", "table4"), 0), (
        "each picture, of the first seed"
    )
