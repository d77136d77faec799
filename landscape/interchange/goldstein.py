"""Surfaces as the public code of Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018, has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.hdf5 import attribute, open_hdf5, write_hdf5
from ...checkpoints.io.hdf5_validation import refuse_links, refuse_unstored
from ...checkpoints.io.untrusted import expand_home
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.runs.folders import refuse_own_place
from ..planes.file_checks import refuse_strange
from ..planes.result import Plane

SPLITS = ("test", "train")
#: what their code fills a surface with before it computes
HOLE = -1.0
#: what their surfaces are said to be of, whose files do not say it
THEIRS = "loss-landscape"
#: attributes of ours in their file, which their scripts do not look at, and how the names of others begin
KEPT = ("program", "units", "loss_units", "data", "samples", "client", "holes")
KEPT_OF_ADAPTIVE = ("held_out_", "points_")


def write_surface(path: Path | str, plane: Plane) -> None:
    """Write a plane's surface as their ``.h5``: what their plotting scripts read.

    ``xcoordinates`` [X] and ``ycoordinates`` [Y] are a and b; ``test_loss`` and ``test_acc`` (``train_...`` after the
    plane's split) have the shape [X, Y] and hold, row by row, the values of [Y, X], because their code numbers the
    points of a mesh with x running fastest. Accuracies are in percent, and left out where the plane has no error. The
    models are not kept. Values that are not finite stay so, but for the holes of a surface that was read from such a
    file: they are -1 again where no other NaN is in the loss; else nothing says which they were, and an attribute
    ``holes`` counts them.

    ``computed``, of the same shape, is 1 where a point was measured and 0 where it was interpolated (``--adaptive``);
    a surface without it was measured throughout. Attributes say the units, which are distances here and lengths of the
    directions in their own files. Their scripts look at neither, and :func:`read_surface` reads back what was written.

    Raises:
        FedscopeError: a run's own file lies there.
    """
    refuse_own_place(expand_home(path))
    split = "train" if plane.attrs.get("split") == "train" else "test"
    shape = (len(plane.a), len(plane.b))
    about = {"program": "fedscope", "units": "L2 distance", "loss_units": "nat", **plane.attrs}
    holes = _holes(plane)
    values = {f"{split}_loss": np.where(holes, HOLE, plane.loss)}
    if not np.isnan(plane.error).all():
        values[f"{split}_acc"] = np.where(holes & np.isnan(plane.error), HOLE, 100 * (1 - plane.error))
    if plane.computed is not None:
        values["computed"] = plane.computed.astype(np.int8)
    about["holes"] = int(about.get("holes", 0)) - int(np.count_nonzero(holes))
    with write_hdf5(expand_home(path)) as file:
        file["xcoordinates"], file["ycoordinates"] = plane.a, plane.b
        for name, surface in values.items():
            file[name] = np.ascontiguousarray(surface).ravel().reshape(shape)
        for name, value in about.items():
            if _is_kept(name):
                file.attrs[name] = value


def read_surface(path: Path | str, split: str | None = None) -> Plane:
    """Read a surface that their ``plot_surface.py``, or :func:`write_surface`, has written.

    Their coordinates count lengths of two directions, which need not be orthogonal nor of one length and are in
    another file, so they are no distances: ``attrs["units"]`` says which they are. Points marked with -1 were not
    computed and become NaN; ``attrs["holes"]`` counts them in the loss. In a surface that :func:`write_surface` wrote
    of another program's or fedscope's own plane -1 is a loss like any other. Coordinates that fall are read from their
    other end. An accuracy that is missing leaves the error NaN. The file knows no models, nor whether the loss was
    cross-entropy (their default) or squared error, so ``attrs["loss_units"]`` is empty.

    Args:
        split: ``train`` or ``test``; by default the only one of which the file has values, or else ``test``.

    Raises:
        FedscopeError: missing or damaged; directions, a trajectory or a curve in place of a surface; nothing computed
            yet; another split; shapes that do not fit; no numbers; links in place of values.

    Source: tomgoldstein/loss-landscape, ``plot_surface.py`` (``crunch``) and ``scheduler.py``
    (``get_unplotted_indices``): value ``ind`` of the flattened array is the one at point ``ind`` of the flattened
    ``numpy.meshgrid(x, y)``.

    >>> import tempfile
    >>> a, b = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0])
    >>> plane = Plane(a, b, 10 * b[:, None] + a, np.zeros((2, 3)), (), 0.0, "none", {"split": "train"})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_surface(f"{folder}/s.h5", plane)
    ...     read_surface(f"{folder}/s.h5").loss.tolist()
    [[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]
    """
    path = expand_home(path)
    with open_hdf5(path, None, 1, "a surface of loss-landscape") as file:
        refuse_links(path, file)
        x, y = _coordinates(path, file)
        kept: dict[str, Any] = {name: attribute(file, name) for name in file.attrs if _is_kept(name)}
        refuse_strange(path, kept)
        # in a file of ours, whose losses may be below 0, it is a loss
        hole = HOLE if kept.get("program", THEIRS) == THEIRS else np.nan
        shape = (y.size, x.size)
        chosen, loss = _computed_split(path, file, shape, split, hole)
        stored = {"loss": loss}
        if f"{chosen}_acc" in file:
            stored["acc"] = _surface(path, file, f"{chosen}_acc", shape)
        measured = _surface(path, file, "computed", shape) if "computed" in file else None
        about = {
            "kind": "surface",
            "program": THEIRS,
            "units": "direction lengths",
            "loss_units": "",
            **kept,
            "split": chosen,
            "file": str(path),
            "holes": int(np.count_nonzero(stored["loss"] == hole)) + int(kept.get("holes", 0)),
            **_directions(file),
        }
    # rising coordinates, whichever end they were computed from
    rows, columns = np.argsort(y), np.argsort(x)
    values = {name: np.where(found == hole, np.nan, found)[np.ix_(rows, columns)] for name, found in stored.items()}
    accuracy = values.get("acc", np.full((y.size, x.size), np.nan))
    computed = None if measured is None else measured[np.ix_(rows, columns)] != 0
    unknown = float("nan")
    return Plane(x[columns], y[rows], values["loss"], 1 - accuracy / 100, (), unknown, "unknown", about, computed)


def _computed_split(
    path: Path, file: Any, shape: tuple[int, int], split: str | None, hole: float
) -> tuple[str, np.ndarray]:
    """Return the split that a surface is read for, and its losses: their code fills those of a split with holes before
    it computes the first, so one may have no values at all.

    Raises:
        FedscopeError: as of :func:`choose_split`; no value of the one asked for, or of any.
    """
    have = [name for name in SPLITS if f"{name}_loss" in file]
    first = choose_split(path, have, split)
    empty = []
    for name in (first, *(other for other in have if other != first)):
        loss = _surface(path, file, f"{name}_loss", shape)
        if (loss == hole).all():
            empty.append(name)
            continue
        if not empty:
            return name, loss
        none = f"{path} has no {first} losses yet (all are {HOLE:g}: not computed)"
        if split is not None:
            raise FedscopeError(f"{none}, only those of {name}; give --split {name}")
        warn_user(f"{none}, so its {name} losses are taken")
        return name, loss
    raise _nothing_computed(path, f" (all are {HOLE:g})")


def choose_split(path: Path, have: list[str], split: str | None) -> str:
    """Return the split that a file is read for: the one asked for, or the first that it has.

    Raises:
        FedscopeError: it has none, or not that one.
    """
    if not have:
        raise _nothing_computed(path)
    if split is not None and split not in have:
        raise FedscopeError(f"{path} has no {split} losses, only those of {' and '.join(have)}; give --split {have[0]}")
    return split or have[0]


def _nothing_computed(path: Path, more: str = "") -> FedscopeError:
    return FedscopeError(
        f"{path} has coordinates but no losses{more}: nothing was computed yet; compute its surface first"
    )


def _coordinates(path: Path, file: Any) -> tuple[np.ndarray, np.ndarray]:
    if "xcoordinates" not in file:
        what = "is not a surface of loss-landscape: it has no xcoordinates"
        if "xdirection" in file:
            what = "holds directions, not a surface"
        elif "proj_xcoord" in file:
            what = "holds a trajectory's projection, not a surface"
        raise FedscopeError(f"{path} {what}; give the .h5 that plot_surface.py has written")
    if "ycoordinates" not in file:
        raise FedscopeError(
            f"{path} holds a curve along one direction (xcoordinates only), and a surface needs two; "
            "run plot_surface.py with --y too"
        )
    x, y = (_coordinate(path, file, name) for name in ("xcoordinates", "ycoordinates"))
    return x, y


def _coordinate(path: Path, file: Any, name: str) -> np.ndarray:
    stored = _numbers(path, file, name)
    refuse_no_row(path, name, stored.shape)
    values = np.asarray(stored[()], dtype=float)
    refuse_grid(path, name, values)
    return values


def refuse_grid(path: Path, name: str, values: np.ndarray) -> None:
    """Refuse coordinates on which no surface can be drawn.

    Raises:
        FedscopeError: other than a vector, fewer than two, not finite, two that are the same.
    """
    refuse_no_row(path, name, values.shape)
    if not np.isfinite(values).all() or len(np.unique(values)) < len(values):
        raise FedscopeError(f"{path} has {name} that repeat or are not finite; compute its surface again")


def refuse_no_row(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Refuse coordinates that are no row, or too short a one, which their shape says.

    Raises:
        FedscopeError: other than a vector, fewer than two.
    """
    if len(shape) != 1 or shape[0] < 2:
        raise FedscopeError(
            f"{path} has {name} of shape {list(shape) or [1]}, and a surface needs at least 2 in a row; compute it "
            "again"
        )


def _surface(path: Path, file: Any, name: str, shape: tuple[int, int]) -> np.ndarray:
    """Their values [X, Y] as what they are, [Y, X]."""
    stored = _numbers(path, file, name)
    # before they are read: gzip holds a thousand times its size
    if stored.size != shape[0] * shape[1]:
        raise FedscopeError(
            f"{path} has {name} of shape {list(stored.shape)}, but {shape[1]} x and {shape[0]} y coordinates; "
            "compute the surface again"
        )
    return np.asarray(stored[()], dtype=float).ravel().reshape(shape)


def _numbers(path: Path, file: Any, name: str) -> Any:
    """Return a dataset of numbers, all of which the file holds; none is read yet."""
    stored = file[name]
    if not isinstance(stored, h5py.Dataset) or stored.shape is None or stored.dtype.kind not in "fiu":
        raise FedscopeError(f"{path} has no numbers in {name}; compute its surface again")
    refuse_unstored(path, stored)
    return stored


def _holes(plane: Plane) -> np.ndarray:
    """Find the points of a surface of theirs that were not computed, [b, a]; none where a NaN among them may be a
    loss."""
    missing = np.isnan(plane.loss)
    count = int(plane.attrs.get("holes", 0))
    return missing if np.count_nonzero(missing) == count else np.zeros_like(missing)


def _is_kept(name: str) -> bool:
    return name in KEPT or name.startswith(KEPT_OF_ADAPTIVE)


def _directions(file: Any) -> dict[str, str]:
    """Return the file of the directions, as their code names it."""
    found = file.get("dir_file")
    if not isinstance(found, h5py.Dataset) or found.shape != () or not h5py.check_string_dtype(found.dtype):
        return {}
    return {"dir_file": str(found.asstr(errors="replace")[()])}
