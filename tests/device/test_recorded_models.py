"""What is measured of a run's recorded models on the pretend accelerator: distances between them, their dispersion."""

from __future__ import annotations

import gc
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from device.pretend import limit, loaded, watch
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout, RoundRecord, Run, TensorEntry, Weights, write_round
from fedscope.decomposition.dispersion.dispersion import disperse_round
from fedscope.decomposition.dispersion.statistics import column_moments
from fedscope.decomposition.embedding.gram import Gram, gram
from fedscope.evaluation.device import Compute
from fedscope.evaluation.model_replica import FlatModule
from fedscope.evaluation.rename_module import rename_as_recorded

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("limited")]

LAYOUT = Layout(
    (
        TensorEntry("conv.weight", (7, 3, 20), "float32", "parameter"),
        TensorEntry("head.weight", (50, 90), "float32", "parameter"),
    )
)
CLIENTS = 9


@pytest.fixture
def device(pretend: str) -> Compute:
    """The one of the two that was asked for."""
    return Compute(os.environ["FEDSCOPE_DEVICE"])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two rounds of clients near each other, and far from the round before."""
    draw = np.random.default_rng(0)
    rounds = tmp_path / "run" / "rounds"
    rounds.mkdir(parents=True)
    (rounds.parent / "run.json").write_text(
        json.dumps({"format": "fedscope-run", "version": 1, "layout": LAYOUT.to_json()}), encoding="utf-8"
    )
    for number in (1, 2):
        start = 10.0 * draw.normal(size=LAYOUT.size)
        rows = (start + 0.01 * draw.normal(size=(CLIENTS, LAYOUT.size))).astype(np.float32)
        models = [Weights(LAYOUT, values.astype(np.float32), {}) for values in (start, rows, rows.mean(axis=0))]
        one = np.ones(CLIENTS)
        record = RoundRecord(number, *models, None, np.arange(CLIENTS), one, one, one, one / CLIENTS)
        write_round(rounds / f"{number:05d}.h5", record)
    return Run.open(rounds.parent)


def products(run: Run, compute: Compute | None = None) -> Gram:
    return gram([(run, 1), (run, 2)], **({} if compute is None else {"compute": compute}))


def test_rows_travel_in_their_own_type(run: Run, device: Compute) -> None:
    with watch("fedscope") as seen:
        found = products(run, device)
    np.testing.assert_allclose(found.matrix, products(run).matrix, rtol=1e-12, atol=1e-9)
    sent = sum(size for (kind, _, _), size in seen.size.items() if kind == "to device")
    # clients of two rounds, two global models and the model that all are taken from, 4 bytes a number
    assert sent == (2 * CLIENTS + 3) * 4 * LAYOUT.size


def test_distances_without_memory_are_refused_in_a_sentence(run: Run, device: Compute) -> None:
    expected, said = products(run).matrix, []
    for room in (64, 2_000, 50_000, 200_000, 700_000, 2_000_000, 8_000_000, 60_000_000):
        gc.collect()
        limit(loaded().held() + room)
        try:
            np.testing.assert_allclose(products(run, device).matrix, expected, rtol=1e-12, atol=1e-9)
            said.append("")
        except FedscopeError as error:
            said.append(str(error))
        limit(None)
    assert all(not words or "has no memory left to multiply 20 models; free some of it" in words for words in said)
    assert said[0]
    assert not said[-1]


def test_moments_take_a_few_columns_at_a_time(device: Compute) -> None:
    values = np.random.default_rng(0).standard_normal((8, 500_000)).astype(np.float32)
    gc.collect()
    loaded().reset_greatest()
    before = loaded().held()
    found, expected = column_moments(values, device.device), column_moments(values)
    np.testing.assert_allclose(found.kurtosis, expected.kurtosis, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-12)
    # in one piece it is five copies of 8 bytes a number, here four means and three copies of a quarter
    assert loaded().greatest() - before < 2 * 8 * values.size


def test_without_float64_the_processor_sums(run: Run, without_float64: str) -> None:
    compute = Compute(without_float64)
    assert np.array_equal(products(run, compute).matrix, products(run).matrix)
    one = run.round(2)
    assert disperse_round(one, run="r", compute=compute) == disperse_round(one, run="r")


def test_a_network_whose_run_has_other_names_is_put_on_the_device(device: Compute) -> None:
    """Its layers, which share a weight, are found by their own names."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    net[2].weight = net[0].weight
    entries = [replace(one, name=f"model.{one.name}") for one in Layout.of(net).entries]
    there = FlatModule(rename_as_recorded(net, Layout(tuple(entries))), device)
    assert there.module.get_submodule("0").weight is there.module.get_submodule("2").weight
    values = np.arange(there.layout.size, dtype=np.float32) / 10
    there.load(values, {})
    arrays = Weights(there.layout, values, {}).arrays()
    net.load_state_dict({name.removeprefix("model."): torch.from_numpy(one.copy()) for name, one in arrays.items()})
    x = torch.ones(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(there.module(x.to(there.device)).cpu(), net(x))
