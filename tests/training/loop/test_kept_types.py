"""What methods of somebody's own keep in other types than the model's: read back as it was written, or refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import small

from fedscope.checkpoints import FedscopeError, Layout, Run, TensorEntry, Weights
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
from fedscope.training import resume, train
from fedscope.training.guards.returned_arrays import layout_difference
from fedscope.training.loop.state import RunMemory
from fedscope.training.loop.verify_run import check_run

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = small(4)


@dataclass(frozen=True)
class Masks(ServerMethod):
    """Parameters that have not moved by much last are left where they are."""

    def init(self, w: np.ndarray) -> State:
        return {"active": np.ones(w.shape, bool), "some": np.ones(3, bool)}

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        moved = (clients.parameters.mean(0) - start.parameters) * state["active"]
        return Served(start.parameters + moved, {"active": np.abs(moved) > 1e-3, "some": state["some"]})


@dataclass(frozen=True)
class MasksSent(ClientMethod):
    """Clients are told which of their parameters move."""

    def begin(self, w: Weights, facts: Any) -> State:
        return {"active": np.ones(w.layout.size, bool)}

    def train(self, task: LocalTask) -> LocalUpdate:
        active = task.place.tensor(task.sent["active"].astype(np.float32))
        update = local_sgd(task, self, correct=lambda w, g: g.mul_(active))
        return replace(update, state={"moved": update.weights.parameters != task.start.parameters})

    def share(self, sent: State, exchange: Exchange) -> State:
        return {"active": np.abs(exchange.global_.parameters - exchange.start.parameters) > 1e-4}


@dataclass(frozen=True)
class Wide(AverageMethod):
    """An exponential mean that is kept as a model of float64, and where it last moved."""

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        before = state["mean"].parameters if state else global_.parameters.astype(np.float64)
        mean = 0.75 * before + 0.25 * global_.parameters
        made = replace(global_, parameters=mean.astype(np.float32))
        return Averaged(made, {"mean": replace(global_, parameters=mean), "moved": mean != before})


@dataclass(frozen=True)
class WideClients(ClientMethod):
    """Clients keep the mean of their own models as a model of float64."""

    def train(self, task: LocalTask) -> LocalUpdate:
        own = task.kept_model("mean")
        before = task.start.parameters.astype(np.float64) if own is None else own.parameters
        assert before.dtype == np.float64
        pull = task.place.tensor((task.start.parameters - before).astype(np.float32))
        update = local_sgd(task, self, correct=lambda w, g: g.add_(pull))
        mean = 0.75 * before + 0.25 * update.weights.parameters
        return replace(update, state={"mean": replace(update.weights, parameters=mean)})


CHOSEN: dict[str, dict[str, Any]] = {
    "server": {"server": Masks},
    "client": {"client": MasksSent},
    "average": {"average": Wide},
    "models": {"client": WideClients},
}


@pytest.mark.parametrize("record", [{}, {"clients": "none", "globals": "none"}])
@pytest.mark.parametrize("which", CHOSEN)
def test_other_types_are_read_back_as_they_were_kept(tmp_path: Path, which: str, record: Any) -> None:
    code = CHOSEN[which]
    whole = train(SMALL, tmp_path / "whole", **code)
    train({**SMALL, "record": record}, tmp_path / "cut", until=2, **code)
    resumed = resume(tmp_path / "cut", code=code)
    for which in whole.round(4).models:
        one, other = (run.round(4).read(which).parameters for run in (whole, resumed))
        if "start" in resumed.round(4).models or which != "start":
            assert one.tobytes() == other.tobytes(), which
    assert check_run(whole.path).faults == ()


def test_the_types_are_those_that_were_kept(tmp_path: Path) -> None:
    def kept(**code: Any) -> Run:
        return train(SMALL, tmp_path / "-".join(code) / code[next(iter(code))].__name__, **code)

    run = kept(server=Masks)
    state = RunMemory(run).kept(4).server
    assert (state["active"].dtype, state["active"].shape) == (bool, (run.layout.size,))
    assert state["some"].dtype == bool
    average = RunMemory(kept(average=Wide)).kept(4).average
    assert average["mean"].parameters.dtype == np.float64
    assert average["moved"].dtype == bool
    last = kept(client=WideClients).round(4)
    rows = last.client_state("mean", last.client_ids)
    assert isinstance(rows, Weights)
    assert rows.parameters.dtype == np.float64
    assert rows.parameters.shape == (len(last.client_ids), last.layout.size)


def other_layout(weights: Weights) -> Weights:
    layout = Layout((TensorEntry("head", (3,), "float32", "parameter"),))
    return Weights(layout, weights.parameters[:3].copy(), {})


def other_type(weights: Weights) -> Weights:
    layout = Layout(tuple(replace(entry, dtype="float64") for entry in weights.layout.entries))
    return Weights(layout, weights.parameters.astype(np.float64), weights.buffers)


def test_what_differs_between_layouts_is_said() -> None:
    a, b = TensorEntry("a", (2, 3), "float32", "parameter"), TensorEntry("b", (2,), "float32", "parameter")
    layout = Layout((a, b))

    def said(*entries: TensorEntry) -> str:
        return layout_difference(Layout(entries), layout)

    assert said(a) == "6 parameters, not 8"
    assert said(a, replace(b, name="c")) == "without b"
    assert said(b, a) == "other names, or another order of them"
    assert said(replace(a, shape=(3, 2)), b) == "a has shape [3, 2], not [2, 3]"
    assert said(replace(a, dtype="float64"), replace(b, dtype="float64")) == "a is float64, not float32"
    assert said(a, replace(b, kind="buffer")) == "b is a buffer, not a parameter"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            other_layout,
            r"as a model of another layout{at} \(3 parameters, not 310\); keep one of the run's layout, or its "
            r"parameters as an array$",
        ),
        (
            other_type,
            r"as a model of another layout{at} \(fc1\.weight is float64, not float32\); keep one of the run's "
            r"layout, or its parameters as an array$",
        ),
        (
            lambda w: replace(w, parameters=w.parameters[None].repeat(2, 0)),
            r"as a model whose parameters have shape \[2, 310\]{at}, and a model has one vector \[310\]; keep one of "
            r"the run's layout, or its parameters as an array$",
        ),
        (
            lambda w: replace(w, buffers={"count": np.zeros(1)}),
            r"with a buffer count, which the model has not {where}; return those of the model that it is of$",
        ),
    ],
)
def test_a_model_that_is_none_of_the_runs_is_refused_in_round_1(tmp_path: Path, made: Any, words: str) -> None:
    @dataclass(frozen=True)
    class FedX(ClientMethod):
        def train(self, task: LocalTask) -> LocalUpdate:
            update = local_sgd(task, self)
            return replace(update, state={"own": made(update.weights)})

    @dataclass(frozen=True)
    class Mean(AverageMethod):
        def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
            return Averaged(None, {"own": made(global_)})

    at = r" \(round 1, client \d\)"
    told = words.format(at=at, where=at.strip())
    with pytest.raises(FedscopeError, match=rf"FedX\.train returned state 'own' {told}"):
        train(SMALL, tmp_path / "client", client=FedX)
    told = words.format(at="", where="as a model")
    with pytest.raises(FedscopeError, match=rf"Mean\.average returned state 'own' {told}"):
        train(SMALL, tmp_path / "average", average=Mean)


def test_a_number_that_no_file_holds_is_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class FedX(ServerMethod):
        def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
            return Served(start.parameters, {"hash": 2**70})

    words = (
        rf"FedX\.step returned state 'hash' as {2**70}, which a round's file cannot hold; keep NumPy arrays of "
        r"numbers, as in np\.array\(3\)$"
    )
    with pytest.raises(FedscopeError, match=words):
        train(SMALL, tmp_path / "run", server=FedX)
