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

    Raises:
        FedscopeError: a layer whose output has other rows than the samples, as positions.
    """
    said: dict[str, str] = {}
    odd: dict[str, str] = {}
    count = 0

    def note(layer: str, of: nn.Module, _: Any, output: Any) -> None:
        taken = _samples_first(of, output)
        if not isinstance(output, Tensor) and (words := logits_in(output)[1]):
            moved = "" if taken is logits_of(output) else ", its samples moved ahead of its positions"
            said[layer] = f"layer {layer} returns no tensor: {words}{moved}"
        if isinstance(taken, Tensor) and (taken.dim() == 0 or len(taken) != count):
            odd[layer] = _no_row_a_sample(layer, taken, count)

    try:
        replica = replica_for(module, samples.x[:1])
        for layer in layers:
            if layer != OUTPUT:
                replica.module.get_submodule(layer).register_forward_hook(partial(note, layer))
        replica.load(weights.parameters, weights.buffers)
        for count in range(min(FEW, len(samples)), 0, -1)[:2]:  # positions first may be as many as samples once
            replica.logits(replica.prepare(samples.x[:count]))
    except Exception:  # which measuring it says
        return {}
    if odd:
        raise FedscopeError(next(iter(odd.values())))
    return said


def _samples_first(layer: nn.Module, output: Any) -> Any:
    """What is taken of a layer's output; of a recurrent layer and of attention that have positions first, [T, n, d],
    with the samples first."""
    taken = logits_of(output)
    turned = isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and not layer.batch_first
    return taken.transpose(0, 1) if turned and isinstance(taken, Tensor) and taken.dim() == 3 else taken


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
        if isinstance(self._learnt, Sequences) and self._learnt.places(outputs, y) != tuple(y.shape[1:]):
            raise FedscopeError(
                f"layer {layer} returns shape {list(outputs.shape)}, and of sequences features are a row a "
                f"position, of which a sample has {list(y.shape[1:])}; give another layer"
            )
        outputs = self._learnt.positions(outputs[None], y)[0][0]
        return outputs.reshape(len(outputs), -1)

    def _record(self, layer: str, of: nn.Module, _: Any, output: Any) -> None:
        taken = _samples_first(of, output)
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
        raise FedscopeError(_no_row_a_sample(layer, seen[0], samples))
    return seen[0]


def _no_row_a_sample(layer: str, output: Tensor, samples: int) -> str:
    return (
        f"layer {layer} returns shape {list(output.shape)} for {samples} samples, and features are a row a sample; "
        "give another layer"
    )
