"""The tensors of a module in the memory that they were given, which its ``forward`` may leave."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..checkpoints import Layout
from .module_copy import is_shared


class _Place(NamedTuple):
    """Where a layer holds a tensor: under ``leaf`` in ``held``, its parameters or its buffers.

    Attributes:
        name: the tensor's in the layout.
        own: what is there; ``address`` is where its memory begins, ``shape`` and ``stride`` how it lies there, and
            ``memory`` a view of all of it.
    """

    name: str
    held: dict[str, Any]
    leaf: str
    own: Tensor
    address: int
    shape: torch.Size
    stride: tuple[int, ...]
    memory: Tensor

    def is_left(self) -> bool:
        """Check whether another tensor is there, or other memory, or the same in another order."""
        own = self.own  # in one expression, as it is asked of each tensor at each step
        return (
            self.held.get(self.leaf) is not own
            or own.data_ptr() != self.address
            or own.stride() != self.stride
            or own.shape != self.shape
        )

    def is_moved(self) -> bool:
        """Check whether the tensor itself has other memory, or this in another order."""
        own = self.own
        return own.data_ptr() != self.address or own.stride() != self.stride or own.shape != self.shape


class BoundTensors:
    """The parameters and buffers of a module that a model consists of, each in the memory that it has now.

    A forward pass may leave it: ``self.weight.data = ...`` gives a parameter other memory, and
    ``self.mean = 0.9 * self.mean + ...`` puts another tensor in the place of a buffer. Whoever writes models into that
    memory, or reads them there, has the module come back to it first. What is changed in place never leaves it.

    What no model can hold stays where it is until the next model is loaded, and is not read: a buffer of another shape
    or kind of numbers, or none, and a new parameter, which no optimiser would step. One of the module's own parameters
    in the place of another (``self.out.weight = self.embed.weight``) stays for good, as the forward has tied them.

    Args:
        module: whose tensors the layout has.
        buffers_only: whether its parameters are somebody else's affair.

    Attributes:
        left: whether the values of a tensor have been found elsewhere so far.
        unheld: a sentence for each place that has had what no model can hold, by the tensor's name.
    """

    def __init__(self, module: nn.Module, layout: Layout, *, buffers_only: bool = False) -> None:
        self._whose = type(module).__name__
        # held here, so that no number is given twice
        self._parameters = {id(value): value for value in module.parameters()}
        names = {id(value): name for name, value in module.named_buffers(remove_duplicate=False)}
        if not buffers_only:
            names |= {id(value): name for name, value in module.named_parameters(remove_duplicate=False)}
        kept = {entry.name for entry in layout.entries}
        self._places = [
            _Place(names[id(value)], held, leaf, value, value.data_ptr(), value.shape, value.stride(), value.data)
            for layer in module.modules()
            for held in (vars(layer).get("_parameters", {}), vars(layer).get("_buffers", {}))
            for leaf, value in held.items()
            if value is not None and names.get(id(value)) in kept and not is_shared(value)
            if value.layout is torch.strided
        ]
        self.left = False
        self.unheld: dict[str, str] = {}

    def settle(self) -> None:
        """Bring values that a forward pass has put elsewhere back to where they are looked for."""
        if any(place.is_left() for place in self._places):
            self._come_back(keep=True)

    def put_back(self) -> None:
        """Have the module hold its tensors again where a forward pass has put others, whose values are lost."""
        if any(place.is_left() for place in self._places):
            self._come_back(keep=False)

    def _come_back(self, *, keep: bool) -> None:
        found = [place for place in self._places if place.is_left() and not self._is_tied(place)]
        if keep:
            found = self._taken_over(found)
        for place in found:
            if place.is_moved():
                place.own.data = place.memory
            place.held[place.leaf] = place.own

    def _is_tied(self, place: _Place) -> bool:
        """Check whether another parameter of the module's own is there."""
        now = place.held.get(place.leaf)
        return now is not place.own and id(now) in self._parameters

    def _taken_over(self, found: list[_Place]) -> list[_Place]:
        """Take over what lies elsewhere, unless no model can hold it; returns the places of that which has come.

        A tensor that hangs on the gradients of a batch stays, too: a pass that goes on from it is told by torch, as in
        a loop by hand, and one that does not may keep it.
        """
        moved = []
        for place in found:
            now = place.held.get(place.leaf)
            reason = self._not_held(place, now)
            if now is None or reason:
                self.unheld.setdefault(place.name, reason)
            else:
                moved.append((place, now.detach().clone()))  # a copy, as it may be a view of what is written
        self.left |= bool(moved)
        for place, values in moved:
            with torch.no_grad():
                place.memory.copy_(values)
        return [place for place, _ in moved if place.held[place.leaf].grad_fn is None]

    def _not_held(self, place: _Place, now: Tensor | None) -> str:
        """Say why no model of the layout can hold what is in a tensor's place; "" where one can."""
        memory, is_parameter = place.memory, isinstance(place.own, nn.Parameter)
        in_place, unkept = f"change it in place ({_in_place(place)})", "register it with persistent=False"
        if now is None:
            found, remedy = "nothing", in_place
        elif is_parameter and now is not place.own:
            found, remedy = "another parameter, which no optimiser steps,", in_place
        elif now.layout is not torch.strided:
            found, remedy = "a sparse tensor", in_place
        elif now.shape != memory.shape:
            found, remedy = f"a tensor of shape {list(now.shape)}", "keep its shape"
            remedy += "" if is_parameter else f", or {unkept}"
        elif not torch.can_cast(now.dtype, memory.dtype):
            found, remedy = f"a tensor of type {_type(now)}", "keep its type"
            remedy += "" if is_parameter else f", or register it as {_type(now)}"
        elif any(other.own is place.own and other.held.get(other.leaf) is not now for other in self._places):
            return (
                f"the forward of a {self._whose} puts another tensor in the place of {place.name}, which two of its "
                f"layers share, in one of them alone; models keep what was there before: {in_place}"
            )
        else:
            return ""
        which = "a parameter" if is_parameter else "a buffer"
        return (
            f"the forward of a {self._whose} puts {found} in the place of {place.name}, {which} of type "
            f"{_type(memory)} {list(memory.shape)}; no model can hold that, and models keep what was there before: "
            f"{remedy}"
        )


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _in_place(place: _Place) -> str:
    """Return the line that changes a tensor in place."""
    if isinstance(place.own, nn.Parameter):
        return f"with torch.no_grad(): self.{place.leaf}.copy_(...)"
    return f"self.{place.leaf}.copy_(...)"
