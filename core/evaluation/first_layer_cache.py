"""The first layer along a line or plane: combined from a few outputs computed once, not computed at every point.

A linear layer's output is linear in its weights, so at the point Σ_j c_j w_j it is Σ_j c_j z_j, where z_j are its
outputs of the same inputs under w_j: exact but for float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from threading import local
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..checkpoints import Layout, Weights
from .module_copy import copy_module
from .recorded_names import name_in_layer

# Points combined at a time; always so many, for the last bit of a product may change with its shape.
GROUP = 8
# Bytes combined at a time, with what they are made of: a core's cache has room for them.
CACHED = 2**20
# Products behind one number of the layer's outputs from which on combining it was faster (measured, see worth).
LEAST_PRODUCTS = {nn.Linear: 128, nn.Conv2d: 25}


@dataclass(frozen=True)
class FirstLayer:
    """The place in a module where its inputs first meet weights.

    Attributes:
        layer: the linear layer's name in the module.
        behind: ReLU and max-pooling directly behind it, up to the last pooling: done while their input is in cache.
    """

    layer: str
    behind: tuple[str, ...]

    def parts(self, module: nn.Module) -> list[nn.Module]:
        """Return the layer and what is behind it, in this module."""
        return [module.get_submodule(name) for name in (self.layer, *self.behind)]


def first_layer(module: nn.Module, x: Tensor) -> FirstLayer | None:
    """Find the module's first layer, where its outputs may be put in its place; tried out on the inputs ``x``.

    A plain linear or convolutional layer, called once. What it is given depends on no weight: all are made NaN, and it
    is given the same. Its weights, and what lies between it and the last module ``behind``, serve nothing else: they
    are made NaN, and the module returns the same. So there is none (``None``) where layers share weights, where one is
    used twice, where the weights are computed from others, and where the module changes its weights as it is called.

    >>> first_layer(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.ones(5, 2, 2))
    FirstLayer(layer='1', behind=())
    """
    trial = copy_module(module).eval().requires_grad_(False)
    calls: list[tuple[str, Any, Any]] = []

    def note(name: str) -> Callable[..., None]:
        return lambda part, given, output: calls.append((name, given[0] if given else None, output))

    leaves = {name: part for name, part in trial.named_modules() if not list(part.children())}
    hooks = [part.register_forward_hook(note(name)) for name, part in leaves.items()]
    before = _present(trial)
    with torch.inference_mode():
        expected = trial(x)
        for hook in hooks:
            hook.remove()
        if _present(trial) != before:
            return None
        order = [name for name, *_ in calls]
        layer = next((name for name in order if list(leaves[name].parameters())), None)
        if layer is None or order.count(layer) > 1 or not _plain(leaves[layer]):
            return None
        slices = Layout.of(module).slices
        if any(name_in_layer(module, layer, name) not in slices for name, _ in leaves[layer].named_parameters()):
            return None  # of a tied weight the run has another name
        at = order.index(layer)
        given, outputs, behind = _trace_inputs(trial, layer, x), calls[at][2], []
        for name, seen, after in calls[at + 1 :]:
            if seen is not outputs or not (_pools(leaves[name]) or type(leaves[name]) is nn.ReLU):
                break
            behind.append(name)
            outputs = after
        while behind and not _pools(leaves[behind[-1]]):  # in the rest of the module it costs the same
            behind.pop()
        if not _depends_on_no_weight(trial, layer, x, given):
            return None
        candidates = [FirstLayer(layer, tuple(behind)), FirstLayer(layer, ())]
        return next((found for found in candidates if _is_replaceable(trial, found, x, given, expected)), None)


def _present(module: nn.Module) -> list[tuple[int, int]]:
    """Where the module's parameters lie, and how often each has been written to."""
    return [(value.data_ptr(), value._version) for value in module.parameters()]


def worth(module: nn.Module, first: FirstLayer) -> bool:
    """Check whether combining is faster on a CPU than computing.

    A convolution's outputs are larger than what it reads, so they must become small while they are in cache: without
    pooling behind it a point took 1.2 times as long, with it 0.8 to 0.9 times (25 to 75 products). Linear
    layers with 784 inputs made a point take 0.34 to 0.43 times as long, 256 0.73, 128 0.94, and 64 1.2 times.
    """
    layer = module.get_submodule(first.layer)
    products = next(layer.parameters())[0].numel()
    return products >= LEAST_PRODUCTS[type(layer)] and (type(layer) is nn.Linear or bool(first.behind))


class Entrance:
    """The way into ``module`` behind its first layer: ``entrance(h, x)`` is ``module(x)`` with h standing in for it.

    The module, a private copy, is changed: until then and after, ``module(x)`` does what it always did.
    """

    def __init__(self, module: nn.Module, first: FirstLayer) -> None:
        self._module = module
        self._instead: dict[nn.Module, Tensor] = {}
        self._parts = first.parts(module)
        for part in self._parts:
            part.forward = self._unless_replaced(part, part.forward)

    def __call__(self, h: Tensor, x: Tensor) -> Tensor:
        """Compute outputs of the module for the inputs ``x``, whose first layer with what is behind it gave ``h``."""
        # nobody looks at what lies in between; were it otherwise, it would show
        self._instead = dict.fromkeys(self._parts, h.new_tensor(float("nan"))) | {self._parts[-1]: h}
        try:
            outputs: Tensor = self._module(x)
            return outputs
        finally:
            self._instead = {}

    def _unless_replaced(self, part: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: self._instead[part] if self._instead else forward(*given, **named)


class Spanned:
    """Outputs behind the first layer at Σ_j c_j w_j, for w_j given once and any number of points c.

    The w_j, models or directions, are made orthonormal (QR in float64), so that nothing is lost where they are close
    together or nearly on a line, however great the c_j are.

    Args:
        module: the architecture.
        first: its first layer.
        bases: the w_j.

    Attributes:
        rows: parameters of the layer that span those of all points, float64 [M, p]; not finite where a base is not, and
            then NaN would reach points that do not count that base.
    """

    def __init__(self, module: nn.Module, first: FirstLayer, bases: Sequence[Weights]) -> None:
        self._module, self._first = copy_module(module).eval().requires_grad_(False), first
        self._layer, *self._behind = first.parts(self._module)
        slices = Layout.of(module).slices
        own = [slices[name_in_layer(module, first.layer, name)] for name, _ in self._layer.named_parameters()]
        models = np.array([np.concatenate([w.parameters[at] for at in own]) for w in bases], dtype=np.float64)
        columns, self._r = np.linalg.qr(models.T)
        self._own = local()
        self.rows = columns.T

    def outputs(self, x: Tensor) -> Tensor:
        """Compute the layer's outputs under every row, [M, n, ...], channels last. Not to be called by two threads at
        once."""
        with torch.inference_mode():
            given = _trace_inputs(self._module, self._first.layer, x)
            each = [functional_call(self._layer, self._parameters(row), given) for row in self.rows]
            return torch.stack([_channels_last(z) for z in each])

    def combined(self, outputs: Tensor, coefficients: np.ndarray) -> Tensor:
        """Combine the outputs for up to ``GROUP`` points [N, bases], as an :class:`Entrance` takes them: [N, n, ...].

        The result's memory is used again by this thread's next call.
        """
        c = np.zeros((GROUP, len(self.rows)))
        c[: len(coefficients)] = coefficients @ self._r.T
        factors, points = torch.from_numpy(c).to(outputs), outputs.new_empty(0)
        many = max(1, CACHED // (outputs[0, 0].nbytes * (GROUP + len(outputs))))
        with torch.inference_mode():
            for start in range(0, outputs.shape[1], many):
                some = outputs[:, start : start + many]
                flat = some.flatten(1)
                h = self._room("sums", (GROUP, flat.shape[1]), outputs)
                if flat.device.type != "cpu" or rows_are_alike(len(flat), flat.shape[1], flat.dtype):
                    torch.mm(factors, flat, out=h)
                else:
                    add_up(c, flat, h)
                h = h.view(-1, *some.shape[2:])
                for part in self._behind:
                    h = _max_pool(h, part) if isinstance(part, nn.MaxPool2d) else h.relu_()
                if start == 0:
                    points = self._room("points", (GROUP, outputs.shape[1], *h.shape[1:]), h)
                points[:, start : start + many] = h.reshape(GROUP, -1, *h.shape[1:])
            points = points[: len(coefficients)]
            return points.movedim(-1, 2) if points.dim() > 4 else points

    def _room(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return a tensor of this thread's, the same one again: fresh memory costs a third of the work."""
        have: Tensor | None = getattr(self._own, name, None)
        if have is None or have.shape != shape:
            have = like.new_empty(shape)
            setattr(self._own, name, have)
        return have

    def nbytes(self, x: Tensor) -> int:
        """Count the bytes of :meth:`outputs` of the inputs ``x``, however many points are combined from them."""
        return self.outputs(x[:1]).nbytes * len(x)

    def _parameters(self, row: np.ndarray) -> dict[str, Tensor]:
        own = dict(self._layer.named_parameters())
        parts = torch.split(torch.from_numpy(row), [parameter.numel() for parameter in own.values()])
        return {name: part.view(own[name].shape).to(own[name]) for part, name in zip(parts, own, strict=True)}


@cache
def rows_are_alike(terms: int, columns: int, dtype: torch.dtype) -> bool:
    """Check whether this processor's products [8, terms] · [terms, columns] round a row in the same way wherever it
    stands. Those of MKL that are limited to AVX2 do not: rows that are left over have a kernel of their own.

    >>> isinstance(rows_are_alike(3, 100, torch.float32), bool)
    True
    """
    numbers = torch.Generator().manual_seed(0)
    factors = torch.randn(GROUP, terms, generator=numbers, dtype=torch.float64).to(dtype)
    values = torch.randn(terms, columns, generator=numbers, dtype=torch.float64).to(dtype)
    whole = torch.mm(factors, values)
    orders = (torch.arange(GROUP).roll(by) for by in range(1, GROUP))
    return all(torch.equal(torch.mm(factors[order], values), whole[order]) for order in orders)


def add_up(factors: np.ndarray, values: Tensor, out: Tensor) -> None:
    """Write factors [n, terms] · values [terms, columns], each row by itself.

    >>> out = torch.empty(1, 2)
    >>> add_up(np.array([[2.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0]]), out)
    >>> out.tolist()
    [[2.0, 3.0]]
    """
    for row, own in zip(out, factors.tolist(), strict=True):
        torch.mul(values[0], own[0], out=row)
        for term, factor in zip(values[1:], own[1:], strict=True):
            row.add_(term, alpha=factor)


def _plain(layer: nn.Module) -> bool:
    # hooks can compute the weights from other parameters, as weight_norm does
    return type(layer) in LEAST_PRODUCTS and not layer._forward_pre_hooks and not layer._forward_hooks


class _Given(Exception):
    """Carries a layer's inputs out of a forward pass."""


def _trace_inputs(module: nn.Module, layer: str, x: Tensor) -> Tensor:
    def leave(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        raise _Given(given[0])

    hook = module.get_submodule(layer).register_forward_pre_hook(leave)
    try:
        module(x)
    except _Given as found:
        inputs: Tensor = found.args[0]
        return inputs
    finally:
        hook.remove()
    raise RuntimeError(f"layer {layer!r} was not reached")


def _depends_on_no_weight(trial: nn.Module, layer: str, x: Tensor, given: Tensor) -> bool:
    broken = copy_module(trial)
    for values in broken.state_dict().values():
        if values.is_floating_point():
            values.fill_(float("nan"))
    return torch.equal(_trace_inputs(broken, layer, x), given)


def _is_replaceable(trial: nn.Module, found: FirstLayer, x: Tensor, given: Tensor, expected: Tensor) -> bool:
    h = nn.Sequential(*found.parts(trial))(given)
    broken = copy_module(trial)
    for parameter in broken.get_submodule(found.layer).parameters():
        parameter.fill_(float("nan"))
    try:
        return torch.equal(Entrance(broken, found)(h, x), expected)
    except (RuntimeError, IndexError):  # something wanted more of what lies in between than one number
        return False


def _pools(part: nn.Module) -> bool:
    """Check for a max-pooling over adjacent squares, as :func:`_max_pool` does it."""
    if type(part) is not nn.MaxPool2d or not isinstance(part.kernel_size, int) or part.return_indices:
        return False
    return part.extra_repr() == nn.MaxPool2d(part.kernel_size).extra_repr()


def _max_pool(images: Tensor, pooling: nn.MaxPool2d) -> Tensor:
    """Max-pooling of images [n, height, width, channels]; torch's own also writes down where each maximum was."""
    side = pooling.kernel_size
    assert isinstance(side, int)
    for dim in (1, 2):
        whole = images.shape[dim] // side * side
        images = reduce(torch.maximum, [images[(slice(None),) * dim + (slice(i, whole, side),)] for i in range(side)])
    return images


def _channels_last(z: Tensor) -> Tensor:
    return z.movedim(1, -1).contiguous() if z.dim() > 3 else z
