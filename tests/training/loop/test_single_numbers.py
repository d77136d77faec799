"""Single numbers in what methods of somebody's own keep: the loop hands on what a resume reads, Python's or NumPy's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import Run, Weights
from fedscope.decomposition.draws.replay import Replayer
from fedscope.methods import (
    Averaged,
    AverageMethod,
    ClientMethod,
    Cohort,
    Exchange,
    History,
    LocalTask,
    LocalUpdate,
    Served,
    ServerMethod,
    State,
    local_sgd,
)
from fedscope.training import branch, resume, train
from fedscope.training.loop.state import RunMemory
from fedscope.training.returned_arrays import as_resumed

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL: dict[str, Any] = {
    "data": {"clients": 4},
    "model": {"hidden": [4]},
    "client": {"epochs": 1},
    "run": {"rounds": 5, "participation": 0.5, "evaluate_clients": 0, "evaluate_every": 5},
}

#: what each function was given, in the order of its calls: names and types of single numbers
SEEN: list[list[tuple[str, str]]] = []


def seen(state: State) -> None:
    SEEN.append([(name, type(value).__name__) for name, value in state.items() if not np.ndim(value)])


def number(first: Any, kind: str) -> Any:
    return {"python": first, "scalar": np.asarray(first)[()], "array": np.asarray(first)}[kind]


def made_server(kind: str, *, begun: bool) -> type[ServerMethod]:
    @dataclass(frozen=True)
    class Decay(ServerMethod):
        """Δ shrinks by β_t, and clients are sent a model ahead of it."""

        def init(self, w: np.ndarray) -> State:
            return {"t": number(0, kind), "beta": number(1.0, kind), "on": number(True, kind)} if begun else {}

        def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
            seen(state)
            beta, t = state.get("beta", number(1.0, kind)), state.get("t", number(0, kind)) + 1
            moved = np.float32(0.3) * (clients.parameters.mean(0) - start.parameters)
            w = (start.parameters + beta * moved).astype(np.float32)
            return Served(w, {"t": t, "beta": beta * 0.7, "on": state.get("on", number(True, kind))})

        def look_ahead(self, state: State, w: np.ndarray) -> np.ndarray:
            ahead: np.ndarray = w + state["beta"] / 3 * (w / np.float32(7))
            return ahead

    return Decay


def made_client(kind: str, *, begun: bool) -> type[ClientMethod]:
    @dataclass(frozen=True)
    class Told(ClientMethod):
        """Clients step with a share of the gradient that falls by the round."""

        def begin(self, w: Weights, facts: Any) -> State:
            return {"much": number(1.0, kind)} if begun else {}

        def train(self, task: LocalTask) -> LocalUpdate:
            much = task.sent.get("much", number(1.0, kind))
            shift = task.place.tensor(np.asarray(much * (task.start.parameters / np.float32(9)), np.float32))
            return local_sgd(task, self, correct=lambda w, g: g.add_(shift))

        def share(self, sent: State, exchange: Exchange) -> State:
            seen(sent)
            return {"much": sent.get("much", number(1.0, kind)) * 0.7}

    return Told


def made_average(kind: str) -> type[AverageMethod]:
    @dataclass(frozen=True)
    class Fading(AverageMethod):
        """m ← m + (w − m)·β_t, in whatever type that is."""

        def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
            seen(state)
            share = state.get("share", number(1.0, kind))
            before = state.get("mean", global_.parameters)
            mean = np.asarray(before + share * (global_.parameters - before), np.float32)
            return Averaged(replace(global_, parameters=mean), {"share": share * 0.7, "mean": mean})

    return Fading


def same(one: Run, other: Run) -> None:
    for t in one.rounds:
        for which in one.round(t).models:
            a, b = (run.round(t).read(which).parameters for run in (one, other))
            assert a.tobytes() == b.tobytes(), (t, which)


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("kind", ["python", "scalar", "array"])
def test_a_resume_hands_on_the_numbers_that_the_loop_had(tmp_path: Path, kind: str, begun: bool) -> None:
    code: dict[str, Any] = {"server": made_server(kind, begun=begun), "client": made_client(kind, begun=begun)}
    code["average"] = made_average(kind)
    SEEN.clear()
    whole = train(SMALL, tmp_path / "whole", **code)
    calls = [*SEEN]
    SEEN.clear()
    train(SMALL, tmp_path / "cut", until=2, **code)
    resumed = resume(tmp_path / "cut", code=code)
    assert calls == SEEN
    same(whole, resumed)
    same(whole, branch(whole, 3, {}, tmp_path / "branch", code=code))
    replayer = Replayer.of(whole, code=code)
    for t in (1, 2, 4):
        assert replayer.replay(whole.round(t), 1).parameters.tobytes() == whole.round(t).clients().parameters.tobytes()


def kept_by(server: type[ServerMethod], out: Path) -> State:
    """Return what is read of a server's state after round 3."""
    run = train(SMALL, out, server=server)
    return RunMemory(Replayer.of(run, code={"server": server}).run).kept(3).server


@pytest.mark.parametrize("begun", [True, False])
def test_pythons_numbers_stay_so(tmp_path: Path, begun: bool) -> None:
    found = kept_by(made_server("python", begun=begun), tmp_path / "run")
    assert {name: type(value) for name, value in found.items()} == {"beta": float, "on": bool, "t": int}
    assert found == {"beta": pytest.approx(0.343), "on": True, "t": 3}


def test_numpys_numbers_of_a_first_state_stay_arrays(tmp_path: Path) -> None:
    """As resumes have always read them: a run that was recorded before goes on to the same bits."""
    found = kept_by(made_server("array", begun=True), tmp_path / "run")
    assert {type(value) for value in found.values()} == {np.ndarray}


def test_a_run_that_looks_ahead_by_a_number_is_sound(tmp_path: Path) -> None:
    """``start`` is compared with what the round before left, which is worked out from its file."""
    for kind in ("python", "array"):
        server = made_server(kind, begun=True)
        run = train(SMALL, tmp_path / kind, server=server, until=4)
        assert resume(run.path, code={"server": server}).rounds[-1] == 5


def test_fedscopes_own_states_are_left_alone() -> None:
    from fedscope.training.methods.servers.fma import FMA

    state = {"t": np.int64(3), "a": np.ones(2)}
    assert as_resumed(FMA(), state) is state
