"""A ``Dataset`` or ``DataLoader`` of torch: the order of its samples, those that it leaves out, and chance in them.
Nothing of torch is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..io.warn_user import warn_user

#: items that are read a second and a third time, to see whether they stay the same
AGAIN = 16
#: what samples are drawn through: parts of a loader and of its data set, which may hold generators
_THROUGH = (
    *("sampler", "batch_sampler", "collate_fn", "dataset", "datasets"),
    *("transform", "target_transform", "transforms"),
)


def is_loader(items: Any) -> bool:
    """Check whether these give batches, and are no data set themselves."""
    return hasattr(items, "dataset") and not hasattr(items, "__getitem__")


def gives_items(loader: Any) -> bool:
    """Check whether a loader may give single samples: it puts none together, as with ``batch_size=None``. What it gives
    then may be batches, too, which its data set or its sampler makes."""
    return hasattr(loader, "batch_sampler") and loader.batch_sampler is None


def is_out_of_order(part: Any) -> bool:
    """Check whether a part of data is a loader of torch that does not take samples one after the other: a sampler of
    the user's own, of samples or of batches, is not known to."""
    sampler: Any = _drawing(part) if hasattr(part, "dataset") else None
    if type(sampler).__name__ == "BatchSampler":
        sampler = getattr(sampler, "sampler", None)
    return sampler is not None and type(sampler).__name__ != "SequentialSampler"


def _drawing(loader: Any) -> Any:
    """Return what a loader takes its samples from: its sampler of batches, beside which the other one does not count,
    or that of samples; None of what has neither."""
    batches = getattr(loader, "batch_sampler", None)
    return getattr(loader, "sampler", None) if batches is None else batches


def has_places(loader: Any) -> bool:
    """Check whether the samples behind a loader have places, as those of an ``IterableDataset`` have none."""
    kinds = type(loader.dataset).__mro__
    return hasattr(loader.dataset, "__getitem__") and all(kind.__name__ != "IterableDataset" for kind in kinds)


def drawn_through(items: Any) -> Iterator[Any]:
    """Yield what a program's own code in it may be a part of: a loader, its samplers, its data set, transforms."""
    found: dict[int, Any] = {}
    left = [items]
    while left:
        one = left.pop()
        if one is None or id(one) in found:
            continue
        found[id(one)] = one
        named = getattr(one, "__dict__", {})
        for part in (named.get(name) for name in _THROUGH):
            left += part if isinstance(part, list | tuple) else [part]
    return iter(found.values())


def say_left_out(place: str, items: Any, read: int) -> None:
    """Warn of a loader that leaves the last samples out.

    Args:
        read: how many it gave.
    """
    batches = _drawing(items)
    size = getattr(batches, "batch_size", None)
    if getattr(batches, "drop_last", False) is not True or not isinstance(size, int):
        return
    lengths = (_length(one) for one in (getattr(batches, "sampler", None), getattr(items, "dataset", None)))
    lost = next((length for length in lengths if length is not None), 0) - read
    if 0 < lost < size:
        warn_user(f"{place} of {read} samples, as drop_last leaves out the last {lost}; give a DataLoader without it")


def say_chance(place: str, items: Any, arrays_of: Callable[[Any], Sequence[np.ndarray]]) -> None:
    """Warn of samples that are others when they are read again: what is measured is one reading.

    Args:
        arrays_of: turns an item, or a batch, into arrays.
    """
    try:
        first, again = ([[*map(np.array, arrays_of(one))] for one in _some(items)] for _ in range(2))
    except Exception:  # those that are read in another way, or once
        return
    if not all(map(_are_same, first, again)):
        warn_user(
            f"{place} that are others whenever they are read (some were read twice), as augmented ones are: numbers "
            "are those of one reading; give them without chance"
        )


def _some(items: Any) -> Iterator[Any]:
    """Read items from the whole of a data set; of a loader in a batch, as it makes them."""
    dataset = items.dataset if is_loader(items) else items
    places = np.unique(np.linspace(0, len(dataset) - 1, AGAIN).astype(np.int64)).tolist()
    own = (dataset[place] for place in places)
    collate = getattr(items, "collate_fn", None) if is_loader(items) else None
    if collate is None:
        yield from own
    elif getattr(items, "batch_sampler", None) is not None:
        yield collate([*own])
    else:
        yield from map(collate, own)


def _are_same(first: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(one, other, equal_nan=True) for one, other in zip(first, again, strict=True))


def _length(thing: Any) -> int | None:
    """Count the samples of a sampler or a data set; None where it does not say."""
    try:
        return len(thing)
    except (TypeError, NotImplementedError):
        return None
