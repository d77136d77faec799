"""Models of a round that are one, in memory or by their numbers, because a loop has not copied them before it changed
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .coerce_models import MemoryAddress, ModelTensors

#: as many numbers are not the same by chance
_MANY = 12
Places = frozenset[tuple[str, MemoryAddress]]

#: what a loop does instead
COPY = "copy each before it is changed: copy.deepcopy(net), copy.deepcopy(net.state_dict())"


def one_memory(
    start: ModelTensors | None,
    end: ModelTensors | None,
    clients: Mapping[int, ModelTensors],
    starts: Mapping[int, ModelTensors],
) -> str:
    """Say which two models of a round lie in the same memory, so that what is recorded of one is the other; empty where
    none do, and where all do, which is a round in which nothing moves.

    ``state_dict()`` does not copy: what was taken before training is the trained model afterwards. One client of
    several that is its own start may have done nothing.
    """
    sent, made = _memory(start), _memory(end)
    places = {k: _memory(model) for k, model in clients.items()}
    if sent is not None and {sent} == {made, *places.values()}:
        return ""
    first: dict[Places, int] = {}
    for k, place in places.items():
        if place is not None and (other := first.setdefault(place, k)) != k:
            return f"the models of clients {other} and {k} are the same tensors, which the last one has filled; {COPY}"
    if starts and all(places[k] is not None and _memory(began) == places[k] for k, began in starts.items()):
        return f"starts= and clients= are the same tensors, so that all updates are 0; {COPY}"
    if sent is not None and sent in places.values() and len(places) == 1:
        return f"start= and the only client are the same tensors, so that its update is 0; {COPY}"
    over = next((k for k, place in places.items() if place is not None and place == made), None)
    if over is not None and len(places) > 1:
        return (
            f"global_= and the model of client {over} are the same tensors: where the server has averaged into them, "
            "the client's own model is gone; average into a copy: copy.deepcopy(models[0])"
        )
    if sent is not None and sent == made:
        return f"start= and global_= are the same tensors, so that updates begin where the round has ended; {COPY}"
    return ""


def one_model(
    start: ModelTensors | None, end: ModelTensors | None, clients: Mapping[int, ModelTensors], weights: Sequence[str]
) -> str:
    """Say that clients who have left their start all have the server's model, as those have that were given it before
    they were recorded; else empty.

    Others seldom are alike beyond their first tensor.

    Args:
        weights: the names of what is trained; of a few numbers several clients may have the same by chance.
    """
    first, *others = clients.values()
    if start is None or not others or sum(first.arrays[name].size for name in weights) < _MANY:
        return ""
    alike = all(_is_same(first, one, weights) for one in (*others, *([] if end is None else [end])))
    if not alike or _is_same(first, start, weights):
        return ""
    return (
        f"all {len(clients)} clients have the same weights, and not those of start; take them after their training, "
        "before they are given the server's model"
    )


def _is_same(one: ModelTensors, other: ModelTensors, names: Sequence[str]) -> bool:
    return all(np.array_equal(one.arrays[name], other.arrays[name]) for name in names)


def _memory(model: ModelTensors | None) -> Places | None:
    """Return where a model's tensors begin, by their names; None where it has no numbers.

    Of torch's tensors before they were read: what is copied from a GPU lies in a place of its own each time.
    """
    if model is None:
        return None
    found = {
        (name, model.places.get(name, array.__array_interface__["data"][0]))
        for name, array in model.arrays.items()
        if array.size
    }
    return frozenset(found) or None
