"""Activations of an average, brought back to the size that those of its networks have.

Averaged units answer with less variance than the units that they are averages of, and layer by layer little is left.
Jordan et al., "REPAIR: REnormalizing Permuted Activations for Interpolation Repair" (arXiv 2211.08403): each unit of a
layer gets the mean and the standard deviation that the networks' units have on average, by a scale and a shift that go
into the layer's weights. Where BatchNorm follows, its statistics are measured on the average instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from ...evaluation.normalization import re_estimate, statistics_of

#: below this share of the greatest, a standard deviation is that of a unit that does not answer
QUIET = 1e-6


def is_turned(layer: nn.Module) -> bool:
    """Tell whether a layer is the linear one of GPT-2 in transformers, ``Conv1D``, whose weight is [in, out]."""
    weight = getattr(layer, "weight", None)
    if type(layer).__name__ != "Conv1D" or not isinstance(weight, Tensor) or weight.dim() != 2:
        return False
    return weight.shape[1] == getattr(layer, "nf", None)


def repaired_layers(module: nn.Module) -> list[tuple[str, Any]]:
    """Return the layers that are rescaled: linear and convolutional ones with a bias, but for those whose weights are
    other layers' too; the last one answers, and stays.

    >>> [name for name, _ in repaired_layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)))]
    ['0']
    """
    shared: dict[int, int] = {}
    for layer in module.modules():
        for parameter in layer.parameters(recurse=False):
            shared[id(parameter)] = shared.get(id(parameter), 0) + 1
    found = [
        (name, layer)
        for name, layer in module.named_modules()
        if (isinstance(layer, nn.Linear | _ConvNd) or is_turned(layer))
        and not isinstance(layer, _ConvTransposeNd)
        and layer.bias is not None
        and shared[id(layer.weight)] == 1
    ]
    return found[:-1]


def measure(module: nn.Module, batches: Sequence[Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Measure the mean and the standard deviation of each unit of the layers that are rescaled, over batches."""
    sums: dict[str, list[Tensor]] = {}

    def add(name: str, layer: nn.Module, out: Tensor) -> None:
        x = _rows(layer, out).double()
        new = [x.sum(1), (x * x).sum(1), torch.full((), float(x.shape[1]), dtype=torch.float64, device=x.device)]
        held = sums.get(name)
        sums[name] = new if held is None else [a + b for a, b in zip(held, new, strict=True)]

    with ExitStack() as stack, torch.no_grad():
        for name, layer in repaired_layers(module):
            handle = layer.register_forward_hook(lambda own, _, out, name=name: add(name, own, out))
            stack.callback(handle.remove)
        for x in batches:
            module(x)
    return {
        name: (total / n, (squares / n - (total / n) ** 2).clamp(min=0).sqrt())
        for name, (total, squares, n) in sums.items()
    }


def repair(average: nn.Module, networks: Sequence[dict[str, tuple[Tensor, Tensor]]], x: Tensor, batch: int) -> int:
    """Give each unit of an average the mean and standard deviation that it has in the networks, in place.

    Layers are taken in turn, each behind those that are rescaled already. BatchNorm's statistics are measured anew.

    Args:
        average: in evaluation mode.
        networks: of each, what :func:`measure` gave.
        x: the inputs; batch: how many at a time.

    Returns:
        How many layers were rescaled.
    """
    if statistics_of(average):
        re_estimate(average, x)
        return len(statistics_of(average))
    layers = dict(repaired_layers(average))
    names = [name for name in networks[0] if name in layers]
    for name in names:
        layer = layers[name]
        mean, std = measure(average, list(torch.split(x, batch)))[name]
        wanted_mean = torch.stack([one[name][0] for one in networks]).mean(0)
        wanted_std = torch.stack([one[name][1] for one in networks]).mean(0)
        loud = std > QUIET * std.max().clamp(min=1e-30)
        scale = torch.where(loud, wanted_std / std.clamp(min=1e-30), torch.ones_like(std))
        with torch.no_grad():
            weight = layer.weight
            weight.mul_(scale.to(weight.dtype).reshape(-1, *[1] * (0 if is_turned(layer) else weight.dim() - 1)))
            bias = layer.bias
            assert bias is not None
            bias.copy_(((bias.double() - mean) * scale + wanted_mean).to(bias.dtype))
    return len(names)


def _rows(layer: nn.Module, out: Tensor) -> Tensor:
    """Outputs of a layer as [units, answers]."""
    dim = 1 if isinstance(layer, _ConvNd) else out.dim() - 1
    return out.movedim(dim, 0).reshape(out.shape[dim], -1)
