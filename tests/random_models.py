"""Models and samples that are drawn and not trained, and how a test interrupts what is measured on them."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase

import numpy as np
import torch
from torch import nn

from fedscope.checkpoints import Layout, Model, Weights
from fedscope.evaluation.samples import Samples


class Table(nn.Module):
    """A model whose logits on sample j are its parameters' row j: any outputs at all, and linear in the weights."""

    def __init__(self, n: int, classes: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(n, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[x[:, 0].long()]


class Padded(nn.Module):
    """A module with further classes that it masks, as a vocabulary that is filled up has them."""

    def __init__(self, inner: nn.Module, more: int = 2) -> None:
        super().__init__()
        self.inner, self.more = inner, more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(self.inner(x), (0, self.more), value=-torch.inf)


def as_padded(models: Weights, module: nn.Module) -> Weights:
    """The same models as those of the padded module."""
    return Weights(Layout.of(Padded(module)), models.parameters, {f"inner.{n}": v for n, v in models.buffers.items()})


def random_models(module: nn.Module, count: int, scale: float = 0.5) -> list[Model]:
    """Models a, b, c, ... of an architecture: normal parameters, positive statistics."""
    layout, draw = Layout.of(module), np.random.default_rng(1)
    models = []
    for name in ascii_lowercase[:count]:
        w = (scale * draw.standard_normal(layout.size)).astype(layout.dtype)
        buffers = {e.name: np.abs(1 + draw.standard_normal(e.shape)).astype(e.dtype) for e in layout.buffers}
        models.append(Model(name, f"runs/x@{name}", Weights(layout, w, buffers), loss=1.5, error=0.25))
    return models


def random_samples(
    n: int, shape: tuple[int, ...], classes: int = 3, *, seed: int = 0, split: str = "test", scale: float = 1.0
) -> Samples:
    """Normal inputs about ``scale`` − 1, and labels that have nothing to do with them."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=draw) * scale + (scale - 1)
    return Samples(x, torch.randint(0, classes, (n,), generator=draw), classes, f"toy{seed}", split, np.arange(n))


def measured_directly(module: nn.Module, model: Weights, samples: Samples) -> tuple[float, float, torch.Tensor]:
    """Loss, error and outputs of a model, by torch alone; the module then holds its values."""
    module.load_state_dict({name: torch.from_numpy(np.array(values)) for name, values in model.arrays().items()})
    module.eval()
    with torch.no_grad():
        outputs = module(samples.x)
    loss = nn.functional.cross_entropy(outputs.double(), samples.y)
    return float(loss), float((outputs.argmax(1) != samples.y).double().mean()), outputs


def interrupt_at(count: int) -> Callable[[int, int], None]:
    """A progress that presses Ctrl-C when so many points are done."""

    def progress(done: int, of: int) -> None:
        if done == count:
            raise KeyboardInterrupt

    return progress
