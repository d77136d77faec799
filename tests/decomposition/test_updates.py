"""The geometry of updates against rational arithmetic, closed forms, and vectors with known angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from legible import assert_apart, assert_inside

from fedscope.checkpoints import FedscopeError, Layout, Round, RoundRecord, TensorEntry, Weights, write_round
from fedscope.decomposition.updates.adapter_products import with_mean
from fedscope.decomposition.updates.angles import RoundUpdates, geometry, update_products
from fedscope.decomposition.updates.figure import draw_updates
from fedscope.decomposition.updates.result import COLUMNS, ClientUpdates, Updates, describe_divergence
from fedscope.evaluation.device import Compute
from fedscope.plotting.looks import looks_of


def round_of(
    folder: Path, start: np.ndarray, clients: np.ndarray, p: np.ndarray, dtype: str = "float32", number: int = 7
) -> Round:
    """A round on disk, its P parameters in two layers."""
    size = len(start)
    first = size // 2
    layout = Layout(
        (TensorEntry("a", (first, 1), dtype, "parameter"), TensorEntry("b", (size - first,), dtype, "parameter")),
    )
    rows = Weights(layout, clients.astype(dtype), {})
    model = Weights(layout, start.astype(dtype), {})
    ids = 3 * np.arange(len(clients))
    path = folder / f"{number:05d}.h5"
    write_round(path, RoundRecord(number, model, rows, model, None, *[ids] * 4, np.asarray(p)))
    return Round(path, layout, "runs/toy")


def of_vectors(vectors: Any, p: Any = None, number: int = 1) -> RoundUpdates:
    """The geometry of updates that are given as they are."""
    moved = np.asarray(vectors, np.float64)
    p = np.full(len(moved), 1 / len(moved)) if p is None else np.asarray(p, np.float64)
    rows = np.concatenate([moved, [p @ moved]])
    with np.errstate(invalid="ignore"):
        return geometry(rows @ rows.T, p, number=number, client_ids=10 + np.arange(len(moved)))


def test_a_client_of_weight_0_that_diverged_has_no_part_in_what_is_weighted(tmp_path: Path) -> None:
    start, moved = np.zeros(4), np.array([[1.0, 0, 0, 0], [0, 2, 0, 0], [np.inf, 0, 0, 0]])
    p = np.array([0.5, 0.5, 0.0])
    products = update_products(round_of(tmp_path, start, moved, p))
    one = geometry(products, p, number=1, client_ids=np.arange(3))
    alone = of_vectors(moved[:2])
    for name in ("mean_norm", "norm_of_mean", "orthogonal", "diversity", "cancellation"):
        assert getattr(one, name) == getattr(alone, name), name
    assert one.has_mean
    assert math.isnan(one.cosine_mean)
    words = ClientUpdates((one,), {"run": {"path": "runs/a"}}).summary()
    assert words.endswith(
        "; client 2 of round 1 diverged: with weight 0 it has no part in the mean, and only cosines over pairs are "
        "missing there"
    )
    both = ClientUpdates((*diverging([1], 1).rounds, one, one), {})
    assert describe_divergence(both) == (
        "clients 11, 13 of round 1 diverged: no mean exists there; client 2 of round 1, client 2 of round 1 diverged: "
        "with weight 0 they have no part in the mean, and only cosines over pairs are missing there"
    )
    finite = with_mean(products[:3, :3], p)
    np.testing.assert_array_equal(finite[[0, 1, 3]][:, [0, 1, 3]], products[[0, 1, 3]][:, [0, 1, 3]])


# --- products ---


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_a_small_step_keep_their_digits(tmp_path: Path, dtype: str) -> None:
    """Weights near 1000 that move by 1e-3: products of the weights themselves would be all rounding. In blocks."""
    rng = np.random.default_rng(0)
    start = (1000 + rng.normal(size=61)).astype(dtype)
    clients = (start + 1e-3 * rng.normal(size=(4, 61))).astype(dtype)
    p = np.array([0.125, 0.25, 0.5, 0.125])
    seen: list[tuple[int, int]] = []
    round_ = round_of(tmp_path, start, clients, p, dtype)
    found = update_products(round_, lambda *done: seen.append(done), numbers=40, compute=Compute(workers=3))
    assert found.tobytes() == update_products(round_, numbers=40, compute=Compute(workers=1)).tobytes()
    exact = [[Fraction(float(w)) - Fraction(float(s)) for w, s in zip(row, start, strict=True)] for row in clients]
    exact.append([sum((Fraction(float(p[k])) * exact[k][m] for k in range(4)), Fraction(0)) for m in range(61)])
    expected = [[float(sum(x * y for x, y in zip(a, b, strict=True))) for b in exact] for a in exact]
    scale = np.sqrt(np.outer(np.diagonal(expected), np.diagonal(expected)))
    np.testing.assert_array_less(np.abs(found - expected), 1e-13 * scale)
    assert len(seen) > 2
    assert seen[-1] == (61, 61)


def test_products_of_a_long_way_keep_their_digits(tmp_path: Path) -> None:
    """From near 1 to near 1e-3: the difference of two float32 numbers so far apart is none of float32, whose rounding
    would leave 1e-8 of each product or so."""
    rng = np.random.default_rng(0)
    start = (1 + rng.random(40)).astype(np.float32)
    clients = (1e-3 * rng.random((3, 40))).astype(np.float32)
    p = np.array([0.25, 0.25, 0.5])
    moved = clients.astype(np.float64) - start
    moved = np.concatenate([moved, [p @ moved]])
    found = update_products(round_of(tmp_path, start, clients, p))
    np.testing.assert_allclose(found, moved @ moved.T, rtol=1e-13)


def test_a_mean_that_cancels_keeps_its_digits(tmp_path: Path) -> None:
    """Two updates that are opposite but for 1e-7 of their length: p'Gp would be a difference of numbers 1e14 as large,
    with two digits left."""
    step = np.random.default_rng(0).normal(size=50).astype(np.float32)
    other = np.nextafter(step, np.float32(9))
    found = update_products(round_of(tmp_path, np.zeros(50), np.array([other, -step]), np.array([0.5, 0.5])))
    kept = other.astype(np.float64) - step
    assert found[2, 2] == pytest.approx(float((kept / 2) @ (kept / 2)), rel=1e-13, abs=0)


def test_a_round_without_its_start_is_refused(tmp_path: Path) -> None:
    round_ = round_of(tmp_path, np.zeros(4), np.ones((2, 4)), np.full(2, 0.5))
    record = RoundRecord(8, None, round_.clients(), None, None, *[np.arange(2)] * 4, np.full(2, 1 / 2))
    write_round(tmp_path / "00008.h5", record)
    with pytest.raises(FedscopeError, match=r"runs/toy@8/start: round 8 recorded clients"):
        update_products(Round(tmp_path / "00008.h5", round_.layout, "runs/toy"))


# --- geometry ---


def test_updates_of_one_direction_keep_all_of_their_length() -> None:
    one = of_vectors([[3.0, 4.0], [6.0, 8.0], [1.5, 2.0]], [0.5, 0.25, 0.25])
    np.testing.assert_allclose(one.cosine, 1, rtol=1e-15)
    assert (one.cosine_mean, one.cosine_min, one.cosine_max) == pytest.approx((1, 1, 1))
    assert one.cosine_stderr == pytest.approx(0, abs=1e-15)
    assert one.mean_norm == 0.5 * 5 + 0.25 * 10 + 0.25 * 2.5
    assert one.cancellation == pytest.approx(1)
    assert one.diversity == pytest.approx((0.5 * 25 + 0.25 * 100 + 0.25 * 6.25) / one.mean_norm**2)


@pytest.mark.parametrize("clients", [2, 5, 16])
def test_orthogonal_updates_of_one_length_keep_one_over_the_root_of_their_number(clients: int) -> None:
    one = of_vectors(3 * np.eye(clients))
    assert one.cancellation == pytest.approx(1 / math.sqrt(clients), rel=1e-14)
    assert one.orthogonal == pytest.approx(1 / math.sqrt(clients), rel=1e-14)
    assert one.diversity == pytest.approx(clients)
    assert (one.cosine_mean, one.cosine_min, one.cosine_max) == (0, 0, 0)


def test_orthogonal_updates_of_any_lengths_and_weights_keep_what_is_said() -> None:
    one = of_vectors(np.diag([1.0, 2.0, 7.0]), [0.2, 0.3, 0.5])
    expected = math.sqrt(0.2**2 + 0.6**2 + 3.5**2) / (0.2 + 0.6 + 3.5)
    assert one.orthogonal == pytest.approx(expected, rel=1e-14)
    assert one.cancellation == pytest.approx(expected, rel=1e-14)
    assert expected > 1 / math.sqrt(3)  # the bound for equal ones would call these aligned


def test_drifts_that_cancel_keep_nothing() -> None:
    one = of_vectors([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    assert one.cancellation == 0
    assert one.diversity == math.inf
    assert one.cosine_mean == pytest.approx((-1 - 1) / 6)
    assert (one.cosine_min, one.cosine_max) == (-1, 0)


def test_the_diversity_of_equal_clients_is_c_times_the_paper_s() -> None:
    vectors = np.random.default_rng(2).normal(size=(6, 9))
    paper = (vectors**2).sum() / (vectors.sum(axis=0) ** 2).sum()  # Yin et al., Definition 1
    assert of_vectors(vectors).diversity == pytest.approx(6 * paper, rel=1e-13, abs=0)


def test_the_mean_of_cosines_is_unweighted_and_of_lengths_weighted() -> None:
    vectors, p = [[1.0, 0.0], [0.0, 3.0], [-5.0, 5.0]], [0.7, 0.2, 0.1]
    one = of_vectors(vectors, p)
    half = math.sqrt(0.5)
    assert one.cosine_mean == pytest.approx((0 - half + half) / 3, abs=1e-15)
    assert (one.cosine_min, one.cosine_max) == pytest.approx((-half, half))
    assert one.mean_norm == pytest.approx(0.7 + 0.6 + 0.1 * math.sqrt(50))
    assert one.norm_of_mean == pytest.approx(math.hypot(0.7 - 0.5, 0.6 + 0.5))
    np.testing.assert_array_equal(one.weights, p)
    np.testing.assert_array_equal(one.client_ids, [10, 11, 12])


def test_the_standard_error_leaves_out_clients_not_pairs() -> None:
    """The jackknife in a loop; over pairs it would be smaller, because pairs share clients."""
    vectors = np.random.default_rng(1).normal(size=(7, 3)) + 1
    one = of_vectors(vectors)

    def mean_without(i: int) -> float:
        rows = [vectors[k] / np.linalg.norm(vectors[k]) for k in range(7) if k != i]
        return float(np.mean([rows[a] @ rows[b] for a in range(6) for b in range(a)]))

    left = [mean_without(i) for i in range(7)]
    expected = math.sqrt(6 / 7 * sum((value - np.mean(left)) ** 2 for value in left))
    assert one.cosine_stderr == pytest.approx(expected, rel=1e-12)
    pairs = one.cosine[np.triu_indices(7, 1)]
    assert one.cosine_stderr > 1.2 * pairs.std(ddof=1) / math.sqrt(len(pairs))
    assert math.isnan(of_vectors(vectors[:2]).cosine_stderr)
    assert math.isfinite(of_vectors(vectors[:3]).cosine_stderr)


@pytest.mark.filterwarnings("error")
def test_a_client_that_has_not_moved_has_no_direction_and_is_counted() -> None:
    rest = [[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]]
    one, without = of_vectors([[0.0, 0.0], *rest]), of_vectors(rest)
    assert (one.unmoved, one.diverged) == ([10], [])
    assert np.isnan(one.cosine[0]).all()
    assert np.isnan(one.cosine[:, 0]).all()
    for name in ("cosine_mean", "cosine_stderr", "cosine_min", "cosine_max"):
        assert getattr(one, name) == getattr(without, name), name
    # its length is 0, and a length
    assert one.mean_norm == pytest.approx(0.75 * without.mean_norm)
    assert one.cancellation == pytest.approx(without.cancellation)
    nobody = of_vectors(np.zeros((3, 2)))
    assert nobody.unmoved == [10, 11, 12]
    values = (nobody.cosine_mean, nobody.cosine_min, nobody.cancellation, nobody.orthogonal, nobody.diversity)
    assert np.isnan(values).all()
    assert (nobody.mean_norm, nobody.norm_of_mean) == (0, 0)
    assert math.isnan(of_vectors([[0.0, 0.0], [1.0, 1.0]]).cosine_mean)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_client_that_diverged_is_not_left_out(tmp_path: Path, value: float) -> None:
    clients = np.random.default_rng(0).normal(size=(4, 6))
    clients[2, 3] = value
    p = np.full(4, 0.25)
    round_ = round_of(tmp_path, np.zeros(6), clients, p)
    one = geometry(update_products(round_), p, number=7, client_ids=round_.client_ids)
    assert math.isnan(one.cosine_mean)
    assert math.isnan(one.cosine_max)
    assert np.isfinite(one.cosine[0, [0, 1, 3]]).all()
    assert np.isnan(one.cosine[2]).all()
    assert one.unmoved == []
    assert one.diverged == [6]
    assert not math.isfinite(one.mean_norm)


@given(
    seed=st.integers(0, 10**6),
    clients=st.integers(2, 8),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
    size=st.integers(1, 5),
)
def test_bounds_hold_and_scales_do_not_matter(seed: int, clients: int, scale: float, size: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, p = rng.normal(size=(clients, size)), rng.dirichlet(np.ones(clients))
    one, scaled = of_vectors(vectors, p), of_vectors(scale * vectors, p)
    assert 0 <= one.cancellation <= 1 + 1e-12  # the triangle inequality
    assert one.diversity >= 1 - 1e-12  # Jensen's
    assert 1 / math.sqrt(clients) - 1e-12 <= one.orthogonal <= 1
    assert -1 - 1e-12 <= one.cosine_min <= one.cosine_mean <= one.cosine_max <= 1 + 1e-12
    # the square of the length of the weighted mean, from the angles alone
    lengths = p * one.norm
    assert one.norm_of_mean**2 == pytest.approx(float(lengths @ one.cosine @ lengths), rel=1e-9, abs=1e-12)
    assert scaled.cancellation == pytest.approx(one.cancellation, rel=1e-12)
    assert scaled.diversity == pytest.approx(one.diversity, rel=1e-12)
    np.testing.assert_allclose(scaled.cosine, one.cosine, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(one.cosine.diagonal(), 1)


# --- at rest, in words, and drawn ---


def example(name: str = "fma", rounds: tuple[int, ...] = (1, 20, 60), clients: int = 6, seed: int = 0) -> ClientUpdates:
    rng = np.random.default_rng(seed)
    made = tuple(of_vectors(rng.normal(size=(clients + (t == 1), 9)) + 0.3, number=t) for t in rounds)
    return ClientUpdates(made, {"run": {"path": f"runs/{name}"}, "rounds": list(rounds)})


def equal(one: RoundUpdates, other: RoundUpdates) -> None:
    for name, value in vars(one).items():
        np.testing.assert_array_equal(getattr(other, name), value, err_msg=name)
        assert np.asarray(getattr(other, name)).dtype == np.asarray(value).dtype, name


def test_what_is_saved_is_loaded_and_json_gives_it_back(tmp_path: Path) -> None:
    result = example()
    result.save(tmp_path / "new" / "u.nc")
    back = ClientUpdates.load(tmp_path / "new" / "u.nc")
    assert back.attrs == result.attrs
    assert back.run == "fma"
    for one, other in zip(result.rounds, back.rounds, strict=True):
        equal(one, other)
        equal(one, RoundUpdates.from_json(one.to_json()))


def test_xarray_opens_it_padded(tmp_path: Path) -> None:
    import xarray

    result = example()
    result.save(tmp_path / "u.nc")
    with xarray.open_dataset(tmp_path / "u.nc") as data:
        assert data.cosine.dims == ("round", "client", "client2")
        assert data.client_ids.sel(round=20).values.tolist() == [10, 11, 12, 13, 14, 15, -1]
        assert np.isnan(data.cosine.sel(round=60).values[6]).all()
        assert data.cosine.sel(round=1).values[0, 6] == result.rounds[0].cosine[0, 6]
        assert float(data.orthogonal.sel(round=20)) == result.rounds[1].orthogonal


def test_no_round_is_refused() -> None:
    with pytest.raises(FedscopeError, match=r"the geometry of updates needs a round"):
        ClientUpdates(())
    with pytest.raises(FedscopeError, match=r"there are no updates to draw"):
        draw_updates([])


def test_the_table_is_tidy_and_empty_where_nothing_exists(tmp_path: Path) -> None:
    import csv

    lonely = ClientUpdates((of_vectors([[0.0, 0.0], [1.0, 2.0]]),), {"run": {"path": "ima"}})
    (path,) = Updates({".fma": example(), ".ima": lonely}).derive(tmp_path / "v1.5")
    assert path.name == "v1.5.updates.csv"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["run"], row["round"], row["clients"]) for row in rows] == [
        ("fma", "1", "7"), ("fma", "20", "6"), ("fma", "60", "6"), ("ima", "1", "2")
    ]  # fmt: skip
    one = example().rounds[1]
    for name in COLUMNS[3:-2]:
        assert float(rows[1][name]) == getattr(one, name), name
    assert float(rows[1]["cancellation"]) == float(rows[1]["norm_of_mean"]) / float(rows[1]["mean_norm"])
    assert (rows[3]["cosine_mean"], rows[3]["cosine_stderr"], rows[3]["unmoved"]) == ("", "", "1")
    assert rows[3]["cancellation"] != ""
    # infinite because drifts cancel is a value, because a client diverged it is none
    cancel = ClientUpdates((of_vectors([[1.0], [-1.0]]), of_vectors([[1.0], [math.inf]], number=2)))
    with Updates({"": cancel}).derive(tmp_path / "c")[0].open() as file:
        rows = list(csv.DictReader(file))
    assert [row["diversity"] for row in rows] == ["inf", ""]
    assert [row["mean_norm"] for row in rows] == ["1.0", ""]
    assert [row["diverged"] for row in rows] == ["0", "1"]
    # in Python the same; JSON has no infinity, and a length kept of 0 tells it from what does not exist
    found = [row["diversity"] for row in cancel.findings()["rounds"]]
    assert found == [math.inf, None]
    told = [(row["diversity"], row["cancellation"]) for row in Updates({"": cancel}).numbers()["rounds"]]
    assert told == [(None, 0.0), (None, None)]


def test_words_name_the_first_and_the_last_round_and_who_did_not_move() -> None:
    result = example()
    first, last = result.rounds[0], result.rounds[-1]
    assert result.summary() == (
        f"fma: mean cosine between updates {first.cosine_mean:.3g} ± {first.cosine_stderr:.1g} in round 1, "
        f"{last.cosine_mean:.3g} ± {last.cosine_stderr:.1g} in round 60; of their mean length the mean update keeps "
        f"{first.cancellation:.3g} in round 1, {last.cancellation:.3g} in round 60 "
        f"(orthogonal ones: {first.orthogonal:.3g}, {last.orthogonal:.3g}); ± one standard error over clients"
    )
    still = ClientUpdates((of_vectors([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]),))
    assert "mean cosine between updates not defined in round 1;" in still.summary()
    assert still.summary().endswith("; clients 10, 12 of round 1 did not move and have no direction")


def diverging(lost: Sequence[int], rounds: int = 6) -> ClientUpdates:
    """Rounds of four clients, of whom 11 and 13 diverge in some."""
    rng = np.random.default_rng(0)
    made = []
    for t in range(1, rounds + 1):
        vectors = rng.normal(size=(4, 9))
        if t in lost:
            vectors[[1, 3], 2] = math.nan
        made.append(of_vectors(vectors, number=t))
    return ClientUpdates(tuple(made), {"run": {"path": "runs/a"}})


def test_words_name_who_diverged() -> None:
    first = diverging([1]).summary()
    assert "mean cosine between updates not defined in round 1," in first
    assert "(orthogonal ones: undefined, " in first
    assert first.endswith("; clients 11, 13 of round 1 diverged: no mean exists there")
    two = "; clients 11, 13 of round 2, clients 11, 13 of round 4 diverged: no mean exists there"
    assert diverging([2, 4]).summary().endswith(two)
    assert (
        diverging([2, 3, 4, 6])
        .summary()
        .endswith("; clients of rounds 2-4, 6 diverged, first clients 11, 13 of round 2: no mean exists there")
    )
    assert [one["diverged"] for one in diverging([2], 3).findings()["rounds"]] == [[], [11, 13], []]
    figure = draw_updates([diverging([2, 4]), example()], 7)
    remark = " ".join(text.get_text() for text in figure.texts)
    assert "band or bar: ±1" in remark
    assert "thin dots or dash: orthogonal" in remark
    assert "a: clients 11, 13 of round 2, clients 11, 13 of round 4 diverged: no mean exists there" in remark


def test_a_run_that_diverged_whole_has_its_rounds_and_says_so() -> None:
    """Its axis of rounds went from -0.04 to 0.04."""
    upper, lower = draw_updates([diverging([1, 2, 3], 3)]).axes[:2]
    for axes in (upper, lower):
        assert [text.get_text() for text in axes.texts] == ["not finite"]
        assert axes.get_xlim() == (0.5, 3.5)
        assert not axes.get_yticks().size


@pytest.mark.parametrize("rounds", [6, 40])
def test_a_round_between_two_that_have_no_value_is_drawn(rounds: int) -> None:
    """A line and a band through one round have no length."""
    results = [diverging([2, 4], rounds)]
    upper, lower = draw_updates(results).axes[:2]
    lines = {str(line.get_label()): line for line in (*upper.lines, *lower.lines)}
    assert lines["_orthogonal"].get_markevery() == [0, 2]
    assert lines["_orthogonal"].get_marker() == "_"
    every = lines["a"].get_markevery()
    assert every == ([0, 2] if rounds == 40 else None)
    assert lines["a"].get_marker() == looks_of(["a"])[0]["marker"]
    (bars,) = upper.containers
    (segments,) = bars.lines[2]  # type: ignore[attr-defined]
    drawn = [segment[:, 1].tolist() for segment in segments.get_segments()]
    assert drawn == [
        pytest.approx([one.cosine_mean - one.cosine_stderr, one.cosine_mean + one.cosine_stderr])
        for one in (results[0].rounds[0], results[0].rounds[2])
    ]


@pytest.mark.parametrize("width", [2, 3.5, 7])
def test_several_runs_at_one_round_stand_side_by_side(width: float) -> None:
    results = [example(name, rounds=(60,), seed=i) for i, name in enumerate("abcd")]
    figure = draw_updates(results, width)
    figure.canvas.draw()
    for axes in figure.axes[:2]:
        places = [line.get_xdata()[0] for line in axes.lines if str(line.get_label()) in "abcd"]  # type: ignore[index]
        assert places == [-1.5, -0.5, 0.5, 1.5]
        low, high = axes.get_xlim()
        assert low < -1.5
        assert high > 1.5
    assert [tick.get_text() for tick in figure.axes[1].get_xticklabels()] == ["60"]
    remark = " ".join(text.get_text() for text in figure.texts)
    assert "; bar: ±1 standard" in remark
    assert "dash: orthogonal" in remark
    # rounds that differ have an axis of rounds
    others = draw_updates([example(rounds=(20,)), example("b", rounds=(60,))], width).axes[1]
    assert {line.get_xdata()[0] for line in others.lines if line.get_label() in ("fma", "b")} == {20, 60}  # type: ignore[index]


def test_rows_and_columns_of_the_map_are_named() -> None:
    for width in (3.5, 7.0):
        figure = draw_updates([example()], width)
        cells = next(axes for axes in figure.axes if axes.images)
        ids = [str(k) for k in example().rounds[-1].client_ids]
        assert [tick.get_text() for tick in cells.get_xticklabels()] == ids
        assert [tick.get_text() for tick in cells.get_yticklabels()] == ids
        assert_apart(assert_inside(figure, width))


def test_a_figure_shows_the_numbers() -> None:
    results = [example(), example("ima", seed=1)]
    upper, lower, cells = draw_updates(results).axes[:3]
    for axes, name in ((upper, "cosine_mean"), (lower, "cancellation")):
        drawn = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}
        for result in results:
            np.testing.assert_array_equal(drawn[result.run], [getattr(one, name) for one in result.rounds])
    dotted = [np.asarray(line.get_ydata()) for line in lower.lines if line.get_label() == "_orthogonal"]
    np.testing.assert_array_equal(dotted[1], [one.orthogonal for one in results[1].rounds])
    shown = cells.images[0].get_array()
    assert shown is not None
    last = results[0].rounds[-1].cosine
    assert shown[0, 1] == last[0, 1]
    assert np.ma.getmaskarray(shown).diagonal().all()
    low, high = cells.images[0].get_clim()
    assert low == -high  # so that white is 0


@pytest.mark.same_elsewhere
@pytest.mark.parametrize("width", [2, 3.5, 7])
@pytest.mark.parametrize(
    "results",
    [
        [example(rounds=tuple(range(1, 41)))],
        [example(), example("a-long-name-of-a-run", seed=1)],
        [example(rounds=(60,))],
        [example(rounds=(60,)), example("ima", rounds=(60,))],
        [example(clients=60)],
        [ClientUpdates((of_vectors(np.zeros((3, 2))), of_vectors([[0.0], [1.0]], number=2)))],
        [diverging([2, 4])],
    ],
    ids=["curve", "two", "round", "two rounds", "many", "still", "diverged"],
)
def test_figures_are_of_their_width_with_nothing_cut_off(results: list[ClientUpdates], width: float) -> None:
    assert_apart(assert_inside(draw_updates(results, width, title="updates"), width))
