"""The results that a report shows, their order, and the question that each answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any

from ..analysis.register import Analysis, ReportSection, analyses
from ..analysis.stored_results import Stored, results_in
from ..checkpoints import FedscopeError, Run, real_path
from ..checkpoints.io.untrusted import expand_home
from ..results import Result, make_visible


@dataclass(frozen=True)
class ReportEntry:
    """Results of one analysis.

    Attributes:
        analysis: its record; shown: how a report shows this class of its results.
    """

    analysis: Analysis
    shown: ReportSection

    @property
    def name(self) -> str:
        """Of the class."""
        return self.shown.result.rpartition(":")[2]

    @property
    def section(self) -> str:
        """The heading under which they stand."""
        return self.shown.section

    @property
    def asks(self) -> str:
        """The question of a reader that the result answers."""
        return self.shown.asks

    @property
    def cls(self) -> type[Result]:
        """The class, imported now."""
        return self.analysis.result(self.shown)


#: in the order of a reader: what the loss is made of, where the models lie, how clients differ
SECTIONS = ("Factors", "Surfaces", "Similarity", "Dispersion", "Servers", "Clients")


@cache
def kinds() -> tuple[ReportEntry, ...]:
    """All that a report shows, in the order of the page."""
    found = [ReportEntry(one, shown) for one in analyses() for shown in one.reports]
    return tuple(sorted(found, key=lambda kind: (SECTIONS.index(kind.section), kind.shown.place, kind.name)))


@dataclass(frozen=True)
class Found:
    """A result in a run's folder.

    Attributes:
        base: its path without an extension; name: the same within the run's folder, or as its folder was given.
    """

    kind: ReportEntry
    base: Path
    name: str
    result: Result


@dataclass(frozen=True)
class Beside:
    """The results in a run's folder.

    Attributes:
        results: in the order of the page.
        left_out: files that are not shown, and why, a clause each.
        closures: by the base of a decomposition how far its factors are from the loss that they add up to, at most and
            relative; of those within a page on the factors, too.
    """

    results: tuple[Found, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    closures: Mapping[str, float] = field(default_factory=dict)


def find_results(run: Run, folders: Sequence[Path] = ()) -> Beside:
    """Return the results in ``RUN/figures``, and in further ``folders``, that were made of this run as it is.

    One that is damaged, of a newer fedscope, or of a run that has stood in the same folder before is left out, and said
    to be. In further folders, results of other runs are passed over.

    Raises:
        FedscopeError: one of ``folders`` is no folder.
    """
    found, left_out = list[Found](), dict[str, str]()
    own = run.path / "figures"
    folders = [expand_home(folder) for folder in folders]
    for folder in folders:
        if not folder.is_dir():
            raise FedscopeError(f"{folder} is not a folder, so there are no results in it; give another --results")
    apart = [folder for folder in dict.fromkeys(folders) if real_path(folder) != real_path(own)]
    stored = {folder: results_in(folder, left_out) for folder in (own, *apart)}
    for kind in kinds():
        for folder, there in stored.items():
            found += _of_kind(run, kind, there, left_out, strangers=folder == own)
    # a page on the factors holds their decomposition
    explained = {one.base for one in found if one.kind.name == "Explanation"}
    visible = [one for one in found if one.kind.name != "Decomposition" or one.base not in explained]
    closures = {one.name: _closure(one.result) for one in found if one.kind.name == "Decomposition"}
    return Beside(tuple(visible), left_out, closures)


def _of_kind(
    run: Run, kind: ReportEntry, stored: Sequence[Stored], left_out: dict[str, str], *, strangers: bool
) -> Iterator[Found]:
    """Results of a question among those of a folder; ``strangers`` are said to be left out."""
    for one in stored:
        if not issubclass(kind.cls, one.kind):
            continue
        try:
            result = one.kind.load(one.base)
        except FedscopeError as error:
            left_out[one.main.name] = str(error)
            continue
        if type(result) is not kind.cls:
            continue
        if not is_of(run, result.attrs, strangers):
            if strangers:
                left_out[one.main.name] = "it is of another run, or of one that has stood in this folder before"
            continue
        within = one.base.is_relative_to(run.path)
        yield Found(kind, one.base, str(one.base.relative_to(run.path) if within else one.base), make_visible(result))


def _closure(decomposition: Result) -> float:
    errors = [abs(row.get("closure_error") or 0.0) for row in decomposition.numbers()["rounds"]]
    return max((error for error in errors if not isnan(error)), default=0.0)


def is_of(run: Run, attrs: Mapping[str, Any], unless_said: bool = True) -> bool:
    """Tell whether a result was made of this run: of one that was made at the same moment; ``unless_said`` is the
    answer for a result that does not say."""
    said = attrs.get("run")
    runs = said if isinstance(said, list) else [said]
    moments = [one["created"] for one in runs if isinstance(one, dict) and one.get("created")]
    return run.info.get("created") in moments if moments else unless_said
