"""Partitions of the user's own: a function, a class derived from :class:`~.partitioner.Partitioner`, or lists."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.shell_words import quoted
from ..import_string import describe_error
from ..settings.own_code import OwnCode
from .partitioner import Partitioner


class OwnPartition(Partitioner):
    """``mypkg.split:by_hospital``: a function ``(labels, clients, random) -> list of index arrays``, one a client, or
    another form of :meth:`Listed.of`.

    It may take ``groups`` as a fourth argument; see :meth:`~.partitioner.Partitioner.split`, whose words these are.
    """

    needs_classes: ClassVar[bool] = False

    def __init__(self, code: OwnCode) -> None:
        object.__setattr__(self, "code", code)

    code: OwnCode

    def written(self) -> OwnCode:
        """As it is named; the name comes with its code."""
        return self.code

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Return what the function gives, checked.

        Raises:
            FedscopeError: an exception in it; something else than disjoint indices of so many clients.
        """
        thing, place = self.code.thing, f"data.partition = {str(self.code)!r}"
        try:
            if isinstance(thing, Partitioner):
                given: Any = thing.split(labels, clients, random, groups)
            else:
                given = thing(labels, clients, random, *([groups] if _takes_groups(thing) else []))
            given = list(given) if isinstance(given, Iterator) else given  # a generator's own errors are met here
        except FedscopeError:
            raise
        except Exception as error:
            raise FedscopeError(
                f"{place} failed with {describe_error(error)}; it is called with (labels, clients, random)"
            ) from error
        return checked_parts(given, len(labels), clients, place)


@dataclass(frozen=True)
class Listed:
    """Index arrays that Python was given, one a client.

    Attributes:
        parts: indices of training samples.
    """

    parts: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, given: Any, place: str) -> Self:
        """Take a list of index arrays, an array of them [clients, n], or a dictionary of them by the client's number.

        Raises:
            FedscopeError: something else; numbers of clients that are not 0, 1, ....

        >>> [part.tolist() for part in Listed.of({1: [3], 0: [0, 2]}, "partition=").parts]
        [[0, 2], [3]]
        """
        if isinstance(given, Mapping) and given:
            given = _by_number(given, f"{place} has", len(given))
        parts = _as_arrays(given)
        if not parts:
            raise FedscopeError(
                f"{place} is {type(given).__name__}, not a partition; give a name, a function (labels, clients, "
                "random), or index arrays, one a client: a list, or a dictionary by the client's number"
            )
        return cls(tuple(parts))

    @property
    def name(self) -> str:
        """By what they hold: two lists of the same indices have one name."""
        found = hashlib.sha256()
        for part in self.parts:
            found.update(len(part).to_bytes(8, "little") + np.asarray(part, "<i8").tobytes())
        return f"python:indices_{found.hexdigest()[:12]}"

    def __call__(self, labels: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
        """Return the arrays, of whatever labels."""
        if clients != len(self.parts):
            raise FedscopeError(
                f"partition= lists {len(self.parts)} clients, and data.clients = {clients}; leave data.clients out"
            )
        return list(self.parts)


def _as_arrays(given: Any) -> list[np.ndarray] | None:
    """Return an array a client, of a list, a tuple, an array [clients, n] or of arrays, or a generator; None of
    something else."""
    rows = getattr(given, "ndim", 0) == 2 or (isinstance(given, np.ndarray) and given.shape and given.dtype == object)
    if rows or isinstance(given, Iterator | ValuesView):
        given = list(given)
    if isinstance(given, str) or not isinstance(given, Sequence):
        return None
    return [np.asarray(sorted(part) if isinstance(part, Set) else part) for part in given]


def _by_number(given: Mapping[Any, Any], said: str, count: int) -> list[Any]:
    """Return what is given by the client's number, in their order.

    Args:
        said: begins the sentence: "partition= has".
        count: how many clients there are.

    Raises:
        FedscopeError: other numbers than 0, 1, ..., as a run counts clients; clients that lack.
    """
    parts = {k: part for k, part in given.items() if isinstance(k, int | np.integer) and not isinstance(k, bool)}
    others = [str(k) if k in parts else repr(k) for k in given if k not in parts or not 0 <= k < count]
    lacking = [str(k) for k in range(count) if k not in parts]
    if others or lacking:
        raise FedscopeError(
            f"{said} {'rows' if others else 'nothing'} of the clients {list_few(others or lacking)}, but of {count} "
            f"clients the numbers are 0 to {count - 1}; give these as the keys, or a list"
        )
    return [parts[k] for k in range(count)]


class UngivenPartition(Partitioner):
    """A partition that a file names and nobody has given: its name can be read, and it splits nothing."""

    needs_classes: ClassVar[bool] = False

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "name", name)

    name: str

    def written(self) -> str:
        """As it is named."""
        return self.name

    def split(self, *_: Any) -> NoReturn:
        """Say how the code is given.

        Raises:
            FedscopeError: always.
        """
        raise FedscopeError(
            f"data.partition = {self.name!r} is code of your own, which is never loaded from a file; if you know it, "
            f"give --code {quoted(f'partition={self.name}')}"
        )


def checked_parts(given: Any, samples: int, clients: int, place: str) -> list[np.ndarray]:
    """Return index arrays, one a client, of what :meth:`Listed.of` takes.

    Raises:
        FedscopeError: another number of them, or of other clients; other things than indices; a sample that two clients
            have.
    """
    if isinstance(given, Mapping):
        given = _by_number(given, f"{place} gave", clients)
    parts = _as_arrays(given)
    if parts is None or len(parts) != clients:
        what = f"{len(parts)} arrays" if parts is not None else type(given).__name__
        raise FedscopeError(
            f"{place} gave {what} for {clients} clients; return a list with an index array a client, or a dictionary "
            "of them by the client's number"
        )
    owner = np.full(samples, -1)
    for k, part in enumerate(parts):
        if part.ndim != 1 or (part.size and part.dtype.kind not in "iu"):
            raise FedscopeError(
                f"{place} gave client {k} an array of {part.dtype} and shape {list(part.shape)}; give indices of its "
                "samples, whole numbers [n]"
            )
        own = part.astype(np.int64)
        outside = own[(own < 0) | (own >= samples)]
        if outside.size:
            raise FedscopeError(
                f"{place} gave client {k} the sample {outside[0]}, and there are {samples}, counted from 0"
            )
        taken = own[owner[own] >= 0]
        if taken.size or len(np.unique(own)) < own.size:
            values, counts = np.unique(own, return_counts=True)
            sample = int(taken[0]) if taken.size else int(values[counts > 1][0])
            other = f"clients {owner[sample]} and {k}" if taken.size else f"client {k} twice"
            raise FedscopeError(f"{place} gave the sample {sample} to {other}; a sample is one client's, once")
        owner[own] = k
        parts[k] = own
    return parts


def _takes_groups(function: Any) -> bool:
    """Check whether a function takes a fourth argument."""
    try:
        inspect.signature(function).bind(None, 0, None, None)
    except (TypeError, ValueError):
        return False
    return True
