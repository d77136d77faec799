"""What waits for the device, and what is copied to and from it: how often, where in a package, and how many bytes."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from . import native

#: operators for which ``torch.use_deterministic_algorithms`` raises on CUDA, or takes another way
#: (https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html)
NOT_DETERMINISTIC = (
    "aten::index_add", "aten::scatter_add", "aten::scatter_reduce", "aten::put_", "aten::histc", "aten::bincount",
    "aten::median", "aten::cumsum", "aten::index_copy", "aten::_adaptive_avg_pool2d_backward",
    "aten::_adaptive_avg_pool3d_backward", "aten::adaptive_max_pool2d_backward", "aten::avg_pool3d_backward",
    "aten::fractional_max_pool", "aten::max_pool3d_with_indices_backward",
    "aten::max_unpool", "aten::nll_loss2d", "aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward",
    "aten::reflection_pad3d_backward", "aten::replication_pad1d_backward", "aten::replication_pad2d_backward",
    "aten::replication_pad3d_backward", "aten::upsample_linear1d_backward", "aten::upsample_bilinear2d_backward",
    "aten::upsample_bicubic2d_backward", "aten::upsample_trilinear3d_backward", "aten::grid_sampler_2d_backward",
    "aten::grid_sampler_3d_backward", "aten::_ctc_loss_backward", "aten::_embedding_bag", "aten::segment_reduce",
)  # fmt: skip


@dataclass
class Seen:
    """What :func:`watch` has seen.

    Attributes:
        places: (what, operator, place in the package) and how often; what is ``wait``, ``to device``, ``from device``.
        size: bytes that were copied, by the same.
        operators: by name, how often.
    """

    places: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    size: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)

    @property
    def unordered(self) -> dict[str, int]:
        """Operators that CUDA computes in no fixed order."""
        return {name: n for name, n in self.operators.items() if name.startswith(NOT_DETERMINISTIC)}

    def text(self, most: int = 25) -> str:
        """All of it, a line each."""
        lines = [f"{sum(self.operators.values()):,} operators; waits and copies by place:"]
        for (kind, op, place), n in self.places.most_common(most):
            lines.append(f"{n:>9,}  {self.size[kind, op, place]:>13,} B  {kind:<12} {op:<22} {place}")
        lines += [f"no fixed order on CUDA: {name} x {n:,}" for name, n in sorted(self.unordered.items())]
        return "\n".join(lines)


_seen: Seen | None = None
_package = ""
_lock = threading.Lock()


def _heard(kind: str, op: str, size: int) -> None:
    if _seen is None:
        return
    frame: Any = sys._getframe(1)
    while frame is not None and f"{os.sep}{_package}{os.sep}" not in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is None:
        place = "(elsewhere, or in autograd's thread)"
    else:
        name = frame.f_code.co_filename.rpartition(f"{os.sep}{_package}{os.sep}")[2]
        place = f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
    with _lock:
        _seen.places[kind, op, place] += 1
        _seen.size[kind, op, place] += size


@contextmanager
def watch(package: str) -> Iterator[Seen]:
    """See what waits for the device meanwhile.

    Args:
        package: the folder of the code whose lines are named, as in ``site-packages/PACKAGE/``.
    """
    global _seen, _package
    _seen, _package = Seen(), package
    own = _seen
    native.loaded().reset_counts()
    native.loaded().watch(_heard)
    try:
        yield own
    finally:
        native.loaded().watch(None)
        own.operators.update(native.loaded().counts())
        _seen = None
