"""What a paper's page is made of: runs, questions about them, and figures with what is claimed of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcomes import Outcome
from work import Asked, Swept, Trained


def nothing(_results: Path) -> list[Any]:
    """Of a figure that claims nothing."""
    return []


def none(_folders: Mapping[str, Path]) -> None:
    """Of a figure that long runs do not have."""


@dataclass(frozen=True)
class Figure:
    """A figure or a table of a paper, made again. Each function takes the folder of the paper's results.

    Attributes:
        name: of its picture and in the list of verdicts, as ``fig1``; heading: above it; setup: a sentence.
        answers: names of the `Asked` that it is made of.
        picture: draws it; table: writes it as Markdown; a figure has one of both, or both.
        judged: what became of its claims.
        long: draws it from the folders of the long runs' units, with the seed; None where these are not finished.
    """

    name: str
    heading: str
    setup: str
    answers: tuple[str, ...]
    picture: Callable[[Path], Any] | None = None
    table: Callable[[Path], str] | None = None
    judged: Callable[[Path], Sequence[Outcome]] = nothing
    long: Callable[[Mapping[str, Path]], tuple[int, Any] | None] = none


@dataclass(frozen=True)
class Left:
    """What was not run.

    Attributes:
        shown: the figure or table; recipe: that makes it; why: a sentence.
    """

    shown: str
    recipe: str
    why: str


@dataclass(frozen=True)
class Paper:
    """A paper's page.

    Attributes:
        name: of its files, as ``ima``; title: of its page; lead: what the page is and how far from the paper's size.
        runs: trained for it, in this order; asked: the questions; figures: in the paper's order.
        contradictions: inside the paper, or what we know of it, a sentence each; readings: what it can be read as in
            several ways, and how we read it; left: what was not run.
        from_notes: what we know of the paper are a third party's notes.
    """

    name: str
    title: str
    lead: str
    runs: tuple[Trained | Swept, ...]
    asked: tuple[Asked, ...]
    figures: tuple[Figure, ...]
    contradictions: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()
    readings: tuple[str, ...] = ()
    from_notes: bool = False
