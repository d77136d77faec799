"""The page of a run that goes on: what it is, how far it is, curves, drift and the newest figures."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from urllib.parse import quote

import numpy as np

from ...analysis.execution import describe_seconds
from ...checkpoints import FedscopeError, Run
from ...checkpoints.io.errors import sentence
from ...checkpoints.rounds.drift import DRIFT
from ...checkpoints.runs.run import round_path
from ...plotting.web_page import escape_html, web_page
from ...training.curves.run_curve import Curve, curve_of
from ...training.trackers.pictures import PictureFile, picture_files
from ...training.trackers.snapshot import numbers_state
from ..html import STYLE
from ..run_names import about_run
from .charts import CURVES, charts_html

#: figures that are shown, the newest first
MOST = 24
#: milliseconds between two looks of the page
LOOK = 2000
#: rounds whose time says how long the rest takes
RECENT = 10
#: seconds between two rounds, and times a round's own, that may go with writing it; more is a pause
BETWEEN, OWN = 30.0, 5.0
#: a round that takes so many times as long as those before is told of: the program may have ended
LATE = 10.0

LIVE_STYLE = """
.charts { display: grid; gap: .6rem 1.2rem; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); }
.chart { margin: 0; }
.chart svg { display: block; width: 100%; height: auto; }
.chart figcaption b { color: var(--ink); font-variant-numeric: tabular-nums; }
.chart text { font-size: 11px; fill: var(--soft); font-variant-numeric: tabular-nums; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart polyline { fill: none; stroke-linejoin: round; stroke: #0072b2; stroke-width: 1.8; }
.chart polyline.global { stroke: var(--soft); stroke-width: .9; }
.chart circle { fill: #0072b2; }
@media (prefers-color-scheme: dark) { .chart polyline.deployed { stroke: #56b4e9; } .chart circle { fill: #56b4e9; } }
.newest { display: grid; gap: .8rem 1.2rem; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); }
.newest figure { margin: 0; }
.newest img { width: 100%; }
#connection:empty { display: none; }
"""

# A part is put in the place of the one that is there only where it says something else: what one reads stays.
REFRESH = """
const said = document.getElementById("connection");
const look = async () => {
  try {
    const answer = await fetch("parts", {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const news = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const now of news.querySelectorAll("section[id]")) {
      const before = document.getElementById(now.id);
      if (before && before.outerHTML !== now.outerHTML) before.replaceWith(document.adoptNode(now));
    }
    said.textContent = "";
  } catch {
    said.textContent = "fedscope watch does not answer: this page shows what it said last.";
  }
  setTimeout(look, LOOK);
};
setTimeout(look, LOOK);
""".replace("LOOK", str(LOOK))


@dataclass(frozen=True)
class _Drawn:
    """A run's charts, and the state of its numbers that they show."""

    state: tuple[object, ...]
    curve: Curve
    curves: str
    drift: str


class LivePage:
    """The page of a run's folder, whatever state it is in; charts are drawn again only where numbers are new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._drawn: _Drawn | None = None

    def whole(self) -> str:
        """The page as it is now.

        Raises:
            FedscopeError: there is no run any more.
        """
        name = Run.open(self.path).name
        connection = '<p id="connection" class="chip" role="status"></p>\n'
        foot = "<footer><p>fedscope watch, on this machine alone.</p></footer>"
        still = f'<noscript><meta http-equiv="refresh" content="{LOOK // 200}"></noscript>\n'
        return web_page(
            f"{name}: fedscope watch",
            f"{connection}{self.parts()}\n{foot}",
            scripts=[REFRESH],
            style=STYLE + LIVE_STYLE,
            marks=still,
            served=True,
        )

    def parts(self) -> str:
        """All parts of the page as they are now; what cannot be read is said in them.

        Which parts there are never changes, so each finds its place.
        """
        try:
            run = Run.open(self.path)
            drawn = self._draw(run) if run.rounds else None
            told = _head(run, None if drawn is None else drawn.curve)
        except (FedscopeError, OSError) as error:
            wrong = f"<p>{escape_html(sentence(str(error)))}</p>"
            return _section("head", f"<h1>{escape_html(self.path.name)}</h1>{wrong}") + _rest("", "", "")
        pictures = sorted(picture_files(run.path / "figures"), key=lambda one: (-one.changed, one.name))
        charts = ("", "") if drawn is None else (drawn.curves, drawn.drift)
        return _section("head", told) + _rest(*charts, _newest(pictures))

    def _draw(self, run: Run) -> _Drawn:
        drawn, state = self._drawn, numbers_state(run)
        if drawn is None or drawn.state != state:
            curve = curve_of(run)
            curves = charts_html(curve, CURVES)
            if 'polyline class="global"' in curves:
                curves += "<p class=soft>Thin: the server's model before it is averaged over rounds.</p>"
            drawn = self._drawn = _Drawn(state, curve, curves, charts_html(curve, DRIFT))
        return drawn


def _rest(curves: str, drift: str, figures: str) -> str:
    none = "<p class=soft>Nothing was measured yet.</p>"
    asks = (
        "<p class=soft>No drift is measured: train with --set record.drift=true, or Recorder(drift=True), to see "
        "whether the clients' updates agree.</p>"
    )
    draws = (
        "<p class=soft>No figures yet: what a command draws into the run's folder stands here, as "
        "fedscope plane RUN@last --clients.</p>"
    )
    return "\n".join(
        [
            _section("curves", f"<h2>Curves</h2>{curves or none}"),
            _section("drift", f"<h2>Drift</h2>{drift or asks}"),
            _section("figures", f"<h2>Newest figures</h2>{figures or draws}"),
        ]
    )


def _section(name: str, inside: str) -> str:
    return f'<section id="{name}">{inside}</section>\n'


def _head(run: Run, curve: Curve | None) -> str:
    about = f"<p class=soft>{escape_html(about_run(run))}</p>" if run.rounds else ""
    tone, said = progress_of(run, curve)
    return (
        f'<h1>{escape_html(run.name)}</h1>{about}<ul class="verdict"><li class="{tone}">{escape_html(said)}</li></ul>'
    )


def progress_of(run: Run, curve: Curve | None, now: float | None = None) -> tuple[str, str]:
    """How far a run is, in a sentence, and its tone: good where it is complete, bad where a round is long overdue."""
    last = run.rounds[-1] if run.rounds else 0
    planned = run.planned
    if planned is not None and last >= planned:
        return "good", f"Complete: {last} of {planned} rounds."
    of = f"Round {last} of {planned}" if planned is not None else f"Round {last}"
    seconds = {} if curve is None else dict(zip(curve.round.tolist(), curve.column("seconds").tolist(), strict=True))
    seconds = dict([(t, took) for t, took in seconds.items() if np.isfinite(took)][-RECENT:])
    try:
        ago = (time.time() if now is None else now) - (run.path / "metrics.csv").stat().st_mtime
    except OSError:
        return "", f"{of}."
    if not len(seconds) or not last:
        return "", f"{of}."
    pace = sum(seconds.values()) / len(seconds) + _between(run, seconds)
    each = f"{pace:.2g} s" if pace < 10 else describe_seconds(pace)
    since = f"; the last one came {describe_seconds(max(0.0, ago))} ago"
    if ago > LATE * pace + 60:
        return "bad", f"{of}{since}, and those before took {each} each: it may have stopped."
    left = f", about {describe_seconds(pace * (planned - last))} left" if planned is not None else ""
    return "", f"{of}{since}, {each} a round{left}."


def _between(run: Run, seconds: Mapping[int, float]) -> float:
    """Return the seconds of a usual round that its ``seconds`` leave out, as those of writing it: by when the rounds'
    files were written. A pause is none, files of the run that a branch begins from were written by that one, and
    copies, which may be of one moment, say nothing."""
    written: dict[int, float] = {}
    first = _own_from(run)
    for t in {number for own in seconds for number in (own - 1, own) if number >= first}:
        with suppress(OSError):
            written[t] = round_path(run.path, t).stat().st_mtime
    left = {t: written[t] - written[t - 1] - took for t, took in seconds.items() if {t - 1, t} <= written.keys()}
    gaps = [gap for t, gap in left.items() if gap <= BETWEEN + OWN * seconds[t]]
    return max(0.0, median_low(gaps)) if gaps else 0.0


def _own_from(run: Run) -> int:
    """Return the first round that a run has written itself, and no run that it branches from."""
    branch = run.info.get("branch")
    last = branch.get("round") if isinstance(branch, Mapping) else None
    return last + 1 if isinstance(last, int) else 1


def _newest(pictures: Sequence[PictureFile]) -> str:
    if not pictures:
        return ""
    shown = []
    for one in pictures[:MOST]:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.changed / 1e9))
        name = escape_html(one.name)
        shown.append(
            f'<figure><img alt="{name}" loading="lazy" src="{address_of(one)}">'
            f"<figcaption>{name}, {when}</figcaption></figure>"
        )
    more = f"<p class=soft>The newest {MOST} of {len(pictures)}.</p>" if len(pictures) > MOST else ""
    return f'<div class="newest">{"".join(shown)}</div>{more}'


def address_of(picture: PictureFile) -> str:
    """Where the server has a figure; another state of it has another address, so that browsers may keep each.

    A number of letters and digits, made of the name, so that no name has to be read from an address.
    """
    told = hashlib.sha256(f"{picture.path.name}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return quote(f"figures/{told}-{picture.changed}.png")
