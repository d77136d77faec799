"""Replies of Flower's clients: what a ClientApp adds to them, so that the server knows whose they are, and what they
hold, read from its records without importing it and without copying."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xxhash import xxh3_128_digest

from ...io.errors import FedscopeError
from ...models.weights import BFLOAT16
from ..framework_evaluation import number_in

#: what a node's settings call its partition
PARTITION = "partition-id"
#: under which name a reply says whose it is, in a record of its own or among the metrics of an older client; no metric
#: of a user's is called so
OWN = "fedscope.partition-id"
#: what a reply says there where its node has no partition
NONE = -1
#: the record of a reply of an older client that its metrics travel in, the only one that a strategy gets to see
METRICS = "fitres.metrics"
#: a model; arrays without names are called "0", "1" and so on, as Flower does
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Reply:
    """A client's reply.

    Attributes:
        node: Flower's number of the client, or its name.
        partition: its own, where it says so.
        has_mod: whether it has passed :func:`partition_mod`.
        model: views of bytes, which nothing changes and whose memory no strategy can free.
        weight: what its model weighs; None where it does not say so.
    """

    node: Any
    partition: int | None
    has_mod: bool
    model: Arrays
    weight: float | None


def partition_mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
    """A mod for a ClientApp that says in each reply whose it is: ``ClientApp(mods=[fedscope.partition_mod])``.

    Flower's node numbers are drawn anew in every run; partitions are not. :func:`~fedscope.record` takes what the mod
    added off again, before the strategy sees the reply.
    """
    reply = call_next(message, context)
    partition = context.node_config.get(PARTITION)
    trains = message.metadata.message_type.partition(".")[0] == "train"
    if not trains or not reply.has_content():
        return reply
    number = partition if _is_partition(partition) else NONE
    if METRICS in reply.content.config_records:
        reply.content[METRICS][OWN] = number
    else:
        from flwr.app import ConfigRecord  # type: ignore[import-not-found, unused-ignore]

        reply.content[OWN] = ConfigRecord({PARTITION: number})
    return reply


def _is_partition(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _whose(told: Any) -> tuple[int | None, bool]:
    """Return the partition that a reply says, and whether its mod says anything."""
    return told if _is_partition(told) else None, told is not None


def of_messages(messages: Sequence[Any], model_key: str, weight_key: str) -> list[Reply]:
    """Read the replies among messages, without failures; takes off what ``partition_mod`` added.

    Raises:
        FedscopeError: a reply of which it is not clear which record is the model; bfloat16 without ml_dtypes.
    """
    answers = [message for message in messages if message.has_content()]
    # first of all replies, so that a strategy sees them alike whatever is wrong with one of them
    owners = [_whose(message.content.pop(OWN, {}).get(PARTITION)) for message in answers]
    replies = []
    for message, owner in zip(answers, owners, strict=True):
        records, metrics = message.content.array_records, message.content.metric_records.values()
        model = next(iter(records.values())) if len(records) == 1 else records.get(model_key)
        if model is None:
            raise FedscopeError(f'a reply has {len(records)} ArrayRecords, none of them called "{model_key}"')
        weight = next((record[weight_key] for record in metrics if weight_key in record), None)
        replies.append(Reply(message.metadata.src_node_id, *owner, arrays_of(model), number_in(weight)))
    return replies


def of_results(results: Sequence[tuple[Any, Any]]) -> list[Reply]:
    """Read the replies among the older interface's pairs of a client and a ``FitRes``."""
    owners = [_whose(result.metrics.pop(OWN, None)) for _, result in results]
    return [
        Reply(client.cid, *owner, tensors_of(result.parameters), float(result.num_examples))
        for (client, result), owner in zip(results, owners, strict=True)
    ]


def sent_in(messages: Any, model_key: str) -> list[tuple[Any, Any]]:
    """Return the node and the ``ArrayRecord`` of each message that is to be sent; None where it is not clear which."""
    found = []
    for message in messages:
        records = getattr(getattr(message, "content", None), "array_records", None)
        if records is not None:
            model = next(iter(records.values())) if len(records) == 1 else records.get(model_key)
            found.append((message.metadata.dst_node_id, model))
    return found


def sent_to(pairs: Any) -> list[tuple[Any, Any]]:
    """Return the name and the ``Parameters`` of each client of the older interface that is to be sent some."""
    both = [pair for pair in pairs or () if isinstance(pair, tuple) and len(pair) == 2]
    return [(client.cid, asked.parameters) for client, asked in both if hasattr(asked, "parameters")]


def bytes_of(model: Any) -> Any:
    """Return what tells a model that is to be sent from others, whose bytes are not read where they are the same."""
    if hasattr(model, "tensors"):
        return tuple(model.tensors)
    return tuple((name, array.stype, array.dtype, array.data) for name, array in sorted(model.items()))


def values_of(model: Arrays) -> Any:
    """Return what tells models of other values apart, whatever their dtypes and the order of their numbers."""
    return tuple(
        (name, array.shape, xxh3_128_digest(np.ascontiguousarray(array, np.float64).data))
        for name, array in sorted(model.items())
    )


def distance_of(one: Arrays, other: Arrays) -> float:
    """Return the squared distance of two models in the arrays that training moves, those of whole numbers apart."""
    square = 0.0
    for name, array in one.items():
        if array.dtype.kind not in "iub" and name in other and other[name].shape == array.shape:
            with np.errstate(invalid="ignore", over="ignore"):  # of models that diverged
                moved = array.astype(np.float64) - other[name].astype(np.float64)
                square += float(np.sum(moved**2))
    return square


def arrays_of(record: Any) -> Arrays:
    """Read the model in an ``ArrayRecord``."""
    return {name: _array(name, array) for name, array in record.items()}


def tensors_of(parameters: Any) -> Arrays:
    """Return a model in the older interface's ``Parameters``."""
    return {str(i): _npy(tensor) for i, tensor in enumerate(parameters.tensors)}


def _array(name: str, array: Any) -> np.ndarray:
    if array.stype != "numpy.ndarray":
        return np.asarray(array.numpy())
    values = _npy(array.data)
    if array.dtype != BFLOAT16:
        return values
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise FedscopeError(f"{name} is bfloat16, which needs ml_dtypes; pip install ml_dtypes") from None
    return values.view(ml_dtypes.bfloat16)


def _npy(data: bytes) -> np.ndarray:
    """Return a view of the array in the bytes of a ``.npy`` file."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if fortran else "C")
