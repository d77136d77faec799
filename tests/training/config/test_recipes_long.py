"""Every recipe trains two rounds, in the least size that ``--scale`` makes, on stand-in data of its set's shape."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.evaluation.standard_tasks import CLASSIFICATION, TASKS
from fedscope.training import Setup, read_assignments, train
from fedscope.training.config.recipes import Recipe, recipe, recipe_names, tables_of
from fedscope.training.data.dataset import Dataset, Groups
from fedscope.training.data.published import shakespeare
from fedscope.training.data.standardize import standardize

pytestmark = pytest.mark.same_elsewhere

#: of each data set the shape of its images, its classes, and how many training samples stand in for it. A cohort of
#: two of the writers and authors that the papers have needs hundreds of them.
SETS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "cifar10": ((32, 32, 3), 10, 1200),
    "cifar100": ((32, 32, 3), 100, 1200),
    "fmnist": ((28, 28), 10, 600),
    "digit5": ((28, 28, 3), 10, 600),
    "pacs": ((64, 64, 3), 7, 400),
    "femnist": ((28, 28), 62, 2100),
    "gldv2": ((32, 32, 3), 2028, 780),
    "tiny-imagenet": ((32, 32, 3), 200, 800),
}
TEST = 40
USERS = {"femnist": 700, "gldv2": 260, "shakespeare": 150}
#: how much of them is used: partitions by user, by counted shards and by classes need more
SHARES = {"natural": 1.0, "shards": 1.0, "pathological": 0.5, "dirichlet-clients": 0.5, "domains": 0.5}
QUICK: dict[str, Any] = {"client.epochs": 1, "run.evaluate_every": 1}


def stand_in(name: str) -> Dataset:
    """Noise in the shape of a data set, with its classes, users, domains or superclasses."""
    draw = np.random.default_rng(0)
    if name == "shakespeare":
        made: dict[str, Any] = {"classes": np.array(len(shakespeare.TOKENS))}
        for split, count in (("train", 3 * USERS[name]), ("test", TEST)):
            tokens = draw.integers(4, 80, (count, shakespeare.LENGTH + 1))
            made |= {f"x_{split}": tokens[:, :-1].astype(np.uint8), f"y_{split}": tokens[:, 1:].astype(np.int8)}
        return standardize(name, "", made, task=TASKS[shakespeare.TASK], groups=grouped(name, made))
    shape, classes, count = SETS[name]
    made = {"classes": np.array(classes)}
    for split, n in (("train", count), ("test", TEST)):
        made[f"x_{split}"] = draw.integers(0, 256, (n, *shape), dtype=np.uint8)
        made[f"y_{split}"] = np.arange(n) % classes
    return standardize(name, "", made, task=CLASSIFICATION, groups=grouped(name, made))


def grouped(name: str, arrays: dict[str, Any]) -> dict[str, Groups]:
    """What the set's loader knows of its samples beside their labels."""

    def each(count: int, kind: str) -> dict[str, Groups]:
        parts = (np.arange(len(arrays[f"x_{split}"])) % count for split in ("train", "test"))
        return {kind: Groups(tuple(f"{kind}-{i}" for i in range(count)), *parts)}

    if name in USERS:
        return each(USERS[name], "user")
    if name in ("pacs", "digit5"):
        return each({"pacs": 4, "digit5": 5}[name], "domain")
    if name == "cifar100":
        of = (arrays[f"y_{split}"] // 5 for split in ("train", "test"))
        return {"superclass": Groups(tuple(f"superclass-{i}" for i in range(20)), *of)}
    return {}


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-in data under the names that the recipes give."""
    for name in (*SETS, "shakespeare"):
        module = import_module(f"fedscope.training.data.published.{name.replace('-', '_')}")
        monkeypatch.setattr(module, "PROVIDES", lambda argument, task=None, name=name: stand_in(name))
    return


def cells_to_train(named: Recipe) -> list[dict[str, Any]]:
    """The first and the last: of a table its first and last method, without and with its average."""
    cells = named.cells()
    return [cells[0], cells[-1]] if len(cells) > 1 else [cells[0]]


def test_every_data_set_of_a_recipe_has_a_stand_in() -> None:
    assert {recipe(name).tables["data"]["name"] for name in recipe_names()} == {*SETS, "shakespeare"}


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_trains_two_rounds(name: str, tmp_path: Path) -> None:
    """As a sweep trains it, with all that the recipe and the cell say but what would take long."""
    data, model = (recipe(name).tables.get(section, {}) for section in ("data", "model"))
    for number, cell in enumerate(cells_to_train(recipe(name))):
        method, tables = tables_of(cell)
        partition = tables.get("data", {}).get("partition", data.get("partition", ""))
        quick = QUICK | {"data.share": SHARES.get(partition.partition(":")[0], 0.05)}
        quick |= {"model.side": 32} if "side" in model else {}
        above = read_assignments(f"{place}={value}" for place, value in quick.items())
        made = train(Setup(name, scale=0.0001).config(method, above, cell=tables), tmp_path / f"run-{number}")
        metrics = made.metrics()
        assert metrics["round"].tolist() == list(range(1, made.rounds[-1] + 1))
        assert made.rounds[-1] in (2, 3), "a cycle of SWA needs three"
        assert np.isfinite(metrics["test_loss"]).all()
        shutil.rmtree(made.path)  # some hundred megabytes of the largest
