"""Training on a device without memory: one sentence, or fewer samples at a time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from device.pretend import limit, loaded
from random_models import random_samples
from torch import Tensor, nn

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Weights
from fedscope.evaluation.device import Compute
from fedscope.training.build import initial_model
from fedscope.training.local.engine import Engine
from fedscope.training.loop.metrics import Parts, on_device

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("limited")]

SAMPLES = random_samples(200, (3, 16, 16), 5)
ROWS = [np.arange(0, 130), np.arange(130, 199), np.arange(0), np.arange(199, 200)]
#: the outputs of the first layer for a sample
FIRST = 16 * 16 * 16 * 4


@pytest.fixture(autouse=True)
def nothing_else_held() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


class Network(nn.Sequential):
    """A small network that may fail with batches that are too large, as libraries do."""

    most, said = 10**6, ""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(256, 5))

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.most:
            raise RuntimeError(self.said)
        found: Tensor = super().forward(x)
        return found


def parts(device: str, **changes: Any) -> tuple[Parts, Weights]:
    torch.manual_seed(0)
    module = Network()
    for name, value in changes.items():
        setattr(module, name, value)
    made = Parts.of(SAMPLES, ROWS, Engine(module, Compute(device)))
    return replace(made, batch=200), initial_model(module)


def test_data_without_room_are_one_sentence(pretend: str) -> None:
    limit(loaded().held() + 1000)
    label = SAMPLES.label
    with pytest.raises(
        FedscopeError,
        match=rf"^pretend has no memory left to hold the 200 samples of {label}; free some of it, or give --device cpu",
    ):
        on_device(SAMPLES, pretend)


@pytest.mark.parametrize("images", [100, 20, 3])
def test_errors_of_parts_take_fewer_samples_at_a_time(pretend: str, images: int) -> None:
    own, model = parts("cpu")
    expected = own.errors(range(4), model)
    there, model = parts(pretend)
    limit(loaded().held() + int(2.5 * FIRST * images) + 100_000)
    with pytest.warns(FedscopeWarning) as warned:
        found = there.errors(range(4), model)
    assert str(warned[0].message) == "pretend ran out of memory with 130 samples at a time; going on with 65"
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(expected[[0, 1, 3]]).all()


@pytest.mark.parametrize("said", ["cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory"])
def test_libraries_that_say_it_themselves_are_understood(pretend: str, said: str) -> None:
    own, model = parts("cpu")
    there, _ = parts(pretend, most=40, said=said)
    with pytest.warns(FedscopeWarning) as warned:
        found = there.errors(range(4), model)
    np.testing.assert_array_equal(found, own.errors(range(4), model))
    assert [str(one.message).rpartition(" ")[2] for one in warned] == ["65", "32"]  # and stays there
    there, _ = parts(pretend, most=0, said=said)
    with (
        pytest.warns(FedscopeWarning),
        pytest.raises(FedscopeError, match=r"^pretend has no memory left for even one sample at a time; --device cpu"),
    ):
        there.errors(range(4), model)


def test_what_is_no_lack_of_memory_stays_what_it_is(pretend: str) -> None:
    there, model = parts(pretend, most=0, said="shapes do not go together")
    with pytest.raises(RuntimeError, match=r"^shapes do not go together$"):
        there.errors(range(4), model)
