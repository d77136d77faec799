"""Activations: the outputs of a layer for a batch, recorded while the model is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError, Weights, nearest
from ...checkpoints.io.errors import list_few
from ...evaluation.device import Compute
from ...evaluation.layered_replica import replica_for
from ...evaluation.memory import halve_without_memory
from ...evaluation.model_replica import Replica
from ...evaluation.samples import Samples
from ...evaluation.standard_tasks import Sequences
from ...evaluation.taken_logits import logits_in, logits_of
from ...evaluation.tasks import Task
from .result import OUTPUT

#: samples with which layers show what they return
FEW = 4


def refuse_unknown(module: nn.Module, layers: Sequence[str]) -> None:
    """Refuse layers that the module does not have.

    Raises:
        FedscopeError: no layer, one given twice, one that does not exist (says which do).
    """
    if not layers:
        raise FedscopeError("there is no layer to compare; give at least one, as output")
    have = [OUTPUT, *(name for name, _ in module.named_modules() if name and name != OUTPUT)]
    for layer in layers:
        if layer not in have:
            raise FedscopeError(
                f"layers {layer!r} match none{nearest(layer, have) or f'; the model has {list_few(have)}'}"
            )
        if layers.count(layer) > 1:
            raise FedscopeError(f"layer {layer} is given {layers.count(layer)} times; name each layer once")


def taken_in(module: nn.Module, samples: Samples, weights: Weights, layers: Sequence[str]) -> dict[str, str]:
    """Say of layers that return no tensor what of it is taken, by their names; of other layers nothing.

    Of an ``nn.LSTM``, attention and most blocks of transformers that is the first of a tuple.
    """
    said: dict[str, str] = {}

    def note(layer: str, _: nn.Module, __: Any, output: Any) -> None:
        if not isinstance(output, Tensor) and (words := logits_in(output)[1]):
            said[layer] = f"layer {layer} returns no tensor: {words}"

    try:
        replica = replica_for(module, samples.x[:1])
        for layer in layers:
            if layer != OUTPUT:
                replica.module.get_submodule(layer).register_forward_hook(partial(note, layer))
        replica.load(weights.parameters, weights.buffers)
        replica.logits(replica.prepare(samples.x[:FEW]))
    except Exception:  # which measuring it says
        return {}
    return said


class Activations:
    """A worker's own model, and what its layers answer.

    Args:
        module: the architecture; not changed.
        layers: names of submodules, as in ``module.named_modules()``, and ``output`` for what the module returns.
        batch: how many samples are passed through the model at a time.
        learnt: what is a sample; of sequences every position that counts.
    """

    def __init__(self, module: nn.Module, layers: Sequence[str], compute: Compute, batch: int, learnt: Task) -> None:
        self._learnt = learnt
        refuse_unknown(module, layers)
        self._replica = Replica(module, compute)
        self._layers, self._batch = tuple(layers), batch
        self._seen: dict[str, list[Any]] = {layer: [] for layer in layers}
        for layer in layers:
            if layer != OUTPUT:
                self._replica.module.get_submodule(layer).register_forward_hook(partial(self._record, layer))

    def of(self, model: Weights, x: Tensor, y: Tensor) -> dict[str, list[Tensor]]:
        """Each layer's outputs for the inputs ``x`` [n, ...], flattened to [n, d] and cut along n; of outputs that are
        no tensor what :func:`taken_in` says.

        Args:
            y: targets [n, ...], which say what positions of a sequence count.

        Raises:
            FedscopeError: a layer that returns no tensor with a row a sample, that is not run or run more than once.
        """
        self._replica.load(model.parameters, model.buffers)
        if not self._replica.compute.is_gpu:
            return self._features(x, y, self._batch)
        device, of, batch = self._replica.compute.device, "samples of a minibatch", min(self._batch, len(x))
        found, used = halve_without_memory(lambda size: self._features(x, y, size), batch, device, of=of)
        if used < batch:
            self._batch = used
        return found

    def _features(self, x: Tensor, y: Tensor, batch: int) -> dict[str, list[Tensor]]:
        replica = self._replica
        features: dict[str, list[Tensor]] = {layer: [] for layer in self._layers}
        for part, targets in zip(torch.split(replica.prepare(x), batch), torch.split(y, batch), strict=True):
            for seen in self._seen.values():
                seen.clear()
            outputs = replica.logits(part)
            if OUTPUT in self._seen:
                self._seen[OUTPUT].append(outputs)
            for layer, seen in self._seen.items():
                features[layer].append(self._rows(layer, _one(layer, seen, len(part)), targets))
        return features

    def _rows(self, layer: str, outputs: Tensor, y: Tensor) -> Tensor:
        """A row of features a sample, or a position."""
        if isinstance(self._learnt, Sequences):
            places = outputs.shape[1:-1] if y.dim() == 2 else outputs.shape[2:]
            if places != y.shape[1:]:
                raise FedscopeError(
                    f"layer {layer} returns shape {list(outputs.shape)}, and of sequences features are a row a "
                    f"position, of which a sample has {list(y.shape[1:])}; give another layer"
                )
        outputs = self._learnt.positions(outputs[None], y)[0][0]
        return outputs.reshape(len(outputs), -1)

    def _record(self, layer: str, _: nn.Module, __: Any, output: Any) -> None:
        taken = logits_of(output)
        # a copy: what follows may work in place, as nn.ReLU(inplace=True) does
        copy = taken.clone(memory_format=torch.contiguous_format) if isinstance(taken, Tensor) else taken
        self._seen[layer].append(copy)


def _one(layer: str, seen: Sequence[Any], samples: int) -> Tensor:
    """A layer's one answer to a batch, [samples, ...]."""
    if len(seen) != 1:
        often = f"{len(seen)} times" if seen else "not"
        raise FedscopeError(
            f"layer {layer} is {often} run in one pass of the module, so it has no output of its own there; give a "
            "layer that is run once"
        )
    if not isinstance(seen[0], Tensor):
        raise FedscopeError(
            f"layer {layer} returns a value of type {type(seen[0]).__name__}, and features are a tensor [n, ...]; "
            "give a layer inside or behind it"
        )
    if seen[0].dim() == 0 or len(seen[0]) != samples:
        raise FedscopeError(
            f"layer {layer} returns shape {list(seen[0].shape)} for {samples} samples, and features are a row a "
            "sample; give another layer"
        )
    return seen[0]
