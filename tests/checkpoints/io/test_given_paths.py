"""Models in memory, and names that are too long, where paths are taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.io.given_paths import refuse_in_memory

pytestmark = pytest.mark.same_elsewhere


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


DATA = (torch.ones(4, 3), torch.arange(4) % 2)
MODELS: dict[str, Callable[[], Any]] = {
    "a module": net,
    "a state_dict": lambda: net().state_dict(),
    "arrays by name": lambda: {"w": np.ones(2)},
    "modules": lambda: [net(), net()],
    "state_dicts": lambda: [net().state_dict(), {"w": torch.ones(2)}],
    "lists of arrays": lambda: [[np.ones(2)], [np.ones(2)]],
    "arrays": lambda: [np.ones(2), np.ones(3)],
}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for name in "ab":
        torch.save(net().state_dict(), tmp_path / f"{name}.pt")
    return [tmp_path / "a.pt", tmp_path / "b.pt"]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_models_in_memory_are_no_paths(tmp_path: Path, files: list[Path], model: Callable[[], Any]) -> None:
    given, out = model(), tmp_path / "run"
    asked: dict[str, Callable[[], Any]] = {
        "files": lambda: fedscope.import_models(given, out),
        "start": lambda: fedscope.import_models(files, out, start=given),
        "global_": lambda: fedscope.import_models(files, out, global_=given),
        "out": lambda: fedscope.import_models(files, given),
        "address": lambda: fedscope.load_model(given),
        "path": lambda: fedscope.load(given),
        "base": lambda: fedscope.line(files, model=net(), data=DATA, base=given),
    }
    asked_too: dict[str, Callable[[], Any]] = {
        "base": lambda: fedscope.import_models(files, out, base=given),
        "path": lambda: fedscope.resume(given),
    }
    for name, question in [*asked.items(), *asked_too.items(), ("base", lambda: fedscope.Recorder(out, base=given))]:
        with pytest.raises(FedscopeError, match=rf"^{name}= takes paths, and was given .* in memory; save it first"):
            question()
    assert not out.exists()


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_models_in_memory_are_no_runs(model: Callable[[], Any]) -> None:
    given = model()
    for question in (fedscope.curves, fedscope.table, fedscope.report, fedscope.updates, fedscope.wima):
        with pytest.raises(
            FedscopeError, match=r"^runs= takes runs or their folders, and was given .* in memory; rounds of"
        ):
            question(given)
    for question in (fedscope.measure, fedscope.matrix, fedscope.Run.open):
        with pytest.raises(
            FedscopeError, match=r"^(run|path)= takes runs or their folders, and was given .* in memory"
        ):
            question(given)


def test_what_is_no_model_in_memory_stays(tmp_path: Path, files: list[Path]) -> None:
    for given in (files, [str(file) for file in files], np.array([str(file) for file in files]), (files[0],), None, []):
        refuse_in_memory("files", given)
    table = {0: np.int64(3), 1: np.int64(5)}
    made = fedscope.import_models(files, tmp_path / "run", samples=table)  # numbers of NumPy's are counts
    assert made.round(1).client_ids.tolist() == [0, 1]
    assert fedscope.load_model(files[0]).label == fedscope.load_model(str(files[0])).label == "a"
    assert len(fedscope.line([net(), net().state_dict()], model=net(), data=DATA, points=3).pairs) == 1


def test_the_remedy_for_a_model_in_memory_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = net()
    torch.save(model.state_dict(), "model.pt")
    fedscope.import_models("model.pt", "run")
    with fedscope.Recorder("recorded", model=net()) as recorder:
        recorder.round(start=net().state_dict(), clients=[net(), net()], global_=net())


@pytest.mark.parametrize("name", ["a" * 300, "a" * 300 + ".pt", "a" * 300 + "@1", "nets/" * 1000 + "a.pt"])
def test_a_name_that_is_too_long_is_said_in_one_sentence(tmp_path: Path, files: list[Path], name: str) -> None:
    asked: list[Callable[[], Any]] = [
        lambda: fedscope.line([name, files[0]], model=net(), data=DATA),
        lambda: fedscope.load_model(name),
        lambda: fedscope.load(name),
        lambda: fedscope.curves(name),
        lambda: fedscope.import_models([name, files[0]], tmp_path / "run"),
        lambda: fedscope.import_models(files, tmp_path / "run", start=name),
    ]
    for question in asked:
        with pytest.raises(
            FedscopeError, match=r"\.\.\. has \d+ characters, which is longer than a path .*; give a shorter one"
        ):
            question()


def test_the_model_in_a_list_is_named(tmp_path: Path) -> None:
    for given in (["a", {"w": np.ones(2)}], {"a": "a", "b": {"w": np.ones(2)}}):
        with pytest.raises(FedscopeError, match=r"models \(dict\) in memory"):
            fedscope.curves(given)  # type: ignore[arg-type]
