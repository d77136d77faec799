"""Activations of an average, brought back to the size that those of its networks have.

Averaged units answer with less variance than the units that they are averages of, and layer by layer little is left.
Jordan et al., "REPAIR: REnormalizing Permuted Activations for Interpolation Repair" (arXiv 2211.08403): each unit of a
layer gets the mean and the standard deviation that the networks' units have on average, by a scale and a shift that go
into the layer's weights. Where BatchNorm follows, its statistics are measured on the average instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
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


def weighted_layers(module: nn.Module) -> list[tuple[str, Any]]:
    """Return the linear and convolutional layers.

    >>> [name for name, _ in weighted_layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)))]
    ['0', '2']
    """
    kinds = nn.Linear | _ConvNd
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, kinds) or is_turned(layer)]


def rescalable_layers(module: nn.Module) -> dict[str, Any]:
    """Return those of them that can be rescaled: with a bias, and no transposed kernel, but for those whose weights are
    other layers' too, or are computed from others, as those of weight normalisation and pruning.

    >>> list(rescalable_layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2, bias=False))))
    ['0']
    """
    shared: dict[int, int] = {}
    for layer in module.modules():
        for parameter in layer.parameters(recurse=False):
            shared[id(parameter)] = shared.get(id(parameter), 0) + 1
    return {
        name: layer
        for name, layer in weighted_layers(module)
        if not isinstance(layer, _ConvTransposeNd) and layer.bias is not None and shared.get(id(layer.weight)) == 1
    }


def measure(module: nn.Module, batches: Sequence[Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Measure the mean and the standard deviation of each unit of the layers that are rescaled, over batches.

    Returns:
        By layers that were run, in their order. The one that was run last answers, and is none of them.
    """
    sums: dict[str, list[Tensor]] = {}
    last, rescalable = "", rescalable_layers(module)

    def add(name: str, layer: nn.Module, out: Tensor) -> None:
        nonlocal last
        last = name
        if name not in rescalable:
            return
        x = _rows(layer, out).double()
        new = [x.sum(1), (x * x).sum(1), torch.full((), float(x.shape[1]), dtype=torch.float64, device=x.device)]
        held = sums.get(name)
        sums[name] = new if held is None else [a + b for a, b in zip(held, new, strict=True)]

    with ExitStack() as stack, torch.no_grad():
        for name, layer in weighted_layers(module):
            handle = layer.register_forward_hook(lambda own, _, out, name=name: add(name, own, out))
            stack.callback(handle.remove)
        for x in batches:
            module(x)
    sums.pop(last, None)
    return {
        name: (total / n, (squares / n - (total / n) ** 2).clamp(min=0).sqrt())
        for name, (total, squares, n) in sums.items()
        if n > 0  # run, and with no samples
    }


@dataclass(frozen=True)
class Repaired:
    """What was done to an average.

    Attributes:
        layers: how many were rescaled, or whose statistics were measured anew.
        left: layers that not every network runs, or that the average does not, and which stay.
    """

    layers: int
    left: tuple[str, ...] = ()


def repair(average: nn.Module, networks: Sequence[dict[str, tuple[Tensor, Tensor]]], x: Tensor, batch: int) -> Repaired:
    """Give each unit of an average the mean and standard deviation that it has in the networks, in place.

    Layers are taken in turn, each behind those that are rescaled already. BatchNorm's statistics are measured anew.

    Args:
        average: in evaluation mode.
        networks: of each, what :func:`measure` gave.
        x: the inputs; batch: how many at a time.
    """
    if statistics_of(average):
        re_estimate(average, x)
        return Repaired(len(statistics_of(average)))
    layers, batches = rescalable_layers(average), list(torch.split(x, batch))
    # which layers are run may depend on the numbers, as of experts
    known = {name: None for one in networks for name in one}
    left = [name for name in known if not all(name in one for one in networks)]
    done = 0
    for name in known:
        if name in left:
            continue
        own = measure(average, batches).get(name)
        if own is None:
            left.append(name)
            continue
        _rescale(layers[name], own, [one[name] for one in networks])
        done += 1
    return Repaired(done, tuple(left))


def _rescale(layer: Any, own: tuple[Tensor, Tensor], networks: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Give a layer's units the mean and standard deviation that they have in the networks, instead of their own."""
    mean, std = own
    wanted_mean, wanted_std = (torch.stack([one[i] for one in networks]).mean(0) for i in (0, 1))
    loud = std > QUIET * std.max().clamp(min=1e-30)
    scale = torch.where(loud, wanted_std / std.clamp(min=1e-30), torch.ones_like(std))
    with torch.no_grad():
        weight, bias = layer.weight, layer.bias
        weight.mul_(scale.to(weight.dtype).reshape(-1, *[1] * (0 if is_turned(layer) else weight.dim() - 1)))
        bias.copy_(((bias.double() - mean) * scale + wanted_mean).to(bias.dtype))


def _rows(layer: nn.Module, out: Tensor) -> Tensor:
    """Outputs of a layer as [units, answers]."""
    dim = 1 if isinstance(layer, _ConvNd) else out.dim() - 1
    return out.movedim(dim, 0).reshape(out.shape[dim], -1)
