"""From what is to be checked to what a configuration chooses: a class, an object, a name."""

from __future__ import annotations

import inspect
from ast import ClassDef
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ..import_string import describe_type, offer_file
from ..methods.base import AverageMethod, ClientMethod, ServerMethod
from ..settings.entry_points import installed
from ..settings.own_classes import kind_of, refuse_other_class
from ..settings.own_code import OwnCode
from ..settings.registry import METHOD_SECTIONS, canonical, is_known, method_name, names, presets
from ..user_code.typed import typed_method

#: the kind, how the configuration names it, and its own settings
Chosen = tuple[str, str, dict[str, Any]]
SECTIONS = ("client", "server", "average")


def chosen_methods(method: Any) -> list[Chosen]:
    """Find what is to be checked: one method, or of a name that several have each of them.

    Args:
        method: a class, an object of one, the name of one of fedscope's or of an installed package, or
            ``module:Class``, which is imported.

    Raises:
        FedscopeError: none of these.

    >>> [(kind, name) for kind, name, _ in chosen_methods("fedswa")]
    [('client', 'fedswa'), ('server', 'fedswa')]
    """
    if isinstance(method, str):
        return _named(method)
    settings: dict[str, Any] = {}
    if isinstance(method, ClientMethod | ServerMethod | AverageMethod):
        default = type(method)().table() if _has_defaults(type(method)) else {}
        settings = {name: value for name, value in method.table().items() if default.get(name, _NONE) != value}
        method = type(method)
    kind = kind_of(method)
    if kind is None or kind.name not in SECTIONS:
        given = method.__name__ if inspect.isclass(method) else describe_type(method)
        raise FedscopeError(
            f"method = {given} is no method; give a name, a class derived from ClientMethod, ServerMethod or "
            "AverageMethod of fedscope.methods, or an object of one"
        )
    shelf = METHOD_SECTIONS[kind.section][0]
    name = _packaged(method) if is_known(shelf, _packaged(method)) else None
    if name is None:
        refuse_other_class(kind, method, f"method = {method.__name__}")
        name = OwnCode.of(str(method_name(object.__new__(method))), method)
    return [(kind.section, name, settings)]


_NONE = object()


def _has_defaults(kind: type[Any]) -> bool:
    try:
        kind()
    except TypeError:
        return False
    return True


def _packaged(kind: type[Any]) -> str:
    """Return the file's name of one of fedscope's own classes; "" of others."""
    parts = kind.__module__.split(".")
    return parts[-1].replace("_", "-") if parts[0] == __name__.partition(".")[0] else ""


def _named(text: str) -> list[Chosen]:
    name = typed_method(text, "check-method")
    if isinstance(name, OwnCode):
        kind = kind_of(name.thing)
        assert kind is not None, "only methods are given as one"
        return [(kind.section, name, {})]
    found: list[Chosen] = []
    for section in SECTIONS:
        shelf = METHOD_SECTIONS[section][0]
        known = canonical(shelf, name)
        if known in names(shelf) or known in installed(shelf):
            found.append((section, known, {}))
    if not found:
        every = sorted({"sgd", "none", *presets()})
        hint = offer_file(text, (ClassDef,)) or nearest(text.lower(), every)
        raise FedscopeError(
            f"{text!r} is not a method that fedscope knows{hint}; give one of "
            f"{', '.join(every)}, or your own as module:Class"
        )
    return found
