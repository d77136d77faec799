"""Identities between methods over whole rounds, and what the round loop does with buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from in_memory import play
from torch import nn

from fedscope.checkpoints import RoundRecord, weighted_mean
from fedscope.training import Config, merge, preset

SMALL = {
    "data": {"clients": 6},
    "model": {"hidden": [12]},
    "client": {"epochs": 2},
    "run": {"rounds": 3, "participation": 0.5, "evaluate_clients": 0, "evaluate_every": 3},
}


def config(method: str, **sections: Any) -> Config:
    return Config.read(merge(preset(method), SMALL, sections))


def globals_(records: list[RoundRecord]) -> np.ndarray:
    return np.stack([record.global_.parameters for record in records if record.global_ is not None])


def test_fedswa_with_neither_falling_rates_nor_a_longer_step_is_fma(close: Any) -> None:
    swa = play(config("fedswa", client={"lr_floor": 1.0}, server={"alpha": 1.0}))
    # w + (mean - w) in float64 rounds once more than the mean does; training amplifies that for three rounds
    close(globals_(swa), globals_(play(config("fma"))), 1e-4)
    assert not np.allclose(globals_(play(config("fedswa"))), globals_(swa), atol=1e-3)


def test_fedmoswas_first_round_is_fedswas() -> None:
    one, other = play(config("fedmoswa", run={"rounds": 1, "evaluate_every": 1})), play(config("fedswa"))
    assert one[0].global_ is not None
    assert other[0].global_ is not None
    assert one[0].global_.parameters.tobytes() == other[0].global_.parameters.tobytes()


@pytest.mark.parametrize("server", ["fma", "fedswa", "fedmoswa", "fednova", "fedgma", "fedsa"])
def test_a_cohort_of_one_gets_its_client_back(server: str, close: Any) -> None:
    own = {"alpha": 1.0} if server in ("fedswa", "fedmoswa") else {}
    for record in play(config("fma", server={"method": server, **own}, run={"participation": 0.1})):
        assert record.clients is not None
        assert record.global_ is not None
        assert len(record.clients) == 1
        close(record.global_.parameters, record.clients.parameters[0], 1e-6)


def test_fednova_is_fma_where_all_clients_take_as_many_steps(close: Any) -> None:
    equal = {"data": {"partition": "iid", "clients": 3}, "client": {"batch": 479, "epochs": 2}}  # 3 x 479 digits
    nova, fma = play(config("fednova", **equal)), play(config("fma", **equal))
    assert len(set(nova[0].client_steps.tolist())) == 1
    close(globals_(nova), globals_(fma), 1e-4)
    unequal = {"data": {"partition": "dirichlet:0.3"}}
    assert not np.allclose(
        globals_(play(config("fednova", **unequal))), globals_(play(config("fma", **unequal))), atol=1e-4
    )


@pytest.mark.parametrize(("server", "average"), [("fedadam", "none"), ("fedavgm", "ima"), ("feddyn", "swa")])
def test_optimisers_step_parameters_and_leave_buffers_to_the_mean(server: str, average: str, close: Any) -> None:
    """Running statistics are averaged with p, counts of batches are those of the client with most samples."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))
    own = {"ima": {"start": 1, "window": 1}, "swa": {"start": 2, "cycle": 2}}.get(average, {})
    settings = config("fma", server={"method": server}, average={"method": average, **own}, client={"epochs": 1})
    records = play(settings, module)
    for record in records:
        clients, p = record.clients, record.weights
        assert clients is not None
        assert record.global_ is not None
        largest = int(record.client_samples.argmax())
        expected = weighted_mean(clients, p, integer_from=largest)
        for name, values in record.global_.buffers.items():
            np.testing.assert_array_equal(values, expected.buffers[name])
        counts = clients.buffers["2.num_batches_tracked"]
        assert record.global_.buffers["2.num_batches_tracked"] == counts[largest]
        mean = p @ clients.buffers["2.running_mean"].astype(np.float64)
        close(record.global_.buffers["2.running_mean"], mean, 1e-6)
    # FedAvgM's first step is the mean's
    assert not np.allclose(globals_(records)[-1], expected.parameters, atol=1e-6)
