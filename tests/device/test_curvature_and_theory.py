"""Second derivatives and tangent kernels on the pretend accelerator: layers that cuDNN does not differentiate, numbers,
memory, waits and copies."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from fedscope import Samples
from fedscope.checkpoints import Layout, Weights
from fedscope.checkpoints.models.weights import tensors_of
from fedscope.decomposition.theory.tangent import tangent_kernel
from fedscope.evaluation.device import Compute
from fedscope.landscape.curvature.derivatives import Derivatives

pytestmark = pytest.mark.device


class Recurrent(nn.Module):
    """A classifier of sequences of three numbers, by its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head: torch.Tensor = self.head(self.cells(x)[0][:, -1])
        return head


def weights(module: nn.Module) -> Weights:
    layout = Layout.of(module)
    return layout.flatten({name: value.detach().numpy() for name, value in tensors_of(module).items()})


def samples(count: int, *shape: int, classes: int = 2) -> Samples:
    draw = torch.Generator().manual_seed(count)
    x, y = torch.randn(count, *shape, generator=draw), torch.randint(0, classes, (count,), generator=draw)
    return Samples(x, y, classes, "toy", "test", np.arange(count))


@pytest.fixture
def device(pretend: str) -> str:
    """The one of the two that was asked for."""
    return os.environ["FEDSCOPE_DEVICE"]


@pytest.fixture
def newer_flags() -> Iterator[None]:
    """The caller has said by torch's newer interface how convolutions multiply."""
    conv = torch.backends.cudnn.conv
    if not hasattr(conv, "fp32_precision"):
        pytest.skip(f"torch {torch.__version__} has no such interface")
    before = conv.fp32_precision
    conv.fp32_precision = "ieee"
    yield
    conv.fp32_precision = before


@pytest.mark.parametrize("frozen", [False, True])
def test_the_kernel_of_a_recurrent_classifier_is_the_processors(device: str, frozen: bool) -> None:
    torch.manual_seed(0)
    module, x = Recurrent(), samples(5, 6, 3).x
    module.head.requires_grad_(not frozen)
    expected = tangent_kernel(module, x, weights(module), dimension=16)
    found = tangent_kernel(module, x, weights(module), dimension=16, compute=Compute(device))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert torch.backends.cudnn.enabled


def test_recurrent_layers_are_differentiated_whatever_flags_the_caller_has_set(device: str, newer_flags: None) -> None:
    torch.manual_seed(0)
    module, part = Recurrent(), samples(5, 6, 3)
    for where in ("cpu", device):
        _loss, gradient = Derivatives(module, part, compute=Compute(where)).gradient(weights(module))
        assert np.isfinite(gradient).all()
    assert torch.backends.cudnn.conv.fp32_precision == "ieee"
    assert torch.backends.cudnn.enabled
