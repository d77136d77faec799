"""What methods of somebody's own kept or sent in a round that the recording policy leaves out: it is never taken for
nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import small

import fedscope
from fedscope.checkpoints import FedscopeError, Run, Weights
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
    setting,
)
from fedscope.training import branch, merge, resume, train

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = small(6)


@dataclass(frozen=True)
class Drifting(ClientMethod):
    """g + d_i with d_i the client's last way, which it keeps."""

    much: float = setting(1.0, "how much of it", least=0)

    def train(self, task: LocalTask) -> LocalUpdate:
        kept = task.place.tensor(task.kept("drift"))
        update = local_sgd(task, self, correct=lambda w, g: g.add_(kept, alpha=self.much))
        return replace(update, state={"drift": task.start.parameters - update.weights.parameters})


@dataclass(frozen=True)
class Sending(ClientMethod):
    """g + m with m the round's last way, which begins with nothing."""

    def train(self, task: LocalTask) -> LocalUpdate:
        sent = task.place.tensor(task.sent.get("way", task.facts.zeros()))
        return local_sgd(task, self, correct=lambda w, g: g.add_(sent))

    def share(self, sent: State, exchange: Exchange) -> State:
        return {"way": exchange.start.parameters - exchange.global_.parameters}


@dataclass(frozen=True)
class Plain(ClientMethod):
    """Keeps and sends nothing."""

    def train(self, task: LocalTask) -> LocalUpdate:
        return local_sgd(task, self)


@dataclass(frozen=True)
class Late(ServerMethod):
    """Momentum that begins with nothing."""

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        way = 0.5 * state.get("way", 0 * start.parameters) + cohort.p @ clients.parameters - start.parameters
        way = way.astype(start.layout.dtype)
        return Served(start.parameters + way, {"way": way})


@dataclass(frozen=True)
class Remembering(AverageMethod):
    """Keeps the last model, which it looks back at."""

    def window_size(self) -> int:
        return 2

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        before = state.get("last", global_.parameters)
        made = ((before + global_.parameters) / 2).astype(global_.layout.dtype)
        return Averaged(replace(global_, parameters=made), {"last": global_.parameters})


@dataclass(frozen=True)
class Looking(AverageMethod):
    """Keeps nothing, and looks back at models that are kept."""

    def window_size(self) -> int:
        return 2

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        return Averaged(None, {})


@dataclass(frozen=True)
class Mean(ServerMethod):
    """Keeps nothing."""

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        return Served((cohort.p @ clients.parameters).astype(start.layout.dtype))


@dataclass(frozen=True)
class Watching(ClientMethod):
    """Its ``share`` looks at the round, and sends nothing."""

    def train(self, task: LocalTask) -> LocalUpdate:
        return local_sgd(task, self)

    def share(self, sent: State, exchange: Exchange) -> State:
        return {}


def run_of(out: Path, record: dict[str, Any], **chosen: Any) -> Run:
    given: dict[str, Any] = {"client": Drifting, **chosen}
    until, tables = given.pop("until", None), given.pop("tables", {})
    return train(merge(SMALL, {"record": record}, tables), out, until=until, **given)


EVERY = {"clients": "every:2"}


def test_a_replay_without_what_a_client_of_ones_own_kept_is_refused(tmp_path: Path) -> None:
    thin = Replayer.of(run_of(tmp_path / "thin", EVERY), code={"client": Drifting})
    words = (
        rf"^{tmp_path}/thin: what client \d kept of round \d is in none of its files any more; train with "
        r"record\.clients = 'all'$"
    )
    with pytest.raises(FedscopeError, match=words):
        thin.replay(thin.run.round(6), 1)
    whole = Replayer.of(run_of(tmp_path / "whole", {}), code={"client": Drifting})
    for t in (2, 3, 6):
        recorded = whole.run.round(t).clients().parameters
        assert whole.replay(whole.run.round(t), 1).parameters.tobytes() == recorded.tobytes(), t


@pytest.mark.parametrize("changes", [{}, {"client": {"lr": 0.01}}, {"server": {"method": "fedavgm"}}])
def test_a_branch_from_a_round_without_what_clients_kept_is_refused_before_it_is_made(
    tmp_path: Path, changes: Any
) -> None:
    thin = run_of(tmp_path / "thin", EVERY)
    with pytest.raises(FedscopeError, match=r"thin: what client \d kept of round \d is in none of its files any more"):
        branch(thin, 3, changes, tmp_path / "branch", code={"client": Drifting})
    assert not (tmp_path / "branch").exists()


@pytest.mark.parametrize("changes", [{}, {"client": {"lr": 0.01}}])
def test_where_no_round_tells_what_clients_keep_the_first_one_that_keeps_something_is_refused(
    tmp_path: Path, changes: Any
) -> None:
    thin = run_of(tmp_path / "thin", {"clients": "none"})
    words = re.escape(
        "Drifting.train keeps a state (drift), and what clients kept up to round 3 is in none of the files of "
        f"{tmp_path}/thin, because record.clients leaves it out; train those rounds again with record.clients = 'all', "
        "and go on from that run"
    )
    with pytest.raises(FedscopeError, match=f"{words}$"):
        branch(thin, 3, changes, tmp_path / "branch", code={"client": Drifting})
    assert not (tmp_path / "branch").exists()
    again = branch(run_of(tmp_path / "all", {}), 3, changes, tmp_path / "again", code={"client": Drifting})
    assert again.rounds[-1] == 6, "the remedy"


@pytest.mark.parametrize("record", [{"clients": "none"}, EVERY, {"clients": "sample:1"}])
def test_clients_that_keep_nothing_are_gone_on_with_whatever_is_recorded(tmp_path: Path, record: Any) -> None:
    whole = run_of(tmp_path / "whole", {}, client=Plain)
    run_of(tmp_path / "cut", record, client=Plain, until=3)
    resumed = resume(tmp_path / "cut", code={"client": Plain})
    made = branch(resumed, 3, {}, tmp_path / "branch", code={"client": Plain})
    for run in (resumed, made):
        last = run.round(6).read("global").parameters
        assert last.tobytes() == whole.round(6).read("global").parameters.tobytes()
    replayed = Replayer.of(made, code={"client": Plain}).replay(made.round(5), 1)
    assert replayed.parameters.tobytes() == whole.round(5).clients().parameters.tobytes()


def test_what_clients_keep_is_resumed_from_a_record_without_it(tmp_path: Path) -> None:
    whole = run_of(tmp_path / "whole", {})
    for name, record in (("none", {"clients": "none"}), ("every", EVERY)):
        run_of(tmp_path / name, record, until=3)
        resumed = resume(tmp_path / name, code={"client": Drifting})
        last = resumed.round(6).read("global").parameters
        assert last.tobytes() == whole.round(6).read("global").parameters.tobytes()


def test_a_replay_without_what_was_sent_is_refused_though_a_method_begins_with_nothing(tmp_path: Path) -> None:
    thin = Replayer.of(run_of(tmp_path / "thin", {"globals": "every:2"}, client=Sending), code={"client": Sending})
    words = (
        rf"^{tmp_path}/thin@4: what was sent with the model in round 4 is not recorded, because record\.globals leaves "
        r"round 3 out; train with record\.globals = 'all' to replay it$"
    )
    with pytest.raises(FedscopeError, match=words):
        thin.replay(thin.run.round(4), 1)
    for t in (1, 5):  # the first round, and one whose round before is there
        recorded = thin.run.round(t).clients().parameters
        assert thin.replay(thin.run.round(t), 1).parameters.tobytes() == recorded.tobytes(), t
    plain = run_of(tmp_path / "plain", {"globals": "every:2"}, client=Plain)
    again = Replayer.of(plain, code={"client": Plain}).replay(plain.round(4), 1)
    assert again.parameters.tobytes() == plain.round(4).clients().parameters.tobytes()


@pytest.mark.parametrize(
    ("what", "chosen"),
    [
        ("what the server method left of it", {"client": Plain, "server": Late}),
        ("what the client method left of it", {"client": Sending}),
        ("what the average method left of it", {"client": Plain, "average": Remembering}),
        (
            "its average over rounds, from which round 4 starts,",
            {"client": Plain, "tables": {"average": {"method": "ima", "start": 1, "window": 2}}},
        ),
    ],
)
def test_a_round_whose_global_model_alone_is_kept_is_not_gone_on_from(tmp_path: Path, what: str, chosen: Any) -> None:
    cut = run_of(tmp_path / "cut", {"globals": "none"}, until=4, **chosen)
    words = (
        rf"^{tmp_path}/cut cannot go on after round 3: {what} is in none of its files, "
        r"because record\.globals leaves it out; go on from a round that is recorded, or train with "
        r"record\.globals = 'all'$"
    )
    code = {key: value for key, value in chosen.items() if isinstance(value, type)}
    with pytest.raises(FedscopeError, match=words):
        branch(cut, 3, {}, tmp_path / "branch", code=code)
    last = branch(cut, 4, {}, tmp_path / "last", code=code).round(6).read("global").parameters
    assert last.tobytes() == run_of(tmp_path / "whole", {}, **chosen).round(6).read("global").parameters.tobytes()


def test_a_method_without_a_state_goes_on_from_a_global_model_alone(tmp_path: Path) -> None:
    cut = run_of(tmp_path / "cut", {"globals": "none"}, client=Plain, until=4)
    last = branch(cut, 3, {}, tmp_path / "branch", code={"client": Plain}).round(6).read("global").parameters
    whole = run_of(tmp_path / "whole", {}, client=Plain).round(6).read("global").parameters
    np.testing.assert_array_equal(last, whole)


def test_a_server_that_begins_with_nothing_is_reaggregated_from_its_state(tmp_path: Path) -> None:
    def distance(run: Run) -> float:
        options: dict[str, Any] = {"rounds": 4, "from_state": True, "limit": 20}
        (row,) = (row for row in fedscope.reaggregate(run, Late, **options).measured if "Late" in row.server)
        return row.distance

    assert distance(run_of(tmp_path / "whole", {}, client="sgd", server=Late)) == 0
    thin = run_of(tmp_path / "thin", {"globals": "every:2"}, client="sgd", server=Late)
    words = (
        rf"^from_state=True: what .*Late kept after round 3 of {tmp_path}/thin was not recorded, because "
        r"record\.globals leaves that round out; leave from_state=True out, and .*Late starts with an empty state$"
    )
    with pytest.raises(FedscopeError, match=words):
        distance(thin)


IMA: dict[str, Any] = {"average": {"method": "ima", "window": 2, "start": 6}}


@pytest.mark.parametrize(
    "chosen",
    [
        {"client": Plain, "server": Mean, "tables": IMA},
        {"client": Plain, "average": Looking},
        {"client": Watching, "tables": IMA},
    ],
    ids=["server", "average", "client"],
)
def test_a_method_of_ones_own_without_a_state_goes_on_where_a_later_round_shows_it(
    tmp_path: Path, chosen: dict[str, Any]
) -> None:
    """Of round 4 the global model alone is kept, for the average; that nothing else was left of it, round 5 shows."""
    whole = run_of(tmp_path / "whole", {}, **chosen)
    code = {key: value for key, value in chosen.items() if isinstance(value, type)}
    for name, record in (("every", {"globals": "every:5"}), ("none", {"globals": "none"})):
        cut = run_of(tmp_path / name, record, until=5, **chosen)
        made = branch(cut, 4, {}, tmp_path / f"{name}-branch", code=code)
        last = made.round(6).read("global").parameters
        assert last.tobytes() == whole.round(6).read("global").parameters.tobytes()
    again = Replayer.of(made, code=code).replay(made.round(5), 1).parameters
    assert again.tobytes() == whole.round(5).clients().parameters.tobytes()


def test_a_server_without_a_state_is_not_named_where_the_next_start_lacks(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"client": Plain, "server": Mean, "tables": {"average": {**IMA["average"], "start": 2}}}
    cut = run_of(tmp_path / "cut", {"globals": "every:3"}, until=5, **chosen)
    words = (
        rf"^{tmp_path}/cut cannot go on after round 4: its average over rounds, from which round 5 starts, is in none "
        r"of its files, because record\.globals leaves it out; go on from a round that is recorded, or train with "
        r"record\.globals = 'all'$"
    )
    with pytest.raises(FedscopeError, match=words):
        branch(cut, 4, {}, tmp_path / "branch", code={"client": Plain, "server": Mean})


def test_a_share_that_sends_nothing_is_replayed_where_a_later_round_shows_it(tmp_path: Path) -> None:
    thin = run_of(tmp_path / "thin", {"globals": "every:2"}, client=Watching)
    replayer = Replayer.of(thin, code={"client": Watching})
    for t in (2, 4, 6):
        recorded = thin.round(t).clients().parameters
        assert replayer.replay(thin.round(t), 1).parameters.tobytes() == recorded.tobytes(), t


def test_a_server_without_a_state_is_reaggregated_from_none(tmp_path: Path) -> None:
    thin = run_of(tmp_path / "thin", {"globals": "every:2"}, client="sgd", server=Mean)
    (row,) = (
        row
        for row in fedscope.reaggregate(thin, Mean, rounds=4, from_state=True, limit=20).measured
        if "Mean" in row.server
    )
    assert row.distance == 0
