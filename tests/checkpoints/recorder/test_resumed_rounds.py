"""Recorders that go on behind a record: whether the loop goes on there, too."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from fedscope import Recorder
from fedscope.checkpoints import FedscopeWarning, Run

pytestmark = pytest.mark.same_elsewhere


def model(value: float, dtype: torch.dtype = torch.float32, mean: float = 0.0) -> dict[str, Any]:
    return {"w": torch.full((40,), value, dtype=dtype), "norm.running_mean": torch.full((2,), mean)}


class Loop:
    """A loop whose model grows by 2 in each round; ``ahead`` is what is sent besides."""

    def __init__(self, path: Path, dtype: torch.dtype = torch.float32, ahead: float = 0.0) -> None:
        self.path, self.dtype, self.ahead, self.w = path, dtype, ahead, 0.0

    def skip(self) -> None:
        self.w += 2

    def record(self, rounds: int, **about: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught, Recorder(self.path, **about) as recorder:
            warnings.simplefilter("always")
            for _ in range(rounds):
                sent, w = self.w + self.ahead, float(self.w)
                clients = [model(w + 1, self.dtype), model(w + 3, self.dtype)]
                # statistics of the start are often those of an evaluation
                recorder.round(start=model(sent, self.dtype, w), clients=clients, global_=model(w + 2, self.dtype))
                self.skip()
        said = [str(one.message) for one in caught if one.category is FedscopeWarning]
        return [one.partition(": ")[2] for one in said if "start is not" in one]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gap_before_the_first_new_round_is_told(dtype: torch.dtype, tmp_path: Path) -> None:
    """A kill loses the last two rounds of a record, not of the loop's own checkpoint."""
    loop = Loop(tmp_path / "run", dtype)
    assert loop.record(3) == []
    assert loop.record(2, resume=True) == []
    loop.skip()
    (said,) = loop.record(2, resume=True)
    assert said.startswith("start is not the model that round 5 has made, as in rounds before; rounds between them are")
    loop.w -= 4
    (said,) = loop.record(1, resume=True)
    assert said.startswith("start is not the model that round 7 has made, as in rounds before; ")
    loop.skip()
    (said,) = loop.record(1, resume=True)
    assert said.startswith("start is not the model that round 8 has made"), "though that was behind a gap itself"
    assert Run.open(tmp_path / "run").rounds == tuple(range(1, 10))


def test_the_remedy_leaves_no_gap(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run")
    loop.record(3)
    loop.skip()
    loop.w = float(Run.open(tmp_path / "run").round("last").read("global").arrays()["w"][0])
    assert loop.record(1, resume=True) == []
    last = Run.open(tmp_path / "run").round("last").read("global").arrays()["w"]
    assert last.tolist() == [loop.w] * 40


def test_a_server_that_sends_another_model_in_each_round_is_not_told(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run", ahead=0.25)
    assert loop.record(3) == []
    loop.skip()
    assert loop.record(1, resume=True) == []


def test_one_round_says_nothing_of_how_rounds_begin(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run")
    assert loop.record(1) == []
    loop.skip()
    assert loop.record(1, resume=True) == []


def test_rounds_without_a_start_or_a_global_model_say_nothing(tmp_path: Path) -> None:
    for lacking in ("start", "global_"):
        with Recorder(tmp_path / lacking) as recorder:
            for _ in range(3):
                given = {"start": model(0.0), "global_": model(1.0)}
                recorder.round(clients=[model(1.0), model(2.0)], **{k: v for k, v in given.items() if k != lacking})
        loop = Loop(tmp_path / lacking)
        loop.w = 9.0
        assert loop.record(1, resume=True) == []
