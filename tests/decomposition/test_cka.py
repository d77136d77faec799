"""Linear CKA against its definition, an independent implementation, and what is known of it in closed form."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from legible import assert_apart, assert_inside
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout, Model, Weights, stack
from fedscope.decomposition.cka.figure import draw_clients, scale_of
from fedscope.decomposition.cka.hsic import cka, gram, hsic, jackknife, masked_columns, minibatches
from fedscope.decomposition.cka.model_result import ModelCKA
from fedscope.decomposition.cka.pairs import model_similarity, round_similarity
from fedscope.decomposition.cka.result import ClientCKA, RoundCKA
from fedscope.evaluation.device import Compute
from fedscope.evaluation.samples import Samples
from fedscope.plotting.layout import FigureLayout
from fedscope.plotting.looks import looks_of
from fedscope.plotting.style import paper_style, save_figure
from fedscope.plotting.ticks import label_points

BOTH = ("unbiased", "biased")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hsic_of(*features: Tensor, estimator: Any = "unbiased") -> np.ndarray:
    return hsic(torch.stack([gram([x]) for x in features]), estimator)


def naive(x: Tensor, y: Tensor, estimator: str) -> float:
    """HSIC by its definition in loops, from kernels that are not centred first."""
    n, (kernel, other) = len(x), ((x @ x.T).tolist(), (y @ y.T).tolist())
    places = range(n)
    if estimator == "biased":
        h = [[float(i == j) - 1 / n for j in places] for i in places]
        every = product(places, repeat=4)
        return sum(kernel[i][j] * h[j][k] * other[k][m] * h[m][i] for i, j, k, m in every) / (n - 1) ** 2
    for matrix in (kernel, other):
        for i in places:
            matrix[i][i] = 0.0
    trace = sum(kernel[i][j] * other[j][i] for i in places for j in places)
    sums = sum(map(sum, kernel)) * sum(map(sum, other))
    chain = sum(kernel[i][j] * other[j][k] for i in places for j in places for k in places)
    return (trace + sums / ((n - 1) * (n - 2)) - 2 / (n - 2) * chain) / (n * (n - 3))


# --- the estimators ---


@pytest.mark.parametrize("estimator", BOTH)
def test_all_pairs_at_once_are_the_definition_in_loops(estimator: Any) -> None:
    features = [drawn(7, 3), drawn(7, 5, seed=1) + 2, drawn(7, 1, seed=2)]
    expected = [[naive(x, y, estimator) for y in features] for x in features]
    np.testing.assert_allclose(hsic_of(*features, estimator=estimator), expected, rtol=1e-10, atol=1e-12)


def test_the_unbiased_estimate_is_the_u_statistic() -> None:
    x, y = drawn(6, 2), drawn(6, 3, seed=1) ** 2
    kernel, other = x @ x.T, y @ y.T
    terms = [
        float(kernel[i, j] * (other[i, j] + other[q, r] - 2 * other[i, q])) for i, j, q, r in permutations(range(6), 4)
    ]
    assert hsic_of(x, y)[0, 1] == pytest.approx(np.mean(terms), rel=1e-10)


def test_the_unbiased_estimate_is_right_on_average_whatever_the_size_of_the_sample() -> None:
    x, y = drawn(9, 2), drawn(9, 3, seed=1)
    y[:, 0] += x[:, 0]
    whole = hsic_of(x, y)
    for size in (4, 5, 8):
        every = [list(rows) for rows in combinations(range(9), size)]
        np.testing.assert_allclose(np.mean([hsic_of(x[rows], y[rows]) for rows in every], axis=0), whole, rtol=1e-10)
    assert hsic_of(x[:4], y[:4], estimator="biased")[0, 1] > 2 * whole[0, 1]


def test_independent_features_are_unlike_only_to_the_unbiased_estimate() -> None:
    x, y = drawn(256, 1000), drawn(256, 1000, seed=1)
    # of d features the biased one is d n / (d n + n^2) in the limit: 0.796; both scatter by less than 0.005
    assert cka(hsic_of(x, y, estimator="biased"))[0, 1] == pytest.approx(1000 / 1256, abs=0.02)
    assert cka(hsic_of(x, y))[0, 1] == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("estimator", BOTH)
def test_rotations_scales_and_shifts_do_not_matter(estimator: Any) -> None:
    x = drawn(40, 6)
    rotation, _ = torch.linalg.qr(drawn(6, 6, seed=1))
    alike = cka(hsic_of(x, x @ rotation, -3 * x + 1e3, torch.cat([x, x[:, :0]], dim=1), estimator=estimator))
    np.testing.assert_allclose(alike, 1.0, rtol=1e-9)
    assert cka(hsic_of(x, x @ drawn(6, 6, seed=2), estimator=estimator))[0, 1] < 0.95  # other maps do


def test_a_large_offset_does_not_cost_precision() -> None:
    x, y = drawn(64, 5), drawn(64, 4, seed=1)
    np.testing.assert_allclose(hsic_of(x + 1e6, y - 1e6), hsic_of(x, y), rtol=1e-7)


def test_features_are_cut_in_pieces_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn(12, 10)
    whole = gram([x])
    monkeypatch.setattr("fedscope.decomposition.cka.hsic.BLOCK", 3)
    torch.testing.assert_close(gram([x[:5], x[5:6], x[6:]]), whole)


@given(st.floats(-1e6, 1e6), st.integers(4, 300), st.sampled_from([torch.float32, torch.float64]))
def test_the_kernel_of_constant_features_is_exactly_zero(value: float, n: int, dtype: torch.dtype) -> None:
    assert not gram([torch.full((n, 2), value, dtype=dtype)]).any()


def test_the_kernel_leaves_out_classes_that_are_masked_in_all_samples() -> None:
    x = drawn(12, 3)
    masked = torch.cat([x, torch.full((12, 2), -torch.inf)], dim=1)
    parts = [masked[:7], masked[7:]]
    assert masked_columns(parts).tolist() == [False, False, False, True, True]
    assert gram(parts, masked_columns(parts)).equal(gram([torch.cat([x, torch.zeros(12, 2)], dim=1)]))
    assert gram(parts).isnan().all(), "elsewhere an infinity is no mask"
    masked[5, 3] = 0.0
    assert gram([masked], masked_columns([masked])).isnan().any(), "in some alone: it varies, and infinitely"
    masked[:, 3] = torch.inf
    assert gram([masked], masked_columns([masked])).isnan().all(), "of another sign it is no mask"


@pytest.mark.parametrize("estimator", BOTH)
def test_what_does_not_vary_has_no_cka_and_spoils_no_other(estimator: Any) -> None:
    x, y = drawn(9, 3), drawn(9, 3, seed=1)
    made = cka(hsic_of(x, torch.full((9, 3), 0.1), y, torch.full((9, 1), float("nan")), estimator=estimator))
    alone = cka(hsic_of(x, y, estimator=estimator))
    np.testing.assert_allclose(made[np.ix_([0, 2], [0, 2])], alone, rtol=1e-12)
    assert np.isnan(made[[1, 3]]).all()
    assert np.isnan(made[:, [1, 3]]).all()


def test_two_negative_estimates_make_no_similarity() -> None:
    assert np.isnan(cka(np.array([[-1.0, 0.5], [0.5, -4.0]]))).all()
    made = cka(np.array([[4.0, -3.0], [-3.0, 1.0]]))
    assert made[0, 1] == -1.5  # an estimate may lie outside, and is not cut off


@pytest.mark.parametrize(("estimator", "n"), [("unbiased", 3), ("biased", 1)])
def test_too_few_samples_are_refused(estimator: Any, n: int) -> None:
    with pytest.raises(
        FedscopeError, match=rf"the {estimator} estimator of HSIC needs {n + 1} samples in a batch, not"
    ):
        hsic(torch.zeros(2, n, n, dtype=torch.float64), estimator)
    with pytest.raises(
        FedscopeError, match=rf"the {estimator} estimator of HSIC needs {n + 1} samples, not {n} in all"
    ):
        minibatches(n, 256, 0, estimator)
    with pytest.raises(
        FedscopeError, match=rf"needs {n + 1} samples, not batches of {n}; give more \(--limit, --batch"
    ):
        minibatches(100, n, 0, estimator)


def test_the_jackknife_leaves_out_one_batch_at_a_time() -> None:
    values = np.array(
        [hsic_of(drawn(20, 3, seed=s), drawn(20, 3, seed=s) + drawn(20, 3, seed=s + 9)) for s in range(5)]
    )
    without = [cka(np.delete(values, b, axis=0).mean(axis=0))[0, 1] for b in range(5)]
    expected = np.sqrt(4 / 5 * sum((value - np.mean(without)) ** 2 for value in without))
    assert jackknife(values, cka)[0, 1] == pytest.approx(expected, rel=1e-9)
    linear = jackknife(values, lambda h: h[..., 0, 1])
    assert linear == pytest.approx(values[:, 0, 1].std(ddof=1) / np.sqrt(5), rel=1e-9)
    assert np.isnan(jackknife(values[:1], cka)).all()


# --- minibatches ---


@given(st.integers(4, 400), st.integers(4, 90), st.integers(0, 5), st.sampled_from(BOTH))
def test_minibatches_hold_every_sample_once_and_are_equal(n: int, batch: int, seed: int, estimator: Any) -> None:
    cut = minibatches(n, batch, seed, estimator)
    np.testing.assert_array_equal(np.sort(np.concatenate(cut)), np.arange(n))
    sizes = [len(rows) for rows in cut]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= (4 if estimator == "unbiased" else 2)
    assert max(sizes) <= batch or max(sizes) < 8  # 7 samples in batches of 4 are one of 7
    assert len(cut) <= -(-n // batch)
    again = minibatches(n, batch, seed, estimator)
    assert all(np.array_equal(a, b) for a, b in zip(cut, again, strict=True))


def test_the_seed_shuffles() -> None:
    assert not np.array_equal(minibatches(40, 20, 0)[0], minibatches(40, 20, 1)[0])
    assert not np.array_equal(minibatches(40, 20, 0)[0], np.arange(20))


# --- models ---


def samples_of(small: Any) -> Samples:
    return Samples(small.x, small.y, 3, "toy", "test", np.arange(40))


def by_modules(small: Any, models: list[Weights], layer: int) -> list[nn.Module]:
    """Whole modules with the given parameters, up to a layer."""
    from copy import deepcopy

    made = []
    for model in models:
        module = deepcopy(small.module)
        module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in model.arrays().items()})
        made.append(module[:layer])
    return made


def measured(small: Any, **changes: Any) -> RoundCKA:
    known = {"number": 3, "client_ids": np.array([2, 5, 9, 11]), "globals_": small.model(1), "batch": 14}
    clients = changes.pop("clients", small.clients(4))
    return round_similarity(small.module, samples_of(small), clients, **{**known, **changes})[0]


@pytest.mark.parametrize(("layer", "depth"), [("output", 3), ("1", 2), ("0", 1)])
def test_it_agrees_with_pytorch_cka(small: Any, layer: str, depth: int) -> None:
    oracle = pytest.importorskip("cka")
    made = measured(small, layers=(layer,))
    models = [small.clients(4).row(i) for i in range(4)] + [small.model(1)]
    data = [small.x[rows] for rows in minibatches(40, 14, 0)]
    assert len(data) == 3
    modules = by_modules(small, models, depth)
    for i, j in combinations(range(5), 2):
        name = str(depth - 1)
        kept = {"layers": [name], "device": "cpu", "progress": False}
        (value,) = oracle.compute_cka(modules[i], modules[j], [data], **kept)
        ours = made.cka[i, j] if j < 4 else made.cka_global[i]
        # it adds up in single precision, and cuts off what is below 0
        assert max(float(ours), 0.0) == pytest.approx(float(value), abs=1e-6)


def test_the_hsics_of_pytorch_cka_are_ours() -> None:
    oracle = pytest.importorskip("cka")
    x, y = drawn(30, 4), drawn(30, 7, seed=1) + 1
    cross, own, other = oracle.hsic((x @ x.T)[None], (y @ y.T)[None])
    expected = [[float(own), float(cross)], [float(cross), float(other)]]
    np.testing.assert_allclose(hsic_of(x, y), expected, rtol=1e-9)


@pytest.mark.parametrize("estimator", BOTH)
def test_hsics_are_averaged_before_they_are_divided(small: Any, estimator: Any) -> None:
    made = measured(small, estimator=estimator)
    models = [small.clients(4).row(i) for i in range(4)] + [small.model(1)]
    with torch.no_grad():
        answers = [module(small.x) for module in by_modules(small, models, 3)]
    cut = minibatches(40, 14, 0, estimator)
    values = np.array([hsic_of(*(x[rows] for x in answers), estimator=estimator) for rows in cut])
    expected = cka(values.mean(axis=0))
    np.testing.assert_allclose(made.cka, expected[:4, :4], rtol=1e-9)
    np.testing.assert_allclose(made.cka_global, expected[:4, 4], rtol=1e-9)
    pairs = list(combinations(range(4), 2))

    def mean(h: np.ndarray) -> float:
        return float(np.mean([cka(h)[i, j] for i, j in pairs]))

    assert made.mean == pytest.approx(mean(values.mean(axis=0)), rel=1e-9)
    without = np.array([mean(np.delete(values, b, axis=0).mean(axis=0)) for b in range(3)])
    assert made.mean_stderr == pytest.approx(np.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum()), rel=1e-6)
    assert made.mean_global == pytest.approx(expected[:4, 4].mean(), rel=1e-9)
    without = np.array([cka(np.delete(values, b, axis=0).mean(axis=0))[:4, 4].mean() for b in range(3)])
    assert made.mean_global_stderr == pytest.approx(np.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum()), rel=1e-6)


def test_neither_workers_nor_the_order_of_the_models_matter(small: Any) -> None:
    one, two = (measured(small, compute=Compute(workers=workers), layers=("0", "output")) for workers in (1, 2))
    np.testing.assert_array_equal(one.cka, two.cka)
    assert (one.mean, one.mean_stderr, one.mean_global) == (two.mean, two.mean_stderr, two.mean_global)
    order, clients = [2, 0, 3, 1], small.clients(4)
    turned = measured(small, clients=stack([clients.row(i) for i in order]), layers=("0", "output"))
    np.testing.assert_allclose(turned.cka, one.cka[np.ix_(order, order)], rtol=1e-12)
    np.testing.assert_allclose(turned.cka_global, one.cka_global[order], rtol=1e-12)
    assert turned.mean == pytest.approx(one.mean, rel=1e-12)


def test_the_seed_cuts_other_minibatches(small: Any) -> None:
    assert measured(small).mean != measured(small, seed=1).mean
    # with all samples in one there is nothing to cut
    assert measured(small, batch=40).mean == pytest.approx(measured(small, batch=40, seed=1).mean, rel=1e-9)
    assert np.isnan(measured(small, batch=40).mean_stderr)


def test_threads_are_given_back(small: Any) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        measured(small)
        assert torch.get_num_threads() == 2
        with pytest.raises(FedscopeError):
            measured(small, layers=("9",))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_progress_counts_every_pass(small: Any) -> None:
    said: list[tuple[int, int]] = []
    measured(small, progress=lambda done, of: said.append((done, of)))
    assert said == [(i, 15) for i in range(1, 16)]  # 3 minibatches, 4 clients and the global model


def test_a_diverged_client_and_a_dead_one_are_named(small: Any) -> None:
    clients = small.clients(4)
    clients.parameters[1] = np.nan
    clients.parameters[2, small.facts.layout.slices["2.weight"]] = 0.0  # its outputs are its biases
    made = measured(small, clients=clients)
    assert made.undefined == [5, 9]
    assert np.isnan(made.cka[[1, 2]]).all()
    assert np.isfinite(made.cka[0, 3])
    assert np.isnan([made.mean, made.mean_stderr, made.mean_global]).all()
    np.testing.assert_array_equal(np.isnan(made.cka_global), [False, True, True, False])
    said = ClientCKA((made,), {"layer": "output", "run": [{"path": "runs/ima"}]}).summary()
    assert said.startswith("ima, output: mean CKA between clients nan in round 3 (there ")
    assert said.endswith("not defined for clients 5, 9, whose features are constant, not finite, or too noisy for so "
                         "few samples in round 3")  # fmt: skip


@pytest.mark.parametrize(
    ("parameter", "layer", "value"),
    [("2.bias", "output", math.inf), ("2.bias", "output", -math.inf), ("0.bias", "0", -math.inf)],
)
def test_a_client_whose_features_are_infinite_is_named(small: Any, parameter: str, layer: str, value: float) -> None:
    """In one client alone, or of a hidden layer, an infinity is no class that is masked."""
    clients = small.clients(4)
    clients.parameters[1, small.facts.layout.slices[parameter].start] = value
    made = measured(small, clients=clients, layers=(layer,))
    assert made.undefined == [5]
    assert np.isnan(made.cka[1]).all()
    assert np.isfinite(made.cka[0, 2:]).all()


def test_a_class_that_all_models_mask_changes_no_similarity(small: Any) -> None:
    clients, where = small.clients(4), small.facts.layout.slices
    plain = clients.parameters
    plain[:, where["2.weight"]] *= np.repeat([1.0, 1.0, 0.0], 5)  # of 3 classes the last is the same for all samples
    masked = plain.copy()
    masked[:, where["2.bias"].stop - 1] = -np.inf
    one, other = (measured(small, clients=replace(clients, parameters=rows), globals_=None) for rows in (plain, masked))
    np.testing.assert_array_equal(one.cka, other.cka)
    assert np.isfinite(other.cka).all()


def test_what_is_no_round_is_refused(small: Any) -> None:
    with pytest.raises(FedscopeError, match="similarity is between two clients at least, but round 3 has 1 and 1 ids"):
        measured(small, clients=small.clients(1), client_ids=np.array([2]))
    with pytest.raises(FedscopeError, match="round 3 has 4 and 3 ids"):
        measured(small, client_ids=np.arange(3))
    other = nn.Linear(6, 3).double()
    layout = Layout.of(other)
    strange = Weights(layout, np.zeros((2, layout.size)), {})
    with pytest.raises(FedscopeError, match="the models of round 3 do not fit the module"):
        measured(small, clients=strange, client_ids=np.arange(2))
    with pytest.raises(FedscopeError, match="the models of round 3 do not fit the module"):
        measured(small, globals_=strange.row(0))
    with pytest.raises(FedscopeError, match="estimator 'other' is unknown; take one of unbiased, biased"):
        measured(small, estimator="other")
    with pytest.raises(FedscopeError, match="similarity over rounds needs a round"):
        ClientCKA(())


# --- layers ---


class Odd(nn.Module):
    """Layers that cannot be compared, among some that can."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.inplace = nn.ReLU(inplace=True)
        self.shared = nn.Tanh()
        self.pair, self.named = Pair(), Named()
        self.turned = Turned()
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inplace(self.conv(x)).flatten(1)
        h = self.named(self.pair(self.shared(self.shared(h)))[0])["one"]
        self.turned(h)
        result: Tensor = self.head(h)
        return result


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class Named(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"one": x, "other": x}


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.T


def odd_models() -> tuple[nn.Module, Samples, Weights]:
    torch.manual_seed(0)
    module = Odd()
    layout = Layout.of(module)
    # 70 samples: more than a convolution evaluates at a time, so that a minibatch's features come in pieces
    x = torch.randn(70, 2, 6, 6)
    samples = Samples(x, torch.randint(0, 3, (70,)), 3, "toy", "test", np.arange(70))
    start = layout.flatten({name: value.numpy() for name, value in module.state_dict().items()})
    rows = np.stack([start.parameters] * 3) + np.random.default_rng(0).normal(0, 0.2, (3, layout.size))
    return module, samples, Weights(layout, rows.astype(np.float32), {})


def odd(*layers: str, **changes: Any) -> tuple[RoundCKA, ...]:
    module, samples, clients = odd_models()
    kept = {"number": 1, "client_ids": np.arange(3), "layers": layers, "batch": 70}
    return round_similarity(module, samples, clients, **{**kept, **changes})


def test_a_layer_is_what_it_returned_though_the_next_one_works_in_place() -> None:
    module, samples, clients = odd_models()
    (made, after, outputs) = odd("conv", "inplace", "output")
    features: dict[str, list[Tensor]] = {"conv": [], "inplace": [], "output": []}
    for i in range(3):
        module.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in clients.row(i).arrays().items()})
        with torch.no_grad():
            convolved = module.conv(samples.x).clone()
            features["conv"].append(convolved)
            features["inplace"].append(convolved.relu())
            features["output"].append(module(samples.x))
    rows = minibatches(70, 70, 0)[0]
    for one, layer in ((made, "conv"), (after, "inplace"), (outputs, "output")):
        expected = cka(hsic_of(*(x[rows].flatten(1) for x in features[layer])))
        np.testing.assert_allclose(one.cka, expected, atol=1e-5)  # float32 convolutions in another order
    assert abs(made.mean - after.mean) > 0.01


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (("cnv",), r"^layers 'cnv' match none; did you mean \"conv\"\?$"),
        (("zzz",), r"^layers 'zzz' match none; the model has output, conv, .*head"),
        (("",), r"^layers '' match none"),
        (("conv", "conv"), r"layer conv is given 2 times; name each layer once"),
        ((), r"there is no layer to compare; give at least one, as output"),
        (("shared",), r"layer shared is 2 times run in one pass .*; give a layer that is run once"),
        (("unused",), r"layer unused is not run in one pass of the module"),
        (("named",), r"layer named returns a value of type dict, and features are a tensor \[n, ...\]; give a layer"),
        (("turned",), r"layer turned returns shape \[48, \d+\] for \d+ samples, and features are a row a sample"),
    ],
)
def test_layers_without_features_are_refused(layers: tuple[str, ...], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        odd(*layers)


class Recurrent(nn.Module):
    """Layers that return a tuple, and are given as such."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.attention = nn.LSTM(6, 8, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.cells(x)[0]
        answer: Tensor = self.head(self.attention(h, h, h)[0][:, -1])
        return answer


def recurrent() -> list[nn.Module]:
    made = []
    for seed in range(2):
        torch.manual_seed(seed)
        made.append(Recurrent().eval())
    return made


def test_of_a_tuple_the_first_is_taken_and_said() -> None:
    nets, x = recurrent(), torch.randn(48, 5, 6)
    data = x, torch.arange(48) % 3
    with pytest.warns(FedscopeWarning) as told:
        found = fedscope.cka(nets, data=data, layer=["cells", "attention", "head"], estimator="biased", batch=48)
    said = [
        f"layer {layer} returns no tensor: its outputs are a tuple of 2, of which the first is taken"
        for layer in ("cells", "attention")
    ]
    assert [str(one.message) for one in told] == said
    by_layer = {one.attrs["layer"]: one for one in found.parts.values()}
    assert [one.attrs.get("features") for one in by_layer.values()] == [*said, None]
    with torch.no_grad():
        cells = [net.cells(x)[0] for net in nets]
        attention = [net.attention(h, h, h)[0] for net, h in zip(nets, cells, strict=True)]
    for layer, features in (("cells", cells), ("attention", attention)):
        a, b = ((one.flatten(1) - one.flatten(1).mean(0)).double() for one in features)
        expected = float((a.T @ b).square().sum() / ((a.T @ a).norm() * (b.T @ b).norm()))
        assert by_layer[layer].cka[0, 1] == pytest.approx(expected, rel=1e-4)


class PositionsFirst(nn.Module):
    """A recurrent network whose layers have positions first, with numbers of another."""

    def __init__(self, of: Recurrent) -> None:
        super().__init__()
        self.cells, self.attention, self.head = nn.LSTM(6, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, 3)
        self.load_state_dict(of.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        h = self.cells(x.transpose(0, 1))[0]
        answer: Tensor = self.head(self.attention(h, h, h)[0][-1])
        return answer


@pytest.mark.parametrize("layer", ["cells", "attention"])
def test_features_are_of_samples_where_a_layer_has_positions_first(layer: str) -> None:
    """As many positions as samples of a batch would be taken for these."""
    nets, data = recurrent(), (torch.randn(40, 5, 6), torch.arange(40) % 3)
    with pytest.warns(FedscopeWarning, match="its samples moved ahead of its positions"):
        turned = fedscope.cka([PositionsFirst(one).eval() for one in nets], data=data, layer=layer, batch=5)
    with pytest.warns(FedscopeWarning, match="the first is taken$"):
        usual = fedscope.cka(nets, data=data, layer=layer, batch=5)
    assert turned.cka[0, 1] == pytest.approx(usual.cka[0, 1], rel=1e-4)


def test_a_layer_with_other_rows_than_samples_is_refused_whatever_their_number() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn, self.head = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            answer: Tensor = self.head(self.turn(x.transpose(0, 1))[-1])
            return answer

    data = torch.randn(40, 4, 6), torch.arange(40) % 3
    with pytest.raises(FedscopeError, match=r"layer turn returns shape \[4, 3, 6\] for 3 samples, and features are a"):
        fedscope.cka([Turned().eval(), Turned().eval()], data=data, layer="turn", batch=4)


def test_tensors_of_layers_are_taken_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    data = torch.randn(40, 5, 6), torch.arange(40) % 3
    assert "features" not in fedscope.cka(recurrent(), data=data, layer="head").attrs
    assert not [one for one in recwarn if isinstance(one.message, FedscopeWarning)]


def test_a_long_list_of_layers_is_shortened() -> None:
    module = nn.Sequential(nn.Flatten(), *(nn.Linear(4, 4) for _ in range(30)))
    clients = Weights(Layout.of(module), np.zeros((2, Layout.of(module).size), np.float32), {})
    samples = Samples(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64), 4, "toy", "test", np.arange(8))
    with pytest.raises(FedscopeError, match=r"^layers 'head' match none; the model has output, 0, 1, .*, 10, \.\.\.$"):
        round_similarity(module, samples, clients, number=1, client_ids=np.arange(2), layers=("head",))


# --- any models ---


def named(small: Any, *labels: str) -> list[Model]:
    return [Model(label, label, small.model(i)) for i, label in enumerate(labels)]


def test_any_models_are_the_same_numbers_with_errors_a_pair(small: Any) -> None:
    asked = {"batch": 14, "provenance": [{"addresses": ["a", "b", "c"]}]}
    (made,) = model_similarity(small.module, samples_of(small), named(small, "a", "b", "c"), **asked)
    clients = stack([small.model(i) for i in range(3)])
    same = measured(small, clients=clients, client_ids=np.arange(3), globals_=None)
    np.testing.assert_allclose(made.cka, same.cka, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(made.cka_stderr), 0.0, atol=1e-12)
    pair = measured(small, clients=stack([clients.row(0), clients.row(2)]), client_ids=np.arange(2), globals_=None)
    assert made.cka_stderr[0, 2] == pytest.approx(pair.mean_stderr, rel=1e-6)
    assert np.isnan([same.mean_global, *same.cka_global]).all()
    assert (made.attrs["layer"], made.attrs["estimator"], made.attrs["batches"]) == ("output", "unbiased", 3)
    assert (made.attrs["samples"], made.attrs["data"]) == (40, "toy")
    assert made.summary().startswith("output: CKA ")


def test_models_that_cannot_be_compared_are_refused(small: Any) -> None:
    samples = samples_of(small)
    with pytest.raises(FedscopeError, match="similarity is between two models at least, but there are 1"):
        model_similarity(small.module, samples, named(small, "a"))
    with pytest.raises(FedscopeError, match="a stands for 2 of the models, which could not be told apart"):
        model_similarity(small.module, samples, named(small, "a", "b", "a"))
    layout = Layout.of(nn.Linear(6, 3).double())
    strange = Model("strange", "strange", Weights(layout, np.zeros(layout.size), {}))
    with pytest.raises(FedscopeError, match="strange does not fit the module"):
        model_similarity(small.module, samples, [*named(small, "a"), strange])
    with pytest.raises(FedscopeError, match="the unbiased estimator of HSIC needs 4 samples, not 3 in all"):
        model_similarity(small.module, samples.limit(3), named(small, "a", "b"))


# --- files and figures ---


def round_of(number: int, ids: list[int], seed: int = 0) -> RoundCKA:
    matrix = np.corrcoef(np.random.default_rng(seed).normal(size=(len(ids), 6))) ** 2
    upper = matrix[np.triu_indices(len(ids), 1)]
    return RoundCKA(number, np.array(ids), matrix, matrix[0] ** 0.5, float(upper.mean()), 0.02, 0.9, 0.01)


def over_rounds(run: str = "ima") -> ClientCKA:
    rounds = (round_of(1, [3, 8, 11]), round_of(7, [0, 5], seed=1), round_of(20, [2, 3, 9], seed=2))
    said = {"layer": "output", "estimator": "unbiased", "batches": 4, "data": "digits", "split": "test", "samples": 360}
    return ClientCKA(rounds, {"run": [{"path": f"runs/{run}"}], **said})


def test_rounds_come_back_exactly_and_short_ones_are_padded(tmp_path: Path) -> None:
    import h5py

    path, made = tmp_path / "figures" / "c.v1.nc", over_rounds()
    made.save(path)
    again = ClientCKA.load(path)
    assert again.attrs == made.attrs
    assert (again.run, again.layer) == ("ima", "output")
    for one, other in zip(made.rounds, again.rounds, strict=True):
        for name in ("round", "client_ids", "cka", "cka_global", "mean", "mean_stderr", "mean_global"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        back = RoundCKA.from_json(one.to_json())
        np.testing.assert_array_equal(back.cka, one.cka)
        assert back.client_ids.dtype == np.int64
    with h5py.File(path) as file:
        assert file["client_ids"].dtype == np.int64
        np.testing.assert_array_equal(file["client_ids"], [[3, 8, 11], [0, 5, -1], [2, 3, 9]])
        assert np.isnan(file["cka"][1, 2]).all()
        assert np.isnan(file["cka"][1, :, 2]).all()
        assert np.isnan(file["cka_global"][1, 2])
        assert not np.isnan(file["cka"][0]).any()


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_xarray_opens_the_files(tmp_path: Path, engine: Any) -> None:
    xarray = pytest.importorskip("xarray")
    over_rounds().save(tmp_path / "c.nc")
    with xarray.open_dataset(tmp_path / "c.nc", engine=engine) as file:
        assert file["cka"].dims == ("round", "client", "client2")
        assert file["client_ids"].dims == file["cka_global"].dims == ("round", "client")
        assert file["mean"].dims == file["mean_stderr"].dims == ("round",)
        assert file["round"].values.tolist() == [1, 7, 20]
        assert float(file["cka"].sel(round=20)[0, 1]) == over_rounds().rounds[2].cka[0, 1]
    ModelCKA(("a", "ü@1"), np.eye(2), np.zeros((2, 2)), {"layer": "fc1"}).save(tmp_path / "m.nc")
    with xarray.open_dataset(tmp_path / "m.nc", engine=engine) as file:
        assert file["cka"].dims == ("model", "model2")
        assert file["model_label"].values.tolist() == ["a", "ü@1"]


def test_models_come_back_exactly_and_other_files_are_refused(tmp_path: Path) -> None:
    made = ModelCKA(("a", "b"), np.array([[1, np.nan], [np.nan, 1]]), np.full((2, 2), 0.1), {"layer": "output"})
    made.save(tmp_path / "m.nc")
    again = ModelCKA.load(tmp_path / "m.nc")
    assert (again.labels, again.attrs) == (made.labels, made.attrs)
    np.testing.assert_array_equal(again.cka, made.cka)
    np.testing.assert_array_equal(again.cka_stderr, made.cka_stderr)
    with pytest.raises(FedscopeError, match="holds fedscope-cka-models, not a cka"):
        ClientCKA.load(tmp_path / "m.nc")


def test_the_figure_draws_the_numbers_on_one_scale() -> None:
    figure = draw_clients([over_rounds(), over_rounds("fma")], 3.5)
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(images) == 6
    assert {image.get_clim() for image in images} == {(0.0, 1.0)}
    np.testing.assert_array_equal(images[1].get_array(), over_rounds().rounds[1].cka)
    assert [axes.get_title() for axes in figure.axes if axes.images][:3] == ["round 1", "round 7", "round 20"]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["3", "8", "11"]
    curves = figure.axes[-1]
    lines = {str(line.get_label()): line for line in curves.lines}
    np.testing.assert_array_equal(lines["fma"].get_xdata(), [1, 7, 20])
    np.testing.assert_array_equal(lines["fma"].get_ydata(), [one.mean for one in over_rounds().rounds])
    # names stand where the lines end: their ties begin there, within the axes' own limits
    tie = next(line for line in curves.lines if line.get_label() == "_tie")
    low, high = curves.get_ylim()
    end = (over_rounds().rounds[-1].mean - low) / (high - low)
    assert tie.get_ydata()[0] == pytest.approx(end)
    bars = [segment for bar in curves.containers for segment in bar.lines[2][0].get_segments()]
    assert len(bars) == 12
    np.testing.assert_allclose(np.diff(bars[0][:, 1]), 0.04)
    note = " ".join(text.get_text() for text in figure.texts)
    for word in ("unbiased linear CKA of outputs", "standard error over 4", "dashed: with global", "digits test, 360"):
        assert word in note, note


def with_errors(made: ClientCKA, *errors: float) -> ClientCKA:
    rounds = (replace(one, test_error=error) for one, error in zip(made.rounds, errors, strict=True))
    return ClientCKA(tuple(rounds), made.attrs)


def test_a_run_without_a_finite_similarity_says_so_in_place_of_numbers() -> None:
    """An axis of nothing had numbers from -0.05 to 0.05, and its name over them."""
    none = {"mean": math.nan, "mean_global": math.nan}
    lost = [replace(one, cka=np.full_like(one.cka, np.nan), **none) for one in over_rounds().rounds]
    axes = next(
        one for one in ClientCKA(tuple(lost), over_rounds().attrs).figure().axes if one.get_ylabel() == "mean CKA"
    )
    assert [text.get_text() for text in axes.texts] == ["not finite"]
    assert not axes.get_yticks().size


def test_test_errors_are_drawn_against_similarity_where_they_were_measured(tmp_path: Path) -> None:
    made = with_errors(over_rounds(), 0.8, math.nan, 0.2)
    made.save(tmp_path / "a.nc")
    back = ClientCKA.load(tmp_path / "a.nc")
    assert [one.test_error for one in back.rounds] == pytest.approx([0.8, math.nan, 0.2], nan_ok=True)
    panels = [axes for axes in back.figure().axes if axes.get_xlabel() == "mean CKA between clients"]
    (panel,) = panels
    (line,) = [line for line in panel.lines if line.get_marker() == looks_of(["ima"])[0]["marker"]]
    kept = [one for i, one in enumerate(made.rounds) if i != 1]
    np.testing.assert_allclose(line.get_xdata(), [one.mean for one in kept])
    np.testing.assert_allclose(line.get_ydata(), [80, 20])
    assert [text.get_text() for text in panel.texts] == [str(one.round) for one in kept]
    # of errors in a narrow span the highest marker is whole
    narrow = with_errors(over_rounds(), 0.801, 0.797, 0.8).figure().axes
    (panel,) = [axes for axes in narrow if axes.get_xlabel() == "mean CKA between clients"]
    assert panel.get_ylim() == (0.0, pytest.approx(1.08 * 80.1))
    # one round with an error is no curve, and none draws no panel
    for errors in ((0.8, math.nan, math.nan), (math.nan,) * 3):
        axes = with_errors(over_rounds(), *errors).figure().axes
        assert not any(one.get_xlabel() == "mean CKA between clients" for one in axes)
    both = draw_clients([made, with_errors(over_rounds("fma"), 0.7, 0.6, 0.5)])
    panel = next(axes for axes in both.axes if axes.get_xlabel() == "mean CKA between clients")
    lines = {str(line.get_label()): line for line in panel.lines}
    np.testing.assert_allclose(lines["fma"].get_ydata(), [70, 60, 50])
    assert lines["fma"].get_marker() != lines["ima"].get_marker(), "told apart without colour"
    assert lines["fma"].get_color() != lines["ima"].get_color()
    assert lines["fma"].get_linestyle() != lines["ima"].get_linestyle()
    means = next(axes for axes in both.axes if axes.get_ylabel() == "mean CKA")
    assert {line.get_marker() for line in means.lines if line.get_linestyle() == "-" and line.get_label() == "fma"} == {
        lines["fma"].get_marker()
    }
    # names where the lines end, numbers at their ends and wherever they hide nothing
    assert {"ima", "fma", "1", "20"} <= {text.get_text() for text in panel.texts}


def test_panels_are_drawn_alone() -> None:
    """Of Figure 4 the half that has similarity on its axis."""
    both = [with_errors(over_rounds(), 0.8, 0.4, 0.2), with_errors(over_rounds("fedavg-momentum"), 0.7, 0.6, 0.5)]
    for width in (2.0, 3.5, 7.0):
        figure = draw_clients(both, width, "errors", panels=["error"])
        (panel,) = figure.axes
        assert panel.get_xlabel() == "mean CKA between clients"
        assert_apart(assert_inside(figure, width))
    note = " ".join(text.get_text() for text in figure.texts)
    assert "numbers: rounds" in note
    assert "bars" not in note
    assert [axes.get_xlabel() for axes in both[0].figure(panels=("error", "rounds")).axes] == [
        panel.get_xlabel(),
        "round",
    ]
    assert len(both[0].figure(panels=["maps"]).axes) == 4  # three maps and their colours
    with pytest.raises(FedscopeError, match=r"no panel 'error', because no run has two rounds with a test error"):
        over_rounds().figure(panels=["error"])
    with pytest.raises(
        FedscopeError, match=r"'errors' is not a panel of similarities over rounds; there are maps, roun"
    ):
        over_rounds().figure(panels=["errors"])
    alone = ClientCKA(over_rounds().rounds[:1], over_rounds().attrs)
    with pytest.raises(FedscopeError, match=r"no panel 'rounds', because no run has two rounds; ask for more --rounds"):
        alone.figure(panels=["rounds"])


def test_many_rounds_are_numbered_at_their_ends() -> None:
    one = over_rounds().rounds[0]
    rounds = tuple(replace(one, round=t, mean=t / 50, test_error=1 - t / 60) for t in range(1, 41))
    (panel,) = ClientCKA(rounds, over_rounds().attrs).figure(panels=["error"]).axes
    assert [text.get_text() for text in panel.texts] == ["1", "40"]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_labels_of_points_hide_neither_points_nor_each_other(places: list[tuple[float, float]]) -> None:
    with paper_style(3.5):
        sheet = FigureLayout(3.5, 2.0)
        panel = sheet.axes(0.5, 0.2, 2.5, 1.5)
        panel.set(xlim=(0, 1), ylim=(0, 1))
        label_points(panel, [(x, y, str(10 * i), "black") for i, (x, y) in enumerate(places)], 2.5, 1.5)
        panel.set_axis_off()
        boxes = assert_inside(sheet.figure, 3.5)
        assert_apart([box for box in boxes if box[0]])
        dots = panel.transData.transform(places)
        # boxes hold the line's full height: a pixel, at 100 dots an inch, is no ink
        for words, box in boxes:
            assert not [dot for dot in dots if (abs(dot - (box.min + box.max) / 2) < (box.size / 2) - 1).all()], words
        # a point that has the panel for itself has its number
        alone = [
            i for i, one in enumerate(dots) if min([9e9, *(abs(one - two).max() for two in np.delete(dots, i, 0))]) > 60
        ]
        assert {str(10 * i) for i in alone} <= {words for words, _ in boxes}


def test_one_round_has_no_curve_and_a_narrow_figure_no_middle_round() -> None:
    one = ClientCKA(over_rounds().rounds[:1], over_rounds().attrs)
    assert len(one.figure().axes) == 2  # the map and its colours
    assert len([axes for axes in over_rounds().figure(2.0).axes if axes.images]) == 2


def test_what_has_no_value_is_hatched_and_said(tmp_path: Path) -> None:
    rounds = over_rounds().rounds
    matrix = rounds[0].cka.copy()
    matrix[1] = matrix[:, 1] = np.nan
    nan = float("nan")
    broken = RoundCKA(1, rounds[0].client_ids, matrix, rounds[0].cka_global, nan, nan, 0.9, 0.1)
    made = ClientCKA((broken, *rounds[1:]), over_rounds().attrs)
    figure = made.figure()
    assert figure.axes[0].images[0].get_array().mask.sum() == 5
    assert figure.axes[0].patch.get_hatch()
    (cross,) = [line for line in figure.axes[-1].lines if line.get_label() == "_broken"]
    assert cross.get_xdata().tolist() == [1]
    assert "not defined" in " ".join(text.get_text() for text in figure.texts)
    first = save_figure(figure, tmp_path / "a")
    made.save(tmp_path / "r.nc")
    second = save_figure(ClientCKA.load(tmp_path / "r.nc").figure(), tmp_path / "b")
    assert [a.read_bytes() for a in first] == [b.read_bytes() for b in second]


def test_figures_of_different_layers_are_refused() -> None:
    other = ClientCKA(over_rounds().rounds, {**over_rounds().attrs, "layer": "fc1"})
    with pytest.raises(
        FedscopeError, match=r"similarities of different layers \(output, fc1\) do not go into one figure"
    ):
        draw_clients([over_rounds(), other])
    with pytest.raises(FedscopeError, match="there is no similarity to draw"):
        draw_clients([])


def test_models_are_named_or_some_of_many_are() -> None:
    few = ModelCKA(("a", "b"), np.array([[1.0, 0.25], [0.25, 1.0]]), np.zeros((2, 2)), {"layer": "fc1"}).figure()
    assert [text.get_text() for text in few.axes[0].get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in few.axes[0].texts] == ["1.00", "0.25", "0.25", "1.00"]
    assert "layer fc1" in few.texts[-1].get_text()
    names = tuple(f"run@{i}/global" for i in range(80))
    many = ModelCKA(names, np.eye(80), np.zeros((80, 80)), {"layer": "fc1"}).figure()
    shown = [text.get_text() for text in many.axes[0].get_xticklabels()]
    assert shown[:1] == ["run@0/global"]
    assert 5 < len(shown) < 40


def test_the_scale_is_0_to_1_unless_values_are_outside() -> None:
    assert scale_of([np.array([[1.0, 0.4]]), np.array([[1.0, np.nan]])]) == (0.0, 1.0)
    assert scale_of([np.array([[1.08, -0.11]])]) == pytest.approx((-0.15, 1.1))
    assert scale_of([np.array([[np.nan]])]) == (0.0, 1.0)
