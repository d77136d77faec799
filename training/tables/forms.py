"""A table as text, Markdown, CSV, LaTeX or Typst."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.visible_text import in_markdown, visible
from ...command_line import answering
from ...plotting.printed import printed_setting, printed_words
from ...results.csv_cells import cell as csv_cell
from ..curves.measures import measure_of
from ..curves.run_curve import MOST_LAST, WINDOW
from .row_labels import printed_row
from .seed_notes import words_over_seeds

if TYPE_CHECKING:
    from .comparison import Cell, Comparison

_TEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "#$%&_{}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}"},
    # at the start of a row these are an argument of the line's end before it
    **{sign: f"{{{sign}}}" for sign in "[]*"},
}
LAST_ONE = "each run's last measured round"
#: pairs below which Student's t is so great that a remark says what it means
_FEW = 5
_TYPST = {sign: f"\\{sign}" for sign in "\\#$*_@<>[]`~"}


def format_table(table: Comparison, form: str) -> str:
    """Write the table in a form.

    Raises:
        FedscopeError: an unknown form.
    """
    refuse_unknown(form)
    return FORMS[form.lower()](table)


def refuse_unknown(form: str) -> None:
    """Raises as :func:`format_table`."""
    if not isinstance(form, str) or form.lower() not in FORMS:
        option = "--format" if answering.get() else "form ="
        raise FedscopeError(
            f"{option} {form!r} is not known{nearest(str(form).lower(), FORMS)}; give {', '.join(FORMS)}"
        )


def _text(table: Comparison) -> str:
    head, body = _grid(table, bold=lambda words: f"{words}*", sign=" ± ")
    lines = _align_columns([head, *body])
    said = [*lines, "", _caption(table)]
    said += _differences(table)
    return "\n".join([*said, *(f"note: {visible(note)}" for note in table.notes)])


def _markdown(table: Comparison) -> str:
    head, body = _grid(table, bold=lambda words: f"**{words}**", sign=" ± ", escape=in_markdown)
    lines = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]
    return "\n".join([*lines, "", _caption(table), *(f"\nNote: {in_markdown(note)}." for note in table.notes)])


def _csv(table: Comparison) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ("row", "column", "measure", "mean", "deviation", "seeds", "rounds", "difference", "low", "high", "p", "pairs")
    )
    for cell in table.cells:
        found = table.difference(cell)
        against = (found.mean, found.low, found.high, found.p, found.seeds) if found else (np.nan,) * 5
        if np.isnan(against[0]):  # of no pairs that are known
            against = (*against[:4], np.nan)
        numbers = [cell.mean, cell.deviation, len(cell.values), cell.round, *against]
        said = ["" if isinstance(value, float) and np.isnan(value) else repr(value) for value in numbers]
        writer.writerow((*(csv_cell(visible(word)) for word in (cell.row, cell.column, cell.measure)), *said))
    return out.getvalue().rstrip("\n")


def _latex(table: Comparison) -> str:
    def bold(words: str) -> str:
        return rf"\mathbf{{{words}}}"

    head, body = _grid(
        table, bold=bold, sign=r" \pm ", escape=in_latex, wrap=lambda words: f"${words}$", number=_number_in_latex
    )
    lines = [
        "% \\usepackage{booktabs}",
        f"% {_caption(table)}",
        *(f"% note: {visible(note)}" for note in table.notes),
        rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
        r"\toprule",
        " & ".join(head) + r" \\",
        r"\midrule",
        *(" & ".join(line) + r" \\" for line in body),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def _typst(table: Comparison) -> str:
    def bold(words: str) -> str:
        return f"$bold({words[1:-1]})$" if words.startswith("$") else f"*{words}*"

    head, body = _grid(table, bold=bold, sign=" ± ", escape=in_typst, number=_number_in_typst)
    lines = [
        f"// {_caption(table)}",
        *(f"// note: {visible(note)}" for note in table.notes),
        "#table(",
        f"  columns: {len(head)},",
        f"  align: (left, {', '.join(['right'] * (len(head) - 1))},),",
        "  stroke: none,",
        "  table.hline(),",
        f"  table.header({', '.join(f'[{word}]' for word in head)}),",
        "  table.hline(stroke: 0.5pt),",
        *(f"  {', '.join(f'[{word}]' for word in line)}," for line in body),
        "  table.hline(),",
        ")",
    ]
    return "\n".join(lines)


FORMS: dict[str, Callable[[Comparison], str]] = {
    "text": _text,
    "markdown": _markdown,
    "csv": _csv,
    "latex": _latex,
    "typst": _typst,
}


def in_latex(word: str) -> str:
    r"""A word of a file in LaTeX, where it is that word and no more.

    >>> in_latex("50% & [a]")
    '50\\% \\& {[}a{]}'
    """
    return "".join(_TEX.get(sign, sign) for sign in visible(word))


def in_typst(word: str) -> str:
    r"""Write the same in Typst, where also slashes may begin a comment, and a sign or a number a list.

    >>> in_typst("http://a #b"), in_typst("- 1"), in_typst("1. a")
    ('http:\\/\\/a \\#b', '\\- 1', '1\\. a')
    """
    text = "".join(_TYPST.get(sign, sign) for sign in visible(word))
    text = re.sub(r"/(?=[/*])|(?<=/)/|-(?=-|\?)|(?<=-)-", r"\\\g<0>", text)
    return re.sub(r"^(\s*)([-+=/])|^(\s*\d+)\.", lambda found: _escape_match(found), text)


def _escape_match(found: re.Match[str]) -> str:
    return f"{found[3]}\\." if found[3] else f"{found[1]}\\{found[2]}"


def _grid(
    table: Comparison,
    *,
    bold: Callable[[str], str],
    sign: str,
    escape: Callable[[str], str] = visible,
    wrap: Callable[[str], str] = str,
    number: Callable[[str], str] = str,
) -> tuple[list[str], list[list[str]]]:
    """Return the head and the lines, each with the row's name first."""
    rows = table.attrs.get("rows", ["row"])
    # both words of a method's name are one name to a reader
    named = [key for key in rows if key != "average.method" or "method" not in rows]
    head = [escape(" / ".join(map(printed_setting, named)))]
    for column, measure in table.columns_named:
        shown = printed_words(column, table.attrs.get("columns", ()))
        label = _label(table, measure) if _has_several(table) or not column else ""
        head.append(escape(", ".join(part for part in (shown, label) if part)))
        if table.target is not None and measure_of(measure).is_reachable:
            head.append(escape(f"rounds to {100 * table.target:g} %"))
            head += [escape(f"{printed_row(table, table.baseline)}'s over these")] if table.baseline else []
    body = []
    for row in table.rows_named:
        line = [escape(printed_row(table, row))]
        for column, measure in table.columns_named:
            cell = table.cell(row, column, measure)
            best = row in table.best(column, measure)
            line.append("" if cell is None else wrap(_number(cell, sign, bold, number, best=best)))
            if table.target is not None and measure_of(measure).is_reachable:
                both = ["", ""] if cell is None else _rounds(table, cell, wrap)
                line += both if table.baseline else both[:1]
        body.append(line)
    return head, body


def _has_several(table: Comparison) -> bool:
    """Whether columns hold more than one measure, so that each must say its own."""
    return len({measure for _, measure in table.columns_named}) > 1


def _label(table: Comparison, measure: str) -> str:
    """What a measure is called above its column, with its unit."""
    return measure_of(measure).label_in(table.attrs.get("tasks", ()))


def _number_in_latex(text: str) -> str:
    r"""A number as LaTeX's mathematics has it.

    >>> _number_in_latex("4.134e+05"), _number_in_latex("1e-07"), _number_in_latex("-inf"), _number_in_latex("0.88")
    ('4.134 \\times 10^{5}', '1 \\times 10^{-7}', '-\\infty', '0.88')
    """
    digits, power, exponent = text.partition("e")
    return rf"{digits} \times 10^{{{int(exponent)}}}" if power else text.replace("inf", r"\infty")


def _number_in_typst(text: str) -> str:
    """Write the same in Typst, whose mathematics stands between dollar signs.

    >>> _number_in_typst("4.134e+05"), _number_in_typst("1e-07"), _number_in_typst("-inf"), _number_in_typst("0.88")
    ('$4.134 times 10^5$', '$1 times 10^(-7)$', '$-infinity$', '0.88')
    """
    digits, power, exponent = text.partition("e")
    if not power:
        return f"${text.replace('inf', 'infinity')}$" if "inf" in text else text
    return f"${digits} times 10^{int(exponent) if exponent[0] == '+' else f'({int(exponent)})'}$"


def _number(
    cell: Cell, sign: str, bold: Callable[[str], str], number: Callable[[str], str] = str, *, best: bool
) -> str:
    """``62.3 ± 0.4``; of a share in per cent.

    Args:
        number: how the form writes one, where not as Python does.
    """
    share = measure_of(cell.measure).is_share
    digits, scale = (".2f", 100) if share else (_digits(cell.mean), 1)
    if np.isnan(cell.mean):
        return "-"
    mean = number(f"{scale * cell.mean:{digits}}")
    spread = "" if np.isnan(cell.deviation) else f"{sign}{number(f'{scale * cell.deviation:{digits}}')}"
    return (bold(mean) if best else mean) + spread


def _digits(mean: float) -> str:
    """Four digits of a mean, and as many decimals of its deviation, so that both can be compared.

    >>> f"{1.192:{_digits(1.192)}} ± {0.009448:{_digits(1.192)}}", f"{31240.0:{_digits(31240.0)}}"
    ('1.192 ± 0.009', '3.124e+04')
    """
    size = 0 if mean == 0 or not np.isfinite(mean) else int(np.floor(np.log10(abs(mean))))
    return f".{3 - size}f" if -3 <= size <= 3 else ".4g"


def _rounds(table: Comparison, cell: Cell, wrap: Callable[[str], str]) -> list[str]:
    """Return the round with the target, and the baseline's over it; nothing where no seed has the measure."""
    if np.isnan(list(cell.values.values())).all():
        return ["-", ""]
    there = [round for round in cell.reached.values() if round is not None]
    if len(there) < len(cell.reached):
        some = f"never in {len(cell.reached) - len(there)} of {len(cell.reached)} seeds" if there else "never"
        return [some, ""]
    ratio = table.ratio(cell)
    return [wrap(f"{cell.round:g}"), "" if np.isnan(ratio) else wrap(f"{ratio:.2f}")]


def _caption(table: Comparison) -> str:
    """Describe the numbers."""
    measures = " and ".join(dict.fromkeys(measure_of(measure).words for _, measure in table.columns_named))
    unit = " in %" if all(measure_of(measure).is_share for _, measure in table.columns_named) else ""
    tail = _window(table)
    marked = any(table.best(*place) for place in table.columns_named)
    return f"{measures}{unit}, {words_over_seeds(table.cells)} {tail}" + (
        "; the best of a column is marked" if marked else ""
    )


def _window(table: Comparison) -> str:
    """Over which rounds of a run its number is a mean."""
    if table.last is not None:
        return f"the mean over each run's last {table.last} measured rounds" if table.last > 1 else LAST_ONE
    told = table.attrs.get("windows")
    windows = [one for one in told if isinstance(one, int)] if isinstance(told, list) else []
    least, most = (windows[0], windows[-1]) if windows else (1, MOST_LAST)
    if least < most:
        return f"the mean over the last tenth of each run's measured rounds ({least} to {most} of them)"
    return f"the mean over each run's last {most} measured rounds ({WINDOW})" if most > 1 else LAST_ONE


def _differences(table: Comparison) -> list[str]:
    """A line a cell: its difference to the baseline, named as the cell is by its row and the head of its column, with
    the number of seeds where the cell or the baseline has more than both have."""
    lines, pairs = list[str](), list[int]()
    for cell in table.cells:
        found = table.difference(cell)
        if found is None or found.seeds < 2 or not np.isfinite(found.mean):
            continue
        share = measure_of(cell.measure).is_share
        scale, digits = (100, ".2f") if share else (1, ".3g")
        column = printed_words(cell.column, table.attrs.get("columns", ()))
        label = _label(table, cell.measure) if _has_several(table) else ""
        place = visible(", ".join(part for part in (printed_row(table, cell.row), column, label) if part))
        p = "all differences alike" if np.isnan(found.p) else f"p = {found.p:.2g}"
        other = table.cell(table.baseline, cell.column, cell.measure)
        most = max(len(one.values) for one in (cell, other) if one is not None)
        over = f", over {found.seeds} seeds" if found.seeds < most else ""
        pairs.append(found.seeds)
        lines.append(
            f"  {place}: {scale * found.mean:+{digits}} "
            f"({scale * found.low:+{digits}} to {scale * found.high:+{digits}}), {p}{over}"
        )
    if not lines:
        return []
    few = ""
    if min(pairs) < _FEW:
        seeds = "so few" if max(pairs) < _FEW else f"fewer than {_FEW}"
        few = f"; with {seeds} seeds only differences far greater than their deviation show"
    baseline = visible(printed_row(table, table.baseline))
    return [f"against {baseline}, paired over seeds, 95 % interval and Student's t{few}:", *lines]


def _align_columns(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(word.ljust(widths[0]) if i == 0 else word.rjust(widths[i]) for i, word in enumerate(line)).rstrip()
        for line in lines
    ]
