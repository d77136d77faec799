"""From what was typed, or handed over in Python, to code that may be run."""

from __future__ import annotations

import inspect
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import quoted
from ..import_string import ImportString, describe_type, written
from ..models.pretrained import is_pretrained
from ..settings.code_kinds import KINDS, Kind
from ..settings.code_source import CodeSource, source_of
from ..settings.own_classes import base_name, is_of, refuse_other_class
from ..settings.own_code import OwnCode, name_of

#: code, and the settings that were given with it: ``FedX(beta=0.5)``
Resolved = tuple[OwnCode, Mapping[str, Any]]


def typed_code(kind: Kind, text: str, option: str) -> Resolved:
    """Import what somebody typed: ``mypkg.fedx:FedX``, ``mypkg.fedx:FedX(beta=0.5)``, ``fedx.py:FedX``.

    Args:
        option: that it was typed in, for sentences.

    Raises:
        FedscopeError: what :class:`~fedscope.training.import_string.ImportString` refuses; something else than code of
            this kind.
    """
    if kind.name == "model" and is_pretrained(text):
        raise FedscopeError(
            f"{written(option, text)} is a folder to measure, and a run could not be resumed without it; to train "
            "its network, write a function that returns it "
            f"(AutoModelForCausalLM.from_pretrained({text.partition(':')[2]!r})) and "
            f"give {written(option, 'FILE.py:NAME')}"
        )
    call = ImportString.parse(option, text)
    place = written(option, text)
    found = call.found()
    if kind.name == "optimiser" and not callable(found):
        raise FedscopeError(f"{place} is {describe_type(found)}; {_MAKES_OPTIMISERS}")
    if kind.name in ("data", "optimiser") or (kind.name == "model" and not is_of(kind, found)):
        return OwnCode.of(call.importable, call, source_of(found)), {}
    if kind.name == "partition" and not inspect.isclass(found):
        if call.args or call.keywords:  # a function that makes one
            return handed_code(kind, call(), place)
        return handed_code(kind, found, place)
    if not inspect.isclass(found):
        return handed_code(kind, call(), place)
    refuse_other_class(kind, found, place)
    if kind.name == "partition":
        return handed_code(kind, call(), place)
    if call.args:
        key = KINDS[kind.name].section
        raise FedscopeError(
            f"{place}: settings are given by name, as in {found.__name__}(NAME=VALUE), or --set {key}.KEY=VALUE"
        )
    return OwnCode.of(name_of(found), found), dict(call.keywords)


def handed_code(kind: Kind, given: Any, place: str) -> Resolved:
    """Take an object that Python was given: a class, or one made of it with settings; of models and data more.

    Args:
        place: what it was given as, for sentences: ``server=``.

    Raises:
        FedscopeError: another thing than code of this kind.
    """
    if kind.name == "model":
        return _handed_model(kind, given, place)
    if kind.name == "partition":
        return _handed_partition(kind, given, place)
    if kind.name == "data" and not callable(given):  # what it holds counts, and not the code of its class
        name = "arrays" if isinstance(given, tuple | list | Mapping) else type(given).__name__
        return OwnCode.of(f"python:{name}", given, CodeSource()), {}
    if kind.name == "optimiser":
        return _handed_optimiser(given, place)
    if kind.name == "data":
        return OwnCode.of(_with_arguments_of(given, place), given), {}
    if inspect.isclass(given):
        refuse_other_class(kind, given, place)
        return OwnCode.of(name_of(given), given), {}
    _refuse_other_object(kind, given, place)
    return OwnCode.of(name_of(given), type(given)), given.table()


_MAKES_OPTIMISERS = (
    "name a class or a function that makes a torch.optim.Optimizer of a list of parameters, as torch.optim.Adam does"
)


def _handed_optimiser(given: Any, place: str) -> Resolved:
    """Take what makes an optimiser; of ``functools.partial(Adam, betas=(0.9, 0.95))`` the arguments are in its name."""
    if not callable(given):
        raise FedscopeError(f"{place} is {describe_type(given)}; {_MAKES_OPTIMISERS}")
    if not isinstance(given, partial):
        return OwnCode.of(name_of(given), given), {}
    if given.args:
        raise FedscopeError(f"{place} is a functools.partial with arguments that have no name; give them by name")
    spelled = _with_arguments_of(given, place)
    call = ImportString.parse(place, spelled)
    return OwnCode.of(spelled, CalledCode(given.func, (), call.keywords), source_of(given)), {}


def _with_arguments_of(given: Any, place: str) -> str:
    """Name what is called, with the arguments of a ``functools.partial``: two runs of other arguments are not alike.

    Raises:
        FedscopeError: an argument that is no literal, which a run could not keep.
    """
    if not isinstance(given, partial):
        return name_of(given)
    for value in (*given.args, *given.keywords.values()):
        try:
            literal_eval(repr(value))
        except (ValueError, SyntaxError):
            raise FedscopeError(
                f"{place} is a functools.partial with {describe_type(value)} among its arguments, which a run cannot "
                "keep; give numbers, texts, or lists of these, or a function of your own that makes it"
            ) from None
    words = [*map(repr, given.args), *(f"{name}={value!r}" for name, value in given.keywords.items())]
    return f"{name_of(given)}({', '.join(words)})"


@dataclass(frozen=True)
class CalledCode:
    """What makes an optimiser, with the arguments that come after the parameters."""

    found: Any
    args: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]

    def __call__(self, parameters: Any) -> Any:
        """Make it."""
        return self.found(parameters, *self.args, **dict(self.keywords))


def with_arguments(code: OwnCode, recorded: str) -> OwnCode:
    """Return code of an optimiser with the arguments that a file has for it: those count, and they are literals.

    Raises:
        FedscopeError: other arguments were given; what stands in the file is no call.
    """
    own, theirs = str(code).partition("(")[1:], recorded.partition("(")[1:]
    if own == theirs:
        return code
    if own[0]:
        called = f"optimiser={code.partition('(')[0]}"
        raise FedscopeError(
            f"--code optimiser={code} has other arguments than client.optimiser = {str(recorded)!r}, and those of a "
            f"file count; give --code {quoted(called)}"
        )
    spelled = str(code) + "".join(theirs)
    call = ImportString.parse("client.optimiser =", spelled)
    found = code.thing.found() if isinstance(code.thing, ImportString) else code.thing
    return OwnCode.of(spelled, CalledCode(found, call.args, call.keywords), code.source)


def _refuse_other_object(kind: Kind, given: Any, place: str) -> None:
    refuse_other_class(kind, type(given), place) if _has_settings(given) else _refuse_thing(kind, given, place)


def _has_settings(given: Any) -> bool:
    from ..settings.settings import Settings

    return isinstance(given, Settings)


def _refuse_thing(kind: Kind, given: Any, place: str) -> None:
    raise FedscopeError(
        f"{place} is {describe_type(given)}, not {kind.called}; give a name, a class derived from "
        f"fedscope.methods.{base_name(kind)}, or an object of one"
    )


def _handed_model(kind: Kind, given: Any, place: str) -> Resolved:
    from torch import nn

    if _has_settings(given):
        refuse_other_class(kind, type(given), place)
        return OwnCode.of(name_of(given), type(given)), given.table()
    if is_of(kind, given):
        refuse_other_class(kind, given, place)
        return OwnCode.of(name_of(given), given), {}
    if isinstance(given, nn.Module):
        return OwnCode.of(name_of(given), Copied(given)), {}
    if not callable(given):
        raise FedscopeError(
            f"{place} is {describe_type(given)}, not a model; give a name, a class or a function that makes a "
            "torch.nn.Module, or a module"
        )
    return OwnCode.of(_with_arguments_of(given, place), given), {}


class Copied:
    """Makes copies of a module that was handed over, with its numbers."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self) -> Any:
        """Return a copy."""
        from ...evaluation.module_copy import copy_module

        return copy_module(self.module)


def _handed_partition(kind: Kind, given: Any, place: str) -> Resolved:
    from ..data.own_partition import Listed

    if _has_settings(given):
        refuse_other_class(kind, type(given), place)
        words = ", ".join(f"{name}={value!r}" for name, value in given.table().items())
        return OwnCode.of(f"{name_of(given)}({words})" if words else name_of(given), given), {}
    if inspect.isclass(given) and is_of(kind, given):
        refuse_other_class(kind, given, place)
        return handed_code(kind, given(), place)
    if callable(given):
        return OwnCode.of(_with_arguments_of(given, place), given), {}
    listed = Listed.of(given, place)
    return OwnCode.of(listed.name, listed, CodeSource()), {}
