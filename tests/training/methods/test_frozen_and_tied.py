"""Parameters that are frozen stay, and those with several names are one, whatever the methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_memory import play
from torch import nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import FedscopeError, RoundRecord, Weights
from fedscope.evaluation.device import Compute
from fedscope.training import Config, Engine
from fedscope.training.build import initial_model, model_info
from fedscope.training.config.from_python import config_with
from fedscope.training.local.local_training import LocalTask, LocalUpdate, batches, local_sgd
from fedscope.training.local.optimisers import hidden_matrices
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import ClientMethod
from fedscope.training.models.model_info import ModelInfo
from fedscope.training.settings.registry import names

OWN: dict[str, dict[str, Any]] = {
    "ima": {"window": 2, "start": 1},
    "wima": {"window": 2},
    "swa": {"start": 2, "cycle": 2},
    "fedgen": {"generator_steps": 2, "hidden": 4, "noise": 3},
    "fedbabu": {"fine_tune_epochs": 1},
    "fedala": {"most_epochs": 2, "layers": 3},
}
#: names of one tensor each
SAME = (("m.weight", "n.weight"), ("head.weight", "layers.2.weight"), ("m.weight", "layers.0.weight"))
FROZEN = ("first.weight", "first.bias")


class Net(nn.Module):
    """A frozen first layer, two layers with one weight, and all others under a second name, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.m, self.n, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.n.weight = self.m.weight
        self.layers = nn.ModuleList([self.m, self.n, self.head])
        self.first.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        for layer in self.layers[:2]:
            x = layer(x).tanh()
        answer: torch.Tensor = self.layers[2](x)
        return answer


def net() -> Net:
    """The network, the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Net()


def settings(data: str, client: str = "sgd", server: str = "fma", average: str = "none", **own: Any) -> Config:
    return Config.read(
        {
            "data": {"clients": 3, "partition": "iid", "client_test": 0.2, "name": data},
            "run": {"rounds": 3, "participation": 0.6, "evaluate_clients": 0, "evaluate_every": 3},
            "client": {
                "method": client,
                "epochs": 2,
                "batch": 4,
                "lr": 0.05,
                "weight_decay": 0.01,
                **OWN.get(client, {}),
                **own,
            },
            "server": {"method": server},
            "average": {"method": average, **OWN.get(average, {})},
        }
    )


def models(record: RoundRecord) -> Iterator[tuple[str, Weights]]:
    """What a round made, and what its clients keep."""
    assert record.clients is not None
    for what, model in {"start": record.start, "global": record.global_, "averaged": record.averaged}.items():
        if model is not None:
            yield what, model
    kept = {name: value for name, value in record.client_state.items() if isinstance(value, Weights)}
    for what, rows in {"client": record.clients, **kept}.items():
        yield from ((what, rows.row(k)) for k in range(len(rows)))


def vectors(record: RoundRecord) -> Iterator[tuple[str, Weights]]:
    """What is kept by parameter, of clients and server."""
    assert record.clients is not None
    layout = record.clients.layout
    sent = record.state.get("sent", {})
    server = {name: value for name, value in record.state.items() if name not in ("sent", "average")}
    for name, value in {**record.client_state, **sent, **server}.items():
        if isinstance(value, np.ndarray) and value.shape[-1:] == (layout.size,):
            yield from ((name, Weights(layout, row, {})) for row in np.atleast_2d(value))


def check(records: list[RoundRecord], *, states: bool = True, frozen: Sequence[str] = FROZEN) -> None:
    first = records[0].start
    assert first is not None
    initial = first.arrays()
    moved = set()
    for record in records:
        for what, model in (*models(record), *(vectors(record) if states else ())):
            arrays = model.arrays()
            for one, two in SAME:
                assert np.array_equal(arrays[one], arrays[two]), f"{what}: {one} is not {two}"
        for what, model in models(record):
            arrays = model.arrays()
            moved |= {name for name in arrays if not np.array_equal(arrays[name], initial[name])}
            for name in frozen:
                assert np.array_equal(arrays[name], initial[name]), f"{what}: {name} was frozen"
    assert moved >= {"m.weight", "n.weight", "n.bias"}


@pytest.mark.parametrize("client", names("clients"))
def test_whatever_the_client_method(data: str, client: str) -> None:
    records = play(settings(data, client), net())
    check(records)
    if client == "fedbabu":
        assert records[-1].global_ is not None
        assert records[0].start is not None
        last, first = (model.arrays() for model in (records[-1].global_, records[0].start))
        for name in ("head.weight", "head.bias", "layers.2.weight", "layers.2.bias"):
            assert np.array_equal(last[name], first[name])


@dataclass(frozen=True)
class Random(ClientMethod):
    """A method of somebody's own, which moves all numbers alike."""

    def train(self, task: LocalTask) -> LocalUpdate:
        update = local_sgd(task, self)
        noise = np.random.default_rng(task.client).normal(size=task.start.layout.size).astype(np.float32)
        return replace(update, weights=replace(update.weights, parameters=update.weights.parameters + noise))


def test_a_method_of_ones_own_may_move_what_is_frozen_and_tied_tensors_stay_one(data: str) -> None:
    """A head that clients solve for in closed form is frozen for all other steps."""
    records = play(config_with(settings(data).tables() | {"client": {"epochs": 1}}, {"client": Random}), net())
    check(records, frozen=())
    start, global_ = records[0].start, records[-1].global_
    assert start is not None
    assert global_ is not None
    assert all(np.abs(global_.arrays()[name] - start.arrays()[name]).min() > 1e-3 for name in FROZEN)


@pytest.mark.parametrize("server", names("servers"))
def test_whatever_the_server(data: str, server: str) -> None:
    check(play(settings(data, "sgd", server), net()))


@pytest.mark.parametrize("average", names("averages"))
@pytest.mark.parametrize("server", ["fma", "fedadam"])
def test_whatever_the_average(data: str, average: str, server: str) -> None:
    check(play(settings(data, "sgd", server, average), net()))


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_whatever_the_optimiser_and_it_keeps_the_same_of_all_names(data: str, optimiser: str) -> None:
    check(play(settings(data, optimiser=optimiser, optimiser_state="kept", lr=0.001), net()))


@pytest.mark.parametrize("optimiser", ["sgd", "adamw", "Adam"])
@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_local_training_is_that_of_torch(small: Any, optimiser: str, clip: float) -> None:
    """Independent: torch's own optimisers on a copy of the module, and its clipping, which counts a tensor once."""
    module = net().double()
    module.first = nn.Linear(6, 5).double().requires_grad_(False)
    decay = 0.02
    chosen: Any = torch.optim.Adam if optimiser == "Adam" else optimiser
    momentum = {"momentum": 0.8} if optimiser == "sgd" else {}
    given = {"client": {"batch": 4, "weight_decay": decay, "clip": clip, "lr": 0.01, **momentum}}
    method = config_with(given, {"optimiser": chosen}).client
    facts = model_info(Config.read({}), module, 3)
    task = small.task(start=initial_model(module), facts=facts, bench=TrainableModel(module))
    before = deepcopy(module)
    made = method.train(task).weights.arrays()
    parameters = list(module.parameters())
    by_torch: Any = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=task.pace.lr, momentum=0.8),
        "adamw": lambda: torch.optim.AdamW(parameters, lr=task.pace.lr, weight_decay=decay),
        "Adam": lambda: torch.optim.Adam(parameters, lr=task.pace.lr),
    }[optimiser]()
    for x, y in batches(task, method):
        by_torch.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        if optimiser != "adamw":  # fedscope's clip bounds the gradient with its decay
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad += decay * parameter.detach()
        if clip:
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            length = torch.cat([g.flatten() for g in gradients]).norm()
            assert length > clip
            for g in gradients:
                g *= clip / length
        by_torch.step()
    for name, value in module.state_dict().items():
        assert np.allclose(made[name], value.numpy(), rtol=1e-9, atol=1e-12), name
    assert not np.allclose(made["m.weight"], before.m.weight.detach().numpy(), atol=1e-4)
    assert np.array_equal(made["first.weight"], before.first.weight.detach().numpy())


class Spare(nn.Module):
    """A network with a layer that forward does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.spare = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.body(x).tanh())
        return answer


@pytest.mark.parametrize("engine", ["threads", "cohort"])
@pytest.mark.parametrize(
    ("client", "optimiser"),
    [("mime", "sgd"), *((c, o) for c in ("sgd", "fedprox", "fedsam") for o in ("sgd", "adamw"))],
)
def test_parameters_without_a_gradient_stay_as_with_torch(small: Any, client: str, optimiser: str, engine: str) -> None:
    module = Spare().double()
    method = config_with(
        {"client": {"method": client, "batch": 4, "weight_decay": 0.1}},
        {} if client == "mime" else {"optimiser": optimiser},
    ).client
    facts = model_info(Config.read({}), module, 3)
    tasks = [small.task(start=initial_model(module), facts=facts, bench=None, client=k) for k in range(4)]
    work = Engine(module, Compute(workers=1), kind=engine)  # type: ignore[arg-type]
    p = np.full(4, 0.25)
    if method.surveys:
        found = work.survey(method, tasks, p)
        tasks = [replace(task, surveyed=found) for task in tasks]
    tasks = [replace(task, sent=method.begin(task.start, facts)) for task in tasks]
    made = work.train(method, tasks, p)
    before = initial_model(module).arrays()
    for name, rows in made.clients.arrays().items():
        still = name.startswith("spare")
        assert all(np.array_equal(row, before[name]) is still for row in rows), name


def test_a_run_of_it_is_resumed_bit_for_bit_and_its_models_open(tmp_path: Path, data: str) -> None:
    given = settings(data, "scaffold", "fedadam", "ima").tables()
    whole = fedscope.train(given, tmp_path / "whole", model=net)
    fedscope.train(given, tmp_path / "part", model=net, until=1)
    resumed = fedscope.resume(tmp_path / "part", code={"model": net})
    for which in ("global", "averaged", "start"):
        one, two = (run.round(3).read(which).parameters for run in (whole, resumed))
        assert np.array_equal(one, two), which


def test_a_head_is_all_names_of_its_tensors() -> None:
    module = net()
    facts = model_info(Config.read({}), module, 3)
    assert facts.head == "head"
    marked = {name for name, where in facts.layout.slices.items() if facts.head_mask()[where].all()}
    assert marked == {"head.weight", "head.bias", "layers.2.weight", "layers.2.bias"}
    assert int(facts.head_mask().sum()) == 2 * (5 * 3 + 3)


def test_muon_steps_the_name_that_the_module_computes_with() -> None:
    assert hidden_matrices(net(), "head") == {"first.weight": (5, 4), "layers.1.weight": (5, 5)}


def test_facts_settle_a_model_and_leave_one_that_is() -> None:
    module = net()
    facts = model_info(Config.read({}), module, 3)
    start = initial_model(module)
    assert facts.settled(start, start) is start
    other = replace(start, parameters=np.arange(len(start.parameters), dtype=np.float32))
    settled, given = facts.settled(other, start).arrays(), other.arrays()
    assert np.array_equal(settled["m.weight"], given["layers.1.weight"])
    assert np.array_equal(settled["first.weight"], given["first.weight"]), "no rounding: somebody has meant it"
    near = replace(start, parameters=start.parameters * np.float32(1 + 2e-7))
    assert not np.array_equal(near.arrays()["first.weight"], start.arrays()["first.weight"])
    assert np.array_equal(facts.settled(near, start).arrays()["first.weight"], start.arrays()["first.weight"])
    plain = ModelInfo(start.layout)
    assert plain.settled(other, start) is other


def test_a_network_of_which_nothing_is_trained_is_refused(tmp_path: Path, data: str) -> None:
    def still() -> nn.Module:
        return net().requires_grad_(False)

    sentence = r"trains none of its parameters \(requires_grad is False for all\); .*requires_grad_\(True\)"
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.train(settings(data).tables(), tmp_path / "run", model=still)
