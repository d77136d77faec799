"""``shakespeare``: Caldas et al., "LEAF", 2018: lines of roles in Shakespeare's plays, to predict the next
character, from TensorFlow Federated (16,068 + 2,356 snippets by 715 roles) or LEAF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ....checkpoints import FedscopeError
from ....evaluation.standard_tasks import PADDED, TASKS
from ....evaluation.tasks import Task
from ..dataset import SPLITS, Dataset, groups_of
from ..formats.cache import Decoded, Room, SplitRoom, decoded_once, put_together
from ..formats.leaf import LeafFiles, located_in_leaf, read_leaf
from ..formats.tff import open_users

SOURCE = "https://storage.googleapis.com/tff-datasets-public/shakespeare.tar.bz2"
#: what is learnt of it where nothing else is said
TASK = "sequences"

#: positions of a sample
LENGTH = 80
#: the characters in TensorFlow Federated's order, tokens 1 to 86; 0 is padding
CHARACTERS = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
PADDING = 0
#: any other character, and what stands before and after a snippet
UNKNOWN, BEGIN, END = (len(CHARACTERS) + i for i in (1, 2, 3))
#: what each of the 90 tokens stands for
TOKENS = ("", *CHARACTERS, "\N{REPLACEMENT CHARACTER}", "", "")

_TOKEN_OF = np.full(256, UNKNOWN, np.uint8)
_TOKEN_OF[np.frombuffer(CHARACTERS.encode("ascii"), np.uint8)] = np.arange(1, len(CHARACTERS) + 1)


def load(argument: str, task: Task = TASKS[TASK]) -> Dataset:
    """``shakespeare_train.h5`` and ``shakespeare_test.h5`` in the folder ``argument``, or LEAF's JSON; users are roles.

    A snippet becomes begin, its characters, end, and each of these but the first is to be told from those before it,
    once. A sample is a snippet, or a piece of a longer one: x is 80 tokens, y the 80 that come one later, and where a
    piece ends early x is 0 and y -100, which does not count. Pieces of a snippet follow each other without overlap, so
    that there are more samples than snippets.

    LEAF's files have other counts, and windows in place of snippets: 80 characters, each window a character further
    than the one before it, and the character that comes next. So y is x from its second character on, and that one.

    Chosen: TensorFlow Federated's tokens, for LEAF's files too. Its own pieces leave out the step from one piece to the
    next, and FedJAX's run on from a role's snippet into its next one; here every character counts, and no piece has
    more than one snippet.

    Raises:
        FedscopeError: missing, damaged or foreign files; a task that is not one on tokens.
    """
    place = f"--data shakespeare:{argument}" if argument else "--data shakespeare"
    if not task.tokens:
        raise FedscopeError(
            f"{place} has a character to be told at each of {LENGTH} positions, which is the task {TASK}, and no "
            f"{task.name}; leave --task out"
        )
    names = [("shakespeare_train.h5",), ("shakespeare_test.h5",)]
    found = located_in_leaf("shakespeare", argument, names, inside=(), source=SOURCE)
    files = found.files if isinstance(found, LeafFiles) else found

    def decode(room: Room) -> Decoded:
        if isinstance(found, LeafFiles):
            arrays, groups = read_leaf(found, room, (LENGTH,), from_lists, np.empty((0, LENGTH), np.int8), drawn=False)
            return {**arrays, "classes": np.array(len(TOKENS))}, groups
        made, roles = {"classes": np.array(len(TOKENS))}, []
        for split, path in zip(SPLITS, files, strict=True):
            made[f"x_{split}"], made[f"y_{split}"], held = read_roles(path, partial(room, f"x_{split}"))
            roles.append(held)
        return made, {"user": groups_of(*roles)}

    folder = found.folder if isinstance(found, LeafFiles) else files[0].parent
    return replace(decoded_once("shakespeare", folder, files, decode, task), tokens=TOKENS)


def from_lists(place: str, x: Sequence[Any], y: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Samples x [n, 80], uint8, and y [n, 80], int8, of what LEAF's JSON has of a role: windows and next characters.

    Args:
        place: for sentences: the file and the role.

    Raises:
        FedscopeError: windows of other lengths, or more than a character to come next.

    >>> x, y = from_lists("", ["d" * 79 + "h"], ["l"])
    >>> x[0, 77:].tolist(), y[0, 77:].tolist()
    ([1, 1, 2], [1, 2, 3])
    """
    for what, texts, length in (("window", x, LENGTH), ("next character", y, 1)):
        other = next((text for text in texts if not isinstance(text, str) or len(text) != length), None)
        if other is not None:
            has = f"{len(other)} characters" if isinstance(other, str) else f"no text but {str(other)[:20]}"
            raise FedscopeError(f"{place} has a {what} of {has}; it has {length} in LEAF's Shakespeare")
    codes = np.frombuffer("".join(map("".join, zip(x, y, strict=True))).encode("utf-32-le", "surrogatepass"), "<u4")
    tokens = np.where(codes < 256, _TOKEN_OF[codes & 255], UNKNOWN).astype(np.uint8).reshape(-1, LENGTH + 1)
    return tokens[:, :-1], tokens[:, 1:].astype(np.int8)


def read_roles(path: Path, room: SplitRoom) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Samples x [N, 80], uint8, and y [N, 80], int8, a role after the other, and how many each role has.

    Args:
        room: makes the array that x is put into.

    Raises:
        FedscopeError: a damaged file, a role whose snippets are no texts.
    """
    with open_users(path, "a file of Federated Shakespeare", "role", "snippets") as roles:
        said = {role: list(_snippets(path, role, own)) for role, own in roles.items()}
    counts = {role: sum(pieces(len(snippet)) for snippet in own) for role, own in said.items()}
    y = np.empty((sum(counts.values()), LENGTH), np.int8)
    at = 0

    def parts() -> Iterator[np.ndarray]:
        nonlocal at
        for own in said.values():
            for snippet in own:
                x, targets = cut(snippet)
                y[at : at + len(x)] = targets
                at += len(x)
                yield x

    every = [pieces(len(snippet)) for own in said.values() for snippet in own]
    return put_together(room, (LENGTH,), every, parts()), y, counts


def _snippets(path: Path, role: str, own: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    stored = own["snippets"]
    texts = np.asarray(stored).ravel().tolist() if stored.dtype.kind in "OS" else [None]
    for text in texts:
        if not isinstance(text, bytes):
            raise FedscopeError(f"{path}: role {role} has snippets of {stored.dtype}, no texts; copy it again")
        yield text


def pieces(characters: int) -> int:
    """Count the samples of a snippet of so many characters.

    >>> [pieces(characters) for characters in (0, 79, 80, 159, 160)]
    [1, 1, 2, 2, 3]
    """
    return characters // LENGTH + 1


def cut(snippet: bytes) -> tuple[np.ndarray, np.ndarray]:
    """A snippet as samples: x [m, 80], uint8, and y [m, 80], int8.

    >>> x, y = cut(b"To be")
    >>> x[0, :7].tolist(), y[0, :7].tolist()
    ([88, 12, 24, 14, 42, 65, 0], [12, 24, 14, 42, 65, 89, -100])
    """
    m = pieces(len(snippet))
    tokens = np.full(m * LENGTH + 1, PADDING, np.uint8)
    tokens[0], tokens[len(snippet) + 1] = BEGIN, END
    tokens[1 : len(snippet) + 1] = _TOKEN_OF[np.frombuffer(snippet, np.uint8)]
    x, y = tokens[:-1].copy(), tokens[1:].astype(np.int8)
    x[len(snippet) + 1 :], y[len(snippet) + 1 :] = PADDING, PADDED
    return x.reshape(m, LENGTH), y.reshape(m, LENGTH)


PROVIDES = load
