"""Adapters by what they do: their products' geometry, the errors of their means, and their base."""

from __future__ import annotations

import copy
import csv
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout, Run, TensorEntry, Weights
from fedscope.checkpoints.models.layers import layers_of
from fedscope.checkpoints.models.low_rank import best_of_rank, norm, singular_values
from fedscope.checkpoints.models.products import adapters_of
from fedscope.cli.main import run as command
from fedscope.decomposition.adapters.inner_products import differences, inner_products
from fedscope.decomposition.adapters.means import LayerMeans, effective_rank
from fedscope.decomposition.adapters.result import AdapterMeans
from fedscope.training.methods.base import Cohort
from fedscope.training.settings.registry import find

pytestmark = pytest.mark.filterwarnings("ignore:.*factors of a product.*")
RANK, OUT, IN = 2, 6, 9
#: of numbers that are told from factors in float32: those round to 6e-8
ROUNDED = 1e-6
State = dict[str, np.ndarray]


def draw(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def adapter(seed: int, size: float = 1.0) -> State:
    """Two adapted layers, and a head that is trained whole."""
    values = draw(seed)
    made = {}
    for layer, out in (("q", OUT), ("v", OUT - 2)):
        made[f"{layer}.lora_A.weight"] = values.normal(size=(RANK, IN)) * size
        made[f"{layer}.lora_B.weight"] = values.normal(size=(out, RANK)) * size
    made["head.weight"] = values.normal(size=(3, 2)) * size
    return {name: value.astype(np.float32) for name, value in made.items()}


def turned(state: State, seed: int) -> State:
    """The same products from other factors, B G⁻¹ and G A."""
    made = dict(state)
    for k, layer in enumerate(("q", "v")):
        orthogonal = np.linalg.qr(draw(seed + k).normal(size=(RANK, RANK)))[0]
        g = orthogonal @ np.diag([2.0, 0.5])
        made[f"{layer}.lora_A.weight"] = (g @ state[f"{layer}.lora_A.weight"]).astype(np.float32)
        made[f"{layer}.lora_B.weight"] = (state[f"{layer}.lora_B.weight"] @ np.linalg.inv(g)).astype(np.float32)
    return made


def dense(state: State, scale: float = 4.0) -> State:
    """What the adapters add, in float64."""
    made = {
        layer: scale * state[f"{layer}.lora_B.weight"].astype(float) @ state[f"{layer}.lora_A.weight"].astype(float)
        for layer in ("q", "v")
    }
    return {**made, "head": state["head.weight"].astype(float)}


def flat(state: State) -> np.ndarray:
    return np.concatenate([value.ravel() for value in dense(state).values()])


def record(
    path: Path,
    rounds: Sequence[tuple[State, Sequence[State], State | None]],
    samples: Sequence[int] | None = None,
    **how: Any,
) -> Run:
    with fedscope.Recorder(path, **{"lora_alpha": 8, **how}) as recorder:
        for start, clients, end in rounds:
            n = None if samples is None else dict(enumerate(samples))
            recorder.round(start=start, clients=list(clients), global_=end, samples=n)
    return Run.open(path)


def mean_of(states: Sequence[State], p: Sequence[float]) -> State:
    return {
        name: sum(weight * state[name].astype(float) for weight, state in zip(p, states, strict=True)).astype(
            np.float32
        )
        for name in states[0]
    }


# --- inner products ---


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 5),
    out=st.integers(1, 7),
    inside=st.integers(1, 7),
    rank=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_inner_products_are_those_of_the_dense_differences(n: int, out: int, inside: int, rank: int, seed: int) -> None:
    values = draw(seed)
    a, b = values.normal(size=(n, rank, inside)), values.normal(size=(n, out, rank))
    a0, b0 = values.normal(size=(rank, inside)), values.normal(size=(out, rank))
    whole = (b @ a - b0 @ a0).reshape(n, -1)
    want = whole @ whole.T
    for numbers in (1, 2**20):  # a model at a time, and all
        found = inner_products(*differences(a, b, a0, b0), numbers=numbers)
        assert np.abs(found - want).max() <= 1e-12 * max(1.0, np.abs(want).max())
        assert np.array_equal(found, found.T)


def test_a_small_step_keeps_its_digits() -> None:
    values = draw(0)
    a0, b0 = values.normal(size=(RANK, IN)), values.normal(size=(OUT, RANK))
    step = 1e-9 * values.normal(size=(1, RANK, IN))
    found = inner_products(*differences(a0 + step, b0[None], a0, b0))
    want = np.linalg.norm(b0 @ ((a0 + step) - a0)[0]) ** 2
    # products of the whole models would have 1e-16 of their own length, and none of these digits
    assert abs(found[0, 0] - want) <= 1e-6 * want


# --- updates and maps ---


def numbers_of(answer: Any) -> np.ndarray:
    """All numbers that an answer prints."""
    said: list[float] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            [walk(one) for one in value.values()]
        elif isinstance(value, list | tuple):
            [walk(one) for one in value]
        elif isinstance(value, float):
            said.append(value)

    walk(answer.findings())
    return np.array(said)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """A run of adapters, and the same with other factors of the same products."""
    folder = tmp_path_factory.mktemp("adapters")
    start, clients = adapter(0), [adapter(k) for k in (1, 2, 3, 4)]
    one = record(folder / "one" / "run", [(start, clients, adapter(5))], samples=[1, 2, 3, 4])
    other = [turned(client, 10 * k) for k, client in enumerate(clients, start=1)]
    return one, record(folder / "other" / "run", [(turned(start, 7), other, turned(adapter(5), 9))], [1, 2, 3, 4])


@pytest.mark.parametrize(
    "question",
    [
        lambda run: fedscope.updates(run),
        lambda run: fedscope.updates(run, layers="each"),
        lambda run: fedscope.embed(run, "pca"),
    ],
    ids=["updates", "by layer", "map"],
)
def test_numbers_do_not_depend_on_the_choice_of_factors(pair: tuple[Run, Run], question: Callable[[Run], Any]) -> None:
    found, other = (numbers_of(question(run)) for run in pair)
    assert len(found)
    assert np.allclose(found, other, rtol=ROUNDED, atol=ROUNDED, equal_nan=True)


def test_updates_are_those_of_dense_products_by_layer_too(pair: tuple[Run, Run]) -> None:
    run = pair[0]
    moved = np.array([flat(adapter(k)) - flat(adapter(0)) for k in (1, 2, 3, 4)])
    p = np.array([0.1, 0.2, 0.3, 0.4])
    lengths = np.linalg.norm(moved, axis=1)
    answer = fedscope.updates(run)
    (found,) = next(iter(answer)).rounds
    assert np.allclose(found.norm, lengths, rtol=ROUNDED)
    assert np.allclose(found.cosine, moved @ moved.T / np.outer(lengths, lengths), atol=ROUNDED)
    assert found.norm_of_mean == pytest.approx(np.linalg.norm(p @ moved), rel=ROUNDED)
    assert "updates are those of the products B·A" in answer.summary()
    cells = {cell.layer: cell for cell in fedscope.updates(run, layers="each").cells}
    assert list(cells) == ["q", "v", "head", "all layers"]
    of_q = np.array([(dense(adapter(k))["q"] - dense(adapter(0))["q"]).ravel() for k in (1, 2, 3, 4)])
    assert cells["q"].norm_of_mean == pytest.approx(np.linalg.norm(p @ of_q), rel=ROUNDED)
    assert cells["all layers"].cosine_mean == found.cosine_mean
    squares = sum(cells[name].norm_of_mean ** 2 for name in ("q", "v", "head"))  # type: ignore[operator]
    assert squares == pytest.approx(found.norm_of_mean**2, rel=1e-12)


def test_a_map_has_the_distances_of_dense_products(pair: tuple[Run, Run]) -> None:
    from fedscope.decomposition.embedding.adapter_gram import adapter_gram
    from fedscope.decomposition.embedding.gram import distances

    for run in pair:
        found = adapter_gram([(run, 1)])
        states = [adapter(k) for k in (1, 2, 3, 4, 5)]
        want = np.array([[np.linalg.norm(flat(a) - flat(b)) for b in states] for a in states])
        assert [point.which for point in found.points] == ["client-0", "client-1", "client-2", "client-3", "global"]
        assert np.allclose(distances(found), want, rtol=ROUNDED, atol=ROUNDED)
        part = adapter_gram([(run, 1)], layers=["v.lora_A.weight"])
        of_v = np.array([[np.linalg.norm(dense(a)["v"] - dense(b)["v"]) for b in states] for a in states])
        assert np.allclose(distances(part), of_v, rtol=ROUNDED, atol=ROUNDED)
        assert part.layers == ("v.lora_A.weight", "v.lora_B.weight")
    assert "between the products B·A" in fedscope.embed(pair[0], "pca").summary()


def test_runs_of_other_scales_lie_on_one_map_each_with_its_own(tmp_path: Path) -> None:
    from fedscope.decomposition.embedding.adapter_gram import adapter_gram
    from fedscope.decomposition.embedding.gram import distances

    states = [adapter(1), adapter(2)]
    one = record(tmp_path / "one", [(adapter(0), states, None)])
    half = record(tmp_path / "half", [(adapter(0), states, None)], lora_alpha=4)
    found = distances(adapter_gram([(one, 1), (half, 1)]))
    apart = np.concatenate(
        [(dense(adapter(1), 4.0)[name] - dense(adapter(1), 2.0)[name]).ravel() for name in ("q", "v")]
    )
    assert found[0, 2] == pytest.approx(np.linalg.norm(apart), rel=ROUNDED)


def test_clients_that_did_not_move_or_diverged_are_told(tmp_path: Path) -> None:
    broken = {**adapter(2), "q.lora_A.weight": np.full((RANK, IN), np.nan, np.float32)}
    run = record(tmp_path / "run", [(adapter(0), [adapter(0), adapter(1), broken], None)])
    (found,) = next(iter(fedscope.updates(run))).rounds
    assert found.unmoved == [0]
    assert found.diverged == [2]
    assert np.isnan(found.norm_of_mean)
    whole = fedscope.adapters(run).cells[-1]
    assert np.isnan(whole.norm)
    assert np.isnan(whole.factors)
    with pytest.raises(FedscopeError, match=r"@1/client-2 has parameters that are not finite"):
        fedscope.embed(run, "pca")


# --- layers and scales ---


def test_both_factors_are_one_layer_and_a_linear_layer_beside_them_another() -> None:
    names = {"q.lora_A.weight": (2, 4), "q.lora_B.weight": (3, 2), "q.base_layer.weight": (3, 4), "lora_A": (2, 4)}
    layout = Layout(tuple(TensorEntry(name, shape, "float32", "parameter") for name, shape in names.items()))
    found = layers_of(layout)
    assert [(one.name, one.kind) for one in found] == [
        ("q", "adapter"),
        ("q.base_layer", "linear"),
        ("lora", "adapter"),
    ]
    assert found[0].shapes == {"lora_A": (2, 4), "lora_B": (3, 2)}
    assert found[0].size == 14


def layout_of(*names: str, rank: int = 4) -> Layout:
    shapes = {"A": (rank, 8), "B": (6, rank), "down": (rank, 8, 3, 3), "up": (6, rank, 1, 1), "magnitude": (6,)}
    shapes |= {"mid": (rank, rank, 3, 3), "scale": (6, 1)}
    kinds = [next(kind for kind in shapes if f"_{kind}" in name) for name in names]
    entries = (TensorEntry(name, shapes[kind], "float32", "parameter") for name, kind in zip(names, kinds, strict=True))
    return Layout(tuple(entries))


@pytest.mark.parametrize(
    ("settings_", "scale", "known"),
    [
        ({"lora_alpha": 8}, 2.0, True),
        ({"lora_alpha": 8, "use_rslora": True}, 4.0, True),
        ({"lora_alpha": 8, "alpha_pattern": {"q": 16}}, 4.0, True),
        ({"lora_alpha": 8, "alpha_pattern": {"layers.0.q": 16}}, 4.0, True),
        ({"lora_alpha": 8, "alpha_pattern": {"0.v": 16}}, 2.0, True),
        ({"lora_alpha": 8, "alpha_pattern": {"^layers.0.q": 16}}, 4.0, True),
        ({"lora_alpha": 8, "alpha_pattern": {"^0.q": 16}}, 2.0, True),
        ({"lora_alpha": 8, "alpha_pattern": {r"layers\.\d+\.(q|k)": 16}}, 4.0, True),
        ({"alpha": {"layers.0.q": 6}}, 1.5, True),
        ({"alpha": {"layers.0.v": 6}}, 1.0, False),
        ({}, 1.0, False),
    ],
)
def test_the_scale_is_alpha_over_rank(settings_: dict[str, Any], scale: float, known: bool) -> None:
    found = adapters_of(layout_of("layers.0.q.lora_A.weight", "layers.0.q.lora_B.weight"), settings_)
    assert found is not None
    assert [(one.name, one.rank, one.scale) for one in found.products] == [("layers.0.q", 4, scale)]
    assert found.is_scaled == known


def test_convolutions_multiply_and_other_kinds_of_factors_do_not() -> None:
    found = adapters_of(layout_of("conv.lora_down.weight", "conv.lora_up.weight"), {})
    assert found is not None
    a, b = draw(0).normal(size=(2, 4 * 8 * 9)), draw(1).normal(size=(2, 24))
    shaped_a, shaped_b = found.products[0].factors(a, b)
    convolved = torch.einsum("or,rihw->oihw", torch.tensor(b[1]).view(6, 4), torch.tensor(a[1]).view(4, 8, 3, 3))
    assert np.allclose((shaped_b @ shaped_a)[1], convolved.reshape(6, -1).numpy())
    for names in (
        ("q.lora_A.weight",),
        ("q.lora_A.weight", "q.lora_B.weight", "q.lora_magnitude_vector"),
        # the core that a convolution of kohya's has between both, and the magnitudes of its DoRA
        ("q.lora_down.weight", "q.lora_up.weight", "q.lora_mid.weight"),
        ("q.lora_down.weight", "q.lora_up.weight", "q.dora_scale"),
    ):
        assert adapters_of(layout_of(*names), {}) is None


# --- means ---


def test_the_best_of_a_rank_is_that_of_the_dense_svd() -> None:
    values = draw(3)
    left, right = values.normal(size=(OUT, 7)), values.normal(size=(7, IN))
    whole = left @ right
    u, s, v = np.linalg.svd(whole, full_matrices=False)
    for rank in (1, 3, 6):
        b, a = best_of_rank(left, right, rank)
        assert b.shape == (OUT, rank)
        assert np.allclose(b @ a, (u[:, :rank] * s[:rank]) @ v[:rank])
        assert np.allclose(np.linalg.norm(b, axis=0), np.linalg.norm(a, axis=1))
    assert np.allclose(singular_values(left, right)[: len(s)], s)
    assert norm(left, right) == pytest.approx(np.linalg.norm(whole))
    thin = best_of_rank(left[:, :1], right[:1], 3)  # of a lower rank than asked for
    assert np.allclose(thin[0] @ thin[1], left[:, :1] @ right[:1])
    assert effective_rank(np.array([3.0, 1.0])) == pytest.approx(np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25)))


def test_errors_of_means_are_those_of_dense_matrices(tmp_path: Path) -> None:
    p = [0.1, 0.2, 0.7]
    clients = [adapter(k) for k in (1, 2, 3)]
    made = mean_of(clients, p)
    run = record(tmp_path / "run", [(adapter(0), clients, made)], samples=[1, 2, 7])
    found = {cell.layer: cell for cell in fedscope.adapters(run).cells}
    assert list(found) == ["q", "v", "all layers"]
    start, squares = dense(adapter(0)), np.zeros(4)
    for layer in ("q", "v"):
        mean = sum(weight * dense(client)[layer] for weight, client in zip(p, clients, strict=True))
        u, s, v = np.linalg.svd(mean)
        kept = (u[:, :RANK] * s[:RANK]) @ v[:RANK]
        frozen = 4 * made[f"{layer}.lora_B.weight"].astype(float) @ adapter(0)[f"{layer}.lora_A.weight"].astype(float)
        off = [np.linalg.norm(one - mean) for one in (dense(made)[layer], kept, frozen)]
        cell = found[layer]
        assert cell.norm == pytest.approx(np.linalg.norm(mean), rel=ROUNDED)
        assert [cell.factors, cell.products, cell.frozen_a] == pytest.approx(off / np.linalg.norm(mean), rel=1e-5)
        assert cell.moved == pytest.approx(np.linalg.norm(mean - start[layer]), rel=ROUNDED)
        assert cell.factors_of_moved == pytest.approx(off[0] / np.linalg.norm(mean - start[layer]), rel=1e-5)
        assert cell.effective_rank == pytest.approx(effective_rank(s), rel=1e-5)
        assert cell.recorded_is == "factors"
        assert cell.recorded == pytest.approx(cell.factors, rel=1e-5)
        squares += np.array([np.linalg.norm(mean), *off]) ** 2
    whole = found["all layers"]
    assert whole.norm == pytest.approx(np.sqrt(squares[0]), rel=ROUNDED)
    assert whole.factors == pytest.approx(np.sqrt(squares[1] / squares[0]), rel=1e-5)
    assert whole.rank is None


def cell(layer: str, rank: int | None, factors: float, factors_of_moved: float | None) -> LayerMeans:
    return LayerMeans(4, layer, rank, 2.0, 1.0, factors, 0.01, None, None, "", factors_of_moved, None)


def test_a_layers_error_stands_beside_its_own_change_and_all_ranks_are_told() -> None:
    cells = cell("1", 2, 0.01, 0.05), cell("3", 8, 0.0488, 0.1469), cell("all layers", None, 0.02, 0.0342)
    assert AdapterMeans(cells, {"run": {"path": "runs/lora"}}).summary() == (
        "lora, round 4: off the mean of products B·A are the mean of factors 2 %, the mean of products 1 % (products "
        "at the adapter's ranks, 2 to 8); the mean of factors is off by 3.42 % of what the round has changed; it is "
        "off most in 3, 4.88 % (14.7 % of what it has changed there)"
    )
    alike = AdapterMeans((cells[0], replace(cells[1], rank=2, factors_of_moved=None), cells[2])).summary()
    assert "(products at the adapter's rank 2);" in alike
    assert alike.endswith("off most in 3, 4.88 %")
    alone = AdapterMeans((cells[1], replace(cells[2], factors_of_moved=float("nan")))).summary()
    assert alone.endswith("(products at the adapter's rank 8)")


def test_the_sentence_has_the_layers_own_share_of_a_recorded_run(tmp_path: Path) -> None:
    """Against dense matrices: the layer that is off most, and how much that is of what it has moved."""
    clients = [adapter(k) for k in (1, 2, 3)]
    found = fedscope.adapters(record(tmp_path / "run", [(adapter(0), clients, None)]))
    mean = {name: sum(dense(client)[name] for client in clients) / 3 for name in "qv"}
    made, start = dense(mean_of(clients, [1 / 3] * 3)), dense(adapter(0))
    off = {name: np.linalg.norm(made[name] - mean[name]) for name in "qv"}
    most = max("qv", key=lambda name: off[name] / np.linalg.norm(mean[name]))
    share = 100 * off[most] / np.linalg.norm(mean[most] - start[most])
    assert f"it is off most in {most}, " in found.summary()
    assert f"({share:.3g} % of what it has changed there)" in found.summary()


def test_the_mean_that_a_server_has_made_is_named(tmp_path: Path) -> None:
    clients = [adapter(k) for k in (1, 2)]
    layout = Layout(tuple(TensorEntry(name, value.shape, "float32", "parameter") for name, value in clients[0].items()))

    def weights(states: Sequence[State]) -> np.ndarray:
        return np.stack([np.concatenate([value.ravel() for value in state.values()]) for state in states])

    p = np.array([0.5, 0.5])
    cohort = Cohort(1, np.arange(2), np.ones(2), np.ones(2), p)
    start = Weights(layout, weights([adapter(0)])[0], {})
    made = {}
    for mean in ("products", "frozen_a"):
        server = find("servers", "lora")(mean=mean)
        row = server.step({}, start, Weights(layout, weights(clients), {}), cohort).parameters
        made[mean] = Weights(layout, row, {}).arrays()
    assert np.array_equal(made["frozen_a"]["q.lora_A.weight"], adapter(0)["q.lora_A.weight"])
    assert np.array_equal(made["products"]["head.weight"], mean_of(clients, p)["head.weight"])
    named = {**made, "factors": mean_of(clients, p), "other": adapter(9)}
    for is_, end in named.items():
        run = record(tmp_path / is_, [(adapter(0), clients, end)])
        assert {cell.recorded_is for cell in fedscope.adapters(run).cells} == {is_}
        said = {"products": "is the mean of products", "frozen_a": "is the mean of B with A kept"}
        assert said.get(is_, "is none of these" if is_ == "other" else "of factors") in fedscope.adapters(run).summary()
    again = fedscope.adapters(record(tmp_path / "none", [(adapter(0), clients, None)])).cells[-1]
    assert (again.recorded, again.recorded_is) == (None, "")
    none = fedscope.adapters(record(tmp_path / "no start", [(None, clients, None)]))  # type: ignore[list-item]
    assert (none.cells[-1].moved, none.cells[-1].frozen_a) == (None, None)


def test_adapters_with_one_factor_in_common_have_one_mean(tmp_path: Path) -> None:
    clients = [
        {**adapter(k), **{f"{layer}.lora_A.weight": adapter(0)[f"{layer}.lora_A.weight"] for layer in "qv"}}
        for k in (1, 2, 3)
    ]
    whole = fedscope.adapters(record(tmp_path / "run", [(adapter(0), clients, None)])).cells[-1]
    assert max(whole.factors, whole.products, whole.frozen_a) < ROUNDED  # type: ignore[type-var]


def test_the_server_of_adapters_refuses_factors_that_are_no_pairs() -> None:
    layout = layout_of("q.lora_A.weight", "q.lora_B.weight", "q.lora_magnitude_vector")
    rows = Weights(layout, np.ones((2, layout.size), np.float32), {})
    with pytest.raises(
        FedscopeError, match=r"lora averages pairs of factors A and B, and the model has lora_A, lora_B,"
    ):
        find("servers", "lora")().step(
            {}, rows.row(0), rows, Cohort(1, np.arange(2), np.ones(2), np.ones(2), np.ones(2) / 2)
        )


def test_of_means_that_are_the_same_the_first_is_named(tmp_path: Path) -> None:
    clients = [
        {**adapter(k), **{f"{layer}.lora_A.weight": adapter(0)[f"{layer}.lora_A.weight"] for layer in "qv"}}
        for k in (1, 2, 3)
    ]
    found = fedscope.adapters(record(tmp_path / "run", [(adapter(0), clients, mean_of(clients, [1 / 3] * 3))]))
    assert {cell.recorded_is for cell in found.cells} == {"factors"}
    first, second = found.summary().splitlines()
    assert "are the mean of factors 0 %, the mean of products 0 %, the mean of B with A kept 0 % (" in first
    assert "most" not in first, "no layer is off, but for rounding"
    assert second.startswith("the recorded global is the mean of factors, ")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_mean_in_half_precision_is_told_as_that(tmp_path: Path, dtype: str) -> None:
    def half(state: State) -> dict[str, Tensor]:
        return {name: torch.tensor(value).to(getattr(torch, dtype)) for name, value in state.items()}

    sent, clients = half(adapter(0)), [half(adapter(k, 0.5)) for k in (1, 2, 3)]
    mean = {name: (sum(one[name].double() for one in clients) / 3).to(value.dtype) for name, value in sent.items()}
    for is_, end in (("factors", mean), ("other", half(adapter(9)))):
        with fedscope.Recorder(tmp_path / is_, lora_alpha=8) as recorder:
            recorder.round(start=sent, clients=clients, global_=end)
        assert {cell.recorded_is for cell in fedscope.adapters(tmp_path / is_).cells} == {is_}


@pytest.mark.filterwarnings("ignore:.*has diverged")
def test_a_client_that_diverged_is_named_and_one_of_weight_0_has_no_part(tmp_path: Path) -> None:
    broken = {**adapter(3), "q.lora_A.weight": np.full((RANK, IN), np.inf, np.float32)}
    clients = [adapter(1), broken, adapter(2)]
    for question in (fedscope.adapters, fedscope.updates):
        run = record(tmp_path / question.__name__, [(adapter(0), clients, None)])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            said = question(run).summary()
        assert "client 1" in said
    assert fedscope.adapters(tmp_path / "adapters").summary() == (
        "adapters, round 1: client 1 diverged, so no mean exists; give other --rounds"
    )
    several = record(
        tmp_path / "several", [(adapter(0), [*clients, copy.deepcopy(broken)], None)], samples=[1, 0, 3, 2]
    )
    assert ": client 3 diverged, so no mean exists" in fedscope.adapters(several).summary(), "not client 1"
    without = record(tmp_path / "without", [(adapter(0), clients, None)], samples=[1, 0, 3])
    two = record(tmp_path / "two", [(adapter(0), [adapter(1), adapter(2)], None)], samples=[1, 3])
    assert fedscope.adapters(without).cells == fedscope.adapters(two).cells
    from fedscope.decomposition.adapters.analysis import required_adapters
    from fedscope.decomposition.adapters.cost import mean_models

    means = [mean_models(run.round(1), required_adapters(run)) for run in (without, two)]
    assert list(means[0]) == list(means[1])
    for name, one in means[0].items():
        assert np.isfinite(one.parameters).all()
        assert np.allclose(one.parameters, means[1][name].parameters, rtol=1e-6, atol=1e-7)


def test_several_adapters_of_one_layer_are_told_apart(tmp_path: Path) -> None:
    def both(seed: int) -> State:
        one, other = adapter(seed), adapter(seed + 50)
        return {
            name.replace(".weight", f".{word}.weight"): value
            for word, state in (("default", one), ("other", other))
            for name, value in state.items()
            if "lora" in name
        }

    clients = [both(1), both(2)]
    found = fedscope.adapters(record(tmp_path / "both", [(both(0), clients, None)]))
    names = [f"{layer}.lora_A.{word}" for word in ("default", "other") for layer in ("q", "v")]
    assert list(found.layers) == [*names, "all layers"]
    for seed, name in ((0, "q.lora_A.default"), (50, "q.lora_A.other")):
        alone = record(tmp_path / name, [(adapter(seed), [adapter(seed + 1), adapter(seed + 2)], None)])
        want = fedscope.adapters(alone).cells[0]
        cell = next(one for one in found.cells if one.layer == name)
        assert (cell.norm, cell.factors) == (want.norm, want.factors)


# --- what is said ---


def test_a_scale_that_nobody_gave_is_said_once_and_one_of_other_models_is_refused(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [(adapter(0), [adapter(1), adapter(2)], None)], lora_alpha=None)
    assert "adapters" not in run.info
    for question in (fedscope.updates, fedscope.adapters):
        with pytest.warns(FedscopeWarning, match=r"the scale alpha / rank of its adapters was not recorded") as caught:
            question(run)
        assert sum("was not recorded" in str(one.message) for one in caught) == 1
    with pytest.raises(FedscopeError, match=r"^lora_alpha = 8 was given, but the models hold no factors of adapters"):
        record(tmp_path / "plain", [({"w": np.ones(2, np.float32)}, [{"w": np.ones(2, np.float32)}], None)])
    for bad in (0, -1.0, True, "8"):
        with pytest.raises(FedscopeError, match=r"^lora_alpha = .* is no number above 0; give the alpha"):
            fedscope.Recorder(tmp_path / "bad", lora_alpha=bad)


def test_an_import_keeps_the_scale_of_the_files_or_takes_the_given_one(tmp_path: Path) -> None:
    def put(folder: str, k: int, **config: Any) -> Path:
        (tmp_path / folder).mkdir()
        save_file(
            {name: torch.tensor(value) for name, value in adapter(k).items()}, tmp_path / folder / "a.safetensors"
        )
        if config:
            (tmp_path / folder / "adapter_config.json").write_text(json.dumps({"r": RANK, **config}))
        return tmp_path / folder / "a.safetensors"

    files = [put("0", 0, lora_alpha=6), put("1", 1, lora_alpha=6)]
    run = fedscope.import_models(files, tmp_path / "run")
    assert run.info["adapters"] == {"r": RANK, "lora_alpha": 6}
    with pytest.raises(
        FedscopeError, match=r"lora_alpha = 8 was given, but .*a\.safetensors says alpha 6; leave it out"
    ):
        fedscope.import_models(files, tmp_path / "other", lora_alpha=8)
    bare = [put("2", 0), put("3", 1)]
    assert command(["import", *map(str, bare), "--lora-alpha", "6", "--out", str(tmp_path / "bare")]) == 0
    assert Run.open(tmp_path / "bare").info["adapters"] == {"lora_alpha": 6}
    means = [fedscope.adapters(tmp_path / name).cells[-1] for name in ("run", "bare")]
    assert means[0] == means[1]
    first = dense(adapter(0), 3.0)["q"] + dense(adapter(1), 3.0)["q"]
    assert fedscope.adapters(run).cells[0].norm == pytest.approx(np.linalg.norm(first) / 2, rel=ROUNDED)


def test_other_models_and_other_kinds_of_adapters_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {"w": np.ones(2, np.float32)}
    record(tmp_path / "plain", [(plain, [plain, plain], None)], lora_alpha=None)
    assert command(["adapters", str(tmp_path / "plain")]) == 2
    assert "plain are no LoRA adapters: no parameter is called lora_A, lora_B or alike;" in capsys.readouterr().err
    dora = {**adapter(0), "q.lora_magnitude_vector.weight": np.ones(OUT, np.float32)}
    record(tmp_path / "dora", [(dora, [dora, dora], None)])
    assert command(["adapters", str(tmp_path / "dora")]) == 2
    said = capsys.readouterr().err
    assert "are not only pairs of factors A and B (lora_A, lora_B, lora_magnitude" in said
    assert "q.lora_magnitude_vector.weight is in no pair, so there is no mean of products; merge them" in said
    # of these the factors are compared, and that is said
    with pytest.warns(FedscopeWarning, match=r"factors of a product"):
        fedscope.updates(tmp_path / "dora")


# --- the base, and what a mean costs ---


class Low(nn.Module):
    """A linear layer with an adapter, as a loop of one's own has it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.lora_A, self.lora_B = nn.Linear(base.in_features, RANK, False), nn.Linear(RANK, base.out_features, False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.base(x) + 4.0 * self.lora_B(self.lora_A(x))
        return made


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(Low(nn.Linear(IN, OUT)), nn.ReLU(), Low(nn.Linear(OUT, 3)))


def whole_of(base: State, state: State) -> nn.Module:
    """The network with the adapters merged into its base."""
    made = nn.Sequential(nn.Linear(IN, OUT), nn.ReLU(), nn.Linear(OUT, 3))
    merged = {
        name: value
        + (4.0 * state[f"{name[0]}.lora_B.weight"] @ state[f"{name[0]}.lora_A.weight"] if "weight" in name else 0)
        for name, value in base.items()
    }
    made.load_state_dict({name: torch.tensor(value) for name, value in merged.items()})
    return made


X, Y = torch.randn(60, IN, generator=torch.Generator().manual_seed(1)), torch.arange(60) % 3


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, State, list[State]]:
    """A run of adapters of a network, its base, and the clients."""
    folder = tmp_path_factory.mktemp("federation")
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(IN, OUT), nn.ReLU(), nn.Linear(OUT, 3))
    torch.save(plain.state_dict(), folder / "base.pt")
    base = {name: value.numpy() for name, value in plain.state_dict().items()}
    shapes = {name: value.shape for name, value in network().state_dict().items() if "lora" in name}
    clients = [
        {name: (0.3 * draw(k).normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
        for k in range(3)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = record(folder / "run", [(clients[0], clients, mean_of(clients, [1 / 3] * 3))])
    return run, folder / "base.pt", base, clients


def test_models_beside_a_base_are_the_merged_ones(federation: tuple[Run, Path, State, list[State]]) -> None:
    run, base_file, base, clients = federation
    how: dict[str, Any] = {"model": network(), "data": (X, Y), "split": "test"}
    line = fedscope.line(
        [f"{run.path}@1/client-0", f"{run.path}@1/client-1"], base=base_file, points=3, range=(0, 1), **how
    )
    want = [float(nn.functional.cross_entropy(whole_of(base, clients[k])(X), Y).detach()) for k in (1, 0)]
    assert np.allclose(np.ravel(line.loss)[[0, -1]], want, rtol=1e-6)
    assert line.attrs["base"]["path"] == str(base_file)
    assert len(line.attrs["base"]["sha256"]) == 64
    for question in (fedscope.subsets, fedscope.decompose):
        more = {"draws": "none"} if question is fedscope.decompose else {}
        assert question(run, base=base_file, **how, **more).findings()
    # a file of adapters alone, whose names say what they are
    files = [{name: torch.tensor(value) for name, value in client.items()} for client in clients]
    assert np.allclose(
        np.ravel(fedscope.line([files[0], files[1]], base=base_file, points=3, range=(0, 1), **how).loss)[[0, -1]],
        want,
        rtol=1e-6,
    )


def test_the_cost_of_averaging_factors_is_that_of_merged_models(
    federation: tuple[Run, Path, State, list[State]],
) -> None:
    run, base_file, base, clients = federation
    answer = fedscope.adapters(run, model=network(), data=(X, Y), base=base_file)
    whole = answer.cells[-1]
    p = [1 / 3] * 3
    losses = []
    of_factors = mean_of(clients, p)
    kept = dict(of_factors)
    for layer in ("0", "2"):
        mean = sum(
            client[f"{layer}.lora_B.weight"].astype(float) @ client[f"{layer}.lora_A.weight"] for client in clients
        )
        u, s, v = np.linalg.svd(mean / 3, full_matrices=False)
        kept[f"{layer}.lora_B.weight"] = (u[:, :RANK] * s[:RANK]).astype(np.float32)
        kept[f"{layer}.lora_A.weight"] = v[:RANK].astype(np.float32)
    for state in (of_factors, kept):
        outputs = whole_of(base, state)(X)
        losses.append(nn.functional.cross_entropy(outputs, Y, reduction="none").detach().numpy().astype(float))
    differences_ = losses[0] - losses[1]
    assert whole.cost == pytest.approx(differences_.mean(), abs=1e-6)
    assert whole.cost_stderr == pytest.approx(differences_.std(ddof=1) / np.sqrt(60), rel=1e-4)
    assert all(cell.cost is None for cell in answer.cells[:-1])
    assert "against the mean of products at the adapter's rank (95 % over samples)" in answer.summary()


def test_the_cost_has_a_name_of_its_own(federation: tuple[Run, Path, State, list[State]]) -> None:
    """As who has looked at the means asks for it next, without --out."""
    run, base_file, _, _ = federation
    names = [
        fedscope.adapters.prepare(run, **how).name
        for how in ({}, {"rounds": 1}, {"cost": True}, {"model": network(), "base": base_file})
    ]
    assert names == ["adapters-all", "adapters-1", "adapters-all-cost", "adapters-all-cost"]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--limit", "50"], {"limit": 50}),
        (["--split", "train"], {"split": "train"}),
        (["--seed", "1"], {"seed": 1}),
        (["--precision", "bf16"], {"precision": "bf16"}),
        (["--base", "base.pt"], {"base": "base.pt"}),
        (["--task", "regression"], {"task": "regression"}),
        (["--accept-data"], {"accept_data": True}),
    ],
)
def test_how_the_cost_is_measured_is_refused_where_it_is_not(
    federation: tuple[Run, Path, State, list[State]],
    words: list[str],
    given: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = federation[0]
    with pytest.raises(
        FedscopeError, match=r"is for the cost of averaging factors, .*; give cost=True too, or leave it"
    ):
        fedscope.adapters(run, **given)
    capsys.readouterr()
    assert command(["adapters", str(run.path), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    said = f"{' '.join(words)} is for the cost of averaging factors, which nobody asked for; give --cost too, or leave"
    assert said in line


def test_settings_of_the_cost_are_taken_with_it_and_defaults_without(
    federation: tuple[Run, Path, State, list[State]], tmp_path: Path
) -> None:
    run, base_file, *_ = federation
    how: dict[str, Any] = {"model": network(), "data": (X, Y), "base": base_file, "limit": 30, "seed": 1}
    assert fedscope.adapters(run, **how).cells[-1].cost is not None
    assert fedscope.adapters(run, split="test", seed=0, device="cpu").cells[-1].cost is None
    assert command(["adapters", str(run.path), "--device", "cpu", "--out", str(tmp_path / "a")]) == 0


def test_a_base_that_is_missing_or_another_is_refused(
    federation: tuple[Run, Path, State, list[State]], tmp_path: Path
) -> None:
    run, base_file, base, _ = federation
    how: dict[str, Any] = {"model": network(), "data": (X, Y), "split": "test"}
    with pytest.raises(
        FedscopeError, match=r"run holds adapters alone, and the architecture has 0\.base\.weight, .*\(base=FILE\)$"
    ):
        fedscope.subsets(run, **how)
    lacking, other = tmp_path / "lacking.pt", tmp_path / "other.pt"
    torch.save({name: torch.tensor(value) for name, value in base.items() if name != "2.weight"}, lacking)
    torch.save({**{name: torch.tensor(value) for name, value in base.items()}, "2.bias": torch.ones(5)}, other)
    with pytest.raises(FedscopeError, match=r"lacking\.pt has no 2\.base\.weight, which the architecture has beside"):
        fedscope.subsets(run, base=lacking, **how)
    with pytest.raises(
        FedscopeError, match=r"other\.pt has 2\.bias of shape \[5\], and the architecture 2\.base\.bias of \[3\]"
    ):
        fedscope.subsets(run, base=other, **how)
    plain = nn.Linear(IN, 3)
    with pytest.raises(FedscopeError, match=r"^base=.* is for adapters, and .* holds none; leave it out$"):
        fedscope.line([plain, nn.Linear(IN, 3)], model=plain, data=(X, Y), split="test", base=base_file)
    alone = nn.Sequential(nn.Linear(IN, RANK, bias=False))
    assert Layout.of(alone).size == IN * RANK  # the given module is left as it is
    assert "0.base.weight" in dict(network().named_parameters())


def test_the_table_and_the_figure(pair: tuple[Run, Run], tmp_path: Path) -> None:
    run = record(tmp_path / "run", [(adapter(0), [adapter(k), adapter(k + 9)], None) for k in range(1, 4)])
    answer = fedscope.adapters(run)
    answer.save(tmp_path / "a")
    with (tmp_path / "a.adapters.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["round"], row["layer"]) for row in rows[:4]] == [
        ("1", "q"),
        ("1", "v"),
        ("1", "all layers"),
        ("2", "q"),
    ]
    assert float(rows[0]["factors"]) == answer.cells[0].factors
    figure = answer.figure()
    texts = {text.get_text() for axes in figure.axes for text in axes.get_yticklabels()}
    assert {"q", "v", "all layers"} <= texts
    curves, drawn = figure.axes[0], 100 * answer.values("factors")[-1]
    assert np.allclose(curves.get_lines()[0].get_ydata(), drawn)
    assert len(fedscope.adapters(pair[0]).figure().axes) == 2  # one round: the map and its bar
    with pytest.raises(FedscopeError, match=r"need a row for every round and layer"):
        type(answer)(answer.cells[1:], {})


def test_a_run_remembers_its_base(federation: tuple[Run, Path, State, list[State]], tmp_path: Path) -> None:
    _, base_file, base, clients = federation
    kept = tmp_path / "base.pt"
    kept.write_bytes(base_file.read_bytes())
    run = record(tmp_path / "run", [(clients[0], clients, None)], base=kept)
    how: dict[str, Any] = {"model": network(), "data": (X, Y), "split": "test"}
    given, remembered = fedscope.subsets(run, base=base_file, **how), fedscope.subsets(run, **how)
    assert given.findings() == remembered.findings()
    assert remembered.attrs["base"]["path"] == str(kept)
    line = fedscope.line([f"{run.path}@1/client-0", f"{run.path}@1/client-1"], points=3, range=(0, 1), **how)
    want = nn.functional.cross_entropy(whole_of(base, clients[1])(X), Y)
    assert np.ravel(line.loss)[0] == pytest.approx(float(want), rel=1e-6)
    torch.save({name: torch.tensor(value) + 1 for name, value in base.items()}, kept)
    with pytest.raises(
        FedscopeError, match=r"base\.pt has changed since the run was recorded \(sha256 .*; restore it,"
    ):
        fedscope.subsets(run, **how)
    assert fedscope.subsets(run, base=kept, **how).findings() != given.findings()
    kept.unlink()
    with pytest.raises(FedscopeError, match=r"base\.pt does not exist"):
        fedscope.subsets(run, **how)
    plain = {"w": np.ones(2, np.float32)}
    with pytest.raises(FedscopeError, match=r"^the base .*base\.pt was given, but the models hold no factors"):
        record(tmp_path / "plain", [(plain, [plain], None)], lora_alpha=None, base=base_file)


def test_an_import_remembers_a_base_in_parts(federation: tuple[Run, Path, State, list[State]], tmp_path: Path) -> None:
    _, base_file, base, clients = federation
    folder = tmp_path / "base"
    folder.mkdir()
    names = {}
    for k, part in enumerate((["0.weight", "0.bias"], ["2.weight", "2.bias"]), start=1):
        file = f"model-{k:05d}-of-00002.safetensors"
        save_file({name: torch.tensor(base[name]) for name in part}, folder / file)
        names |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (folder / "config.json").write_text("{}")
    files = []
    for k, client in enumerate(clients):
        save_file({name: torch.tensor(value) for name, value in client.items()}, tmp_path / f"{k}.safetensors")
        files.append(str(tmp_path / f"{k}.safetensors"))
    words = ["import", *files, "--base", str(folder), "--lora-alpha", "8", "--out", str(tmp_path / "run")]
    assert command(words) == 0
    found = fedscope.subsets(tmp_path / "run", model=network(), data=(X, Y), split="test")
    whole = fedscope.subsets(tmp_path / "run", model=network(), data=(X, Y), split="test", base=base_file)
    assert found.findings() == whole.findings()
    assert found.attrs["base"]["sha256"] == whole.attrs["base"]["sha256"]
    assert found.attrs["base"]["path"] == str(folder)


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({"lora_alpha": "8"}, None),
        ({"lora_alpha": 8, "alpha_pattern": ["q"]}, 4.0),
        ({"lora_alpha": 8, "alpha_pattern": {"(a+)+$": 2}}, 4.0),
        ({"lora_alpha": 8, "alpha_pattern": {"(?=a)a": 2}}, None),
        ({"lora_alpha": [8]}, None),
    ],
)
def test_settings_that_are_none_scale_nothing(tmp_path: Path, config: dict[str, Any], scale: float | None) -> None:
    for k in range(2):
        (tmp_path / str(k)).mkdir()
        save_file(
            {name: torch.tensor(value) for name, value in adapter(k).items()}, tmp_path / str(k) / "a.safetensors"
        )
        (tmp_path / str(k) / "adapter_config.json").write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fedscope.import_models([tmp_path / str(k) / "a.safetensors" for k in range(2)], tmp_path / "run")
        found = fedscope.adapters(run)
    assert found.attrs["adapter_scale_known"] == (scale is not None)
    assert found.attrs["adapter_scales"] == [scale or 1.0]
