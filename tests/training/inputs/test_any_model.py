"""Questions to a run whose last round kept no models, or those of some clients: its architecture is asked with another
round's model."""

from __future__ import annotations

import warnings
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeWarning, Run
from fedscope.reporting.missing_results import _one_evaluation
from fedscope.training.inputs.any_model import any_model

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(20, 3)).astype(np.float32), np.arange(20) % 3


def own_loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, y, reduction="none") * 2


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 3))


def recorded(path: Path, keep: str, *, start: bool = False, of: int = 3) -> Run:
    """Round t has clients 10 t, 10 t + 1, ...: a run without a server's model."""
    with fedscope.Recorder(path, data=(X, Y), keep=keep) as recorder:
        for t in range(1, of + 1):
            sent = network(100 * t) if start and t == of else None
            recorder.round(clients={k: network(10 * t + k) for k in range(4)}, start=sent)
    return Run.open(path)


def answers(module: nn.Module) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(module(torch.tensor(X[:4])).flatten())


@pytest.mark.parametrize("question", [fedscope.subsets, partial(fedscope.reaggregate, servers="fedavg")])
@pytest.mark.parametrize("task", [{}, {"task": own_loss}])
def test_a_question_about_a_round_that_kept_its_clients(tmp_path: Path, question: Any, task: dict[str, Any]) -> None:
    run = recorded(tmp_path / "run", "every:2")
    assert not run.round("last").has_clients
    assert not run.round("last").models
    found = question(run, rounds=2, model=network(0), **task)
    np.testing.assert_allclose(found.attrs["behaviour"], answers(network(20)), rtol=1e-5)
    if task:
        with torch.no_grad():
            losses = own_loss(network(20)(torch.tensor(X[:4])), torch.tensor(Y[:4]))
        np.testing.assert_allclose(found.attrs["task_behaviour"], losses, rtol=1e-5)


def test_which_model_is_taken(tmp_path: Path) -> None:
    def taken(run: Run) -> np.ndarray:
        found = any_model(run)
        assert found is not None
        return found.parameters

    def flat(seed: int) -> np.ndarray:
        return np.concatenate([np.ravel(value.detach()) for value in network(seed).parameters()])

    np.testing.assert_array_equal(taken(recorded(tmp_path / "all", "all")), flat(30))
    np.testing.assert_array_equal(taken(recorded(tmp_path / "two", "every:2")), flat(20))
    np.testing.assert_array_equal(taken(recorded(tmp_path / "start", "every:2", start=True)), flat(300))
    sample = recorded(tmp_path / "sample", "sample:2")
    np.testing.assert_array_equal(taken(sample), flat(30 + int(sample.round("last").sampled_ids[0])))
    assert any_model(recorded(tmp_path / "none", "none")) is None


def test_a_global_comes_before_clients(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedscopeWarning)  # it is no mean of them
        with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
            recorder.round(clients=[network(1), network(2)], start=network(3), global_=network(4))
    found = any_model(Run.open(tmp_path / "run"))
    assert found is not None
    np.testing.assert_array_equal(found.parameters[:9], network(4)[0].weight.detach().numpy().ravel())


@pytest.mark.parametrize("keep", ["every:2", "none"])
def test_a_reports_time_is_told_by_a_model_that_there_is(tmp_path: Path, keep: str) -> None:
    run = recorded(tmp_path / "run", keep)
    found = _one_evaluation(run, {"model": network(0)})
    assert set(found) == ({"test", "train"} if keep != "none" else set())


def test_the_scale_is_asked_of_a_model_that_there_is(tmp_path: Path) -> None:
    # right on standardised samples, and of one answer on samples as they are, which a recorded run's are taken as
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 300)
    x = (10 + 4 * y[:, None] + draw.random((300, 1))).astype(np.float32)
    np.savez(tmp_path / "d.npz", x_train=x[:100], y_train=y[:100], x_test=x[100:], y_test=y[100:])
    module = nn.Linear(1, 2)
    module.load_state_dict({"weight": torch.tensor([[0.0], [1.0]]), "bias": torch.zeros(2)})
    with fedscope.Recorder(tmp_path / "run", keep="every:2") as recorder:
        for _ in range(3):
            recorder.round(clients=[module, deepcopy(module)])
    with pytest.warns(FedscopeWarning, match=r"run@2/client-0 has an error of .* and of 0 % .*standardise=True"):
        fedscope.subsets(tmp_path / "run", rounds=2, model=module, data=f"npz:{tmp_path / 'd.npz'}")
