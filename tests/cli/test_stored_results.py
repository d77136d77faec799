"""Results that lie there are read back only where they are the answer: of the same data, models and numbers; and what is
derived or drawn from them goes with them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.analysis.execution import Execution
from fedscope.checkpoints import FedscopeWarning
from fedscope.cli.main import run

DRAW = np.random.default_rng(5)
X, Y = DRAW.normal(size=(40, 4)).astype(np.float32), DRAW.integers(0, 3, 40)
OTHER_X, OTHER_Y = DRAW.normal(size=(40, 4)).astype(np.float32), DRAW.integers(0, 3, 40)
MODULE = """
from torch import nn

def linear():
    return nn.Linear(4, 3)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "nets_stored.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedscope.plotting.style.save_figure", drawn)
    yield tmp_path
    sys.modules.pop("nets_stored", None)


def drawn(_: object, base: str, formats: Iterable[str]) -> list[Path]:
    """Figures are files here, and what is in them is not looked at."""
    paths = [Path(f"{base}.{kind}") for kind in formats]
    for path in paths:
        path.write_text("drawn")
    return paths


def net(t: int, k: int = 0) -> nn.Linear:
    made = nn.Linear(4, 3)
    draw = torch.Generator().manual_seed(100 * t + k)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return made


def record(path: str, rounds: Iterable[int] = (1, 2), *, shift: int = 0, errors: bool = False, **more: Any) -> None:
    """A loop's rounds of three clients; ``shift`` makes other models."""
    with fedscope.Recorder(path, **more) as recorder:
        for t in rounds:
            models = {k: net(t + shift, k) for k in (1, 2, 3)}
            numbers = {"metrics": {"test_error": 0.25}} if errors else {}
            recorder.round(start=net(t + shift), clients=models, global_=net(t + shift, 9), **numbers)


def write_data(path: str, x: np.ndarray, y: np.ndarray) -> None:
    np.savez(path, x_test=x, y_test=y)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert run([*words, "--json"]) == 0, capsys.readouterr().err
    answer = json.loads(capsys.readouterr().out)
    answer.pop("files")
    return answer


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(list(words)) == 2, capsys.readouterr()
    return capsys.readouterr().err


def is_read_back(capsys: pytest.CaptureFixture[str], *words: str) -> bool:
    capsys.readouterr()
    assert run(list(words)) == 0, capsys.readouterr().err
    return "already holds this result" in capsys.readouterr().err


def without(path: str, *keys: str) -> None:
    """A result as an earlier version wrote it."""
    content = json.loads(Path(path).read_text())
    for key in keys:
        del content["attrs"][key]
    Path(path).write_text(json.dumps(content))


# --- data ---


@pytest.mark.parametrize("command", ["decompose", "explain"])
def test_a_decomposition_is_of_the_data_that_it_was_measured_on(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record("r")
    asked = [command, "r", "--draws", "none", "--split", "test", "--rounds", "1,2"]
    asked += ["--model", "nets_stored:linear", "--data", "npz:t.npz"]
    write_data("t.npz", OTHER_X, OTHER_Y)
    other = told(capsys, *asked, "--out", "other")
    write_data("t.npz", X, Y)
    first = told(capsys, *asked, "--out", "e")
    assert first != other
    assert is_read_back(capsys, *asked, "--out", "e")
    write_data("t.npz", OTHER_X, OTHER_Y)
    said = refused(capsys, *asked, "--out", "e")
    assert "e.factors.json holds another result, of data that have changed since; give another --out" in said
    assert told(capsys, *asked, "--out", "e", "--force") == other
    without("e.factors.json", "data_sha256")
    assert "of an earlier fedscope, which kept nothing that tells the data" in refused(capsys, *asked, "--out", "e")


def test_a_stopped_decomposition_goes_on_with_the_same_data_alone(tmp_path: Path) -> None:
    record("r")
    how: dict[str, Any] = {"draws": "none", "split": "test", "model": nn.Linear(4, 3)}
    keep = Execution(keep=tmp_path / "kept")
    fedscope.decompose.prepare("r", rounds=1, data=(X, Y), **how).answer(keep)
    with pytest.warns(FedscopeWarning, match="was left by an analysis with other settings"):
        found = fedscope.decompose.prepare("r", rounds="1,2", data=(OTHER_X, OTHER_Y), **how).answer(keep)
    fresh = fedscope.decompose("r", rounds="1,2", data=(OTHER_X, OTHER_Y), **how)
    assert found.findings() == fresh.findings()


@pytest.mark.parametrize("kind", ["kept", "file"])
def test_a_run_that_keeps_what_tells_its_data_has_decompositions_as_before(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their results say no sum of the data, and those of earlier versions are read back."""
    write_data("t.npz", X, Y)
    record("r", data=(X, Y) if kind == "kept" else "npz:t.npz")
    asked = ["decompose", "r", "--draws", "none", "--split", "test", "--model", "nets_stored:linear", "--out", "e"]
    assert not is_read_back(capsys, *asked)
    assert "data_sha256" not in json.loads(Path("e.factors.json").read_text())["attrs"]
    assert is_read_back(capsys, *asked)
    if kind == "kept":  # accepted data are others
        write_data("o.npz", OTHER_X, OTHER_Y)
        said = refused(capsys, *asked, "--data", "npz:o.npz", "--accept-data")
        assert "e.factors.json holds another result" in said
