"""The training loss that a run tells is the task's, whatever terms a client method adds to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedscope.checkpoints import Run, Weights
from fedscope.evaluation.model_replica import FlatModule
from fedscope.training import Config, module_of, train
from fedscope.training.build import data_of, partition_of
from fedscope.training.local import vectorized_model, worker_model
from fedscope.training.settings.registry import find, names

pytestmark = pytest.mark.usefixtures("few_digits")

#: methods whose terms are in what they minimise; those of all others are added to the gradient
WITH_TERMS = ("moon", "fedntd", "fedfa", "fedgen")
OWN: dict[str, dict[str, Any]] = {
    "fedfa": {"calibrate_from": 1},
    "fedgen": {"generator_steps": 3, "hidden": 8, "noise": 4},
    "fedbabu": {"fine_tune_epochs": 1},
    "fedala": {"most_epochs": 3},
    "mime": {"momentum": 0.0},
    "mimelite": {"momentum": 0.0},
}


def config(client: str, *, epochs: int = 2, batch: int = 16, engine: str = "threads") -> Config:
    return Config.read(
        {
            "data": {"clients": 4},
            "model": {"hidden": [8]},
            "client": {"method": client, "epochs": epochs, "batch": batch, **OWN.get(client, {})},
            "run": {"rounds": 3, "participation": 1.0, "evaluate_clients": 0, "evaluate_every": 3, "engine": engine},
        }
    )


def loss_at(run: Run, model: Weights, client: int) -> float:
    """The mean cross entropy of a model on a client's samples, in plain torch."""
    bench = FlatModule(module_of(run))
    bench.load(model.parameters, model.buffers)
    bench.module.eval()
    rows = partition_of(run).clients[client]
    samples = data_of(run).samples("train")
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(bench.module(samples.x[rows]), samples.y[rows]))


@pytest.mark.parametrize("engine", ["threads", "cohort"])
@pytest.mark.parametrize("client", names("clients"))
def test_the_loss_of_a_single_step_is_that_of_the_start(client: str, engine: str, tmp_path: Path) -> None:
    if engine == "cohort" and not find("clients", client).vectorised:
        pytest.skip("its clients are trained one by one")
    run = train(config(client, epochs=1, batch=10_000, engine=engine), tmp_path / "run")
    for t in (1,) if client == "fedala" else run.rounds:  # whose clients begin at a mixture later
        place = run.round(t)
        for k, told in zip(place.client_ids.tolist(), place.client_loss, strict=True):
            assert told == pytest.approx(loss_at(run, place.read("start"), k), rel=1e-4), (t, k)


@pytest.mark.parametrize("engine", ["threads", "cohort"])
@pytest.mark.parametrize("client", WITH_TERMS)
def test_models_are_the_same_to_the_last_bit(
    client: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "cohort" and not find("clients", client).vectorised:
        pytest.skip("its clients are trained one by one")
    run = train(config(client, engine=engine), tmp_path / "run")

    def sum_alone(found: Any) -> tuple[Tensor, Tensor]:
        whole = found if isinstance(found, Tensor) else found[0]
        return whole, whole

    for module in (worker_model, vectorized_model):
        monkeypatch.setattr(module, "minimised_and_told", sum_alone)
    before = train(config(client, engine=engine), tmp_path / "before")
    for t in run.rounds:
        np.testing.assert_array_equal(run.round(t).clients().parameters, before.round(t).clients().parameters)
    last = run.round(3)
    assert (last.client_loss < before.round(3).client_loss).all()
    assert last.metrics["train_loss"] == float(last.weights @ last.client_loss)


def test_a_client_whose_term_is_no_number_is_told_to_have_diverged() -> None:
    loss = torch.tensor([0.5, 0.25])
    whole, told = worker_model.minimised_and_told((torch.tensor([2.0, float("inf")]), loss))
    assert told.tolist()[0] == 0.5
    assert not torch.isfinite(told[1])
    assert whole.tolist() == [2.0, float("inf")]
    assert worker_model.minimised_and_told(loss)[1] is loss
