"""The expected model: its tensors, which of their names are one tensor, and the values of its constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .weights import Layout, tensors_of

#: the last part of the names under which torch's normalization layers keep what is not trained
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
#: the same of Keras, and the collection in which flax has its own
_OF_KERAS, _OF_FLAX = ("moving_mean", "moving_variance"), "batch_stats"


@dataclass(frozen=True, eq=False)
class ExpectedModel:
    """The model that an architecture has, to which files are compared.

    Attributes:
        layout: the names, shapes and dtypes of its tensors.
        tied: of each name whose tensor has other names too, these others.
        own: the values of the architecture's own buffers, by name; what a file lacks of the constant ones is taken
            from there.
        converted: reads the tensors of a folder as the library does that wrote it, or None; for a folder whose names
            are others than the module's.
    """

    layout: Layout
    tied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own: Mapping[str, np.ndarray] = field(default_factory=dict)
    converted: Callable[[Path], Mapping[str, Any] | None] | None = None

    @classmethod
    def of(cls, module: Any) -> ExpectedModel:
        """Return the expected model of a torch module.

        Raises:
            FedscopeError: as :meth:`~fedscope.checkpoints.Layout.of`.
        """
        layout, state = Layout.of(module), tensors_of(module)
        own = {entry.name: state[entry.name].detach().cpu().numpy() for entry in layout.buffers}
        return cls(layout, tied_names(state), own)

    @classmethod
    def as_given(cls, expected: ExpectedModel | Layout | None) -> ExpectedModel | None:
        """Make a layout alone the expected model, of which no more is known."""
        return cls(expected) if isinstance(expected, Layout) else expected


def is_statistic(name: str) -> bool:
    """Check whether a tensor's name is that of a BatchNorm's statistics, which are not trained: torch's, Keras's and
    flax's.

    >>> is_statistic("1.running_var"), is_statistic("batch_normalization/moving_mean:0"), is_statistic("fc.mean")
    (True, True, False)
    >>> is_statistic("site:0.running_mean")
    True
    >>> is_statistic("batch_stats.BatchNorm_0.mean"), is_statistic("params.BatchNorm_0.bias")
    (True, False)
    """
    *places, last = re.split(r"[./]", re.sub(r":\d+$", "", name))
    return last in (*STATISTICS, *_OF_KERAS) or _OF_FLAX in places


def tied_names(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """List, for each name whose numbers lie where another's do, the others.

    Args:
        values: arrays, or torch's tensors, by name.

    >>> w = np.ones((3, 2))
    >>> tied_names({"embed": w, "head": w, "other": w.copy()})
    {'embed': ('head',), 'head': ('embed',)}
    """
    places: dict[tuple[Any, ...], list[str]] = {}
    for name, value in values.items():
        place = place_of(value)
        if place is not None:
            places.setdefault(place, []).append(name)
    return {
        name: tuple(other for other in names if other != name)
        for names in places.values()
        if len(names) > 1
        for name in names
    }


def place_of(value: Any) -> tuple[Any, ...] | None:
    """Return the place of a tensor's numbers in memory, with all that says how they lie there; None where it has none.

    Of torch's tensors the device and the address come first.
    """
    if isinstance(value, np.ndarray):
        if not value.size:
            return None
        return value.__array_interface__["data"][0], value.shape, value.strides, value.dtype.str
    if not hasattr(value, "numel"):  # what a module keeps besides tensors, in its get_extra_state
        return None
    try:
        if not value.numel() or value.is_meta or not hasattr(value, "data_ptr"):
            return None
        if not value.data_ptr():  # of a tensor that does not say where it lies
            return None
        about = str(value.device), value.data_ptr(), tuple(value.shape), value.stride(), str(value.dtype)
        return (*about, callable(getattr(value, "is_neg", None)) and value.is_neg())
    except (RuntimeError, ValueError, NotImplementedError):  # without a place (sparse), or without a shape yet
        return None
