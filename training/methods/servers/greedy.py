"""A greedy soup: Wortsman et al., "Model soups: averaging weights of multiple fine-tuned models improves accuracy
without increasing inference time", ICML 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ....checkpoints import Weights, stack, weighted_mean
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State

#: (error, loss), where there is no error the loss alone; the less the better, and infinite where it is not finite
Quality = tuple[float, float]


@dataclass(frozen=True)
class Greedy(ServerMethod):
    """The mean of the clients that do not make it worse.

    Clients are sorted by their error on a split of the data. The best one is the first of the soup S; each of the
    others, in turn, stays in it if the mean with it has no greater error than the mean without it::

        w⁺ = Σ_{i in S} p_i θ_i / Σ_{i in S} p_i

    Buffers are averaged alike. Chosen: where errors are equal, or the task has none, the loss decides; of models that
    are equal in both, the lower id comes first. A client whose loss is not finite is left out, unless all are. Costs C
    evaluations at once and up to C − 1 one after the other.

    The soup is chosen on ``split``. Measured on the same samples it looks better than it is: keep samples aside.

    Source: Wortsman et al., the greedy soup, where p is 1/C (``weighting = "uniform"``).
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "Greedy (soup)",
        "Wortsman et al., Model soups, ICML 2022",
        "w⁺ = mean of the clients, best first, that do not raise the error of the mean on a split",
    )
    forgets_start: ClassVar[bool] = True
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "rows"

    split: Literal["train", "test"] = setting("train", "split on which the soup is chosen")
    samples: int | None = setting(None, "number of its samples to use, drawn once; default: all", least=1)

    @property
    def validates_on(self) -> tuple[str, int | None]:
        """The split and how many of its samples."""
        return self.split, self.samples

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        assert cohort.validator is not None, "whoever steps with a server that judges gives it a validator"

        def shares(members: list[int]) -> np.ndarray:
            p = np.zeros(len(clients))
            p[members] = cohort.p[members] / cohort.p[members].sum()
            return p

        alone = _qualities(*cohort.validator(clients))
        first, *others = sorted(map(int, np.flatnonzero(cohort.p)), key=lambda k: (alone[k], cohort.client_ids[k]))
        taken, best = [first], alone[first]
        for k in others:
            if alone[k][1] == np.inf:
                break
            (quality,) = _qualities(*cohort.validator(stack([_mean(clients, shares([*taken, k]))])))
            if quality <= best:
                taken, best = [*taken, k], quality
        p = shares(taken)
        return Served(_mean(clients, p).parameters, p=p)


def _mean(clients: Weights, p: np.ndarray) -> Weights:
    return weighted_mean(clients, p, integer_from=int(p.argmax()))


def _qualities(losses: np.ndarray, errors: np.ndarray) -> list[Quality]:
    finite = np.where(np.isfinite(losses), losses, np.inf)
    wrong = np.where(np.isnan(errors), 0.0, errors)
    return [(float(error) if loss < np.inf else np.inf, float(loss)) for error, loss in zip(wrong, finite, strict=True)]


PROVIDES = Greedy
