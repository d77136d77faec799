"""Inputs of a module's linear layers, found by the products that it computes.

Not by the classes of its layers: a product of inputs with a weight is one in ``nn.Linear``, in
``nn.MultiheadAttention`` (which calls no layer for it), in a ``Conv1D`` of transformers (whose weight is [in, out]) and
in code of the user's own. A weight is known by where it lies in memory, so that views of it count, and copies do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ...evaluation.process_switches import without_fast_path
from ...evaluation.recorded_names import place_of_tensor
from ..methods.shared.probes import Linear

#: products of matrices, and where their two factors are among the arguments
FACTORS = {"mm": (0, 1), "mv": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "addmv": (1, 2), "baddbmm": (1, 2)}
#: layers that are never linear ones, whatever they compute on this device
OTHER = nn.RNNBase, nn.RNNCellBase


class LayerInputs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums XᵀX of the inputs X [rows, in] of every linear layer while a module is called, float64 on the processor.

    Args:
        module: its parameters are contiguous.
        names: of those that count.
    """

    def __init__(self, module: nn.Module, names: Mapping[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._module = module
        self._weights: dict[int, list[tuple[Tensor, str]]] = {}
        self._within: list[str | None] = []
        self._sums: dict[tuple[Linear, str], Tensor] = {}
        self._multiplied: set[str] = set()
        self._tables = set[str]()
        self._names: dict[str, list[str]] = {}
        first: dict[int, str] = {}
        for name, weight in module.named_parameters(remove_duplicate=False):
            if name not in names:
                continue
            if id(weight) not in first:
                first[id(weight)] = name
                self._weights.setdefault(weight.untyped_storage()._cdata, []).append((weight, name))
            self._names.setdefault(first[id(weight)], []).append(name)
            layer, _ = place_of_tensor(module, name)
            if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
                self._tables.add(first[id(weight)])

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Collect while the module is called; attention without the fused form, in which nothing is seen."""
        handles = []
        for name, layer in self._module.named_modules():
            if type(layer) is nn.Linear or isinstance(layer, OTHER):
                site = None if isinstance(layer, OTHER) else f"{name}.weight"
                handles.append(layer.register_forward_pre_hook(lambda *_, site=site: self._within.append(site)))
                handles.append(layer.register_forward_hook(lambda *_: self._leave(), always_call=True))
        try:
            with without_fast_path(), self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _leave(self) -> None:
        self._within.pop()

    def products(self) -> dict[Linear, Tensor]:
        """Return the sums: of a weight that is several layers' of all of them, by each of its names."""
        sites: dict[Linear, dict[str, Tensor]] = {}
        for (layer, site), total in sorted(self._sums.items(), key=lambda one: one[0][1]):
            sites.setdefault(layer, {})[site] = total
        found = {layer: torch.stack(list(uses.values())).sum(0) for layer, uses in sites.items()}
        straight = {layer.name for layer in found if not layer.turned}
        kept = {layer: total for layer, total in found.items() if not (layer.turned and layer.name in straight)}
        return {
            Linear(name, start, stop, turned): total
            for (own, turned), uses in _by_weight(kept).items()
            for start, stop, total in _apart(uses)
            for name in self._names[own]
        }

    def left(self) -> list[str]:
        """Name the matrices whose inputs were not found, by one name each; tables that are looked up in are none."""
        merged = {layer.name for layer, _ in self._sums}
        weights = [(weight, name) for known in self._weights.values() for weight, name in known]
        matrices = {name for weight, name in weights if weight.dim() == 2 and name not in self._tables}
        return [name for _, name in weights if name in (matrices | self._multiplied) - merged]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute an operation, and look at its factors."""
        name = func._schema.name.partition("::")[2]
        inside = self._within[-1] if self._within else ""
        if inside is not None:
            if name == "linear":  # some devices compute it as it is
                self._look(args[0], args[1].t(), inside)
            elif name in FACTORS:
                first, second = FACTORS[name]
                self._look(args[first], args[second], inside)
            elif name == "_trilinear":
                self._multiplied |= {held[1] for one in args[:3] if (held := self._held(one)) is not None}
        return func(*args, **(kwargs or {}))

    def _held(self, tensor: Tensor) -> tuple[Tensor, str] | None:
        """Return the weight that a tensor is a view of, and its name."""
        if tensor.layout is not torch.strided:
            return None
        at = tensor.storage_offset()
        for weight, name in self._weights.get(tensor.untyped_storage()._cdata, ()):
            if 0 <= at - weight.storage_offset() < weight.numel():
                return weight, name
        return None

    def _look(self, left: Tensor, right: Tensor, site: str) -> None:
        """Take a product of two tensors."""
        if right.dim() == 1 and left.dim() == 2:
            right = right[:, None]
        one, two = self._held(left), self._held(right)
        self._multiplied |= {held[1] for held in (one, two) if held is not None}
        if two is not None:
            layer = _layer(right, *two)
            # of two weights the second is that of a layer, and the first its input, if it is written as layers are
            if layer is not None and (one is None or not layer.turned):
                self._add(layer, left, site)
        elif one is not None and (layer := _layer(left.mT, *one)) is not None:
            self._add(layer, right.mT, site)

    def _add(self, layer: Linear, x: Tensor, site: str) -> None:
        x = x.detach().reshape(-1, x.shape[-1]).cpu().double()
        self._sums[layer, site] = self._sums.get((layer, site), torch.zeros((), dtype=torch.float64)) + x.T @ x


def _layer(factor: Tensor, weight: Tensor, name: str) -> Linear | None:
    """Tell which outputs of a linear layer x W a factor W [..., in, out] is; None where it has not all inputs."""
    if factor.dim() == 3 and (factor.shape[0] == 1 or factor.stride(0) == 0):
        factor = factor[0]
    if factor.dim() != 2 or weight.dim() != 2:
        return None
    (inputs, outputs), (rows, columns) = factor.shape, weight.shape
    row, column = divmod(int(factor.storage_offset()) - int(weight.storage_offset()), columns)
    along = [inputs == 1 or factor.stride(0) == step for step in (1, columns)]
    across = [outputs == 1 or factor.stride(1) == step for step in (columns, 1)]
    if along[0] and across[0] and column == 0 and inputs == columns:
        return Linear(name, row, row + outputs)
    if along[1] and across[1] and row == 0 and inputs == rows:
        return Linear(name, column, column + outputs, turned=True)
    return None


def _by_weight(found: Mapping[Linear, Tensor]) -> dict[tuple[str, bool], list[tuple[int, int, Tensor]]]:
    made: dict[tuple[str, bool], list[tuple[int, int, Tensor]]] = {}
    for layer, total in found.items():
        made.setdefault((layer.name, layer.turned), []).append((layer.start, layer.stop, total))
    return made


def _apart(uses: list[tuple[int, int, Tensor]]) -> Iterator[tuple[int, int, Tensor]]:
    """Yield outputs that have the same inputs, from uses that may share some."""
    cuts = sorted({cut for start, stop, _ in uses for cut in (start, stop)})
    for start, stop in pairwise(cuts):
        own = [total for first, last, total in uses if first <= start and stop <= last]
        if own:
            yield start, stop, own[0] if len(own) == 1 else torch.stack(own).sum(0)
