"""Data as a program hands them over: arrays, tensors, a ``Dataset`` or a ``DataLoader``, read without importing torch.

The forms are

- ``(x, y)``: test samples and their labels;
- ``((x_train, y_train), (x_test, y_test))``;
- a mapping of ``x_test, y_test`` and, if training samples are needed, ``x_train, y_train``; ``classes`` may be said;
- in place of each ``(x, y)``, a ``torch.utils.data.Dataset`` or ``DataLoader`` of such pairs;
- or batches of tokens, ``{"input_ids", "labels"}``, see :mod:`~fedscope.checkpoints.recorder.coerce_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..io.array_digest import ARRAYS
from ..io.errors import FedscopeError, list_few
from ..io.random_streams import undrawn
from ..io.torch_state import callers_device, without_sign_bit
from .coerce_tokens import LABELS, MASK, PADDING, TOKENS, coerce_tokens, is_batch, join_padding, padding_of
from .label_forms import NUMBERED, are_names
from .loaders import drawn_through, gives_items, is_loader, say_chance, say_left_out

#: x and y of a split, and what a mask says of its padding
_Split = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]

_FORMS = "return (x, y), ((x_train, y_train), (x_test, y_test)), a dictionary of x_test and y_test, or a Dataset"


@callers_device()
def coerce_arrays(place: str, returned: Any) -> dict[str, np.ndarray]:
    """Read data in any of these forms: the arrays by name, of the types that they have. Random numbers that are drawn
    by that are put back: the program goes on as if nothing had been read.

    Args:
        place: begins sentences.

    Raises:
        FedscopeError: something else than data; items that are no pairs, or of several shapes.

    >>> sorted(coerce_arrays("data:", ([[0.5]], [1])))
    ['x_test', 'y_test']
    """
    if is_batch(returned):
        x, y, padding = _read_batch(place, returned)
        return {"x_test": x, "y_test": y, **padding}
    if isinstance(returned, Mapping):
        unknown = [str(key) for key in returned if key not in (*ARRAYS, "classes")]
        if unknown:
            raise FedscopeError(f"{place} {list_few(unknown)}; name them x_train, y_train, x_test, y_test")
        return {key: _array(f"{place} {key}", value, labels=key[0] == "y") for key, value in returned.items()}
    pair = isinstance(returned, tuple | list) and len(returned) == 2
    if any(map(_is_stream, returned if pair else [returned])):
        raise FedscopeError(f"{place} an IterableDataset, which has no length; give a DataLoader of it")
    if pair and all(map(_is_split, returned)):
        splits = dict(zip(("train", "test"), returned, strict=True))
    elif pair or _is_items(returned):
        splits = {"test": returned}
    else:
        raise FedscopeError(f"{place} {_kind(returned)}, which are not data; {_FORMS}")
    drawn = [given for given in splits.values() if _is_items(given)]
    with undrawn(part for items in drawn for part in drawn_through(items)):
        return _read_splits(place, splits)


def _read_splits(place: str, splits: Mapping[str, Any]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    padding: dict[str, np.ndarray] = {}
    for split, given in splits.items():
        said: dict[str, np.ndarray] = {}
        if is_batch(given):
            x, y, said = _read_batch(f"{place} {split} data:", given)
        elif _is_items(given):
            x, y, said = _read_items(place, given)
        else:
            x, y = given
        padding |= {split: said[PADDING]} if said else {}
        arrays[f"x_{split}"] = _array(f"{place} an x_{split} that", x)
        arrays[f"y_{split}"] = _array(f"{place} a y_{split} that", y, labels=True)
    for split, given in splits.items():  # once all are read, so that asking again changes nothing of them
        if _is_items(given):
            say_chance(f"{place} {split} data", given, lambda item: _arrays_of(place, item))
            say_left_out(f"{place} {split} data", given, len(arrays[f"x_{split}"]))
    return arrays | join_padding(place, arrays, padding)


def _arrays_of(place: str, item: Any) -> list[np.ndarray]:
    if is_batch(item):
        return [_array(place, item[name]) for name in _tokens_in(item)]
    x, y = item
    return [_array(place, x), _array(place, y, labels=True)]


def _read_batch(place: str, batch: Mapping[str, Any]) -> _Split:
    return _of_tokens(place, {name: _array(f"{place} {name}", batch[name]) for name in _tokens_in(batch)})


def _of_tokens(place: str, arrays: Mapping[str, np.ndarray]) -> _Split:
    return *coerce_tokens(place, arrays), padding_of(arrays)


def _is_split(given: Any) -> bool:
    """Check whether one of two parts is a split, with its x and y; else the two are x and y themselves.

    Two tuples are splits, as they are written. Of two lists of lists, which are also the samples of two, they are where
    they hold an array, or could be no array.
    """
    if _is_items(given) or is_batch(given):
        return True
    if not isinstance(given, tuple | list) or len(given) != 2 or not all(map(_is_column, given)):
        return False
    return isinstance(given, tuple) or any(hasattr(part, "shape") for part in given) or _is_ragged(given)


def _is_column(part: Any) -> bool:
    return bool(part.shape) if hasattr(part, "shape") else isinstance(part, tuple | list)


def _is_ragged(parts: Any) -> bool:
    try:
        return np.asarray(parts).dtype == object
    except ValueError:
        return True


def _is_stream(given: Any) -> bool:
    return any(kind.__name__ == "IterableDataset" for kind in type(given).__mro__) and not hasattr(given, "__len__")


def _is_items(given: Any) -> bool:
    """Check for a Dataset or a DataLoader: it has a length and items, and is no array, list or text."""
    sized = hasattr(given, "__len__") and (hasattr(given, "__getitem__") or hasattr(given, "dataset"))
    return sized and not hasattr(given, "shape") and not isinstance(given, tuple | list | str | bytes | Mapping)


def _read_items(place: str, items: Any) -> _Split:
    batched = is_loader(items)
    drawn: Iterable[Any] = items if batched else (items[i] for i in range(len(items)))
    xs, ys = [], []
    batches: list[dict[str, np.ndarray]] = []
    for i, item in enumerate(drawn):
        if is_batch(item):
            batches.append({name: _array(f"{place} data: {name} of item {i}", item[name]) for name in _tokens_in(item)})
            batched = batched and not (i == 0 and batches[0][TOKENS].ndim == 1 and gives_items(items))
            _refuse_other_batch(place, i, batches[0], batches[i], batched)
            continue
        if batches or not isinstance(item, tuple | list) or len(item) != 2:
            raise FedscopeError(
                f"{place} data whose item {i} is {_kind(item)}; give pairs (x, y), or dictionaries with {TOKENS}"
            )
        xs.append(_array(f"{place} data: x of item {i}", item[0]))
        ys.append(_array(f"{place} data: y of item {i}", item[1], labels=True))
        batched = batched and not (i == 0 and ys[0].ndim == 0 and gives_items(items))
        _refuse_single(place, "x", xs[i], i, batched)
        if xs[i].shape[batched:] != xs[0].shape[batched:]:
            shapes = f"{list(xs[0].shape)} and {list(xs[i].shape)}"
            raise FedscopeError(f"{place} data with items of shapes {shapes}; give all one shape")
        _refuse_other_shape(place, "y", ys[0], ys[i], i, batched)
    join = np.concatenate if batched else np.stack
    if batches:
        return _of_tokens(place, {name: join([one[name] for one in batches]) for name in batches[0]})
    if not xs:
        raise FedscopeError(f"{place} data without a sample; give at least one")
    return join(xs), join(ys), {}


def _tokens_in(batch: Mapping[str, Any]) -> list[str]:
    """List what is read of a batch of tokens."""
    return [name for name in (TOKENS, MASK, *LABELS) if batch.get(name) is not None]


def _refuse_other_batch(
    place: str, i: int, first: Mapping[str, np.ndarray], this: Mapping[str, np.ndarray], batched: bool
) -> None:
    """Refuse samples of tokens that do not go together.

    Raises:
        FedscopeError: other names than the first one has; other lengths.
    """
    if this.keys() != first.keys():
        raise FedscopeError(
            f"{place} data with items of {', '.join(first)} and of {', '.join(this)}; give all the same"
        )
    shapes = [list(one[TOKENS].shape[batched:]) for one in (first, this)]
    if shapes[0] != shapes[1]:
        raise FedscopeError(
            f"{place} data with items of shapes {shapes[0]} and {shapes[1]}; fill all up to one length, with "
            f"{MASK} 0 there"
        )
    for name, array in this.items():
        _refuse_other_shape(place, name, first[name], array, i, batched)


def _refuse_other_shape(place: str, name: str, first: np.ndarray, this: np.ndarray, i: int, batched: bool) -> None:
    """Refuse targets, or other parts of items, that do not go together.

    Raises:
        FedscopeError: another shape than item 0 has.
    """
    _refuse_single(place, name, this, i, batched)
    if first.shape[batched:] != this.shape[batched:]:
        raise FedscopeError(
            f"{place} data with {name} of shapes {list(first.shape)} (item 0) and {list(this.shape)} (item {i}); give "
            "all one shape"
        )


def _refuse_single(place: str, name: str, this: np.ndarray, i: int, batched: bool) -> None:
    """Refuse a batch of one whose dimension of samples was squeezed away.

    Raises:
        FedscopeError: no dimension in a batch.
    """
    if batched and this.ndim == 0:
        raise FedscopeError(
            f"{place} data whose {name} of item {i} is one number, though items are batches; give a row a sample, as "
            f"{name}.reshape(-1) does where squeeze() takes the only one away"
        )


def _array(place: str, given: Any, *, labels: bool = False) -> np.ndarray:
    if callable(getattr(given, "detach", None)) and callable(getattr(given, "cpu", None)):  # a tensor of torch
        plain = without_sign_bit(given.detach().cpu())
        given = (plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy()
    _refuse_masked(place, given)
    if isinstance(given, np.ndarray | np.generic | int | float | list | tuple):
        try:
            array = np.asarray(given)
        except ValueError:
            lengths = "parts of several lengths; fill all up to one, or give tensors or NumPy arrays"
            raise FedscopeError(f"{place} is {_kind(given)} of {lengths}") from None
        if array.dtype.kind in "iuf":
            return array
        if array.dtype.kind == "b":  # one of two classes, or a mask
            return array.astype(np.uint8 if labels else np.float32)
        given = array if isinstance(given, np.ndarray) else given
    kind = f"an array of type {given.dtype}" if isinstance(given, np.ndarray) else _kind(given)
    if labels and are_names(given):
        remedy = "give the number of its class, from 0" if isinstance(given, str) else NUMBERED
        raise FedscopeError(f"{place} is {kind}, names of classes; {remedy}")
    raise FedscopeError(f"{place} is {kind}; give tensors or NumPy arrays of numbers")


def _refuse_masked(place: str, given: Any) -> None:
    """Refuse a masked array, or a list of such rows, that hides some of its values.

    Raises:
        FedscopeError: counts them.
    """
    rows = given if isinstance(given, list | tuple) else [given]
    masked = [one for one in rows if isinstance(one, np.ma.MaskedArray)]
    if hidden := sum(int(np.sum(one.mask)) for one in masked):
        raise FedscopeError(
            f"{place} is a masked array that hides {hidden:,} of its {len(rows) * masked[0].size:,} values, which "
            "would be taken as they are; give x.filled(VALUE) with a value of yours, or leave these samples out"
        )


def _kind(thing: object) -> str:
    return f"a {type(thing).__name__}" if thing is not None else "nothing"
