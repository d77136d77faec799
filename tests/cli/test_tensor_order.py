"""A recorded run whose tensors came in another order than the architecture's is measured like one in that order."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedscope import Recorder
from fedscope.cli.main import run

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.second = nn.Linear(64, 8)
        self.first = nn.Linear(8, 10)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x):
        return self.first(self.norm(self.second(x.flatten(1))) * self.scale)
"""
GIVEN = ["--model", "nets_ordered:Net", "--data", "digits", "--json", "--force"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run of two rounds, in the order of the code and in another, of which no module tells what is trained."""
    monkeypatch.chdir(tmp_path)
    Path("nets_ordered.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    from nets_ordered import Net  # type: ignore[import-not-found]

    names = list(Net().state_dict())
    shuffled = random.Random(1).sample(names, len(names))
    for folder, order in (("own", names), ("other", shuffled)):
        torch.manual_seed(0)
        with Recorder(f"{folder}/r") as recorder:
            for _ in range(2):
                nets: list[nn.Module] = [Net() for _ in range(5)]
                for net in nets:
                    net.scale.uniform_(0.5, 2)  # type: ignore[operator, union-attr]
                states = [{name: net.state_dict()[name].clone() for name in order} for net in nets]
                recorder.round(start=states[0], clients=states[1:4], global_=states[4], samples=[1, 2, 3])
    yield tmp_path
    sys.modules.pop("nets_ordered", None)


@pytest.mark.parametrize(
    "words",
    [
        "subsets r",
        "line r@1 --clients --points 3",
        "line r@1/client-0 r@2/global --points 3",
        "plane r@1 --clients --grid 3",
        "plane r --rounds 1,2 --grid 3",
        "cka r",
        "cka r --layer second",
        "decompose r --draws rounds:2 --split test",
        "theory r --draws none --kernel none --split test",
        "wima r",
        "sharpness r@1/global --no-hessian --draws 2",
    ],
)
def test_the_order_of_tensors_changes_no_number(here: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    found: list[Any] = []
    for folder in ("own", "other"):
        command, what, *more = words.split()
        models = [f"{folder}/{word}" if word.startswith("r@") or word == "r" else word for word in (what, *more)]
        assert run([command, *models, "--limit", "60", *GIVEN, "--out", "out"]) == 0, capsys.readouterr().err
        text = capsys.readouterr().out.replace(f"{folder}/", "")
        found.append(json.loads(text))
    assert numbers(found[1]) == pytest.approx(numbers(found[0]), rel=1e-6, abs=1e-9, nan_ok=True)


def test_the_evaluator_and_servers_that_compare_models_go_by_names(here: Path) -> None:
    from nets_ordered import Net  # type: ignore[import-not-found]

    from fedscope.checkpoints import Run
    from fedscope.decomposition.reaggregation.aggregate import EvaluationData, reaggregate
    from fedscope.decomposition.reaggregation.requested_servers import reaggregating_config
    from fedscope.evaluation.evaluator import Evaluator
    from fedscope.training import load_data

    data, found, members = load_data("digits"), [], []
    for folder in ("own", "other"):
        recorded = Run.open(f"{folder}/r")
        found.append(Evaluator(Net(), data.samples("test")).models(recorded.round(2).clients()))
        (made,) = reaggregate(
            recorded, 2, [reaggregating_config(recorded, 2, "greedy")], measuring=EvaluationData(Net(), data)
        )
        members.append(made.members)
    for one, other in zip(*found, strict=True):
        assert list(one) == pytest.approx(list(other), rel=1e-6)
    assert members[0] == members[1]


def numbers(found: Any) -> list[float]:
    """All of an answer."""
    if isinstance(found, dict):
        return [number for value in found.values() for number in numbers(value)]
    if isinstance(found, list):
        return [number for value in found for number in numbers(value)]
    return [float(found)] if isinstance(found, int | float) and not isinstance(found, bool) else []
