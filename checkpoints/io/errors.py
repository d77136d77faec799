"""The one exception that a user's mistake raises, the one warning, and the help they offer."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar

from .visible_text import visible

#: characters of a sentence, at most; of a word in it, which is no path then
LONGEST, LONGEST_WORD = 8000, 5000


class FedscopeError(Exception):
    """A user's mistake, in one sentence that names the value, the place and the remedy; exit status 2, no traceback."""

    def __str__(self) -> str:
        return sentence(super().__str__())


#: how a sentence is put for who reads it; see :mod:`.keywords`
translated: ContextVar[Callable[[str], str] | None] = ContextVar("translated", default=None)


class FedscopeWarning(UserWarning):
    """A warning in one sentence: something that a user should know though the work goes on."""

    def __init__(self, *said: object) -> None:
        translate = translated.get()
        super().__init__(*(translate(one) if translate and isinstance(one, str) else one for one in said))

    def __str__(self) -> str:
        return sentence(super().__str__())


class DiskFullError(FedscopeError):
    """Nothing more fits on the disk, or in the user's share of it."""


def sentence(text: str) -> str:
    r"""Make a sentence that quotes what files and folders say safe: whatever they say, it is one line, steers no
    terminal, and is no longer than a screen; its end, the remedy, stays.

    >>> sentence("runs/a\x1b[2J: " + "9" * 6000 + " is no round")[:60]
    'runs/a\\x1b[2J: 999999999999999999999999999999999999999999999'
    """
    text = re.sub(
        rf"\S{{{LONGEST_WORD},}}", lambda word: f"{word[0][:60]}... ({len(word[0]):,} letters)", visible(text)
    )
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 1000]} ... ({len(text):,} letters) ... {text[-900:]}"


def nearest(word: str, options: Iterable[str], offers: Mapping[str, str] | None = None) -> str:
    """Offer the known word nearest to a mistyped one, in a clause, or nothing.

    Args:
        options: the known words.
        offers: what to offer for each, where that is not the word itself.

    >>> nearest("dirichlt", ["iid", "shards", "dirichlet"])
    '; did you mean "dirichlet"?'
    >>> nearest("xyz", ["iid", "shards"])
    ''
    """
    matches = difflib.get_close_matches(word, list(options), n=1)
    return f'; did you mean "{(offers or {}).get(matches[0], matches[0])}"?' if matches else ""


def list_few(items: Iterable[object], most: int = 12) -> str:
    """List the first few of many, for a sentence.

    >>> list_few([3, 8, 11, 20, 31], most=4)
    '3, 8, 11, 20, ...'
    """
    words = [str(item) for item in items]
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def count_of(count: int, what: str) -> str:
    """Count things in words, for a sentence.

    >>> count_of(1, "round"), count_of(2_000, "round"), count_of(2, "class")
    ('1 round', '2,000 rounds', '2 classes')
    """
    return f"{count:,} {what}{'' if count == 1 else 'es' if what.endswith('s') else 's'}"


def spans(numbers: Iterable[int]) -> str:
    """Ascending numbers as spans, for a sentence about rounds.

    >>> spans([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return list_few("-".join(map(str, part)) for part in parts)


def rounds_have(numbers: Sequence[int], what: str, listed: str = "") -> str:
    """Say in a clause which rounds have something, one or several.

    Args:
        listed: the numbers in words, where that is not :func:`spans` of them.

    >>> rounds_have([1, 2, 4], "them"), rounds_have([3], "both")
    ('rounds 1-2, 4 have them', 'round 3 has both')
    """
    listed = listed or spans(numbers)
    return f"round {listed} has {what}" if len(numbers) == 1 else f"rounds {listed} have {what}"


def format_size(size: float) -> str:
    """Format a number of bytes in words.

    >>> format_size(840_000), format_size(52.4e6), format_size(9e11)
    ('840 kB', '52 MB', '900 GB')
    """
    units = ("B", "kB", "MB", "GB", "TB")
    power = 0
    while size >= 1000 and power < len(units) - 1:
        size, power = size / 1000, power + 1
    unit = units[power]
    return f"{size:.2g} {unit}" if size < 10 else f"{size:.0f} {unit}"
