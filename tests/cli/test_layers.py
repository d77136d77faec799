"""``fedscope layers``, and ``line --layers``: lists, chooses, refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def test_the_layers_of_every_round_are_those_of_its_pair(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["line", "runs/fma", "--layers", "each", "--rounds", "all", "--points", "5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("fma, rounds 1-2: loss barrier between global and start: ")
    base = Path("runs/fma/figures/line-rounds-all-layers-each")
    files = [f"  {base}.{end}" for end in ("line-layers.csv", "line-layers.json", "pdf", "png")]
    assert said.splitlines()[1:] == files
    found = fedscope.load(base)
    assert type(found) is fedscope.LayerRounds
    assert (found.ends, found.rounds, found.layers) == (("global", "start"), (1, 2), ("fc1", "head", "all layers"))
    for at, number in enumerate((1, 2)):
        pair = [f"runs/fma@{number}/global", f"runs/fma@{number}/start"]
        one = fedscope.line(pair, layers="each", points=5)
        assert found.values()[:, :, at].tolist() == one.barrier.tolist()
        assert found.values("barrier_beta")[:, :, at].tolist() == one.barrier_beta.tolist()
        np.testing.assert_array_equal(found.values("barrier_stderr")[:, :, at], one.barrier_stderr)
        whole = fedscope.line(pair, points=5, range=(0, 1))
        assert found.values()[:, -1, at].tolist() == [whole.barrier[0]] * 2
    assert [cell.others for cell in found.cells[:2]] == ["global", "start"]
    assert [cell.parameters for cell in found.cells[::2][:3]] == [390, 70, 460]
    same = fedscope.line("runs/fma", layers="each", rounds=[1, 2], points=5)
    assert same.cells == found.cells
    curves = fedscope.line("runs/fma", rounds="all", points=3)
    assert curves.pairs == ("fma@1/global - fma@1/start", "fma@2/global - fma@2/start")


def test_a_rounds_models_are_read_once_and_a_model_is_measured_once(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedscope.checkpoints.rounds.round import Round
    from fedscope.evaluation.evaluator import Evaluator

    read, measured = list[tuple[int, str]](), list[str]()
    whole, evaluate = Round.read, Evaluator.evaluate

    def reading(self: Round, name: str) -> Any:
        read.append((self.number, name))
        return whole(self, name)

    def evaluating(self: Evaluator, count: int, form: Any, indices: Any = None, *rest: Any, **how: Any) -> Any:
        def forming(i: int, replica: Any) -> None:
            form(i, replica)
            measured.append(replica.w.numpy().tobytes())

        return evaluate(self, count, forming, indices, *rest, **how)

    monkeypatch.setattr(Round, "read", reading)
    monkeypatch.setattr(Evaluator, "evaluate", evaluating)
    fedscope.line("runs/fma", layers="each", rounds="all", points=5)
    assert sorted(read) == [(1, "global"), (1, "start"), (2, "global"), (2, "start")]
    # of two layers, one with the others at A and the other with the others at B end in the same model; and the start of
    # round 2 is the server's model after round 1
    assert len(measured) == len(set(measured)) == 2 * (2 + 2 * 2 * 4 - 2 + 3) - 1


def test_a_line_in_each_round_is_refused_in_a_sentence_where_there_is_none(
    runs: Path, capsys: pytest.CaptureFixture[str], rewrite: Any
) -> None:
    rewrite("runs/fma", 2, without=["start"])
    each = ("--layers", "each")
    said = refused(capsys, "line", "runs/fma", *each, "--rounds", "1-2")
    assert said == (
        "--rounds 1-2: round 2 of runs/fma has not recorded a start and a global model, the two ends of its line; "
        "round 1 has"
    )
    said = refused(capsys, "line", "runs/fma", *each, "--rounds", "7")
    assert said == "--rounds 7: runs/fma has no round 7; it has 1 to 2"
    said = refused(capsys, "line", "runs/fma@1", "runs/fma@2", *each, "--rounds", "1")
    assert said == (
        "--rounds 1 draws a line in each round of one run, and does not go with runs/fma@1 runs/fma@2; give RUN alone"
    )
    said = refused(capsys, "line", "runs/fma@1", "--clients", "--rounds", "1")
    assert said == "--rounds 1 draws a line in each round of one run, and does not go with --clients; give RUN alone"
    said = refused(capsys, "line", "runs/fma", "--layers", "hed", "--rounds", "1")
    assert said == "layers 'hed' match none; did you mean \"head\"?"
    assert run(["line", "runs/fma", *each, "--rounds", "all", "--points", "3", "--out", "m"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "fma: round 2 left out, because a start and a global model were not recorded"
    assert fedscope.load("m").rounds == (1,)
