"""Clients of a round over several devices: to the last bit what one of them computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from fedscope.checkpoints import FedscopeError, Run
from fedscope.training import Config, merge, resume, train
from fedscope.training.local.local_training import LocalTask
from fedscope.training.local.worker_model import TrainableModel

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("few_digits")]

BOTH = "pretend:0,pretend:1"
SMALL: dict[str, Any] = {
    "data": {"clients": 12},
    "model": {"hidden": [16]},
    "client": {"epochs": 1},
    "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 10},
}


def trained(tables: dict[str, Any], out: Path, device: str, **how: Any) -> Run:
    return train(Config.read(merge(merge(SMALL, tables), {"run": {"device": device}})), out, **how)


def bits(run: Run) -> list[bytes]:
    found = []
    for number in run.rounds:
        one = run.round(number)
        found += [one.read("global").parameters.tobytes(), one.clients().parameters.tobytes()]
        for name in one.client_states:
            state = one.client_state(name)
            found.append(getattr(state, "parameters", state).tobytes())
    return found


@pytest.mark.parametrize("engine", ["device", "cohort"])
@pytest.mark.parametrize("method", ["sgd", "scaffold", "mime", "ditto"])
def test_a_rounds_clients_have_the_bits_of_one_device(
    method: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {"client": {"method": method}, "run": {"engine": engine}}
    one = trained(tables, tmp_path / "one", "pretend:0")
    made: Counter[str] = Counter()
    original = TrainableModel.__init__

    def counted(self: TrainableModel, *args: Any, **how: Any) -> None:
        original(self, *args, **how)
        made[str(self.device)] += 1

    monkeypatch.setattr(TrainableModel, "__init__", counted)
    both = trained(tables, tmp_path / "both", BOTH)
    assert both.config["run"]["device"] == BOTH  # type: ignore[index]
    if engine == "device":
        assert set(made) == {"pretend:0", "pretend:1"}
    assert bits(both) == bits(one)
    for column in ("test_loss", "client_error_mean", "train_loss"):
        assert both.metrics()[column].tolist() == one.metrics()[column].tolist()


def test_each_device_is_sent_the_data_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[str, list[Any]] = {}
    original = LocalTask.sgd

    def watched(self: LocalTask, *args: Any) -> Any:
        where = str(self.x.device)
        assert where == str(self.y.device) == str(self.place.w.device)
        if all(self.x is not known for known in held.setdefault(where, [])):
            held[where].append(self.x)
        return original(self, *args)

    monkeypatch.setattr(LocalTask, "sgd", watched)
    trained({"run": {"rounds": 3, "engine": "device"}}, tmp_path / "run", BOTH)
    assert {where: len(copies) for where, copies in held.items()} == {"pretend:0": 1, "pretend:1": 1}


def test_a_resume_on_half_of_the_devices_is_refused_and_goes_on_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained({}, tmp_path / "whole", BOTH)
    trained({}, tmp_path / "run", BOTH, until=1)
    with monkeypatch.context() as patch:
        patch.setattr(torch.accelerator, "device_count", lambda: 1)
        with pytest.raises(FedscopeError, match=r"trained on pretend:0,pretend:1, not all of which can be used here"):
            resume(tmp_path / "run")
    assert bits(resume(tmp_path / "run")) == bits(whole)
