"""Models whose weights are quantised: their tensors hold codes, which mean something with their scales alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from ..io.errors import FedscopeError
from .factor_names import factors_in

#: the last part of the name of a weight, whose whole numbers are codes: of bitsandbytes, GPTQ, AWQ, HQQ, compressed
#: tensors
_CODES = re.compile(r"qweight|W_q|weight_packed|packed_weight|weight_(int[248]|q|codes)")
#: of these it is so where they are tables: one row may be weights of classes
_CODES_IN_TABLES = re.compile(r"(q_)?weight")
#: what stands beside the weights of a layer, by the end of its name, and scales those of eight bits or fewer
_SCALES = (
    "SCB", "weight_scale_inv", "weight_scale", "weight_scales", "scale_weight", "input_scale", "absmax", "scales",
    "scale",
)  # fmt: skip
_NARROW = ("int8", "uint8", "int4", "uint4", "float8", "float4")


def refuse_quantised(place: object, tensors: Mapping[str, Any]) -> None:
    """Refuse a model that holds codes in place of weights: the mean of codes, or of numbers that others scale, is not
    the mean of what they stand for.

    Args:
        place: for sentences: the file; "" where somebody else says it.
        tensors: arrays, or torch's tensors, by name; others are not looked at.

    Raises:
        FedscopeError: names the tensor.

    >>> import numpy as np
    >>> refuse_quantised("a.pt", {"q.weight": np.ones((2, 2)), "position_ids": np.ones((1, 5), np.int64)})
    """
    dtypes = {
        name: str(value.dtype).removeprefix("torch.")
        for name, value in tensors.items()
        # a tensor without a shape yet is refused by who reads it
        if isinstance(name, str) and hasattr(value, "dtype") and not type(value).__name__.startswith("Uninitialized")
    }
    for name, dtype in dtypes.items():
        # no code takes 64 bits
        if "int" not in dtype or dtype.endswith("int64") or prod(tensors[name].shape) < 2:
            continue
        levels = name.removesuffix("._data").split(".")  # of quanto
        blocks = f"{name.removesuffix('_blocks')}_scales" in dtypes and name.endswith("_blocks")  # MXFP4
        table = len(tensors[name].shape) > 1 and _CODES_IN_TABLES.fullmatch(levels[-1])
        if blocks or table or _CODES.fullmatch(levels[-1]):
            _refuse(place, f"{name} is {dtype}", dtypes)
    for name in dtypes:
        layer, _, last = name.rpartition(".")
        for other in _beside(layer) if last in _SCALES else ():
            if other != name and dtypes.get(other, "").startswith(_NARROW) and len(tensors[other].shape) > 1:
                _refuse(place, f"{other} is {dtypes[other]} and scaled by {name}", dtypes)


def _beside(layer: str) -> list[str]:
    """Return what the weight that a scale belongs to may be called, by the levels before the scale's own.

    >>> _beside("l"), _beside("l.weight"), _beside("")
    (['l.weight'], ['l.weight.weight', 'l.weight'], ['weight'])
    """
    return [f"{layer}.weight".removeprefix("."), *([layer] if layer.endswith("weight") else [])]


def _refuse(place: object, why: str, names: Iterable[str]) -> None:
    where = f"{place}: " if place else ""
    remedy = (
        "give the adapters alone, as peft.get_peft_model_state_dict(model) has them"
        if factors_in(names)
        else "save them as float32, as model.dequantize() of transformers makes them"
    )
    raise FedscopeError(
        f"{where}{why}, so the weights are quantised, and the mean of their numbers is not that of what they stand "
        f"for; {remedy}"
    )
