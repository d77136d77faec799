"""Theorem 2 on clients that differ in size, beside a computation that shares nothing with fedscope's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedscope.checkpoints import Run
from fedscope.decomposition.theory.analysis import theory
from fedscope.training import data_of


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    """The digits on ten clients of 78 to 161 samples or so, all in each of five rounds."""
    run = tmp_path_factory.mktemp("unequal") / "dir"
    return recorded(run, "--partition", "dirichlet:0.3", "--clients", "10", "--participation", "1", "--rounds", "5")


def kernel_by_hand(x: np.ndarray, layers: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """(1/C) Σ_c ⟨∇f_c(x), ∇f_c(x')⟩ of a perceptron with ReLU, in numpy: the gradient of a layer's weights is the outer
    product of its inputs a and of δ, the output's derivative by what leaves the layer, and that of its biases is δ."""
    inputs, masks = [x], []
    for w, b in layers[:-1]:
        before = inputs[-1] @ w.T + b
        masks.append(before > 0)
        inputs.append(np.maximum(before, 0))
    classes = len(layers[-1][1])
    kernel = np.zeros((len(x), len(x)))
    for c in range(classes):
        delta = np.tile(np.eye(classes)[c], (len(x), 1))
        for depth in range(len(layers) - 1, -1, -1):
            kernel += (delta @ delta.T) * (inputs[depth] @ inputs[depth].T + 1)
            if depth:
                delta = (delta @ layers[depth][0]) * masks[depth - 1]
    return kernel / classes


@pytest.mark.slow
def test_of_unequal_clients_equation_3_has_the_relation_that_its_first_term_lacks(unequal: Path) -> None:
    """The issue's measurement, over all training samples, beside numpy alone: the network's derivative by hand, the
    terms from their definitions, the variance from the textbook's inverse."""
    rounds = [1, 3, 5]
    made = theory(unequal, rounds=rounds, shrink="none", kernel=rounds, kernel_samples=5000, draws="none")
    run = Run.open(unequal)
    x = data_of(run).samples("train").x[:].double().numpy()
    x = x.reshape(len(x), -1)
    for number in rounds:
        round_ = run.round(number)
        arrays = {name: value.astype(np.float64) for name, value in round_.read("start").arrays().items()}
        names = list(arrays)  # weight and bias of each layer in turn
        layers = [(arrays[w], arrays[b]) for w, b in zip(names[::2], names[1::2], strict=True)]
        kernel = kernel_by_hand(x, layers)
        squared, diagonal = kernel**2, np.diag(kernel)
        beta_d = squared[~np.eye(len(x), dtype=bool)].mean()
        found: dict[str, list[float]] = {"equation_3": [], "mmd2": [], "predicted": []}
        variances = []
        for client in round_.client_ids:
            own = run.partition.clients[client]
            mmd = squared.mean() + squared[np.ix_(own, own)].mean() - 2 * squared[:, own].mean()
            factor = len(own) / (2 * diagonal[own].mean())
            found["mmd2"].append(mmd)
            found["predicted"].append(factor * mmd)
            found["equation_3"].append(factor * mmd + diagonal.mean() - factor * beta_d)
            inner = kernel[np.ix_(own, own)] + 1e-6 * diagonal.mean() * np.eye(len(own))
            gain = np.linalg.solve(inner, kernel[own])
            variances.append((diagonal - (kernel[own] * gain).sum(axis=0)).mean())
        for name, values in found.items():
            r = np.corrcoef(values, variances)[0, 1]
            said_of = made.correlation(number, "gp_variance", name)
            assert said_of is not None
            # fedscope's gradients are projected to 1,024 dimensions, so that entries of K are 4 % off
            assert said_of.pearson == pytest.approx(r, abs=0.05)
        whole, first = (made.correlation(number, "gp_variance", name) for name in ("equation_3", "predicted"))
        assert whole is not None
        assert first is not None
        assert whole.pearson > 0.7
        assert whole.low > 0.2
        assert first.pearson < 0.2
        assert first.low < 0 < first.high
