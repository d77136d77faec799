"""The layers of a model by name, and the language in which some of them are chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from math import prod
from typing import Any

from ..io.errors import FedscopeError, list_few, nearest
from .factor_names import split_factor
from .weights import Layout, TensorEntry

#: the kind of a layer by the name of its class, or of a class that this derives from; torch need not be loaded
CLASSES = {
    "_ConvNd": "convolution",
    "Linear": "linear",
    "Bilinear": "linear",
    "_NormBase": "normalization",
    "LayerNorm": "normalization",
    "GroupNorm": "normalization",
    "RMSNorm": "normalization",
    "Embedding": "embedding",
    "EmbeddingBag": "embedding",
    "RNNBase": "recurrent",
    "RNNCellBase": "recurrent",
    "MultiheadAttention": "attention",
}


@dataclass(frozen=True)
class Layer:
    """The tensors of a model whose names share the part before their last dot.

    Attributes:
        number: its place in the model, from 1.
        name: that part, as ``blocks.0.conv``: torch's name of the submodule. A tensor of the model itself, whose name
            has no dot, is a layer of its own name. Both factors of an adapter are one layer, named after what they
            adapt.
        kind: ``convolution``, ``linear``, ``normalization``, ``embedding``, ``recurrent``, ``attention``, ``adapter``
            or ``other``.
        entries: its parameters and buffers.
    """

    number: int
    name: str
    kind: str
    entries: tuple[TensorEntry, ...]

    @cached_property
    def size(self) -> int:
        """How many parameters it has."""
        return sum(prod(entry.shape) for entry in self.entries if entry.kind == "parameter")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of its tensors by the last part of their names."""
        return {self._short(entry.name): entry.shape for entry in self.entries}

    @staticmethod
    def _short(name: str) -> str:
        factor = split_factor(name)
        return name.rpartition(".")[2] if factor is None else f"{factor[1]}{factor[2]}".removesuffix(".weight")


def layers_of(layout: Layout, modules: Iterable[tuple[str, Any]] = ()) -> tuple[Layer, ...]:
    """Return the layers of a model in its order, each at the place of its first tensor.

    Args:
        modules: the model's ``named_modules()``, where it is known: they say what kind a layer is, and else the shapes
            of its tensors do.

    >>> import fedscope, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    >>> [(one.name, one.kind, one.size) for one in layers_of(fedscope.Layout.of(net))]
    [('0', 'linear', 8), ('1', 'normalization', 4)]
    """
    known = dict(modules)
    found: dict[str, list[TensorEntry]] = {}
    for entry in layout.entries:
        found.setdefault(_owner(entry.name), []).append(entry)
    return tuple(
        Layer(number, name, _kind_of(known.get(name)) or _kind_by_shapes(entries), tuple(entries))
        for number, (name, entries) in enumerate(found.items(), start=1)
    )


def _owner(name: str) -> str:
    """Name the layer of a tensor."""
    factor = split_factor(name)
    if factor is not None:
        return factor[0] or factor[1].partition("_")[0].partition(".")[0]
    return name.rpartition(".")[0] or name


def chosen_layers(layout: Layout, pattern: str) -> tuple[Layer, ...]:
    """Return the layers that a pattern names, in the model's order.

    A pattern is names with ``*``, ``?`` and ``[...]``, separated by commas (``conv1,blocks.0.*``), of which each must
    match a layer's whole name; or a regular expression between slashes (``/^blocks/``), which is searched for.

    Raises:
        FedscopeError: a name that is no layer's; an expression that is none, or that matches nothing.

    >>> import fedscope, torch
    >>> layout = fedscope.Layout.of(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
    >>> [layer.name for layer in chosen_layers(layout, "/[1-9]/")]
    ['1']
    """
    layers = layers_of(layout)
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            expression = re.compile(pattern[1:-1])
        except (re.error, OverflowError, RecursionError) as error:
            raise FedscopeError(
                f"layers {pattern!r} are no regular expression ({error}); write one as /^blocks/, or names as conv*"
            ) from None
        chosen = tuple(layer for layer in layers if expression.search(layer.name))
        if not chosen:
            raise FedscopeError(f"layers {pattern!r} match none; the model has {_names(layers)}")
        return chosen
    words = [word.strip() for word in pattern.split(",") if word.strip()]
    if not words:
        raise FedscopeError(f"layers {pattern!r} name none; the model has {_names(layers)}")
    taken: set[str] = set()
    for word in words:
        own = {layer.name for layer in layers if fnmatchcase(layer.name, word)}
        if not own:
            raise FedscopeError(f"layers {word!r} match none{_hint(word, layers)}")
        taken |= own
    return tuple(layer for layer in layers if layer.name in taken)


def named_parameters(layout: Layout, names: Iterable[str]) -> list[str]:
    """Return the parameters that names stand for, each once: a parameter, by its own name; or the parameters of layers,
    by a layer's name or a pattern, see :func:`chosen_layers`. Other names stay as they are.

    >>> import fedscope, torch
    >>> layout = fedscope.Layout.of(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
    >>> named_parameters(layout, ["0.bias", "/[01]/", "fc"])
    ['0.bias', '0.weight', '1.weight', '1.bias', 'fc']
    """
    found: dict[str, None] = {}
    for name in names:
        if name in layout.names:
            found[name] = None
            continue
        try:
            layers = chosen_layers(layout, name)
        except FedscopeError:
            found[name] = None  # who takes it says what there is
            continue
        found |= dict.fromkeys(entry.name for layer in layers for entry in layer.entries if entry.kind == "parameter")
    return list(found)


def _hint(word: str, layers: Sequence[Layer]) -> str:
    """What stands nearest to a name that is no layer's: layers inside it, its layer where it is a tensor, or a name
    that is written alike; and else what there is."""
    names = [layer.name for layer in layers]
    if any(name.startswith(f"{word}.") for name in names):
        return f'; did you mean "{word}.*"?'
    if any(name.startswith(word) for name in names):
        return f'; did you mean "{word}*"?'
    owner = {entry.name: layer.name for layer in layers for entry in layer.entries}
    if word in owner:
        return f'; did you mean "{owner[word]}"?'
    return nearest(word, names) or f"; the model has {_names(layers)}"


def _names(layers: Sequence[Layer]) -> str:
    return list_few(layer.name for layer in layers)


def _kind_of(module: Any) -> str:
    """Name the kind of a module; "" where it is none of those known."""
    return next((CLASSES[one.__name__] for one in type(module).__mro__ if one.__name__ in CLASSES), "")


def _kind_by_shapes(entries: Sequence[TensorEntry]) -> str:
    """Name the kind of a layer by the names and shapes of its tensors: of an embedding these are a linear layer's."""
    shapes: Mapping[str, tuple[int, ...]] = {entry.name.rpartition(".")[2]: entry.shape for entry in entries}
    if any(split_factor(entry.name) for entry in entries):
        return "adapter"
    if "running_mean" in shapes or "running_var" in shapes:
        return "normalization"
    if "in_proj_weight" in shapes:
        return "attention"
    if any(name.startswith(("weight_ih", "weight_hh")) for name in shapes):
        return "recurrent"
    dimensions = len(shapes["weight"]) if "weight" in shapes else 0
    kinds = {1: "normalization", 2: "linear", 3: "convolution", 4: "convolution", 5: "convolution"}
    return kinds.get(dimensions, "other")
