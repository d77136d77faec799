"""Alignment on the pretend accelerator: where units are followed."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch import nn

from fedscope import Samples
from fedscope.evaluation.device import Compute
from fedscope.landscape.alignment.measure_alignment import Aligner

pytestmark = pytest.mark.device


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(3, 4, 2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head: torch.Tensor = self.head(self.cells(x)[0][:, -1])
        return head


@pytest.mark.parametrize(
    ("module", "shape"), [(Recurrent(), (5, 3)), (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), (3,))]
)
def test_recurrent_layers_are_followed_on_the_processor(
    pretend: str, module: nn.Module, shape: tuple[int, ...]
) -> None:
    """An accelerator computes all their steps in one operation."""
    device = os.environ["FEDSCOPE_DEVICE"].partition(",")[0]
    samples = Samples(torch.randn(6, *shape), torch.arange(6) % 2, 2, "toy", "train", np.arange(6))
    aligner = Aligner(module, samples, Compute(device))
    stays = isinstance(module, Recurrent)
    assert {aligner.x.is_cpu, *(values.is_cpu for values in aligner.module.parameters())} == {stays}
    assert [group.size for group in aligner.specification.groups] == [4] * (2 if stays else 1)
