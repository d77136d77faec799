"""Parts of a server's step: how far the clients went from the model that they were sent; and the adaptive steps
of Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan, "Adaptive Federated Optimization", ICLR 2021."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from ....checkpoints import FedscopeError, Weights
from ...settings.settings import setting
from ..base import Cohort, Served, ServerMethod, State

if TYPE_CHECKING:
    from ...config.config import Config


def updates(start: Weights, clients: Weights) -> Iterator[np.ndarray]:
    """Δ_i = θ_i − w of each client in turn, [P] in float64; the array is reused, so a cohort costs O(P).

    >>> from fedscope.checkpoints import Layout
    >>> from fedscope.checkpoints.models.weights import TensorEntry
    >>> layout = Layout((TensorEntry("w", (2,), "float32", "parameter"),))
    >>> start, clients = np.float32([1, 1]), np.float32([[1, 2], [3, 1]])
    >>> [update.tolist() for update in updates(Weights(layout, start, {}), Weights(layout, clients, {}))]
    [[0.0, 1.0], [2.0, 0.0]]
    """
    update = np.empty(start.parameters.shape, np.float64)
    for row in clients.parameters:
        np.subtract(row, start.parameters, out=update, dtype=np.float64)
        yield update


def weighted_update(start: Weights, clients: Weights, weights: np.ndarray) -> np.ndarray:
    """Σ_i weights_i Δ_i, [P] in float64: with p the mean update Δ̄.

    Differences are taken before they are added up, so that clients who have not moved move nothing, whatever the
    weights add up to. One of weight 0 has no part, even where it diverged.
    """
    total = np.zeros(start.parameters.shape, np.float64)
    for weight, update in zip(weights, updates(start, clients), strict=True):
        if weight == 0:
            continue
        update *= weight
        total += update
    return total


def as_weighed(values: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Values of C clients, [C, ...], as they enter sums with p: 0 of a client of weight 0 that has diverged, because
    0 · NaN is NaN. All others stay, and so does the array where there is no such client.

    >>> as_weighed(np.array([[1.0, 2.0], [np.nan, 3.0]]), np.array([1.0, 0.0])).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """
    away = [k for k in np.flatnonzero(p == 0) if not np.isfinite(values[k]).all()]
    if not away:
        return values
    values = values.copy()
    values[away] = 0
    return values


def mean_update(start: Weights, clients: Weights) -> np.ndarray:
    """mean_S Δ_i, the unweighted mean update, [P] in float64."""
    return weighted_update(start, clients, np.full(len(clients), 1 / len(clients)))


@dataclass(frozen=True)
class Adaptive(ServerMethod):
    """Steps along the clients' mean update, each parameter at a pace of its own.

    w⁺ = w + η_s Δ̄ / (√v⁺ + τ), with v⁺ [P] from v and Δ̄² as :meth:`second` says.
    """

    optimiser: ClassVar[bool] = True

    lr: float = setting(0.01, "η_s: the server's step", above=0)
    tau: float = setting(1e-3, "τ: added to the root of v; a larger value is less adaptive", above=0)
    v0: Literal["zero", "tau2"] = setting("zero", "v before the first round: 0, or τ² as in Algorithm 2")

    def init(self, w: np.ndarray) -> State:
        """v_0, [P]."""
        return {"v": np.full_like(w, self.tau**2 if self.v0 == "tau2" else 0)}

    def second(self, v: np.ndarray, squared: np.ndarray) -> np.ndarray:
        """v⁺ from v and Δ̄², elementwise."""
        raise NotImplementedError

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        update = weighted_update(start, clients, cohort.p)
        v = self.second(state["v"].astype(np.float64), update**2)
        moved = start.parameters + self.lr * update / (np.sqrt(v) + self.tau)
        dtype = start.layout.dtype
        return Served(moved.astype(dtype), {"v": v.astype(dtype)})


@dataclass(frozen=True)
class AdaptiveMomentum(Adaptive):
    """An adaptive step along an exponential mean of the mean updates.

    m⁺ = β1 m + (1 − β1) Δ̄, m_0 = 0; w⁺ = w + η_s m⁺ / (√v⁺ + τ). With ``bias_correction``, in the server's s-th step,
    m⁺/(1 − β1^s) and v⁺/(1 − β2^s) stand in the place of m⁺ and v⁺.
    """

    beta1: float = setting(0.9, "β1: decay of m, the mean of the updates", least=0, below=1)
    beta2: float = setting(0.99, "β2: decay of v, the mean of their squares", least=0, below=1)
    bias_correction: bool = setting(False, "correct m and v for their start at 0")

    def resolve(self, config: Config) -> Self:
        """Refuse to correct for a beginning at 0 that was none."""
        if self.bias_correction and self.v0 != "zero":
            raise FedscopeError(
                f'server.bias_correction corrects a v that began at 0, but server.v0 = "{self.v0}"; '
                "leave one of them out"
            )
        return self

    def init(self, w: np.ndarray) -> State:
        """m_0 and v_0, [P], and the number of steps done, 0."""
        return {"m": np.zeros_like(w), **super().init(w), "steps": np.array(0)}

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        update = weighted_update(start, clients, cohort.p)
        m = self.beta1 * state["m"].astype(np.float64) + (1 - self.beta1) * update
        v = self.second(state["v"].astype(np.float64), update**2)
        dtype = start.layout.dtype
        done = int(state["steps"]) + 1
        kept = {"m": m.astype(dtype), "v": v.astype(dtype), "steps": np.array(done)}
        if self.bias_correction:
            m /= 1 - self.beta1**done
            v /= 1 - self.beta2**done
        moved = start.parameters + self.lr * m / (np.sqrt(v) + self.tau)
        return Served(moved.astype(dtype), kept)
