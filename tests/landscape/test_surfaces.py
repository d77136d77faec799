"""Planes, lines and sharpness as Python asks for them: models and data in memory, no run and no file."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope import FedscopeError, Layout, Line, Plane, Planes, Samples
from fedscope.analysis.execution import Execution
from fedscope.checkpoints import Model, Weights, write_file
from fedscope.evaluation.evaluator import Evaluator
from fedscope.landscape import Connectivity, SharpnessSettings
from fedscope.landscape import sharpness as measured_sharpness

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(60, 1, 4, 4)).astype(np.float32), np.arange(60) % 3
MORE = DRAW.normal(size=(45, 1, 4, 4)).astype(np.float32), np.arange(45) % 3
QUICK: dict[str, Any] = {"data": (X, Y), "grid": 4}


@pytest.fixture
def nets() -> list[nn.Module]:
    torch.manual_seed(1)
    return [nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)) for _ in range(4)]


def weights(net: nn.Module) -> Weights:
    layout = Layout.of(net)
    return layout.flatten({name: value.numpy() for name, value in net.state_dict().items()})


def losses(nets: list[nn.Module]) -> list[float]:
    samples = Samples(torch.from_numpy(X), torch.from_numpy(Y), 3, "mine", "test", np.arange(60))
    return Evaluator(nets[0], samples).models([weights(net) for net in nets])[0].tolist()


def test_a_plane_through_three_modules(nets: list[nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedscope.landscape.planes.drawing.preview.EVERY", 0.0)
    before = [weights(net).parameters.tobytes() for net in nets]
    plane = fedscope.plane(nets[:3], show=nets[3], data=(X, Y), grid=5, margin=0.5)
    assert isinstance(plane, Plane)
    assert [weights(net).parameters.tobytes() for net in nets] == before, "the user's models stay as they are"
    assert list(tmp_path.iterdir()) == [], "nothing is written, and there is no preview"
    assert plane.loss.shape == (5, 5)
    assert [model.loss for model in plane.models if model.role != "mean"] == losses(nets)
    assert [model.label for model in plane.models] == [
        "Sequential 1", "Sequential 2", "Sequential 3", "mean", "Sequential 4"
    ]  # fmt: skip
    wider = fedscope.plane(nets[:3], show=nets[3], data=(X, Y), grid=2, margin=1)
    assert isinstance(wider, Plane)
    assert wider.a[0] < plane.a[0] < 0
    assert (plane.attrs["data"], plane.attrs["samples"], plane.attrs["run"]) == ("arrays", 60, [])
    assert plane.summary().startswith("the mean has loss ")
    assert [path.name for path in plane.save("mine")] == ["mine.nc", "mine.basin.csv"]
    assert Plane.load("mine").numbers() == plane.numbers()


def test_modules_state_dicts_and_files_are_one_plane(nets: list[nn.Module], tmp_path: Path) -> None:
    whole = fedscope.plane(nets[:3], **QUICK)
    states = fedscope.plane([net.state_dict() for net in nets[:3]], model=nets[0], **QUICK)
    files = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for file, net in zip(files, nets, strict=False):
        write_file(file, weights(net))
    mixed = fedscope.plane([nets[0], nets[1].state_dict(), files[2]], **QUICK)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), 7)
    streamed = fedscope.plane(nets[:3], data=loader, grid=4)
    for other in (states, mixed, streamed):
        assert isinstance(other, Plane)
        assert other.loss.tobytes() == whole.loss.tobytes()  # type: ignore[union-attr]
    assert [model.label for model in mixed.anchors] == ["Sequential 1", "model 2", "2"]  # type: ignore[union-attr]


def test_two_sets_of_samples_are_planes_of_their_own(nets: list[nn.Module], tmp_path: Path) -> None:
    both = fedscope.plane(nets[:3], data=(MORE, (X, Y)), grid=3, split="both")
    assert isinstance(both, Planes)
    alone = fedscope.plane(nets[:3], data=(MORE, (X, Y)), grid=3, split="train")
    assert isinstance(alone, Plane)
    assert both[".train"].loss.tobytes() == alone.loss.tobytes() != both[".test"].loss.tobytes()
    assert [line.partition(":")[0] for line in both.summary().splitlines()] == ["Test data", "Train data"]
    assert [panel["title"] for panel in both.numbers()["panels"]] == ["test data", "train data"]
    assert {path.name for path in both.save(tmp_path / "b")} == {
        f"b.{split}.{end}" for split in ("test", "train") for end in ("nc", "basin.csv")
    }
    assert list(both.figures(7.0)) == [".both"]
    assert [axes.get_title() for axes in both.figure(7.0).axes if axes.get_title()] == ["Test data", "Train data"]
    assert list(both.pages()) == [".test", ".train"]
    assert "Train data" in both.pages()[".train"]


def test_lines_take_pairs_one_after_the_other(nets: list[nn.Module]) -> None:
    flat = fedscope.line(nets, data=(X, Y), points=5)
    pairs = fedscope.line([(nets[0], nets[1]), (nets[2], nets[3])], data=(X, Y), points=5)
    assert flat.ends == pairs.ends == (("Sequential 1", "Sequential 2"), ("Sequential 3", "Sequential 4"))
    assert flat.loss.tobytes() == pairs.loss.tobytes()
    assert flat.loss[:, [3, 1]].ravel().tolist() == losses(nets), "beta = 1 is the first of a pair"
    assert flat.numbers() == {"barrier": flat.barrier.tolist()}
    assert not isinstance(flat, Connectivity)
    assert fedscope.line(nets[:2], data=(X, Y), points=5, range=(0.25, 2)).beta.tolist()[0] == 0.0


def test_sharpness_of_a_module_is_that_of_its_weights(nets: list[nn.Module]) -> None:
    asked: dict[str, Any] = {"draws": 2, "probes": 2, "top": 2, "seed": 3}
    (own,) = fedscope.sharpness(nets[1], data=(X, Y), **asked).models  # a pair has one split, which needs no name
    samples = Samples(torch.from_numpy(X), torch.from_numpy(Y), 3, "mine", "test", np.arange(60))
    models = [Model("m", "m", weights(nets[1]))]
    (other,) = measured_sharpness(nets[0], samples, models, SharpnessSettings(**asked)).models
    assert own.measures == other.measures
    assert (own.label, own.round) == ("Sequential 1", None)
    rises = fedscope.sharpness(nets[1], data=(X, Y), split="test", hessian=False, draws=2, seed=3)
    assert (rises.attrs["split"], rises.models[0].measure("sam")) == ("test", own.measure("sam"))
    assert "trace" not in rises.numbers()["models"][0]["measures"]
    assert "eigenvalues" not in rises.summary()


def test_an_interrupted_question_goes_on(nets: list[nn.Module], tmp_path: Path) -> None:
    question = fedscope.plane.prepare(nets[:3], **QUICK)
    told: list[tuple[int, int]] = []

    def work(last: int) -> Execution:
        def report(done: int, of: int) -> None:
            told.append((done, of))
            if done == last:
                raise KeyboardInterrupt

        return Execution(tmp_path / "kept", lambda label: nullcontext(report))

    with pytest.raises(KeyboardInterrupt):
        question.answer(work(9))
    told.clear()
    again = question.answer(work(99))
    assert told[0] == (9, 20), "what was done is not done again"
    assert again.numbers() == fedscope.plane(nets[:3], **QUICK).numbers()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda nets: fedscope.plane(nets[:3]), "Sequential 1 is a model, which does not say its data; give data="),
        (lambda nets: fedscope.plane(nets[:2], **QUICK), "a plane goes through three models, but got 2; give A B C"),
        (lambda nets: fedscope.plane([nets[0], nets[1], nets[0]], **QUICK), "Sequential 1 and Sequential 3 are the sa"),
        (lambda nets: fedscope.plane([*nets[:2], nn.Linear(16, 3)], **QUICK), "Linear 3 does not fit the architecture"),
        (lambda nets: fedscope.plane([*nets[:2], 7], **QUICK), "model 3 is int, which is not a model; give RUN@ROUND,"),
        (lambda nets: fedscope.plane(nets[:3], data_of=[1], **QUICK), "data_of=1 needs a run, which says whose data"),
        (lambda nets: fedscope.plane(nets[:3], data_of=[1], split="test", **QUICK), "so split='test' does not go with"),
        (lambda nets: fedscope.plane(nets[:3], range=(0, 1, 0), **QUICK), "range takes 4 numbers, a from, a to,"),
        (lambda nets: fedscope.plane(nets[:3], range=("a", 1, 0, 1), **QUICK), "range is ('a', 1, 0, 1), and not"),
        (lambda nets: fedscope.line(nets[:2], range=(0, 1, 2), data=(X, Y)), "range takes 2 numbers, from, to, but go"),
        (lambda nets: fedscope.line(nets[:2], range="0,1", data=(X, Y)), "range is '0,1', and not 2 numbers; give"),
        (lambda nets: fedscope.plane(nets[:3], data=(X, Y), grid=1), "grid=1 is not a whole number from 2 on"),
        (lambda nets: fedscope.plane(nets[:3], normalization="kept", **QUICK), "normalization='kept' is none of in"),
        (lambda nets: fedscope.plane(nets[:3], split="both", **QUICK), "arrays has no training samples"),
        (lambda nets: fedscope.plane(nets[0], clients=True, **QUICK), "Sequential 1 is not an address of a model;"),
        (lambda nets: fedscope.line(nets[:3], data=(X, Y)), "a line needs pairs of models, but got 3; give A B [A B"),
        (lambda nets: fedscope.line([], data=(X, Y)), "no models are given; give one or more"),
        (lambda nets: fedscope.line(nets, data=(X, Y), split="both"), "split='both' is none of test, train"),
        (lambda nets: fedscope.line(nets, data=(X, Y), points=2), "points=2 is not a whole number from 3 on"),
        (lambda nets: fedscope.sharpness([], data=(X, Y)), "no models are given; give one or more"),
        (lambda nets: fedscope.sharpness(nets[0], rounds=1, data=(X, Y)), "rounds=1 is for whole runs, but Sequenti"),
        (lambda nets: fedscope.sharpness(nets[0], data=(X, Y), split="train"), "arrays has no training samples"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_one_sentence(nets: list[nn.Module], ask: Any, message: str) -> None:
    with pytest.raises(FedscopeError) as refused:
        ask(nets)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_line_says_what_it_is_in_a_notebook(nets: list[nn.Module]) -> None:
    page = fedscope.line(nets[:2], data=(X, Y), points=3)._repr_html_()
    assert page.startswith("<p>loss barrier (greatest excess over the straight line between the ends): ")
    assert page.count("<img") == 1
    assert Line.paths("a.v2")[0].name == "a.v2.nc"
