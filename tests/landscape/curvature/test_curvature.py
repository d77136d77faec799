"""Curvature and sharpness against Hessians, traces and worst cases that are known."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.landscape.curvature import hessian
from fedscope.landscape.curvature.derivatives import SHARES, Derivatives
from fedscope.landscape.curvature.flatness import Ball, mean_rise, sam_step, worst_rise
from fedscope.landscape.curvature.hessian import eigenvalues, most_negative, spectral_density, trace


def noise(
    module: nn.Module, shape: tuple[int, ...], classes: int, n: int = 40, seed: int = 0
) -> tuple[Samples, Weights]:
    """Random samples, and a random model of the module in its dtype."""
    draw = torch.Generator().manual_seed(seed)
    dtype = next(module.parameters()).dtype
    x = torch.randn(n, *shape, generator=draw, dtype=dtype)
    samples = Samples(x, torch.randint(0, classes, (n,), generator=draw), classes, "noise", "train", np.arange(n))
    layout = Layout.of(module)
    w = np.random.default_rng(seed).normal(size=layout.size).astype(layout.dtype)
    return samples, Weights(layout, w, {})


def regression(bias: bool = False) -> tuple[nn.Module, Samples, Weights, np.ndarray]:
    """Softmax regression of 3 classes in 2 dimensions, float64, and its Hessian (1/n) sum (diag p - p p') x (x x')."""
    module = nn.Linear(2, 3, bias=bias).double()
    samples, w = noise(module, (2,), 3)
    x = samples.x.numpy()
    weight = w.parameters[:6].reshape(3, 2)
    logits = x @ weight.T + (w.parameters[6:] if bias else 0)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    middle = np.einsum("nc,cd->ncd", p, np.eye(3)) - np.einsum("nc,nd->ncd", p, p)
    inputs = np.hstack([x, np.ones((len(x), 1))]) if bias else x
    k = inputs.shape[1]
    matrix = np.einsum("ncd,ni,nj->cidj", middle, inputs, inputs).reshape(3 * k, 3 * k) / len(x)
    if bias:  # from (class, input) to all weights, then all biases
        order = [c * 3 + i for c in range(3) for i in range(2)] + [c * 3 + 2 for c in range(3)]
        matrix = matrix[np.ix_(order, order)]
    return module, samples, w, matrix


def autograd(module: nn.Module, samples: Samples, w: Weights) -> tuple[float, np.ndarray, np.ndarray]:
    """Loss, gradient and Hessian by torch's own dense functions over a functional call."""

    def loss(vector: torch.Tensor) -> torch.Tensor:
        shapes = {e.name: vector[w.layout.slices[e.name]].view(e.shape) for e in w.layout.parameters}
        return nn.functional.cross_entropy(torch.func.functional_call(module, shapes, (samples.x,)), samples.y)

    at = torch.from_numpy(w.parameters)
    dense = torch.autograd.functional.hessian(loss, at).numpy()
    return float(loss(at)), torch.autograd.functional.jacobian(loss, at).numpy(), dense


def random_matrix(spectrum: np.ndarray, seed: int = 0) -> np.ndarray:
    """A symmetric matrix with a spectrum, in random axes."""
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(spectrum), len(spectrum))))
    return (q * spectrum) @ q.T


def product_of(matrix: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rows: rows @ matrix


# --- derivatives ---


@pytest.mark.parametrize("bias", [False, True])
def test_the_hessian_of_softmax_regression_is_its_closed_form(bias: bool) -> None:
    module, samples, w, matrix = regression(bias)
    derivatives = Derivatives(module, samples)
    size = w.layout.size
    np.testing.assert_allclose(derivatives.products(w, np.eye(size)), matrix, atol=1e-13)
    top = eigenvalues(lambda v: derivatives.products(w, v), size, 3)
    np.testing.assert_allclose([one.value for one in top], np.linalg.eigvalsh(matrix)[::-1][:3], atol=1e-12)


def test_derivatives_of_a_network_are_those_of_autograd(small: Any) -> None:
    samples = Samples(small.x, small.y, 3, "noise", "train", np.arange(40))
    loss, gradient, dense = autograd(small.module, samples, small.start)
    derivatives = Derivatives(small.module, samples)
    got_loss, got = derivatives.gradient(small.start)
    assert got_loss == pytest.approx(loss, rel=1e-14)
    np.testing.assert_allclose(got, gradient, atol=1e-15)
    np.testing.assert_allclose(derivatives.products(small.start, np.eye(len(got))), dense, atol=1e-14)
    moved = small.start.parameters + 0.1
    there = autograd(small.module, samples, replace(small.start, parameters=moved))
    np.testing.assert_allclose(derivatives.gradient(small.start, moved)[1], there[1], atol=1e-15)


def test_the_module_is_in_evaluation_mode_and_left_alone() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 3))
    samples, _ = noise(module, (4,), 3)
    module.train().requires_grad_(False)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    layout = Layout.of(module)
    w = layout.flatten({name: value.numpy() for name, value in state.items()})
    derivatives = Derivatives(module, samples)
    assert derivatives.gradient(w)[0] == pytest.approx(float(Evaluator(module, samples).models(w)[0][0]), rel=1e-6)
    # twice the same, so neither dropout nor running statistics moved
    one, other = (derivatives.products(w, np.eye(layout.size)[:3]) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


def test_the_numbers_depend_neither_on_workers_nor_on_the_batches() -> None:
    module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    samples, w = noise(module, (5,), 3, n=997)
    v = np.random.default_rng(1).normal(size=(2, w.layout.size))
    made = {}
    for workers in (1, 3):
        derivatives = Derivatives(module, samples, compute=Compute(workers=workers))
        derivatives.batch = 10
        derivatives._shares = [range(i, min(i + 20, 997), 10) for i in range(0, 997, 20)]
        made[workers] = derivatives.gradient(w)[1], derivatives.products(w, v)
    np.testing.assert_array_equal(made[1][0], made[3][0])
    np.testing.assert_array_equal(made[1][1], made[3][1])
    whole = Derivatives(module, samples)
    assert whole.batch == 500
    assert derivatives.gradient(w)[0] == pytest.approx(whole.gradient(w)[0], rel=1e-6)
    # float32 sums over 10 and over 500 samples
    np.testing.assert_allclose(whole.gradient(w)[1], made[1][0], atol=1e-6)
    np.testing.assert_allclose(whole.products(w, v), made[1][1], atol=1e-5)


@pytest.mark.parametrize("n", [1, 500, 501, 40_000, 100_001])
def test_shares_hold_every_batch_once_and_are_few(n: int) -> None:
    module = nn.Linear(1, 2)
    x = torch.zeros(n, 1)
    derivatives = Derivatives(module, Samples(x, torch.zeros(n, dtype=torch.int64), 2, "z", "train", np.arange(n)))
    assert [start for share in derivatives._shares for start in share] == list(range(0, n, 500))
    assert len(derivatives._shares) <= SHARES


def test_a_parameter_with_two_names_counts_once_and_one_without_effect_is_0() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3, bias=False).double()
            self.unused = nn.Parameter(torch.zeros(2, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(torch.tanh(self.first(x)))

    module = Tied()
    samples, w = noise(module, (3,), 3)
    _, gradient, dense = autograd(module, samples, w)
    derivatives = Derivatives(module, samples)
    np.testing.assert_allclose(derivatives.gradient(w)[1], gradient, atol=1e-14)
    np.testing.assert_allclose(derivatives.products(w, np.eye(w.layout.size)), dense, atol=1e-13)
    assert not dense[w.layout.slices["unused"]].any()


# --- what is asked of a Hessian ---


@pytest.mark.parametrize("size", [5, 64, 65, 200])
def test_the_ends_of_a_known_spectrum(size: int) -> None:
    spectrum = np.concatenate([np.linspace(-0.5, 1, size - 3), [3.0, 4.0, 7.0]])
    product = product_of(random_matrix(spectrum))
    top = eigenvalues(product, size, 3, seed=4)
    assert [round(one.value, 6) for one in top] == [7.0, 4.0, 3.0]
    assert all(0 <= one.residual < 7e-3 for one in top)
    (low,) = most_negative(product, size, top[0].value)
    assert low.residual < 7e-3 * 1.1
    assert abs(low.value + 0.5) <= low.residual + 1e-12
    assert eigenvalues(product, size, 3, seed=4) == top


def test_all_eigenvalues_of_a_small_matrix_exist() -> None:
    spectrum = np.array([-2.0, 0.0, 1.0, 5.0])
    top = eigenvalues(product_of(random_matrix(spectrum)), 4, 4)
    np.testing.assert_allclose([one.value for one in top], spectrum[::-1], atol=1e-14)


def test_the_residual_bounds_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hessian, "TOLERANCE", 0.3)
    spectrum = np.linspace(0, 1, 300)
    for one in eigenvalues(product_of(random_matrix(spectrum)), 300, 2):
        assert 1e-8 < np.abs(spectrum - one.value).min() <= one.residual


def test_what_does_not_converge_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hessian, "RESTARTS", 1)
    monkeypatch.setattr(hessian, "TOLERANCE", 1e-14)
    product = product_of(random_matrix(np.linspace(0, 1, 300)))
    assert eigenvalues(product, 300, 3) == ()
    assert most_negative(product, 300, 1.0) == ()


@pytest.mark.parametrize("top", [0, 7])
def test_eigenvalues_that_do_not_exist_are_refused(top: int) -> None:
    with pytest.raises(FedscopeError, match=rf"{top} eigenvalues of a model of 6 parameters do not exist; give 1 to 6"):
        eigenvalues(product_of(np.eye(6)), 6, top)


@pytest.mark.parametrize("size", [6, 100])
def test_a_hessian_that_is_not_finite_is_no_number(size: int) -> None:
    with pytest.raises(FloatingPointError):
        eigenvalues(lambda rows: rows * np.nan, size, 2)


def test_the_trace_and_its_standard_error() -> None:
    matrix = random_matrix(np.linspace(-1, 3, 80))
    probes = 400
    value, stderr = trace(product_of(matrix), 80, probes, seed=3)
    # Rademacher probes scatter by 2 * the squares off the diagonal
    expected = np.sqrt(2 * (np.sum(matrix**2) - np.sum(np.diag(matrix) ** 2)) / probes)
    assert stderr == pytest.approx(expected, rel=0.12)  # 3.4 deviations of a standard deviation of 400
    assert abs(value - 80) < 4 * stderr
    assert value != 80
    assert trace(product_of(matrix), 80, probes, seed=3) == (value, stderr)
    assert trace(product_of(matrix), 80, probes, seed=2)[0] != value
    assert np.isnan(trace(product_of(matrix), 80, 1)[1])
    # as many probes as asked for, whatever the number that share their passes
    counted: list[int] = []
    trace(lambda rows: counted.append(len(rows)) or rows, 80, 6)  # type: ignore[func-returns-value]
    assert sum(counted) == 6
    assert max(counted) <= hessian.TOGETHER


def test_the_density_has_the_mass_of_the_eigenvalues() -> None:
    pytest.importorskip("curvlinops")
    spectrum = np.concatenate([np.zeros(1800), np.full(200, 2.0)])
    state = torch.random.get_rng_state()

    def product(rows: np.ndarray) -> np.ndarray:  # with a little noise: after as many steps as atoms nothing were left
        return rows * (spectrum + 1e-6 * np.sin(np.arange(2000)))

    grid, density = spectral_density(product, 2000, (0.0, 2.0), 20, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    step = grid[1] - grid[0]
    # what is outside of the margins of 5 % is cut off: Gaussians of deviation 0.04
    assert density.sum() * step == pytest.approx(1, abs=0.01)
    # squared components of one random vector: 0.1 +- sqrt(2 * 0.1 * 0.9 / 2000) = 0.0095
    assert density[grid > 1].sum() * step == pytest.approx(0.1, abs=0.03)
    again = spectral_density(product, 2000, (0.0, 2.0), 20, seed=1)
    np.testing.assert_array_equal(again[1], density)
    other = spectral_density(product, 2000, (0.0, 2.0), 20, seed=2)
    assert not np.array_equal(other[1], density)


def test_without_the_extra_a_density_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "curvlinops", None)
    with pytest.raises(FedscopeError, match=r"needs curvlinops; pip install 'fedscope\[hessian\]', or leave it out"):
        spectral_density(product_of(np.eye(5)), 5, (0.0, 1.0), 4)


# --- rises of the loss ---


def plain(size: int, rows: int = 1, w: np.ndarray | None = None) -> Weights:
    layout = Layout.of(nn.Linear(size // rows, rows, bias=False).double())
    return Weights(layout, np.zeros(size) if w is None else w, {})


class Quadratic:
    """L(w) = b w + w A w / 2, and where it was asked for."""

    def __init__(self, b: np.ndarray, a: np.ndarray) -> None:
        self.b, self.a = b, a
        self.points: list[np.ndarray] = []

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        self.points.append(w)
        return float(self.b @ w + w @ self.a @ w / 2), self.b + self.a @ w

    def worst(self, radius: float) -> float:
        """max over the ball about 0, by the secular equation of the trust region problem."""
        values, vectors = np.linalg.eigh(self.a)
        b = vectors.T @ self.b

        def excess(mu: float) -> float:
            return float(np.linalg.norm(b / (mu - values)) - radius)

        mu = brentq(excess, values[-1] + 1e-9, values[-1] + np.linalg.norm(b) / radius + 1, xtol=1e-14)
        e = vectors @ (b / (mu - values))
        return float(self.b @ e + e @ self.a @ e / 2)


@given(st.integers(0, 10_000), st.floats(0.01, 3))
def test_the_worst_rise_of_a_linear_loss_is_the_radius_times_its_slope(seed: int, radius: float) -> None:
    draw = np.random.default_rng(seed)
    slope = Quadratic(draw.normal(size=6), np.zeros((6, 6)))
    w = plain(6, 2, draw.normal(size=6))
    rise = radius * np.linalg.norm(slope.b)
    assert sam_step(Ball(w, radius), slope) == pytest.approx(rise)
    assert worst_rise(Ball(w, radius), slope) == pytest.approx(rise)
    lengths = np.repeat(np.linalg.norm(w.parameters.reshape(2, 3), axis=1), 3)
    relative = radius * np.linalg.norm(lengths * slope.b)
    assert worst_rise(Ball(w, radius, relative=True), slope) == pytest.approx(relative)


@given(st.integers(0, 10_000), st.floats(0.05, 2))
def test_the_worst_rise_of_a_quadratic_loss_is_that_of_the_trust_region(seed: int, radius: float) -> None:
    draw = np.random.default_rng(seed)
    slope = Quadratic(draw.normal(size=8), random_matrix(np.linspace(-1, 2, 8), seed))
    ball = Ball(plain(8), radius)
    exact = slope.worst(radius)
    found = worst_rise(ball, slope, starts=2, steps=60)
    assert sam_step(ball, slope) <= found + 1e-12
    assert found <= exact + 1e-9
    assert found == pytest.approx(exact, rel=2e-3)


def test_an_ascent_leaves_a_maximum_of_the_slope_and_never_the_ball() -> None:
    # no slope at the centre: the SAM step stays there, random starts find the steepest axis
    slope = Quadratic(np.zeros(8), np.diag([0.0, -1.0, 0.5, 0.2, 3.0, 0.1, 0.0, 0.3]))
    ball = Ball(plain(8), 0.4)
    assert sam_step(ball, slope) == 0
    assert worst_rise(ball, slope, starts=0) == 0
    assert worst_rise(ball, slope, starts=2, steps=60) == pytest.approx(0.4**2 * 3 / 2, rel=1e-3)
    assert max(np.linalg.norm(point) for point in slope.points) <= 0.4 * (1 + 1e-12)


def test_a_relative_ball_moves_filters_alone_and_as_far_as_it_reaches() -> None:
    layout = Layout.of(nn.Linear(3, 2).double())
    w = Weights(layout, np.array([3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 8.0, 9.0]), {})  # the second filter is 0
    slope = Quadratic(np.ones(8), np.eye(8))
    worst_rise(Ball(w, 0.1, relative=True), slope, starts=3, steps=1)
    centre, *offsets = np.array(slope.points) - w.parameters
    assert not centre.any()
    # the SAM step and three starts: on the sphere, which neither the filter of zeros nor the biases take part in
    np.testing.assert_allclose([np.linalg.norm(offset[:3] / 5) for offset in offsets], [0.1] * 4)
    assert not np.array(offsets)[:, 3:].any()


def test_an_ascent_halves_its_step_to_find_a_peak_inside_of_the_ball() -> None:
    peak = np.array([0.1, -0.2, 0.05, 0.0])
    slope = Quadratic(2 * peak, -2 * np.eye(4))
    ball = Ball(plain(4), 1.0)
    assert sam_step(ball, slope) < 0
    assert worst_rise(ball, slope, starts=0, steps=40) == pytest.approx(peak @ peak, rel=0.01)


def test_more_starts_and_steps_can_only_raise_the_worst_case(small: Any) -> None:
    derivatives = Derivatives(small.module, Samples(small.x, small.y, 3, "noise", "train", np.arange(40)))
    ball = Ball(small.start, 1.5)

    def slope(w: np.ndarray) -> tuple[float, np.ndarray]:
        return derivatives.gradient(small.start, w)

    found = [worst_rise(ball, slope, starts=starts, steps=steps) for starts, steps in ((0, 1), (0, 5), (2, 5), (4, 20))]
    assert found == sorted(found)
    assert found[0] == sam_step(ball, slope)
    assert found[-1] > found[0]


def test_losses_that_are_not_finite_stay() -> None:
    def cliff(w: np.ndarray) -> tuple[float, np.ndarray]:
        return (np.inf if w[0] > 0.05 else float(w[0])), np.ones(4)

    assert worst_rise(Ball(plain(4), 0.2), cliff) == np.inf
    assert np.isnan(worst_rise(Ball(plain(4), 0.2), lambda w: (np.nan, np.ones(4))))


@pytest.mark.parametrize("radius", [0.0, -1.0, np.inf, np.nan])
def test_a_radius_that_is_none_is_refused(radius: float) -> None:
    with pytest.raises(FedscopeError, match=r"is not a ball about a model; give a positive number"):
        Ball(plain(4), radius)


def test_a_model_without_filters_has_no_relative_ball() -> None:
    with pytest.raises(FedscopeError, match=r"no filter that is not 0.*give a radius in weight space"):
        Ball(plain(4), 0.1, relative=True)


def test_the_mean_rise_in_the_quadratic_limit() -> None:
    module, samples, w, matrix = regression()
    rho, draws = 1e-3, 1000
    mean, stderr = mean_rise(Ball(w, rho), Evaluator(module, samples), draws=draws, seed=5)
    # uniform in the ball, and not on its sphere, where it were P in the place of P + 2
    expected = rho**2 * np.trace(matrix) / (2 * (6 + 2))
    assert stderr < 0.03 * expected
    assert abs(mean - expected) < 4 * stderr
    again = mean_rise(Ball(w, rho), Evaluator(module, samples, compute=Compute(workers=1)), draws=draws, seed=5)
    assert again == (mean, stderr)
    assert mean_rise(Ball(w, rho), Evaluator(module, samples), draws=10, seed=6)[0] != mean


def test_the_standard_error_is_that_of_independent_means() -> None:
    module, samples, w, _ = regression()
    evaluator, ball = Evaluator(module, samples), Ball(w, 0.01)
    means = np.array([mean_rise(ball, evaluator, draws=8, seed=seed) for seed in range(60)])
    # a standard deviation of 60 is known to 9 %
    assert means[:, 0].std(ddof=1) == pytest.approx(np.sqrt((means[:, 1] ** 2).mean()), rel=0.3)
    assert np.isnan(mean_rise(ball, evaluator, draws=1)[1])


def test_the_mean_rise_in_filters_in_the_quadratic_limit() -> None:
    module, samples, w, matrix = regression(bias=True)
    rho, expected = 1e-3, 0.0
    for row in (np.array([0, 1]), np.array([2, 3]), np.array([4, 5])):  # the biases, 6 to 8, are not moved
        length = np.linalg.norm(w.parameters[row])
        expected += rho**2 / 3 * length**2 / 2 * np.trace(matrix[np.ix_(row, row)]) / 2
    mean, stderr = mean_rise(Ball(w, rho, relative=True), Evaluator(module, samples), draws=1000)
    assert stderr < 0.03 * expected
    assert abs(mean - expected) < 4 * stderr


@pytest.mark.parametrize("factor", [0.1, 30.0])
def test_what_is_relative_to_filters_is_blind_to_the_scale_of_layers(factor: float) -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    samples, w = noise(module, (4,), 3)
    views = {name: value.copy() for name, value in w.arrays().items()}
    views["0.weight"] *= factor
    views["0.bias"] *= factor
    views["2.weight"] /= factor
    scaled = w.layout.flatten(views)
    evaluator, derivatives = Evaluator(module, samples), Derivatives(module, samples)

    def rises(model: Weights, relative: bool) -> list[float]:
        ball = Ball(model, 0.2, relative)
        worst = worst_rise(ball, lambda at: derivatives.gradient(model, at), starts=2)
        return [worst, *mean_rise(ball, evaluator, draws=4)]

    np.testing.assert_allclose(rises(scaled, True), rises(w, True), rtol=1e-7)
    assert not np.allclose(rises(scaled, False), rises(w, False), rtol=0.05)
