"""Models of which many begin alike, measured together: what they share is computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from ..checkpoints import Weights
from .first_layer_groups import MODELS
from .model_replica import Replica
from .prefix_cache import Cut, SharedPrefix, outputs_of_alike
from .sample_losses import SampleLosses

if TYPE_CHECKING:
    from .evaluator import Evaluator

#: samples on which it is tried out what models share
TRIED = 2
#: models measured together at most
TOGETHER = 16


class AlikeModels:
    """Models that :meth:`Evaluator.evaluate` takes together, those that begin alike; the numbers stay the same bits.

    Args:
        evaluator: holds the data sets.
        module: the architecture.
        pair: two models, of whose tensors all are made.
        states: of each model what its tensors are: a number that two models share where the tensor is the same in both;
            a row a model, a column a tensor.
        names: of the columns.
        losses: takes the losses by sample; None where nobody asks for them.
        reuse: False measures each model alone.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        module: nn.Module,
        pair: tuple[Weights, Weights],
        states: np.ndarray,
        names: Sequence[str],
        *,
        losses: SampleLosses | None = None,
        reuse: bool = True,
    ) -> None:
        self._losses = losses
        self._shared: SharedPrefix | None = None
        self._size = min(TOGETHER, MODELS // max(1, pair[0].parameters.nbytes)) if reuse else 0
        if self._size < 2:
            return
        shared = SharedPrefix(Replica(module, evaluator.compute), *pair, next(evaluator.batches(0))[:TRIED])
        first = np.array([shared.first.get(name, 0) for name in names], dtype=np.int64)
        order = np.argsort(first, kind="stable")
        self._states, self._first = states[:, order], first[order]
        self._cuts: Mapping[int, Cut | None] = {int(at): shared.cut(int(at)) for at in np.unique(first) if at > 0}
        self._bases: dict[tuple[int, ...], tuple[int, list[Cut | None]]] = {}
        if any(cut is not None for cut in self._cuts.values()):
            self._shared = shared

    def combines(self, i: int) -> bool:
        """Check whether a model is measured here: all are."""
        return True

    def groups(self, order: Sequence[int]) -> list[list[int]]:
        """Group models such that those of a group share as much as may be."""
        if self._shared is None:
            return [[i] for i in order]
        rows = self._states[list(order)]
        place = np.lexsort(rows.T[::-1]) if rows.size else np.arange(len(order))
        alike = [int(order[i]) for i in place]
        return [alike[start : start + self._size] for start in range(0, len(alike), self._size)]

    def logits(
        self, group: Sequence[int], replicas: Sequence[Replica], part: int, batch: int, x: Tensor
    ) -> list[Tensor]:
        """Compute outputs of a group's models, formed in ``replicas``, on a batch of a data set."""
        if self._shared is None:
            found = [replica.logits(x) for replica in replicas]
        else:
            base, cuts = self._parted(tuple(group))
            found = outputs_of_alike(self._shared, replicas, base, cuts, x)
        if self._losses is not None:
            for i, outputs in zip(group, found, strict=True):
                self._losses.add(i, batch, outputs)
        return found

    def _parted(self, group: tuple[int, ...]) -> tuple[int, list[Cut | None]]:
        """Return the model of a group that shares most with the others, and where each parts from it."""
        if group not in self._bases:
            rows = self._states[list(group)]
            choices = [[self._where(own, other) for other in rows] for own in rows]
            base = max(range(len(group)), key=lambda i: sum(choices[i]))
            self._bases[group] = base, [self._cuts.get(at) for at in choices[base]]
        return self._bases[group]

    def _where(self, one: np.ndarray, other: np.ndarray) -> int:
        """Return the first call that may differ; 0 of a model and itself."""
        differs = np.flatnonzero(one != other)
        return int(self._first[differs[0]]) if differs.size else 0
