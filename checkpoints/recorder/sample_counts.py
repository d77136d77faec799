"""How many samples clients have, as a list, a mapping or a table says it."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FedscopeError, listed
from ..io.untrusted import RESULT, read_text
from .match_files import RoundFiles

#: more than any client has, and less than int64 holds
_MOST = 2**53


def counts_of(given: Any, rounds: Sequence[RoundFiles]) -> list[dict[int, int] | None]:
    """n_k of each round's clients; None where none were given.

    Args:
        given: numbers in the order of the clients, as a list or as ``10,20,30``; by the client's number; or a ``.csv``
            with columns ``client`` and ``samples``, and ``round`` where they differ between rounds.

    Raises:
        FedscopeError: another number of them than of clients; a client without; no whole numbers.
    """
    if given is None:
        return [None] * len(rounds)
    everyone = sorted({client for files in rounds for client in files.clients})
    if isinstance(given, Path) or (isinstance(given, str) and not re.fullmatch(r"[-+0-9.\s]*(,[-+0-9.\s]*)*", given)):
        table = _table(Path(given))
    elif isinstance(given, Mapping):
        table = {(None, int(k)): _count(f"--samples of client {k}", n) for k, n in given.items()}
    else:
        words = given.split(",") if isinstance(given, str) else list(given)
        if len(words) != len(everyone):
            raise FedscopeError(
                f"--samples gives {len(words)} number{'s' if len(words) != 1 else ''}, but there are {len(everyone)} "
                f"clients ({listed(everyone, 6)}); give one a client, in their order"
            )
        table = {(None, k): _count("--samples", word) for k, word in zip(everyone, words, strict=True)}
    return [_of_round(files, table, given) for files in rounds]


def _of_round(files: RoundFiles, table: Mapping[tuple[int | None, int], int], given: Any) -> dict[int, int]:
    counts = {}
    for client in files.clients:
        found = table.get((files.number, client), table.get((None, client)))
        if found is None:
            where = given if isinstance(given, str | Path) else "a mapping"
            raise FedscopeError(f"--samples {where} has none of client {client} of round {files.number}; add them")
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
            f"--samples {path} has columns {listed(names, 6) or 'of no name'}, and no {lacking[0]}; its first line is "
            "client,samples or round,client,samples"
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
