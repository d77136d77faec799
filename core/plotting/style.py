"""The look of every figure and page of the package, and files that come out the same byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints import write_durably
from ..checkpoints.io.errors import count_of, list_few
from ..checkpoints.io.safe_write import explain_unwritten
from ..checkpoints.io.visible_text import visible
from ..results.pictures import picture_of, quiet
from .user_style import FONT
from .user_style import SIZE as SIZE
from .user_style import current as current

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Width of a column of the usual two-column paper, in inches.
COLUMN = 3.5

#: Okabe and Ito's colours, told apart by people with any colour vision; the darkest and clearest first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
#: of more lines of one colour, as of a run's rounds
MORE_DASHES: tuple[Any, ...] = (*DASHES, (0, (9, 2.5)), (0, (1.2, 3.5)), (0, (5, 1.5, 1.2, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "D", "P", "v", "*")
GREY = "#6b6b6b"

#: Lightness falls and saturation stays, so that it reads in grey and for the colour-blind.
SURFACE = "viridis"

SMALL = 7.0
CHARACTER = 0.058  # the mean width of a small one, in inches
DPI = 300


@contextmanager
def paper_style(width: float = COLUMN) -> Iterator[None]:
    """Matplotlib's settings for a figure in a paper: 8 pt type, thin lines, fonts embedded as TrueType.

    The user's own settings are left alone and do not matter, unless :func:`~fedscope.style` takes them.

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
        "font.family": FONT,
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
    with quiet(), matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        own: Any = matplotlib.rcParams
        own.update(current().laid_out())
        yield


def look_of(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th line; those of few lines are told apart also without colour.

    >>> look_of(8)["color"] == COLOURS[1]
    True
    """
    colours = current().palette or COLOURS
    return {"color": colours[i % len(colours)], "linestyle": DASHES[i % len(DASHES)]}


def run_look(i: int, k: int | None = None, **look: Any) -> dict[str, Any]:
    """Colour of the i-th run, and dashes and marker of its k-th line, the i-th where it has one; ``look`` is added.

    >>> run_look(1, linestyle="-")
    {'color': '#D55E00', 'linestyle': '-', 'marker': 's'}
    """
    k = i if k is None else k
    return {**look_of(i), "linestyle": DASHES[k % len(DASHES)], "marker": MARKERS[k % len(MARKERS)], **look}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, of no window system and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from .paper_figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


@explain_unwritten()
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
    dpi = current().settings.get("savefig.dpi", DPI)
    with paper_style(figure.get_figwidth()):
        for extension in formats:
            path = Path(f"{base}.{extension}")
            path.parent.mkdir(parents=True, exist_ok=True)
            # a disk that is full breaks matplotlib's writers in ways of their own
            drawn = picture_of(figure, extension, dpi=dpi, metadata=unsaid.get(extension))
            with write_durably(path) as temporary:
                temporary.write_bytes(drawn)
            written.append(path)
    return tuple(written)


def plotly_contents(traces: list[Any], layout: Mapping[str, Any]) -> dict[str, Any]:
    """Make the contents of a plotly figure of these traces, on white paper: plotly itself takes ten times as long, of
    which most goes into copies of its template. Nobody looks whether the words of ``layout`` are plotly's; a test does.

    Of the user's style it has the font. Sizes and widths are those of print: a page fits a window.
    """
    from plotly.graph_objects import Figure

    # a template of nothing, or plotly takes its default one
    drawn: dict[str, Any] = Figure(traces, {"template": {"layout": {"font": {"size": 12}}}}).to_dict()
    family = ", ".join(one.replace('"', "") for one in current().family)
    font = {"font": {"family": f"{family}, sans-serif"}} if family else {}
    return {**drawn, "layout": {"template": _white_paper(), **font, **layout}}


@cache
def _white_paper() -> dict[str, Any]:
    from plotly.io import templates

    white: dict[str, Any] = templates["plotly_white"].to_plotly_json()
    return white


def clip_label(label: str, length: int) -> str:
    """``label``, or its start and end where it is longer than ``length`` characters.

    >>> clip_label("runs/cifar/ima-long-name@40/client-17", 21)
    'runs/cifa…0/client-17'
    """
    label = visible(label)
    if len(label) > length:
        tail = length * 11 // 21
        label = f"{label[: max(length - tail - 1, 0)]}…{label[len(label) - tail :]}"
    return label


def shorten_label(label: str, length: int) -> str:
    """Clip a label for matplotlib: see :func:`literal`."""
    return literal(clip_label(label, length))


def literal(label: str) -> str:
    """``label`` such that matplotlib writes just that: it takes dollars for mathematics, leaves a legend's entry out
    whose label begins with _, and breaks lines at control characters.

    >>> literal("lr$0.1$"), literal("_a") == "\N{ZERO WIDTH NON-JOINER}_a"
    ('lr\\\\$0.1\\\\$', True)
    """
    label = re.sub(r"(?<!\\)\$", r"\\$", visible(label))
    return f"\N{ZERO WIDTH NON-JOINER}{label}" if label.startswith("_") else label


def word_of(attrs: Mapping[str, Any], name: str, default: str = "") -> str:
    """Describe one attribute of a result in a few words, such as its ``split``, for matplotlib.

    >>> word_of({"split": "test"}, "split"), word_of({}, "split")
    ('test', '')
    """
    return shorten_label(str(attrs.get(name, default)).strip(), 60)


def describe_data(attrs: Mapping[str, Any]) -> str:
    """Describe the data of a result in a few words; of a file or folder its name, not where it lay.

    >>> describe_data({"data": "npz:/home/me/cifar10.npz", "split": "test", "samples": 2000})
    'cifar10 test, 2,000 samples'
    >>> describe_data({"data": "digits", "split": "train", "samples": 29, "client": 3})
    "digits train, client 3's 29 samples"
    """
    kind, colon, place = str(attrs["data"]).partition(":")
    name = shorten_label(Path(place).stem if colon else kind, 60)
    whose = f"client {attrs['client']}'s " if "client" in attrs else ""
    return f"{name} {word_of(attrs, 'split')}, {whose}{attrs.get('samples', 0):,} samples{describe_accepted(attrs)}"


def describe_accepted(attrs: Mapping[str, Any]) -> str:
    """Describe data for a caption that were accepted though a recorded run says other ones; nothing of others.

    >>> describe_accepted({"data_accepted": "ima: ..."}), describe_accepted({})
    (' (accepted: unlike what was recorded)', '')
    """
    return " (accepted: unlike what was recorded)" if attrs.get("data_accepted") else ""


def describe_statistics(attrs: Mapping[str, Any], policy: str) -> str:
    """Describe the normalization statistics of a result's models in a few words; nothing where they have none.

    >>> describe_statistics({"calibration_samples": 2000, "calibration_split": "train"}, "re-estimate")
    'normalization statistics re-estimated on 2,000 train samples'
    >>> describe_statistics({"statistics_of": "ima@20/global"}, "keep"), describe_statistics({}, "interpolate")
    ('normalization statistics of ima@20/global', 'normalization statistics interpolated')
    >>> describe_statistics({"cut_variances": 2}, "interpolate")
    'normalization statistics interpolated (variances cut at 0 at 2 points beyond the ends)'
    >>> describe_statistics({"other_buffers": ["0.weight_u", "0.weight_v"]}, "none")
    'buffers 0.weight_u, 0.weight_v interpolated'
    """
    others = _describe_buffers(attrs)
    if policy == "keep" and others and "statistics_of" not in attrs:  # a module without such statistics
        return others
    return "; ".join(filter(None, (others, _describe_policy(attrs, policy))))


def _describe_buffers(attrs: Mapping[str, Any]) -> str:
    """Describe buffers that are no such statistics and differ between the models."""
    names = [str(name) for name in attrs.get("other_buffers", ())]
    if not names:
        return ""
    of = f"of {shorten_label(str(attrs['other_buffers_of']), 40)}" if "other_buffers_of" in attrs else "interpolated"
    return f"{'buffers' if len(names) > 1 else 'buffer'} {list_few(names, 3)} {of}"


def _describe_policy(attrs: Mapping[str, Any], policy: str) -> str:
    if policy == "averaged":
        return "normalization statistics averaged as the weights are"
    if policy == "re-estimate":
        split = f"{word_of(attrs, 'calibration_split')} " if "calibration_split" in attrs else ""
        return f"normalization statistics re-estimated on {attrs.get('calibration_samples', 0):,} {split}samples"
    if policy == "keep":
        return f"normalization statistics of {shorten_label(str(attrs.get('statistics_of', 'one model')), 40)}"
    if policy != "interpolate":
        return ""
    words, cut = "normalization statistics interpolated", int(attrs.get("cut_variances", 0))
    return f"{words} (variances cut at 0 at {count_of(cut, 'point')} beyond the ends)" if cut else words


def describe_errors(sentence: str, over: str) -> str:
    """Say what the ± of a sentence is, to stand behind it; nothing where it has none.

    >>> describe_errors("barrier 0.4 ± 0.1", "samples"), describe_errors("barrier 0.4", "samples")
    ('; ± one standard error over samples', '')
    """
    return f"; ± one standard error over {over}" if " ± " in sentence else ""


def describe_alignment(attrs: Mapping[str, Any], first: str) -> str:
    """Describe the order into which the units of a result's models were brought before; nothing where they stay.

    Args:
        first: the model whose order that is; in a figure shortened.

    >>> describe_alignment({"align": "weights"}, "ima@20"), describe_alignment({}, "ima@20")
    ("units in the order of ima@20's, matched by weights", '')
    """
    by = attrs.get("align")
    return f"units in the order of {first}'s, matched by {by}" if by else ""
