"""The base of adapters: given once, held fixed beside them, and no part of any model."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError, Run, nearest
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.shell_words import quoted
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapters import factors_in, split_factor
from ...checkpoints.models.expected import tied_names
from ...checkpoints.models.match_names import left_beside
from ...checkpoints.models.peft_names import base_name, is_rank
from ...checkpoints.models.quantised import refuse_quantised
from ...checkpoints.models.wrappers import plain_name, plain_names

if TYPE_CHECKING:
    from torch import Tensor, nn


def with_base(
    module: nn.Module, names: Collection[str], base: Path | str | None, whose: str, *, implied: bool = False
) -> nn.Module:
    """Hold fixed what a module has beside the tensors of adapters: with the values of their base, which then are no
    weights. The module itself where the models are no adapters, or hold all of it.

    Args:
        module: the architecture, adapters and base.
        names: of the models' tensors.
        base: a file or folder of the base, whose names may lack what adapters put into them: a prefix
            (``base_model.model.``) or a level (``base_layer``); None where it was not given.
        whose: what the models are called, for sentences.
        implied: whether nobody gave the base, see :func:`is_implied`, so that it may go unused.

    Raises:
        FedscopeError: a base that was not given, or for models that are no adapters; a tensor that it lacks, or has in
            another shape.
    """
    own = module.state_dict()
    held = _untrained(own, names)
    are_adapters = bool(factors_in(names))
    if base is None:
        holds_adapters = any(split_factor(name) for name in own.keys() - set(held))
        if not are_adapters or not held or not holds_adapters:
            return module  # what does not fit is said where models are read
        raise FedscopeError(
            f"{whose} holds adapters alone, and the architecture has {list_few(held, 2)} besides; give the weights "
            "that they adapt (--base FILE)"
        )
    if implied and not (are_adapters and held):
        return module
    if not are_adapters:
        raise FedscopeError(f"--base {base} is for adapters, and {whose} holds none; leave it out")
    if not held:
        raise FedscopeError(
            f"--base {base} has no place: {whose} holds all tensors of the architecture; leave it out, or give an "
            "architecture that has the base, too (--model)"
        )
    return _fixed(module, dict(_matched(base, held, own)))


def _untrained(own: Mapping[str, Tensor], names: Collection[str]) -> list[str]:
    """Return which of an architecture's tensors the models do not hold, by this name or another that is tied to it: a
    file may hold one name of a tie, and with it the tensor is trained under all of them."""
    left = left_beside(own, names)
    beside, tied = set(left), tied_names(own)
    return [name for name in left if beside.issuperset(tied.get(name, ()))]


def base_named(model: Any, base: Path | str | None, runs: Sequence[Run] = ()) -> Path | str | None:
    """Return the base that was given; else the one that the first run remembers; else the one that the folder of an
    adapter names, where that is the architecture (``hf:FOLDER``); None where there is none of these.

    Raises:
        FedscopeError: the base that the run remembers is gone, or has changed; the folder names one that is not here.
    """
    from ..models.pretrained import ADAPTER, PretrainedFolder, base_of, is_pretrained

    if base is not None:
        return base
    if (said := runs[0].info.get("base") if runs else None) is not None:
        return _remembered(runs[0], said)
    if not is_pretrained(model):
        return None
    folder = PretrainedFolder(path=model).folder
    return base_of(folder) if (folder / ADAPTER).is_file() else None


def is_implied(base: Path | str | None, runs: Sequence[Run] = ()) -> bool:
    """Tell whether the base of :func:`base_named` is the one of an architecture's folder: neither given nor recorded.

    Args:
        base: as it was given.
    """
    return base is None and not (runs and runs[0].info.get("base") is not None)


def _remembered(run: Run, said: Mapping[str, str]) -> Path:
    """Return a run's base, which is still the one that was there."""
    from ...checkpoints.recorder.inputs import named_base

    found = named_base(said["path"])["sha256"]
    if found != said["sha256"]:
        raise FedscopeError(
            f"{run.path}: the base {said['path']} has changed since the run was recorded (sha256 {found[:12]}..., "
            f"the run saw {said['sha256'][:12]}...); restore it, or give --base {quoted(said['path'])} to take it as "
            "it is"
        )
    return Path(said["path"])


def base_digest(module: nn.Module, names: Collection[str]) -> str:
    """Return the sha256 of what :func:`with_base` holds fixed in a module: names, types, shapes and values.

    Args:
        names: of the models' tensors.
    """
    said = hashlib.sha256()
    for name, value in module.named_buffers():
        if name not in names:
            said.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            said.update(value.detach().cpu().contiguous().reshape(-1).view(_bytes()).numpy().tobytes())
    return said.hexdigest()


def _bytes() -> Any:
    import torch

    return torch.uint8


def _matched(base: Path | str, held: Collection[str], own: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Find each fixed tensor in the base."""
    import torch

    from ...checkpoints.models.files import read_tensors
    from ..models.pretrained import converted_tensors

    _, tensors, _ = read_tensors(Path(base), None)
    refuse_quantised(base, {name: value for name, value in tensors.items() if split_factor(name) is None})
    tied = tied_names(own)
    found = _found(held, tensors, tied)
    if any(name not in found and not _is_given(name, own) for name in held) and Path(base).is_dir():
        converted: Mapping[str, Any] = {}
        with suppress(FedscopeError):  # then it is said what the base lacks
            converted = converted_tensors(Path(base)) or {}
        if len(others := _found(held, converted, tied)) > len(found):
            warn_user(
                f"the base {base} is read as transformers reads it, which calls its tensors otherwise than the file"
            )
            tensors, found = converted, others
    taken: dict[str, str] = {}
    for name in held:
        spelt = found.get(name)
        if spelt is None and _is_given(name, own):
            yield name, own[name]
            continue
        if spelt is None:
            hint = nearest(name, list(tensors)) or f"; it has {list_few(list(tensors))}"
            raise FedscopeError(
                f"the base {base} has no {name}, which the architecture has beside the adapters{hint}; give the base "
                "that they adapt"
            )
        other = taken.setdefault(spelt, name)
        if other != name and own[other].data_ptr() != own[name].data_ptr():
            raise FedscopeError(
                f"the base {base} has one tensor {spelt} for two of the architecture, {other} and {name}; give the "
                "base that was adapted, with its names"
            )
        value = torch.as_tensor(tensors[spelt])
        if tuple(value.shape) != tuple(own[name].shape):
            raise FedscopeError(
                f"the base {base} has {spelt} of shape {list(value.shape)}, and the architecture {name} of "
                f"{list(own[name].shape)}; give the base that was adapted"
            )
        yield name, value.to(own[name].dtype)


def _found(held: Collection[str], tensors: Mapping[str, Any], tied: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return what the base calls each fixed tensor: under wrappers' parts of names or one prefix, if not without."""
    plain = {other: name for name, other in plain_names(tuple(tensors)).items()}
    there = plain if len(plain) == len(tensors) else {name: name for name in tensors}
    best: dict[str, str] = {}
    for prefix in _prefixes(held, there):
        found = {}
        for name in held:
            # of tied tensors a file may hold one
            spelt = (f"{prefix}{one}" for same in (name, *tied.get(name, ())) for one in _spellings(plain_name(same)))
            if (one := next((one for one in spelt if one in there), None)) is not None:
                found[name] = there[one]
        if len(found) > len(best):
            best = found
        if len(best) == len(held):
            break
    return best


def _prefixes(held: Collection[str], there: Collection[str]) -> list[str]:
    """Return what may stand before all names of a base: nothing, and else what stands before most of some of them."""
    count = Counter[str]()
    for name in list(held)[:8]:
        for inner in (".".join(levels) for levels in _inner(plain_name(name)) if len(levels) > 1):
            count.update({other.removesuffix(inner) for other in there if other.endswith(f".{inner}")})
    return ["", *(prefix for prefix, _ in count.most_common(8))]


def _is_given(name: str, own: Collection[str]) -> bool:
    """Check whether the architecture has a tensor's value itself, or needs none."""
    return _is_replaced(name, own) or is_rank(name)


def _is_replaced(name: str, own: Collection[str]) -> bool:
    """Check whether nothing computes with a tensor: that of a layer which PEFT has a trained copy of."""
    before, inside, behind = name.rpartition(".original_module.")
    return bool(inside) and any(one.startswith(f"{before}.modules_to_save.") and one.endswith(behind) for one in own)


def _spellings(name: str) -> Iterator[str]:
    """A tensor's name as a base may have it: as it is, without the levels that PEFT puts in, and without any one level
    that the adapter's wrapper has put in, all also without their first levels.

    >>> list(_spellings("a.base_layer.weight"))[:4]
    ['a.base_layer.weight', 'base_layer.weight', 'a.weight', 'weight']
    >>> list(_spellings("embed.token_adapter.base_layer.weight"))[3]
    'embed.weight'
    """
    inner = _inner(name)
    for one in inner[:1]:
        for start in range(len(one) - 1):
            yield ".".join(one[start:])
    for one in inner[1:]:
        for start in range(len(one)):
            yield ".".join(one[start:])


def _inner(name: str) -> list[list[str]]:
    """Return the levels of a tensor's name: all, those without PEFT's, and those without any one."""
    levels = name.split(".")
    bare = base_name(name).split(".")
    without_one = (levels[:i] + levels[i + 1 :] for i in range(len(levels) - 2, -1, -1))
    return [levels, *([bare] if bare != levels else []), *without_one]


def _fixed(module: nn.Module, values: Mapping[str, Tensor]) -> nn.Module:
    """Copy a module with some of its tensors as buffers that are no part of its ``state_dict``.

    Weights among them are shared by all further copies, one for each worker, so that there is one base in memory.
    """
    from ...evaluation.module_copy import copy_module, share

    weights = dict(module.named_parameters(remove_duplicate=False))
    copy = copy_module(module, without=values)
    for name, value in values.items():
        path, _, leaf = name.rpartition(".")
        place = copy.get_submodule(path)
        place._parameters.pop(leaf, None)
        place._buffers.pop(leaf, None)
        place.register_buffer(leaf, share(value) if name in weights else value.clone(), persistent=False)
    return copy
