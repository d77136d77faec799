"""The page as HTML that needs no other file."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from ...plotting.web_page import escape_html, keep_together, web_page
from .statements import Statement
from .text_page import SOURCE, cells, sections, title

if TYPE_CHECKING:
    from .result import Explanation

# Verdicts are words; their colours, Okabe and Ito's darkened until white can be read on them, only repeat them.
STYLE = """
:root { color-scheme: light dark; --ink: #111; --soft: #444; --line: #ddd; --page: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --soft: #b0b0b0; --line: #3a3d42; --page: #16181c; } }
body { font: 14px/1.4 system-ui, "DejaVu Sans", sans-serif; color: var(--ink); background: var(--page); }
body { max-width: 62rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.35rem; margin: 0 0 .8rem; }
h2 { font-size: 1.05rem; margin: 1.1rem 0 .4rem; }
main { display: grid; grid-template-columns: minmax(0, 1fr) 21rem; gap: 0 1.6rem; align-items: start; }
figure { margin: 0; }
img { width: 100%; background: #fff; border-radius: .3rem; }
.statement { margin: 0 0 .75rem; break-inside: avoid; }
.statement h3 { font-size: 1em; margin: 0; display: inline; }
.statement p { margin: .1rem 0 0; }
.paper, .notes { color: var(--soft); font-size: .88em; }
.decide { font-style: italic; }
.verdict { font-size: .78em; font-weight: 600; color: #fff; padding: .08em .5em; border-radius: .3em; }
.supported { background: #00634a; }
.contradicted { background: #a34700; }
.undecided { background: #5c5c5c; }
.numbers { overflow-x: auto; }
.notes ul { margin: .2rem 0; padding-left: 1.1rem; }
table { border-collapse: collapse; font-size: .78em; font-variant-numeric: tabular-nums; }
th, td { padding: .08rem .7rem .08rem 0; text-align: right; border-bottom: 1px solid var(--line); }
th:nth-child(2), td:nth-child(2) { text-align: left; }
@media screen and (max-width: 46rem) { main { display: block; } figure { max-width: 24rem; } }
@media print {
  :root { --ink: #000; --soft: #333; --line: #ddd; --page: #fff; }
  @page { margin: 12mm; }
  body { font-size: 8pt; line-height: 1.25; margin: 0; padding: 0; max-width: none; }
  main { grid-template-columns: minmax(0, 1fr) 6cm; gap: 0 .5cm; }
  h1 { font-size: 13pt; margin: 0 0 .4rem; }
  .statement { margin: 0 0 .4rem; }
  .verdict { color: #000; background: none; border: 1px solid #000; }
  .numbers { break-before: page; }
}
"""


def as_html(explanation: Explanation, png: bytes | None) -> str:
    """Write the page: the statements next to the figure and the notes; printed, all numbers follow on a sheet of their
    own."""
    said = []
    for heading, statements in sections(explanation):
        said += [f"<h2>{escape_html(heading)}</h2>"] if heading else []
        said += [_statement(number, one) for number, one in statements]
    notes = "\n".join(f"<li>{keep_together(note)}</li>" for note in (*explanation.notes, SOURCE))
    picture = ""
    if png is not None:
        data = b64encode(png).decode("ascii")
        picture = f'<figure><img alt="The factors over rounds" src="data:image/png;base64,{data}"></figure>'
    rows = "\n".join(
        f"<tr><td>{number}</td>{''.join(f'<td>{escape_html(cell)}</td>' for cell in cells(reading))}</tr>"
        for number, one in enumerate(explanation.statements, start=1)
        for reading in one.readings
    )
    columns = "".join(f"<th>{name}</th>" for name in ("statement", "number", "round", "value", "low", "high"))
    body = f"""<h1>{keep_together(title(explanation))}</h1>
<main>
<div>
{chr(10).join(said)}
</div>
<aside>
{picture}
<section class="notes">
<h2>How to read this</h2>
<ul>
{notes}
</ul>
</section>
</aside>
</main>
<section class="numbers">
<h2>The numbers</h2>
<table>
<thead><tr>{columns}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</section>"""
    return web_page(title(explanation), body, style=STYLE)


def _statement(number: int, one: Statement) -> str:
    decide = f' <span class="decide">{keep_together(one.decide)}</span>' if one.decide else ""
    sentence = keep_together(one.sentence).replace(" ± ", "&nbsp;±&nbsp;").replace(" %", "&nbsp;%")
    sentence = sentence.replace(" = ", "&nbsp;=&nbsp;")
    verdict = escape_html(one.verdict)
    return f"""<div class="statement">
<h3>{number}. {keep_together(one.title)}</h3> <span class="verdict {verdict}">{verdict}</span>
<p>{sentence}{decide}</p>
<p class="paper">Paper: {keep_together(one.paper)}</p>
</div>"""
