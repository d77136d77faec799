"""What holds for every server method on the shelf, whatever its formula."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import Layout, Round, RoundRecord, TensorEntry, Weights, stack, weighted_mean, write_round
from fedscope.training.methods.base import Cohort, Served, ServerMethod
from fedscope.training.methods.shared.probes import Linear
from fedscope.training.methods.shared.server_steps import mean_update, weighted_update
from fedscope.training.settings.registry import find, names

SERVERS = names("servers")
#: the servers that are plain sums over clients; clusters of clients take more memory, and ties in them go by order
SUMS = [name for name in SERVERS if name != "fedsa"]


def layout(dtype: str = "float32", size: int = 12) -> Layout:
    return Layout(
        (
            TensorEntry("a.weight", (size // 4, 3), dtype, "parameter"),
            TensorEntry("a.bias", (size // 4,), dtype, "parameter"),
        )
    )


def model(seed: int, size: float = 1.0, dtype: str = "float32") -> Weights:
    values = np.random.default_rng(seed).normal(scale=size, size=12)
    return Weights(layout(dtype), values.astype(dtype), {})


def moved(start: Weights, seed: int, count: int = 3) -> Weights:
    """Client rows about ``start``."""
    steps = np.random.default_rng(seed).normal(scale=0.1, size=(count, start.layout.size))
    return Weights(start.layout, (start.parameters + steps).astype(start.parameters.dtype), {})


class Judged:
    """Made-up answers to what servers ask of models."""

    def __call__(self, models: Weights) -> tuple[np.ndarray, np.ndarray]:
        """The further from (1, 1, ...), the worse; errors in steps of 0.25, so that some are equal."""
        loss = np.array([np.linalg.norm(row - 1.0) for row in models.parameters])
        return loss, np.floor(loss * 4) / 4

    def squared_gradients(self, model: Weights, labels: str) -> np.ndarray:
        return 0.01 + np.square(np.asarray(model.parameters, np.float64))

    def input_products(self, model: Weights) -> dict[Linear, np.ndarray]:
        weight = model.arrays()["a.weight"].astype(np.float64)
        return {Linear("a.weight", 0, len(weight)): np.cov(weight.T) + np.eye(3)}


judged = Judged()


def cohort(samples: Any = (10, 30, 60), round: int = 1) -> Cohort:
    n = np.asarray(samples)
    steps = np.arange(len(n)) + 2
    return Cohort(
        round=round,
        client_ids=np.arange(len(n)),
        samples=n,
        steps=steps,
        p=n / n.sum(),
        clients=7,
        lr=0.1,
        reach=0.1 * steps,
        label_counts=np.ones((len(n), 3), np.int64),
        validator=judged,
    )


def permuted(known: Cohort, order: np.ndarray) -> Cohort:
    return Cohort(
        round=known.round,
        client_ids=known.client_ids[order],
        samples=known.samples[order],
        steps=known.steps[order],
        p=known.p[order],
        clients=known.clients,
        lr=known.lr,
        reach=known.reach[order],
        label_counts=known.label_counts[order],
        validator=known.validator,
    )


def play(method: ServerMethod, rounds: int, start: Weights) -> tuple[Weights, Served]:
    """Some rounds, each from the last one's outcome: the start of the next, and the last step's outcome."""
    w, served = start, Served(start.parameters, method.init(start.parameters))
    for t in range(1, rounds + 1):
        served = method.step(served.state, w, moved(w, seed=t), cohort(round=t))
        w = Weights(w.layout, method.look_ahead(served.state, served.parameters), {})
    return w, served


@pytest.mark.parametrize("name", SERVERS)
def test_a_step_changes_nothing_that_it_was_given_and_repeats(name: str) -> None:
    method = find("servers", name)()
    start, last = play(method, 2, model(0))
    clients, known = moved(start, seed=9), cohort(round=3)
    given_ = deepcopy((dict(last.state), start.parameters, clients.parameters, known.p, known.reach))
    once = method.step(last.state, start, clients, known)
    ahead = method.look_ahead(once.state, once.parameters)
    now = (dict(last.state), start.parameters, clients.parameters, known.p, known.reach)
    for before, after in zip(given_[1:], now[1:], strict=True):
        np.testing.assert_array_equal(before, after)
    assert sorted(given_[0]) == sorted(now[0])
    for key, value in given_[0].items():
        np.testing.assert_array_equal(value, now[0][key])
    again = method.step(last.state, start, clients, known)
    assert once.parameters.tobytes() == again.parameters.tobytes()
    assert all(once.state[key].tobytes() == again.state[key].tobytes() for key in once.state)
    assert ahead.tobytes() == method.look_ahead(once.state, once.parameters).tobytes()
    for array in (once.parameters, *once.state.values()):  # nothing that a later round could change behind its back
        assert not np.shares_memory(array, clients.parameters)
        assert not np.shares_memory(array, start.parameters)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SERVERS)
def test_models_and_vectors_have_the_layouts_dtype_and_names_stay(name: str, dtype: str) -> None:
    method = find("servers", name)()
    start = model(0, dtype=dtype)
    first = play(method, 1, start)[1].state
    w, served = play(method, 3, start)
    assert (served.parameters.shape, served.parameters.dtype) == ((12,), np.dtype(dtype))
    assert (w.parameters.shape, w.parameters.dtype) == ((12,), np.dtype(dtype))
    assert np.isfinite(served.parameters).all()
    assert np.abs(served.parameters - start.parameters).max() > 1e-4
    assert sorted(first) == sorted(served.state)
    for key, value in served.state.items():
        assert isinstance(value, np.ndarray), key
        assert (value.shape, value.dtype) == (first[key].shape, first[key].dtype), key
        if value.shape == (12,):
            assert value.dtype == np.dtype(dtype), key
    assert method.init(start.parameters).keys() <= first.keys()


@pytest.mark.parametrize("name", SUMS)
@settings(max_examples=15)
@given(order=st.permutations(range(4)), seed=st.integers(0, 1000))
def test_the_order_of_the_clients_is_of_no_account(name: str, order: list[int], seed: int) -> None:
    method = find("servers", name)()
    start, last = play(method, 2, model(seed, dtype="float64"))
    clients, known, order_ = moved(start, seed, 4), cohort((10, 5, 60, 25), 3), np.array(order)
    one = method.step(last.state, start, clients, known)
    other = method.step(
        last.state, start, Weights(start.layout, clients.parameters[order_], {}), permuted(known, order_)
    )
    np.testing.assert_allclose(one.parameters, other.parameters, rtol=0, atol=1e-11)
    for key in one.state:
        np.testing.assert_allclose(one.state[key], other.state[key], rtol=0, atol=1e-11)


def stored_and_read(state: Mapping[str, np.ndarray], layout: Layout) -> dict[str, Any]:
    """The state as a round file gives it back."""
    nobody = np.zeros(0, np.int64)
    columns = (nobody, nobody, nobody, np.zeros(0), np.zeros(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "00001.h5")
        write_round(path, RoundRecord(1, None, None, None, None, *columns, state=state), layout=layout)
        return Round(path, layout, "a run").state()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {}) for name in SERVERS),
        *((name, {"bias_correction": True}) for name in ("fedadam", "fedyogi")),
        *((name, {"v0": "tau2"}) for name in ("fedadam", "fedyogi", "fedadagrad")),
    ],
)
def test_a_state_that_has_been_on_disk_goes_on_bit_for_bit(name: str, changes: dict[str, Any]) -> None:
    method = find("servers", name)(**changes)
    start, last = play(method, 3, model(1))
    state = stored_and_read(last.state, start.layout)
    assert sorted(state) == sorted(last.state)
    clients, known = moved(start, 5), cohort(round=4)
    straight, resumed = (method.step(kept, start, clients, known) for kept in (last.state, state))
    assert straight.parameters.tobytes() == resumed.parameters.tobytes()
    for key, value in straight.state.items():
        assert value.tobytes() == resumed.state[key].tobytes(), key
    ahead, again = (method.look_ahead(kept, last.parameters) for kept in (last.state, state))
    assert ahead.tobytes() == again.tobytes()


@pytest.mark.parametrize("samples", [(10, 30, 60), (1, 1, 1), (7,)])
@pytest.mark.parametrize("name", SERVERS)
def test_clients_who_have_not_moved_leave_the_model_where_it_is(name: str, samples: tuple[int, ...]) -> None:
    method = find("servers", name)()
    start = model(3, size=100)
    served = method.step(method.init(start.parameters), start, stack([start] * len(samples)), cohort(samples))
    np.testing.assert_allclose(served.parameters, start.parameters, rtol=2e-7)
    ahead = method.look_ahead(served.state, served.parameters)
    np.testing.assert_allclose(ahead, start.parameters, rtol=2e-7)


@pytest.mark.parametrize("name", SERVERS)
def test_optimisers_see_no_more_of_the_clients_than_their_mean(name: str) -> None:
    method = find("servers", name)()
    start, last = play(method, 2, model(0, dtype="float64"))
    clients, known = moved(start, seed=4), cohort(round=3)
    whole = method.step(last.state, start, clients, known)
    mean = stack([weighted_mean(clients, known.p)])
    one = Cohort(3, np.arange(1), np.array([100]), np.array([3]), np.ones(1), 7, 0.1, np.array([0.3]), validator=judged)
    if method.optimiser:
        np.testing.assert_allclose(method.step(last.state, start, mean, one).parameters, whole.parameters, atol=1e-12)
    averaging_first = {"fedadam", "fedyogi", "fedadagrad", "fedavgm", "fedswa", "fedmoswa", "diloco", "task-arithmetic"}
    assert method.optimiser == (name in averaging_first)


@pytest.mark.parametrize("name", SUMS)
def test_a_step_takes_no_second_copy_of_the_cohort(name: str) -> None:
    method, count, size = find("servers", name)(), 200, 4000
    start = Weights(layout(size=size), np.zeros(size, np.float32), {})
    clients, known = moved(start, 0, count), cohort(np.ones(count, dtype=int))
    state = method.init(start.parameters)
    tracemalloc.start()
    try:
        method.step(state, start, clients, known)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < clients.parameters.nbytes / 4


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("fedadam", {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "bias_correction": False, "v0": "zero"}),
        ("fedyogi", {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "bias_correction": False, "v0": "zero"}),
        ("fedadagrad", {"lr": 0.1, "tau": 1e-9, "v0": "zero"}),
        ("fedavgm", {"lr": 1.0, "momentum": 0.9}),
        ("fedgma", {"lr": 1.0, "tau": 0.8, "mask": "soft"}),
        ("fedswa", {"alpha": 1.5}),
        ("fedmoswa", {"alpha": 1.5}),
        ("fednova", {}),
        ("feddyn", {}),
        ("adabest", {"beta": 0.9}),
        ("fedacg", {"momentum": 0.85}),
        ("diloco", {"lr": 0.7, "momentum": 0.9}),
        ("greedy", {"split": "train"}),
        ("task-arithmetic", {"scale": 1.0}),
        ("fisher", {"split": "train", "samples": 200, "labels": "model", "floor": 1e-6}),
        ("regmean", {"split": "train", "samples": 1000, "alpha": 0.9}),
        ("ties", {"density": 0.2, "scale": 1.0, "over": "model"}),
    ],
)
def test_the_defaults_are_the_papers(name: str, defaults: dict[str, Any]) -> None:
    assert find("servers", name)().table() == {"weighting": "samples", **defaults}


def test_small_updates_of_great_weights_are_not_rounded_away() -> None:
    # In float32 numbers about 1e6 are 1/16 apart: the mean of the models would lose what the mean of the moves keeps.
    start = Weights(layout(), np.full(12, 1e6, np.float32), {})
    clients = Weights(layout(), np.stack([start.parameters + np.float32(k / 16) for k in (0, 1, 2)]), {})
    expected = (0.3 * 1 + 0.6 * 2) / 16
    np.testing.assert_allclose(weighted_update(start, clients, np.array([0.1, 0.3, 0.6])), expected, rtol=1e-14)
    np.testing.assert_allclose(mean_update(start, clients), 1 / 16, rtol=1e-14)
    lost = Weights(layout(), np.vstack([clients.parameters, np.full((1, 12), np.nan, np.float32)]), {})
    found = weighted_update(start, lost, np.array([0.1, 0.3, 0.6, 0.0]))
    assert found.tolist() == weighted_update(start, clients, np.array([0.1, 0.3, 0.6])).tolist()
