"""Lines: values against direct evaluation, barriers of known curves, and interruptions that change nothing."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_models import interrupt_at, measured_directly, random_models
from torch import Tensor, nn

from fedscope.checkpoints import FedscopeError, Layout, Model, Weights
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.landscape import Line, barrier_of, betas_on, line


class DoubleWell(nn.Module):
    """Loss 0.2 + h (1 − w_0²)² + 0.05 w_0 whatever the sample: minima near w_0 = ±1, a barrier of h between them."""

    def __init__(self, height: float = 0.7) -> None:
        super().__init__()
        self.height = height
        self.w = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        loss = 0.2 + self.height * (1 - self.w[0] ** 2) ** 2 + 0.05 * self.w[0]
        # −log softmax(0, z)[0] = log(1 + e^z) is the loss at z = log(e^loss − 1)
        z = torch.log(torch.expm1(loss)) + 0 * x[:, 0]
        return torch.stack([torch.zeros_like(z), z], dim=1)


def ones(n: int = 7) -> Samples:
    return Samples(torch.ones(n, 1), torch.zeros(n, dtype=torch.int64), 2, "toy", "test", np.arange(n))


def model(module: nn.Module, parameters: np.ndarray | list[float], label: str) -> Model:
    layout = Layout.of(module)
    return Model(label, f"runs/x@{label}", Weights(layout, np.asarray(parameters, dtype=layout.dtype), {}))


def network() -> tuple[nn.Module, Samples, list[Model]]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    samples = Samples(torch.randn(90, 6), torch.arange(90) % 3, 3, "toy", "test", np.arange(90))
    return module, samples, random_models(module, 4, 1.0)


def test_barrier_of_a_double_well() -> None:
    module = DoubleWell(0.7)
    a, b = model(module, [1.0, 3.0], "a"), model(module, [-1.0, 2.0], "b")
    found = line(module, ones(), [(a, b), (b, a)])
    assert found.loss.shape == (2, 81)
    t = 2 * found.beta - 1  # w_0 at β
    np.testing.assert_allclose(found.loss[0], 0.2 + 0.7 * (1 - t**2) ** 2 + 0.05 * t, rtol=1e-12)
    np.testing.assert_allclose(found.loss[1], found.loss[0][::-1], rtol=1e-12)
    np.testing.assert_allclose(found.barrier, 0.7, rtol=1e-12)
    assert found.barrier_beta.tolist() == [0.5, 0.5]


def test_no_barrier_is_zero() -> None:
    assert barrier_of(np.array([-1.0, 0.0, 0.5, 1.0, 2.0]), np.array([9.0, 3.0, 1.0, 2.0, 9.0])) == (0.0, 0.0)


def test_barrier_keeps_what_is_not_finite() -> None:
    beta = np.array([0.0, 0.25, 0.5, 1.0])
    assert barrier_of(beta, np.array([1.0, np.inf, 0.0, 1.0])) == (np.inf, 0.25)
    assert np.isnan(barrier_of(beta, np.array([1.0, 2.0, np.nan, 1.0]))[0])
    assert np.isnan(barrier_of(beta, np.array([1.0, 2.0, 2.0, np.inf]))[0])


def test_values_are_those_of_the_models_on_the_segment() -> None:
    module, samples, (a, b, c, d) = network()
    found = line(module, samples, [(a, b), (c, d)], betas=21)
    for pair, (first, second) in enumerate([(a.weights, b.weights), (c.weights, d.weights)]):
        for point in (3, 12, 18):
            beta = found.beta[point]
            w = beta * first.parameters.astype(float) + (1 - beta) * second.parameters
            loss, error, _ = measured_directly(module, Weights(first.layout, w.astype(np.float32), {}), samples)
            assert found.loss[pair, point] == pytest.approx(loss, rel=1e-6)
            assert found.error[pair, point] == error
    losses, errors = Evaluator(module, samples).models([m.weights for m in (a, b, c, d)])
    at_1, at_0 = found.beta == 1, found.beta == 0
    assert [*found.loss[:, at_1][:, 0], *found.loss[:, at_0][:, 0]] == [losses[k] for k in (0, 2, 1, 3)]
    assert [*found.error[:, at_1][:, 0], *found.error[:, at_0][:, 0]] == [errors[k] for k in (0, 2, 1, 3)]


@given(low=st.floats(-3, 0.9), width=st.floats(0.2, 5), points=st.integers(2, 200))
def test_betas_hold_the_ends_and_the_mean_exactly(low: float, width: float, points: int) -> None:
    betas = betas_on((low, low + width), points)
    assert (np.diff(betas) > 0).all()
    assert (betas[0], betas[-1]) == (low, low + width) or {betas[0], betas[-1]} & {0.0, 0.5, 1.0}
    for place in (0.0, 0.5, 1.0):  # the ends, and the mean of both
        if low < place < low + width:
            assert place in betas
    assert points <= len(betas) <= points + 3


def test_the_default_has_81_points_and_given_ones_gain_the_ends() -> None:
    assert len(betas_on((-0.5, 1.5), 81)) == 81
    module = DoubleWell()
    pair = (model(module, [1.0, 0.0], "a"), model(module, [-1.0, 0.0], "b"))
    assert line(module, ones(), [pair], betas=[0.3, 0.2]).beta.tolist() == [0.0, 0.2, 0.3, 1.0]


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupted_line_goes_on_bit_for_bit(tmp_path: Path, workers: int) -> None:
    module, samples, (a, b, c, d) = network()
    pairs = [(a, b), (c, d)]
    whole = line(module, samples, pairs, betas=33)
    store = tmp_path / "line.nc.partial"

    with pytest.raises(KeyboardInterrupt):
        line(
            module, samples, pairs, betas=33, compute=Compute(workers=workers), progress=interrupt_at(17), partial=store
        )
    assert store.exists()
    told: list[tuple[int, int]] = []
    again = line(
        module,
        samples,
        pairs,
        betas=33,
        compute=Compute(workers=workers),
        progress=lambda *t: told.append(t),
        partial=store,
    )
    assert told[0] == (17, 66), "what was done is not done again"
    assert told[-1] == (66, 66)
    assert again.loss.tobytes() == whole.loss.tobytes()
    assert again.error.tobytes() == whole.error.tobytes()
    assert store.exists(), "the result is not saved yet"


@pytest.mark.parametrize("points", [2, 4, 6, 10])
def test_the_mean_of_both_models_is_always_measured(points: int) -> None:
    for span in ((-0.5, 1.5), (0.0, 1.0), (0.4, 3.0)):
        betas = betas_on(span, points)
        assert np.count_nonzero(betas == 0.5) == 1
        assert (np.diff(betas) > 0).all()
        assert set(np.linspace(*span, points).round(9)) <= set(betas.round(9))
    assert 0.5 not in betas_on((0.6, 1.5), points)


def test_another_question_does_not_go_on_from_the_store(tmp_path: Path) -> None:
    module, samples, (a, b, c, d) = network()
    store = tmp_path / "partial"

    for other in ([(a, c)], [(a, b), (c, d)]):
        with pytest.raises(KeyboardInterrupt):
            line(module, samples, [(a, b)], betas=11, progress=interrupt_at(5), partial=store)
        told: list[tuple[int, int]] = []
        found = line(module, samples, other, betas=11, progress=lambda *t, told=told: told.append(t), partial=store)
        assert told[0][0] == 0
        assert found.loss.tobytes() == line(module, samples, other, betas=11).loss.tobytes()


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    module, samples, (a, b, c, d) = network()
    c.weights.parameters[0] = np.nan
    found = line(module, samples, [(a, b), (c, d)], betas=5, provenance={"run": ["r"], "seed": None, "note": "ä→β"})
    assert np.isnan(found.loss[1]).sum() > 0
    assert np.isnan(found.barrier[1])
    found.save(tmp_path / "figures" / "line.nc")
    again = Line.load(tmp_path / "figures" / "line.nc")
    for name in ("beta", "loss", "error", "barrier", "barrier_beta"):
        assert getattr(again, name).tobytes() == getattr(found, name).tobytes()
    assert (again.pairs, again.ends, again.attrs) == (found.pairs, found.ends, found.attrs)
    assert again.pairs == ("a - b", "c - d")
    assert again.attrs["run"] == ["r"]
    assert again.attrs["samples"] == 90
    assert again.attrs["addresses"] == ["runs/x@a", "runs/x@b", "runs/x@c", "runs/x@d"]
    assert set(again.attrs["versions"]) >= {"fedscope", "torch", "numpy", "python"}


def test_lines_that_cannot_be_drawn_are_refused() -> None:
    module, samples, (a, b, *_) = network()
    with pytest.raises(FedscopeError, match="a and a2 are the same model"):
        line(module, samples, [(a, Model("a2", "x", a.weights))])
    other = model(nn.Linear(6, 3), np.zeros(21), "other")
    with pytest.raises(FedscopeError, match=r"a and other are models of different architectures: 0\.weight"):
        line(module, samples, [(a, other)])
    with pytest.raises(FedscopeError, match="a does not fit the module"):
        line(nn.Linear(6, 3), samples, [(a, b)])
    with pytest.raises(FedscopeError, match="needs a pair of models"):
        line(module, samples, [])
    with pytest.raises(FedscopeError, match="1 points from 0 to 1 make no line"):
        betas_on((0, 1), 1)


@pytest.mark.parametrize("factor", [0.5, 60.0])
def test_rounding_of_float32_is_no_barrier_and_a_real_one_is(factor: float) -> None:
    """Against the same curve in float64: a model and itself but for noise have none, further apart they have one."""
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    x = torch.randn(400, 6)
    with torch.no_grad():
        y = module(x).argmax(1)
        module[4].weight.mul_(factor)  # by which its outputs are as large
    samples = Samples(x, y, 3, "toy", "test", np.arange(400))
    exact = Samples(x.double(), y, 3, "toy", "test", np.arange(400))
    layout = Layout.of(module)
    state = {name: values.numpy() for name, values in module.state_dict().items()}
    order = np.random.default_rng(1).permutation(64)
    same = state | {name: state[name][order] for name in ("0.weight", "0.bias")}
    same |= {"2.weight": state["2.weight"][:, order]}
    start, shuffled = (layout.flatten(one).parameters for one in (state, same))
    double = copy.deepcopy(module).double()
    noise = np.random.default_rng(0).normal(size=layout.size)
    seen = []
    for end in (start + 1e-6 * noise, start + 1e-5 * noise, shuffled):
        ends = [start, end.astype(np.float32)]
        found = line(module, samples, [(model(module, ends[0], "a"), model(module, ends[1], "b"))], betas=9)
        right = line(double, exact, [(model(double, ends[0], "a"), model(double, ends[1], "b"))], betas=9)
        seen.append((found.barrier[0], right.barrier[0]))
    assert [height for height, _ in seen[:2]] == [0.0, 0.0]
    assert all(height < 1e-7 for _, height in seen[:2]), "nor is there one that float32 could tell"
    assert seen[2][0] == pytest.approx(seen[2][1], rel=1e-4)
    assert seen[2][0] > 0


def test_the_rounding_of_a_curve_is_that_of_its_numbers() -> None:
    beta, bump = np.array([0.0, 0.5, 1.0]), 1e-7
    curve = np.array([1.0, 1.0 + bump, 1.0])
    assert barrier_of(beta, curve) == pytest.approx((bump, 0.5), rel=1e-6)
    assert barrier_of(beta, curve, np.float32) == (0.0, 0.0)
    assert barrier_of(beta, 1e-6 * curve + [0, bump, 0], np.float32) == pytest.approx((bump, 0.5), rel=1e-4)


@pytest.mark.parametrize(
    ("normalization", "words"),
    [
        (
            "interpolate",
            "loss barrier (greatest excess over the straight line between the ends): none (a - b); normalization "
            "statistics interpolated (variances cut at 0 at 3 points beyond the ends)",
        ),
        ("keep", None),
    ],
)
def test_variances_that_are_cut_are_told(normalization: str, words: str | None) -> None:
    module = nn.Sequential(nn.BatchNorm1d(1, affine=False), nn.Linear(1, 2))
    layout = Layout.of(module)
    ends = []
    for label, variance in (("a", 1.0), ("b", 4.0)):
        buffers = {"0.running_mean": np.zeros(1, np.float32), "0.running_var": np.full(1, variance, np.float32)}
        buffers["0.num_batches_tracked"] = np.array(1)
        parameters = np.full(4, variance, np.float32)
        ends.append(Model(label, f"runs/x@{label}", Weights(layout, parameters, buffers)))
    # 4 - 3 beta is below 0 from 4/3 on
    found = line(
        module, ones(), [(ends[0], ends[1])], betas=[-0.5, 0.5, 1.3, 1.4, 1.5, 2.0], normalization=normalization
    )
    assert found.attrs.get("cut_variances") == (3 if words else None)
    assert ("cut at 0" in found.summary()) == bool(words)
    if words is not None:
        assert words in found.summary()
