"""FedSAM against a loop in plain torch; what its two passes must leave alone; and the ε of both kinds as formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from local_loops import followed_uphill

from fedscope.decomposition.draws.replay import Replayer
from fedscope.training import Config, branch, config_of, resume, train
from fedscope.training.build import initial_model
from fedscope.training.local.worker_model import TrainableModel, mean_loss
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.fedsam import FedSAM
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.methods.shared.sharpness_aware import adaptive_ascent, ascent, sharp_gradient


@pytest.mark.parametrize("decay", ["apart", "within"])
@pytest.mark.parametrize("clip", [0.0, 0.2])
@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.05)])
def test_steps_follow_the_gradient_uphill(
    small: Any, momentum: float, weight_decay: float, clip: float, decay: str, close: Any
) -> None:
    settings: dict[str, Any] = {"batch": 4, "momentum": momentum, "weight_decay": weight_decay, "clip": clip}
    method = FedSAM(sam_rho=0.5, sam_decay=decay, **settings)
    task = small.task()
    losses: list[float] = []

    def epsilon(theta: np.ndarray, g: np.ndarray) -> Any:
        return 0.5 * g / np.linalg.norm(g)

    update = method.train(task)
    close(update.weights.parameters, followed_uphill(task, method, epsilon, losses=losses), 1e-11)
    assert update.loss == pytest.approx(np.mean(losses), abs=1e-12)
    plain = SGD(**settings).train(task).weights.parameters
    assert np.abs(update.weights.parameters - plain).max() > 1e-3
    other = FedSAM(sam_rho=0.5, sam_decay="within" if decay == "apart" else "apart", **settings)
    apart = np.abs(update.weights.parameters - other.train(task).weights.parameters).max()
    assert apart > 1e-3 if weight_decay else apart == 0


def test_weight_decay_has_no_part_in_how_far_uphill_the_gradient_is_taken(small: Any, close: Any) -> None:
    """One step: what decay adds is −η λ θ, whatever λ is, and clipping leaves it alone."""
    task = small.task(pace=LocalSchedule(0.1, 1), indices=np.arange(5, 9))
    for clip in (0.0, 0.2):
        one, other = (
            FedSAM(sam_rho=0.5, clip=clip, weight_decay=decay, batch=4).train(task).weights.parameters
            for decay in (0.0, 3.0)
        )
        close(other - one, -0.1 * 3.0 * small.start.parameters, 1e-13)


def test_as_rho_goes_to_0_it_is_sgd(small: Any, close: Any) -> None:
    tiny, plain = (method.train(small.task()).weights.parameters for method in (FedSAM(sam_rho=1e-10), SGD()))
    close(tiny, plain, 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_model_comes_back_bit_for_bit_and_g_is_the_second_gradient_alone(small: Any, dtype: torch.dtype) -> None:
    module = small.module.to(dtype)
    bench, x, y = TrainableModel(module), small.x.to(dtype), small.y
    bench.load(small.start.parameters, {})
    # A step that float rounding would not undo by subtraction.
    gradient = sharp_gradient(bench, mean_loss(small.facts.task), 0.01, ascent(3.7))
    before = bench.w.clone()
    gradient(x, y)
    once = bench.g.clone()
    assert bench.w.numpy().tobytes() == before.numpy().tobytes()
    # If the first pass's gradient were left in g, or the second's, this would add up.
    gradient(x, y)
    assert bench.g.numpy().tobytes() == once.numpy().tobytes()


def test_a_gradient_of_0_moves_nothing_and_gives_no_nan(small: Any) -> None:
    bench = TrainableModel(small.module)
    bench.load(small.start.parameters, {})
    for epsilon in (ascent(0.05), adaptive_ascent(0.7, 0.2, torch.ones(bench.w.numel(), dtype=torch.bool))):
        loss = sharp_gradient(bench, lambda module, x, y: 0 * module(x).sum(), 0.0, epsilon)(small.x, small.y)
        assert loss == 0
        assert not bench.g.any()


def test_running_statistics_take_in_the_pass_at_theta_alone(small: Any, close: Any) -> None:
    layers = torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)
    module = torch.nn.Sequential(*layers).double()
    task = small.task(start=initial_model(module), bench=TrainableModel(module), pace=LocalSchedule(0.1, 1))
    buffers = {
        type(method): method.train(task).weights.buffers for method in (SGD(batch=11), FedSAM(sam_rho=2.0, batch=11))
    }
    assert buffers[FedSAM]["1.num_batches_tracked"] == 1
    for name, values in buffers[SGD].items():
        assert buffers[FedSAM][name].tobytes() == values.tobytes()
    features = layers[0](small.x[5:16]).detach()
    close(buffers[FedSAM]["1.running_mean"], 0.1 * features.mean(0), 1e-12)


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8),
    st.floats(1e-3, 10),
    st.floats(0, 1),
    st.integers(0, 8),
)
def test_epsilon_has_length_rho_in_its_own_measure(values: list[float], rho: float, eta: float, biases: int) -> None:
    g = torch.tensor(values, dtype=torch.float64)
    w = torch.linspace(-2, 3, len(values), dtype=torch.float64)
    weights = torch.arange(len(values)) >= biases
    scale = torch.where(weights, w.abs() + eta, torch.ones_like(w))
    plain, adaptive = ascent(rho)(w, g), adaptive_ascent(rho, eta, weights)(w, g)
    for epsilon, direction in ((plain, g), (adaptive / scale, scale * g)):
        if direction.norm() > 1e-9 and (scale > 0).all():
            assert float(epsilon.norm()) == pytest.approx(rho, rel=1e-9)
            assert float(epsilon @ direction) == pytest.approx(rho * float(direction.norm()), rel=1e-9)
    assert torch.isfinite(plain).all()
    assert torch.isfinite(adaptive).all()
    assert float(plain.norm()) <= rho * (1 + 1e-9)


def test_a_run_recorded_before_weight_decay_stood_apart_goes_on_as_it_was(tmp_path: Path, stop_after: Any) -> None:
    """Resumed, branched from and replayed without the setting in its files: as with ``sam_decay = "within"``."""
    within = Config.read(
        {
            "data": {"clients": 6},
            "model": {"hidden": [4]},
            "client": {"method": "fedsam", "sam_decay": "within", "sam_rho": 0.5, "weight_decay": 0.05, "epochs": 1},
            "run": {"rounds": 3, "participation": 0.4, "evaluate_clients": 0, "evaluate_every": 3},
        }
    )
    whole = train(within, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(within, tmp_path / "old", watcher=stop_after(2))
    file = tmp_path / "old" / "config.toml"
    info = json.loads((tmp_path / "old/run.json").read_text())
    (tmp_path / "old/run.json").write_text(json.dumps({**info, "files": {}}))  # no fedscope wrote them then
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "sam_decay" not in line))
    old = resume(tmp_path / "old")
    assert "sam_decay" not in file.read_text()
    last = whole.round(3).clients().parameters
    assert old.round(3).clients().parameters.tobytes() == last.tobytes()
    assert Replayer.of(old).replay(old.round(3), 1).parameters.tobytes() == last.tobytes()
    branched = branch(old, 2, {}, tmp_path / "branch")
    assert branched.round(3).clients().parameters.tobytes() == last.tobytes()
    assert config_of(branched).client.table()["sam_decay"] == "within"
    apart = branch(old, 2, {"client": {"sam_decay": "apart"}}, tmp_path / "apart")
    assert apart.round(3).clients().parameters.tobytes() != last.tobytes()
