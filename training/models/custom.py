"""Architectures of the user's own code, named ``module:factory`` as servers and task queues name theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...checkpoints import FedscopeError
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.unregistered import say_unregistered
from ..import_string import ImportString, describe_error, describe_type
from ..settings.own_code import OwnCode, short_name
from ..settings.settings import setting
from .base import Architecture

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Factory(Architecture):
    """``mypkg.nets:resnet20``: what ``resnet20()`` of the module ``mypkg.nets`` returns, a class being called likewise.

    ``mypkg.nets:resnet(20, width=1.5)`` gives it arguments, which are literals. The module is found in the current
    folder, then in the environment. The factory knows shapes and classes by itself; whether they are the data's is seen
    by the evaluator.

    Raises:
        FedscopeError: no way to write a factory; an argument that is no literal.

    >>> Factory(path="torch.nn:Linear(64, 10, bias=False)").build((64,), 10)
    Linear(in_features=64, out_features=10, bias=False)
    """

    path: str = setting("", "module:factory")

    def __post_init__(self) -> None:
        super().__post_init__()
        ImportString.parse("--model", self.path)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the module, freshly made; ``shape`` and ``classes`` are the factory's own business.

        One in half precision is taken in float32, which a warning says.

        Raises:
            FedscopeError: no such module or name, nothing that can be called, an exception or an exit in it, no
                ``nn.Module``, one whose parameters have no shape yet, or are no real numbers.
        """
        call = ImportString.parse("--model", self.path)
        return _checked(call(), f"--model {self.path}: {call.spoken}")


@dataclass(frozen=True)
class OwnModel(Architecture):
    """What a factory of the user's own makes, of which a run can be trained: see :func:`architecture_of`."""

    code: ClassVar[OwnCode]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the module, freshly made. Raises as :meth:`Factory.build`."""
        call = self.code.thing
        spoken = call.spoken if isinstance(call, ImportString) else f"{short_name(self.code)}()"
        try:
            made = call()
        except FedscopeError:
            raise
        except Exception as error:
            raise FedscopeError(
                f"--model {self.code}: {spoken} failed with {describe_error(error)}; it is called without arguments, "
                "which functools.partial or a function of your own can give"
            ) from error
        return _checked(made, f"--model {self.code}: {spoken}")


def architecture_of(code: OwnCode) -> type[OwnModel]:
    """Return the architecture that a factory makes, which is called without arguments; the same for the same code."""
    known = vars(code)
    if "architecture" not in known:
        body = {"code": code, "called": code, "__module__": __name__}
        known["architecture"] = dataclass(frozen=True)(type("OwnModel", (OwnModel,), body))
    found: type[OwnModel] = known["architecture"]
    return found


def _checked(made: object, place: str) -> nn.Module:
    """Return what a factory has made. Raises as :meth:`Factory.build`."""
    from torch import nn

    from ...evaluation.taken_logits import return_logits
    from ...evaluation.validation import refuse_unreadable

    if not isinstance(made, nn.Module):
        raise FedscopeError(f"{place} returned {describe_type(made)}, not a torch.nn.Module; return the model itself")
    refuse_unreadable(made, f"{place} returned a module whose ")
    return_logits(made)
    if unknown := say_unregistered(made):
        warn_user(f"{place} returned a model that is not whole: {unknown}")
    return in_float32(made, f"{place} returned a model")


def in_float32(module: nn.Module, what: str) -> nn.Module:
    """A module with parameters in half precision, or buffers in bfloat16, which a run cannot hold, in float32 instead,
    which a warning says.

    Args:
        what: begins the sentence.
    """
    import torch

    from ...checkpoints.models.weights import tensors_of
    from ...evaluation.module_copy import copy_module

    halves = {value.dtype for value in module.parameters()} & {torch.float16, torch.bfloat16}
    if not halves and any(value.dtype == torch.bfloat16 for value in tensors_of(module).values()):
        halves, what = {torch.bfloat16}, f"{what} in part"
    if not halves:
        return module
    names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in halves))
    warn_user(f"{what} in {names}, which is taken in float32 (--precision bf16 measures in less)")
    return copy_module(module).float()
