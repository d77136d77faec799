"""Means of LoRA adapters that are means of what the adapters do: products of factors are averaged, not factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from ....checkpoints import FedscopeError, Layout, Weights, weighted_mean
from ....checkpoints.models.adapters import factors_in
from ....checkpoints.models.low_rank import best_of_rank, stacked
from ....checkpoints.models.products import adapters_of, unclear_factors
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.client_groups import layer_of
from ..shared.server_steps import as_weighed


@dataclass(frozen=True)
class LoRA(ServerMethod):
    """Adapters are averaged as products, all other parameters as in FMA.

    Of each pair of factors A_i [r, in] and B_i [out, r], with M = Σ_i p_i B_i A_i::

        mean = "products":  B⁺ A⁺ = the matrix of rank r nearest to M (Frobenius), by the SVD of the stacked factors
        mean = "frozen_a":  A⁺ = A of ``start``, B⁺ = Σ_i p_i B_i, which is M where no client has changed A

    FMA's mean of factors, Σ p_i B_i and Σ p_i A_i, multiplies to M only where one factor is the same in all clients. M
    itself has rank C r at most and does not fit the adapter; ``fedscope adapters`` says how far either is from it. B⁺
    and A⁺ share the roots of the singular values. Of a model without adapters it is FMA.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "LoRA", "", "B⁺A⁺ = Σ p_i B_i A_i at rank r, or B⁺ = Σ p_i B_i with A of the start"
    )
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "layers"
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {}}

    mean: Literal["products", "frozen_a"] = setting(
        "products", "average the products and keep the rank, or average B alone with the start's A"
    )

    def refuse_adapters(self, layout: Layout, adapters: Mapping[str, Any]) -> None:
        """As :meth:`ServerMethod.refuse_adapters`.

        Raises:
            FedscopeError: factors that are no pairs (DoRA, LoHa, LoKr, VeRA), or that do not say how they multiply.
        """
        if adapters_of(layout, adapters) is not None:
            return
        if unclear := unclear_factors(layout, adapters):
            raise FedscopeError(
                f"the server lora averages products of factors A and B, and {unclear}; use --server fma, or merge "
                "the adapters into their base"
            )
        if kinds := factors_in(layout.names):
            raise FedscopeError(
                f"the server lora averages pairs of factors A and B, and the model has {', '.join(kinds)}, which "
                "are no such pairs; use --server fma, or merge the adapters into their base"
            )

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        """See the class. Raises as :meth:`refuse_adapters`."""
        parameters = weighted_mean(clients, cohort.p).parameters
        adapters = adapters_of(start.layout, cohort.adapters)
        if adapters is None:
            self.refuse_adapters(start.layout, cohort.adapters)
            return Served(parameters)
        for product in adapters.products:
            if self.mean == "frozen_a":
                of_a = start.layout.slices[product.a]
                parameters[of_a] = start.parameters[of_a]
                continue
            own = (as_weighed(layer_of(clients, name), cohort.p) for name in (product.a, product.b))
            a, b = replace(product, scale=1.0).factors(*own)
            made_b, made_a = best_of_rank(*stacked(b, a, cohort.p), product.rank)
            product.put(parameters, start.layout.slices, made_a, made_b)
        return Served(parameters)


PROVIDES = LoRA
