"""What has no derivatives, in sentences: a loss without a gradient, or one that torch cannot differentiate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

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
