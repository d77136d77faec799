"""Finished parts of an analysis as JSON, for the store from which an interrupted one goes on."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Self, get_args, get_origin

if TYPE_CHECKING:
    from cattrs import Converter


class Kept:
    """A dataclass of plain values, arrays and such dataclasses, as what JSON holds; floats survive exactly.

    What a result from before a field existed does not say has that field's default.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point(Kept):
    ...     run: str
    ...     places: tuple[float, ...] = ()
    >>> Point("ima", (0.1, float("nan"))).to_json()
    {'run': 'ima', 'places': [0.1, nan]}
    >>> Point.from_json({"run": "ima", "places": [0.1]})
    Point(run='ima', places=(0.1,))
    """

    def to_json(self) -> Any:
        """Plain lists, mappings and numbers."""
        return _converter().unstructure(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The inverse of :meth:`to_json`.

        Raises:
            KeyError, TypeError, ValueError: what it holds is not such a value.
        """
        return _converter().structure(value, cls)


@cache
def _converter() -> Converter:
    import numpy as np
    from cattrs import Converter

    def is_array(kind: Any) -> bool:
        return (get_origin(kind) or kind) is np.ndarray

    def array(value: Any, kind: Any) -> Any:
        about = get_args(kind)  # of NDArray[np.int64]
        return np.array(value, get_args(about[1])[0] if about else np.float64)

    converter = Converter(detailed_validation=False)  # which raises groups of errors instead of KeyError and others
    converter.register_unstructure_hook_func(is_array, lambda values: values.tolist())
    converter.register_structure_hook_func(is_array, array)
    return converter
