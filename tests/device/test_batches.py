"""Batches, augmentation and random numbers of local training on a device: the processor's, and sent without waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from device.pretend import watch
from torch import Tensor, nn
from torch.nn import functional

from fedscope.checkpoints import Layout
from fedscope.evaluation.device import Compute
from fedscope.evaluation.uint8_images import Uint8Images
from fedscope.training.build import initial_model
from fedscope.training.local import device_batches
from fedscope.training.local.local_training import LocalTask, batches, local_sgd
from fedscope.training.local.vectorized_model import VectorizedModel
from fedscope.training.local.vectorized_training import VectorizedTask
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.fedgen import FedGen
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo, find_head

pytestmark = pytest.mark.device

CONVOLUTION = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5), nn.Linear(5, 3))
BYTES = torch.randint(0, 256, (40, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
DATA = {
    "floats": torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(1)).contiguous(
        memory_format=torch.channels_last
    ),
    "bytes": Uint8Images(BYTES, np.float32([0.5, 0.4, 0.3]), np.float32([0.2, 0.2, 0.3])),
}
LABELS = torch.randint(0, 3, (40,), generator=torch.Generator().manual_seed(2))
#: the loop reads a loss a step here and there; what is counted is what the loop is given
ELSEWHERE = " loss", " sgd", " read"


@pytest.fixture(params=["one piece", "batch by batch"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are gathered all at once, or each batch by itself."""
    if request.param == "batch by batch":
        monkeypatch.setattr(device_batches, "AT_ONCE", 1)


def client(device: str, count: int, *, data: str = "floats", epochs: int = 2, **changes: Any) -> LocalTask:
    """A client with the first ``count`` samples."""
    facts = ModelInfo(Layout.of(CONVOLUTION), classes=3, head=find_head(CONVOLUTION))
    x, y = DATA[data].to(device), LABELS.to(device)
    start, pace = initial_model(CONVOLUTION), LocalSchedule(0.1, epochs)
    task = LocalTask(1, 2, x, y, np.arange(count), start, pace, 0, facts, augment="crop-flip")
    return replace(task, **{"bench": TrainableModel(CONVOLUTION, Compute(device)), **changes})


def together(device: str, counts: list[int], **changes: Any) -> VectorizedTask:
    """Clients with so many samples each, trained in one pass."""
    members = [client(device, count, bench=None, client=k, **changes) for k, count in enumerate(counts)]
    bench = VectorizedModel(CONVOLUTION, len(counts), Compute(device))
    start = members[0].start
    return replace(VectorizedTask.of([replace(member, start=start) for member in members]), bench=bench)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("augment", ["none", "crop-flip"])
@pytest.mark.parametrize("data", DATA)
def test_batches_are_the_processors(pretend: str, data: str, augment: str) -> None:
    here, there = (
        list(batches(client(device, 11, data=data, augment=augment), SGD(batch=4))) for device in ("cpu", pretend)
    )
    assert [len(y) for _, y in there] == [4, 4, 3] * 2
    for (x, y), (own_x, own_y) in zip(here, there, strict=True):
        assert own_x.device.type == own_y.device.type == pretend
        assert torch.equal(own_x.cpu(), x)
        assert torch.equal(own_y.cpu(), y)
        assert own_x.stride() == x.stride(), "in another layout convolutions sum in another order"


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("augment", ["none", "crop-flip"])
def test_batches_of_several_clients_are_the_processors(pretend: str, augment: str) -> None:
    def found(device: str) -> Iterator[tuple[Tensor, Tensor, np.ndarray]]:
        task = together(device, [7, 3, 11], augment=augment)
        for x, y, active in task._batches(SGD(batch=4), *task._orders()):
            assert x.device.type == y.device.type == device
            yield x.cpu(), y.cpu(), active

    here, there = (list(found(device)) for device in ("cpu", pretend))
    assert len(here) == len(there) == 6
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
        assert np.array_equal(one[2], other[2])


def waits(work: Callable[[], Any]) -> Counter[str]:
    """How often, and where, the device is waited for, but for the loop itself."""
    with watch("fedscope") as seen:
        work()
    kinds = "wait", "to device", "from device"
    events = ((kind, place) for kind, _, place in seen.places.elements() if kind in kinds)
    return Counter(f"{kind} {place}" for kind, place in events if not place.endswith(ELSEWHERE))


def harder(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """A loss that is no mean over samples."""
    return functional.cross_entropy(module(x), y) / len(y)


#: each with so many epochs
WORK: dict[str, Callable[[str, int], Callable[[], Any]]] = {
    "augmented": lambda device, epochs: partial_of(client(device, 11, epochs=epochs), SGD(batch=4)),
    "augmented cohort": lambda device, epochs: partial_of(together(device, [7, 3, 11], epochs=epochs), SGD(batch=4)),
    "adamw": lambda device, epochs: partial_of(
        client(device, 11, epochs=epochs, augment="none"), SGD(batch=4, optimiser="adamw")
    ),
    "adamw of a cohort": lambda device, epochs: partial_of(
        together(device, [7, 3, 11], epochs=epochs, augment="none"), SGD(batch=4, optimiser="adamw")
    ),
    "another loss of a cohort": lambda device, epochs: partial_of(
        together(device, [7, 3, 11], epochs=epochs, augment="none"), SGD(batch=4), objective=harder
    ),
}


def partial_of(task: LocalTask, method: Any, **how: Any) -> Callable[[], Any]:
    """Local training that is yet to be done."""
    return lambda: local_sgd(task, method, **how)


@pytest.mark.parametrize("name", WORK)
def test_more_epochs_wait_no_longer(pretend: str, name: str) -> None:
    few, many = (waits(WORK[name](pretend, epochs)) for epochs in (1, 4))
    assert many == few


@pytest.mark.parametrize("ends", [1 << 25, 1], ids=["one piece", "step by step"])
def test_fedgen_draws_the_processors_numbers_ahead(pretend: str, ends: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_batches, "AT_ONCE", ends)
    method = FedGen(batch=4, noise=3, hidden=4)

    def task(device: str, epochs: int) -> LocalTask:
        made = client(device, 11, epochs=epochs, augment="none")
        sent = {name: np.asarray(value) for name, value in method.begin(made.start, made.facts).items()}
        return replace(made, sent={**sent, "norm.batches": np.array(1)})

    expected, found = (method.train(task(device, 2)).weights.parameters for device in ("cpu", pretend))
    assert found.tobytes() == expected.tobytes()
    few, many = (waits(lambda epochs=epochs: method.train(task(pretend, epochs))) for epochs in (1, 4))
    assert many == few
