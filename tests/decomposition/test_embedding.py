"""Maps of models against the whole matrix: distances, PCA and t-SNE of scikit-learn, and what is refused."""

from __future__ import annotations

import csv
import json
import resource
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from legible import assert_inside
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from fedscope.checkpoints import FedscopeError, Layout, RoundRecord, Run, TensorEntry, Weights, write_round
from fedscope.decomposition.embedding import gram as grams
from fedscope.decomposition.embedding import pca_and_tsne as embedding
from fedscope.decomposition.embedding.gram import Gram, distances, gram, spreads
from fedscope.decomposition.embedding.pca_and_tsne import (
    divergence,
    principal,
    project,
    settled_perplexity,
    t_sne,
    trustworthiness,
)
from fedscope.decomposition.embedding.result import Embedding
from fedscope.decomposition.embedding.shown_models import Point
from fedscope.evaluation.device import Compute
from fedscope.results.resume import ResumeStore

LAYOUT = Layout(
    (
        TensorEntry("conv.weight", (7, 3, 2), "float32", "parameter"),
        TensorEntry("running_mean", (3,), "float32", "buffer"),
        TensorEntry("scale", (), "float32", "parameter"),
        TensorEntry("empty", (0, 4), "float32", "parameter"),
        TensorEntry("head.weight", (5, 9), "float32", "parameter"),
    )
)


def record(
    folder: Path,
    rounds: int,
    clients: int = 4,
    *,
    seed: int = 0,
    compression: Any = "none",
    apart: float = 1.0,
    far: float = 0.0,
    leave_out: tuple[str, ...] = (),
    layout: Layout = LAYOUT,
) -> Run:
    """A run of random models: clients ``apart`` from their round's start, which is ``far`` from the one before."""
    rng = np.random.default_rng(seed)

    def models(rows: np.ndarray) -> Weights:
        buffers = {e.name: rng.normal(size=(*rows.shape[:-1], *e.shape)).astype(e.dtype) for e in layout.buffers}
        return Weights(layout, rows.astype(layout.dtype), buffers)

    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"format": "fedscope-run", "version": 1, "layout": layout.to_json()}), encoding="utf-8"
    )
    centre = rng.normal(size=layout.size)
    for number in range(1, rounds + 1):
        start, centre = centre, centre + far * rng.normal(size=layout.size)
        rows = start + apart * rng.normal(size=(clients, layout.size))
        held: dict[str, Weights | None] = {
            "start": models(start),
            "clients": models(rows),
            "global": models(rows.mean(axis=0)),
            "averaged": models(rows[0] / 2) if number > 1 else None,
        }
        held |= dict.fromkeys(leave_out)
        ids = np.arange(clients) * 3 + number
        one = np.ones(clients)
        path = folder / "rounds" / f"{number:05d}.h5"
        path.parent.mkdir(exist_ok=True)
        parts = (held["start"], held["clients"], held["global"], held["averaged"])
        write_round(path, RoundRecord(number, *parts, ids, *[one] * 3, one / clients), compression)
    return Run.open(folder)


def whole(asked: list[tuple[Run, int]], columns: list[int] | None = None) -> np.ndarray:
    """Every model of the rounds as a row of one matrix in float64: clients, then the server's."""
    rows = [run.round(t).clients().parameters for run, t in asked]
    for run, t in asked:
        rows += [
            run.round(t).read(which).parameters[None]
            for which in ("global", "averaged")
            if which in run.round(t).models
        ]
    matrix = np.concatenate(rows).astype(np.float64)
    return matrix if columns is None else matrix[:, columns]


def between(rows: np.ndarray) -> np.ndarray:
    return np.array([np.linalg.norm(rows - row, axis=1) for row in rows])


def relative_error(found: np.ndarray, truth: np.ndarray) -> float:
    pairs = ~np.eye(len(truth), dtype=bool)
    return float(np.max(np.abs(found - truth)[pairs] / truth[pairs]))


def gram_of(rows: np.ndarray, run: str = "toy") -> Gram:
    """Of rows that are in no file: client k of round 1 + k // 10."""
    points = tuple(Point(run, 1 + k // 10, f"client-{k}") for k in range(len(rows)))
    about = rows - rows[0]
    return Gram(points, about @ about.T, ("all",))


def clustered(n: int = 60, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 12)) + 4 * rng.normal(size=(n // 10, 12)).repeat(10, axis=0)


# --- the Gram matrix ---


@pytest.mark.parametrize("compression", ["none", "delta"])
@pytest.mark.parametrize("numbers", [1, 300, 100_000])
def test_the_gram_matrix_is_that_of_the_whole_matrix(tmp_path: Path, compression: Any, numbers: int) -> None:
    runs = [record(tmp_path / "a", 3, compression=compression), record(tmp_path / "b", 2, 6, seed=1)]
    asked = [(runs[0], 1), (runs[1], 2), (runs[0], 3)]
    made = gram(asked, numbers=numbers)
    rows = whole(asked)
    about = rows - runs[0].round(1).read("start").parameters.astype(np.float64)
    np.testing.assert_allclose(made.matrix, about @ about.T, rtol=0, atol=1e-12 * np.square(about).sum(axis=1).max())
    assert np.array_equal(made.matrix, made.matrix.T)
    assert made.layers == ("conv.weight", "scale", "empty", "head.weight")
    clients = [("a", 1, 1), ("a", 1, 4), ("a", 1, 7), ("a", 1, 10)]
    assert [(p.run, p.round, int(p.which.removeprefix("client-"))) for p in made.points[:4]] == clients
    assert [p.label for p in made.points[14:]] == [
        "a@1/global",
        "b@2/global",
        "b@2/averaged",
        "a@3/global",
        "a@3/averaged",
    ]


def test_distances_do_not_depend_on_the_reference(tmp_path: Path) -> None:
    with_start = gram([(record(tmp_path / "a" / "run", 2), 2)])
    without = gram([(record(tmp_path / "b" / "run", 2, leave_out=("start",)), 2)])
    np.testing.assert_allclose(distances(without), distances(with_start), rtol=1e-12)
    assert without.matrix[0, 0] == 0  # its first client is the reference
    assert with_start.matrix[0, 0] > 0


def test_neither_blocks_nor_workers_change_a_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grams, "PART", 50)
    monkeypatch.setattr(grams, "TILE", 3)
    run = record(tmp_path / "a", 2, 5)
    asked = [(run, 1), (run, 2)]
    told: list[tuple[int, int]] = []
    made = gram(asked, numbers=100, compute=Compute(workers=1), progress=lambda *at: told.append(at))
    for workers in (2, 5):
        assert gram(asked, numbers=100, compute=Compute(workers=workers)).matrix.tobytes() == made.matrix.tobytes()
    assert relative_error(distances(made), between(whole(asked))) < 1e-12
    assert told[-1] == (LAYOUT.size, LAYOUT.size)
    assert told == sorted(told)
    assert len(told) > len(LAYOUT.parameters)


def test_only_the_layers_asked_for_count_and_buffers_never(tmp_path: Path) -> None:
    run = record(tmp_path / "a", 1)
    made = gram([(run, 1)], layers=["head.weight", "scale"])
    assert made.layers == ("scale", "head.weight")
    columns = list(range(42, LAYOUT.size))
    np.testing.assert_allclose(distances(made), between(whole([(run, 1)], columns)), rtol=1e-12)
    with pytest.raises(
        FedscopeError, match=r"running_mean is a buffer of the models of .*a, and distances are between"
    ):
        gram([(run, 1)], layers=["running_mean"])
    with pytest.raises(FedscopeError, match=r'have no parameter \'head\.wight\'; did you mean "head\.weight"\?'):
        gram([(run, 1)], layers=["head.wight"])
    with pytest.raises(FedscopeError, match=r"no parameter 'zzz'; they have conv\.weight, scale"):
        gram([(run, 1)], layers=["zzz"])
    with pytest.raises(FedscopeError, match=r"there is no layer to take distances in; give at least one"):
        gram([(run, 1)], layers=[])


def test_short_distances_far_from_the_reference_are_exact(tmp_path: Path) -> None:
    # rounds 1000 apart, clients 0.1: float32 products about one reference lose all digits of d² (1e-7 · 1e8)
    run = record(tmp_path / "a", 3, apart=1e-2, far=100.0, leave_out=("averaged",))
    asked = [(run, t) for t in (1, 2, 3)]
    rows = whole(asked)
    truth = between(rows)
    assert relative_error(distances(gram(asked)), truth) < 1e-6
    about = (rows - rows[0]).astype(np.float32)
    norms, products = np.square(about).sum(axis=1), about @ about.T
    raw = np.sqrt(np.maximum(norms[:, None] + norms - 2 * products, 0))
    assert relative_error(raw, truth) > 1e-1


def test_after_one_local_step_distances_are_exact(tmp_path: Path) -> None:
    from fedscope.training import Config, merge, preset, train

    changes = {
        "data": {"clients": 6, "partition": "iid"},
        "model": {"hidden": [32]},
        "client": {"lr": 0.01, "epochs": 1, "batch": 1000},
        "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 0},
    }
    train(Config.read(merge(preset("fma"), changes)), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert set(run.round(1).client_steps.tolist()) == {1}
    asked = [(run, 1)]
    rows, truth = whole(asked), between(whole(asked))
    found = gram(asked)
    assert relative_error(distances(found), truth) < 1e-9
    norms = np.square(rows.astype(np.float32)).sum(axis=1)
    raw = norms[:, None] + norms - 2 * rows.astype(np.float32) @ rows.astype(np.float32).T
    assert relative_error(np.sqrt(np.maximum(raw, 0)), truth) > 1e-2
    # IID clients have all classes
    assert {point.labels for point in found.points if point.is_client} == {tuple(range(10))}
    assert found.points[-1].labels == ()


@given(st.integers(0, 2**32 - 1), st.floats(-6, 6), st.integers(1, 4))
def test_copies_are_at_distance_zero_and_others_are_not(seed: int, exponent: float, copies: int) -> None:
    rows = 10**exponent * np.random.default_rng(seed).normal(size=(5, 30)).astype(np.float32).astype(np.float64)
    made = gram_of(np.concatenate([rows, rows[:copies]]))
    found = distances(made)
    truth = between(np.concatenate([rows, rows[:copies]]))
    assert ((found == 0) == (truth == 0)).all()


def test_what_is_no_more_than_rounding_is_no_distance() -> None:
    for off, expected in ((1e-15, 0.0), (-1e-15, 0.0), (1e-13, np.sqrt(2e-13))):
        made = Gram((), np.array([[1.0, 1 - off], [1 - off, 1.0]]), ())
        assert distances(made)[0, 1] == pytest.approx(expected, rel=1e-2)


def test_spreads_are_mean_distances_to_the_mean(tmp_path: Path) -> None:
    run = record(tmp_path / "a", 2)
    found = spreads(gram([(run, 1), (run, 2)]))
    for (name, number, mean), t in zip(found, (1, 2), strict=True):
        rows = run.round(t).clients().parameters.astype(np.float64)
        assert (name, number) == ("a", t)
        assert mean == pytest.approx(np.linalg.norm(rows - rows.mean(axis=0), axis=1).mean(), rel=1e-12)


def test_an_interrupted_matrix_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grams, "KEEP_EVERY", 0.0)
    run = record(tmp_path / "a", 2)
    asked = [(run, 1), (run, 2)]
    read: list[str] = []
    multiply = grams.block_products

    def counted(models: Any, layers: Any, **how: Any) -> Any:
        read.extend(layers)
        return multiply(models, layers, **how)

    def stop(done: int, _: int) -> None:
        if done > 52:  # in the middle of the last layer
            raise KeyboardInterrupt

    monkeypatch.setattr(grams, "block_products", counted)
    with ResumeStore(tmp_path / "store", {}) as store, pytest.raises(KeyboardInterrupt):
        gram(asked, numbers=1, partial=store, progress=stop)
    read.clear()
    told: list[tuple[int, int]] = []
    with ResumeStore(tmp_path / "store", {}) as store:
        made = gram(asked, numbers=1, partial=store, progress=lambda *at: told.append(at))
        assert read == ["empty", "head.weight"]
        read.clear()
        again = gram(asked, numbers=1, partial=store)
    assert read == ["empty"]  # of which there is nothing to read
    assert told[0][0] > 43
    assert told[-1] == (LAYOUT.size, LAYOUT.size)
    assert made.matrix.tobytes() == again.matrix.tobytes() == gram(asked, numbers=1).matrix.tobytes()


def test_what_is_kept_of_a_matrix_is_short_and_has_its_bits() -> None:
    half = np.random.default_rng(0).normal(size=(40, 40))
    matrix = half @ half.T
    kept = {"layers": ["a"], "upper": grams._packed(matrix)}
    assert len(json.dumps(kept)) < 6 * matrix.size
    back, layers = grams._kept_products(kept, 40, ["a", "b"])
    assert np.triu(back).tobytes() == np.triu(matrix).tobytes()
    assert layers == ["a"]
    for damaged in ({**kept, "upper": kept["upper"][4:]}, {**kept, "layers": ["c"]}, {**kept, "upper": "?"}):
        with pytest.raises(ValueError, match=r"sums of other models or layers|base64|padding|buffer size"):
            grams._kept_products(damaged, 40, ["a", "b"])


def test_models_in_float64_are_compared_in_float64(tmp_path: Path) -> None:
    layout = Layout((TensorEntry("w", (30,), "float64", "parameter"),))
    run = record(tmp_path / "a", 1, layout=layout, apart=1e-9)
    assert relative_error(distances(gram([(run, 1)])), between(whole([(run, 1)]))) < 1e-6


# --- what is refused ---


def test_what_has_no_distances_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = record(tmp_path / "a", 2), record(tmp_path / "b", 1, layout=Layout(LAYOUT.entries[2:]))
    with pytest.raises(FedscopeError, match=r"there is no round whose models could be shown"):
        gram([])
    with pytest.raises(FedscopeError, match=r"a and .*b hold models of different layouts \(conv\.weight stands where"):
        gram([(run, 1), (other, 1)])
    with pytest.raises(FedscopeError, match=r"a@2 stands for 2 of the rounds, which could not be told apart"):
        gram([(run, 2), (run, 1), (run, 2)])
    without = record(tmp_path / "c", 1, leave_out=("clients",))
    with pytest.raises(FedscopeError, match=r"c@1: the clients of round 1 were not recorded; no round of this run has"):
        gram([(without, 1)])
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65, 4096))
    with pytest.raises(
        FedscopeError, match=r"2 rounds are read side by side, but a process may open 65 files here; ask"
    ):
        gram([(run, 1), (run, 2)])


@pytest.mark.parametrize(
    ("which", "place", "named"),
    [("clients", (1, 45), "client-5"), ("clients", (0, 3), "client-2"), ("global", 2, "global"), ("start", 3, "start")],
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_is_not_finite_is_named(
    tmp_path: Path, rewrite: Any, which: str, place: Any, named: str, value: float
) -> None:
    run = record(tmp_path / "a", 2)
    rewrite(run.path, 2, lambda models: models[which].parameters.__setitem__(place, value))
    layer = "head.weight" if place == (1, 45) else "conv.weight"
    with pytest.raises(FedscopeError, match=rf"a@2/{named} has parameters that are not finite \(in {layer}\), so it"):
        gram([(run, 2)])
    # the start counts only where it is the reference
    if which == "start":
        assert np.isfinite(gram([(run, 1), (run, 2)]).matrix).all()


def test_what_is_no_map_is_refused() -> None:
    rows = clustered()
    with pytest.raises(FedscopeError, match=r"needs three models at least, not 2 \(toy@1/client-0, toy@1/client-1\)"):
        project(gram_of(rows[:2]))
    with pytest.raises(FedscopeError, match=r"all 20 models are the same in what is compared: every distance is 0"):
        project(gram_of(rows[[4] * 20]), "pca")
    with pytest.raises(FedscopeError, match=r"needs three different models at least, not 2 \(toy@1/client-0, toy@1/cl"):
        project(gram_of(rows[[4, 5] * 10]))
    with pytest.raises(FedscopeError, match=r"a map by 'umap' is not known; take one of tsne, pca"):
        project(gram_of(rows), "umap")
    for perplexity in (60, 0.5, float("nan")):
        words = (
            rf"perplexity {perplexity:g} is about how many neighbours each of 60 different models has, .* less than 60"
        )
        with pytest.raises(FedscopeError, match=words):
            project(gram_of(rows), perplexity=perplexity)
    assert (settled_perplexity(3, None), settled_perplexity(1000, None), settled_perplexity(60, 59)) == (
        1.0,
        30.0,
        59.0,
    )


# --- the maps ---


def test_pca_is_that_of_the_whole_matrix() -> None:
    rows = clustered()
    places, explained = principal(gram_of(rows))
    known = PCA(2).fit(rows)
    theirs = known.transform(rows)
    signs = np.sign((places * theirs).sum(axis=0))
    np.testing.assert_allclose(places, signs * theirs, atol=1e-10)
    np.testing.assert_allclose(explained, known.explained_variance_ratio_, rtol=1e-10)
    assert (places[np.abs(places).argmax(axis=0), [0, 1]] > 0).all()


def test_models_on_a_line_have_one_component() -> None:
    places, explained = principal(gram_of(np.outer([0.0, 1.0, 3.0, 4.0], [3.0, 4.0])))
    np.testing.assert_allclose(np.abs(np.diff(places[:, 0])), [5.0, 10.0, 5.0])
    assert explained == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-12))
    assert np.abs(places[:, 1]).max() < 1e-6


@pytest.mark.parametrize("exact", [1000, 10])
def test_t_sne_is_that_of_the_whole_matrix(exact: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "EXACT", exact)
    rows = clustered()
    made = gram_of(rows)
    before = made.matrix.copy()
    places, left = t_sne(made, 12, seed=3)
    again, _ = t_sne(made, 12, seed=3)
    assert places.tobytes() == again.tobytes()
    assert np.array_equal(made.matrix, before)
    scores, _ = principal(made)
    start = (scores * 1e-4 / scores[:, 0].std()).astype(np.float32)
    method = "exact" if exact == 1000 else "barnes_hut"
    theirs = TSNE(perplexity=12, init=start, method=method, random_state=3).fit(rows)
    # sums in another order: 750 steps carry 1e-16 far, but not from one cluster to another
    assert left == pytest.approx(divergence(between(rows), theirs.embedding_.astype(float), 12), rel=0.02)
    if method == "exact":
        # it looks for widths until the entropy is within 1e-5
        assert left == pytest.approx(theirs.kl_divergence_, rel=1e-2)


def test_t_sne_begins_at_the_principal_components(monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.manifold

    given: dict[str, Any] = {}

    def noted(**how: Any) -> Any:
        given.update(how)
        return TSNE(**how)

    monkeypatch.setattr(sklearn.manifold, "TSNE", noted)
    made = gram_of(clustered())
    t_sne(made, 12, seed=3)
    assert (given["metric"], given["perplexity"], given["random_state"]) == ("precomputed", 12, 3)
    assert given["init"][:, 0].std() == pytest.approx(1e-4, rel=1e-5)
    scores, _ = principal(made)
    np.testing.assert_allclose(given["init"] / given["init"][0, 0], scores / scores[0, 0], rtol=1e-4)


def test_the_divergence_is_the_sum_over_all_pairs() -> None:
    rows, places = clustered(20), np.random.default_rng(1).normal(size=(20, 2))
    d = between(rows)
    p = np.zeros((20, 20))
    for i in range(20):
        low, high = 1e-8, 1e8
        others = np.arange(20) != i
        for _ in range(200):
            beta = np.sqrt(low * high)
            own = np.exp(-beta * d[i, others] ** 2)
            own /= own.sum()
            wide = -(own[own > 0] * np.log(own[own > 0])).sum() > np.log(6)
            low, high = (beta, high) if wide else (low, beta)
        p[i, others] = own
    p = (p + p.T) / 40
    q = 1 / (1 + between(places) ** 2)
    np.fill_diagonal(q, 0)
    q /= q.sum()
    expected = sum(p[i, j] * np.log(p[i, j] / q[i, j]) for i in range(20) for j in range(20) if p[i, j] > 0)
    assert divergence(d, places, 6) == pytest.approx(expected, rel=1e-6)


def test_trustworthiness_is_its_formula() -> None:
    rows, places = clustered(30), np.random.default_rng(1).normal(size=(30, 2))
    value, k = trustworthiness(gram_of(rows), places)
    assert k == 5
    d, on_map, lost = between(rows), between(places), 0
    for i in range(30):
        near = np.argsort(np.where(np.arange(30) == i, np.inf, on_map[i]))[:5]
        rank = np.argsort(np.argsort(np.where(np.arange(30) == i, np.inf, d[i]))) + 1
        lost += sum(max(0, rank[j] - 5) for j in near)
    assert value == pytest.approx(1 - 2 / (30 * 5 * (60 - 15 - 1)) * lost, rel=1e-12)
    for few in (3, 4, 5, 11):
        made = gram_of(rows[:few])
        assert trustworthiness(made, principal(made)[0])[1] == min(5, (few - 1) // 2)


def test_models_that_are_the_same_are_one_place_of_the_map() -> None:
    rows = clustered(40)
    alone = project(gram_of(rows), perplexity=8)
    order = np.concatenate([[7, 7], np.arange(40), [30]])
    twice = project(gram_of(rows[order]), perplexity=8)
    assert np.array_equal(twice.places[[0, 1, 42]], twice.places[[9, 9, 32]])
    assert len(np.unique(twice.places, axis=0)) == 40
    assert twice.kl_divergence == pytest.approx(alone.kl_divergence, rel=0.05)
    assert twice.trustworthiness == pytest.approx(alone.trustworthiness, abs=0.01)
    assert project(gram_of(rows[order])).perplexity == 13.0  # (40 − 1) / 3
    with pytest.raises(FedscopeError, match=r"perplexity 41 .* each of 40 different models"):
        project(gram_of(rows[order]), perplexity=41)
    # to PCA they are as many as they are
    weighted = project(gram_of(rows[order]), "pca").explained
    np.testing.assert_allclose(weighted, PCA(2).fit(rows[order]).explained_variance_ratio_, rtol=1e-10)


def test_clusters_stay_apart_on_the_map() -> None:
    made = project(gram_of(clustered()), perplexity=8)
    places = made.places.reshape(6, 10, 2)
    within = np.linalg.norm(places - places.mean(axis=1, keepdims=True), axis=2).max()
    centres = between(places.mean(axis=1))
    assert within < centres[~np.eye(6, dtype=bool)].min() / 2
    assert made.trustworthiness > 0.95


# --- the result ---


@pytest.fixture
def result(tmp_path: Path) -> Embedding:
    runs = [record(tmp_path / "iid", 4, far=0.3), record(tmp_path / "shards", 4, 6, seed=1, far=0.3)]
    made = project(gram([(run, t) for run in runs for t in (4, 1, 2)]), "pca", provenance={"device": "cpu"})
    labels = tuple(replace(p, labels=(3, 8)) if p.which == "client-4" else p for p in made.points)
    return replace(made, points=labels)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_what_is_saved_is_read_back(result: Embedding, tmp_path: Path, method: str) -> None:
    if method == "tsne":
        result = replace(result, method="tsne", explained=None, perplexity=7.5, kl_divergence=0.25)
    base = tmp_path / "figures" / "run.v2"
    assert [path.name for path in result.save(base)] == ["run.v2.embedding.csv", "run.v2.embedding.json"]
    read = Embedding.load(base)
    assert (read.points, read.spreads, dict(read.attrs)) == (result.points, result.spreads, dict(result.attrs))
    assert read.places.tobytes() == result.places.tobytes()
    for name in ("method", "trustworthiness", "neighbours", "explained", "perplexity", "kl_divergence"):
        assert getattr(read, name) == getattr(result, name), name
    with (tmp_path / "figures" / "run.v2.embedding.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["run", "round", "which", "x", "y"]
    assert (rows[0]["run"], rows[0]["round"], rows[0]["which"]) == ("iid", "4", "client-4")
    assert rows[-1]["which"] == "averaged"
    info = json.loads((tmp_path / "figures" / "run.v2.embedding.json").read_text())
    assert info["labels"]["iid"] == {"client-4": [3, 8]}
    assert info["attrs"]["layers"] == ["conv.weight", "scale", "empty", "head.weight"]


def test_the_sentence_has_the_numbers(result: Embedding) -> None:
    first, *runs = result.summary().splitlines()
    assert result.explained is not None
    share = 100 * sum(result.explained)
    assert first == (
        f"PCA of 40 models of iid, shards, rounds 1-2, 4: {share:.3g} % of the variance on the plane, trustworthiness "
        f"{result.trustworthiness:.3f}"
    )
    means = {(run, number): mean for run, number, mean in result.spreads}
    assert runs[1] == (
        f"shards: mean L2 distance of clients to their round's mean {means['shards', 1]:.3g} in round 1, "
        f"{means['shards', 4]:.3g} in round 4"
    )


# --- the figure and the page ---


@pytest.mark.parametrize("width", [2, 3.5, 7])
@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_nothing_is_cut_off_or_drawn_over(result: Embedding, width: float, method: str) -> None:
    if method == "tsne":
        result = replace(result, method="tsne", explained=None, perplexity=7.5, kl_divergence=0.25)
    figure = result.figure(width, "A title")
    kept = {words for words, _ in assert_inside(figure, width)}
    assert {"A title", "iid", "shards", "global", "averaged", "client", "round"} <= kept


def test_panels_have_common_axes_and_paths_follow_the_rounds(result: Embedding) -> None:
    first, second, bar = result.figure(7).axes
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    low, high = result.places.min(axis=0), result.places.max(axis=0)
    for i, (least, most) in enumerate((first.get_xlim(), first.get_ylim())):
        assert least < low[i] < high[i] < most
    box = first.get_position()
    ratio = (box.height * first.figure.get_figheight()) / (box.width * first.figure.get_figwidth())
    assert ratio == pytest.approx(np.ptp(first.get_ylim()) / np.ptp(first.get_xlim()), rel=1e-6)  # equal distances
    path, named = result.of("iid", "global")
    assert [p.round for p in named] == [4, 1, 2]
    np.testing.assert_array_equal(first.lines[0].get_xydata(), path[[1, 2, 0]])
    np.testing.assert_array_equal(first.lines[1].get_xydata(), path[[0]])  # where it ends
    assert "%" in first.get_xlabel()
    assert first.get_ylabel().partition("2")[0] == first.get_xlabel().partition("1")[0], "in the same words"
    assert first.get_xticks().size
    assert [label.get_text() for label in bar.get_yticklabels()] == ["1", "2", "4"]
    flat = replace(result, method="tsne", perplexity=7.5).figure().axes[0]
    assert not len(flat.get_xticks()) + len(flat.get_yticks()) + len(flat.get_xlabel())


@pytest.mark.parametrize("stretch", [(1.0, 0.01), (0.01, 1.0), (1.0, 1.0)])
def test_every_model_is_inside_the_panel(result: Embedding, stretch: tuple[float, float]) -> None:
    places = result.places * stretch + [5.0, -3.0]
    panel = replace(result, places=places).figure().axes[0]
    for along, (least, most) in zip(places.T, (panel.get_xlim(), panel.get_ylim()), strict=True):
        assert least < along.min() < along.max() < most


def test_colours_are_rounds(result: Embedding) -> None:
    from fedscope.decomposition.embedding.figure import round_colours, shade

    axes = result.figure().axes[1]
    drawn = axes.collections[0].get_facecolors()
    _, points = result.of("shards")
    expected = round_colours()([shade(p.round, (1, 2, 4)) for p in points])
    np.testing.assert_array_equal(drawn, expected)
    luminance = expected[:, :3] @ [0.2126, 0.7152, 0.0722]
    by_round = {p.round: value for p, value in zip(points, luminance, strict=True)}
    assert by_round[1] > by_round[2] > by_round[4]


def test_one_round_of_one_run_has_no_bar(result: Embedding, tmp_path: Path) -> None:
    run = record(tmp_path / "other" / "x", 1, 8)
    one = project(gram([(run, 1)]))
    figure = one.figure(2)
    assert len(figure.axes) == 1
    assert "round 1" in " ".join(text.get_text() for text in figure.texts)
    assert "slider" not in json.loads(slider_json(one.page()))


def slider_json(page: str) -> str:
    """What the page's plotly call is given as layout, as JSON."""
    at = page.rindex('Plotly.newPlot("embedding"' if 'Plotly.newPlot("embedding"' in page else "Plotly.newPlot(")
    decoder, found = json.JSONDecoder(), []
    text = page[at:]
    at = text.index("[")
    data, end = decoder.raw_decode(text[at:])
    rest = text[at + end :]
    layout, _ = decoder.raw_decode(rest[rest.index("{") :])
    found = {"data": data, "layout": layout, **({"slider": layout["sliders"][0]} if layout.get("sliders") else {})}
    return json.dumps(found)


def test_the_page_tells_who_is_who_and_picks_rounds_out(result: Embedding) -> None:
    page = result.page("Two <runs>")
    assert page == result.page("Two <runs>")
    assert "Two &lt;runs&gt;" in page
    said = json.loads(slider_json(page))
    assert [trace["name"] for trace in said["data"]] == ["client", "global", "averaged"] * 2
    assert [trace["showlegend"] for trace in said["data"]] == [True] * 3 + [False] * 3
    clients = said["data"][0]["text"]
    assert "iid, round 4<br>client 4<br>classes 3, 8" in clients
    assert [step["label"] for step in said["slider"]["steps"]] == ["all", "1", "2", "4"]
    path, named = result.of("iid", "global")
    order = np.argsort([point.round for point in named])
    for along, coordinate in (("x", 0), ("y", 1)):
        drawn = np.frombuffer(b64decode(said["data"][1][along]["bdata"]), said["data"][1][along]["dtype"])
        np.testing.assert_array_equal(drawn, path[order, coordinate])
    assert [words.partition("<")[0] for words in said["data"][1]["text"]] == [f"iid, round {t}" for t in (1, 2, 4)]
    picked = said["slider"]["steps"][2]["args"][0]["selectedpoints"]
    for trace, places in zip(said["data"], picked, strict=True):
        assert {", round 2<" in trace["text"][i] for i in places} <= {True}
        assert sum(", round 2<" in words for words in trace["text"]) == len(places)
    assert said["slider"]["steps"][0]["args"][0]["selectedpoints"] == [None] * 6


def test_many_panels_stand_in_rows(tmp_path: Path) -> None:
    runs = [record(tmp_path / f"run-{i}", 2, 4, seed=i) for i in range(5)]
    made = project(gram([(run, t) for run in runs for t in (1, 2)]), "pca")
    for width in (2, 3.5, 7):
        panels = made.figure(width).axes[:5]
        tops = sorted({round(panel.get_position().y1, 6) for panel in panels})
        assert len(tops) == {2: 5, 3.5: 3, 7: 1}[width]
    layout = json.loads(slider_json(made.page()))["layout"]
    axes = [(layout[f"xaxis{i}"], layout[f"yaxis{i}"], f"x{i}") for i in ("", 2, 3, 4, 5)]
    for across, along, anchor in axes:
        assert along["scaleanchor"] == anchor  # distances are equally long along both
        assert (across["range"], along["range"]) == (layout["xaxis"]["range"], layout["yaxis"]["range"])
        for axis, places in zip((across, along), made.places.T, strict=True):
            assert axis["range"][0] < places.min() < places.max() < axis["range"][1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no such device")
def test_the_device_does_not_change_the_distances(tmp_path: Path) -> None:
    run = record(tmp_path / "a", 2, far=10.0)
    asked = [(run, 1), (run, 2)]
    np.testing.assert_allclose(
        distances(gram(asked, compute=Compute(device="cuda"))), distances(gram(asked)), rtol=1e-9
    )


# --- what a review found ---


def test_a_round_with_one_client_has_no_spread_and_says_so(tmp_path: Path) -> None:
    one, more = record(tmp_path / "one", 3, clients=1), record(tmp_path / "more", 1, clients=4)
    made = gram([(one, 1), (one, 2), (one, 3), (more, 1)])
    assert [(run, number) for run, number, _ in spreads(made)] == [("more", 1)]
    words = project(made, "pca").summary().splitlines()
    assert words[1] == "one: one client per round, so there is no distance to a mean"
    assert words[2].startswith("more: mean L2 distance of clients to their round's mean ")


def test_distances_that_overflow_are_not_called_broken_models(tmp_path: Path) -> None:
    layout = Layout((TensorEntry("w", (5,), "float64", "parameter"),))
    run = record(tmp_path / "a", 1, apart=1e200, layout=layout)
    with pytest.raises(FedscopeError, match=r"squared distances between the models of .*a are greater than the"):
        gram([(run, 1)])


def test_every_seed_draws_the_same_map(tmp_path: Path) -> None:
    made = gram([(record(tmp_path / "a", 2, clients=6), t) for t in (1,)])
    first, other = (project(made, "tsne", seed=seed) for seed in (0, 5_000_000_000))
    np.testing.assert_array_equal(first.places, other.places)


def test_models_in_another_byte_order_are_read(tmp_path: Path) -> None:
    run = record(tmp_path / "a", 2)
    made = gram([(run, 1), (run, 2)])
    with h5py.File(run.round(2).path, "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        for which in ("clients", "global", "averaged"):
            values = file[which]["head.weight"][()]
            del file[which]["head.weight"]
            file[which].create_dataset("head.weight", data=values.astype(">f4"))
    np.testing.assert_array_equal(gram([(run, 1), (run, 2)]).matrix, made.matrix)


def test_memory_does_not_grow_with_compressed_rounds(tmp_path: Path) -> None:
    """A layer of 4 x 200,000 float32, 3.2 MB a round: at most a model's layer and the blocks are there at a time."""
    import tracemalloc

    layout = Layout((TensorEntry("w", (200_000,), "float32", "parameter"),))
    run = record(tmp_path / "a", 8, compression="delta", layout=layout)
    gram([(run, 1)], compute=Compute(workers=1))
    peaks = []
    for rounds in (1, 8):
        tracemalloc.start()
        gram([(run, t) for t in range(1, rounds + 1)], compute=Compute(workers=1), numbers=100_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 2 * 3.2e6, "seven more rounds of 3.2 MB"


def test_compressed_rounds_count_their_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (64 + 30, 1000))
    plain = record(tmp_path / "plain", 8)
    gram([(plain, t) for t in range(1, 9)], compute=Compute(workers=2))  # three files a round
    packed = record(tmp_path / "packed", 8, compression="delta")
    with pytest.raises(FedscopeError, match=r"8 rounds are read side by side, but a process may open 94 files here"):
        gram([(packed, t) for t in range(1, 9)], compute=Compute(workers=2))
