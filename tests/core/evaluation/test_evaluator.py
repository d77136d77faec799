"""The evaluator against plain torch, and its promise that workers change nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_models import measured_directly, random_models, random_samples
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator, default_batch
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.normalization import Normalization, Points
from fedscope.evaluation.samples import Samples


def convolutional() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 5)
    )


def images(n: int = 130) -> Samples:
    return replace(random_samples(n, (3, 16, 16), 5, seed=2), name="toy")


def weights_of(module: nn.Module, count: int) -> list[Weights]:
    return [model.weights for model in random_models(module, count, 0.3)]


def test_losses_errors_and_logits_are_torchs() -> None:
    module, samples = convolutional(), images()
    models = weights_of(module, 5)
    evaluator = Evaluator(module, samples)
    loss, error = evaluator.models(models)
    logits = evaluator.logits(models, slice(10, 90))
    assert logits.shape == (5, 80, 5)
    assert logits.dtype == torch.float32
    for i, model in enumerate(models):
        own_loss, own_error, own_logits = measured_directly(module, model, samples)
        assert loss[i] == pytest.approx(own_loss, rel=1e-6)
        assert error[i] == own_error
        torch.testing.assert_close(logits[i], own_logits[10:90], rtol=1e-4, atol=1e-5)


def test_one_model_a_matrix_and_a_sequence_mean_the_same() -> None:
    module, samples = convolutional(), images(60)
    models = weights_of(module, 3)
    matrix = Weights(
        models[0].layout,
        np.stack([model.parameters for model in models]),
        {name: np.stack([model.buffers[name] for model in models]) for name in models[0].buffers},
    )
    evaluator = Evaluator(module, samples)
    loss, error = evaluator.models(models)
    assert np.array_equal(evaluator.models(matrix)[0], loss)
    assert np.array_equal(evaluator.models(models[1])[0], loss[1:2])
    assert np.array_equal(evaluator.models(models[1])[1], error[1:2])


def test_numbers_depend_neither_on_workers_nor_on_order() -> None:
    module, samples = convolutional(), images()
    models = weights_of(module, 7)

    def form(i: int, replica: Replica) -> None:
        replica.load(models[i].parameters, models[i].buffers)

    one = {i: rest for i, *rest in Evaluator(module, samples, compute=Compute(workers=1)).evaluate(7, form)}
    order = [6, 0, 3, 5, 1, 2, 4]
    three = list(Evaluator(module, samples, compute=Compute(workers=3)).evaluate(7, form, order))
    assert [i for i, *_ in three] == order
    assert {i: rest for i, *rest in three} == one


def test_the_callers_module_is_not_touched() -> None:
    module, samples = convolutional(), images(50)
    module.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    Evaluator(module, samples).models(weights_of(module, 2))
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_nan_and_infinity_are_kept() -> None:
    module = nn.Linear(1, 2)
    samples = Samples(torch.ones(4, 1), torch.tensor([0, 0, 1, 1]), 2, "toy", "test", np.arange(4))
    layout = Layout.of(module)
    rows = np.array([[0, 0, np.nan, 0], [0, 0, 0, -np.inf], [0, 0, 0, 0]], dtype=np.float32)
    loss, error = Evaluator(module, samples).models(Weights(layout, rows, {}))
    assert np.isnan(loss[0])
    assert error[0] == 1.0, "an output with NaN classifies nothing"
    assert loss[1] == np.inf
    assert loss[2] == pytest.approx(np.log(2))
    assert error[2] == 0.5


def test_combinations_are_float64_sums_rounded_once() -> None:
    module = convolutional()
    models = weights_of(module, 3)
    replica = Replica(module)
    replica.combine(models, (1.7, -0.4, -0.3))
    expected = sum(
        c * model.parameters.astype(np.float64) for c, model in zip((1.7, -0.4, -0.3), models, strict=True)
    ).astype(np.float32)
    assert np.array_equal(replica.w.numpy(), expected)
    state = replica.module.state_dict()
    mean = sum(c * m.buffers["1.running_mean"].astype(float) for c, m in zip((1.7, -0.4, -0.3), models, strict=True))
    np.testing.assert_allclose(state["1.running_mean"], mean, rtol=1e-6)
    variance = sum(c * m.buffers["1.running_var"].astype(float) for c, m in zip((1.7, -0.4, -0.3), models, strict=True))
    assert variance.min() < 0, "the case has a variance to clamp"
    np.testing.assert_allclose(state["1.running_var"], np.maximum(variance, 0), rtol=1e-6)
    assert state["1.num_batches_tracked"] == models[0].buffers["1.num_batches_tracked"]
    assert torch.equal(replica.module[0].weight.reshape(-1), replica.w[: 8 * 27])  # type: ignore[index,union-attr,operator]


def test_a_single_model_is_taken_over_bit_for_bit() -> None:
    module = convolutional()
    models = weights_of(module, 3)
    models[0].parameters[:] = np.nan  # has coefficient 0
    models[1].parameters[0] = -0.0
    replica = Replica(module)
    replica.combine(models, (0.0, 1.0, 0.0))
    assert replica.w.numpy().tobytes() == models[1].parameters.tobytes()
    assert replica.module.state_dict()["1.num_batches_tracked"] == models[1].buffers["1.num_batches_tracked"]


def test_bf16_is_near_float32_and_not_the_same() -> None:
    module, samples = convolutional(), images(60)
    models = weights_of(module, 2)
    exact, _ = Evaluator(module, samples).models(models)
    rough, _ = Evaluator(module, samples, compute=Compute(precision="bf16")).models(models)
    assert not np.array_equal(exact, rough)
    np.testing.assert_allclose(rough, exact, rtol=0.05)


def test_a_bf16_gradient_does_not_depend_on_what_another_thread_does_meanwhile() -> None:
    compute, x = Compute(precision="bf16"), torch.linspace(-1, 1, 256 * 64).view(256, 64)

    def gradient(*, disturbed: bool) -> torch.Tensor:
        torch.manual_seed(0)
        layer = nn.Linear(64, 8)

        def pass_by() -> None:
            with compute.forward():
                pass

        with compute.forward():
            first = layer(x).float().square().mean()
            if disturbed:  # leaving autocast emptied a cache of cast weights that all threads share
                other = threading.Thread(target=pass_by)
                other.start()
                other.join()
            second = layer(2 * x).float().mean()
        (first + second).backward()
        assert layer.weight.grad is not None
        return layer.weight.grad

    assert torch.equal(gradient(disturbed=False), gradient(disturbed=True))


def test_batches_suit_the_layers() -> None:
    assert default_batch(convolutional(), images(), "cpu") == 200  # 16 x 16
    assert default_batch(nn.Linear(2, 2), images(), "cpu") == 1000
    assert default_batch(convolutional(), images(), "cuda") == 10_000


def test_what_cannot_be_evaluated_is_refused() -> None:
    module, samples = convolutional(), images(10)
    with pytest.raises(FedscopeError, match=r"outputs of shape \[1, 5\] .* toy test has 7 classes, so \[1, 7\]"):
        Evaluator(module, Samples(samples.x, samples.y, 7, "toy", "test", samples.indices))
    with pytest.raises(FedscopeError, match="precision 'half' is unknown; take one of float32, tf32, bf16"):
        Compute(precision="half")
    with pytest.raises(FedscopeError, match=r"device = .abacus. is not a device; use auto, cpu, cuda, mps, xpu"):
        Compute(device="abacus")


class Returning(nn.Module):
    """A classifier of three classes whose outputs come in some wrapping."""

    def __init__(self, wrap: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.linear, self.wrap = nn.Linear(2, 3), wrap

    def forward(self, x: torch.Tensor) -> object:
        return self.wrap(self.linear(x))


def flat(n: int = 12) -> Samples:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(4))
    return Samples(x, torch.arange(n) % 3, 3, "toy", "test", np.arange(n))


def fails(outputs: torch.Tensor) -> torch.Tensor:
    raise ValueError("no such key\nand more")


def fails_on_several(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.view(1, 3)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (Returning(lambda y: ()), r"type tuple, not a tensor of logits \[n, 3\], nor such a tensor as .logits, "),
        (Returning(lambda y: (None, y)), r"a value of type tuple, .* or the first of a tuple; wrap it in a module"),
        (Returning(lambda y: {"in": y, "aux": y}), r"returns a value of type dict with in, aux, not a tensor of"),
        (Returning(lambda y: {"logits": [y]}), r"returns a value of type dict with logits, not a tensor of logits"),
        (Returning(lambda y: None), r"returns a value of type NoneType, not"),
        (Returning(lambda y: y.numpy()), r"returns a value of type ndarray, not"),
        (Returning(fails), r"fails on 1 of toy test, each of shape \[2\] \(ValueError: no such key\); give data that"),
        (Returning(fails_on_several), r"fails on 8 of toy test, each of shape \[2\] \(RuntimeError: shape '\[1, 3\]'"),
        (nn.Linear(4, 3), r"each of shape \[2\] \(RuntimeError: mat1 and mat2 .*\); .*nn\.Flatten\(\) makes a vector"),
        (nn.Sequential(nn.LazyLinear(3)), r"the module's 0\.weight has no shape yet; name its sizes \(nn\.Linear for"),
        (nn.Sequential(nn.Linear(2, 3), nn.LazyBatchNorm1d(affine=False)), r"the module's 1\.running_mean has no sha"),
        (nn.Identity(), r"the module has no parameters, so it has no loss surface; give one"),
    ],
)
def test_what_is_no_classifier_of_the_data_is_named(module: nn.Module, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence) as refusal:
        Evaluator(module, flat())
    assert "\n" not in str(refusal.value)


def test_data_of_one_class_are_refused_for_one_output() -> None:
    """A regression model with labels that are all 0: cross-entropy over one output is 0, and its argmax right."""
    constant = Samples(torch.ones(3, 2), torch.zeros(3, dtype=torch.int64), 1, "toy", "test", np.arange(3))
    with pytest.raises(FedscopeError, match=r"toy test has one class, so loss and error are 0 .* two classes, and"):
        Evaluator(nn.Linear(2, 1), constant)
    with pytest.raises(FedscopeError, match=r"toy test has one class, so loss and error are 0 "):
        Evaluator(nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)), constant)  # a number a sample
    zeros = Weights(Layout.of(nn.Linear(2, 4)), np.zeros(12, np.float32), {})
    loss, _ = Evaluator(nn.Linear(2, 4), constant).models([zeros])
    assert loss[0] == pytest.approx(np.log(4)), "of four outputs it is a loss like any other"
    with pytest.raises(
        FedscopeError, match=r"\[1, 1\] .* has 3 classes, so \[1, 3\] is needed; a single output \(regr"
    ):
        Evaluator(nn.Linear(2, 1), flat())


def test_every_set_of_samples_is_tried() -> None:
    wide = Samples(torch.ones(3, 5), torch.tensor([0, 1, 2]), 3, "toy", "train", np.arange(3))
    with pytest.raises(FedscopeError, match=r"fails on 1 of toy train, each of shape \[5\] \(RuntimeError: mat1"):
        Evaluator(nn.Linear(2, 3), [flat(), wide])


@pytest.mark.parametrize(("dtype", "off"), [(np.float64, 1e-13), (np.float16, 3e-3)])
def test_models_of_another_precision_are_evaluated_in_it(dtype: type, off: float) -> None:
    """In half precision inputs and outputs are rounded to 11 bits: 2^-11 of numbers up to 3."""
    module, samples = nn.Linear(2, 3).to(torch.from_numpy(np.zeros(0, dtype)).dtype), flat()
    model = Weights(Layout.of(module), np.linspace(-1, 1, 9).astype(dtype), {})
    loss, error = Evaluator(module, samples).models(model)
    w = model.parameters.astype(np.float64)
    z = samples.x.double().numpy() @ w[:6].reshape(3, 2).T + w[6:]
    expected = np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(12), samples.y.numpy()])
    assert loss[0] == pytest.approx(expected, abs=off)
    assert (loss[0] == pytest.approx(expected, abs=1e-9)) == (dtype is np.float64)
    assert error[0] == np.mean(z.argmax(1) != samples.y.numpy())


def test_no_memory_to_form_a_model_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(replica: Replica, x: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\n2 GiB")

    module, samples = convolutional(), images(20)
    models = weights_of(module, 2)
    points = Points(models, lambda i: (0.5, 0.5), Normalization("re-estimate", samples.x))
    evaluator = Evaluator(module, samples)
    assert len(list(evaluator.evaluate(1, points.interpolate_into))) == 1
    monkeypatch.setattr(Replica, "re_estimate", full)
    sentence = r"cpu has no memory left to form a model, .*--normalization re-estimate.*; free some of it, or give"
    with pytest.raises(FedscopeError, match=sentence) as refusal:
        list(evaluator.evaluate(1, points.interpolate_into))
    assert "\n" not in str(refusal.value)


def test_no_memory_for_the_first_samples_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(replica: Replica, x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Replica, "logits", full)
    with pytest.raises(FedscopeError, match=r"cpu has no memory left for even one sample of toy test; --device cpu"):
        Evaluator(nn.Linear(2, 3), flat())
