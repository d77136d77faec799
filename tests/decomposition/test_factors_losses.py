"""Cross-entropy and 0-1 loss of clients in bias and variance: literal loops, identities, literal leave-one-out."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_models import Padded, Table, as_padded

from fedscope.checkpoints import FedscopeError, Layout, Weights, stack
from fedscope.decomposition import (
    CohortDraws,
    Decomposition,
    RoundFactors,
    RunFactors,
    decompose_round,
)
from fedscope.decomposition.factors import sample_losses
from fedscope.decomposition.factors.cross_entropy import closure_error, decompose_loss
from fedscope.decomposition.factors.figure_panels import group_factors
from fedscope.decomposition.factors.rows import FACTORS_OF, MEASURED_OF
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.training.curves.run_curve import ErrorCurve

LOSSES = ("cross-entropy", "zero-one")
BOTH = pytest.mark.parametrize("loss", LOSSES)


def cohort_of(tables: np.ndarray, p: np.ndarray, y, source: str = "", independent: bool = True):
    """(module, samples, cohort) of clients with the logits `tables` [R, K, n, C] and labels y [n]."""
    draws, clients, n, classes = tables.shape
    module = Table(n, classes)
    rows = np.asarray(tables, np.float32).reshape(draws, clients, n * classes)
    cohort = CohortDraws(
        round=7,
        client_ids=np.arange(clients) * 3,
        p=np.asarray(p, np.float64),
        draws=[Weights(Layout.of(module), table, {}) for table in rows],
        client_samples=np.arange(clients) + 5,
        source=source or f"local:{draws}",
        independent=independent,
    )
    x = torch.arange(n, dtype=torch.float32)[:, None]
    return module, Samples(x, torch.as_tensor(y), classes, "toy", "train", np.arange(n)), cohort


def case(seed: int, clients: int, draws: int, n: int, classes: int, *, scale: float = 2.0, shared: float = 1.0):
    """A random cohort: clients share `shared` of their logits over draws, so that votes neither all agree nor not."""
    rng = np.random.default_rng(seed)
    common = rng.normal(scale=scale, size=(1, clients, n, classes)) * shared
    tables = common + rng.normal(scale=scale, size=(draws, clients, n, classes))
    p = rng.dirichlet(np.full(clients, 0.7))
    return cohort_of(tables, p / p.sum(), rng.integers(0, classes, n))


def decompose(module, samples, cohort, loss, **options) -> RoundFactors:
    defaults = {"globals_": None, "averaged": None, "population": True, "compute": Compute(workers=1)}
    return decompose_loss(module, samples, cohort, loss=loss, **(defaults | options))


def values(result: RoundFactors) -> dict[str, float | None]:
    return {row.factor: row.value for row in result.rows if row.estimate != "unbiased"}


def log_probabilities(logits) -> list[float]:
    top = max(logits)
    total = top + log(sum(exp(value - top) for value in logits))
    return [value - total for value in logits]


def loss_of(loss: str, logits, y: int) -> float:
    if loss == "cross-entropy":
        return -log_probabilities(logits)[y]
    return float(max(range(len(logits)), key=lambda c: (logits[c], -c)) != y)


def factors_of(loss: str, p, models, y: int, classes: int) -> dict[str, float]:
    """The factors of one sample by loops; `models` holds the logits of client k in draw r, models[k][r]."""
    voters = [(p[k] / len(draws), k, f) for k, draws in enumerate(models) for f in draws]
    if loss == "cross-entropy":
        logs = [(share, k, log_probabilities(f)) for share, k, f in voters]
        centre = log_probabilities([sum(share * f[c] for share, _, f in logs) for c in range(classes)])
        kl = [(share, k, sum(exp(a) * (a - b) for a, b in zip(centre, f, strict=True))) for share, k, f in logs]
        parts = {"bias": -centre[y], "variance": sum(share * value for share, _, value in kl)}
    else:
        votes = [(share, k, max(range(classes), key=lambda c: (f[c], -c))) for share, k, f in voters]
        shares = [sum(share for share, _, vote in votes if vote == c) for c in range(classes)]
        main = next(c for c in range(classes) if shares[c] > max(shares) - 1e-9)
        kl = [(share, k, float(vote != main)) for share, k, vote in votes]
        right = sum(share for share, _, vote in votes if vote != main) if main == y else 0.0
        wrong = sum(share for share, _, vote in votes if vote == y) if main != y else 0.0
        parts = {
            "bias": float(main != y),
            "variance": right - wrong,
            "variance_where_right": right,
            "variance_where_wrong": wrong,
        }
    for client, draws in enumerate(models):
        parts[f"client {client}"] = sum(value for _, k, value in kl if k == client) / len(draws)
    return parts


def from_definitions(loss: str, samples, cohort, globals_, averaged, skip: int | None = None) -> dict[str, np.ndarray]:
    """Every row as its values [n] over samples, by loops over samples, clients and draws; without the draw `skip`."""
    n, classes, clients, p = len(samples.y), samples.classes, len(cohort.p), cohort.p
    draws = [draw.parameters for r, draw in enumerate(cohort.draws) if r != skip]
    tables = [draw.astype(np.float64).reshape(clients, n, classes) for draw in draws]
    averages = [np.tensordot(p, draw.astype(np.float64), 1).astype(np.float32).reshape(n, classes) for draw in draws]
    rows: dict[str, list[float]] = {}
    for j, y in enumerate(samples.y.tolist()):
        models = [[table[k, j].tolist() for table in tables] for k in range(clients)]
        one = factors_of(loss, p, models, y, classes)
        one["client_loss"] = sum(p[k] * np.mean([loss_of(loss, f, y) for f in models[k]]) for k in range(clients))
        fma = [loss_of(loss, mean[j].astype(np.float64).tolist(), y) for mean in averages]
        one |= {"fma_loss": float(np.mean(fma)), "remainder": float(np.mean(fma)) - one["client_loss"]}
        for name, w in (("global_loss", globals_), ("averaged_loss", averaged)):
            one[name] = loss_of(loss, w.parameters.reshape(n, classes)[j].astype(np.float64).tolist(), y)
        one["server_step"] = one["global_loss"] - fma[0]
        for name, value in one.items():
            rows.setdefault(name, []).append(value)
    return {name: np.array(column) for name, column in rows.items()}


@BOTH
@pytest.mark.parametrize(("clients", "draws"), [(3, 2), (5, 4), (1, 3)])
def test_rows_are_what_their_definitions_say(loss, clients, draws):
    module, samples, cohort = case(clients, clients, draws, 23, 4)
    models = {"globals_": cohort.draws[0].row(0), "averaged": cohort.draws[1].row(clients - 1)}
    result = decompose(module, samples, cohort, loss, chunk=16, **models)
    expected = from_definitions(loss, samples, cohort, *models.values())
    got = values(result)
    for factor in (*FACTORS_OF[loss], *MEASURED_OF[loss]):
        if factor not in ("delta_max", "delta_mean", "closure_error"):
            assert got[factor] == pytest.approx(expected[factor].mean(), rel=1e-10, abs=1e-13), factor
    squared = decompose_round(
        module,
        samples,
        cohort,
        None,
        globals_=None,
        averaged=None,
        population=True,
        compute=Compute(workers=1),
        chunk=16,
    )
    for factor in ("delta_max", "delta_mean"):
        assert got[factor] == squared.row(factor).value
    assert got["closure_error"] <= 1e-12
    for k, (client, theirs) in enumerate(zip(result.clients, squared.clients, strict=True)):
        assert client.variance == pytest.approx(expected[f"client {k}"].mean(), rel=1e-10, abs=1e-13)
        assert client.train_bias is client.heter_bias is None
        assert replace(client, variance=0.0) == replace(theirs, variance=0.0, train_bias=None, heter_bias=None)
    order = [(factor, kind) for kind in ("plugin", "unbiased") for factor in FACTORS_OF[loss]]
    order += [(factor, "measured") for factor in MEASURED_OF[loss]]
    assert [(row.factor, row.estimate) for row in result.rows] == order
    assert (result.loss, result.round, result.draws, result.count) == (loss, 7, f"local:{draws}", draws)
    assert (result.samples, result.classes, result.split, result.population) == (23, 4, False, True)


@given(
    seed=st.integers(0, 2**32 - 1),
    clients=st.integers(1, 6),
    draws=st.integers(2, 4),
    n=st.integers(1, 40),
    classes=st.integers(2, 5),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e4]),
    loss=st.sampled_from(LOSSES),
)
def test_bias_and_variance_add_up_to_what_is_measured(seed, clients, draws, n, classes, scale, loss):
    module, samples, cohort = case(seed, clients, draws, n, classes, scale=scale)
    result = decompose(module, samples, cohort, loss, chunk=16)
    got = values(result)
    assert 0 <= got["closure_error"] <= 1e-6
    # By another way: the package's evaluator, in single precision for the cross-entropy.
    which = 0 if loss == "cross-entropy" else 1
    evaluator = Evaluator(module, samples, compute=Compute(workers=1))
    clients_loss = np.mean([cohort.p @ evaluator.models(draw)[which] for draw in cohort.draws])
    assert got["bias"] + got["variance"] == pytest.approx(clients_loss, rel=1e-5, abs=1e-6)
    assert got["fma_loss"] == pytest.approx(got["client_loss"] + got["remainder"], rel=1e-9, abs=1e-12)
    assert got["bias"] >= 0
    if loss == "cross-entropy":
        assert got["variance"] >= -1e-9 * max(1.0, scale)
        weighted = sum(row.weight * row.variance for row in result.clients)
        assert got["variance"] == pytest.approx(weighted, rel=1e-9, abs=1e-12)
    else:
        net = got["variance_where_right"] - got["variance_where_wrong"]
        assert got["variance"] == pytest.approx(net, abs=1e-12)


def test_the_variance_of_cross_entropy_is_minus_log_z_and_f_hat_is_normalised():
    """Two certain clients with p = 1/2 of two classes: f̂ is uniform, so the bias is ln 2; each is certain by z, so that
    −log Z = z/2 − ln 2 up to e^−z."""
    z = 20.0
    module, samples, cohort = cohort_of(np.tile([[[z, 0.0]], [[0.0, z]]], (2, 1, 1, 1)), [0.5, 0.5], [0])
    got = values(decompose(module, samples, cohort, "cross-entropy"))
    assert got["bias"] == pytest.approx(log(2), abs=1e-12)
    assert got["variance"] == pytest.approx(z / 2 - log(2) + log(1 + exp(-z)), rel=1e-12)
    assert got["client_loss"] == pytest.approx(z / 2 + log(1 + exp(-z)), rel=1e-12)
    assert got["fma_loss"] == pytest.approx(log(2))  # logits are linear in this model's weights
    assert got["remainder"] == pytest.approx(-got["variance"], rel=1e-12)


@pytest.mark.parametrize("certain", [1000.0, 2.0**100])
def test_a_client_that_is_certain_gives_no_nan(certain):
    """exp(−1000) is 0 in double precision, so that only log-probabilities tell how wrong the client is."""
    tables = np.zeros((3, 2, 2, 3))
    tables[:, 0, :, 0] = certain
    module, samples, cohort = cohort_of(tables, [0.25, 0.75], [0, 1])
    got = values(decompose(module, samples, cohort, "cross-entropy"))
    assert got["client_loss"] == pytest.approx((0.25 * certain + 0.75 * 2 * log(3)) / 2, rel=1e-12)
    # f̂ is certain too: right of the first sample, wrong of the second by a quarter of the client's certainty.
    assert got["bias"] == pytest.approx(0.25 * certain / 2, rel=1e-12)
    # Its divergence from the client that knows nothing is ln 3, to the certain one 0, and the mean is −log Z.
    assert got["variance"] == pytest.approx(0.75 * log(3), rel=1e-12)
    assert got["closure_error"] <= 1e-12
    assert all(row.stderr_draws == pytest.approx(0.0) for row in decompose(module, samples, cohort, LOSSES[0]).rows[:2])


def test_everybody_certain_and_right_loses_nothing():
    module, samples, cohort = cohort_of(np.tile([1000.0, 0.0], (3, 2, 5, 1)), [0.3, 0.7], [0] * 5)
    for loss in LOSSES:
        got = values(decompose(module, samples, cohort, loss))
        assert [got[name] for name in ("bias", "variance", "client_loss", "fma_loss", "closure_error")] == [0.0] * 5


def test_closure_is_relative_to_the_greater_loss_and_sees_each_sum():
    fits = {"bias": 0.25, "variance": 0.25, "client_loss": 0.5, "remainder": -0.5, "fma_loss": 0.0}
    assert closure_error(fits) == 0.0  # and no division by a loss of 0, which an averaged model may have
    assert closure_error({**fits, "client_loss": 0.5 + 1e-3}) == pytest.approx(1e-3 / 0.501)
    assert closure_error({**fits, "fma_loss": 1e-3}) == pytest.approx(2e-3)
    assert closure_error({**fits, "remainder": -0.5 + 1e-3}) == pytest.approx(2e-3)
    assert np.isnan(closure_error({**fits, "fma_loss": np.nan}))
    # Rounding, where there is nothing to lose.
    assert closure_error(dict.fromkeys(fits, 0.0) | {"bias": 1e-17}) < 1e-6


def test_ties_of_votes_go_to_the_lowest_class_whatever_the_order_of_the_sums():
    """0.1 + 0.2 is not 0.3 in binary, but it is a tie: ten such clients vote for classes 1 and 2, none for 0."""
    votes = np.array([2, 2, 1, 1, 2, 2, 1, 1, 1, 2])
    p = np.array([0.1, 0.2, 0.3, 0.05, 0.0, 0.1, 0.05, 0.05, 0.05, 0.1])
    assert sum(p[votes == 1]) != sum(p[votes == 2])  # by rounding
    tables = np.tile(np.eye(4)[votes][:, None, :], (2, 1, 3, 1))
    module, samples, cohort = cohort_of(tables, p, [1, 2, 0])
    result = decompose(module, samples, cohort, "zero-one")
    got = values(result)
    assert got["bias"] == pytest.approx(2 / 3)  # the main prediction is 1
    assert got["variance_where_right"] == pytest.approx(0.5 / 3)
    assert got["variance_where_wrong"] == pytest.approx(0.5 / 3)
    assert [row.variance for row in result.clients] == [float(vote != 1) for vote in votes]
    # And equal outputs of one model are a prediction of the lowest class.
    module, samples, cohort = cohort_of(np.zeros((2, 2, 2, 3)), [0.5, 0.5], [0, 1])
    assert values(decompose(module, samples, cohort, "zero-one"))["client_loss"] == 0.5


@BOTH
def test_errors_over_draws_are_those_of_rounds_that_leave_one_draw_out(loss):
    draws = 4
    module, samples, cohort = case(8, 3, draws, 31, 3)
    models = {"globals_": cohort.draws[0].row(0), "averaged": cohort.draws[0].row(1)}
    result = decompose(module, samples, cohort, loss, chunk=16, **models)
    without = [from_definitions(loss, samples, cohort, *models.values(), skip=r) for r in range(draws)]
    checked = 0
    for row in result.rows:
        if row.estimate == "unbiased" or row.factor in (
            *("global_loss", "server_step", "averaged_loss", "closure_error", "delta_max", "delta_mean"),
        ):
            continue
        theta = np.array([one[row.factor].mean() for one in without])
        literal = np.sqrt((draws - 1) / draws * np.sum((theta - theta.mean()) ** 2))
        assert literal > 0
        assert row.stderr_draws == pytest.approx(literal, rel=1e-9), row
        checked += 1
    assert checked == len(FACTORS_OF[loss]) + 3
    for factor in ("global_loss", "server_step", "averaged_loss", "closure_error"):
        assert result.row(factor).stderr_draws is None
    assert result.row("delta_max").stderr_draws > 0


@pytest.mark.parametrize(
    ("loss", "least", "most"),
    [("cross-entropy", 0.6, 1.6), pytest.param("zero-one", 1.0, 2.2, marks=pytest.mark.slow)],
)
def test_errors_over_draws_are_of_the_size_of_the_deviations_of_repetitions(loss, least, most):
    """200 repetitions at R = 4: mean squared jackknife errors over variances, both known to about 10 %. Measured: 0.9
    to 1.2 for cross-entropy; 1.4 to 1.8 for bias and variance of the 0-1 loss, whose main prediction flips or stays."""
    clients, n, classes = 5, 40, 4
    rng = np.random.default_rng(0)
    mean, y = 2 * rng.normal(size=(clients, n, classes)), rng.integers(0, classes, n)
    p = np.arange(1, clients + 1) / 15
    results = []
    for _ in range(200):
        tables = mean + 0.5 * rng.normal(size=(4, clients, n, classes))
        results.append(decompose(*cohort_of(tables, p, y), loss))
    for factor, low, high in (
        ("bias", least, most),
        ("variance", least, most),
        ("client_loss", 0.6, 1.6),
        ("remainder", 0.6, 1.6),
    ):
        rows = [one.row(factor) for one in results]
        squares = np.mean([row.stderr_draws**2 for row in rows])
        assert low < squares / np.var([row.value for row in rows], ddof=1) < high, factor


@BOTH
def test_errors_over_samples_are_standard_deviations_over_root_n(loss):
    module, samples, cohort = case(9, 3, 3, 37, 4)
    models = {"globals_": cohort.draws[0].row(0), "averaged": cohort.draws[0].row(1)}
    result = decompose(module, samples, cohort, loss, chunk=16, population=False, **models)
    literal = from_definitions(loss, samples, cohort, *models.values())
    for row in result.rows:
        if row.estimate == "unbiased" or row.factor in ("delta_max", "delta_mean", "closure_error"):
            assert row.stderr_samples is None
        else:
            assert row.stderr_samples == pytest.approx(np.std(literal[row.factor]) / np.sqrt(37), rel=1e-9), row


@BOTH
def test_what_does_not_exist_is_empty(loss):
    module, samples, cohort = case(10, 3, 2, 20, 3)
    two = decompose(module, samples, cohort, loss)
    assert all(row.stderr_draws is None and row.stderr_samples is None for row in two.rows)
    assert all(
        (row.value is None) == (row.estimate == "unbiased") for row in two.rows if row.factor in FACTORS_OF[loss]
    )
    for factor in ("global_loss", "server_step", "averaged_loss"):
        assert two.row(factor).value is None
    # The estimate that there is, also of independent draws.
    assert two.row("bias").estimate == two.row("variance").estimate == "plugin"
    assert two.row("remainder").estimate == "measured"
    module, samples, cohort = case(10, 3, 3, 20, 3)
    dependent = decompose(module, samples, replace(cohort, source="rounds:3", independent=False), loss)
    assert all(row.stderr_draws is None for row in dependent.rows)
    assert values(dependent) == values(decompose(module, samples, cohort, loss))


@BOTH
def test_chunks_do_not_matter_and_progress_counts_samples(loss):
    module, samples, cohort = case(6, 3, 3, 97, 3)
    seen: list[tuple[int, int]] = []
    options = {"population": False, "globals_": cohort.draws[0].row(0)}
    some = decompose(
        module, samples, cohort, loss, chunk=40, progress=lambda done, n: seen.append((done, n)), **options
    )
    assert seen == [(40, 97), (80, 97), (97, 97)]
    whole = decompose(module, samples, cohort, loss, chunk=1000, compute=Compute(workers=2), **options)
    for a, b in zip(some.rows, whole.rows, strict=True):
        for field in ("value", "stderr_draws", "stderr_samples"):
            one, other = getattr(a, field), getattr(b, field)
            assert one == (None if other is None else pytest.approx(other, rel=1e-9, abs=1e-13)), (a, b)


def test_a_model_that_diverged_is_nan_in_nats_and_a_wrong_answer_among_votes():
    module, samples, cohort = case(11, 3, 3, 20, 3)
    cohort.draws[1].parameters[2] = np.nan
    broken = decompose(module, samples, cohort, "cross-entropy", globals_=cohort.draws[0].row(0))
    for factor in ("bias", "variance", "client_loss", "closure_error"):
        assert np.isnan(broken.row(factor).value)
    assert np.isfinite(broken.row("global_loss").value)

    votes = values(decompose(module, samples, cohort, "zero-one"))
    evaluator = Evaluator(module, samples, compute=Compute(workers=1))
    measured = np.mean([cohort.p @ evaluator.models(draw)[1] for draw in cohort.draws])
    assert votes["client_loss"] == pytest.approx(measured, rel=1e-12)
    assert votes["bias"] + votes["variance"] == pytest.approx(measured, rel=1e-12)


@BOTH
def test_a_client_of_weight_0_that_diverged_has_no_part(loss):
    """The factors are those of the cohort without it."""
    module, samples, cohort = case(11, 4, 3, 20, 3)
    p, there = np.array([0.5, 0.3, 0.0, 0.2]), [0, 1, 3]
    for draw in cohort.draws:
        draw.parameters[2] = np.nan
    rest = replace(
        cohort,
        p=p[there],
        client_ids=cohort.client_ids[there],
        client_samples=cohort.client_samples[there],
        draws=[stack([draw.row(k) for k in there]) for draw in cohort.draws],
    )
    found = values(decompose(module, samples, replace(cohort, p=p), loss))
    for factor, value in values(decompose(module, samples, rest, loss)).items():
        assert found[factor] == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)), factor


@pytest.mark.parametrize("voting", [(), (1,)])  # one draw's clients, so that leaving it out leaves nobody
def test_where_nobody_votes_there_is_no_main_prediction_and_the_bias_is_1(voting):
    """Class 0, the lowest, must not win: it is the label of some samples."""
    module, samples, cohort = case(12, 3, 3, 23, 3)
    assert 0 < int((samples.y == 0).sum()) < 23
    for r, draw in enumerate(cohort.draws):
        if r not in voting:
            draw.parameters[:] = np.nan
    result = decompose(module, samples, cohort, "zero-one")
    votes = values(result)
    assert votes["bias"] + votes["variance"] == pytest.approx(votes["client_loss"], rel=1e-12)
    if not voting:
        assert [votes[name] for name in ("bias", "variance", "client_loss", "fma_loss")] == [1.0, 0.0, 1.0, 1.0]
        assert votes["variance_where_right"] == votes["variance_where_wrong"] == 0.0
        assert [row.variance for row in result.clients] == [0.0] * 3  # they agree
    else:
        assert votes["client_loss"] > 2 / 3
        # R = 3: the jackknife over two draws that change nothing and one without which the bias is 1
        with_, without = votes["bias"], 1.0
        theta = np.array([with_, without, with_])
        expected = np.sqrt(2 / 3 * np.sum((theta - theta.mean()) ** 2))
        assert result.row("bias").stderr_draws == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract")  # infinite weights have no distance
def test_an_infinite_output_is_not_edited():
    tables = np.zeros((2, 2, 3, 3))
    tables[:, 0, 0, 2] = -inf
    module, samples, cohort = cohort_of(tables, [0.5, 0.5], [2, 2, 2])
    assert values(decompose(module, samples, cohort, "cross-entropy"))["client_loss"] == inf


def test_a_class_that_all_models_mask_changes_nothing():
    """Logits of −∞, as of a vocabulary that is filled up: log f is −∞ in the mean, too, and 0 times that is 0."""
    module, samples, cohort = case(13, 4, 3, 20, 4)
    masked = replace(cohort, draws=[as_padded(draw, module) for draw in cohort.draws])
    found = [
        decompose(module, samples, cohort, "cross-entropy", population=False),
        decompose(Padded(module), replace(samples, classes=6), masked, "cross-entropy", population=False),
    ]
    for one, other in zip(found[0].rows, found[1].rows, strict=True):
        for name in ("value", "stderr_draws", "stderr_samples"):
            expected, value = getattr(one, name), getattr(other, name)
            assert value == (None if expected is None else pytest.approx(expected, rel=1e-9, abs=1e-12)), one.factor
    assert [row.variance for row in found[1].clients] == pytest.approx([row.variance for row in found[0].clients])


def test_logits_of_classes_that_all_models_mask_are_refused():
    """By the squared loss: their error is not finite, and of probabilities it is that of 0."""
    module, samples, cohort = case(13, 4, 3, 20, 4)
    masked = replace(cohort, draws=[as_padded(draw, module) for draw in cohort.draws])
    how = {"globals_": None, "averaged": None, "population": False, "compute": Compute(workers=1)}
    with pytest.raises(FedscopeError) as refused:
        decompose_round(Padded(module), replace(samples, classes=6), masked, None, outputs="logits", **how)
    assert str(refused.value) == (
        "--outputs logits is for outputs that are finite, and on toy train all models give -inf for classes 4, 5, as "
        "where a module masks; give --outputs probabilities, which are 0 there"
    )
    found = decompose_round(Padded(module), replace(samples, classes=6), masked, None, **how)
    assert found.row("variance").value == pytest.approx(
        decompose_round(module, samples, cohort, None, **how).row("variance").value, rel=1e-9
    )


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract")  # infinite weights have no distance
def test_logits_that_one_client_alone_has_infinite_are_no_mask():
    tables = np.random.default_rng(14).normal(size=(2, 2, 3, 3))
    tables[:, 0, :, 2] = -inf
    module, samples, cohort = cohort_of(tables, [0.5, 0.5], [2, 0, 1])
    how = {"globals_": None, "averaged": None, "population": False, "compute": Compute(workers=1)}
    found = decompose_round(module, samples, cohort, None, outputs="logits", **how)
    assert not np.isfinite(found.row("fma_loss").value)


def test_a_class_that_one_model_masks_is_infinite_where_it_is_the_label():
    tables = np.random.default_rng(14).normal(size=(1, 2, 3, 3))
    tables[:, 0, :, 2] = -inf
    log_f = sample_losses.log_probabilities(torch.from_numpy(tables).transpose(0, 1))
    split = sample_losses.split_cross_entropy(log_f, torch.tensor([2, 0, 1]), torch.tensor([0.5, 0.5]).double())
    both = np.exp(tables[0, :, :, :2])
    shares = both[0] / both[0].sum(-1, keepdims=True), both[1] / np.exp(tables[0, 1]).sum(-1, keepdims=True)
    z = np.sqrt(shares[0] * shares[1]).sum(-1)
    np.testing.assert_allclose(split.factors["variance"], -np.log(z), rtol=1e-12)
    assert split.factors["bias"].isinf().tolist() == [True, False, False]


def test_means_of_other_draws_hold_what_these_alone_have():
    values = torch.tensor([[1.0, -inf, -inf], [3.0, 2.0, -inf], [5.0, 4.0, 1.0]])
    assert sample_losses.without_each(values).tolist() == [[4.0, 3.0, -inf], [3.0, -inf, -inf], [2.0, -inf, -inf]]


def test_what_does_not_fit_is_refused():
    module, samples, cohort = case(0, 3, 2, 5, 3)
    with pytest.raises(FedscopeError, match=r'loss = "hinge" is unknown: use "cross-entropy" or "zero-one", or decomp'):
        decompose(module, samples, cohort, "hinge")
    with pytest.raises(FedscopeError, match=r"the global model of round 7 does not fit the module: "):
        decompose(module, samples, cohort, LOSSES[0], globals_=case(0, 3, 2, 6, 3)[2].draws[0].row(0))
    with pytest.raises(FedscopeError, match=r"the client model of round 7 does not fit the module: "):
        decompose(Table(6, 3), replace(samples), cohort, LOSSES[0])


def test_a_round_comes_back_exactly():
    result = decompose(*case(1, 3, 3, 9, 3), "zero-one")
    assert RoundFactors.from_json(result.to_json()) == result


def over_rounds(loss: str, *, draws: str = "local:3", model: str = "global", run: str = "ima") -> RunFactors:
    module, samples, cohort = case(3, 4, 3, 40, 3)
    cohort = replace(cohort, source=draws, independent=not draws.startswith("rounds"))
    rounds = [decompose(module, samples, replace(cohort, round=t), loss) for t in (1, 20, 60)]
    return RunFactors(run, model, tuple(rounds), (ErrorCurve("global", (1, 30, 60), (0.5, 0.3, 0.2)),))


def drawn(*runs: RunFactors, loss: str, draws: str = "local:3", width: float = 3.5):
    figure = Decomposition(runs, split="train", draws=draws, loss=loss).figure(width)
    return figure, " ".join(text.get_text() for text in reversed(figure.texts)).replace("\N{NO-BREAK SPACE}", " ")


@BOTH
@pytest.mark.parametrize("width", [2.0, 3.5])
def test_the_figure_draws_and_names_what_is_decomposed(loss, width):
    run = over_rounds(loss)
    figure, note = drawn(run, loss=loss, width=width)
    lines = {line.get_label(): line for ax in figure.axes for line in ax.lines}
    shown = {"bias": "bias", "variance": "variance", "remainder": "remainder", "fma_loss": "loss of the\nplain average"}
    for factor, label in shown.items():
        assert lines[label].get_ydata().tolist() == [one.row(factor).value for one in run.rounds]
    large, small = group_factors(run.rounds)
    assert sorted([*large, *small]) == ["bias", "remainder", "variance"]
    assert {"bias", "remainder"} <= set(large)
    assert not {"own data", "other data", "covariance", "bias²"} & set(lines)
    title = figure.axes[0].get_title(loc="left")
    assert ("nats" if loss == "cross-entropy" else "share") in title
    assert len(title) * 0.058 <= width - 0.5
    expected = ["clients' mean", "differences between clients included", "Remainder", "Plug-in", "t on 2 degrees"]
    expected.append("geometric mean" if loss == "cross-entropy" else "the class that most")
    for words in expected:
        assert words in note, note
    assert "covariance" not in note


def test_the_remainder_stays_in_the_large_panel_and_a_small_variance_gets_its_own():
    one = over_rounds("cross-entropy").rounds[0]
    small = {"variance": 1e-3, "remainder": -1e-3}
    rows = tuple(replace(row, value=small.get(row.factor, row.value)) for row in one.rows)
    assert group_factors([replace(one, rows=rows)]) == (["bias", "remainder"], ["variance"])


def test_the_note_says_what_the_draws_cannot_show():
    squared = over_rounds("cross-entropy")
    module, samples, cohort = case(3, 4, 3, 40, 3)

    def note_of(draws: str, loss: str) -> str:
        if loss != "squared":
            return drawn(over_rounds(loss, draws=draws), loss=loss, draws=draws)[1]
        source = replace(cohort, source=draws, independent=not draws.startswith("rounds"))
        one = decompose_round(
            module, samples, source, None, globals_=None, averaged=None, population=True, compute=Compute(workers=1)
        )
        return drawn(replace(squared, rounds=(one,)), loss=loss, draws=draws)[1]

    local, rounds, runs = (note_of(draws, "squared") for draws in ("local:3", "rounds:3", "runs"))
    assert "the covariance is 0 by construction" in local
    assert "Unbiased estimates; bars 95 % over draws, t on 2" in local
    assert "drift counts as variance" in rounds
    assert "Plug-in estimates; dependent draws have no bars" in rounds
    assert "3 runs that differ in their seed: the unconditional expectation, and the covariance is estimated" in runs
    assert "by construction" not in rounds + runs
    other = [note_of(draws, "zero-one") for draws in ("local:3", "rounds:3", "runs")]
    assert "covariance" not in "".join(other)
    assert "how the start itself varies is not seen" in other[0]
    assert "drift counts as variance" in other[1]
    assert "the unconditional expectation" in other[2]


def test_the_average_over_rounds_is_a_column_of_its_own():
    runs = over_rounds(LOSSES[0]), over_rounds(LOSSES[0], model="averaged")
    figure, note = drawn(*runs, loss=LOSSES[0])
    said = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert {"global", "averaged"} <= set(said)
    assert figure.texts[0].get_text() == "ima"  # once, above both
    assert "Averaged: the average over rounds" in note
    figure, note = drawn(runs[0], loss=LOSSES[0])
    assert "Averaged" not in note
    figure, _ = drawn(runs[1], loss=LOSSES[0])
    assert "ima, averaged" in [text.get_text() for text in figure.texts]
    figure, _ = drawn(*runs, over_rounds(LOSSES[0], run="fma"), loss=LOSSES[0], width=7.0)
    assert {"ima", "ima, averaged", "fma"} <= {text.get_text() for ax in figure.axes for text in ax.texts}
