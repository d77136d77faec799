"""The five factors of a round against their definitions, known numbers, literal jackknife and bootstrap, and a problem
whose expectations are finite sums."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_models import Table

from fedscope.checkpoints import FedscopeError, Layout, Weights, stack
from fedscope.decomposition import CohortDraws, RoundFactors, decompose_round
from fedscope.decomposition.draws.divergence import diverged_rows
from fedscope.evaluation.device import Compute
from fedscope.evaluation.samples import Samples
from fedscope.training.data.membership import membership_labels, membership_train

SPLIT = ("train_bias", "heter_bias", "bias_cross")
FIVE = (*SPLIT, "variance", "covariance")


def case(seed: int, clients: int, draws: int, n: int, classes: int, *, disjoint: bool = False):
    """A random cohort on a random table: (module, samples, cohort, members); members may be empty or overlap."""
    rng = np.random.default_rng(seed)
    module = Table(n, classes)
    layout = Layout.of(module)
    tables = rng.normal(scale=2.0, size=(draws, clients, n * classes)).astype(np.float32)
    if disjoint:
        members = rng.integers(0, clients + 1, size=n) == np.arange(clients)[:, None]  # some are nobody's
    else:
        members = rng.random((clients, n)) < rng.random((clients, 1))
    p = rng.dirichlet(np.full(clients, 0.7))
    cohort = CohortDraws(
        round=7,
        client_ids=np.arange(clients) * 3,
        p=p / p.sum(),
        draws=[Weights(layout, table, {}) for table in tables],
        client_samples=rng.integers(1, 50, clients),
        source=f"local:{draws}",
        independent=True,
    )
    y = torch.from_numpy(rng.integers(0, classes, n))
    samples = Samples(torch.arange(n, dtype=torch.float32)[:, None], y, classes, "toy", "train", np.arange(n))
    return module, samples, cohort, members


def decompose(module, samples, cohort, members, **options) -> RoundFactors:
    defaults = {"globals_": None, "averaged": None, "population": True, "compute": Compute(workers=1)}
    return decompose_round(module, samples, cohort, members, **(defaults | options))


def values(result: RoundFactors) -> dict[tuple[str, str], float | None]:
    return {(row.factor, row.estimate): row.value for row in result.rows}


def outputs_of(table: np.ndarray, classes: int, outputs: str) -> np.ndarray:
    logits = table.astype(np.float64).reshape(-1, classes)
    if outputs == "logits":
        return logits
    power = np.exp(logits - logits.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def from_definitions(samples, cohort, members, outputs, globals_, averaged):
    """Every factor by loops over samples, clients and draws, as the definitions read."""
    n, classes, draws, clients, p = len(samples.y), samples.classes, cohort.count, len(cohort.p), cohort.p
    f = [[outputs_of(draw.parameters[k], classes, outputs) for draw in cohort.draws] for k in range(clients)]
    averages = [
        sum(p[k] * draw.parameters[k].astype(np.float64) for k in range(clients)).astype(np.float32)
        for draw in cohort.draws
    ]
    g = [outputs_of(w, classes, outputs) for w in averages]
    total = dict.fromkeys(("T", "H", "TH", "eT", "eH", "eTH", "var", "ee"), 0.0)
    wens, fma, recorded = np.zeros(draws), np.zeros(draws), np.zeros(2)
    own, other, spread = np.zeros(clients), np.zeros(clients), np.zeros(clients)
    for j in range(n):
        y = np.zeros(classes)
        y[samples.y[j]] = 1.0
        centre = [sum(f[k][r][j] for r in range(draws)) / draws for k in range(clients)]
        big_t = sum((p[k] * (y - centre[k]) for k in range(clients) if members[k, j]), np.zeros(classes))
        big_h = sum((p[k] * (y - centre[k]) for k in range(clients) if not members[k, j]), np.zeros(classes))
        total["T"] += big_t @ big_t
        total["H"] += big_h @ big_h
        total["TH"] += big_t @ big_h
        for k in range(clients):
            (own if members[k, j] else other)[k] += (y - centre[k]) @ (y - centre[k])
        for r in range(draws):
            d = [f[k][r][j] - centre[k] for k in range(clients)]
            e = sum(p[k] * d[k] for k in range(clients))
            e_t = sum((p[k] * d[k] for k in range(clients) if members[k, j]), np.zeros(classes))
            e_h = e - e_t
            total["eT"] += e_t @ e_t / draws
            total["eH"] += e_h @ e_h / draws
            total["eTH"] += e_t @ e_h / draws
            total["ee"] += e @ e / draws
            for k in range(clients):
                total["var"] += p[k] ** 2 * (d[k] @ d[k]) / draws
                spread[k] += d[k] @ d[k] / draws
            miss = y - sum(p[k] * f[k][r][j] for k in range(clients))
            wens[r] += miss @ miss
            fma[r] += (y - g[r][j]) @ (y - g[r][j])
        for i, w in enumerate((globals_, averaged)):
            miss = y - outputs_of(w.parameters, classes, outputs)[j]
            recorded[i] += miss @ miss
    q = {name: value / n for name, value in total.items()}
    wens, fma, recorded = wens / n, fma / n, recorded / n
    share, scale = 1 / (draws - 1), draws / (draws - 1)
    distance = np.array(
        [
            [np.linalg.norm(draw.parameters[k].astype(np.float64) - w.astype(np.float64)) for k in range(clients)]
            for draw, w in zip(cohort.draws, averages, strict=True)
        ]
    )
    expected = {
        ("train_bias", "plugin"): q["T"],
        ("heter_bias", "plugin"): q["H"],
        ("bias_cross", "plugin"): 2 * q["TH"],
        ("bias", "plugin"): q["T"] + q["H"] + 2 * q["TH"],
        ("variance", "plugin"): q["var"],
        ("covariance", "plugin"): q["ee"] - q["var"],
        ("locality", "plugin"): np.mean(fma - wens),
        ("train_bias", "unbiased"): q["T"] - share * q["eT"],
        ("heter_bias", "unbiased"): q["H"] - share * q["eH"],
        ("bias_cross", "unbiased"): 2 * q["TH"] - 2 * share * q["eTH"],
        ("bias", "unbiased"): q["T"] + q["H"] + 2 * q["TH"] - share * q["ee"],
        ("variance", "unbiased"): q["var"] * scale,
        ("covariance", "unbiased"): (q["ee"] - q["var"]) * scale,
        ("locality", "unbiased"): np.mean(fma - wens),
        ("ensemble_loss", "measured"): wens.mean(),
        ("fma_loss", "measured"): fma.mean(),
        ("global_loss", "measured"): recorded[0],
        ("server_step", "measured"): recorded[0] - fma[0],
        ("averaged_loss", "measured"): recorded[1],
        ("delta_max", "measured"): distance.max(1).mean(),
        ("delta_mean", "measured"): distance.mean(),
    }
    return expected, (own, other, spread / n, distance.mean(0))


@pytest.mark.parametrize("outputs", ["probabilities", "logits"])
@pytest.mark.parametrize(("clients", "draws", "disjoint"), [(3, 2, True), (4, 3, False), (1, 4, False)])
def test_factors_are_what_their_definitions_say(outputs, clients, draws, disjoint):
    module, samples, cohort, members = case(clients, clients, draws, 23, 4, disjoint=disjoint)
    members[0, :] = False  # a client without samples of its own
    globals_, averaged = cohort.draws[0].row(0), cohort.draws[1].row(clients - 1)
    result = decompose(
        module, samples, cohort, members, outputs=outputs, globals_=globals_, averaged=averaged, chunk=16
    )
    expected, (own, other, spread, distance) = from_definitions(samples, cohort, members, outputs, globals_, averaged)
    got = values(result)
    for key, value in expected.items():
        assert got[key] == pytest.approx(value, rel=1e-10, abs=1e-10), key
    assert set(got) - set(expected) == {("closure_error", "measured")}
    assert [row.client for row in result.clients] == cohort.client_ids.tolist()
    for k, row in enumerate(result.clients):
        inside = members[k].sum()
        assert row.train_bias == (pytest.approx(own[k] / inside, rel=1e-10) if inside else None)
        assert row.heter_bias == (pytest.approx(other[k] / (23 - inside), rel=1e-10) if inside < 23 else None)
        assert row.variance == pytest.approx(spread[k], rel=1e-10)
        assert row.distance == pytest.approx(distance[k], rel=1e-10)
        assert (row.samples, row.weight) == (cohort.client_samples[k], cohort.p[k])
    assert sum(row.weight**2 * row.variance for row in result.clients) == pytest.approx(got["variance", "plugin"])


@given(
    seed=st.integers(0, 2**32 - 1),
    clients=st.integers(1, 5),
    draws=st.integers(2, 4),
    n=st.integers(1, 40),
    classes=st.integers(2, 5),
    disjoint=st.booleans(),
    empty=st.booleans(),
    outputs=st.sampled_from(["probabilities", "logits"]),
)
def test_the_factors_add_up_to_the_measured_losses(seed, clients, draws, n, classes, disjoint, empty, outputs):
    module, samples, cohort, members = case(seed, clients, draws, n, classes, disjoint=disjoint)
    if empty:
        members[-1] = False
    result = decompose(module, samples, cohort, members, outputs=outputs, chunk=16)
    got = values(result)
    assert 0 <= got["closure_error", "measured"] <= 1e-6
    y = np.eye(classes)[samples.y.numpy()]
    wens, fma = [], []
    for draw in cohort.draws:
        f = np.stack([outputs_of(row, classes, outputs) for row in draw.parameters])
        wens.append(np.square(y - np.tensordot(cohort.p, f, 1)).sum(1).mean())
        mean = (cohort.p @ draw.parameters.astype(np.float64)).astype(np.float32)
        fma.append(np.square(y - outputs_of(mean, classes, outputs)).sum(1).mean())
    for kind in ("plugin", "unbiased"):
        five = sum(got[factor, kind] for factor in FIVE)
        assert five == pytest.approx(np.mean(wens), rel=1e-9)
        assert five + got["locality", kind] == pytest.approx(np.mean(fma), rel=1e-6)  # float32 sums of p·w may differ
        assert got["bias", kind] == pytest.approx(sum(got[factor, kind] for factor in SPLIT), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(
    ("clients", "train", "heter", "cross"), [(10, 0.009, 0.729, 0.162), (100, 9e-5, 0.88209, 0.01782)]
)
def test_uniform_outputs_already_give_the_known_split(clients, train, heter, cross):
    n, classes = 200, 10
    module, samples, cohort, _ = case(0, clients, 2, n, classes)
    zeros = [replace(draw, parameters=np.zeros_like(draw.parameters)) for draw in cohort.draws]
    cohort = replace(cohort, draws=zeros, p=np.full(clients, 1 / clients))
    members = np.arange(n) % clients == np.arange(clients)[:, None]
    result = decompose(module, samples, cohort, members)
    got = values(result)
    assert [got[factor, "plugin"] for factor in SPLIT] == pytest.approx([train, heter, cross], rel=1e-9)
    assert [got[factor, "unbiased"] for factor in SPLIT] == pytest.approx([train, heter, cross], rel=1e-9)
    assert all(row.train_bias == pytest.approx(0.9) == row.heter_bias for row in result.clients)


def test_chunks_do_not_matter():
    module, samples, cohort, members = case(6, 3, 3, 97, 3)
    some = decompose(module, samples, cohort, members, chunk=16, population=False)
    whole = decompose(module, samples, cohort, members, chunk=1000, population=False, compute=Compute(workers=2))
    for a, b in zip(some.rows, whole.rows, strict=True):
        for field in ("value", "stderr_draws", "stderr_samples"):
            one, other = getattr(a, field), getattr(b, field)
            assert (one is None) == (other is None)
            if one is not None and a.factor != "closure_error":
                assert one == pytest.approx(other, rel=1e-9, abs=1e-15)


def test_errors_over_draws_are_those_of_decompositions_that_leave_one_draw_out():
    draws = 4
    module, samples, cohort, members = case(8, 3, draws, 31, 3)
    result = decompose(module, samples, cohort, members)
    without = [
        values(decompose(module, samples, replace(cohort, draws=[*cohort.draws[:r], *cohort.draws[r + 1 :]]), members))
        for r in range(draws)
    ]
    checked = 0
    for row in result.rows:
        theta = np.array([one[row.factor, row.estimate] for one in without], dtype=np.float64)
        literal = np.sqrt((draws - 1) / draws * np.sum((theta - theta.mean()) ** 2))
        if row.factor in ("global_loss", "server_step", "averaged_loss", "closure_error"):
            assert row.stderr_draws is None
        else:
            assert row.stderr_draws == pytest.approx(literal, rel=1e-9), row
            checked += 1
    assert checked == 18


def test_errors_over_samples_are_those_of_all_resamples():
    """n = 3 has 27 resamples, equally likely: the deviation of their decompositions is the bootstrap's, exactly."""
    module, samples, cohort, members = case(9, 3, 3, 3, 4)
    models = {"globals_": cohort.draws[0].row(0), "averaged": cohort.draws[0].row(1)}
    result = decompose(module, samples, cohort, members, population=False, **models)
    resampled = []
    for rows in map(list, product(range(3), repeat=3)):
        drawn = replace(samples, x=samples.x[rows], y=samples.y[rows], indices=np.asarray(rows))
        resampled.append(values(decompose(module, drawn, cohort, members[:, rows], **models)))
    for row in result.rows:
        if row.factor in ("delta_max", "delta_mean", "closure_error"):
            assert row.stderr_samples is None
        else:
            literal = np.std([one[row.factor, row.estimate] for one in resampled])
            assert row.stderr_samples == pytest.approx(literal, rel=1e-9), row


def test_what_does_not_exist_is_empty():
    module, samples, cohort, members = case(10, 3, 2, 20, 3)
    two = decompose(module, samples, cohort, members)
    assert all(row.stderr_draws is None and row.stderr_samples is None for row in two.rows)
    assert two.row("global_loss").value is two.row("server_step").value is two.row("averaged_loss").value is None

    three = case(10, 3, 3, 20, 3)[2]
    dependent = decompose(module, samples, replace(three, source="rounds:3", independent=False), members)
    assert all(row.value is None for row in dependent.rows if row.estimate == "unbiased")
    assert all(row.value is not None for row in dependent.rows if row.estimate == "plugin")
    assert all(row.stderr_draws is None for row in dependent.rows)
    assert dependent.row("variance").estimate == "plugin"

    whole = decompose(module, samples, cohort, members)
    unsplit = decompose(module, samples, cohort, None)
    for row in unsplit.rows:
        assert (row.value is None) == (
            row.factor in SPLIT or row.factor in ("global_loss", "server_step", "averaged_loss")
        )
    for factor in ("bias", "variance", "covariance", "locality", "ensemble_loss"):
        assert unsplit.row(factor).value == pytest.approx(whole.row(factor).value, rel=1e-12, abs=1e-15)
    assert all(row.train_bias is row.heter_bias is None for row in unsplit.clients)


def test_a_model_that_diverged_gives_nan_and_no_error():
    module, samples, cohort, members = case(11, 3, 3, 20, 3)
    cohort.draws[1].parameters[2] = np.nan
    result = decompose(module, samples, cohort, members, population=False, globals_=cohort.draws[0].row(0))
    assert np.isnan(result.row("variance").value)
    assert np.isnan(result.row("closure_error").value)
    assert np.isfinite(result.row("global_loss").value)
    assert np.isfinite(result.clients[0].variance)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_client_of_weight_0_that_diverged_has_no_part(value: float) -> None:
    """The factors are those of the cohort without it."""
    module, samples, cohort, members = case(11, 4, 3, 20, 3)
    p = np.array([0.5, 0.3, 0.0, 0.2])
    for draw in cohort.draws:
        draw.parameters[2] = value
    there = [0, 1, 3]
    rest = replace(
        cohort,
        p=p[there],
        client_ids=cohort.client_ids[there],
        client_samples=cohort.client_samples[there],
        draws=[stack([draw.row(k) for k in there]) for draw in cohort.draws],
    )
    found = decompose(module, samples, replace(cohort, p=p), members, population=False)
    wanted = decompose(module, samples, rest, members[there], population=False)
    for one, other in zip(found.rows, wanted.rows, strict=True):
        for field in ("value", "stderr_draws", "stderr_samples"):
            own, theirs = getattr(one, field), getattr(other, field)
            assert own == (None if theirs is None else pytest.approx(theirs, rel=1e-9, abs=1e-12)), one
    assert np.isnan(found.clients[2].variance)


def test_one_draw_is_refused():
    cohort = case(0, 2, 2, 5, 3)[2]
    with pytest.raises(FedscopeError, match=r"R = 1 gives no variance .*round 7, draws local:1.*take two.*local:4"):
        replace(cohort, draws=cohort.draws[:1], source="local:1")


@pytest.mark.parametrize("population", [True, False])
def test_of_the_recorded_models_alone_there_is_bias_and_locality(population: bool) -> None:
    module, samples, cohort, members = case(3, clients=3, draws=2, n=40, classes=3)
    one = replace(cohort, source="none", independent=False, draws=cohort.draws[:1])
    result = decompose(module, samples, one, members, population=population)
    found = values(result)
    f = np.stack([outputs_of(row, 3, "probabilities") for row in cohort.draws[0].parameters])
    y = np.eye(3)[samples.y.numpy()]
    wens = np.square(y - np.tensordot(cohort.p, f, 1)).sum(1)
    # the table's outputs are the softmax of its parameters, so the mean of the models is that of the logits
    mean = cohort.p @ cohort.draws[0].parameters.astype(np.float64)
    fma = np.square(y - outputs_of(mean, 3, "probabilities")).sum(1)
    assert found["bias", "plugin"] == pytest.approx(wens.mean(), rel=1e-9)
    assert found["locality", "plugin"] == pytest.approx((fma - wens).mean(), rel=1e-4)  # the mean is one in float32
    for name in ("variance", "covariance"):
        assert found[name, "plugin"] is None
    assert all(row.value is None for row in result.rows if row.estimate == "unbiased")
    assert found["closure_error", "measured"] < 1e-9
    rows = {(row.factor, row.estimate): row for row in result.rows}
    assert all(row.stderr_draws is None for row in result.rows)
    if population:
        assert all(row.stderr_samples is None for row in result.rows)
    else:
        error = rows["bias", "plugin"].stderr_samples
        assert error == pytest.approx(wens.std() / np.sqrt(len(y)), rel=1e-6)
        assert rows["locality", "plugin"].stderr_samples == pytest.approx(
            (fma - wens).std() / np.sqrt(len(y)), rel=1e-3
        )
    assert all(row.variance is None for row in result.clients)


def test_what_does_not_fit_is_refused():
    module, samples, cohort, members = case(0, 3, 2, 5, 3)
    with pytest.raises(FedscopeError, match=r"weights p of round 7 sum to 0\.89*"):
        replace(cohort, p=np.array([0.3, 0.3, 0.3]))
    with pytest.raises(FedscopeError, match=r"non-negative"):
        replace(cohort, p=np.array([1.5, -0.5, 0.0]))
    with pytest.raises(FedscopeError, match=r"3 client_ids, but client_samples has 2 values"):
        replace(cohort, client_samples=np.array([1, 2]))
    fewer = replace(cohort.draws[1], parameters=cohort.draws[1].parameters[:2])
    with pytest.raises(FedscopeError, match=r"draw 2 of round 7 has shape \[2, 15\], but there are 3 clients"):
        replace(cohort, draws=[cohort.draws[0], fewer])
    with pytest.raises(FedscopeError, match=r"draw 2 of round 7 has another layout than draw 1: "):
        replace(cohort, draws=[cohort.draws[0], case(0, 3, 2, 6, 3)[2].draws[0]])
    with pytest.raises(FedscopeError, match=r"members of round 7 has shape \[3, 4\], but there are 3 clients and 5"):
        decompose(module, samples, cohort, members[:, :4])
    with pytest.raises(FedscopeError, match=r'outputs = "scores" is unknown: use "probabilities" or "logits"'):
        decompose(module, samples, cohort, members, outputs="scores")
    with pytest.raises(FedscopeError, match=r"the global model of round 7 does not fit the module: "):
        decompose(module, samples, cohort, members, globals_=case(0, 3, 2, 6, 3)[2].draws[0].row(0))


def test_members_are_those_of_the_partition():
    rng = np.random.default_rng(0)
    clients = tuple(rng.choice(60, size=size, replace=False) for size in (20, 0, 35, 7))
    indices = rng.permutation(50)[:30]
    partition = SimpleNamespace(clients=clients)
    members = membership_train(partition, np.array([3, 1, 2]), indices)
    assert members.dtype == np.bool_
    assert members.tolist() == [np.isin(indices, clients[k]).tolist() for k in (3, 1, 2)]
    with pytest.raises(FedscopeError, match=r"client 4 is not in the partition, which has clients 0 to 3"):
        membership_train(partition, np.array([4]), indices)


def test_members_by_label_exist_only_where_labels_are_missing():
    counts = np.array([[3, 0, 1], [2, 2, 2], [0, 0, 5]])
    y = np.array([2, 1, 0, 1])
    members = membership_labels(counts, np.array([0, 1, 2]), y)
    assert members.astype(int).tolist() == [[1, 0, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
    assert membership_labels(counts, np.array([1]), y) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["parameters", "running_mean"])
def test_a_value_that_is_not_finite_is_found_wherever_it_stands(value: float, where: str) -> None:
    layout = Layout.of(torch.nn.BatchNorm1d(3))
    buffers = {entry.name: np.zeros((4, *entry.shape), entry.dtype) for entry in layout.buffers}
    clients = Weights(layout, np.full((4, 6), 3e38, np.float32), buffers)  # whose sum is not finite
    assert not diverged_rows(clients).any()
    (clients.parameters if where == "parameters" else buffers[where])[2, -1] = value
    assert diverged_rows(clients).tolist() == [False, False, True, False]


# A toy problem with known answers: the clients' models take few values, so expectations are finite sums.
CLASSES, N, CLIENTS = 3, 4, 2
P = np.array([0.25, 0.75])
Y = np.array([0, 2, 1, 2])
MEMBERS = np.array([[True, False, True, False], [False, True, True, False]])  # one sample is both's, one nobody's


def softmax(tables: np.ndarray) -> np.ndarray:
    power = np.exp(tables.astype(np.float64).reshape(*tables.shape[:-1], N, CLASSES))
    return power / power.sum(-1, keepdims=True)


def distribution(independent_clients: bool) -> tuple[np.ndarray, np.ndarray]:
    """The cohort's states [S, K, P] and their probabilities [S]. Eighths and small integers: means of weights are
    exact in float32, so nothing here is known only to rounding."""
    rng = np.random.default_rng(3)
    if not independent_clients:
        return rng.integers(-8, 9, (3, CLIENTS, N * CLASSES)).astype(np.float32) / 4, np.array([0.5, 0.2, 0.3])
    values = rng.integers(-8, 9, (CLIENTS, 2, N * CLASSES)).astype(np.float32) / 4
    chances = np.array([[0.5, 0.5], [0.9, 0.1]])
    pairs = list(product(range(2), repeat=2))
    states = np.stack([np.stack([values[0, i], values[1, j]]) for i, j in pairs])
    return states, np.array([chances[0, i] * chances[1, j] for i, j in pairs])


def exact(states: np.ndarray, chance: np.ndarray) -> dict[str, float]:
    """The factors with true expectations over the states, straight from Theorem 1."""
    f = softmax(states)  # [S, K, N, C]
    y = np.eye(CLASSES)[Y]
    mean = np.tensordot(chance, f, 1)
    train = sum(P[k] * MEMBERS[k][:, None] * (y - mean[k]) for k in range(CLIENTS))
    heter = sum(P[k] * ~MEMBERS[k][:, None] * (y - mean[k]) for k in range(CLIENTS))
    variance = covariance = 0.0
    for k, other in product(range(CLIENTS), repeat=2):
        both = P[k] * P[other] * chance @ ((f[:, k] - mean[k]) * (f[:, other] - mean[other])).sum(-1)
        if k == other:
            variance += both.mean()
        else:
            covariance += both.mean()
    wens = np.square(y - np.einsum("k,skjc->sjc", P, f)).sum(-1).mean(-1)
    fma = np.square(y - softmax(np.einsum("k,skp->sp", P, states))).sum(-1).mean(-1)
    return {
        "train_bias": np.square(train).sum(-1).mean(),
        "heter_bias": np.square(heter).sum(-1).mean(),
        "bias_cross": 2 * (train * heter).sum(-1).mean(),
        "bias": np.square(train + heter).sum(-1).mean(),
        "variance": variance,
        "covariance": covariance,
        "locality": chance @ (fma - wens),
        "ensemble_loss": chance @ wens,
        "fma_loss": chance @ fma,
    }


@pytest.mark.parametrize("draws", [2, 3])
@pytest.mark.parametrize("independent_clients", [True, False])
def test_the_unbiased_estimates_average_to_the_truth_over_all_draws(draws, independent_clients):
    states, chance = distribution(independent_clients)
    truth = exact(states, chance)
    assert abs(truth["covariance"]) < 1e-12 if independent_clients else abs(truth["covariance"]) > 1e-3
    five = sum(truth[name] for name in ("train_bias", "heter_bias", "bias_cross", "variance", "covariance", "locality"))
    assert five == pytest.approx(truth["fma_loss"], rel=1e-12)

    module = Table(N, CLASSES)
    layout = Layout.of(module)
    samples = Samples(torch.arange(N)[:, None].float(), torch.from_numpy(Y), CLASSES, "toy", "train", np.arange(N))
    means: dict[tuple[str, str], float] = {}
    for tuple_ in product(range(len(states)), repeat=draws):
        cohort = CohortDraws(
            round=1,
            client_ids=np.arange(CLIENTS),
            p=P,
            draws=[Weights(layout, states[state], {}) for state in tuple_],
            client_samples=np.array([1, 3]),
            source="local:2",
            independent=True,
        )
        result = decompose_round(
            module, samples, cohort, MEMBERS, globals_=None, averaged=None, population=True, compute=Compute(workers=1)
        )
        weight = float(np.prod(chance[list(tuple_)]))
        for row in result.rows:
            if row.value is not None:
                key = (row.factor, row.estimate)
                means[key] = means.get(key, 0.0) + weight * row.value
    for name in ("train_bias", "heter_bias", "bias_cross", "bias", "variance", "covariance", "locality"):
        assert means[name, "unbiased"] == pytest.approx(truth[name], abs=1e-10), name
    for name in ("ensemble_loss", "fma_loss"):
        assert means[name, "measured"] == pytest.approx(truth[name], abs=1e-10), name
    # The plug-in estimates' bias is the one that is taken out: they overstate bias and understate variance.
    assert means["bias", "plugin"] > truth["bias"] + 1e-3
    assert means["variance", "plugin"] == pytest.approx(truth["variance"] * (draws - 1) / draws, abs=1e-10)
