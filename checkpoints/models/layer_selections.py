"""Which layers a question by layer is asked of: each alone, the first ones together, or those of a pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..io.errors import FedscopeError
from .layers import Layer, chosen_layers, layers_of
from .weights import Layout

#: what is asked for besides a pattern
EACH, CUMULATIVE = "each", "cumulative"
#: the last selection's label
ALL_LAYERS = "all layers"


@dataclass(frozen=True)
class Selection:
    """Layers that are looked at together.

    Attributes:
        label: of its row: a layer's name, ``to NAME``, a pattern, or ``all layers``.
    """

    label: str
    layers: tuple[Layer, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of all tensors, statistics among them."""
        return frozenset(entry.name for layer in self.layers for entry in layer.entries)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Names of the parameters."""
        return frozenset(entry.name for layer in self.layers for entry in layer.entries if entry.kind == "parameter")

    @cached_property
    def size(self) -> int:
        """How many numbers the parameters are."""
        return sum(layer.size for layer in self.layers)


def selections_of(
    layout: Layout, layers: str, question: str, *, statistics: bool = False, cumulative: bool = False
) -> tuple[Selection, ...]:
    """Return what is looked at, the whole model last.

    Args:
        layers: ``each`` layer alone; ``cumulative``: the first one, the first two and so on; or a pattern, see
            :func:`~fedscope.checkpoints.models.layers.chosen_layers`: these layers together.
        question: what asks, for sentences, as ``updates``.
        statistics: whether a layer counts that has statistics and no parameters.
        cumulative: whether the question can be asked of the first layers together.

    Raises:
        FedscopeError: a pattern that names no layer, or none that counts; ``cumulative`` where it cannot be asked.

    >>> import fedscope, torch
    >>> layout = fedscope.Layout.of(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
    >>> [(one.label, one.size) for one in selections_of(layout, "each", "updates")]
    [('0', 8), ('1', 4), ('all layers', 12)]
    """
    every = layers_of(layout)
    counted = [layer for layer in every if layer.size or (statistics and _has_statistics(layer))]
    whole = Selection(ALL_LAYERS, every)
    if layers == EACH:
        return (*(Selection(layer.name, (layer,)) for layer in counted), whole)
    if layers == CUMULATIVE:
        if not cumulative:
            raise FedscopeError(
                f"--layers cumulative is a cut of lines; for {question} give each (each layer alone), or names as "
                "conv* together"
            )
        return (*(Selection(f"to {last.name}", (*counted[:i], last)) for i, last in enumerate(counted[:-1])), whole)
    chosen = Selection(layers, chosen_layers(layout, layers))
    if not chosen.names & {entry.name for layer in counted for entry in layer.entries}:
        raise FedscopeError(
            f"layers {layers!r} have no parameters, so nothing is told of them in {question}; choose others "
            "(fedscope layers RUN)"
        )
    return (whole,) if len(chosen.layers) == len(every) else (chosen, whole)


def layers_file_word(layers: str) -> str:
    """Return a choice of layers as a part of a file name.

    >>> layers_file_word("/^blocks|fc/")
    'blocks-fc'
    >>> layers_file_word("/./")
    'all'
    """
    return "-".join(re.findall(r"[\w.]+", layers)).strip(".-") or "all"


def _has_statistics(layer: Layer) -> bool:
    return any(entry.kind == "buffer" and np.dtype(entry.dtype).kind == "f" for entry in layer.entries)
