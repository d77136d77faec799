"""``fedscope report``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ...checkpoints import FedscopeError
from ..option_types import Count, HomePath, InFolder, OwnCodeType, ResultPath, Words
from ..options import accept_data_option, base_of, colour_scale_option, refuse_given, standardise_option, style_option
from ..printing import say, say_json


@click.command("report", epilog="Example:  fedscope report runs/ima --out reports/ima")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=ResultPath(), metavar="BASE", help="Write BASE.html (default: RUN/figures/report).")
@click.option("--title", type=Words(), metavar="TEXT", help="The page's heading (default: the runs' names).")
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=Words(),
    metavar="NAME",
    help="What a run is called on the page, in their order, or OLD=NEW; repeatable.",
)
@click.option(
    "--results",
    multiple=True,
    type=HomePath(),
    metavar="FOLDER",
    help="Also show the results in this folder (of other commands' --out); repeatable.",
)
@click.option("--compute", is_flag=True, help="First compute the results that are missing; says how long that takes.")
@click.option(
    "--limit",
    type=Count(1),
    metavar="N",
    help="With --compute: measure on a seeded, stratified subset of N samples. The figures say so.",
)
@click.option(
    "--data",
    type=OwnCodeType(),
    metavar="NAME",
    help="With --compute: data to measure on, where a run names code of your own.",
)
@click.option(
    "--model",
    type=OwnCodeType(),
    metavar="NAME",
    help="With --compute: the architecture, where a run names code of your own.",
)
@standardise_option
@accept_data_option
@colour_scale_option
@style_option
@click.option("--force", is_flag=True, help="Replace an existing file that is not a report.")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(
    runs: tuple[Path, ...],
    out: Path | InFolder | None,
    title: str | None,
    labels: tuple[str, ...],
    results: tuple[Path, ...],
    compute: bool,
    limit: int | None,
    colour_scale: str,
    force: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Write one HTML page on runs that a co-author can open: whether the runs are sound, and all their results.

    The page shows the results in RUN/figures and lists those that are missing; --compute computes them. It needs no
    network and no other file.
    """
    from ...analysis.runs import run_at
    from ...reporting.report import refuse_other_file
    from ...reporting.report import report as make
    from ..progress import progress
    from ..run_analysis import refuse_linked_figures, refuse_unwritable

    path = Path(f"{base_of(out, Path(runs[0]) / 'figures' / 'report')}.html")
    refuse_linked_figures(path.parent, out)
    refuse_other_file(path, force)
    for run in runs:  # before it is said that nothing can be written into what is no run
        run_at(run, "")
    refuse_unwritable(path)
    asked = {
        name: value for name, value in given.items() if value is not None and (name, value) != ("accept_data", False)
    }
    if compute:
        for run in runs:
            _answer_all(run, results, limit, asked)
    elif limit is not None:
        raise FedscopeError(f"--limit {limit} limits what --compute measures; add --compute, or leave --limit out")
    else:
        refuse_given(tuple(given), "is for what --compute measures; add --compute, or leave it out")
    with progress("report") as told:
        made = make(
            list(runs),
            labels=labels or None,
            title=title,
            results=results,
            colour_scale=colour_scale,
            progress=lambda what, done, of: told(done, of),
        )
    made.save(path, force=force)
    if as_json:
        said = {"results": made.results, "faults": made.faults, "broken": dict(made.broken), "files": [str(path)]}
        say_json(said)
        return
    shown = "1 result" if made.results == 1 else f"{made.results} results"
    say(f"{path}: {shown}{'' if made.broken else ', sound'}")
    for name, why in made.broken.items():
        say(f"  {name} is not sound: {why.removeprefix('No: ')}")


def _answer_all(path: Path, results: Sequence[Path], limit: int | None, given: Mapping[str, Any]) -> None:
    """Compute the results that a report shows into a run's folder; what cannot be asked is said, and the others go
    on."""
    from ...analysis.named_code import NamedCodeError
    from ...analysis.runs import open_run
    from ...reporting.compute_missing import compute_missing
    from ...reporting.missing_results import MissingResult
    from ..options import Output
    from ..run_analysis import obtain, refuse_unwritable

    def answer(one: MissingResult) -> None:
        try:
            refuse_unwritable(one.question.folder / one.question.name, "copy the run to a folder of your own")
            obtain(one.question, one.question.folder / one.question.name, Output(None, force=False, as_json=False))
        except NamedCodeError as error:
            say(f"fedscope: not answered: {error.as_command(shlex.split(one.words))}", err=True)
        except FedscopeError as error:
            say(f"fedscope: not answered: {error}", err=True)

    def warn(what: str, why: str) -> None:
        say(f"fedscope: {what}: {why}", err=True)

    compute_missing(open_run(path, ""), results, limit, given, answer, lambda line: say(line, err=True), warn)
