"""Profiles of a training: a round's parts as a table, and every client as a span of a trace for Perfetto."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from math import fsum
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, expand_home, write_durably

#: of a round, in the order in which they happen
PARTS = ("training", "aggregation", "evaluation", "recording")
ROUND = "round"


@dataclass(frozen=True)
class TimeSpan:
    """A stretch of time.

    Attributes:
        part: of a round, one of :data:`PARTS`, or :data:`ROUND` for all of it; for a worker what it did, as ``train``.
        round: its number; client: whose work it was, None for the round's own parts.
        worker: a number from 1 on, of those that are at work at a time the smallest that is free; 0 for the round's own
            parts.
        begin: seconds since the profile was made; seconds: long; finished: whether it ended without an error.
    """

    part: str
    round: int
    client: int | None
    worker: int
    begin: float
    seconds: float
    finished: bool = True


class Profile:
    """The times of :func:`fedscope.training.train`, ``resume`` or ``branch``.

    >>> profile = Profile()
    >>> with profile.span("training", 1):
    ...     pass
    >>> [(span.part, span.round, span.worker) for span in profile.spans]
    [('training', 1, 0)]
    """

    def __init__(self) -> None:
        self.spans: list[TimeSpan] = []
        self._began = time.perf_counter()
        self._at_work: set[int] = set()
        self._lock = threading.Lock()

    @contextmanager
    def span(self, part: str, round: int, client: int | None = None) -> Iterator[None]:
        """Time what happens inside; it counts where it fails, too."""
        # threads come and go with every round, so their own names would be too many
        with self._lock:
            worker = 0 if client is None else next(i for i in count(1) if i not in self._at_work)
            self._at_work.add(worker)
        begin, finished = time.perf_counter(), False
        try:
            yield
            finished = True
        finally:
            seconds = time.perf_counter() - begin
            with self._lock:
                self._at_work.discard(worker)
                self.spans.append(TimeSpan(part, round, client, worker, begin - self._began, seconds, finished))

    @property
    def rounds(self) -> tuple[int, ...]:
        """Those that were finished."""
        return tuple(span.round for span in self.spans if span.part == ROUND and span.finished)

    def seconds(self, part: str) -> float:
        """Of a part, or of :data:`ROUND`, over all rounds that were finished."""
        done = set(self.rounds)
        return fsum(span.seconds for span in self.spans if span.part == part and span.round in done)

    @property
    def busy(self) -> float:
        """The share of the training's time in which a worker was at work for a client, on average over the workers;
        NaN where nobody trained."""
        done = set(self.rounds)
        phases = {span.round: span for span in self.spans if span.part == "training" and span.round in done}

        def trains(span: TimeSpan) -> bool:  # workers measure clients, too, later in the round
            phase = phases.get(span.round)
            return span.client is not None and phase is not None and span.begin < phase.begin + phase.seconds

        own = [span for span in self.spans if trains(span)]
        whole = fsum(
            phase.seconds * len({span.worker for span in own if span.round == number})
            for number, phase in phases.items()
        )
        return fsum(span.seconds for span in own) / whole if whole else float("nan")

    def findings(self) -> dict[str, Any]:
        """Seconds by part, over all rounds, for programs."""
        parts = {part: self.seconds(part) for part in (*PARTS, ROUND)}
        return {"rounds": len(self.rounds), "seconds": parts, "workers_busy": self.busy}

    def summary(self) -> str:
        """A table: seconds a round and shares of it, by part."""
        rounds, whole = len(self.rounds), self.seconds(ROUND)
        if not rounds:
            return "no round was finished, so there is nothing to say of its parts"
        parts = {part: self.seconds(part) for part in PARTS}
        parts |= {"all else": whole - fsum(parts.values()), ROUND: whole}
        rows = [f"{'part':<12} {'s a round':>10} {'share':>6}"]
        rows += [f"{part:<12} {own / rounds:>10.4f} {100 * own / whole:>4.0f} %" for part, own in parts.items()]
        first = next(span for span in self.spans if span.part == ROUND and span.finished)
        over = f"mean over {rounds} rounds, the first of {first.seconds:.4f} s" if rounds > 1 else "one round"
        rows.append(f"{over}; while clients train, a worker is busy {100 * self.busy:.0f} % of the time")
        return "\n".join(rows)

    def trace(self) -> dict[str, Any]:
        """Return the spans in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open; times in
        microseconds.

        A row a worker, and the first one for rounds and their parts.
        """
        first = min((span.begin for span in self.spans), default=0.0)
        workers = sorted({0, *(span.worker for span in self.spans)})
        events: list[dict[str, Any]] = [
            {
                "ph": "M",
                "name": "thread_name",
                "pid": 1,
                "tid": worker,
                "args": {"name": f"worker {worker}" if worker else "rounds"},
            }
            for worker in workers
        ]
        events += [
            {
                "ph": "X",
                "name": f"{span.part} {span.round}" if span.client is None else f"{span.part} client {span.client}",
                "cat": span.part,
                "pid": 1,
                "tid": span.worker,
                "ts": round(1e6 * (span.begin - first), 1),
                "dur": round(1e6 * span.seconds, 1),
                "args": {"round": span.round},
            }
            for span in self.spans
        ]
        return {"displayTimeUnit": "ms", "traceEvents": events}

    def save(self, path: Path | str) -> None:
        """Write :meth:`trace` as JSON.

        Raises:
            FedscopeError: the file cannot be written.
        """
        path = expand_home(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_durably(path) as temporary:
                temporary.write_text(json.dumps(self.trace()) + "\n", encoding="utf-8")
        except OSError as error:
            raise FedscopeError(f"{path} cannot be written: {error.strerror}; give another --profile") from error


def time_span(
    profile: Profile | None, part: str, round: int, client: int | None = None
) -> AbstractContextManager[None]:
    """A span of a profile, or nothing where there is none."""
    return nullcontext() if profile is None else profile.span(part, round, client)


def refuse_unwritable(path: Path) -> None:
    """Refuse a file that is there, and a place where none can be made, before hours are spent.

    Raises:
        FedscopeError: names it.
    """
    if path.exists():
        raise FedscopeError(f"--profile {path} is there already; give another name, or delete it")
    Profile().save(path)
    path.unlink()
