"""How every figure and every page of the package looks, and files that come out the same byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoints import write_durably

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Width of a column of the usual two-column paper, in inches, and of its page.
COLUMN = 3.5
PAGE = 7.0

#: Okabe and Ito's colours, told apart by people with any colour vision; the darkest and clearest first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "D", "P", "v", "*")
GREY = "#6b6b6b"

#: Lightness falls and saturation stays, so that it reads in grey and for the colour-blind.
SURFACE = "viridis"

SIZE = 8.0
SMALL = 7.0
CHARACTER = 0.058  # the mean width of a small one, in inches
DPI = 300


@contextmanager
def paper_style(width: float = COLUMN) -> Iterator[None]:
    """Matplotlib's settings for a figure in a paper: 8 pt type, thin lines, fonts embedded as TrueType.

    The user's own settings and style are left alone and do not matter.

    >>> with paper_style():
    ...     import matplotlib
    ...
    ...     matplotlib.rcParams["pdf.fonttype"]
    42
    """
    import matplotlib
    from cycler import cycler

    settings: Any = {
        "figure.figsize": (width, width * 0.7),
        "figure.dpi": 100,
        "font.size": SIZE,
        "font.family": "DejaVu Sans",
        "axes.titlesize": SIZE,
        "axes.labelsize": SIZE,
        "legend.fontsize": SMALL,
        "axes.linewidth": 0.6,
        "axes.labelpad": 2.5,
        "axes.titlepad": 4.0,
        "axes.prop_cycle": cycler(color=list(COLOURS)),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.formatter.useoffset": False,
        "lines.linewidth": 1.1,
        "lines.markersize": 4.0,
        "patch.linewidth": 0.5,
        "hatch.linewidth": 0.4,
        "legend.frameon": False,
        "legend.handlelength": 1.8,
        "legend.handletextpad": 0.5,
        "legend.columnspacing": 1.2,
        "legend.labelspacing": 0.3,
        "legend.borderaxespad": 0.2,
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "svg.hashsalt": "fedscope",
        "savefig.dpi": DPI,
        "text.usetex": False,
    }
    ticks = {"major.width": 0.6, "major.size": 2.5, "minor.width": 0.4, "minor.size": 1.5, "major.pad": 2.0}
    for axis in ("xtick", "ytick"):
        settings |= {f"{axis}.labelsize": SMALL, **{f"{axis}.{name}": value for name, value in ticks.items()}}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def look_of(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th line; those of few lines are told apart also without colour.

    >>> look_of(8)["color"] == COLOURS[1]
    True
    """
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, of no window system and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, base: Path | str, formats: Sequence[str] = ("pdf", "png")) -> tuple[Path, ...]:
    """Write ``BASE.pdf`` and ``BASE.png``: no dates, no versions, so that equal data make equal files.

    Returns:
        the paths written, in the order of ``formats``.
    """
    unsaid: dict[str, dict[str, Any]] = {
        "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
    }
    written = []
    with paper_style(figure.get_figwidth()):
        for extension in formats:
            path = Path(f"{base}.{extension}")
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn = BytesIO()  # a disk that is full breaks matplotlib's writers in ways of their own
            figure.savefig(drawn, format=extension, dpi=DPI, metadata=unsaid.get(extension))
            with write_durably(path) as temporary:
                temporary.write_bytes(drawn.getvalue())
            written.append(path)
    return tuple(written)


#: of scripts that lay pages out for narrow windows: words in lines of so many letters, as plotly takes them
BROKEN = r"""
const broken = (words, letters) =>
  words.match(new RegExp(`.{1,${letters}}(?= |$)|\\S+`, "g")).map((line) => line.trim()).join("<br>");
"""

# the gutter: plotly measures the width before a bar to scroll with takes some of it
_PAGE = "<style>html { scrollbar-gutter: stable; } body { margin: 0; font-family: system-ui, sans-serif; }</style>\n"


def as_page(figure: Any, name: str, narrow: str = "") -> str:
    """A plotly figure, or what is in one, as a page with plotly.js inside, the same text for the same figure.

    Args:
        narrow: a script that lays it out for a narrow window, run once it is drawn.
    """
    from plotly.io import to_html

    # a fixed name in place of a random one keeps the page the same
    html: str = to_html(
        figure,
        include_plotlyjs=True,
        full_html=True,
        div_id=name,
        default_height="92vh",
        config={"displaylogo": False, "responsive": True},
        post_script=narrow or None,
        validate=False,
    )
    text = figure["layout"]["title"]["text"]  # escaped already, with a line of remarks
    title = text.partition("<br>")[0]
    head = f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n{_PAGE}'
    # of the first tags alone: plotly.js says such words, too
    return html.replace("<html>", '<html lang="en">', 1).replace("</head>", f"{head}</head>", 1)


def apart(page: str) -> tuple[str, str, bytes]:
    """A page that takes plotly.js from a file beside it, that file's name, and what is in it; a page without it as it
    is, with nothing beside it.

    >>> apart("<p>words</p>")
    ('<p>words</p>', '', b'')
    """
    if "Plotly.newPlot" not in page:
        return page, "", b""
    from plotly.offline import get_plotlyjs, get_plotlyjs_version

    library, name = str(get_plotlyjs()), f"plotly-{get_plotlyjs_version()}.min.js"
    before, found, after = page.partition(library)
    begin = "<script>"
    if not found or not before.endswith(begin):
        return page, "", b""
    return f'{before.removesuffix(begin)}<script src="{name}">{after}', name, library.encode()


def laid_out(traces: list[Any], layout: Mapping[str, Any]) -> dict[str, Any]:
    """What is in a plotly figure of these traces, on white paper: plotly itself takes ten times as long, of which most
    goes into copies of its template. Nobody looks whether the words of ``layout`` are plotly's; a test does.
    """
    from plotly.graph_objects import Figure

    # a template of nothing, or plotly takes its default one
    drawn: dict[str, Any] = Figure(traces, {"template": {"layout": {"font": {"size": 12}}}}).to_dict()
    return {**drawn, "layout": {"template": _white_paper(), **layout}}


@cache
def _white_paper() -> dict[str, Any]:
    from plotly.io import templates

    white: dict[str, Any] = templates["plotly_white"].to_plotly_json()
    return white


def heading(title: str, remark: str) -> dict[str, str]:
    """A page's title with its remark below, as plotly takes it."""
    return {"text": f"{title}<br><sup>{remark}</sup>"}


def unbroken(words: str) -> str:
    """Words as they stand in a page, where no line ends inside an option or a number.

    >>> unbroken("p < 1e-05 with --draws")
    'p &lt; <span style="white-space:nowrap">1e-05</span> with <span style="white-space:nowrap">--draws</span>'
    """
    whole = r'<span style="white-space:nowrap">\g<0></span>'
    return re.sub(r"(?<![\w-])--\w[\w-]*|[\d.]+e-\d+", whole, escape(words))


def markup(words: str) -> str:
    """What matplotlib writes as mathematics, in a page's words."""
    return words.replace("$L_2$", "L<sub>2</sub>")


def shortened(label: str, length: int) -> str:
    """``label``, or its start and end where it is longer than ``length`` characters; its dollars are no mathematics.

    >>> shortened("runs/cifar/ima-long-name@40/client-17", 21)
    'runs/cifa…0/client-17'
    """
    if len(label) > length:
        tail = length * 11 // 21
        label = f"{label[: length - tail - 1]}…{label[-tail:]}"
    return literal(label)


def literal(label: str) -> str:
    """``label`` as matplotlib writes it, whose dollars it takes for mathematics.

    >>> literal("lr$0.1$")
    'lr\\\\$0.1\\\\$'
    """
    return re.sub(r"(?<!\\)\$", r"\\$", label)


def measured_on(attrs: Mapping[str, Any]) -> str:
    """The data of a result in a few words; of a file or folder its name, not where it lay.

    >>> measured_on({"data": "npz:/home/me/cifar10.npz", "split": "test", "samples": 2000})
    'cifar10 test, 2,000 samples'
    >>> measured_on({"data": "digits", "split": "train", "samples": 29, "client": 3})
    "digits train, client 3's 29 samples"
    """
    kind, colon, place = str(attrs["data"]).partition(":")
    name = Path(place).stem if colon else kind
    whose = f"client {attrs['client']}'s " if "client" in attrs else ""
    return f"{name} {attrs.get('split', '')}, {whose}{attrs.get('samples', 0):,} samples{accepted(attrs)}"


def accepted(attrs: Mapping[str, Any]) -> str:
    """What a caption says of data that were accepted though a recorded run says other ones; nothing of others.

    >>> accepted({"data_accepted": "ima: ..."}), accepted({})
    (' (accepted: unlike what was recorded)', '')
    """
    return " (accepted: unlike what was recorded)" if attrs.get("data_accepted") else ""


def statistics_of(attrs: Mapping[str, Any], policy: str) -> str:
    """Which normalization statistics the models of a result have, in a few words; nothing where they have none.

    >>> statistics_of({"calibration_samples": 2000, "calibration_split": "train"}, "re-estimate")
    'normalization statistics re-estimated on 2,000 train samples'
    >>> statistics_of({"statistics_of": "ima@20/global"}, "keep"), statistics_of({}, "interpolate")
    ('normalization statistics of ima@20/global', 'normalization statistics interpolated')
    """
    if policy == "averaged":
        return "normalization statistics averaged as the weights are"
    if policy == "re-estimate":
        split = f"{attrs['calibration_split']} " if "calibration_split" in attrs else ""
        return f"normalization statistics re-estimated on {attrs.get('calibration_samples', 0):,} {split}samples"
    if policy == "keep":
        return f"normalization statistics of {shortened(str(attrs.get('statistics_of', 'one model')), 40)}"
    return "normalization statistics interpolated" if policy == "interpolate" else ""
