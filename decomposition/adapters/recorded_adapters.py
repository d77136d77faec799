"""Adapters of recorded rounds: what a run's models add, and the factors of a round's models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...analysis.runs import warn_of_adapters
from ...checkpoints import ColumnChunk, Round, Run, Weights, read_chunks
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapters import settings_of_run
from ...checkpoints.models.low_rank import difference, norm
from ...checkpoints.models.patterns import unfollowed
from ...checkpoints.models.products import Adapters, Product, adapters_of, unclear_factors
from ...checkpoints.models.weights import BFLOAT16

Array = npt.NDArray[np.float64]

#: numbers of a chunk that is read
NUMBERS = 2**20
_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, BFLOAT16: 2.0**-7}


def adapters_of_run(run: Run) -> Adapters | None:
    """Return what the models of a run add; None where they are no adapters, or of a kind that has no plain products."""
    return adapters_of(run.layout, settings_of_run(run.info))


def said_again(run: Run) -> str:
    """What makes a run whose adapters say how their factors multiply, in the imperative."""
    if run.is_foreign:
        return "import the adapters again with their adapter_config.json"
    return "train again with a model whose peft_config says the rank that they have"


def warn_of_products(runs: Sequence[Run], *, means: bool = False) -> None:
    """Say what is to be known of adapters where products are compared: that their scale α/r was not recorded, or that
    their factors are compared after all, as they are of another kind or do not say how they multiply.

    Args:
        means: losses of factors' means are measured beside them.
    """
    without = [run for run in runs if adapters_of_run(run) is None]
    unclear = [(run, why) for run in without if (why := unclear_factors(run.layout, settings_of_run(run.info)))]
    for run, why in unclear:
        warn_user(
            f"{run.path}: its adapters do not say how their factors multiply: {why}; distances and angles are between "
            "factors, and not between products B·A; {said_again(run)}, or merge them into their base"
        )
    named = {run.path for run, _ in unclear}
    warn_of_adapters([run for run in without if run.path not in named])
    if means:
        warn_of_adapters([run for run in runs if adapters_of_run(run) is not None], "means")
    for run in runs:
        adapters = adapters_of_run(run)
        if adapters is None or adapters.is_scaled:
            continue
        if key := unfollowed(run.info.get("adapters", {})):
            warn_user(
                f"{run.path}: its alpha_pattern has the key {key!r}, an expression that is not followed, so products "
                "B·A count as they are; name the layers in adapter_config.json instead, as model.layers.0.q_proj, and "
                "import or record the models again"
            )
        else:
            warn_user(
                f"{run.path}: the scale alpha / rank of its adapters was not recorded, so products B·A count as they "
                "are; fedscope import --lora-alpha, or Recorder(lora_alpha=), gives it"
            )


def said_of_means(runs: Sequence[Run]) -> str:
    """What a question does with adapters that compares products and averages factors: ``means``, or ``factors`` where
    they have no plain products."""
    return "factors" if any(adapters_of_run(run) is None for run in runs) else "means"


def about_products(adapters: Adapters | None) -> dict[str, Any]:
    """Return what a result's provenance says of adapters; nothing of other models."""
    if adapters is None:
        return {}
    scales = sorted({product.scale for product in adapters.products})
    return {"adapters": "products of factors", "adapter_scales": scales, "adapter_scale_known": adapters.is_scaled}


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors of one product in n models, with the scale in B.

    Attributes:
        a: [n, r, in]; b: [n, out, r].
    """

    a: Array
    b: Array

    def __getitem__(self, rows: slice | npt.NDArray[np.bool_]) -> Factors:
        """Those of some of the models."""
        return Factors(self.a[rows], self.b[rows])


def factors_of(round_: Round, product: Product, which: str = "clients") -> Factors:
    """Read the factors of a product in a round's clients, or in its ``start``, ``global`` or ``averaged``.

    Raises:
        FedscopeError: the models were not recorded.
    """
    return Factors(*product.factors(*(read_parameter(round_, name, which) for name in (product.a, product.b))))


def products_apart(adapters: Adapters, one: Weights, other: Weights) -> float:
    """‖Σ s (B A − B' A')‖ of two models [P] over all products, and over the parameters beside them."""
    arrays, others = one.arrays(), other.arrays()
    squares = [float(np.linalg.norm(arrays[name].astype(np.float64) - others[name])) ** 2 for name in adapters.dense]
    for product in adapters.products:
        if all(np.array_equal(arrays[name], others[name]) for name in (product.a, product.b)):
            continue  # and not the rounding of a norm
        pair = [
            product.factors(model[product.a].reshape(1, -1), model[product.b].reshape(1, -1))
            for model in (arrays, others)
        ]
        (a, b), (a_other, b_other) = pair
        squares.append(norm(*difference((b[0], a[0]), (b_other[0], a_other[0]))) ** 2)
    return math.sqrt(sum(squares))


def read_parameter(round_: Round, name: str, which: str = "clients") -> npt.NDArray[np.floating]:
    """Read one parameter of a round's models, [n, size].

    Raises:
        FedscopeError: the models were not recorded.
    """
    return joined(list(read_chunks(round_, NUMBERS, [name], which=which)))


def eps_of(round_: Round) -> float:
    """The distance from 1 to the next number, in the coarsest type in which a round keeps its parameters."""
    return max(_EPS.get(entry.stored or entry.dtype, 0.0) for entry in round_.layout.parameters)


def joined(chunks: Sequence[ColumnChunk]) -> npt.NDArray[np.floating]:
    """Read chunks that follow each other, as one."""
    values: npt.NDArray[np.floating] = np.concatenate([chunk.read() for chunk in chunks], axis=1)
    return values
