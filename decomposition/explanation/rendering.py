"""The page as text and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .readings import Reading
from .statements import Statement

if TYPE_CHECKING:
    from .result import Explanation

SOURCE = (
    "Claims: Zhou, Lin, Zhang and Tsang, Understanding and Improving Model Averaging in Federated Learning on "
    "Heterogeneous Data. Numbers and verdicts: these runs."
)


def title(explanation: Explanation) -> str:
    """Of the page."""
    return f"What makes up the loss of the averaged model: {', '.join(explanation.runs)}"


def sections(explanation: Explanation) -> Iterator[tuple[str, list[tuple[int, Statement]]]]:
    """(heading, numbered statements) of each run, then of those between runs; no heading for a single run."""
    numbered = list(enumerate(explanation.statements, start=1))
    for run in explanation.runs:
        own = [(number, one) for number, one in numbered if one.run == run]
        yield run if len(explanation.runs) > 1 else "", own
    rest = [(number, one) for number, one in numbered if one.run not in explanation.runs]
    if rest:
        yield "Between runs", rest


def as_text(explanation: Explanation, width: int) -> str:
    """Wrapped at `width` characters."""

    def wrapped(words: str, indent: str, first: str | None = None) -> str:
        # Numbers stay whole: what may not break is a no-break space until the lines are made.
        kept = words.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")
        filled = textwrap.fill(
            kept,
            width,
            initial_indent=indent if first is None else first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return filled.replace("\N{NO-BREAK SPACE}", " ")

    lines = [title(explanation), ""]
    for heading, statements in sections(explanation):
        lines += [heading, ""] if heading else []
        for number, one in statements:
            lines.append(wrapped(f"{one.title}: {one.verdict.upper()}", "    ", f"{number:>2}. "))
            lines.append(wrapped(" ".join(filter(None, [one.sentence, one.decide])), "    "))
        lines.append("")
    lines += [wrapped(note, "  ", "- ") for note in explanation.notes]
    return "\n".join(lines)


def as_markdown(explanation: Explanation, figure: str | None) -> str:
    """With a table of all numbers at the end."""
    lines = [f"# {title(explanation)}", ""]
    for heading, statements in sections(explanation):
        lines += [f"## {heading}", ""] if heading else []
        for number, one in statements:
            decide = f" *{one.decide}*" if one.decide else ""
            lines += [f"{number}. **{one.title}: {one.verdict}.** {one.sentence}{decide}", ""]
            lines += [f"{' ' * (len(str(number)) + 2)}Paper: {one.paper}", ""]
    if figure is not None:
        lines += [f"![The factors over rounds]({figure})", ""]
    lines += ["## How to read this", ""]
    lines += [*(f"- {note}" for note in (*explanation.notes, SOURCE)), "", "## The numbers", ""]
    lines += ["| statement | number | round | value | low | high |", "| --- | --- | --- | --- | --- | --- |"]
    for number, one in enumerate(explanation.statements, start=1):
        lines += [f"| {number} | {' | '.join(cells(reading))} |" for reading in one.readings]
    return "\n".join(lines) + "\n"


def cells(reading: Reading) -> list[str]:
    """Name, round, value and interval; empty where one does not exist."""
    numbers = ("" if value is None else f"{value:.6g}" for value in (reading.value, reading.low, reading.high))
    return [reading.name, "" if reading.round is None else str(reading.round), *numbers]
