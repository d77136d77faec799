"""Wrappers that training puts around a network and before the names of its tensors: ``DataParallel``,
``torch.compile``, the averages of ``AveragedModel``, Opacus, FSDP."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from .peft_names import file_names

#: classes that only hand on to one module inside, and under which name that lies
_INSIDE = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "module",
    "AveragedModel": "module",
    "DeepSpeedEngine": "module",
    "_FabricModule": "module",
    "OptimizedModule": "_orig_mod",
    "GradSampleModule": "_module",
}
#: parts of names that only wrappers make, wherever they stand in a name
_PRIVATE = frozenset(
    {"_orig_mod", "_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module", "_dp_module"}
)
#: the same, with what a network's own module may be called too
PARTS = _PRIVATE | {"module"}
#: what stands before every name where a whole network was wrapped
BEFORE = re.compile(rf"((?:{'|'.join(sorted(PARTS))})\.)+")


def unwrap(module: Any) -> Any:
    """Take the wrappers off a network; a network without any is returned as it is.

    Only wrappers that are known to change nothing are taken off. A class of one's own around a network, with a network
    under ``module`` or ``model``, may do more than to hand on its inputs (as ``LightningModule`` s do), and is kept.
    """
    for _ in range(16):  # one around another
        names = {kind.__name__ for kind in type(module).__mro__}
        inside = next((getattr(module, place, None) for name, place in _INSIDE.items() if name in names), None)
        if inside is None or inside is module or not callable(getattr(inside, "state_dict", None)):
            return module
        module = inside
    return module


def plain_name(name: str) -> str:
    """Return a tensor's name without the parts that wrappers put into it, ``module.`` among them.

    >>> plain_name("module.features._orig_mod.0.weight"), plain_name("model.fc.weight")
    ('features.0.weight', 'model.fc.weight')
    """
    return _drop_parts(name, PARTS)


def plain_names(names: Collection[str]) -> dict[str, str]:
    """Return the names of a model's tensors without the parts that wrappers put into them, by what they are given as;
    those of adapters as PEFT's files have them, see :func:`~.peft_names.file_names`.

    >>> plain_names(["module.base_model.model.q.lora_A.default.weight"])
    {'module.base_model.model.q.lora_A.default.weight': 'base_model.model.q.lora_A.weight'}
    """
    return {name: plain_name(other) for name, other in file_names(names).items()}


def cleared_name(name: str) -> str:
    """Return a tensor's name without the parts that no network of anybody's own has; ``module.`` stays.

    >>> cleared_name("module.features._orig_mod.0.weight")
    'module.features.0.weight'
    """
    return _drop_parts(name, _PRIVATE)


def _drop_parts(name: str, parts: frozenset[str]) -> str:
    *modules, last = name.split(".")
    return ".".join([*(part for part in modules if part not in parts), last])
