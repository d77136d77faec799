"""What methods of one's own return, and the loop of rounds cannot go on with: a sentence each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout, Run, TemporaryMatrix, TensorEntry, Weights, as_array
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
    mean_update,
)
from fedscope.training import branch, merge, resume, train
from fedscope.training.guards.returned_arrays import ReturnedError, is_own_method
from fedscope.training.loop.server import step_server
from fedscope.training.settings.registry import find, names

SMALL: dict[str, Any] = {
    "data": {"clients": 4, "share": 0.1},
    "model": {"hidden": [4]},
    "client": {"epochs": 1},
    "run": {"rounds": 2, "participation": 0.5, "evaluate_clients": 0, "evaluate_every": 2, "engine": "threads"},
}
PARAMETERS = 64 * 4 + 4 + 4 * 10 + 10


def served(made: Callable[[np.ndarray, int], Any]) -> type[ServerMethod]:
    """A server that returns what ``made(the next model, round)`` gives."""

    @dataclass(frozen=True)
    class FedX(ServerMethod):
        def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
            moved = start.parameters + mean_update(start, clients)
            found: Served = made(moved.astype(start.layout.dtype), cohort.round)
            return found

    return FedX


def trained(change: Callable[[LocalUpdate, LocalTask], Any], **flags: Any) -> type[ClientMethod]:
    """A client method that returns what ``change(update, task)`` gives."""

    @dataclass(frozen=True)
    class FedX(ClientMethod):
        def train(self, task: LocalTask) -> LocalUpdate:
            found: LocalUpdate = change(local_sgd(task, self), task)
            return found

    for name, value in flags.items():
        setattr(FedX, name, value)
    return FedX


def averaged(made: Callable[[Weights, int], Any]) -> type[AverageMethod]:
    """An average over rounds that returns what ``made(global, round)`` gives."""

    @dataclass(frozen=True)
    class FedX(AverageMethod):
        def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
            found: Averaged = made(global_, round)
            return found

    return FedX


def other_layout(model: Weights) -> Weights:
    layout = Layout((TensorEntry("w", (2,), "float32", "parameter"),))
    return Weights(layout, np.zeros(2, np.float32), {})


SERVERS: list[tuple[Callable[[np.ndarray, int], Any], str]] = [
    (lambda w, t: w, r":FedX.step returned a ndarray in round 1; return Served\(parameters, state\)"),
    (lambda w, t: None, r":FedX.step returned nothing in round 1"),
    (
        lambda w, t: Served(w[:-1]),
        rf"step returned parameters of shape \[{PARAMETERS - 1}\] in round 1, but the model has {PARAMETERS} "
        r"parameters; return one vector",
    ),
    (lambda w, t: Served(w[None]), rf"parameters of shape \[1, {PARAMETERS}\] in round 1"),
    (
        lambda w, t: Served(w.astype(np.float64)),
        r"step returned parameters as float64 in round 1, but the model is float32; .* end with \.astype\(start",
    ),
    (lambda w, t: Served(w.tolist()), r"step returned parameters as a list in round 1; return a NumPy array"),
    (
        lambda w, t: Served(np.where(np.arange(w.size) < 3, np.nan, w).astype(w.dtype)),
        rf"step made 3 of {PARAMETERS} parameters NaN or infinite in round 1, though .* all clients are finite",
    ),
    (
        lambda w, t: Served(w, p=np.ones(5)),
        r"returned p of shape \[5\] in round 1; return one finite weight for each of",
    ),
    (
        lambda w, t: Served(w, p=[0.5, 0.5]),  # type: ignore[arg-type]
        r"returned p as a list in round 1; return one finite .*, in a NumPy",
    ),
    (lambda w, t: Served(w, p=np.array([0.5, np.nan])), r"returned p with NaN or infinity in round 1; return one fin"),
    (lambda w, t: Served(w, p=np.array([1.5, -0.5])), r"returned p with -0\.5 in round 1; no weight is negative"),
    (
        lambda w, t: Served(w, p=np.array([1, 1])),
        r"p of sum 2 in round 1, and .* have the sum 1; divide them by it, or",
    ),
    (lambda w, t: Served(w, p=np.zeros(2)), r"p of sum 0 in round 1, .* sum 1; give at least one client another weigh"),
    (lambda w, t: Served(w, [w]), r"step returned a list as its state; return a dictionary of arrays by name"),
    (
        lambda w, t: Served(w, {"past": [w]}),
        r"step returned state 'past' as a list, which a round's file cannot hold; keep NumPy arrays of numbers",
    ),
    (lambda w, t: Served(w, {"x": np.array([{}])}), r"returned state 'x' as an array of object, which a round's file"),
    (lambda w, t: Served(w, {"a/b": w}), r"names a part of its state 'a/b'; give it a word without /"),
    (lambda w, t: Served(w, {".": w}), r"names a part of its state '\.'; give it a word without /"),
    (lambda w, t: Served(w, {"sent": w}), r"keeps a state named 'sent', which is taken in a round's file"),
    (
        lambda w, t: Served(w, {"m": np.ones(4 + t)}),
        r"step changes the form of the state in round 2 \(m had shape \[5\] and has \[6\]\); keep the same names and "
        r"shapes in every round",
    ),
    (lambda w, t: Served(w, {f"m{t}": w}), r"changes the form of the state in round 2 \(m2 is new, m1 is gone\)"),
    (lambda w, t: Served(w, {"m": w} if t == 1 else {}), r"changes the form of the state in round 2 \(m is gone\)"),
]


@pytest.mark.parametrize(("made", "words"), SERVERS)
def test_what_a_server_must_not_return(tmp_path: Path, made: Any, words: str) -> None:
    with pytest.raises(FedscopeError, match=words):
        train(SMALL, tmp_path / "run", server=served(made))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda n: n.astype(float) ** 0.5, r"FedX\.weights returned p of sum \S+ for 2 clients, .* divide them by it"),
        (lambda n: [0.5, 0.5], r"weights returned p as a list for 2 clients"),
        (
            lambda n: np.ones(3) / 3,
            r"weights returned p of shape \[3\] for 2 clients; return one finite weight for each",
        ),
        (lambda n: np.array([2.0, -1.0]), r"weights returned p with -1 for 2 clients; no weight is negative"),
        (lambda n: n / 0.0, r"weights returned p with NaN or infinity for 2 clients"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_weights_are_looked_at_before_anybody_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Any, words: str
) -> None:
    kind = served(lambda w, t: Served(w))
    kind.weights = lambda self, samples: made(samples)  # type: ignore[method-assign, assignment, misc]
    monkeypatch.setattr("fedscope.training.local.engine.Engine.train", None)
    with pytest.raises(FedscopeError, match=words):
        train(SMALL, tmp_path / "run", server=kind)


@pytest.mark.parametrize(
    "made",
    [
        lambda n: (n / n.sum()).astype(np.float32),
        lambda n: np.arange(len(n)) == 0,  # a single client's model
        lambda n: np.sqrt(n) / np.sqrt(n).sum(),
    ],
)
def test_weights_may_be_rounded_and_a_client_may_have_none(tmp_path: Path, made: Any) -> None:
    kind = served(lambda w, t: Served(w, p=np.array([0.0, 1.0], np.float32)))
    kind.weights = lambda self, samples: made(samples)  # type: ignore[method-assign, assignment, misc]
    run = train(SMALL, tmp_path / "run", server=kind)
    assert Run.open(run.path).round(2).weights.sum() == pytest.approx(1, abs=1e-6)  # of float32


def correcting(correct: Callable[[torch.Tensor, torch.Tensor], Any], **flags: Any) -> type[ClientMethod]:
    """A client method that corrects gradients so."""

    @dataclass(frozen=True)
    class FedX(ClientMethod):
        def train(self, task: LocalTask) -> LocalUpdate:
            return local_sgd(task, self, correct=correct)

    for name, value in flags.items():
        setattr(FedX, name, value)
    return FedX


@pytest.mark.parametrize("engine", ["threads", "cohort"])
@pytest.mark.parametrize("correct", [lambda w, g: g + 0.1 * w, lambda w, g: (g + w).numpy()])
def test_a_gradient_that_nobody_takes_is_refused(tmp_path: Path, engine: str, correct: Any) -> None:
    given = {**SMALL, "run": {**SMALL["run"], "engine": engine, "participation": 1.0}}
    words = r"the correct of .*FedX returned another gradient, which nobody takes; change g in place, as g\.add_"
    with pytest.raises(FedscopeError, match=words):
        train(given, tmp_path / "run", client=correcting(correct, vectorised=True))


@pytest.mark.parametrize(
    "correct",
    [
        lambda w, g: g.add_(w, alpha=0.1),
        lambda w, g: g[..., :5].mul_(0.5),  # the head alone
        lambda w, g: g.view(-1, 1).mul_(0.5),
        lambda w, g: g.mul_(0.5).norm(),  # and what it was is told
        lambda w, g: g.copy_(g + 0.1 * w),  # the remedy
        lambda w, g: g.mul_(0.5) is None,
        lambda w, g: w.mul_(0.999),  # decay of the model itself
        lambda w, g: torch.zeros_like(g).add_(g),  # a sum that a method keeps
    ],
)
def test_a_gradient_that_was_changed_in_place_may_be_returned(tmp_path: Path, correct: Any) -> None:
    assert train(SMALL, tmp_path / "run", client=correcting(correct)).rounds == (1, 2)


CLIENTS: list[tuple[Callable[[LocalUpdate, LocalTask], Any], str]] = [
    (
        lambda u, task: u.weights,
        r":FedX.train returned a Weights \(round 1, client \d\); return a LocalUpdate, as local_",
    ),
    (lambda u, task: None, r":FedX.train returned nothing \(round 1, client \d\)"),
    (
        lambda u, task: replace(u, weights=u.weights.parameters),
        r"train returned the weights as a ndarray \(round 1, cl",
    ),
    (
        lambda u, task: replace(u, weights=other_layout(u.weights)),
        rf"train returned a model of another layout than the one that was sent \(round 1, client \d: 2 parameters, not "
        rf"{PARAMETERS}",
    ),
    (
        lambda u, task: replace(u, weights=Weights(u.weights.layout, u.weights.parameters[:-1], {})),
        rf"train returned weights of shape \[{PARAMETERS - 1}\] in round 1, client \d, but the model has {PARAMETERS}",
    ),
    (
        lambda u, task: replace(u, weights=Weights(u.weights.layout, u.weights.parameters.astype(float), {})),
        r"train returned weights as float64 in round 1, client \d, but the model is float32",
    ),
    (
        lambda u, task: replace(u, loss=np.ones(3)),
        r"train returned loss of shape \[3\] \(round 1, client \d\); return a",
    ),
    (
        lambda u, task: replace(u, message=[1]),
        r"train returned a list as its message \(round 1, client \d\); return a di",
    ),
    (
        lambda u, task: replace(u, state={"x": object()}),
        r"returned state 'x' as a object \(round 1, client \d\), which a",
    ),
    (
        lambda u, task: replace(u, state={f"own{task.client}": u.weights.parameters}),
        r"train returned another state for client \d than for client \d in round 1 \(own\d is new, own\d is gone\)",
    ),
    (
        lambda u, task: replace(u, message={"c": np.ones(1 + task.client)}),
        r"train returned another message for client \d than for client \d in round 1 \(c had shape \[\d\] and has",
    ),
]


@pytest.mark.parametrize(("change", "words"), CLIENTS)
def test_what_a_client_must_not_return(tmp_path: Path, change: Any, words: str) -> None:
    with pytest.raises(FedscopeError, match=words):
        train(SMALL, tmp_path / "run", client=trained(change))


def test_what_several_clients_at_once_must_not_return(tmp_path: Path) -> None:
    own = trained(lambda u, task: u.weights, vectorised=True)
    together = {**SMALL, "run": {**SMALL["run"], "engine": "cohort", "participation": 1.0}}
    with pytest.raises(
        FedscopeError, match=r":FedX.train returned a Weights \(round 1, client \d\); return a LocalUpd"
    ):
        train(together, tmp_path / "run", client=own)


def test_what_is_sent_keeps_its_form(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class FedX(ClientMethod):
        begun: ClassVar[Any] = {"c": np.zeros(1)}

        def begin(self, w: Weights, facts: Any) -> State:
            found: State = self.begun
            return found

        def train(self, task: LocalTask) -> LocalUpdate:
            return local_sgd(task, self)

        def share(self, sent: State, exchange: Exchange) -> State:
            return {"c": np.zeros(1 + exchange.cohort.round)}

    with pytest.raises(
        FedscopeError, match=r"FedX.share changes the form of what is sent in round 1 \(c had shape \[1\]"
    ):
        train(SMALL, tmp_path / "run", client=FedX)
    FedX.begun = {"c": object()}
    with pytest.raises(FedscopeError, match=r"FedX.begin returned state 'c' as a object, which a round's file cannot"):
        train(SMALL, tmp_path / "other", client=FedX)


def test_what_a_server_must_not_begin_with(tmp_path: Path) -> None:
    kind = served(lambda w, t: Served(w, {"m": w}))
    kind.init = lambda self, w: {"m": [w]}  # type: ignore[method-assign, assignment, dict-item, misc]
    with pytest.raises(
        FedscopeError, match=r"FedX.init returned state 'm' as a list, which a round's file cannot hold"
    ):
        train(SMALL, tmp_path / "run", server=kind)


AVERAGES: list[tuple[Callable[[Weights, int], Any], str]] = [
    (lambda w, t: w, r":FedX.average returned a Weights in round 1; return Averaged\(weights, state\), or"),
    (lambda w, t: Averaged(w.parameters), r"average returned the weights as a ndarray in round 1; return Weights\("),
    (lambda w, t: Averaged(other_layout(w)), rf"a model of another layout in round 1 \(2 parameters, not {PARAMETERS}"),
    (
        lambda w, t: Averaged(Weights(w.layout, w.parameters.astype(float), w.buffers)),
        r"average returned weights as float64 in round 1, but the model is float32",
    ),
    (lambda w, t: Averaged(w, {"past": [w]}), r"average returned state 'past' as a list, which a round's file cannot"),
    (lambda w, t: Averaged(w, {"clients_mean": w}), r"keeps a state named 'clients_mean', which is taken"),
    (
        lambda w, t: Averaged(w, {"n": np.ones(t)}),
        r"average changes the form of the state in round 2 \(n had shape \[1\]",
    ),
]


@pytest.mark.parametrize(("made", "words"), AVERAGES)
def test_what_an_average_must_not_return(tmp_path: Path, made: Any, words: str) -> None:
    with pytest.raises(FedscopeError, match=words):
        train(SMALL, tmp_path / "run", average=averaged(made))


def normed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 10))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda own: {}, r"without the buffer 2\.running_mean in round 1; return those of global_\.buffers"),
        (lambda own: {**own, "more": np.zeros(1)}, r"with a buffer more, which the model has not in round 1"),
        (
            lambda own: {**own, "2.running_mean": np.zeros(3, np.float32)},
            r"with the buffer 2\.running_mean of shape \[3\] and not \[4\] in round 1",
        ),
    ],
)
def test_an_average_has_the_buffers_of_the_model(tmp_path: Path, change: Any, words: str) -> None:
    made = averaged(lambda w, t: Averaged(replace(w, buffers=change(dict(w.buffers)))))
    tables = {name: table for name, table in SMALL.items() if name != "model"}
    with pytest.raises(FedscopeError, match=f":FedX.average returned weights {words}"):
        train(tables, tmp_path / "run", average=made, model=normed)
    fine = averaged(lambda w, t: Averaged(replace(w, buffers=dict(w.buffers))))
    assert train(tables, tmp_path / "fine", average=fine, model=normed).rounds == (1, 2)


def test_a_client_has_the_buffers_of_the_model(tmp_path: Path) -> None:
    made = trained(lambda u, task: replace(u, weights=replace(u.weights, buffers={})))
    tables = {name: table for name, table in SMALL.items() if name != "model"}
    with pytest.raises(
        FedscopeError, match=r"weights without the buffer 2\.running_mean \(round 1, client \d\); return"
    ):
        train(tables, tmp_path / "run", client=made, model=normed)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda own: None, r"personalise returned the weights as nothing \(round 1, client \d\); return a model that"),
        (lambda own: own.parameters, r"personalise returned the weights as a ndarray \(round 1"),
        (lambda own: replace(own, parameters=own.parameters[:3]), r"personalise returned weights of shape \[3\] \("),
        (other_layout, r"personalise returned a model of another layout than the one that was sent \(round 1"),
    ],
)
def test_what_a_client_must_not_use_itself(tmp_path: Path, made: Any, words: str) -> None:
    kind = trained(lambda u, task: u, personal=True, personalise=lambda self, task, kept: made(task.start))
    with pytest.raises(FedscopeError, match=f":FedX.{words}"):
        train(merge(SMALL, {"data": {"client_test": 0.2}, "run": {"evaluate_every": 1}}), tmp_path / "run", client=kind)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lambda task: None, r"survey returned nothing \(round 1, client \d\); return a dictionary of arrays by name"),
        (
            lambda task: {"g": np.ones(1 + task.client)},
            r"survey returned arrays of other names or shapes than for the first client \(round 1, client \d: g had sh",
        ),
    ],
)
def test_what_a_survey_must_not_return(tmp_path: Path, found: Any, words: str) -> None:
    kind = trained(lambda u, task: u, surveys=True, survey=lambda self, task: found(task))
    with pytest.raises(FedscopeError, match=f":FedX.{words}"):
        train(SMALL, tmp_path / "run", client=kind)


def looking(made: Callable[[np.ndarray], Any]) -> type[ServerMethod]:
    """A server whose clients are sent what ``made(the next model)`` gives."""
    kind = served(lambda w, t: Served(w))
    kind.look_ahead = lambda self, state, w: made(w)  # type: ignore[method-assign, assignment, misc]
    return kind


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            lambda w: w[:5] * 1,
            rf"look_ahead returned w of shape \[5\] in round 1, but the model has {PARAMETERS} param",
        ),
        (lambda w: torch.tensor(w), r"look_ahead returned w as a Tensor in round 1; return a NumPy array"),
        (lambda w: w.astype(np.float16), r"look_ahead returned w as float16 .* end with \.astype\(w\.dtype\)"),
        (lambda w: w.astype(np.float64)[:5], r"look_ahead returned w of shape \[5\] in round 1"),
    ],
)
def test_what_a_server_must_not_look_ahead_to(tmp_path: Path, made: Any, words: str) -> None:
    with pytest.raises(FedscopeError, match=words):
        train(SMALL, tmp_path / "run", server=looking(made))


def test_clients_step_from_what_is_recorded_of_a_look_ahead_in_float64(tmp_path: Path) -> None:
    wide, rounded = looking(lambda w: w * (1 + 1e-3)), looking(lambda w: (w * (1 + 1e-3)).astype(w.dtype))
    precise = looking(lambda w: w.astype(np.float64) * (1 + 1e-3))
    cast = looking(lambda w: (w.astype(np.float64) * (1 + 1e-3)).astype(w.dtype))
    runs = [train(SMALL, tmp_path / str(k), server=kind) for k, kind in enumerate((precise, cast, wide, rounded))]
    for one, other in ((0, 1), (2, 3)):
        a, b = (runs[k].round(2) for k in (one, other))
        assert a.read("start").parameters.tobytes() == b.read("start").parameters.tobytes()
        assert a.clients().parameters.tobytes() == b.clients().parameters.tobytes()
    cut = train({**SMALL, "run": {**SMALL["run"], "rounds": 3}}, tmp_path / "cut", server=precise, until=2)
    assert resume(cut.path, code={"server": precise}).rounds == (1, 2, 3), "the record does not contradict itself"


def test_what_may_be_returned_is_recorded_and_the_error_names_its_check(tmp_path: Path) -> None:
    """A first state with more names than ``init`` gives, a count, a diagnosis with an axis of clients, a model."""
    run = train(
        SMALL,
        tmp_path / "run",
        server=served(lambda w, t: Served(w, {"steps": np.int64(t), "seen": np.zeros(2), "plain": 3})),
        client=trained(
            lambda u, task: replace(u, state={"own": u.weights, "n": np.array(1)}, message={"s": np.ones(2)})
        ),
        average=averaged(lambda w, t: Averaged(w, {"last": w}) if t > 1 else Averaged(None)),
    )
    assert run.rounds == (1, 2)
    assert sorted(Run.open(run.path).round(2).state()) == ["average", "plain", "seen", "steps"]
    with pytest.raises(ReturnedError) as caught:
        train(SMALL, tmp_path / "other", server=served(lambda w, t: Served(w, {"m": np.ones(4 + t)})))
    assert caught.value.check == "state"


def test_a_branch_may_have_another_cohort(tmp_path: Path) -> None:
    """A state with an axis of clients, such as a diagnosis, has another size then, and that alone."""

    @dataclass(frozen=True)
    class FedX(ServerMethod):
        def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
            moved = start.parameters + mean_update(start, clients)
            return Served(moved.astype(start.layout.dtype), {"far": np.ones((len(clients), 3))})

    run = train(SMALL, tmp_path / "run", server=FedX)
    changes = {"run": {"participation": 0.75, "rounds": 3}}
    assert branch(run, 2, changes, tmp_path / "branch", code={"server": FedX}).round(3).state()["far"].shape == (3, 3)


def test_clients_that_diverged_are_no_fault_of_the_server(tmp_path: Path) -> None:
    wild = {**SMALL, "client": {"epochs": 3, "lr": 1e25}}
    with pytest.raises(FedscopeError, match=r"the training loss of clients? \d.* is not finite at learning"):
        train(wild, tmp_path / "run", server=served(lambda w, t: Served(w)))


def test_blocks_of_columns_are_looked_at_as_the_whole_is(tmp_path: Path, small: Any) -> None:
    layout = small.facts.layout
    rows = TemporaryMatrix(tmp_path, (3, layout.size), layout.dtype)
    for k, row in enumerate(small.clients().parameters):
        rows[k] = row
    clients = Weights(layout, as_array(rows), {})
    good, bad = served(lambda w, t: Served(w, {"m": w}))(), served(lambda w, t: Served(w[:1], {"m": w}))()
    for kind in (type(good), type(bad)):
        kind.reads = "columns"
    whole = good.step({}, small.start, small.clients(), small.cohort())
    blocks = step_server(good, {}, small.start, clients, small.cohort(), numbers=30)
    assert whole.parameters.tobytes() == blocks.parameters.tobytes()
    with pytest.raises(
        FedscopeError, match=r"step returned parameters of shape \[1\] in round 3, but the model has 10"
    ):
        step_server(bad, {}, small.start, clients, small.cohort(), numbers=30)


def test_methods_of_fedscope_are_not_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fedscope.training.local import engine, own_updates
    from fedscope.training.loop import federation, personalized, server, state

    assert not any(
        is_own_method(find(shelf, name)()) for shelf in ("clients", "servers", "averages") for name in names(shelf)
    )  # type: ignore[arg-type]
    places = {
        server: ["refuse_served", "rounded_ahead"],
        federation: ["refuse_averaged", "refuse_begun", "refuse_shared"],
        state: ["refuse_recovered"],
        own_updates: ["refuse_update", "refuse_unlike", "refuse_no_update"],
        engine: ["refuse_survey"],
        personalized: ["refuse_personal"],
    }
    for module, refusals in places.items():
        for name in refusals:
            monkeypatch.setattr(module, name, None)
    assert train(SMALL, tmp_path / "run", method="scaffold", server="fedadam", average="wima").rounds == (1, 2)
