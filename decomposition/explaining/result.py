"""Statements at rest, and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from ...checkpoints import FedscopeError
from ...checkpoints.tables import beside, read_info, write_info
from .records import Reading, Statement

FORMAT, VERSION = "fedscope-explanation", 2


@dataclass(frozen=True)
class Explanation:
    """What a decomposition says, claim by claim; made by :func:`~fedscope.decomposition.explaining.explain`.

    Attributes:
        runs: their names.
        statements: run after run, then those between runs.
        notes: what the numbers are of and what they cannot say.
        attrs: provenance, the decomposition's.
        early: by run, the last round of early training.
    """

    runs: tuple[str, ...]
    statements: tuple[Statement, ...]
    notes: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    early: Mapping[str, int] = field(default_factory=dict)

    def of(self, claim: str, run: str | None = None) -> Statement:
        """The statement of a claim. KeyError where there is none."""
        for one in self.statements:
            if one.claim == claim and run in (None, one.run):
                return one
        raise KeyError((claim, run))

    def save(self, base: str | Path) -> Path:
        """Write BASE.explain.json; returns its path. Floats survive."""
        path = beside(Path(base), ".explain.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_info(path, FORMAT, VERSION, asdict(self))
        return path

    @classmethod
    def load(cls, base: str | Path) -> Self:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: there is no such file, or it is no such result, or one of an earlier fedscope, whose
                statements were others.
        """
        path = beside(Path(base), ".explain.json")
        if not path.exists():
            raise FedscopeError(f"{path} does not exist; run `fedscope explain` again without --redraw")
        if cls.is_outdated(base):
            raise FedscopeError(
                f"{path} is a page of an earlier fedscope, which made other statements; run `fedscope explain` again "
                "without --redraw, which keeps the decomposition"
            )
        info = read_info(path, FORMAT, VERSION, "explain")
        statements = (
            Statement(**{**one, "readings": tuple(Reading(**reading) for reading in one["readings"])})
            for one in info["statements"]
        )
        return cls(tuple(info["runs"]), tuple(statements), tuple(info["notes"]), info["attrs"], info["early"])

    @classmethod
    def is_outdated(cls, base: str | Path) -> bool:
        """Whether the page there is one of an earlier version of fedscope, which :meth:`load` refuses."""
        try:
            info = json.loads(beside(Path(base), ".explain.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False  # which `load` says
        version = info.get("version") if isinstance(info, dict) and info.get("format") == FORMAT else None
        return isinstance(version, int) and version < VERSION

    def as_text(self, width: int = 100) -> str:
        """The page for a terminal, without the table of numbers."""
        from .rendering import as_text

        return as_text(self, width)

    def as_markdown(self, figure: str | None = None) -> str:
        """The page as Markdown; `figure` is the figure's path, seen from it."""
        from .rendering import as_markdown

        return as_markdown(self, figure)

    def as_html(self, png: bytes | None = None) -> str:
        """The page as HTML that needs no other file; `png` is the figure."""
        from .page import as_html

        return as_html(self, png)
