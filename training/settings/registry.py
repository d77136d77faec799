"""One registry: a thing's name is the name of its file.

``fedscope.training.methods.clients.fedprox`` *is* the client method ``fedprox``, found because the file is there.
Adding a method, a model, a partition or a data set touches its own file only; nothing else lists names.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from ...checkpoints import FedscopeError, nearest

RegistryGroup = Literal["clients", "servers", "averages", "models", "partitions", "data"]

_CALLED: dict[str, str] = {
    "clients": "a client method",
    "servers": "a server method",
    "averages": "an average over rounds",
    "models": "a model",
    "partitions": "a partition",
    "data": "a data set",
}
#: what the field calls a method whose file has another name; FedSA was published as FedPake in 2025
_ALSO: dict[RegistryGroup, dict[str, str]] = {
    "clients": {"fedavg": "sgd"},
    "servers": {"fedavg": "fma", "fedpake": "fedsa"},
}
#: the package of each below ``fedscope.training``
_PACKAGES: dict[RegistryGroup, str] = {
    "clients": "methods.clients",
    "servers": "methods.servers",
    "averages": "methods.averages",
    "models": "models.architectures",
    "partitions": "data.partitions",
    "data": "data.published",
}
_METHODS: tuple[RegistryGroup, ...] = ("clients", "servers", "averages")
_FLAGS: dict[RegistryGroup, str] = {"clients": "--client", "servers": "--server", "averages": "--average"}


#: sections that choose a file from a shelf: the shelf, the key that chooses, what is chosen without it
METHOD_SECTIONS: dict[str, tuple[RegistryGroup, str, str]] = {
    "model": ("models", "name", "mlp"),
    "client": ("clients", "method", "sgd"),
    "server": ("servers", "method", "fma"),
    "average": ("averages", "method", "none"),
}


@cache
def names(shelf: RegistryGroup) -> tuple[str, ...]:
    """Return the names on a shelf, sorted; ``dirichlet_clients.py`` is called ``dirichlet-clients``.

    >>> {"ima", "none"} <= set(names("averages"))
    True
    """
    package = _module(shelf)
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(package.__path__)))


def _module(shelf: RegistryGroup, name: str = "") -> ModuleType:
    """A file on a shelf, or the shelf's package."""
    path = f"..{_PACKAGES[shelf]}" + (f".{name.replace('-', '_')}" if name else "")
    return import_module(path, __package__)


def _what_data(path: Path) -> str:
    """Say how data are given that a file or a folder holds, which was named without more."""
    if path.is_dir():
        return f"is a folder; write folder:{path}"
    if path.suffix == ".py":
        return f"is a file of code; name the function in it that returns the data, as in {path}:load"
    return (
        "is no .npz; save its arrays with numpy.savez (x_test, y_test, and x_train, y_train), or write "
        f"npz:{path} if it is one under another name"
    )


def canonical(shelf: RegistryGroup, name: str) -> str:
    """Return the name of a method's file, however it is written: in any case, or as the field calls it.

    A name that is not known, or of no method, stays as it is.

    >>> canonical("servers", "FedAvg"), canonical("servers", "FedPake"), canonical("servers", "FedAvgg")
    ('fma', 'fedsa', 'FedAvgg')
    """
    if shelf not in _METHODS:
        return name
    lower = name.lower()
    lower = _ALSO.get(shelf, {}).get(lower, lower)
    return lower if lower in names(shelf) else name


def find(shelf: RegistryGroup, name: str) -> type[Any]:
    """Find the class that the file ``name`` on a shelf defines; a method's name is taken as :func:`canonical` takes it.

    Raises:
        FedscopeError: no such file; the sentence names the nearest one and lists all.

    >>> find("servers", "fma").__name__
    'FMA'
    """
    asked, name = name, canonical(shelf, name)
    if name not in names(shelf):
        if shelf == "data" and Path(name).exists():
            raise FedscopeError(f"--data {name} {_what_data(Path(name))}")
        if shelf == "models" and ":" in name:
            *others, last = names("models")
            raise FedscopeError(
                f"model.name = {name!r} is code of your own, which a run cannot keep, so it could not be resumed; "
                f"train {', '.join(others)} or {last}, and give module:factory to analyses of models trained elsewhere"
            )
        elsewhere = [
            f"{flag} {canonical(other, name)}"
            for other, flag in _FLAGS.items()
            if other != shelf and canonical(other, name) in names(other)
        ]
        known = (*names(shelf), *_ALSO.get(shelf, {}))
        hint = f"; did you mean {elsewhere[0]}?" if elsewhere else nearest(name.lower(), known)
        raise FedscopeError(
            f"{asked!r} is not {_CALLED[shelf]} that fedscope knows{hint}; it has {', '.join(names(shelf))}"
        )
    module = _module(shelf, name)
    found: type[Any] = module.PROVIDES
    return found


def method_name(method: object) -> str:
    """Return the name of a method that is there: its file's.

    >>> method_name(find("servers", "fma")())
    'fma'
    """
    return type(method).__module__.rsplit(".", 1)[-1].replace("_", "-")


def presets() -> tuple[str, ...]:
    """Names that ``--method`` takes: those of all methods in ``clients/``, ``servers/`` and ``averages/``.

    >>> {"fma", "ima", "fedadam", "scaffold"} <= set(presets())
    True
    """
    return tuple(sorted({name for shelf in _METHODS for name in names(shelf)} - {"sgd", "none"}))


def _also() -> set[str]:
    """List what the field calls methods, besides the names of their files."""
    return {name for shelf in _METHODS for name in _ALSO.get(shelf, {})}


def canonical_method(method: str) -> str:
    """A preset's name, however it is written: in any case, or as the field calls it; other names stay as they are.

    >>> canonical_method("FedAvg"), canonical_method("FedProx"), canonical_method("mine")
    ('fma', 'fedprox', 'mine')
    """
    for shelf in _METHODS:
        if (name := canonical(shelf, method)) in presets():
            return name
    return method


def preset(method: str) -> dict[str, dict[str, Any]]:
    """A method of the literature as a choice of client, server and average, whose own settings default to the paper's.

    The choice only: rates, epochs, clients and rounds are this package's defaults, not the paper's set-up.
    A name stands for every file of that name: ``fedprox`` for a client alone, ``fedswa`` for a client and a server,
    ``ima`` for an average. What it does not name is plain SGD, FMA and no averaging.

    Raises:
        FedscopeError: an unknown name.

    >>> preset("ima")
    {'client': {'method': 'sgd'}, 'server': {'method': 'fma'}, 'average': {'method': 'ima'}}
    """
    written, method = method, canonical_method(method)
    if method not in presets():
        meant = {"fedima": "ima"}.get(method.lower(), method.lower())
        raise FedscopeError(
            f"--method {written!r} is not a method that fedscope knows{nearest(meant, (*presets(), *_also()))}; "
            f"it has {', '.join(presets())}"
        )
    return {
        section: {"method": method if method in names(shelf) else default}
        for section, (shelf, _, default) in METHOD_SECTIONS.items()
        if section != "model"
    }
