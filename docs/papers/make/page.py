"""A paper's page: each figure beside what the paper says, with its command and the verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import estimates
from paper import Figure, Left, Paper
from verdicts import NOT, REPRODUCED, SMALL, Number, Verdict, said

#: what ``explain`` says of a claim, in this page's words
WORDS = {"supported": REPRODUCED, "contradicted": NOT, "undecided": SMALL}


#: of a paper that we have no text of
NOTES = "These are notes on the paper by a third party. A slip may be theirs; whether the paper says so we do not know."
#: of a picture: pages are read on a screen, and the repository stays small
MOST_BYTES = 200_000


def make(paper: Paper, results: Path, pages: Path) -> None:
    """Write a paper's page and its pictures from what is kept of the answers."""
    known = answered(paper, results)
    pictures = pages / paper.name
    pictures.mkdir(parents=True, exist_ok=True)
    for figure in known.figures:
        if figure.picture is not None:
            draw(figure.picture(results), pictures / f"{figure.name}.png")
    (pages / f"{paper.name}.md").write_text(written(known, results), encoding="utf-8")


def answered(paper: Paper, results: Path) -> Paper:
    """The paper with the figures whose answers are there; the others are said to be left."""
    known = commands_of(results)
    there = tuple(figure for figure in paper.figures if known.keys() >= set(figure.answers))
    lacking = tuple(
        Left(figure.heading, f"python docs/papers/make {paper.name}", "Not measured yet; this command measures it.")
        for figure in paper.figures
        if figure not in there
    )
    needed = {run for figure in there for one in paper.asked if one.name in figure.answers for run in one.runs}
    runs = tuple(run for run in paper.runs if run.name in needed)
    return replace(paper, runs=runs, figures=there, left=(*lacking, *paper.left))


def commands_of(results: Path) -> Mapping[str, str]:
    """What was asked, by the name of the answer."""
    commands: Mapping[str, str] = json.loads((results / "commands.json").read_text(encoding="utf-8"))
    return commands


def draw(figure: Any, path: Path) -> None:
    """The picture of a page, the same bytes for the same numbers, with as many pixels as `MOST_BYTES` allow."""
    import io

    from PIL import Image

    from fedscope.plotting.style import save_figure

    (drawn,) = save_figure(figure, path.with_suffix(""), ("png",))
    assert drawn == path, drawn
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    for dpi in range(200, 60, -10):
        size = round(image.width * dpi / 300), round(image.height * dpi / 300)
        exact = image.resize(size, Image.Resampling.LANCZOS)
        # 256 colours are enough for contours, and a third of the bytes
        for made in (exact, exact.quantize(256, dither=Image.Dither.NONE)):
            raw = io.BytesIO()
            made.save(raw, "png", optimize=True)
            if raw.tell() <= MOST_BYTES:
                path.write_bytes(raw.getvalue())
                return
    raise SystemExit(f"make papers: {path} has more than {MOST_BYTES:,} bytes at 70 dots an inch; draw fewer panels")


def written(paper: Paper, results: Path) -> str:
    """The page in Markdown."""
    commands = commands_of(results)
    judged = {figure.name: list(figure.judged(results)) for figure in paper.figures}
    stated = {figure.name: list(figure.stated(results)) for figure in paper.figures}
    rows = ["| figure | claim | verdict |", "| --- | --- | --- |"]
    for figure in paper.figures:
        rows += [f"| {figure.name} | {one.claim} | {one.verdict} |" for one in judged[figure.name]]
        rows += [f"| {figure.name} | {one.title} ({one.run}) | {WORDS[one.verdict]} |" for one in stated[figure.name]]
    runs = [f"- `{one.command}`" for one in paper.runs]
    parts = [f"# {paper.title}", paper.lead, "\n".join(["The runs behind it:", "", *runs]), "\n".join(rows)]
    for figure in paper.figures:
        parts += [f"## {figure.heading}", figure.setup, *_shown(paper, figure, results)]
        parts += ["```sh\n" + "\n".join(commands[name] for name in figure.answers) + "\n```"]
        parts += [_judged(one) for one in judged[figure.name]]
        parts += [_stated(one) for one in stated[figure.name]]
    if paper.contradictions:
        whose = "our notes contradict themselves" if paper.from_notes else "the paper contradicts itself"
        parts += [f"## Where {whose}", *([NOTES] if paper.from_notes else [])]
        parts += ["\n".join(f"- {one}" for one in paper.contradictions)]
    if paper.readings:
        parts += ["## What can be read in two ways", "\n".join(f"- {one}" for one in paper.readings)]
    if paper.left:
        rows = ["| shown | recipe or command | hours on one GPU | why |", "| --- | --- | --- | --- |"]
        rows += [f"| {one.shown} | `{one.recipe}` | {estimates.said(one.recipe)} | {one.why} |" for one in paper.left]
        parts += ["## What was not run", estimates.SAID, "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _shown(paper: Paper, figure: Figure, results: Path) -> list[str]:
    picture = [f"![{figure.heading}]({paper.name}/{figure.name}.png)"] if figure.picture is not None else []
    return [*picture, figure.table(results)] if figure.table is not None else picture


def _judged(verdict: Verdict) -> str:
    numbers = "; ".join(_number(one, verdict) for one in verdict.numbers)
    return f"**{verdict.claim}** {verdict.rule} *{verdict.verdict[0].upper()}{verdict.verdict[1:]}*: {numbers}."


def _number(one: Number, verdict: Verdict) -> str:
    shown = partial(said, percent=verdict.percent)
    interval = "" if math.isnan(one.low) else f" ({shown(one.low)} to {shown(one.high)})"
    return f"{one.where} {shown(one.value)}{interval}"


def _stated(statement: Any) -> str:
    """A claim that ``fedscope explain`` judges, with its rule in ``docs/howto/explain.md``."""
    words = WORDS[statement.verdict]
    paper = f" The paper: {statement.paper}" if statement.paper else ""
    return f"**{statement.title}** ({statement.run}).{paper} *{words[0].upper()}{words[1:]}*: {statement.sentence}"
