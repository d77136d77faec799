"""What a partition says of clients."""

from __future__ import annotations

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Partition

pytestmark = pytest.mark.same_elsewhere


def test_counts_are_of_the_clients_that_are_asked_for() -> None:
    """Of a client that it lacks, indexing ended in an IndexError, and -1 was the last client."""
    partition = Partition((np.arange(2), np.arange(1)), None, np.array([[1, 1], [0, 1]]))
    assert partition.counts_of(np.array([1, 0])).tolist() == [[0, 1], [1, 1]]
    for client in (2, -1):
        with pytest.raises(FedscopeError, match=f"client {client} is not in the partition, which has clients 0 to 1: "):
            partition.counts_of(np.array([0, client]))
