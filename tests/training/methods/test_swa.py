"""SWA over rounds: cyclical rates, and the mean of the globals at the ends of cycles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.training import Config, branch, merge, preset, resume, train
from fedscope.training.methods.averages.swa import SWA
from fedscope.training.methods.base import LocalSchedule

SMALL = {
    "data": {"clients": 6},
    "model": {"hidden": [8]},
    "client": {"epochs": 1, "lr": 0.2},
    "run": {"rounds": 11, "participation": 0.5, "evaluate_clients": 0},
    "average": {"start": 4, "cycle": 3},
}


def config(**sections: Any) -> Config:
    return Config.read(merge(preset("swa"), SMALL, sections))


@pytest.mark.parametrize(
    ("full_first", "cycle"),
    [
        (False, [0.2 * 0.67, 0.2 * 0.34, 0.002]),  # 1 - (j + 1)/3 + 0.01 (j + 1)/3 for j = 0, 1, 2
        (True, [0.2, 0.2 * 0.505, 0.002]),  # 1 - 0.99 j/2, what runs did that were recorded before
    ],
)
def test_rates_fall_to_a_hundredth_within_each_cycle_and_start_anew(full_first: bool, cycle: list[float]) -> None:
    swa = config(average={"full_first": full_first}).average
    client = config().client
    rates = [swa.explore_pace(t, LocalSchedule(0.2, 5), client).lr for t in range(1, 12)]
    np.testing.assert_allclose(rates, [0.2] * 3 + [*cycle, *cycle, *cycle[:2]], rtol=1e-12)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The small run, with the start in its mean."""
    return train(config(), tmp_path_factory.mktemp("swa") / "whole")


@pytest.mark.parametrize("include_start", [True, False])
def test_it_averages_the_globals_at_the_ends_of_cycles_and_clients_never_start_from_it(
    whole: Run, tmp_path: Path, close: Any, include_start: bool
) -> None:
    swa = config(average={"include_start": include_start})
    run = whole if include_start else train(swa, tmp_path / "swa")
    globals_ = {t: run.round(t).read("global").parameters.astype(np.float64) for t in run.rounds}
    members = {t: [s for s in ([3] if include_start else []) + [6, 9] if s <= t] for t in range(1, 12)}
    first = 4 if include_start else 6
    assert [t for t in run.rounds if "averaged" in run.round(t).models] == list(range(first, 12))
    for t in run.rounds:
        if t > 1:
            start = run.round(t).read("start").parameters
            assert start.tobytes() == run.round(t - 1).read("global").parameters.tobytes()
        if t >= first:
            expected = np.mean([globals_[s] for s in members[t]], axis=0)
            close(run.round(t).read("averaged").parameters, expected, 1e-7)  # one rounding to float32
            assert swa.average.members(t) == tuple(members[t])
    assert swa.average.members(3) == ()
    cycle = [0.134, 0.068, 0.002]
    assert run.metrics()["lr"].tolist() == pytest.approx([0.2] * 3 + cycle * 2 + cycle[:2])


@pytest.mark.parametrize("stop", [2, 3])
def test_a_run_stopped_about_its_start_goes_on_to_the_same_mean(
    whole: Run, tmp_path: Path, stop_after: Any, stop: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(config(), tmp_path / "stopped", watcher=stop_after(stop))
    again = resume(tmp_path / "stopped")
    for t in (4, 11):
        one, other = (run.round(t).read("averaged").parameters for run in (whole, again))
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("round", [2, 7])
def test_a_branch_finds_the_model_that_the_cycles_start_from_in_its_history(
    whole: Run, tmp_path: Path, close: Any, round: int
) -> None:
    """The mean of `global` of round 3 and of the cycle's end, whichever of them the history made without SWA."""
    plain = branch(whole, 1, {"average": {"method": "none"}, "run": {"rounds": 8}}, tmp_path / "fma")
    made = branch(plain, round, config(run={"rounds": 8}).tables(), tmp_path / "swa")
    ends = [made.round(t).read("global").parameters.astype(np.float64) for t in (3, 6)]
    close(made.round(8).read("averaged").parameters, np.mean(ends, axis=0), 1e-7)


def test_its_start_is_three_quarters_of_the_rounds() -> None:
    made = Config.read({"run": {"rounds": 60}, "average": {"method": "swa"}}).average
    assert isinstance(made, SWA)
    assert (made.start, made.cycle, made.include_start, made.full_first) == (45, 10, True, False)


@pytest.mark.parametrize(
    ("rounds", "average", "message"),
    [
        (20, {}, r"average\.cycle = 10: the first cycle from round 15 on ends after the last of 20 rounds.*start=11"),
        (6, {}, r"ends after the last of 6 rounds.*--rounds 11 or more"),
        (6, {"include_start": False}, r"ends after the last of 6 rounds.*--rounds 10 or more"),
        (10, {}, r"the first cycle from round 8 on ends after the last of 10 rounds.*--rounds 11 or more"),
        (10, {"include_start": False}, r"ends after the last of 10 rounds.*average\.start=1,"),
        (
            60,
            {"start": 1},
            r"average\.start = 1 .*none before round 1; give --set average\.start=2, or --set average\.inc",
        ),
        (60, {"start": 55}, r"the first cycle from round 55 on ends after the last of 60.*average\.start=51"),
        (60, {"cycle": 1}, r"average\.cycle = 1 is out of range: it must be at least 2"),
    ],
)
def test_a_run_that_would_average_nothing_is_refused(rounds: int, average: dict[str, Any], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        Config.read({"run": {"rounds": rounds}, "average": {"method": "swa", **average}})
