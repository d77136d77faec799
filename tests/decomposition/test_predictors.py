"""What predicts that a mean works: numbers of a round against loops by hand, and correlations of known ranks."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom, spearmanr

import fedscope
from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    Round,
    RoundRecord,
    Run,
    RunWriter,
    Weights,
    stack,
    write_round,
)
from fedscope.checkpoints.models.weights import TensorEntry
from fedscope.decomposition.predictors.correlation import interval, least_in_order, rank_correlation
from fedscope.decomposition.predictors.result import (
    PREDICTORS,
    Correlation,
    PredictedRound,
    Predictors,
    correlations_of,
)
from fedscope.decomposition.predictors.round_predictors import (
    directions_of_updates,
    main_directions,
    predicted_round,
    subspace_overlap,
)
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.training.build import data_of, module_of

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = ("--method", "fma", "--clients", "6", "--participation", "0.5", "--rounds", "6", "--epochs", "1")


@pytest.fixture
def run(recorded: Callable[..., Path], tmp_path: Path) -> Run:
    return Run.open(recorded(tmp_path / "run", *SMALL))


def loss_of(run: Run, arrays: dict[str, np.ndarray]) -> float:
    from fedscope.training.build import data_of, module_of

    module, data = module_of(run).eval(), data_of(run)
    module.load_state_dict({name: torch.as_tensor(np.asarray(value)) for name, value in arrays.items()})
    with torch.no_grad():
        logits = module(torch.as_tensor(np.asarray(data.x_test)))
    return float(torch.nn.functional.cross_entropy(logits.double(), torch.as_tensor(data.y_test)))


def test_a_rounds_numbers_are_those_of_a_loop(run: Run) -> None:
    found = fedscope.predictors(run)
    assert [one.round for one in found.rounds] == list(run.rounds)
    one = found.rounds[2]
    round_ = run.round(one.round)
    p, start = round_.weights, round_.read("start")
    models = [round_.client(int(k)) for k in round_.client_ids]
    count = len(models)
    assert one.clients == count > 2

    def mixed(weights: Any) -> dict[str, np.ndarray]:
        vector = sum(w * model.parameters.astype(np.float64) for w, model in zip(weights, models, strict=True))
        return Weights(start.layout, vector.astype(np.float32), {}).arrays()

    losses = [loss_of(run, model.arrays()) for model in models]
    alone, mean = float(p @ losses), loss_of(run, mixed(p))
    assert one.alone == pytest.approx(alone, rel=1e-5)
    assert one.mean == pytest.approx(mean, rel=1e-5)
    assert one.gain == pytest.approx(alone - mean, rel=1e-3)
    rises = []
    for i in range(count):
        j = (i + 1) % count
        rises.append(loss_of(run, mixed((np.eye(count)[i] + np.eye(count)[j]) / 2)) - (losses[i] + losses[j]) / 2)
    assert one.barrier == pytest.approx(np.mean(rises), rel=1e-3, abs=1e-6)
    moved = np.array([model.parameters.astype(np.float64) - start.parameters for model in models])
    lengths = np.linalg.norm(moved, axis=1)
    cosines = moved @ moved.T / np.outer(lengths, lengths)
    assert one.cosine == pytest.approx(cosines[np.triu_indices(count, 1)].mean(), rel=1e-6)
    assert one.kept == pytest.approx(np.linalg.norm(p @ moved) / (p @ lengths), rel=1e-6)
    torn = (moved > 0).any(0) & (moved < 0).any(0)
    assert one.conflict == pytest.approx(torn.sum() / (moved != 0).any(0).sum())
    values = np.linalg.svd(moved, compute_uv=False) ** 2
    shares = values / values.sum()
    assert one.rank == pytest.approx(math.exp(-(shares * np.log(shares)).sum()) / count, rel=1e-6)
    overlaps = []
    for entry in start.layout.parameters:
        if len(entry.shape) == 2 and min(entry.shape) >= 8:
            parts = [row[start.layout.slices[entry.name]].reshape(entry.shape) for row in moved]
            parts = [part if part.shape[0] <= part.shape[1] else part.T for part in parts]
            left = [np.linalg.svd(part)[0][:, :4] for part in parts]
            overlaps += [np.sum((left[i].T @ left[(i + 1) % count]) ** 2) / 4 for i in range(count)]
    assert overlaps
    assert one.overlap == pytest.approx(np.mean(overlaps), rel=1e-5)


def test_a_client_of_weight_0_that_diverged_leaves_the_gain_what_it_is(run: Run, tmp_path: Path) -> None:
    round_, data = run.round(3), data_of(run)
    x, y = torch.as_tensor(np.asarray(data.x_test)), torch.as_tensor(data.y_test)
    samples = Samples(x, y, 10, "digits", "test", np.arange(len(y)))
    start, clients = round_.read("start"), round_.clients()
    clients.parameters[2] = np.inf
    found = []
    for rows in ([0, 1, 2], [0, 1]):
        ids, own = np.array(rows), stack([clients.row(k) for k in rows])
        path = tmp_path / str(len(rows)) / "00003.h5"
        path.parent.mkdir()
        p = np.array([0.25, 0.75, 0.0][: len(rows)])
        write_round(path, RoundRecord(3, start, own, start, None, *[ids] * 4, p))
        made = Round(path, start.layout, "runs/toy")
        found.append(predicted_round(made, Evaluator(module_of(run), samples), "toy"))
    assert found[0].gain == found[1].gain
    assert (found[0].alone, found[0].mean) == (found[1].alone, found[1].mean)
    assert found[0].kept == pytest.approx(found[1].kept, rel=1e-12)  # sums of other lengths
    assert found[1].kept is not None
    assert np.isfinite(found[0].alone)


def test_overlap_of_planted_subspaces() -> None:
    layout = Layout(
        (TensorEntry("w", (20, 9, 3), "float64", "parameter"), TensorEntry("b", (20,), "float64", "parameter"))
    )
    start = Weights(layout, np.zeros(layout.size), {})
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20)))[0]
    right = np.linalg.qr(np.random.default_rng(1).normal(size=(27, 4)))[0]

    def client(columns: list[int]) -> Weights:
        return layout_row(layout, (basis[:, columns] @ np.diag([4.0, 3, 2, 1]) @ right.T).reshape(-1))

    clients = stack([client([0, 1, 2, 3]), client([2, 3, 4, 5]), client([2, 3, 4, 5])])
    overlap = [subspace_overlap(start, clients, [pair]) for pair in ((0, 1), (1, 2))]
    assert overlap == pytest.approx([0.5, 1.0])
    assert main_directions(np.ones((8, 8))) is None, "of one direction there are no four"
    still = stack([start, start])
    assert math.isnan(subspace_overlap(start, still, [(0, 1)]))


def layout_row(layout: Layout, matrix: np.ndarray) -> Weights:
    return Weights(layout, np.concatenate([matrix, np.zeros(20)]), {})


@pytest.mark.same_elsewhere
def test_ranks_and_effective_ranks() -> None:
    draw = np.random.default_rng(3)
    x, y = draw.normal(size=(2, 30))
    y[:5] = y[5:10]  # ties
    assert rank_correlation(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert math.isnan(rank_correlation(np.ones(6), x[:6]))
    assert directions_of_updates(np.diag([1.0, 1.0, 0.0])) == pytest.approx(2)
    assert math.isnan(directions_of_updates(np.zeros((3, 3))))


@pytest.mark.same_elsewhere
def test_the_interval_holds_what_it_should() -> None:
    """Of independent numbers about 95 % of intervals include 0; of a strong relation none does."""
    draw, without = np.random.default_rng(0), 0
    for k in range(40):
        x, y = draw.normal(size=(2, 40))
        low, high = interval(x, y, seed=k)
        without += low > 0 or high < 0
        low, high = interval(x, x + 0.3 * y, seed=k)
        assert 0 < low < high <= 1
    assert without <= 7
    assert interval(x, y) == interval(x, y), "seeded"


@pytest.mark.same_elsewhere
@pytest.mark.parametrize("count", [5, 6, 8, 10, 15, 30])
def test_few_rounds_of_noise_are_called_chance_as_often_as_is_said(count: int) -> None:
    """At most 5 %: of 300 draws no more than that share gives in 1 of 1,000 cases. Of five it was 18.6 %."""
    draw, draws = np.random.default_rng(count), 300
    held = 0
    for _ in range(draws):
        low, high = interval(*draw.normal(size=(2, count)))
        held += low > 0 or high < 0
    assert held <= binom.ppf(0.999, draws, 0.05)


@pytest.mark.same_elsewhere
def test_an_interval_leaves_out_0_only_where_few_orders_correlate_as_much() -> None:
    """Counted by scipy's correlation in all 120 or 720 orders."""
    draw = np.random.default_rng(1)
    for count in (5, 6):
        for _ in range(12):
            x, y = draw.normal(size=(2, count)) + np.arange(count)
            r = abs(spearmanr(x, y).statistic)
            orders = [abs(spearmanr(x, [y[i] for i in order]).statistic) for order in permutations(range(count))]
            p = np.mean(np.array(orders) >= r - 1e-9)
            low, high = interval(x, y)
            assert low <= spearmanr(x, y).statistic + 1e-9
            assert (low > 0 or high < 0) <= (p <= 0.05)
    low, high = interval(np.arange(6.0), np.arange(6.0))
    assert high == 1.0
    assert 0 < low < 1, "of 720 orders 2 are as good"


@pytest.mark.same_elsewhere
@pytest.mark.parametrize("count", [5, 6, 9])
def test_the_interval_of_rounds_in_order_ends_where_chance_makes_one_in_40(count: int) -> None:
    """Counted in normal numbers of that correlation; all resamples of such rounds are in order, too."""
    x = np.arange(count, dtype=float)
    low, high = interval(x, x**3)
    assert (low, high) == (least_in_order((1,) * count), 1.0)
    assert interval(x, -(x**3)) == (-1.0, -low)
    rho, draw = 2 * np.sin(np.pi * low / 6), np.random.default_rng(5)
    a, z = draw.normal(size=(2, 40_000, count))
    b = rho * a + np.sqrt(1 - rho**2) * z
    in_order = (np.diff(np.take_along_axis(b, a.argsort(axis=1), axis=1), axis=1) > 0).all(axis=1)
    # 0.16 % from 9,999 draws and 0.08 % from these, three times
    assert in_order.mean() == pytest.approx(0.025, abs=0.0055)
    # of the same numbers nobody knows the order, so that fewer rounds are compared
    assert least_in_order((1, 2, *(1,) * (count - 3))) < low


@pytest.mark.same_elsewhere
def test_five_rounds_in_order_are_no_certainty() -> None:
    rounds = rounds_of(5)
    found = Predictors(rounds, correlations_of(rounds), {"split": "test"})
    assert found.summary().splitlines()[1].endswith("+1.00 (+0.32 to +1.00)")
    assert found.correlations[0].holds


ROUND = PredictedRound("fma", 1, 3, 1.0, 0.5, 0.5, 0.1, 0.6, 0.4, 0.01, None, 0.9)


def rounds_of(n: int) -> tuple[PredictedRound, ...]:
    draw = np.random.default_rng(2)
    return tuple(
        PredictedRound("fma", t, 3, 1.0, 1.0 - g, g, g**3, -g, float(noise), 0.2, None, float(noise))
        for t, (g, noise) in enumerate(draw.normal(size=(n, 2)), 1)
    )


@pytest.mark.same_elsewhere
def test_chance_and_too_few_rounds_are_said(tmp_path: Path) -> None:
    rounds = rounds_of(24)
    found = Predictors(rounds, correlations_of(rounds), {"split": "test"})
    by_name = {one.predictor: one for one in found.correlations}
    assert list(by_name) == list(PREDICTORS)
    assert (by_name["cosine"].correlation, by_name["kept"].correlation) == (1.0, -1.0)
    assert by_name["cosine"].holds
    assert by_name["kept"].holds
    assert by_name["conflict"].correlation == pytest.approx(
        spearmanr([one.conflict for one in rounds], [one.gain for one in rounds]).statistic
    )
    assert not by_name["conflict"].holds
    assert (by_name["barrier"].correlation, by_name["overlap"].rounds) == (None, 0)
    lines = found.summary().splitlines()
    better = sum(one.gain > 0 for one in rounds if one.gain is not None)
    assert lines[0] == (
        f"fma: the mean has a lower loss than its clients have on average in {better} of 24 rounds; rank correlation "
        "of what it gains with"
    )
    assert lines[1].endswith("+1.00 (+1.00 to +1.00)")
    assert lines[3].endswith("no better than chance")
    assert lines[4].endswith("unknown from 24 rounds")
    tried = sum(one.correlation is not None for one in found.correlations)
    assert lines[7] == (
        f"  {tried} numbers were tried, each at 5 %: if none told anything, one would still seem better than chance in "
        f"up to {5 * tried} % of runs, and in more where rounds resemble each other"
    )
    assert tried < 6
    assert all(one.correlation is None for one in correlations_of(rounds[:4]))
    found.save(tmp_path / "p")
    assert Predictors.load(tmp_path / "p") == found
    table = list(csv.DictReader((tmp_path / "p.correlations.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["predictor"] for row in table] == list(PREDICTORS)


@pytest.mark.same_elsewhere
def test_rounds_that_diverged_are_counted_and_named() -> None:
    lost = replace(ROUND, round=2, mean=float("inf"), gain=None)
    worse = replace(ROUND, round=5, gain=-0.5)
    begin = "fma: the mean has a lower loss than its clients have on average in "
    for rounds, said in (
        ((ROUND,), "1 of 1 round; rank"),
        ((ROUND, lost), "1 of 2 rounds; round 2 is not finite; rank"),
        ((ROUND, lost, replace(lost, round=3), worse), "1 of 4 rounds; rounds 2-3 are not finite; rank"),
    ):
        assert Predictors(rounds, correlations_of(rounds), {}).summary().startswith(begin + said)


@pytest.mark.same_elsewhere
def test_the_figure_has_a_row_a_predictor_and_grey_for_chance() -> None:
    correlations = (Correlation("cosine", 9, 0.5, 0.2, 0.8), Correlation("rank", 9, 0.1, -0.4, 0.5))
    (axes,) = Predictors((ROUND,), correlations, {}).figure().axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["cosine of updates", "effective rank / C"]
    intervals = [line for line in axes.lines if line.get_label() == "_interval"]
    assert [line.get_xdata().tolist() for line in intervals] == [[0.2, 0.8], [-0.4, 0.5]]
    assert len({line.get_color() for line in intervals}) == 2
    for one, other in pairwise(intervals):
        assert one.get_ydata()[0] < other.get_ydata()[0]


@pytest.mark.same_elsewhere
@pytest.mark.parametrize(("count", "words"), [(3, "3 rounds"), (1, "1 round")])
def test_a_figure_of_too_few_rounds_says_so(count: int, words: str) -> None:
    figure = Predictors((ROUND,), (Correlation("cosine", count, None, None, None),), {}).figure()
    assert [text.get_text() for text in figure.axes[0].texts] == [f"unknown from {words}"]
    assert f"over {words}; " in " ".join(text.get_text() for text in figure.texts)


def test_rounds_that_lack_something_are_refused(tmp_path: Path) -> None:
    layout = Layout((TensorEntry("w", (2, 3), "float32", "parameter"),))
    model = Weights(layout, np.ones(6, np.float32), {})
    with RunWriter.create(tmp_path / "run", {"layout": layout.to_json(), "source": "mine"}, None, None) as writer:
        for t, (count, start) in enumerate([(2, None), (1, model)], 1):
            ids, p = np.arange(count), np.full(count, 1 / count)
            writer.write(RoundRecord(t, start, stack([model] * count), None, None, ids, ids + 1, ids, p, p))
    with pytest.raises(
        FedscopeError, match=r"run@1 recorded its clients, but not the model they were sent \(start\), so"
    ):
        fedscope.predictors(tmp_path / "run", rounds=1)
    with pytest.raises(FedscopeError, match=r"run@2 has a cohort of one, so there is nothing to average"):
        fedscope.predictors(tmp_path / "run", rounds=2)
