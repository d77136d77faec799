"""A greedy soup: Wortsman et al., "Model soups: averaging weights of multiple fine-tuned models improves accuracy
without increasing inference time", ICML 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ...checkpoints import Weights, stack
from ..methods import About, Cohort, Served, ServerMethod, State
from ..settings import setting

#: (error, loss), where there is no error the loss alone; the less the better, and infinite where it is not finite
Quality = tuple[float, float]


@dataclass(frozen=True)
class Greedy(ServerMethod):
    """The mean of those clients who do not make it worse.

    Clients are sorted by their error on a split of the data. The best one is the first of the soup S; each of the
    others, in turn, stays in it if the mean with it has no greater error than the mean without it::

        w⁺ = Σ_{i in S} p_i θ_i / Σ_{i in S} p_i

    Buffers are averaged alike. Chosen: where errors are equal, or the task has none, the loss decides; of models that
    are equal in both, the lower id comes first. A client whose loss is not finite is left out, unless all are. Costs C
    evaluations at once and up to C − 1 one after the other.

    The soup is chosen on ``split``. Measured on the same samples it looks better than it is: keep samples aside.

    Source: Wortsman et al., the greedy soup, where p is 1/C (``weighting = "uniform"``).
    """

    about: ClassVar[About] = About(
        "Greedy (soup)",
        "Wortsman et al., Model soups, ICML 2022",
        "w⁺ = mean of the clients, best first, that do not raise the error of the mean on a split",
    )
    forgets_start: ClassVar[bool] = True

    split: Literal["train", "test"] = setting("train", "the split on which the soup is chosen")
    samples: int | None = setting(None, "so many of its samples, drawn once; all by default", least=1)

    @property
    def judges_on(self) -> tuple[str, int | None]:
        """The split and how many of its samples."""
        return self.split, self.samples

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        assert cohort.judge is not None, "whoever steps with a server that judges gives it a judge"
        alone = _qualities(*cohort.judge(clients))
        order = sorted(map(int, np.flatnonzero(cohort.p)), key=lambda k: (alone[k], cohort.client_ids[k]))
        soup = _Soup(clients).with_client(order[0], cohort.p[order[0]])
        best = alone[order[0]]
        for k in order[1:]:
            if alone[k][1] == np.inf:
                break
            tried = soup.with_client(k, cohort.p[k])
            (quality,) = _qualities(*cohort.judge(stack([tried.mean()])))
            if quality <= best:
                soup, best = tried, quality
        p = np.zeros(len(clients))
        p[list(soup.members)] = cohort.p[list(soup.members)]
        return Served(soup.mean().parameters, p=p / p.sum())


def _qualities(losses: np.ndarray, errors: np.ndarray) -> list[Quality]:
    finite = np.where(np.isfinite(losses), losses, np.inf)
    wrong = np.where(np.isnan(errors), 0.0, errors)
    return [(float(error) if loss < np.inf else np.inf, float(loss)) for error, loss in zip(wrong, finite, strict=True)]


class _Soup:
    """A mean that clients are added to one by one; sums in float64, [P], so that a cohort is not copied."""

    def __init__(self, clients: Weights) -> None:
        self.clients, self.members = clients, ()  # type: tuple[Weights, tuple[int, ...]]
        self.weight, self.heaviest = 0.0, 0.0
        self.total = np.zeros(clients.layout.size)
        self.buffers: dict[str, np.ndarray] = {}

    def with_client(self, k: int, p: float) -> _Soup:
        """The soup with client k, which has weight p."""
        clients, made = self.clients, _Soup(self.clients)
        made.members, made.weight = (*self.members, int(k)), self.weight + p
        made.heaviest = max(self.heaviest, p)
        np.multiply(clients.parameters[k], p, out=made.total, dtype=np.float64)
        made.total += self.total
        for name, rows in clients.buffers.items():
            if rows.dtype.kind == "f":
                made.buffers[name] = self.buffers.get(name, 0.0) + np.multiply(rows[k], p, dtype=np.float64)
            else:  # of the client with the most samples, the first one of equals
                made.buffers[name] = rows[k] if p > self.heaviest else self.buffers[name]
        return made

    def mean(self) -> Weights:
        """The model [P]."""
        layout, dtypes = self.clients.layout, {name: rows.dtype for name, rows in self.clients.buffers.items()}
        buffers = {
            name: np.asarray(value / self.weight if dtypes[name].kind == "f" else value, dtypes[name])
            for name, value in self.buffers.items()
        }
        return Weights(layout, (self.total / self.weight).astype(layout.dtype), buffers)


PROVIDES = Greedy
