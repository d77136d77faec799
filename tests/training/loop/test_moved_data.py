"""A run whose data lie elsewhere by now goes on, and is branched from, where their sum is the one that it has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.training import branch

WORDS = [
    "train",
    "--data",
    "npz:data.npz",
    "--method",
    "fma",
    "--partition",
    "iid",
    "--clients",
    "3",
    "--participation",
    "1",
    "--epochs",
    "1",
    "--rounds",
    "3",
    "--set",
    "model.hidden=[4]",
]


def save(path: str, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    y = np.arange(60) % 3
    x = (draw.normal(size=(60, 4)) + y[:, None]).astype(np.float32)
    np.savez(path, x_train=x[:45], y_train=y[:45], x_test=x[45:], y_test=y[45:])


@pytest.fixture(autouse=True)
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of two of three rounds, and one of all, whose file was moved; another file took its name elsewhere."""
    monkeypatch.chdir(tmp_path)
    save("data.npz")
    assert run([*WORDS, "--out", "r", "--until", "2"]) == 0
    assert run([*WORDS, "--out", "whole"]) == 0
    Path("new").mkdir()
    Path("data.npz").rename("new/data.npz")
    save("new/other.npz", 1)


def models(path: str) -> np.ndarray:
    return np.stack([Run.open(path).round(number).read("global").parameters for number in (1, 2, 3)])


def test_resuming_takes_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--resume", "r"]) == 2
    said = capsys.readouterr().err
    assert said.endswith("data.npz are not there; if they lie elsewhere now, give --data with that place\n")
    assert said.count("\n") == 1
    assert run(["train", "--resume", "r", "--data", "npz:new/other.npz"]) == 2
    said = capsys.readouterr().err
    recorded = Run.open("r").info["data"]["sha256"][:12]
    assert "new/other.npz is not the data that r was trained on (sha256 " in said
    assert f"the run saw {recorded}...)" in said
    assert said.count("\n") == 1
    before = Path("r/config.toml").read_text()
    assert run(["train", "--resume", "r", "--data", "new/data.npz"]) == 0
    np.testing.assert_array_equal(models("r"), models("whole"))
    assert Path("r/config.toml").read_text() == before, "it keeps the name that it has"


def test_a_branch_takes_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--from", "r@2", "--method", "fma", "--out"]
    assert run([*words, "b", "--data", "npz:new/data.npz"]) == 0
    np.testing.assert_array_equal(models("b"), models("whole"))
    assert Run.open("b").info["data"] == Run.open("r").info["data"]
    capsys.readouterr()
    assert run([*words, "c", "--data", "npz:new/other.npz"]) == 2
    assert "new/other.npz is not the data that r was trained on (sha256 " in capsys.readouterr().err
    assert run([*words, "c", "--set", "data.name=npz:new/data.npz"]) == 2
    assert "or give --data if the same data lie elsewhere now" in capsys.readouterr().err
    assert not Path("c").exists()
    # a branch goes on and is measured with the place as well
    assert (
        run(["train", "--from", "r@1", "--method", "fma", "--out", "d", "--until", "2", "--data", "new/data.npz"]) == 0
    )
    assert run(["train", "--resume", "d", "--data", "new/data.npz"]) == 0
    np.testing.assert_array_equal(models("d"), models("whole"))
    assert run(["line", "d@1/global", "d@3/global", "--points", "3", "--data", "npz:new/data.npz", "--out", "l"]) == 0


def test_questions_take_the_place_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["data", "r"], ["line", "r@1/global", "r@2/global", "--points", "3"]):
        capsys.readouterr()
        assert run([*words, "--out", "q"]) == 2
        said = capsys.readouterr().err
        assert "data.npz are not there; if they lie elsewhere now, give --data with that place" in said
        assert said.count("\n") == 1
        assert run([*words, "--data", "npz:new/data.npz", "--out", words[0]]) == 0
    assert run(["data", "r", "--data", "npz:new/other.npz", "--out", "q"]) == 2
    assert "new/other.npz is not the data that r was trained on" in capsys.readouterr().err


def test_code_is_given_as_code(capsys: pytest.CaptureFixture[str]) -> None:
    for how in (["--resume", "r"], ["--from", "r@2", "--out", "b"]):
        capsys.readouterr()
        assert run(["train", *how, "--data", "mine:load"]) == 2
        said = capsys.readouterr().err
        assert "--data mine:load is code of your own" in said
        assert "give --code data=mine:load" in said


def test_python_takes_the_place_or_the_arrays() -> None:
    with pytest.raises(FedscopeError, match=r"^data='npz:new/other.npz' is not the data that r was trained on"):
        fedscope.resume("r", data="npz:new/other.npz")
    fedscope.resume("r", data=Path("new/data.npz"))
    np.testing.assert_array_equal(models("r"), models("whole"))
    branch(Run.open("r"), 2, {"average": {"method": "none"}}, "b", data="new/data.npz")
    np.testing.assert_array_equal(models("b"), models("whole"))
