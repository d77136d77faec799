"""Architectures of the user's own code, named ``module:factory`` as servers and task queues name theirs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..checkpoints import FedscopeError, nearest
from .architectures import Architecture
from .settings import setting

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Factory(Architecture):
    """``mypkg.nets:resnet20``: what ``resnet20()`` of the module ``mypkg.nets`` returns, a class being called likewise.

    The module is found in the current folder, then in the environment. The factory is called without arguments, so it
    knows shapes and classes by itself; whether they are the data's is seen by the evaluator.

    >>> Factory(path="torch.nn:Identity").build((64,), 10)
    Identity()
    """

    path: str = setting("", "module:factory")

    def __post_init__(self) -> None:
        super().__post_init__()
        module, _, name = self.path.partition(":")
        importable = all(part.isidentifier() for part in module.split(".")) and not module.endswith(".py")
        if not (importable and name.isidentifier()):
            raise FedscopeError(
                f"--model {self.path} is no module:factory; write the module as Python imports it, as in "
                "mypkg.nets:resnet20"
            )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module, freshly made; ``shape`` and ``classes`` are the factory's own business.

        Raises:
            FedscopeError: no such module or name, nothing that can be called, an exception or an exit in it, no
                ``nn.Module``, one whose parameters have no shape yet.
        """
        from torch import nn

        where, _, name = self.path.partition(":")
        with _current_folder_first():
            factory = self._named(self._imported(where), where, name)
            if not callable(factory):
                raise FedscopeError(
                    f"--model {self.path}: {name} is {_kind(factory)} and cannot be called; name a function or a class "
                    "that makes the model"
                )
            try:
                made = factory()
            except SystemExit as error:
                raise FedscopeError(f"--model {self.path}: {name}() {_ends(error)}") from error
            except Exception as error:
                raise FedscopeError(
                    f"--model {self.path}: {name}() failed with {_said(error)}; it is called without arguments, so "
                    "give a function that fills them in"
                ) from error
        if not isinstance(made, nn.Module):
            raise FedscopeError(
                f"--model {self.path}: {name}() returned {_kind(made)}, not a torch.nn.Module; return the model itself"
            )
        _refuse_shapeless(made, f"--model {self.path}: {name}()")
        return made

    def _imported(self, where: str) -> ModuleType:
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{where}.".startswith(f"{error.name}."):
                raise FedscopeError(
                    f"--model {self.path}: there is no module {error.name} in {Path.cwd()} or in this Python; go to "
                    "the folder that holds it, or install it"
                ) from None
            raise FedscopeError(f"--model {self.path}: {where} needs {error.name}, which is not installed") from error
        except SystemExit as error:
            raise FedscopeError(f"--model {self.path}: importing {where} {_ends(error)}") from error
        except Exception as error:
            raise FedscopeError(f"--model {self.path}: {where} cannot be imported: {_said(error)}") from error

    def _named(self, module: ModuleType, where: str, name: str) -> Any:
        if not hasattr(module, name):
            known = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
            raise FedscopeError(
                f"--model {self.path}: {where} ({getattr(module, '__file__', None) or 'built in'}) has no "
                f"{name}{nearest(name, known)}"
            )
        return getattr(module, name)


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Imports look into the current folder first, which a command's own search path does not have."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with suppress(ValueError):  # the imported code may have changed it too
            sys.path.remove(here)


def _kind(thing: object) -> str:
    return f"a {type(thing).__name__}" if thing is not None else "nothing"


def _refuse_shapeless(module: nn.Module, where: str) -> None:
    """Refuse a lazy module, which gets its shapes from the first input it sees."""
    from torch.nn.parameter import is_lazy

    for name, values in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(values):
            raise FedscopeError(
                f"{where} returned a module whose {name} has no shape yet; name its sizes (nn.Linear for "
                "nn.LazyLinear), or call it once on a sample before returning it"
            )


def _ends(error: SystemExit) -> str:
    return (
        f"ends the program ({_said(error)}), as a script does that reads its arguments; move what it runs under "
        'if __name__ == "__main__", or name a module that only makes the model'
    )


def _said(error: BaseException) -> str:
    """An exception in one line."""
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
