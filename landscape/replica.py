"""A worker's own copy of a module, in which a model is formed in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from ..checkpoints import FedscopeError, Layout, Weights

PRECISIONS = ("float32", "tf32", "bf16")

# So many parameters are combined at a time: their float64 sum stays in cache, whatever the size of the model.
CHUNK = 65_536


class Replica:
    """A private copy of ``module`` in evaluation mode, whose parameters are views of one vector.

    Writing to :attr:`w` changes the model, so forming one costs a pass over [P] and no copies of layers.

    Attributes:
        w: the parameters, [P], in the order of ``Layout.of(module)``.

    Raises:
        FedscopeError: a precision that is none of float32, tf32, bf16.
    """

    def __init__(self, module: nn.Module, device: str = "cpu", precision: str = "float32") -> None:
        if precision not in PRECISIONS:
            raise FedscopeError(f"precision {precision!r} is unknown; take one of {', '.join(PRECISIONS)}")
        self.layout = Layout.of(module)
        self.device = torch.device(device)
        self.precision = precision
        self.module = deepcopy(module).to(self.device).eval().requires_grad_(False)
        own = dict(self.module.named_parameters(remove_duplicate=False))
        dtype = next(iter(own.values())).dtype
        self.w = torch.zeros(self.layout.size, dtype=dtype, device=self.device)
        for name, where in self.layout.slices.items():
            parameter = own[name]
            self.w[where] = parameter.data.reshape(-1)
            parameter.data = self.w[where].view(parameter.shape)
        # state_dict shares storage, and holds the buffers that a layout counts (the persistent ones)
        state = self.module.state_dict()
        self._buffers = {entry.name: state[entry.name] for entry in self.layout.buffers}

    def load(self, parameters: np.ndarray | Tensor, buffers: Mapping[str, np.ndarray]) -> None:
        """Take over one model: parameters [P] and its buffers by name."""
        self.w.copy_(torch.as_tensor(parameters))
        for name, values in buffers.items():
            self._buffers[name].copy_(torch.as_tensor(np.asarray(values)))

    def combine(self, models: Sequence[Weights], coefficients: Sequence[float]) -> None:
        """Form Σ_i c_i w_i in float64, rounded once; coefficients (0, 1, 0) give the second model bit for bit.

        Float buffers are combined alike, running variances not below 0; integer buffers are the first model's.
        Non-finite values of a model with coefficient 0 do not count.
        """
        terms = [(c, model) for c, model in zip(coefficients, models, strict=True) if c != 0.0]
        if len(terms) == 1 and terms[0][0] == 1.0:
            self.load(terms[0][1].parameters, terms[0][1].buffers)
            return
        terms = terms or [(0.0, models[0])]
        vectors = [(c, torch.from_numpy(model.parameters)) for c, model in terms]
        for start in range(0, self.layout.size, CHUNK):
            here = slice(start, start + CHUNK)
            self.w[here] = _weighted_sum([(c, vector[here].to(self.device)) for c, vector in vectors])
        for name, target in self._buffers.items():
            if not target.dtype.is_floating_point:
                target.copy_(torch.as_tensor(np.asarray(models[0].buffers[name])))
                continue
            value = _weighted_sum([(c, torch.as_tensor(np.asarray(m.buffers[name]))) for c, m in terms])
            if name.endswith("running_var"):  # an affine combination outside the anchors may leave what a variance is
                value = value.clamp(min=0.0)
            target.copy_(value)

    def logits(self, x: Tensor) -> Tensor:
        """The model's outputs for inputs as :meth:`prepare` made them, [n, classes]."""
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            for context in self._arithmetic():
                stack.enter_context(context)
            output: Tensor = self.module(x)
            return output

    def prepare(self, x: Tensor) -> Tensor:
        """Inputs on the device, in the parameters' dtype, images channels-last (measured: three times as fast)."""
        x = x.to(device=self.device, dtype=self.w.dtype if x.is_floating_point() else None)
        return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x

    def _arithmetic(self) -> list[AbstractContextManager[object]]:
        contexts: list[AbstractContextManager[object]] = []
        if self.device.type == "cuda":
            contexts.append(_tf32(self.precision == "tf32"))
        if self.precision == "bf16":
            contexts.append(torch.autocast(self.device.type, torch.bfloat16))
        return contexts


def _weighted_sum(terms: Sequence[tuple[float, Tensor]]) -> Tensor:
    total = terms[0][1].double() * terms[0][0]
    for coefficient, tensor in terms[1:]:
        # not alpha=, which fuses the two roundings on some processors
        total += tensor.double() * coefficient
    return total


class _tf32(AbstractContextManager[None]):
    """Matrix products and convolutions with or without TF32; torch's own default has it on for convolutions."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed

    def __enter__(self) -> None:
        self.before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        self._set(self.allowed, self.allowed)

    def __exit__(self, *_: object) -> None:
        self._set(*self.before)

    @staticmethod
    def _set(products: bool, convolutions: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = products
        torch.backends.cudnn.allow_tf32 = convolutions
