"""Points of a surface evaluated in groups, whose first layer is combined from outputs that were computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from ..checkpoints import Weights
from .device import run_in_workers
from .first_layer_cache import GROUP, FirstLayer, Spanned, first_layer, worth

if TYPE_CHECKING:
    from .evaluator import Evaluator
    from .model_replica import Replica

# Bytes for the outputs, and for the models that each worker holds. Constants and not what this machine has free, so
# that an interrupted surface goes on to the same numbers elsewhere. Beyond them samples are evaluated the plain way.
OUTPUTS = 2 * 2**30
MODELS = 2**28
#: samples on which it is tried out that the first layer may be replaced
TRIED = 4


class Spanning:
    """Points Σ_j c_j w_j that :meth:`Evaluator.evaluate` takes together.

    Args:
        evaluator: holds the data sets, in batches.
        module: the architecture.
        first: its first layer.
        bases: the w_j.
        coefficients: c of a point, by its index.
        takes: whether an index is a point of the span.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        module: nn.Module,
        first: FirstLayer,
        bases: Sequence[Weights],
        coefficients: Callable[[int], Sequence[float]],
        takes: Callable[[int], bool],
    ) -> None:
        self.first, self._coefficients, self._takes = first, coefficients, takes
        self._spanned = Spanned(module, first, bases)
        self._given = (evaluator, module, first, bases, coefficients, takes)
        # on a cluster every worker has its own
        self._outputs = {} if evaluator.compute.cluster is not None else self._computed(evaluator, module, bases)

    def __reduce__(self) -> tuple[Any, ...]:
        """It is made anew elsewhere."""
        return Spanning, self._given

    def combines(self, i: int) -> bool:
        """Check whether the point is a combination: a model itself (one coefficient) is measured bit for bit as it
        is."""
        return self._takes(i) and bool(np.count_nonzero(self._coefficients(i)) > 1)

    def groups(self, order: Sequence[int]) -> list[list[int]]:
        """Group the indices in their order, neighbours that are combinations in one list."""
        made: list[list[int]] = []
        open_ = False
        for i in order:
            together = self.combines(i)
            if together and open_ and len(made[-1]) < GROUP:
                made[-1].append(i)
            else:
                made.append([i])
            open_ = together
        return made

    def logits(
        self, group: Sequence[int], replicas: Sequence[Replica], part: int, batch: int, x: Tensor
    ) -> list[Tensor]:
        """Compute outputs of a group's models, formed in ``replicas``, on a batch of a data set."""
        outputs = self._outputs.get((part, batch))
        if outputs is None:
            return [replica.logits(x) for replica in replicas]
        c = np.array([self._coefficients(i) for i in group], dtype=np.float64)
        combined = self._spanned.combined(outputs, c)
        return [replica.logits_from(self.first, h, x) for replica, h in zip(replicas, combined, strict=True)]

    def _computed(
        self, evaluator: Evaluator, module: nn.Module, bases: Sequence[Weights]
    ) -> dict[tuple[int, int], Tensor]:
        """Compute the first layer's outputs by data set and batch, as many as there is room for."""

        def batches() -> Iterator[tuple[tuple[int, int], Tensor]]:
            room = OUTPUTS
            for part in range(len(evaluator.parts)):
                for batch, x in enumerate(evaluator.batches(part)):
                    room -= self._spanned.nbytes(x)
                    if room < 0:
                        return
                    yield (part, batch), x

        def task(item: tuple[tuple[int, int], Tensor], own: Spanned, stop: Event) -> tuple[tuple[int, int], Tensor]:
            return item[0], own.outputs(item[1])

        return dict(
            run_in_workers(
                task, batches(), make=lambda: Spanned(module, self.first, bases), workers=evaluator.compute.workers
            )
        )


def replaceable_layer(evaluator: Evaluator, module: nn.Module, bases: Sequence[Weights]) -> FirstLayer | None:
    """Find the layer that is combined rather than computed: None where that is not faster, or would not be the same.

    On a CPU in float32, where :func:`worth` says so, and where every base is finite (a NaN would reach points that do
    not count it).
    """
    if evaluator.compute.is_gpu or evaluator.compute.precision != "float32":
        return None
    if bases[0].parameters.dtype != np.float32 or GROUP * bases[0].parameters.nbytes > MODELS:
        return None
    found = first_layer(module, next(evaluator.batches(0))[:TRIED])
    if found is None or not worth(module, found):
        return None
    return found if np.isfinite(Spanned(module, found, bases).rows).all() else None
