"""The models that are shown: which rounds they are from, what they are called, and all of them in blocks of the same
columns, each number read once."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...checkpoints import ColumnChunk, FedscopeError, Layout, Round, Run, nearest, read_chunks, recorded_clients
from ...checkpoints.io.errors import list_few
from ...checkpoints.rounds.columns import AHEAD

#: what the server has of a round, where it was recorded
SERVER_MODELS = ("global", "averaged")
# Files that a process has open beside the rounds': standard streams, libraries.
OTHER_FILES = 64


@dataclass(frozen=True)
class Point:
    """A model of a recorded round.

    Attributes:
        run: its name, the folder's.
        round: its number.
        which: ``client-17``, ``global`` or ``averaged``.
        labels: the classes that the client has, ascending; empty where they are not known, and for the server's models.

    >>> Point("ima", 40, "client-17", (3, 8)).label
    'ima@40/client-17'
    """

    run: str
    round: int
    which: str
    labels: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Its address without the run's folder."""
        return f"{self.run}@{self.round}/{self.which}"

    @property
    def is_client(self) -> bool:
        """True if a client made it."""
        return self.which not in SERVER_MODELS


@dataclass(frozen=True, eq=False)
class Models:
    """Clients of some rounds, round by round, and behind them the server's models of these rounds.

    Attributes:
        rounds: stored ones, one an asked round, all of one layout.
        points: all models, the clients first.
        servers: of each server model its place in ``rounds`` and its name.
    """

    rounds: tuple[Round, ...]
    points: tuple[Point, ...]
    servers: tuple[tuple[int, str], ...]

    @property
    def layout(self) -> Layout:
        """The layout of all models."""
        return self.rounds[0].layout

    def address(self, place: int) -> str:
        """Return the address of the point at a place, with the run's folder; behind the last one is the first round's
        ``start``."""
        counts = [len(round_.client_ids) for round_ in self.rounds]
        for round_, count in zip(self.rounds, counts, strict=True):
            if place < count:
                return f"{round_.label}/client-{round_.client_ids[place]}"
            place -= count
        if place == len(self.servers):
            return f"{self.rounds[0].label}/start"
        at, which = self.servers[place]
        return f"{self.rounds[at].label}/{which}"


def models_of(asked: Sequence[tuple[Run, int]], *, sketched: bool = False) -> Models:
    """Return the recorded clients of rounds of runs, and what was recorded of the server's models.

    Args:
        sketched: all clients that took part, of whom there are sketches, and the server's models of which there are.

    Raises:
        FedscopeError: no round; one without clients (says which have them); runs whose models have different layouts; a
            round that is asked for twice, or two runs of one name.
    """
    if not asked:
        raise FedscopeError("there is no round whose models could be shown; give at least one")
    first = asked[0][0]
    rounds, clients, servers, places = [], [], [], []
    for at, (run, number) in enumerate(asked):
        if difference := first.layout.difference(run.layout):
            raise FedscopeError(
                f"{first.path} and {run.path} hold models of different layouts ({difference}), between which there is "
                "no distance; show them one by one"
            )
        round_ = run.round(number) if sketched else recorded_clients(run, number, start=False)
        rounds.append(round_)
        labels = _labels(run)
        clients += [Point(run.name, number, f"client-{k}", labels.get(int(k), ())) for k in round_.client_ids]
        there = round_.whole_sketches if sketched else round_.models
        recorded = [which for which in SERVER_MODELS if which in there]
        servers += [Point(run.name, number, which) for which in recorded]
        places += [(at, which) for which in recorded]
    known = [(run.name, number) for run, number in asked]
    for name, number in known:
        if (count := known.count((name, number))) > 1:
            raise FedscopeError(
                f"{name}@{number} stands for {count} of the rounds, which could not be told apart; give each once, and "
                "rename one of two runs with the same name"
            )
    return Models(tuple(rounds), (*clients, *servers), tuple(places))


def known_layers(models: Models, layers: Collection[str] | None) -> list[str]:
    """Return the parameters asked for, in the layout's order; all for None.

    Raises:
        FedscopeError: one that the models do not have (says which they have), a buffer, none.
    """
    have = list(models.layout.slices)
    if layers is None:
        return have
    buffers = {entry.name for entry in models.layout.buffers}
    for layer in layers:
        if layer in buffers:
            raise FedscopeError(
                f"{layer} is a buffer of the models of {models.rounds[0].run_label}, and distances are between "
                f"parameters; give one of {list_few(have)}"
            )
        if layer not in have:
            raise FedscopeError(
                f"the models of {models.rounds[0].run_label} have no parameter {layer!r}"
                f"{nearest(layer, have) or '; they have ' + list_few(have)}"
            )
    if not layers:
        raise FedscopeError("there is no layer to take distances in; give at least one, or leave it out for all")
    return [layer for layer in have if layer in layers]


def _labels(run: Run) -> dict[int, tuple[int, ...]]:
    """Return the classes that every client has; empty where a foreign run does not say, and of a task without any."""
    if run.partition is None or run.partition.label_counts.shape[1] == 1:
        return {}
    return {k: tuple(counts.nonzero()[0].tolist()) for k, counts in enumerate(run.partition.label_counts)}


@dataclass(frozen=True, eq=False)
class LayerColumns:
    """Some columns of one layer, still on disk.

    Attributes:
        pieces: of every round's clients, then of the server's models; together a row a point.
        reference: what all are compared with, one row.
    """

    pieces: tuple[ColumnChunk, ...]
    reference: ColumnChunk

    def read(self, buffer: np.ndarray) -> list[np.ndarray]:
        """Read the rows of piece after piece, [C_t, count], in ``buffer``: at least n times ``count`` numbers, flat."""
        rows, at = [], 0
        for piece in self.pieces:
            rows.append(piece.read(buffer[at:]))
            at += rows[-1].size
        return rows


def read_blocks(models: Models, layers: Sequence[str], columns: int) -> Generator[LayerColumns, None, None]:
    """Split all models into blocks of at most ``columns`` columns, each read by the worker that has it.

    The files of all rounds are open at once.
    """
    clients = [read_chunks(round_, columns, layers) for round_ in models.rounds]
    servers = [read_chunks(models.rounds[at], columns, layers, which=which) for at, which in models.servers]
    first = models.rounds[0]
    start = read_chunks(first, columns, layers, which="start") if "start" in first.models else None
    for pieces in zip(*clients, *servers, strict=True):
        # without a start, the first client
        yield LayerColumns(pieces, replace(pieces[0], places=pieces[0].places[:1]) if start is None else next(start))


def refuse_too_many(models: Models, workers: int) -> None:
    """Say before reading that the system would not let so many files be open.

    Raises:
        FedscopeError: more rounds than that.
    """
    from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit

    allowed = getrlimit(RLIMIT_NOFILE)[0]
    if allowed == RLIM_INFINITY:
        return
    # the clients', a file a model of the server's; what is unpacked lies in files of its own, one a layer in work
    each = 1 + len(models.servers) / len(models.rounds)
    each += 1 + AHEAD + workers if any(round_.is_packed for round_ in models.rounds) else 0
    most = max(1, int((allowed - OTHER_FILES) / each))
    if len(models.rounds) > most:
        raise FedscopeError(
            f"{len(models.rounds):,} rounds are read side by side, but a process may open {allowed:,} files here; ask "
            f"for {most:,} rounds at most, or raise the limit with ulimit -n"
        )
