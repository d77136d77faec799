"""The geometry of a round's updates by layer: what is selected, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...checkpoints import Round
from ...checkpoints.models.layer_selections import Selection
from ...checkpoints.models.products import Adapters
from ...results import Serializable
from .adapter_products import adapter_products
from .angles import RoundUpdates, geometry, layer_products
from .result import measured


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


def round_layers(
    round_: Round,
    selections: tuple[Selection, ...],
    progress: Callable[[int, int], None] | None = None,
    adapters: Adapters | None = None,
) -> RoundLayers:
    """Measure one round, whose clients are read once; the last selection is all layers.

    Args:
        adapters: what the models add, where they are adapters: updates are then those of the products.
    """
    chosen = [one.parameters for one in selections[:-1]]
    if adapters is None:
        products = layer_products(round_, chosen, progress)
    else:
        products = adapter_products(round_, adapters, chosen, progress)
    found = (geometry(own, round_.weights, number=round_.number, client_ids=round_.client_ids) for own in products)
    return RoundLayers(tuple(map(_cell, selections, found)))


def _cell(selection: Selection, found: RoundUpdates) -> LayerRow:
    clients, unmoved, diverged = len(found.client_ids), len(found.unmoved), len(found.diverged)
    numbers = measured(found)
    return LayerRow(
        found.round, selection.label, selection.size, clients, **numbers, unmoved=unmoved, diverged=diverged
    )
