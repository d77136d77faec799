"""The sections of a report, each as HTML."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checkpoints import FedscopeError, Run, format_size, has_no_server, regular
from ..decomposition.explanation.result import Explanation
from ..landscape.planes.drawing.color_scales import SurfaceColours
from ..landscape.planes.result import Plane
from ..plotting.static_fallback import draw_small
from ..plotting.web_page import escape_html, keep_together
from ..training.curves.result import Curves
from ..training.loop.verify_run import Soundness
from .clients import Client, clients_of
from .discover import SECTIONS, Beside, Found
from .html import LIVE, paragraphs, picture, table
from .run_names import EMPTY, Labels, about_run, about_seeds, label, name_report, relabel
from .run_tasks import has_classes
from .verdict import verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: surfaces that can be turned, at most: browsers hold about sixteen pictures in three dimensions
LIVE_SURFACES = 8
#: clients in the table, at most; the files of a run's rounds that are named
MOST_CLIENTS, MOST_FILES = 2000, 2000


class Live:
    """Surfaces that can be turned; plotly is in the page once, if there are any.

    Args:
        colours: how surfaces are coloured, and how high they are.
    """

    def __init__(self, colours: SurfaceColours | None = None) -> None:
        self.colours = colours or SurfaceColours()
        self._figures: list[str] = []

    def add(self, plane: Plane) -> str:
        """A place for a surface; nothing where there are enough."""
        if len(self._figures) >= LIVE_SURFACES:
            return ""
        from plotly.io import to_json

        from ..landscape.planes.page import page_figure

        figure = page_figure(plane, colours=self.colours)
        # the page's own heading stands above it; at the top is room for plotly's buttons
        figure["layout"] = {**figure["layout"], "title": None, "margin": {"l": 10, "r": 10, "t": 36, "b": 10}}
        # seven digits are shown as four
        figure["data"] = [{key: _single(value) for key, value in trace.items()} for trace in figure["data"]]
        self._figures.append(str(to_json(figure, validate=False)).replace("<", "\\u003c"))
        name = f"surface-{len(self._figures)}"
        return f'<div class="live" role="img" aria-label="A surface to turn" data-figure="{name}"></div>'

    def figures(self) -> str:
        """Write the data of what is drawn."""
        tags = (
            f'<script type="application/json" id="surface-{i}">{figure}</script>'
            for i, figure in enumerate(self._figures, start=1)
        )
        return "\n".join(tags)

    def scripts(self) -> list[str]:
        """List the scripts that draw."""
        if not self._figures:
            return []
        from plotly.offline import get_plotlyjs

        return [str(get_plotlyjs()), LIVE]


def _single(value: Any) -> Any:
    """Arrays, which plotly has written in base64, in single precision: half as long."""
    if not (isinstance(value, dict) and value.get("dtype") == "f8"):
        return value
    numbers = np.frombuffer(b64decode(value["bdata"]), "<f8").astype("<f4")
    return {**value, "dtype": "f4", "bdata": b64encode(numbers.tobytes()).decode()}


def head_html(runs: Sequence[Run], title: str | None, labels: Labels = EMPTY) -> str:
    """Write the page's heading and its table of contents."""
    about = "; ".join(f"{label(run, labels)}: {about_run(run)}" if len(runs) > 1 else about_run(run) for run in runs)
    links = "".join(
        f'<a href="#{name.lower()}">{name}</a>'
        for name in (
            "Curves",
            *SECTIONS,
            "Checks",
            "Configuration",
            "Files",
        )
    )
    name = title or name_report(runs, labels)
    said = f"<h1>{escape_html(name)}</h1>\n<p class=soft>{escape_html(about)}</p>"
    if other := about_seeds(runs, labels):
        said += f"\n<p class=soft>{escape_html(other)}</p>"
    return f"<header>{said}\n<nav aria-label=Contents>{links}</nav></header>"


def verdicts_html(
    runs: Sequence[Run], checks: Sequence[Soundness], results: Sequence[Beside], labels: Labels = EMPTY
) -> str:
    """A verdict a run, side by side."""
    columns = []
    for run, sound, own in zip(runs, checks, results, strict=True):
        lines = "\n".join(
            f'<li class="{one.tone}"><b>{escape_html(one.question)}</b>{keep_together(one.answer)}</li>'
            for one in verdict(run, sound, own)
        )
        name = f"<h3>{escape_html(label(run, labels))}</h3>" if len(runs) > 1 else ""
        columns.append(f'<section>{name}<ul class="verdict">\n{lines}\n</ul></section>')
    return f'<div class="runs">{"".join(columns)}</div>'


def curves_html(runs: Sequence[Run], labels: Labels = EMPTY) -> str:
    """All runs' curves in one figure, and their sentence."""
    curves = relabel(Curves.of(runs), labels)
    try:
        drawn = curves.figure()
    except FedscopeError as error:
        return f"<p>{escape_html(str(error))}</p>"
    said = curves.summary()
    return paragraphs(said) + picture(draw_small(drawn), f"Curves over rounds. {said}")


def sections_html(
    runs: Sequence[Run],
    results: Sequence[Beside],
    live: Live,
    tell: Callable[[str, int, int], None],
    labels: Labels = EMPTY,
) -> Iterator[str]:
    """Every result under its heading, and what was not asked yet."""
    total, done = sum(len(own.results) for own in results), 0
    drawn: set[Path] = set()  # a result of several runs stands at the first of them
    for section in SECTIONS:
        yield f"<h2 id={section.lower()}>{section}</h2>"
        shown = []
        for run, own in zip(runs, results, strict=True):
            for one in own.results:
                if one.kind.section == section and one.base not in drawn:
                    drawn.add(one.base)
                    shown.append((run, one))
        if not shown and section != "Clients":
            asks = _ASKS | (_ASKS_OF_NODES if all(map(has_no_server, runs)) else {})
            if section == "Factors" and not any(map(has_classes, runs)):
                asks |= {section: asks[section].replace("explain", "decompose")}
            yield f"<p class=soft>Nothing of this was asked yet. {asks[section]}</p>"
        for run, one in shown:
            tell("drawing", done, total)
            done += 1
            yield _result(run, one, live, labels, several=len(runs) > 1)


#: what would fill a section; and of runs without a server, where it is something else
_ASKS_OF_NODES = {
    "Factors": "fedscope consensus RUN says how far the nodes are apart, and what their mean would be.",
    "Dispersion": "fedscope disperse RUN says where the nodes differ.",
    "Servers": "fedscope reaggregate RUN@last --server fma says what a server's mean would have been.",
}
_ASKS = {
    "Factors": "fedscope explain RUN says what the loss is made of.",
    "Surfaces": "fedscope plane RUN@last --clients draws the surface near a round's clients.",
    "Similarity": "fedscope cka RUN --rounds last compares what clients answer.",
    "Dispersion": "fedscope updates RUN says whether the clients' updates cancel.",
    "Servers": "fedscope reaggregate RUN@last --server fedadam says what another server would have made.",
}


def _result(run: Run, found: Found, live: Live, labels: Labels, *, several: bool) -> str:
    result, whose = relabel(found.result, labels, run), f"{label(run, labels)}: " if several else ""
    said = "" if isinstance(result, Explanation) else paragraphs(result.summary())
    parts = [f"<section><h3>{escape_html(whose + found.kind.asks)}</h3>", said]
    if isinstance(result, Explanation):
        parts.append(_statements(result))
    if isinstance(result, Plane):
        parts.append(live.add(result))
    alt = f"{found.kind.asks} {result.summary() if not isinstance(result, Explanation) else 'The factors over rounds.'}"
    try:
        drawing = vars(live.colours) if isinstance(result, Plane) else {}
        figures: dict[str, Figure] = result.figures(**drawing)
    except FedscopeError as error:
        parts.append(f"<p class=soft>No figure: {escape_html(str(error))}</p>")
        figures = {}
    parts += [picture(draw_small(figure), alt) for figure in figures.values()]
    parts.append(f"<p class=soft>{escape_html(found.name)}</p></section>")
    return "\n".join(part for part in parts if part)


def _statements(page_: Explanation) -> str:
    lines = "\n".join(
        f'<li><b>{escape_html(one.title)} <span class="chip">{escape_html(one.verdict)}</span></b>'
        f"{keep_together(one.sentence)}</li>"
        for one in page_.statements
    )
    notes = "\n".join(f"<li>{keep_together(note)}</li>" for note in page_.notes)
    read = f"<details><summary>How to read this</summary><ul class=soft>{notes}</ul></details>"
    return f'<ul class="verdict">{lines}</ul>\n{read}'


def clients_html(run: Run, labels: Labels = EMPTY, *, several: bool) -> str:
    """A table of a run's clients that sorts."""
    found = clients_of(run)

    def row(one: Client) -> list[object]:
        classes = ", ".join(f"{c} ({100 * share:.0f} %)" for c, share in one.classes)
        return [
            (one.id, one.id),
            (one.rounds, one.rounds),
            (one.last, one.last),
            ("-" if one.samples is None else f"{one.samples:,}", one.samples),
            (f"{one.weight:.3g}", one.weight),
            ("-" if one.loss is None else f"{one.loss:.3g}", one.loss),
            classes or "-",
        ]

    said = f"{len(found):,} clients took part"
    if len(found) > MOST_CLIENTS:
        said += f"; the first {MOST_CLIENTS:,} of them"
    name = f"<h3>{escape_html(label(run, labels))}</h3>" if several else ""
    columns = ("client", "rounds", "last round", "samples", "mean p", "training loss then", "most frequent classes")
    return name + table(
        columns, map(row, found[:MOST_CLIENTS]), caption=f"{said}. A heading sorts.", text=[6], sorts=True
    )


def checked_html(run: Run, sound: Soundness, own: Beside, labels: Labels = EMPTY, *, several: bool) -> str:
    """Write what was checked of a run, and what was found."""
    rows: list[tuple[str, str]] = [
        ("rounds", f"{sound.rounds} of {run.planned}" if sound.torn else f"{sound.rounds}"),
        ("checksums compared", f"{sound.checksums:,}"),
        ("rounds without checksums", str(len(sound.without)) if sound.without else "none"),
        ("faults", str(len(sound.faults)) if sound.faults else "none"),
        *((name, what) for name, what in sound.faults[:50]),
        *((f"left out: {name}", why) for name, why in own.left_out.items()),
    ]
    closures = [
        (f"closure of {base}", f"the factors add up to the loss, but for {worst:.0e} of it at most")
        for base, worst in own.closures.items()
    ]
    name = f"<h3>{escape_html(label(run, labels))}</h3>" if several else ""
    return name + table(("check", "found"), [*rows, *closures], text=[0, 1])


def configuration_html(run: Run, labels: Labels = EMPTY, *, several: bool) -> str:
    """A run's settings, and with what it was made."""
    path = run.path / "config.toml"
    text = regular(path).read_text(encoding="utf-8") if path.exists() else "none: another program trained this run\n"
    made = {
        key: run.info[key]
        for key in ("created", "versions", "device", "engine", "precision", "capability", "cluster")
        if key in run.info
    }
    name = f"<h3>{escape_html(label(run, labels))}</h3>" if several else ""
    return f"{name}<pre>{escape_html(text)}</pre>\n<pre>{escape_html(json.dumps(made, indent=1))}</pre>"


def files_html(run: Run, tell: Callable[[str, int, int], None], labels: Labels = EMPTY) -> str:
    """A run's files with their sha256."""
    files = [
        path
        for name in ("run.json", "config.toml", "partition.h5", "metrics.csv", "measured.json")
        if (path := run.path / name).exists()
    ]
    files += sorted((run.path / "rounds").glob("*.h5"))
    rows, size = [], 0
    for done, path in enumerate(files[:MOST_FILES]):
        tell(f"reading {run.name}", done, len(files))
        if not path.is_file():  # a named pipe, or a link to nothing, which the checks say
            rows.append((str(path.relative_to(run.path)), "-", "-"))
            continue
        length = path.stat().st_size
        size += length
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        rows.append((str(path.relative_to(run.path)), f"{length:,}", digest))
    more = f", the first {MOST_FILES:,} of them" if len(files) > MOST_FILES else ""
    said = f"{len(files):,} files{more}, {format_size(size)}"
    inside = table(("file", "bytes", "sha256"), rows, text=[0, 2])
    return f"<details><summary>{escape_html(label(run, labels))}: {said}</summary>{inside}</details>"


def foot_html(runs: Sequence[Run]) -> str:
    """Write the foot of the page: what made it, and whom to cite."""
    made: dict[str, Any] = runs[0].info.get("versions", {})
    from .. import __version__

    return (
        f"<footer><p>Written by fedscope {escape_html(__version__)} from the files of the runs"
        f"{', which fedscope ' + escape_html(str(made['fedscope'])) + ' recorded' if 'fedscope' in made else ''}. Cite "
        "Zhou et al. for the five factors and Rame et al., DiWA (arXiv 2205.09739), for the decomposition of weight "
        "averaging that they extend.</p></footer>"
    )
