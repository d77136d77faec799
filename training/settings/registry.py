"""One registry: a thing's name is the name of its file.

``fedscope.training.methods.clients.fedprox`` *is* the client method ``fedprox``, found because the file is there.
Adding a method, a model, a partition or a data set touches its own file only; nothing else lists names. Behind the
files come the entry points of installed packages, and code of the user's own, which is never found by its name: it
comes with it (:class:`~fedscope.training.settings.own_code.OwnCode`).
"""

from __future__ import annotations

import pkgutil
import sys
from ast import ClassDef
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal
from weakref import WeakKeyDictionary

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.shell_words import command_line
from ..import_string import offer_file
from .code_kinds import KINDS
from .entry_points import chosen, installed
from .missing_code import needs_code
from .own_classes import is_of, kind_of, refuse_other_class
from .own_code import OwnCode, code_of

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
    "servers": {
        "fedavg": "fma",
        "fedpake": "fedsa",
        "fisher merging": "fisher",
        "model stock": "model-stock",
        "task arithmetic": "task-arithmetic",
        "weighted checkpoints": "checkpoints",
    },
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
#: fedscope itself: classes of all other packages are somebody's own
_ROOT = __name__.partition(".")[0]
#: what packages call their classes, of those that were found
_PACKAGED: WeakKeyDictionary[type[Any], tuple[RegistryGroup, str]] = WeakKeyDictionary()
_METHODS: tuple[RegistryGroup, ...] = ("clients", "servers", "averages")
_FLAGS: dict[RegistryGroup, str] = {"clients": "--client", "servers": "--server", "averages": "--average"}


#: sections that choose a file from a shelf: the shelf, the key that chooses, what is chosen without it
METHOD_SECTIONS: dict[str, tuple[RegistryGroup, str, str]] = {
    "model": ("models", "name", "mlp"),
    "client": ("clients", "method", "sgd"),
    "server": ("servers", "method", "fma"),
    "average": ("averages", "method", "none"),
}

#: the sections that a shelf's things are chosen in
_SECTIONS: dict[RegistryGroup, str] = {shelf: section for section, (shelf, _, _) in METHOD_SECTIONS.items()}


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
    if shelf not in _METHODS or isinstance(name, OwnCode):
        return name
    lower = name.lower()
    lower = _ALSO.get(shelf, {}).get(lower, lower)
    return lower if lower in names(shelf) else name


def find(shelf: RegistryGroup, name: str) -> type[Any]:
    """Find the class that the file ``name`` on a shelf defines; a method's name is taken as :func:`canonical` takes it.

    A name that no file has is one of an installed package, which is imported. Code of the user's own is found where it
    comes with its name.

    Raises:
        FedscopeError: no such file; the sentence names the nearest one and lists all. A name of code that is not here.

    >>> find("servers", "fma").__name__
    'FMA'
    """
    if isinstance(name, OwnCode):
        return _class_of(shelf, name)
    asked, name = name, canonical(shelf, name)
    if name not in names(shelf) and (packaged := chosen(shelf, name)) is not None:
        return _class_of(shelf, OwnCode.of(name, packaged.load()), packaged.value)
    if name not in names(shelf):
        if shelf == "data" and Path(name).exists():
            raise FedscopeError(f"--data {name} {_what_data(Path(name))}")
        if ":" in name and shelf in _SECTIONS:
            raise FedscopeError(needs_code(_SECTIONS[shelf], name))
        elsewhere = [
            f"{flag} {canonical(other, name)}"
            for other, flag in _FLAGS.items()
            if other != shelf and canonical(other, name) in names(other)
        ]
        known = (*names(shelf), *installed(shelf), *_ALSO.get(shelf, {}))
        hint = f"; did you mean {elsewhere[0]}?" if elsewhere else nearest(name.lower(), known)
        if not elsewhere and isinstance(asked, str):
            hint = offer_file(asked, *([(ClassDef,)] if shelf in ("clients", "servers", "averages") else [])) or hint
        raise FedscopeError(
            f"{asked!r} is not {_CALLED[shelf]} that fedscope knows{hint}; it has {', '.join(names(shelf))}"
        )
    module = _module(shelf, name)
    found: type[Any] = module.PROVIDES
    return found


def _class_of(shelf: RegistryGroup, code: OwnCode, place: str = "") -> type[Any]:
    """Return the class of code that is not fedscope's; of a function that makes a model the code as it is.

    Args:
        place: where a package has it; "" of the user's own.
    """
    thing = code.thing
    if shelf == "models" and not is_of(KINDS["model"], thing):
        return code  # type: ignore[return-value]  # what makes a network, see models.custom
    if place and shelf in _SECTIONS:
        kind = KINDS[_SECTIONS[shelf]]
        if not isinstance(thing, type):
            raise FedscopeError(f"{kind.place} = {str(code)!r} ({place}) is no class; update its package")
        refuse_other_class(kind, thing, f"{kind.place} = {str(code)!r} ({place})")
        _PACKAGED[thing] = shelf, str(code)
    found: type[Any] = thing
    return found


def method_name(method: object) -> str:
    """Return the name of a method that is there: its file's, its package's, or its code's own, ``mypkg.fedx:FedX``.

    >>> method_name(find("servers", "fma")())
    'fma'
    """
    kind = type(method)
    if "called" in vars(kind):
        called: str = vars(kind)["called"]
        return called
    if kind.__module__.partition(".")[0] == _ROOT:
        return kind.__module__.rsplit(".", 1)[-1].replace("_", "-")
    return _PACKAGED[kind][1] if kind in _PACKAGED else code_of(kind)


def _own_preset(method: OwnCode) -> dict[str, dict[str, Any]]:
    kind = kind_of(method.thing)
    assert kind is not None, "only methods are given as one"
    plain = {section: {"method": default} for section, (_, _, default) in METHOD_SECTIONS.items()}
    del plain["model"]
    return {**plain, kind.section: {"method": method}}


def is_known(shelf: RegistryGroup, name: str) -> bool:
    """Check whether a name is fedscope's, or comes with its code; nothing is imported.

    >>> is_known("servers", "FedAvg"), is_known("servers", "mine:FedX")
    (True, False)
    """
    return isinstance(name, OwnCode) or canonical(shelf, name) in names(shelf)


def presets() -> tuple[str, ...]:
    """Names that ``--method`` takes: those of all methods in ``clients/``, ``servers/`` and ``averages/``.

    >>> {"fma", "ima", "fedadam", "scaffold"} <= set(presets())
    True
    """
    known = {name for shelf in _METHODS for name in (*names(shelf), *installed(shelf))}
    return tuple(sorted(known - {"sgd", "none"}))


def _also() -> set[str]:
    """List what the field calls methods, besides the names of their files."""
    return {name for shelf in _METHODS for name in _ALSO.get(shelf, {})}


def canonical_method(method: str) -> str:
    """A preset's name, however it is written: in any case, or as the field calls it; other names stay as they are.

    >>> canonical_method("FedAvg"), canonical_method("FedProx"), canonical_method("mine")
    ('fma', 'fedprox', 'mine')
    """
    if isinstance(method, OwnCode):
        return method
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
    if isinstance(method, OwnCode):
        return _own_preset(method)
    written, method = method, canonical_method(method)
    if method not in presets():
        meant = {"fedima": "ima"}.get(method.lower(), method.lower())
        hint = offer_file(written, (ClassDef,)) or nearest(meant, (*presets(), *_also()))
        several = [name.strip() for name in written.split(",")]
        if len(several) > 1 and all(canonical_method(name) in presets() for name in several):
            raise FedscopeError(
                f"--method {written!r} are {len(several)} methods, and a run has one; train a run of each, as "
                f"{command_line('sweep', 'method=' + ','.join(several))} does"
            )
        raise FedscopeError(
            f"--method {written!r} is not a method that fedscope knows{hint}; it has {', '.join(presets())}"
        )
    return {
        section: {"method": method if method in names(shelf) or method in installed(shelf) else default}
        for section, (shelf, _, default) in METHOD_SECTIONS.items()
        if section != "model"
    }


def halves(client: str, server: str) -> tuple[str, ...]:
    """Return the names that a client and a server method are called by together: the one by which ``--method`` chooses
    both, else both. A half of a method is never called by the name of the whole.

    >>> halves("sgd", "fma"), halves("scaffold", "fma"), halves("sgd", "fedadam"), halves("feddyn", "feddyn")
    (('fma',), ('scaffold',), ('fedadam',), ('feddyn',))
    >>> halves("fedsam", "fedadam"), halves("sgd", "feddyn"), halves("feddyn", "fma")
    (('fedsam', 'fedadam'), ('sgd', 'feddyn'), ('feddyn', 'fma'))
    """
    plain_client, plain_server = METHOD_SECTIONS["client"][2], METHOD_SECTIONS["server"][2]
    if client == server or (server == plain_server and client != plain_client and client not in names("servers")):
        return (client,)
    if client == plain_client and server not in names("clients"):
        return (server,)
    return client, server


def was_loaded(shelf: RegistryGroup, name: str) -> bool:
    """Check whether an installed package's thing has been imported by somebody who trains, so that it is at hand."""
    return any(said == (shelf, name) and kind.__module__ in sys.modules for kind, said in list(_PACKAGED.items()))
