"""``fedscope explain``."""

from __future__ import annotations

from pathlib import Path

import click

from ...analysis.settings import EvaluationConfig
from ..option_types import Count
from ..options import (
    Output,
    base_of,
    measured_settings,
    output_options,
    refuse_given,
    rounds_option,
    source_options,
    statistics_option,
)


@click.command("explain", epilog="Example:  fedscope explain runs/ima --rounds 1,5,20,40,last --draws local:4")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option("about ten rounds with recorded clients, more of them early", "Which rounds, or all.")
@click.option(
    "--early",
    type=Count(1),
    metavar="R",
    help="Last round of early training.  [default: a tenth of the rounds, at least 5 and at most a third]",
)
@click.option(
    "--draws",
    metavar="local:R|rounds:R|runs|none",
    help="Source of the R draws of the cohort, as for decompose; a verdict needs R = 3 or more independent draws.  "
    "[default: local:4; none for a run that another program trained]",
)
@statistics_option
@source_options("train", files=True, code=True)
@output_options
def command(
    runs: tuple[Path, ...],
    rounds: str | None,
    early: int | None,
    draws: str | None,
    normalization: str,
    source: EvaluationConfig,
    output: Output,
) -> None:
    """Explain on one page what makes up the loss of the averaged model in each phase, and what the data cannot decide.

    The page is printed and written as .md and .html, next to the decomposition's own files and figure.
    """
    from ...decomposition.explanation.analysis import explain
    from ...plotting.style import save_figure
    from ..run_analysis import obtain, readable, say_again, tell, told_though_undrawn, with_labels, write_page

    if output.redraw:
        refuse_given(["early"], "judges again, which --redraw does not; leave out one of the two")
    asked = explain.prepare(
        runs, rounds=rounds, early=early, draws=draws, normalization=normalization, **measured_settings(source)
    )
    base = base_of(output.out, asked.folder / asked.name)
    again: list[str] = []
    page = obtain(asked, base, output, again=again)
    formats = output.formats if "png" in output.formats else (*output.formats, "png")  # the page shows that one
    tables = [Path(f"{base}.{kind}") for kind in ("explain.json", "factors.csv", "clients.csv", "factors.json")]
    with readable(Path(f"{base}.factors.json")):
        page = with_labels(page, output)
        with told_though_undrawn(page, tables, output):
            figure = page.figure(output.width, output.title)
        drawn = save_figure(figure, base, formats)
        picture = next(path for path in drawn if path.suffix == ".png")
        pages = [write_page(Path(f"{base}.html"), page.as_html(picture.read_bytes())), *page.derive(base)]
    say_again(again)
    tell(page, [*pages, *tables, *drawn], output)
