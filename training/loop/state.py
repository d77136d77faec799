"""The state of a run between two rounds, and what it remembers beyond the last one, read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from ...checkpoints import FedscopeError, Round, Run, Weights, weighted_mean
from ...checkpoints.io.errors import list_few
from ..config.config import Config
from ..guards.own_calls import ask
from ..guards.returned_arrays import is_own_method, is_somebodys
from ..local.cohort_storage import put_aside
from ..local.optimiser_choice import vectors_kept
from ..local.optimisers import PREFIX
from ..methods.base import Averaged, ClientMethod, ClientState, History, State
from ..methods.refused_returns import refuse_recovered
from ..models.model_info import ModelInfo
from ..settings.missing_code import is_given
from ..settings.registry import method_name
from .run_history import SECTIONS, config_at, fresh_sections, goes_on, method_start, segments
from .server import look_ahead


@dataclass(frozen=True)
class Position:
    """The state of a federation between two rounds: all that the next round depends on.

    Attributes:
        round: the last round that was played, 0 before the first.
        start: the model that the next round sends out.
        recent: the last rows that the average over rounds looks at each round, by round; older ones are in the memory.
        server, sent, average: what the server keeps, what it sends with the model, what the average keeps; None before
            a method's first round.
        last: the round of each client's last participation, for methods whose clients keep something; what they kept
            is in the memory.
        same_client: whether the client method had the settings in that round that it has now.
        clients_kept: whether clients kept anything in that round, for methods that do not say it; None where no file
            tells any more.
    """

    round: int
    start: Weights
    recent: Mapping[int, Weights] = field(default_factory=dict)
    server: State | None = None
    sent: State | None = None
    average: Mapping[str, Any] = field(default_factory=dict)
    last: Mapping[int, int] = field(default_factory=dict)
    same_client: bool = True
    clients_kept: bool | None = False


class Memory(Protocol):
    """The stored rounds in which a federation finds what it does not hold in memory."""

    def row(self, round: int, *, mean: bool = False) -> Weights:
        """A round's ``global``, or with ``mean`` its clients' mean before the server's step."""

    def client_states(self, last: Mapping[int, int]) -> dict[int, ClientState]:
        """Read what clients kept, given the round of each one's last participation."""


@dataclass(frozen=True)
class MethodStates:
    """The state after a round, by who keeps it."""

    server: State
    sent: State
    average: dict[str, Any]


@dataclass(frozen=True)
class RunMemory:
    """The memory of a recorded run: its round files, and what is kept next to them."""

    run: Run

    def row(self, round: int, *, mean: bool = False) -> Weights:
        """See :class:`Memory`.

        Raises:
            FedscopeError: the recording policy has left it out.
        """
        self.refuse_missing_row(round, mean=mean)
        if not mean:
            global_ = self.read(round, "global")
            assert global_ is not None, "just made sure of"
            return global_
        places = self.run.files_of(round)
        if place := next((place for place in places if place.has_mean), None):
            found = place.state()["average"]["clients_mean"]
            assert isinstance(found, Weights)
            return found
        # a history that another method made
        place = next(place for place in places if place.has_clients)
        return weighted_mean(place.clients(), place.weights, integer_from=int(place.client_samples.argmax()))

    def refuse_missing_row(self, round: int, *, mean: bool = False) -> None:
        """Make sure of a row without reading it. Raises as :meth:`row`."""
        places = self.run.files_of(round)
        if any(place.has_clients or place.has_mean if mean else "global" in place.models for place in places):
            return
        what = "clients' mean" if mean else "global model"
        raise FedscopeError(
            f"{self.run.path} does not hold the {what} of round {round}, which an average over rounds needs; train "
            "with record.globals = 'all'"
        )

    def read(self, round: int, which: Literal["global", "averaged"]) -> Weights | None:
        """A round's model, from whichever of its files has it; None where it was not made or recorded."""
        return next((place.read(which) for place in self.run.files_of(round) if which in place.models), None)

    def kept(self, round: int) -> MethodStates:
        """Return the state after a round, of the server, of what is sent with the model, and of the average."""
        state: dict[str, Any] = {}
        for place in self.run.files_of(round):
            state = {**place.state(), **state}
        sent, average = state.pop("sent", {}), state.pop("average", {})
        return MethodStates(flat(state), flat(sent), average)

    def tells_state(self, round: int) -> bool:
        """Check whether a file has, or would have, what the server, the average and what is sent left of a round."""
        return any(
            "global" in place.models if place.is_round else place.path.parent.name == "states"
            for place in self.run.files_of(round)
        )

    def left_nothing(self, section: str, round: int) -> bool:
        """Check whether the next round that tells of it shows that a method had kept nothing up to a round, or a client
        method sent nothing: none gives up a state that it has.

        Args:
            section: ``server``, ``average``, or ``client`` of what is sent.
        """
        part, parts, began = "sent" if section == "client" else section, segments(self.run), 0
        for (last, config), after in zip(parts, [*(config for _, config in parts[1:]), None], strict=True):
            end = int(min(last, max(self.run.rounds, default=0)))
            _, policy = config.record.policies()
            for t in range(max(began, round) + 1, end + 1):
                # no other one is looked at, because there may be thousands; the last one can always be gone on from
                likely = t == end or policy.keeps(t, config.run.rounds)
                if likely and t in self.run.rounds and self.tells_state(t):
                    return not getattr(self.kept(t), part).keys() - {"clients_mean"}  # which is the loop's
            if end >= round and after is not None and not goes_on(section, config, after):
                return False
            began = end
        return False

    def client_states(self, last: Mapping[int, int]) -> dict[int, ClientState]:
        """See :class:`Memory`.

        Raises:
            FedscopeError: a state that is in none of the run's files.
        """
        states: dict[int, ClientState] = {}
        layout = self.run.layout
        later = put_aside(len(last), layout.size, layout.dtype)
        for round in sorted(set(last.values())):
            ids = [k for k, t in last.items() if t == round]
            place = self.refuse_missing_states(round, ids)
            if later:
                states |= {k: KeptState(place, k) for k in ids}
                continue
            rows = {name: place.client_state(name, ids) for name in place.client_states}
            states |= {k: state_of(rows, i) for i, k in enumerate(ids)}
        return states

    def refuse_missing_states(self, round: int, ids: Sequence[int]) -> Round:
        """Return the file that holds what clients kept of a round. Raises as :meth:`client_states`."""
        for place in self.run.files_of(round):
            if place.client_states:
                return place
        raise FedscopeError(
            f"{self.run.path}: what client {ids[0]} kept of round {round} is in none of its files any more; train with "
            "record.clients = 'all'"
        )


@dataclass(frozen=True)
class KeptState(Mapping[str, "np.ndarray | Weights"]):
    """The state that one client kept of a round, read whenever it is asked for, so that a cohort's is not in memory at
    once."""

    place: Round
    client: int

    def __getitem__(self, name: str) -> np.ndarray | Weights:
        if name not in self.place.client_states:
            raise KeyError(name)
        return state_of({name: self.place.client_state(name, [self.client])}, 0)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.place.client_states)

    def __len__(self) -> int:
        return len(self.place.client_states)


def state_of(rows: Mapping[str, Weights | np.ndarray], i: int) -> ClientState:
    """Take one client's state from the rows of all."""
    return {name: value.row(i) if isinstance(value, Weights) else value[i] for name, value in rows.items()}


def flat(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Nested groups as one mapping: ``{"generator": {"fc1.weight": a}}`` is ``{"generator/fc1.weight": a}``."""
    joined: dict[str, np.ndarray] = {}
    for name, value in state.items():
        if isinstance(value, Mapping):
            joined |= {f"{name}/{key}": inner for key, inner in flat(value).items()}
        else:
            joined[name] = value
    return joined


def next_start(config: Config, round: int, global_: Weights, averaged: Weights | None, server: State) -> Weights:
    """Choose the model that round t + 1 sends out: ``averaged`` where the method restarts from it, else ``global``,
    looked ahead.

    Raises:
        FedscopeError: as :func:`~.server.look_ahead`.
    """
    from_ = averaged if averaged is not None and config.average.restarts(round + 1) else global_
    return look_ahead(config.server, server, from_, round)


def position_after(run: Run, round: int, config: Config, facts: ModelInfo) -> Position:
    """Read the state of a run after a round.

    After the last round of a branch's history, a method that the history was not made with starts with an empty
    state: the client's and the server's with the state of their first round, the average over rounds with the state
    it would have had if it had averaged the history.

    Raises:
        FedscopeError: the round's ``global``, what a method keeps, or what an average over rounds looks back at, is in
            none of its files.
    """
    memory = RunMemory(run)
    first = config.average.averages_first
    kept = memory.kept(round)
    global_ = memory.read(round, "global")
    if global_ is None:
        raise FedscopeError(f"{run.path} cannot go on after round {round}: its global model is in none of its files")
    fresh = fresh_sections(run, round, config)
    _refuse_forgotten(memory, round, config, fresh)
    average, averaged = kept.average, memory.read(round, "averaged")
    if "average" in fresh:
        caught_up = _caught_up(config, facts, memory, round)
        average, averaged = dict(caught_up.state), None if first else caught_up.weights
        if first:
            average["clients_mean"] = memory.row(round, mean=True)
    server = kept.server
    if "server" in fresh:
        restarts = averaged is not None and config.average.restarts(round + 1)
        first_model = averaged if averaged is not None and restarts else global_
        server = ask(config.server, config.server.init, first_model.parameters)
    window = config.average.window_size()
    server = going_on(run, round, "server", config, server, lambda one: ask(one, one.init, global_.parameters))
    sent = None
    if "client" not in fresh:
        sent = going_on(run, round, "client", config, kept.sent, lambda one: ask(one, one.begin, global_, facts))
    return Position(
        round=round,
        start=next_start(config, round, global_, averaged, server),
        recent={t: memory.row(t, mean=first) for t in range(max(1, round - window + 1), round + 1)} if window else {},
        server=server,
        sent=sent,
        average=average,
        last={} if "client" in fresh else last_participations(run, round, config),
        same_client="client" not in fresh and config_at(run, round).client.table() == config.client.table(),
        clients_kept=False if "client" in fresh else clients_kept(run, round),
    )


def _refuse_forgotten(memory: RunMemory, round: int, config: Config, fresh: Sequence[str]) -> None:
    """Refuse to go on from a round of which the global model is kept alone, for a later average, where a method of
    one's own that stays may have kept or sent something, or the next round starts from the average.

    fedscope's own methods make a first state of the same names, so that what lacks is seen.

    Raises:
        FedscopeError: names the round, and what lacks.
    """
    if memory.tells_state(round):
        return
    keeps = {
        "server": is_own_method(config.server),
        "client": sends_unsaid(config.client),
        "average": is_own_method(config.average),
    }
    lost = [
        f"what the {section} method left of it"
        for section in SECTIONS
        if keeps[section] and section not in fresh and not memory.left_nothing(section, round)
    ]
    if "average" not in fresh and config.average.restarts(round + 1):
        lost.append(f"its average over rounds, from which round {round + 1} starts,")
    if lost:
        raise FedscopeError(
            f"{memory.run.path} cannot go on after round {round}: {lost[0]} is in none of its files, because "
            "record.globals leaves it out; go on from a round that is recorded, or train with record.globals = 'all'"
        )


def sends_unsaid(client: ClientMethod) -> bool:
    """Check whether a method may send more with the model than what it begins with says: one of somebody's own with a
    ``share`` of its own."""
    kind = next(base for base in type(client).__mro__ if "share" in vars(base))
    return is_somebodys(kind)


def going_on(run: Run, round: int, section: str, config: Config, found: State, begin: Callable[[Any], State]) -> State:
    """Return what a method goes on with that stays: what was found of it after a round, and of what only its settings
    of a branch keep, as MIME with Adam its v, what it begins with.

    Args:
        section: ``client`` or ``server``; begin: what a method of it begins with.

    Raises:
        FedscopeError: the method kept more in that round than was found.
    """
    method, before = getattr(config, section), getattr(config_at(run, round), section)
    begun = begin(method)
    lacking = set(begun) - set(found)
    later: set[str] = set()
    if lacking and is_given(before):
        later = lacking - set(begin(before))
    if lost := sorted(lacking - later):
        raise FedscopeError(
            f"{run.path} cannot go on after round {round}: what the {section} method keeps ({list_few(lost)}) is "
            "in none of its files; restore the missing rounds and kept/ from a copy, or train again"
        )
    return {**found, **{name: begun[name] for name in sorted(later)}}


def last_participations(
    run: Run, round: int, config: Config, known: dict[int, list[int]] | None = None
) -> dict[int, int]:
    """Return the round of each client's last participation up to a round, of those that the round's client method made.

    Empty where clients keep nothing between rounds.

    Args:
        known: who took part, by round, of the rounds that have been read before; it is added to.
    """
    if not vectors_kept(config.client) and not clients_kept(run, round):
        return {}
    known = {} if known is None else known
    since = max(method_start(run, "client", round), _nothing_kept_until(run, round))
    last: dict[int, int] = {}
    for t in run.rounds:
        if since < t <= round:
            if t not in known:
                known[t] = run.round(t).client_ids.tolist()
            last |= dict.fromkeys(known[t], t)
    return last


def clients_kept(run: Run, round: int) -> bool | None:
    """Check whether the clients of a round kept anything, but for their optimisers' state; None where no file tells.

    A round whose clients were not recorded says nothing of it. Then another one says it in which the client method had
    the same settings, because clients keep the same in every round.
    """
    made, since = config_at(run, round), 0
    if is_given(made.client) and not is_own_method(made.client):
        return made.client.vectors_kept > 0
    if (said := _said_of_kept(run, round)) is not None:
        return said
    for last, config in segments(run):
        end = int(min(last, max(run.rounds, default=0)))
        policy, _ = config.record.policies()
        if method_name(config.client) == method_name(made.client) and config.client.table() == made.client.table():
            for t in range(since + 1, end + 1):
                likely = policy.keeps(t, config.run.rounds)  # no other one is looked at: there may be thousands
                if likely and t in run.rounds and (said := _said_of_kept(run, t)) is not None:
                    return said
        since = end
    return None


def _said_of_kept(run: Run, round: int) -> bool | None:
    """Return what the files of one round say of what its clients kept."""
    files = run.files_of(round)
    if any(not name.startswith(PREFIX) for file in files for name in file.client_states):
        return True
    return False if any(file.has_clients for file in files) else None


def _nothing_kept_until(run: Run, round: int) -> int:
    """Return the last round up to one whose clients kept nothing, because only later ones keep their optimiser's
    state: 0 without."""
    until = 0
    for last, config in segments(run):
        end = int(min(last, round))
        if end > until and not vectors_kept(config.client) and not _any_kept(run, end):
            until = end
        if last >= round:
            break
    return until


def _any_kept(run: Run, round: int) -> bool:
    return any(file.client_states for file in run.files_of(round)) or bool(clients_kept(run, round))


def _caught_up(config: Config, facts: ModelInfo, memory: RunMemory, round: int) -> Averaged:
    """Compute the average over rounds after a history that another method made."""
    first = config.average.averages_first

    def row(t: int) -> Weights:
        return memory.row(t, mean=first)

    history = History(row, facts)
    state = ask(config.average, config.average.recover, round - 1, history)
    found = ask(config.average, config.average.average, state, round, row(round), history)
    if is_own_method(config.average):
        refuse_recovered(config.average, found, state, facts.layout, round)
    return found
