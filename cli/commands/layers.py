"""``fedscope layers``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...checkpoints import FedscopeError, Run, load_model
from ...checkpoints.io.visible_text import brief
from ...checkpoints.models.layers import Layer, chosen_layers, layers_of
from ..printing import say, say_json

if TYPE_CHECKING:
    from ...checkpoints import Layout

#: letters of a name, and of shapes, in the table
LONG = 60


@click.command("layers", epilog="Example:  fedscope layers runs/fma    Some of them:  fedscope layers runs/fma 'fc*'")
@click.argument("model", metavar="RUN|MODEL", type=click.Path(path_type=Path))
@click.argument("pattern", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(model: Path, pattern: str | None, as_json: bool) -> None:
    """List the layers of a run's model, or of a model's file, in their order: kind, shapes, parameters.

    PATTERN shows what another command's --layers PATTERN takes: names with * and ?, separated by commas
    (conv1,blocks.0.*), or a regular expression between slashes (/^blocks/).
    """
    layout, modules = _opened(model)
    layers = layers_of(layout, modules)
    if pattern is not None:
        taken = {layer.name for layer in chosen_layers(layout, pattern)}
        layers = tuple(layer for layer in layers if layer.name in taken)
    rows = [_row(layer, layout.size) for layer in layers]
    if as_json:
        say_json(rows)
        return
    table = [("", "layer", "kind", "shapes", "parameters", "share"), *map(_cells, rows)]
    if len(layers) > 1:
        count = sum(layer.size for layer in layers)
        whole = f"{len(layers)} layers"
        table.append(("", whole, "", "", f"{count:,}", f"{100 * count / max(1, layout.size):.1f} %"))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    numbers = (0, 4, 5)
    for cells in table:
        padded = (
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        say("  ".join(padded).rstrip())


def _opened(path: Path) -> tuple[Layout, Iterable[tuple[str, Any]]]:
    """Return the layout of a run's model or of a file's, and the modules of a network that fedscope knows itself."""
    if (path / "run.json").is_file():
        run = Run.open(path)
        return run.layout, _modules(run)
    model = load_model(str(path))
    return model.weights.layout, () if model.run is None else _modules(model.run)


def _modules(run: Run) -> Iterable[tuple[str, Any]]:
    """Return the modules of a run's network, without their numbers; none where it is another program's or the user's
    own code, which is not run to list names."""
    from ...training.build import config_of, without_numbers
    from ...training.models.custom import OwnModel

    try:
        architecture = config_of(run).model.architecture
        if isinstance(architecture, OwnModel):
            return ()
        shape, classes = tuple(run.info["data"]["shape"]), run.info["classes"]
        module = without_numbers(architecture, shape, classes)
    except (FedscopeError, LookupError, TypeError):
        return ()
    modules: Iterable[tuple[str, Any]] = module.named_modules()
    return modules


def _row(layer: Layer, size: int) -> dict[str, Any]:
    return {
        "number": layer.number,
        "layer": layer.name,
        "kind": layer.kind,
        "shapes": {name: list(shape) for name, shape in layer.shapes.items()},
        "parameters": layer.size,
        "share": layer.size / max(1, size),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'number'}" for name, shape in row["shapes"].items())
    share = f"{100 * row['share']:.1f} %"
    return str(row["number"]), brief(row["layer"], LONG), row["kind"], shapes, f"{row['parameters']:,}", share
