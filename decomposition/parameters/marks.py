"""The vertical marks of models' values: which there are, what they are called and how they look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...landscape.drawing.paper import COLOURS, DASHES, GREY, MARKERS, shortened
from .reading import Array, RunValues


@dataclass(frozen=True, eq=False)
class Mark:
    """One vertical mark a panel: its ``label``, the ``values`` [n] of the n panels, and matplotlib's ``look``."""

    label: str
    values: Array
    look: dict[str, Any]


def marks_of(runs: Sequence[RunValues]) -> list[Mark]:
    """The first run's models, and the global ones of the others; models with the same values in every panel are one
    mark, ``FMA = global``."""
    first, *others = runs
    words = {"start": "start", "fma": "FMA", "global": "global", "averaged": "averaged"}
    if others:
        words |= {"global": f"global of {shortened(first.run, 20)}"}
    found = [(words[which], values) for which, values in first.models.items()]
    found += [(f"global of {shortened(run.run, 20)}", run.models["global"]) for run in others]
    merged: list[tuple[str, Array]] = []
    for label, values in found:
        same = next((i for i, (_, known) in enumerate(merged) if np.array_equal(known, values, equal_nan=True)), None)
        if same is None:
            merged.append((label, values))
        else:
            merged[same] = (f"{merged[same][0]} = {label}", values)
    looks = iter(range(len(merged)))
    made = []
    for label, values in merged:
        if label.startswith("start"):
            look = {"color": GREY, "linestyle": DASHES[2], "marker": "|"}
        else:
            i = next(looks)
            look = {
                "color": COLOURS[i % len(COLOURS)],
                "linestyle": DASHES[(0, 1, 3)[i % 3]],
                "marker": MARKERS[i % len(MARKERS)],
            }
        made.append(Mark(label, values, look))
    return made
