"""Models formed layer by layer: the bits of whole ones, or whole ones where a layer's weights are read elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedscope
from fedscope.evaluation import layered_replica
from fedscope.evaluation.device import CPU
from fedscope.evaluation.layered_replica import LayeredReplica
from fedscope.evaluation.places import WorkerPlace
from fedscope.evaluation.samples import Samples


class Tied(nn.Module):
    """A language model whose head is its embedding, with BatchNorm, a parameter of its own and a parametrization."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.inner = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
        self.norm, self.scale = nn.BatchNorm1d(6), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.inner(self.embed(x)).tanh() * self.scale
        return {"logits": self.head(self.norm(h.flatten(0, 1)).view(h.shape))}


class Functional(Tied):
    """Reads the weights of a layer that it does not call."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": functional.linear(self.embed(x) * self.scale, self.embed.weight)}


def nets(kind: type[nn.Module], count: int = 3) -> list[nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = [kind() for _ in range(count)]
        for net in made:
            for name, value in net.named_buffers():
                if name.endswith(("mean", "var")):
                    value.uniform_(0.5, 1.5)
    return made


def texts() -> tuple[np.ndarray, np.ndarray]:
    tokens = np.random.default_rng(0).integers(0, 11, (9, 6))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize("kind", [Tied, Functional])
@pytest.mark.parametrize("normalization", ["interpolate", "re-estimate"])
def test_the_bits_are_those_of_whole_models(
    kind: type[nn.Module], normalization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, data = nets(kind), texts()
    settings: dict[str, Any] = {"data": (data, data), "task": "sequences", "normalization": normalization}

    def asked() -> list[np.ndarray]:
        line = fedscope.line(models[:2], points=5, **settings)
        layers = fedscope.line(models[:2], points=3, layers="each", **settings)
        plane = fedscope.plane(models, grid=4, **settings)
        return [line.loss, line.error, layers.loss, plane.loss]

    whole = asked()
    monkeypatch.setattr(layered_replica, "LARGE", 1)
    formed: list[str] = []
    values = LayeredReplica._values
    monkeypatch.setattr(LayeredReplica, "_values", lambda self, name: (formed.append(name), values(self, name))[1])
    for one, other in zip(whole, asked(), strict=True):
        assert np.array_equal(one, other)
    assert formed


@pytest.mark.parametrize(("kind", "layered"), [(Tied, True), (Functional, False)])
def test_a_module_that_reads_weights_elsewhere_is_formed_whole(
    kind: type[nn.Module], layered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layered_replica, "LARGE", 1)
    x, y = map(torch.from_numpy, texts())
    samples = Samples(x, y, 11, "toy", "test", np.arange(9), task=fedscope.evaluation.standard_tasks.TASKS["sequences"])
    (net,) = nets(kind, 1)
    place = WorkerPlace.holding(net, CPU, [samples])
    assert place.layered is layered
    assert isinstance(place.replicas(1)[0], LayeredReplica) is layered


def test_outside_of_calls_parameters_take_no_memory() -> None:
    (net,) = nets(Tied, 1)
    replica = LayeredReplica(net)
    replica.logits(torch.from_numpy(texts()[0]))
    for value in replica.module.parameters():
        assert value.untyped_storage().nbytes() <= value.element_size()
        assert bool(value.isnan().all())
