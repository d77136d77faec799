"""LEAF's JSON: files of ``users``, ``num_samples`` and ``user_data: {user: {x, y}}``, in ``train/`` and ``test/``, or
all samples together in ``all_data/``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ....checkpoints import FedscopeError, explain_read_errors, real_path, regular
from ..dataset import SPLITS, Groups, Split
from .cache import Decoded, Room, SplitRoom
from .data_folder import folders_of, locate

#: how a missing file is spoken of
LAYOUT = "LEAF's train/*.json and test/*.json or all_data/*.json"
_WHAT = "a JSON file of LEAF"
#: makes arrays x [n, ...] and y [n, ...] of a user's lists, given for sentences whose they are
Decoder = Callable[[str, Sequence[Any], Sequence[Any]], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class LeafFiles:
    """The files of a data set in this layout.

    Attributes:
        splits: the files of each split; the same ones where samples are not split.
    """

    folder: Path
    splits: Mapping[Split, tuple[Path, ...]]

    @property
    def together(self) -> bool:
        """True if samples are still to be split."""
        return self.splits["train"] == self.splits["test"]

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return list(dict.fromkeys((*self.splits["train"], *self.splits["test"])))


def located_in_leaf(
    name: str, argument: str, files: Sequence[Sequence[str]], *, inside: Sequence[str], source: str
) -> list[Path] | LeafFiles:
    """Find the files of a data set, or where they are not there, its files in LEAF's layout.

    For the arguments see :func:`~fedscope.training.data.formats.data_folder.locate`.

    Raises:
        FedscopeError: neither is there.
    """
    inside = (*inside, f"{name}/data", "data")
    folders = folders_of(name, argument, inside)
    try:
        return locate(name, argument, files, inside=inside, source=source, also=LAYOUT)
    except FedscopeError:
        # other sets may lie side by side in the folder of all data sets
        for folder in folders if argument else folders[1:]:
            train, test, every = (_json(folder / part) for part in (*SPLITS, "all_data"))
            if train and test:
                return LeafFiles(real_path(folder), {"train": train, "test": test})
            if every:
                return LeafFiles(real_path(folder), {"train": every, "test": every})
            if train or test:
                there, lacks = SPLITS if train else SPLITS[::-1]
                raise FedscopeError(
                    f"--data {name}: {folder} has {there}/*.json, but no {lacks}/*.json; copy that folder, too, or "
                    "make both with LEAF's preprocess.sh -t sample"
                ) from None
        raise


def _json(folder: Path) -> tuple[Path, ...]:
    return tuple(real_path(path) for path in sorted(folder.rglob("*.json")) if not path.name.startswith("."))


def read_leaf(
    found: LeafFiles, room: Room, sample: tuple[int, ...], decoded: Decoder, targets: np.ndarray, *, drawn: bool
) -> Decoded:
    """Read the arrays of a data set and its users, a file in memory at a time.

    Where samples are not split, the first nine tenths of each user's are for training (at least one of them), or, where
    they are to be drawn, so many drawn by the user's number.

    Args:
        sample: the shape of a sample's x.
        decoded: makes a user's arrays.
        targets: an empty array of y's type and shape, [0, ...].
        drawn: whether samples are drawn; those of a text overlap with their neighbours, so these are not.

    Raises:
        FedscopeError: damaged or foreign files; a user who is missing or not listed; other numbers of samples than the
            file says; what ``decoded`` refuses.
    """
    heads = {path: _head(path) for path in found.files}
    names = tuple(sorted({user for head in heads.values() for user in head}))
    number = {name: i for i, name in enumerate(names)}
    made = {}
    for split, files in found.splits.items():
        size = sum(_size(split, found.together, count) for path in files for count in heads[path].values())
        made[split] = _Half(partial(room, f"x_{split}"), size, sample, targets)
    for path in found.files:
        splits = [split for split, files in found.splits.items() if path in files]
        for user, own_x, own_y in _users(path, heads[path]):
            if not own_y:
                continue
            rows = np.arange(len(own_y))
            if found.together and drawn:
                rows = np.random.default_rng(number[user]).permutation(rows)
            x, y = decoded(f"{path}: user {user}", own_x, own_y)
            for split in splits:
                size = _size(split, found.together, len(own_y))
                some, rows = np.sort(rows[:size]), rows[size:]
                made[split].put(x[some], y[some], number[user])
    arrays = {f"{key}_{split}": getattr(half, key) for split, half in made.items() for key in "xy"}
    return arrays, {"user": Groups(names, made["train"].of, made["test"].of)}


class _Half:
    """The arrays of a split, filled a user after the other."""

    def __init__(self, room: SplitRoom, size: int, sample: tuple[int, ...], targets: np.ndarray) -> None:
        self.x = room((size, *sample))
        self.y = np.empty((size, *targets.shape[1:]), targets.dtype)
        self.of = np.empty(size, np.int64)
        self._at = 0

    def put(self, x: np.ndarray, y: np.ndarray, user: int) -> None:
        """Add the next user's."""
        there = slice(self._at, self._at + len(y))
        self.x[there], self.y[there], self.of[there] = x, y, user
        self._at += len(y)


def _size(split: Split, together: bool, count: int) -> int:
    """Return how many of a user's samples are of a split, where they are split here nine tenths and the rest.

    >>> [_size("train", True, count) for count in (0, 1, 2, 20)], _size("test", True, 20), _size("test", False, 20)
    ([0, 1, 1, 18], 2, 20)
    """
    if not together:
        return count
    kept = max(min(count, 1), 9 * count // 10)
    return kept if split == "train" else count - kept


def _head(path: Path) -> dict[str, int]:
    """Read how many samples each user of a file has, as its head says, which stands before them and is read alone."""
    regular(path, _WHAT)
    with explain_read_errors(path, _WHAT):
        text = path.read_text(encoding="utf-8-sig")
        users, counts = (_member(text, key) for key in ("users", "num_samples"))
    texts = isinstance(users, list) and all(isinstance(user, str) for user in users)
    numbers = isinstance(counts, list) and all(type(count) is int and count >= 0 for count in counts)
    if not texts or not numbers or len(users) != len(counts):
        raise FedscopeError(f"{path} is not {_WHAT}: it does not list users and as many num_samples; copy it again")
    if len(set(users)) < len(users):
        twice = next(user for user in users if users.count(user) > 1)
        raise FedscopeError(f"{path} lists the user {twice} twice; copy it again")
    return dict(zip(users, counts, strict=True))


def _member(text: str, key: str) -> Any:
    """Return what stands behind a key. In a text of JSON's a quotation mark has a backslash before it, and so ends no
    key."""
    found = re.search(rf'"{key}"\s*:\s*', text)
    return None if found is None else json.JSONDecoder().raw_decode(text, found.end())[0]


def _users(path: Path, head: dict[str, int]) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Every user of a file and the lists x and y."""
    with explain_read_errors(path, _WHAT):
        held = json.loads(path.read_text(encoding="utf-8-sig"))
    data = held.get("user_data") if isinstance(held, dict) else None
    if not isinstance(data, dict):
        raise FedscopeError(f"{path} is not {_WHAT}: it has no user_data; copy it again")
    for user, own in data.items():
        lists = [own.get(key) for key in "xy"] if isinstance(own, dict) else []
        if not lists or not all(isinstance(values, list) for values in lists):
            raise FedscopeError(f"{path}: user {user} has no lists x and y; copy it again")
        if user not in head and any(lists):
            raise FedscopeError(f"{path} has samples of the user {user}, whom its users do not list; copy it again")
    for user, count in head.items():
        if user not in data:
            raise FedscopeError(f"{path} lists the user {user}, but user_data has none of that name; copy it again")
        x, y = data[user]["x"], data[user]["y"]
        if not len(x) == len(y) == count:
            raise FedscopeError(
                f"{path}: user {user} has {len(x)} x and {len(y)} y, and num_samples says {count}; copy it again"
            )
        yield user, x, y
