"""Private copies of a module, into which models are written in place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import overload

import numpy as np
import torch
from torch import Tensor, nn

from ..checkpoints import FedscopeError, Layout, Weights
from .accelerators import has_float64, refuse_without_memory
from .bound_tensors import BoundTensors
from .device import CPU, Compute
from .first_layer_cache import Entrance, FirstLayer
from .module_copy import copy_module, to_device
from .normalization import re_estimate
from .uint8_images import Inputs, Uint8Images

# So many parameters are combined at a time: their float64 sum stays in cache, whatever the size of the model.
CHUNK = 65_536
# An accelerator does with few operators what it can; but for what that takes besides the models.
DEVICE_CHUNK = 2**26
# So many models stay on the device, a plane has three; there more, as many as these bytes hold.
KEPT = 4
KEPT_BYTES = 2**30


class FlatModule:
    """A copy of ``module`` on a device, its parameters bound to one vector: writing to :attr:`w` changes the model.

    Args:
        hooked: whether it keeps hooks of a backward pass, which training does: what is measured are the derivatives of
            the function, which no hook changes.

    Attributes:
        layout: of the module.
        original: what was copied.
        module: the copy.
        w: the parameters, [P], in the order of the layout.
    """

    def __init__(self, module: nn.Module, compute: Compute = CPU, *, hooked: bool = False) -> None:
        self.compute, self.original = compute, module
        self.layout = Layout.of(module)
        self.device = torch.device(self.compute.device)
        refuse_float64(module, self.compute.device)
        self.module = to_device(copy_module(module, hooked=hooked), self.device)
        named = dict(self.module.named_parameters(remove_duplicate=False))
        dtype = reduce(torch.promote_types, [named[name].dtype for name in self.layout.slices])
        self.w = torch.zeros(self.layout.size, dtype=dtype, device=self.device)
        for name, where in self.layout.slices.items():
            parameter = named[name]
            self.w[where] = parameter.data.reshape(-1)
            if parameter.dtype != dtype:  # each counts in one vector, which has the most exact type of all
                parameter.data = parameter.data.to(dtype)
            parameter.data = self.w[where].view(parameter.shape)
        # state_dict shares storage, and holds the buffers that a layout counts (the persistent ones)
        state = self.module.state_dict()
        self._buffers = {entry.name: state[entry.name] for entry in self.layout.buffers}
        self._bound = BoundTensors(self.module, self.layout)

    def load(self, parameters: np.ndarray | Tensor, buffers: Mapping[str, np.ndarray]) -> None:
        """Take over one model: parameters [P] and its buffers by name; nothing stays of the one before, nor of what
        its forward passes made of it."""
        self._bound.put_back()
        self.w.copy_(torch.as_tensor(parameters))
        for name, values in buffers.items():
            self._buffers[name].copy_(torch.as_tensor(np.asarray(values)))

    def settle(self) -> None:
        """Bring parameters and buffers that a forward pass has put elsewhere (``self.weight.data = ...``) back."""
        self._bound.settle()

    def buffers(self) -> dict[str, np.ndarray]:
        """Return copies of the present model's buffers, by name."""
        self.settle()
        return {name: values.detach().cpu().numpy().copy() for name, values in self._buffers.items()}

    @overload
    def prepare(self, x: Tensor) -> Tensor: ...
    @overload
    def prepare(self, x: Inputs) -> Inputs: ...
    def prepare(self, x: Inputs) -> Inputs:
        """Inputs on the device, in the parameters' dtype, images channels-last (measured: three times as fast).

        Bytes are standardised here where there is room for all, else a batch at a time.
        """
        dtype = self.w.dtype if x.is_floating_point() else None
        if isinstance(x, Uint8Images):
            return x.to(self.device, dtype).held()
        # cast first where the device may lack what they are given in
        x = x.to(dtype or x.dtype).to(self.device) if self.compute.is_gpu else x.to(device=self.device, dtype=dtype)
        return channels_last(x) if x.dim() == 4 else x

    def targets(self, y: Tensor) -> Tensor:
        """Targets on the device, there in float32 where they are float64 and it has none."""
        if y.dtype == torch.float64 and not has_float64(self.compute.device):
            y = y.float()
        return y.to(self.device)


def refuse_float64(module: nn.Module, device: str) -> None:
    """Refuse a module in float64 on a device that has none.

    Raises:
        FedscopeError: names the first such parameter or buffer.
    """
    named = (*module.named_parameters(), *module.named_buffers())
    double = next((name for name, values in named if values.dtype in (torch.float64, torch.complex128)), None)
    if double is not None and not has_float64(device):
        raise FedscopeError(
            f"the module's {double} is float64, and {device} has no float64; give --device cpu, or a module in float32 "
            "(module.float())"
        )


def channels_last(x: Tensor) -> Tensor:
    """Images [n, c, h, w] with the channels of a pixel side by side in memory: convolutions are fast in that layout.

    Images of one channel pass for that in any layout, so torch leaves them in the slow one; they are copied (measured:
    a convolutional network evaluates them 3.4 times as fast, and trains 1.5 times as fast).

    >>> channels_last(torch.ones(2, 1, 3, 4)).stride()
    (12, 1, 4, 1)
    """
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


class Replica(FlatModule):
    """A private copy of ``module`` in evaluation mode, whose parameters are views of one vector.

    Writing to :attr:`w` changes the model, so forming one costs a pass over [P] and no copies of layers.

    Attributes:
        sums_there: whether an accelerator combines models.
    """

    def __init__(self, module: nn.Module, compute: Compute = CPU) -> None:
        with refuse_without_memory(compute.device, "hold a copy of the model"):
            super().__init__(module, compute)
        self.module.eval().requires_grad_(False)
        self._kept: dict[int, tuple[Weights, Tensor, dict[str, Tensor]]] = {}
        # an accelerator without float64 has the models combined by the processor
        self.sums_there = compute.is_gpu and has_float64(compute.device)
        self._sum = torch.empty_like(self.w, device="cpu") if compute.is_gpu and not self.sums_there else self.w
        self._entrance: tuple[FirstLayer, Entrance] | None = None
        self._calibration: tuple[Tensor, Tensor] | None = None

    def combine(
        self, models: Sequence[Weights], coefficients: Sequence[float], *, buffers: Collection[str] | None = None
    ) -> None:
        """Form Σ_i c_i w_i in float64, rounded once; coefficients (0, 1, 0) give the second model bit for bit.

        Float buffers are combined alike, running variances not below 0: those named in ``buffers``, or all of them.
        The others, and integer buffers, are the first model's. Non-finite values of a model with coefficient 0 do not
        count.
        """
        self._bound.put_back()
        terms = [(c, model) for c, model in zip(coefficients, models, strict=True) if c != 0.0]
        terms = terms or [(0.0, models[0])]
        if len(terms) == 1 and terms[0][0] == 1.0:
            model = terms[0][1]
            self.w.copy_(self.resident(model)[0] if self.sums_there else torch.as_tensor(model.parameters))
        else:
            vectors, chunk = [(c, self.resident(model)[0]) for c, model in terms], CHUNK
            if self.sums_there:
                chunk = DEVICE_CHUNK
            for start in range(0, self.layout.size, chunk):
                here = slice(start, start + chunk)
                self._sum[here] = weighted_sum([(c, vector[here]) for c, vector in vectors])
            if self._sum is not self.w:
                self.w.copy_(self._sum)
        for name, target in self._buffers.items():
            combined = buffers is None or name in buffers
            self._combine_buffer(name, target, models, terms if combined else [(1.0, models[0])])

    def combine_part(
        self,
        fixed: Weights,
        names: Collection[str],
        models: Sequence[Weights],
        coefficients: Sequence[float],
        *,
        kept: Collection[str] = (),
    ) -> None:
        """Form ``fixed``, of which the tensors ``names`` are those that :meth:`combine` makes of ``models``.

        Args:
            kept: buffers that are those of the first of ``models``; of the others those in ``names`` are combined, and
                the rest are those of ``fixed``.
        """
        self._bound.put_back()
        terms = [(c, model) for c, model in zip(coefficients, models, strict=True) if c != 0.0]
        single = terms[0][1] if len(terms) == 1 and terms[0][0] == 1.0 else None
        vectors, chunk = [(c, self.resident(model)[0]) for c, model in terms], CHUNK
        if self.sums_there:
            chunk = DEVICE_CHUNK
        self._sum.copy_(self.resident(fixed)[0])
        for name, whole in self.layout.slices.items():
            if name not in names:
                continue
            for start in range(whole.start, whole.stop, chunk):
                here = slice(start, min(start + chunk, whole.stop))
                of_all = [(c, vector[here]) for c, vector in vectors]
                self._sum[here] = of_all[0][1] if single is not None else weighted_sum(of_all)
        if self._sum is not self.w:
            self.w.copy_(self._sum)
        for name, target in self._buffers.items():
            if name in kept or name not in names:
                target.copy_(self._buffer(models[0] if name in kept else fixed, name))
            else:
                self._combine_buffer(name, target, models, terms)

    def apart(self, outputs: Tensor) -> Tensor:
        """Return outputs that stay what they are when the next model is formed here."""
        mine = outputs.untyped_storage().data_ptr() == self.w.untyped_storage().data_ptr()
        return outputs.clone() if mine else outputs

    def resident(self, model: Weights) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a model's parameters where they are summed, and on a device its buffers: the few that the points of a
        surface are made of are sent there once."""
        known = self._kept.get(id(model))
        if known is None or known[0] is not model:
            room = KEPT if not self.sums_there else max(KEPT, KEPT_BYTES // max(1, model.parameters.nbytes))
            while len(self._kept) >= room:
                self._kept.pop(next(iter(self._kept)))
            where = self.device if self.sums_there else torch.device("cpu")
            buffers = model.buffers if self.sums_there else {}
            there = {name: torch.as_tensor(np.asarray(values)).to(where) for name, values in buffers.items()}
            known = model, torch.from_numpy(model.parameters).to(where), there
            self._kept[id(model)] = known
        return known[1:]

    def _buffer(self, model: Weights, name: str) -> Tensor:
        if self.sums_there:
            return self.resident(model)[1][name]
        return torch.as_tensor(np.asarray(model.buffers[name]))

    def _combine_buffer(
        self, name: str, target: Tensor, models: Sequence[Weights], terms: Sequence[tuple[float, Weights]]
    ) -> None:
        single = terms[0][1] if len(terms) == 1 and terms[0][0] == 1.0 else None
        if single is not None or not target.dtype.is_floating_point:
            target.copy_(self._buffer(single or models[0], name))
            return
        value = weighted_sum([(c, self._buffer(model, name)) for c, model in terms])
        if name.endswith("running_var"):  # an affine combination outside the anchors may leave what a variance is
            value = value.clamp(min=0.0)
        target.copy_(value)

    def re_estimate(self, x: Tensor) -> None:
        """Measure the normalization statistics of the present parameters on inputs as :meth:`prepare` made them, here
        or on another of several devices."""
        if x.device != self.w.device:
            if self._calibration is None or self._calibration[0] is not x:
                self._calibration = x, x.to(self.device)
            x = self._calibration[1]
        with self.compute.products(), self.compute.forward():
            re_estimate(self.module, x)

    def logits(self, x: Tensor) -> Tensor:
        """Compute the model's outputs for inputs as :meth:`prepare` made them, [n, classes]."""
        with torch.inference_mode(), self.compute.products(), self.compute.forward():
            output: Tensor = self.module(x)
            return output

    def logits_from(self, first: FirstLayer, h: Tensor, x: Tensor) -> Tensor:
        """Compute the outputs where the first layer gave ``h`` for the inputs ``x``; on a CPU in float32."""
        if self._entrance is None or self._entrance[0] != first:
            self._entrance = first, Entrance(self.module, first)
        with torch.inference_mode():
            return self._entrance[1](h, x)


def weighted_sum(terms: Sequence[tuple[float, Tensor]]) -> Tensor:
    """Σ_i c_i v_i in float64."""
    total = terms[0][1].double() * terms[0][0]
    for coefficient, tensor in terms[1:]:
        # not alpha=, which fuses the two roundings on some processors
        total += tensor.double() * coefficient
    return total
