"""What clients of somebody's own method keep: its type, and that it is there in every round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.methods import ClientMethod, LocalTask, LocalUpdate, local_sgd, setting
from fedscope.training import branch, resume, train
from fedscope.training.local.cohort_storage import CohortStorage
from fedscope.training.local.engine import _Rows

SMALL: dict[str, Any] = {
    "data": {"clients": 4, "share": 0.1},
    "model": {"hidden": [4]},
    "client": {"epochs": 1},
    "run": {"rounds": 4, "participation": 1.0, "evaluate_clients": 0, "evaluate_every": 4, "engine": "threads"},
}


def keeping(what: Any) -> type[ClientMethod]:
    """A client that keeps what ``what(task)`` gives."""

    @dataclass(frozen=True)
    class FedX(ClientMethod):
        def train(self, task: LocalTask) -> LocalUpdate:
            return replace(local_sgd(task, self), state=what(task))

    return FedX


def test_kept_numbers_have_the_type_that_holds_all_of_them(tmp_path: Path) -> None:
    own = keeping(lambda task: {"score": 0 if task.client == 0 else 0.75, "seen": task.client > 1, "n": np.int32(3)})
    round_ = train({**SMALL, "run": {**SMALL["run"], "rounds": 1}}, tmp_path / "run", client=own).round(1)
    assert round_.client_state("score", [0, 1, 2, 3]).tolist() == [0, 0.75, 0.75, 0.75]
    assert round_.client_state("seen", [0, 1, 2, 3]).dtype == bool
    assert round_.client_state("n", [0, 1, 2, 3]).dtype == np.int32


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_order_in_which_clients_come_back_does_not_count(tmp_path: Path, order: Any, monkeypatch: Any) -> None:
    given: Any = [{"v": np.float32([1, 2])}, {"v": np.array([0.1, 0.2])}, {"v": np.array([3, 2**40])}]
    for held in (2**29, 1):  # in memory, and on the disk
        monkeypatch.setattr("fedscope.training.local.cohort_storage.HELD", held)
        rows = _Rows(3, CohortStorage(tmp_path))
        for k in order:
            rows.put(k, given[k])
        assert np.asarray(rows.named["v"]).tolist() == [[1, 2], [0.1, 0.2], [3, 2**40]]


@pytest.mark.parametrize(
    ("of_first", "words"),
    [
        (lambda task: task.start.parameters, "a model of float32 for client 1 and as an array for client 0"),
        (
            lambda task: replace(task.start, parameters=task.start.parameters.astype(float)),
            "a model of float32 for client 1 and as a model of float64 for client 0",
        ),
    ],
)
def test_models_and_arrays_are_not_kept_under_one_name(tmp_path: Path, of_first: Any, words: str) -> None:
    own = keeping(lambda task: {"h": of_first(task) if task.client == 0 else task.start})
    with pytest.raises(FedscopeError, match=rf"FedX\.train keeps 'h' as {words} in round 1; keep the same for all"):
        train(SMALL, tmp_path / "run", client=own)


def test_a_state_that_comes_and_goes_is_refused(tmp_path: Path) -> None:
    odd = keeping(lambda task: {"h": task.start.parameters} if task.round % 2 else {})
    words = (
        r"FedX\.train returns no state in round 2, and one in the round before; return the same names in every round"
    )
    with pytest.raises(FedscopeError, match=words):
        train(SMALL, tmp_path / "odd", client=odd)
    late = keeping(lambda task: {"h": task.start.parameters} if task.round > 2 else {})
    words = r"FedX\.train returns a state \(h\) in round 3, and none in the round before; return the same names"
    with pytest.raises(FedscopeError, match=words):
        train(SMALL, tmp_path / "late", client=late)


def test_what_is_refused_is_refused_after_a_stop_too(tmp_path: Path) -> None:
    late = keeping(lambda task: {"h": task.start.parameters} if task.round > 2 else {})
    train(SMALL, tmp_path / "late", client=late, until=2)
    with pytest.raises(FedscopeError, match=r"returns a state \(h\) in round 3, and none in the round before"):
        resume(tmp_path / "late", code={"client": late})


def test_the_remedy_resumes_to_the_same_numbers(tmp_path: Path) -> None:
    """Zeros before there is anything to keep, and what was kept where there is nothing new; clients come and go."""

    @dataclass(frozen=True)
    class FedX(ClientMethod):
        def train(self, task: LocalTask) -> LocalUpdate:
            pull = task.place.tensor(task.kept("h"))
            update = local_sgd(task, self, correct=lambda w, g: g.sub_(pull))
            new = (0.1 * (task.start.parameters - update.weights.parameters)).astype(np.float32)
            return replace(update, state={"h": new if task.round % 2 else task.kept("h")})

    given = {**SMALL, "run": {**SMALL["run"], "participation": 0.5}}
    whole = train(given, tmp_path / "whole", client=FedX)
    train(given, tmp_path / "part", client=FedX, until=2)
    part = resume(tmp_path / "part", code={"client": FedX})
    for t in (3, 4):
        one, other = (run.round(t).read("global").parameters for run in (whole, part))
        np.testing.assert_array_equal(one, other)


def test_a_branch_may_begin_to_keep_and_cease_to(tmp_path: Path) -> None:
    """A setting by which a method keeps something is another one there; what follows is resumed as it was played."""

    @dataclass(frozen=True)
    class FedX(ClientMethod):
        much: float = setting(0.0, "how much of it", least=0)

        def train(self, task: LocalTask) -> LocalUpdate:
            pull = task.place.tensor(self.much * task.kept("h"))
            update = local_sgd(task, self, correct=lambda w, g: g.sub_(pull))
            new = (0.1 * (task.start.parameters - update.weights.parameters)).astype(np.float32)
            return replace(update, state={"h": new} if self.much else {})

    code: Any = {"client": FedX}
    for name, before, after in (("begins", 0.0, 1.0), ("ceases", 1.0, 0.0)):
        trunk = train(SMALL, tmp_path / f"{name}-trunk", client=FedX(much=before))
        change = {"client": {"much": after}}
        whole = branch(trunk, 2, change, tmp_path / f"{name}-whole", code=code)
        branch(trunk, 2, change, tmp_path / f"{name}-part", code=code, until=3)
        part = resume(tmp_path / f"{name}-part", code=code)
        one, other = (run.round(4).read("global").parameters for run in (whole, part))
        np.testing.assert_array_equal(one, other)


def test_an_optimisers_moments_may_be_kept_beside_nothing(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class FedX(ClientMethod):
        any_optimiser = True

        def train(self, task: LocalTask) -> LocalUpdate:
            return local_sgd(task, self)

    adam = {**SMALL, "client": {"epochs": 1, "optimiser": "adamw", "lr": 0.001}}
    trunk = train(adam, tmp_path / "trunk", client=FedX)
    kept = {"client": {"optimiser_state": "kept"}}
    assert branch(trunk, 2, kept, tmp_path / "kept", code={"client": FedX}).rounds == (1, 2, 3, 4)
