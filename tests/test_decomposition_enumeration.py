"""A toy problem with known answers: the clients' models take few values, so expectations are finite sums."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from fedscope.checkpoints import Layout, Weights
from fedscope.decomposition import CohortDraws, decompose_round
from fedscope.landscape import Compute, Samples

CLASSES, N, CLIENTS = 3, 4, 2
P = np.array([0.25, 0.75])
Y = np.array([0, 2, 1, 2])
MEMBERS = np.array([[True, False, True, False], [False, True, True, False]])  # one sample is both's, one nobody's


class Table(torch.nn.Module):
    """The logits on sample j are row j of the only parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.zeros(N, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[x[:, 0].long()]


def softmax(tables: np.ndarray) -> np.ndarray:
    power = np.exp(tables.astype(np.float64).reshape(*tables.shape[:-1], N, CLASSES))
    return power / power.sum(-1, keepdims=True)


def distribution(independent_clients: bool) -> tuple[np.ndarray, np.ndarray]:
    """The cohort's states [S, K, P] and their probabilities [S]. Eighths and small integers: means of weights are
    exact in float32, so nothing here is known only to rounding."""
    rng = np.random.default_rng(3)
    if not independent_clients:
        return rng.integers(-8, 9, (3, CLIENTS, N * CLASSES)).astype(np.float32) / 4, np.array([0.5, 0.2, 0.3])
    values = rng.integers(-8, 9, (CLIENTS, 2, N * CLASSES)).astype(np.float32) / 4
    chances = np.array([[0.5, 0.5], [0.9, 0.1]])
    pairs = list(product(range(2), repeat=2))
    states = np.stack([np.stack([values[0, i], values[1, j]]) for i, j in pairs])
    return states, np.array([chances[0, i] * chances[1, j] for i, j in pairs])


def exact(states: np.ndarray, chance: np.ndarray) -> dict[str, float]:
    """The factors with true expectations over the states, straight from Theorem 1."""
    f = softmax(states)  # [S, K, N, C]
    y = np.eye(CLASSES)[Y]
    mean = np.tensordot(chance, f, 1)
    train = sum(P[k] * MEMBERS[k][:, None] * (y - mean[k]) for k in range(CLIENTS))
    heter = sum(P[k] * ~MEMBERS[k][:, None] * (y - mean[k]) for k in range(CLIENTS))
    variance = covariance = 0.0
    for k, other in product(range(CLIENTS), repeat=2):
        both = P[k] * P[other] * chance @ ((f[:, k] - mean[k]) * (f[:, other] - mean[other])).sum(-1)
        if k == other:
            variance += both.mean()
        else:
            covariance += both.mean()
    wens = np.square(y - np.einsum("k,skjc->sjc", P, f)).sum(-1).mean(-1)
    fma = np.square(y - softmax(np.einsum("k,skp->sp", P, states))).sum(-1).mean(-1)
    return {
        "train_bias": np.square(train).sum(-1).mean(),
        "heter_bias": np.square(heter).sum(-1).mean(),
        "bias_cross": 2 * (train * heter).sum(-1).mean(),
        "bias": np.square(train + heter).sum(-1).mean(),
        "variance": variance,
        "covariance": covariance,
        "locality": chance @ (fma - wens),
        "ensemble_loss": chance @ wens,
        "fma_loss": chance @ fma,
    }


@pytest.mark.parametrize("draws", [2, 3])
@pytest.mark.parametrize("independent_clients", [True, False])
def test_the_unbiased_estimates_average_to_the_truth_over_all_draws(draws, independent_clients):
    states, chance = distribution(independent_clients)
    truth = exact(states, chance)
    assert abs(truth["covariance"]) < 1e-12 if independent_clients else abs(truth["covariance"]) > 1e-3
    five = sum(truth[name] for name in ("train_bias", "heter_bias", "bias_cross", "variance", "covariance", "locality"))
    assert five == pytest.approx(truth["fma_loss"], rel=1e-12)

    module = Table()
    layout = Layout.of(module)
    samples = Samples(torch.arange(N)[:, None].float(), torch.from_numpy(Y), CLASSES, "toy", "train", np.arange(N))
    means: dict[tuple[str, str], float] = {}
    for tuple_ in product(range(len(states)), repeat=draws):
        cohort = CohortDraws(
            round=1,
            client_ids=np.arange(CLIENTS),
            p=P,
            draws=[Weights(layout, states[state], {}) for state in tuple_],
            client_samples=np.array([1, 3]),
            source="local:2",
            independent=True,
        )
        result = decompose_round(
            module, samples, cohort, MEMBERS, globals_=None, averaged=None, population=True, compute=Compute(workers=1)
        )
        weight = float(np.prod(chance[list(tuple_)]))
        for row in result.rows:
            if row.value is not None:
                key = (row.factor, row.estimate)
                means[key] = means.get(key, 0.0) + weight * row.value
    for name in ("train_bias", "heter_bias", "bias_cross", "bias", "variance", "covariance", "locality"):
        assert means[name, "unbiased"] == pytest.approx(truth[name], abs=1e-10), name
    for name in ("ensemble_loss", "fma_loss"):
        assert means[name, "measured"] == pytest.approx(truth[name], abs=1e-10), name
    # The plug-in estimates' bias is the one that is taken out: they overstate bias and understate variance.
    assert means["bias", "plugin"] > truth["bias"] + 1e-3
    assert means["variance", "plugin"] == pytest.approx(truth["variance"] * (draws - 1) / draws, abs=1e-10)
