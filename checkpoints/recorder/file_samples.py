"""The clients' numbers of samples, n_k, of files that are imported: in their order, by number, or from a table."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..io.errors import FedscopeError, list_few
from ..io.untrusted import RESULT, read_text
from .labelled import by_index
from .match_files import CheckpointFiles, RoundFiles, numbers_in_names

#: more than any client has, and less than int64 holds
_MOST = 2**53
#: n_k by round and client; of round None, of all rounds
Table = Mapping[tuple[int | None, int], int]


@dataclass(frozen=True)
class SampleCounts:
    """n_k of an import.

    Attributes:
        rounds: of each round's clients; None where none were given.
        notes: what was left out, a sentence each.
    """

    rounds: list[dict[int, int] | None]
    notes: list[str]


def counts_of(given: Any, files: CheckpointFiles) -> SampleCounts:
    """Read n_k of each round's clients.

    Args:
        given: numbers in the order of the clients, as a list or as ``10,20,30``; by the client's number, as a mapping
            or a Series; or a ``.csv`` with columns ``client`` and ``samples``, and ``round`` where they differ between
            rounds.

    Raises:
        FedscopeError: another number of them than of clients; a client without; no whole numbers; numbers by client,
            where the files' names count clients otherwise than their order does; files in the order of text.
    """
    if given is None:
        return SampleCounts([None] * len(files.rounds), [])
    table: Table
    everyone = sorted({client for one in files.rounds for client in one.clients})
    if isinstance(given, Path) or (isinstance(given, str) and not re.fullmatch(r"[-+0-9.\s]*(,[-+0-9.\s]*)*", given)):
        table, where = _table(Path(given)), f"--samples {given}"
    else:
        if not isinstance(given, str):
            given = by_index(given, "--samples", "numbers by client, {0: 10, 1: 20}, or a list")
        if not isinstance(given, Mapping):
            table = _listed(given, everyone)
            _refuse_order_of_text(files, table)
            return SampleCounts([_of_round(one, table, "--samples") for one in files.rounds], [])
        counts = {_count("--samples: client", k): _count(f"--samples of client {k}", n) for k, n in given.items()}
        table, where = {(None, k): n for k, n in counts.items()}, "--samples"
    if not files.numbered:
        _refuse_other_order(files, table, where)
        _refuse_order_of_text(files, table)
    rounds: list[dict[int, int] | None] = [_of_round(one, table, where) for one in files.rounds]
    return SampleCounts(rounds, _left_out(files, table, where, everyone))


def _listed(given: Any, everyone: Collection[int]) -> Table:
    """Numbers in the order of the clients."""
    if not isinstance(given, str | Iterable):
        raise FedscopeError(f"--samples is {given!r}; give one number a client, in their order: 10,20,30")
    words = given.split(",") if isinstance(given, str) else list(given)
    if len(words) != len(everyone):
        raise FedscopeError(
            f"--samples gives {len(words)} number{'s' if len(words) != 1 else ''}, but there are {len(everyone)} "
            f"clients ({list_few(list(everyone), 6)}); give one a client, in their order"
        )
    return {(None, k): _count("--samples", word) for k, word in zip(everyone, words, strict=True)}


def _refuse_order_of_text(files: CheckpointFiles, table: Table) -> None:
    """Make sure that a shell's order of files, in which ``client-10`` comes before ``client-2``, is not that of the
    clients whose samples are counted.

    Raises:
        FedscopeError: the counts differ, so that it matters whose they are.
    """
    order = files.order
    if order is not None and order.as_text and len(set(table.values())) > 1:
        raise FedscopeError(
            f"--samples goes by the order of the files, and {order.words}; give {order.mended}, and --samples in that "
            "order, too"
        )


def _refuse_other_order(given: CheckpointFiles, table: Table, where: str) -> None:
    """Make sure that clients which are numbered in the order of their files are those that a table counts.

    A shell gives ``client-10`` before ``client-2``, and a part of the clients begins anywhere.

    Raises:
        FedscopeError: the names of the files say other numbers, which the table has too; clients without a file.
    """
    files = given.rounds[0]
    counted = {client for number, client in table if number in (None, files.number)}
    ids = list(files.clients)
    found = numbers_in_names(list(files.clients.values()))
    own, pattern = (None, "a pattern with {client}") if found is None else (found[0], f"'{found[1]}'")
    if own is not None and own != ids and counted.issuperset(own):
        k = next(k for k in ids if own[k] != k)
        # of text's order nobody counts samples
        listed = "" if given.order is not None and given.order.as_text else ", or --samples in the files' order"
        raise FedscopeError(
            f"{where} has numbers by client, and {files.clients[k]} was given as client {k}, not {own[k]}; give "
            f"{pattern} in place of the files, by which clients keep their numbers{listed}"
        )
    if own != ids and counted.issuperset(ids) and (other := sorted(counted - set(ids))):
        raise FedscopeError(
            f"{where} has client {other[0]}, and the files are clients 0 to {ids[-1]} in their order; give {pattern} "
            "in place of the files, by which clients keep their numbers, or --samples of these clients alone"
        )


def _left_out(files: CheckpointFiles, table: Table, where: str, everyone: Collection[int]) -> list[str]:
    """Say which clients of a table have no file; of rounds without any nothing is said."""
    there = {one.number: one.clients for one in files.rounds}
    always = sorted(k for number, k in table if number is None and k not in everyone)
    now = sorted((t, k) for t, k in table if t in there and k not in there[t])
    said = []
    if always:
        said.append(f"{where} has client{'s' if len(always) > 1 else ''} {list_few(always, 6)}")
    if now:
        which = list_few([f"client {k} of round {t}" for t, k in now], 3)
        said.append(f"{where} has {which}")
    return [f"{one}, of which there is no file; p is of the others alone" for one in said]


def _of_round(files: RoundFiles, table: Table, where: str) -> dict[int, int]:
    counts = {}
    for client in files.clients:
        found = table.get((files.number, client), table.get((None, client)))
        if found is None:
            raise FedscopeError(f"{where} has none of client {client} of round {files.number}; add them")
        counts[client] = found
    if not any(counts.values()):
        raise FedscopeError(f"--samples: no client of round {files.number} has any; give numbers above 0")
    return counts


def _table(path: Path) -> dict[tuple[int | None, int], int]:
    try:
        text = read_text(path, "a table of samples", "give columns client,samples", RESULT)
    except FileNotFoundError:
        raise FedscopeError(f"--samples {path} does not exist; give 10,20,30 or a .csv") from None
    except OSError as error:
        raise FedscopeError(f"--samples {path} cannot be read ({error.strerror}); check its rights") from None
    lines = csv.DictReader(text.removeprefix("\ufeff").splitlines())
    names = [name.strip() for name in lines.fieldnames or []]
    if lacking := [name for name in ("client", "samples") if name not in names]:
        raise FedscopeError(
            f"--samples {path} has columns {list_few(names, 6) or 'of no name'}, and no {lacking[0]}; its first line "
            "is client,samples or round,client,samples"
        )
    lines.fieldnames = names
    table: dict[tuple[int | None, int], int] = {}
    for row in lines:
        place = f"--samples {path}, line {lines.line_num}: "
        number = _count(f"{place}round", row["round"]) if "round" in names else None
        key = number, _count(f"{place}client", row["client"])
        if key in table:
            of = f" of round {number}" if number is not None else ""
            raise FedscopeError(f"{place}client {key[1]}{of} is there twice; keep one of the lines")
        table[key] = _count(f"{place}samples", row["samples"])
    return table


def _count(place: str, value: Any) -> int:
    try:
        number = int(value) if isinstance(value, str) or int(value) == value else -1
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number < _MOST:
        raise FedscopeError(
            f"{place} is {str(value).strip()[:40]!r}, which is not a whole number from 0 on; correct it"
        )
    return number
