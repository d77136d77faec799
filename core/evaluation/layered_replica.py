"""Replicas of large models that are formed layer by layer: each layer's weights are combined when it is called, and
given back afterwards, so that what is held besides the models is one layer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..checkpoints import Layout, Weights
from .bound_tensors import BoundTensors
from .device import CPU, Compute
from .model_replica import CHUNK, Replica, weighted_sum
from .module_copy import copy_module

#: bytes of parameters from which on a model is formed layer by layer. A constant and not what this machine has free:
#: the numbers are the same bits either way, the time is not.
LARGE = 2**28

#: weights, and what they are multiplied by
Terms = Sequence[tuple[float, Tensor]]


class LayeredReplica(Replica):
    """A :class:`Replica` on the processor whose parameters are formed in the layers that are called.

    Outside of their layers' calls parameters are NaN. A module that reads them there (a function of another layer's
    weights) answers NaN, and is not measured this way, see :func:`answers_in_layers`.

    Attributes:
        w: nothing, in the parameters' type.
        writes: whether the module has written to its own parameters, which are the memory of the models themselves.
    """

    def __init__(self, module: nn.Module, compute: Compute = CPU) -> None:
        self.compute, self.original = compute, module
        self.layout = Layout.of(module)
        self.device = torch.device("cpu")
        self.module = copy_module(module, weights=False).eval().requires_grad_(False)
        self.w = torch.zeros(0)
        self.writes = False
        named = dict(self.module.named_parameters(remove_duplicate=False))
        # of tied names the last one counts, as in one vector
        self._names = {id(named[name]): name for name in self.layout.slices}
        state = self.module.state_dict()
        self._buffers = {entry.name: state[entry.name] for entry in self.layout.buffers}
        self._bound = BoundTensors(self.module, self.layout, buffers_only=True)
        own = dict(module.named_parameters(remove_duplicate=False))
        # arrays, whose use is not looked for by who asks whether the copy computes with the module's own tensors
        self._own = {name: own[name].detach().numpy() for name in self.layout.slices}
        self._terms: Terms | None = None
        self._part: tuple[Collection[str], Terms] = ((), ())
        self._kept, self._calibration, self._entrance = {}, None, None
        self.sums_there = False
        for part in self.module.modules():
            if any(id(value) in self._names for value in part._parameters.values()):
                waiting = dict(part._parameters)
                part.register_forward_pre_hook(self._form(waiting))
                part.register_forward_hook(self._give_back(waiting), always_call=True)

    def load(self, parameters: np.ndarray | Tensor, buffers: Mapping[str, np.ndarray]) -> None:
        """Take over one model, whose numbers are not copied."""
        self._bound.put_back()
        self._terms, self._part = [(1.0, torch.as_tensor(parameters))], ((), ())
        for name, values in buffers.items():
            self._buffers[name].copy_(torch.as_tensor(np.asarray(values)))

    def combine(
        self, models: Sequence[Weights], coefficients: Sequence[float], *, buffers: Collection[str] | None = None
    ) -> None:
        """Have Σ_i c_i w_i formed, as :meth:`Replica.combine` does, bit for bit."""
        self._bound.put_back()
        terms = [(c, model) for c, model in zip(coefficients, models, strict=True) if c != 0.0]
        terms = terms or [(0.0, models[0])]
        self._terms, self._part = [(c, self.resident(model)[0]) for c, model in terms], ((), ())
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
        """Have a part formed, as :meth:`Replica.combine_part` does, bit for bit."""
        self._bound.put_back()
        terms = [(c, model) for c, model in zip(coefficients, models, strict=True) if c != 0.0]
        self._terms = [(1.0, self.resident(fixed)[0])]
        self._part = names, [(c, self.resident(model)[0]) for c, model in terms]
        for name, target in self._buffers.items():
            if name in kept or name not in names:
                target.copy_(self._buffer(models[0] if name in kept else fixed, name))
            else:
                self._combine_buffer(name, target, models, terms)

    def _form(self, waiting: Mapping[str, Any]) -> Any:
        """Return the hook that forms a layer's parameters."""

        def hook(part: nn.Module, _: Any) -> None:
            for leaf, value in waiting.items():
                if id(value) in self._names:
                    part._parameters[leaf] = self._values(self._names[id(value)]).view(value.shape)  # type: ignore[assignment]

        return hook

    def _give_back(self, waiting: Mapping[str, Any]) -> Any:
        """Return the hook that puts a layer's parameters away."""

        def hook(part: nn.Module, *_: Any) -> None:
            if self._terms is None:
                formed = [part._parameters[leaf] for leaf, value in waiting.items() if id(value) in self._names]
                self.writes |= any(value is not None and value._version > 0 for value in formed)
            part._parameters.update(waiting)

        return hook

    def _values(self, name: str) -> Tensor:
        """Form the parameter of a name, flat."""
        if self._terms is None:
            with torch.inference_mode(False):  # whose tensors count how often they are written to
                return torch.from_numpy(self._own[name].flatten())
        terms, where = (self._part[1] if name in self._part[0] else self._terms), self.layout.slices[name]
        if len(terms) == 1 and terms[0][0] == 1.0:
            return terms[0][1][where]
        made = torch.empty(where.stop - where.start, dtype=terms[0][1].dtype)
        for start in range(0, len(made), CHUNK):
            at = slice(where.start + start, min(where.start + start + CHUNK, where.stop))
            made[start : start + CHUNK] = weighted_sum([(c, vector[at]) for c, vector in terms])
        return made


def replica_of(module: nn.Module, compute: Compute, *, layered: bool) -> Replica:
    """Make a replica, of one kind or the other."""
    return LayeredReplica(module, compute) if layered else Replica(module, compute)


def is_large(module: nn.Module, compute: Compute) -> bool:
    """Check whether a model is so large that it is formed layer by layer: on the processor, in float32."""
    parameters = list(module.parameters())
    if compute.is_gpu or {value.dtype for value in parameters} != {torch.float32}:
        return False
    return sum(value.numel() * value.element_size() for value in parameters) >= LARGE


def answers_in_layers(replica: Replica, x: Tensor) -> bool:
    """Check on a few samples whether a module computes with parameters in their layers alone, and writes to none."""
    try:
        answered = not bool(replica.logits(x).isnan().any())
    except Exception:  # the evaluator says what is wrong with the module
        return False
    return answered and not (isinstance(replica, LayeredReplica) and replica.writes)


def replica_for(module: nn.Module, x: Tensor) -> Replica:
    """Make a replica on the processor for a few samples, formed layer by layer where a large module may be.

    Args:
        x: one sample, as the data have it.
    """
    if is_large(module, CPU):
        replica = LayeredReplica(module)
        if answers_in_layers(replica, replica.prepare(x)):
            return replica
    return Replica(module)


def without_memory(module: nn.Module) -> nn.Module:
    """Give back the memory of a large module's own weights, which are 0 then; it must be nobody else's."""
    if is_large(module, CPU):
        for parameter in module.parameters():
            parameter.data = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
    return module
