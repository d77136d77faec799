"""From what a checkpoint holds to one model's arrays by the expected names, and in words what was done to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import FedscopeError, listed
from .weights import Entry, Layout

if TYPE_CHECKING:
    from torch import Tensor

#: keys that programs keep a model's tensors under; what lies under others is taken only where it is alone
WRAPPINGS = ("state_dict", "model_state_dict", "model", "module")
# Not models, though they hold tensors by name.
_OTHERS = ("optim", "scheduler", "scaler", "callbacks", "loops", "rng")
_DEPTH = 4
_NOT_IN_NUMPY = ("bfloat", "float8", "float4")
_HALVES = (*_NOT_IN_NUMPY, "float16")


def find_state_dict(path: Path, loaded: Any, layout: Layout | None) -> tuple[dict[str, Tensor], str]:
    """The one mapping of names to tensors in what was loaded.

    Below the keys of :data:`WRAPPINGS` first, then below any other key but those of optimisers. Where several lie
    there, it is the one whose names are the expected model's, up to a common prefix.

    Returns:
        The tensors by name; where they lay if that had to be chosen, "" where nothing else was there.

    Raises:
        FedscopeError: none, with what is there instead; several, with their places.
    """
    candidates = dict(_candidates(loaded, ""))
    if not candidates:
        _refuse(path, loaded)
    known = [place for place in candidates if all(key in WRAPPINGS for key in place.split(".") if key)]
    places = known or list(candidates)
    if len(places) > 1 and layout is not None:
        places = [place for place in places if _prefix(candidates[place], layout) is not None] or places
    if len(places) > 1:
        raise FedscopeError(
            f"{path} holds {len(places)} models ({listed(places, 6)}), and it is unclear which one is meant; save "
            f"one of them: torch.save(checkpoint[{places[0].partition('.')[0]!r}], ...)"
        )
    return candidates[places[0]], places[0] if not known or len(candidates) > 1 else ""


def _candidates(loaded: Any, place: str) -> Iterator[tuple[str, dict[str, Tensor]]]:
    import torch

    if not isinstance(loaded, Mapping) or not loaded or place.count(".") >= _DEPTH:
        return
    if all(isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in loaded.items()):
        yield place, dict(loaded)
        return
    for key, value in loaded.items():
        if isinstance(key, str) and not any(word in key.lower() for word in _OTHERS):
            yield from _candidates(value, f"{place}.{key}" if place else key)


def _refuse(path: Path, loaded: Any) -> None:
    import torch

    if not isinstance(loaded, Mapping) or not loaded:
        raise FedscopeError(f"{path} holds {type(loaded).__name__}, not a state_dict; save model.state_dict()")
    strange = [str(name) for name, value in loaded.items() if not isinstance(value, torch.Tensor)]
    raise FedscopeError(f"{path} holds other things than tensors ({listed(strange, 4)}); save model.state_dict()")


def as_arrays(path: Path, tensors: Mapping[str, Tensor]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors as arrays, and the dtypes they are stored in; what NumPy has not (bfloat16, float8) becomes float32.

    Raises:
        FedscopeError: a tensor without plain values (sparse, quantised, meta, of a packed dtype); one that declares
            more bytes than are stored for it, with both numbers.
    """
    arrays, stored = {}, {}
    for name, value in tensors.items():
        dtype = stored[name] = str(value.dtype).removeprefix("torch.")
        refuse_valueless(path, name, value)
        try:
            arrays[name] = (value.float() if dtype.startswith(_NOT_IN_NUMPY) else value).detach().numpy()
        except (TypeError, RuntimeError) as error:
            raise FedscopeError(f"{path}: {name} is {dtype}, which NumPy does not hold; save it as float32") from error
    return arrays, stored


def refuse_valueless(path: Path, name: str, value: Tensor) -> None:
    """Refuse a tensor that is no plain numbers, or that declares more of them than are stored.

    Raises:
        FedscopeError: says which.
    """
    import torch

    if value.layout is not torch.strided or value.is_quantized or value.is_meta or value.is_complex():
        kind = "quantised" if value.is_quantized else "without values" if value.is_meta else "sparse or complex"
        raise FedscopeError(f"{path}: {name} is {kind}, and weights are plain numbers; save it as float32")
    declared, there = value.numel() * value.element_size(), value.untyped_storage().nbytes()
    if declared > there:  # strides of 0, which a copy would spread out
        raise FedscopeError(f"{path}: {name} declares {declared:,} bytes, but {there:,} are stored; save a copy")


def fit(
    path: Path, arrays: Mapping[str, np.ndarray], stored: Mapping[str, str], layout: Layout | None
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays by the expected model's names and as single precision where they were stored in half of it or less.

    One prefix that all names have and the model's do not (``model.`` of a wrapper, ``module.`` of ``DataParallel``,
    ``_orig_mod.`` of ``torch.compile``, or several of them) is taken off.

    Args:
        stored: dtypes by name, as the file has them.
        layout: of the expected model; None leaves the names as they are.

    Returns:
        The arrays, and a clause for each thing that was changed.

    Raises:
        FedscopeError: whole numbers where the model has parameters (quantised weights); a count that is not finite;
            no numbers at all.
    """
    notes = []
    prefix = "" if layout is None else _prefix(arrays, layout) or ""
    if prefix:
        notes.append(f'the prefix "{prefix}" is taken off its names')
    wanted = {} if layout is None else {entry.name: entry for entry in layout.entries}
    fitting, changed = {}, Counter[tuple[str, str]]()
    for full, array in arrays.items():
        name, dtype = full.removeprefix(prefix), stored[full]
        if array.dtype.kind not in "biuf":
            raise FedscopeError(f"{path}: {full} has type {dtype}, which is not a tensor's; save it as float32")
        entry = wanted.get(name)
        if entry is None:
            array = array.astype(np.float32) if dtype.startswith(_HALVES) else array
        else:
            _refuse_other_numbers(f"{path}: {full}", array, dtype, entry)
        target = array.dtype.name if entry is None else entry.dtype
        if array.dtype.kind == "f" and target != dtype and target.startswith("float"):
            changed[dtype, target] += 1
        fitting[name] = array
    notes += [
        f"{count} {'tensor' if count == 1 else 'tensors'} of {dtype} {'is' if count == 1 else 'are'} read as {target}"
        for (dtype, target), count in changed.items()
    ]
    return fitting, notes


def _refuse_other_numbers(place: str, array: np.ndarray, dtype: str, entry: Entry) -> None:
    floats = entry.dtype.startswith("float")
    if entry.kind == "parameter" and floats and array.dtype.kind != "f":
        raise FedscopeError(
            f"{place} is {dtype}, but the model's is {entry.dtype}; if its weights are quantised, save them as float32"
        )
    if not floats and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise FedscopeError(f"{place} is not finite, but the model's is {entry.dtype}; save it again")


def hint(arrays: Mapping[str, Any], layout: Layout) -> str:
    """A clause for names that do not fit: what a prefix has to do with it, or nothing."""
    if not arrays or not layout.names:
        return ""
    inside = next(iter(_prefixes(arrays, layout.names)), None)
    if inside is not None:
        others = [name for name in arrays if name.removeprefix(inside) not in layout.names or name in layout.names]
        return f'; all of them are there behind the prefix "{inside}", beside {listed(others, 2)}: save those alone'
    inside = next(iter(_prefixes(dict.fromkeys(layout.names), list(arrays))), None)
    if inside is not None:
        return f'; the model has the prefix "{inside}" before them: give --model the module inside'
    first = next(iter(arrays)).partition(".")[0] + "."
    if all(name.startswith(first) for name in arrays) and not any(name.startswith(first) for name in layout.names):
        return f'; all names of the file begin with "{first}", and without it they do not fit either'
    return ""


def _prefix(names: Mapping[str, Any], layout: Layout) -> str | None:
    """What stands before the expected name in every name; ``""`` where they are the expected ones; None otherwise."""
    if set(names) == set(layout.names):
        return ""
    return next((prefix for prefix in _prefixes(names, layout.names) if len(names) == len(layout.names)), None)


def _prefixes(names: Mapping[str, Any], wanted: tuple[str, ...] | list[str]) -> Iterator[str]:
    """Prefixes, ending in a dot, behind which every wanted name is there."""
    if not wanted:
        return
    ends = f".{wanted[0]}"
    for name in names:
        prefix = name.removesuffix(wanted[0])
        if name.endswith(ends) and all(f"{prefix}{want}" in names for want in wanted):
            yield prefix
