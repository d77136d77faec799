"""A plane's surface as a table, a line a point: ``.csv`` for spreadsheets, ``.dat`` for pgfplots and gnuplot."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...checkpoints import write_durably
from ...checkpoints.io.untrusted import expand_home
from ...checkpoints.runs.folders import refuse_own_place
from ..planes.result import Plane

COLUMNS = ("a", "b", "loss", "error")


def write_points(path: Path | str, plane: Plane) -> None:
    """Write every point of a plane: ``a``, ``b``, loss and error, a running fastest.

    Of ``.dat`` columns are parted by blanks, and after each row of the surface, of one b, there is an empty line: what
    ``\\addplot3 [surf] table`` and ``splot`` take. Values that are not finite are ``nan`` and ``inf``; floats read back
    exactly. The models are not kept, and ``error`` is left out where the plane has none.

    Raises:
        FedscopeError: a run's own file lies there.
    """
    path = expand_home(path)
    refuse_own_place(path)
    is_dat = path.suffix.lower() == ".dat"
    surfaces = [plane.loss] if np.isnan(plane.error).all() else [plane.loss, plane.error]
    between = " " if is_dat else ","
    lines = [between.join(COLUMNS[: 2 + len(surfaces)])]
    for i, b in enumerate(plane.b):
        for j, a in enumerate(plane.a):
            lines.append(between.join(repr(float(value)) for value in (a, b, *(one[i, j] for one in surfaces))))
        if is_dat and i + 1 < len(plane.b):
            lines.append("")
    with write_durably(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
