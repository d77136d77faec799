"""Models and data from elsewhere, as the command line takes them, and what a result says of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedscope import Line
from fedscope.analysis.settings import EvaluationConfig
from fedscope.checkpoints import FedscopeWarning, read_file
from fedscope.cli.main import run
from fedscope.training.inputs.models import ResolvedModels, resolve_models

pytestmark = pytest.mark.same_elsewhere

CODE = """
import numpy as np
from torch import nn

def net(width, depth=1):
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))

def data(shift=0.0):
    draw = np.random.default_rng(0)
    return draw.normal(size=(30, 4)) + shift, draw.integers(0, 3, 30)
"""
LINE = ["--model", "code_of_mine:net(5)", "--points", "3"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with code, data, and one model in two files: plain, and as other programs save it."""
    monkeypatch.chdir(tmp_path)
    Path("code_of_mine.py").write_text(CODE)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    state = {name: value.bfloat16() for name, value in layers.state_dict().items()}
    torch.save({name: value.float() for name, value in state.items()}, "plain.pt")
    torch.save({f"_orig_mod.module.{name}": value for name, value in state.items()}, "half.bin")
    torch.save({"epoch": 3, "state_dict": {f"model.{k}": 2 * v.float() for k, v in state.items()}}, "twice.ckpt")
    torch.save({name: 2 * value.float() for name, value in state.items()}, "twice.pt")
    draw = np.random.default_rng(0)
    np.savez("test.npz", x_test=draw.normal(size=(30, 4)), y_test=draw.integers(0, 3, 30))
    yield tmp_path
    sys.modules.pop("code_of_mine", None)


def asked(*addresses: str, **changes: Any) -> ResolvedModels:
    """What the command line makes of models and data, without the drawing that follows."""
    source = EvaluationConfig("test", None, 0, "cpu", "float32", "code_of_mine:net(5)", "code_of_mine:data")
    return resolve_models(addresses, replace(source, **changes))


def test_what_was_changed_in_reading_a_model_is_said_and_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["line", "half.bin", "twice.ckpt", *LINE, "--data", "code_of_mine:data", "--out", "line"]
    assert run(words) == 0
    notes = {
        "half.bin": 'the prefix "_orig_mod.module." is taken off its names, 4 tensors of bfloat16 are read as float32',
        "twice.ckpt": 'the prefix "model." is taken off its names',
    }
    assert capsys.readouterr().err == "".join(f"fedscope: {file}: {note}\n" for file, note in notes.items())
    kept, plain = Line.load("line.nc").attrs, asked("plain.pt", "twice.pt").settings
    assert kept["models_read"] == notes
    assert "models_read" not in plain
    assert kept["models_sha256"] == plain["models_sha256"]
    # a file that was saved anew without the prefix is the same model, so its result is the same
    torch.save(torch.load("twice.pt"), "twice.ckpt")
    assert run(words) == 0
    assert "line.nc already holds this result" in capsys.readouterr().err


def test_ones_own_data_and_test_samples_alone_are_measured_as_they_are(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(FedscopeWarning, match=r"test.npz has no training samples to standardise by: x_test is taken as"):
        npz = asked("plain.pt", data="npz:test.npz")
    own, moved = (asked("plain.pt", data=f"code_of_mine:data{more}") for more in ("", "(shift=1.0)"))
    given = np.load("test.npz")["x_test"]
    for question in (npz, own):
        np.testing.assert_array_equal(question.samples.x.numpy(), given.astype(np.float32))
        assert question.settings["standardised"] is False
    np.testing.assert_array_equal(moved.samples.x.numpy(), (given + 1).astype(np.float32))
    assert own.settings["data"] == "code_of_mine:data"
    assert npz.settings["data_sha256"] == own.settings["data_sha256"] != moved.settings["data_sha256"]
    for words in (["sharpness", "plain.pt"], ["line", "plain.pt", "twice.pt", "--split", "train"]):
        assert run([*words, *LINE[:2], "--data", "code_of_mine:data"]) == 2
        said = capsys.readouterr().err
        assert "code_of_mine:data has no training samples (x_train and y_train are missing)" in said
        assert "give --split test" in said


def test_a_model_without_a_name_for_its_architecture_keeps_its_own_names(here: Path) -> None:
    assert run(["export", "half.bin", "half.safetensors"]) == 0
    names = list(read_file("half.safetensors").arrays())
    assert sorted(names) == sorted(torch.load("half.bin"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("line plain.pt twice.pt --data npz:test.npz --model code_of_mine:net", "it is called without arguments"),
        ("line plain.pt twice.pt --data npz:test.npz --model code_of_mine:net(4)", "0.weight has shape (5, 4), but"),
        ("line plain.pt twice.pt --data npz:test.npz --model code_of_mine:net(x)", "x is not a literal; give numbers"),
        (
            "line plain.pt twice.pt --data code_of_mine:net(5) --model mlp",
            "whose item 0 is a Linear; give pairs",
        ),
        ("train --data code_of_mine:data --out new", "data.clients = 50 is more than the 24 training samples"),
        ("train --data npz:test.npz --out new", "lacks x_train and y_train, and training needs them"),
        ("import half.bin", "half.bin is a model, which needs no import"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, sentence: str
) -> None:
    assert run(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence in captured.err.splitlines()[-1]
    assert "Traceback" not in captured.err
    assert not Path("new").exists()
