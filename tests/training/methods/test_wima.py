"""WIMA: the mean over a window that nobody starts from, whole or in parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, Layout, Run, Weights
from fedscope.checkpoints.models.weights import TensorEntry
from fedscope.training import Config, merge, preset, train
from fedscope.training.loop.federation import Unwatched
from fedscope.training.methods.averages.wima import WIMA
from fedscope.training.methods.base import History
from fedscope.training.models.model_info import ModelInfo

LAYOUT = Layout(
    (
        TensorEntry("body.weight", (3, 2), "float32", "parameter"),
        TensorEntry("norm.running_mean", (2,), "float32", "buffer"),
        TensorEntry("norm.num_batches_tracked", (), "int64", "buffer"),
        TensorEntry("head.weight", (2, 3), "float32", "parameter"),
        TensorEntry("head.bias", (2,), "float32", "parameter"),
    )
)
FACTS = ModelInfo(LAYOUT, head="head")
SMALL = {
    "data": {"clients": 6},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 9, "participation": 0.5, "evaluate_clients": 0},
}


def row(t: int) -> Weights:
    random = np.random.default_rng(t)
    buffers = {"norm.running_mean": random.normal(size=2).astype(np.float32), "norm.num_batches_tracked": np.array(t)}
    return Weights(LAYOUT, random.normal(size=LAYOUT.size).astype(np.float32), buffers)


def played(method: WIMA, rounds: int, row: Callable[[int], Weights] = row) -> list[Weights]:
    """``averaged`` of each round."""
    state: Any = {}
    out = []
    for t in range(1, rounds + 1):
        averaged = method.average(state, t, row(t), History(row, FACTS))
        state = averaged.state
        assert averaged.weights is not None
        out.append(averaged.weights)
    return out


@given(window=st.integers(2, 9), rounds=st.integers(1, 15))
def test_the_moving_sum_is_the_mean_of_the_last_rows(window: int, rounds: int, close: Any) -> None:
    last = played(WIMA(window=window), rounds)[-1]
    rows = [row(t) for t in range(max(1, rounds - window + 1), rounds + 1)]
    expected = np.mean([r.parameters.astype(np.float64) for r in rows], axis=0).astype(np.float32)
    close(last.parameters, expected, 2e-7)  # one rounding to float32
    running = np.mean([r.buffers["norm.running_mean"].astype(np.float64) for r in rows], axis=0)
    close(last.buffers["norm.running_mean"], running, 2e-7)
    assert last.buffers["norm.num_batches_tracked"] == rounds


def test_a_sum_that_moves_for_long_stays_the_sum(close: Any) -> None:
    last = played(WIMA(window=7), 600)[-1]
    expected = np.mean([row(t).parameters.astype(np.float64) for t in range(594, 601)], axis=0)
    close(last.parameters, expected, 2e-7)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e30])
@pytest.mark.parametrize("where", [slice(None), slice(2, 4)])
def test_a_model_that_diverged_is_forgotten_with_its_window(value: float, where: slice, close: Any) -> None:
    """∞ − ∞ would stay for ever, and 10^30 + x − 10^30 is not x."""

    def spoiled(t: int) -> Weights:
        own = row(t)
        if t in (3, 4):
            own.parameters[where] = value
            own.buffers["norm.running_mean"][0] = value
        return own

    window, sound = 4, played(WIMA(window=4), 14)
    found = played(WIMA(window=window), 14, spoiled)
    for t, own in enumerate(found, 1):
        if t in range(3, 4 + window):  # it holds one, and says so
            assert not (np.abs(own.parameters[where]) < 1e29).any()
            continue
        rows = np.stack([row(s).parameters for s in range(max(1, t - window + 1), t + 1)])
        close(own.parameters, rows.astype(np.float64).mean(axis=0), 2e-7)
        close(own.buffers["norm.running_mean"], sound[t - 1].buffers["norm.running_mean"], 2e-7)


def test_a_sum_of_finite_models_moves_as_it_did_bit_for_bit() -> None:
    """+ the newest, − the one that leaves: runs that are resumed or asked again have the bits that they had."""
    total = np.zeros(LAYOUT.size)
    for t, own in enumerate(played(WIMA(window=3), 30), 1):
        total = total + row(t).parameters.astype(np.float64)
        if t > 3:
            total = total + -1.0 * row(t - 3).parameters.astype(np.float64)
        assert own.parameters.tobytes() == (total / min(t, 3)).astype(np.float32).tobytes()


def test_a_run_that_diverged_for_good_reads_no_window_in_each_round() -> None:
    read: list[int] = []

    def lost(t: int) -> Weights:
        read.append(t)
        own = row(t)
        if t > 2:
            own.parameters[:] = np.nan
        return own

    played(WIMA(window=5), 20, lost)
    assert len(read) < 2 * 20 + 5  # the newest and the one that leaves


def test_equation_six_gives_the_average_from_the_updates_alone(close: Any) -> None:
    """w_{t'} - sum_tau ((t' + W - tau)/W) (start_tau - global_tau), w_{t'} the start of the window's first round."""
    window, last = 5, 11
    first = last - window + 1
    average = row(first - 1).parameters.astype(np.float64)  # the start of round t' is the global before it
    for tau in range(first, last + 1):
        step = row(tau - 1).parameters.astype(np.float64) - row(tau).parameters
        average -= (first + window - tau) / window * step
    close(played(WIMA(window=window), last)[-1].parameters, average, 1e-6)


@pytest.mark.parametrize(("parts", "averaged"), [("features", slice(0, 6)), ("classifier", slice(6, 14))])
def test_only_the_part_that_is_asked_for_is_averaged(parts: Any, averaged: slice) -> None:
    whole, part = played(WIMA(window=4), 9)[-1], played(WIMA(window=4, parts=parts), 9)[-1]
    rest = np.ones(LAYOUT.size, bool)
    rest[averaged] = False
    np.testing.assert_array_equal(part.parameters[averaged], whole.parameters[averaged])
    np.testing.assert_array_equal(part.parameters[rest], row(9).parameters[rest])
    assert (whole.parameters[rest] != row(9).parameters[rest]).all()
    expected = whole if parts == "features" else row(9)
    np.testing.assert_array_equal(part.buffers["norm.running_mean"], expected.buffers["norm.running_mean"])


def config(method: str, **sections: Any) -> Config:
    return Config.read(merge(preset(method), SMALL, sections))


def test_its_globals_are_those_of_fma_bit_for_bit(tmp_path: Path, close: Any) -> None:
    fma = train(config("fma"), tmp_path / "fma")
    wima = train(config("wima", average={"window": 3}), tmp_path / "wima")
    for t in fma.rounds:
        assert wima.round(t).read("global").parameters.tobytes() == fma.round(t).read("global").parameters.tobytes()
        assert wima.round(t).read("start").parameters.tobytes() == fma.round(t).read("start").parameters.tobytes()
        window = [fma.round(s).read("global").parameters for s in range(max(1, t - 2), t + 1)]
        expected = np.mean(np.stack(window).astype(np.float64), axis=0)
        close(wima.round(t).read("averaged").parameters, expected, 2e-7)


def test_what_is_kept_beside_thinned_rounds_does_not_grow_with_them(tmp_path: Path) -> None:
    class Most(Unwatched):
        most = 0

        def round(self, record: Any, of: int) -> None:
            Most.most = max(Most.most, len(list((tmp_path / "run/kept/globals").iterdir())))
            assert len(list((tmp_path / "run/kept/states").iterdir())) <= 1

    settings = config("wima", average={"window": 3}, run={"rounds": 12}, record={"globals": "none", "clients": "none"})
    train(settings, tmp_path / "run", watcher=Most())
    assert 3 <= Most.most <= 4
    assert Run.open(tmp_path / "run").round("last").models == ("start", "global", "averaged")


def test_averaging_a_head_that_is_frozen_is_refused() -> None:
    with pytest.raises(FedscopeError, match=r"average\.parts = 'classifier' averages the head, which .* fedbabu keeps"):
        Config.read({"client": {"method": "fedbabu"}, "average": {"method": "wima", "parts": "classifier"}})
    Config.read({"client": {"method": "fedbabu"}, "average": {"method": "wima", "parts": "features"}})
