"""A paper's page: each figure beside what the paper says, with its command and the verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verdicts import Number, Verdict


def draw(figure: Any, path: Path) -> None:
    """The picture of a page, the same bytes for the same numbers."""
    from fedscope.landscape.drawing.paper import save_figure

    (drawn,) = save_figure(figure, path.with_suffix(""), ("png",))
    assert drawn == path, drawn


def written(title: str, lead: str, figures: Sequence[Mapping[str, Any]]) -> str:
    """The page in Markdown.

    Args:
        figures: each with ``name``, ``heading``, ``setup``, ``picture``, ``commands``, ``verdicts`` and ``statements``.
    """
    parts = [f"# {title}", lead, _table(figures)]
    for figure in figures:
        parts += [f"## {figure['heading']}", figure["setup"], f"![{figure['heading']}]({figure['picture']})"]
        parts += ["```sh\n" + "\n".join(figure["commands"]) + "\n```"]
        parts += [_judged(verdict) for verdict in figure["verdicts"]]
        parts += [_stated(statement) for statement in figure["statements"]]
    return "\n\n".join(parts) + "\n"


def _table(figures: Sequence[Mapping[str, Any]]) -> str:
    rows = ["| figure | claim | verdict |", "| --- | --- | --- |"]
    for figure in figures:
        for verdict in figure["verdicts"]:
            rows.append(f"| {figure['name']} | {verdict.claim} | {verdict.verdict} |")
        for statement in figure["statements"]:
            rows.append(f"| {figure['name']} | {statement.title} ({statement.run}) | {_WORDS[statement.verdict]} |")
    return "\n".join(rows)


_WORDS = {"supported": "reproduced", "contradicted": "not reproduced", "undecided": "too small to say"}


def _judged(verdict: Verdict) -> str:
    numbers = "; ".join(_number(one, verdict) for one in verdict.numbers)
    return f"**{verdict.claim}** {verdict.rule} *{verdict.verdict[0].upper()}{verdict.verdict[1:]}*: {numbers}."


def _number(one: Number, verdict: Verdict) -> str:
    def said(value: float) -> str:
        return f"{100 * value + 0.0:.1f} %".replace("-0.0 %", "0.0 %") if verdict.percent else f"{value:.3g}"

    interval = "" if math.isnan(one.low) else f" ({said(one.low)} to {said(one.high)})"
    return f"{one.where} {said(one.value)}{interval}"


def _stated(statement: Any) -> str:
    """A claim that ``fedscope explain`` judges, with its rule in ``docs/howto/explain.md``."""
    words = _WORDS[statement.verdict]
    paper = f" The paper: {statement.paper}" if statement.paper else ""
    return f"**{statement.title}** ({statement.run}).{paper} *{words[0].upper()}{words[1:]}*: {statement.sentence}"


def commands_of(results: Path) -> dict[str, str]:
    """What was asked, by name."""
    said: dict[str, str] = json.loads((results / "commands.json").read_text(encoding="utf-8"))
    return said
