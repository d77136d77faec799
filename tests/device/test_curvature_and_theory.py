"""Second derivatives and tangent kernels on the pretend accelerator: layers that cuDNN does not differentiate, numbers,
memory, waits and copies."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from device.pretend import Seen, install, watch
from torch import nn

from fedscope import Samples
from fedscope.checkpoints import FedscopeError, Layout, Weights, stack
from fedscope.checkpoints.models.weights import tensors_of
from fedscope.decomposition.cka.pairs import batch_hsics
from fedscope.decomposition.theory.outputs import locality_gaps
from fedscope.decomposition.theory.tangent import tangent_kernel
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.trainable_parameters import trained_parameters
from fedscope.landscape.curvature.derivatives import Derivatives

pytestmark = pytest.mark.device


class Recurrent(nn.Module):
    """A classifier of sequences of three numbers, by its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head: torch.Tensor = self.head(self.cells(x)[0][:, -1])
        return head


def weights(module: nn.Module) -> Weights:
    layout = Layout.of(module)
    return layout.flatten({name: value.detach().numpy() for name, value in tensors_of(module).items()})


def samples(count: int, *shape: int, classes: int = 2) -> Samples:
    draw = torch.Generator().manual_seed(count)
    x, y = torch.randn(count, *shape, generator=draw), torch.randint(0, classes, (count,), generator=draw)
    return Samples(x, y, classes, "toy", "test", np.arange(count))


@pytest.fixture
def device(pretend: str) -> str:
    """The one of the two that was asked for."""
    return os.environ["FEDSCOPE_DEVICE"]


@pytest.fixture
def newer_flags() -> Iterator[None]:
    """The caller has said by torch's newer interface how convolutions multiply."""
    conv = torch.backends.cudnn.conv
    if not hasattr(conv, "fp32_precision"):
        pytest.skip(f"torch {torch.__version__} has no such interface")
    before = conv.fp32_precision
    conv.fp32_precision = "ieee"
    yield
    conv.fp32_precision = before


@pytest.mark.parametrize("frozen", [False, True])
def test_the_kernel_of_a_recurrent_classifier_is_the_processors(device: str, frozen: bool) -> None:
    torch.manual_seed(0)
    module, x = Recurrent(), samples(5, 6, 3).x
    module.head.requires_grad_(not frozen)
    expected = tangent_kernel(module, x, weights(module), dimension=16)
    found = tangent_kernel(module, x, weights(module), dimension=16, compute=Compute(device))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert torch.backends.cudnn.enabled


def test_recurrent_layers_are_differentiated_whatever_flags_the_caller_has_set(device: str, newer_flags: None) -> None:
    torch.manual_seed(0)
    module, part = Recurrent(), samples(5, 6, 3)
    for where in ("cpu", device):
        _, gradient = Derivatives(module, part, compute=Compute(where)).gradient(weights(module))
        assert np.isfinite(gradient).all()
    assert torch.backends.cudnn.conv.fp32_precision == "ieee"
    assert torch.backends.cudnn.enabled


def convolutions() -> nn.Module:
    """Layers with and without statistics, the last one frozen."""
    torch.manual_seed(0)
    first = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    module = nn.Sequential(*first, nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(16, 5))
    module[8].bias.requires_grad_(False)
    return module


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 5))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head: torch.Tensor = self.head(self.layer(x[:, 0]).mean(dim=1))
        return head


class Looked(nn.Module):
    """Looks at its numbers, which torch cannot vectorise."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = nn.Linear(64, 5), nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        chosen: torch.Tensor = self.one(x) if bool(x.sum() > 0) else self.other(x)
        return chosen


MODULES = {"perceptron": perceptron, "convolutions": convolutions, "attention": Attention, "looked": Looked}


@pytest.mark.parametrize("dimension", [16, 10**6])
@pytest.mark.parametrize("name", MODULES)
def test_the_kernel_is_the_processors(device: str, name: str, dimension: int) -> None:
    module, x = MODULES[name](), samples(70, 1, 8, 8).x
    expected = tangent_kernel(module, x, weights(module), dimension=dimension)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where it goes sample by sample after all
        found = tangent_kernel(module, x, weights(module), dimension=dimension, compute=Compute(device))
    assert torch.backends.mha.get_fastpath_enabled()
    # projected gradients are float32, and sums of float64 come in another order
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", MODULES)
def test_derivatives_are_the_processors(device: str, name: str) -> None:
    module, part = MODULES[name](), samples(70, 1, 8, 8, classes=5)
    trained = trained_parameters(module)
    model, v = weights(module), np.random.default_rng(0).standard_normal((3, Layout.of(module).size))
    here = Derivatives(module, part, trained=trained)
    there = Derivatives(module, part, compute=Compute(device), trained=trained)
    for found, expected in (
        (there.gradient(model)[1], here.gradient(model)[1]),
        (there.products(model, v), here.products(model, v)),
        (there.gradient(model, model.parameters * 1.5)[1], here.gradient(model, model.parameters * 1.5)[1]),
        (there.products(model, v[:1]), here.products(model, v[:1])),
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def copies(seen: Seen, kind: str, place: str) -> int:
    """How often something was copied in a part of the package."""
    return sum(n for (what, _, where), n in seen.places.items() if what == kind and where.startswith(place))


def test_a_kernel_takes_one_copy_a_chunk_and_a_twentieth_of_the_operators(device: str) -> None:
    """One pass a sample took 37 operators for each of its outputs, and a copy a sample in either direction."""
    module, x = perceptron(), samples(128, 1, 8, 8).x
    with watch("fedscope") as seen:
        tangent_kernel(module, x, weights(module), dimension=16, compute=Compute(device))
    assert sum(seen.operators.values()) < 37 * 5 * len(x) / 20
    assert copies(seen, "from device", "") == 3  # two chunks, and the kernel
    assert copies(seen, "wait", "") == 0
    assert copies(seen, "to device", "evaluation/model_replica.py") <= 6 + 1 + 2  # tensors, the model, two chunks
    assert not seen.unordered


def test_a_gap_sends_each_client_once_and_waits_once(device: str) -> None:
    module, part, draw = perceptron(), samples(1200, 1, 8, 8, classes=5), np.random.default_rng(0)
    one = weights(module)
    moves = 0.1 * draw.standard_normal((4, one.layout.size))
    clients = stack([Weights(one.layout, (one.parameters + move).astype(np.float32), {}) for move in moves])
    how = {"round": 1, "shrink": (1.0, 0.5, 0.25)}
    expected = locality_gaps(module, part, clients, np.full(4, 0.25), **how)
    with watch("fedscope") as seen:
        found = locality_gaps(module, part, clients, np.full(4, 0.25), compute=Compute(device), **how)
    np.testing.assert_allclose([one.gap for one in found], [one.gap for one in expected], rtol=1e-10)
    # clients and their mean, and the mean again as a model
    assert copies(seen, "to device", "decomposition/theory/outputs.py") == 5 + 1  # and the targets
    assert copies(seen, "from device", "decomposition") == 1
    assert copies(seen, "wait", "decomposition") == 0


def test_products_send_the_model_once_and_are_summed_there(device: str) -> None:
    module, part = perceptron(), samples(4500, 1, 8, 8, classes=5)
    model, draw = weights(module), np.random.default_rng(0)
    derivatives = Derivatives(module, part, compute=Compute(device))
    with watch("fedscope") as seen:
        for _ in range(7):
            derivatives.products(model, draw.standard_normal((2, model.layout.size)))
    assert copies(seen, "to device", "evaluation/model_replica.py") == 1
    assert copies(seen, "to device", "") == 1 + 7
    # the other two: a few samples and their targets, which second derivatives are tried out on first
    assert copies(seen, "from device", "") == 7 + 2
    # directions travel in the model's own type
    assert sum(size for (kind, *_), size in seen.size.items() if kind == "to device") == 4 * 15 * model.layout.size


def test_without_float64_derivatives_are_summed_on_the_processor(without_float64: str) -> None:
    module, part = convolutions(), samples(70, 1, 8, 8, classes=5)
    model, v = weights(module), np.random.default_rng(0).standard_normal((2, Layout.of(module).size))
    here, there = Derivatives(module, part), Derivatives(module, part, compute=Compute(without_float64))
    np.testing.assert_allclose(there.gradient(model)[1], here.gradient(model)[1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(there.products(model, v), here.products(model, v), rtol=0, atol=1e-5)


def test_without_float64_theory_is_refused_in_a_sentence(without_float64: str) -> None:
    module, part, compute = perceptron(), samples(8, 1, 8, 8, classes=5), Compute(without_float64)
    with pytest.raises(
        FedscopeError, match=r"^a tangent kernel is computed in float64, which pretend does not have; .*--device cpu"
    ):
        tangent_kernel(module, part.x, weights(module), compute=compute)
    two = stack([weights(module)] * 2)
    with pytest.raises(FedscopeError, match=r"^the gap of Lemma 1 is computed in float64, which pretend does not have"):
        locality_gaps(module, part, two, np.full(2, 0.5), round=1, compute=compute)


def test_without_float64_kernels_of_features_are_made_on_the_processor(without_float64: str) -> None:
    module, part = convolutions(), samples(48, 1, 8, 8, classes=5)
    draw, one = np.random.default_rng(0), weights(module)
    moves = 0.1 * draw.standard_normal((3, one.layout.size))
    models = [Weights(one.layout, (one.parameters + move).astype(np.float32), one.buffers) for move in moves]

    install()  # an evaluator of its own sums in float64 when it tries the module out
    there = Evaluator(module, part, compute=Compute(without_float64))
    install(without_float64=True)
    (found,), (expected,) = (
        batch_hsics(evaluator, module, models, batch=16) for evaluator in (there, Evaluator(module, part))
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
