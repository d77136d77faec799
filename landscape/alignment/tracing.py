"""Finding the permutation groups of any module, by following its units through every operation that it computes.

The module is called once on a few samples, and each operation of ATen that torch dispatches is looked at: no code of
the module is read, so any Python in it goes. Attention is computed by its plain formula meanwhile, and recurrences step
by step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ...checkpoints import FedscopeError
from ...evaluation.process_switches import plain_attention, without_fast_path, without_onednn
from ...evaluation.recorded_names import call_with
from .apply import Mover, random_permutation
from .atoms import Atoms, Axis
from .collect import collect
from .groups import Specification
from .operations import RULES, Value, fix, is_fixed, values_in
from .same_answers import count_others, fields_of, tolerance
from .uniform import Uniform, is_uniform

#: operations in whose results units are compared: of layers with parameters, and the dimension of their units, before
#: others in which they may be (W x where x W is usual). Only these are numbered, as which others there are depends on
#: who holds their tensors. So it does which product of matrices is taken: each is one of these
TAPPED: dict[str, tuple[int, ...]] = {"convolution": (1,), "native_layer_norm": (-1,), "embedding": (-1,)}
TAPPED |= dict.fromkeys(("addmm", "mm"), (-1, -2)) | dict.fromkeys(("addmv", "mv"), (-1,))
TAPPED |= dict.fromkeys(("baddbmm", "bmm"), (-1, -2, -3))
TAPPED |= dict.fromkeys(("native_batch_norm", "cudnn_batch_norm", "native_group_norm"), (1,))


def specification_of(module: nn.Module, x: Tensor) -> Specification:
    """Find the groups of units of a module that may be permuted.

    Args:
        module: is put into evaluation mode meanwhile.
        x: a few inputs, two or more.

    Raises:
        FedscopeError: nothing may be permuted; names the operation and its layer where one is why.
    """
    trace = Trace(module)
    with computed_plainly(module), trace, trace.layers():
        outputs = module(x)
    tree_map(lambda one: trace.end(one) if isinstance(one, Tensor) else None, fields_of(outputs))
    found = collect(
        trace.atoms, trace.parameters(), trace.taps, trace.shapes, trace.aliases, trace.stopped, trace.calls
    )
    if not found.groups:
        why = f"{found.stopped[0]} cannot be followed" if found.stopped else "no layer has units between two others"
        raise FedscopeError(f"no units of {type(module).__name__} can be permuted: {why}; align other models")
    _refuse_other_function(module, x, found)
    return replace(found, unmet=trace.unmet())


def _refuse_other_function(module: nn.Module, x: Tensor, found: Specification) -> None:
    """Try the groups out: a module that computes by what its numbers are may not be what one pass through it shows.

    Raises:
        FedscopeError: permuted at random, it answers otherwise.
    """
    draw = np.random.default_rng(0)
    moves = [random_permutation(group, draw) for group in found.groups]
    arrays = {name: values.detach().cpu().numpy() for name, values in module.state_dict().items()}
    arrays |= _told_apart(module, draw)

    def called_with(numbers: dict[str, np.ndarray]) -> partial[Any]:
        own = {name: torch.from_numpy(one).to(x.device) for name, one in numbers.items() if name not in found.aliases}
        return partial(call_with, module, own)

    before, after = called_with(arrays), called_with(Mover(found).arrays(arrays, moves))
    with computed_plainly(module):
        others = count_others(before, after, [x], tolerance(module))
    if others:
        raise FedscopeError(
            f"{type(module).__name__} answers otherwise when the units that seem exchangeable are permuted, so its "
            "layers cannot be aligned; it may compute by the values of its weights"
        )


def _told_apart(module: nn.Module, draw: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the parameters whose entries are all alike with others: a layer of zeros, as many a head before its
    training, answers the same whatever comes in, and ones hide which of them was moved.

    What is added is above 0, as a scale or a width may have to be, and of the size of a new layer's weights.
    """
    made = {}
    for name, one in module.named_parameters():
        values = one.detach()
        if values.is_floating_point() and (values.numel() == 1 or is_uniform(values)):
            values = values.cpu().double()
            more = draw.random(tuple(values.shape)) / max(1, values[:1].numel() if values.dim() > 1 else 1) ** 0.5
            made[name] = (values + torch.from_numpy(np.asarray(more))).to(one.dtype).numpy()
    return made


@contextmanager
def computed_plainly(module: nn.Module) -> Iterator[None]:
    """Compute a module without fused operations, in evaluation mode and without gradients."""
    modes = {layer: layer.training for layer in module.modules()}
    module.eval()
    try:
        with torch.no_grad(), plain_attention(), without_fast_path(), without_onednn():
            yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode


def operation_of(func: Any) -> str:
    """Return an operation's name, without the overload."""
    return str(func._schema.name.partition("::")[2])


class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the units of a module through its operations.

    Attributes:
        taps: of operations whose results show units: number among these, the result, the dimensions of units.
        calls: how many of these there were.
        stopped: operations without a rule that took units, with their layers.
        shapes: of all parameters and buffers by name; aliases: other names of the same.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.atoms = Atoms()
        self.uniform = Uniform(self.atoms)
        self.module = module
        self.calls = 0
        self.taps: list[tuple[int, Value, tuple[int, ...]]] = []
        self.stopped: list[str] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.aliases: dict[str, str] = {}
        self._names: dict[int, str] = {}
        self._values: dict[int, tuple[Tensor, Value]] = {}
        self._order: dict[str, Value] = {}
        self._layer: list[str] = []
        self._constants = {
            id(one)
            for layer in module.modules()
            for one in [*vars(layer).values(), *layer._buffers.values()]
            if isinstance(one, Tensor)
        }
        state = module.state_dict(keep_vars=True)
        named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        for name, tensor in named:
            if name not in state:
                continue
            self.shapes[name] = tuple(tensor.shape)
            if id(tensor) in self._names:
                self.aliases[name] = self._names[id(tensor)]
            else:
                self._names[id(tensor)] = name

    @contextmanager
    def layers(self) -> Iterator[None]:
        """Know in which layer an operation is."""
        handles = []
        for name, layer in self.module.named_modules():
            handles.append(layer.register_forward_pre_hook(lambda *_, name=name: self._layer.append(name)))
            handles.append(layer.register_forward_hook(lambda *_: self._leave(), always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _leave(self) -> None:
        self._layer.pop()

    def value(self, tensor: Tensor) -> Value:
        """Return what is known of a tensor: new units of a parameter; of others that are met first, all stay."""
        known = self._values.get(id(tensor))
        if known is None:
            shape = tuple(tensor.shape)
            name = self._names.get(id(tensor))
            make = self.atoms.fixed if name is None else self.atoms.factor
            known = tensor, Value(shape, [make(size) for size in shape], computed=name is None)
            self._values[id(tensor)] = known
            if name is not None:
                self._order[name] = known[1]
            elif id(tensor) in self._constants and is_uniform(tensor):
                self.uniform.note(tensor, known[1])
        return known[1]

    def end(self, tensor: Tensor) -> None:
        """What a module returns stays as it is."""
        for axis in self.value(tensor).axes:
            self.atoms.fix_axis(axis)

    def parameters(self) -> dict[str, Value]:
        """All parameters and buffers that were met, in order."""
        return self._order

    def unmet(self) -> tuple[str, ...]:
        """Return the names of all parameters that were not met."""
        return tuple(name for name, _ in self.module.named_parameters() if name not in self._order)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute an operation, and follow the units of its arguments."""
        kwargs = kwargs or {}
        name = operation_of(func)
        used: list[tuple[Tensor, Value, Value]] = []

        def take(one: Any) -> Any:
            if not isinstance(one, Tensor):
                return one
            value = self.value(one)
            used.append((one, value, self.uniform.use(value)))
            return used[-1][2]

        tree_map(lambda one: self.value(one) if isinstance(one, Tensor) else None, (args, kwargs))
        self.uniform.write(func, args, kwargs)
        given, words = tree_map(take, (list(args), kwargs))
        result = func(*args, **kwargs)
        results = [one for one in (result if isinstance(result, list | tuple) else [result]) if isinstance(one, Tensor)]
        shapes = [tuple(one.shape) for one in results]
        if results:
            axes = self._follow(name, given, words, shapes)
            self.uniform.share(used, results)
            alike = self.uniform.keeps(name, values_in([given, words]))
            for tensor, shape, own in zip(results, shapes, axes, strict=True):
                several = [axis if size > 1 else [] for axis, size in zip(own, shape, strict=True)]
                self._values[id(tensor)] = tensor, Value(shape, several)
                if alike:
                    self.uniform.note(tensor, self._values[id(tensor)][1])
        if name in TAPPED:
            self.taps.append((self.calls, self._values[id(results[0])][1], TAPPED[name]))
            self.calls += 1
        return result

    def _follow(self, name: str, given: Any, words: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
        follow = RULES.get(name)
        taken = values_in([given, words])
        if follow is None:
            if any(not is_fixed(self.atoms, axis) for value in taken for axis in value.axes):
                layer = self._layer[-1] if self._layer else ""
                said = f"aten.{name} in {layer or 'the model itself'}"
                if said not in self.stopped:
                    self.stopped.append(said)
            return fix(self.atoms, given, words, shapes)
        return follow(self.atoms, given, words, shapes)
