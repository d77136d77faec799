"""FedSA's server step: against a case worked out by hand, its own diagnosis, and its limits. The statistics themselves
are held against a reference in tests/decomposition/test_synergy.py."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints import Layout, TensorEntry, Weights, mean
from fedscope.decomposition.synergy.diagnosis import synergy
from fedscope.training.methods.base import Cohort, Served
from fedscope.training.methods.servers.fedsa import FedSA


def clients_of(*layers: Any, dtype: str = "float64") -> Weights:
    """Layers [K, M_j] as the rows of one matrix."""
    arrays = [np.asarray(rows, dtype=dtype) for rows in layers]
    layout = Layout(tuple(TensorEntry(f"l{j}", (rows.shape[1],), dtype, "parameter") for j, rows in enumerate(arrays)))
    return Weights(layout, np.concatenate(arrays, axis=1), {})


def step(clients: Weights, method: FedSA, samples: Any = None) -> Served:
    n = np.ones(len(clients), np.int64) if samples is None else np.asarray(samples)
    cohort = Cohort(3, np.arange(len(n)), n, np.full(len(n), 4), n / n.sum(), clients=len(n), lr=0.1)
    return method.step({}, clients.row(0), clients, cohort)


LAYER = np.array(
    [
        [5.0, 3.0, 5.0, 1.0, 10.0],
        [-3.0, 3.0, -3.0, 1.5, 10.0],
        [5.0, -1.0, 3.0, 0.5, 10.0],
        [-3.0, -1.0, -1.0, 1.0, 10.0],
    ]
)


def test_a_case_worked_out_by_hand() -> None:
    # Five entries in four clients. Means 1, 1, 1, 1, 10; squared deviations of the first four:
    #   client   m=0   m=1   m=2   m=3
    #     0      16     4    16     0
    #     1      16     4    16    1/4
    #     2      16     4     4    1/4
    #     3      16     4     4     0
    # cv = 4, 2, √10, √(1/8), 0: all but the last two are over 0.2 · 4. s/16 in 4 classes:
    # mic = [4 1 4], [4 1 4], [4 1 1], [4 1 1]; sim = 1 within {0, 1} and within {2, 3}, 2/3 across.
    # S = 2: clusters {0, 1}, {2, 3}; mac = [4 1 4], [4 1 1]; counts (2, 1, 2) and (1, 2, 2).
    # alpha of the first: 2/3, 1/3, 1/2. Means of the clusters: 1, 3, 1 and 1, -1, 1.
    served = step(clients_of(LAYER), FedSA(clusters=2))
    high = [1.0, 3 / 3 + -1 * 2 / 3, 1.0]
    np.testing.assert_allclose(served.parameters, [*high, 1.0, 10.0], rtol=1e-14)
    assert served.state["high_share"].tolist() == [3 / 5]
    assert served.state["cluster"].tolist() == [[0, 0, 1, 1]]
    np.testing.assert_allclose(served.state["similarity"][0, 0], [1, 1, 2 / 3, 2 / 3], rtol=1e-15)
    whole = step(clients_of(LAYER), FedSA(clusters=2, similarity="model"))  # of one layer that is the same
    assert whole.parameters.tobytes() == served.parameters.tobytes()
    assert whole.state["cluster"].tolist() == [0, 0, 1, 1]
    assert whole.state["similarity"].shape == (4, 4)


def test_clients_are_clustered_layer_by_layer_unless_the_model_is_asked_for() -> None:
    """Two layers, the second with clients 1 and 2 exchanged: eq. 10 over a layer's high entries, its own clusters."""
    exchanged = LAYER[[0, 2, 1, 3]]
    served = step(clients_of(LAYER, exchanged), FedSA(clusters=2))
    assert served.state["cluster"].tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]
    alone = [step(clients_of(rows), FedSA(clusters=2)).parameters for rows in (LAYER, exchanged)]
    assert served.parameters.tobytes() == np.concatenate(alone).tobytes()
    whole = step(clients_of(LAYER, exchanged), FedSA(clusters=2, similarity="model"))
    # over both layers clients 0 and 1 agree in 3 and 2 of 6 entries, as do 0 and 2
    np.testing.assert_allclose(whole.state["similarity"][0], [1, 5 / 6, 5 / 6, 4 / 6], rtol=1e-15)
    assert whole.parameters.tobytes() != served.parameters.tobytes()


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 9),
    method=st.builds(
        FedSA,
        classes=st.integers(1, 6),
        clusters=st.integers(1, 5),
        cv_threshold=st.sampled_from([0.0, 0.2, 0.6]),
        sim_threshold=st.sampled_from([0.0, 0.4, 0.8]),
        similarity=st.sampled_from(["model", "layer"]),
        quantile=st.sampled_from([None, 0.5, 0.9]),
    ),
)
def test_a_step_is_what_its_diagnosis_says(seed: int, count: int, method: FedSA) -> None:
    """w⁺ = mu, and Σ_s alpha_s w̄_s for high entries: entry by entry, from the kept masks."""
    rng = np.random.default_rng(seed)
    clients = clients_of(*(rng.normal(size=(count, m)) + rng.normal(size=m) for m in (11, 1, 6)))
    options = {name: value for name, value in method.table().items() if name != "weighting"}
    told = synergy(clients, keep_masks=True, **options)
    expected: list[float] = []
    for layer in told.layers:
        assert layer.high is not None
        assert layer.alpha is not None
        start, seen = len(expected), 0
        for m in range(layer.entries):
            column = clients.parameters[:, start + m]
            if layer.high[m] and layer.clusters:
                means = [column[list(members)].mean() for members in layer.clusters]
                expected.append(sum(layer.alpha[s, seen] * w for s, w in enumerate(means)))
            else:
                expected.append(column.mean())
            seen += bool(layer.high[m])
    served = step(clients, method)
    np.testing.assert_allclose(served.parameters, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(served.state["high_share"], [layer.high_share for layer in told.layers])
    similarity = told.similarity[0] if method.similarity == "model" else told.similarity
    np.testing.assert_array_equal(served.state["similarity"], similarity)
    cluster = np.atleast_2d(served.state["cluster"])
    assert cluster.shape == (len(told.clusters), count)
    high = [layer.high_count for layer in told.layers]
    compared = [sum(high)] if method.similarity == "model" else high
    for row, clusters, left_out, some in zip(cluster, told.clusters, told.left_out, compared, strict=True):
        if not some:  # the server goes on with one cluster of all, and a diagnosis has none
            assert clusters == ()
            assert set(row) == {0 if count > 1 else -1}
            continue
        assert tuple(tuple(np.flatnonzero(row == s)) for s in range(len(clusters))) == clusters
        assert tuple(np.flatnonzero(row == -1)) == left_out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_of_one_client_it_returns_that_client(dtype: str) -> None:
    rng = np.random.default_rng(0)
    clients = clients_of(rng.normal(size=(1, 40)), [[-0.0]], dtype=dtype)
    served = step(clients, FedSA())
    assert served.parameters.tobytes() == clients.parameters[0].tobytes()
    assert served.state["cluster"].tolist() == [[-1], [-1]]
    assert served.state["similarity"].tolist() == [[[1.0]], [[1.0]]]


@pytest.mark.parametrize("count", [2, 3, 20])
def test_of_equal_clients_it_returns_them(count: int) -> None:
    rows = np.repeat(np.random.default_rng(0).normal(size=(1, 40)), count, axis=0)
    served = step(clients_of(rows, dtype="float32"), FedSA())
    np.testing.assert_array_equal(served.parameters, rows[0].astype(np.float32))
    np.testing.assert_allclose(step(clients_of(rows), FedSA()).parameters, rows[0], rtol=1e-15)


def test_where_nothing_is_high_it_is_the_unweighted_mean_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    clients = clients_of(*(rng.normal(size=(17, 1)) for _ in range(30)), dtype="float32")
    served = step(clients, FedSA(), samples=rng.integers(1, 100, 17))
    assert served.parameters.tobytes() == mean(clients).parameters.tobytes()


def test_samples_do_not_count() -> None:
    clients = clients_of(np.random.default_rng(0).normal(size=(5, 60)), dtype="float32")
    method = FedSA(quantile=0.9)
    equal = step(clients, method)
    other = step(clients, method, samples=[1, 2, 3, 4, 500])
    assert equal.parameters.tobytes() == other.parameters.tobytes()
    assert step(clients, FedSA(quantile=0.9, weighting="uniform")).parameters.tobytes() == equal.parameters.tobytes()


def test_the_weights_of_clusters_sum_to_one() -> None:
    # Moving all clients by one vector moves the result by it only if they do. cv changes with the vector, so it is
    # small beside the entries, and the high entries stay.
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(8, 200))
    moved = rows + 1e-9
    method = FedSA(quantile=0.9)
    before, after = step(clients_of(rows), method), step(clients_of(moved), method)
    np.testing.assert_array_equal(before.state["high_share"], after.state["high_share"])
    assert before.state["high_share"][0] > 0.1
    np.testing.assert_allclose(after.parameters - before.parameters, 1e-9, rtol=1e-5)
    # and every entry lies among its clients
    assert (before.parameters <= rows.max(0)).all()
    assert (before.parameters >= rows.min(0)).all()


def test_clusters_of_clients_move_the_result_away_from_the_mean() -> None:
    # Three clients scatter widely in one half of the entries, three in the other.
    rng = np.random.default_rng(0)
    scale = np.where(np.arange(300) < 150, 5.0, 0.5)
    clients = clients_of(10 + rng.normal(size=(6, 300)) * np.array([scale] * 3 + [scale[::-1]] * 3))
    served = step(clients, FedSA(quantile=0.9, clusters=2))
    changed = ~np.isclose(served.parameters, clients.parameters.mean(0), rtol=1e-9, atol=0)
    assert served.state["cluster"].max() == 1
    assert 0.5 * served.state["high_share"][0] < changed.mean() <= served.state["high_share"][0]
    assert changed.sum() > 50


def test_two_clients_are_one_cluster_and_the_result_their_mean() -> None:
    rows = np.random.default_rng(0).normal(size=(2, 50))
    served = step(clients_of(rows), FedSA(quantile=0.9))
    assert served.state["high_share"][0] > 0
    assert served.state["cluster"].tolist() == [[0, 0]]
    np.testing.assert_allclose(served.parameters, rows.mean(0), rtol=1e-15)


def test_a_step_leaves_what_it_is_given_alone_and_takes_any_state() -> None:
    clients = clients_of(np.random.default_rng(0).normal(size=(5, 60)))
    before = clients.parameters.copy()
    first = step(clients, FedSA(quantile=0.9))
    cohort = Cohort(4, np.arange(5), np.ones(5, int), np.ones(5, int), np.full(5, 0.2))
    again = FedSA(quantile=0.9).step(first.state, clients.row(1), clients, cohort)
    assert again.parameters.tobytes() == first.parameters.tobytes()
    np.testing.assert_array_equal(clients.parameters, before)
    assert first.parameters.dtype == clients.parameters.dtype
    assert not FedSA.optimiser


def test_memory_is_that_of_one_layer_and_not_of_the_model() -> None:
    count, layers, size = 10, 40, 10_000
    rng = np.random.default_rng(0)
    clients = clients_of(
        *(rng.standard_normal((count, size), dtype=np.float32) for _ in range(layers)), dtype="float32"
    )
    method = FedSA(quantile=0.5)  # nine entries of ten are high
    step(clients, method)
    tracemalloc.start()
    served = step(clients, method)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert served.state["high_share"].mean() > 0.8
    result, masks, of_a_layer = 4 * layers * size, layers * size, 8 * count * size
    blocks = 3 * 8 * 160_000  # of synergy_classes.BLOCK numbers
    assert peak < result + masks + 2 * of_a_layer + blocks
    assert result + masks + 2 * of_a_layer + blocks < 8 * count * layers * size / 3  # the bound says something


def test_defaults_are_the_paper_s() -> None:
    assert FedSA().table() == {
        "weighting": "samples",
        "classes": 4,
        "clusters": 4,
        "cv_threshold": 0.2,
        "sim_threshold": 0.2,
        "similarity": "layer",
    }
    for classes in (4, 5, 8):
        assert FedSA(classes=classes, clusters=classes).quantile is None
