"""Losses of different tasks in a table: they do not compare, and only a cross-entropy is in nats."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedscope
from fedscope import FedscopeError
from fedscope.training import Comparison, table

SMALL = {"data": {"clients": 4, "partition": "iid"}, "run": {"rounds": 1, "participation": 1.0}}
SMOOTH = "torch.nn:CrossEntropyLoss(label_smoothing=0.5)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of each of three tasks, and another method."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        one = {**SMALL, "run": {**SMALL["run"], "seed": seed}}
        fedscope.train(one, folder / f"fma-{seed}", method="fma")
        fedscope.train(one, folder / f"prox-{seed}", method="fedprox")
        fedscope.train(one, folder / f"smooth-{seed}", method="fedprox", task=SMOOTH)
    return folder


def of(folder: Path, *names: str, **asked: object) -> Comparison:
    runs = [folder / f"{name}-{seed}" for name in names for seed in (0, 1)]
    return table(runs, measures="test_loss", **asked)  # type: ignore[arg-type]


def test_the_least_of_different_losses_is_not_the_best(folder: Path) -> None:
    for kind in ("deployed", "both"):
        both = of(folder, "fma", "smooth", rows="method", of=kind, baseline="fma")
        assert not any(both.best(*place) for place in both.columns_named)
        assert not any(both.difference(cell) for cell in both.cells)
        assert "the best of a column is marked" not in both.text()
        assert (
            both.text().count("rows have the losses of different tasks (classification, torch.nn:CrossEntropyLoss(")
            == 1
        )
    assert "test loss (nats)" not in both.text(), "of the other it is not known"


def test_of_one_task_it_is(folder: Path, tmp_path: Path) -> None:
    same = of(folder, "fma", "prox", baseline="fma")
    assert same.best("", "test_loss")
    assert sum(same.difference(cell) is not None for cell in same.cells) == 1
    assert "test loss (nats)" in same.text()
    # set apart by columns, as read back
    apart = of(folder, "fma", "prox", "smooth", columns="model.task")
    apart.save(tmp_path / "apart")
    for one in (apart, Comparison.load(tmp_path / "apart.table.json")):
        assert len(one.best("task classification", "test_loss")) == 1
        assert "different tasks" not in one.text()


def test_an_error_is_an_error(folder: Path) -> None:
    both = table([folder / f"{name}-{seed}" for name in ("fma", "smooth") for seed in (0, 1)], rows="method")
    assert "different tasks" not in both.text()
    assert any(both.difference(cell) for cell in both.cells)


def test_no_task_is_chosen_by_its_loss(folder: Path) -> None:
    with pytest.raises(
        FedscopeError, match=r"would choose by test_loss between the losses of classification and torch"
    ):
        of(folder, "prox", "smooth", best_of="model.task")
    runs = [folder / f"{name}-{seed}" for name in ("prox", "smooth") for seed in (0, 1)]
    assert len(table(runs, best_of="model.task").rows_named) == 1  # by the accuracy


def test_curves_say_it_too(folder: Path) -> None:
    said = fedscope.curves([folder / "fma-0", folder / "smooth-0"]).summary()
    assert said.count("the losses are of different tasks (classification, torch.nn:") == 1
    runs = [folder / "fma-0", folder / "smooth-0"]
    assert "different tasks" not in fedscope.curves(runs, measures=["test_error"]).summary()
    assert "different tasks" not in fedscope.curves([folder / "fma-0", folder / "prox-0"]).summary()
