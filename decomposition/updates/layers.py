"""The geometry of a round's updates by layer: what is selected, and its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ...checkpoints import FedscopeError, Layout, Round
from ...checkpoints.models.layers import Layer, chosen_layers, layers_of
from ...landscape.lines.layer_result import ALL
from ...results import Serializable
from .angles import RoundUpdates, geometry, layer_products
from .result import measured

#: what is asked for besides a pattern
EACH = "each"


@dataclass(frozen=True)
class Selection:
    """Parameters that are looked at together.

    Attributes:
        label: of its row; names: of the parameters; size: how many numbers they are.
    """

    label: str
    names: frozenset[str]
    size: int


@dataclass(frozen=True)
class LayerRow(Serializable):
    """The updates of some layers in one round: numbers of
    :class:`~fedscope.decomposition.updates.angles.RoundUpdates`, None where one does not exist.

    Attributes:
        layer: a layer's name, a pattern, or ``all layers``.
        parameters: how many these are; clients: of the round.
        unmoved: how many clients are where they started; diverged: how many have no finite update, both in these
            layers.
    """

    round: int
    layer: str
    parameters: int
    clients: int
    cosine_mean: float | None
    cosine_stderr: float | None
    cosine_min: float | None
    cosine_max: float | None
    mean_norm: float | None
    norm_of_mean: float | None
    cancellation: float | None
    diversity: float | None
    orthogonal: float | None
    unmoved: int
    diverged: int


@dataclass(frozen=True)
class RoundLayers(Serializable):
    """One round: a row a selection of layers, that of all last."""

    cells: tuple[LayerRow, ...]


def selections_of(layout: Layout, layers: str) -> tuple[Selection, ...]:
    """Return what is looked at, the whole model last.

    Args:
        layers: ``each`` layer alone, or a pattern, see :func:`~fedscope.checkpoints.models.layers.chosen_layers`: these
            layers together. What has no parameters has no update.

    Raises:
        FedscopeError: a pattern that names no layer, or none with parameters.

    >>> import fedscope, torch
    >>> layout = fedscope.Layout.of(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
    >>> [(one.label, one.size) for one in selections_of(layout, "each")]
    [('0', 8), ('1', 4), ('all layers', 12)]
    """
    if layers == "cumulative":
        raise FedscopeError(
            "--layers cumulative is a cut of lines; updates take each layer alone (each), or names as conv* together"
        )
    whole = _selected(ALL, layers_of(layout))
    if layers == EACH:
        return (*(_selected(layer.name, (layer,)) for layer in layers_of(layout) if layer.size), whole)
    chosen = _selected(layers, chosen_layers(layout, layers))
    if not chosen.size:
        raise FedscopeError(
            f"layers {layers!r} have no parameters, so no update is theirs; choose others (fedscope layers RUN)"
        )
    return (whole,) if chosen.names == whole.names else (chosen, whole)


def name_of(layers: str) -> str:
    """A choice of layers as a part of a file name.

    >>> name_of("/^blocks|fc/")
    'blocks-fc'
    """
    return "-".join(re.findall(r"[\w.]+", layers)) or "all"


def round_layers(
    round_: Round, selections: tuple[Selection, ...], progress: Callable[[int, int], None] | None = None
) -> RoundLayers:
    """Measure one round, whose clients are read once; the last selection is all layers."""
    products = layer_products(round_, [one.names for one in selections[:-1]], progress)
    found = (geometry(own, round_.weights, number=round_.number, client_ids=round_.client_ids) for own in products)
    return RoundLayers(tuple(map(_cell, selections, found)))


def _cell(selection: Selection, found: RoundUpdates) -> LayerRow:
    clients, unmoved, diverged = len(found.client_ids), len(found.unmoved), len(found.diverged)
    numbers = measured(found)
    return LayerRow(
        found.round, selection.label, selection.size, clients, **numbers, unmoved=unmoved, diverged=diverged
    )


def _selected(label: str, layers: tuple[Layer, ...]) -> Selection:
    names = frozenset(entry.name for layer in layers for entry in layer.entries if entry.kind == "parameter")
    return Selection(label, names, sum(layer.size for layer in layers))
