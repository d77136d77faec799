"""Names of files from names of models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path


def slug(text: str) -> str:
    """``runs/ima@40/client-3`` as a part of a file name.

    >>> slug("runs/ima@40/client-3"), slug("runs/fma@last"), slug("models/best.pt")
    ('ima@40-client-3', 'fma@last', 'best')
    """
    path, at, rest = text.rpartition("@")
    name = Path(path).name + at + rest.replace("/", "-") if at else Path(text).stem
    return re.sub(r"[^\w@.-]+", "-", name).strip("-")


def place_of(command: str, models: Sequence[str]) -> tuple[Path, str]:
    """Where a result on models lies by default, ``figures`` in the first one's run or where one stands, and its name.

    >>> place_of("line", ["runs/fma@last", "runs/ima@last"])[1], place_of("plane", ["a.pt"])[0].name
    ('line-fma@last-ima@last', 'figures')
    """
    path, at, _ = models[0].rpartition("@")
    what = fitting("-".join(slug(model) for model in models))
    return Path(path) / "figures" if at else Path("figures"), f"{command}-{what}"


def fitting(name: str) -> str:
    """A name that file systems take, which end at 255 bytes: a long one is cut, with a sum of what was cut off.

    >>> fitting("ima-1-last"), len(fitting("layer1.0.conv1.weight-" * 9))
    ('ima-1-last', 89)
    """
    import hashlib

    return name if len(name) <= 100 else name[:80] + "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
