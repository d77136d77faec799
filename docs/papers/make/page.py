"""A paper's page: each figure beside what the paper says, with its command and the verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import estimates
from long_pages import Group, Settled, groups, settled
from outcomes import TURNED, Outcome
from paper import Figure, Left, Paper
from verdicts import Number, said

#: below the list of outcomes
MEANT = "[What the outcomes mean](findings.md#all-outcomes)."
#: of a paper that we have no text of
NOTES = "These are notes on the paper by a third party. A slip may be theirs; whether the paper says so we do not know."
#: above the short runs' claims, and what of it was changed
COUNTS = (
    "Where long runs have tested a claim with several seeds, or short runs could not test it, theirs counts. *Changed "
    "after results were seen; before, theirs counted with several seeds alone.*"
)
#: numbers of a claim that are all shown
MOST = 12
#: of a picture: pages are read on a screen, and the repository stays small
MOST_BYTES = 200_000


def make(paper: Paper, results: Path, pages: Path) -> None:
    """Write a paper's page and its pictures from what is kept of the answers."""
    known = answered(paper, results)
    pictures = pages / paper.name
    pictures.mkdir(parents=True, exist_ok=True)
    long = groups(results.parent / "long", paper.name)
    for figure in known.figures:
        if figure.picture is not None:
            draw(figure.picture(results), pictures / f"{figure.name}.png")
        if long and (drawn := figure.long(long[0].folders)) is not None:
            draw(drawn[1], pictures / f"{figure.name}-long.png")
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
    long = groups(results.parent / "long", paper.name)
    claims = {figure.name: claims_of(paper, figure, results, long) for figure in paper.figures}
    runs = [f"- `{one.command}`" for one in paper.runs]
    parts = [f"# {paper.title}", paper.lead, "\n".join(["The runs behind it:", "", *runs])]
    parts += [*(_long_commands(group) for group in long[:1]), *_tables(claims), MEANT]
    for figure in paper.figures:
        own = _long(paper, figure, long)
        parts += [f"## {figure.heading}", *own, *(["### The short runs"] if own else [])]
        parts += [figure.setup, *_shown(paper, figure, results)]
        parts += ["```sh\n" + "\n".join(commands[name] for name in figure.answers) + "\n```"]
        parts += _claims(figure, claims[figure.name])
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
    table = figure.table(results) if figure.table is not None else ""
    return [*picture, table] if table else picture


def claims_of(paper: Paper, figure: Figure, results: Path, long: Sequence[Group]) -> list[Settled]:
    """The claims of a figure, each once."""
    return settled(figure.judged(results), figure.name, paper.name, long)


def _tables(claims: Mapping[str, Sequence[Settled]]) -> list[str]:
    """The list of outcomes: the paper's claims, and ours apart."""
    parts = []
    for ours, head in ((False, "claim"), (True, "claim of ours")):
        rows = [
            f"| {name} | {one.outcome.claim} | {shown(one.outcome)} |"
            for name, own in claims.items()
            for one in own
            if one.outcome.ours is ours
        ]
        if rows:
            parts.append("\n".join([f"| figure | {head} | outcome |", "| --- | --- | --- |", *rows]))
    return parts


def shown(outcome: Outcome) -> str:
    """An outcome in one or a few words."""
    return f"{outcome.kind}: depends on the bound" if outcome.depends else outcome.kind


def _long(paper: Paper, figure: Figure, long: Sequence[Group]) -> list[str]:
    """What the long runs say of a figure, one commit, data file and machine after the other, never averaged."""
    parts = []
    for i, group in enumerate(long):
        own = group.shown(figure.name)
        drawn = None if i else figure.long(group.folders)
        if own or drawn is not None:
            parts += ["### The long runs", group.said]
        if drawn is not None:
            words = f"{figure.heading}, long runs, seed {drawn[0]}"
            parts.append(f"![{words}]({paper.name}/{figure.name}-long.png)")
        parts += map(_judged, own)
    return parts


def _long_commands(group: Group) -> str:
    """How the long runs of the first seed that is finished were made, and what they were asked."""
    said = "The long runs behind it, and what they are asked; each seed has its own, also as `--set data.seed`:"
    return "\n".join([said, "", *(f"- `{one}`" for one in group.commands)])


def _claims(figure: Figure, claims: Sequence[Settled]) -> list[str]:
    """What the short runs say of a figure's claims."""
    parts = [_judged(one.short or one.outcome) for one in claims if one.short or not one.long]
    if parts and any(one.long and one.short for one in claims):
        parts.insert(0, COUNTS)
    return parts


def _judged(one: Outcome) -> str:
    """A claim: its outcome first, then its rule and what was measured."""
    said, why = shown(one), one.why.removeprefix(TURNED).removeprefix("; ")
    ours = " Our claim, not the paper's." if one.ours else ""
    parts = [f"**{one.claim}**{ours} *{said[0].upper()}{said[1:]}*{f': {why}' if why else ''}."]
    parts += [f"Rule: {one.rule}"] if one.rule else []
    if one.changed:
        parts[-1] += f" *Written or changed after its results were seen; before, {one.changed}.*"
    parts += [f"Measured: {_numbers(one)}."] if one.numbers else []
    parts += [f"What has learnt is judged by {one.learnt}."] if one.learnt else []
    if len({kind for _, kind in one.curve}) > 1:
        parts.append(f"Over the bound ({one.bound}): {_curve(one.curve)}.")
    return "\n".join([parts[0], "", *(f"- {part}" for part in parts[1:])]) if len(parts) > 1 else parts[0]


def _curve(curve: Sequence[tuple[str, str]]) -> str:
    """Its values, those beside each other with one outcome together.

    >>> _curve((("0.1", "contradicted"), ("0.2", "contradicted"), ("0.25", "reproduced")))
    '0.1, 0.2 contradicted; 0.25 reproduced'
    """
    from itertools import groupby

    runs = [(kind, [value for value, _ in own]) for kind, own in groupby(curve, key=lambda item: item[1])]
    return "; ".join(f"{', '.join(values)} {kind}" for kind, values in runs)


def _numbers(one: Outcome) -> str:
    """What was measured; of many numbers the pooled ones, the least and the greatest."""
    if len(one.numbers) <= MOST:
        return "; ".join(_number(number, one) for number in one.numbers)
    effects, parts = one.numbers[: one.effects], one.numbers[one.effects :]
    ends = (pick(parts, key=lambda number: number.value) for pick in (min, max))
    least, greatest = (_number(number, one) for number in ends)
    many = f"{len(parts)} numbers, the least {least}, the greatest {greatest}"
    return "; ".join([*(_number(number, one) for number in effects), many])


def _number(one: Number, verdict: Outcome) -> str:
    words = partial(said, percent=verdict.percent)
    interval = "" if math.isnan(one.low) else f" ({words(one.low)} to {words(one.high)})"
    return f"{one.where.removesuffix(':')} {words(one.value)}{interval}"
