"""Whether a module can be evaluated at all, said before anything is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..checkpoints import FedscopeError
from .replica import Replica
from .samples import Samples

#: samples on which a module must answer the same twice
TRIED = 8


def refuse_shapeless(module: nn.Module) -> None:
    """Refuse a module that has no parameters to vary, or not yet.

    Raises:
        FedscopeError: no parameters; lazy ones.
    """
    if next(module.parameters(), None) is None:
        raise FedscopeError("the module has no parameters, so it has no loss surface; give one that can be trained")
    for name, values in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(values):
            raise FedscopeError(
                f"the module's {name} has no shape yet; name its sizes (nn.Linear for nn.LazyLinear), or call the "
                "module once on a sample first"
            )


def try_out(replica: Replica, data: Sequence[tuple[Samples, Tensor]]) -> None:
    """Refuse a module that does not fit the data (samples, and their inputs as evaluated), or is no function of them.

    Raises:
        FedscopeError: it fails on the data, returns other than a tensor [n, classes], or not the same twice; data of
            one class, on which loss and error are 0 whatever is answered.
    """
    for part, x in data:
        if part.classes < 2:
            raise FedscopeError(
                f"{part.label} has one class, so that loss and error are 0 whatever the module answers, as with a "
                "regression's single output; give data of at least two classes, and a module with an output for each"
            )
        outputs = tuple(_answer(replica, x[:1], part).shape)
        if outputs != (1, part.classes):
            single = (
                "; a single output (regression, binary cross-entropy) is no classifier's"
                if outputs[-1:] == (1,)
                else ""
            )
            raise FedscopeError(
                f"the module returns outputs of shape {list(outputs)} for one sample, but {part.label} has "
                f"{part.classes} classes, so [1, {part.classes}] is needed{single}"
            )
    part, x = data[0]
    once, again = (_answer(replica, x[:TRIED], part).double() for _ in range(2))
    # a GPU may round a sum differently the second time; dropout changes it by far more
    scale = float(torch.nan_to_num(once.abs()).max())
    if not torch.allclose(once, again, rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
        raise FedscopeError(
            "the module returns different outputs for the same input, so it has no loss surface; "
            "switch its randomness off in evaluation mode (functional.dropout wants training=self.training)"
        )


def _answer(replica: Replica, x: Tensor, part: Samples) -> Tensor:
    """What the module returns for a few samples."""
    try:
        output: object = replica.logits(x)
    except torch.OutOfMemoryError:
        few = "even one sample" if len(x) == 1 else f"{len(x)} samples"
        raise FedscopeError(
            f"{replica.device} has no memory left for {few} of {part.label}; --device cpu always can"
        ) from None
    except Exception as error:  # whatever the user's code or torch raises
        why = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise FedscopeError(
            f"the module fails on {len(x)} of {part.label}, each of shape {list(x.shape[1:])} "
            f"({type(error).__name__}: {why}); give data that it takes, or a module that takes these (nn.Flatten() "
            "makes a vector of an image)"
        ) from error
    if not isinstance(output, Tensor):
        raise FedscopeError(
            f"the module returns a value of type {type(output).__name__}, not a tensor of logits "
            f"[n, {part.classes}]; wrap it in a module whose forward returns the logits alone"
        )
    return output
