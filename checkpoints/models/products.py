"""Adapters as what they do: for each pair of factors the product that is added to a layer's weights, and its scale."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .factor_names import PAIRS, alphas_in, factors_in, split_factor
from .patterns import alpha_of
from .weights import Layout, TensorEntry

Array = npt.NDArray[np.float64]
#: of a pair: what stands before the kind of its A, the kind, and what stands behind
_Key = tuple[str, str, str]

#: kinds whose A is [rank, in] in some programs and [in, rank] in others, without ".weight" behind it
_EITHER_WAY = ("lora_a", "lora.A", "lora.a", "lora_right", "lora_right_weight")
_FIRST = {b: a for a, b in PAIRS.items()}
#: last parts of the names of modules whose parameter is adapted, and not the module: those of experts, one for each
_OF_PARAMETERS = ("experts", "base_layer")
#: settings with which s B A is not what an adapter adds: A sees pooled inputs, or is one block of a diagonal
_NO_PRODUCT = ("use_qalora", "use_bdlora")


@dataclass(frozen=True)
class Product:
    """One pair of factors: to its layer's weights it adds s B A.

    PEFT keeps the factors of E experts (``target_parameters``) in two parameters, A [E r, in] expert by expert and
    B [out, r E] rank by rank. Each expert has a product of its own.

    Attributes:
        name: of the layer; of one of several adapters of a layer that of its A, as ``q.lora_A.default``; of an expert
            with its number, as ``mlp.experts[3]``.
        a, b: the parameters' names, A [r, in] and B [out, r]; of a convolution in is channels × height × width.
        rank: r.
        scale: s, α/r, or α/√r of rank-stabilised adapters.
        expert, experts: which of E experts it is.
        transposed: whether the parameters are A [in, r] and B [r, out], as MLX, flax and many tutorials have them.
    """

    name: str
    a: str
    b: str
    rank: int
    scale: float
    expert: int = 0
    experts: int = 1
    transposed: bool = False

    def factors(self, a: np.ndarray, b: np.ndarray) -> tuple[Array, Array]:
        """Shape the values of n models, [n, |A|] and [n, |B|], as A [n, r, in] and s B [n, out, r], in float64."""
        of_a, of_b = self._sides(a, b)
        return np.asarray(of_a, np.float64), np.multiply(of_b, self.scale, dtype=np.float64)

    def put(self, parameters: np.ndarray, slices: Mapping[str, slice], a: np.ndarray, b: np.ndarray) -> None:
        """Write factors A [r, in] and B [out, r], without the scale, into one model [P].

        >>> row = np.zeros(10)
        >>> pair = Product("e[1]", "a", "b", 1, 2.0, expert=1, experts=2)
        >>> pair.put(row, {"a": slice(0, 4), "b": slice(4, 10)}, np.array([[1, 2]]), np.array([[3], [4], [5]]))
        >>> row.tolist()
        [0.0, 0.0, 1.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0, 5.0]
        """
        of_a, of_b = self._sides(parameters[None, slices[self.a]], parameters[None, slices[self.b]])
        of_a[0], of_b[0] = a, b

    def _sides(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Views of n models as A [n, r, in] and B [n, out, r]."""
        if self.transposed:
            return a.reshape(len(a), -1, self.rank).transpose(0, 2, 1), b.reshape(len(b), self.rank, -1).transpose(
                0, 2, 1
            )
        if self.experts > 1:
            every_a = a.reshape(len(a), self.experts, self.rank, -1)
            return every_a[:, self.expert], b.reshape(len(b), -1, self.rank, self.experts)[..., self.expert]
        return a.reshape(len(a), self.rank, -1), b.reshape(len(b), -1, self.rank)


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
    if odd or unclear_factors(layout, settings):
        return None
    across = _transposed(pairs, settings)
    assert across is not None, "it is clear"
    count = Counter(before for before, _, _ in pairs)
    products, known = [], True
    for key, pair in pairs.items():
        before, kind, _ = key
        layer = before or kind.partition("_")[0].partition(".")[0]
        name = layer if count[before] == 1 else pair["a"].name.removesuffix(".weight")
        experts = _experts(before, pair["a"].shape[0], settings) or 1
        rank = pair["a"].shape[1] if key in across else pair["a"].shape[0] // experts
        scale = _scale(layer, rank, settings)
        known = known and scale is not None
        names, own = (pair["a"].name, pair["b"].name), 1.0 if scale is None else scale
        if experts == 1:
            products.append(Product(name, *names, rank, own, transposed=key in across))
        else:
            products += [Product(f"{name}[{e}]", *names, rank, own, e, experts) for e in range(experts)]
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


def unclear_factors(layout: Layout, settings: Mapping[str, Any]) -> str:
    """Say in a clause why pairs of factors do not say how they multiply; "" where they do.

    Args:
        settings: as of :func:`adapters_of`.

    >>> shapes = {"mlp.experts.lora_A.weight": (8, 5), "mlp.experts.lora_B.weight": (6, 8)}
    >>> layout = Layout(tuple(TensorEntry(name, shape, "float32", "parameter") for name, shape in shapes.items()))
    >>> unclear_factors(layout, {})
    'mlp.experts.lora_A.weight has the rows of all experts, and their rank is not known'
    >>> unclear_factors(layout, {"r": 2})
    ''
    """
    pairs, _, odd = _sort_out(layout)
    if odd:
        return ""
    if told := next((name for name in _NO_PRODUCT if settings.get(name)), ""):
        return f"they are of a kind that adds no plain B·A ({told})"
    across = _transposed(pairs, settings)
    if across is None:
        first = next(pair["a"] for key, pair in pairs.items() if len(_ways(key, pair, settings)) == 2)
        return f"{first.name} {list(first.shape)} may be A or A transposed, and their rank is not known"
    for (before, kind, after), pair in pairs.items():
        a = pair["a"]
        if (before, kind, after) not in across and _experts(before, a.shape[0], settings) is None:
            if "r" not in settings:
                return f"{a.name} has the rows of all experts, and their rank is not known"
            return f"{a.name} has {a.shape[0]} rows, and the rank is said to be {settings['r']}"
    return ""


def _sort_out(layout: Layout) -> tuple[dict[_Key, dict[str, TensorEntry]], list[str], str]:
    """Return the pairs of factors, the names of parameters that are no factors, and the name of the first factor that
    is in no pair; "" of none. What scales a pair (kohya's ``.alpha``) is no weight."""
    pairs: dict[_Key, dict[str, TensorEntry]] = {}
    dense, alphas = [], alphas_in({entry.name: entry.shape for entry in layout.entries})
    for entry in layout.parameters:
        place = split_factor(entry.name)
        if place is None:
            dense += [] if entry.name in alphas else [entry.name]
            continue
        before, kind, after = place
        if kind not in PAIRS and kind not in _FIRST:
            return {}, [], entry.name
        pairs.setdefault((before, _FIRST.get(kind, kind), after), {})["b" if kind in _FIRST else "a"] = entry
    for pair in pairs.values():
        if len(pair) < 2:
            return {}, [], next(iter(pair.values())).name
        if not _fits(pair):  # loralib's merged layers share A's rows among several B
            return {}, [], pair["b"].name
    return pairs, dense, ""


def _fits(pair: Mapping[str, TensorEntry]) -> set[bool]:
    """Return how the shapes of a pair multiply: as A [r, in] and B [out, r] (False), transposed (True), either or
    neither."""
    a, b = pair["a"].shape, pair["b"].shape
    straight = len(b) > 1 and b[1] == a[0] and prod(b[2:]) == 1
    across = len(a) == len(b) == 2 and a[1] == b[0]
    return {way for way, fits in ((False, straight), (True, across)) if fits}


def _transposed(pairs: Mapping[_Key, Mapping[str, TensorEntry]], settings: Mapping[str, Any]) -> set[_Key] | None:
    """Return which pairs are kept transposed; None where it cannot be told.

    Of pairs that fit both ways, as those of square layers do, the rank says it, then the other pairs, which are kept
    alike, then the sizes: no rank is greater than both sides of its layer. A ``weight`` is that of a layer of torch,
    whose A is [r, in].
    """
    found = {key: way.pop() for key, pair in pairs.items() if len(way := _ways(key, pair, settings)) == 1}
    told = set(found.values())
    for key, pair in pairs.items():
        if key in found:
            continue
        high, wide = pair["a"].shape
        if len(told) == 1:
            found[key] = next(iter(told))
        elif high != wide:
            found[key] = high > wide
        elif key[1] in _EITHER_WAY:
            return None  # lora_a as torchtune has it without ".weight", and MLX
        else:
            found[key] = False
    return {key for key, way in found.items() if way}


def _ways(key: _Key, pair: Mapping[str, TensorEntry], settings: Mapping[str, Any]) -> set[bool]:
    """The ways in which a pair may be kept, by its shapes, names and rank."""
    fits, (high, *wide) = _fits(pair), pair["a"].shape
    if len(fits) < 2:
        return fits
    if key[2].endswith("weight") or key[1] == "lora_embedding_A":
        return {False}
    rank = settings.get("r")
    if rank in (high, *wide) and high != wide[0]:
        return {rank != high}
    return fits


def _experts(layer: str, rows: int, settings: Mapping[str, Any]) -> int | None:
    """Return of how many experts the rows of an A are; None where it cannot be told.

    PEFT says the rank of one expert, and A has that of all. Rows that a ``rank_pattern`` explains are of one.
    """
    targets = settings.get("target_parameters")
    module = re.sub(r"(\.base_layer)+$", "", layer)
    if isinstance(targets, list | tuple):
        owners = [name.rpartition(".")[0] for name in targets if isinstance(name, str)]
        of_parameter = any(owner and f".{module}".endswith(f".{owner}") for owner in owners)
        if not of_parameter:
            return 1
    else:
        of_parameter = layer.rpartition(".")[2] in _OF_PARAMETERS
    rank, patterns = settings.get("r"), settings.get("rank_pattern") or {}
    if not isinstance(rank, int) or rank < 1:
        return None if of_parameter else 1
    if not of_parameter and patterns:
        return 1
    if rows == rank:
        return 1
    return rows // rank if of_parameter and not patterns and rows % rank == 0 else None


def _scale(name: str, rank: int, settings: Mapping[str, Any]) -> float | None:
    """α/r of a layer; None where α is not known."""
    alphas = settings.get("alpha")
    # kohya's are by layer
    alpha = alphas.get(name) if isinstance(alphas, Mapping) else alpha_of(name, settings)
    if not isinstance(alpha, int | float):
        return None
    return float(alpha) / (math.sqrt(rank) if settings.get("use_rslora") else rank)
