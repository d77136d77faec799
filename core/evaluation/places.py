"""Where a worker of an evaluator measures: a device, the data there, and the models that are formed there."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from .accelerators import has_float64, refuse_without_memory
from .device import Compute
from .model_replica import Replica
from .samples import Samples
from .stacked_models import TRIED, PostponingReplica, StackedModels, stacked_models
from .uint8_images import Inputs


class Place:
    """What one worker has; its data are the other workers' too, where these are on the same device.

    Attributes:
        compute: one device.
        data: inputs and targets of each data set, as they are evaluated.
        stacked: room for several models in one pass, with a replica to form them in.
        float64: whether the device computes in it; where not, sums are the processor's.

    Args:
        module: the architecture of the models.
    """

    def __init__(self, module: nn.Module, compute: Compute, data: list[tuple[Inputs, Tensor]]) -> None:
        self.compute, self.data = compute, data
        self.float64 = has_float64(compute.device)
        self._module = module
        self.stacked: tuple[StackedModels, PostponingReplica] | None = None
        # as many as were ever asked for
        self._replicas: list[Replica] = []

    @classmethod
    def holding(cls, module: nn.Module, compute: Compute, parts: Sequence[Samples]) -> Place:
        """Bring data sets to a device.

        Raises:
            FedscopeError: it has no memory left for them, or for a model.
        """
        place = cls(module, compute, [])
        (first,) = place.replicas(1)
        for part in parts:
            what = f"hold the {len(part):,} samples of {part.label}"
            with refuse_without_memory(compute.device, what, "give fewer (--limit), or --device cpu"):
                place.data.append((first.prepare(part.x), first.targets(part.y)))
        return place

    def stack(self) -> None:
        """Have several models measured in one pass here, where the module is such that they can be."""
        with refuse_without_memory(self.compute.device, "hold several copies of the model"):
            self.stacked = stacked_models(self._module, self.compute, self.data[0][0][:TRIED])

    def replicas(self, count: int) -> list[Replica]:
        """Return so many replicas, the same ones again."""
        while len(self._replicas) < count:
            self._replicas.append(Replica(self._module, self.compute))
        return self._replicas[:count]
