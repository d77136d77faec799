"""The order in which files were given, where the numbers in their names say another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..io.errors import FedscopeError
from ..io.shell_words import quoted
from ..io.warn_user import warn_user

_NUMBER = re.compile("([0-9]+)")


@dataclass(frozen=True)
class OtherOrder:
    """Files that were not given in the order of the numbers in their names.

    Attributes:
        greater, less: the first two of which the one with the greater number was given before the other.
        as_text: whether text is sorted so, as a shell's ``*`` or Python's ``sorted`` gives names; a list that was
            ordered by hand seldom is.
        instead: an argument that stands for the same files in the order of their numbers; "" where none is known.
    """

    greater: Path
    less: Path
    as_text: bool
    instead: str = ""

    @property
    def words(self) -> str:
        """Which of the files came first, for sentences."""
        return f"{self.greater} was given before {self.less}{', as text is sorted' if self.as_text else ''}"

    @property
    def mended(self) -> str:
        """What to give for the order of the numbers, for sentences."""
        order = "the order of the numbers in their names"
        if not self.instead:
            return f"the files in {order}"
        word = quoted(self.instead)
        return f"{word}{'' if word == self.instead else ' (in quotes)'} in place of the files, for {order}"


def name_apart(path: Path | str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a name without its numbers, and the numbers.

    >>> name_apart("c/client-10.pt")
    (('c/client-', '.pt'), ('10',))
    """
    parts = _NUMBER.split(str(path))
    return tuple(parts[::2]), tuple(parts[1::2])


def other_order(paths: Sequence[Path]) -> OtherOrder | None:
    """Look whether files that are called alike but for numbers were given in the order of these; None where they were.

    Digits behind the point of a number are a fraction, ``lr0.05`` before ``lr0.1``. Files in the order of any one of
    their numbers are in order: of ``loss10.2_epoch1`` and ``loss9.8_epoch2`` that of the epochs.

    >>> given = [Path(f"c{k}.pt") for k in (1, 10, 2)]
    >>> other_order(given).words, other_order(sorted(given, key=lambda one: len(one.name)))
    ('c10.pt was given before c2.pt, as text is sorted', None)
    >>> other_order([Path("c3.pt"), Path("c1.pt"), Path("c2.pt")]).as_text
    False
    """
    alike: dict[tuple[str, ...], list[Path]] = {}
    for path in paths:
        alike.setdefault(name_apart(path)[0], []).append(path)
    unsorted = (own for own in alike.values() if not _one_number_rises(own))
    wrong = [pair for own in unsorted for pair in pairwise(own) if _is_greater(*pair)]
    if not wrong:
        return None
    return OtherOrder(*wrong[0], all(str(one) < str(other) for one, other in wrong))


def recorded_order(imported: Mapping[str, Any], number: int) -> OtherOrder | None:
    """Look at the order of the files of which a round's clients were imported.

    Args:
        imported: what ``run.json`` says of them, as :func:`~.record_files.provenance_of_files` does.
    """
    lead = f"{number}/client-"
    found = {int(key[len(lead) :]): Path(str(file)) for key, file in imported.items() if _is_client(key, lead)}
    return other_order([found[k] for k in sorted(found)])


def refuse_order_of_text(order: OtherOrder | None, who: str, remedy: str = "") -> None:
    """Make sure that what takes files as checkpoints in the order of time was not given them as a shell sorts text; of
    files that were ordered by hand the order is said.

    Args:
        order: None where files are in the order of their numbers.
        who: takes them so, and remedy: what to do, for sentences.

    Raises:
        FedscopeError: the files are in the order of text, in which 10 comes before 2.
    """
    if order is None:
        return
    said = f"{who} takes the last checkpoint as the newest, and {order.words}"
    if order.as_text:
        raise FedscopeError(f"{said}; {remedy or f'give {order.mended}'}")
    warn_user(f"{said}, so it counts as the older one")


def refuse_recorded_order(imported: object, number: int, place: str, who: str) -> None:
    """Make sure of the same of a round whose clients were imported as checkpoints.

    Args:
        imported: what ``run.json`` says of the files; place: of the round, for sentences.

    Raises:
        FedscopeError: as :func:`refuse_order_of_text`.
    """
    if not isinstance(imported, Mapping):
        return
    remedy = "import them anew by their folder, or by a pattern in quotes, for the order of the numbers in their names"
    refuse_order_of_text(recorded_order(imported, number), f"{who} of {place}", remedy)


def _is_client(key: str, lead: str) -> bool:
    return key.startswith(lead) and key[len(lead) :].isdecimal()


def _one_number_rises(alike: Sequence[Path]) -> bool:
    """Tell of files that are called alike whether any number of their names rises from each to the next; one with a
    fraction as a whole."""
    return any(all(one < other for one, other in pairwise(own)) for own in zip(*map(_numbers, alike), strict=True))


def _is_greater(one: Path, other: Path) -> bool:
    """Tell of two files that are called alike whether the first number in which they differ is greater in the first."""
    return _numbers(one) > _numbers(other)


def _numbers(path: Path) -> list[tuple[int | str, ...]]:
    """Return the numbers of a name: whole ones by their values, and those with a fraction, as text, besides.

    Whether there is a fraction goes by the words beside it, so files that are called alike compare like by like.
    """
    words, digits = name_apart(path)
    numbers: list[tuple[int | str, ...]] = []
    for i, own in enumerate(digits):
        numbers.append((*numbers[-1], own) if i and words[i] == "." else (int(own),))
    return numbers
