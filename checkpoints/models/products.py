"""Adapters as what they do: for each pair of factors the product that is added to a layer's weights, and its scale."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .adapters import factors_in, split_factor
from .patterns import alpha_of
from .weights import Layout, TensorEntry

Array = npt.NDArray[np.float64]

#: kinds of factors that multiply: A [rank, in] and B [out, rank]
PAIRS = {
    "lora_A": "lora_B",
    "lora_a": "lora_b",
    "lora_embedding_A": "lora_embedding_B",
    "loraA": "loraB",
    "lora_down": "lora_up",
    "lora.down": "lora.up",
    "lora_layer.down": "lora_layer.up",
    "lora_linear_layer.down": "lora_linear_layer.up",
}
_FIRST = {b: a for a, b in PAIRS.items()}


@dataclass(frozen=True)
class Product:
    """One pair of factors: to its layer's weights it adds s B A.

    Attributes:
        name: of the layer; of one of several adapters of a layer that of its A, as ``q.lora_A.default``.
        a, b: the parameters' names, A [r, in] and B [out, r]; of a convolution in is channels × height × width.
        rank: r.
        scale: s, α/r, or α/√r of rank-stabilised adapters.
    """

    name: str
    a: str
    b: str
    rank: int
    scale: float

    def factors(self, a: np.ndarray, b: np.ndarray) -> tuple[Array, Array]:
        """Shape the values of n models, [n, |A|] and [n, |B|], as A [n, r, in] and s B [n, out, r], in float64."""
        scaled = np.multiply(b, self.scale, dtype=np.float64).reshape(len(b), -1, self.rank)
        return np.asarray(a, np.float64).reshape(len(a), self.rank, -1), scaled


@dataclass(frozen=True)
class Adapters:
    """What a model of adapters adds.

    Attributes:
        products: the pairs, in the layout's order.
        dense: names of the parameters beside them, as of a head that is trained whole.
        is_scaled: whether s is known; where not, it is 1.
    """

    products: tuple[Product, ...]
    dense: tuple[str, ...]
    is_scaled: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all factors."""
        return tuple(name for product in self.products for name in (product.a, product.b))

    def chosen(self, names: Iterable[str]) -> tuple[Product, ...]:
        """Return the products of which a factor is among some parameters."""
        there = frozenset(names)
        return tuple(product for product in self.products if product.a in there or product.b in there)


def adapters_of(layout: Layout, settings: Mapping[str, Any]) -> Adapters | None:
    """Return the products of a model; None of one that has none, or whose factors are not all pairs that multiply
    (DoRA's magnitudes, LoHa, LoKr, VeRA).

    Args:
        settings: rank, alpha and what else scales them, as an ``adapter_config.json`` says it; empty where not known.

    >>> import fedscope, torch
    >>> net = torch.nn.ModuleDict({"lora_A": torch.nn.Linear(8, 2, False), "lora_B": torch.nn.Linear(4, 2, False)})
    >>> net["lora_B"] = torch.nn.Linear(2, 4, False)
    >>> [(one.rank, one.scale) for one in adapters_of(fedscope.Layout.of(net), {"r": 2, "lora_alpha": 8}).products]
    [(2, 4.0)]
    """
    if not factors_in(layout.names):
        return None
    pairs, dense, odd = _sort_out(layout)
    if odd:
        return None
    count = Counter(before for before, _, _ in pairs)
    products, known = [], True
    for (before, kind, _), pair in pairs.items():
        rank = pair["a"].shape[0]
        layer = before or kind.partition("_")[0]
        scale = _scale(layer, rank, settings)
        name = layer if count[before] == 1 else pair["a"].name.removesuffix(".weight")
        products.append(Product(name, pair["a"].name, pair["b"].name, rank, 1.0 if scale is None else scale))
        known = known and scale is not None
    if not products:
        return None
    return Adapters(tuple(products), tuple(dense), known)


def odd_one(layout: Layout) -> str:
    """Return the first parameter on account of which the factors of a model are no pairs that multiply; "" where they
    are.

    >>> import fedscope, torch
    >>> net = torch.nn.ModuleDict({"lora_A": torch.nn.Linear(8, 2, False), "lora_B": torch.nn.Linear(2, 4)})
    >>> odd_one(fedscope.Layout.of(net))
    'lora_B.bias'
    """
    return _sort_out(layout)[2]


def _sort_out(layout: Layout) -> tuple[dict[tuple[str, str, str], dict[str, TensorEntry]], list[str], str]:
    """Return the pairs of factors, the names of parameters that are no factors, and the name of the first factor that
    is in no pair; "" of none."""
    pairs: dict[tuple[str, str, str], dict[str, TensorEntry]] = {}
    dense = []
    for entry in layout.parameters:
        place = split_factor(entry.name)
        if place is None:
            dense.append(entry.name)
            continue
        before, kind, after = place
        if kind not in PAIRS and kind not in _FIRST:
            return {}, [], entry.name
        pairs.setdefault((before, _FIRST.get(kind, kind), after), {})["b" if kind in _FIRST else "a"] = entry
    for pair in pairs.values():
        if len(pair) < 2:
            return {}, [], next(iter(pair.values())).name
        rank, b = pair["a"].shape[0], pair["b"].shape
        # loralib's merged layers share A's rows among several B
        if len(b) < 2 or b[1] != rank or prod(b[2:]) != 1:
            return {}, [], pair["b"].name
    return pairs, dense, ""


def _scale(name: str, rank: int, settings: Mapping[str, Any]) -> float | None:
    """α/r of a layer; None where α is not known."""
    alphas = settings.get("alpha")
    # kohya's are by layer
    alpha = alphas.get(name) if isinstance(alphas, Mapping) else alpha_of(name, settings)
    if not isinstance(alpha, int | float):
        return None
    return float(alpha) / (math.sqrt(rank) if settings.get("use_rslora") else rank)
