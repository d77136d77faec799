"""Models on a map as a web page that tells who they are and picks rounds out. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...plotting.static_fallback import still_of
from ...plotting.web_page import BROKEN, as_page, heading, label_text, markup
from .figure import PATHS, limits_of, round_colours, shade
from .result import axis_words, remark

if TYPE_CHECKING:
    from .result import Embedding
    from .shown_models import Point

#: pixels: of a client, of a server model
CLIENT, SERVER = 8, 7
#: of what the slider has not picked
FADED = 0.06
#: rounds with a stop on the slider, at most; beyond, every so many
STOPS = 200
#: panels in a row, at most
ROW = 3

# In a narrow window the panels stand below each other, and words stand for the bar of rounds, for which there is no
# room. Wider, the layout comes back.
_NARROW = (
    BROKEN
    + r"""
const place = document.getElementById("embedding"), narrow = window.matchMedia("(max-width: 700px)");
const wide = JSON.parse(JSON.stringify(place.layout));
const lay = () => {
  const layout = JSON.parse(JSON.stringify(wide));
  layout.height = undefined;
  if (narrow.matches) {
    const [title, remark] = layout.title.text.split("<br>"), ends = layout.coloraxis.colorbar.ticktext;
    const colours = layout.coloraxis.showscale ? `; pale: round ${ends[0]}, dark: round ${ends[1]}` : "";
    // as wide as the window without the bar of tools, which stands upright at its right
    const head = broken(title, Math.floor((window.innerWidth - 70) / 8.5));
    const said = broken(remark.replace(/<.?sup>/g, "") + colours, Math.floor((window.innerWidth - 70) / 6));
    const text = `${head}<br><span style="font-size:11px">${said}</span>`;
    const above = 22 + 20 * head.split("<br>").length + 18 * said.split("<br>").length;
    layout.modebar = {orientation: "v"};
    const numbers = layout.xaxis.showticklabels, panels = layout.annotations.length;
    const left = numbers ? 60 : 15, right = 40, gap = numbers ? 55 : 35;
    const titles = Object.keys(wide).filter((name) => name.startsWith("xaxis")).map((name) => wide[name].title);
    const across = titles.find((title) => title && title.text);
    const [x, y] = [layout.xaxis.range, layout.yaxis.range];
    const high = (window.innerWidth - left - right) * (y[1] - y[0]) / (x[1] - x[0]);
    const all = panels * (high + gap) - gap;
    for (const name of Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))) {
      const axis = layout[name], panel = Number(name.slice(5) || 1) - 1, top = 1 - panel * (high + gap) / all;
      if (panel >= panels) {
        axis.visible = false;
      } else if (name[0] == "x") {
        axis.domain = [0, 1];
        axis.title = panel == panels - 1 ? {...across, font: {size: 11}} : undefined;
      } else {
        axis.domain = [Math.max(0, top - high / all), top];
        axis.showticklabels = numbers;
        axis.title = {...wide.yaxis.title, font: {size: 11}};
        layout.annotations[panel] = {...layout.annotations[panel], x: 0.5, y: top};
      }
    }
    layout.legend = {...layout.legend, x: 0, xanchor: "left", y: 1 + 26 / all, font: {size: 11}};
    layout.coloraxis.showscale = false;
    const below = numbers ? 45 : 10;
    for (const slider of layout.sliders) slider.pad = {t: below};
    layout.margin = {l: left, r: right, t: above + 60, b: below + 100};
    layout.height = layout.margin.t + all + layout.margin.b;
    const top = {yref: "container", y: 1 - 22 / layout.height, yanchor: "top"};
    layout.title = {...layout.title, text, font: {size: 15}, ...top};
  }
  place.parentElement.style.height = layout.height ? `${layout.height}px` : "92vh";
  Plotly.react(place, place.data, layout);
};
narrow.addEventListener("change", lay);
if (narrow.matches) lay();
"""
)


def draw_page(result: Embedding, title: str | None = None) -> str:
    """Write the page as HTML with plotly.js inside, the same text for the same map.

    A panel a run on common axes, as in the printed figure. Pointing at a model tells its run, round and client and the
    classes the client has; the slider picks out a round, the legend hides clients and paths.
    """
    from plotly.subplots import make_subplots

    runs = result.runs
    title = title or "Models of " + ", ".join(runs)
    rows = -(-len(runs) // ROW)
    columns = -(-len(runs) // rows)
    titles = [label_text(run) for run in runs]
    figure = make_subplots(rows=rows, cols=columns, subplot_titles=titles, horizontal_spacing=0.05 / columns)
    shown: list[tuple[Point, ...]] = []
    for panel, run in enumerate(runs):
        for which, look in _looks():
            places, points = result.of(run, which)
            if not points:
                continue
            order = sorted(range(len(points)), key=lambda i: points[i].round)
            points = tuple(points[i] for i in order)
            x, y = places[order].T
            if which is None:
                shades = [shade(point.round, result.rounds) for point in points]
                look = {**look, "marker": {**look["marker"], "color": shades}}
            first = not any(own[0].which == points[0].which or (which is None and own[0].is_client) for own in shown)
            shown.append(points)
            figure.add_scatter(
                x=x,
                y=y,
                text=[_words(point) for point in points],
                hovertemplate="%{text}<extra></extra>",
                legendgroup=which or "client",
                name=which or "client",
                showlegend=first,
                unselected={"marker": {"opacity": FADED}},
                row=panel // columns + 1,
                col=panel % columns + 1,
                **look,
            )
    across, along = (markup(words[0]) for words in axis_words(result))
    numbers = result.method == "pca"
    frame = {"showline": True, "mirror": True, "linecolor": "#9a9a9a", "zeroline": False}
    # common limits in place of axes that match: plotly shrinks those to nothing where their scales are equal too
    (left, right, low, high), _ = limits_of(result.places)
    figure.update_xaxes(**frame, showticklabels=numbers, showgrid=numbers, constrain="domain", range=[left, right])
    figure.update_yaxes(**frame, showgrid=numbers, showticklabels=False, constrain="domain", range=[low, high])
    for panel in range(len(runs)):
        number = "" if panel == 0 else str(panel + 1)
        figure.update_layout({f"yaxis{number}": {"scaleanchor": f"x{number}"}})
    figure.update_yaxes(showticklabels=numbers, col=1)
    if numbers:
        figure.update_xaxes(title_text=across, row=rows)
        figure.update_yaxes(title_text=along, col=1)
    figure.update_layout(
        template="plotly_white",
        title=heading(title, remark(result)),
        coloraxis=_round_scale(result),
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.06, "xanchor": "right", "x": 1.0},
        sliders=[_slider(result, shown)] if len(result.rounds) > 1 else [],
        margin={"l": 60, "r": 20, "t": 110, "b": 20},
        hovermode="closest",
    )
    return as_page(figure, title, "embedding", still_of(result), _NARROW)


def _looks() -> list[tuple[str | None, dict[str, Any]]]:
    """Return the looks of clients (None) and of the paths of the server's models, in plotly's words."""
    marker = {"size": CLIENT, "coloraxis": "coloraxis", "line": {"color": "white", "width": 0.5}}
    looks: list[tuple[str | None, dict[str, Any]]] = [(None, {"mode": "markers", "marker": marker})]
    for which, line in PATHS.items():
        end = {"symbol": "diamond", "size": SERVER, "color": line["color"], "line": {"color": "white", "width": 1}}
        path = {"color": line["color"], "width": 1.5}
        looks.append((which, {"mode": "lines+markers", "marker": end, "line": path}))
    return looks


def _round_scale(result: Embedding) -> dict[str, Any]:
    from matplotlib.colors import to_hex

    colours = round_colours()
    ends = [str(result.rounds[0]), str(result.rounds[-1])]
    return {
        "colorscale": [[i / 10, to_hex(colours(i / 10))] for i in range(11)],
        "cmin": 0,
        "cmax": 1,
        "showscale": len(result.rounds) > 1,
        "colorbar": {"title": {"text": "round"}, "tickvals": [0, 1], "ticktext": ends, "len": 0.6},
    }


def _slider(result: Embedding, shown: Sequence[Sequence[Point]]) -> dict[str, Any]:
    """All rounds, then one after the other: models of other rounds fade."""
    every = range(len(shown))
    stops = result.rounds[:: -(-len(result.rounds) // STOPS)]
    steps = [{"label": "all", "method": "restyle", "args": [{"selectedpoints": [None for _ in every]}, list(every)]}]
    for number in stops:
        picked = [[i for i, point in enumerate(points) if point.round == number] for points in shown]
        steps.append({"label": str(number), "method": "restyle", "args": [{"selectedpoints": picked}, list(every)]})
    return {"active": 0, "currentvalue": {"prefix": "round: "}, "pad": {"t": 30}, "steps": steps}


def _words(point: Point) -> str:
    has = f"<br>classes {label_text(', '.join(map(str, point.labels)))}" if point.labels else ""
    return f"{label_text(point.run)}, round {point.round}<br>{label_text(point.which.replace('-', ' '))}{has}"
