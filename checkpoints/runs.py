"""A run at rest: a folder with a ``run.json``."""

from __future__ import annotations

import json
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .errors import FedscopeError, listed, nearest, spans
from .hdf5 import check_version
from .layout import Layout
from .metrics import read_table, to_arrays
from .partition import Partition
from .rounds import Round

FORMAT, VERSION = "fedscope-run", 1
KEPT_NAME = "kept"
#: of the last round: the states and ``averaged``; of the rounds that an average looks back at: ``global``; of clients'
#: last participations: what they keep
KEPT_PARTS = ("states", "globals", "clients")


class Run:
    """A recorded run, as it stood when it was opened; open it again to see the rounds that came since.

    Attributes:
        path: its folder.
        info: ``run.json``.
        layout: of its models.
        rounds: the numbers of the rounds that are there, ascending.
    """

    def __init__(self, path: Path, info: dict[str, Any]) -> None:
        self.path, self.info = path, info
        try:
            self.layout = Layout.from_json(info["layout"])
        except KeyError:
            raise FedscopeError(f"{path / 'run.json'} has no layout; restore it from a copy") from None
        except FedscopeError as error:
            raise FedscopeError(f"{path / 'run.json'}: {error}") from None
        self.rounds = visible_rounds(path)
        self._there = frozenset(self.rounds)

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Open a run for reading; it may be training.

        Raises:
            FedscopeError: no run there (says which are near), a foreign, damaged or newer ``run.json``.
        """
        path = Path(path)
        return cls(path, read_info(path))

    def __repr__(self) -> str:
        return f"Run({self.path}, rounds {spans(self.rounds) or 'none'})"

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name or self.path.resolve().name

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """The resolved configuration; None where another program recorded the run."""
        path = self.path / "config.toml"
        if not path.exists():
            return None
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FedscopeError(f"{path} is not TOML: {error}; restore it from a copy") from None

    @cached_property
    def partition(self) -> Partition | None:
        """Which client holds which samples; None where another program recorded the run."""
        path = self.path / "partition.h5"
        return Partition.load(path) if path.exists() else None

    def round(self, number: int | Literal["last"]) -> Round:
        """A round by its number, ``"last"``, or from the end: -1 is the last.

        Raises:
            FedscopeError: no rounds yet; a round that is not there (says which are).
        """
        if not self.rounds:
            on = "" if self.is_foreign else f"; go on with it: fedscope train --resume {self.path}"
            raise FedscopeError(f"{self.path} has no rounds yet{on}")
        if number == "last":
            number = self.rounds[-1]
        elif -len(self.rounds) <= number < 0:
            number = self.rounds[number]
        if number not in self._there:
            raise FedscopeError(f"{self.path}@{number}: the run has rounds {spans(self.rounds)}")
        return Round(round_path(self.path, number), self.layout, str(self.path))

    def files_of(self, number: int) -> tuple[Round, ...]:
        """The files that hold something of a round: its own, and what is kept for a resume beside it.

        Where the recording policy leaves models or states out of a round's file, the others have them as long as a
        later round needs them. Rounds that came since the run was opened count too.
        """
        paths = [round_path(self.path, number), *(kept_path(self.path, number, part) for part in KEPT_PARTS)]
        return tuple(
            Round(path, self.layout, str(self.path / path.relative_to(self.path).parent))
            if part
            else Round(path, self.layout, str(self.path))
            for part, path in enumerate(paths)
            if path.exists()
        )

    def metrics(self) -> dict[str, np.ndarray]:
        """The columns of ``metrics.csv`` over ``rounds``, float64, NaN where empty.

        Rounds that the table lacks (a writer was killed, or is just writing) are taken from their files.

        Raises:
            FedscopeError: a run from another program that has no such table.
        """
        self.require("metrics.csv")
        rows = read_table(self.path / "metrics.csv")
        return to_arrays(self.rounds, rows, lambda t: self.round(t).metrics)

    @property
    def is_foreign(self) -> bool:
        """Whether another program recorded the run."""
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


def round_path(path: Path, number: int) -> Path:
    """Where a round's file lies: ``rounds/00040.h5``."""
    return path / "rounds" / f"{number:05d}.h5"


def kept_path(path: Path, number: int, part: str) -> Path:
    """Where lies what a resume needs of a round and the round's file leaves out: ``kept/states/00040.h5``."""
    return path / KEPT_NAME / part / f"{number:05d}.h5"


def visible_rounds(path: Path) -> tuple[int, ...]:
    """The rounds of a run that are there; a round that is visible is whole."""
    return _numbers(path / "rounds")


def kept_rounds(path: Path, part: str) -> tuple[int, ...]:
    """The rounds of which a part is kept beside their files."""
    return _numbers(path / KEPT_NAME / part)


def _numbers(folder: Path) -> tuple[int, ...]:
    try:
        names = [file.name for file in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted(int(name[:-3]) for name in names if name.endswith(".h5") and name[:-3].isdecimal()))


def read_info(path: Path) -> dict[str, Any]:
    """``run.json``, checked. Raises as :meth:`Run.open`."""
    file = path / "run.json"
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise FedscopeError(_no_run(path)) from None
    except ValueError as error:
        raise FedscopeError(f"{file} is not JSON ({error}); restore it from a copy") from None
    except OSError as error:
        raise FedscopeError(f"{file} cannot be read ({error.strerror})") from None
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise FedscopeError(f'{file} is not a run of fedscope: it does not say "format": "{FORMAT}"')
    check_version(file, info.get("version"), VERSION)
    return info


def _no_run(path: Path) -> str:
    if path.is_file():
        return f"{path} is a file, not a run; a run is a folder with a run.json"
    here = [entry.name for entry in _folders(path.parent) if (entry / "run.json").is_file()]
    there = f"{path} is not a run: it has no run.json" if path.is_dir() else f"{path} does not exist"
    if path.is_dir() and (inside := [entry.name for entry in _folders(path) if (entry / "run.json").is_file()]):
        return f"{there}; it holds the runs {listed(inside)}"
    hint = nearest(path.name, here)
    runs = f"; the runs in {path.parent} are {listed(here)}" if here and not hint else ""
    return there + hint + runs


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except OSError:
        return []
