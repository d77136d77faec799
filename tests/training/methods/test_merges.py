"""Merges of models against loops over single numbers, by another route than the servers take."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, Layout, TensorEntry, Weights
from fedscope.training.methods.base import Cohort
from fedscope.training.methods.servers.checkpoints import Checkpoints
from fedscope.training.methods.servers.dare import DARE
from fedscope.training.methods.servers.fedgma import FedGMA
from fedscope.training.methods.servers.fednova import FedNova
from fedscope.training.methods.servers.lora import LoRA
from fedscope.training.methods.servers.model_stock import ModelStock
from fedscope.training.methods.servers.slerp import SLERP
from fedscope.training.methods.servers.task_arithmetic import TaskArithmetic
from fedscope.training.methods.servers.ties import TIES
from fedscope.training.methods.shared.checkpoint_weights import SHAPES, checkpoint_weights

LAYOUT = Layout(
    (
        TensorEntry("a.weight", (3, 4), "float64", "parameter"),
        TensorEntry("a.bias", (5,), "float64", "parameter"),
    )
)
#: where the tensors lie in the vector
TENSORS = (slice(0, 12), slice(12, 17))


def weights(values: Any) -> Weights:
    return Weights(LAYOUT, np.asarray(values, np.float64), {})


def cohort(p: Any, ids: Any = None, round: int = 1) -> Cohort:
    n = len(p)
    ids = np.arange(n) + 3 if ids is None else np.asarray(ids)
    return Cohort(round, ids, np.ones(n, np.int64), np.ones(n, np.int64), np.asarray(p, np.float64))


def drawn(seed: int, count: int, apart: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A base, models about it, and their weights."""
    rng = np.random.default_rng(seed)
    start = rng.normal(size=17)
    p = rng.integers(1, 9, count).astype(float)
    return start, start + apart * rng.normal(size=(count, 17)), p / p.sum()


def step(method: Any, start: Any, models: Any, p: Any, **known: Any) -> np.ndarray:
    served = method.step({}, weights(start), weights(models), cohort(p, **known))
    return np.asarray(served.parameters)


def angle(u: Any, v: Any) -> float:
    dot = math.fsum(a * b for a, b in zip(u, v, strict=True))
    return math.acos(dot / math.sqrt(math.fsum(a * a for a in u)) / math.sqrt(math.fsum(b * b for b in v)))


seeds = given(seed=st.integers(0, 2**16))


@settings(max_examples=25)
@seeds
def test_slerp_of_two_is_the_formula(seed: int) -> None:
    start, models, p = drawn(seed, 2, 2.0)
    expected = []
    for where in TENSORS:
        one, two = models[0, where], models[1, where]
        phi = angle(one, two)
        expected += [
            (math.sin(p[0] * phi) * a + math.sin(p[1] * phi) * b) / math.sin(phi) for a, b in zip(one, two, strict=True)
        ]
    np.testing.assert_allclose(step(SLERP(), start, models, p), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=25)
@seeds
def test_slerp_of_more_is_the_point_with_the_least_squared_angles(seed: int) -> None:
    """Its direction, found by scipy from the sum of squared angles, which the method never computes."""
    from scipy.optimize import minimize

    start, models, p = drawn(seed, 4, 0.6)
    merged = step(SLERP(), start, models, p)
    for where in TENSORS:
        units = [row[where] / np.linalg.norm(row[where]) for row in models]
        lengths = [float(np.linalg.norm(row[where])) for row in models]

        def spread(c: np.ndarray, units: Any = units) -> float:
            q = sum(a * u for a, u in zip(c, units, strict=True))
            return sum(w * angle(q, u) ** 2 for w, u in zip(p, units, strict=True))

        best = minimize(spread, p, method="BFGS", options={"gtol": 1e-10}).x
        q = sum(a * u for a, u in zip(best, units, strict=True))
        c = best / np.linalg.norm(q)
        expected = sum(a * length * u for a, length, u in zip(c, lengths, units, strict=True))
        np.testing.assert_allclose(merged[where], expected, rtol=0, atol=1e-5)


def test_slerp_keeps_the_length_that_the_mean_loses() -> None:
    one, two = np.zeros((2, 17))
    one[0], two[1] = 2, 2
    one[12:], two[12:] = 1, 1
    merged = step(SLERP(), np.zeros(17), [one, two], [0.5, 0.5])
    np.testing.assert_allclose(merged[:2], [math.sqrt(2), math.sqrt(2)], rtol=1e-12)  # the mean has 1 and 1
    np.testing.assert_allclose(merged[12:], 1, rtol=1e-12)


def test_slerp_refuses_what_has_no_direction_and_no_shortest_way() -> None:
    models = np.ones((2, 17))
    models[1, :12] = -1
    with pytest.raises(FedscopeError) as raised:
        step(SLERP(), models[0], models, [0.5, 0.5])
    assert str(raised.value) == (
        "the server slerp finds no shortest way in a.weight: the models' directions cancel each other; give other "
        "weights, or --server fma"
    )
    with pytest.raises(FedscopeError, match=r"no shortest way in a\.weight: client 3 is opposite to the mean of the"):
        step(SLERP(), models[0], models, [0.3, 0.7])
    models[1, :12], models[1, 12:] = 1, 0
    with pytest.raises(FedscopeError) as raised:
        step(SLERP(), models[0], models, [0.5, 0.5])
    assert str(raised.value) == (
        "the server slerp needs a direction of every model, and a.bias is 0 in client 4; give --server fma, or leave "
        "that model out"
    )
    models[0, 12:] = 0  # in both
    np.testing.assert_allclose(step(SLERP(), models[0], models, [0.5, 0.5]), models[0], rtol=1e-12)


@settings(max_examples=25)
@seeds
def test_task_arithmetic_is_the_loop_by_hand(seed: int) -> None:
    start, models, p = drawn(seed, 3)
    scale = -0.7
    expected = [
        w + scale * sum(q * (row[j] - w) for q, row in zip(p, models, strict=True)) for j, w in enumerate(start)
    ]
    np.testing.assert_allclose(step(TaskArithmetic(scale=scale), start, models, p), expected, rtol=1e-9, atol=1e-12)
    # the paper's sum
    equal = [1 / 3] * 3
    summed = start + 0.4 * (models - start).sum(axis=0)
    np.testing.assert_allclose(step(TaskArithmetic(scale=1.2), start, models, equal), summed, rtol=1e-9, atol=1e-12)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**16),
    over=st.sampled_from(["model", "tensor"]),
    density=st.sampled_from([0.05, 0.3, 0.5, 1.0]),
)
def test_ties_is_the_loop_by_hand(seed: int, over: Any, density: float) -> None:
    start, models, p = drawn(seed, 4)
    task = models - start
    kept = np.zeros_like(task)
    for i, row in enumerate(task):
        for where in [slice(0, 17)] if over == "model" else TENSORS:
            places = list(range(17))[where]
            count = max(1, math.floor(density * len(places) + 1e-9))
            for j in sorted(places, key=lambda j: -abs(row[j]))[:count]:
                kept[i, j] = row[j]
    expected = start.copy()
    for j in range(17):
        summed = sum(q * value for q, value in zip(p, kept[:, j], strict=True))
        like = [(q, value) for q, value in zip(p, kept[:, j], strict=True) if value * summed > 0]
        if like:
            expected[j] += 0.8 * sum(q * value for q, value in like) / sum(q for q, _ in like)
    made = step(TIES(over=over, density=density, scale=0.8), start, models, p)
    np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-12)


def test_ties_leaves_where_it_is_what_no_sign_is_elected_for_and_keeps_equals() -> None:
    start = np.zeros(17)
    models = np.zeros((2, 17))
    models[:, 0], models[:, 1] = [1, -1], [3, 3]
    np.testing.assert_array_equal(step(TIES(density=1.0), start, models, [0.5, 0.5])[:2], [0, 3])
    models = np.ones((2, 17))  # the 3rd largest is as large as all others
    np.testing.assert_array_equal(step(TIES(density=0.2), start, models, [0.5, 0.5]), 1)


def test_dare_drops_by_seed_round_and_client_and_scales_up_what_stays() -> None:
    start, models, p = drawn(5, 3)
    method = DARE(drop=0.4, scale=0.9, seed=2)
    made = step(method, start, models, p, round=7)
    expected = start.copy()
    for q, client, row in zip(p, (3, 4, 5), models, strict=True):
        for j, gone in enumerate(method.dropped(7, client, 17)):
            if not gone:
                expected[j] += 0.9 * q * (row[j] - start[j]) / 0.6
    np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-12)
    others = [
        step(DARE(drop=0.4, scale=0.9, seed=3), start, models, p, round=7),
        step(method, start, models, p, round=8),
        step(method, start, models, p, round=7, ids=[4, 5, 6]),
    ]
    assert all(not np.allclose(made, other) for other in others)


def test_dare_drops_the_share_that_is_asked_for_and_is_task_arithmetic_on_average() -> None:
    assert abs(DARE(drop=0.3).dropped(1, 1, 100_000).mean() - 0.3) < 0.01
    start, models, p = drawn(6, 3)
    seeds = [step(DARE(seed=seed), start, models, p) for seed in range(800)]
    error = np.std(seeds, axis=0) / math.sqrt(800)
    assert (np.abs(np.mean(seeds, axis=0) - step(TaskArithmetic(), start, models, p)) < 5 * error).all()


@settings(max_examples=25)
@given(seed=st.integers(0, 2**16), apart=st.sampled_from([0.05, 0.5, 5.0]))
def test_model_stock_is_the_loop_over_pairs(seed: int, apart: float) -> None:
    start, models, p = drawn(seed, 4, apart)
    models += 0.4  # so that the models agree to some degree
    expected = []
    for where in TENSORS:
        task = [row[where] - start[where] for row in models]
        pairs = [(i, k) for i in range(4) for k in range(i)]
        cosine = sum(math.cos(angle(task[i], task[k])) for i, k in pairs) / len(pairs)
        t = max(0.0, 4 * cosine / (1 + 3 * cosine)) if cosine > 0 else 0.0
        mean = models[:, where].mean(axis=0)
        expected += list(t * mean + (1 - t) * start[where])
    np.testing.assert_allclose(step(ModelStock(), start, models, p), expected, rtol=1e-7, atol=1e-9)


def test_model_stock_of_models_that_disagree_is_the_base_and_of_one_the_model() -> None:
    start = np.zeros(17)
    models = np.ones((2, 17))
    models[1] = -3
    np.testing.assert_array_equal(step(ModelStock(), start, models, [0.5, 0.5]), start)
    np.testing.assert_allclose(step(ModelStock(), start, models[1:], [1.0]), models[1])


AGES = {
    "uniform": lambda k, n: 1.0,
    "linear": lambda k, n: (n - k) / n,
    "cosine": lambda k, n: (1 + math.cos(math.pi * k / n)) / 2,
    "minus_sqrt": lambda k, n: 1 - math.sqrt(k / n),
    "ema": lambda k, n: 0.9**k,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 2, 7])
def test_weights_of_checkpoints_are_the_formulas(shape: Any, count: int) -> None:
    found = checkpoint_weights(shape, count)
    raw = [AGES[shape](k, count) for k in range(count)]  # k: how many are newer
    np.testing.assert_allclose(found[::-1], np.array(raw) / sum(raw), rtol=1e-12)
    assert (np.diff(found) >= -1e-15).all()  # an older one never counts more
    assert (found > 0).all()


def test_ema_over_all_checkpoints_is_the_running_one() -> None:
    values, running, norm = np.random.default_rng(0).normal(size=9), 0.0, 0.0
    for value in values:
        running, norm = 0.8 * running + 0.2 * value, 0.8 * norm + 0.2
    np.testing.assert_allclose(checkpoint_weights("ema", 9, 0.8) @ values, running / norm, rtol=1e-12)


def test_the_newest_checkpoints_are_those_with_the_greatest_ids_and_p_counts_too() -> None:
    _, models, _ = drawn(1, 4)
    p, ids = np.array([0.1, 0.2, 0.0, 0.7]), [9, 2, 12, 5]  # 2, 5, 9 are there; 12 weighs nothing
    served = Checkpoints(shape="linear", last=2).step({}, weights(models[0]), weights(models), cohort(p, ids))
    raw = np.array([2 * 0.1, 0, 0, 1 * 0.7])
    np.testing.assert_allclose(served.p, raw / raw.sum(), rtol=1e-12)
    np.testing.assert_allclose(served.parameters, raw / raw.sum() @ models, rtol=1e-12)


@pytest.mark.parametrize("method", [SLERP(), TaskArithmetic(), TIES(), DARE(), ModelStock(), Checkpoints()])
def test_a_model_that_is_not_finite_is_not_lost(method: Any) -> None:
    start, models, p = drawn(2, 3)
    models[1, 4] = np.nan
    assert np.isnan(step(method, start, models, p)[4]) or isinstance(method, DARE)
    models[1] = np.nan
    assert np.isnan(step(method, start, models, p)).all()


@pytest.mark.parametrize("method", [SLERP(), TaskArithmetic(), TIES(), DARE(), Checkpoints(), FedGMA(), FedNova()])
def test_a_client_of_weight_0_has_no_part_even_where_it_diverged(method: Any) -> None:
    start, models, _ = drawn(2, 3)
    p, reach = np.array([0.25, 0.0, 0.75]), np.array([2.0, 0.0, 3.0])

    def made(rows: list[int]) -> np.ndarray:
        known = replace(cohort(p[rows], [3 + k for k in rows]), reach=reach[rows])
        return np.asarray(method.step({}, weights(start), weights(models[rows]), known).parameters)

    alone = made([0, 2])
    np.testing.assert_array_equal(made([0, 1, 2]), alone)
    models[1] = np.nan
    np.testing.assert_array_equal(made([0, 1, 2]), alone)


@pytest.mark.parametrize("mean", ["products", "frozen_a"])
def test_a_client_of_weight_0_has_no_part_in_the_mean_of_products(mean: Any) -> None:
    layout = Layout(
        (
            TensorEntry("a.lora_A.weight", (2, 5), "float64", "parameter"),
            TensorEntry("a.lora_B.weight", (3, 2), "float64", "parameter"),
        )
    )
    models, p = np.random.default_rng(3).normal(size=(4, 16)), np.array([0.25, 0.0, 0.75])
    start = Weights(layout, models[3], {})

    def made(rows: list[int]) -> Any:
        return LoRA(mean=mean).step({}, start, Weights(layout, models[rows], {}), cohort(p[rows])).parameters

    alone = made([0, 2])
    models[1] = np.nan
    np.testing.assert_allclose(made([0, 1, 2]), alone, rtol=1e-9)


# --- against mergekit, where it is installed: `pip install mergekit==0.1.5` ---


@pytest.mark.slow
def test_slerp_of_two_is_that_of_mergekit() -> None:
    theirs = pytest.importorskip("mergekit.merge_methods.slerp").slerp
    start, models, p = drawn(3, 2, 2.0)
    merged = step(SLERP(), start, models, p)
    for where in TENSORS:
        one, two = (torch.from_numpy(row[where].copy())[None] for row in models)
        expected = theirs(torch.tensor([p[1]]), one, two)[0].numpy()
        np.testing.assert_allclose(merged[where], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("density", [0.3, 1.0])
def test_ties_by_tensor_is_that_of_mergekit(density: float) -> None:
    sparsify = pytest.importorskip("mergekit.sparsify")
    get_mask = pytest.importorskip("mergekit.merge_methods.generalized_task_arithmetic").get_mask
    start, models, p = drawn(4, 4)
    merged = step(TIES(over="tensor", density=density), start, models, p)
    for where in TENSORS:
        task = [torch.from_numpy(row[where] - start[where]) for row in models]
        method = sparsify.SparsificationMethod.magnitude
        kept = torch.stack([sparsify.sparsify(one, density=density, method=method) for one in task])
        weight = torch.from_numpy(p)[:, None]
        mask = get_mask(weight * kept, method="sum", mask_dtype=torch.float64)
        divisor = (weight * mask).sum(dim=0)
        divisor[divisor.abs() < 1e-8] = 1
        expected = start[where] + ((weight * kept * mask).sum(dim=0) / divisor).numpy()
        np.testing.assert_allclose(merged[where], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_model_stock_is_that_of_mergekit() -> None:
    theirs = pytest.importorskip("mergekit.merge_methods.model_stock").model_stock_merge_method.implementation
    start, models, p = drawn(5, 4)
    models += 0.4
    merged = step(ModelStock(), start, models, p)
    for where in TENSORS:
        base, *others = (SimpleNamespace(tensor=torch.from_numpy(row[where].copy())) for row in (start, *models))
        expected = theirs(SimpleNamespace(base=base, non_base=others)).numpy()
        np.testing.assert_allclose(merged[where], expected, rtol=1e-6, atol=1e-6)
