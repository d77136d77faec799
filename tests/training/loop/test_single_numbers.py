"""Single numbers in what methods keep: a resume reads what the loop hands on, Python's or NumPy's."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from small_runs import small

from fedscope.checkpoints import FedscopeError, Layout, Round, RoundRecord, Run, TensorEntry, Weights, write_round
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
from fedscope.training.loop.verify_run import check_run

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = small(5)

#: what each function was given, in the order of its calls: names and types of single numbers
SEEN: list[list[tuple[str, str]]] = []


def seen(state: State) -> None:
    SEEN.append(sorted((name, type(value).__name__) for name, value in state.items() if not np.ndim(value)))


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


@dataclass(frozen=True)
class Counted(ServerMethod):
    """All that a single number can be asked for by a method that works with what it has returned itself."""

    def init(self, w: np.ndarray) -> State:
        SEEN.append([("init", "")])
        return {"n": np.int64(0), "mu": 1.0, "s": np.float32(1), "a": np.array(0), "h": np.float16(1), "on": True}

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        assert state["n"].item() == cohort.round - 1
        t = state["a"].copy()
        t += 1
        made = {"n": state["n"].astype(np.int64) + 1, "mu": round(state["mu"] * 0.9, 2), "s": state["s"] * 1, "a": t}
        w = (start.parameters + (clients.parameters.mean(0) - start.parameters) * state["s"]).astype(np.float32)
        return Served(w, {**made, "h": state["h"] / 2, "on": not state["on"]})


def test_a_method_gets_what_it_returned_and_begins_once(tmp_path: Path) -> None:
    def kept(run: Run) -> dict[str, Any]:
        state = RunMemory(run).kept(run.rounds[-1]).server
        return {name: (type(value), np.asarray(value).dtype.name, float(value)) for name, value in state.items()}

    SEEN.clear()
    whole = train(SMALL, tmp_path / "whole", server=Counted)
    often = len(SEEN)
    train(SMALL, tmp_path / "cut", server=Counted, until=2)
    assert len(SEEN) == 2 * often, "it begins once, not in every round"
    resumed = resume(tmp_path / "cut", code={"server": Counted})
    same(whole, resumed)
    assert kept(whole) == {
        "n": (np.int64, "int64", 5.0),
        "mu": (float, "float64", 0.59),
        "s": (np.float32, "float32", 1.0),
        "a": (np.ndarray, "int64", 5.0),
        "h": (np.float16, "float16", 2.0**-5),
        "on": (bool, "bool", 0.0),
    }
    assert kept(resumed) == kept(whole)
    assert check_run(resumed.path).faults == ()


@pytest.mark.parametrize("record", [{"globals": "none"}, {"globals": "every:2"}])
def test_what_a_number_was_stands_in_all_copies_of_a_state(tmp_path: Path, record: Any) -> None:
    """In ``kept/``, and in the history of a branch."""
    whole = train(SMALL, tmp_path / "whole", server=Counted)
    cut = train({**SMALL, "record": record}, tmp_path / "cut", server=Counted, until=3)
    branched = branch(cut, 3, {}, tmp_path / "branch", code={"server": Counted})
    resumed = resume(cut.path, code={"server": Counted})
    for run in (branched, resumed):
        last = run.round(5).read("global").parameters
        assert last.tobytes() == whole.round(5).read("global").parameters.tobytes()


@pytest.mark.parametrize("kind", ["scalar", "array"])
def test_a_run_without_the_attribute_is_read_as_arrays(tmp_path: Path, kind: str) -> None:
    """As every resume of earlier runs: numbers of their files are arrays []."""
    server = made_server(kind, begun=True)
    train(SMALL, tmp_path / "run", server=server, until=2)
    SEEN.clear()
    for file in sorted((tmp_path / "run").glob("rounds/*.h5")):
        without(file)
    resume(tmp_path / "run", code={"server": server})
    first, *later = SEEN
    assert first == [("beta", "ndarray"), ("on", "ndarray"), ("t", "ndarray")]
    assert len(later) == 2


def without(file: Path) -> None:
    """Take from a round's file what its numbers were, as earlier ones have it, its checksums and all."""
    shutil.copy(file, aside := file.with_suffix(".aside"))
    with h5py.File(aside, "r+") as content:
        for name in ("beta", "t", "on"):
            content[f"state/{name}"].attrs.pop("number", None)
        content.attrs.pop("checksums")
        del content["checksums"]
    aside.replace(file)


def written(path: Path, **state: Any) -> Round:
    numbers = np.ones(1, np.int64)
    record = RoundRecord(1, None, None, None, None, numbers, numbers, numbers, np.ones(1), np.ones(1), state=state)
    write_round(path / "00001.h5", record, layout=Layout((TensorEntry("w", (2,), "float32", "parameter"),)))
    return Round(path / "00001.h5", Layout((TensorEntry("w", (2,), "float32", "parameter"),)), "run")


def test_what_a_number_was_is_an_attribute_of_its_dataset(tmp_path: Path) -> None:
    state = {"n": 2**63, "x": np.float64(0.5), "on": np.bool_(1), "a": np.array(3), "v": np.ones(3), "in": {"k": False}}
    found = written(tmp_path, **state).state()
    assert {name: type(value) for name, value in found.items()} == {name: type(one) for name, one in state.items()}
    assert (found["n"], found["x"], found["on"], found["in"]) == (2**63, 0.5, True, {"k": False})
    assert type(found["in"]["k"]) is bool
    with h5py.File(tmp_path / "00001.h5") as file:
        said = {name: file["state"][name].attrs.get("number") for name in ("n", "x", "on", "a", "v", "in/k")}
    assert said == {"n": "python", "x": "scalar", "on": "scalar", "a": None, "v": None, "in/k": "python"}


def test_another_attribute_than_was_written_is_told(tmp_path: Path) -> None:
    def changed(folder: str, value: str | None, *, sums: bool) -> str:
        (tmp_path / folder).mkdir()
        round_ = written(tmp_path / folder, n=3)
        with h5py.File(round_.path, "r+") as file:
            del file["state/n"].attrs["number"]
            if value is not None:
                file["state/n"].attrs["number"] = value
            if not sums:
                del file.attrs["checksums"], file["checksums"]
        with pytest.raises(FedscopeError) as error:
            Round(round_.path, round_.layout, "run").state()
        return str(error.value).removeprefix(f"{round_.path}")

    restore = "; restore it from a copy"
    lost = " is damaged: state/n does not say any more what number it is"
    assert changed("lost", None, sums=True) == lost + restore
    other = " is damaged: state/n's number is not what was written (its checksum is another)"
    assert changed("other", "scalar", sums=True) == other + restore
    assert changed("newer", "decimal", sums=False) == (
        ": state/n is a number of the kind 'decimal', which this fedscope does not know; upgrade it: pip install "
        "--upgrade fedscope"
    )


def test_a_run_that_looks_ahead_by_a_number_is_sound(tmp_path: Path) -> None:
    """``start`` is compared with what the round before left, which is worked out from its file."""
    for kind in ("python", "scalar", "array"):
        server = made_server(kind, begun=True)
        run = train(SMALL, tmp_path / kind, server=server, until=4)
        assert resume(run.path, code={"server": server}).rounds[-1] == 5
        assert check_run(run.path).faults == ()
