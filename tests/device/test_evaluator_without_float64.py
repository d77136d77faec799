"""A device without float64, as Apple's are: sums are the processor's, so that numbers are, too; or one sentence."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from device.pretend import watch
from gpu import questions
from gpu.conftest import alike, devices  # noqa: F401 (fixtures)
from gpu.questions import LIMIT
from random_models import random_models, random_samples
from torch import nn

from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.evaluation.device import Compute
from fedscope.evaluation.device_points import POINTS
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.standard_tasks import TASKS
from fedscope.evaluation.tasks import Plain, Tally, Task
from fedscope.landscape import plane

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("without_float64")]

#: commands that need no float64 of the device, and by how much their numbers differ as a share of a column's greatest
QUESTIONS = {
    **{
        name: questions.QUESTIONS[name]
        for name in (
            *("line", "line-clients", "line-layers", "plane", "plane-clients", "plane-random"),
            *("subsets", "forgetting", "wima", "reaggregate"),
        )
    },
    "plane-adaptive": (f"plane r@2/global r@3/global r@4/global --adaptive --grid 15 {LIMIT}", 1e-4),
    "decompose": (f"decompose r --rounds 4 --draws rounds:2 {LIMIT}", 1e-3),
    "decompose-cross-entropy": (f"decompose r --rounds 4 --draws rounds:2 --loss cross-entropy {LIMIT}", 1e-3),
}


def pretended() -> Compute:
    return Compute("pretend")


@pytest.fixture(scope="module")
def folder(few_digits: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four rounds of all of its clients, trained on the processor."""
    folder, before = tmp_path_factory.mktemp("device"), Path.cwd()
    words = "train --method fma --clients 4 --participation 1 --rounds 4 --epochs 1 --device cpu --out r"
    os.chdir(folder)
    try:
        assert run([*words.split(), "--set", "model.hidden=[16]", "--set", "record.globals=all"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_command_has_the_processors_numbers(
    name: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    alike: Callable[..., int],  # noqa: F811
    devices: Callable[[Path], set[str]],  # noqa: F811
) -> None:
    monkeypatch.chdir(folder)
    words, relative = QUESTIONS[name]
    for on in ("cpu", "pretend"):
        assert run([*words.split(), "--device", on, "--out", f"{name}/{on}/x", "--force"]) == 0
        assert on in devices(folder / name / on)
    assert alike(folder / name / "cpu", folder / name / "pretend", relative, 72) > 0


def of_task(task: Task) -> tuple[nn.Module, Samples]:
    torch.manual_seed(3)
    n, draw = 40, torch.Generator().manual_seed(1)
    if task.name == "sequences":
        tokens = torch.randint(0, 4, (n, 6), generator=draw)
        y = torch.where(torch.rand(n, 6, generator=draw) < 0.2, -100, tokens)
        y[:, 0] = 1
        return nn.Embedding(4, 4), Samples(tokens, y, 4, "toy", "test", np.arange(n), task=task)
    x = torch.randn(n, 5, generator=draw).double()
    y = torch.randint(0, 3, (n,), generator=draw) if task.has_classes else torch.randn(n, generator=draw).double()
    return nn.Linear(5, 3 if task.has_classes else 1), Samples(x, y, 3, "toy", "test", np.arange(n), task=task)


@pytest.mark.parametrize(
    "task", [*TASKS.values(), Plain("absolute", lambda f, y: (f[:, 0] - y).abs())], ids=lambda t: t.name
)
@pytest.mark.parametrize("batch", [None, 7])
def test_every_task_has_the_processors_numbers(task: Task, batch: int | None) -> None:
    module, samples = of_task(task)
    weights = [model.weights for model in random_models(module, POINTS + 3)]
    loss, error = Evaluator(module, samples, compute=pretended(), batch=batch).models(weights)
    own, wrong = Evaluator(module, samples, batch=batch).models(weights)
    np.testing.assert_allclose(loss, own, rtol=1e-6)
    np.testing.assert_allclose(error, wrong, rtol=1e-6)
    tally, other = Tally(task, "pretend"), Tally(task, "cpu")
    there = Replica(module, pretended())
    there.load(weights[0].parameters, {})
    outputs = there.logits(there.prepare(samples.x))
    tally.add(outputs, there.targets(samples.y))
    other.add(outputs.cpu(), samples.y)
    np.testing.assert_allclose(tally.means(), other.means(), rtol=1e-6)


def test_a_plane_waits_once_for_several_points() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))
    samples, models = random_samples(130, (2, 5, 5), seed=1), random_models(module, 3)
    waits: list[int] = []
    for grid in (9, 17):
        with watch("fedscope") as seen:
            plane(module, samples, models, grid=grid, compute=pretended())
        kinds = Counter[str]()
        for (kind, _, _), n in seen.places.items():
            kinds[kind] += n
        waits.append(kinds["wait"] + kinds["from device"])
    assert waits[1] - waits[0] == (17**2 - 9**2) // POINTS


def test_points_are_combined_by_the_processor_to_its_bits() -> None:
    module = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300))
    models = [model.weights for model in random_models(module, 3)]
    there, here = Replica(module, pretended()), Replica(module)
    for coefficients in ((0.2, 0.3, 0.5), (0.0, 1.0, 0.0), (1.7, -0.4, -0.3)):
        for replica in (there, here):
            replica.combine(models, coefficients)
        assert torch.equal(there.w.cpu(), here.w)
        for name, values in here.module.named_buffers():
            assert torch.equal(dict(there.module.named_buffers())[name].cpu(), values)


def test_a_module_in_float64_is_refused_in_one_sentence() -> None:
    class Shifted(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 3)
            self.register_buffer("shift", torch.zeros(1, dtype=torch.float64))

    samples: Any = random_samples(5, (2,))
    for module, name in ((nn.Linear(2, 3).double(), "weight"), (Shifted(), "shift")):
        with pytest.raises(FedscopeError) as refusal:
            Evaluator(module, samples, compute=pretended())
        assert str(refusal.value) == (
            f"the module's {name} is float64, and pretend has no float64; give --device cpu, or a module in float32 "
            "(module.float())"
        )
