"""Column statistics of clients against scipy on the whole matrix, FedSA's synergy, and simulations."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from legible import assert_apart, assert_inside
from scipy import stats

from fedscope.checkpoints import (
    FedscopeError,
    FedscopeWarning,
    Layout,
    Round,
    RoundRecord,
    TensorEntry,
    Weights,
    write_round,
)
from fedscope.decomposition.dispersion.dispersion import disperse_round
from fedscope.decomposition.dispersion.result import WHOLE, Dispersion, LayerDispersion, RoundDispersion
from fedscope.decomposition.dispersion.skew_maps import map_layer
from fedscope.decomposition.dispersion.statistics import (
    column_moments,
    count_rejections,
    critical_skewness,
    skewness_p_values,
)
from fedscope.decomposition.synergy.diagnosis import synergy
from fedscope.evaluation.device import Compute

LAYOUT = Layout(
    (
        TensorEntry("fc.weight", (40, 9), "float32", "parameter"),
        TensorEntry("steps", (), "int64", "buffer"),
        TensorEntry("fc.bias", (), "float32", "parameter"),
        TensorEntry("empty", (0, 4), "float32", "parameter"),
        TensorEntry("head.weight", (17,), "float32", "parameter"),
    )
)


def matrix(clients: int, size: int = LAYOUT.size, seed: int = 3, dtype: Any = np.float32) -> np.ndarray:
    """Client rows of which some parameters are constant, some have a mean of 0, and most are skewed."""
    draw = np.random.default_rng(seed)
    values = draw.gamma(draw.uniform(0.3, 5, size), size=(clients, size)) * draw.normal(size=size)
    values[:, 5] = 0.1
    values[:, 7] = 0.0
    values[:, 11] = np.resize([1.5, -1.5], clients) if clients % 2 == 0 else np.r_[2.0, np.full(clients - 1, 0.0)]
    return np.asarray(values, dtype)


def recorded(folder: Path, values: np.ndarray, layout: Layout = LAYOUT, compression: Any = "none") -> Round:
    """A round of these clients."""
    count = len(values)
    buffers = {entry.name: np.zeros((count, *entry.shape), entry.dtype) for entry in layout.buffers}
    clients = Weights(layout, values, buffers)
    one = Weights(layout, values.mean(0).astype(values.dtype), {name: part[0] for name, part in buffers.items()})
    numbers = np.arange(count)
    path = folder / "00007.h5"
    write_round(path, RoundRecord(7, one, clients, one, None, *[numbers] * 4, np.full(count, 1 / count)), compression)
    return Round(path, layout, "runs/toy")


def flat(size: int) -> Layout:
    return Layout((TensorEntry("w", (size,), "float32", "parameter"),))


# --- moments ---


@pytest.mark.parametrize("clients", [3, 8, 20, 137])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_scipys(clients: int, dtype: Any) -> None:
    values = matrix(clients, 30_000, dtype=dtype)
    found, exact = column_moments(values), values.astype(np.float64)
    there = ~found.constant
    assert found.constant.sum() == 2
    np.testing.assert_allclose(found.mean, exact.mean(0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.deviation[there], exact[:, there].std(0), rtol=1e-9, atol=0)
    np.testing.assert_allclose(found.skewness[there], stats.skew(exact[:, there]), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.kurtosis[there], stats.kurtosis(exact[:, there]), rtol=1e-6, atol=1e-12)
    spread = there & (found.mean != 0)
    np.testing.assert_allclose(found.cv[spread], np.abs(stats.variation(exact[:, spread])), rtol=1e-9)
    assert (found.deviation[~there] == 0).all()
    assert np.isnan(found.skewness[~there]).all()
    assert np.isnan(found.kurtosis[~there]).all()
    assert np.isnan(found.cv[~spread]).all()


@pytest.mark.parametrize("clients", [3, 20])
def test_torch_computes_the_same_moments(clients: int) -> None:
    values = matrix(clients, 3_000)
    here, there = column_moments(values), column_moments(values, "cpu:0")
    for name in ("mean", "deviation", "cv", "skewness", "kurtosis", "constant"):
        # the last digits of sums in another order; of cancelled third moments they are absolute
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-12, atol=1e-13, err_msg=name)


def truth(values: np.ndarray) -> tuple[np.ndarray, ...]:
    """The definitions, in the widest floats there are."""
    wide = values.astype(np.longdouble)
    about = wide - wide.mean(0)
    second = (about**2).mean(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return wide.mean(0), np.sqrt(second), (about**3).mean(0) / second**1.5, (about**4).mean(0) / second**2 - 3


def test_offsets_far_larger_than_the_differences_cancel_nothing() -> None:
    draw = np.random.default_rng(0)
    values = (1e3 + 1e-3 * draw.exponential(size=(12, 500))).astype(np.float32)
    found = column_moments(values)
    for name, expected in zip(("mean", "deviation", "skewness", "kurtosis"), truth(values), strict=True):
        there = ~found.constant
        np.testing.assert_allclose(getattr(found, name)[there], expected[there].astype(float), rtol=1e-6, atol=1e-9)


FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 1e3, 1e-30, -1e30]),
    st.floats(-1e3, 1e3, width=32),
    st.floats(1e3, float(np.float32(1e3 + 1e-3)), width=32),
)


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 6)).flatmap(
        lambda shape: arrays.arrays(np.float32, shape, elements=FLOATS)
    )
)
def test_any_small_matrix_has_the_moments_of_the_definition(values: np.ndarray) -> None:
    found = column_moments(values)
    mean, deviation, skewness, kurtosis = truth(values)
    same = (values == values[0]).all(0)
    assert (found.constant == same).all()
    assert (found.deviation[same] == 0).all()
    greatest = np.abs(values).max(0).astype(float)
    np.testing.assert_allclose(found.mean, mean.astype(float), rtol=1e-12, atol=1e-14 * greatest.max())
    # where rounding of the mean to float64 is not lost in the deviations
    sure = ~same & (deviation > 1e-8 * greatest)
    for name, expected in (("deviation", deviation), ("skewness", skewness), ("kurtosis", kurtosis)):
        if name == "deviation" or len(values) >= 3:
            np.testing.assert_allclose(getattr(found, name)[sure], expected[sure].astype(float), rtol=1e-6, atol=1e-7)
        else:
            assert np.isnan(getattr(found, name)).all()
    assert (np.isnan(found.cv) == (same | (found.mean == 0))).all()


def test_one_last_bit_is_a_difference_and_rounding_of_the_mean_is_none() -> None:
    values = np.full((7, 2), 0.1)
    assert values[:, 0].sum() / 7 != 0.1
    values[6, 1] = np.nextafter(0.1, 1)
    found = column_moments(values)
    assert found.constant.tolist() == [True, False]
    assert found.deviation[0] == 0
    assert found.deviation[1] > 0


def test_what_is_not_finite_stays_in_its_column() -> None:
    values = matrix(8, 30)
    values[2, 3], values[0, 4], values[:, 6] = np.nan, np.inf, np.inf
    found, without = column_moments(values), column_moments(np.delete(values, [3, 4, 6], axis=1))
    for name in ("mean", "deviation", "skewness", "kurtosis"):
        assert not np.isfinite(getattr(found, name)[[3, 4, 6]]).any() or name == "mean"
        np.testing.assert_array_equal(np.delete(getattr(found, name), [3, 4, 6]), getattr(without, name))
    assert not found.constant[[3, 4, 6]].any()


# --- the test of skewness ---


@pytest.mark.parametrize("clients", [8, 10, 20, 137])
def test_p_values_are_scipys(clients: int) -> None:
    values = matrix(clients, 5_000, dtype=np.float64)[:, 12:]
    found = skewness_p_values(stats.skew(values), clients)
    np.testing.assert_allclose(found, stats.skewtest(values).pvalue, rtol=1e-6, atol=0)
    assert np.isnan(skewness_p_values(np.array([np.nan]), clients)).all()
    assert skewness_p_values(np.array([critical_skewness(0.03, clients)]), clients)[0] == pytest.approx(0.03, rel=1e-9)


def test_the_smallest_p_value_of_few_clients_is_what_the_documentation_says() -> None:
    for clients, least in ((8, 3.5e-4), (10, 7.0e-5), (20, 5.2e-8)):
        spike = stats.skew(np.r_[1.0, np.zeros(clients - 1)])
        assert skewness_p_values(np.array([spike]), clients)[0] == pytest.approx(least, rel=0.02)


@given(st.lists(st.floats(0, 1), max_size=30), st.sampled_from([0.01, 0.05, 0.3, 0.9]))
def test_rejections_are_scipys_also_without_the_p_values_above_the_rate(p: list[float], fdr: float) -> None:
    values = np.array(p)
    expected = int((stats.false_discovery_control(values) <= fdr).sum()) if p else 0
    sure = not p or np.abs(stats.false_discovery_control(values) - fdr).min() > 1e-12  # both round
    if sure:
        assert count_rejections(values, len(p), fdr) == expected
        assert count_rejections(values[values <= fdr], len(p), fdr) == expected


# In 400,000 parameters of independent normal values. The binomial error is 3.4e-4: the approximation is off at 8.
@pytest.mark.parametrize(("clients", "share"), [(8, 0.0537), (10, 0.0523), (20, 0.0503)])
def test_how_often_a_true_hypothesis_is_rejected(clients: int, share: float) -> None:
    draw = np.random.default_rng(clients)
    p = skewness_p_values(column_moments(draw.standard_normal((clients, 400_000))).skewness, clients)
    assert (p <= 0.05).mean() == pytest.approx(share, abs=4 * 3.4e-4)


@pytest.mark.parametrize("clients", [pytest.param(10, marks=pytest.mark.slow), 20])
def test_the_false_discovery_rate_holds_where_every_hypothesis_is_true(tmp_path: Path, clients: int) -> None:
    """Any rejection is then false, so it is the share of experiments with one: of 40 at the stated level of 0.05 there
    are more than 6 with probability 0.3 %. Measured over 600: none of 10 clients and one of 20, because the
    approximation's tail is too long."""
    found = 0
    for seed in range(40):
        values = np.random.default_rng(seed).standard_normal((clients, 20_000)).astype(np.float32)
        found += disperse_round(recorded(tmp_path, values, flat(20_000)), run="toy").whole.rejected > 0
    assert found <= 6


@pytest.mark.parametrize("clients", [pytest.param(50, marks=pytest.mark.slow), 100])
def test_the_rate_is_exceeded_a_little_with_many_clients(clients: int) -> None:
    """Of 2,000 parameters and 400 experiments: 5.9 % and 6.8 % were measured over many more, because D'Agostino's
    approximation is short in its tail, and 400 experiments scatter by 1.3 %: 11 % is beyond three deviations of both.
    """
    found = 0
    for seed in range(400):
        skewness = column_moments(np.random.default_rng(seed).standard_normal((clients, 2_000))).skewness
        found += count_rejections(skewness_p_values(skewness, clients), 2_000, 0.05) > 0
    assert 0.02 <= found / 400 <= 0.11


@pytest.mark.parametrize("clients", [10, 20])
def test_the_share_of_false_rejections_is_below_the_rate_among_true_ones(clients: int) -> None:
    """Half of 20,000 parameters are exponential. BH holds 0.05 times the share of true hypotheses, 0.025; one
    experiment's share scatters by some 0.003 of hundreds of rejections, so the mean of 10 by less than 0.002."""
    shares = []
    for seed in range(10):
        draw = np.random.default_rng(seed)
        values = np.concatenate(
            [draw.standard_normal((clients, 10_000)), draw.exponential(size=(clients, 10_000))], axis=1
        )
        p = skewness_p_values(column_moments(values).skewness, clients)
        rejected = np.argsort(p, kind="stable")[: count_rejections(p, len(p), 0.05)]
        assert len(rejected) > 300
        shares.append((rejected < 10_000).mean())
    assert np.mean(shares) <= 0.025 + 0.002


def test_exponential_parameters_are_found(tmp_path: Path) -> None:
    """Half the layer: the power of the test grows with the clients. Of 8 none can be found: their smallest p-value is
    3.5e-4, and so many would have to share it that 3.5e-4 <= 0.05 i / m."""
    powers = []
    for clients in (8, 10, 20, 60):
        draw = np.random.default_rng(1)
        values = draw.standard_normal((clients, 4_000))
        values[:, ::2] = draw.exponential(size=(clients, 2_000))
        whole = disperse_round(recorded(tmp_path, values.astype(np.float32), flat(4_000)), run="toy").whole
        powers.append(whole.rejected / 2_000)
    assert powers == pytest.approx([0.0, 0.07, 0.5, 1.02], abs=0.04)  # of 60 all, and some false ones


# --- a round ---


def by_definition(values: np.ndarray, layer: str, fdr: float) -> dict[str, Any]:
    """A layer's row from scipy on the whole matrix [C, M]."""
    exact, clients = values.astype(np.float64), len(values)
    constant = (values == values[0]).all(0)
    zero = ~constant & (exact.mean(0) == 0)
    cv = np.abs(stats.variation(exact[:, ~constant & ~zero]))
    skewness, kurtosis = stats.skew(exact[:, ~constant]), stats.kurtosis(exact[:, ~constant])
    rejected = 0
    if clients >= 8 and (~constant).any():
        p = stats.skewtest(exact[:, ~constant]).pvalue
        rejected = int((stats.false_discovery_control(p) <= fdr).sum())
    return {
        **{"layer": layer, "parameters": values.shape[1], "constant": int(constant.sum())},
        **{"zero_mean": int(zero.sum()), "nonfinite": 0, "mean_cv": float(cv.mean()), "median_cv": np.median(cv)},
        "tested": int((~constant).sum()) if clients >= 8 else 0,
        "rejected": rejected,
        "skew_mean_abs": float(np.abs(skewness).mean()) if clients >= 3 else None,
        "kurtosis_mean": float(kurtosis.mean()) if clients >= 3 else None,
    }


def near(row: LayerDispersion, expected: dict[str, Any], rel: float = 1e-6) -> None:
    for name, value in expected.items():
        found = getattr(row, name)
        assert found == (pytest.approx(value, rel=rel) if isinstance(value, float) else value), (row.layer, name)


@pytest.mark.parametrize("compression", ["none", "delta"])
@pytest.mark.parametrize("clients", [2, 5, 8, 21])
def test_every_layer_and_the_model_have_the_numbers_of_the_whole_matrix(
    tmp_path: Path, clients: int, compression: str
) -> None:
    values = matrix(clients)
    round_ = recorded(tmp_path, values, compression=compression)
    made = disperse_round(round_, run="toy", fdr=0.2, numbers=40)
    assert (made.run, made.round, made.clients) == ("toy", 7, clients)
    assert [row.layer for row in made.rows] == ["fc.weight", "fc.bias", "empty", "head.weight", WHOLE]
    diagnosis = {layer.name: layer for layer in synergy(Weights(LAYOUT, values, {})).layers}
    high = 0
    for row in (made.layers[0], made.layers[1], made.layers[3]):
        near(row, by_definition(values[:, LAYOUT.slices[row.layer]], row.layer, 0.2))
        assert row.high_share == diagnosis[row.layer].high_count / row.parameters
        high += diagnosis[row.layer].high_count
    empty = made.layers[2]
    assert {name for name, value in asdict(empty).items() if value is None} == {
        "mean_cv", "median_cv", "high_share", "skew_mean_abs", "kurtosis_mean"
    }  # fmt: skip
    assert (empty.parameters, empty.tested, empty.skew_rejected_share) == (0, 0, None)
    near(made.whole, by_definition(values, WHOLE, 0.2))
    assert made.whole.high_share == high / LAYOUT.size
    if clients == 21:
        assert 0 < made.whole.rejected < made.whole.tested
        assert made.whole.rejected != sum(row.rejected for row in made.layers)  # one step over the model, not a sum


@pytest.mark.parametrize("numbers", [1, 64, 1000])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_size_of_blocks_and_the_workers_do_not_matter(tmp_path: Path, numbers: int, workers: int) -> None:
    round_ = recorded(tmp_path, matrix(10))
    one, other = (
        disperse_round(round_, run="toy"),
        disperse_round(round_, run="toy", numbers=numbers, compute=Compute(workers=workers)),
    )
    for row, same in zip(one.rows, other.rows, strict=True):
        near(same, asdict(row), rel=1e-12)


def test_clients_that_diverged_are_counted_and_left_out(tmp_path: Path) -> None:
    values = matrix(9)
    values[3, 20], values[4, 21], values[:, 22] = np.nan, np.inf, -np.inf
    made = disperse_round(recorded(tmp_path, values), run="toy")
    row = made.layers[0]
    assert (row.nonfinite, row.constant, row.high_share, made.whole.high_share) == (3, 2, None, None)
    rest = by_definition(np.delete(values[:, :360], [20, 21, 22], axis=1), "fc.weight", 0.05)
    near(row, {**rest, "parameters": 360, "nonfinite": 3})
    assert "3 NaN or infinite in some client" in made.summary(0.05)
    values[3] = np.nan
    made = disperse_round(recorded(tmp_path, values), run="toy")
    assert (made.whole.nonfinite, made.whole.median_cv, made.whole.skew_rejected_share) == (LAYOUT.size, None, None)
    assert made.summary(0.05).endswith("; no test of skewness, because no parameter can be tested")


def test_one_client_has_no_dispersion(tmp_path: Path) -> None:
    round_ = recorded(tmp_path, matrix(8)[:1])
    for measure in (disperse_round, lambda round_, run: map_layer(round_, "fc.weight", run=run)):
        with pytest.raises(FedscopeError, match=r"runs/toy@7 has 1 client, so there is no dispersion; ask for rounds"):
            measure(round_, run="toy")


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    round_ = recorded(tmp_path, matrix(9))
    with h5py.File(round_.path, "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        del file["clients/head.weight"]
        file["clients"].create_dataset("head.weight", data=np.zeros((9, 16), np.float32))
    with pytest.raises(FedscopeError, match=r"clients/head\.weight has shape \(9, 16\), but .* say \(9, 17\); the"):
        disperse_round(round_, run="toy")


@pytest.mark.parametrize("fdr", [0.0, 1.0, -0.1, 5.0, float("nan")])
def test_rates_out_of_range_are_refused(tmp_path: Path, fdr: float) -> None:
    with pytest.raises(FedscopeError, match=r"^fdr = .* is out of range: give one between 0 and 1, such as 0.05$"):
        disperse_round(recorded(tmp_path, matrix(8)), run="toy", fdr=fdr)


def test_what_few_clients_cannot_say_is_said(tmp_path: Path) -> None:
    said = {n: disperse_round(recorded(tmp_path, matrix(n)), run="toy").summary(0.05) for n in (2, 7, 8)}
    assert said[2].endswith("no skewness, which needs 3 clients, and no test of it, which needs 8")
    assert said[7].endswith("; no test of skewness, which needs 8 clients")
    assert "; skewness is rejected for" in said[8]
    assert "(2 constant, 1 with a mean of 0, without a cv)" in said[8]


# --- single layers ---


def test_a_map_counts_every_parameter_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.decomposition.dispersion import skew_maps as maps

    values = matrix(10, 5_000)
    round_ = recorded(tmp_path, values, flat(5_000))
    made = map_layer(round_, "w", run="toy")
    exact = values.astype(np.float64)
    fine = ~(values == values[0]).all(0)
    skewness = stats.skew(exact[:, fine])
    assert (made.run, made.round, made.layer, made.clients) == ("toy", 7, "w", 10)
    assert made.histogram.counts.tolist() == np.histogram(skewness, made.histogram.edges)[0].tolist()
    assert made.histogram.counts.sum() == made.cells.count.sum() == fine.sum()
    assert made.histogram.edges[-1] == pytest.approx(8 / 3, rel=1e-6)
    assert (made.cells.count * made.cells.skewness).sum() == pytest.approx(skewness.sum(), rel=1e-9)
    # every parameter within the limits is in the cell whose centre is nearest, in steps of the grid
    mean, spread = exact[:, fine].mean(0), np.log10(exact[:, fine].std(0))
    inside = np.ones(len(mean), bool)
    for one in (mean, spread):
        low, high = np.quantile(one, [0.001, 0.999])
        inside &= (one > low) & (one < high)
    dx = (mean[inside, None] - made.cells.mean) / made.cells.width
    dy = (spread[inside, None] - np.log10(made.cells.deviation)) / made.cells.height
    nearest = np.bincount(np.argmin(dx**2 + 3 * dy**2, axis=1), minlength=len(made.cells.count))
    beyond = made.cells.count - nearest
    assert beyond.min() >= 0
    assert beyond.sum() == (~inside).sum()
    for one, centres in ((mean, made.cells.mean), (spread, np.log10(made.cells.deviation))):
        low, high = np.quantile(one, [0.001, 0.999])
        assert low - 1e-9 <= centres.min() < centres.max() <= high + 1e-9
    monkeypatch.setattr(maps, "NUMBERS", 330)
    again = map_layer(round_, "w", run="toy")
    np.testing.assert_array_equal(again.cells.count, made.cells.count)
    np.testing.assert_array_equal(again.histogram.counts, made.histogram.counts)


def test_layers_without_a_skewness_have_empty_maps(tmp_path: Path) -> None:
    values = matrix(9)
    values[:, :360] = 1.0
    round_ = recorded(tmp_path, values)
    maps = [map_layer(round_, name, run="toy") for name in ("fc.weight", "empty", "fc.bias")]
    assert [one.histogram.counts.sum() for one in maps] == [one.cells.count.sum() for one in maps] == [0, 0, 1]
    made = disperse_round(round_, run="toy")
    assert (made.layers[0].constant, made.layers[0].median_cv, made.layers[0].skew_rejected_share) == (360, None, None)
    Dispersion((made,), 0.05, tuple(maps)).save(tmp_path / "x")
    Dispersion.load(tmp_path / "x").layers_figure().canvas.draw()


def test_skewness_at_its_bound_is_in_the_histogram(tmp_path: Path) -> None:
    """Two of three clients alike but for a last digit: |skewness| is 1/√2, and rounding says more."""
    one = np.random.default_rng(0).normal(size=(1, 2_000))
    values = np.repeat(one, 3, axis=0)
    values[0] = np.nextafter(one[0], np.inf)
    layout = Layout((TensorEntry("w", (2_000,), "float64", "parameter"),))
    made = map_layer(recorded(tmp_path, values, layout), "w", run="toy")
    assert made.histogram.counts.sum() == 2_000 == made.cells.count.sum()


def test_a_map_needs_three_clients_and_a_layer_that_exists(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"runs/toy@7 has 2 clients, and skewness begins at three"):
        map_layer(recorded(tmp_path, matrix(2)), "fc.weight", run="toy")
    with pytest.raises(FedscopeError, match=r"no parameter 'fc\.weigt'; did you mean"):
        map_layer(recorded(tmp_path, matrix(9)), "fc.weigt", run="toy")


def test_limits_come_from_parameters_evenly_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.decomposition.dispersion import skew_maps as maps

    round_ = recorded(tmp_path, matrix(10, 5_000), flat(5_000))
    monkeypatch.setattr(maps, "NUMBERS", 170)
    monkeypatch.setattr(maps, "SAMPLE", 700)  # every 8th
    assert np.concatenate([one.mean for one in maps._moments(round_, "w", 8)]).tolist() == (
        column_moments(matrix(10, 5_000)[:, ::8]).mean.tolist()
    )
    assert map_layer(round_, "w", run="toy").cells.count.sum() == 4_998


def test_the_expected_histogram_is_that_of_normal_values() -> None:
    from fedscope.decomposition.dispersion.skew_maps import expected_shares, skew_edges

    # of three values skewness has a distribution in closed form: g = sin(3 φ)/√2 with φ uniform
    edges = skew_edges(3)
    inner = np.clip(edges * np.sqrt(2), -1, 1)
    expected = np.diff(np.arcsin(inner)) / np.pi
    # 500,000 values a bin, folded: 4 standard errors
    assert np.abs(expected_shares(edges, 3) - expected).max() < 4 * np.sqrt(expected.max() / 500_000)
    wide = skew_edges(20)
    shares, middle = expected_shares(wide, 20), (wide[1:] + wide[:-1]) / 2
    assert shares.sum() == pytest.approx(1.0)
    assert (shares * middle**2).sum() == pytest.approx(6 * 18 / (21 * 23), rel=0.03)  # the variance of g


def test_the_most_skewed_layer_is_one_that_can_be_drawn() -> None:
    def layer(name: str, size: int, rejected: int, skewness: float, tested: int | None = None) -> LayerDispersion:
        count = size if tested is None else tested
        return LayerDispersion(name, size, 0, 0, 0, 1.0, 0.1, skewness, count, rejected, 0.0, 1.0)

    def most(*layers: LayerDispersion) -> str | None:
        return RoundDispersion("r", 1, 9, layers, layers[0]).most_skewed()

    a, b, bias = layer("a", 200, 10, 0.9), layer("b", 100, 20, 0.5), layer("bias", 10, 10, 1.0)
    assert most(a, b, bias) == "b"
    assert most(replace(a, rejected=0), replace(b, rejected=0), bias) == "a"
    assert most(bias) == "bias"
    assert most(replace(a, rejected=0, skew_mean_abs=None)) is None


# --- the result ---


def test_a_result_survives_its_files(tmp_path: Path) -> None:
    rounds, maps = [], []
    for number, clients in enumerate((9, 2, 5)):
        values = matrix(clients, seed=number)
        if number == 2:
            values[0, 3] = np.nan
        round_ = recorded(tmp_path, values)
        rounds.append(replace(disperse_round(round_, run="toy"), round=number + 1))
        if clients > 2:
            maps += [replace(map_layer(round_, name, run="toy"), round=number + 1) for name in ("fc.weight", "fc.bias")]
    result = Dispersion(tuple(rounds), 0.05, tuple(maps), {"seed": 3})
    paths = result.save(tmp_path / "a.b" / "x.v2")
    assert [path.name for path in paths] == [
        f"x.v2.{kind}" for kind in ("dispersion.csv", "layers.skewness.csv", "layers.map.csv", "dispersion.json")
    ]
    head, first = paths[0].read_text().splitlines()[:2]
    assert head == (
        "run,round,layer,parameters,constant,mean_cv,high_share,skew_mean_abs,skew_rejected_share,kurtosis_mean,"
        "median_cv"
    )
    assert first.startswith("toy,1,fc.weight,360,2,")
    read = Dispersion.load(tmp_path / "a.b" / "x.v2")
    assert (read.rounds, read.fdr, read.attrs) == (result.rounds, 0.05, {"seed": 3})
    assert "nan" not in paths[0].read_text()
    for one, other in zip(result.maps, read.maps, strict=True):
        assert (one.run, one.round, one.layer, one.clients) == (other.run, other.round, other.layer, other.clients)
        for part in ("histogram", "cells"):
            for name, value in vars(getattr(one, part)).items():
                np.testing.assert_array_equal(value, getattr(getattr(other, part), name))
    for one in rounds:
        assert RoundDispersion.from_json(one.to_json()) == one


def test_incomplete_results_are_refused(tmp_path: Path) -> None:
    made = disperse_round(recorded(tmp_path, matrix(8)), run="toy")
    base = tmp_path / "x"
    with pytest.raises(FedscopeError, match=r"x\.dispersion\.json does not exist: a result of disperse is"):
        Dispersion.load(base)
    Dispersion((made,), 0.05).save(base)
    table = tmp_path / "x.dispersion.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:3]) + "\n")
    with pytest.raises(
        FedscopeError, match=r"x\.dispersion\.csv has 2 rows, and x\.dispersion\.json says that it had 5"
    ):
        Dispersion.load(base)
    with pytest.raises(FedscopeError, match=r"round 7 of toy is there twice"):
        Dispersion((made, made), 0.05)
    other = replace(made, run="other", layers=made.layers[:2])
    with pytest.raises(FedscopeError, match=r"toy and other have different layers; ask for one at a time"):
        Dispersion((made, other), 0.05)


@pytest.mark.parametrize("width", [2.0, pytest.param(3.5, marks=pytest.mark.slow), 7.0])
def test_figures_hold_every_word(tmp_path: Path, width: float) -> None:
    maps, rounds = [], []
    for run, clients in (("fma", 9), ("a-run-with-a-long-name", 10)):
        round_ = recorded(tmp_path, matrix(clients))
        rounds += [replace(disperse_round(round_, run=run), round=number) for number in (1, 20, 300)]
        maps.append(map_layer(round_, "fc.weight", run=run))
    result = Dispersion(tuple(rounds), 0.05, tuple(maps))
    for figure in (result.figure(width, "title"), result.layers_figure(width)):
        assert_apart(assert_inside(figure, width))


def test_a_heat_map_shows_the_columns_of_the_table(tmp_path: Path) -> None:
    made = [replace(disperse_round(recorded(tmp_path, matrix(9, seed=n)), run="toy"), round=n) for n in (1, 2)]
    upper, lower = [axes.images[0].get_array() for axes in Dispersion(tuple(made), 0.05).figure().axes if axes.images]
    for j, one in enumerate(made):
        cv = [row.median_cv for row in one.rows]
        share = [row.skew_rejected_share for row in one.rows]
        for i in range(5):
            assert upper[i, j] is np.ma.masked if cv[i] is None else upper[i, j] == cv[i]
            assert lower[i, j] is np.ma.masked if share[i] is None else lower[i, j] == pytest.approx(100 * share[i])
    few = Dispersion((disperse_round(recorded(tmp_path, matrix(5)), run="toy"),), 0.05)
    assert "mean |skewness|" in [text.get_text() for text in few.figure().texts]
    pair = Dispersion((disperse_round(recorded(tmp_path, matrix(2)), run="toy"),), 0.05)
    assert len([axes for axes in pair.figure().axes if axes.images]) == 1
    with pytest.raises(FedscopeError, match=r"no single layers to draw: skewness needs three clients or more"):
        pair.layers_figure()
    with pytest.raises(FedscopeError, match=r"no round to draw"):
        Dispersion((), 0.05).figure()


def test_more_runs_than_have_room_are_drawn_wider_unless_a_width_was_given(tmp_path: Path) -> None:
    round_ = disperse_round(recorded(tmp_path, matrix(5)), run="toy")
    # of names that are cut, a wider figure writes more
    round_ = replace(
        round_, layers=tuple(replace(row, layer=f"encoder.layers.block.fc.{row.layer}") for row in round_.layers)
    )
    result = Dispersion(tuple(replace(round_, run=f"toy-{i} of a long name") for i in range(20)), 0.05)
    with pytest.raises(FedscopeError) as error:
        result.figure(3.5)
    found = re.fullmatch(
        r"20 columns have no room side by side in a figure 3\.5 inches wide; give (?:--width |width=)([\d.]+), "
        "or draw fewer",
        str(error.value),
    )
    assert found
    assert_inside(result.figure(float(found[1])), float(found[1]))
    with pytest.warns(FedscopeWarning, match=rf"so it is drawn {found[1]} wide; give width= for another one$"):
        assert_inside(result.figure(), float(found[1]))
    few = Dispersion(result.rounds[:8], 0.05).figure()
    said = [text.get_text() for text in few.texts]
    assert [*"abcdefgh"] == [word for word in said if len(word) == 1], "names of which too few letters would be left"
    assert "b:\N{NO-BREAK SPACE}toy-1 of a long name; c:\N{NO-BREAK SPACE}toy-2 " in " ".join(said)


def test_rounds_that_were_left_out_are_words_whatever_the_runs_name(tmp_path: Path) -> None:
    made = disperse_round(recorded(tmp_path, matrix(5)), run="toy")
    note = "lr$_$x: round 1 has one client"
    figure = Dispersion((made,), 0.05, attrs={"left_out": [note]}).figure()
    figure.draw_without_rendering()
    assert note in " ".join(text.get_text() for text in figure.texts).replace("\\$", "$")
