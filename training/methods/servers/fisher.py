"""Fisher merging: Matena and Raffel, "Merging Models with Fisher-Weighted Averaging", NeurIPS 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.probes import probe_of


@dataclass(frozen=True)
class Fisher(ServerMethod):
    """Each parameter is the mean of the models', weighted with how much each model's outputs depend on it.

    With the diagonal F_i of the Fisher information of θ_i [P] on n samples x_j of a split::

        F_i = (1/n) Σ_j E_{y ~ p(y|x_j; θ_i)} (∇ log p(y|x_j; θ_i))²
        w⁺  = Σ p_i max(F_i, ε) θ_i / Σ p_i max(F_i, ε)

    The expectation over the classes is exact, and samples count alike. ``labels`` = ``data`` takes the labels of the
    data instead (the empirical Fisher information), of any task's loss: one gradient a sample, not one a class. Samples
    then count as in the task's mean, as with a criterion's weights of classes. Where all F_i are below ε it is the
    plain mean. Buffers are averaged with p. All models see the same samples, where the paper takes each model's own.
    Costs a gradient for each client, sample and class, one after the other.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "Fisher merging",
        "Matena and Raffel, Fisher-weighted averaging, NeurIPS 2022",
        "w⁺ = Σ p_i F_i θ_i / Σ p_i F_i, F_i the diagonal of the Fisher information on a split",
    )
    forgets_start: ClassVar[bool] = True
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "rows"

    split: Literal["train", "test"] = setting("train", "split of the samples on which gradients are taken")
    samples: int | None = setting(200, "number of its samples to use, drawn once; none: all", least=1)
    labels: Literal["model", "data"] = setting("model", "labels of the gradients: the model's own, or the data's")
    floor: float = setting(1e-6, "ε, the least that a parameter counts", above=0)

    @property
    def validates_on(self) -> tuple[str, int | None]:
        """The split and how many of its samples."""
        return self.split, self.samples

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        probe = probe_of(cohort)
        total, weight = np.zeros((2, clients.layout.size))
        for k in np.flatnonzero(cohort.p):
            model = clients.row(int(k))
            own = cohort.p[k] * np.maximum(probe.squared_gradients(model, self.labels), self.floor)
            total += own * model.parameters
            weight += own
        return Served((total / weight).astype(clients.layout.dtype))


PROVIDES = Fisher
