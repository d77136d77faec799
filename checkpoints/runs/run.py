"""A stored run: a folder with a ``run.json``."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from ..io.atomic import writing_words
from ..io.code_words import code_words_at
from ..io.errors import FedscopeError, rounds_have, spans
from ..io.given_paths import refuse_in_memory
from ..io.given_values import as_index
from ..io.shell_words import command_line
from ..io.untrusted import expand_home, read_toml, real_path
from ..io.visible_text import visible
from ..io.warn_user import warn_user
from ..models.factor_names import alphas_apart
from ..models.weights import Layout
from ..rounds.metrics import MetricRows, Metrics, read_rows, to_arrays
from ..rounds.round import Round, few_of
from ..rounds.run_identity import NAME, identity_of_round
from .info import read_info, refuse_broken_seal, refuse_no_settings
from .measured_numbers import MeasuredNumbers, is_number, merge_numbers, read_measured
from .partition import Partition

KEPT_NAME = "kept"
#: of the last round: the states and ``averaged``; of the rounds that an average looks back at: ``global``; of clients'
#: last participations: what they keep
KEPT_PARTS = ("states", "globals", "clients")


#: of rounds that keep sketches, where a question needs models
SKETCHES_TELL = "its sketches tell lengths, angles and distances alone (fedscope updates, fedscope disperse --embed)"

DISTANCES_TELL = (
    "its consensus distances were measured while it was recorded (fedscope curves --measure consensus_before, or "
    "consensus_start)"
)

#: commands that take rounds whose clients start from models of their own
WITHOUT_START = ("consensus", "subsets", "matrix", "cka", "disperse", "line --clients", "plane --clients")


class Run:
    """A recorded run, as it stood when it was opened; open it again to see the rounds that came since.

    Attributes:
        path: its folder.
        info: ``run.json``.
        layout: of its models.
        identity: which run it is: an identity that its files bear too; "" for one that has none.
        code: of the user's own that was given for it, by kind (``server``); nothing that a file says. Training puts it
            in.
    """

    code: Mapping[str, Any] = MappingProxyType({})
    _called = ""

    def __init__(self, path: Path, info: dict[str, Any]) -> None:
        self.path, self.info = path, info
        try:
            layout = Layout.from_json(info["layout"])
        except FedscopeError as error:
            raise FedscopeError(f"{path / 'run.json'}: {error}; restore it from a copy") from None
        # earlier versions recorded what scales kohya's adapters as weights
        self.layout = alphas_apart(layout.widened()) if self.is_foreign else layout
        self.identity: str = info.get(NAME, "")
        visible, self._misnamed = _look(path / "rounds")
        self._visible = _as_agreed(path, visible)
        self._there = frozenset(self._visible)

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Open a run for reading; it may be training.

        Raises:
            FedscopeError: no run there (says which are near), a foreign, damaged or newer ``run.json``; a model in
                memory.
        """
        refuse_in_memory("path", path, "Run | Path | str")
        path = expand_home(path)
        return cls(path, read_info(path))

    def __repr__(self) -> str:
        from .run_repr import describe_run

        return describe_run(self)

    @property
    def rounds(self) -> tuple[int, ...]:
        """The numbers of the rounds that are there, ascending.

        Raises:
            FedscopeError: a file that is called as a round's file is not, of which nobody can tell whether it is one.
        """
        if self._misnamed:
            name = self._misnamed[0]
            own = round_path(self.path, int(name[:-3]))
            both = f", and {own.name} is there too" if own.name != name and own.exists() else ""
            raise FedscopeError(
                f"{own.with_name(name)} is not what a run calls a round's file (00001.h5, 00002.h5, ...){both}; move "
                "it away, or rename it if its round has no other file"
            )
        return self._visible

    @cached_property
    def planned(self) -> int | None:
        """The number of rounds that the run is to have; None where nothing says it: a loop of its own may always go
        on."""
        settings = (self.config or {}).get("run")
        rounds = settings.get("rounds") if isinstance(settings, dict) else self.info.get("rounds")
        if rounds is None and "imported" in self.info:
            rounds = _imported_rounds(self.info["imported"])
        return rounds if isinstance(rounds, int) and not isinstance(rounds, bool) else None

    @cached_property
    def lacking(self) -> tuple[int, ...]:
        """The rounds that were recorded and are not there any more, ascending: those before a later one, and those of
        which ``metrics.csv`` has a row.

        Runs of other programs may record some rounds only: of them nothing is known to be gone. Rounds that came since
        the run was opened are none of its own, and not gone either.
        """
        numbered = not self.is_foreign or bool(self.identity)  # from 1 on, without a gap
        recorded = set(range(1, self.rounds[-1])) if numbered and self.rounds else set()
        try:
            table = self._table()
            recorded |= table.own.keys() if numbered or table.summed else set()
        except (FedscopeError, OSError):  # said where its numbers are wanted
            pass
        # a round's file is there before its row is, so one of a row that was read is there unless it is gone
        return tuple(t for t in sorted(recorded - self._there) if not round_path(self.path, t).exists())

    @property
    def name(self) -> str:
        """The folder's name, as it can be shown: see :func:`~fedscope.checkpoints.io.visible_text.visible`; or what it
        was :meth:`called`."""
        return self._called or visible(self.path.name or real_path(self.path).name)

    def called(self, name: str) -> Run:
        """Return the same run under another name, where it stands beside one of its own."""
        other = copy.copy(self)
        other._called = name
        return other

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """The resolved configuration; None where another program recorded the run.

        Another data set than in ``run.json``, whose word counts, is a warning.
        """
        path = self.path / "config.toml"
        if not os.path.lexists(path):
            return None
        refuse_broken_seal(self.path, path.name, self.info)
        config = read_toml(path, "a run's configuration", "restore it from a copy")
        refuse_no_settings(path, config)
        ours, data = self.info.get("data", {}).get("name"), config.get("data")
        theirs = data.get("name") if isinstance(data, dict) else None
        if ours is not None and theirs is not None and ours != theirs:
            warn_user(
                f"{path} names the data {str(theirs)!r}, and run.json {ours!r}, which are taken; one of the two was "
                "changed after the run began: restore it from a copy"
            )
        return config

    @cached_property
    def partition(self) -> Partition | None:
        """The partition of the samples among clients; None where another program recorded the run.

        Raises:
            FedscopeError: a damaged file, or one of another run: other clients, classes or samples than run.json says.
        """
        path = self.path / "partition.h5"
        if not os.path.lexists(path):
            return None
        refuse_broken_seal(self.path, path.name, self.info)
        partition, data = Partition.load(path, self.identity), self.info.get("data", {})
        classes = self.info.get("classes")
        if partition.label_counts.shape[1] == 1 and (self.config or {}).get("model", {}).get("task") is not None:
            classes = None  # of a task without classes, whose samples count as of one
        partition.refuse_other(path, self.info.get("clients"), classes, data.get("train"))
        return partition

    def round(self, number: int | Literal["last"]) -> Round:
        """Open a round by its number, ``"last"``, or from the end: -1 is the last.

        Raises:
            FedscopeError: no rounds yet; a round that is not there (says which are).
        """
        if not self.rounds:
            if writing := writing_words(self.path):
                raise FedscopeError(f"{self.path} has no rounds yet: {writing}")
            on = command_line("train", "--resume", self.path, *code_words_at(self.path))
            raise FedscopeError(f"{self.path} has no rounds yet{'' if self.is_foreign else f'; go on with it: {on}'}")
        number = self.rounds[-1] if number == "last" else self._whole(number)
        if -len(self.rounds) <= number < 0:
            number = self.rounds[number]
        if number not in self._there:
            several = "s" if len(self.rounds) > 1 else ""
            raise FedscopeError(f"{self.path}@{number}: the run has round{several} {spans(self.rounds)}")
        return self._round(round_path(self.path, number), str(self.path))

    def _whole(self, number: Any) -> int:
        try:
            return as_index(number)
        except TypeError:
            raise FedscopeError(
                f"{self.path}@{number}: {number!r} is not a round; give a whole number, as round(1), or round('last')"
            ) from None

    def _round(self, path: Path, label: str) -> Round:
        # another program may number its clients as it likes
        population = None if self.is_foreign else self.info.get("clients")
        return Round(path, self.layout, label, population, identity_of_round(self.info, int(path.stem)))

    def files_of(self, number: int) -> tuple[Round, ...]:
        """Return the files that hold something of a round: its own, and those that are kept for a resume.

        Where the recording policy leaves models or states out of a round's file, the others have them as long as a
        later round needs them. Rounds that came since the run was opened count too.
        """
        number = self._whole(number)
        paths = [round_path(self.path, number), *(kept_path(self.path, number, part) for part in KEPT_PARTS)]
        return tuple(
            self._round(path, str(self.path / path.relative_to(self.path).parent if part else self.path))
            for part, path in enumerate(paths)
            if path.exists()
        )

    def metrics(self) -> dict[str, np.ndarray]:
        """Return the columns of ``metrics.csv`` over ``rounds``, float64, NaN where empty.

        Rounds that the table lacks (a writer was killed, or is just writing) are taken from their files.

        Raises:
            FedscopeError: a run from another program that has no such table, and no numbers in its rounds.
        """
        is_made = not self.is_foreign or (self.path / "metrics.csv").exists()
        if not is_made and not any(self.numbers(t) for t in self.rounds):
            self.require("metrics.csv")
        return to_arrays(self.rounds, self.table_rows(), self.numbers)

    def all_metrics(self) -> dict[str, np.ndarray]:
        """Read the same as :meth:`metrics`, over the rounds that are gone, too: from the table's rows, NaN where it has
        none.

        A run of another program may lack the table: its rounds have the numbers.
        """
        rounds = sorted({*self.rounds, *self.lacking})
        return to_arrays(rounds, self.table_rows(), lambda t: self.numbers(t) if t in self._there else {})

    @cached_property
    def measured(self) -> MeasuredNumbers:
        """What was measured of its models after it was recorded, and on what (``measured.json``).

        Raises:
            FedscopeError: a damaged file, or one of another run.
        """
        return read_measured(self.path, self.identity)

    def numbers(self, number: int) -> dict[str, float | int | None]:
        """Return a round's numbers: those in its file, and in their place what was measured of it afterwards."""
        round_ = self.round(number)
        return merge_numbers(round_.metrics, self.measured.of(round_.number))

    def table_rows(self) -> dict[int, dict[str, float]]:
        """Return the rows of ``metrics.csv`` by round: those that were written for this run, with what was measured of
        it afterwards.

        Where there are others alone, a warning says so: the table is another run's, or damaged. Rows
        of a run without an identity are compared with its first and last round's own numbers.

        Raises:
            FedscopeError: as :func:`~fedscope.checkpoints.rounds.metrics.read_rows`.
        """
        rows = self._table().own
        if why := self.lost_table():
            warn_user(
                f"{self.path / 'metrics.csv'} is another run's table, or damaged: {why}, so the numbers are those of "
                "the rounds' files; delete it, or restore it from a copy"
            )
        if not self.measured.measurements:
            return rows
        return {t: _as_floats(merge_numbers(row, self.measured.of(t))) for t, row in rows.items()}

    def lost_table(self) -> str:
        """Say in a clause why nothing in ``metrics.csv`` is believed, though there are rounds; "" where something is,
        or where the table has no rows yet. What another program wrote beside rounds without an identity may have
        whatever form that program likes.

        Raises:
            FedscopeError: as :meth:`table_rows`.
        """
        table = self._table()
        if table.own or not self._visible or not (table.strange or table.headless):
            return ""
        if self.is_foreign and not self.identity and not table.summed:
            return ""
        return table.headless or f"none of its {table.strange} rows was written for this run"

    def recorded_rows(self) -> dict[int, Metrics]:
        """Return the rows of ``metrics.csv`` by round as the training wrote them, without what was measured since;
        without those in which something was replaced, of which the round's file has the training's numbers."""
        rows = self.table_rows()
        if not self.measured.measurements:
            return dict(rows)
        replaced = self.measured.replaced
        return {
            t: {name: value for name, value in row.items() if name not in self.measured.of(t)}
            for t, row in rows.items()
            if t not in replaced
        }

    @property
    def is_table_behind(self) -> bool:
        """True if ``metrics.csv`` lacks a number that was measured afterwards: of a killed command, or written anew by
        a fedscope that does not know them."""
        rows = self._table().own
        return not self.table_of_others() and any(
            rows.get(t, {}).get(name) != value
            for t in self.measured.rounds
            if t in self._there
            for name, value in self.measured.of(t).items()
            if is_number(value)
        )

    def table_of_others(self) -> dict[int, dict[str, float]]:
        """Return the rows of a table that another program wrote beside its rounds, which may say more than these; none
        of a table of fedscope's, which is made of the rounds' files."""
        table = self._table()
        return table.own if self.is_foreign and not table.summed else {}

    def _table(self) -> MetricRows:
        """Read the table; its rows are none of the run's own where they do not say what its rounds' files do."""
        found = read_rows(self.path / "metrics.csv", self.identity)
        unsaid = found.own and not self.identity and (found.summed or not self.is_foreign)
        return found._replace(own={}, strange=len(found.own)) if unsaid and not self._fit(found.own) else found

    def _fit(self, rows: Mapping[int, Mapping[str, float]]) -> bool:
        """Check whether the rows of the first and the last round that are there say what the rounds' files do."""
        both = sorted(self._there & rows.keys())
        for number in {*both[:1], *both[-1:]}:
            try:
                recorded = self.round(number).metrics
            except FedscopeError:  # damaged itself, which whoever reads it says
                continue
            later = self.measured.of(number)
            for name, value in rows[number].items():
                if recorded.get(name) is not None and not any(
                    there is not None and (value == there or (isnan(value) and isnan(there)))
                    for there in (recorded[name], later.get(name))
                ):
                    return False
        return True

    @property
    def larger_cohorts(self) -> str:
        """The remedy where a round has too few clients."""
        if self.is_foreign:
            return "record rounds with more clients"
        return "train with more clients a round (--clients, --participation)"

    @property
    def is_foreign(self) -> bool:
        """True if another program recorded the run."""
        return "source" in self.info

    def require(self, part: str) -> None:
        """Make sure of a part that a run from another program may lack.

        Args:
            part: ``config.toml``, ``partition.h5``, ``metrics.csv``, ``client_steps`` or ``client_loss``.

        Raises:
            FedscopeError: it is not there; says which part and which program recorded the run.
        """
        if part in ("client_steps", "client_loss"):
            lacks = bool(self.rounds) and not self.round("last").has(part)
        elif part == "metrics.csv" and not self.is_foreign:
            return  # it can be made from the rounds
        else:
            lacks = not (self.path / part).exists()
        if lacks and self.is_foreign:
            raise FedscopeError(
                f"{self.path} has no {part}, which this needs: the run was recorded by {self.info['source']}, "
                "not by fedscope train"
            )
        if lacks:
            raise FedscopeError(f"{self.path} has no {part}, which this needs; restore it from a copy")


def _as_floats(row: Metrics) -> dict[str, float]:
    return {name: float("nan") if value is None else float(value) for name, value in row.items()}


def lacking_words(run: Run) -> str:
    """Name the rounds of a run that are gone, in a clause; "" where none is."""
    if not run.lacking:
        return ""
    several = "s" if len(run.lacking) > 1 else ""
    return f"lacks round{several} {spans(run.lacking)}, which {'were' if several else 'was'} recorded"


def warn_of_gaps(run: Run) -> None:
    """Warn where rounds of a run are gone, before an answer about all of it."""
    if gone := lacking_words(run):
        warn_user(f"{run.path} {gone}; restore the files from a copy, for what follows is without them")


def refuse_read_only(run: Run, remedy: str) -> None:
    """Refuse a run that somebody else may change and not we, before something is computed for it.

    Args:
        remedy: what can be done without changing it.

    Raises:
        FedscopeError: its folder cannot be written to.
    """
    if not os.access(run.path, os.W_OK):
        raise FedscopeError(f"{run.path} cannot be written to; {remedy}")


def recorded_clients(run: Run, number: int, *, start: bool = True) -> Round:
    """Open a round, if its clients, and with ``start`` the model they were sent, were recorded.

    Raises:
        FedscopeError: they were not; the sentence says which rounds have them.
    """
    round_ = run.round(number)
    if round_.has_clients and ("start" in round_.models or not start):
        return round_
    have = rounds_with_clients(run)
    if round_.has_clients:
        refuse_own_starts(run, [number], "this")
        have = tuple(t for t in have if "start" in run.round(t).models)
    listed = ", ".join(map(str, have[:12])) + (", ..." if len(have) > 12 else "")
    if round_.has_clients:
        none = "no round of this run has both: give start= to the recorder"
        both = rounds_have(have, "both", listed) if have else none
        raise FedscopeError(
            f"{run.path}@{number}: round {number} has its clients, but not the model that they were sent (start), "
            f"which this needs; {both}"
        )
    anew = "record it with keep='all'" if run.is_foreign else "train with record.clients = 'all'"
    told = SKETCHES_TELL if round_.has_sketch else DISTANCES_TELL if "consensus_before" in round_.metrics else ""
    if round_.has_sample:
        remedy = rounds_have(have, "all", listed) if have else f"no round of this run has all: {anew}"
        raise FedscopeError(
            f"{run.path}@{number}: {few_of(round_)}, and this needs those of all; {remedy}, or ask about single models "
            f"as {run.path}@{number}/client-{round_.sampled_ids[0]}" + (f"; {told}" if told else "")
        )
    raise FedscopeError(
        f"{run.path}@{number}: the clients of round {number} were not recorded; "
        + (rounds_have(have, "them", listed) if have else f"no round of this run has them: {anew}")
        + (f"; {told}" if told else "")
    )


def refuse_own_starts(
    run: Run,
    numbers: Iterable[int],
    question: str,
    needs: str = "the one model that all clients start from",
    remedy: str = "",
) -> None:
    """Refuse rounds whose clients started from models of their own, where a question needs one start.

    Args:
        question: its name; needs: what it needs that such a round has not.
        remedy: what else the question can be given, ``give --kernel none, or ``.

    Raises:
        FedscopeError: such a round.
    """
    for number in numbers:
        if run.round(number).own_starts:
            raise FedscopeError(
                f"{run.path}@{number}: {question} needs {needs}, and in round {number} each starts from a model of its "
                f"own (starts=); {remedy}ask {', '.join(WITHOUT_START)}, which need none"
            )


def has_no_server(run: Run) -> bool:
    """Check whether a run's clients start from models of their own and no round has a model of a server."""
    if not run.is_foreign or not run.rounds or not run.round("last").own_starts:
        return False  # which is what most runs are, and one file was read at most
    return not any({"global", "averaged"} & set(run.round(number).models) for number in run.rounds)


def rounds_with_clients(run: Run) -> tuple[int, ...]:
    """Return the rounds of a run whose clients were recorded, ascending."""
    return tuple(number for number in run.rounds if run.round(number).has_clients)


def round_path(path: Path, number: int) -> Path:
    """Return the path of a round's file: ``rounds/00040.h5``."""
    return path / "rounds" / f"{number:05d}.h5"


def kept_path(path: Path, number: int, part: str) -> Path:
    """Return the path of what a resume needs of a round and the round's file leaves out: ``kept/states/00040.h5``."""
    return path / KEPT_NAME / part / f"{number:05d}.h5"


def visible_rounds(path: Path) -> tuple[int, ...]:
    """Return the rounds of a run that are there; a round that is visible is whole."""
    return _numbers(path / "rounds")


def kept_rounds(path: Path, part: str) -> tuple[int, ...]:
    """Return the rounds of which a part is kept outside of their files."""
    return _numbers(path / KEPT_NAME / part)


#: the last round that counts of each run that was opened, by its folder; None where all that are there count
_LAST: ContextVar[dict[Path, int] | None] = ContextVar("_LAST", default=None)


@contextmanager
def same_rounds(last: Mapping[Path, int]) -> Iterator[None]:
    """Have all questions within this context speak of the same rounds of a run that is being trained: those up to the
    one that ``last`` says, or else up to the last one that was there when the run was opened first."""
    token = _LAST.set({real_path(path): number for path, number in last.items()})
    try:
        yield
    finally:
        _LAST.reset(token)


def rounds_agreed() -> dict[Path, int]:
    """Return the last round that counts of each run that was opened within :func:`same_rounds`, by its folder."""
    return dict(_LAST.get() or {})


def _as_agreed(path: Path, rounds: tuple[int, ...]) -> tuple[int, ...]:
    if (agreed := _LAST.get()) is None:
        return rounds
    last = agreed.setdefault(real_path(path), rounds[-1] if rounds else 0)
    return tuple(t for t in rounds if t <= last)


def _numbers(folder: Path) -> tuple[int, ...]:
    return _look(folder)[0]


def _look(folder: Path) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the rounds of a folder, ascending, and names that a round's file could have and does not: ``4.h5``."""
    try:
        names = [file.name for file in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return (), ()
    called = sorted(name for name in names if name.endswith(".h5") and name[:-3].isdecimal() and len(name) < 100)
    rounds = {name: int(name[:-3]) for name in called}
    own = {name: number for name, number in rounds.items() if name == f"{number:05d}.h5" and number}
    return tuple(sorted(own.values())), tuple(name for name in called if name not in own)


def _imported_rounds(files: Mapping[str, str]) -> int | None:
    """Count the rounds of an import, by the files that ``run.json`` names; None where it does not name all."""
    numbers = [number for name in files if (number := name.partition("/")[0]).isdecimal() and len(number) < 10]
    return max(map(int, numbers)) if numbers and "..." not in files else None
