"""Ways in which a recording that is asked for again is refused, for every framework."""

from __future__ import annotations

from typing import Any

#: the folder, what is given besides, and what is said
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("run", {}, "holds a run with 1 round; give force=True"),
    ("run", {"resume": True, "seed": 3}, "was recorded without seed, not 3"),
    ("run", {"force": True, "keep": "some"}, 'keep = "some"'),
    ("other", {"labels": 3, "partition": [[0]]}, "labels= has shape"),
    ("taken", {}, "exists and is a file"),
]
