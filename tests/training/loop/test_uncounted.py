"""Labels that a criterion ignores, and classes that weigh nothing: they are dealt out, trained past, and said once."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeWarning, Partition, Run
from fedscope.cli.main import run as command
from fedscope.evaluation.standard_tasks import PADDED
from fedscope.evaluation.tasks import Task
from fedscope.training import partition
from fedscope.training.local.local_training import full_gradient
from fedscope.training.local.worker_model import TrainableModel, loss_of_batch, mean_loss
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.fedala import FedALA
from fedscope.training.methods.clients.fedfa import FedFA
from fedscope.training.methods.clients.fedgen import FedGen
from fedscope.training.methods.clients.fedntd import FedNTD
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.tasks import given_task

IGNORE = "torch.nn:CrossEntropyLoss(ignore_index=-1)"
LIGHT = "torch.nn:CrossEntropyLoss(weight=[0.0,1.0,1.0])"
SMALL = {"clients": 3, "participation": 1.0, "rounds": 2, "epochs": 1, "batch": 5}
FEW = {"model.hidden": [4], "run.evaluate_clients": 0}
PLAIN = {"batch": 4, "momentum": 0.0, "weight_decay": 0.0}


def arrays(ignored: slice = slice(0, 25), tests: slice = slice(90, 102)) -> tuple[Any, Any]:
    """90 training and 30 test samples of three classes, some of which say -1."""
    y = np.arange(120) % 3
    x = (np.random.default_rng(0).normal(size=(120, 2)) + y[:, None]).astype(np.float32)
    y[ignored] = y[tests] = -1
    return (x[:90], y[:90]), (x[90:], y[90:])


def train(out: Path, task: Any, data: Any, **settings: Any) -> tuple[Run, list[str]]:
    """A run, and what was said of it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = fedscope.train(FEW, out, task=task, data=data, **{**SMALL, **settings})
    return run, [str(one.message) for one in caught if issubclass(one.category, FedscopeWarning)]


def is_trained(run: Run) -> bool:
    last = run.round(run.rounds[-1])
    return bool(np.isfinite(last.client_loss).all() and np.isfinite(last.read("global").parameters).all())


@pytest.mark.parametrize("how", ["iid", "shards:2", "dirichlet:0.3", "pathological:2"])
def test_ignored_labels_are_dealt_out_and_no_class(how: str, tmp_path: Path) -> None:
    run, said = train(tmp_path / "run", nn.CrossEntropyLoss(ignore_index=-1), arrays(), partition=how)
    assert not [one for one in said if "label" in one or "classes that occur" in one]
    assert run.info["classes"] == 3
    assert is_trained(run)
    parts = run.partition
    assert parts is not None
    assert sorted(np.concatenate(parts.clients).tolist()) == list(range(90))
    assert parts.label_counts.sum() == 65
    assert run.round(1).client_samples.sum() == 90  # they count in a client's number of samples
    found = fedscope.data(run, settings={"data": {"name": arrays()}})
    assert (found.counts == parts.label_counts).all()
    assert "; 65 samples in all, 25 more whose label is ignored" in found.summary()
    assert "nobody" not in found.summary()


def test_ignored_labels_of_the_test_split_alone_are_not_missed(tmp_path: Path) -> None:
    data = arrays(slice(0, 0))
    assert train(tmp_path / "run", nn.CrossEntropyLoss(ignore_index=-1), data, partition="iid")[1] == []


def test_a_label_that_is_not_ignored_is_still_named(tmp_path: Path) -> None:
    with pytest.raises(fedscope.FedscopeError, match="y_train contains the label -1; labels count from 0"):
        train(tmp_path / "run", nn.CrossEntropyLoss(ignore_index=-2), arrays(), partition="iid")
    with pytest.raises(fedscope.FedscopeError, match="have the label -3, but there are 3 classes"):
        partition("iid", np.array([0, 1, 2, -3]), 3, 2, seed=0)


def test_the_command_trains_with_ignored_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (x, y), (x_test, y_test) = arrays()
    np.savez("neg.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    words = [
        "train",
        "--data",
        "npz:neg.npz",
        "--task",
        IGNORE,
        "--partition",
        "iid",
        "--clients",
        "3",
        "--rounds",
        "1",
    ]
    assert command([*words, "--participation", "1", "--epochs", "1", "--out", "run"]) == 0
    said = capsys.readouterr().err
    assert "classes that occur" not in said
    assert "-100" not in said
    for words in (
        ["forgetting", "run"],
        ["matrix", "run"],
        ["decompose", "run", "--loss", "zero-one", "--draws", "none"],
    ):
        assert command([*words, "--task", IGNORE, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)


def test_a_partition_with_ignored_samples_is_read_again_and_one_that_lacks_them_is_damaged(tmp_path: Path) -> None:
    labels = np.array([0, 1, PADDED, 2, PADDED, 0])
    made = partition("iid", labels, 3, 2, seed=0)
    made.save(tmp_path / "partition.h5")
    again = Partition.load(tmp_path / "partition.h5")
    assert (again.label_counts == made.label_counts).all()
    assert again.label_counts.sum() == 4
    with h5py.File(tmp_path / "partition.h5", "a") as file:
        del file["ignored_counts"]
    with pytest.raises(fedscope.FedscopeError, match="its label_counts are not those of its clients' samples"):
        Partition.load(tmp_path / "partition.h5")
    partition("iid", np.arange(6) % 3, 3, 2, seed=0).save(tmp_path / "usual.h5")
    with h5py.File(tmp_path / "usual.h5") as file:
        assert "ignored_counts" not in file


@pytest.mark.parametrize("lr", [0.05, 1e-4])
def test_a_client_in_which_nothing_counts_is_named_once_and_trains_to_what_it_was_sent(
    lr: float, tmp_path: Path
) -> None:
    data = arrays(slice(0, 0), slice(0, 0))
    run, said = train(tmp_path / "run", LIGHT, data, partition="pathological:1", lr=lr)
    (one,) = said
    assert one.startswith(f"no sample of client 0 counts in {LIGHT}: its loss is 0 and so is its gradient;")
    assert is_trained(run)
    first = run.round(1)
    assert first.client_loss[0] == 0
    assert (first.client_loss[1:] > 0).all()


def test_batches_in_which_nothing_counts_are_no_divergence_and_are_not_told(tmp_path: Path) -> None:
    data = arrays(slice(0, 0), slice(0, 0))
    run, said = train(tmp_path / "run", LIGHT, data, partition="shards", batch=2)
    assert said == []
    assert is_trained(run)


def halves(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return outputs[:, 0] - y


class Half(Task):
    """A task of one's own with weights, of which some are 0."""

    def loss(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - y).square()

    def weights(self, y: torch.Tensor) -> torch.Tensor:
        return (y > 0).float()


TASKS = {
    "ignored": nn.CrossEntropyLoss(ignore_index=2),
    "light": nn.CrossEntropyLoss(weight=torch.tensor([0.3, 0.7, 0.0])),
    "plain": nn.CrossEntropyLoss(),
    "own": Half(),
    "function": halves,
}


@pytest.mark.parametrize("which", list(TASKS))
def test_batches_in_which_something_counts_have_the_numbers_that_they_had(which: str) -> None:
    draw = torch.Generator().manual_seed(0)
    for n in (1, 2, 3, 7, 32):
        x, labels = torch.randn(n, 4, generator=draw), torch.randint(3, (n,), generator=draw)
        labels[0] = 1  # which counts
        task, y = given_task(TASKS[which]).taken(labels.numpy())
        targets = task.check(torch.from_numpy(y), 3, "some")
        module = nn.Linear(4, 3)
        made = []
        for minimised in (False, True):
            module.zero_grad()
            outputs = module(x)
            value = loss_of_batch(task, outputs, targets) if minimised else task.reduced(outputs, targets, "mean")
            value.backward()
            assert isinstance(module.weight.grad, torch.Tensor)
            made.append((value.detach().numpy().tobytes(), module.weight.grad.numpy().tobytes()))
        assert made[0] == made[1]


@pytest.mark.parametrize("which", ["ignored", "light", "own"])
def test_a_batch_in_which_nothing_counts_has_loss_0_and_gradient_0(which: str) -> None:
    labels = np.full(5, 0 if which == "own" else 2)
    task, y = given_task(TASKS[which]).taken(labels)
    bench = TrainableModel(nn.Linear(4, 3))
    bench.g.fill_(1.0)
    value = bench.loss(mean_loss(task), torch.randn(5, 4), torch.from_numpy(y))
    assert float(value) == 0
    assert (bench.g == 0).all()
    assert np.isnan(float(task.reduced(torch.randn(5, 3), torch.from_numpy(y), "mean")))  # measured it is no number


METHODS = [SGD(**PLAIN), FedNTD(**PLAIN), FedFA(**PLAIN), FedGen(**PLAIN), FedALA(**PLAIN)]


def with_ignored(small: Any, rows: Any, **changes: Any) -> Any:
    """A client's work, of whose samples those ``rows`` have an ignored label."""
    from dataclasses import replace

    y = small.y.clone()
    y[rows] = PADDED
    task = small.task(y=y, facts=replace(small.facts, task=given_task(nn.CrossEntropyLoss())), **changes)
    learnt = given_task(nn.CrossEntropyLoss(ignore_index=-1))
    return replace(task, facts=replace(task.facts, task=learnt))


def sent_with(method: Any, small: Any) -> dict[str, Any]:
    sent = method.begin(small.start, small.facts)
    return {**sent, **({"norm.batches": np.array(1)} if "norm.batches" in sent else {})}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_no_term_of_a_method_is_of_samples_whose_label_is_ignored(small: Any, method: Any) -> None:
    rows, trained = [5, 8, 9, 14], []
    for shift in (0.0, 3.0):
        x = small.x.clone()
        x[rows] += shift
        sent = sent_with(method, small)
        trained.append(method.train(with_ignored(small, rows, x=x, sent=sent)).weights.parameters)
    assert np.isfinite(trained[0]).all()
    assert trained[0].tobytes() == trained[1].tobytes()
    assert np.abs(trained[0] - small.start.parameters).max() > 1e-3


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_methods_train_a_client_in_which_nothing_counts(small: Any, method: Any) -> None:
    task = with_ignored(small, slice(None), pace=LocalSchedule(0.1, 2), sent=sent_with(method, small))
    assert (full_gradient(task, method) == 0).all()
    update = method.train(task)
    assert np.isfinite(update.weights.parameters).all()
    assert update.loss == 0
    if isinstance(method, SGD):
        assert update.weights.parameters.tobytes() == small.start.parameters.tobytes()


def test_momentum_and_decay_go_on_where_nothing_counts(small: Any) -> None:
    method = SGD(batch=11, momentum=0.0, weight_decay=0.5)
    task = with_ignored(small, slice(None), pace=LocalSchedule(0.1, 1))
    found = method.train(task).weights.parameters
    np.testing.assert_allclose(found, small.start.parameters * (1 - 0.1 * 0.5), rtol=1e-14)  # rounding of float64


def test_the_trial_before_training_looks_at_samples_that_count(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x)  # type: ignore[no-any-return]

    run, _ = train_net(tmp_path / "run", Net)
    assert is_trained(run)


def train_net(out: Path, net: type[nn.Module]) -> tuple[Run, list[str]]:
    """The first 12 test samples are ignored."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task = nn.CrossEntropyLoss(ignore_index=-1)
        run = fedscope.train(out=out, model=net, task=task, data=arrays(), partition="iid", **SMALL)
    return run, [str(one.message) for one in caught]


def test_data_without_a_label_that_counts_are_refused_by_what_ignores_them(tmp_path: Path) -> None:
    with pytest.raises(fedscope.FedscopeError, match=r"no label that counts, as torch.nn:CrossEntropyLoss\(ignore_in"):
        train(tmp_path / "run", nn.CrossEntropyLoss(ignore_index=-1), arrays(slice(0, 90)), partition="iid")
