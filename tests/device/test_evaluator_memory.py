"""Evaluation on a device whose memory runs out: smaller batches, or one sentence; never torch's own error."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from device.pretend import limit, loaded
from random_models import random_models, random_samples
from torch import nn

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Weights
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator, default_batch
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.samples import Samples
from fedscope.landscape import plane

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("limited")]

#: the samples take 0.6 MB, the model 0.3 MB, the outputs of its first layer 16 kB a sample
SAMPLES = 200
FIRST = 16 * 16 * 16 * 4


def network() -> tuple[nn.Module, Samples, list[Weights]]:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(256, 256), nn.Linear(256, 5)
    )
    return module, random_samples(SAMPLES, (3, 16, 16), 5), [model.weights for model in random_models(module, 3)]


@pytest.fixture(autouse=True)
def nothing_else_held() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


def allow(size: int) -> None:
    gc.collect()
    limit(loaded().held() + size)


@pytest.mark.parametrize("images", [2000, 150, 20, 5])
def test_with_less_memory_batches_are_smaller_and_numbers_the_same(images: int) -> None:
    module, samples, models = network()
    compute = Compute("pretend")
    expected = Evaluator(module, samples, compute=compute).models(models)
    outputs = Evaluator(module, samples, compute=compute).logits(models, slice(0, SAMPLES))
    for what in ("models", "logits"):
        evaluator = Evaluator(module, samples, compute=compute)
        allow(int(2.5 * FIRST * images) + 400_000)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if what == "models":
                loss, error = evaluator.models(models)
                np.testing.assert_allclose(loss, expected[0], rtol=1e-6)
                assert np.array_equal(error, expected[1])
            else:
                # a sum of 256 products is rounded by what it sums, not by what is left of it
                atol = 2e-6 * float(outputs.abs().max())
                torch.testing.assert_close(evaluator.logits(models, slice(0, SAMPLES)), outputs, rtol=1e-5, atol=atol)
        limit(None)
        sentences = [str(one.message) for one in said if issubclass(one.category, FedscopeWarning)]
        assert bool(sentences) == (images < SAMPLES), (what, sentences)
        if sentences:
            assert sentences[0] == "pretend ran out of memory with 200 samples at a time; going on with 100"
            assert evaluator.batch <= images * 2.5


@pytest.mark.parametrize("size", [400_000, 1_200_000, 4_000_000])
def test_models_in_one_pass_take_smaller_batches_likewise(size: int) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3))
    samples = random_samples(2000, (1, 3, 4))
    models = [model.weights for model in random_models(module, 11)]
    expected = Evaluator(module, samples, compute=Compute("pretend")).models(models)
    evaluator = Evaluator(module, samples, compute=Compute("pretend"))
    allow(size)
    with pytest.warns(FedscopeWarning, match="ran out of memory with 2,000 samples at a time; going on with 1,000"):
        loss, error = evaluator.models(models)
    limit(None)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-6)
    np.testing.assert_allclose(error, expected[1], rtol=1e-9)
    assert evaluator.batch < 2000 * size / 4_000_000 * 2


def test_at_every_limit_a_plane_is_measured_or_refused_in_one_sentence() -> None:
    module, samples, _ = network()
    models = random_models(module, 3)
    expected = plane(module, samples, models, grid=3, compute=Compute("pretend")).loss
    ends = []
    for size in (10_000, 200_000, 350_000, 500_000, 900_000, 1_300_000, 2_000_000, 3_000_000, 5_000_000, 50_000_000):
        allow(size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = plane(module, samples, models, grid=3, compute=Compute("pretend")).loss
                np.testing.assert_allclose(found, expected, rtol=1e-6)
                ends.append("measured")
            except FedscopeError as error:
                ends.append(str(error))
        limit(None)
    assert all(end == "measured" or end.startswith("pretend has no memory left ") for end in ends)
    assert not any("\n" in end for end in ends)
    assert ends[0] == "pretend has no memory left to hold a copy of the model; free some of it, or give --device cpu"
    assert any("to hold the 200 samples of toy0 test; give fewer (--limit), or --device cpu" in end for end in ends)
    assert ends[-2:] == ["measured"] * 2
    assert len(set(ends)) >= 4, "the limits meet too few of the places where memory is taken"


@pytest.mark.parametrize("said", ["cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory"])
def test_a_library_that_runs_out_of_memory_is_understood_likewise(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, samples, models = network()
    expected = Evaluator(module, samples, batch=50, compute=Compute("pretend"))
    whole = Replica.logits

    def small(replica: Replica, x: torch.Tensor) -> torch.Tensor:
        if len(x) > 50:
            raise RuntimeError(said)
        return whole(replica, x)

    monkeypatch.setattr(Replica, "logits", small)
    for what in (lambda e: e.models(models)[0], lambda e: e.logits(models, slice(0, SAMPLES))):
        evaluator = Evaluator(module, samples, compute=Compute("pretend"))
        with pytest.warns(FedscopeWarning) as heard:
            found = what(evaluator)
        assert [str(one.message).rpartition("; ")[2] for one in heard] == ["going on with 100", "going on with 50"]
        assert evaluator.batch == 50
        assert np.array_equal(np.asarray(found), np.asarray(what(expected)))

    def other(replica: Replica, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Replica, "logits", other)
    with pytest.raises(RuntimeError, match="illegal memory"):
        evaluator.models(models)
    with pytest.raises(RuntimeError, match="illegal memory"):
        evaluator.logits(models, slice(0, SAMPLES))


def test_no_memory_for_one_sample_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    module, samples, models = network()
    evaluator = Evaluator(module, samples, compute=Compute("pretend"))

    def none(replica: Replica, x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Replica, "logits", none)
    sentence = "pretend has no memory left for even one sample of toy0 test at a time; --device cpu always can"
    for what in (lambda: evaluator.models(models), lambda: evaluator.logits(models, slice(0, SAMPLES))):
        evaluator.batch = 4
        with pytest.warns(FedscopeWarning), pytest.raises(FedscopeError) as refusal:
            what()
        assert str(refusal.value) == sentence
    with pytest.raises(FedscopeError, match="pretend has no memory left to compute the outputs of 8 samples; free"):
        evaluator.answers(models[0], 8)


def test_a_batch_is_of_the_samples_and_not_of_the_card() -> None:
    def batch(*shape: int) -> int:
        return default_batch(nn.Linear(2, 2), random_samples(3, shape), "pretend")

    assert batch(3, 32, 32) == batch(1, 28, 28) == batch(784) == 10_000
    assert batch(1, 64, 64) == batch(3, 64, 64) == 2_500
    assert batch(3, 224, 224) == 204
