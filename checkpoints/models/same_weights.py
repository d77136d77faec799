"""Whether two models in files are the same weights, however they were saved."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..io.errors import FedscopeError
from ..io.untrusted import explain_read_errors, regular
from .safetensors_files import OpenedTensors, open_safetensors

if TYPE_CHECKING:
    from torch import Tensor

Answer = Literal["same", "unsure", "other"]


def compare_files(files: Sequence[Path], others: Sequence[Path]) -> Answer:
    """Compare two models: the bytes of their files, and where these differ the tensors of ``.safetensors`` one by one.

    Files of the same weights may differ in what else they say, in the order of tensors and in their precision. The
    answer is ``other`` where a tensor of one name has another shape or other values. It is ``unsure`` where values
    differ by no more than rounding to another precision does, where names differ, and of other kinds of files.
    """
    states = [tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in some) for some in (files, others)]
    return _compare(*states)


def sum_of_file(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# once for many adapters that are compared: each client's may name the same large base
_State = tuple[Path, int, int]


@lru_cache(maxsize=1024)
def _known_sum(state: _State) -> str:
    return sum_of_file(state[0])


@lru_cache(maxsize=1024)
def _compare(files: tuple[_State, ...], others: tuple[_State, ...]) -> Answer:
    same = len(files) == len(others) and all(
        one[0].samefile(other[0]) or (one[1] == other[1] and _known_sum(one) == _known_sum(other))
        for one, other in zip(files, others, strict=True)
    )
    if same:
        return "same"
    paths = [[path for path, *_ in some] for some in (files, others)]
    if any(path.suffix != ".safetensors" for some in paths for path in some):
        return "unsure"
    try:
        return _compare_tensors(*paths)
    except (FedscopeError, OSError):  # said where they are read
        return "unsure"


def _compare_tensors(files: list[Path], others: list[Path]) -> Answer:
    with ExitStack() as stack, explain_read_errors(files[0], "a safetensors file"):
        held: list[dict[str, OpenedTensors]] = [{}, {}]
        for found, paths in zip(held, (files, others), strict=True):
            for path in paths:
                opened = stack.enter_context(open_safetensors(path))
                found |= dict.fromkeys(opened.names(), opened)
        one, other = held
        shared = [name for name in one if name in other]
        if any(one[name].shape(name) != other[name].shape(name) for name in shared):
            return "other"
        is_sure = len(shared) == len(one) == len(other)
        for name in shared:
            match compare_values(one[name].tensor(name), other[name].tensor(name)):
                case "other":
                    return "other"
                case "unsure":
                    is_sure = False
    return "same" if is_sure else "unsure"


def compare_values(one: Tensor, other: Tensor) -> Answer:
    """Compare the values of two tensors of one shape.

    Those of two floating types may be one another's rounding: |a - b| ≤ ε |a| + δ, with ε and the least number δ of the
    coarser type. Of eight bits nothing is sure, as something may scale them.

    >>> import torch
    >>> x = torch.tensor([0.1, 1.0])
    >>> compare_values(x, x.bfloat16()), compare_values(x, x + 1), compare_values(x[1:], x[1:].half())
    ('unsure', 'other', 'same')
    """
    import torch

    if one.dtype == other.dtype:
        bits = one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8)
        # -0 is 0; types of eight bits have no comparison
        is_equal = torch.equal(*bits) or (one.element_size() > 1 and torch.equal(one, other))
        return "same" if is_equal else "other"
    kinds = one.dtype, other.dtype
    if any(not kind.is_floating_point or kind.itemsize < 2 for kind in kinds):
        return "unsure"
    a, b = one.float(), other.float()
    if torch.equal(a, b):
        return "same"
    coarse = max((torch.finfo(kind) for kind in kinds), key=lambda kind: kind.eps)
    least = max(torch.finfo(kind).tiny * torch.finfo(kind).eps for kind in kinds)
    return "unsure" if bool(((a - b).abs() <= coarse.eps * a.abs() + least).all()) else "other"
