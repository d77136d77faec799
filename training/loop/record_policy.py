"""The recording policy: what is recorded of a round, and what of the rest is kept for a resume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...checkpoints import RoundRecord, RunWriter
from ...checkpoints.rounds.retention import draw_kept_clients
from ...checkpoints.rounds.sketches import reader, sketch, sketch_whole
from ..config.config import Config
from .state import Position


def record_round(writer: RunWriter, record: RoundRecord, position: Position, config: Config) -> None:
    """Record a round as the policy says, keep next to it what a resume needs, and forget what nothing needs any more.

    Args:
        position: after the round.
    """
    for part, kept in kept_parts(record, config):
        writer.keep(kept, part)
    writer.write(as_recorded(record, config))
    t, over = record.round, record.round == config.run.rounds
    back = max(config.average.reaches_back(), 1)
    writer.forget("states", () if over else (t,))
    writer.forget("globals", () if over else range(t - back, t + 1))
    writer.forget("clients", () if over else set(position.last.values()))


def policies(record: RoundRecord, config: Config) -> tuple[bool, bool]:
    """Check whether all of a round's clients, and its globals, are recorded; the last round's globals always are."""
    rounds = config.run.rounds
    of_clients, of_globals = config.record.policies()
    clients = of_clients.keeps(record.round, rounds) or of_clients.sampled >= len(record.client_ids)
    return clients, of_globals.keeps(record.round, rounds) or record.round == rounds


def sampled_places(record: RoundRecord, config: Config) -> np.ndarray | None:
    """Choose which of a round's clients are recorded where some are and not all, [m]; None elsewhere."""
    count = config.record.policies()[0].sampled
    if record.clients is None or not 0 < count < len(record.client_ids):
        return None
    return draw_kept_clients(len(record.client_ids), count, seed=config.data.seed, round=record.round)


def as_recorded(record: RoundRecord, config: Config) -> RoundRecord:
    """Return the record without what the recording policy leaves out."""
    clients, globals_ = policies(record, config)
    k, sketches = config.record.sketch, None
    whole: dict[str, np.ndarray] = {}
    if k and record.clients is not None and record.start is not None:
        layout = record.start.layout
        sketches = sketch(layout, record.start.parameters, record.clients.parameters, k)
        single = {"start": record.start, "global": record.global_, "averaged": record.averaged}
        there = {name: reader(layout, model.parameters) for name, model in single.items() if model is not None}
        whole = dict(zip(there, sketch_whole(layout, list(there.values()), k), strict=True))
    some = sampled_places(record, config)
    return replace(
        record,
        sketch=sketches,
        whole_sketches=whole,
        clients=record.clients if clients else None,
        sampled=None if some is None or record.clients is None else record.clients.rows(some),
        sampled_places=some,
        start=record.start if clients or globals_ or some is not None else None,
        global_=record.global_ if globals_ else None,
        averaged=record.averaged if globals_ else None,
        state=record.state if globals_ else {},
        client_state=record.client_state if clients else {},
    )


def kept_parts(record: RoundRecord, config: Config) -> Iterator[tuple[str, RoundRecord]]:
    """Choose what a resume needs of the rest, in parts that are needed for different times; nothing after the last
    round."""
    clients, globals_ = policies(record, config)
    nothing = replace(record, start=None, clients=None, global_=None, averaged=None, state={}, client_state={})
    nothing = replace(nothing, all_client_test_error=None)
    if record.round == config.run.rounds:
        return
    if not globals_:
        yield "states", replace(nothing, state=record.state, averaged=record.averaged)
        average = record.state.get("average", {})
        means = {name: average[name] for name in ("clients_mean",) if name in average}
        yield "globals", replace(nothing, global_=record.global_, state={"average": means} if means else {})
    if not clients and record.client_state:
        yield "clients", replace(nothing, client_state=record.client_state)
