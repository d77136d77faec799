"""Where a worker of an evaluator measures: a device, the data there, and the models that are formed there."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from .accelerators import has_float64, refuse_without_memory
from .device import Compute
from .layered_replica import answers_in_layers, is_large, replica_of
from .model_replica import Replica
from .samples import Samples
from .stacked_models import TRIED, PostponingReplica, StackedModels, stacked_models
from .uint8_images import Inputs


class WorkerPlace:
    """What one worker has; its data are the other workers' too, where these are on the same device.

    Attributes:
        compute: one device.
        data: inputs and targets of each data set, as they are evaluated.
        layered: whether models are formed layer by layer.
        stacked: room for several models in one pass, with a replica to form them in.
        float64: whether the device computes in it; where not, sums are the processor's.

    Args:
        module: the architecture of the models.
    """

    def __init__(
        self, module: nn.Module, compute: Compute, data: list[tuple[Inputs, Tensor]], layered: bool = False
    ) -> None:
        self.compute, self.data, self.layered = compute, data, layered
        self.float64 = has_float64(compute.device)
        self._module = module
        self.stacked: tuple[StackedModels, PostponingReplica] | None = None
        # as many as were ever asked for
        self._replicas: list[Replica] = []

    @classmethod
    def holding(cls, module: nn.Module, compute: Compute, parts: Sequence[Samples]) -> WorkerPlace:
        """Bring data sets to a device.

        Raises:
            FedscopeError: it has no memory left for them, or for a model.
        """
        place = cls(module, compute, [], is_large(module, compute))
        (first,) = place.replicas(1)
        for part in parts:
            what = f"hold the {len(part):,} samples of {part.label}"
            with refuse_without_memory(compute.device, what, "give fewer (--limit), or --device cpu"):
                place.data.append((first.prepare(part.x), first.targets(part.y)))
        if place.layered and not all(answers_in_layers(first, x[:1]) for x, _ in place.data):
            place.layered = False
            place._replicas.clear()
        return place

    def stack(self) -> None:
        """Have several models measured in one pass here, where the module is such that they can be."""
        with refuse_without_memory(self.compute.device, "hold several copies of the model"):
            self.stacked = stacked_models(self._module, self.compute, self.data[0][0][:TRIED])

    def replicas(self, count: int) -> list[Replica]:
        """Return so many replicas, the same ones again."""
        while len(self._replicas) < count:
            self._replicas.append(replica_of(self._module, self.compute, layered=self.layered))
        return self._replicas[:count]
