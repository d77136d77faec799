"""Packages of BlazeFL, read by their parts and without importing it.

A package is a class of the user's own, mostly a dataclass. In those of ``blazefl.contrib`` a model is one flat tensor:
all tensors of the ``state_dict``, whole numbers among them, one behind the other.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

from ...io.errors import FedscopeError, list_few
from ..framework_rounds import Contribution, Tensors, copied

#: what the parts of a package are called in ``blazefl.contrib``
MODEL, CLIENT, SAMPLES = "model_parameters", "cid", "data_size"


def parts_of(package: Any) -> dict[str, Any]:
    """Return what a package holds, by name."""
    if isinstance(package, Mapping):
        return dict(package)
    if dataclasses.is_dataclass(package):  # these may have slots, and no dictionary
        return {field.name: getattr(package, field.name, None) for field in dataclasses.fields(package)}
    return dict(getattr(package, "__dict__", {}))


def model_in(package: Any, state: Tensors) -> dict[str, Any]:
    """Copy the model in a package: its tensors by the names, and in the shapes and types, that the handler's have.

    It is the part that is called ``model_parameters``, else the only one of the model's size.

    Args:
        state: the ``state_dict`` of the handler's model.

    Raises:
        FedscopeError: no such part, or several.
    """
    found = _part_with_model(package, state)
    if isinstance(found, Mapping):
        return copied({key: found[key] for key in state})
    return copied(_split(found, state))


def state_as_in(package: Any, state: Tensors) -> dict[str, Any]:
    """Copy the handler's model in the precision in which a package has models, to compare it with that in there.

    Raises:
        FedscopeError: as :func:`model_in`.
    """
    found = _part_with_model(package, state)
    sent = found if isinstance(found, Mapping) else dict.fromkeys(state, found)
    tensors = {key: tensor for key, tensor in sent.items() if callable(getattr(tensor, "detach", None))}
    return copied({key: t.to(tensors[key].dtype).to(t.dtype) if key in tensors else t for key, t in state.items()})


def contribution_in(package: Any, state: Tensors) -> Contribution:
    """Copy what a client sent.

    Raises:
        FedscopeError: no number of the client; no model.
    """
    parts, kind = parts_of(package), type(package).__name__
    if CLIENT not in parts:
        raise FedscopeError(
            f"{kind} has no {CLIENT}, so it is not known whose model it is; give its clients' numbers as {CLIENT}"
        )
    client, samples = number_of_client(parts[CLIENT]), parts.get(SAMPLES)
    model = model_in(package, state)
    if samples is None:
        return Contribution(client, model, 1.0)
    try:
        return Contribution(client, model, float(samples), operator.index(samples))
    except TypeError:  # what clients weigh need not be a number of samples
        return Contribution(client, model, float(samples))


def number_of_client(given: Any) -> str:
    """Return a client's number, as a name.

    Raises:
        FedscopeError: no whole number from 0.

    >>> number_of_client(3)
    '3'
    """
    try:
        number = operator.index(given)
    except TypeError:
        number = -1
    if number < 0:
        raise FedscopeError(f"{CLIENT} is {given!r}; give whole numbers from 0 on, as sample_clients does")
    return str(number)


def _part_with_model(package: Any, state: Tensors) -> Any:
    """Find the part of a package that is a model; raises as :func:`model_in`."""
    parts, kind = parts_of(package), type(package).__name__
    size = sum(tensor.numel() for tensor in state.values())
    fitting = [name for name, part in parts.items() if _fits(part, state, size)]
    if MODEL in fitting:
        return parts[MODEL]
    if MODEL in parts:
        raise FedscopeError(
            f"{MODEL} of {kind} is {_described(parts[MODEL])}, and the handler's model has {size:,} numbers; send its "
            "whole state_dict, as serialize_model(model) makes it"
        )
    if not fitting:
        raise FedscopeError(
            f"{kind} has no model: none of its parts ({list_few(list(parts), 6)}) has the {size:,} numbers of the "
            f"handler's model; send one as {MODEL}, as only packages with models can be recorded"
        )
    if len(fitting) > 1:
        raise FedscopeError(
            f"{kind} has several parts of the model's size ({list_few(fitting, 6)}); call the model {MODEL}"
        )
    return parts[fitting[0]]


def _fits(part: Any, state: Tensors, size: int) -> bool:
    """Whether it is a model: a flat tensor of its size, or tensors by its names."""
    if isinstance(part, Mapping):
        return bool(state) and part.keys() >= state.keys()
    return callable(getattr(part, "numel", None)) and callable(getattr(part, "detach", None)) and part.numel() == size


def _split(flat: Any, state: Tensors) -> dict[str, Any]:
    """Split a flat tensor as ``deserialize_model`` does; where a type cannot hold what was sent, it stays as sent."""
    flat, split, at = flat.detach().reshape(-1), {}, 0
    for name, tensor in state.items():
        sent = flat[at : at + tensor.numel()].view(tensor.shape)
        split[name] = sent if sent.dtype == tensor.dtype else _in_type(sent, tensor.dtype)
        at += tensor.numel()
    return split


def _in_type(sent: Any, dtype: Any) -> Any:
    """Numbers in a type, where it can hold them; else as they were sent."""
    own = sent.to(dtype)
    kept = own.to(sent.dtype) == sent
    if own.is_floating_point():
        kept = kept | (sent != sent)  # a model that has diverged
    return own if bool(kept.all()) else sent


def _described(part: Any) -> str:
    """A clause on what stands where the model should."""
    if callable(getattr(part, "numel", None)):
        return f"a tensor of {part.numel():,} numbers"
    return f"of type {type(part).__name__}"
