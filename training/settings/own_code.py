"""A name of code of one's own together with the code, which is what gives leave to run it."""

from __future__ import annotations

from typing import Any, Self
from weakref import WeakKeyDictionary

from .code_source import CodeSource, source_of


class OwnCode(str):
    """``mypkg.fedx:FedX``, and the class or the function that is called so.

    A run's files hold plain texts, and of a plain text nothing is ever imported: only this class gives leave to. It is
    written into a configuration like any text. See :mod:`fedscope.training.user_code.resolve`, which makes it.

    Attributes:
        thing: the code; source: its text.
    """

    thing: Any
    source: CodeSource

    @classmethod
    def of(cls, name: str, thing: Any, source: CodeSource | None = None) -> Self:
        """Return the name of a thing that is there.

        >>> code = OwnCode.of("fractions:Fraction", float)
        >>> code, code.thing
        ('fractions:Fraction', <class 'float'>)
        """
        made = cls(name)
        made.thing, made.source = thing, source_of(thing) if source is None else source
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnCode.of, (str(self), self.thing, self.source)


def name_of(thing: Any) -> str:
    """Name a class or a function by its module, and an object by its class: ``mypkg.fedx:FedX``.

    >>> from fractions import Fraction
    >>> name_of(Fraction), name_of(Fraction(1, 2))
    ('fractions:Fraction', 'fractions:Fraction')
    """
    while hasattr(thing, "func"):  # functools.partial
        thing = thing.func
    code = thing if hasattr(thing, "__qualname__") else type(thing)
    name = str(code.__qualname__).rpartition(".")[2]
    return f"{code.__module__}:{name if name.isidentifier() else 'function'}"


#: names of classes, which their sources are read for once; of those that were given under a file's name, that one
_CODE: WeakKeyDictionary[type[Any], OwnCode] = WeakKeyDictionary()


def code_of(kind: type[Any]) -> OwnCode:
    """Return the name of a class of the user's own, with the class."""
    if kind not in _CODE:
        _CODE[kind] = OwnCode.of(name_of(kind), kind)
    return _CODE[kind]


def called_as(code: OwnCode, name: str) -> OwnCode:
    """Return code under the name that a file has for it; a class is called so from here on.

    >>> from fractions import Fraction
    >>> called_as(OwnCode.of("fractions:Fraction", Fraction(1, 2)), "mine:Half")
    'mine:Half'
    """
    made = OwnCode.of(name, code.thing, code.source)
    if isinstance(code.thing, type):
        _CODE[code.thing] = made
    return made


def short_name(name: str) -> str:
    """Return what code of one's own is called in titles and names of folders; of anything else its name.

    >>> short_name("mypkg.fedx:FedX"), short_name("mypkg.nets:net(16)"), short_name("fedprox")
    ('FedX', 'net', 'fedprox')
    """
    return name.partition(":")[2].partition("(")[0] or name
