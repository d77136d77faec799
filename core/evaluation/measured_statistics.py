"""Statistics of normalization layers that are measured on averages, in place of the averages of statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..checkpoints import Weights
from .device import CPU, Compute
from .model_replica import Replica
from .normalization import Normalization
from .samples import Samples


class MeasuredStatistics:
    """Gives averages running statistics that are measured on samples.

    The running mean and variance of a BatchNorm layer are those of the activations that *one* network had in training.
    Their average over networks is not what the average of the weights answers: its activations vary less. Measured on
    samples instead, they are the mean over batches of what each batch has, as Izmailov et al., "Averaging Weights
    Leads to Wider Optima and Better Generalization", UAI 2018, section 3.2, do for an average. Parameters stay.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        calibration: the samples, two at least.

    Raises:
        FedscopeError: statistics that are in no BatchNorm layer; fewer than two samples.

    >>> import numpy as np, torch
    >>> from fedscope.checkpoints import Layout
    >>> module = nn.Sequential(nn.BatchNorm1d(1))
    >>> samples = Samples(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 1]), 2, "toy", "train", np.arange(2))
    >>> state = {name: values.numpy() for name, values in module.state_dict().items()}
    >>> average = Layout.of(module).flatten(state)
    >>> MeasuredStatistics(module, samples)(average).buffers["0.running_mean"].tolist()
    [2.0]
    """

    def __init__(self, module: nn.Module, calibration: Samples, compute: Compute = CPU) -> None:
        self.replica = Replica(module, compute)
        self.normalization = Normalization.of(
            module, self.replica.buffers(), "re-estimate", calibration, self.replica.prepare
        )

    @property
    def x(self) -> Tensor | None:
        """The inputs that are measured on; None of a module without statistics, whose averages stay as they are."""
        return self.normalization.x

    def __call__(self, weights: Weights) -> Weights:
        """Return the same parameters with measured statistics; a new object."""
        if self.x is None:
            return weights
        self.replica.load(weights.parameters, weights.buffers)
        self.replica.re_estimate(self.x)
        return Weights(weights.layout, weights.parameters, self.replica.buffers())

    def provenance(self) -> dict[str, Any]:
        """Give the attributes of a result that go with it; nothing of a module without statistics."""
        if self.x is None:
            return {}
        return {"normalization_policy": "re-estimate", **self.normalization.provenance("")}


#: gives an average its statistics
Measured = Callable[[Weights], Weights]
