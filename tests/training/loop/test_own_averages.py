"""Averages over rounds of one's own: in a branch they are as if they had averaged its history, and what a class above
says of another formula is not held against them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_code import own_module

import fedscope
from fedscope.checkpoints import FedscopeError, Run, Weights
from fedscope.methods import Averaged, AverageMethod, History, Served, ServerMethod, State, setting
from fedscope.training import branch, branch_notes, merge, resume, train
from fedscope.training.build import config_of
from fedscope.training.loop.verify_run import check_run
from fedscope.training.methods.averages.ima import IMA
from fedscope.training.methods.averages.swa import SWA
from fedscope.training.methods.servers.fma import FMA
from fedscope.training.user_code.templates import filled

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL: dict[str, Any] = {
    "data": {"clients": 4},
    "model": {"hidden": [6]},
    "client": {"epochs": 1},
    "run": {"rounds": 6, "participation": 0.5, "evaluate_clients": 0},
}


def ema(state: State, global_: Weights, decay: float = 0.75) -> Averaged:
    mean = decay * state.get("mean", global_.parameters.astype(float)) + (1 - decay) * global_.parameters
    return Averaged(replace(global_, parameters=mean.astype(global_.layout.dtype)), {"mean": mean})


@dataclass(frozen=True)
class Fading(AverageMethod):
    """An exponential mean that says nothing of branches."""

    decay: float = setting(0.75, "how much of the last mean is kept", least=0, below=1)

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        return ema(state, global_, self.decay)


@dataclass(frozen=True)
class Late(AverageMethod):
    """The same from round 3 on."""

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        return Averaged(None) if round < 3 else ema(state, global_)

    def begins(self) -> int:
        return 3


@dataclass(frozen=True)
class FromIMA(IMA):
    """The same from round 1 on, though IMA begins at t_s and keeps nothing."""

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        return ema(state, global_)

    def restarts(self, round: int) -> bool:
        return False


@dataclass(frozen=True)
class Recent(IMA):
    """IMA whose newest model counts half: no plain mean, and nothing is kept."""

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        found = super().average(state, round, global_, history).weights
        if found is None:
            return Averaged(None)
        half = 0.5 * found.parameters.astype(float) + 0.5 * global_.parameters
        return Averaged(replace(global_, parameters=half.astype(global_.layout.dtype)))


@dataclass(frozen=True)
class OtherState(SWA):
    """SWA with a state of its own, and SWA's way to recover another one."""

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        return ema(state, global_)


def trained(out: Path, average: Any = None, **sections: Any) -> Run:
    chosen: dict[str, Any] = {} if average is None else {"average": average}
    return train(merge(SMALL, sections), out, **chosen)


def averages(run: Run, first: int) -> list[bytes]:
    return [run.round(t).read("averaged").parameters.tobytes() for t in run.rounds[first - 1 :]]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("runs") / "history")


@pytest.mark.parametrize("average", [Fading, Late, FromIMA(explore="none", start=3)])
def test_a_branch_has_the_average_of_its_whole_history(history: Run, tmp_path: Path, average: Any) -> None:
    made = branch(history, 4, {"average": average}, tmp_path / "branch")
    assert averages(made, 5) == averages(trained(tmp_path / "whole", average), 5)


def test_the_file_to_begin_with_has_the_average_of_the_whole_history(
    history: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    with own_module(tmp_path, filled("average", "begun"), "begun"):
        kind = import_module("begun").Begun
        made = branch(history, 4, {"average": kind}, tmp_path / "branch")
        assert averages(made, 5) == averages(trained(tmp_path / "whole", kind), 5)


def test_other_settings_average_the_history_anew(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", Fading)
    made = branch(run, 4, {"average": Fading(decay=0.25)}, tmp_path / "branch")
    assert averages(made, 5) == averages(trained(tmp_path / "whole", Fading(decay=0.25)), 5)


def test_a_thinned_history_is_refused_to_an_average_that_keeps_something_alone(tmp_path: Path) -> None:
    thin = trained(tmp_path / "thin", record={"globals": "last:3"})
    with pytest.raises(FedscopeError, match=r"thin does not hold the global model of round 1, which an average over"):
        branch(thin, 6, {"average": Fading, "run": {"rounds": 8}}, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    for k, average in enumerate((Recent(window=2, start=5, explore="none"), Late)):
        made = branch(
            trained(tmp_path / f"thin{k}", record={"globals": "last:4"}),
            6,
            {"average": average, "run": {"rounds": 8}},
            tmp_path / f"made{k}",
        )
        assert made.rounds[-1] == 8, "what it needs is there"


def test_a_state_that_a_class_above_recovers_is_refused(history: Run, tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"OtherState.recover\(4\) gives a state of another form .*count is gone"):
        branch(history, 5, {"average": OtherState(start=2, cycle=2)}, tmp_path / "branch")


def test_members_of_a_class_above_are_not_held_against_an_average(tmp_path: Path) -> None:
    average = Recent(window=3, start=3, explore="none")
    run = train(SMALL, tmp_path / "run", average=average, until=5)
    resumed = resume(run.path, code={"average": Recent})
    assert averages(resumed, 3) == averages(trained(tmp_path / "whole", average), 3)
    assert check_run(run.path).faults == ()
    with pytest.raises(FedscopeError, match=r"has no plain average over rounds in round 6"):
        fedscope.decompose(run.path, of="averaged", rounds="last", draws="none", limit=50, code={"average": Recent})


def test_a_wrong_word_on_members_is_what_is_blamed(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Claims(Recent):
        def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
            return super().average(state, round, global_, history)

        def members(self, round: int) -> tuple[int, ...]:
            return super().members(round)

    run = train(SMALL, tmp_path / "run", average=Claims(window=3, start=3, explore="none"), until=5)
    words = (
        r"run: averaged is not the mean of global of rounds 3 to 5 .* in round 5, but .*Claims\.members says that it is"
    )
    with pytest.raises(FedscopeError, match=words):
        resume(run.path, code={"average": Claims})


def test_a_start_from_an_average_that_was_not_recorded_contradicts_nothing(tmp_path: Path) -> None:
    """Which round it is of is not said by ``members``: an average of one's own need not be a plain mean."""

    @dataclass(frozen=True)
    class Restarts(Fading):
        def restarts(self, round: int) -> bool:
            return round > 1

    run = train(merge(SMALL, {"record": {"globals": "every:3"}}), tmp_path / "run", average=Restarts, until=5)
    assert resume(run.path, code={"average": Restarts}).rounds[-1] == 6


@dataclass(frozen=True)
class Heavy(ServerMethod):
    """Momentum, as the file to begin with has it."""

    def init(self, w: np.ndarray) -> State:
        return {"v": np.zeros_like(w)}

    def step(self, state: State, start: Weights, clients: Weights, cohort: Any) -> Served:
        mean = (cohort.p @ clients.parameters).astype(start.layout.dtype)
        return Served(mean, {"v": mean - start.parameters})


@dataclass(frozen=True)
class Plain(ServerMethod):
    """Keeps nothing."""

    def step(self, state: State, start: Weights, clients: Weights, cohort: Any) -> Served:
        return Served((cohort.p @ clients.parameters).astype(start.layout.dtype))


def test_a_branch_says_that_a_server_of_ones_own_begins_anew(history: Run) -> None:
    def notes(server: Any) -> list[str]:
        config = replace(config_of(history), server=server(), average=Fading())
        return branch_notes(history, 4, config)

    (note,) = notes(Heavy)
    assert "Heavy keeps a state, which the history, made with fma, does not have: it starts with an empty" in note
    assert notes(Plain) == notes(FMA) == []


def test_an_average_before_the_server_may_return_all_that_it_is_given(tmp_path: Path) -> None:
    """The clients' mean lies beside its state in a round's file, and is the loop's."""

    @dataclass(frozen=True)
    class First(AverageMethod):
        averages_first = True

        def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
            assert "clients_mean" not in state
            found = ema(state, global_)
            return Averaged(found.weights, {**state, **found.state})

    run = trained(tmp_path / "run", First, server={"method": "fedavgm"})
    assert sorted(run.round(6).state()["average"]) == ["clients_mean", "mean"]
    cut = train(merge(SMALL, {"server": {"method": "fedavgm"}}), tmp_path / "cut", average=First, until=3)
    last = resume(cut.path, code={"average": First}).round(6).read("global").parameters
    assert last.tobytes() == run.round(6).read("global").parameters.tobytes()
