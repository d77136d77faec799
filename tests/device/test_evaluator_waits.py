"""How often evaluation waits for a device, what it sends there, and that its numbers are the processor's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from device.pretend import Seen, watch
from random_models import random_models, random_samples
from torch import Tensor, nn

from fedscope.checkpoints import Layout, Model, Weights
from fedscope.decomposition.draws.cohort_draws import CohortDraws
from fedscope.decomposition.factors.decompose_round import decompose_round
from fedscope.decomposition.forgetting.accuracy import count_answers
from fedscope.evaluation.device import CPU, Compute
from fedscope.evaluation.device_points import POINTS
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.standard_tasks import TASKS
from fedscope.evaluation.tasks import Plain, Task
from fedscope.landscape import line, plane

pytestmark = pytest.mark.device


def pretended() -> Compute:
    return Compute("pretend")


def network(normalised: bool = True) -> tuple[nn.Module, Samples]:
    torch.manual_seed(0)
    between = [nn.BatchNorm2d(4)] if normalised else []
    module = nn.Sequential(nn.Conv2d(2, 4, 3), *between, nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))
    return module, random_samples(130, (2, 5, 5), seed=1)


def perceptron() -> tuple[nn.Module, Samples]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(50, 6), nn.ReLU(), nn.Linear(6, 3))
    return module, random_samples(130, (2, 5, 5), seed=1)


def counted(what: Callable[[], Any]) -> tuple[Counter[str], Seen]:
    """How often the device was waited for, and was sent something."""
    with watch("fedscope") as seen:
        what()
    kinds: Counter[str] = Counter()
    for (kind, _, _), n in seen.places.items():
        kinds["to" if kind == "to device" else "waits"] += n
    return kinds, seen


@pytest.mark.parametrize("make", [network, perceptron])
def test_a_plane_waits_once_for_several_points_and_sends_none(make: Any) -> None:
    module, samples = make()
    models = random_models(module, 3)
    few, before = counted(lambda: plane(module, samples, models, grid=9, compute=pretended()))
    many, seen = counted(lambda: plane(module, samples, models, grid=17, compute=pretended()))
    more = 17**2 - 9**2
    assert many["waits"] - few["waits"] == more // POINTS, seen.text()
    # of models in one pass the coefficients
    assert many["to"] - few["to"] == (more // POINTS if make is perceptron else 0), seen.text()
    assert few["waits"] <= 9**2 // POINTS + 20, seen.text()
    if make is perceptron:
        operators = (sum(one.operators.values()) for one in (seen, before))
        assert next(operators) - next(operators) <= more * 8, seen.text()


def test_a_line_of_many_pairs_sends_its_ends_once() -> None:
    module, samples = network()
    models = random_models(module, 7)
    pairs = list(pairwise(models))
    few, _ = counted(lambda: line(module, samples, pairs, betas=np.linspace(0, 1, 9), compute=pretended()))
    many, seen = counted(lambda: line(module, samples, pairs, betas=np.linspace(0, 1, 17), compute=pretended()))
    assert many["waits"] - few["waits"] == 6 * 8 // POINTS, seen.text()
    assert many["to"] == few["to"], seen.text()


def test_a_vector_is_combined_at_once() -> None:
    module = nn.Linear(500, 500)
    models = [model.weights for model in random_models(module, 3)]
    there, here = Replica(module, pretended()), Replica(module, CPU)
    _, seen = counted(lambda: there.combine(models, (0.2, 0.3, 0.5)))
    assert sum(seen.operators.values()) < 25, seen.text()
    here.combine(models, (0.2, 0.3, 0.5))
    assert torch.equal(there.w.cpu(), here.w)
    for replica in (there, here):
        replica.combine(models, (0.0, 1.0, 0.0))
    assert torch.equal(there.w.cpu(), here.w)


@pytest.mark.parametrize("make", [network, perceptron])
def test_points_and_models_have_the_processors_numbers(make: Any) -> None:
    module, samples = make()
    models = random_models(module, 20)
    weights = [model.weights for model in models]
    for batch in (None, 37):
        (loss, error), (own, wrong) = (
            Evaluator(module, samples, compute=compute, batch=batch).models(weights) for compute in (pretended(), CPU)
        )
        np.testing.assert_allclose(loss, own, rtol=1e-6)
        assert np.array_equal(error, wrong)
    there, here = (plane(module, samples, models[:3], grid=7, compute=compute) for compute in (pretended(), CPU))
    np.testing.assert_allclose(there.loss, here.loss, rtol=1e-5)
    assert np.abs(there.error - here.error).max() <= 1 / 130


class Weighted(Task):
    """Squares, each sample with a weight of its own; whatever else is in its batch, a sample adds its share of it."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs[:, 0] - y).square() + outputs[:, 0]

    def error(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs[:, 0] > y).float()

    def weights(self, y: Tensor) -> Tensor:
        return y.abs() + 0.5


def of_task(task: Task) -> tuple[nn.Module, Samples]:
    torch.manual_seed(3)
    n, draw = 40, torch.Generator().manual_seed(1)
    if task.name == "sequences":
        tokens = torch.randint(0, 4, (n, 6), generator=draw)
        y = torch.where(torch.rand(n, 6, generator=draw) < 0.2, -100, tokens)
        y[:, 0] = 1
        return nn.Embedding(4, 4), Samples(tokens, y, 4, "toy", "test", np.arange(n), task=task)
    x = torch.randn(n, 5, generator=draw)
    y = torch.randint(0, 3, (n,), generator=draw) if task.has_classes else torch.randn(n, generator=draw)
    return nn.Linear(5, 3 if task.has_classes else 1), Samples(x, y, 3, "toy", "test", np.arange(n), task=task)


@pytest.mark.parametrize(
    "task", [*TASKS.values(), Weighted(), Plain("absolute", lambda f, y: (f[:, 0] - y).abs())], ids=lambda t: t.name
)
@pytest.mark.parametrize("batch", [None, 7])
def test_every_task_has_the_processors_numbers(task: Task, batch: int | None) -> None:
    module, samples = of_task(task)
    weights = [model.weights for model in random_models(module, POINTS + 3)]
    loss, error = Evaluator(module, samples, compute=pretended(), batch=batch).models(weights)
    own, wrong = Evaluator(module, samples, batch=batch).models(weights)
    np.testing.assert_allclose(loss, own, rtol=1e-6)
    np.testing.assert_allclose(error, wrong, rtol=1e-12)
    kinds, seen = counted(lambda: Evaluator(module, samples, compute=pretended(), batch=batch).models(weights))
    tried, _ = counted(lambda: Evaluator(module, samples, compute=pretended(), batch=batch))
    assert kinds["waits"] - tried["waits"] == 2, seen.text()


class Own(nn.Module):
    """Answers with its own parameters and computes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.table[: len(x)]


def test_outputs_that_are_the_parameters_stay_those_of_their_model() -> None:
    samples, module = random_samples(5, (1,)), Own()
    weights = [model.weights for model in random_models(module, 4)]
    found = Evaluator(module, samples, compute=pretended()).models(weights)
    assert np.array_equal(found, Evaluator(module, samples).models(weights))


def cohort_of(module: nn.Module, clients: int, draws: int) -> CohortDraws:
    models = [model.weights for model in random_models(module, clients * draws)]

    def matrix(own: list[Weights]) -> Weights:
        buffers = {name: np.stack([one.buffers[name] for one in own]) for name in own[0].buffers}
        return Weights(Layout.of(module), np.stack([one.parameters for one in own]), buffers)

    p = np.full(clients, 1 / clients)
    each = [matrix(models[r * clients : (r + 1) * clients]) for r in range(draws)]
    return CohortDraws(1, np.arange(clients), p, each, np.ones(clients, int), "rounds:2", independent=False)


def test_decompose_sends_each_model_once_and_has_the_processors_numbers() -> None:
    module, samples = network()
    cohort = cohort_of(module, 3, 2)

    def ask(compute: Compute, chunk: int) -> Any:
        return decompose_round(
            module, samples, cohort, None, globals_=None, averaged=None, population=True, compute=compute, chunk=chunk
        )

    kinds, seen = counted(lambda: ask(pretended(), 130))
    chunked, also = counted(lambda: ask(pretended(), 20))
    assert chunked == kinds, (seen.text(), also.text())
    assert kinds["waits"] <= 3 * 2 + 2 + 12, seen.text()
    for row, own in zip(ask(pretended(), 20).rows, ask(CPU, 20).rows, strict=True):
        if row.value is not None and row.factor != "closure_error":
            assert row.value == pytest.approx(own.value, rel=1e-5, abs=1e-7)


def test_forgetting_sends_each_model_once() -> None:
    module, samples = network()
    cohort = cohort_of(module, 3, 2)
    start: Model = random_models(module, 1)[0]

    def ask(compute: Compute, chunk: int) -> Any:
        return count_answers(
            module, samples, start.weights, cohort.draws[0], None,
            number=1, client_ids=np.arange(3), labels=np.ones((3, 3), int), compute=compute, chunk=chunk,
        )  # fmt: skip

    kinds, seen = counted(lambda: ask(pretended(), 130))
    chunked, also = counted(lambda: ask(pretended(), 20))
    assert chunked == kinds, (seen.text(), also.text())
    assert repr(ask(pretended(), 20)) == repr(ask(CPU, 20))
