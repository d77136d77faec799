"""Training on a device is the processor's: every method, average and model, bit for bit where arithmetic is the same.

On the pretend device values come from the processor's kernels, with one thread here as in a worker there. So what
differs is the product's fault, but for the few layers that torch computes in another way on any device, see `OTHER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from few import few

from fedscope.checkpoints import Layout, Run, Weights
from fedscope.evaluation.device import Compute
from fedscope.evaluation.model_replica import channels_last
from fedscope.evaluation.standard_tasks import TASKS
from fedscope.training import Config, merge, train
from fedscope.training.build import build_module, initial_model
from fedscope.training.local.local_training import LocalTask, local_sgd
from fedscope.training.local.vectorized_training import VectorizedTask
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo, find_head
from fedscope.training.settings.own_code import OwnCode
from fedscope.training.settings.registry import find, names

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("few_digits")]

#: batches of 20, 20 and the rest; the second round, of the same clients, is the first in which methods have states,
#: companions and corrections
SMALL: dict[str, Any] = {
    "data": {"clients": 5, "partition": "iid"},
    "client": {"epochs": 1, "batch": 20},
    "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 0, "engine": "auto"},
}
ENGINES = "device", "cohort"


def trained(tables: dict[str, Any], out: Path, device: str) -> Run:
    tables = merge(SMALL, {} if "model" in tables else {"model": {"hidden": [8]}}, tables, {"run": {"device": device}})
    return train(Config.read(tables), out / device.partition(":")[0])


def both(tables: dict[str, Any], out: Path, device: str) -> tuple[Run, Run]:
    """The processor's run and the device's, by the same engine: ``device`` is one client after the other, as
    ``threads``."""
    alone = tables.get("run", {}).get("engine", "device") == "device"
    here = merge(tables, {"run": {"engine": "threads"}}) if alone else tables
    return trained(here, out, "cpu"), trained(
        merge(tables, {"run": {"engine": "device"}}) if alone else tables, out, device
    )


def numbers(run: Run) -> Iterator[tuple[str, np.ndarray]]:
    """All that a run's rounds hold, by name."""

    def of(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
        if isinstance(value, Weights):
            yield name, value.parameters
            yield from ((f"{name}.{key}", np.asarray(buffer)) for key, buffer in value.buffers.items())
        else:
            yield name, np.asarray(value)

    for number in run.rounds:
        own = run.round(number)
        for which in own.models:
            yield from of(f"{number}: {which}", own.read(which))
        yield from of(f"{number}: clients", own.clients())
        for name in own.client_states:
            yield from of(f"{number}: {name}", own.client_state(name))


def same(one: Run, other: Run) -> None:
    pairs = list(zip(numbers(one), numbers(other), strict=True))
    assert pairs
    for (name, expected), (found_name, found) in pairs:
        assert name == found_name
        assert found.dtype == expected.dtype, name
        assert found.tobytes() == expected.tobytes(), name
    losses = [np.asarray(run.metrics()["train_loss"], float) for run in (one, other)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-12)


def settings(section: str, method: str) -> dict[str, Any]:
    """A method and the settings with which it does something in a few rounds."""
    return {"method": method, **find(f"{section}s", method).check_with}


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many clients were trained in one pass, pass by pass."""
    seen: list[int] = []
    sgd = VectorizedTask.sgd

    def counted(task: VectorizedTask, *given: Any) -> Any:
        seen.append(len(task.members))
        return sgd(task, *given)

    monkeypatch.setattr(VectorizedTask, "sgd", counted)
    return seen


CLIENTS = [(name, "device") for name in names("clients")] + [
    (name, "cohort") for name in names("clients") if find("clients", name)().takes_several
]


@pytest.mark.parametrize(("method", "engine"), CLIENTS)
def test_client_methods(method: str, engine: str, pretend: str, tmp_path: Path, passes: list[int]) -> None:
    same(*both({"client": settings("client", method), "run": {"engine": engine}}, tmp_path, pretend))
    assert bool(passes) == (engine == "cohort")


@pytest.mark.parametrize("method", names("servers"))
def test_server_methods(method: str, pretend: str, tmp_path: Path) -> None:
    same(*both({"server": settings("server", method)}, tmp_path, pretend))


@pytest.mark.parametrize("method", names("averages"))
def test_averages(method: str, pretend: str, tmp_path: Path) -> None:
    tables = {"average": settings("average", method), "run": {"rounds": 5}, "record": {"globals": "all"}}
    same(*both(tables, tmp_path, pretend))


CNN: dict[str, Any] = {"model": {"name": "cnn", "hidden": [16], "channels": 4}}
AUGMENTED = merge(CNN, {"data": {"augment": "crop-flip"}})
SETTINGS: dict[str, dict[str, Any]] = {
    "clip": {"client": {"clip": 0.5}},
    "momentum": {"client": {"momentum": 0.9, "weight_decay": 0.01}},
    "adamw": {"client": {"optimiser": "adamw", "lr": 0.001, "optimiser_state": "kept"}},
    "muon": {"client": {"optimiser": "muon", "lr": 0.001}},
    "own": {
        "client": {
            "optimiser": OwnCode.of("torch.optim:Adam", torch.optim.Adam),
            "lr": 0.001,
            "optimiser_state": "kept",
        }
    },
    "bf16": {"run": {"precision": "bf16"}},
    "cnn": CNN,
    "cnn in bf16": merge(CNN, {"run": {"precision": "bf16"}}),
    "augment": AUGMENTED,
    "augment, clip, adamw": merge(AUGMENTED, {"client": {"clip": 0.5, "optimiser": "adamw", "lr": 0.001}}),
    "dropout": {"model": {"name": "cnn-femnist"}},
    "dropout and augment": {"model": {"name": "cnn-femnist"}, "data": {"augment": "crop-flip"}},
}
#: one client at a time
ALONE = "muon", "own", "dropout", "dropout and augment"
#: as shares of what a round changes. Where several convolutions are one, a processor computes them in float32 for all
#: that torch is told, and a device in bf16, 0.4 % of a product
LOOSE = {("cnn in bf16", "cohort"): 0.1}
WAYS = [(name, engine) for name in SETTINGS for engine in ENGINES if engine == "device" or name not in ALONE]


@pytest.mark.parametrize(("name", "engine"), WAYS)
def test_settings(
    name: str, engine: str, pretend: str, tmp_path: Path, passes: list[int], close: Callable[[Any, Any, float], None]
) -> None:
    one, other = both(merge(SETTINGS[name], {"run": {"engine": engine}}), tmp_path, pretend)
    if share := LOOSE.get((name, engine)):
        start = one.round(1).read("start").parameters
        close(*(run.round(1).read("global").parameters - start for run in (other, one)), share)
    else:
        same(one, other)
    assert bool(passes) == (engine == "cohort")


#: images, or sequences, as small as a model takes them
SHAPES = {
    "alexnet-gn": (3, 63, 63),
    "mobilenetv2-gn": (3, 32, 32),
    "vgg11-gn": (3, 32, 32),
    "gru": (5,),
    "lstm": (5,),
    "mlp": (1, 8, 8),
    "cnn-femnist": (1, 8, 8),
}
WIDTHS: dict[str, Any] = {"alexnet-gn": {"hidden": [32, 16]}, "cnn-gn": {"hidden": [64]}}
#: what torch computes otherwise on any device: GroupNorm and LayerNorm are made of other operators, or lie otherwise in
#: memory, when they are differentiated; recurrent layers go a cell at a time; attention takes another form. Rounding
#: differs there, 6e-8 of a term, by some hundred terms
OTHER = "alexnet-gn", "cnn-gn", "gru", "lstm", "mobilenetv2-gn", "resnet18-gn", "resnet20-gn", "vgg11-gn", "vit-b16"
#: of the length of a gradient, and of what four steps change: there a ReLU's sign may differ, which rounding decides
GRADIENT, STEPS = 1e-6, 1e-4
#: more than five seconds each
LONG = "resnet34", "vit-b16"


def work(name: str, device: str) -> LocalTask:
    """A client of eight samples of noise."""
    shape, draws = SHAPES.get(name, (3, 16, 16)), torch.Generator().manual_seed(0)
    task = TASKS["sequences" if len(shape) == 1 else "classification"]
    tables = {"model": {"name": name, **WIDTHS.get(name, {}), **({"task": task.name} if len(shape) == 1 else {})}}
    module = build_module(Config.read(tables).model.architecture, shape, 10)
    if len(shape) == 1:
        x, y = (torch.randint(0, 10, (8, *shape), generator=draws) for _ in range(2))
    else:
        x = channels_last(torch.randn(8, *shape, generator=draws))
        y = torch.randint(0, 10, (8,), generator=draws)
    facts = ModelInfo(Layout.of(module), classes=10, head=find_head(module), task=task)
    start, pace = initial_model(module), LocalSchedule(0.01, 2)
    made = LocalTask(1, 1, x.to(device), y.to(device), np.arange(8), start, pace, 0, facts)
    return replace(made, bench=TrainableModel(module, Compute(device)))


@pytest.mark.parametrize("name", few(names("models"), lambda name: name not in LONG))
def test_models(name: str, pretend: str, close: Callable[[Any, Any, float], None]) -> None:
    gradients, changes = [], []
    for device in ("cpu", pretend):
        task = work(name, device)
        bench = task.place
        bench.begin(task)
        bench.loss(task.objective, task.x[:4], task.y[:4])
        gradients.append(bench.g.cpu().numpy().copy())
        changes.append(local_sgd(task, SGD(batch=4)).weights.parameters - task.start.parameters)
    assert np.abs(gradients[0]).max() > 0
    assert np.abs(changes[0]).max() > 0
    if name in OTHER:
        close(gradients[1], gradients[0], GRADIENT)
        close(changes[1], changes[0], STEPS)
    else:
        assert gradients[1].tobytes() == gradients[0].tobytes()
        assert changes[1].tobytes() == changes[0].tobytes()


def test_rounds_with_group_norm(pretend: str, tmp_path: Path, close: Callable[[Any, Any, float], None]) -> None:
    # three batches a round of a model whose single gradients agree to 1e-7: each step carries the difference on, and
    # where rounding decides the sign of a ReLU or which pixel is the greatest, a whole term comes or goes
    tables = {"model": {"name": "cnn-gn", "hidden": [64]}, "data": {"augment": "crop-flip"}}
    one, other = both(tables, tmp_path, pretend)
    start = one.round(1).read("start").parameters
    expected, found = (run.round(2).read("global").parameters - start for run in (one, other))
    close(found, expected, 0.01)
