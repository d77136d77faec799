"""Methods of one's own that change what they are given in place: refused in a sentence that names the argument."""

from __future__ import annotations

import ctypes
import gc
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import fedscope
from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    Run,
    TemporaryMatrix,
    TensorEntry,
    Weights,
    as_array,
    as_disk_matrix,
    recorded_matrix,
)
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
from fedscope.testing import check_method
from fedscope.training import branch, train
from fedscope.training.guards.handed import ChangedError, Handed
from fedscope.training.guards.protected_classes import PROTECTED
from fedscope.training.guards.returned_arrays import ReturnedError
from fedscope.training.loop.server import step_server
from fedscope.training.methods.servers.fedavgm import FedAvgM
from fedscope.training.settings.registry import names

SMALL: dict[str, Any] = {
    "data": {"clients": 4, "share": 0.1},
    "model": {"hidden": [4]},
    "client": {"epochs": 1},
    "average": {"method": "none"},
    "run": {"rounds": 2, "participation": 0.5, "evaluate_clients": 0, "evaluate_every": 2, "engine": "threads"},
}
LINE = r" \(line \d+ of test_arguments_unchanged\.py\)"
TENSOR = ", through a tensor or an array that shares its memory"
REMEDY = "; copy it before you change it$"


def served(change: Callable[[State, Weights, Weights, Cohort], Any], **more: Any) -> type[ServerMethod]:
    """FMA, which keeps two vectors and does something to what it is given before."""

    @dataclass(frozen=True)
    class FedX(ServerMethod):
        def init(self, w: np.ndarray) -> State:
            return {"v": np.zeros_like(w), "n": np.array(0)}

        def step(self, state: State, start: Weights, models: Weights, cohort: Cohort) -> Served:
            change(state, start, models, cohort)
            moved = start.parameters + mean_update(start, models)
            return Served(moved.astype(start.layout.dtype), state)

    for name, value in more.items():
        setattr(FedX, name, value)
    return FedX


def first_row(state: State, start: Weights, models: Weights, cohort: Cohort) -> None:
    models.parameters[0] += 1


def alias(state: State, start: Weights, models: Weights, cohort: Cohort) -> None:
    d = models.parameters
    d -= start.parameters


def rows(state: State, start: Weights, models: Weights, cohort: Cohort) -> None:
    for row in models.parameters:
        np.subtract(row, start.parameters, out=row)


def over_lines(state: State, start: Weights, models: Weights, cohort: Cohort) -> None:
    np.multiply(
        start.parameters,
        2,
        out=models.parameters[1],
    )


def shuffled(state: State, start: Weights, models: Weights, cohort: Cohort) -> None:
    np.random.default_rng(0).shuffle(cohort.client_ids)


def own_fixed(state: State, start: Weights, models: Weights, cohort: Cohort) -> None:
    mine = np.broadcast_to(np.float32(1), start.parameters.shape)
    mine += start.parameters


def unlocked(state: State, start: Weights, models: Weights, cohort: Cohort) -> None:
    start.parameters.flags.writeable = True
    start.parameters[0] += 1


SERVERS: list[tuple[Any, str, str]] = [
    (first_row, "models.parameters", LINE),
    (alias, "models.parameters", LINE),
    (rows, "models.parameters", LINE),
    (over_lines, "models.parameters", LINE),
    (lambda state, start, models, cohort: start.parameters.sort(), "start.parameters", LINE),
    (lambda state, start, models, cohort: np.copyto(state["v"], start.parameters), "state['v']", LINE),
    (lambda state, start, models, cohort: np.add(state["n"], 1, out=state["n"]), "state['n']", LINE),
    (lambda state, start, models, cohort: cohort.p.fill(1), "cohort.p", LINE),
    (shuffled, "cohort.client_ids", LINE),
    (own_fixed, "an array", f" that it was given or made read-only{LINE}"),
    (lambda state, start, models, cohort: torch.from_numpy(models.parameters).mul_(2), "models.parameters", TENSOR),
    (unlocked, "start.parameters", TENSOR),
]


@pytest.mark.parametrize(("change", "what", "where"), SERVERS)
def test_a_server_that_changes_what_it_is_given_is_refused(tmp_path: Path, change: Any, what: str, where: str) -> None:
    said = rf":FedX\.step changes {re.escape(what)} in place{where}{REMEDY}"
    with pytest.raises(ReturnedError, match=said) as caught:
        train(SMALL, tmp_path / "run", server=served(change))
    assert caught.value.check == "arguments"
    assert Run.open(tmp_path / "run").rounds == (), "the round is not recorded"


def test_what_is_no_array_of_others_raises_as_it_did(tmp_path: Path) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("the file is read-only, and so on")

    with pytest.raises(ValueError, match=r"^the file is read-only, and so on$"):
        train(SMALL, tmp_path / "run", server=served(fails))


def nothing(*_: Any) -> None:
    return None


def begins_by_change(self: Any, w: np.ndarray) -> State:
    w += 1
    return {"v": w}


def looks_by_change(self: Any, state: State, w: np.ndarray) -> np.ndarray:
    w *= 2
    return w


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"init": begins_by_change}, r":FedX\.init changes w"),
        ({"look_ahead": looks_by_change}, r"\.look_ahead changes w"),
    ],
)
def test_a_servers_other_functions_are_refused_too(tmp_path: Path, more: Any, said: str) -> None:
    with pytest.raises(ReturnedError, match=f"{said} in place{LINE}{REMEDY}"):
        train(SMALL, tmp_path / "run", server=served(nothing, **more))


def tries(state: State, start: Weights, models: Weights, cohort: Cohort) -> None:
    """Change all that there is, and take no for an answer."""
    for array in (models.parameters, start.parameters, cohort.p, cohort.samples, *state.values()):
        try:
            array[...] = 0
        except ValueError:
            continue


def test_a_server_that_takes_no_for_an_answer_changes_nothing(tmp_path: Path) -> None:
    own, plain = (train(SMALL, tmp_path / name, server=served(what)) for name, what in (("a", tries), ("b", nothing)))
    for number in (1, 2):
        for one, other in zip(_arrays(own, number), _arrays(plain, number), strict=True):
            assert one.tobytes() == other.tobytes()


def _arrays(run: Run, number: int) -> list[np.ndarray]:
    place = run.round(number)
    return [place.read(which).parameters for which in sorted(place.models)] + [place.clients().parameters]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of three clients a round."""
    settings = {**SMALL, "run": {**SMALL["run"], "participation": 0.75}}
    return train(settings, tmp_path_factory.mktemp("plain") / "run", server="fedavgm")


@pytest.mark.parametrize("server", [name for name in names("servers") if name != "lora"])
def test_a_built_in_server_after_an_own_one_gives_what_it_gives_alone(plain: Run, server: str) -> None:
    def taken(name: str, *before: Any) -> Any:
        return fedscope.reaggregate(plain, rounds="last", servers=[*before, name], limit=20)

    def returned(state: State, start: Weights, models: Weights, cohort: Cohort) -> Served:
        return Served(models.parameters[0], {"start": start.parameters})

    own = served(tries)
    own_row = type("FedRow", (ServerMethod,), {"step": lambda self, *given: returned(*given)})
    alone, after = taken(server), taken(server, own, own_row)
    assert after.models[server].parameters.tobytes() == alone.models[server].parameters.tobytes()
    first, again = (next(row for row in found.measured if row.model == server) for found in (alone, after))
    assert (first.loss, first.error) == (again.loss, again.error)


def test_reaggregate_refuses_a_server_that_works_in_place(plain: Run) -> None:
    with pytest.raises(FedscopeError, match=rf":FedX\.step changes models\.parameters in place{LINE}{REMEDY}"):
        fedscope.reaggregate(plain, rounds="last", servers=[served(alias), "fma"], limit=20)


@pytest.mark.parametrize("change", [first_row, alias, rows])
@pytest.mark.parametrize("reads", ["columns", "rows"])
def test_clients_on_the_disk_are_not_changed_either(tmp_path: Path, small: Any, change: Any, reads: str) -> None:
    layout, before = small.facts.layout, small.clients().parameters
    rows = TemporaryMatrix(tmp_path, before.shape, layout.dtype)
    for k, row in enumerate(before):
        rows[k] = row
    clients = Weights(layout, as_array(rows), {})
    own = served(change, reads=reads)()
    state = own.init(small.start.parameters)
    if reads == "rows" and change is not first_row:  # what was read from the disk is the server's own
        step_server(own, state, small.start, clients, small.cohort())
    else:
        with pytest.raises(FedscopeError, match=r":FedX\.step changes models\.parameters in place"):
            step_server(own, state, small.start, clients, small.cohort(), numbers=30)
    assert np.asarray(rows).tobytes() == before.tobytes()


def test_a_matrix_on_the_disk_that_cannot_be_written_to_reads_as_it_did(tmp_path: Path, plain: Run) -> None:
    recorded = as_disk_matrix(recorded_matrix(plain.round(1)).parameters)
    assert recorded is not None
    fixed = Handed().view(recorded, "clients")
    whole = np.asarray(recorded)
    assert np.asarray(fixed).tobytes() == whole.tobytes()
    assert fixed[1].tobytes() == whole[1].tobytes()
    assert np.asarray(fixed[:, 2:5]).tobytes() == whole[:, 2:5].tobytes()
    for blocks in (fixed.blocks(100), fixed.once(50, lambda count: np.empty(count, fixed.dtype))):
        found = np.empty_like(whole)
        for where, values in blocks:
            found[:, where] = values
        assert found.tobytes() == whole.tobytes()


# --- what may be returned ---


def test_what_was_handed_may_be_returned_and_is_itself(small: Any) -> None:
    given: dict[str, Any] = {}

    @dataclass(frozen=True)
    class Same(ServerMethod):
        what: ClassVar[str] = "start"

        def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
            given["start"] = start.parameters
            return Served(start.parameters if self.what == "start" else clients.parameters[1], state)

    state = {"v": np.zeros(small.facts.layout.size)}
    clients = small.clients()
    found = step_server(Same(), state, small.start, clients, small.cohort())
    assert found.parameters is small.start.parameters
    assert found.state["v"] is state["v"]
    assert not given["start"].flags.writeable
    assert small.start.parameters.flags.writeable
    Same.what = "client"
    row = step_server(Same(), state, small.start, clients, small.cohort()).parameters
    assert row.flags.writeable
    assert not np.may_share_memory(row, clients.parameters), "a copy of the row alone, not the cohort"
    assert row.tobytes() == clients.parameters[1].tobytes()


@pytest.mark.parametrize("engine", ["threads", "cohort"])
def test_methods_that_return_what_they_were_given_train_and_go_on(tmp_path: Path, engine: str) -> None:
    @dataclass(frozen=True)
    class First(ServerMethod):
        def init(self, w: np.ndarray) -> State:
            return {"first": w}

        def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
            return Served(clients.parameters[0], state)

        def look_ahead(self, state: State, w: np.ndarray) -> np.ndarray:
            return w

    @dataclass(frozen=True)
    class Keeps(ClientMethod):
        vectors_kept: ClassVar[int] = 1
        vectorised: ClassVar[bool] = True

        def begin(self, w: Weights, facts: Any) -> State:
            return {"begun": w.parameters}

        def train(self, task: LocalTask) -> LocalUpdate:
            update = local_sgd(task, self)
            return replace(update, state={"own": update.weights.parameters})

        def share(self, sent: State, exchange: Exchange) -> State:
            return sent

    @dataclass(frozen=True)
    class Last(AverageMethod):
        def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
            return Averaged(global_ if round == 1 else history.row(round - 1), {"last": global_.parameters})

        def window_size(self) -> int:
            return 1

    whole = {**SMALL, "run": {**SMALL["run"], "participation": 1.0, "rounds": 3, "engine": engine}}
    run = train(whole, tmp_path / "run", server=First, client=Keeps, average=Last)
    for number in run.rounds:
        place = run.round(number)
        assert place.read("global").parameters.tobytes() == place.clients().parameters[0].tobytes()
        kept = run.round(1 if number == 1 else number - 1).read("global").parameters
        assert place.read("averaged").parameters.tobytes() == kept.tobytes()
        assert place.state()["first"].tobytes() == run.round(1).read("start").parameters.tobytes()
        assert place.state()["sent"]["begun"].tobytes() == run.round(1).read("start").parameters.tobytes()
    code = {"server": First, "client": Keeps, "average": Last}
    assert branch(run, 2, {"run": {"rounds": 4}}, tmp_path / "branch", code=code).rounds == (1, 2, 3, 4)


def test_the_dictionary_of_a_state_is_the_methods_own(tmp_path: Path) -> None:
    """Its entries may be replaced; only what stood in it stays as it was."""

    @dataclass(frozen=True)
    class Counting(ServerMethod):
        def init(self, w: np.ndarray) -> State:
            return {"n": np.array(0), "v": np.zeros_like(w)}

        def step(self, state: Any, start: Weights, clients: Weights, cohort: Cohort) -> Served:
            state["n"] = state["n"] + 1
            return Served(clients.parameters[0], state)

    run = train(SMALL, tmp_path / "run", server=Counting)
    assert [int(run.round(number).state()["n"]) for number in run.rounds] == [1, 2]
    handed, kept = Handed(), {"n": np.array(0), "v": np.zeros(2)}
    view = handed.view(kept, "state")
    assert handed.back(view) is kept
    view["n"] = np.array(1)
    found = handed.back(view)
    assert (int(found["n"]), int(kept["n"])) == (1, 0)
    assert found["v"] is kept["v"]
    del view["v"]
    assert [*handed.back(view)] == ["n"]


# --- clients ---


def trained(change: Callable[[LocalTask], Any], **more: Any) -> type[ClientMethod]:
    """Local SGD, of clients that keep their model and are sent a vector, after something was done to a task."""

    @dataclass(frozen=True)
    class FedX(ClientMethod):
        vectors_kept: ClassVar[int] = 1

        def begin(self, w: Weights, facts: Any) -> State:
            return {"c": np.zeros_like(w.parameters)}

        def train(self, task: LocalTask) -> LocalUpdate:
            change(task)
            update = local_sgd(task, self)
            return replace(update, state={"own": update.weights, "v": update.weights.parameters})

    for name, value in more.items():
        setattr(FedX, name, value)
    return FedX


def shares_by_change(self: Any, sent: State, exchange: Exchange) -> State:
    exchange.clients.parameters[:] = 0
    return sent


def shares_what_was_sent(self: Any, sent: State, exchange: Exchange) -> State:
    sent["c"][0] = 1
    return sent


def surveys_by_change(self: Any, task: LocalTask) -> State:
    task.start.parameters[:2] = 0
    return {}


def begins_client_by_change(self: Any, w: Weights, facts: Any) -> State:
    w.parameters[0] = 0
    return {}


def reversed_rows(task: LocalTask) -> None:
    task.indices[:] = task.indices[::-1]


def zeroed(task: LocalTask) -> None:
    task.start.parameters[:] = 0


CLIENTS: list[tuple[Any, dict[str, Any], str]] = [
    (zeroed, {}, rf"train changes task\.start\.parameters in place{LINE}"),
    (lambda task: task.sent["c"].fill(1), {}, rf"train changes task\.sent\['c'\] in place{LINE}"),
    (reversed_rows, {}, rf"train changes task\.indices in place{LINE}"),
    (lambda task: np.random.default_rng(0).shuffle(task.indices), {}, rf"train changes task\.indices in place{LINE}"),
    (
        lambda task: task.place.tensor(task.start.parameters).add_(1),
        {},
        rf"train changes task\.start\.parameters in place{TENSOR}",
    ),
    (lambda task: torch.from_numpy(task.sent["c"]).add_(1), {}, rf"train changes task\.sent\['c'\] in place{TENSOR}"),
    # these samples are those of all tests: changes that change no bit are told by torch, too
    (lambda task: task.x.mul_(1), {}, rf"train changes task\.x in place{TENSOR}"),
    (lambda task: task.y[:3].add_(0), {}, rf"train changes task\.y in place{TENSOR}"),
    (nothing, {"share": shares_by_change}, rf"share changes exchange\.clients\.parameters in place{LINE}"),
    (nothing, {"share": shares_what_was_sent}, rf"share changes sent\['c'\] in place{LINE}"),
    (
        nothing,
        {"survey": surveys_by_change, "surveys": True},
        rf"survey changes task\.start\.parameters in place{LINE}",
    ),
    (nothing, {"begin": begins_client_by_change}, rf"begin changes w\.parameters in place{LINE}"),
]


@pytest.mark.parametrize(("change", "more", "said"), CLIENTS)
def test_a_client_that_changes_what_it_is_given_is_refused(tmp_path: Path, change: Any, more: Any, said: str) -> None:
    with pytest.raises(ReturnedError, match=rf":FedX\.{said}{REMEDY}"):
        train(SMALL, tmp_path / "run", client=trained(change, **more))


def test_several_clients_at_once_are_refused_too(tmp_path: Path) -> None:
    together = {**SMALL, "run": {**SMALL["run"], "engine": "cohort", "participation": 1.0}}
    with pytest.raises(ReturnedError, match=rf":FedX\.train changes task\.start\.parameters in place{LINE}{REMEDY}"):
        train(together, tmp_path / "run", client=trained(zeroed, vectorised=True))


def test_what_a_client_kept_is_not_changed_by_the_model_that_it_uses(tmp_path: Path) -> None:
    """It is the row that the round's file holds."""

    def personalise(self: Any, task: LocalTask, kept: Any) -> Weights:
        own: Weights = kept.get("own", task.start)
        own.parameters[:] = 0
        return own

    tested = {**SMALL, "data": {**SMALL["data"], "client_test": 0.2}, "run": {**SMALL["run"], "evaluate_every": 1}}
    said = r":FedX\.personalise changes (kept\['own'\]|task\.start)\.parameters in place"
    with pytest.raises(ReturnedError, match=said):
        train(tested, tmp_path / "run", client=trained(nothing, personal=True, personalise=personalise))


def test_what_a_client_kept_before_is_not_changed(tmp_path: Path) -> None:
    def later(task: LocalTask) -> None:
        if task.state:
            v = task.kept("v")
            v += 1

    whole = {**SMALL, "run": {**SMALL["run"], "participation": 1.0}}
    with pytest.raises(ReturnedError, match=rf":FedX\.train changes task\.state\['v'\] in place{LINE}{REMEDY}"):
        train(whole, tmp_path / "run", client=trained(later))


# --- averages over rounds ---


def averaged(change: Callable[[State, Weights, History, int], Any]) -> type[AverageMethod]:
    """The sum of all rounds, after something was done to what it is given."""

    @dataclass(frozen=True)
    class FedX(AverageMethod):
        def average(self, state: State, round: int, w: Weights, history: History) -> Averaged:
            change(state, w, history, round)
            total = w.parameters + state.get("sum", 0)
            return Averaged(w, {"sum": total})

        def window_size(self) -> int:
            return 1

    return FedX


def sums_in_place(state: State, w: Weights, history: History, round: int) -> None:
    if state:
        state["sum"][:] += w.parameters


def halves(state: State, w: Weights, history: History, round: int) -> None:
    w.parameters[:] = w.parameters / 2


def looks_back(state: State, w: Weights, history: History, round: int) -> None:
    if round > 1:
        before = history.row(round - 1).parameters
        before += w.parameters


AVERAGES = [
    (halves, rf"w\.parameters in place{LINE}"),
    (sums_in_place, rf"state\['sum'\] in place{LINE}"),
    (looks_back, rf"history\.row\(1\)\.parameters in place{LINE}"),
    (lambda state, w, history, round: torch.from_numpy(w.parameters).mul_(2), rf"w\.parameters in place{TENSOR}"),
]


@pytest.mark.parametrize(("change", "said"), AVERAGES)
def test_an_average_that_changes_what_it_is_given_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    with pytest.raises(ReturnedError, match=rf":FedX\.average changes {said}{REMEDY}"):
        train(SMALL, tmp_path / "run", average=averaged(change))


# --- watchers ---


class Listener:
    """A watcher that does something to the model of the round."""

    def __init__(self, change: Any = nothing) -> None:
        self.change = change
        self.seen: list[Any] = []

    def begin(self, rounds: int, size: int) -> None: ...
    def client(self, round: int, done: int, of: int) -> None: ...
    def round(self, record: Any, of: int) -> None:
        self.change(record.global_.parameters)
        self.seen.append(record)


def test_a_watcher_does_not_change_the_model_that_the_next_round_begins_with(tmp_path: Path) -> None:
    def flips(w: np.ndarray) -> None:
        w *= -1

    with pytest.raises(FedscopeError, match=rf":Listener\.round changes record\.global_\.parameters in place{LINE}"):
        train(SMALL, tmp_path / "run", server="fedavgm", watcher=Listener(flips))
    watcher = Listener()
    run = train(SMALL, tmp_path / "other", server="fedavgm", watcher=watcher)
    assert [record.round for record in watcher.seen] == [1, 2]
    assert watcher.seen[1].global_.parameters.tobytes() == run.round(2).read("global").parameters.tobytes()


# --- the check ---


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (served(alias), r"FedX\.step changes models\.parameters in place"),
        (trained(zeroed), r"FedX\.train changes task\.start\.parameters in place"),
        (averaged(halves), r"FedX\.average changes w\.parameters in place"),
    ],
)
def test_check_method_finds_it_and_blames_no_other_check(kind: Any, said: str) -> None:
    report = check_method(kind, only=["plays", "arguments", "order", "weight-0", "looks-back", "nan"])
    assert report.failed == ("arguments",), report
    (line,) = (line for line in report.lines if line.outcome == "failed")
    assert re.search(said, line.words), line.words


@pytest.mark.parametrize("only", ["arguments", "plays"])
def test_check_method_finds_it_whichever_check_is_asked(only: str) -> None:
    assert check_method(served(alias), only=only).failed == (only,)


def test_the_check_looks_at_fedscopes_own_methods_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose arguments are handed to them as they are, so that nothing is spent on them in training."""
    step = FedAvgM.step

    def in_place(self: Any, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        state["m"][:1] += 0
        return step(self, state, start, clients, cohort)

    assert check_method("fedavgm", only="arguments").passed
    monkeypatch.setattr(FedAvgM, "step", in_place)
    report = check_method("fedavgm", only="arguments")
    assert "fedavgm.step changes state['m'] in place (line" in report.lines[0].words


# --- sums ---


@pytest.mark.parametrize("cut", [np.s_[:], np.s_[::2], np.s_[:, 1:3], np.s_[0], np.s_[..., :0], np.s_[1, 1]])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "bool", "float16"])
def test_every_bit_of_whatever_array_counts(cut: Any, kind: str) -> None:
    whole = np.arange(24).reshape(4, 6).astype(kind)
    part = np.asarray(whole[cut])
    for place in np.ndindex(part.shape):
        handed = Handed()
        view = handed.view(part, "a")
        assert not view.flags.writeable
        assert list(handed.changed()) == []
        if np.shares_memory(part, whole):
            before = part[place]
            part[place] = not before if kind == "bool" else before + 1
            assert list(handed.changed()) == ["a"]


def test_a_models_buffers_and_a_state_of_models_are_views_too() -> None:
    layout = Layout((TensorEntry("w", (2,), "float32", "parameter"), TensorEntry("n", (1,), "float32", "buffer")))
    model = Weights(layout, np.zeros(2, np.float32), {"n": np.zeros(1, np.float32)})
    handed = Handed()
    state = handed.view({"last": model, "count": 3}, "state")
    assert not state["last"].buffers["n"].flags.writeable
    assert handed.path_of(state["last"].buffers["n"]) == "state['last'].buffers['n']"
    assert state["count"] == 3
    state["new"] = 1  # the dictionary is the method's own
    assert handed.back(state["last"]) is model
    assert handed.back({"again": state["last"].buffers["n"]})["again"] is model.buffers["n"]


@dataclass(frozen=True)
class _Rows:
    row: Any


def test_rows_of_the_history_are_looked_at_and_not_all_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """An average over many rounds may read them one by one: their models would fill the memory."""
    monkeypatch.setitem(PROTECTED, _Rows, ("row",))
    made: list[weakref.ref[np.ndarray]] = []

    def row(number: int) -> np.ndarray:
        value = np.full(3, float(number))
        made.append(weakref.ref(value))
        return value

    handed = Handed()
    history = handed.view(_Rows(row), "history")
    for number in range(5):
        assert history.row(number).tolist() == [number] * 3
    gc.collect()
    assert sum(one() is not None for one in made) == 1
    torch.from_numpy(history.row(7)).add_(1)
    assert list(handed.changed()) == ["history.row(7)"]
    with pytest.raises(ChangedError, match=r"^history\.row\(7\)$"):
        history.row(8)
    again = Handed()
    assert again.back(again.view(_Rows(row), "history").row(9)).flags.writeable, "a copy, as others may read the row"


def test_what_asks_for_a_buffer_to_write_to_is_not_said_to_write(tmp_path: Path) -> None:
    def reads(state: State, start: Weights, models: Weights, cohort: Cohort) -> None:
        ctypes.c_char.from_buffer(start.parameters)

    said = rf"\.step asks for an array that it may write to{LINE}, and others read what it is given; give it a copy$"
    with pytest.raises(ReturnedError, match=said):
        train(SMALL, tmp_path / "run", server=served(reads))
