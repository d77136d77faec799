"""The tensors of a module in the memory that they were given, which its ``forward`` may leave."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..checkpoints import FedscopeError, Layout
from .module_copy import is_shared


class _Place(NamedTuple):
    """Where a layer holds a tensor: under ``leaf`` in ``held``, its parameters or its buffers.

    Attributes:
        name: the tensor's in the layout.
        own: what is there; ``address`` is where its memory begins, and ``memory`` a view of all of it.
    """

    name: str
    held: dict[str, Any]
    leaf: str
    own: Tensor
    address: int
    memory: Tensor


class BoundTensors:
    """The parameters and buffers of a module that a model consists of, each in the memory that it has now.

    A forward pass may leave it: ``self.weight.data = ...`` gives a parameter other memory, and
    ``self.mean = 0.9 * self.mean + ...`` puts another tensor in the place of a buffer. Whoever writes models into that
    memory, or reads them there, has the module come back to it first. What is changed in place never leaves it.

    Args:
        module: whose tensors the layout has.
        buffers_only: whether its parameters are somebody else's affair.

    Attributes:
        left: whether a tensor has been found elsewhere so far.
    """

    def __init__(self, module: nn.Module, layout: Layout, *, buffers_only: bool = False) -> None:
        self._whose = type(module).__name__
        names = {id(value): name for name, value in module.named_buffers(remove_duplicate=False)}
        if not buffers_only:
            names |= {id(value): name for name, value in module.named_parameters(remove_duplicate=False)}
        kept = {entry.name for entry in layout.entries}
        self._places = [
            _Place(names[id(value)], held, leaf, value, value.data_ptr(), value.data)
            for layer in module.modules()
            for held in (vars(layer).get("_parameters", {}), vars(layer).get("_buffers", {}))
            for leaf, value in held.items()
            if value is not None and names.get(id(value)) in kept and not is_shared(value)
            if value.layout is torch.strided
        ]
        self.left = False

    def settle(self) -> None:
        """Bring values that a forward pass has put elsewhere back to where they are looked for.

        Raises:
            FedscopeError: a tensor of another shape or kind of numbers, none at all, or another parameter, which no
                optimiser would step.
        """
        for place in self._places:
            now = place.held.get(place.leaf)
            if now is not place.own or now.data_ptr() != place.address:
                self._come_back(keep=True)
                return

    def put_back(self) -> None:
        """Have the module hold its tensors again where a forward pass has put others, whose values are lost."""
        for place in self._places:
            now = place.held.get(place.leaf)
            if now is not place.own or now.data_ptr() != place.address:
                self._come_back(keep=False)
                return

    def _come_back(self, *, keep: bool) -> None:
        self.left = True
        if keep:
            for place, values in self._elsewhere():
                with torch.no_grad():
                    place.memory.copy_(values)
        for place in self._places:
            if place.own.data_ptr() != place.address:
                place.own.data = place.memory
            place.held[place.leaf] = place.own

    def _elsewhere(self) -> list[tuple[_Place, Tensor]]:
        """Return copies of what lies elsewhere, as it may be a view of what is written."""
        found: dict[int, Tensor | None] = {}
        moved: list[tuple[_Place, Tensor]] = []
        for place in self._places:
            now = place.held.get(place.leaf)
            if found.setdefault(id(place.own), now) is not now:
                raise FedscopeError(
                    f"the forward of a {self._whose} puts another tensor in the place of {place.name}, which two of "
                    f"its layers share, in one of them alone; change it in place ({_in_place(place)})"
                )
            if now is not place.own or now.data_ptr() != place.address:
                moved.append((place, self._alike(place, now).detach().clone()))
        return moved

    def _alike(self, place: _Place, now: Tensor | None) -> Tensor:
        """Return what is in a tensor's place, unless no model of the layout can hold it."""
        memory, is_parameter = place.memory, isinstance(place.own, nn.Parameter)
        remedy = f"change it in place ({_in_place(place)})"
        if now is None:
            found = "nothing"
        elif is_parameter and now is not place.own:
            found = "another parameter, which no optimiser would step,"
        elif now.shape != memory.shape:
            found, remedy = f"a tensor of shape {list(now.shape)}", "keep its shape"
            remedy += "" if is_parameter else ", or register it with persistent=False, so that no model holds it"
        elif not torch.can_cast(now.dtype, memory.dtype):
            found, remedy = f"a tensor of type {_type(now)}", "keep its type"
            remedy += "" if is_parameter else f", or register it as {_type(now)}"
        else:
            return now
        which = "a parameter" if is_parameter else "a buffer"
        raise FedscopeError(
            f"the forward of a {self._whose} puts {found} in the place of {place.name}, {which} of type "
            f"{_type(memory)} {list(memory.shape)}; {remedy}"
        )


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _in_place(place: _Place) -> str:
    """Return the line that changes a tensor in place."""
    if isinstance(place.own, nn.Parameter):
        return f"with torch.no_grad(): self.{place.leaf}.copy_(...)"
    return f"self.{place.leaf}.copy_(...)"
