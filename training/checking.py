"""A run checked as a whole: its files, their checksums, and what must hold between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isnan
from pathlib import Path

from ..checkpoints import FedscopeError, Run
from ..checkpoints.checking import check_round
from ..checkpoints.gate import DamagedError
from ..checkpoints.metrics import read_table
from ..checkpoints.runs import KEPT_PARTS, kept_rounds
from .algebra import contradictions
from .config import Config
from .lineage import segments


@dataclass(frozen=True)
class Soundness:
    """What a check of a run found.

    Attributes:
        rounds: how many there are; checksums: how many were compared.
        without: the rounds that have no checksums: recorded by another program, or by a fedscope before it wrote them.
        faults: what is wrong: the file, relative to the run's folder, and a clause.
    """

    rounds: int
    checksums: int
    without: tuple[int, ...]
    faults: tuple[tuple[str, str], ...]


def check_run(path: Path | str, report: Callable[[int, int], None] | None = None) -> Soundness:
    """Verify every checksum of every round's file, and that the run's files and models do not contradict each other.

    Files are read anew, whatever this process has verified before; nothing is written.

    Args:
        report: called with how many of the rounds are done.

    Raises:
        FedscopeError: no run there.
    """
    path = Path(path)
    if not (path / "run.json").exists():
        Run.open(path)  # says what is there instead
    try:
        run = Run.open(path)
    except FedscopeError as error:
        return Soundness(0, 0, (), (("run.json", str(error)),))
    faults = list(_beside(run))
    parts, broken = _parts(run)
    faults += broken
    sums, without = 0, []
    for done, number in enumerate(run.rounds):
        if report is not None:
            report(done, len(run.rounds))
        sound = True
        for place in run.files_of(number):
            name = str(place.path.relative_to(run.path))
            checked = check_round(place)
            if not place.path.exists():
                continue  # a training run has just ceased to need it
            faults += [(name, what) for what in checked.faults]
            sound &= not checked.faults
            sums += checked.checksums or 0
            if checked.checksums is None and place.is_round and not checked.faults:
                without.append(number)
        if sound:
            name = f"rounds/{number:05d}.h5"
            faults += [(name, what) for what in _about_round(run, number, parts)]
    if report is not None:
        report(len(run.rounds), len(run.rounds))
    return Soundness(len(run.rounds), sums, tuple(without), tuple(faults))


def _parts(run: Run) -> tuple[list[tuple[float, Config]], list[tuple[str, str]]]:
    """The configurations that made the rounds; none of a run from another program."""
    if run.is_foreign and not (run.path / "config.toml").exists():
        return [], []
    try:
        return segments(run), []
    except FedscopeError as error:
        return [], [("config.toml", str(error))]


def _beside(run: Run) -> Iterator[tuple[str, str]]:
    """What is wrong beside the rounds, each file by its own reader."""
    for name in ("config", "partition"):
        file = {"config": "config.toml", "partition": "partition.h5"}[name]
        try:
            if getattr(run, name) is None and not run.is_foreign:
                yield file, "it is missing; restore it from a copy"
        except FedscopeError as error:
            yield file, str(error)
    try:
        rows = read_table(run.path / "metrics.csv")
    except FedscopeError as error:
        yield "metrics.csv", str(error)
        rows = {}
    for number in run.rounds:
        try:
            recorded = run.round(number).metrics
        except FedscopeError:
            continue  # its check says why
        for name, value in rows.get(number, {}).items():
            there = recorded.get(name, value)
            if there is not None and value != there and not (isnan(value) and isnan(there)):
                yield (
                    "metrics.csv",
                    f"it says {name} = {value!r} of round {number}, but the round's file says {there!r}; delete it: "
                    "what it lacks is taken from the rounds",
                )
    if not run.is_foreign:
        for number in range(1, max(run.rounds, default=0)):
            if number not in run.rounds:
                yield f"rounds/{number:05d}.h5", "it is missing; restore it from a copy"
    for part in KEPT_PARTS:
        for number in kept_rounds(run.path, part):
            if number not in run.rounds:
                yield f"kept/{part}/{number:05d}.h5", "it belongs to no round; train --resume removes it"


def _about_round(run: Run, number: int, parts: list[tuple[float, Config]]) -> Iterator[str]:
    """What does not hold between a sound round and the rest of the run."""
    try:
        place, partition = run.round(number), run.partition
        if partition is not None:
            for client, samples in zip(place.client_ids.tolist(), place.client_samples.tolist(), strict=True):
                if samples != (has := len(partition.clients[client])):
                    yield f"client {client} trained on {samples} samples, but partition.h5 gives it {has}"
        if parts:
            yield from contradictions(run, number, parts)
    except DamagedError:
        return  # of another file, which its own check has named
    except FedscopeError as error:
        yield str(error)
