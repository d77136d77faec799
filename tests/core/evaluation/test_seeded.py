"""Torch's own random numbers from a seed for a while; those of an accelerator are tried in `tests/device`."""

from __future__ import annotations

import pytest
import torch

from fedscope.evaluation.seeded import forked, seeded


def test_the_stream_is_that_of_torchs_own_seed() -> None:
    with forked():
        torch.manual_seed(2**63 - 2)
        expected = torch.rand(3), torch.randint(9, (3,)), torch.get_rng_state()
    with seeded(2**63 - 2):
        found = torch.rand(3), torch.randint(9, (3,)), torch.get_rng_state()
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_the_callers_stream_goes_on_after_a_failure_too() -> None:
    def fail() -> None:
        torch.rand(3)
        raise KeyError("within")

    before = torch.get_rng_state()
    with pytest.raises(KeyError, match="within"), seeded(1):
        fail()
    assert torch.equal(torch.get_rng_state(), before)
