"""FedSA's diagnosis against a reference that loops over everything, in plain Python, written from the method's text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from legible import assert_inside

from fedscope.checkpoints import FedscopeError, Layout, TensorEntry, Weights
from fedscope.decomposition.synergy.diagnosis import synergy
from fedscope.decomposition.synergy.result import LayerSynergy, Synergy
from fedscope.training.methods.shared import micro_classes as synergy_classes
from fedscope.training.methods.shared.client_groups import CV_QUANTILES, Criteria, group_clients
from fedscope.training.methods.shared.micro_classes import macro_classes, similarities

Matrix = list[list[float]]


def clients_of(layers: Sequence[np.ndarray], dtype: str = "float64") -> Weights:
    """Layers [K, M_j] as the rows of one matrix."""
    layout = Layout(tuple(TensorEntry(f"l{j}", (rows.shape[1],), dtype, "parameter") for j, rows in enumerate(layers)))
    return Weights(layout, np.concatenate(layers, axis=1).astype(dtype), {})


# --- the reference: no array, no shared helper; counts are compared as fractions ---


def mean_of(values: Sequence[float]) -> float:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total / len(values)


def high_by_the_text(layer: Matrix, threshold: float, quantile: float | None) -> list[int]:
    """Which columns are high: steps 1 and 2."""
    cv = []
    for column in zip(*layer, strict=True):
        mu = mean_of(column)
        deviation = math.sqrt(mean_of([(w - mu) * (w - mu) for w in column]))
        cv.append(deviation / max(abs(mu), 1.1754943508222875e-38))
    top = max(cv)
    if quantile is not None:
        place = quantile * (len(cv) - 1)
        below, above = sorted(cv)[math.floor(place)], sorted(cv)[math.ceil(place)]
        top = below + (place - math.floor(place)) * (above - below)
    return [m for m, value in enumerate(cv) if top > min(cv) and (value - min(cv)) / (top - min(cv)) > threshold]


def mic_by_the_text(layer: Matrix, high: list[int], classes: int) -> dict[tuple[int, int], int]:
    """(client, column) -> class: step 3."""
    s = {}
    for m in high:
        mu = mean_of([row[m] for row in layer])
        for k, row in enumerate(layer):
            s[k, m] = (row[m] - mu) * (row[m] - mu)
    top = max(s.values(), default=0.0)
    found = {}
    for place, value in s.items():
        inside = [c for c in range(1, classes + 1) if top and (c - 1) / classes < value / top <= c / classes]
        found[place] = inside[0] if inside else 1
    return found


def clusters_by_the_text(
    similar: list[list[Fraction]], clusters: int, threshold: float
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Clusters and those left out: step 5. Every candidate is listed anew each time, best one first in its sort key."""
    free = list(range(len(similar)))
    found: list[list[int]] = []

    def to(k: int, members: list[int]) -> Fraction:
        return sum((similar[k][other] for other in members), Fraction(0)) / len(members)

    while len(found) < clusters:
        candidates = [(-to(k, members), 0, k, s) for k in free for s, members in enumerate(found)]
        candidates += [(-similar[a][b], 1, a, b) for a in free for b in free if a < b]
        if not candidates:
            break
        _, is_pair, first, second = min(candidates)
        if is_pair:
            found.append([first, second])
            free.remove(second)
        else:
            found[second].append(first)
        free.remove(first)
    stood = [list(members) for members in found]
    left_out = []
    for k in free:
        best = max((to(k, members) for members in stood), default=Fraction(0))
        if stood and best > Fraction(str(threshold)):
            found[[to(k, members) for members in stood].index(best)].append(k)
        else:
            left_out.append(k)
    return tuple(tuple(sorted(members)) for members in found), tuple(left_out)


def alpha_by_the_text(
    mic: dict[tuple[int, int], int], high: list[int], clusters: Sequence[Sequence[int]]
) -> dict[tuple[int, int], Fraction]:
    """(cluster, column) -> weight: steps 6 and 7."""
    mac = {}
    for s, members in enumerate(clusters):
        for m in high:
            votes = Counter(mic[k, m] for k in members)
            mac[s, m] = min(c for c, count in votes.items() if count == max(votes.values()))
    raw = {
        (s, m): Fraction(sum(mac[s, other] == mac[s, m] for other in high)) for s in range(len(clusters)) for m in high
    }
    return {(s, m): raw[s, m] / sum(raw[other, m] for other in range(len(clusters))) for s, m in raw}


def similar_by_the_text(mics: Sequence[dict[tuple[int, int], int]], highs: Sequence[list[int]], count: int) -> Any:
    """sim [K][K] over these layers: step 4."""
    entries = sum(map(len, highs))
    return [
        [
            Fraction(1)
            - Fraction(
                sum(mic[a, m] != mic[b, m] for mic, high in zip(mics, highs, strict=True) for m in high), entries or 1
            )
            for b in range(count)
        ]
        for a in range(count)
    ]


def agrees(result: Synergy, layers: Sequence[np.ndarray], criteria: dict[str, Any]) -> None:
    """Compare a diagnosis with the reference."""
    matrices = [rows.tolist() for rows in layers]
    count = len(matrices[0])
    highs = [high_by_the_text(layer, criteria["cv_threshold"], criteria["quantile"]) for layer in matrices]
    mics = [mic_by_the_text(layer, high, criteria["classes"]) for layer, high in zip(matrices, highs, strict=True)]
    if criteria["similarity"] == "model":
        similar = [similar_by_the_text(mics, highs, count)]
    else:
        similar = [similar_by_the_text([mic], [high], count) for mic, high in zip(mics, highs, strict=True)]
    np.testing.assert_allclose(result.similarity, np.array(similar, dtype=float), rtol=1e-14)
    compared = [sum(map(len, highs))] if criteria["similarity"] == "model" else list(map(len, highs))
    expected = [
        clusters_by_the_text(one, criteria["clusters"], criteria["sim_threshold"])
        if some
        else ((), tuple(range(count)))
        for one, some in zip(similar, compared, strict=True)
    ]
    assert result.clusters == tuple(clusters for clusters, _ in expected)
    assert result.left_out == tuple(left_out for _, left_out in expected)
    for j, layer in enumerate(result.layers):
        clusters = expected[j if criteria["similarity"] == "layer" else 0][0]
        assert layer.clusters == clusters
        assert layer.high is not None
        assert layer.mic is not None
        assert layer.alpha is not None
        assert np.flatnonzero(layer.high).tolist() == highs[j]
        assert layer.high_count == len(highs[j])
        assert layer.high_share == len(highs[j]) / layers[j].shape[1]
        assert layer.mic.tolist() == [[mics[j][k, m] for m in highs[j]] for k in range(count)]
        alpha = alpha_by_the_text(mics[j], highs[j], clusters)
        assert layer.alpha.shape == (len(clusters), len(highs[j]))
        np.testing.assert_allclose(
            layer.alpha,
            np.array([[float(alpha[s, m]) for m in highs[j]] for s in range(len(clusters))]).reshape(layer.alpha.shape),
            rtol=1e-14,
        )
        if clusters:
            np.testing.assert_allclose(layer.alpha.sum(axis=0), 1, rtol=1e-14)


CRITERIA = st.fixed_dictionaries(
    {
        "classes": st.integers(1, 6),
        "clusters": st.integers(1, 4),
        "cv_threshold": st.sampled_from([0.0, 0.05, 0.2, 0.5, 0.9]),
        "sim_threshold": st.sampled_from([0.0, 0.2, 0.3, 0.5, 0.75, 1.0]),
        "similarity": st.sampled_from(["model", "layer"]),
        "quantile": st.none(),
    }
)
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=3)


@given(data=st.data(), count=st.integers(1, 7), sizes=SIZES, criteria=CRITERIA)
def test_diagnosis_of_clients_that_tie(data: st.DataObject, count: int, sizes: list[int], criteria: Any) -> None:
    # few distinct values: means of 0, equal cv, equal classes and equal similarities all come up
    value = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 4.0])
    layers = [
        np.array(data.draw(st.lists(st.lists(value, min_size=m, max_size=m), min_size=count, max_size=count)))
        for m in sizes
    ]
    agrees(synergy(clients_of(layers), keep_masks=True, **criteria), layers, criteria)


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(2, 9),
    criteria=CRITERIA,
    quantile=st.sampled_from([None, 0.3, 0.9, 1.0]),
)
def test_diagnosis_of_random_clients(seed: int, count: int, criteria: Any, quantile: float | None) -> None:
    criteria = {**criteria, "quantile": quantile}
    rng = np.random.default_rng(seed)
    layers = [rng.normal(size=(count, m)) + rng.normal(size=m) for m in (12, 1, 5)]
    agrees(synergy(clients_of(layers), keep_masks=True, **criteria), layers, criteria)


@given(
    data=st.data(),
    count=st.integers(1, 9),
    clusters=st.integers(1, 5),
    threshold=st.sampled_from([0.0, 0.2, 0.3, 0.6, 1.0]),
)
def test_clusters_are_those_of_the_text_ties_included(
    data: st.DataObject, count: int, clusters: int, threshold: float
) -> None:
    compared = 10
    counts = np.full((count, count), compared)
    for a in range(count):
        for b in range(a):
            counts[a, b] = counts[b, a] = data.draw(st.sampled_from([0, 2, 3, 3, 6, 10]))
    similar = [[Fraction(int(value), compared) for value in row] for row in counts]
    expected, _ = clusters_by_the_text(similar, clusters, threshold)
    assert macro_classes(counts, compared, clusters, threshold) == expected


def test_a_tie_goes_to_the_cluster_before_the_pair_then_to_the_lowest_client_then_to_the_older_cluster() -> None:
    def counts(**pairs: int) -> np.ndarray:
        found = np.full((5, 5), 1)
        for name, value in pairs.items():
            a, b = map(int, name[1:])
            found[a, b] = found[b, a] = value
        return found

    # 4 is as near to {2, 3} as 0 is to 1
    assert macro_classes(counts(_23=9, _24=6, _34=6, _01=6), 10, 3, 0.2) == ((2, 3, 4), (0, 1))
    # 0 and 1 are as near to {2, 3}; the lower one moves the mean away from the other, who finds 4 first
    near = counts(_23=9, _02=6, _03=6, _12=6, _13=6, _14=5)
    assert macro_classes(near, 10, 3, 0.2) == ((0, 2, 3), (1, 4))
    # left over at S = 2, and as near to either
    assert macro_classes(counts(_01=9, _23=8, _04=5, _14=5, _24=5, _34=5), 10, 2, 0.2) == ((0, 1, 4), (2, 3))


def test_those_left_over_compare_with_the_clusters_as_they_stood() -> None:
    # 2 and 3 are left over: 3 is like {0, 1}, and would not be if 2, of whom it differs, counted as a member
    counts = np.array([[9, 9, 4, 4], [9, 9, 4, 4], [4, 4, 9, 0], [4, 4, 0, 9]])
    assert macro_classes(counts, 9, 1, 0.35) == ((0, 1, 2, 3),)
    assert macro_classes(counts, 9, 1, 0.45) == ((0, 1),)


def test_a_threshold_must_be_exceeded_not_met() -> None:
    counts = np.array([[5, 4, 1], [4, 5, 1], [1, 1, 5]])
    assert macro_classes(counts, 5, 1, 0.2) == ((0, 1),)
    assert macro_classes(counts, 5, 1, 0.19) == ((0, 1, 2),)


def test_means_of_similarities_that_are_equal_tie_whatever_their_sum_rounds_to() -> None:
    # as floats (0.7 + 0.7 + 0.7)/3 < 0.7; 3 is as near to {0, 1, 2} as to 4
    counts = np.full((5, 5), 7)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        counts[a, b] = counts[b, a] = 9
    assert macro_classes(counts, 10, 2, 0.2) == ((0, 1, 2, 3, 4),)


def test_where_nothing_is_compared_everybody_is_alike() -> None:
    nothing = np.zeros((3, 3), np.int64)
    np.testing.assert_array_equal(similarities(nothing, 0), np.ones((3, 3)))
    assert macro_classes(nothing, 0, 4, 0.2) == ((0, 1, 2),)


def test_layers_of_one_entry_and_equal_clients_have_nothing_high() -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=(5, 1))
    equal = np.repeat(rng.normal(size=(1, 40)).astype(np.float32), 5, axis=0)
    result = synergy(clients_of([one, equal], "float32"), cv_threshold=0.0, keep_masks=True)
    assert [layer.high_count for layer in result.layers] == [0, 0]
    np.testing.assert_array_equal(result.similarity, np.ones((1, 5, 5)))
    assert result.layers[1].cv.tolist() == [0.0] * len(CV_QUANTILES)
    # nothing was compared: the diagnosis has no clusters, and the server goes on with one of all
    assert (result.clusters, result.left_out) == (((),), ((0, 1, 2, 3, 4),))
    assert [layer.clusters for layer in result.layers] == [(), ()]
    assert result.not_finite == ()
    found = group_clients(clients_of([one, equal], "float32"), Criteria(cv_threshold=0.0))
    assert found.clusters == ((tuple(range(5)),),)
    assert found.cluster.tolist() == [[0] * 5]
    assert result.figure().axes[1].get_images()[0].get_array().mask.all()  # type: ignore[union-attr]


def test_layers_with_nothing_high_have_no_clusters_and_do_not_count_in_the_mean_similarity() -> None:
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(6, 40)), np.ones((6, 9)), rng.normal(size=(6, 40))]
    result = synergy(clients_of(layers), similarity="layer", quantile=0.9)
    assert [layer.high_count > 0 for layer in result.layers] == [True, False, True]
    assert [len(clusters) > 0 for clusters in result.clusters] == [True, False, True]
    expected = (result.similarity[0] + result.similarity[2]) / 2
    assert not np.allclose(expected, result.similarity.mean(axis=0))
    np.testing.assert_allclose(result.mean_similarity, expected, rtol=1e-15)
    assert any("mean over layers with high" in text.get_text() for text in result.figure(7).texts)


def test_the_mean_is_unweighted_and_cv_its_formula() -> None:
    rows = np.random.default_rng(1).normal(size=(6, 50)).astype(np.float32)
    mean, cv = synergy_classes.mean_and_cv(rows)
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(0), rtol=1e-13)
    np.testing.assert_allclose(cv, exact.std(0) / np.abs(exact.mean(0)), rtol=1e-13)
    tiny = synergy_classes.mean_and_cv(np.array([[1.0, 1e-40], [-1.0, 1e-40]]))
    np.testing.assert_allclose(tiny[1], [1 / 1.1754943508222875e-38, 0])


def test_a_micro_class_holds_its_upper_end_and_the_first_one_0() -> None:
    # clients at +d and -d: s/max = 0, 1/9, a little more, 4/9, 1
    d = np.array([0.0, 1.0, 1.0 + 1e-9, 2.0, 3.0])
    assert synergy_classes.micro_classes(np.array([d, -d]), 9).tolist() == [[1, 1, 2, 4, 9]] * 2
    assert synergy_classes.micro_classes(np.array([d, -d]), 1).tolist() == [[1] * 5] * 2
    # a layer's greatest s is one client's: 4/4, 1/4, 1/4
    assert synergy_classes.micro_classes(np.array([[2.0], [-1.0], [-1.0]]), 4).tolist() == [[4], [1], [1]]
    assert synergy_classes.micro_classes(np.zeros((2, 3)), 4).tolist() == [[1, 1, 1]] * 2
    assert synergy_classes.micro_classes(np.zeros((2, 0)), 4).shape == (2, 0)


def test_of_gaussian_clients_the_paper_s_scale_finds_one_over_the_threshold_a_layer() -> None:
    """The scale depends on the smallest |mu|: entries with |mu| < min |mu| / 0.2 are high. Near 0 the density of mu is
    flat, so their number is geometric with mean 1/0.2 = 5 whatever the layer's size; 18 of 20,000 is one such draw (2 %
    of them are as large). Mean of 40 layers: standard deviation √20/√40 = 0.71, tolerance 3 of them."""
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((10, 20_000), dtype=np.float32) for _ in range(40)]
    counts = [int(synergy_classes.high_entries(synergy_classes.mean_and_cv(rows)[1], 0.2).sum()) for rows in layers]
    assert abs(np.mean(counts) - 5) < 2.1
    assert all(1 <= count <= 60 for count in counts)
    # (cv − min)/(q − min) > 0.2 with q at |mu| = 0.0125 sd: |mu| < 0.0627 sd, or 5 % of the entries
    robust = synergy_classes.high_entries(synergy_classes.mean_and_cv(layers[0])[1], 0.2, 0.99)
    assert 0.03 < robust.mean() < 0.07


@pytest.mark.parametrize("block", [0, 20 * 1300, 10**9])
def test_results_do_not_depend_on_the_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    clients = clients_of([rng.normal(size=(20, 3001)), rng.normal(size=(20, 1001))], "float32")
    expected = synergy(clients, quantile=0.9, keep_masks=True)
    monkeypatch.setattr(synergy_classes, "BLOCK", block)
    again = synergy(clients, quantile=0.9, keep_masks=True)
    equal(again, expected)


@pytest.mark.filterwarnings("error")
def test_a_client_that_diverged_leaves_its_layers_without_high_entries() -> None:
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(4, 30)) for _ in range(3)]
    layers[0][2, 7] = np.nan
    layers[1][2, 7] = np.inf
    result = synergy(clients_of(layers), quantile=0.9)
    assert [layer.high_count > 0 for layer in result.layers] == [False, False, True]
    assert (result.diverged, result.not_finite) == ((2,), ("l0", "l1"))
    said = [text.get_text() for text in result.figure(7).texts]
    assert "client 2 has parameters that are not finite: 2 of 3 layers left out (l0, l1)" in said
    found = group_clients(clients_of(layers), Criteria(quantile=0.9))
    assert np.flatnonzero(~np.isfinite(found.mean)).tolist() == [7, 37]


@pytest.mark.filterwarnings("error")
def test_clients_that_diverged_are_said_by_their_ids_with_the_layers_left_out() -> None:
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(4, 30)) for _ in range(3)]
    for k in (1, 3):
        layers[0][k, k] = -np.inf
    about: dict[str, Any] = {"quantile": 0.9, "client_ids": [5, 40, 6, 8], "provenance": {"source": "a@2"}}
    result = synergy(clients_of(layers), **about)
    assert result.diverged == (40, 8)
    assert "\nclients 40, 8 have parameters that are not finite: 1 of 3 layers left out (l0)\n" in result.summary()
    assert (result.findings()["diverged"], result.findings()["layers_left_out"]) == ([40, 8], ["l0"])
    layers[1][1, 2] = layers[2][1, 2] = np.nan
    nothing = synergy(clients_of(layers), **about)
    assert nothing.summary().startswith(
        "a@2: 0 of 90 parameters of high dispersion (0 %); nothing is of high dispersion, so clients form no clusters\n"
    )
    assert (nothing.findings()["clusters"], nothing.findings()["left_out"]) == ([[]], [[5, 40, 6, 8]])
    fine = synergy(clients_of([rng.normal(size=(4, 30))]), **about)
    assert "not finite" not in fine.summary()
    # weights that are finite and whose squares are not: a layer is left out, and nobody diverged
    great = synergy(clients_of([np.diag([1e300, 1.0, 1.0, 1.0])]), cv_threshold=0.9, provenance={"source": "a@2"})
    assert (great.diverged, great.not_finite) == ((), ("l0",))
    assert "\ndispersion is not finite: 1 of 1 layers left out (l0)\n" in great.summary()


def test_two_clients_are_alike_by_definition_and_that_is_said() -> None:
    rng = np.random.default_rng(0)
    two, three = (
        synergy(clients_of([rng.normal(size=(count, 200))]), quantile=0.9, provenance={"source": "a@2"})
        for count in (2, 3)
    )
    np.testing.assert_array_equal(two.similarity, np.ones((1, 2, 2)))
    words = "two clients: (w₁ − μ)² = (w₂ − μ)² always, so their similarity is 1 by definition"
    assert f"\n{words}\n" in two.summary()
    assert words in [text.get_text() for text in two.figure(7).texts]
    assert "by definition" not in three.summary()
    assert not any("by definition" in text.get_text() for text in three.figure(7).texts)


# --- at rest, and drawn ---


def example(scope: Any = "model", layers: int = 6, count: int = 12, **options: Any) -> Synergy:
    rng = np.random.default_rng(3)
    kinds = rng.integers(0, 3, count)
    matrices = [
        rng.normal(size=300) + 0.5 * rng.normal(size=(3, 300))[kinds] + 0.1 * rng.normal(size=(count, 300))
        for _ in range(layers)
    ]
    known = {"quantile": 0.99, "client_ids": 7 * np.arange(count), "provenance": {"source": "runs/a@40", "round": 40}}
    return synergy(clients_of(matrices, "float32"), similarity=scope, **{**known, **options})


def equal(left: Synergy, right: Synergy) -> None:
    same = replace(left, layers=(), client_ids=right.client_ids, similarity=right.similarity)
    assert same == replace(right, layers=(), client_ids=right.client_ids, similarity=right.similarity) or (
        vars(same) == vars(replace(right, layers=(), client_ids=right.client_ids, similarity=right.similarity))
    )
    np.testing.assert_array_equal(left.client_ids, right.client_ids)
    np.testing.assert_array_equal(left.similarity, right.similarity)
    assert len(left.layers) == len(right.layers)
    for one, other in zip(left.layers, right.layers, strict=True):
        for name, value in vars(other).items():
            if isinstance(value, np.ndarray):
                got = getattr(one, name)
                np.testing.assert_array_equal(got, value)
                assert got.dtype == value.dtype, name
            else:
                assert getattr(one, name) == value


@pytest.mark.parametrize("scope", ["model", "layer"])
@pytest.mark.parametrize("keep_masks", [False, True])
@pytest.mark.parametrize("quantile", [None, 0.5])
def test_what_is_saved_is_loaded(tmp_path: Path, scope: str, keep_masks: bool, quantile: float | None) -> None:
    result = example(scope, keep_masks=keep_masks, quantile=quantile, layers=3)
    result.save(tmp_path / "new" / "synergy.nc")
    equal(Synergy.load(tmp_path / "new" / "synergy.nc"), result)
    assert (result.layers[0].mic is not None) == keep_masks


def test_clients_that_diverged_are_kept(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(4, 30))
    rows[2, 5] = np.nan
    result = synergy(clients_of([rows]), client_ids=[9, 4, 7, 1])
    result.save(tmp_path / "synergy.nc")
    back = Synergy.load(tmp_path / "synergy.nc")
    equal(back, result)
    assert (back.diverged, back.not_finite) == ((7,), ("l0",))


@pytest.mark.parametrize("scope", ["model", "layer"])
def test_results_without_clusters_or_high_entries_survive(tmp_path: Path, scope: Any) -> None:
    result = synergy(clients_of([np.ones((1, 4)), np.ones((1, 1))]), similarity=scope, keep_masks=True)
    assert result.clusters == ((),) * len(result.similarity)
    assert result.left_out == ((0,),) * len(result.similarity)
    result.save(tmp_path / "synergy.nc")
    equal(Synergy.load(tmp_path / "synergy.nc"), result)


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_xarray_opens_it(tmp_path: Path, engine: Any) -> None:
    import xarray

    result = example(keep_masks=True)
    result.save(tmp_path / "synergy.nc")
    with xarray.open_dataset(tmp_path / "synergy.nc", engine=engine) as data:
        assert data.similarity.dims == ("group", "client", "with_client")
        assert data.similarity.sel(group=0, client=14, with_client=21).item() == result.similarity[0, 2, 3]
        assert data.cv.sel(layer="l2", cv_quantile=0.5).item() == result.layers[2].cv[2]
        # places in the flat vector: 300 entries a layer
        kept = result.layers[1]
        assert kept.high is not None
        assert kept.mic is not None
        places = 300 + np.flatnonzero(kept.high)
        np.testing.assert_array_equal(data.mic.sel(high_entry=places), kept.mic)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 0}, r"classes = 0 is out of range: it must be from 1 to 255"),
        ({"classes": 256}, r"classes = 256 is out of range"),
        ({"clusters": 0}, r"clusters = 0 is out of range: it must be at least 1"),
        ({"cv_threshold": 1.0}, r"cv_threshold = 1\.0 is out of range: it must be at least 0 and less than 1"),
        ({"sim_threshold": 1.5}, r"sim_threshold = 1\.5 is out of range: it must be from 0 to 1"),
        ({"similarity": "round"}, r"similarity = 'round' is out of range: it must be 'model' or 'layer'"),
        ({"quantile": 0.0}, r"quantile = 0\.0 is out of range: it must be greater than 0 and at most 1"),
        ({"quantile": float("nan")}, r"quantile = nan is out of range"),
        ({"client_ids": [1, 2]}, r"client_ids has shape \(2,\), but there are 3 clients"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        synergy(clients_of([np.ones((3, 4))]), **options)


def test_one_model_is_no_matrix_of_clients() -> None:
    clients = clients_of([np.ones((3, 4))])
    with pytest.raises(FedscopeError, match=r"between clients, rows \[K, P\], but the parameters have shape \(4,\)"):
        synergy(clients.row(0))


@pytest.mark.parametrize(
    "result",
    [
        example("layer", layers=4),
        example(quantile=None, layers=2, count=1),
        synergy(clients_of([np.ones((3, 1))])),
    ],
    ids=["layer", "one client", "nothing high"],
)
def test_figures_of_little_are_drawn(result: Synergy) -> None:
    result.figure().canvas.draw()


def test_a_figure_shows_the_shares_and_the_clients_sorted_by_cluster() -> None:
    result = replace(example(count=5, layers=3), clusters=(((1, 4), (0, 2)),))
    figure = result.figure()
    bars, matrix = figure.axes[:2]
    widths = [patch.get_width() for patch in bars.patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(widths, [100 * layer.high_share for layer in result.layers])
    assert [tick.get_text() for tick in matrix.get_yticklabels()] == ["7", "28", "0", "14", "21"]
    shown = matrix.images[0].get_array()
    assert shown is not None
    assert shown[0, 1] == result.similarity[0, 1, 4]
    assert shown[3, 4] == result.similarity[0, 2, 3]
    assert np.ma.getmaskarray(shown).diagonal().all()
    assert {text.get_text() for text in matrix.texts} == {"cluster", "1", "2", "–"}
    assert any("in no cluster" in text.get_text() for text in figure.texts)


@pytest.mark.same_elsewhere
@pytest.mark.parametrize("width", [2, 3.5, 7])
@pytest.mark.parametrize("most", [8, 14])
def test_numbers_of_clusters_do_not_lie_on_each_other(width: float, most: int) -> None:
    result = example(count=100, layers=2, clusters=most, quantile=0.9)
    assert len(result.clusters[0]) == most
    figure = result.figure(width)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = sorted((text.get_window_extent(renderer) for text in figure.axes[1].texts), key=lambda box: box.x0)
    assert len(boxes) > 2
    for left, right in pairwise(boxes):
        assert left.x1 <= right.x0


def test_a_layer_without_entries_has_none_high() -> None:
    clients = clients_of([np.empty((3, 0)), np.random.default_rng(0).normal(size=(3, 9))])
    first = synergy(clients).layers[0]
    assert isinstance(first, LayerSynergy)
    assert (first.high_share, first.high_count, first.entries) == (0, 0, 0)
    # and none that is not finite
    assert synergy(clients).not_finite == ()
    assert not any("finite" in text.get_text() for text in synergy(clients).figure(7).texts)


def test_long_names_of_layers_leave_room_for_the_bars() -> None:
    made = example()
    long = replace(
        made,
        layers=tuple(
            replace(one, name=f"encoder.blocks.{i}.attention.projection") for i, one in enumerate(made.layers)
        ),
    )
    for width in (2.0, 2.5, 3.5):
        figure = long.figure(width)
        assert_inside(figure, width)
        assert figure.axes[0].get_position().width * width >= 0.38
        assert all("…" in name.get_text() for name in figure.axes[0].get_yticklabels())
