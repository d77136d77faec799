"""``fedscope layers``, and ``line --layers``: lists, chooses, refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import Run
from fedscope.cli.main import run

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]

COMMAND = "layers"
RUNS = {
    "fma": "--method fma --clients 4 --participation 1 --rounds 2 --set model.hidden=[6] --set run.evaluate_clients=0"
}
LISTED = """\
   layer     kind    shapes                parameters    share
1  fc1       linear  weight 6x64, bias 6          390   84.8 %
2  head      linear  weight 10x6, bias 10          70   15.2 %
   2 layers                                       460  100.0 %
"""
HEAD = """\
   layer  kind    shapes                parameters   share
2  head   linear  weight 10x6, bias 10          70  15.2 %
"""


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence that a command is refused with."""
    assert run(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.removeprefix("fedscope: ").rstrip()


def test_it_lists_the_layers_of_a_run_and_of_its_models(runs: Path, said: Callable[..., str]) -> None:
    assert said("runs/fma") == LISTED
    assert said("runs/fma@1/client-0") == LISTED
    assert said("runs/fma", "h*") == HEAD
    assert json.loads(said("runs/fma", "--json"))[1] == {
        **{"number": 2, "layer": "head", "kind": "linear", "shapes": {"weight": [10, 6], "bias": [10]}},
        **{"parameters": 70, "share": 70 / 460},
    }
    assert [row["layer"] for row in json.loads(said("runs/fma", "/c/", "--json"))] == ["fc1"]


def test_it_lists_the_layers_of_a_file(runs: Path, said: Callable[..., str]) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    torch.save(net.state_dict(), "net.pt")
    rows = json.loads(said("net.pt", "--json"))
    assert [(row["layer"], row["kind"]) for row in rows] == [("0", "convolution"), ("1", "normalization")]
    assert sum(row["parameters"] for row in rows) >= 24


def test_the_modules_of_a_known_network_say_the_kind(
    runs: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedscope.checkpoints.models.layers.CLASSES", {"Linear": "embedding"})
    assert {row["kind"] for row in json.loads(said("runs/fma", "--json"))} == {"embedding"}, "its shapes say linear"


def test_a_run_that_other_programs_trained_is_listed_by_its_shapes(runs: Path, said: Callable[..., str]) -> None:
    Path("runs/fma/config.toml").unlink()
    assert said("runs/fma") == LISTED


def test_what_there_is_not_is_refused_in_a_sentence(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "layers", "runs/fma", "fc") == "layers 'fc' match none; did you mean \"fc*\"?"
    assert refused(capsys, "layers", "runs/fma@9") == "runs/fma@9: the run has rounds 1-2"
    assert "runs/none" in refused(capsys, "layers", "runs/none")
    two = ("runs/fma@1", "runs/fma@2")
    line = ("line", *two, "--split", "test", "--out", "m", "--layers")
    assert refused(capsys, *line, "conv1") == "layers 'conv1' match none; the model has fc1, head"
    assert refused(capsys, *line, "eech") == "layers 'eech' match none; the model has fc1, head"
    said = refused(capsys, "line", *two, *two, "--layers", "each")
    assert said == "--layers takes one pair of models, A B, but got 4 models; ask for each alone"
    said = refused(capsys, "line", "runs/fma@2", "--clients", "--layers", "each")
    assert said == "--layers and --clients are two cuts of a line; give one of them"
    assert not list(Path().glob("m.*"))


def test_the_command_and_the_function_give_the_whole_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = ["runs/fma@1", "runs/fma@2"]
    assert run(["line", *two, "--layers", "*", "--range", "-0.5", "1.5", "--points", "9", "--split", "test"]) == 0
    assert "runs/fma/figures/line-fma@1-fma@2-all.nc" in capsys.readouterr().out
    (kept,) = Path("runs/fma/figures").glob("*.nc")
    found = fedscope.load(kept)
    whole = fedscope.line(two, points=9)
    assert type(found) is fedscope.LayerLine
    assert found.loss[0, 0].tobytes() == found.loss[1, 0].tobytes() == whole.loss[0].tobytes()
    assert found.barrier[:, 0].tolist() == [whole.barrier[0]] * 2
    each = fedscope.line(two, layers="each")
    assert each.layers == ("fc1", "head", "all layers")
    assert each.beta.tolist() == np.linspace(0, 1, 11).tolist()
    layout = Run.open("runs/fma").layout
    assert each.parameters.tolist() == [390, 70, layout.size]


def test_the_default_pair_of_a_run_has_layers_too(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["line", "runs/fma", "--layers", "each", "--points", "3", "--out", "m"]) == 0
    assert "loss barrier between fma@2/global and fma@2/start" in capsys.readouterr().out
