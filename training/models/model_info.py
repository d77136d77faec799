"""What methods may know of a model before the first round: its layout, its head, tied and frozen parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import nn

from ...checkpoints import FedscopeError, Layout, Weights
from ...checkpoints.io.errors import list_few
from ...evaluation.standard_tasks import CLASSIFICATION
from ...evaluation.tasks import Task
from ...evaluation.tied_parameters import tie_again

#: by which share of its length rounding may move a tensor
ROUNDED = 1e-5


@dataclass(frozen=True)
class ModelInfo:
    """The facts of a model that are fixed before a federation's first round.

    Attributes:
        layout: of the model; classes: outputs; clients: N; seed: ``run.seed``.
        head: the head's name in the module, None where no layer is known to be one.
        task: what is learnt.
        tied: of a parameter with several names all of them, by each; frozen: names of parameters that are not trained.
    """

    layout: Layout
    classes: int = 0
    clients: int = 0
    seed: int = 0
    head: str | None = None
    task: Task = CLASSIFICATION
    tied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()

    @property
    def head_parameters(self) -> tuple[str, ...]:
        """The names of the head's parameters (``head.weight``, ``head.bias``)."""
        own = f"{self.head}."
        return tuple(entry.name for entry in self.layout.parameters if self.head and entry.name.startswith(own))

    @property
    def width(self) -> int:
        """The number of features that the head sees."""
        shapes = {entry.name: entry.shape for entry in self.layout.parameters}
        return shapes[f"{self.head}.weight"][1]

    def zeros(self) -> np.ndarray:
        """A vector of zeros, [P]."""
        return np.zeros(self.layout.size, self.layout.dtype)

    def head_mask(self) -> np.ndarray:
        """Mark which of the P parameters are the head's, [P] bool, under each of their names."""
        mask = np.zeros(self.layout.size, dtype=bool)
        for own in self.head_parameters:
            for name in self.tied.get(own, (own,)):
                mask[self.layout.slices[name]] = True
        return mask

    def settled(self, made: Weights, start: Weights) -> Weights:
        """Give all names of a tied parameter the numbers of the last one, and frozen ones those that were sent, where
        no more than rounding has moved them.

        A server that draws anew for each entry gives each name others, and one that solves for a layer moves frozen
        ones by its rounding. What moves a frozen one further has meant to: a head that is solved for, or the pair of
        factors of a product. The same model again where nothing has to be changed.
        """
        if not self.tied and not self.frozen:
            return made
        made = tie_again(made, self.tied)
        places = [where for name, where in self.layout.slices.items() if name in self.frozen]
        back = [at for at in places if _is_rounded(made.parameters[at], start.parameters[at])]
        if not back:
            return made
        parameters = made.parameters.copy()
        for at in back:
            parameters[at] = start.parameters[at]
        return replace(made, parameters=parameters)


def _is_rounded(made: np.ndarray, sent: np.ndarray) -> bool:
    """Check whether numbers are others, and no further apart than a solution in single precision may round."""
    if np.array_equal(made, sent, equal_nan=True):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.linalg.norm(made.astype(np.float64) - sent) <= ROUNDED * np.linalg.norm(sent.astype(np.float64)))


def find_head(module: nn.Module, name: str | None = None) -> str | None:
    """Find the name of a module's head: the one given, or the last linear layer; None where there is none.

    Raises:
        FedscopeError: the name given is not that of a linear layer (says which there are).

    >>> from torch import nn
    >>> find_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    '2'
    """
    linear = [place for place, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if name is None:
        return linear[-1] if linear else None
    every = dict(module.named_modules(remove_duplicate=False))
    if not isinstance(every.get(name), nn.Linear):
        raise FedscopeError(
            f"model.head = {name!r} is not a linear layer of the model; it has {list_few(linear, 8) or 'none'}"
        )
    return name
