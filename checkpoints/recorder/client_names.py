"""Numbers of clients that a framework calls by names; a run has numbers alone, and keeps the names beside them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ..io.errors import FedscopeError, list_few

#: a longer number is a hash, not a count
_DIGITS = 9


class ClientNames:
    """The number of each client by its name, the same in every run.

    Names that end in a number (``site-3``, ``3``) have that number; others the next that is free, in the order in which
    they are asked for.

    Args:
        given: names in the order of their numbers, from 0; then no other name is a client.

    Raises:
        FedscopeError: a name twice.

    >>> names = ClientNames()
    >>> [names.number(name) for name in ("site-3", "site-1", "hospital", "site-3", "other-3")]
    [3, 1, 4, 3, 5]
    >>> ClientNames(["hospital", "clinic"]).number("clinic")
    1
    """

    def __init__(self, given: Collection[str] | None = None) -> None:
        self._closed = given is not None
        self._numbers: dict[str, int] = {}
        self._said: set[str] = set()
        for number, name in enumerate(given or ()):
            if name in self._numbers:
                raise FedscopeError(f"clients= names {name!r} twice; give each name once")
            self._numbers[name] = number

    def number(self, name: str) -> int:
        """Return a client's number; an unknown one gets one.

        Raises:
            FedscopeError: a name that was not given, where names were.
        """
        if name in self._numbers:
            return self._numbers[name]
        if self._closed:
            raise FedscopeError(
                f"client {name!r} is not among clients= ({list_few(list(self._numbers))}); give all names, or leave "
                "clients= out"
            )
        taken = set(self._numbers.values())
        found = re.search(r"(\d+)$", name)
        own = int(found[1]) if found and len(found[1]) <= _DIGITS else None
        number = own if own is not None and own not in taken else max(taken, default=-1) + 1
        self._numbers[name] = number
        return number

    def learn(self, names: Mapping[str, str]) -> None:
        """Take the numbers that a run has, which is gone on with; given ones go before them."""
        if not self._closed:
            self._numbers |= {name: int(number) for number, name in names.items()}
            self._said = set(self._numbers)

    def by_number(self) -> dict[str, str]:
        """Return the names by their numbers, as ``run.json`` has them."""
        self._said = set(self._numbers)
        return {str(number): name for name, number in sorted(self._numbers.items(), key=lambda one: one[1])}

    def unsaid(self) -> list[str]:
        """List the names that have come since :meth:`by_number`, and do not say their number."""
        return [name for name in self._numbers if name not in self._said and not self._says_it(name)]

    def counted(self) -> list[str]:
        """List the names that neither say their number nor were given one: these are counted as they came."""
        return [] if self._closed else [name for name in self._numbers if not self._says_it(name)]

    def _says_it(self, name: str) -> bool:
        found = re.search(r"(\d+)$", name)
        return found is not None and int(found[1]) == self._numbers[name]
