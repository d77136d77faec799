"""Where a recorded run stands after a round: what the next round depends on, from the run's files alone."""

from __future__ import annotations

from ..checkpoints import FedscopeError, Run, Weights
from .config import Config
from .federation import Federation, Position
from .lineage import began, fresh_sections
from .memory import RunMemory
from .methods import Averaged, History


def position_after(run: Run, round: int, config: Config, federation: Federation) -> Position:
    """Where a run stands after a round.

    After the last round of a branch's history, a method that the history was not made with starts anew: the client's
    and the server's with the state of their first round, the average over rounds with the state it would have had if it
    had averaged the history.

    Raises:
        FedscopeError: the round's ``global``, what a method keeps, or what an average over rounds looks back at, is in
            none of its files.
    """
    memory = RunMemory(run)
    first = config.average.averages_first
    kept = memory.kept(round)
    if not any("global" in place.models for place in run.files_of(round)):
        raise FedscopeError(f"{run.path} cannot go on after round {round}: its global model is in none of its files")
    global_ = memory.row(round)
    fresh = fresh_sections(run, round, config)
    average, averaged = kept.average, memory.averaged(round)
    if "average" in fresh:
        caught_up = _caught_up(config, federation, memory, round)
        average, averaged = dict(caught_up.state), None if first else caught_up.weights
        if first:
            average["clients_mean"] = memory.row(round, mean=True)
    server = kept.server
    if "server" in fresh:
        restarts = averaged is not None and config.average.restarts(round + 1)
        server = config.server.init((averaged if averaged is not None and restarts else global_).parameters)
    window = config.average.window_size()
    needed = {"server": (config.server.init(global_.parameters), server)}
    if "client" not in fresh:
        needed["client"] = (config.client.begin(global_, federation.facts), kept.sent)
    for shelf, (begun, found) in needed.items():
        if lacking := sorted(set(begun) - set(found)):
            raise FedscopeError(
                f"{run.path} cannot go on after round {round}: what the {shelf} method keeps ({', '.join(lacking)}) is "
                "in none of its files; restore the missing rounds and kept/ from a copy, or train anew"
            )
    return Position(
        round=round,
        start=federation.next_start(round, global_, averaged, server),
        recent={t: memory.row(t, mean=first) for t in range(max(1, round - window + 1), round + 1)} if window else {},
        server=server,
        sent=None if "client" in fresh else kept.sent,
        average=average,
        last={} if "client" in fresh else last_participations(run, round, config),
    )


def last_participations(
    run: Run, round: int, config: Config, known: dict[int, list[int]] | None = None
) -> dict[int, int]:
    """The round of each client's last participation up to a round, of those that the round's client method made.

    Empty where clients keep nothing between rounds.

    Args:
        known: who took part, by round, of the rounds that have been read before; it is added to.
    """
    if not config.client.vectors_kept and not any(file.client_states for file in run.files_of(round)):
        return {}
    known = {} if known is None else known
    since = began(run, "client", round)
    last: dict[int, int] = {}
    for t in run.rounds:
        if since < t <= round:
            if t not in known:
                known[t] = run.round(t).client_ids.tolist()
            last |= dict.fromkeys(known[t], t)
    return last


def _caught_up(config: Config, federation: Federation, memory: RunMemory, round: int) -> Averaged:
    """The average over rounds after a history that another method made."""
    first = config.average.averages_first

    def row(t: int) -> Weights:
        return memory.row(t, mean=first)

    history = History(row, federation.facts)
    state = config.average.recover(round - 1, history)
    return config.average.average(state, round, row(round), history)
