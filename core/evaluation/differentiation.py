"""What has no derivatives, in sentences: a loss without a gradient, or one that torch cannot differentiate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

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


def refuse_left_out(module: nn.Module, compute: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    """Refuse a number of whose gradient ``torch.autograd.grad`` leaves something out.

    It asks what leads to the parameters by torch's graph. A reentrant checkpoint calls backward() on a graph of its
    own, so that its parameters get nothing, and only where something before it is asked for does torch say so. Only
    an autograd.Function can do that; each of the two goes through a graph of its own, as its backward may free what
    it has saved.

    Args:
        compute: makes the number, or what is summed to it, the same each time.
        parameters: of a copy.

    Raises:
        FedscopeError: it does.
    """
    with _drawn_as_before(parameters):
        value = compute().sum()
        if not any(isinstance(node, BackwardCFunction) for node in _nodes(value)):
            return
        try:
            found = torch.autograd.grad(value, list(parameters), materialize_grads=True)
        except Exception as error:
            _refuse_reentrant(module, error)
            return  # whoever asks for the gradient says why there is none
    with _drawn_as_before(parameters):
        try:
            value = compute().sum()
            with without_gradients(value, parameters):
                value.backward()  # type: ignore[no-untyped-call]
                whole = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
        except Exception as error:
            _refuse_reentrant(module, error)
            return
    for own, other in zip(dense(found), dense(whole), strict=True):
        # a GPU may round a sum differently the second time; what is left out is far more
        scale = float(torch.nan_to_num(other.abs()).max()) if other.numel() else 0.0
        if not torch.allclose(own, other, rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
            raise FedscopeError(
                f"backward() gives the {type(module).__name__} other gradients than torch.autograd.grad, as it does "
                "behind a checkpoint with use_reentrant=True; give that use_reentrant=False"
            )


@contextmanager
def without_gradients(value: Tensor, parameters: Iterable[Tensor] = ()) -> Iterator[None]:
    """Let backward() of a number give gradients to what it depends on, and take them away: a task's own, too."""
    leaves = {id(one): one for one in parameters}
    leaves |= {id(node.variable): node.variable for node in _nodes(value) if hasattr(node, "variable")}
    before = [(one, one.grad) for one in leaves.values()]
    for one, _ in before:
        one.grad = None  # else it is added to in place
    try:
        yield
    finally:
        for one, gradient in before:
            one.grad = gradient


def _nodes(value: Tensor) -> Iterator[Any]:
    """Walk the graph of a number, each node once."""
    waiting, seen = [value.grad_fn], {value.grad_fn}
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        yield node
        new = {other for other, _ in node.next_functions} - seen
        seen |= new
        waiting += new


def _drawn_as_before(parameters: Sequence[Tensor]) -> Any:
    """Give back what is drawn meanwhile, so that the next draws the same."""
    return torch.random.fork_rng({one.device for one in parameters if one.is_cuda})


def _refuse_reentrant(module: nn.Module, error: Exception) -> None:
    if isinstance(error, RuntimeError) and "use_reentrant" in str(error):
        with differentiating(module):
            raise error


@contextmanager
def differentiating(module: nn.Module, *, twice: bool = False) -> Iterator[None]:
    """Say in a sentence what torch cannot differentiate.

    Raises:
        FedscopeError: the reason, and what to do.
    """
    try:
        yield
    except Exception as error:  # a backward of the user's own raises what it will
        if isinstance(error, FedscopeError | MemoryError) or is_out_of_memory(error):
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
