"""Import of torchvision such that its Python parts work with any build of torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from ..checkpoints import FedscopeError

Made = TypeVar("Made")

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def torchvision_part(name: str) -> Any:
    """Import a module of torchvision, as ``datasets`` or ``models.resnet``.

    Raises:
        FedscopeError: torchvision cannot be imported at all.
    """
    try:
        return beside_torchvision(lambda: import_module(f"torchvision.{name}"))
    except RuntimeError as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise FedscopeError(f"torchvision could not be imported: {first}{remedy()}") from error
    except ImportError as error:
        raise FedscopeError(
            f"torchvision could not be imported ({error}); install it: pip install torchvision"
        ) from error


def beside_torchvision(make: Callable[[], Made]) -> Made:
    """Call a function that may import torchvision, itself or by what it imports.

    torchvision's compiled part does not load with a torch of another build, and importing its Python parts then fails
    with ``operator torchvision::nms does not exist``. Networks, data and transforms need these parts only, so the
    missing operators' schemas are declared, and the function is called again. An operator that is called all the same
    says that it has no implementation.

    Raises:
        Whatever the function raises; the second time, where torchvision is the reason.
    """
    try:
        return make()
    except RuntimeError as error:
        if not is_torchvisions(error):
            raise
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, operator):
            library.define(schema)  # type: ignore[no-untyped-call]
    _KEPT.append(library)
    # A half-imported torchvision stays in sys.modules and would be taken for a whole one.
    for half in [half for half in sys.modules if half == "torchvision" or half.startswith("torchvision.")]:
        del sys.modules[half]
    return make()


# a library's schemas go with it
_KEPT: list[Any] = []


def is_torchvisions(error: BaseException) -> bool:
    """Check whether an exception says that an operator of torchvision is missing."""
    return isinstance(error, RuntimeError) and re.search(r"torchvision::\w+", str(error)) is not None


def remedy() -> str:
    """Say in a clause what to install."""
    import torch

    return f"; install the torchvision that belongs to torch {torch.__version__}"
