"""Averages over rounds and client schedules against their definitions."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.checkpoints.models.weights import TensorEntry
from fedscope.training import Config
from fedscope.training.methods.averages.ima import IMA
from fedscope.training.methods.averages.none import NoAverage
from fedscope.training.methods.base import Cohort, History
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.methods.servers.fma import FMA
from fedscope.training.models.model_info import ModelInfo

LAYOUT = Layout((TensorEntry("w", (4,), "float32", "parameter"),))


def model(*values: float) -> Weights:
    return Weights(LAYOUT, np.array(values, dtype=np.float32), {})


FACTS = ModelInfo(LAYOUT)


def history(past: list[Weights]) -> History:
    """Rows by round, the first being round 1."""
    return History(lambda t: past[t - 1], FACTS)


@given(start=st.integers(1, 30), window=st.integers(1, 8), round=st.integers(1, 40))
def test_ima_averages_the_last_window_from_its_start_and_restarts_one_round_later(
    start: int, window: int, round: int
) -> None:
    ima = IMA(start=start, window=window)
    past = [model(t, t**2, -t, 1) for t in range(1, round + 1)]
    averaged = ima.average({}, round, past[-1], history(past[:-1])).weights
    if round < start:
        assert averaged is None
    else:
        last = np.stack([w.parameters for w in past[-window:]]).astype(np.float64)
        assert averaged is not None
        np.testing.assert_array_equal(averaged.parameters, last.mean(0).astype(np.float32))
    assert ima.restarts(round) == (round > start)


def test_ima_with_a_window_of_one_returns_the_global_bit_for_bit() -> None:
    w = model(0.1, 1 / 3, 1e-30, -7e20)
    averaged = IMA(start=1, window=1).average({}, 5, w, history([model(9, 9, 9, 9)] * 4)).weights
    assert averaged is not None
    assert averaged.parameters.tobytes() == w.parameters.tobytes()


def settled(rounds: int, **average: object) -> IMA:
    read = Config.read({"run": {"rounds": rounds}, "average": {"method": "ima", **average}})
    assert isinstance(read.average, IMA)
    return read.average


@pytest.mark.parametrize("rounds", [1, 3, 4, 60, 400])
def test_ima_starts_at_three_quarters_of_the_rounds(rounds: int) -> None:
    assert settled(rounds).start == ceil(0.75 * rounds)
    assert settled(rounds, start=1).start == 1


# Each schedule written out by hand for eta_0 = 1, d = 0.1, E = 3, t_s = 11, a period of 20 rounds.
ETA_S = 0.9**10


@pytest.mark.parametrize(
    ("explore", "j", "lr", "epochs"),
    [
        ("exp", 0, ETA_S, 3),
        ("exp", 7, ETA_S * 0.97**7, 3),
        ("const", 0, 5e-5, 3),
        ("const", 90, 5e-5, 3),
        ("cyclic", 0, 1e-2, 3),
        ("cyclic", 19, 5e-5, 3),
        ("cyclic", 20, 1e-2, 3),
        ("cyclic", 10, 1e-2 - (1e-2 - 5e-5) * 10 / 19, 3),
        ("triangle", 0, ETA_S, 3),
        ("triangle", 10, 5e-5, 3),
        ("triangle", 5, (ETA_S + 5e-5) / 2, 3),
        ("triangle", 15, (ETA_S + 5e-5) / 2, 3),
        ("triangle", 40, ETA_S, 3),
        ("epochs", 19, 0.9**29, 3),
        ("epochs", 20, 0.9**30, 2),
        ("epochs", 90, 0.9**100, 1),
        ("stage", 19, ETA_S, 3),
        ("stage", 20, ETA_S / 2, 3),
        ("stage", 45, ETA_S / 4, 3),
        ("none", 13, 0.9**23, 3),
    ],
)
def test_exploration_schedules(explore: str, j: int, lr: float, epochs: int) -> None:
    client = SGD(lr=1.0, lr_decay=0.1, epochs=3)
    ima = IMA(start=11, explore=explore)  # type: ignore[arg-type]
    pace = ima.explore_pace(11 + j, client.pace(11 + j), client)
    assert pace.lr == pytest.approx(lr, rel=1e-12)
    assert pace.epochs == epochs


@pytest.mark.parametrize("explore", ["cyclic", "triangle"])
def test_a_highest_rate_that_is_given_holds(explore: str) -> None:
    """As in runs recorded when `triangle` had 0.01 by default: they carry it."""
    client = SGD(lr=1.0, lr_decay=0.1)
    ima = IMA(start=11, explore=explore, explore_high=0.03)  # type: ignore[arg-type]
    assert ima.explore_pace(31, client.pace(31), client).lr == pytest.approx(0.03, rel=1e-12)


def test_before_its_start_ima_leaves_the_clients_pace_alone() -> None:
    client = SGD(lr=0.3, lr_decay=0.01)
    assert IMA(start=11).explore_pace(10, client.pace(10), client) == client.pace(10)
    assert client.pace(10).lr == pytest.approx(0.3 * 0.99**9)


def test_no_average_never_averages() -> None:
    none = NoAverage()
    assert none.average({}, 5, model(1, 2, 3, 4), history([])).weights is None
    assert not none.restarts(5)


def test_fma_is_the_weighted_sum_of_the_rows_and_its_weights_are_shares_of_samples() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 4)).astype(np.float32)
    samples = np.array([10, 30, 60])
    p = FMA().weights(samples)
    np.testing.assert_array_equal(p, [0.1, 0.3, 0.6])
    np.testing.assert_array_equal(FMA(weighting="uniform").weights(samples), [1 / 3] * 3)
    cohort = Cohort(1, np.arange(3), samples, samples, p)
    served = FMA().step({}, model(0, 0, 0, 0), Weights(LAYOUT, rows, {}), cohort)
    expected = (0.1 * rows[0].astype(float) + 0.3 * rows[1].astype(float)) + 0.6 * rows[2].astype(float)
    np.testing.assert_array_equal(served.parameters, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IMA(window=0), r"average\.window = 0 is out of range: it must be at least 1"),
        (lambda: IMA(explore="fast"), r"average\.explore = 'fast' is not a choice: it takes one of exp, const"),  # type: ignore[arg-type]
        (lambda: SGD(lr=0.0), r"client\.lr = 0 is out of range: it must be greater than 0"),
        (lambda: SGD(epochs=2.5), r"client\.epochs = 2\.5 has the wrong type: it takes a whole number"),  # type: ignore[arg-type]
        (lambda: SGD(epochs=True), r"client\.epochs = True has the wrong type"),
        (lambda: SGD(lr=float("nan")), r"client\.lr = nan is not a finite number"),
        (lambda: SGD(lr_decay=1.0), r"client\.lr_decay = 1 is out of range: it must be less than 1"),
    ],
)
def test_settings_out_of_range_or_of_another_type_are_refused(make: object, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        make()  # type: ignore[operator]


def test_a_start_after_the_last_round_would_average_nothing_and_is_refused() -> None:
    with pytest.raises(FedscopeError, match=r"average\.start = 9 comes after the last of 8 rounds.*average\.start=6"):
        settled(8, start=9)


@pytest.mark.parametrize(
    ("average", "high"),
    [
        ({"explore": "cyclic", "explore_low": 0.5}, "0.01"),
        ({"explore": "cyclic", "explore_low": 0.02, "explore_high": 0.02}, "0.02"),
        ({"explore": "triangle", "explore_low": 0.05}, "0.05"),
    ],
)
def test_a_lowest_rate_that_is_not_below_the_highest_is_refused(average: dict[str, object], high: str) -> None:
    """The saw-tooth would rise."""
    words = rf"average\.explore_low = .* is not below the highest rate of {average['explore']}, {high}; give a greater"
    with pytest.raises(FedscopeError, match=words):
        settled(8, **average)
    assert settled(8, explore="exp", explore_low=0.5).explore_low == 0.5, "which has no lowest rate"
    assert settled(8, explore="triangle", explore_low=0.04).explore_low == 0.04
    # what an earlier fedscope has trained so is read, analysed and resumed
    read = Config.recorded({"run": {"rounds": 8}, "average": {"method": "ima", **average}})
    assert isinstance(read.average, IMA)
    assert read.average.explore_low == average["explore_low"]
