"""Checks of a server that reads columns: in blocks it gives the same bits, and it does not copy the cohort."""

from __future__ import annotations

import tracemalloc

import numpy as np

from ...checkpoints import Layout, TemporaryMatrix, TensorEntry, Weights, as_array
from ..loop.server import step_server
from ..methods.base import Cohort, ServerMethod, State
from .outcome import CheckFailed, NotAsked, apart, digits, length, share
from .subject import Subject
from .synthetic import CLIENTS, made_up

#: Bytes that a step may take for each parameter of each client: a float32 copy of the cohort is 4, which sorting takes;
#: a float64 copy is 8, twice what the round itself holds.
MOST_BYTES = 6.0
#: what is worth a word
FREE_BYTES = 1.0
COHORTS = (12, 48)


def same_bits(subject: Subject) -> str:
    """A step from blocks of columns, as of clients on the disk."""
    server = _reads_columns(subject)
    step = made_up(server, subject.federation.facts.layout)
    size = step.start.layout.size
    width = size // 3 + 1
    rows = TemporaryMatrix(subject.folder, (CLIENTS, size), step.start.layout.dtype)
    for k, row in enumerate(step.clients.parameters):
        rows[k] = row
    whole = step.served(server)
    apart_ = Weights(step.start.layout, as_array(rows), {})
    blocks = step_server(server, step.state, step.start, apart_, step.cohort, numbers=width * CLIENTS)
    if sorted(whole.state) != sorted(blocks.state):
        raise CheckFailed("3 blocks of columns give other names in the state than the whole")
    outcomes = {"the result": (whole.parameters, blocks.parameters)}
    outcomes |= {f"the state {name}": (value, blocks.state[name]) for name, value in whole.state.items()}
    for what, (one, other) in outcomes.items():
        if np.asarray(one).tobytes() != np.asarray(other).tobytes():
            off = share(apart(one, other), length(one)) if np.shape(one) == np.shape(other) else float("inf")
            raise CheckFailed(
                f"3 blocks of columns give {what} off by {digits(off)} of its norm; say reads = 'layers' or 'rows' "
                "where a parameter depends on others"
            )
    return f"3 blocks of columns give the same as {size:,} columns at once, bit for bit"


def memory(subject: Subject) -> str:
    """What a step takes for each further client."""
    server = _reads_columns(subject)
    size = 20_000
    layout = Layout((TensorEntry("weight", (size // 10, 10), "float32", "parameter"),))
    few, many = (_peak(server, layout, count) for count in COHORTS)
    each = (many - few) / ((COHORTS[1] - COHORTS[0]) * size)
    said = f"a step takes {max(each, 0.0):.1f} bytes for each parameter of a further client"
    if each > MOST_BYTES:
        raise CheckFailed(
            f"{said}, a copy of the cohort in float64; go through the clients row by row, as updates(start, clients) "
            "does, or say reads = 'rows'"
        )
    if each > FREE_BYTES:
        return f"{said}: it copies the cohort once, of 16 MiB at a time where clients lie on the disk"
    return f"{said}, and {few / size / 4:.0f} models in all"


def _reads_columns(subject: Subject) -> ServerMethod:
    server: ServerMethod = subject.method
    if server.reads != "columns":
        raise NotAsked(f"it reads {server.reads}")
    return server


def _peak(server: ServerMethod, layout: Layout, count: int) -> int:
    """Bytes that a step takes at most beside what it is given."""
    step = made_up(server, layout, rounds=0, clients=count)
    state: State = dict(step.state)
    cohort: Cohort = step.cohort
    tracemalloc.start()
    try:
        server.step(state, step.start, step.clients, cohort)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
