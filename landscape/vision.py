"""torchvision, imported so that its Python parts work beside any build of torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..checkpoints import FedscopeError

_SCHEMAS = (
    ("nms", "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
    ("qnms", "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
)


def torchvision_part(name: str) -> Any:
    """A module of torchvision, as ``datasets`` or ``models.resnet``.

    torchvision's compiled part does not load beside a torch of another build, and importing its Python parts then
    fails with ``operator torchvision::nms does not exist``. We use the Python parts only, so the missing operators'
    schemas are declared first.

    Raises:
        FedscopeError: torchvision cannot be imported at all.
    """
    import torch

    try:
        return import_module(f"torchvision.{name}")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise FedscopeError(f"torchvision could not be imported: {error}") from error
    except ImportError as error:
        raise FedscopeError(
            f"torchvision could not be imported ({error}); install it: pip install torchvision"
        ) from error
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator, schema in _SCHEMAS:
        if not hasattr(torch.ops.torchvision, operator):
            library.define(schema)  # type: ignore[no-untyped-call]
    # A half-imported torchvision stays in sys.modules and would be taken for a whole one.
    import sys

    for half in [half for half in sys.modules if half == "torchvision" or half.startswith("torchvision.")]:
        del sys.modules[half]
    try:
        return import_module(f"torchvision.{name}")
    except (ImportError, RuntimeError) as error:
        raise FedscopeError(
            f"torchvision could not be imported with torch {torch.__version__}: {error}; "
            "install the torchvision that belongs to it"
        ) from error
