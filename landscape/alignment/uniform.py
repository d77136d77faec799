"""Tensors whose entries are all alike, as the zeros that a recurrence begins with.

Any permutation leaves them, so what takes one is not tied to what else takes it: the states of all layers and
directions of a recurrence are parts of one tensor of zeros, and each has an order of units of its own. Each use gets
new units. Where a tensor is written to later, it is no longer uniform, and those that were its parts are its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .atoms import Atoms, Axis
from .operations import ALIKE, MAKERS, Value


class Uniform:
    """Which values of a trace are uniform."""

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        #: by their memory: the values, and pairs of dimensions that are one once it is written to
        self._values: dict[int, list[Value]] = {}
        self._parts: dict[int, list[tuple[list[Axis], list[Axis]]]] = {}

    def note(self, tensor: Tensor, value: Value) -> None:
        """Take a tensor for uniform."""
        value.uniform = True
        self._values.setdefault(_memory(tensor), []).append(value)

    def use(self, value: Value) -> Value:
        """Return the value as an operation takes it: of a uniform tensor with new units."""
        if not value.uniform:
            return value
        return Value(value.shape, [self.atoms.factor(size) for size in value.shape], True)

    def keeps(self, name: str, taken: Sequence[Value]) -> bool:
        """Tell whether the results of an operation are uniform."""
        return name in MAKERS or (name in ALIKE and bool(taken) and all(value.uniform for value in taken))

    def share(self, used: Iterable[tuple[Tensor, Value, Value]], results: Sequence[Tensor]) -> None:
        """Remember of what an operation gave parts of in the same memory.

        Args:
            used: tensors with their values, and these as the operation took them.
        """
        made = {_memory(one) for one in results}
        for tensor, value, taken in used:
            if taken is not value and _memory(tensor) in made:
                self._parts.setdefault(_memory(tensor), []).append((value.axes, taken.axes))

    def write(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Tie again what lies in the memory that an operation writes to."""
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = args[i] if i < len(args) else kwargs.get(argument.name)
            for tensor in given if isinstance(given, list | tuple) else [given]:
                if isinstance(tensor, Tensor):
                    self._settle(_memory(tensor))

    def _settle(self, memory: int) -> None:
        for value in self._values.pop(memory, ()):
            value.uniform = False
        for own, taken in self._parts.pop(memory, ()):
            for one, two in zip(own, taken, strict=True):
                self.atoms.tie(one, two)


def is_uniform(tensor: Tensor) -> bool:
    """Tell whether all entries of a tensor are alike.

    >>> is_uniform(torch.zeros(2, 3)), is_uniform(torch.eye(2))
    (True, False)
    """
    return tensor.layout is torch.strided and tensor.numel() > 1 and bool((tensor == tensor.reshape(-1)[0]).all())


def _memory(tensor: Tensor) -> int:
    """A number of the memory in which a tensor lies; of one without strides one of its own."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else -id(tensor)
