"""Recorders that go on behind a record: whether the loop goes on there, too."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run

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
    (said,) = loop.record(1, resume=True)
    remedy = said.partition("begin at ")[2].removesuffix(" to leave no gap")
    loop.w = float(eval(remedy, {"fedscope": fedscope})["w"][0])
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


class Adapter(nn.Linear):
    """One of PEFT, whose configuration says its settings."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(4, 2)
        self.lora_A = nn.Linear(4, 2, bias=False)
        self.peft_config = {"default": settings}


def kohya(alpha: float) -> dict[str, np.ndarray]:
    """An adapter whose tensors say its alpha."""
    down, up = np.ones((2, 4), np.float32), np.ones((4, 2), np.float32)
    return {"q.lora_down.weight": down, "q.lora_up.weight": up, "q.alpha": np.float32(alpha)}


def bare(**settings: Any) -> dict[str, torch.Tensor]:
    """The tensors of a module, which say nothing of it."""
    return dict(Adapter(**settings).state_dict())


SCALES = [
    (kohya(1), {}, kohya(1), ""),
    (kohya(1), {}, kohya(1.004), ""),  # a mean in bfloat16
    (kohya(1), {}, kohya(2), "alpha 1.0 at q, run@2: client 0 one with 2.0"),
    (Adapter(r=2, lora_alpha=4), {}, Adapter(r=2, lora_alpha=4), ""),
    (Adapter(r=2, lora_alpha=4), {}, bare(), ""),
    (Adapter(r=2, lora_alpha=4), {}, Adapter(r=2, lora_alpha=8), "lora_alpha 4, run@2: client 0 one with 8"),
    (Adapter(r=2, lora_alpha=4), {}, Adapter(r=2, lora_alpha=4, use_rslora=True), "use_rslora none, run@2: client 0"),
    (Adapter(r=2, lora_alpha=4, use_rslora=True), {}, Adapter(r=2, lora_alpha=4), "use_rslora True, run@2: client 0"),
    (Adapter(r=2), {"lora_alpha": 4}, Adapter(r=2), ""),  # as VeRA's, which say no alpha
    (Adapter(r=2), {"lora_alpha": 4}, Adapter(r=4), "rank 2, run@2: client 0 one with 4"),
    (bare(), {"lora_alpha": 4}, Adapter(r=2, lora_alpha=4, use_rslora=True), ""),
    (bare(), {"lora_alpha": 4}, Adapter(r=2, lora_alpha=8), "lora_alpha 4, run@2: client 0 one with 8"),
    (bare(), {}, Adapter(r=2, lora_alpha=8), ""),
]


@pytest.mark.parametrize(("before", "about", "after", "message"), SCALES)
def test_adapters_of_another_scale_do_not_go_on(
    before: Any, about: dict[str, Any], after: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run held both, and its lengths of updates were those of the first."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(action="ignore", category=FedscopeWarning):
        with Recorder("run", **about) as recorder:
            recorder.round(clients=[before])
        with Recorder("run", resume=True) as recorder:
            if message:
                with pytest.raises(FedscopeError) as refused:
                    recorder.round(clients=[after])
                assert f"what {tmp_path}/run holds is an adapter with " in str(refused.value)
                assert message in str(refused.value).replace(f"{tmp_path}/", "")
            else:
                recorder.round(clients=[after])
            recorder.round(clients=[before])
    assert Run.open("run").rounds == ((1, 2) if message else (1, 2, 3))
