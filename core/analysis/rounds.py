"""Rounds of a run, as a user names them: ``1,20,last``, ``1-5``, ``every:20``, ``all``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..checkpoints import FedscopeError, Run, recorded_clients, rounds_with_clients
from ..checkpoints.io.atomic import writing_words
from ..checkpoints.io.code_words import code_words_at
from ..checkpoints.io.errors import spans
from ..checkpoints.io.shell_words import command_line

#: ``1,20,last``, ``1-5``, ``all``, a number, or several of these; None for a question's own default
Rounds = str | int | Sequence[int | str] | None


def rounds_text(rounds: Rounds) -> str | None:
    """Rounds as a command line has them.

    >>> rounds_text([1, 20, "last"]), rounds_text(7), rounds_text(None)
    ('1,20,last', '7', None)
    """
    if rounds is None or isinstance(rounds, str):
        return rounds
    return ",".join(map(str, rounds)) if isinstance(rounds, Iterable) else str(rounds)


def client_rounds(run: Run, rounds: str | None, *, last: bool = False) -> list[int]:
    """Return the rounds asked for, where their clients are needed: ``all``, ``1-5``, ``last:10`` and ``every:20`` are
    among those whose clients were recorded, and without a word it is the first and the last of these, or with ``last``
    the last.

    Raises:
        FedscopeError: rounds that the run does not have, or of which it did not record the clients.
    """
    have = rounds_with_clients(run)
    if rounds is None and have:
        return [have[-1]] if last else sorted({have[0], have[-1]})
    found = rounds_among("last" if rounds is None else rounds, run, have)
    for number in found:
        recorded_clients(run, number, start=False)
    return found


def rounds_of_several(run: Run, rounds: str | None, why: str) -> tuple[list[int], list[str]]:
    """Return the rounds asked for in which there are two clients or more, and a sentence on those that are left out
    because there is one. Without a word it is the first and the last of these.

    Where no round is left it is the one asked for, or the first of them, which whoever asked refuses.

    Args:
        why: what one client is not, for the sentence: ``is no pair``.

    Raises:
        FedscopeError: as :func:`client_rounds`.
    """
    several = _with_clients(run, 2)
    if rounds is None and several:
        return sorted({several[0], several[-1]}), []
    asked = client_rounds(run, rounds)
    taken = [number for number in asked if number in several]
    if not taken:
        return asked[:1], []
    return taken, left_out(run, [number for number in asked if number not in several], f"one client {why}")


def left_out(run: Run, numbers: Sequence[int], why: str) -> list[str]:
    """Say that rounds are left out of an answer; nothing of none."""
    if not numbers:
        return []
    return [f"{run.name}: round{'s' if len(numbers) > 1 else ''} {spans(numbers)} left out, because {why}"]


def larger_cohort(run: Run, least: int = 2) -> str:
    """Say where a round has too few clients which rounds have ``least``, or how there will be some."""
    have = _with_clients(run, least)
    if not have:
        return run.larger_cohorts
    which = f"round {have[0]}, which has" if len(have) == 1 else f"one of rounds {spans(have)}, which have"
    return f"give {which} {least} clients or more"


def _with_clients(run: Run, least: int) -> list[int]:
    """List the rounds of which so many clients were recorded."""
    return [number for number in rounds_with_clients(run) if len(run.round(number).client_ids) >= least]


def rounds_among(asked: str, run: Run, have: Sequence[int]) -> list[int]:
    """Return the rounds that words mean where only some of a run's rounds have what a question needs.

    Each word counts for itself. ``all``, ``last:10`` and ``every:20``, and ``last`` beside these two, are among
    ``have``. ``1-5`` are those of them between its ends, or where none is all that were recorded. Other words are
    rounds by their numbers, which may not be among ``have``.

    Raises:
        FedscopeError: as :func:`parse_rounds`.
    """
    path, among = str(run.path), tuple(have) or run.rounds
    if asked.strip() == "all":
        return parse_rounds(asked, among, path)
    parse_rounds(asked, run.rounds, path)  # what is wrong is said of all words
    found: set[int] = set()
    for word in map(str.strip, asked.split(",")):
        if ":" in word or (":" in asked and not word.isdecimal() and not is_range(word)):
            found |= set(parse_rounds(word, among, path))
            continue
        numbers = parse_rounds(word, run.rounds, path)
        found |= set(numbers if not is_range(word) else [number for number in numbers if number in among] or numbers)
    return sorted(found)


def parse_rounds(text: str, available: tuple[int, ...], run: str, *, option: str = "--rounds") -> list[int]:
    """``1,20,last``, ``1-5``, ``-1``, ``last:10``, ``every:20`` or ``all`` as recorded round numbers, ascending,
    without repeats. A range is those recorded from its one end to its other.

    Raises:
        FedscopeError: a word that is no round, a round that the run does not have; a range that is upside down, or of
            which no round was recorded.

    >>> parse_rounds("1,last:2", (1, 2, 3, 4), "runs/ima"), parse_rounds("every:2", (1, 2, 3, 4), "runs/ima")
    ([1, 3, 4], [2, 4])
    >>> parse_rounds("1-2,4-last", (1, 2, 3, 4, 5), "runs/ima")
    [1, 2, 4, 5]
    """
    if not available:
        if writing := writing_words(Path(run)):
            raise FedscopeError(f"{run} has no rounds yet: {writing}")
        on = command_line("train", "--resume", run, *code_words_at(Path(run)))
        raise FedscopeError(f"{run} has no rounds yet; where it is trained here, go on with it: {on}")
    if text.strip() == "all":
        return list(available)
    rounds: set[int] = set()
    for word in text.split(","):
        word = word.strip()
        if ends := _RANGE.fullmatch(word):
            rounds |= set(_range(ends[1], ends[2], available, f"{option} {text}", run))
            continue
        if several := _several(word, available):
            rounds |= set(several)
            continue
        try:
            number = available[-1] if word == "last" else int(_MINUS.sub("-", word))
        except ValueError:
            raise FedscopeError(
                f"{option} {text}: {word!r} is not a round; write whole numbers, last, a range as 1-5, last:10 or all"
            ) from None
        if number < 0 and -number <= len(available):
            number = available[number]
        if number not in available:
            raise FedscopeError(f"{option} {text}: {run} has no round {number}; {_has(available)}")
        rounds.add(number)
    return sorted(rounds)


#: a minus as word processors write it
_MINUS = re.compile("^[\u2010-\u2015\u2212]")
#: ``1-5`` or ``20-last``
_RANGE = re.compile(r"(\d+)\s*[-\u2013]\s*(\d+|last)", re.ASCII)


def is_range(text: str) -> bool:
    """Tell whether a word of some rounds is a range.

    >>> is_range("1,3-5"), is_range("-1")
    (True, False)
    """
    return any(_RANGE.fullmatch(word.strip()) for word in text.split(","))


def spell_ranges(text: str) -> str:
    """Write ranges of rounds otherwise than numbers that stand in a row, for names of files.

    >>> spell_ranges("1-5,20-last"), spell_ranges("1,5,-1")
    ('1to5,20tolast', '1,5,-1')
    """
    words = (word.strip() for word in text.split(","))
    return ",".join(_RANGE.sub(r"\1to\2", word) if _RANGE.fullmatch(word) else word for word in words)


def _range(first: str, last: str, available: tuple[int, ...], asked: str, run: str) -> list[int]:
    """Return the rounds from one to another that were recorded."""
    low, high = int(first), available[-1] if last == "last" else int(last)
    if low > high:
        flipped = f"; write {high}-{low}" if last != "last" else f"; {_has(available)}"
        raise FedscopeError(f"{asked}: {first}-{last} is upside down{flipped}")
    for end in (low, high):
        if not available[0] <= end <= available[-1]:
            raise FedscopeError(f"{asked}: {run} has no round {end}; {_has(available)}")
    found = [number for number in available if low <= number <= high]
    if not found:
        raise FedscopeError(f"{asked}: {run} has no round from {low} to {high}; {_has(available)}")
    return found


def _has(available: tuple[int, ...]) -> str:
    """Say which rounds a run has, for sentences."""
    first, last = available[0], available[-1]
    return (f"it has {first} to {last}" if first < last else f"it has round {last} only") + (
        "" if len(available) == last - first + 1 else f" ({len(available)} of them)"
    )


def _several(word: str, available: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rounds of ``last:10``, as many as there are, or ``every:20``; none of another word."""
    kind, _, count = word.partition(":")
    if not (count.isascii() and count.isdecimal() and int(count) > 0):
        return ()
    if kind == "last":
        return available[-int(count) :]
    return tuple(t for t in available if t % int(count) == 0) if kind == "every" else ()
