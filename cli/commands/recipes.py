"""``fedscope recipes``."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from ..printing import say, say_json, say_lines

if TYPE_CHECKING:
    from ...training.config.recipes import Recipe


@click.command(
    "recipes",
    epilog="Example:  fedscope recipes ima    One in full:  fedscope recipes ima/table1-cifar10-cnn-shards2    "
    "Train it:  fedscope train --recipe ima/table1-cifar10-cnn-shards2 --method fedprox",
)
@click.argument("name", required=False, metavar="[PAPER[/NAME]]")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(name: str | None, as_json: bool) -> None:
    """The papers' set-ups: what each shows, and what was published.

    Without a name, all are listed; PAPER lists those of one paper (ima, wima, fedsa or fedpake, fedswa). PAPER/NAME
    shows one in full: its settings, what is varied, the numbers that the paper prints, and what the paper leaves open.
    """
    from ...training import recipe, recipe_names
    from ...training.config.recipes import paper_of
    from ...training.settings.entry_points import describe_installed

    name = paper_of(name) if name else None
    papers = {known.partition("/")[0] for known in recipe_names()}
    if name and name not in papers:
        _show(recipe(name), as_json)
        return
    listed = [recipe(known) for known in recipe_names() if not name or known.startswith(f"{name}/")]
    if as_json:
        say_json([{"name": one.name, "shows": one.shows, "published": _cells(one)} for one in listed])
        return
    wide = max(len(one.name) for one in listed)
    for one in listed:
        first = [cell for cell in one.published if cell.row == one.published[0].row]
        numbers = f"  ({first[0].row}: {' / '.join(f'{cell.value:g}' for cell in first)})" if first else ""
        say(f"{one.name:<{wide}}  {one.shows}{numbers}")
    for flag, package in describe_installed():
        say(f"{flag:<{wide}}  of the installed package {package}")


def _show(one: Recipe, as_json: bool) -> None:
    """One recipe whole."""
    from ...checkpoints.io.shell_words import command_line

    tables = one.configured()
    if as_json:
        about: dict[str, Any] = {"name": one.name, "shows": one.shows, "settings": tables, "for": one.by_method}
        about |= {"axes": one.axes, "grid": one.grid, "measure": one.measure, "published": _cells(one)}
        say_json({**about, "chosen": one.chosen, "ours": one.ours, "then": one.then})
        return
    say(f"{one.name}: {one.shows}")
    for section, table in tables.items():
        say(f"  {section:<9}" + ", ".join(f"{key} = {value}" for key, value in table.items()))
    for method, sections in one.by_method.items():
        said = [f"{section}.{key} = {value}" for section, table in sections.items() for key, value in table.items()]
        say(f"  with {method}: {', '.join(said)}")
    for axis in one.axes:
        _paragraph("varied: " + "; ".join(_cell(cell) for cell in axis))
    for method, keys in one.grid.items():
        varied = [f"{key}={','.join(map(str, values))}" for key, values in keys.items()]
        best = [word for key in keys for word in ("--best-of", key)]
        whole = command_line("sweep", "--recipe", one.name, f"method={method}", *varied)
        say(f"  the paper takes the best of: {whole}")
        say(f"    then: {command_line('table', 'SWEEP', *best)}")
    if one.published:
        spread = ", ± deviation over seeds" if any(cell.deviation is not None for cell in one.published) else ""
        say(f"  published, {one.measure}{spread}:")
        rows: dict[str, list[str]] = {}
        for cell in one.published:
            number = f"{cell.value:g}" + (f" ± {cell.deviation:g}" if cell.deviation is not None else "")
            rows.setdefault(cell.row, []).append(f"{cell.column} {number}".strip())
        wide = max(map(len, rows))
        for row, cells in rows.items():
            say(f"    {row:<{wide}}  {' · '.join(cells)}")
    for text in one.chosen:
        _paragraph(f"chosen here: {text}")
    say(f"  train it: {command_line('train', '--recipe', one.name)}")
    if one.axes:
        say(f"  all of it: {command_line('sweep', '--recipe', one.name)}")
    for text in one.then:
        say(f"  then: {text}")


def _paragraph(text: str) -> None:
    say_lines(textwrap.fill(text, 116, initial_indent="  ", subsequent_indent="    "))


def _cell(cell: Any) -> str:
    """``fedprox``, ``run.rounds = 3``, or what the row is called."""
    if "label" in cell:
        return str(cell["label"])
    if set(cell) == {"method"}:
        return str(cell["method"])
    return ", ".join(f"{key} = {value}" for key, value in cell.items())


def _cells(one: Recipe) -> list[dict[str, Any]]:
    return [
        {"row": cell.row, "column": cell.column, "value": cell.value, "deviation": cell.deviation}
        for cell in one.published
    ]
