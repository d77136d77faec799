"""Planes as the public code of Garipov et al., "Loss Surfaces, Mode Connectivity, and Fast Ensembling of DNNs", NeurIPS
2018, has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.archives import read_npz
from ...checkpoints.io.untrusted import regular
from ..planes.result import Plane, PlaneModel
from .goldstein import choose_split, refuse_grid

#: their names of the splits
SPLITS = {"train": "tr", "test": "te"}
#: the curve's ends and its bend, in the order of their parameters w[0], w[1], w[2]
BENDS = ("start of the curve", "bend", "end of the curve")


def read_plane(path: Path | str, split: str | None = None) -> Plane:
    """Read the ``plane.npz`` of dnn-mode-connectivity: a plane through the ends of a curve and its bend.

    With u = w_3 − w_1 and v the part of w_2 − w_1 orthogonal to u, their ``grid[i, j]`` is (α_i ‖u‖, β_j ‖v‖), so the
    axes are L2 distances from the curve's start, and values are stored [i, j], a running slowest. The three become the
    anchors, the points of the curve (``curve_coordinates``) the path. The file has no losses of theirs, so they are
    NaN: none is read off the grid. Coordinates that fall are read from their other end.

    ``loss`` is their ``nll``, the mean cross-entropy; their own figure draws ``loss``, which adds the weight penalty
    (``attrs["loss_is"]`` says which was read, where a file lacks the one). Accuracies come as ``err`` in per cent.

    Args:
        split: ``train`` or ``test``, which is their validation set where they ran without ``--use_test``; default
            ``train``, what their figure shows.

    Raises:
        FedscopeError: missing, no ``.npz``, a model in place of a plane, another split, shapes that do not fit, no
            numbers.

    Source: timgaripov/dnn-mode-connectivity, ``plane.py``.
    """
    path = Path(path)
    arrays = _arrays(path)
    if "grid" not in arrays:
        raise FedscopeError(
            f"{path} is not a plane of dnn-mode-connectivity: it has no grid; a model's .npz needs no import, give it "
            "to `fedscope plane` with --model and --data"
        )
    grid = _numbers(path, arrays, "grid")
    if grid.ndim != 3 or grid.shape[2] != 2 or not grid.size:
        raise FedscopeError(f"{path} has a grid of shape {list(grid.shape)}, not [A, B, 2]; compute the plane again")
    a, b = grid[:, 0, 0], grid[0, :, 1]
    if not ((grid[..., 0] == a[:, None]).all() and (grid[..., 1] == b[None, :]).all()):
        raise FedscopeError(f"{path} has a grid that is not a product of two axes; compute the plane again")
    for name, values in (("a grid along its first axis", a), ("a grid along its second axis", b)):
        refuse_grid(path, name, values)
    have = [name for name, short in SPLITS.items() if f"{short}_loss" in arrays or f"{short}_nll" in arrays]
    chosen = choose_split(path, have, split)
    short = SPLITS[chosen]
    measured = f"{short}_nll" if f"{short}_nll" in arrays else f"{short}_loss"

    # rising coordinates, whichever end they were computed from
    rows, columns = np.argsort(b), np.argsort(a)

    def surface(name: str) -> np.ndarray:
        values = _numbers(path, arrays, name)
        if values.shape != grid.shape[:2]:
            raise FedscopeError(
                f"{path} has {name} of shape {list(values.shape)} on a grid of {list(grid.shape[:2])}; compute it again"
            )
        return np.ascontiguousarray(values.T[np.ix_(rows, columns)])

    loss = surface(measured)
    error = surface(f"{short}_err") / 100 if f"{short}_err" in arrays else np.full_like(loss, np.nan)
    about = {
        "kind": "surface",
        "program": "dnn-mode-connectivity",
        "units": "L2 distance",
        "loss_units": "nat",
        "loss_is": measured,
        "split": chosen,
        "file": str(path),
        "holes": 0,
    }
    return Plane(a[columns], b[rows], loss, error, _models(path, arrays), float("nan"), "unknown", about)


def _models(path: Path, arrays: dict[str, np.ndarray]) -> tuple[PlaneModel, ...]:
    """Return the ends of the curve and its bend, then the points of the curve; further bends lie somewhere off the
    plane."""
    bends, curve = (_places(path, arrays, name) for name in ("bend_coordinates", "curve_coordinates"))
    times = _numbers(path, arrays, "ts") if "ts" in arrays else np.linspace(0, 1, len(curve))
    if times.shape != (len(curve),):
        raise FedscopeError(
            f"{path} has ts of shape {list(times.shape)} for {len(curve)} curve_coordinates; compute the plane again"
        )
    labels = BENDS if len(bends) == 3 else [f"bend {i}" for i in range(len(bends))]
    # a curve of three is made of affine combinations of them
    off = 0.0 if len(bends) == 3 else float("nan")
    anchors = [
        _model(labels[i], at, 0.0 if i < 3 else off, "anchor" if i < 3 else "shown") for i, at in enumerate(bends)
    ]
    return (*anchors, *(_model(f"t = {t:.3g}", at, off, "path") for t, at in zip(times, curve, strict=True)))


def _places(path: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Points of the plane, [n, 2]; none where the file has none."""
    if name not in arrays:
        return np.empty((0, 2))
    values = _numbers(path, arrays, name)
    if values.ndim != 2 or values.shape[1] != 2:
        raise FedscopeError(f"{path} has {name} of shape {list(values.shape)}, not [n, 2]; compute the plane again")
    return values


def _numbers(path: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    if arrays[name].dtype.kind not in "fiu":
        raise FedscopeError(f"{path} has no numbers in {name}; compute the plane again")
    return np.asarray(arrays[name], dtype=float)


def _model(label: str, at: np.ndarray, off: float, role: str) -> PlaneModel:
    unknown = float("nan")
    return PlaneModel(label, float(at[0]), float(at[1]), off, unknown, unknown, unknown, unknown, role)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not regular(path, "the plane.npz of dnn-mode-connectivity").is_file():
        raise FedscopeError(f"{path} does not exist; give the plane.npz of dnn-mode-connectivity")
    return read_npz(path)
