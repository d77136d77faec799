"""Labels as other programs give them: a column, one-hot rows, names; each way that labels come in."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError
from fedscope.evaluation.standard_tasks import TASKS
from fedscope.evaluation.tasks import Task
from fedscope.training import load_data
from fedscope.training.data.custom import taken_data

RNG = np.random.default_rng(0)
X = RNG.random((40, 5)).astype(np.float32)
Y = np.arange(40) % 3
COLUMN, ONE_HOT, NAMES = Y[:, None], np.eye(3)[Y], np.array(["cat", "dog", "eel"])[Y]
TOKENS = RNG.integers(0, 9, (40, 6))


def of_file(y: np.ndarray, here: Path) -> Any:
    np.savez(here / "own.npz", x_train=X, y_train=y, x_test=X, y_test=y)
    return load_data(f"npz:{here}/own.npz")


def of_test_file(y: np.ndarray, here: Path) -> Any:
    np.savez(here / "own.npz", x_test=X, y_test=y)
    return load_data(f"npz:{here}/own.npz")


def of_function(y: np.ndarray, here: Path) -> Any:
    np.save(here / "y.npy", y)
    (here / "mysets.py").write_text("import numpy as np\ndef load(): return np.load('x.npy'), np.load('y.npy')\n")
    np.save(here / "x.npy", X)
    return load_data("mysets:load")


def of_tensors(y: np.ndarray, here: Path) -> Any:
    return taken_data(TensorDataset(torch.from_numpy(X), torch.from_numpy(y)))


def of_loader(y: np.ndarray, here: Path) -> Any:
    return taken_data(DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(y)), batch_size=7))


WAYS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "file": of_file,
    "test samples of a file": of_test_file,
    "function": of_function,
    "arrays": lambda y, here: taken_data(((X, y), (X, y))),
    "mapping": lambda y, here: taken_data({"x_test": X, "y_test": y}),
    "dataset": of_tensors,
    "loader": of_loader,
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("mysets", None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
@pytest.mark.filterwarnings("ignore:.*has no training samples to standardise by")
def test_a_column_of_labels_is_a_class_a_sample(way: str, dtype: str, here: Path) -> None:
    data = WAYS[way](COLUMN.astype(dtype), here)
    assert data.y_test.dtype == np.int64
    assert data.y_test.tolist() == Y.tolist()
    assert data.classes == 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8"])
@pytest.mark.filterwarnings("ignore:.*has no training samples to standardise by")
def test_one_hot_rows_are_told_their_remedy(way: str, dtype: str, here: Path) -> None:
    with pytest.raises(FedscopeError, match=r"labels are whole numbers, \[N\]; of one-hot rows give y\.argmax\(1\)$"):
        WAYS[way](ONE_HOT.astype(dtype), here)
    assert WAYS[way](ONE_HOT.astype(dtype).argmax(1), here).y_test.tolist() == Y.tolist()


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("dataset", "loader")])
@pytest.mark.filterwarnings("ignore:.*has no training samples to standardise by")
def test_names_are_told_their_remedy(way: str, here: Path) -> None:
    remedy = r"number the classes, alike in both splits: np\.unique\(y, return_inverse=True\)\[1\] of all labels$"
    with pytest.raises(FedscopeError, match=remedy):
        WAYS[way](NAMES, here)
    assert WAYS[way](np.unique(NAMES, return_inverse=True)[1], here).y_test.tolist() == Y.tolist()


@pytest.mark.parametrize("names", [list(NAMES), NAMES.tolist(), NAMES.astype(object)])
def test_names_in_a_list_are_told_the_same(names: Any) -> None:
    with pytest.raises(FedscopeError, match=r"names of classes; number the classes, alike in both splits: np\.unique"):
        taken_data((X, names))
    items = [(x, name) for x, name in zip(X, NAMES.tolist(), strict=True)]

    class Named:
        def __len__(self) -> int:
            return len(items)

        def __getitem__(self, i: int) -> Any:
            return items[i]

    with pytest.raises(FedscopeError, match=r"y of item 0 is a str, names of classes; give the number of its class"):
        taken_data(Named())


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (
            COLUMN.astype(np.float32),
            r"labels are whole numbers, \[N\]; give y\[:, 0\] if these are labels \(numbers are",
        ),
        (X[:, :1], r"give y\[:, 0\] if these are labels \(numbers are of --task regression\)$"),
        (X[:, :2], r"labels are whole numbers, \[N\] \(numbers are of --task regression\)$"),
        (TOKENS, r"labels are whole numbers, \[N\] \(classes at positions are of --task sequences\)$"),
    ],
)
def test_other_targets_are_told_their_task(y: np.ndarray, said: str) -> None:
    with pytest.raises(FedscopeError, match=said):
        taken_data((X, y))


class Own(Task):
    """Takes a column as it is."""

    def loss(self, outputs: Any, y: Any) -> Any:
        return (outputs - y).square().mean(dim=1)


@pytest.mark.parametrize("task", [TASKS["regression"], TASKS["sequences"], Own()], ids=lambda task: task.name)
def test_tasks_without_classes_keep_a_column(task: Task, here: Path) -> None:
    assert taken_data(((X, COLUMN), (X, COLUMN)), task).y_train.shape == (40, 1)
    np.savez(here / "own.npz", x_train=X, y_train=COLUMN, x_test=X, y_test=COLUMN)
    assert load_data(f"npz:{here}/own.npz", task).y_test.shape == (40, 1)


def test_classes_of_texts_may_be_a_column() -> None:
    data = taken_data((TOKENS, COLUMN), TASKS["sequence-classification"])
    assert (data.y_test.tolist(), data.x_test.dtype) == (Y.tolist(), np.int64)


def test_a_criterion_of_torch_keeps_positions_of_length_one() -> None:
    from fedscope.evaluation.criteria import task_of_criterion

    task = task_of_criterion(torch.nn.CrossEntropyLoss())
    assert task is not None
    assert taken_data((TOKENS, COLUMN), task).y_test.shape == (40, 1)
    assert taken_data((X, ONE_HOT.astype(np.float32)), task).y_test.shape == (40, 3)


def test_a_data_set_that_is_handed_over_may_have_a_column() -> None:
    from dataclasses import replace

    data = replace(taken_data(((X, Y), (X, Y))), y_train=COLUMN, y_test=COLUMN)
    assert taken_data(data).y_train.tolist() == Y.tolist()
    assert taken_data(data, TASKS["regression"]).y_train.shape == (40, 1)


def test_a_run_of_a_column_is_that_of_its_labels(tmp_path: Path) -> None:
    few: dict[str, Any] = {"clients": 2, "rounds": 1, "epochs": 1, "method": "fma", "participation": 1}
    one, other = (
        fedscope.train(data=((X, y), (X, y)), out=tmp_path / name, **few) for name, y in (("a", COLUMN), ("b", Y))
    )
    for name in ("test_error", "test_loss"):
        assert one.numbers(1)[name] == other.numbers(1)[name]


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(5, 3)


def recorded(folder: Path, y: np.ndarray, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Recorder(folder, partition={0: range(20), 1: range(20, 40)}, **given) as recorder:
            recorder.round(clients=[net(), net()], global_=net())
    return fedscope.Run.open(folder)


def test_a_recorder_counts_and_questions_measure_a_column(tmp_path: Path) -> None:
    for name, given in (
        ("data", {"data": ((X, COLUMN), (X, COLUMN))}),
        ("labels", {"data": ((X, Y), (X, Y)), "labels": COLUMN}),
        ("both", {"data": ((X, COLUMN), (X, COLUMN)), "labels": Y}),
    ):
        run = recorded(tmp_path / name, COLUMN, **given)
        assert run.partition is not None
        assert run.partition.label_counts.tolist() == [[7, 7, 6], [7, 6, 7]]
        found = fedscope.matrix(run, model=net(), rounds="last")
        assert "error" in found.summary()


def test_a_recorder_tells_what_are_no_labels(tmp_path: Path) -> None:
    for labels, said in (
        (ONE_HOT, r"give one whole number from 0 a sample \(labels\.argmax\(1\) of one-hot rows\)$"),
        (NAMES, r"from 0 a sample \(number the classes, alike in both splits: np\.unique"),
        (NAMES.tolist(), r"from 0 a sample \(number the classes, alike in both splits: np\.unique"),
    ):
        with pytest.raises(FedscopeError, match=said):
            Recorder(tmp_path / "run", data="digits", labels=labels, partition={0: [0]})
    with (
        pytest.warns(fedscope.checkpoints.FedscopeWarning),
        pytest.raises(FedscopeError, match=r"one-hot rows, \[40, 3\], .*; give labels=y_train\.argmax\(1\)$"),
    ):
        Recorder(tmp_path / "run", data=((X, ONE_HOT), (X, ONE_HOT)), partition={0: [0]})


def test_masked_arrays_are_refused_for_what_they_hide() -> None:
    x = np.ma.masked_greater(np.array([[0.5], [1e6], [0.25]]), 10)
    said = (
        r"x_test that is a masked array that hides 1 of its 3 values, .* give x\.filled\(VALUE\) with a value of yours"
    )
    with pytest.raises(FedscopeError, match=said):
        taken_data((x, [0, 1, 0]))
    for hidden in (y := np.ma.masked_equal([0, 1, 0], 1), list(y)):
        with pytest.raises(FedscopeError, match=r"y_test that is a masked array that hides 1 of its 3 values"):
            taken_data((x.filled(0), hidden))
    with pytest.raises(FedscopeError, match=said):
        taken_data((list(x), [0, 1, 0]))
    assert taken_data((x.filled(0), [0, 1, 0])).x_test.ravel().tolist() == [0.5, 0.0, 0.25]
    assert taken_data((np.ma.array([[0.5], [1.0]]), [0, 1])).x_test.ravel().tolist() == [0.5, 1.0], "nothing is hidden"
