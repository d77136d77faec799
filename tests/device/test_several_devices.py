"""Several devices at once: what is refused, and that models and points spread over them have one device's numbers."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpu.conftest import alike, devices  # noqa: F401 (fixtures)
from random_models import random_models, random_samples
from torch import nn

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Model
from fedscope.cli.main import run
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.samples import Samples
from fedscope.landscape import line, plane

pytestmark = pytest.mark.device

BOTH = "pretend:0,pretend:1"


def network(count: int = 3) -> tuple[nn.Module, list[Model], Samples]:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3)
    )
    return module, random_models(module, count), random_samples(130, (2, 5, 5), seed=1)


def devices_used(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Where outputs are computed from here on."""
    seen, whole = set(), Replica.logits

    def noted(replica: Replica, x: torch.Tensor) -> torch.Tensor:
        seen.add(str(x.device))
        return whole(replica, x)

    monkeypatch.setattr(Replica, "logits", noted)
    return seen


def test_a_compute_of_several_is_its_first_and_knows_all() -> None:
    both = Compute(BOTH)
    assert (both.device, both.name, both.devices) == ("pretend:0", BOTH, ("pretend:0", "pretend:1"))
    assert (both.workers, Compute("pretend:1").workers) == (2, 1)
    assert both.on(1) == Compute("pretend:1")
    assert both.on(0) == Compute("pretend:0") != both
    assert Compute(" pretend:0 , pretend:1") == both
    half = both.in_precision("bf16")
    assert (half.devices, half.precision, half.exact) == (both.devices, "bf16", both)
    assert pickle.loads(pickle.dumps(both)) == both == both.here


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ("pretend:0,pretend:0", "device = 'pretend:0,pretend:0' names pretend:0 twice; name each device once"),
        ("pretend,pretend:0", "device = 'pretend,pretend:0' names pretend:0 twice; name each device once"),
        ("cpu,cpu", "device = 'cpu,cpu' names cpu twice; name each device once"),
        (
            "pretend:0,cpu,pretend:1",
            "device = 'pretend:0,cpu,pretend:1' names devices of 2 kinds, and all must give the same numbers; name "
            "those of one kind, as pretend:0,pretend:1",
        ),
        (
            "pretend:1,pretend:7",
            "device = 'pretend:7' is not here; there are cpu, pretend:0 and pretend:1; use --device pretend",
        ),
        ("pretend:1,", "device = '' is not a device; use auto, cpu, cuda, mps, xpu, or one's number: cuda:1"),
    ],
)
def test_what_is_no_list_of_devices_is_refused(names: str, sentence: str) -> None:
    with pytest.raises(FedscopeError) as refusal:
        Compute(names)
    assert str(refusal.value) == sentence


def test_models_and_outputs_are_those_of_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    module, models, samples = network(40)
    weights = [model.weights for model in models]
    alone = Evaluator(module, samples, compute=Compute("pretend:0"))
    expected, outputs = alone.models(weights), alone.logits(weights, slice(3, 90))
    seen = devices_used(monkeypatch)
    both = Evaluator(module, samples, compute=Compute(BOTH))
    for _ in range(2):  # the second time with the places of the first
        found = both.models(weights)
        assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
        assert torch.equal(both.logits(weights, slice(3, 90)), outputs)
    assert seen == {"pretend:0", "pretend:1"}


@pytest.mark.parametrize("how", [{}, {"normalization": "re-estimate"}, {"normalization": "keep"}])
def test_a_plane_is_that_of_one_device(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module, models, samples = network(4)
    how = {"grid": 9, "shown": models[3:], "calibration": samples, **how}
    alone = plane(module, samples, models[:3], compute=Compute("pretend:1"), **how)
    seen = devices_used(monkeypatch)
    both = plane(module, samples, models[:3], compute=Compute(BOTH), **how)
    assert np.array_equal(both.loss, alone.loss)
    assert np.array_equal(both.error, alone.error)
    assert repr(both.models) == repr(alone.models)
    assert (both.attrs["device"], alone.attrs["device"]) == (BOTH, "pretend:1")
    assert seen == {"pretend:0", "pretend:1"}


def pairs(models: Sequence[Model]) -> list[tuple[Model, Model]]:
    return list(pairwise(models))


def test_a_line_is_that_of_one_device() -> None:
    module, models, samples = network(4)
    alone, both = (
        line(module, samples, pairs(models), betas=11, compute=Compute(where)) for where in ("pretend", BOTH)
    )
    assert np.array_equal(both.loss, alone.loss)
    assert np.array_equal(both.error, alone.error)
    assert both.attrs["device"] == BOTH


def test_where_one_of_two_is_gone_the_other_goes_on_from_the_same_points(tmp_path: Any) -> None:
    module, models, samples = network()
    kept, counted = tmp_path / "line.partial", []

    def stop(done: int, of: int) -> None:
        if done > 12:
            raise KeyboardInterrupt

    whole = line(module, samples, pairs(models), betas=21, compute=Compute("pretend:0"))
    with pytest.raises(KeyboardInterrupt):
        line(module, samples, pairs(models), betas=21, compute=Compute(BOTH), partial=kept, progress=stop)
    rest = line(
        module,
        samples,
        pairs(models),
        betas=21,
        compute=Compute("pretend:1"),
        partial=kept,
        progress=lambda done, of: counted.append(done),
    )
    assert counted[0] > 12
    # other points stand beside each other now, which may change the last bits of a float32
    np.testing.assert_allclose(rest.loss, whole.loss, rtol=1e-6)
    with pytest.warns(FedscopeWarning, match="left by an analysis with other settings"):
        line(module, samples, pairs(models), betas=21, compute=Compute("cpu"), partial=kept)


QUESTIONS = (
    "line r@3 --clients --limit 100",
    "plane r@1/global r@2/global r@3/global --grid 5 --limit 100",
    "decompose r --rounds 3 --draws rounds:2 --limit 100",
    "subsets r --rounds 3 --sizes 1,2 --limit 100",
    "forgetting r --rounds 3",
    "wima r --windows 2,3",
    "reaggregate r@3 --server fedavgm --limit 100",
)


@pytest.fixture(scope="module")
def folder(few_digits: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds of all of its clients, trained on the processor."""
    folder, before = tmp_path_factory.mktemp("several"), Path.cwd()
    words = "train --method fma --clients 4 --participation 1 --rounds 3 --epochs 1 --device cpu --out r"
    os.chdir(folder)
    try:
        assert run([*words.split(), "--set", "model.hidden=[16]", "--set", "record.globals=all"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: words.partition(" ")[0])
def test_a_command_on_two_devices_has_the_numbers_of_one(
    words: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    alike: Callable[..., int],  # noqa: F811
    devices: Callable[[Path], set[str]],  # noqa: F811
) -> None:
    monkeypatch.chdir(folder)
    name = words.partition(" ")[0]
    for place, on in (("one", "pretend:1"), ("two", BOTH)):
        assert run([*words.split(), "--device", on, "--out", f"{name}/{place}/x", "--force"]) == 0
        assert on in devices(folder / name / place)
    assert alike(folder / name / "one", folder / name / "two", 0.0, 72) > 0
