"""``fedscope table``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..option_types import Count, InFolder, ResultPath, Share, Words
from ..options import base_of, format_option, style_option
from ..printing import say, say_json, say_lines


@click.command(
    "table",
    epilog="Example:  fedscope table sweeps/method-participation    "
    "For a paper:  fedscope table sweeps/method-participation --format latex    "
    "The best of a grid:  fedscope table sweeps/method-mu --best-of client.mu    "
    "Rounds to 60 %, against FMA:  fedscope table runs/fma runs/ima --target 0.6    "
    "Other names:  fedscope table runs/fma runs/ima --label fma=FedAvg --label ima=ours",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rows", multiple=True, metavar="KEY", help="A setting, such as method; repeatable.  [default: the method]"
)
@click.option(
    "--columns", multiple=True, metavar="KEY", help="The same for columns.  [default: all other settings that differ]"
)
@click.option(
    "--measure", "measures", multiple=True, metavar="COLUMN", help="A column of metrics.csv, or its error as accuracy."
)
@click.option(
    "--best-of",
    "best_of",
    multiple=True,
    metavar="KEY",
    help="Take the best value of this setting in each cell, as client.mu; repeatable.",
)
@click.option(
    "--of", default="deployed", metavar="MODEL", help="Which model: deployed, global, averaged, or both side by side."
)
@click.option(
    "--last",
    type=Count(1),
    help="Take the mean over this many last measured rounds.  [default: a tenth of each run's, 10 at most]",
)
@click.option(
    "--target",
    type=Share(),
    metavar="ACCURACY",
    help="0.8: show the first round with 80 %, and its ratio to the baseline's.",
)
@click.option("--baseline", metavar="ROW", help="The row to compare the others with.  [default: fma]")
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=Words(),
    metavar="NAME",
    help="What a row is called in the table and its figure, in their order, or OLD=NEW; repeatable.",
)
@click.option("--format", "form", default="text", metavar="FORM", help="Format: text, markdown, csv, latex or typst.")
@style_option
@format_option("--figure-format")
@click.option("--commands", is_flag=True, help="Print instead the commands that train the runs of each row.")
@click.option("--out", type=ResultPath(), help="Write the numbers to BASE.*, and draw them against a setting.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(
    runs: tuple[Path, ...],
    form: str,
    formats: tuple[str, ...],
    labels: tuple[str, ...],
    commands: bool,
    out: Path | InFolder | None,
    force: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Compare runs in a table: mean ± deviation over seeds, and the difference to a baseline.

    RUNS are runs and sweeps. Runs that differ only in their seed share one cell. The difference is paired over seeds.
    """
    from ...training import table
    from ...training.tables.forms import refuse_unknown

    refuse_unknown(form)
    form = form.lower()
    found = table(runs, labels=labels or None, **settings)
    written = _write_files(found, base_of(out, Path("table")), formats, force) if out is not None else []
    if as_json:
        from ...results import plain

        say_json({**plain(found.findings()), "files": [str(path) for path in written]})
        return
    if commands:
        for row, own in found.commands.items():
            say(f"# {row}")
            for text in own:
                say(text)
        return
    say_lines(found.text(form))
    for path in written:
        say(f"  {path}")


def _write_files(found: Any, base: Path, formats: Sequence[str], force: bool) -> list[Path]:
    """Return the table's files, and its figure where there is one to draw; files keep the names of settings, for labels
    are how they are shown."""
    from ...checkpoints import FedscopeError
    from ...plotting.style import save_figure
    from ...training.tables.row_labels import without_labels
    from ..run_analysis import remove_drawings

    pictures = [Path(f"{base}.{kind}") for kind in formats] if found.is_drawable else []
    there = [path for path in [*found.paths(base), *pictures] if path.exists()]
    if there and not force:
        raise FedscopeError(f"{there[0]} is there already; give --force to replace it, or another --out")
    replaced = any(path.exists() for path in found.paths(base))
    written: list[Path] = without_labels(found).save(base)
    if replaced:
        remove_drawings([base], formats if found.is_drawable else ())
    if found.is_drawable:
        written += save_figure(found.figure(), str(base), formats)
    return written
