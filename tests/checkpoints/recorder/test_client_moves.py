"""How far clients have moved, one at a time and in blocks of columns, against the whole matrix."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope import Recorder
from fedscope.checkpoints.recorder import client_moves
from fedscope.checkpoints.recorder.client_moves import AT_ONCE, ClientMoves, SampledParameters, fit
from fedscope.checkpoints.recorder.coerce_models import ModelTensors, coerce_model
from fedscope.checkpoints.recorder.identify_server import Rule, ServerIdentifier

SHAPES = {"a.weight": (30, 7), "a.bias": (), "b.weight": (1000,)}


def models(clients: int, dtype: str = "float32") -> list[ModelTensors]:
    rng = np.random.default_rng(clients)
    return [
        coerce_model({name: np.asarray(rng.normal(size=shape)).astype(dtype) for name, shape in SHAPES.items()})
        for _ in range(clients)
    ]


def matrix(some: Sequence[ModelTensors], stride: int = 1) -> np.ndarray:
    flat = [[one.arrays[name].reshape(-1)[::stride].astype(float) for name in SHAPES] for one in some]
    return np.array([np.concatenate(parts) for parts in flat])


@pytest.mark.parametrize("at_once", [1, 64, AT_ONCE])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_told_of_clients_is_told_of_their_matrix(
    at_once: int, stride: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_moves, "AT_ONCE", at_once)
    start, *clients = models(6, dtype)
    size = sum(int(np.prod(shape)) for shape in SHAPES.values())
    monkeypatch.setattr(client_moves, "COORDINATES", -(-size // stride))
    sampled = SampledParameters(start.layout(), len(clients))
    origin, whole = sampled.vector(start), matrix(clients, stride)
    np.testing.assert_array_equal(origin, matrix([start], stride)[0])
    p = np.array([0.5, 0, 0.1, 0.2, 0.2])
    moves, expected = ClientMoves(sampled, origin, clients, p), whole - origin
    np.testing.assert_array_equal([row.copy() for row in moves], expected)
    np.testing.assert_array_equal(moves.median(), np.median(expected, axis=0))
    np.testing.assert_array_equal(moves.plain_mean, expected.mean(axis=0))
    # sums of five terms, in another order than the product has them
    np.testing.assert_allclose(moves.weighted_mean, p @ expected, rtol=1e-14, atol=1e-14)
    spread = np.sqrt(((expected - expected.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert moves.spread() == pytest.approx(spread, rel=1e-14)


def test_clients_that_are_not_finite_are_left_out_where_they_have_no_say() -> None:
    clients = models(4)
    clients[1].arrays["b.weight"][3] = np.nan
    sampled = SampledParameters(clients[0].layout(), 4)
    p, origin = np.array([0.2, 0, 0.5, 0.3]), np.zeros(sum(map(len, matrix(clients[:1]))))
    moves, whole = ClientMoves(sampled, origin, clients, p), matrix(clients)
    there = [0, 2, 3]
    np.testing.assert_allclose(moves.weighted_mean, p[there] @ whole[there], rtol=1e-14, atol=1e-14)
    spread = np.sqrt(((whole[there] - whole[there].mean(axis=0)) ** 2).sum(axis=1).mean())
    assert moves.spread() == pytest.approx(spread, rel=1e-14)
    assert np.isnan(moves.plain_mean).sum() == 1


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("size", [3, 40, 5000])
def test_a_fit_by_parts_is_the_fit_of_the_whole(count: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_moves, "AT_ONCE", 64)  # 16 rows at a time
    rng = np.random.default_rng(size)
    vectors = [10.0 ** -(3 * i) * rng.normal(size=size) for i in range(count)]
    d = sum(((i - 1.5) * vector for i, vector in enumerate(vectors)), 1e-3 * rng.normal(size=size))
    found, left = fit(d, vectors)
    # scaled as there, because the columns differ by 1e6
    scale = [np.linalg.norm(vector) for vector in vectors]
    expected, *_ = np.linalg.lstsq(np.stack(vectors, axis=1) / scale, d, rcond=None)
    np.testing.assert_allclose(found, expected / scale, rtol=1e-9)
    rest = np.linalg.norm(d - sum(a * b for a, b in zip(found, vectors, strict=True)))
    assert left == pytest.approx(rest, rel=1e-9, abs=1e-15)


def test_of_vectors_that_are_multiples_or_zero_the_shortest_fit_is_told() -> None:
    v = np.random.default_rng(0).normal(size=500)
    found, left = fit(3 * v, [v, 2 * v])
    assert left <= 1e-12 * np.linalg.norm(v)
    np.testing.assert_allclose(found, [1.5, 0.75], rtol=1e-9)  # halves of each, as both are scaled to length 1
    assert fit(v, [np.zeros(500)]) == ([0.0], pytest.approx(float(np.linalg.norm(v))))


def test_a_client_of_no_weight_that_has_diverged_does_not_end_the_search(tmp_path: Path) -> None:
    """The plain mean is one of the means that a step is fitted by, and was not finite."""
    rng = np.random.default_rng(0)
    start = {"w": rng.normal(size=200).astype(np.float32)}
    clients = [{"w": start["w"] + rng.normal(size=200).astype(np.float32)} for _ in range(3)]
    adaptive = {"w": start["w"] + np.sign(clients[0]["w"] - start["w"])}
    clients[2]["w"][7] = np.inf
    with Recorder(tmp_path / "run") as recorder, pytest.warns(UserWarning, match="client 2 has diverged"):
        step = recorder.round(start=start, clients=clients, weights=[0.9, 0.1, 0], global_=adaptive)
    assert step is not None
    assert step.rule is Rule.UNKNOWN
    assert 0 < step.left < 1


SERVERS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "mean": lambda w, rows: rows.mean(axis=0),
    "one that is not known": lambda w, rows: np.sign(rows.mean(axis=0)),
}


@pytest.mark.parametrize("name", SERVERS)
def test_the_search_takes_as_much_memory_for_many_clients_as_for_few(name: str) -> None:
    """It once held the clients as float64, and the median's copy of that: 1.7 rounds of clients."""
    size, found = 200_000, {}
    for clients in (4, 16):
        rng = np.random.default_rng(0)
        w = rng.normal(size=size).astype(np.float32)
        rows = (w + rng.normal(size=(clients, size))).astype(np.float32)
        given: Any = [coerce_model({"w": row}) for row in rows]
        start, end = coerce_model({"w": w}), coerce_model({"w": SERVERS[name](w, rows).astype(np.float32)})
        check = ServerIdentifier(start.layout())
        p = np.full(clients, 1 / clients)
        check.look(start, given, p, end)
        tracemalloc.start()
        try:
            check.look(start, given, p, end)
            found[clients] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    # seven vectors of float64 in all, and what is as large as AT_ONCE says
    assert max(found.values()) <= 7 * size * 8 + 8 * AT_ONCE * 8
    assert found[16] <= 1.1 * found[4]
