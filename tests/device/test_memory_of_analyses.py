"""Analyses on a device whose memory runs out: in halves where work is in batches, else one sentence, and never a wrong
number."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from device.pretend import limit, loaded
from torch import nn

from fedscope import Samples
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout, Weights, stack
from fedscope.checkpoints.models.weights import tensors_of
from fedscope.decomposition.cka.pairs import batch_hsics
from fedscope.decomposition.dispersion.statistics import column_moments
from fedscope.decomposition.parameters.tsne import fit_map
from fedscope.decomposition.theory.outputs import locality_gaps
from fedscope.decomposition.theory.tangent import tangent_kernel
from fedscope.evaluation.device import CPU, Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.landscape.curvature.derivatives import Derivatives

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("limited")]

#: bytes that an analysis may take; from next to nothing to more than any of these needs
ROOMS = (64, 4_000, 20_000, 60_000, 100_000, 150_000, 400_000, 1_000_000, 3_000_000, 10_000_000, 60_000_000)


@pytest.fixture(scope="module", autouse=True)
def quickly_collected() -> Iterator[None]:
    """What was there before is not looked through each time that memory is given back."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def network(channels: int = 4) -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*convolution, nn.Flatten(), nn.Linear(16 * channels, 5))


def some_samples(count: int) -> Samples:
    draw = torch.Generator().manual_seed(count)
    x, y = torch.randn(count, 1, 8, 8, generator=draw), torch.randint(0, 5, (count,), generator=draw)
    return Samples(x, y, 5, "toy", "test", np.arange(count))


def clients(module: nn.Module, count: int) -> Weights:
    layout, draw = Layout.of(module), np.random.default_rng(0)
    one = layout.flatten({name: value.detach().numpy() for name, value in tensors_of(module).items()})
    moves = 0.1 * draw.standard_normal((count, layout.size))
    return stack([Weights(layout, (one.parameters + move).astype(np.float32), one.buffers) for move in moves])


def gradient(compute: Compute) -> Callable[[], Any]:
    module = network()
    return lambda: Derivatives(module, some_samples(300), compute=compute).gradient(clients(module, 1).row(0))[1]


def products(compute: Compute) -> Callable[[], Any]:
    module = network()
    derivatives = Derivatives(module, some_samples(300), compute=compute)
    model, v = clients(module, 1).row(0), np.random.default_rng(1).standard_normal((3, Layout.of(module).size))
    return lambda: derivatives.products(model, v)


def kernel(compute: Compute) -> Callable[[], Any]:
    module, x = network(), some_samples(70).x
    return lambda: tangent_kernel(module, x, clients(module, 1).row(0), dimension=16, compute=compute)


def gaps(compute: Compute) -> Callable[[], Any]:
    module, part, p = network(), some_samples(300), np.array([0.5, 0.25, 0.25])

    def gaps() -> Any:
        found = locality_gaps(module, part, clients(module, 3), p, round=1, shrink=(1.0, 0.5), compute=compute)
        return [(one.gap, one.scale, one.distance) for one in found]

    return gaps


def moments(compute: Compute) -> Callable[[], Any]:
    values = np.random.default_rng(0).standard_normal((9, 200_000)).astype(np.float32)

    def moments() -> Any:
        found = column_moments(values, compute.device)
        return [found.mean, found.deviation, found.skewness, found.kurtosis]

    return moments


def similarity(compute: Compute) -> Callable[[], Any]:
    module = network(32)
    evaluator, cohort = Evaluator(module, some_samples(120), compute=compute), clients(module, 3)
    return lambda: batch_hsics(evaluator, module, [cohort.row(i) for i in range(3)], batch=40)


@dataclass(frozen=True)
class Case:
    """What is asked, how far numbers may be from the processor's as a share of the greatest, and whether it goes on in
    halves."""

    ask: Callable[[Compute], Callable[[], Any]]
    relative: float
    halves: bool


# float32 sums over other batches; of the kernel float32 of the projections; the others are float64
CASES = {
    "gradient": Case(gradient, 1e-5, True),
    "products": Case(products, 1e-4, True),
    "kernel": Case(kernel, 1e-6, True),
    "gaps": Case(gaps, 1e-10, True),
    "moments": Case(moments, 1e-10, False),
    "similarity": Case(similarity, 1e-5, True),
}


def outcome(ask: Callable[[], Any], room: int, expected: Any, relative: float) -> str:
    """What becomes of it with so many bytes: ``well``, ``halved`` with a warning, or ``refused`` in a sentence."""
    gc.collect()
    limit(loaded().held() + room)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found, refusal = ask(), ""
        except FedscopeError as error:
            found, refusal = None, str(error)
        finally:
            limit(None)
    if refusal:
        assert "has no memory left" in refusal
        return "refused"
    np.testing.assert_allclose(found, expected, rtol=0, atol=relative * np.abs(expected).max())
    halved = [
        one for one in said if isinstance(one.message, FedscopeWarning) and "ran out of memory" in str(one.message)
    ]
    return "halved" if halved else "well"


@pytest.mark.parametrize("name", CASES)
def test_an_analysis_without_memory_goes_on_in_halves_or_says_so(pretend: str, name: str) -> None:
    case = CASES[name]
    expected = case.ask(CPU)()
    ask = case.ask(Compute(os.environ["FEDSCOPE_DEVICE"]))
    found = [outcome(ask, room, expected, case.relative) for room in ROOMS]
    assert found[0] == "refused", found
    assert found[-1] == "well", found
    assert ("halved" in found) == case.halves, found
    # nothing that failed before is left over
    assert outcome(ask, ROOMS[-1], expected, case.relative) == "well"


def test_a_recurrent_kernel_without_memory_is_refused_alike(pretend: str) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            head: torch.Tensor = self.head(self.cells(x[:, 0])[0][:, -1])
            return head

    module, x = Recurrent(), some_samples(6).x
    model, compute = clients(module, 1).row(0), Compute(os.environ["FEDSCOPE_DEVICE"])
    expected = tangent_kernel(module, x, model, dimension=16)
    found = [
        outcome(lambda: tangent_kernel(module, x, model, dimension=16, compute=compute), room, expected, 1e-6)
        for room in (64, 20_000, 30_000, 40_000, 60_000, 100_000, 10_000_000)
    ]
    assert found[0] == "refused"
    assert found[-1] == "well"


def test_a_map_of_parameters_that_memory_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class TSNE:
        def __init__(self, **_: object) -> None: ...

        def fit_transform(self, points: np.ndarray) -> np.ndarray:
            raise RuntimeError("CUDA error: out of memory")

    package = ModuleType("torchdr")
    package.TSNE = TSNE  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchdr", package)
    points = np.random.default_rng(0).standard_normal((40, 3))
    with pytest.raises(FedscopeError, match=r"cuda has no memory left to embed 40 points; take .* --backend sklearn"):
        fit_map(points, perplexity=5.0, backend="torchdr", device="cuda")
