"""Clients trained in one pass: to rounding the same numbers as one by one, for every method that can; the same bits
each time; and a fixed rule for who is trained so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_memory import contents
from torch import nn

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout, Run
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.standard_tasks import TASKS
from fedscope.training import Config, branch, build_module, load_data, resume, train
from fedscope.training.build import initial_model
from fedscope.training.local.engine import TOGETHER, group_by_samples
from fedscope.training.local.engine_choice import engine_of
from fedscope.training.local.local_training import LocalTask, LocalUpdate, full_gradient, local_sgd
from fedscope.training.local.vectorized_model import VectorizedModel, why_not_vectorised
from fedscope.training.local.vectorized_training import VectorizedTask
from fedscope.training.local.worker_model import MeanLoss, TrainableModel
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.settings.registry import find, names

#: what draws noise, or moves what it keeps, inside its loss
ALONE = {"fedfa", "fedgen"}
#: settings that let a method differ from SGD, or take other paths through its code
OWN: dict[str, dict[str, Any]] = {
    "fedbabu": {"fine_tune_epochs": 1},
    "fedala": {"most_epochs": 3},
    "mime": {"clip": 0.5, "optimiser": "adam", "momentum": 0.0, "lr": 0.002},
    "mimelite": {"momentum": 0.0},
}


def config(client: str = "sgd", /, **sections: Any) -> Config:
    """Clients of 20 to some 200 samples, so that batches and numbers of steps differ."""
    tables: dict[str, dict[str, Any]] = {
        "data": {"clients": 8, "partition": "dirichlet:0.3"},
        "model": {"hidden": [8]},
        "client": {"method": client, "epochs": 2, "batch": 16, "lr": 0.05, "clip": 2.0, **OWN.get(client, {})},
        "run": {"rounds": 3, "participation": 0.75, "evaluate_clients": 0, "evaluate_every": 3, "engine": "cohort"},
    }
    for section, own in sections.items():
        tables[section] = {key: value for key, value in {**tables.get(section, {}), **own}.items() if value is not None}
    return Config.read(tables)


def one_by_one(made: Config) -> Config:
    return replace(made, run=replace(made.run, engine="threads"))


def test_every_method_but_two_takes_several_clients() -> None:
    assert {name for name in names("clients") if not find("clients", name).vectorised} == ALONE


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize("client", sorted(set(names("clients")) - ALONE))
def test_engines_agree(client: str, tmp_path: Path, close: Callable[[Any, Any, float], None]) -> None:
    """Models, and what clients and the server keep, after rounds in which clients come back: to rounding in float32,
    which a few dozen steps of a small rate carry on about evenly."""
    together, alone = config(client), one_by_one(config(client))
    runs = [train(made, tmp_path / made.run.engine) for made in (together, alone)]
    assert [run.info["engine"] for run in runs] == ["cohort", "threads"]
    assert set(map(int, runs[0].round(1).client_ids)) & set(map(int, runs[0].round(2).client_ids)), "a client returns"
    for t in runs[0].rounds:
        ours, theirs = (run.round(t) for run in runs)
        start = theirs.read("start").parameters
        for mine, other in zip(ours.clients().parameters, theirs.clients().parameters, strict=True):
            close(mine, other, 1e-5)
            # where a client hardly moves its model says nothing: 1e-7 of the model, over the least step of all methods
            close(mine - start, other - start, 3e-4)
        close(ours.client_loss, theirs.client_loss, 1e-5)
    one, other = (arrays(run.path / "rounds/00003.h5") for run in runs)
    assert one.keys() == other.keys()
    for name in one.keys() - {"metrics/seconds"}:
        # what is kept may be a difference of models over a rate of 0.05, which is as much less exact
        close(one[name], other[name], 1e-3)


def arrays(path: Path) -> dict[str, np.ndarray]:
    """The numbers of a round's file, by place."""
    found: dict[str, np.ndarray] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
            found[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(take)
    assert any("client" in name for name in found)
    return found


@dataclass
class Ragged:
    """Clients of given sizes in float64, trained in one pass and one by one."""

    small: Any
    sizes: list[int]

    def tasks(self, **changes: Any) -> list[LocalTask]:
        ends = np.cumsum(self.sizes)
        return [
            self.small.task(client=k, indices=np.arange(end - n, end), **changes)
            for k, (n, end) in enumerate(zip(self.sizes, ends, strict=True))
        ]

    def together(self, work: Callable[[Any], Any], **changes: Any) -> Any:
        task = VectorizedTask.of(self.tasks(**changes))
        return work(replace(task, bench=VectorizedModel(self.small.module, len(self.sizes))))

    def alone(self, work: Callable[[Any], Any], **changes: Any) -> list[Any]:
        return [work(task) for task in self.tasks(**changes)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is not changed
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    batch=st.integers(1, 10),
    momentum=st.sampled_from([0.0, 0.9]),
    clip=st.sampled_from([0.0, 0.3]),
    falls=st.booleans(),
)
def test_any_sizes_give_each_client_its_own_training(
    small: Any, sizes: list[int], batch: int, momentum: float, clip: float, falls: bool
) -> None:
    method = SGD(batch=batch, momentum=momentum, clip=clip, weight_decay=0.01)

    def work(task: Any) -> LocalUpdate:
        # not a number where k is beyond a client's own steps
        rate = (lambda k, steps: 0.1 * (1 - k / steps) ** 0.5) if falls else None
        return local_sgd(task, method, rate=rate, correct=lambda w, g: g.add_(w, alpha=0.1))

    ragged = Ragged(small, sizes)
    found, expected = ragged.together(work), ragged.alone(work)
    for k, one in enumerate(expected):
        np.testing.assert_allclose(found.weights.parameters[k], one.weights.parameters, rtol=1e-11, atol=1e-13)
        numbers = [found.samples[k, 0], found.steps[k, 0], found.loss[k], found.reach[k, 0]]
        np.testing.assert_allclose(numbers, [one.samples, one.steps, one.loss, one.reach], rtol=1e-12)
    gradients = ragged.together(lambda task: full_gradient(task, method))
    for k, gradient in enumerate(ragged.alone(lambda task: full_gradient(task, method))):
        np.testing.assert_allclose(gradients[k], gradient, rtol=1e-11, atol=1e-13)


def test_augmentation_and_other_losses_are_each_clients_own(small: Any) -> None:
    images, layers = torch.randn(40, 1, 6, 6, dtype=torch.float64), [nn.Flatten(), nn.Linear(36, 3)]
    module = nn.Sequential(*layers).double()
    facts = replace(small.facts, layout=Layout.of(module))
    ragged = Ragged(replace(small, module=module, x=images, start=initial_model(module), facts=facts), [7, 3, 11])
    method = SGD(batch=4)

    def harder(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return module(x).square().mean() + nn.functional.cross_entropy(module(x), y) / len(y)

    for augment in ("none", "crop-flip"):
        for objective in (None, harder):

            def work(task: Any, objective: Any = objective) -> Any:
                return local_sgd(task, method, objective=objective).weights.parameters

            bench = TrainableModel(module)
            found = ragged.together(work, augment=augment)
            expected = ragged.alone(work, augment=augment, bench=bench)
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_mean_over_some_samples_is_the_mean_of_those(name: str) -> None:
    task = TASKS[name]
    outputs, y = {
        "classification": (torch.randn(4, 3), torch.tensor([0, 2, 1, 1])),
        "sequence-classification": (torch.randn(4, 3), torch.tensor([0, 2, 1, 1])),
        "regression": (torch.randn(4, 2), torch.randn(4, 2)),
        "sequences": (torch.randn(4, 3, 5), torch.tensor([[0, 4, -100], [1, 1, 1], [2, -100, -100], [3, 0, 1]])),
    }[name]
    objective = MeanLoss(task)
    real = torch.tensor([1.0, 0.0, 1.0, 0.0])
    picked = real.bool()
    found = objective.masked(nn.Identity(), outputs, y, real)
    torch.testing.assert_close(found, objective(nn.Identity(), outputs[picked], y[picked]))
    assert objective.masked(nn.Identity(), outputs, y, 0 * real) == 0


@pytest.mark.parametrize("clients", [12, TOGETHER + 8])
def test_bits_are_the_same_each_time_and_with_any_number_of_workers(clients: int, tmp_path: Path) -> None:
    made = config("scaffold", data={"clients": clients, "partition": "iid"}, run={"participation": 1.0})
    runs = [train(made, tmp_path / f"{k}", workers=workers) for k, workers in enumerate((1, 2, 2, 3, 8))]
    assert_alike(runs)


def test_exponentials_are_rounded_alike_with_any_number_of_workers(tmp_path: Path) -> None:
    # several threads of torch's would split the functions of a pass over all clients, and round some numbers otherwise
    made = Config.read({"run": {"rounds": 2, "evaluate_clients": 0}, "client": {"method": "moon"}})
    assert_alike([train(made, tmp_path / f"{workers}", workers=workers) for workers in (1, 2)])


def assert_alike(runs: list[Run]) -> None:
    for run in runs[1:]:
        for t in run.rounds:
            assert contents(run.path / f"rounds/{t:05d}.h5") == contents(runs[0].path / f"rounds/{t:05d}.h5")


def test_a_resumed_run_and_a_replay_keep_the_engine(tmp_path: Path) -> None:
    from fedscope.decomposition.draws.replay import Replayer

    straight = train(config("scaffold"), tmp_path / "straight")
    waited = resume(train(config("scaffold"), tmp_path / "waited", until=1).path)
    for t in straight.rounds:
        assert contents(waited.path / f"rounds/{t:05d}.h5") == contents(straight.path / f"rounds/{t:05d}.h5")
    again = Replayer.of(straight).replay(straight.round(2), 1)
    np.testing.assert_array_equal(again.parameters, straight.round(2).clients().parameters)


def test_a_branch_keeps_its_parents_engine_where_the_method_can(tmp_path: Path) -> None:
    parent = train(config(), tmp_path / "parent")
    engines = {}
    for method in ("scaffold", "fedgen"):
        made = branch(parent, 2, {"client": {"method": method}}, tmp_path / method)
        engines[method] = made.info["engine"]
    assert engines == {"scaffold": "cohort", "fedgen": "threads"}
    alone = train(one_by_one(config()), tmp_path / "alone")
    assert branch(alone, 2, {"client": {"method": "scaffold"}}, tmp_path / "on").info["engine"] == "threads"


def engine(tmp_path: Path, made: Config) -> str:
    return str(train(made, tmp_path / "run", until=1).info["engine"])


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, "cohort"),
        ({"run": {"participation": 0.85, "engine": "auto"}}, "threads"),  # seven clients
        ({"client": {"method": "fedfa"}}, "threads"),
        ({"model": {"name": "cnn", "hidden": None}}, "threads"),
        ({"model": {"hidden": [400]}}, "threads"),  # 30,010 parameters
        ({"model": {"hidden": [399]}}, "cohort"),
    ],
)
def test_auto_is_a_fixed_rule(sections: dict[str, dict[str, Any]], expected: str, tmp_path: Path) -> None:
    tables = {"run": {"engine": "auto", "participation": 1.0}, **sections}
    assert engine(tmp_path, config(**tables)) == expected


@pytest.mark.parametrize(
    ("device", "classes", "expected"),
    [("cuda", 10, "cohort"), ("cuda:1", 10, "cohort"), ("cuda", 2_000, "device"), ("xpu", 10, "device")],
)
def test_auto_on_an_accelerator_is_what_was_measured_there(device: str, classes: int, expected: str) -> None:
    # the CNN that was measured has 772,682 parameters with 10 outputs, and 1,029,392 with 2,000
    data = load_data("digits")
    made = config(model={"name": "cnn", "hidden": None}, run={"engine": "auto", "participation": 1.0})
    made = replace(made, run=replace(made.run, device=device), data=replace(made.data, clients=8))
    module = build_module(made.model.architecture, (3, 32, 32), classes, seed=0)
    images = replace(
        data, x_train=np.random.default_rng(0).normal(size=(4, 3, 32, 32)).astype(np.float32), y_train=data.y_train[:4]
    )
    assert engine_of(made, module, images) == expected


def test_a_method_that_cannot_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"in one pass, which client\.method = 'fedgen' cannot; give config={'run'"):
        train(config("fedgen"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_that_cannot_falls_back_and_it_is_said_where_it_was_asked_for() -> None:
    data = load_data("digits")
    made = config(model={"name": "resnet18", "hidden": None}, run={"device": "cpu"})
    module = build_module(made.model.architecture, data.shape, data.classes, seed=0)
    with pytest.warns(FedscopeWarning, match=r"cannot train resnet18 .* because its BatchNorm keeps .*threads"):
        assert engine_of(made, module, data) == "threads"
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        assert engine_of(replace(made, run=replace(made.run, engine="auto")), module, data) == "threads"


def test_without_memory_for_several_clients_they_are_trained_one_by_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = train(one_by_one(config("scaffold")), tmp_path / "expected")

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    alone = VectorizedModel.loss
    monkeypatch.setattr(VectorizedModel, "loss", lambda own, *args: (full if len(own.w) > 2 else alone)(own, *args))
    with pytest.warns(
        FedscopeWarning, match=r"cpu ran out of memory with 6 clients at a time; they are trained"
    ) as told:
        made = train(config("scaffold"), tmp_path / "made")
    assert len(told) == 1, "said once, not each round"
    for t in made.rounds:
        assert contents(made.path / f"rounds/{t:05d}.h5") == contents(expected.path / f"rounds/{t:05d}.h5")
    monkeypatch.setattr(TrainableModel, "loss", full)
    with pytest.raises(FedscopeError, match=r"cpu has no memory left to train client \d+ in round 1; give a smaller"):
        train(one_by_one(config()), tmp_path / "none")


class Mixing(nn.Module):
    """Takes the batch's mean off: what fills up a batch would count."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


class Deciding(nn.Module):
    """Goes another way for other values, which one pass for several models cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layer(x)
        return outputs if float(outputs.detach().sum()) > 0 else -outputs


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Linear(4, 3), ""),
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "its BatchNorm keeps statistics for each client"),
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1)), "its dropout draws masks for each client"),
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)), ""),
        (nn.Sequential(nn.Linear(4, 3), nn.GroupNorm(1, 3)), ""),
        (nn.Sequential(nn.Linear(4, 3), nn.InstanceNorm1d(3, track_running_stats=True)), "it holds more than its"),
        (nn.Sequential(Mixing(), nn.Linear(4, 3)), "its gradient differs by"),  # one sample has the other's in it
        (Deciding(), "torch cannot vectorise it ("),
        (nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3)), "some of its parameters are frozen"),
        (nn.Sequential(shared := nn.Linear(4, 4), shared), "two of its layers share a parameter"),
    ],
)
def test_what_keeps_a_model_from_one_pass_is_said(module: nn.Module, why: str) -> None:
    samples = Samples(torch.randn(3, 4), torch.tensor([0, 1, 2]), 3, "x", "train", np.arange(3))
    found = why_not_vectorised(module, samples)
    assert found.startswith(why)
    assert bool(found) == bool(why)


class Batchwise(nn.Module):
    """Answers otherwise where inputs are those of several clients."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layer(x) * (2 if torch._C._functorch.is_batchedtensor(x) else 1)
        return outputs


def test_a_method_with_functions_of_its_own_says_itself_whether_it_can() -> None:
    class Own(SGD):
        def rate(self, lr: float) -> float:
            return lr

    class Said(SGD):
        vectorised = True

        def rate(self, lr: float) -> float:
            return lr

    assert (SGD.vectorised, Own.vectorised, Said.vectorised) == (True, False, True)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=80))
def test_groups_hold_every_client_once_and_waste_less_than_half(samples: list[int]) -> None:
    groups = group_by_samples(samples)
    assert sorted(k for group in groups for k in group) == list(range(len(samples)))
    for group in groups:
        own = [samples[k] for k in group]
        assert len(own) <= TOGETHER
        assert len(own) * max(own) <= 2 * sum(own)
        assert own == sorted(own, reverse=True)


def test_a_gradient_that_is_another_in_one_pass_is_noticed() -> None:
    samples = Samples(torch.randn(3, 4), torch.tensor([0, 1, 2]), 3, "x", "train", np.arange(3))
    assert "its gradient differs by" in why_not_vectorised(Batchwise(), samples)
