"""Lemma 1 and Theorem 2 against closed forms, loops written by hand and the algebra behind them."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from legible import assert_apart, assert_inside
from random_models import Padded, as_padded
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fedscope.checkpoints import FedscopeError, Layout, Partition, Weights, stack
from fedscope.decomposition import CohortDraws
from fedscope.decomposition.theory.fedswa import bound_factor, said_of_bound
from fedscope.decomposition.theory.lemma1 import Gap, fit_slope, local_slopes
from fedscope.decomposition.theory.outputs import locality_gaps, replay_variances
from fedscope.decomposition.theory.result import Theory
from fedscope.decomposition.theory.tangent import _Gradients, _GradientsTogether, _sketch, tangent_kernel
from fedscope.decomposition.theory.theorem2 import ClientBound, client_bounds, correlate, mmd2, posterior_variance
from fedscope.evaluation.device import Compute
from fedscope.evaluation.samples import Samples
from fedscope.training.data.membership import by_client, kernel_rows, refuse_outside

HALVES = tuple(2.0**-i for i in range(7))


def samples(n: int, *shape: int, classes: int = 3, seed: int = 0) -> Samples:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=draw)
    y = torch.randint(classes, (n,), generator=draw)
    return Samples(x, y, classes, "toy", "train", np.arange(n))


def clients(module: nn.Module, count: int, spread: float = 0.5, seed: int = 0) -> Weights:
    """Models about one centre, in the module's own dtype."""
    draw, layout = np.random.default_rng(seed), Layout.of(module)
    centre = draw.normal(size=layout.size)
    rows = (centre + spread * draw.normal(size=(count, layout.size))).astype(layout.dtype)
    buffers = {
        entry.name: np.abs(1 + draw.normal(size=(count, *entry.shape))).astype(entry.dtype) for entry in layout.buffers
    }
    return Weights(layout, rows, buffers)


def network(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), activation, nn.Linear(8, 3))


P3 = np.array([0.5, 0.3, 0.2])


class Quadratic(nn.Module):
    """f_c(x) = Σ_j w_cj² x_j, so that WENS − f_FMA = Σ_k p_k Σ_j (w_k − w_FMA)_cj² x_j."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.w**2).T


# Lemma 1


def test_a_quadratic_model_has_its_closed_form_and_slope_1() -> None:
    module, data = Quadratic(), samples(20, 4)
    own = clients(module, 3)
    gaps = locality_gaps(module, data, own, P3, round=5, shrink=HALVES, outputs="logits")
    rows = own.parameters.astype(np.float64)
    away = rows - P3 @ rows
    difference = data.x.double().numpy() @ (P3 @ away**2).reshape(3, 4).T
    expected = math.sqrt((difference**2).sum(axis=1).mean())
    distances = np.linalg.norm(away, axis=1)
    for epsilon, one in zip(HALVES, gaps, strict=True):
        assert (one.round, one.shrink) == (5, epsilon)
        assert one.gap == pytest.approx(epsilon**2 * expected, rel=1e-12)
        assert one.distance == pytest.approx(epsilon * distances.max(), rel=1e-12)
        assert one.mean_distance == pytest.approx(epsilon * distances.mean(), rel=1e-12)
        assert one.ratio == pytest.approx(expected / distances.max() ** 2, rel=1e-10)
    slope = fit_slope(gaps)
    assert slope is not None
    assert slope.value == pytest.approx(1, abs=1e-10)
    assert local_slopes(gaps) == pytest.approx([1.0] * 6, abs=1e-10)


def test_a_linear_model_has_no_gap() -> None:
    module, data = nn.Linear(4, 3), samples(20, 4)
    own = clients(module, 3)
    gaps = locality_gaps(module, data, own, P3, round=1, shrink=HALVES, outputs="logits")
    assert all(one.gap < 1e-14 * one.scale for one in gaps)
    assert not any(one.counts for one in gaps)
    assert fit_slope(gaps) is None
    # the softmax of its outputs has one
    assert all(one.counts for one in locality_gaps(module, data, own, P3, round=1, shrink=HALVES))


@pytest.mark.parametrize("outputs", ["probabilities", "logits"])
def test_the_gap_is_that_of_a_loop(outputs: Any) -> None:
    # More samples than a chunk, and not a multiple of one.
    module, data = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)), samples(1203, 4)
    own = clients(module, 3)
    reported: list[tuple[int, int]] = []
    (one,) = locality_gaps(
        module,
        data,
        own,
        P3,
        round=1,
        outputs=outputs,
        compute=Compute(workers=2),
        progress=lambda *done: reported.append(done),
    )

    def answer(entries: dict[str, np.ndarray]) -> torch.Tensor:
        double = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double().eval()
        double.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in entries.items()})
        with torch.no_grad():
            f = double(data.x.double())
        return torch.softmax(f, 1) if outputs == "probabilities" else f

    every = [{name: value.astype(np.float64) for name, value in own.row(k).arrays().items()} for k in range(3)]
    mean = {name: sum(p * client[name] for p, client in zip(P3, every, strict=True)) for name in every[0]}
    f = answer(mean)  # type: ignore[arg-type]
    difference = sum(p * answer(client) for p, client in zip(P3, every, strict=True)) - f
    assert one.gap == pytest.approx(float((difference**2).sum(1).mean().sqrt()), rel=1e-12)
    assert one.scale == pytest.approx(float((f**2).sum(1).mean().sqrt()), rel=1e-12)
    assert reported == [(500, 1203), (1000, 1203), (1203, 1203)]


def test_a_smooth_network_goes_to_the_rate_of_the_lemma() -> None:
    """In single precision, or about a mean rounded to it, the last gaps (1e-9) would be rounding."""
    module = network(nn.Tanh())
    shrink = [2.0**-i for i in range(13)]
    gaps = locality_gaps(module, samples(50, 4), clients(module, 3), P3, round=1, shrink=shrink)
    assert gaps[-1].gap < 1e-7
    # a gap a ε² + b ε³ has the slope 1 + O(ε)
    assert local_slopes(gaps)[-4:] == pytest.approx([1.0] * 4, abs=0.003)


def test_kinks_make_the_gap_fall_more_slowly() -> None:
    """f = relu(w x): gap² = E (|ε d x| / 2)² over |w x| < ε |d x| is a multiple of ε³, so the slope is 3/4."""

    class Kink(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.b = nn.Parameter(torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x + self.b)

    module = Kink()
    x = torch.linspace(-1, 1, 20001).reshape(-1, 1).repeat(1, 2)
    data = Samples(x, torch.zeros(len(x), dtype=torch.int64), 2, "toy", "train", np.arange(len(x)))
    two = Weights(Layout.of(module), np.array([[0.5, 0.5], [-0.5, -0.5]], np.float32), {})
    gaps = locality_gaps(module, data, two, np.array([0.5, 0.5]), round=1, shrink=HALVES, outputs="logits")
    assert local_slopes(gaps) == pytest.approx([0.75] * 6, abs=0.005)


def test_identical_clients_are_left_out_of_the_fit() -> None:
    module = network(nn.Tanh())
    same = clients(module, 3, spread=0.0)
    (none,) = locality_gaps(module, samples(20, 4), same, np.full(3, 1 / 3), round=9)
    # the mean of equal float32 rows is off by float64's rounding
    assert none.distance < 1e-15 or none.gap < 1e-15
    assert not none.counts
    gaps = [Gap(t, 1.0, 0.3 * t**3, t, t, 1.0) for t in (1, 2, 4, 5)]
    broken = [Gap(6, 1.0, gap, 3.0, 3.0, 1.0) for gap in (math.nan, math.inf, 1e-13)]
    slope = fit_slope([*gaps, none, *broken, Gap(7, 1.0, 1.0, math.inf, 3.0, 1.0)])
    assert slope is not None
    assert (slope.points, slope.value) == (4, pytest.approx(1.5))
    assert none.ratio is None or none.distance > 0
    assert Gap(1, 1.0, 0.0, 0.0, 0.0, 1.0).ratio is None


def test_the_slope_and_its_error_are_those_of_least_squares() -> None:
    draw = np.random.default_rng(0)
    distance = draw.uniform(0.1, 2, 12)
    gap = 0.4 * distance**1.6 * np.exp(0.2 * draw.normal(size=12))
    slope = fit_slope([Gap(t, 1.0, g, d, d / 2, 1.0) for t, (g, d) in enumerate(zip(gap, distance, strict=True))])
    assert slope is not None
    x, y = 2 * np.log(distance), np.log(gap)
    design = np.stack([np.ones(12), x], axis=1)
    best, residual, *_ = np.linalg.lstsq(design, y, rcond=None)
    error = math.sqrt(residual[0] / 10 * np.linalg.inv(design.T @ design)[1, 1])
    assert (slope.intercept, slope.value) == pytest.approx(tuple(best))
    assert slope.stderr == pytest.approx(error)
    assert slope.at(4.0) == pytest.approx(math.exp(best[0]) * 4 ** best[1])


def test_two_rounds_or_one_distance_have_no_slope() -> None:
    gaps = [Gap(t, 1.0, 0.1 * t, float(t), 1.0, 1.0) for t in (1, 2)]
    assert fit_slope(gaps) is None
    assert len(local_slopes(gaps)) == 1
    assert fit_slope([Gap(t, 1.0, 0.1 * t, 2.0, 1.0, 1.0) for t in (1, 2, 3)]) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": np.array([0.5, 0.3, 0.3])}, r"p of round 4 sum to 1\.1 over 3 clients: Lemma 1 needs weights"),
        ({"p": np.array([1.2, -0.1, -0.1])}, r"p of round 4 sum to \d\.\d* over 3 clients"),
        ({"p": np.array([0.5, 0.5])}, r"round 4 has 2 weights p for clients of shape \[3, 67\]"),
        ({"module": nn.Linear(4, 3)}, r"the clients of round 4 do not fit the module: weight stands where"),
        ({"shrink": (1.0, 0.0)}, r"clients cannot be shrunk by 0; give numbers above 0"),
        ({"samples": samples(5, 7)}, r"the module fails on 1 of toy train, each of shape \[7\]"),
    ],
)
def test_what_the_lemma_does_not_speak_of_is_refused(change: dict[str, Any], message: str) -> None:
    module = network(nn.ReLU())
    asked = {"module": module, "samples": samples(5, 4), "clients": clients(module, 3), "p": P3, "round": 4}
    with pytest.raises(FedscopeError, match=message):
        locality_gaps(**{**asked, **change})


# Theorem 2


def features(n: int = 30, d: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def shares(n: int, count: int) -> np.ndarray:
    return np.arange(count)[:, None] == np.arange(n) % count


@given(st.integers(0, 10**6), st.integers(1, 29))
def test_mmd_under_the_squared_kernel_is_a_distance_of_mean_products(seed: int, count: int) -> None:
    """K² of features φ is the inner product of φ ⊗ φ, and MMD² the squared distance of their means."""
    x = features(seed=seed)
    own = np.arange(30) < count
    products = np.einsum("ni,nj->nij", x, x)
    distance = ((products.mean(0) - products[own].mean(0)) ** 2).sum()
    assert mmd2((x @ x.T) ** 2, own) == pytest.approx(distance, rel=1e-9, abs=1e-10)


def test_the_posterior_variance_is_the_textbooks() -> None:
    x = features(20, 3)
    kernel = np.exp(-((x[:, None] - x) ** 2).sum(-1) / 2)
    own = np.arange(20) % 3 == 0
    inverse = np.linalg.inv(kernel[np.ix_(own, own)] + 0.01 * np.eye(own.sum()))
    expected = [kernel[i, i] - kernel[i, own] @ inverse @ kernel[own, i] for i in range(20)]
    variance = posterior_variance(kernel, own, 0.01)
    assert variance == pytest.approx(np.array(expected), abs=1e-12)
    assert variance[own].max() < 0.01 < variance[~own].min()  # little is unknown where one has looked


def test_the_rows_of_a_round() -> None:
    x = features(30, 40)
    kernel, members = x @ x.T, shares(30, 3)
    rows = client_bounds(kernel, members, np.array([4, 7, 9]), round=2, ridge=0.05)
    prior = np.trace(kernel) / 30
    for row, own, client in zip(rows, members, (4, 7, 9), strict=True):
        greatest = np.linalg.svd(x[own], compute_uv=False)[0] ** 2
        assert (row.round, row.client, row.samples, row.replay_variance) == (2, client, 10, None)
        assert row.eigenvalue == pytest.approx(greatest, rel=1e-12)
        assert row.mmd2 == pytest.approx(mmd2(kernel**2, own), rel=1e-12)
        diagonal = np.mean([x[i] @ x[i] for i in np.flatnonzero(own)])
        assert row.diagonal == pytest.approx(diagonal, rel=1e-12)
        assert row.predicted == pytest.approx(10 / (2 * diagonal) * row.mmd2, rel=1e-12)
        assert greatest > 1.5 * diagonal, "else either would do"
        variance = posterior_variance(kernel, own, 0.05 * prior)
        assert row.gp_variance == pytest.approx(variance.mean(), rel=1e-12)
        # the bound, without the detour over MMD
        expected = prior - (kernel[:, own] ** 2).sum(axis=1).mean() / (greatest + 0.05 * prior)
        assert row.bound == pytest.approx(expected, rel=1e-10)


def unequal(n: int, count: int, seed: int) -> np.ndarray:
    """Whose each of n samples is: clients of different sizes, each with one at least, and some samples of nobody."""
    draw = np.random.default_rng(seed)
    whose = np.concatenate([np.arange(count), draw.integers(-1, count, n - count) // 2])
    return draw.permutation(whose) == np.arange(count)[:, None]


def equation_3(kernel: np.ndarray, own: np.ndarray) -> tuple[float, float, float, float]:
    """λ_D, β_D, the first term and all three, from their definitions: sums over samples and pairs of samples."""
    every, mine = range(len(kernel)), np.flatnonzero(own)
    lambda_d = sum(kernel[i, i] for i in every) / len(kernel)
    pairs = list(itertools.permutations(every, 2))
    beta_d = sum(kernel[i, j] ** 2 for i, j in pairs) / len(pairs)
    means = [
        sum(kernel[i, j] ** 2 for i in a for j in b) / (len(a) * len(b))
        for a, b in ((every, every), (mine, mine), (every, mine))
    ]
    factor = len(mine) / 2 / (sum(kernel[i, i] for i in mine) / len(mine))
    first = factor * (means[0] + means[1] - 2 * means[2])
    return lambda_d, beta_d, first, first + lambda_d - factor * beta_d


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 40))
def test_equation_3_has_its_three_terms(seed: int, count: int, dimension: int) -> None:
    x = features(15, dimension, seed)
    members = unequal(15, count, seed)
    for row, own in zip(client_bounds(x @ x.T, members, np.arange(count), round=1, ridge=0.1), members, strict=True):
        lambda_d, beta_d, first, whole = equation_3(x @ x.T, own)
        assert row.lambda_d == pytest.approx(lambda_d, rel=1e-9)
        assert row.beta_d == pytest.approx(beta_d, rel=1e-9)
        # the terms cancel, so that their rounding is one of the greatest
        assert row.predicted == pytest.approx(first, rel=1e-9, abs=1e-9 * beta_d)
        assert row.equation_3 == pytest.approx(whole, rel=1e-9, abs=1e-9 * row.samples / row.diagonal * beta_d)


def test_on_orthogonal_clients_equation_3_is_off_by_what_the_docstring_says() -> None:
    """K_kk = λ_k I: E_D V_k = λ_D − n_k/λ_k E_{D,k} K², which the algebra takes to equation 3 and this."""
    basis = np.linalg.qr(np.random.default_rng(4).normal(size=(12, 12)))[0]
    x = np.concatenate([math.sqrt(1 + k) * np.roll(basis, k, axis=0)[: 3 + 2 * k] for k in range(3)])
    members = np.repeat(np.arange(3), [3, 5, 7]) == np.arange(3)[:, None]
    squared = (x @ x.T) ** 2
    for k, row in enumerate(client_bounds(x @ x.T, members, np.arange(3), round=1, ridge=0.0)):
        own = members[k]
        assert (row.diagonal, row.eigenvalue) == pytest.approx((1 + k, 1 + k))
        left_out = squared.mean() + squared[np.ix_(own, own)].mean() - row.beta_d
        assert row.equation_3 - row.gp_variance == pytest.approx(row.samples / (2 * (1 + k)) * left_out, rel=1e-9)


def test_a_single_sample_has_no_pairs() -> None:
    (row,) = client_bounds(np.array([[2.0]]), np.ones((1, 1), bool), np.array([0]), round=1)
    assert (row.lambda_d, row.beta_d, row.mmd2, row.equation_3) == (2.0, 0.0, 0.0, 2.0)


@given(st.integers(0, 10**6), st.sampled_from([1e-8, 1e-3, 0.3]), st.integers(2, 40), st.integers(1, 9))
def test_the_bound_holds_for_every_client(seed: int, ridge: float, dimension: int, count: int) -> None:
    x = features(30, dimension, seed) * np.random.default_rng(seed + 1).gamma(1, size=(30, 1))
    for row in client_bounds(x @ x.T, shares(30, count), np.arange(count), round=1, ridge=ridge):
        # what a kernel without full rank loses in the inverse: 1e-16 / ridge
        assert row.gp_variance <= row.bound * (1 + 1e-6) + 1e-9


def test_on_clients_in_subspaces_the_squared_kernel_predicts_and_the_kernel_does_not() -> None:
    """Twelve clients of one mean, 30 unit features in 20 dimensions each, from isotropic to within five of them: the
    kernel's MMD sees means alone. Correlations with the Gaussian process's variance over ten draws were 0.984 to
    0.998 under K², and −0.64 to 0.74, mean 0.11, under K; a ridge as large as K(x,x) keeps the bound near."""

    def drawn(seed: int) -> tuple[float, float]:
        draw, x = np.random.default_rng(seed), []
        for share in np.linspace(0, 1, 12):
            kept = np.zeros(20)
            kept[draw.permutation(20)[:5]] = 4
            own = draw.normal(size=(30, 20)) * np.sqrt(1 - share + share * kept)
            x.append(own / np.linalg.norm(own, axis=1, keepdims=True))
        kernel = np.concatenate(x) @ np.concatenate(x).T
        members = np.arange(12)[:, None] == np.arange(360) // 30
        rows = client_bounds(kernel, members, np.arange(12), round=1, ridge=1.0)
        variance = [row.gp_variance for row in rows]
        under = [row.samples / row.diagonal * mmd2(kernel, own) for row, own in zip(rows, members, strict=True)]
        found = correlate(rows, "gp_variance")
        assert found is not None
        return found.pearson, float(np.corrcoef(under, variance)[0, 1])

    squared, plain = np.transpose([drawn(seed) for seed in range(10)])
    assert squared.min() > 0.95
    assert plain.max() < 0.9
    assert abs(plain.mean()) < 0.4


@pytest.mark.parametrize(
    ("kernel", "members", "message"),
    [
        (np.eye(4), np.ones((1, 3), bool), r"round 6 has a kernel of shape \[4, 4\], members of shape \[1, 3\] and 1"),
        (np.eye(3), np.zeros((1, 3), bool), r"client 8 of round 6 has no sample in D, so K_kk is empty"),
        (np.zeros((3, 3)), np.ones((1, 3), bool), r"the kernel of 3 samples cannot be inverted .* or vanish there"),
    ],
)
def test_what_is_no_kernel_is_refused(kernel: np.ndarray, members: np.ndarray, message: str) -> None:
    with pytest.raises(FedscopeError, match=message), np.errstate(all="ignore"):
        client_bounds(kernel, members, np.array([8]), round=6)


# its kernel


def exact(module: nn.Module, x: torch.Tensor) -> np.ndarray:
    """By torch.func, apart from the code it checks."""
    from torch.func import functional_call, jacrev, vmap

    double = module.double().eval()
    parameters = {name: value.detach() for name, value in double.named_parameters()}

    def f(p: dict[str, torch.Tensor], one: torch.Tensor) -> Any:
        return functional_call(double, p, (one[None],))[0]

    parts = vmap(jacrev(f), (None, 0))(parameters, x.double())
    rows = torch.cat([part.flatten(2) for part in parts.values()], dim=2)  # [n, C, P]
    return torch.einsum("ncp,mcp->nm", rows, rows).div(rows.shape[1]).numpy()  # type: ignore[no-any-return]


def at(module: nn.Module, seed: int = 3) -> Weights:
    """Random parameters, also loaded into the module."""
    model = clients(module, 1, seed=seed).row(0)
    module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in model.arrays().items()})
    return model


class Half(nn.Module):
    """A parameter has no part in the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 3), nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.used(x))


def test_theorem_2_of_a_small_network_is_that_of_its_jacobian() -> None:
    """Kernel, terms, variances and correlations, by torch.func, numpy and scipy alone, for clients of unequal sizes."""
    from scipy.stats import pearsonr, spearmanr

    module, x = network(nn.Tanh()), samples(28, 4).x
    model, members = at(module), unequal(28, 6, 3)
    assert len(set(members.sum(axis=1))) > 3
    kernel = tangent_kernel(module, x, model, dimension=10**6, compute=Compute(workers=1))
    made = Theory("small", bounds=client_bounds(kernel, members, np.arange(6), round=1, ridge=1e-3))
    truth = exact(module, x)
    ridge = 1e-3 * np.diag(truth).mean()
    predicted: dict[str, list[float]] = {"equation_3": [], "mmd2": [], "predicted": []}
    variances = []
    for own in members:
        *_, first, whole = equation_3(truth, own)
        factor = own.sum() / 2 / np.diag(truth)[own].mean()
        for name, value in zip(predicted, (whole, first / factor, first), strict=True):
            predicted[name].append(value)
        gain = np.linalg.solve(truth[np.ix_(own, own)] + ridge * np.eye(own.sum()), truth[own])
        variances.append(np.mean(np.diag(truth) - np.sum(truth[own] * gain, axis=0)))
    for name, values in predicted.items():
        # gradients are kept in single precision, and the variances are what is left of sums 1e3 times as large
        assert [getattr(row, name) for row in made.bounds] == pytest.approx(values, rel=1e-4)
        found = made.correlation(1, "gp_variance", name)
        assert found is not None
        expected = pearsonr(values, variances)
        assert found.pearson == pytest.approx(expected.statistic, abs=1e-3)
        assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)), abs=1e-3)
        assert found.spearman == pytest.approx(spearmanr(values, variances).statistic)
    assert [row.gp_variance for row in made.bounds] == pytest.approx(variances, rel=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: network(nn.ReLU(inplace=True)),
        lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 3)),
        lambda: Half(),
    ],
)
def test_without_a_projection_the_kernel_is_exact(make: Callable[[], nn.Module]) -> None:
    module, x = make(), samples(37, 4).x
    model = at(module)
    reported: list[int] = []
    kernel = tangent_kernel(
        module, x, model, dimension=10**6, compute=Compute(workers=2), progress=lambda done, of: reported.append(done)
    )
    # gradients are kept in single precision
    assert kernel == pytest.approx(exact(module, x), rel=1e-5, abs=1e-5)
    assert reported == [16, 32, 37]


def test_the_kernel_is_of_the_parameters_that_are_trained() -> None:
    """Of a linear head f = W h + b on a frozen body, ⟨∇f_c(x), ∇f_c(x')⟩ = ⟨h(x), h(x')⟩ + 1 for each output."""
    module, x = network(nn.Tanh()), samples(9, 4).x
    model = at(module)
    *body, head = module
    assert isinstance(head, nn.Linear)
    for layer in body:
        layer.requires_grad_(False)
    features = nn.Sequential(*body)(x).double().detach().numpy()
    kernel = tangent_kernel(module, x, model, dimension=10**6)
    assert kernel == pytest.approx(features @ features.T + 1, rel=1e-5)


@pytest.mark.parametrize("kind", [_Gradients, _GradientsTogether])
def test_a_frozen_head_counts_as_little_as_one_that_the_module_does_not_train(kind: Any) -> None:
    """Its places in the projection stay, so that the numbers of the others are the same bit for bit."""
    module, x = network(nn.Tanh()), samples(9, 4).x
    model = at(module)
    frozen = {"2.weight", "2.bias"}
    without = tangent_kernel(module, x, model, dimension=20, frozen=frozen)
    assert not np.allclose(without, tangent_kernel(module, x, model, dimension=20), rtol=0.1)
    sketch = _sketch(model.layout.size, 20, 0)
    moved = {"0.weight", "0.bias"}
    rows = kind(module.double(), model, sketch, 20, Compute(workers=1), moved).of_all(x.double()).double()
    # gradients are kept in single precision
    assert torch.einsum("icm,jcm->ij", rows, rows).div(3).numpy() == pytest.approx(without, rel=1e-5, abs=1e-6)
    module.float()[2].requires_grad_(False)
    assert np.array_equal(tangent_kernel(module, x, model, dimension=20), without)
    module[0].requires_grad_(False)
    module[2].requires_grad_(True)
    with pytest.raises(FedscopeError, match=r"trains nothing but its head \(2\.bias, 2\.weight\), .* --kernel none"):
        tangent_kernel(module, x, model, frozen=frozen)


def test_the_projected_kernel_is_unbiased_and_as_far_off_as_is_said() -> None:
    # gradients without a negative entry, which a projection without signs would not leave unbiased
    module, x, m = nn.Linear(12, 3), samples(6, 12).x.abs(), 16
    model = at(module)
    drawn = np.stack(
        [tangent_kernel(module, x, model, dimension=m, seed=seed, compute=Compute(workers=1)) for seed in range(150)]
    )
    truth = exact(module, x)
    size = np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    # four standard errors of 150 draws, each with a deviation of at most sqrt(2 / m)
    assert np.abs((drawn.mean(0) - truth) / size).max() < 4 * math.sqrt(2 / m / 150)
    off = ((drawn - truth) / size).std(axis=0)
    assert 0.3 * math.sqrt(2 / m) < off.max() < 1.15 * math.sqrt(2 / m)
    assert np.linalg.eigvalsh(drawn[0]).min() > -1e-9


def test_the_kernel_depends_on_its_seed_and_on_nothing_else() -> None:
    module, x = network(nn.ReLU()), samples(40, 4).x
    model = at(module)
    once = tangent_kernel(module, x, model, dimension=16, seed=1, compute=Compute(workers=1))
    assert np.array_equal(once, tangent_kernel(module, x, model, dimension=16, seed=1, compute=Compute(workers=2)))
    assert not np.allclose(once, tangent_kernel(module, x, model, dimension=16, seed=2))


class Stepped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[:, :3] * self.w).detach()


def test_kernels_that_do_not_exist_are_refused() -> None:
    module, x = network(nn.ReLU()), samples(4, 4).x
    with pytest.raises(FedscopeError, match="--dimension 0 leaves nothing of a gradient; give 1 or more"):
        tangent_kernel(module, x, at(module), dimension=0)
    with pytest.raises(FedscopeError, match="the model of the kernel does not fit the module"):
        tangent_kernel(nn.Linear(4, 3), x, at(module))
    with pytest.raises(FedscopeError, match=r"has no gradients to make a kernel of .*--kernel none leaves it out"):
        tangent_kernel(Stepped(), x, at(Stepped()))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 200), st.integers(0, 5))
def test_a_subset_keeps_every_clients_share(sizes: list[int], count: int, seed: int) -> None:
    ends = np.cumsum(sizes)
    own = [
        np.random.default_rng(9).permutation(ends[-1])[end - size : end] for size, end in zip(sizes, ends, strict=True)
    ]
    rows = by_client(own, count, seed)
    assert len(rows) == min(count, ends[-1])
    assert (np.diff(rows) > 0).all()
    for one in own:
        assert abs(np.isin(rows, one).sum() - min(count / ends[-1], 1) * len(one)) < 1
    assert np.array_equal(rows, by_client(own, count, seed))


def test_the_rows_of_a_kernel_and_whose_they_are() -> None:
    own = (np.arange(97), np.arange(97, 100))
    partition = Partition(own, None, np.zeros((2, 3), dtype=np.int64))
    rows, members = kernel_rows(partition, np.array([1, 0]), 34, 0, 3)
    assert np.array_equal(rows, by_client(own, 34, 0))
    assert np.array_equal(members, np.array([rows >= 97, rows < 97]))
    with pytest.raises(
        FedscopeError,
        match=r"client 1 of round 3 holds 3 of 100 samples and has none among the 10 .* --kernel-samples 34 or more",
    ):
        kernel_rows(partition, np.array([0, 1]), 10, 0, 3)
    empty = replace(partition, clients=(partition.clients[0], partition.clients[1][:0]))
    with pytest.raises(FedscopeError, match=r"client 1 of round 3 holds none of 97 samples, .* give another round"):
        kernel_rows(empty, np.array([0, 1]), 97, 0, 3)
    with pytest.raises(FedscopeError, match=r"the kernel of round 3 needs to know whose samples are whose"):
        kernel_rows(None, np.array([0, 1]), 10, 0, 3)
    with pytest.raises(FedscopeError, match=r"a kernel over 0 samples has no entry"):
        by_client(own, 0)


def test_a_partition_of_more_samples_than_there_are_is_refused() -> None:
    partition = Partition((np.arange(3), np.arange(0), np.arange(3, 100)), None, np.zeros((3, 3), dtype=np.int64))
    refuse_outside(partition, 100, "runs/a", "digits")
    with pytest.raises(
        FedscopeError, match=r"client 2 of runs/a holds sample 99, but the train split of digits has 99 samples; give"
    ):
        refuse_outside(partition, 99, "runs/a", "digits")


# over replays, and over clients


def cohort(module: nn.Module, *, independent: bool = True) -> CohortDraws:
    return CohortDraws(
        round=2,
        client_ids=np.array([3, 5, 8]),
        p=P3,
        draws=tuple(clients(module, 3, seed=seed) for seed in range(4)),
        client_samples=np.array([5, 3, 2]),
        source="local:4" if independent else "rounds:4",
        independent=independent,
    )


def test_the_variance_over_replays_is_unbiased_and_of_every_client() -> None:
    module, data = network(nn.ReLU()), samples(703, 4)
    found = replay_variances(module, data, cohort(module), compute=Compute(workers=1))
    for k in range(3):
        every = []
        for draw in cohort(module).draws:
            module.load_state_dict({n: torch.from_numpy(np.array(v)) for n, v in draw.row(k).arrays().items()})
            every.append(torch.softmax(module(data.x), 1).detach().double().numpy())
        assert found[k] == pytest.approx(np.stack(every).var(axis=0, ddof=1).sum(axis=1).mean(), rel=1e-6)
    with pytest.raises(FedscopeError, match=r"the draws rounds:4 of round 2 depend on each other"):
        replay_variances(module, data, cohort(module, independent=False))


def bounds(count: int, round_: int = 1, seed: int = 0) -> tuple[ClientBound, ...]:
    draw = np.random.default_rng(seed)
    return tuple(
        ClientBound(round_, 3 * k, 20 + k, *draw.gamma(2, size=6).tolist(), 0.1 * k**2, 2.0, 3.0, draw.normal())
        for k in range(count)
    )


def test_correlations_are_numpys_and_those_of_ranks() -> None:
    rows = bounds(9)
    x, y = [row.predicted for row in rows], [row.gp_variance for row in rows]
    found = correlate(rows, "gp_variance")
    assert found is not None
    assert (found.round, found.variance, found.clients) == (1, "gp_variance", 9)
    assert found.pearson == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert found.spearman == pytest.approx(np.corrcoef(np.argsort(np.argsort(x)), np.argsort(np.argsort(y)))[0, 1])
    half = 1.959964 / math.sqrt(9 - 3)
    assert found.low == pytest.approx(math.tanh(math.atanh(found.pearson) - half), rel=1e-5)
    assert found.high == pytest.approx(math.tanh(math.atanh(found.pearson) + half), rel=1e-5)
    assert found == correlate(rows, "gp_variance", "predicted")
    for name in ("equation_3", "mmd2"):
        other = correlate(rows, "replay_variance", name)
        assert other is not None
        assert (other.variance, other.prediction) == ("replay_variance", name)
        pair = [getattr(row, name) for row in rows], [row.replay_variance for row in rows]
        assert other.pearson == pytest.approx(np.corrcoef(*pair)[0, 1])


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6)),
        ((1, 2, 3, 4), (4, 3, 2, 1)),
        ((3, 1, 4, 6, 5, 9), (2, 7, 1, 8, 3, 4)),
        ((1, 1, 2, 3, 3), (2, 5, 5, 7, 1)),
    ],
)
def test_up_to_nine_clients_the_p_value_is_a_share_of_all_orders(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    rows = [
        ClientBound(1, k, 9, 1.0, 2.0, 1.0, float(a), float(b), 99.0) for k, (a, b) in enumerate(zip(x, y, strict=True))
    ]
    found = correlate(rows, "gp_variance")
    assert found is not None
    ranks = [[sum(b < a for b in own) + (1 + own.count(a)) / 2 for a in own] for own in (x, y)]
    of = [sum(a * b for a, b in zip(ranks[0], order, strict=True)) for order in itertools.permutations(ranks[1])]
    seen = sum(a * b for a, b in zip(*ranks, strict=True))
    one_sided = min(sum(value <= seen for value in of), sum(value >= seen for value in of))
    assert found.spearman_p == pytest.approx(min(1, 2 * one_sided / math.factorial(len(x))), rel=1e-12)


def test_no_order_of_ten_clients_is_rarer_than_one_in_all_their_orders() -> None:
    rows = [ClientBound(1, k, 9, 1.0, 2.0, 1.0, float(k), math.exp(k), 99.0) for k in range(10)]
    found = correlate(rows, "gp_variance")
    assert found is not None
    assert found.spearman_p == 2 / math.factorial(10)  # the t approximation gives 0
    shuffled = [replace(row, gp_variance=float(k * 7 % 10)) for k, row in enumerate(rows)]
    other = correlate(shuffled, "gp_variance")
    assert other is not None
    t = other.spearman * math.sqrt(8 / (1 - other.spearman**2))
    from scipy.stats import t as student

    assert other.spearman_p == pytest.approx(2 * student.sf(abs(t), 8), rel=1e-9)


def test_correlations_that_do_not_exist_are_none() -> None:
    assert correlate(bounds(3), "gp_variance") is None
    assert correlate([replace(row, replay_variance=None) for row in bounds(6)], "replay_variance") is None
    assert correlate([replace(row, predicted=1.0) for row in bounds(6)], "gp_variance") is None
    assert correlate([replace(row, equation_3=None) for row in bounds(6)], "gp_variance", "equation_3") is None
    assert correlate([replace(row, gp_variance=math.nan) for row in bounds(6)], "gp_variance") is None


# the result


def result() -> Theory:
    draw = np.random.default_rng(1)
    rounds = [Gap(t, 1.0, 0.1 * t**1.4 * math.exp(0.1 * draw.normal()), float(t), 0.7 * t, 0.9) for t in range(1, 9)]
    path = [replace(rounds[-1], shrink=e, gap=rounds[-1].gap * e**2 * (1 + e), distance=8 * e) for e in HALVES[1:]]
    attrs = {"outputs": "probabilities", "data": "digits", "split": "train", "samples": 1437, "dimension": 1024}
    return Theory("fma", (*rounds, *path), (*bounds(7), *bounds(7, 8, 1)), {**attrs, "parameters": 5000})


def test_a_result_survives_its_files(tmp_path: Path) -> None:
    made = result()
    made = replace(
        made,
        gaps=(*made.gaps, Gap(20, 1.0, math.nan, 1.0, 1.0, 0.1), Gap(21, 1.0, 0.0, 0.0, 0.0, 1 / 3)),
        bounds=(*made.bounds[:-1], replace(made.bounds[-1], replay_variance=None)),
    )
    assert [path.name for path in made.save(tmp_path / "a.b")] == ["a.b.theory.csv", "a.b.theory.json"]
    read = Theory.load(tmp_path / "a.b")
    assert repr(vars(read)) == repr(vars(made))
    text = (tmp_path / "a.b.theory.csv").read_text()
    assert text.splitlines()[0] == "run,round,shrink,client,quantity,value"
    assert "fma,21,1.0,,ratio,\n" in text
    assert f"fma,,,,slope,{made.slope.value}\n" in text if made.slope else False
    assert list(made.shrunk) == [8]
    assert f"fma,8,,,shrink_slope_last,{local_slopes(made.shrunk[8])[-1]}\n" in text


def test_files_that_had_the_first_term_alone_are_still_read(tmp_path: Path) -> None:
    made = result()
    made.save(tmp_path / "r")
    table, head = tmp_path / "r.theory.csv", tmp_path / "r.theory.json"
    new = ("lambda_d", "beta_d", "equation_3", "gp_variance_mmd2", "gp_variance_equation", "replay_variance_mmd2")
    lines = table.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.split(",")[4].startswith((*new, "replay_variance_equation"))]
    assert len(lines) - len(kept) == 3 * 14 + 2 * 2 * 2 * 6  # columns of clients; rounds, variances, others, numbers
    table.write_text("".join(kept))
    info = json.loads(head.read_text())
    del info["table_rows"], info["table_xxh3"]  # which they did not say
    head.write_text(json.dumps({**info, "version": 2, "rows": len(kept) - 1}))
    read = Theory.load(tmp_path / "r")
    without = {"lambda_d": None, "beta_d": None, "equation_3": None}
    assert read.bounds == tuple(replace(row, **without) for row in made.bounds)
    assert read.correlation(8, "gp_variance") == made.correlation(8, "gp_variance")
    assert read.correlation(8, "gp_variance", "equation_3") is None
    assert "equation 3 (the theorem): not in this result, which an older fedscope made (--f" in read.summary()
    titles = [axes.get_title(loc="left").split("\n")[0] for axes in read.figure().axes[2:]]
    assert titles == ["paper's reading", "neither of them"] * 2
    head.write_text(json.dumps({**info, "version": 1}))
    with pytest.raises(FedscopeError, match=r"has version 1, but this fedscope reads version 3; compute it again"):
        Theory.load(tmp_path / "r")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],  # within a row
        lambda text: "".join(text.splitlines(keepends=True)[:6]),  # after the first round
        lambda text: text.replace("fma,3,1.0,,gap", "fma,3,1.0,,gab"),
        lambda text: text.replace("fma,3,1.0,,gap", "fma,3,1.0,,"),
        lambda text: text.replace("fma,8,,0,samples,20", "fma,8,,0,samples,"),
        lambda text: text.replace("fma,8,,0,samples,20", "fma,8,,0,samples,twenty"),
        lambda text: text.replace("fma,8,,0,samples", "fma,eight,,0,samples"),
        lambda text: text.replace("fma,8,,0,mmd2", "fma,8,,0,mmd3"),
    ],
)
def test_a_table_that_is_not_whole_is_refused(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    result().save(tmp_path / "r")
    table, head = tmp_path / "r.theory.csv", tmp_path / "r.theory.json"
    head.write_text(json.dumps({**json.loads(head.read_text()), "table_xxh3": {}}))  # as earlier versions wrote it
    whole = table.read_text()
    table.write_text(spoil(whole))
    assert table.read_text() != whole
    with pytest.raises(
        FedscopeError, match=r"r\.theory\.csv( is damaged|, r.* do not fit each other| has \d+ rows, and ).*; .*--force"
    ):
        Theory.load(tmp_path / "r")


def test_the_words_have_slopes_correlations_and_numbers_of_clients() -> None:
    first, *others = result().summary().splitlines()
    slope = result().slope
    assert slope is not None
    assert first.startswith(f"fma, Lemma 1: gap against Δ² over 8 rounds, slope {slope.value:.2f} ± {slope.stderr:.2f}")
    notes = " ".join(" ".join(text.get_text() for text in result().figure().texts).split())
    assert f"rounds: slope {slope.value:.2f} ± {slope.stderr:.2f} (dashed)" in notes
    assert "±: one standard error, of dependent rounds;" in notes
    assert "±" not in " ".join(text.get_text() for text in Theory("fma", result().rounds[:2]).figure().texts)
    steps = local_slopes(result().shrunk[8])
    assert first.endswith(f"clients of round 8 shrunk 64-fold, slope {steps[0]:.2f} at first, 1.01 at the end")
    assert first.count("shrunk") == 1
    assert [line.partition(" with ")[0] for line in others] == [
        f"fma@{number}, Theorem 2, {words}"
        for number in (1, 8)
        for words in ("7 clients, n_k 20 to 26, Gaussian-process variance", "replay variance")
    ]
    for name, role in (
        ("equation_3", "equation 3 (the theorem)"),
        ("mmd2", "MMD² alone (the paper's reading)"),
        ("predicted", "the first term alone (neither)"),
    ):
        one = result().correlation(8, "gp_variance", name)
        assert one is not None
        assert f"with {role} r = {one.pearson:.2f} [{one.low:.2f}, {one.high:.2f}], ranks" in others[2]
    few = Theory("fma", (*result().gaps[:2], Gap(9, 1.0, 0.0, 0.0, 0.0, 1.0)), bounds(3))
    words = few.summary()
    assert "gaps of 2 rounds, and a slope over rounds needs three with different Δ, 1 left out (clients al" in words
    assert "Gaussian-process variance has no correlation (4 clients or more" in words
    assert "n_k 9, G" in Theory("fma", bounds=tuple(replace(row, samples=9) for row in bounds(5))).summary()


def test_rounds_that_diverged_are_not_called_alike() -> None:
    nan = [Gap(9, 1.0, math.nan, math.nan, 1.0, math.nan), Gap(10, 1.0, math.inf, 1.0, 1.0, 1.0)]
    alike = Gap(11, 1.0, 0.0, 0.0, 0.0, 1.0)
    some = Theory("fma", (*result().rounds, *nan, alike))
    both = "1 left out (clients alike, or rounding), 2 left out (not finite: training diverged)"
    assert both in some.summary()
    note = " ".join(text.get_text() for text in some.figure().texts)
    assert "1 of 11 rounds left out (clients alike, or rounding); 2 of 11 rounds left out (not finite" in note
    only = Theory("fma", (*nan, replace(nan[0], shrink=0.5)))
    assert "shrunk 2-fold, no finite gap: training diverged" in only.summary()
    assert "alike" not in only.summary()
    assert [text.get_text() for text in only.figure().axes[0].texts] == ["no finite gap:\ntraining diverged"]
    assert "shrunk 2-fold, no gap above rounding" in Theory("fma", (alike, replace(alike, shrink=0.5))).summary()


@pytest.mark.same_elsewhere
@pytest.mark.parametrize("width", [2.0, 3.5, 7.0])
def test_figures_hold_what_is_written_in_them(width: float) -> None:
    figure = result().figure(width, "A title")
    assert len(figure.axes) == 8  # gaps, their bar, two variances against three quantities
    assert_apart(assert_inside(figure, width))


def test_variances_are_drawn_against_the_theorem_its_reading_and_its_first_term() -> None:
    made = replace(result(), bounds=bounds(7, 8))
    axes = made.figure().axes[2:]
    names = ["equation_3", "mmd2", "predicted"]
    titles = ["the theorem", "paper's reading", "neither of them"]
    quantities = ["equation 3\n(K)", "MMD² alone\n(K²)", "first term alone\n(K)"]
    for i, (variance, marker) in enumerate((("gp_variance", "o"), ("replay_variance", "s"))):
        for one, name, title, quantity in zip(axes[3 * i : 3 * i + 3], names, titles, quantities, strict=True):
            found = made.correlation(8, variance, name)
            assert found is not None
            assert one.get_title(loc="left") == f"{title}\nr = {found.pearson:.2f}".replace("-", "−")
            assert re.sub(r"\$.*\$ ", "", one.get_xlabel()) == quantity
            discs = [line for line in one.lines if line.get_marker() == marker]
            for pick, key in (("get_xdata", name), ("get_ydata", variance)):
                drawn, values = ([getattr(d, pick)()[0] for d in discs], [getattr(row, key) for row in made.bounds])
                # but for a power of ten, which the label names
                scale = 10.0 ** round(math.log10(abs(values[-1] / drawn[-1])))
                assert drawn == pytest.approx([value / scale for value in values])
    assert {one.get_ylim() for one in axes[:3]} == {axes[0].get_ylim()}


def test_the_bound_is_a_line_of_its_own() -> None:
    made = replace(result(), bounds=bounds(7, 8))
    axes = made.figure().axes[2:]
    dashes = [line for line in axes[2].lines if line.get_marker() == "_"]
    discs = [line for line in axes[2].lines if line.get_marker() == "o"]
    ratios = [row.bound / row.gp_variance for row in made.bounds]
    for dash, disc, row, ratio in zip(dashes, discs, made.bounds, ratios, strict=True):
        assert dash.get_xdata()[0] == disc.get_xdata()[0]
        assert disc.get_xdata()[0] == pytest.approx(row.predicted)
        assert dash.get_ydata()[0] / disc.get_ydata()[0] == pytest.approx(ratio)
    assert not any(line.get_marker() == "_" for one in axes[3:] for line in one.lines)
    words = " ".join(text.get_text() for text in made.figure().texts)
    assert "λ the mean of K's diagonal; dashes: upper bound by K's greatest eigenvalue" in words
    said = f"the upper bound of this variance is {min(ratios):.2g} to {max(ratios):.2g} times as large"
    assert said in made.summary()


def test_figures_of_less_are_drawn_too() -> None:
    one = [replace(row, replay_variance=None) for row in result().bounds if row.round == 8]
    assert len(replace(result(), bounds=()).figure().axes) == 2
    assert len(replace(result(), bounds=tuple(one)).figure().axes) == 5
    found = [one.pearson for one in result().correlations if one.prediction == "equation_3"][::2]
    several = result().figure().axes[2].get_title(loc="left")
    assert several == f"the theorem\nr {min(found):.2f} to {max(found):.2f}".replace("-", "−")
    nothing = Theory("x", (Gap(1, 1.0, 0.0, 0.0, 0.0, 1.0),)).figure()
    assert [text.get_text() for text in nothing.axes[0].texts] == ["no gap above rounding"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_clients_that_diverged_have_no_gap_and_no_warning(value: float) -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    layout = Layout.of(module)
    buffers = {entry.name: np.ones((3, *entry.shape), entry.dtype) for entry in layout.buffers}
    own = Weights(layout, np.ones((3, layout.size), np.float32), buffers)
    own.parameters[1, :2] = value, -value
    own.parameters[2, 0] = -value
    buffers["1.running_mean"][1] = value
    for one in locality_gaps(module, samples(20, 4), own, np.full(3, 1 / 3), round=4, shrink=(1.0, 0.5)):
        assert not one.finite
        assert not one.counts


@pytest.mark.parametrize("outputs", ["probabilities", "logits"])
def test_a_class_that_all_models_mask_changes_nothing(outputs: Any) -> None:
    module, data = network(nn.Tanh()), samples(20, 4)
    masked, padded, own = Padded(module), replace(data, classes=5), clients(module, 3)
    gaps = locality_gaps(masked, padded, as_padded(own, module), P3, round=4, shrink=HALVES, outputs=outputs)
    for one, other in zip(
        locality_gaps(module, data, own, P3, round=4, shrink=HALVES, outputs=outputs), gaps, strict=True
    ):
        assert (other.gap, other.scale) == pytest.approx((one.gap, one.scale), rel=1e-9)
    draws = cohort(module)
    padded_draws = replace(draws, draws=tuple(as_padded(draw, module) for draw in draws.draws))
    np.testing.assert_allclose(
        replay_variances(masked, padded, padded_draws, outputs=outputs),
        replay_variances(module, data, draws, outputs=outputs),
        rtol=1e-6,
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [math.nan, 1e9])
def test_a_client_of_weight_0_has_no_part_in_the_gap(value: float) -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    own = clients(module, 4)
    for values in (own.parameters, *(each for each in own.buffers.values() if each.dtype.kind == "f")):
        values[1] = value
    rest = stack([own.row(k) for k in (0, 2, 3)])
    found = locality_gaps(module, samples(20, 4), own, np.array([0.5, 0.0, 0.3, 0.2]), round=4)
    assert found == locality_gaps(module, samples(20, 4), rest, P3, round=4)
    assert found[0].finite


def test_clients_without_a_finite_variance_are_named_instead_of_asking_for_more_clients() -> None:
    made = result()
    number, bounds_ = next(iter(made.by_round.items()))
    broken = [replace(row, replay_variance=math.nan) if row is bounds_[1] else row for row in bounds_]
    rest = [row for row in made.bounds if row.round != number]
    lines = [line for line in replace(made, bounds=(*broken, *rest)).summary().splitlines() if f"@{number}" in line]
    whose = f"client {bounds_[1].client}"
    assert lines[1].endswith(f"replay variance has no correlation: it, or equation 3, is not finite for {whose}")
    assert "Gaussian-process variance with equation 3 (the theorem) r = " in lines[0]


# FedSWA's bound


def test_fedswas_factor_is_a_line_of_its_runs_alone(tmp_path: Path) -> None:
    assert "FedSWA" not in result().summary()
    assert "fedswa" not in result().findings()
    made = replace(result(), attrs={**result().attrs, "fedswa": {"steps": [2, 11], "rounds": 8}})
    factors = [1 + (2 + 1 / (steps * 8)) ** (steps - 1) / 8 for steps in (2, 11)]
    assert (
        made.summary()
        .splitlines()[-1]
        .startswith(
            f"fma, FedSWA's c̃ = 1 + (2 + 1/(K T))^(K−1)/T is {factors[0]:.3g} to {factors[1]:.3g} for K = 2 to 11 and "
            "T = 8 (known from notes on the paper, not checked against it; "
        )
    )
    assert made.findings()["fedswa"] == {"steps": [2, 11], "rounds": 8, "factors": factors}
    made.save(tmp_path / "r")
    assert repr(vars(Theory.load(tmp_path / "r"))) == repr(vars(made))
    assert f",fedswa_factor_most_steps,{factors[1]}\n" in (tmp_path / "r.theory.csv").read_text()
    assert "is above 1e308 for K = 9000 and" in said_of_bound((9000, 9000), 8)


@given(st.integers(1, 400), st.integers(1, 10**4))
def test_fedswas_factor_is_exact_until_a_float_ends(steps: int, rounds: int) -> None:
    expected = 1 + (2 + Fraction(1, steps * rounds)) ** (steps - 1) / rounds
    assert bound_factor(steps, rounds) == pytest.approx(float(expected), rel=1e-11)


class Tied(nn.Module):
    """One matrix under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.other.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head: torch.Tensor = self.head(torch.tanh(self.other(torch.tanh(self.one(x)))))
        return head


@pytest.mark.parametrize("dimension", [7, 200])
def test_gradients_of_samples_together_are_those_of_each(dimension: int) -> None:
    """What a GPU does, here on the processor; a weight with two names counts once."""
    torch.manual_seed(0)
    module, x = Tied().double(), torch.randn(9, 6, dtype=torch.float64)
    model = at(module)
    sketch = _sketch(model.layout.size, dimension, 0) if dimension < model.layout.size else None
    asked = (module, model, sketch, min(dimension, model.layout.size), Compute(workers=1))
    each, together = (kind(*asked).of_all(x) for kind in (_Gradients, _GradientsTogether))
    assert torch.allclose(
        torch.einsum("icm,jcm->ij", together, together), torch.einsum("icm,jcm->ij", each, each), rtol=1e-5
    )
    if sketch is not None:
        assert torch.allclose(together, each, rtol=1e-6, atol=1e-6)


class Beside(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.reentrant = nn.Linear(4, 5), nn.Linear(5, 3), reentrant

    def forward(self, x: Tensor) -> Tensor:
        given = x.detach().requires_grad_()
        return self.head(checkpoint(self.body, given, use_reentrant=self.reentrant))  # type: ignore[no-any-return]


class Frees(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.z = z
        return z**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        z = ctx.z
        del ctx.z
        return g * 3 * z * z


def test_a_kernel_takes_a_backward_that_frees_what_it_saved() -> None:
    class Cubes(nn.Module):
        def __init__(self, frees: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.head, self.frees = nn.Linear(4, 5), nn.Linear(5, 3), frees

        def forward(self, x: Tensor) -> Tensor:
            h = self.body(x)
            return self.head(Frees.apply(h) if self.frees else h**3)  # type: ignore[no-untyped-call, no-any-return]

    x = samples(4, 4).x
    own, plain = (tangent_kernel(Cubes(frees), x, at(Cubes(frees))) for frees in (True, False))
    np.testing.assert_allclose(own, plain, rtol=1e-5)


def test_a_kernel_leaves_out_no_layer_behind_a_checkpoint() -> None:
    x = samples(4, 4).x
    with pytest.raises(FedscopeError) as refusal:
        tangent_kernel(Beside(True), x, at(Beside(True)))
    assert str(refusal.value) == (
        "backward() gives the Beside other gradients than torch.autograd.grad, as it does behind a checkpoint with "
        "use_reentrant=True; give that use_reentrant=False"
    )
    plain = nn.Sequential(Beside(False).body, Beside(False).head)
    np.testing.assert_array_equal(
        tangent_kernel(Beside(False), x, at(Beside(False))), tangent_kernel(plain, x, at(plain))
    )


def test_a_kernel_takes_sparse_gradients_as_dense_ones() -> None:
    def words(sparse: bool) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.EmbeddingBag(6, 4, sparse=sparse), nn.Linear(4, 3))

    x = torch.randint(6, (5, 3), generator=torch.Generator().manual_seed(0))
    found, right = (tangent_kernel(words(sparse), x, at(words(sparse))) for sparse in (True, False))
    np.testing.assert_allclose(found, right, rtol=1e-6)
