"""Outputs that are no tensor: the logits in them, as networks for language and for segmentation return them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

#: what returns a tensor for certain, and is looked at as it is
_PLAIN = (nn.Linear, nn.Conv2d)


def logits_in(output: Any) -> tuple[Tensor | None, str]:
    """Find the logits in what a module returns, and say in words what was taken; None where there are none.

    >>> import torch
    >>> logits_in({"loss": torch.ones(()), "logits": torch.ones(2, 3)})[1]
    'its outputs are a dict, of which "logits" is taken'
    >>> logits_in({"out": torch.ones(2, 3), "aux": torch.zeros(2, 3)})[1]  # as torchvision's networks for segmentation
    'its outputs are a dict, of which "out" is taken'
    """
    kind = type(output).__name__
    kind = f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
    named = getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named, f"its outputs are {kind}, of which .logits is taken"
    if isinstance(output, Mapping) and (key := _key_in(output)) is not None:
        return output[key], f'its outputs are {kind}, of which "{key}" is taken'
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0], f"its outputs are {kind} of {len(output)}, of which the first is taken"
    return None, ""


def _key_in(output: Mapping[Any, Any]) -> Any:
    """Find what holds the logits in a mapping: "logits", torchvision's "out", or its only tensor; None where nothing
    does."""
    tensors = [key for key, value in output.items() if isinstance(value, Tensor)]
    named = next((key for key in ("logits", "out") if key in tensors), None)
    return tensors[0] if named is None and len(tensors) == 1 else named


def logits_of(output: Any) -> Any:
    """Return the logits in what a module returns in training; what has none as it is.

    >>> import torch
    >>> logits_of({"out": torch.ones(2, 3), "aux": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    logits = logits_in(output)[0]
    return output if logits is None else logits


class TakeLogits:
    """A hook by which a module returns the logits in its outputs; other outputs stay what they are.

    In training a mapping without "logits" stays whole, as of a network with an auxiliary head: a client method of one's
    own may minimise the losses of both, and who needs the logits alone asks :func:`logits_of`.

    Attributes:
        said: what was taken, in words; "" where the outputs are a tensor, or the module was not called yet.
    """

    said = ""

    def __call__(self, module: nn.Module, _: Any, output: Any) -> Tensor | None:
        """Take the logits; None leaves the outputs."""
        if isinstance(output, Tensor):
            return None
        logits, said = logits_in(output)
        if said:
            self.said = said
        whole = module.training and isinstance(output, Mapping) and _key_in(output) != "logits"
        return None if whole and getattr(output, "logits", None) is None else logits


def return_logits(module: nn.Module) -> None:
    """Have a module return the logits in its outputs. It is changed: it has to be a copy, or nobody else's."""
    if type(module) not in _PLAIN and _hook(module) is None:
        module.register_forward_hook(TakeLogits())


def taken_from(module: nn.Module) -> str:
    """Say what a module's outputs are, and what of them is taken, once it was called; "" where they are a tensor."""
    hook = _hook(module)
    return "" if hook is None else hook.said


def _hook(module: nn.Module) -> TakeLogits | None:
    return next((hook for hook in module._forward_hooks.values() if isinstance(hook, TakeLogits)), None)
