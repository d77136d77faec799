"""The one writer of a run: rounds as they come, durably, and what a resume needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from ..io.atomic import OTHER_OUT, WriterLock, disk_is_full, sweep_temporaries, sync, write_durably
from ..io.code_words import code_words_at
from ..io.errors import DiskFullError, FedscopeError
from ..io.safe_write import refuse_strange
from ..io.shell_words import command_line
from ..rounds.metrics import TABLE, Metrics, append_row, further, mend_table
from ..rounds.writer import RoundRecord, write_round
from .folders import create_run, refuse_linked_parts
from .measured_numbers import MeasuredNumbers, merge_numbers, write_measured
from .partition import Partition
from .run import KEPT_NAME, KEPT_PARTS, Run, kept_path, kept_rounds, round_path


class RunWriter:
    """Writes a run; holds its lock until it is closed. Made by :meth:`create` or :meth:`open`."""

    def __init__(self, run: Run, lock: WriterLock) -> None:
        self.run, self._lock = run, lock
        self.path = run.path
        self.last = run.rounds[-1] if run.rounds else 0
        self._compression = _compression(run.config)
        self._further: tuple[str, ...] = ()  # columns of metrics.csv
        self._numbers: dict[int, Metrics] = {}  # of rounds, as their files have them: each is read once

    @classmethod
    def create(
        cls,
        path: Path | str,
        info: Mapping[str, Any],
        config: Mapping[str, Any] | None,
        partition: Partition | None,
        *,
        force: bool = False,
        keep: Callable[[Path], None] | None = None,
    ) -> RunWriter:
        """Make a new run, with no round yet.

        Args:
            info: ``run.json``, without ``format`` and ``version``, which are added; ``layout`` as ``Layout.to_json``.
            config: the resolved configuration; ``record.compression`` says how clients are stored.
            force: replace a run of fedscope that is there; nothing else is ever replaced.
            keep: writes other files of the run, before ``run.json``.

        Raises:
            FedscopeError: something is in the way; another writer; a full disk.
        """
        path = Path(path)
        _compression(config)
        return cls._holding(path, create_run(path, info, config, partition, force=force, keep=keep))

    @classmethod
    def open(cls, path: Path | str, remedy: str = OTHER_OUT, *, mend: bool = True) -> RunWriter:
        """Go on with a run: sweeps what an interrupted write left, and mends ``metrics.csv`` from the round files.

        Args:
            remedy: where another process is writing the run, for the sentence.
            mend: False leaves ``metrics.csv`` as it is, for one who writes no round.

        Raises:
            FedscopeError: no run; another writer; a link where a run has a folder or a table of its own.
        """
        path = Path(path)
        Run.open(path)  # before a lock file is left in a folder that is no run
        writer = cls._holding(path, WriterLock(path, remedy))
        try:
            refuse_linked_parts(path)
            sweep_temporaries(path)
            for folder in (path / "rounds", *(path / KEPT_NAME / part for part in KEPT_PARTS)):
                if folder.is_dir():
                    sweep_temporaries(folder)
            run = writer.run
            # a kill between keeping and writing a round leaves what belongs to no round yet
            for part in KEPT_PARTS:
                writer.forget(part, run.rounds)
            writer._forget_measured()
            if mend and (not run.is_foreign or os.path.lexists(path / "metrics.csv")):
                refuse_strange(path / "metrics.csv", TABLE)  # rows are appended to it
                writer._mend(run)
        except BaseException:
            writer.close()
            raise
        return writer

    @classmethod
    def _holding(cls, path: Path, lock: WriterLock) -> RunWriter:
        try:
            return cls(Run.open(path), lock)
        except BaseException:
            lock.release()
            raise

    def write(self, record: RoundRecord) -> None:
        """Record the next round: its file, durably, then its row of ``metrics.csv``.

        Raises:
            FedscopeError: not the round that comes next; another layout than the run's; a full disk (the run stays
                readable up to the last whole round).
        """
        if record.round != self.last + 1:
            raise FedscopeError(
                f"{self.path}: round {record.round} cannot follow round {self.last}; write {self.last + 1}"
            )
        for name in ("start", "clients", "sampled", "global_", "averaged"):
            model = getattr(record, name)
            if model is not None and (difference := self.run.layout.difference(model.layout)):
                raise FedscopeError(f"{self.path}: {name.rstrip('_')} of round {record.round} misfits: {difference}")
        rounds = self.path / "rounds"
        rounds.mkdir(exist_ok=True)
        with _room(self):
            write_round(
                round_path(self.path, record.round), record, self._compression, self.run.layout, self.run.identity
            )
            self.last = record.round
            self._add_row(record.round, record.metrics)

    def write_image(self, number: int, image: Iterable[bytes | memoryview], metrics: Metrics) -> None:
        """Record the next round, whose file is there as bytes, block by block. Raises as :meth:`write`."""
        with _room(self):
            with write_durably(round_path(self.path, number)) as temporary, temporary.open("wb") as file:
                file.writelines(image)
            self.last = number
            self._add_row(number, metrics)

    def _add_row(self, number: int, metrics: Metrics) -> None:
        table = self.path / "metrics.csv"
        self._numbers.pop(number, None)
        if further([self._further, metrics]) == self._further:
            append_row(table, number, metrics, self._further, self.run.identity)
            return
        # the first round that has such columns: of a run, or after a branch's history
        self._mend(Run.open(self.path))

    def _mend(self, run: Run) -> None:
        lacking = {t for t in run.lacking if t < self.last}  # later ones are played again
        lost = {t: row for t, row in run.table_rows().items() if t in lacking}  # says whose table it is

        def numbers(number: int) -> Metrics:
            if number not in self._numbers:
                self._numbers[number] = run.round(number).metrics
            return merge_numbers(self._numbers[number], run.measured.of(number))

        self._further = mend_table(self.path / "metrics.csv", run.rounds, numbers, run.identity, lost)

    def _forget_measured(self) -> None:
        """Forget what was measured of rounds that are gone and will come again."""
        kept = self.run.measured.up_to(self.last)
        if kept.rounds != self.run.measured.rounds:
            self.write_measured(kept)

    @property
    def further(self) -> tuple[str, ...]:
        """The columns of ``metrics.csv`` that only some runs have."""
        return self._further

    def write_measured(self, numbers: MeasuredNumbers) -> None:
        """Write what was measured of the run afterwards, durably; :meth:`fill_table` brings it into ``metrics.csv``.

        Raises:
            FedscopeError: a full disk.
        """
        with _room(self, _AGAIN):
            write_measured(self.path, numbers, self.run.identity)
        self.run.__dict__["measured"] = numbers

    def fill_table(self) -> None:
        """Write ``metrics.csv`` as the rounds' files and what was measured afterwards have it; a table of another
        program stays as it is. Raises as :meth:`write_measured`."""
        run = Run.open(self.path)
        if not run.table_of_others():
            with _room(self, _AGAIN):
                self._mend(run)

    def keep(self, record: RoundRecord, part: str) -> None:
        """Keep what a resume needs of a round and its file leaves out; call it before the round's :meth:`write`.

        Args:
            part: ``states``, ``globals`` or ``clients``: parts are forgotten one by one.
        """
        path = kept_path(self.path, record.round, part)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            sync(self.path)
            sync(self.path / KEPT_NAME)
        with _room(self):
            write_round(path, record, layout=self.run.layout, identity=self.run.identity)

    def forget(self, part: str, needed: Collection[int]) -> None:
        """Remove a part of what was kept of all other rounds; call it after a round's :meth:`write`."""
        for number in kept_rounds(self.path, part):
            if number not in needed:
                kept_path(self.path, number, part).unlink(missing_ok=True)

    def lent(self) -> AbstractContextManager[None]:
        """Let another writer of this process have the run; where that one fails, it is this one's again."""
        return self._lock.lent()

    def close(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _compression(config: Mapping[str, Any] | None) -> Literal["none", "delta"]:
    compression = (config or {}).get("record", {}).get("compression", "none")
    if compression == "delta":
        return "delta"
    if compression != "none":
        raise FedscopeError(f'record.compression = {compression!r} is unknown; give "none" or "delta"')
    return "none"


#: how to go on with what is no training
_AGAIN = ", and give the same command again"


@contextmanager
def _room(writer: RunWriter, on: str | None = None) -> Iterator[None]:
    """Says up to where a run can be read when the disk is full.

    Args:
        on: how to go on; None as a training does.
    """
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, DiskFullError) or disk_is_full(error)):
            raise
        path, last = writer.path, writer.last
        if on is None:
            command = command_line("train", "--resume", path, *code_words_at(path))
            on = "" if writer.run.is_foreign else f", then go on: {command}"
        upto = f"it is readable up to round {last}" if last else "no round of it is recorded yet"
        raise DiskFullError(f"{path}: the disk is full; {upto}; make room{on}") from error
