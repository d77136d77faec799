"""Dropout on a device: the processor's masks, sent in few pieces."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from device.pretend import watch
from torch import nn

from fedscope.checkpoints import Layout, Run
from fedscope.decomposition.draws.replay import Replayer
from fedscope.evaluation.device import Compute
from fedscope.training import Config, train
from fedscope.training.build import initial_model
from fedscope.training.local import dropout_masks
from fedscope.training.local.dropout_masks import MaskStream
from fedscope.training.local.worker_model import TrainableModel, mean_loss
from fedscope.training.methods.clients.fedsam import FedSAM
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo, find_head

pytestmark = pytest.mark.device

DROPOUT = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 30), nn.Dropout(0.2), nn.Linear(30, 3))
SHAPES = (3,), (2, 5, 7), (1,), (), (4, 3, 1, 1), (100, 33), (0, 4), (17,)


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few numbers at once that masks lie across their ends."""
    monkeypatch.setattr(dropout_masks, "FEWEST", 16)
    monkeypatch.setattr(dropout_masks, "MOST", 50)


def stream(device: str) -> MaskStream:
    made = MaskStream()
    made.begin(torch.Generator().manual_seed(3), torch.device(device))
    return made


@pytest.mark.usefixtures("tiny_blocks")
def test_numbers_are_the_processors_whatever_the_shapes(pretend: str) -> None:
    here, there = stream("cpu"), stream(pretend)
    for shape in SHAPES:
        expected, found = (own.uniform(shape, torch.device(at)) for own, at in ((here, "cpu"), (there, pretend)))
        assert found.device.type == pretend
        assert torch.equal(found.cpu(), expected)


@pytest.mark.usefixtures("tiny_blocks")
def test_a_place_is_gone_back_to_across_the_ends_of_blocks(pretend: str) -> None:
    own, device = stream(pretend), torch.device(pretend)
    own.uniform((13,), device)
    place = own.place()
    first = [own.uniform((20,), device).cpu() for _ in range(6)]
    own.go_back(place)
    again = [own.uniform((20,), device).cpu() for _ in range(8)]
    assert all(torch.equal(one, other) for one, other in zip(first, again[:6], strict=True))
    whole = torch.rand(13 + 160, generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.cat(again), whole[13:])


def on(small: Any, device: str, **changes: Any) -> Any:
    """The small task with dropout, on a device."""
    facts = ModelInfo(Layout.of(DROPOUT), classes=3, head=find_head(DROPOUT))
    bench = TrainableModel(DROPOUT, Compute(device))
    x, y = small.x.float().to(device), small.y.to(device)
    task = small.task(start=initial_model(DROPOUT), bench=bench, facts=facts, x=x, y=y)
    return replace(task, **changes)


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("method", [SGD(batch=4), FedSAM(batch=4)], ids=["sgd", "fedsam"])
def test_local_training_meets_the_processors_masks(small: Any, pretend: str, method: Any) -> None:
    expected, found = (method.train(on(small, device)).weights.parameters for device in ("cpu", pretend))
    assert found.tobytes() == expected.tobytes()


@pytest.mark.usefixtures("tiny_blocks")
def test_two_gradients_of_a_batch_differ_by_their_models_alone(small: Any, pretend: str) -> None:
    task = on(small, pretend)
    bench = task.place
    bench.begin(task)
    x, y = task.x[:5], task.y[:5]
    apart = [bench.gradient_at(mean_loss(task.facts.task), bench.w.clone(), x, y, 0.0).cpu() for _ in range(2)]
    bench.loss(mean_loss(task.facts.task), x, y)
    assert torch.equal(apart[0], apart[1])
    assert torch.equal(bench.g.cpu(), apart[0])
    bench.loss(mean_loss(task.facts.task), x, y)
    assert not torch.equal(bench.g.cpu(), apart[0])


def test_masks_are_sent_in_one_piece_and_not_waited_for(small: Any, pretend: str) -> None:
    task = on(small, pretend)
    with watch("fedscope") as seen:
        steps = SGD(batch=1).train(task).steps
    assert steps == 22
    kinds = Counter(
        kind
        for kind, _, place in seen.places.elements()
        if not place.endswith((" loss", " total", " to_host", " load"))
    )
    # the masks of 22 steps, and the orders of two epochs
    assert kinds == {"to device, not waited for": 1 + 2}, seen.text()


@pytest.mark.usefixtures("few_digits")
def test_a_model_with_dropout_trains_to_the_processors_numbers_and_is_replayed_there(
    tmp_path: Path, pretend: str
) -> None:
    def trained(device: str) -> Run:
        tables = {
            "data": {"clients": 6},
            "model": {"name": "cnn-femnist"},
            "client": {"epochs": 1},
            "run": {"rounds": 2, "participation": 0.5, "evaluate_clients": 0, "device": device},
        }
        return train(Config.read(tables), tmp_path / device)

    one, other = trained("cpu"), trained(pretend)
    expected, found = (run.round(2).clients().parameters for run in (one, other))
    assert found.tobytes() == expected.tobytes()
    for draw in (1, 2):
        here, there = (Replayer.of(other, compute=Compute(at)).replay(other.round(2), draw) for at in ("cpu", pretend))
        assert here.parameters.tobytes() == there.parameters.tobytes()
        assert (there.parameters.tobytes() == found.tobytes()) == (draw == 1)
