"""Single models in other programs' files: ``.pt``, ``.pth``, ``.safetensors``, and Flower's ``.npz``."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .durable import write_durably
from .errors import FedscopeError, listed
from .layout import Entry, Layout
from .weights import Weights

SUFFIXES = (".pt", ".pth", ".safetensors", ".npz")
_WRAPPINGS = ("state_dict", "model_state_dict", "model")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def read_file(path: Path | str, layout: Layout | None = None) -> Weights:
    """One model from a file; no code in it is ever run.

    A checkpoint that wraps its tensors (``{"state_dict": ...}``, ``{"model": ...}``) is unwrapped, and
    ``DataParallel``'s ``module.`` is taken off the names where the expected model has none.

    Args:
        layout: of the expected model. Needed for an ``.npz`` without names, whose arrays (``arr_0``, ...) stand in
            ``state_dict`` order as Flower saves them. Without one, the tensors' own names, shapes and dtypes make it:
            running statistics and whole numbers are buffers. Values are cast to the layout's dtypes.

    Raises:
        FedscopeError: missing, foreign, truncated; a pickle of code; no tensors in it; not the expected model.
    """
    path = Path(path)
    if not path.is_file():
        there = sorted(p.name for p in path.parent.glob("*") if p.suffix in SUFFIXES) if path.parent.is_dir() else []
        raise FedscopeError(f"{path} does not exist" + (f"; {path.parent} has {listed(there)}" if there else ""))
    match path.suffix.lower():
        case ".pt" | ".pth":
            arrays = _tensors(path, _read_torch(path))
        case ".safetensors":
            arrays = _tensors(path, _read_safetensors(path))
        case ".npz":
            arrays = _named(path, _read_npz(path), layout)
        case _:
            raise FedscopeError(f"{path} is none of the files a model is read from: {', '.join(SUFFIXES)}")
    if layout is None:
        layout = Layout(tuple(_entry(name, array) for name, array in arrays.items()))
    elif not any(name.startswith("module.") for name in layout.names):
        arrays = {name.removeprefix("module."): array for name, array in arrays.items()}
    try:
        return layout.flatten(arrays)
    except FedscopeError as error:
        raise FedscopeError(f"{path}: {error}") from None


def write_file(path: Path | str, weights: Weights) -> None:
    """Write one model [P] as ``.safetensors``, ``.pt`` or ``.pth`` (a ``state_dict``), durably.

    Raises:
        FedscopeError: another kind of file; several models.
    """
    path = Path(path)
    if weights.parameters.ndim != 1:
        raise FedscopeError(f"{path} holds one model, but {len(weights)} were given; write them one by one")
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in weights.arrays().items()}
    match path.suffix.lower():
        case ".safetensors":
            from safetensors.numpy import save_file

            with write_durably(path) as temporary:
                save_file(arrays, temporary)
        case ".pt" | ".pth":
            import torch

            with write_durably(path) as temporary:
                torch.save({name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, temporary)
        case _:
            raise FedscopeError(f"{path}: a model is written as .safetensors, .pt or .pth; give one of these endings")


def _read_torch(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "invalid load key" in str(error) or not _is_pickle(path):
            raise FedscopeError(f"{path} is not a checkpoint of torch; save one with torch.save(...)") from error
        wants = re.search(r"GLOBAL (\S+)", str(error))
        raise FedscopeError(
            f"{path} is a pickle that would run code{f' ({wants[1]})' if wants else ''}, and a checkpoint must never"
            " run code; load it where it came from and save its tensors alone: torch.save(model.state_dict(), ...)"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # whatever torch stumbles over in a file that is none of its own
        if "TorchScript" in str(error):
            raise FedscopeError(
                f"{path} is a TorchScript program, which is code; save its tensors: torch.save(model.state_dict(), ...)"
            ) from error
        raise FedscopeError(f"{path} is truncated or not a checkpoint of torch; copy or save it again") from error


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4)
    return head[:2] == b"\x80" + head[1:2] or head == b"PK\x03\x04"


def _read_safetensors(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        # torch's tensors, because numpy has no bfloat16
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, OSError) as error:
        raise FedscopeError(
            f"{path} is truncated or not a safetensors file ({error}); copy or save it again"
        ) from error


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    if not zipfile.is_zipfile(path):  # numpy takes any other file for a pickle
        raise FedscopeError(f"{path} is truncated or not an .npz file; copy or save it again")
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (zipfile.BadZipFile, OSError, EOFError, TypeError) as error:
        raise FedscopeError(f"{path} is truncated or not an .npz file; copy or save it again") from error
    except ValueError as error:
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise FedscopeError(
                f"{path} holds Python objects, which could run code; save its arrays alone: numpy.savez(path, *arrays)"
            ) from error
        raise FedscopeError(f"{path} is not an .npz file of arrays ({error}); save it again") from error


def _named(path: Path, arrays: dict[str, np.ndarray], layout: Layout | None) -> dict[str, np.ndarray]:
    """Flower's arrays by the layout's names."""
    if not arrays:
        raise FedscopeError(f"{path} holds no arrays")
    if not all(re.fullmatch(r"arr_[0-9]+", name) for name in arrays):
        return arrays
    if layout is None:
        raise FedscopeError(f"{path} holds arrays without names, so the architecture must be said; give --model")
    if len(arrays) != len(layout.entries):
        raise FedscopeError(f"{path} holds {len(arrays)} arrays, but the expected model has {len(layout.entries)}")
    ordered = sorted(arrays, key=lambda name: int(name[4:]))
    return {entry.name: arrays[name] for entry, name in zip(layout.entries, ordered, strict=True)}


def _tensors(path: Path, loaded: Any) -> dict[str, np.ndarray]:
    import torch

    for key in _WRAPPINGS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping) or not loaded:
        raise FedscopeError(f"{path} holds {type(loaded).__name__}, not a state_dict; save model.state_dict()")
    strange = [str(name) for name, value in loaded.items() if not isinstance(value, torch.Tensor)]
    if strange:
        raise FedscopeError(f"{path} holds other things than tensors ({listed(strange, 4)}); save model.state_dict()")
    return {
        str(name): (value.float() if value.dtype is torch.bfloat16 else value).detach().numpy()
        for name, value in loaded.items()
    }


def _entry(name: str, array: np.ndarray) -> Entry:
    buffer = name.rpartition(".")[2] in _STATISTICS or not np.issubdtype(array.dtype, np.floating)
    return Entry(name, array.shape, array.dtype.name, "buffer" if buffer else "parameter")
