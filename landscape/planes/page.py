"""A plane as a web page: a surface one can turn, next to its contours. Drawing only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.static_fallback import still_of
from ...plotting.style import SURFACE, clip_label, plotly_contents
from ...plotting.web_page import BROKEN, as_page, heading, label_text, markup
from .basins import basin_of
from .drawing.color_scales import Scale, SurfaceColours, distinct, scale_of, space_evenly
from .drawing.fill import axis_labels, has_equal_scales, is_metric, remarks
from .drawing.markers import MINIMUM, is_owner, looks, paths, told_apart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .basins import Basin
    from .result import Plane, PlaneModel

    #: models that have one entry in the legend, their look, its words, and the colour of a line through them
    Group = tuple[Sequence[PlaneModel], dict[str, Any], str, str | None]

#: matplotlib's markers in plotly's words
SYMBOLS = {
    "^": "triangle-up",
    "v": "triangle-down",
    "X": "x",
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "P": "cross",
    "*": "star",
}
#: as letters those that plotly has not in three dimensions, or not in every font
LETTERS = {
    "^": "\N{BLACK UP-POINTING TRIANGLE}",
    "v": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "X": "\N{MULTIPLICATION SIGN}",
    "P": "+",
    "+": "+",
    "*": "\N{BLACK STAR}",
}
#: far enough that the labels of all three axes lie inside the scene, which cuts off what does not
EYE = {"x": 1.1, "y": -1.43, "z": 1.96}
#: of the width: the surface's, and the room between it and the contours
SURFACE_SHARE, GAP = 0.5264, 0.06


# In a narrow window the contours stand below the surface. There is no room for the remark, which stands below the
# printed figure, nor for the colour bar, which says what the surface's height does. Wider, the layout comes back.
_NARROW = (
    BROKEN
    + r"""
const place = document.getElementById("plane"), narrow = window.matchMedia("(max-width: 700px)");
const wide = JSON.parse(JSON.stringify(place.layout)), names = place.data.map((trace) => trace.name);
// what is seen of a scene is as high as the scene: in a high one the names of axes lie inside from farther away
const seen = () => place.clientHeight / (place.clientWidth * wide.scene.domain.x[1] * 1.12);
const from = (eye, away) => ({eye: {x: away * eye.x, y: away * eye.y, z: away * eye.z}});
const lay = () => {
  const layout = JSON.parse(JSON.stringify(wide));
  if (narrow.matches) {
    // as wide as the window without the bar of tools, which stands upright at its right
    const letters = Math.max(20, Math.floor((window.innerWidth - 60) / 8.5));
    const heights = layout.scene.zaxis, [height, kind] = heights.title.text.split(",<br>");
    let title = broken(layout.title.text.split("<br>")[0], letters);
    title += kind ? `<br><span style="font-size:11px">height: ${kind}</span>` : "";
    // short, and fewer numbers, or they collide
    layout.scene.zaxis = {...heights, title: {...heights.title, text: kind ? height : heights.title.text}};
    layout.scene.zaxis.tickvals = heights.tickvals.filter((_, i) => i % 2 == 0);
    layout.scene.zaxis.ticktext = heights.ticktext.filter((_, i) => i % 2 == 0);
    layout.title = {...layout.title, text: title, font: {size: 15}};
    layout.modebar = {orientation: "v"};
    layout.scene.domain = {x: [0, 1], y: [0.5, 1]};
    // so far that the names of the axes lie inside
    layout.scene.camera = from(layout.scene.camera.eye, 1.07);
    layout.xaxis.domain = [0.12, 0.98];
    layout.yaxis.domain = [0.1, 0.46];
    layout.legend = {...layout.legend, y: 0.0, font: {size: 11}};
    layout.margin = {l: 10, r: 10, t: 30 + 20 * title.split("<br>").length, b: 10};
    layout.height = Math.max(860, window.innerHeight);
  } else {
    layout.scene.camera = from(layout.scene.camera.eye, Math.max(1, seen()));
    layout.height = undefined;
  }
  place.parentElement.style.height = layout.height ? `${layout.height}px` : "92vh";
  // an entry of the legend is no wider than the window
  const name = (i) => narrow.matches ? broken(names[i], Math.floor((window.innerWidth - 80) / 6)) : names[i];
  const named = place.data.map((trace, i) => names[i] ? {...trace, name: name(i)} : trace);
  named[0] = {...named[0], showscale: !narrow.matches};
  Plotly.react(place, named, layout);
};
narrow.addEventListener("change", lay);
if (narrow.matches || seen() > 1) lay();
"""
)


def page(plane: Plane, title: str | None = None, **colours: Any) -> str:
    """Write the page as HTML; see :func:`page_figure`. ``colours`` are those of
    :class:`~fedscope.landscape.planes.drawing.color_scales.SurfaceColours`."""
    return draw_page(plane, title, SurfaceColours(**colours))


def draw_page(plane: Plane, title: str | None = None, colours: SurfaceColours | None = None) -> str:
    """Write the page as HTML with plotly.js inside, the same text for the same plane. See :func:`page_figure`."""
    still = still_of(plane, **vars(colours or SurfaceColours()))
    return as_page(page_figure(plane, title, colours), title or _title(plane), "plane", still, _NARROW)


def page_figure(plane: Plane, title: str | None = None, colours: SurfaceColours | None = None) -> dict[str, Any]:
    """Make the contents of the page's plotly figure.

    Height and colour are the logarithm of the loss's excess over the least one, as in the printed figure, or the loss
    itself (``colour_scale``); the axis and the colour bar say which. Pointing at the surface tells coordinates, loss
    and error. Points that are not finite are holes.
    """
    surface = PageSurface.of(plane, colours)
    return plotly_contents(traces_of(surface), _layout(surface, title))


@dataclass(frozen=True, eq=False)
class PageSurface:
    """The surface of a page.

    Attributes:
        heights: of the grid's points, counted in the scale's edges, [b, a].
        at, texts: which edges have a number, and the numbers.
    """

    plane: Plane
    scale: Scale
    heights: np.ndarray
    at: list[int]
    texts: list[str]

    @classmethod
    def of(cls, plane: Plane, colours: SurfaceColours | None, scale: Scale | None = None) -> PageSurface:
        """Place a plane's losses on a scale; by default on its own."""
        scale = scale or scale_of([plane], "loss", colours)
        # flat below a limit of the user's own, and a hole where not finite
        heights = scale.height(np.where(np.isfinite(plane.loss), np.maximum(plane.loss, scale.edges[0]), np.nan))
        at = space_evenly(len(scale.edges), max(1, len(scale.edges) // 8))
        return cls(plane, scale, heights, at, distinct([scale.edges[i] for i in at]))

    @property
    def highest(self) -> float:
        """The height of the last edge."""
        return float(len(self.scale.edges) - 1)

    @property
    def points(self) -> dict[str, Any]:
        """Coordinates and heights, and what pointing at them tells."""
        known = np.isfinite(self.plane.error).any()
        error = "<br>error %{customdata[1]:.1f} %" if known else ""
        told = f"a %{{x:.3g}}, b %{{y:.3g}}<br>loss %{{customdata[0]:.4g}}{error}<extra></extra>"
        data = np.stack([self.plane.loss, 100 * self.plane.error], axis=-1)
        where = {"x": self.plane.a, "y": self.plane.b, "z": self.heights}
        return {**where, "customdata": data, "hovertemplate": told}

    def below(self, model: PlaneModel) -> float:
        """Return the surface's height at a model."""
        plane = self.plane
        return float(self.heights[np.argmin(np.abs(plane.b - model.b)), np.argmin(np.abs(plane.a - model.a))])

    def above(self, model: PlaneModel) -> float:
        """Return a height over the surface, which would hide a model off the plane that is better than its
        projection."""
        return float(np.nanmax([*self.scale.height(np.array([model.loss])), self.below(model), 0.0])) + 0.6

    def lowest(self, basin: Basin) -> float:
        """Return a height over the lowest point."""
        return float(self.scale.height(np.array([max(basin.loss, self.scale.edges[0])]))[0]) + 0.3

    def legible(self, model: PlaneModel) -> str:
        """Black or white, whichever stands out from the surface at a model."""
        import matplotlib

        share = self.below(model) / self.highest
        at = 1.0 if np.isnan(share) else min(max(share, 0.0), 1.0)
        red, green, blue, _ = matplotlib.colormaps[self.scale.cmap](at)
        return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "black"


def traces_of(surface: PageSurface) -> list[Any]:
    """Make the traces of a surface: itself, its contours, and its models on both."""
    plane = surface.plane
    traces = [_surface_trace(surface), _contour_trace(surface)]
    numbers = {id(model): str(i) for i, model in enumerate(plane.anchors, 1)} if told_apart(plane) else {}
    for group in _groups(plane):
        traces += _model_traces(surface, group, numbers.get(id(group[0][0]), ""))
    basin = basin_of(plane)
    return traces if basin is None else [*traces, *_minimum_traces(surface, basin)]


def _surface_trace(surface: PageSurface) -> Any:
    from plotly import graph_objects as go

    scale = surface.scale
    shades = {"colorscale": _shades(scale.cmap), "cmin": 0.0, "cmax": surface.highest}
    label = {"text": f"{markup(scale.label)}<br>{scale.short_kind}"}
    bar = {"title": label, "tickvals": surface.at, "ticktext": surface.texts, "x": 1.0, "len": 0.8}
    light = {"ambient": 0.85, "diffuse": 0.3, "specular": 0.05, "roughness": 0.9}  # colours stay the colour bar's
    return go.Surface(**surface.points, **shades, colorbar=bar, opacity=0.95, lighting=light, scene="scene")


def _contour_trace(surface: PageSurface) -> Any:
    from plotly import graph_objects as go

    return go.Contour(
        **surface.points,
        colorscale=_shades(surface.scale.cmap),
        zmin=0.0,
        zmax=surface.highest,
        contours={"start": 1.0, "end": float(len(surface.scale.edges) - 2), "size": 1.0},
        line={"width": 0.5, "color": "rgba(255,255,255,0.6)"},
        showscale=False,
        xaxis="x",
        yaxis="y",
    )


def _model_traces(surface: PageSurface, group: Group, number: str) -> list[Any]:
    """Models over the surface and on the contours; ``number`` stands at a model that has one."""
    from plotly import graph_objects as go

    models, look, name, line = group
    marker = {"color": look["color"], "line": {"color": look["markeredgecolor"], "width": 1}}
    common: dict[str, Any] = {
        "x": [model.a for model in models],
        "y": [model.b for model in models],
        "mode": "lines+markers" if line else "markers+text" if number else "markers",
        "line": {"color": line},
        "name": f"{number}  {name}" if number else name,
        "text": [number for _ in models],
        "textposition": "top center",
        "textfont": {"color": surface.legible(models[0]) if number else "black", "size": 13},
        "customdata": [_words(model) for model in models],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    symbol = SYMBOLS.get(look["marker"], "circle")
    solid = {**marker, "symbol": symbol, "size": 2 if line else 5}
    if look["marker"] in LETTERS and not line:  # a letter stands there, and this is what is pointed at
        solid = {"color": "rgba(0,0,0,0)", "line": {"width": 0}, "symbol": "circle", "size": 8}
    flat = {**marker, "symbol": symbol, "size": 5 if line else 12}
    over = [surface.above(model) for model in models]
    return [
        go.Scatter3d(z=over, marker=solid, showlegend=False, scene="scene", **common),
        go.Scatter(marker=flat, xaxis="x", yaxis="y", **common),
    ]


def _letters(surface: PageSurface) -> list[dict[str, Any]]:
    """Return the markers over the surface that are letters."""
    plane, basin = surface.plane, basin_of(surface.plane)
    letters = [
        _letter((model.a, model.b, surface.above(model)), look)
        for models, look, _, line in _groups(plane)
        if look["marker"] in LETTERS and not line
        for model in models
    ]
    if basin is not None:
        letters.append(_letter((basin.a, basin.b, surface.lowest(basin)), {**MINIMUM, "markeredgecolor": "white"}))
    return letters


def _letter(place: tuple[float, float, float], look: Mapping[str, Any]) -> dict[str, Any]:
    halo = ", ".join(f"{x}px {y}px 1px {look['markeredgecolor']}" for x in (-1, 1) for y in (-1, 1))
    thin = LETTERS[look["marker"]] in "+\N{MULTIPLICATION SIGN}"
    font = {"color": look["color"], "size": 22 if thin else 16, "weight": "bold", "shadow": halo}
    where = dict(zip("xyz", place, strict=True))
    return {**where, "text": LETTERS[look["marker"]], "font": font, "showarrow": False}


def _minimum_traces(surface: PageSurface, basin: Basin) -> list[Any]:
    """Return the lowest point, over the surface and on the contours."""
    from plotly import graph_objects as go

    common: dict[str, Any] = {
        "x": [basin.a],
        "y": [basin.b],
        "mode": "markers",
        "name": f"minimum of the surface: loss {basin.loss:#.3g}",
        "hovertemplate": "%{fullData.name}<extra></extra>",
    }
    cross: dict[str, Any] = {"color": "black", "line": {"color": "white", "width": 1}, "symbol": "cross"}
    solid = {"color": "rgba(0,0,0,0)", "line": {"width": 0}, "size": 8}
    return [
        go.Scatter3d(z=[surface.lowest(basin)], marker=solid, showlegend=False, scene="scene", **common),
        go.Scatter(marker={**cross, "size": 9}, xaxis="x", yaxis="y", **common),
    ]


def _layout(surface: PageSurface, title: str | None) -> dict[str, Any]:
    """Return the scene of the surface, the axes of the contours, legend and title."""
    plane = surface.plane
    across, along = (markup(words[0]) for words in axis_labels(plane))
    return {
        "title": heading(title or _title(plane), remarks([plane], "holes")),
        "scene": scene_of(surface, " (L₂)" if is_metric(plane) else ""),
        "xaxis": {
            "title": {"text": f"a: {across}"},
            "domain": [SURFACE_SHARE + GAP, 1.0],
            "anchor": "y",
            "constrain": "domain",
        },
        "yaxis": {
            "title": {"text": f"b: {along}"},
            "domain": [0.0, 1.0],
            "anchor": "x",
            "constrain": "domain",
            **({"scaleanchor": "x"} if has_equal_scales(plane) else {}),
        },
        "legend": {"orientation": "h", "yanchor": "bottom", "yref": "container", "y": 0.0, "x": 0.0},
        "margin": {"l": 20, "r": 20, "t": 70, "b": 20},
    }


def scene_of(surface: PageSurface, unit: str) -> dict[str, Any]:
    """Return the scene of a surface, with the letters that stand for markers in it."""
    scale, small = surface.scale, {"tickfont": {"size": 10}}
    nats = " (nats)" if "(nats)" in scale.label else ""
    return {
        "domain": {"x": [0.0, SURFACE_SHARE], "y": [0.0, 1.0]},
        # short: longer words collide when the surface is turned, and stand at the contours already
        "xaxis": {"title": {"text": f"a{unit}", "font": {"size": 12}}, **small},
        "yaxis": {"title": {"text": f"b{unit}", "font": {"size": 12}}, **small},
        "zaxis": {
            "title": {"text": f"loss{nats},<br>{scale.short_kind}", "font": {"size": 12}},
            # not the lowest, which stands where the numbers of a do
            "tickvals": surface.at[1::2],
            "ticktext": surface.texts[1::2],
            **small,
        },
        "aspectmode": "manual",
        "aspectratio": {"x": 1.0, "y": 1.0, "z": 0.6},
        "camera": {"eye": EYE},
        "annotations": _letters(surface),
    }


def _title(plane: Plane) -> str:
    """Return the title of a plane that was given none."""
    names = [clip_label(model.label, 40) for model in plane.anchors]
    if plane.span == "clients":
        rounds = list(dict.fromkeys(model.label.rpartition("/")[0] for model in plane.anchors))
        return f"Loss near the {len(names)} clients of {', '.join(rounds)}"
    if plane.span == "trajectory" and plane.path:
        return f"Loss along the way from {plane.path[0].label} to {plane.path[-1].label}"
    if len(names) == 3:
        return f"Loss on the plane through {names[0]}, {names[1]} and {names[2]}"
    origin = next((model.label for model in plane.models if model.role == "origin"), "")
    return f"Loss around {clip_label(origin, 40)}" if origin else "Loss on the plane"


def _shades(cmap: str) -> str | list[list[Any]]:
    """A colour map of matplotlib's as plotly takes it."""
    if cmap == SURFACE:
        return SURFACE.capitalize()
    import matplotlib
    from matplotlib.colors import to_hex

    return [[i / 32, to_hex(matplotlib.colormaps[cmap](i / 32))] for i in range(33)]


def _groups(plane: Plane) -> list[Group]:
    """Group the models by entry of the legend: a round's clients but the one whose data they are, a path, else a
    model."""
    drawn = looks(plane)
    groups: list[Group] = []
    joined = {id(model) for models, _ in paths(plane) for model in models}
    if plane.anchors and not told_apart(plane):
        others = [(model, look) for model, look in drawn if model.role == "anchor" and not is_owner(plane, model)]
        joined |= {id(model) for model, _ in others}
        words = f"{len(others)} {'other ' if len(others) < len(plane.anchors) else ''}clients"
        groups += [([model for model, _ in others], look, words, None) for _, look in others[:1]]
    for model, look in drawn:
        if id(model) not in joined:
            owns = "the client whose data they are, " if is_owner(plane, model) else ""
            groups.append(([model], look, owns + _words(model), None))
    for models, colour in paths(plane):
        dot = {"marker": "o", "color": colour, "markeredgecolor": colour}
        ends = f"{models[0].label} to {models[-1].label}"
        groups.append((models, dot, label_text(ends), colour))
    return groups


def _words(model: PlaneModel) -> str:
    label = label_text(model.label)
    if np.isnan([model.loss, model.error]).all():
        return label
    off = f", {model.off_plane:.2g} off the plane" if model.off_plane > 1e-3 else ""
    error = "" if np.isnan(model.error) else f", error {100 * model.error:.1f} %"
    return f"{label}: loss {model.loss:#.3g}{error}{off}"
