"""Single models in other programs' files: torch's ``.pt``, ``.pth``, ``.ckpt`` and ``.bin``, ``.safetensors``, and
Flower's ``.npz``."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .archives import read_npz, read_torch
from .durable import write_durably
from .errors import FedscopeError, FedscopeWarning, listed, nearest
from .foreign_files import lost_link, reading, regular
from .state_dicts import as_arrays, find_state_dict, fit, hint
from .weights import Entry, Layout, Weights

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npz")
WRITTEN = (".pt", ".pth", ".safetensors")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def read_file(path: Path | str, layout: Layout | None = None) -> Weights:
    """One model from a file, as :func:`read_model`; what was changed on the way is a :class:`FedscopeWarning`."""
    weights, note = read_model(path, layout)
    if note:
        warnings.warn(f"{path}: {note}", FedscopeWarning, stacklevel=2)
    return weights


def read_model(path: Path | str, layout: Layout | None = None) -> tuple[Weights, str]:
    """One model from a file, and in words what was changed on the way; no code in it is ever run.

    The file's content says what it is, and its ending only where that says nothing. A checkpoint that holds more than
    tensors (``{"state_dict": ..., "epoch": ...}``, as Lightning's ``.ckpt``) is searched for the one ``state_dict`` in
    it. One prefix that all names have and the expected model's do not (``model.``, ``module.``, ``_orig_mod.``) is
    taken off. Values are cast to the layout's dtypes; float16 and bfloat16 become float32 without one.

    Args:
        layout: of the expected model. Needed for an ``.npz`` without names, whose arrays (``arr_0``, ...) stand in
            ``state_dict`` order as Flower saves them. Without one, the tensors' own names, shapes and dtypes make it:
            running statistics and whole numbers are buffers.

    Returns:
        The weights, and a sentence about the prefix, the dtypes and where the ``state_dict`` lay; "" where nothing was
        changed.

    Raises:
        FedscopeError: missing, no regular file, foreign, damaged; sizes that are not stored; a pickle of code; no
            tensors or several models in it; not the expected model.
    """
    path = Path(path)
    arrays, notes = read_arrays(path, layout)
    known = layout or Layout(tuple(_entry(name, array) for name, array in arrays.items()))
    try:
        with np.errstate(over="ignore"):  # a diverged model in double precision
            weights = known.flatten(arrays)
    except FedscopeError as error:
        clause = hint(arrays, known) if set(arrays) != set(known.names) else ""
        raise FedscopeError(f"{path}: {error}{clause}") from None
    return weights, ", ".join(notes)


def read_arrays(path: Path, layout: Layout | None) -> tuple[dict[str, np.ndarray], list[str]]:
    """What a model's file holds by name, before it is held against a layout, and a clause for each thing changed.

    Args:
        layout: as for :func:`read_model`, whose names, where the file has all of them behind a prefix, are taken.

    Raises:
        FedscopeError: as :func:`read_model`, but for names and shapes.
    """
    kind, tensors, notes = read_tensors(path, layout)
    if kind == "npz":
        arrays, stored = dict(tensors), {name: array.dtype.name for name, array in tensors.items()}
    else:
        arrays, stored = as_arrays(path, tensors)
    arrays, changes = fit(path, arrays, stored, layout)
    return arrays, [*notes, *changes]


def read_tensors(path: Path, layout: Layout | None) -> tuple[str, Mapping[str, Any], list[str]]:
    """What a model's file holds by name, as it is stored.

    Args:
        layout: as for :func:`read_model`, where a file holds arrays without names, or several models.

    Returns:
        ``torch``, ``safetensors`` or ``npz``; arrays of an ``.npz``, of the others torch's tensors; a clause that says
        where the ``state_dict`` lay, if that had to be chosen.

    Raises:
        FedscopeError: as :func:`read_model`, but for names, shapes and dtypes.
    """
    regular(path, "a model's file")
    if not path.is_file():
        if lost := lost_link(path):
            raise FedscopeError(f"{path} {lost}; give a model's file")
        there = sorted(beside for beside in path.parent.glob("*") if beside.suffix in SUFFIXES)
        names = {beside.stem: beside.name for beside in there}
        near = nearest(path.stem, names, names)
        if not near and there:
            near = f"; {path.parent} has {listed(beside.name for beside in there)}; give one of them"
        raise FedscopeError(
            f"{path} does not exist" + (near or "; give a model's file, or a model of a run, as in runs/ima@last")
        )
    kind = _kind(path)
    if kind == "npz":
        return kind, _named(path, read_npz(path), layout), []
    loaded = read_torch(path) if kind == "torch" else _read_safetensors(path)
    tensors, place = find_state_dict(path, loaded, layout)
    return kind, tensors, [f"the model is what it holds under {place!r}"] if place else []


def write_file(path: Path | str, weights: Weights) -> None:
    """Write one model [P] as ``.safetensors``, ``.pt`` or ``.pth`` (a ``state_dict``), durably.

    The file is made in memory first, so that a disk that cannot take it answers with the system's own reason.

    Raises:
        FedscopeError: another kind of file; several models; nothing could be written, with the reason.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save

    path = Path(path)
    if weights.parameters.ndim != 1:
        raise FedscopeError(f"{path} holds one model, but {len(weights)} were given; write them one by one")
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in weights.arrays().items()}
    if path.suffix.lower() not in WRITTEN:
        raise FedscopeError(f"{path}: a model is written as .safetensors, .pt or .pth; give one of these endings")
    try:
        content = save(arrays) if path.suffix.lower() == ".safetensors" else _torch_bytes(arrays)
        with write_durably(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise FedscopeError(f"{path} cannot be written ({error.strerror or error}); give another place") from error
    except (SafetensorError, RuntimeError, TypeError, KeyError) as error:  # a dtype that the format does not have
        raise FedscopeError(f"{path} cannot be written ({error}); give another ending") from error


def _torch_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    import io

    import torch

    buffer = io.BytesIO()
    torch.save({name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, buffer)
    return buffer.getvalue()


def _kind(path: Path) -> str:
    """``torch``, ``safetensors`` or ``npz``: what the first bytes say, then the ending.

    Raises:
        FedscopeError: neither says it.
    """
    with reading(path, "a model's file"), path.open("rb") as file:
        head = file.read(9)
        if head[:4] == b"PK\x03\x04" and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                arrays = [name.endswith(".npy") for name in archive.namelist()]
            return "npz" if arrays and all(arrays) else "torch"
    if head[:1] == b"\x80":
        return "torch"
    if head[8:] == b"{" and int.from_bytes(head[:8], "little") <= path.stat().st_size:
        return "safetensors"
    match path.suffix.lower():
        case ".pt" | ".pth" | ".ckpt" | ".bin":
            return "torch"
        case ".safetensors" | ".npz" as ending:
            return ending[1:]
    raise FedscopeError(f"{path} is not a file that a model can be read from: {', '.join(SUFFIXES)}")


def _read_safetensors(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    with reading(path, "a safetensors file"):
        try:
            # torch's tensors, because numpy has no bfloat16
            with safe_open(path, framework="pt", device="cpu") as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        except (SafetensorError, OSError) as error:
            raise FedscopeError(
                f"{path} is truncated or not a safetensors file ({error}); copy or save it again"
            ) from error


def _named(path: Path, arrays: dict[str, np.ndarray], layout: Layout | None) -> dict[str, np.ndarray]:
    """Flower's arrays by the layout's names."""
    if not arrays:
        raise FedscopeError(f"{path} holds no arrays")
    if not all(re.fullmatch(r"arr_[0-9]+", name) for name in arrays):
        return arrays
    if layout is None:
        raise FedscopeError(f"{path} holds arrays without names, so the architecture is needed; give --model")
    if len(arrays) != len(layout.entries):
        raise FedscopeError(f"{path} holds {len(arrays)} arrays, but the expected model has {len(layout.entries)}")
    ordered = sorted(arrays, key=lambda name: int(name[4:]))
    return {entry.name: arrays[name] for entry, name in zip(layout.entries, ordered, strict=True)}


def _entry(name: str, array: np.ndarray) -> Entry:
    buffer = name.rpartition(".")[2] in _STATISTICS or not np.issubdtype(array.dtype, np.floating)
    return Entry(name, array.shape, array.dtype.name, "buffer" if buffer else "parameter")
