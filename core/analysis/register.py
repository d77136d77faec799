"""The register of analyses: each says of itself, in its folder's ``__init__.py``, what all lists need to know of it.

``fedscope --help``, the report, the reference and the tests that walk all analyses read it; nothing else lists them.
A folder of :data:`ROOMS` is an analysis where its ``__init__.py`` holds ``ANALYSIS``; it must import nothing heavy.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..results import Result

#: where folders of analyses lie, below ``fedscope``; ``training`` has one
ROOMS = ("landscape", "decomposition")
OTHERS = ("training.curves",)
#: results that no report shows, as ``module:Class`` below ``fedscope``
UNREPORTED = ("training.curves.result:Curves", "training.tables.comparison:Comparison")


class ReportSection(NamedTuple):
    """The place of one class of results in a report.

    Attributes:
        result: the class, as ``file:Class`` below the analysis' folder.
        section: the heading under which it stands; place: among those of the section, ascending.
        asks: what a reader asks of it.
    """

    result: str
    section: str
    place: int
    asks: str


class Analysis(NamedTuple):
    """An analysis before it is imported: a named tuple, because ``dataclasses`` costs ``fedscope --help`` a tenth.

    Attributes:
        name: of its function and, where ``line`` is not empty, of its command.
        section: of ``fedscope --help``; place: within it, ascending; line: what stands there.
        answers: public names of its results, as the reference lists them.
        reports: its results, as a report shows them.
        how_to: its page in ``docs/howto``.
        example: a command that asks it of a small run called ``runs/fma``, which the tests run in all their ways.
    """

    name: str
    section: str
    place: int
    line: str
    answers: tuple[str, ...]
    reports: tuple[ReportSection, ...]
    how_to: str
    example: str = ""

    @property
    def package(self) -> str:
        """The dotted path of its folder."""
        return next(path for path, one in _find_analyses().items() if one is self)

    def result(self, report: ReportSection) -> type[Result]:
        """Return the class of a result, imported now."""
        file, _, name = report.result.partition(":")
        found: type[Result] = getattr(import_module(f"{self.package}.{file}"), name)
        return found


def analyses() -> tuple[Analysis, ...]:
    """All analyses, by section and place.

    >>> [one.name for one in analyses() if one.section == "See losses in weight space"]
    ['line', 'plane', 'sharpness', 'align']
    """
    return tuple(sorted(_find_analyses().values(), key=lambda one: (SECTIONS.index(one.section), one.place, one.name)))


def result_classes() -> tuple[type[Result], ...]:
    """Return the class of every result that is stored as one, imported now; collections are stored as their parts."""
    root = __package__.partition(".")[0]
    found = [one.result(report) for one in analyses() for report in one.reports]
    for path in UNREPORTED:
        module, _, name = path.partition(":")
        found.append(getattr(import_module(f"{root}.{module}"), name))
    return tuple(dict.fromkeys(found))


#: of ``fedscope --help``, in the order of a first tour
SECTIONS = (
    "Train and look around",
    "Repeat an experiment",
    "Bring your own",
    "See losses in weight space",
    "Ask why averaging works",
    "Compare clients and models",
    "Exchange with other programs",
)


@cache
def _find_analyses() -> dict[str, Analysis]:
    """By the dotted path of their folders."""
    root = __package__.partition(".")[0]
    paths = [f"{root}.{other}" for other in OTHERS]
    for room in ROOMS:
        package = import_module(f"{root}.{room}")
        # os alone: pkgutil and pathlib take longer to import than all analyses
        with os.scandir(package.__path__[0]) as entries:
            folders = sorted(entry.name for entry in entries if entry.is_dir() and entry.name != "__pycache__")
        paths += [f"{root}.{room}.{name}" for name in folders]
    found = {path: getattr(import_module(path), "ANALYSIS", None) for path in paths}
    return {path: one for path, one in found.items() if isinstance(one, Analysis)}
