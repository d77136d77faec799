"""What has no derivatives, in sentences: a loss without a gradient, or one that torch cannot differentiate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import torch
from torch import Tensor, nn

from ..checkpoints import FedscopeError
from .accelerators import is_out_of_memory
from .tasks import Task


def refuse_without_gradient(module: nn.Module, outputs: Tensor, task: Task, what: str) -> NoReturn:
    """Refuse a loss that depends on no parameter, as far as torch knows.

    Args:
        outputs: of the module, of which the loss was made.
        what: needs the gradient, for the sentence.

    Raises:
        FedscopeError: says whether the module or the task is why.
    """
    if outputs.requires_grad:
        raise FedscopeError(
            f"the loss of the task {task.name} has no gradient, and {what} needs one; give --task a loss that can be "
            "differentiated"
        )
    raise FedscopeError(
        f"the outputs of the {type(module).__name__} have no gradient, and {what} needs one: its forward computes "
        "under torch.no_grad() or in a checkpoint with use_reentrant=True, or detaches what it returns; take that out"
    )


def dense(gradients: Iterable[Tensor]) -> list[Tensor]:
    """Return gradients as ordinary tensors, those of embeddings with ``sparse=True``, too."""
    return [one if one.layout is torch.strided else one.to_dense() for one in gradients]


def refuse_left_out(module: nn.Module, value: Tensor, parameters: Sequence[Tensor]) -> None:
    """Refuse a number of whose gradient ``torch.autograd.grad`` leaves something out.

    It asks what leads to the parameters by torch's graph. A reentrant checkpoint calls backward() on a graph of its
    own, so that its parameters get nothing, and only where something before it is asked for does torch say so.

    Args:
        value: a number, whose graph stays.
        parameters: of a copy, whose ``grad`` nobody needs.

    Raises:
        FedscopeError: it does.
    """
    if not value.requires_grad:
        return
    try:
        found = torch.autograd.grad(value, list(parameters), retain_graph=True, materialize_grads=True)
        value.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "use_reentrant" not in str(error):
            return  # whoever asks for the gradient says why there is none
        with differentiating(module):
            raise
    whole = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    for one in parameters:
        one.grad = None
    for own, other in zip(dense(found), dense(whole), strict=True):
        # a GPU may round a sum differently the second time; what is left out is far more
        scale = float(torch.nan_to_num(other.abs()).max()) if other.numel() else 0.0
        if not torch.allclose(own, other, rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
            raise FedscopeError(
                f"backward() gives the {type(module).__name__} other gradients than torch.autograd.grad, as it does "
                "behind a checkpoint with use_reentrant=True; give that use_reentrant=False"
            )


@contextmanager
def differentiating(module: nn.Module, *, twice: bool = False) -> Iterator[None]:
    """Say in a sentence what torch cannot differentiate.

    Raises:
        FedscopeError: the reason, and what to do.
    """
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        name = type(module).__name__
        first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        if "use_reentrant" in first:
            raise FedscopeError(
                f"the forward of the {name} calls torch.utils.checkpoint with use_reentrant=True, which torch takes in "
                "training alone; give it use_reentrant=False"
            ) from error
        if twice:
            raise FedscopeError(
                f"the loss of the {name} cannot be differentiated twice ({first}); leave the Hessian out (--no-hessian)"
            ) from error
        raise FedscopeError(
            f"the loss of the {name} cannot be differentiated ({first}); give a module and a --task that can"
        ) from error
