"""Losses by model and place against literal loops, and against the numbers that runs and other questions have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_models import Table
from scipy.stats import binomtest, t

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Run, Weights
from fedscope.decomposition.matrix.losses import losses_at
from fedscope.decomposition.matrix.result import Gain, LossCell, Matrix, RoundMatrix, neighbours, sum_gains
from fedscope.decomposition.matrix.significance import discordant, is_sure
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.training import branch

Recorded = Callable[..., Path]


class Case:
    """Four random tables on 70 samples of 3 classes, and five places: random ones, one without a sample, one with one,
    one with all."""

    def __init__(self) -> None:
        draw = np.random.default_rng(3)
        n = 70
        self.y = draw.integers(0, 3, n)
        self.module = Table(n, 3)
        self.tables = (draw.normal(size=(4, n, 3)) + 1.5 * np.eye(3)[self.y]).astype(np.float32)
        layout = Layout.of(self.module)
        self.models = [Weights(layout, table.ravel(), {}) for table in self.tables]
        self.members = draw.random((5, n)) < 0.4
        self.members[2], self.members[3], self.members[4] = False, np.arange(n) == 8, True
        x = torch.arange(n, dtype=torch.float32)[:, None]
        self.samples = Samples(x, torch.from_numpy(self.y), 3, "toy", "train", np.arange(n))

    def loss(self, i: int, j: int) -> float:
        row = self.tables[i, j].astype(np.float64)
        return float(np.log(np.exp(row).sum()) - row[self.y[j]])

    def error(self, i: int, j: int) -> float:
        return float(self.tables[i, j].argmax() != self.y[j])


@pytest.fixture
def case() -> Case:
    return Case()


def mean_and_stderr(values: list[float]) -> tuple[float, float]:
    if not values:
        return math.nan, math.nan
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, math.nan
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


@pytest.mark.parametrize("chunk", [7, 2000])
def test_every_number_is_what_a_loop_gives(case: Case, chunk: int) -> None:
    pairs = [(0, 3, 0), (1, 3, 1), (2, 3, 2), (1, 3, 3), (0, 1, 4)]
    counts, means, gains = losses_at(
        case.module, case.samples, case.models, case.members, pairs, number=1, chunk=chunk, compute=Compute(workers=1)
    )
    assert counts.tolist() == case.members.sum(axis=1).tolist()
    # float32 outputs: a loss is rounded to 1e-7 of itself, and a spread of n of them likewise
    close = {"rtol": 2e-6, "atol": 1e-7, "equal_nan": True}
    for name, value in (("loss", case.loss), ("error", case.error)):
        for i in range(4):
            for k, own in enumerate(case.members):
                expected = mean_and_stderr([value(i, int(j)) for j in np.flatnonzero(own)])
                found = getattr(means, name)[i, k], getattr(means, f"{name}_stderr")[i, k]
                np.testing.assert_allclose(found, expected, **close)
        for number, (i, a, k) in enumerate(pairs):
            own = [value(i, int(j)) - value(a, int(j)) for j in np.flatnonzero(case.members[k])]
            found = getattr(gains, name)[number], getattr(gains, f"{name}_stderr")[number]
            np.testing.assert_allclose(found, mean_and_stderr(own), **close)


def test_samples_count_as_their_task_weighs_them(case: Case) -> None:
    class Weighted(type(case.samples.task)):  # type: ignore[misc]
        def weights(self, y: torch.Tensor) -> torch.Tensor:
            return y + 1

    samples = Samples(case.samples.x, case.samples.y, 3, "toy", "train", np.arange(70), task=Weighted())
    _, means, gains = losses_at(case.module, samples, case.models, case.members, [(0, 1, 0)], number=1)
    c = case.y + 1.0
    for k in (0, 1, 4):
        own = np.flatnonzero(case.members[k])
        losses = np.array([case.loss(2, int(j)) for j in own])
        mean = (c[own] * losses).sum() / c[own].sum()
        spread = len(own) / (len(own) - 1) * (c[own] ** 2 * (losses - mean) ** 2).sum()
        np.testing.assert_allclose(means.loss[2, k], mean, rtol=2e-6)
        np.testing.assert_allclose(means.loss_stderr[2, k], math.sqrt(spread) / c[own].sum(), rtol=2e-6)
    np.testing.assert_allclose(gains.loss[0], means.loss[0, 0] - means.loss[1, 0], rtol=1e-6)


def test_a_model_that_is_not_finite_spoils_its_own_row_alone(case: Case) -> None:
    broken = case.models[1].parameters.copy().reshape(70, 3)
    lost = int(np.flatnonzero(case.members[0] & ~case.members[1])[0])
    broken[lost] = np.nan
    models = [case.models[0], Weights(case.models[1].layout, broken.ravel(), {}), case.models[2]]
    _, means, gains = losses_at(case.module, case.samples, models, case.members, [(0, 1, 0), (0, 1, 1)], number=1)
    assert np.isnan(means.loss[1, [0, 4]]).all()
    assert np.isfinite(means.loss[1, 1]), "the sample is not of this place"
    assert np.isfinite(means.loss[[0, 2]][:, [0, 1, 3, 4]]).all()
    assert math.isnan(gains.loss[0])
    assert math.isfinite(gains.loss[1])


def test_members_of_other_samples_are_refused(case: Case) -> None:
    with pytest.raises(FedscopeError, match=r"members of round 4 are of 69 samples, and there are 70; give those"):
        losses_at(case.module, case.samples, case.models, case.members[:, 1:], number=4)


def test_every_model_sees_a_sample_once_however_many_places_there_are(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Evaluator.logits

    def counted(self: Evaluator, models: Any, rows: slice) -> Any:
        seen.append(len(models) * (rows.stop - rows.start))
        return real(self, models, rows)

    monkeypatch.setattr(Evaluator, "logits", counted)
    losses_at(case.module, case.samples, case.models, np.repeat(case.members, 40, axis=0), number=1)
    assert sum(seen) == 4 * 70


@pytest.fixture(scope="module")
def averaged(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("matrix")
    words = ["--average", "ima", "--set", "average.start=2", "--set", "data.client_test=0.25", "--participation", "0.1"]
    return Run.open(recorded(folder / "run", *words, "--rounds", "3"))


def rows_of(result: Matrix) -> dict[tuple[str, str], LossCell]:
    return {(cell.model, cell.place): cell for cell in result.rounds[-1].cells}


def test_the_test_column_is_what_the_run_has_measured(averaged: Run) -> None:
    for split in ("train", "test"):
        cells = rows_of(fedscope.matrix(averaged, rounds=3, split=split))
        measured = averaged.metrics()
        for model, column in (("global", "test"), ("averaged", "averaged_test")):
            for value in ("loss", "error"):
                # sums of the same float32 losses in another order
                assert getattr(cells[model, "test"], value) == pytest.approx(
                    measured[f"{column}_{value}"][-1], rel=1e-6, abs=1e-9
                )
        assert cells["global", "test"].samples == 360


def test_the_diagonal_is_forgettings_own_accuracy(averaged: Run) -> None:
    for split in ("train", "test"):
        one = fedscope.matrix(averaged, rounds=3, split=split).rounds[0]
        other = fedscope.forgetting(averaged, rounds=3, split=split)
        cells = {(cell.model, cell.place): cell for cell in one.cells}
        for i, client in enumerate(other.client_ids[0]):
            own = other.own[0, i]
            for model, name in ((f"client-{client}", "after_own"), ("start", "before_own")):
                right = np.nansum(getattr(other, name)[0, i] * own) / own.sum()
                assert cells[model, f"client-{client}"].error == pytest.approx(1 - right, abs=1e-12)
            assert cells["start", f"client-{client}"].samples == own.sum()


def test_weighted_row_means_are_the_loss_on_all_clients_data(averaged: Run) -> None:
    from fedscope.training.build import data_of, module_of

    one = fedscope.matrix(averaged, rounds=3).rounds[0]
    partition = averaged.partition
    assert partition is not None
    rows = np.concatenate([partition.clients[k] for k in one.clients])
    samples = data_of(averaged).samples("train")
    part = Samples(samples.x[rows], samples.y[rows], samples.classes, "own", "train", rows)
    loss, error = Evaluator(module_of(averaged), part).models([averaged.round(3).read("averaged")])
    # p is by samples here; sums of float32 losses in another order
    assert one.weighted("loss")["averaged"] == pytest.approx(loss[0], rel=1e-6)
    assert one.weighted("error")["averaged"] == pytest.approx(error[0], abs=1e-12)


def test_gains_are_differences_of_cells_and_have_smaller_errors(averaged: Run) -> None:
    result = fedscope.matrix(averaged, rounds=3)
    cells = rows_of(result)
    one = result.rounds[0]
    assert one.deployed == "averaged"
    for gain in one.gains:
        place = f"client-{gain.client}"
        own, other = cells[place, place], cells[gain.than, place]
        assert own.loss is not None
        assert other.loss is not None
        assert gain.loss_gain == pytest.approx(own.loss - other.loss, rel=1e-5, abs=1e-9)
    home = sum_gains(one)
    assert home.measured == len(one.clients)
    assert home.worse == sum(1 for gain in one.gains_of("averaged") if (gain.error_gain or 0) < 0)


def test_a_personal_methods_clients_have_their_own_models(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--client", "ditto", "--set", "data.client_test=0.25", "--participation", "0.1", "--rounds", "2"]
    run = Run.open(recorded(tmp_path / "run", *words))
    one = fedscope.matrix(run, rounds=2).rounds[0]
    personal = run.round(2).client_state("personal")
    assert isinstance(personal, Weights)
    from fedscope.training.build import data_of, module_of

    samples = data_of(run).samples("train")
    partition = run.partition
    assert partition is not None
    cells = {(cell.model, cell.place): cell for cell in one.cells}
    for i, client in enumerate(run.round(2).client_ids):
        rows = partition.clients[client]
        part = Samples(samples.x[rows], samples.y[rows], samples.classes, "own", "train", rows)
        loss, _ = Evaluator(module_of(run), part).models([personal.row(i)])
        assert cells[f"client-{client}", f"client-{client}"].loss == pytest.approx(loss[0], rel=1e-6)


def test_a_branch_has_in_each_round_the_models_of_the_method_that_made_it(recorded: Recorded, tmp_path: Path) -> None:
    words = ["--set", "data.client_test=0.25", "--participation", "0.1", "--rounds", "2", "--average", "none"]
    for first, then in (("sgd", "ditto"), ("ditto", "sgd")):
        run = Run.open(recorded(tmp_path / first, *words, "--client", first))
        branched = branch(run, 1, {"client": {"method": then}}, out=tmp_path / f"{first}-{then}")
        of_both = fedscope.matrix(branched, rounds="all")
        assert of_both.attrs["models"] == ["personal" if one == "ditto" else "sent" for one in (first, then)]
        assert of_both.rounds[0] == fedscope.matrix(run, rounds=1).rounds[0]
        alone = fedscope.matrix(branched, rounds=2)
        assert of_both.rounds[1] == alone.rounds[0]
        # as they are where all rounds agree, so that earlier results are found
        assert alone.attrs["models"] == ("personal" if then == "ditto" else "sent")


def shown(figure: Any) -> str:
    return " ".join(" ".join(text.get_text() for text in figure.texts).split())


def made(*gains: float | None, error: bool = True) -> RoundMatrix:
    clients = tuple(range(len(gains)))
    names = [*(f"client-{k}" for k in clients), "global"]
    level = 0.5 if error else None
    cells = [
        LossCell(model, place, 10, 1.0, 0.1, level, None)
        for model in names
        for place in [*names[: len(clients)], "test"]
    ]
    rows = [
        Gain(k, 1 / len(gains), "global", 10, gain, 0.01, gain if error else None, 0.01) for k, gain in enumerate(gains)
    ]
    return RoundMatrix(4, clients, "global", tuple(cells), tuple(rows))


def test_the_sentence_says_for_how_many_the_average_is_worse_at_home() -> None:
    said = Matrix("ima", (made(0.1, -0.2, -0.01),)).summary()
    assert said == (
        "ima, round 4: on their own data the global model has a larger error than the client's own model for 2 of 3 "
        "clients (1 of them by more than two standard errors); there it loses 3.67 ± 8.8 points on average over "
        "clients, most for client 1 (20 ± 1 points); test error 50 %, of a client's model 50 % on average; ± one "
        "standard error over clients, and for one client over its samples"
    )
    without = Matrix("ima", (made(0.1, 0.3, error=False),)).summary()
    assert "has a larger loss than the client's own model for 0 of 2 clients" in without
    assert "there it gains 0.2 ± 0.1 on average over clients" in without
    nothing = Matrix("ima", (made(None, None),)).summary()
    assert nothing == (
        "ima, round 4: no client has samples of its own on which its model and the global model are numbers"
    )


@pytest.mark.same_elsewhere
@pytest.mark.parametrize("lost", [math.nan, None])
def test_a_client_that_diverged_is_no_gain_of_the_average(lost: float | None) -> None:
    """Its answers are all wrong, so that any other model gains beside it."""
    whole = made(0.1, -0.2, 0.9)
    cells = tuple(replace(one, loss=lost, error=0.9) if one.model == "client-2" else one for one in whole.cells)
    said = Matrix("ima", (broken := replace(whole, cells=cells),)).summary()
    assert "larger error than the client's own model for 1 of 2 clients" in said
    assert "there it loses 5 ± 15 points on average over clients, most for client 1" in said
    assert said.endswith("over its samples; left out, because the own model has no finite loss: client 2")
    assert "no gain: client 2, whose own model has no finite loss" in shown(Matrix("ima", (broken,)).figure())
    assert "left out" not in Matrix("ima", (whole,)).summary()
    found = Matrix("ima", (broken, whole)).numbers()["rounds"]
    assert (found[0]["diverged"], "diverged" in found[1]) == ([2], False)


def lost(whole: RoundMatrix, *models: str) -> RoundMatrix:
    """The same, where these models are no numbers."""
    cells = (replace(one, loss=math.nan, error=1.0) if one.model in models else one for one in whole.cells)
    return replace(whole, cells=tuple(cells))


@pytest.mark.same_elsewhere
def test_nobody_gains_or_loses_by_a_shared_model_that_diverged() -> None:
    """Every client lost by a global model that was no number, by more than two standard errors; where everything was
    none, nobody lost."""
    whole = made(-0.5, -0.4, 0.1)
    said = "ima, round 4: the global model has no finite loss, so it has no gains (NaN outputs count as wrong)"
    for models, more in (
        (("global",), ""),
        (("global", "client-2"), "; nor has the own model of client 2"),
        (("global", "client-0", "client-2"), "; nor has the own model of clients 0, 2"),
        (whole.models, "; nor has any client's model"),
    ):
        result = Matrix("ima", (lost(whole, *models),))
        assert result.summary() == f"{said}{more}"
        home = sum_gains(result.rounds[0])
        assert (home.measured, home.worse, home.least, math.isnan(home.mean)) == (0, 0, None, True)
        figure = result.figure()
        assert said.partition(": ")[2] in shown(figure)
        assert "no such sample, or no number" in shown(figure)
        below = figure.axes[-1]
        assert [text.get_text() for text in below.texts] == ["not finite"]
        assert not below.get_yticks().size
        image = np.ma.asarray(figure.axes[0].images[0].get_array())
        assert np.ma.getmaskarray(image).all(axis=1).tolist() == [name in models for name in whole.models]
        # a scale of nothing is no scale
        assert len(figure.axes) == (2 if len(models) == len(whole.models) else 3)
    assert not any(text.get_text() for text in Matrix("ima", (whole,)).figure().axes[-1].texts)
    others = Matrix("ima", (lost(whole, "client-0", "client-1", "client-2"),)).summary()
    assert others.startswith("ima, round 4: no client has samples of its own on which its model and the global model")
    assert others.endswith("left out, because the own model has no finite loss: clients 0, 1, 2")


@pytest.mark.same_elsewhere
def test_a_page_shows_no_errors_of_models_that_diverged() -> None:
    from fedscope.decomposition.matrix.page import _map, _scale

    one = lost(made(-0.5, 0.1), "global", "client-1")
    assert _scale(Matrix("ima", (one,))) == (50.0, 50.0)
    shown = _map(one)
    assert [row[0] is None for row in shown["z"]] == [False, True, True]
    assert shown["text"][2][0].endswith("10 samples<br>loss not finite<br>error 100 %")


@pytest.mark.same_elsewhere
def test_a_page_says_what_its_errors_are() -> None:
    from fedscope.decomposition.matrix.page import _map

    one = made(0.1, 0.2, 0.3)
    first, *others = one.cells
    known = replace(first, samples=10, loss=0.5, loss_stderr=0.25, error=0.2, error_stderr=0.1)
    start = f"{first.model} on {first.place}, 10 samples<br>"
    for cell, said in (
        (known, "loss 0.5 ± 0.25<br>error 20 ± 10 %<br>± one standard error over samples"),
        (replace(known, error=None, error_stderr=None), "loss 0.5 ± 0.25<br>± one standard error over samples"),
        (replace(known, loss_stderr=np.nan, error_stderr=None), "loss 0.5<br>error 20 %"),
    ):
        assert _map(replace(one, cells=(cell, *others)))["text"][0][0] == f"{start}{said}"


@pytest.mark.same_elsewhere
def test_the_caption_counts_the_samples_that_are_shown() -> None:
    """Of fifty clients ten take part, and the last column is of test data."""
    attrs = {"data": "digits", "split": "train", "samples": 1437}
    one = made(0.1, 0.2, 0.3)
    cells = tuple(replace(cell, samples=360 if cell.place == "test" else 95) for cell in one.cells)
    said = shown(Matrix("ima", (replace(one, cells=cells),), attrs).figure())
    assert said.endswith("digits train, 285 samples, and test, 360 samples")
    attrs |= {"split": "test", "samples": 360}  # of which the clients' are some
    assert shown(Matrix("ima", (replace(one, cells=cells),), attrs).figure()).endswith("digits test, 360 samples")


@pytest.mark.same_elsewhere
def test_the_exact_test_of_paired_errors_is_scipys_on_counts_of_samples() -> None:
    draw = np.random.default_rng(0)
    seen = set()
    for _ in range(400):
        n = int(draw.integers(1, 40))
        d = draw.choice([-1.0, 0.0, 1.0], size=n, p=draw.dirichlet([1, 1, 0.3]))
        mean, stderr = float(d.mean()), float(d.std(ddof=1) / np.sqrt(n)) if n > 1 else None
        found = is_sure(n, mean, stderr, of_errors=True)
        down, up = int((d < 0).sum()), int((d > 0).sum())
        if stderr is not None:
            assert discordant(n, mean, stderr) == (up, down)
        apart = stderr is not None and abs(mean) > 2 * stderr
        rejects = down + up > 0 and binomtest(down, down + up).pvalue <= 0.05
        assert found == (apart and rejects)
        seen.add((found, apart))
    assert seen == {(True, True), (False, True), (False, False)}


@pytest.mark.same_elsewhere
def test_many_samples_are_counted_too() -> None:
    """Of thousands on which the models differ no power of two is a number."""
    assert is_sure(10_000, -0.02, 0.00632, of_errors=True)
    assert not is_sure(10_000, -0.0001, 0.00632, of_errors=True)


@pytest.mark.same_elsewhere
def test_few_samples_make_nothing_sure() -> None:
    """Two samples that agree have a standard error of 0, which says nothing."""
    assert not is_sure(2, -1.0, 0.0, of_errors=True)
    assert not is_sure(5, -1.0, 0.0, of_errors=True)
    assert is_sure(6, -1.0, 0.0, of_errors=True)  # 2 / 2^6 = 3 %
    assert not is_sure(9, -0.3, 0.0, of_errors=False)
    for n in (2, 3, 5, 100):
        border = t.ppf(0.975, n - 1)
        assert not is_sure(n, -0.999 * max(2, border), 1.0, of_errors=False)
        assert is_sure(n, -1.001 * max(2, border), 1.0, of_errors=False)
    assert discordant(10, -0.25, 0.1) is None, "shares of pixels are no counts"
    assert not is_sure(10, math.nan, 0.1, of_errors=True)
    gains = [Gain(k, 0.5, "global", 2, -0.5, 0.1, -1.0, 0.0) for k in range(2)]
    cells = tuple(LossCell("global", place, 2, 1.0, 0.1, 0.5, None) for place in ("client-0", "client-1", "test"))
    home = sum_gains(RoundMatrix(1, (0, 1), "global", cells, tuple(gains)))
    assert (home.worse, home.surely) == (2, 0)


def test_a_result_reads_back_what_it_saved(tmp_path: Path) -> None:
    result = Matrix(
        "ima", (made(0.1, None), made(0.2, 0.3, error=False).__class__(5, (1, 0), "global", (), ())), {"a": 1}
    )
    result.save(tmp_path / "x")
    again = fedscope.load(tmp_path / "x")
    assert isinstance(again, Matrix)
    assert again == result


def test_clients_with_similar_labels_are_neighbours() -> None:
    counts = np.array([[9, 0, 0], [0, 5, 5], [8, 1, 0], [0, 6, 4], [0, 0, 7]])
    order = list(neighbours(counts))
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert abs(order.index(0) - order.index(2)) == abs(order.index(1) - order.index(3)) == 1
    assert list(neighbours(np.ones((4, 3)))) == [0, 1, 2, 3]
    assert list(neighbours(np.zeros((3, 3)))) == [0, 1, 2]


def test_a_figure_of_one_client_and_of_many_stands(tmp_path: Path) -> None:
    for result in (Matrix("ima", (made(0.1),)), Matrix("ima", (made(*np.linspace(-0.4, 0.4, 100)),))):
        figure = result.figure()
        assert figure.get_figwidth() == 3.5
        assert figure.get_figheight() < 9


def test_a_figure_has_the_unit_of_the_loss() -> None:
    one = made(0.1, 0.3, error=False)
    for attrs, loss, gain in (({}, "loss (nat)", "gain (nat)"), ({"loss_units": "1"}, "loss", "gain in loss")):
        axes = Matrix("ima", (one,), attrs).figure().axes
        labels = [label for each in axes for label in (each.get_xlabel(), each.get_ylabel())]
        assert {loss, gain} <= set(labels), labels
