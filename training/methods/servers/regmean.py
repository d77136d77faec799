"""RegMean: Jin, Ren, Preotiuc-Pietro and Cheng, "Dataless Knowledge Fusion by Merging Weights of Language Models", ICLR
2023."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ....checkpoints import FedscopeError, Weights, weighted_mean
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.probes import Linear, probe_of


@dataclass(frozen=True)
class RegMean(ServerMethod):
    """Linear layers answer, in the sense of least squares, as those of the models do on their own inputs.

    With the inputs X_i [rows, in] of a linear layer of model i on samples of a split, its weight W_i [out, in], and
    G_i = α X_iᵀX_i + (1 − α) diag(X_iᵀX_i)::

        W⁺ = (Σ p_i W_i G_i) (Σ p_i G_i)⁻¹

    which minimises Σ p_i ‖X_i W⁺ᵀ − X_i W_iᵀ‖² where α is 1. A linear layer is a product of inputs with a weight,
    whatever class computes it: attention, too, and GPT-2's ``Conv1D``, whose weight is [in, out]. Recurrent layers are
    none. A weight that several layers share has the inputs of all of them that are linear, or, where it is both
    [out, in] and [in, out], of those to which it is [out, in]. All other parameters, also biases, are their mean with
    p; buffers too. A warning names the matrices among them. Chosen: along directions in which no model has inputs W⁺ is
    the mean, too; p_i, where the paper counts models alike (``weighting`` = ``uniform``); all models see the same
    samples, where the paper takes each model's own, so a first layer, whose inputs these are, gets the mean. Weights of
    a unit that is almost never active may become large. Holds one matrix [in, in] a linear layer, and one more for the
    model that is looked at.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "RegMean",
        "Jin et al., Dataless Knowledge Fusion, ICLR 2023",
        "of linear layers W⁺ = (Σ p_i W_i G_i)(Σ p_i G_i)⁻¹, G_i the products of their inputs on a split",
    )
    forgets_start: ClassVar[bool] = True
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "rows"

    split: Literal["train", "test"] = setting("train", "split of the samples whose inputs are taken")
    samples: int | None = setting(1000, "number of its samples to use, drawn once; none: all", least=1)
    alpha: float = setting(0.9, "α: how much products of two different inputs count", least=0, most=1)

    @property
    def validates_on(self) -> tuple[str, int | None]:
        """The split and how many of its samples."""
        return self.split, self.samples

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        """See the class.

        Raises:
            FedscopeError: a model without linear layers.
        """
        probe, layout = probe_of(cohort), clients.layout
        mean = weighted_mean(clients, cohort.p).parameters.astype(np.float64)
        means, total, beside = layout.views(mean), dict[Linear, np.ndarray](), dict[Linear, np.ndarray]()
        for k in np.flatnonzero(cohort.p):
            model = clients.row(int(k))
            own = layout.views(np.asarray(model.parameters))
            for layer, products in probe.input_products(model).items():
                weighed = cohort.p[k] * self.shrunk(products)
                total[layer] = total.get(layer, 0.0) + weighed
                apart = layer.of(own[layer.name]) - layer.of(means[layer.name])
                beside[layer] = beside.get(layer, 0.0) + apart @ weighed
        if not total:
            raise FedscopeError(
                "the server regmean merges linear layers, and the model calls none (no product of inputs with a "
                "weight), so it would be the plain mean; use --server fma"
            )
        for layer, products in total.items():
            # from the mean, which stays where there are no inputs
            merged = layer.of(means[layer.name])
            with np.errstate(invalid="ignore"):
                merged += beside[layer] @ inverse(products)
        return Served(mean.astype(layout.dtype))

    def shrunk(self, products: np.ndarray) -> np.ndarray:
        """Return G of XᵀX."""
        return self.alpha * products + (1 - self.alpha) * np.diag(np.diagonal(products))


def inverse(products: np.ndarray) -> np.ndarray:
    """Invert a sum of products [in, in], 0 along directions without inputs; NaN where it is not finite.

    >>> inverse(np.diag([4.0, 0.0])).tolist()
    [[0.25, 0.0], [0.0, 0.0]]
    """
    if not np.isfinite(products).all():
        return np.full_like(products, np.nan)
    return np.linalg.pinv(products, rcond=1e-12, hermitian=True)


PROVIDES = RegMean
