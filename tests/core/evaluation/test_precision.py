"""Which precision a result says that it was computed in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.analysis.execution import Execution
from fedscope.cli.main import run
from fedscope.evaluation import resumable

SAMPLES = 40
DATA = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0)), torch.arange(SAMPLES) % 3


def net(seed: int = 0, double: bool = True) -> nn.Module:
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    return made.double() if double else made


QUESTIONS: dict[str, Callable[..., Any]] = {
    "line": partial(fedscope.line, points=3),
    "layers": partial(fedscope.line, points=3, layers="each"),
    "plane": partial(fedscope.plane, grid=2),
    "sharpness": partial(fedscope.sharpness, top=1, draws=2, probes=2),
    "align": fedscope.align,
    "cka": partial(fedscope.cka, layer="output"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_network_in_float64_is_measured_in_it(name: str) -> None:
    count = {"plane": 3, "sharpness": 1}.get(name, 2)
    for double, said in ((True, "float64"), (False, "float32")):
        found = QUESTIONS[name]([net(k, double) for k in range(count)], data=DATA)
        assert found.attrs["precision"] == said


def test_no_lower_precision_is_taken_for_float64() -> None:
    nets = [net(k) for k in range(2)]
    rough, exact = (fedscope.line(nets, data=DATA, points=3, precision=one) for one in ("bf16", "float32"))
    np.testing.assert_array_equal(rough.loss, exact.loss)
    assert rough.attrs["precision"] == "float64"
    assert "precision_error" not in rough.attrs


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a network in float64."""
    folder = tmp_path_factory.mktemp("float64")
    x, y = DATA[0].double().numpy(), DATA[1].numpy()
    np.savez(folder / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    parts = {k: np.arange(k, SAMPLES, 3) for k in range(3)}
    with fedscope.Recorder(
        folder / "run", model=net(), data=f"npz:{folder}/data.npz", partition=parts, labels=y
    ) as recorder:
        recorder.round(start=net().state_dict(), clients=[net(k).state_dict() for k in (1, 2, 3)])
    return folder / "run"


@pytest.mark.parametrize(
    "question",
    [
        partial(fedscope.subsets, sizes="1,3"),
        fedscope.matrix,
        fedscope.predictors,
        partial(fedscope.decompose, draws="none"),
        partial(fedscope.reaggregate, servers="fma", rounds=1),
    ],
)
def test_runs_are_measured_in_the_precision_of_the_network(recorded: Path, question: Callable[..., Any]) -> None:
    assert question(str(recorded), model=net()).attrs["precision"] == "float64"


@pytest.mark.parametrize("question", ["subsets", "decompose", "line"])
def test_results_that_call_it_otherwise_stay_those_of_the_same_question(
    recorded: Path,
    question: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those of earlier versions, too, which called it by what was asked for."""
    monkeypatch.chdir(tmp_path)
    Path("in_float64.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), "
        "nn.Linear(5, 3)).double()\n"
    )
    models = [f"{recorded}@1/client-{k}" for k in (0, 1)] if question == "line" else [str(recorded)]
    more = {"line": ["--points", "3"], "decompose": ["--draws", "none"]}.get(question, [])
    asked = [question, *models, "--model", "in_float64.py:net", *more, "--out", "r"]
    with monkeypatch.context() as before:
        for place in PLACES:
            before.setattr(place, lambda _, asked: asked)
        assert run(asked) == 0, capsys.readouterr().err
    assert fedscope.load("r").attrs["precision"] == "float32"
    assert run(asked) == 0, capsys.readouterr().err
    assert fedscope.load("r").attrs["precision"] == "float32", "it is read, and not computed anew"
    assert run([*asked, "--force"]) == 0, capsys.readouterr().err
    assert fedscope.load("r").attrs["precision"] == "float64"
    assert run(asked) == 0, capsys.readouterr().err


#: where the precision is put into a result
PLACES = [
    "fedscope.evaluation.resumable.precision_of",
    "fedscope.training.inputs.models.precision_of",
    "fedscope.decomposition.subsets.request.precision_of",
    "fedscope.decomposition.factors.run.precision_of",
]


def test_what_earlier_versions_have_begun_goes_on(tmp_path: Path) -> None:
    keep = tmp_path / "x.partial"
    with Execution(keep).store({"limit": 3, "precision": "float32"}) as store:
        store.add("1", 2.0)
    with Execution(keep).store({"limit": 3, "precision": "float64"}) as store:
        assert store.done == {"1": 2.0}


@pytest.mark.parametrize(
    ("exact", "loss", "error"),
    [
        ([1.0, 2.0], [1.5, 2.25], 0.5),
        ([np.nan, 2.0], [np.nan, 2.25], 0.25),
        ([np.inf, 2.0], [np.inf, 2.25], 0.25),
        ([1.0, 2.0], [np.nan, 2.25], np.inf),
        ([1.0, np.inf], [1.5, 3.0], np.inf),
        ([np.nan, np.inf], [np.nan, np.nan], np.nan),
    ],
)
def test_losses_that_are_no_numbers_hide_no_error_of_a_lower_precision(
    exact: list[float], loss: list[float], error: float
) -> None:
    np.testing.assert_equal(resumable._greatest_error(np.array(exact), np.array(loss)), error)
