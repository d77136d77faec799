"""What ``train``, ``sweep`` and ``data`` refuse in Python has a remedy that Python takes; and what they take as others
do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.io.keywords import speak_keywords
from fedscope.cli.main import run
from fedscope.command_line import speaking_flags

pytestmark = pytest.mark.same_elsewhere

DRAW = np.random.default_rng(0)
Y = np.arange(120) % 3
X = (DRAW.normal(size=(120, 4)) + 2 * np.eye(3, 4)[Y]).astype(np.float32)
SPLITS = (X[:100], Y[:100]), (X[100:], Y[100:])
SMALL: dict[str, Any] = {"rounds": 1, "clients": 4, "participation": 1.0, "epochs": 1}


def linear() -> nn.Module:
    return nn.Linear(4, 3)


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("given", "remedy", "other"),
    [
        (
            {"model": lambda: nn.Linear(4, 1), "data": (X, X[:, :1]), "task": "regression"},
            r"give partition='iid', or",
            {"partition": "iid"},
        ),
        (
            {"model": linear, "data": (X, Y), "optimiser": torch.optim.AdamW},
            r"give config=\{'client': \{'weight_decay': 0\}\}, or",
            {"config": {"client": {"weight_decay": 0}}},
        ),
        ({"model": normalised, "data": (X, Y), "batch": 1}, r"a larger batch=, or", {"batch": 4}),
        ({"client": "fedala", "client_layers": 9}, r"as in config=\{'client': \{'layers': \d\}\}", {}),
        ({"average": "ima", "average_start": 9}, r"as in config=\{'average': \{'start': 1\}\}, or average='none'", {}),
    ],
)
def test_a_remedy_of_train_is_one_of_its_keywords(
    given: dict[str, Any], remedy: str, other: dict[str, Any], tmp_path: Path
) -> None:
    config = {key.replace("_", ".", 1): given[key] for key in given if key in ("client_layers", "average_start")}
    given = {key: value for key, value in given.items() if key not in ("client_layers", "average_start")}
    with pytest.raises(FedscopeError, match=remedy) as refused:
        fedscope.train(config, tmp_path / "run", **{**SMALL, **given})
    assert "--" not in str(refused.value)
    with speaking_flags(), pytest.raises(FedscopeError, match="--"):
        fedscope.train(config, tmp_path / "run", **{**SMALL, **given})
    if other:
        assert fedscope.train(out=tmp_path / "run", **{**SMALL, **given, **other}).rounds == (1,)
    else:
        again = eval(re.search(r"\{.*?\}\}", str(refused.value))[0])  # type: ignore[index]
        assert fedscope.train(again, tmp_path / "run", **{**SMALL, **given}).rounds == (1,)


def test_what_diverges_is_gone_on_with_by_a_command(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"use a smaller lr=, or fedscope train --resume \S+ --keep-going$"):
        fedscope.train(out=tmp_path / "run", lr=1e30, **{**SMALL, "rounds": 2})


def test_a_set_that_is_not_here_is_downloaded_by_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    with pytest.raises(FedscopeError, match=r"or by fedscope\.download\('cifar10'\), and give the folder as data="):
        fedscope.train(data="cifar10", out="run")
    assert run(["train", "--data", "cifar10", "--out", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "or with --download, and give the folder as --data cifar10:PATH" in line


def test_tables_that_are_called_settings_are_said_so() -> None:
    @speak_keywords
    def ask(settings: Any = None) -> None:
        raise FedscopeError(
            "give --set client.optimiser=sgd, --set model.head=NAME, --set x.kept=true --set x.of=[6] --set 'y.a=b c', "
            "or the rest by --set; client.optimiser is --set client.optimiser mine:Opt"
        )

    with pytest.raises(FedscopeError) as refused:
        ask()
    assert str(refused.value) == (
        "give settings={'client': {'optimiser': 'sgd'}}, settings={'model': {'head': NAME}}, "
        "settings={'x': {'kept': True, 'of': [6]}, 'y': {'a': 'b c'}}, or the rest by settings=; client.optimiser is "
        "client.optimiser mine:Opt"
    )


PARTS = [np.arange(25 * k, 25 * k + 25) for k in range(4)]


@pytest.mark.parametrize(
    "given",
    [
        dict(enumerate(PARTS)),
        {np.int64(k): range(25 * k, 25 * k + 25) for k in (2, 0, 3, 1)},
        np.arange(100).reshape(4, 25),
        torch.arange(100).reshape(4, 25),
        "generator",
    ],
)
def test_rows_by_the_clients_number_are_a_partition(given: Any, tmp_path: Path) -> None:
    """As a recorder takes them."""
    if isinstance(given, str):
        given = (part.tolist() for part in PARTS)
    settings = {**SMALL, "clients": None, "model": linear, "data": SPLITS}
    made = fedscope.train(out=tmp_path / "run", partition=given, **settings)
    assert made.partition is not None
    assert [rows.tolist() for rows in made.partition.clients] == [rows.tolist() for rows in PARTS]
    listed = fedscope.train(out=tmp_path / "listed", partition=PARTS, **settings)
    assert made.config == listed.config


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {1: [0], 2: [1]},
            "rows of the clients 2, but of 2 clients the numbers are 0 to 1; give these as",
        ),
        ({"a": [0], "b": [1]}, "rows of the clients 'a', 'b', but of 2 clients the numbers are 0 to 1"),
        ({True: [0], 0: [1]}, "rows of the clients True, but of 2 clients"),
        ({}, "is dict, not a partition; give a name"),
        (np.arange(6), "is ndarray, not a partition; give a name"),
    ],
)
def test_other_numbers_are_refused_by_name(given: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=f"^partition= (has )?{re.escape(said)}"):
        fedscope.train(out=tmp_path / "run", partition=given, model=linear, data=SPLITS)


@pytest.mark.parametrize("of", ["train", "train's tables", "data", "data's settings", "config"])
def test_a_path_names_a_file_of_data(of: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=X[:100], y_train=Y[:100], x_test=X[100:], y_test=Y[100:])
    ways: dict[str, Callable[[Any], Any]] = {
        "train": lambda data: fedscope.train(data=data, model=linear, out=tmp_path / "run", force=True, **SMALL).info,
        "train's tables": lambda data: (
            fedscope.train({"data": {"name": data}, "model": linear}, tmp_path / "run", force=True, **SMALL).info
        ),
        "data": lambda data: fedscope.data({"data": {"clients": 4}}, data=data).attrs,
        "data's settings": lambda data: fedscope.data(settings={"data": data}).attrs,
        "config": lambda data: fedscope.data({"data": {"name": data, "clients": 4}}).attrs,
    }
    by_path, by_text = (ways[of](given) for given in (path, str(path)))
    assert by_path["data"] == by_text["data"]


def test_data_takes_a_configuration_and_the_data_of_a_run(tmp_path: Path) -> None:
    tables = {"data": {"clients": 7, "partition": "iid"}}
    of_config = fedscope.data(fedscope.Config.read(tables))
    assert of_config.counts.tolist() == fedscope.data(tables).counts.tolist()
    assert fedscope.data(fedscope.Config.read(tables), settings={"data": {"clients": 5}}).counts.shape[0] == 5
    run = fedscope.train(model=linear, data=SPLITS, out=tmp_path / "run", **SMALL)
    with pytest.raises(FedscopeError, match=r"which is never loaded from a run; give data=$"):
        fedscope.data(run)
    assert fedscope.data(run, data=SPLITS).counts.sum() == 100  # which the sentence says
    with pytest.raises(FedscopeError, match="data are given twice, as data= and in settings="):
        fedscope.data(run, data=SPLITS, settings={"data": SPLITS})
