"""Replies of Flower's clients: what a ClientApp adds to them, so that the server knows whose they are, and what they
hold, read from its records without importing it and without copying."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...io.errors import FedscopeError
from ...models.weights import BFLOAT16

#: under which name a reply says whose it is
RECORD, PARTITION = "fedscope", "partition-id"
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
        model: views of bytes, which nothing changes and whose memory no strategy can free.
        samples: what its model weighs; None where it does not say so.
    """

    node: Any
    partition: int | None
    model: Arrays
    samples: float | None


def partition_mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
    """A mod for a ClientApp that says in each reply whose it is: ``ClientApp(mods=[fedscope.partition_mod])``.

    Flower's node numbers are drawn anew in every run; partitions are not. :func:`~fedscope.record` takes what the mod
    added off again, before the strategy sees the reply.
    """
    reply = call_next(message, context)
    partition = context.node_config.get(PARTITION)
    trains = message.metadata.message_type.partition(".")[0] == "train"
    if not trains or not isinstance(partition, int) or not reply.has_content():
        return reply
    if METRICS in reply.content.config_records:
        reply.content[METRICS][PARTITION] = partition
    else:
        from flwr.app import ConfigRecord  # type: ignore[import-not-found, unused-ignore]

        reply.content[RECORD] = ConfigRecord({PARTITION: partition})
    return reply


def of_messages(messages: Sequence[Any], model_key: str, weight_key: str) -> list[Reply]:
    """Read the replies among messages, without failures; takes off what ``partition_mod`` added.

    Raises:
        FedscopeError: a reply of which it is not clear which record is the model; bfloat16 without ml_dtypes.
    """
    answers = [message for message in messages if message.has_content()]
    # first of all replies, so that a strategy sees them alike whatever is wrong with one of them
    owners = [message.content.pop(RECORD, {}).get(PARTITION) for message in answers]
    replies = []
    for message, partition in zip(answers, owners, strict=True):
        records, metrics = message.content.array_records, message.content.metric_records.values()
        model = next(iter(records.values())) if len(records) == 1 else records.get(model_key)
        if model is None:
            raise FedscopeError(f'a reply has {len(records)} ArrayRecords, none of them called "{model_key}"')
        samples = next((record[weight_key] for record in metrics if weight_key in record), None)
        weight = float(samples) if isinstance(samples, int | float) else None
        replies.append(Reply(message.metadata.src_node_id, partition, arrays_of(model), weight))
    return replies


def of_results(results: Sequence[tuple[Any, Any]]) -> list[Reply]:
    """Read the replies among the older interface's pairs of a client and a ``FitRes``."""
    owners = [result.metrics.pop(PARTITION, None) for _, result in results]
    return [
        Reply(client.cid, partition, tensors_of(result.parameters), float(result.num_examples))
        for (client, result), partition in zip(results, owners, strict=True)
    ]


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
