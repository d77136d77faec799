"""The greedy soup against a loop that is written by hand, on models that are measured by torch."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, Layout, TensorEntry, Weights, weighted_mean
from fedscope.decomposition.reaggregation.aggregate import reaggregate
from fedscope.decomposition.reaggregation.requested_servers import reaggregating_config
from fedscope.training import Config, module_of, train
from fedscope.training.methods.base import Cohort
from fedscope.training.methods.servers.greedy import Greedy

LAYOUT = Layout(
    (TensorEntry("w", (2,), "float64", "parameter"), TensorEntry("running_mean", (1,), "float64", "buffer"))
)


def models(rows: Any) -> Weights:
    parameters = np.asarray(rows, np.float64)
    return Weights(LAYOUT, parameters, {"running_mean": parameters[:, :1] + 5})


def cohort(judge: Any, p: Any) -> Cohort:
    n = len(p)
    return Cohort(1, np.arange(n) + 3, np.arange(n) + 1, np.ones(n, np.int64), np.asarray(p, float), validator=judge)


def step(rows: Any, judge: Any, p: Any = None) -> Any:
    clients = models(rows)
    return Greedy().step(
        {}, clients.row(0), clients, cohort(judge, np.full(len(rows), 1 / len(rows)) if p is None else p)
    )


def by_loss(f: Any) -> Any:
    """A judge of a task without errors."""
    return lambda models: (np.array([f(row) for row in models.parameters]), np.full(len(models), np.nan))


def by_hand(rows: np.ndarray, p: np.ndarray, quality: Any) -> list[int]:
    """Whom a loop takes that makes every mean anew."""
    order = sorted(range(len(rows)), key=lambda k: (quality(rows[k]), k))
    taken: list[int] = []
    for k in order:
        tried = [*taken, k]
        mean = np.average(rows[tried], axis=0, weights=p[tried])
        if not taken or quality(mean) <= quality(np.average(rows[taken], axis=0, weights=p[taken])):
            taken = tried
    return taken


@settings(max_examples=40)
@given(seed=st.integers(0, 2**16), count=st.integers(1, 7))
def test_it_is_the_loop_by_hand(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    rows, p = rng.normal(size=(count, 2)), rng.integers(1, 9, count).astype(float)
    p /= p.sum()

    def quality(w: np.ndarray) -> float:
        return float(np.sum((w - [0.3, -0.1]) ** 2))

    taken = by_hand(rows, p, quality)
    served = step(rows, by_loss(quality), p)
    expected = np.zeros(count)
    expected[taken] = p[taken] / p[taken].sum()
    np.testing.assert_allclose(served.p, expected, rtol=1e-12)
    np.testing.assert_allclose(served.parameters, expected @ rows, rtol=1e-9, atol=1e-12)


def test_what_makes_the_mean_worse_stays_out_and_what_leaves_it_as_it_is_comes_in() -> None:
    # 1 and -1 cancel: the mean is 0, the best there is; 9 is no help
    loss = by_loss(lambda w: float(abs(w[0])))
    np.testing.assert_allclose(step([[1, 0], [-1, 0], [9, 0]], loss).p, [0.5, 0.5, 0])
    # no greater is enough
    flat = by_loss(lambda w: 0.5)
    np.testing.assert_allclose(step([[1, 0], [2, 0], [3, 0]], flat).p, [1 / 3] * 3)


def test_errors_come_before_losses_and_losses_decide_between_equal_errors() -> None:
    def judge(models: Weights) -> Any:
        x = models.parameters[:, 0]
        return np.abs(x - 3), np.where(x > 3.5, 0.25, 0.0)

    # 4 has the least loss beside 2, but a greater error; 2 and then 1: their mean 1.5 has the error of 2, but more loss
    served = step([[4, 0], [2, 0], [1, 0]], judge)
    np.testing.assert_allclose(served.p, [0.5, 0.5, 0])  # the mean of 2 and 4 has the error 0 and the loss 0


def test_the_mean_is_measured_with_its_buffers() -> None:
    seen = []

    def judge(models: Weights) -> Any:
        seen.append(models.buffers["running_mean"].copy())
        return models.parameters[:, 0], np.full(len(models), np.nan)

    step([[1, 0], [2, 0]], judge, [0.25, 0.75])
    np.testing.assert_allclose(seen[1], [[0.25 * 6 + 0.75 * 7]])


def test_the_soup_is_the_weighted_mean_of_its_clients_bit_for_bit() -> None:
    rows = np.random.default_rng(3).normal(size=(5, 2))
    served = step(rows, by_loss(lambda w: float(np.sum(w**2))), np.full(5, 0.2))
    assert served.parameters.tobytes() == weighted_mean(models(rows), served.p).parameters.tobytes()


def test_a_client_that_has_diverged_is_left_out_and_order_does_not_matter() -> None:
    loss = by_loss(lambda w: float(np.sum(w**2)))
    rows = np.array([[1.0, 2.0], [np.nan, 0.0], [-1.0, 1.5], [np.inf, 1.0]])
    served = step(rows, loss)
    np.testing.assert_allclose(served.p, [0.5, 0, 0.5, 0])
    np.testing.assert_allclose(served.parameters, [0.0, 1.75])
    for order in permutations(range(4)):
        np.testing.assert_allclose(step(rows[list(order)], loss).parameters, [0.0, 1.75])
    alone = step([[np.nan, 0.0], [np.nan, 1.0]], loss)
    assert np.isnan(alone.parameters[0])  # somebody has to be it
    np.testing.assert_allclose(alone.p, [1, 0])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    config = {
        "data": {"clients": 6, "partition": "pathological:2", "client_test": 0.2},
        "model": {"hidden": [8]},
        "client": {"epochs": 1},
        "server": {"method": "greedy", "samples": 300},
        "run": {"rounds": 3, "participation": 0.7, "evaluate_clients": 0, "seed": 5},
    }
    return train(Config.read(config), tmp_path_factory.mktemp("runs") / "greedy")


def test_a_run_is_trained_with_it_and_says_how_many_clients_it_took(run: Any) -> None:
    sizes = []
    for number in run.rounds:
        round_ = run.round(number)
        rows, end = round_.clients().parameters.astype(float), round_.read("global").parameters.astype(float)
        # global is a mean of some of the clients: p is what solves for it
        p = np.linalg.lstsq(rows.T, end, rcond=None)[0]
        taken = np.flatnonzero(p > 1e-3)
        np.testing.assert_allclose(
            p[taken], round_.client_samples[taken] / round_.client_samples[taken].sum(), rtol=1e-4
        )
        sizes.append(len(taken))
        assert round_.metrics["soup_clients"] == len(taken)
    assert any(size < 4 for size in sizes)  # else it would be FMA
    np.testing.assert_array_equal(run.metrics()["soup_clients"], sizes)


def test_samples_that_clients_test_on_are_no_training_samples(run: Any) -> None:
    """The judge's samples are those that clients train on, 300 of them."""
    from fedscope.evaluation.device import CPU
    from fedscope.training import data_of
    from fedscope.training.build import config_of
    from fedscope.training.loop.server import validator_of

    config, data, round_ = config_of(run), data_of(run), run.round(2)
    held = np.concatenate(run.partition.clients)
    own = data.samples("train")
    kept = np.isin(own.indices, held)
    assert 300 < kept.sum() < len(own)
    judge = validator_of(config.server, data, module_of(run), run.partition, 5, CPU)
    assert judge is not None
    losses, errors = judge(round_.clients())
    # the same by torch, on the stratified subset of the held samples
    from dataclasses import replace

    rows = np.flatnonzero(kept)
    samples = replace(own, x=own.x[rows], y=own.y[rows], indices=rows).limit(300, 5)
    assert np.isin(samples.indices, held).all()
    module = module_of(run)
    for k, loss in enumerate(losses):
        arrays = round_.clients().row(k).arrays()
        module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in arrays.items()})
        with torch.inference_mode():
            outputs = module(samples.x[:])
        np.testing.assert_allclose(loss, torch.nn.functional.cross_entropy(outputs, samples.y).item(), rtol=1e-4)
        np.testing.assert_allclose(errors[k], (outputs.argmax(1) != samples.y).double().mean().item(), atol=1e-9)


def test_re_aggregated_it_names_whom_it_took(run: Any) -> None:
    (made,) = reaggregate(run, 3, [reaggregating_config(run, 3, "greedy", {"split": "test", "samples": None})])
    assert made.members is not None
    assert set(made.members) <= set(run.round(3).client_ids.tolist())
    (plain,) = reaggregate(run, 3, [reaggregating_config(run, 3, "fma")])
    assert plain.members is None


def test_a_split_without_samples_is_named(tmp_path: Path) -> None:
    from fedscope.checkpoints import Partition
    from fedscope.evaluation.device import CPU
    from fedscope.training.build import load_data
    from fedscope.training.data.dataset import Dataset
    from fedscope.training.loop.server import validator_of

    x = np.zeros((3, 4), np.float32)
    np.savez(tmp_path / "tests.npz", x_test=x, y_test=np.arange(3))
    data: Dataset = load_data(f"npz:{tmp_path}/tests.npz")
    nobody: Partition | None = None
    with pytest.raises(FedscopeError) as raised:
        validator_of(Greedy(), data, torch.nn.Linear(4, 3), nobody, 0, CPU)
    assert "--server greedy compares models on the train split, but" in str(raised.value)
    assert "has no train samples; give --set server.split=test" in str(raised.value)


def test_a_run_that_chooses_on_its_test_data_says_so(tmp_path: Path) -> None:
    from fedscope.checkpoints import FedscopeWarning

    config = {
        "data": {"clients": 3},
        "model": {"hidden": [4]},
        "client": {"epochs": 1},
        "server": {"method": "greedy", "split": "test"},
        "run": {"rounds": 1, "evaluate_clients": 0},
    }
    with pytest.warns(
        FedscopeWarning, match="server='greedy' chooses on the test split, on which the run's models are"
    ):
        train(Config.read(config), tmp_path / "run")
