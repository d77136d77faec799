"""Of which tasks the cross-entropy and the 0-1 loss are decomposed: never under the name of another loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_models import Table
from torch import Tensor, nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.cli.main import run as command
from fedscope.decomposition import CohortDraws
from fedscope.decomposition.factors.cross_entropy import decompose_loss
from fedscope.decomposition.forgetting.accuracy import count_answers
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.tasks import Task
from fedscope.training.data.membership import membership_labels
from fedscope.training.tasks import given_task

WEIGHT = torch.tensor([1.0, 2.0, 30.0])
NOTHING: dict[str, Any] = {"globals_": None, "averaged": None, "population": False}


class Heavy(Task):
    """Of the user's own: a class counts more."""

    has_classes = True

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, y, reduction="none")

    def error(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.argmax(1) != y).float()

    def weights(self, y: Tensor) -> Tensor:
        return torch.where(y == 2, 30.0, 1.0)


class Named(fedscope.evaluation.standard_tasks.Classification):
    """Of the user's own in name alone."""


def asked(criterion: Any, loss: str, *, ignored: bool = False) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Return a decomposition, and of what: logits [R, K, n, C], p [K] and labels [n]."""
    rng = np.random.default_rng(3)
    tables = rng.normal(scale=2, size=(2, 3, 40, 3)).astype(np.float32)
    y, p = rng.integers(0, 3, 40), np.array([0.5, 0.3, 0.2])
    if ignored:
        y[::3] = -100
    module = Table(40, 3)
    draws = [Weights(Layout.of(module), table.reshape(3, 120), {}) for table in tables]
    cohort = CohortDraws(1, np.arange(3), p, draws, np.ones(3, np.int64), "local:2", independent=True)
    task, targets = given_task(criterion).taken(y)
    x = torch.arange(40, dtype=torch.float32)[:, None]
    samples = Samples(x, torch.as_tensor(targets), 3, "toy", "train", np.arange(40), task=task)
    found = decompose_loss(module, samples, cohort, loss=loss, **NOTHING)  # type: ignore[arg-type]
    return found, tables, p, y


@pytest.mark.parametrize(
    ("criterion", "name"),
    [
        (nn.CrossEntropyLoss(weight=WEIGHT), r"torch\.nn:CrossEntropyLoss\(weight=\[1, 2, 30\]\)"),
        (nn.CrossEntropyLoss(label_smoothing=0.3), r"torch\.nn:CrossEntropyLoss\(label_smoothing=0\.3\)"),
        (Heavy(), ".*Heavy"),
    ],
)
def test_the_cross_entropy_of_another_task_is_refused(criterion: Any, name: str) -> None:
    remedy = "classification" if isinstance(criterion, Heavy) else r"torch\.nn:CrossEntropyLoss"
    with pytest.raises(
        FedscopeError,
        match=r"^a decomposition of the cross-entropy loss is of the plain cross-entropy of samples that count alike, "
        rf"and toy train is measured with the task {name}, whose loss is another; give --task {remedy}$",
    ):
        asked(criterion, "cross-entropy")


def test_the_zero_one_loss_is_refused_where_errors_are_other_ones() -> None:
    with pytest.raises(FedscopeError, match=r"^a decomposition of the zero-one loss is of right and wrong answers"):
        asked(Heavy(), "zero-one")


@pytest.mark.parametrize("criterion", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(ignore_index=-100), Named()])
def test_labels_that_are_ignored_do_not_count(criterion: Any) -> None:
    ignored = not isinstance(criterion, Named)
    found, tables, p, y = asked(criterion, "cross-entropy", ignored=ignored)
    there = y != -100
    logs = torch.from_numpy(tables).double()
    # torch takes classes second: [R K, C, n]
    each = functional.cross_entropy(
        logs.flatten(0, 1).movedim(2, 1), torch.from_numpy(y).expand(6, 40), reduction="none", ignore_index=-100
    ).reshape(2, 3, 40)[:, :, there]
    assert found.samples == there.sum()
    expected = float((torch.from_numpy(p) @ each.mean(0)).mean())
    assert found.row("client_loss").value == pytest.approx(expected, rel=1e-12)
    assert found.row("closure_error").value < 1e-12


@pytest.mark.parametrize("criterion", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.1)])
def test_errors_are_those_of_the_samples_that_count_and_know_no_weights(criterion: Any) -> None:
    found, tables, p, y = asked(criterion, "zero-one", ignored=True)
    there = y != -100
    wrong = (tables.argmax(3) != y)[:, :, there]
    assert found.row("client_loss").value == pytest.approx(float((p @ wrong.mean(0)).mean()), rel=1e-12)


class Turned(nn.Module):
    """Logits [n, V, L] of tokens, as torch's criterion takes them, or [n, L, V]."""

    def __init__(self, *, second: bool) -> None:
        super().__init__()
        self.table, self.second = nn.Embedding(4, 4), second

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.table(x)
        return out.transpose(1, 2) if self.second else out


def letters(task: Any) -> Samples:
    rng = np.random.default_rng(4)
    x, y = rng.integers(0, 4, (30, 7)), rng.integers(0, 4, (30, 7))
    y[::2, 3:] = -100
    known, targets = given_task(task).taken(y)
    return Samples(torch.from_numpy(x), torch.as_tensor(targets), 4, "text", "train", np.arange(30), task=known)


@pytest.mark.parametrize("loss", ["cross-entropy", "zero-one"])
def test_positions_count_alike_whichever_axis_has_the_classes(loss: Any) -> None:
    def found(task: Any, *, second: bool) -> Any:
        module, rng = Turned(second=second), np.random.default_rng(5)
        draws = [Weights(Layout.of(module), rng.normal(size=(2, 16)).astype(np.float32), {}) for _ in range(2)]
        cohort = CohortDraws(1, np.arange(2), np.ones(2) / 2, draws, np.ones(2, np.int64), "local:2", independent=True)
        return decompose_loss(module, letters(task), cohort, loss=loss, **NOTHING)

    expected = found("sequences", second=False)
    for second in (False, True):
        same = found(nn.CrossEntropyLoss(), second=second)
        assert same.samples == expected.samples
        assert [row.value for row in same.rows] == [row.value for row in expected.rows]
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2, 3, 4]))
    if loss == "cross-entropy":
        with pytest.raises(FedscopeError, match=r"give --task torch\.nn:CrossEntropyLoss$"):
            found(weighted, second=True)
    else:  # errors know no weights
        assert [row.value for row in found(weighted, second=True).rows] == [row.value for row in expected.rows]


@pytest.mark.parametrize("weight", [0.01, 1.0, 50.0])
def test_the_positions_that_similarity_draws_know_no_weights(weight: float) -> None:
    """Fewer were drawn, from the beginning alone, or more than there are."""
    torch.manual_seed(0)
    nets = [Turned(second=False) for _ in range(2)]
    known = letters("sequences")
    data = known.x.numpy(), known.y.numpy()
    criterion = nn.CrossEntropyLoss(weight=torch.full((4,), weight))
    plain, own = (fedscope.cka(nets, data=data, task=task, batch=20) for task in ("sequences", criterion))
    assert np.array_equal(plain.cka, own.cka)
    assert np.array_equal(plain.cka_stderr, own.cka_stderr)


@pytest.mark.parametrize("classes", [3, 120])
def test_a_label_that_is_ignored_is_nobodys_and_of_no_class(classes: int) -> None:
    """With enough classes -100 names one of them, counted from the end."""
    counts = np.zeros((2, classes), np.int64)
    counts[0, 0] = counts[1, 1] = counts[0, -100 % classes] = 4
    y = np.array([0, -100, 1, 1])
    members = membership_labels(counts, np.arange(2), y)
    assert members is not None
    assert members.astype(int).tolist() == [[1, 0, 0, 0], [0, 0, 1, 1]]
    module = Table(4, classes)
    rows = Weights(Layout.of(module), np.zeros((2, 4 * classes), np.float32), {})
    x = torch.arange(4, dtype=torch.float32)[:, None]
    task = given_task(nn.CrossEntropyLoss()).taken(y)[0]
    samples = Samples(x, torch.from_numpy(y), classes, "toy", "test", np.arange(4), task=task)
    found = count_answers(module, samples, rows.row(0), rows, members, number=1, client_ids=np.arange(2), labels=counts)
    assert found.own[:, :2].tolist() == [[1, 0], [0, 2]]
    assert found.others[:, :2].tolist() == [[0, 2], [1, 0]]
    assert found.own.sum() + found.others.sum() == 2 * 3


def test_a_result_that_an_earlier_version_made_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And so is the run, before it is replayed; its bare criterion is what can be asked for."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 3, 60)
    np.savez("own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    criterion = "torch.nn:CrossEntropyLoss(weight=[1.0, 2.0, 30.0])"
    words = ["--clients", "2", "--participation", "1", "--rounds", "1", "--partition", "iid", "--out", "run"]
    assert command(["train", "--task", criterion, "--data", "npz:own.npz", "--model", "mlp", *words]) == 0
    asked = ["decompose", "run", "--loss", "cross-entropy", "--draws", "none", "--task"]
    with pytest.MonkeyPatch.context() as before:  # as it was
        before.setattr("fedscope.decomposition.factors.tasks.refuse_other_task", lambda *_: None)
        before.setattr("fedscope.decomposition.factors.cross_entropy.refuse_other_task", lambda *_: None)
        assert command([*asked, criterion, "--out", "kept"]) == 0
    capsys.readouterr()
    for more in ([], ["--draws", "local:2", "--out", "other"]):
        assert command([*asked, criterion, "--out", "kept", *more]) == 2
        assert capsys.readouterr().err.rstrip().endswith("whose loss is another; give --task torch.nn:CrossEntropyLoss")
    assert command([*asked, "torch.nn:CrossEntropyLoss", "--out", "bare"]) == 0
    found, wrong = fedscope.load("bare"), fedscope.load("kept")
    assert found.runs[0].rounds[0].row("fma_loss") == wrong.runs[0].rounds[0].row("fma_loss")
    assert (wrong.attrs["task"], found.attrs["task"]) == (
        "torch.nn:CrossEntropyLoss(weight=[1.0, 2.0, 30.0])",
        "classification",
    )
