"""Whether runs were trained on the same data, by what their files say of them. Loads no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...checkpoints import Run
from ..settings.registry import names

#: data of files of one's own: of all other sets the name says the content, wherever their files lie
_OWN_FILES = ("npz", "folder", "text")


def is_fixed_by_name(name: object) -> bool:
    """Check whether a name of data says their content: that of a published set, but for files and code of one's own.

    >>> [is_fixed_by_name(name) for name in ("digits", "cifar10:here", "npz:a.npz", "text:a.txt@gpt", "mydata:load")]
    [True, True, False, False, False]
    """
    kind = name.partition(":")[0] if isinstance(name, str) else ""
    return kind not in _OWN_FILES and kind in names("data")


def same_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Check whether two runs' ``data`` of ``run.json`` are the same; None where the files do not say it.

    By the arrays' sha256 if both have one, else by the file's, else by name: ``digits`` of a recorded run, which keeps
    no sha256 of arrays, is the ``digits`` of a trained one.

    >>> same_data({"name": "digits"}, {"name": "digits", "sha256": "ab"}), same_data({}, {"name": "digits"})
    (True, None)
    >>> same_data({"name": "npz:a.npz", "sha256": "a"}, {"name": "npz:b.npz", "sha256": "a"})
    True
    >>> same_data({"name": "digits"}, {"name": "mnist"}), same_data({"name": "cifar10:here"}, {"name": "cifar10"})
    (False, True)
    >>> same_data({"name": "text:a.txt@gpt"}, {"name": "text:b.txt@gpt"})
    False
    """
    for key in ("sha256", "file_sha256"):
        if one.get(key) and other.get(key):
            return bool(one[key] == other[key])
    if not one.get("name") or not other.get("name"):
        return None
    return _place(one) == _place(other)


def other_data(runs: Sequence[Run]) -> tuple[Run, Run] | None:
    """Return the first two runs of one ``data.name`` that are on different data, whose file has changed in between;
    None where there are none, or nothing says it."""
    kinds: dict[tuple[object, str], Run] = {}
    for run in runs:
        data = run.info.get("data", {})
        kinds.setdefault((name_of_data(run), json.dumps(data, sort_keys=True)), run)
    for (one_name, _), one in kinds.items():
        for (name, _), other in kinds.items():
            if name == one_name and same_data(one.info.get("data", {}), other.info.get("data", {})) is False:
                return one, other
    return None


def is_pooled(run: Run) -> bool:
    """Check whether a run's clients share training and test samples of its data, and models are tested on what the
    clients set aside (``data.pool``)."""
    table = (run.config or {}).get("data")
    return isinstance(table, Mapping) and bool(table.get("pool"))


def same_split(one: Run, other: Run, split: str) -> bool:
    """Check whether two runs on the same data have the same samples in a split, or in ``both``: with ``data.pool`` that
    depends on what clients set aside.

    Raises:
        FedscopeError: a pooled run without its partition.
    """
    pooled = is_pooled(one), is_pooled(other)
    if not all(pooled) or split == "train":
        return pooled[0] == pooled[1]
    import numpy as np

    from .membership import indices_set_aside

    aside = []
    for run in (one, other):
        run.require("partition.h5")
        assert run.partition is not None, "just required"
        aside.append(indices_set_aside(run.partition))
    return np.array_equal(aside[0], aside[1])


def name_of_data(run: Run) -> str | None:
    """Return ``data.name`` of a run's settings, of a recorded run what it calls its data; None where it says none."""
    table = run.info.get("data") if run.is_foreign or run.config is None else run.config.get("data")
    name = table.get("name") if isinstance(table, Mapping) else None
    return None if name is None else str(name)


def _place(data: Mapping[str, Any]) -> tuple[str, str]:
    """A data set's kind, and of one's own files where they lie."""
    kind, _, argument = str(data["name"]).partition(":")
    if kind in _OWN_FILES:
        return kind, str(Path(data.get("path") or argument).expanduser().absolute())
    return (kind, "") if is_fixed_by_name(data["name"]) else (str(data["name"]), "")
