"""Which clients diverged, by their parameters or by their buffers."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from fedscope.checkpoints import Layout, Weights
from fedscope.decomposition.cohort.divergence import diverged_rows, diverged_words


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["parameters", "running_mean"])
def test_a_value_that_is_not_finite_is_found_wherever_it_stands(value: float, where: str) -> None:
    layout = Layout.of(nn.BatchNorm1d(3))
    buffers = {entry.name: np.zeros((4, *entry.shape), entry.dtype) for entry in layout.buffers}
    clients = Weights(layout, np.full((4, 6), 3e38, np.float32), buffers)  # whose sum is not finite
    assert not diverged_rows(clients).any()
    (clients.parameters if where == "parameters" else buffers[where])[2, -1] = value
    assert diverged_rows(clients).tolist() == [False, False, True, False]


def test_clients_are_named_with_their_round() -> None:
    assert diverged_words([], 3) == ""
    assert diverged_words([17], 3) == "the model of client 17 in round 3 is not finite"
    assert diverged_words([1, 17], 3) == "the models of clients 1, 17 in round 3 are not finite"
