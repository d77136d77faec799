"""``resume.h5``: the last global models, where the recording policy leaves them out of the round files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .hdf5 import reading, writing
from .layout import Layout
from .weights import Weights

FORMAT, VERSION = "fedscope-resume", 1


def write_resume(path: Path, globals_: Mapping[int, Weights]) -> None:
    """Replace ``resume.h5`` durably: ``globals/<round>/<entry>``."""
    with writing(path) as file:
        file.attrs["format"], file.attrs["version"] = FORMAT, VERSION
        for number, model in globals_.items():
            group = file.create_group(f"globals/{number:05d}")
            for name, array in model.arrays().items():
                group.create_dataset(name, data=np.asarray(array))


def read_resume(path: Path, layout: Layout) -> dict[int, Weights]:
    """The globals by round; empty where there is no file.

    Raises:
        FedscopeError: a truncated, foreign or newer file; models that do not fit the run.
    """
    if not path.exists():
        return {}
    with reading(path, FORMAT, VERSION, "what a run keeps for its resume") as file:
        kept = file["globals"]
        return {int(t): layout.flatten({name: kept[t][name][()] for name in layout.names}) for t in sorted(kept)}
