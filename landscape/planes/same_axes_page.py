"""Planes on the same axes as one web page: surfaces that turn together, above their contours. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.static_fallback import still_of
from ...plotting.style import plotly_contents
from ...plotting.web_page import BROKEN, as_page, heading, label_text
from .drawing.color_scales import SurfaceColours, scale_of
from .drawing.fill import has_equal_scales, remarks
from .page import PageSurface, scene_of, traces_of
from .rises import in_a_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .many_planes import Panel, Planes
    from .result import Plane

#: of the height: where the contours end and the surfaces begin
CONTOURS, SURFACES = 0.37, 0.43
#: of the width, between two columns
GAP = 0.03
#: how much farther away a surface is seen from with each plane more than two, whose scenes are narrower
AWAY = 0.25
#: from nearer and lower than a plane alone: a scene is wider than it is high, and what is compared is how it rises
EYE = {"x": 1.1, "y": -1.43, "z": 1.35}

# All surfaces are seen from one place, whichever is turned. In a narrow window the planes stand below each other, each
# surface above its contours, without the remark and the colour bar.
_TOGETHER = (
    BROKEN
    + r"""
const place = document.getElementById("planes"), narrow = window.matchMedia("(max-width: 700px)");
const wide = JSON.parse(JSON.stringify(place.layout));
const count = Object.keys(wide).filter((key) => /^scene\d*$/.test(key)).length;
const nth = (name, i) => i ? `${name}${i + 1}` : name;
let busy = false;
const follow = (event) => {
  if (busy) return;
  for (let i = 0; i < count; i++) {
    const camera = event[`${nth("scene", i)}.camera`];
    if (!camera) continue;
    const others = {};
    for (let j = 0; j < count; j++) if (j != i) others[`${nth("scene", j)}.camera`] = camera;
    busy = true;
    Plotly.relayout(place, others).then(() => { busy = false; });
    return;
  }
};
place.on("plotly_relayout", follow);
place.on("plotly_relayouting", follow);
const lay = () => {
  const layout = JSON.parse(JSON.stringify(wide));
  if (narrow.matches) {
    const letters = Math.max(20, Math.floor((window.innerWidth - 70) / 8));
    const title = broken(layout.title.text.split("<br>")[0], letters);
    layout.title = {...layout.title, text: title, font: {size: 14}};
    layout.margin = {l: 10, r: 10, t: 50 + 20 * title.split("<br>").length, b: 10};
    layout.modebar = {orientation: "v"};
    // so far that the names of the axes lie inside
    const each = 0.94 / count, away = 1.1 / (1 + 0.25 * (count - 2));
    for (let i = 0; i < count; i++) {
      const top = 1 - i * each, middle = top - 0.55 * each, end = top - 0.93 * each;
      const scene = layout[nth("scene", i)], eye = scene.camera.eye;
      scene.domain = {x: [0, 1], y: [middle, top - 0.03]};
      scene.camera = {eye: {x: away * eye.x, y: away * eye.y, z: away * eye.z}};
      layout[nth("xaxis", i)].domain = [0.12, 0.98];
      layout[nth("yaxis", i)].domain = [end, middle];
      layout.annotations[i] = {...layout.annotations[i], x: 0.5, y: top - 0.03};
    }
    layout.height = 80 + 700 * count;
  } else {
    layout.height = undefined;
  }
  place.parentElement.style.height = layout.height ? `${layout.height}px` : "92vh";
  const drawn = [{...place.data[0], showscale: !narrow.matches}, ...place.data.slice(1)];
  Plotly.react(place, drawn, layout);
};
narrow.addEventListener("change", lay);
if (narrow.matches) lay();
"""
)


def page(planes: Planes, title: str | None = None, **colours: Any) -> str:
    """Write a row of planes as one page, with plotly.js inside, the same text for the same planes."""
    said = SurfaceColours(**colours)
    figure, words = page_figure(planes, title, said), title or _title(planes)
    return as_page(figure, words, "planes", still_of(planes, **vars(said)), _TOGETHER)


def page_figure(planes: Planes, title: str | None = None, colours: SurfaceColours | None = None) -> dict[str, Any]:
    """Make the contents of the page's plotly figure: a column for each plane, all on one scale of heights and colours,
    turned together."""
    (row,) = planes.rows
    scale = scale_of(list(planes), "loss", colours)
    surfaces = [PageSurface.of(panel.plane, colours, scale) for panel in row]
    traces = [
        trace
        for i, (panel, surface) in enumerate(zip(row, surfaces, strict=True))
        for trace in _column(i, panel, surface)
    ]
    return plotly_contents(traces, _layout(planes, surfaces, title))


def _column(i: int, panel: Panel, surface: PageSurface) -> list[Any]:
    """Return the traces of the i-th plane, in its own scene and on its own contours' axes."""
    traces = traces_of(surface)
    for trace in traces:
        if "scene" in trace:
            trace.scene = _nth("scene", i)
        else:
            trace.update(xaxis=_nth("x", i), yaxis=_nth("y", i))
        if trace.name:
            trace.name = _named(panel, trace.name)
    traces[0].showscale = i == 0
    traces[0].colorbar.update(len=1 - SURFACES, y=SURFACES + (1 - SURFACES) / 2)
    return traces


def _named(panel: Panel, words: str) -> str:
    """Return the words of a legend, which say whose models they are."""
    label = label_text(panel.heading)
    return words if words.startswith(label) else f"{label}: {words}"


def _layout(planes: Planes, surfaces: list[PageSurface], title: str | None) -> dict[str, Any]:
    (row,) = planes.rows
    count = len(row)
    width = (1 - GAP * (count - 1)) / count
    away = 1 + AWAY * (count - 2)
    eye = {axis: round(away * at, 3) for axis, at in EYE.items()}
    across, along = (_ends(list(planes), name) for name in "ab")
    lowest, highest = 0.0, max(_highest(surface) for surface in surfaces)
    layout: dict[str, Any] = {
        "title": heading(title or _title(planes), remarks(list(planes), "holes")),
        "legend": {"orientation": "h", "yanchor": "bottom", "yref": "container", "y": 0.0, "x": 0.0},
        "margin": {"l": 20, "r": 20, "t": 90, "b": 20},
        "annotations": [],
    }
    for i, (panel, surface) in enumerate(zip(row, surfaces, strict=True)):
        left = i * (width + GAP)
        scene = scene_of(surface, " (L₂)")
        scene["zaxis"]["range"] = [lowest, highest]
        if count > 2:  # no room for two lines; the colour bar says the scale
            scene["zaxis"]["title"]["text"] = scene["zaxis"]["title"]["text"].partition(",<br>")[0]
        scene["xaxis"]["range"], scene["yaxis"]["range"] = across, along
        scene |= {"domain": {"x": [left, left + width], "y": [SURFACES, 1.0]}, "camera": {"eye": eye}}
        layout[_nth("scene", i)] = scene
        layout[_nth("xaxis", i)] = {
            "title": {"text": "a: distance (L<sub>2</sub>)"},
            "range": across,
            "domain": [left + 0.03, left + width],
            "anchor": _nth("y", i),
            "constrain": "domain",
        }
        layout[_nth("yaxis", i)] = {
            "title": {"text": "b" if i else "b: distance (L<sub>2</sub>)"},
            "range": along,
            "domain": [0.0, CONTOURS],
            "anchor": _nth("x", i),
            **({"scaleanchor": _nth("x", i)} if has_equal_scales(panel.plane) else {}),
            "constrain": "domain",
        }
        layout["annotations"].append(
            {
                "text": f"<b>{label_text(panel.heading)}</b>",
                "x": left + width / 2,
                "y": 1.0,
                "xref": "paper",
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
            }
        )
    return layout


def _ends(planes: Sequence[Plane], name: str) -> list[float]:
    """Return the ends of an axis in all panels: those of the grid, farther out where a model lies beyond."""
    grid = getattr(planes[0], name)
    at = np.array([getattr(model, name) for plane in planes for model in plane.models])
    room = 0.03 * float(grid[-1] - grid[0])
    low, high = float(np.nanmin(at)), float(np.nanmax(at))
    return [
        low - room if low < grid[0] else float(grid[0]),
        high + room if high > grid[-1] else float(grid[-1]),
    ]


def _highest(surface: PageSurface) -> float:
    """Return a height above all that is drawn of a surface."""
    over = [surface.above(model) for model in surface.plane.models]
    known = surface.heights[np.isfinite(surface.heights)]
    return float(max([surface.highest, *over, *known])) + 0.5


def _nth(name: str, i: int) -> str:
    """``scene``, ``scene2``, ``scene3``, as plotly calls them."""
    return name if not i else f"{name}{i + 1}"


def _title(planes: Planes) -> str:
    """Return the title of planes that were given none."""
    row = planes.rows[0]
    data = f", on {row[0].data}" if row[0].data else ""
    names = in_a_row([panel.heading for panel in row])
    return f"Loss about {names} along the same two directions{data}"
