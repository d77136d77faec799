"""Local training against torch's own optimiser, and the round loop's promises."""

from __future__ import annotations

import threading
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedscope.checkpoints import Layout, Weights
from fedscope.training.build import initial_model
from fedscope.training.local.local_training import LocalTask, Stopped, batches, crop_and_flip, local_sgd
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_local_sgd_steps_as_torch_does(
    small: Any, momentum: float, weight_decay: float, clip: float, close: Any
) -> None:
    method = SGD(momentum=momentum, weight_decay=weight_decay, clip=clip, batch=4)
    task = small.task(pace=LocalSchedule(0.1, 3))
    update = local_sgd(task, method)

    reference = deepcopy(small.module)
    # The clip of methods.md takes in the weight decay, which torch's optimiser would add after clipping.
    optimiser = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=momentum)
    losses = []
    for x, y in batches(task, method):
        optimiser.zero_grad()
        loss = functional.cross_entropy(reference(x), y)
        loss.backward()
        for parameter in reference.parameters():
            assert parameter.grad is not None
            parameter.grad += weight_decay * parameter.detach()
        if clip:
            torch.nn.utils.clip_grad_norm_(reference.parameters(), clip)
        optimiser.step()
        losses.append(loss.item())
    # torch adds 1e-6 to the norm
    close(update.weights.parameters, initial_model(reference).parameters, 1e-5 if clip else 1e-12)
    assert update.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert (update.steps, update.samples, update.client) == (9, 11, 2)
    assert not np.array_equal(update.weights.parameters, task.start.parameters)


def test_an_epoch_sees_every_sample_once_in_another_order_each_time(small: Any) -> None:
    x = torch.arange(200.0)[:, None]
    task = small.task(x=x, y=torch.arange(200), indices=np.arange(100, 133))
    seen = [batch[:, 0].int().tolist() for batch, _ in batches(task, SGD(batch=10))]
    assert list(map(len, seen)) == [10, 10, 10, 3] * 2
    first, second = [*chain(*seen[:4])], [*chain(*seen[4:])]
    assert sorted(first) == sorted(second) == list(range(100, 133))
    assert first != second


@pytest.mark.parametrize("change", [{"round": 5}, {"client": 8}, {"seed": 1}, {"draw": 2}])
def test_orders_depend_on_seed_round_client_and_draw(small: Any, change: dict[str, int]) -> None:
    once, again, other = (
        local_sgd(small.task(**changes), SGD(batch=4)).weights.parameters for changes in ({}, {}, change)
    )
    assert once.tobytes() == again.tobytes()
    assert once.tobytes() != other.tobytes()


def test_a_workbench_forgets_what_it_trained_before(small: Any) -> None:
    fresh = local_sgd(small.task(), SGD(momentum=0.9)).weights.parameters
    used = TrainableModel(small.module)
    local_sgd(small.task(bench=used, client=1), SGD(momentum=0.9))
    after = local_sgd(small.task(bench=used), SGD(momentum=0.9)).weights.parameters
    assert fresh.tobytes() == after.tobytes()


def test_a_client_with_fewer_samples_than_a_batch_takes_one_step_an_epoch(small: Any) -> None:
    update = local_sgd(small.task(indices=np.array([5])), SGD(batch=50))
    assert update.steps == 2
    assert np.isfinite(update.weights.parameters).all()


def test_training_stops_when_told_to(small: Any) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        local_sgd(small.task(stop=stop), SGD())


def test_crops_and_flips_are_windows_of_the_padded_image() -> None:
    x = torch.arange(2 * 3 * 6 * 6, dtype=torch.float32).reshape(2, 3, 6, 6) + 1
    out = crop_and_flip(x, torch.Generator().manual_seed(1), padding=2)
    padded = torch.nn.functional.pad(x, (2, 2, 2, 2))
    windows = [[padded[i, :, r : r + 6, c : c + 6] for r in range(5) for c in range(5)] for i in range(2)]
    for i in range(2):
        candidates = [*windows[i], *(w.flip(2) for w in windows[i])]
        assert any(torch.equal(out[i], candidate) for candidate in candidates)
    many = crop_and_flip(x[:1].expand(400, -1, -1, -1), torch.Generator().manual_seed(0), padding=2)
    distinct = {tuple(image.reshape(-1).tolist()) for image in many}
    assert len(distinct) == 50  # 25 windows, each as it is and flipped


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    padding=st.integers(0, 4),
    seed=st.integers(0, 99),
    last=st.booleans(),
)
def test_augmentation_is_a_crop_and_a_flip_of_each_image(
    shape: tuple[int, int, int, int], padding: int, seed: int, last: bool
) -> None:
    """Image by image, with the same three draws."""
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    found = crop_and_flip(x, torch.Generator().manual_seed(seed), padding)
    draws = torch.Generator().manual_seed(seed)
    n, _, h, w = shape
    tops, lefts = (torch.randint(0, 2 * padding + 1, (n, 1), generator=draws) for _ in range(2))
    flips = torch.rand(n, 1, generator=draws) < 0.5
    for image, top, left, flip, out in zip(x.numpy(), tops, lefts, flips, found, strict=True):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        crop = padded[:, int(top) : int(top) + h, int(left) : int(left) + w]
        np.testing.assert_array_equal(out, crop[:, :, ::-1] if flip else crop)
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("change", [{"round": 5}, {"client": 8}, {"seed": 1}, {"draw": 2}])
def test_augmentation_depends_on_seed_round_client_draw_and_epoch(small: Any, change: dict[str, int]) -> None:
    """Of 12 equal images a batch shows the draws alone, whatever the order."""
    image = torch.arange(64, dtype=torch.float32).reshape(1, 1, 8, 8).expand(12, -1, -1, -1)

    def seen(**changes: int) -> list[bytes]:
        task = replace(small.task(indices=np.arange(12), **changes), x=image, y=torch.zeros(12), augment="crop-flip")
        return [x.numpy().tobytes() for x, _ in batches(task, SGD(batch=12))]

    first, second = seen()
    assert first != second
    assert seen() == [first, second]
    assert not {first, second} & set(seen(**change))


def test_batch_statistics_are_trained_and_returned(close: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    x, y = torch.randn(40, 4) * 3 + 1, torch.randint(0, 2, (40,))
    task = LocalTask(
        1, 0, x, y, np.arange(40), initial_model(module), LocalSchedule(0.1, 1), 0, ModelInfo(Layout.of(module))
    )
    task = replace(task, bench=TrainableModel(module))
    update = local_sgd(task, SGD(batch=40))
    close(update.weights.buffers["1.running_mean"], 0.1 * x.mean(0), 1e-5)
    assert update.weights.buffers["1.num_batches_tracked"] == 1
    assert isinstance(update.weights, Weights)
