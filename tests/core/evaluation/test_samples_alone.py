"""Modules that take two samples and no single one are refused with what makes them take it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedscope.checkpoints import FedscopeError
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.standard_tasks import TASKS
from fedscope.evaluation.validation import with_outputs


class Net(nn.Module):
    def __init__(self, shape: Callable[[Tensor], Tensor], norm: nn.Module | None = None, outputs: int = 3) -> None:
        super().__init__()
        self.body, self.head, self.norm, self.shape = nn.Conv2d(1, 4, 3), nn.Linear(4, outputs), norm, shape

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.adaptive_avg_pool2d(self.body(x), 1)
        if self.norm is not None:
            return self.head(self.norm(self.shape(h)))  # type: ignore[no-any-return]
        return self.shape(self.head(self.shape(h)))


def flat(x: Tensor) -> Tensor:
    return x.flatten(1)


def squeezed_early(x: Tensor) -> Tensor:
    return x.squeeze().flatten(1)


def samples(count: int = 5, task: str = "classification") -> Samples:
    x, y = torch.ones(count, 1, 4, 4), torch.arange(count) % 3
    if task == "regression":
        return Samples(x, y.float(), 1, "toy", "test", np.arange(count), task=TASKS[task])
    return Samples(x, y, 3, "toy", "test", np.arange(count), classes_seen=True)


SQUEEZED = (
    "the module returns outputs of shape {} for one sample of toy test and {} for two, as .squeeze() does, which takes "
    "the axis of samples away where there is one; write .flatten(1) in its place"
)
CASES = [
    (Net(torch.squeeze), samples(), SQUEEZED.format([3], [2, 3])),
    (Net(torch.squeeze, outputs=1), samples(task="regression"), SQUEEZED.format([], [2])),
    (
        Net(squeezed_early),
        samples(),
        "the module takes two samples of toy test and fails on one (IndexError: Dimension out of range (expected to be "
        "in range of [-1, 0], but got 1)), as behind .squeeze(), which takes the axis of samples away where there is "
        "one; write .flatten(1) in its place",
    ),
    (
        Net(flat, nn.BatchNorm1d(4, track_running_stats=False)),
        samples(),
        "the module takes two samples of toy test and fails on one: a batch normalization without running statistics "
        "takes mean and variance of the batch, and one value has no variance; give it track_running_stats=True "
        "(training=self.training), or take nn.LayerNorm",
    ),
]


@pytest.mark.parametrize(("module", "data", "sentence"), CASES)
def test_what_takes_no_sample_alone_is_refused(module: nn.Module, data: Samples, sentence: str) -> None:
    for ask in (Evaluator, with_outputs) if data.classes_seen else (Evaluator,):
        with pytest.raises(FedscopeError) as refusal:
            ask(module, data)
        assert str(refusal.value) == sentence


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.LayerNorm(4), None])
def test_what_the_sentences_advise_is_taken(norm: nn.Module | None) -> None:
    assert Evaluator(Net(flat, norm), samples())


def test_one_sample_is_refused_as_it_is() -> None:
    with pytest.raises(FedscopeError) as refusal:
        Evaluator(Net(torch.squeeze), samples(1))
    assert str(refusal.value) == (
        "the module returns outputs of shape [3] for one sample, but toy test has 3 classes, so [1, 3] is needed"
    )
