"""The parts of a report as HTML: no other file, no network, readable in the dark, in print and by a screen reader."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence

from ..plotting.web_page import escape_html, keep_together, web_page

#: says whose a page is, so that it may be written anew
MARK = '<meta name="generator" content="fedscope report">'

STYLE = """
:root { color-scheme: light dark; --ink: #111; --soft: #555; --line: #ddd; --page: #fff; --card: #f6f6f4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eee; --soft: #aaa; --line: #3a3d42; --page: #16181c; --card: #1f2227; }
}
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; color: var(--ink); background: var(--page); }
body { max-width: 60rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem; }
p { margin: .3rem 0; }
.soft, caption, figcaption, footer { color: var(--soft); font-size: .88em; }
nav a { margin-right: .9em; display: inline-block; }
a { color: inherit; }
.verdict { list-style: none; padding: 0; margin: .6rem 0; }
.verdict li { padding: .5rem .7rem; margin: 0 0 .45rem; background: var(--card); border-left: .3rem solid #767676; }
.verdict li.good { border-color: #00795b; }
.verdict li.bad { border-color: #c8501a; }
.verdict b { display: block; font-size: .88em; color: var(--soft); }
.runs { display: grid; gap: 0 1.2rem; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); }
figure { margin: .5rem 0; }
figure img { width: min(100%, 34rem); background: #fff; padding: .3rem; border-radius: .3rem; }
.live { display: none; height: 29rem; background: #fff; border-radius: .3rem; margin: .5rem 0; overflow: hidden; }
.drawn .live { display: block; }
@media (max-width: 640px) { .live { height: 21rem; } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85em; font-variant-numeric: tabular-nums; margin: .4rem 0; }
caption { text-align: left; }
th, td { padding: .12rem .9rem .12rem 0; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th.text, td.text { text-align: left; }
th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
th button::after { content: " \\2195"; color: var(--soft); }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
pre { background: var(--card); padding: .7rem; overflow-x: auto; font-size: .82em; }
summary { cursor: pointer; }
.chip { font-size: .8em; font-weight: 600; border: 1px solid; border-radius: .3em; padding: 0 .4em; }
@media print {
  @page { margin: 14mm; }
  :root { --ink: #000; --soft: #333; --line: #bbb; --page: #fff; --card: #fff; }
  body { font-size: 9pt; max-width: none; margin: 0; padding: 0; }
  .drawn .live, nav { display: none; }
  figure, p, .verdict li, tr { break-inside: avoid; }
  h2, h3, section > p { break-after: avoid; }
  figure img { width: 9cm; max-height: 22cm; object-fit: contain; object-position: left; padding: 0; }
  details > * { display: block; }
}
"""

# A column is sorted by its cells' numbers where all have one, else by their words; missing numbers stand last.
SORTING = """
document.querySelectorAll("table.sorts").forEach(table => {
  const body = table.tBodies[0];
  table.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => {
    const head = button.closest("th"), down = head.getAttribute("aria-sort") === "ascending";
    table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const number = value => value === "" ? NaN : Number(value);
    const rows = Array.from(body.rows), numbers = rows.every(row => key(row) === "" || !isNaN(number(key(row))));
    const order = (a, b) => {
      if (!numbers) return key(a).localeCompare(key(b));
      const [x, y] = [number(key(a)), number(key(b))];
      return isNaN(x) - isNaN(y) || (isNaN(x) ? 0 : (x - y) * (down ? -1 : 1));
    };
    rows.sort(order);
    if (!numbers && down) rows.reverse();
    rows.forEach(row => body.appendChild(row));
  }));
});
"""

# A surface is drawn when it comes into view: a browser has few pictures in three dimensions at a time.
LIVE = """
document.documentElement.className = "drawn";  // without scripts there is no place left empty for them
const draw = entries => entries.filter(entry => entry.isIntersecting).forEach(entry => {
  watching.unobserve(entry.target);
  const figure = JSON.parse(document.getElementById(entry.target.dataset.figure).textContent);
  if (entry.target.clientWidth < 600) {  // the surface alone: its contours stand in the picture below
    figure.data = figure.data.filter(trace => trace.scene);
    const scene = figure.layout.scene, eye = scene.camera.eye;
    // so far that the names of the axes lie inside, for what is seen is as high as the place
    const away = Math.max(1.07, 1.25 * entry.target.clientHeight / entry.target.clientWidth);
    scene.domain = {x: [0, 1], y: [0, 1]};
    scene.camera = {eye: {x: away * eye.x, y: away * eye.y, z: away * eye.z}};
    delete figure.layout.xaxis;
    delete figure.layout.yaxis;
    figure.data.forEach(trace => { trace.showscale = false; });
  }
  const shown = {displaylogo: false, responsive: true, showSendToCloud: false};
  Plotly.newPlot(entry.target, figure.data, figure.layout, shown);
});
const watching = new IntersectionObserver(draw, {rootMargin: "300px"});
document.querySelectorAll(".live").forEach(place => watching.observe(place));
"""


def page(title: str, body: str, scripts: Sequence[str]) -> str:
    """A whole page; nothing but its own scripts is run, and nothing is fetched."""
    return web_page(title, body, scripts=scripts, style=STYLE, marks=f"{MARK}\n")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    caption: str = "",
    text: Iterable[int] = (),
    sorts: bool = False,
) -> str:
    """A table; a cell is a word, or a pair of what is shown and the number by which it is sorted.

    Args:
        text: the columns that are words.
        sorts: whether its head's buttons sort it.
    """
    left = set(text)

    def kind(i: int) -> str:
        return ' class="text"' if i in left else ""

    def cell(i: int, value: object) -> str:
        if isinstance(value, tuple):
            shown, by = value
            return f'<td{kind(i)} data-value="{"" if by is None else escape_html(by)}">{escape_html(str(shown))}</td>'
        return f"<td{kind(i)}>{escape_html(str(value))}</td>"

    def head(i: int, name: str) -> str:
        inside = f'<button type="button">{escape_html(name)}</button>' if sorts else escape_html(name)
        return f'<th scope="col"{kind(i)}>{inside}</th>'

    heads = "".join(head(i, name) for i, name in enumerate(columns))
    body = "\n".join(f"<tr>{''.join(cell(i, value) for i, value in enumerate(row))}</tr>" for row in rows)
    said = f"<caption>{escape_html(caption)}</caption>" if caption else ""
    whose = ' class="sorts"' if sorts else ""
    inside = f"{said}<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return f'<div class="scroll"><table{whose}>{inside}</table></div>'


def picture(png: bytes, alt: str) -> str:
    """A figure inside the page, with its numbers in words for those who do not see it."""
    data = b64encode(png).decode("ascii")
    return f'<figure><img alt="{escape_html(alt)}" src="data:image/png;base64,{data}"></figure>'


def paragraphs(text: str) -> str:
    """Lines as paragraphs."""
    return "\n".join(f"<p>{keep_together(line)}</p>" for line in text.splitlines() if line.strip())
