"""The pattern that stands for model files which lie in folders of their own, a round's or a client's each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from ..models.files import SUFFIXES
from .file_order import name_apart

#: folders below the one that is named, and entries of them all that are looked at
_DEPTH, _MOST = 3, 5_000
_OF_CLIENT = re.compile(r"(client|user|site|party|worker|node|silo)[^/]*$", re.IGNORECASE)
_OF_ROUND = re.compile(r"(round|rnd|epoch|iter|step)[^/]*$", re.IGNORECASE)


def offer_pattern(folder: Path) -> str:
    """Return a pattern with ``{client}``, and ``{round}`` where two numbers vary, that most of the model files below a
    folder have in common; empty where their names do not say which number is which.
    """
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for path in islice(_models_below(folder, _DEPTH), _MOST):
        words, own = name_apart(path.relative_to(folder))
        alike.setdefault(words, []).append(own)
    # of as many numbers, as clients' files are more than the servers'
    for words, numbers in sorted(alike.items(), key=lambda item: -len(item[1])):
        varying = [i for i, of_files in enumerate(zip(*numbers, strict=True)) if len(set(of_files)) > 1]
        if names := _placeholders(words, varying):
            first = numbers[0]
            parts = [names.get(i, number) for i, number in enumerate(first)]
            return str(folder / "".join(word + part for word, part in zip(words, [*parts, ""], strict=True)))
    return ""


def _placeholders(words: Sequence[str], varying: Sequence[int]) -> dict[int, str]:
    """Return what stands for each number that varies; nothing where the words before them do not tell."""
    clients = [i for i in varying if _OF_CLIENT.search(words[i])]
    if len(clients) != 1 or len(varying) > 2:
        return {}
    rounds = [i for i in varying if i not in clients]
    if any(not _OF_ROUND.search(words[i]) for i in rounds):
        return {}
    return {clients[0]: "{client}", **dict.fromkeys(rounds, "{round}")}


def _models_below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the model files in the folders below one; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(islice(entries, _MOST), key=lambda one: one.name)
    except OSError:
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _models_below(Path(entry.path), depth - 1)
        elif entry.name.endswith(SUFFIXES):
            yield Path(entry.path)
