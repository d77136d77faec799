"""What a ClientApp of Flower adds to its replies, so that the server knows whose they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: under which name a reply says whose it is
RECORD, PARTITION = "fedscope", "partition-id"
#: the record of a reply of an older client that its metrics travel in, the only one that a strategy gets to see
METRICS = "fitres.metrics"


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
