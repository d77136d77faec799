"""The one way to make a web page: what files say is text in it, nothing runs but its own scripts, nothing is fetched.

A label of a file may be an element or a script where it stands as it is. So every text is escaped where it enters
(:func:`escape_html`, :func:`keep_together`, and for plotly :func:`label_text`, :func:`markup`), and every page says in
its content policy which scripts may run: those inside it by their sha256, and one in a file next to it by a nonce. A
page opened from a disk has no origin that ``'self'`` could name, and no file's hash is compared there.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache, lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from ..checkpoints.io.visible_text import visible

if TYPE_CHECKING:
    from .static_fallback import Still

#: of scripts that lay pages out for narrow windows: words in lines of so many letters, as plotly takes them
BROKEN = r"""
const broken = (words, letters) =>
  words.match(new RegExp(`.{1,${letters}}(?= |$)|\\S+`, "g")).map((line) => line.trim()).join("<br>");
"""

# plotly writes styles into its elements, and draws in three dimensions by pictures that it makes
_POLICY = (
    "default-src 'none'; img-src data: blob:{served}; style-src 'unsafe-inline'; script-src {scripts}; "
    "base-uri 'none'; form-action 'none'"
)
# of a page that a server of its own sends: pictures and news are its server's
_SERVED = " 'self'; connect-src 'self'"

# nor has it a button that would send what is drawn to another host
_CONFIG = {"displaylogo": False, "responsive": True, "showSendToCloud": False}

# the gutter: plotly measures the width before a bar to scroll with takes some of it
_DRAWN = """
:root { color-scheme: light dark; --ink: #111; --soft: #555; --page: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --soft: #aaa; --page: #16181c; } }
html, body { height: 100%; }
html { scrollbar-gutter: stable; }
body { margin: 0; font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page); }
.drawing { display: none; background: #fff; }
.drawn .drawing { display: block; }
.still { max-width: 44rem; margin: 0 auto; padding: .8rem 1rem 1.2rem; overflow-wrap: anywhere; }
.still h1 { font-size: 1.2rem; margin: 0 0 .4rem; }
.still p { margin: .4rem 0; white-space: pre-line; }
.still .missing { color: var(--soft); font-size: .88em; }
.still img { width: min(100%, 34rem); background: #fff; border-radius: .3rem; }
.drawn .still h1, .drawn .still .missing, .drawn .still img { display: none; }
@media print {
  :root { --ink: #000; --soft: #333; --page: #fff; }
  .drawn .drawing { display: none; }
  .drawn .still h1, .drawn .still img { display: block; }
  .still { margin: 0; }
  .still img { width: 12cm; }
}
"""

# Said where the script has not drawn: it does not run, as in a preview of a mail, or lies in the folder that the page
# came from.
_NOT_RUN = '<p class="missing">The script in this page does not run here, so this is the picture as it is printed.</p>'
_NOT_BESIDE = (
    '<p class="missing">This is the picture as it is printed. To explore it with a pointer, put {name} next to this '
    "page, in the same folder: fedscope wrote it where it wrote the page.</p>"
)


def escape_html(text: object) -> str:
    r"""A text in a page or in an attribute of its elements.

    >>> escape_html("</title><script src=x.js>\0")
    '&lt;/title&gt;&lt;script src=x.js&gt;\\x00'
    """
    return escape(visible(text, keep="\n"))


def keep_together(text: str) -> str:
    """Escape a text so that no line ends inside an option or a number.

    >>> keep_together("p < 1e-05 with --draws")
    'p &lt; <span style="white-space:nowrap">1e-05</span> with <span style="white-space:nowrap">--draws</span>'
    """
    whole = r'<span style="white-space:nowrap">\g<0></span>'
    return re.sub(r"(?<![\w-])--\w[\w-]*|[\d.]+e-\d+", whole, escape_html(text))


def label_text(text: object) -> str:
    """A text in a plotly figure, which takes some elements for its own, and knows no ``&quot;``.

    >>> label_text('<a href="x">ima</a>')
    '&lt;a href="x"&gt;ima&lt;/a&gt;'
    """
    return escape(visible(text), quote=False)


def markup(text: str) -> str:
    r"""Escape a text that is written for matplotlib, with its mathematics.

    >>> markup(r"a < 0 ($L_2$) of lr\$1\$")
    'a &lt; 0 (L<sub>2</sub>) of lr$1$'
    """
    parts = text.replace("\N{ZERO WIDTH NON-JOINER}_", "_").split("$L_2$")
    return "L<sub>2</sub>".join(label_text(part.replace(r"\$", "$")) for part in parts)


def heading(title: str, remark: str) -> dict[str, str]:
    """A plotly figure's title with its remark, written for matplotlib, below."""
    return {"text": f"{label_text(title)}<br><sup>{markup(remark)}</sup>"}


def web_page(
    title: str, body: str, *, scripts: Sequence[str] = (), style: str = "", marks: str = "", served: bool = False
) -> str:
    """A whole page.

    Args:
        title: as text.
        body: as HTML, in which every text is escaped.
        scripts: what runs, in this order, once the body is there.
        marks: further elements of its head.
        served: whether it may fetch from where it comes, and from nowhere else.
    """
    hashes = " ".join(map(_by_hash, scripts)) or "'none'"
    tags = "".join(f"<script>{one}</script>\n" for one in scripts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(scripts=hashes, served=_SERVED if served else "")}">
<meta name="viewport" content="width=device-width, initial-scale=1">
{marks}<title>{escape_html(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
{tags}</body>
</html>
"""


def as_page(figure: Any, title: str, name: str, still: Still, narrow: str = "") -> str:
    """A plotly figure, or what is in one, as a page with plotly.js inside, the same text for the same figure.

    Where the script draws, the words stand below the drawing, and the picture is what is printed. Where none does, the
    page is the picture and the words.

    Args:
        title: as text.
        name: of its element; a fixed one in place of a random one keeps the page the same.
        still: what is shown without a script.
        narrow: a script that lays it out for a narrow window, run once it is drawn.
    """
    from plotly.io import to_html

    drawn = to_html(
        figure,
        include_plotlyjs=False,
        full_html=False,
        div_id=name,
        default_height="92vh",
        config=_CONFIG,
        post_script=narrow or None,
        validate=False,
    )
    # plotly writes < and / of what is drawn as \u003c and \u002f, so the first end of a script is the script's
    parts = re.fullmatch(r"(.*?)<script[^>]*>(.*?)</script>(.*)", drawn, re.DOTALL)
    assert parts is not None, "plotly writes one script"
    body = f'<div class="drawing">\n{parts[1]}{parts[3]}\n</div>\n{_still_html(title, still)}'
    draws = f'if (window.Plotly) {{\ndocument.documentElement.className = "drawn";\n{parts[2]}\n}}'
    return web_page(title, body, scripts=[_library(), draws], style=_DRAWN)


def _still_html(title: str, still: Still) -> str:
    words = escape_html(still.words)  # alone, and not kept together: no text adds an element
    data = b64encode(still.png).decode("ascii")
    shown = f'<img alt="{words}" src="data:image/png;base64,{data}">\n' if data else ""
    return f'<div class="still">\n<h1>{escape_html(title)}</h1>\n{_NOT_RUN}\n{shown}<p>{words}</p>\n</div>'


def split_library(page: str) -> tuple[str, str, bytes]:
    """Split a page into one that takes plotly.js from a file next to it, that file's name, and what is in it; a page
    without plotly.js stays as it is, with no such file.

    The nonce by which the page lets that file run is the hash of the page: no text in it can know it.

    >>> split_library("<p>words</p>")
    ('<p>words</p>', '', b'')
    """
    if "Plotly.newPlot" not in page:
        return page, "", b""
    from plotly.offline import get_plotlyjs_version

    library, name = _library(), f"plotly-{get_plotlyjs_version()}.min.js"
    before, found, after = page.partition(f"<script>{library}</script>")
    by_hash = _by_hash(library)
    if not found or by_hash not in before:
        return page, "", b""
    before = before.replace(_NOT_RUN, _NOT_BESIDE.format(name=name), 1)
    nonce = _digest(before + after)
    before = before.replace(by_hash, f"'nonce-{nonce}'", 1)
    return f'{before}<script nonce="{nonce}" src="{name}"></script>{after}', name, library.encode()


@cache
def _library() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@lru_cache(maxsize=4)  # the library's takes longer than a page
def _by_hash(script: str) -> str:
    return f"'sha256-{_digest(script)}'"


def _digest(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
