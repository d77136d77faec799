"""``average.before_server``: clients' means are averaged over rounds, and the server's optimiser steps towards that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run, weighted_mean
from fedscope.training import Config, merge, preset, resume, train

SMALL = {
    "data": {"clients": 6},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 7, "participation": 0.5, "evaluate_clients": 0},
    "average": {"window": 3, "start": 3, "explore": "none"},
}


def config(**sections: Any) -> Config:
    return Config.read(
        merge(preset("ima"), {"server": {"method": "fedavgm", "momentum": 0.5, "lr": 0.7}}, SMALL, sections)
    )


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(config(average={"before_server": True}), tmp_path_factory.mktemp("runs") / "before")


def means(run: Run) -> dict[int, np.ndarray]:
    """The clients' mean of every round, from the clients alone."""
    return {
        t: weighted_mean(run.round(t).clients(), run.round(t).weights).parameters.astype(np.float64) for t in run.rounds
    }


def test_the_optimiser_steps_towards_the_mean_of_the_last_means(before: Run, close: Any) -> None:
    row, m = means(before), np.zeros(before.layout.size)
    for t in before.rounds:
        target = row[t] if t < 3 else np.mean([row[s] for s in range(max(1, t - 2), t + 1)], axis=0)
        start = before.round(t).read("start").parameters.astype(np.float64)
        m = 0.5 * m + (target - start)
        close(before.round(t).read("global").parameters, start + 0.7 * m, 1e-6)
        assert "averaged" not in before.round(t).models
        if t > 1:
            assert before.round(t).read("start").parameters.tobytes() == (
                before.round(t - 1).read("global").parameters.tobytes()
            )


def test_it_differs_from_averaging_what_the_optimiser_made(before: Run, tmp_path: Path) -> None:
    after = train(config(), tmp_path / "after")
    assert "averaged" in after.round("last").models
    assert after.round(3).read("global").parameters.tobytes() != before.round(3).read("global").parameters.tobytes()
    assert after.round(2).read("global").parameters.tobytes() == before.round(2).read("global").parameters.tobytes()


@pytest.mark.parametrize("policy", ["all", "none"])
def test_an_interrupted_run_goes_on_exactly(stop_after: Any, before: Run, tmp_path: Path, policy: str) -> None:
    settings = config(average={"before_server": True}, record={"globals": policy, "clients": "none"})
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "cut", watcher=stop_after(5))
    resumed = resume(tmp_path / "cut")
    assert resumed.round(7).read("global").parameters.tobytes() == before.round(7).read("global").parameters.tobytes()


@pytest.mark.parametrize("server", ["fma", "fednova", "feddyn"])
def test_a_server_without_an_optimiser_is_refused(server: str) -> None:
    with pytest.raises(FedscopeError, match=rf"before_server = true .* the server method {server} has none; use"):
        Config.read({"server": {"method": server}, "average": {"method": "ima", "before_server": True}})
