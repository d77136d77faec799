"""Right answers before and after local training against literal loops and the evaluator's errors."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray
from random_models import Table

from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.decomposition.forgetting.accuracy import count_answers
from fedscope.decomposition.forgetting.result import Answers, Forgetting, mean_over_clients
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.plotting.style import save_figure

ACCURACIES = ("before_own", "after_own", "before_others", "after_others")


class Case:
    """Five clients of a random table, and 70 samples of 4 classes, the last of which has none; client 2 has no sample
    and client 3 has all."""

    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        n, self.classes = 70, 4
        self.y = draw.integers(0, 3, n)
        self.module = Table(n, self.classes)
        layout = Layout.of(self.module)
        right = 1.5 * np.eye(self.classes)[self.y]
        self.tables = (draw.normal(size=(6, n, self.classes)) + right).astype(np.float32)
        self.start = Weights(layout, self.tables[0].ravel(), {})
        self.clients = Weights(layout, self.tables[1:].reshape(5, -1), {})
        self.members = draw.random((5, n)) < 0.4
        self.members[2], self.members[3] = False, True
        self.labels = np.stack([np.bincount(self.y[own], minlength=4) for own in self.members])
        x = torch.arange(n, dtype=torch.float32)[:, None]
        self.samples = Samples(x, torch.from_numpy(self.y), 4, "toy", "train", np.arange(n))

    def count(self, **changes: object) -> Answers:
        known = {
            "module": self.module,
            "samples": self.samples,
            "start": self.start,
            "clients": self.clients,
            "members": self.members,
            "number": 7,
            "client_ids": np.array([0, 3, 6, 9, 12]),
            "labels": self.labels,
            "compute": Compute(workers=1),
            **changes,
        }
        first = [known.pop(name) for name in ("module", "samples", "start", "clients", "members")]
        return count_answers(*first, **known)


@pytest.fixture
def case() -> Case:
    return Case()


def test_every_count_is_what_a_loop_counts(case: Case) -> None:
    made = case.count()
    expected = {name: np.zeros((5, 4), int) for name in ("own", "others", *ACCURACIES)}
    for k in range(5):
        for j, c in enumerate(case.y):
            whose = "own" if case.members[k, j] else "others"
            expected[whose][k, c] += 1
            expected[f"before_{whose}"][k, c] += case.tables[0, j].argmax() == c
            expected[f"after_{whose}"][k, c] += case.tables[k + 1, j].argmax() == c
    for name, counts in expected.items():
        assert getattr(made, name).dtype == np.int64
        np.testing.assert_array_equal(getattr(made, name), counts, err_msg=name)
    assert made.round == 7
    np.testing.assert_array_equal(made.client_ids, [0, 3, 6, 9, 12])
    np.testing.assert_array_equal(made.labels, case.labels)
    assert (made.after_own != made.before_own).any()
    assert (made.after_others != made.before_others).any()


@pytest.mark.parametrize("chunk", [16, 23, 70, 2000])
def test_neither_chunks_nor_workers_change_a_count(case: Case, chunk: int) -> None:
    told: list[tuple[int, int]] = []
    made = case.count(chunk=chunk, compute=Compute(workers=2), progress=lambda *at: told.append(at))
    assert made.to_json() == case.count().to_json()
    assert told[-1] == (70, 70)
    assert len(told) == -(-70 // chunk)


def test_a_client_equal_to_the_start_changes_nothing(case: Case) -> None:
    same = Weights(case.start.layout, np.repeat(case.start.parameters[None], 5, axis=0), {})
    result = Forgetting.of([case.count(clients=same)])
    np.testing.assert_array_equal(result.before_own, result.after_own)
    np.testing.assert_array_equal(result.before_others, result.after_others)
    gain, loss = result.own_gain[0], result.others_loss[0]
    np.testing.assert_array_equal(gain, [0, 0, np.nan, 0, 0])  # client 2 has no sample, client 3 has all
    np.testing.assert_array_equal(loss, [0, 0, 0, np.nan, 0])
    assert not result.forgotten.any()
    assert result.known.any()


def test_without_members_every_sample_is_everyones_own(case: Case) -> None:
    made = case.count(members=None)
    assert not made.others.any()
    np.testing.assert_array_equal(made.own, np.repeat(np.bincount(case.y, minlength=4)[None], 5, axis=0))
    result = Forgetting.of([made])
    assert np.isnan(result.others_loss).all()
    assert not result.known.any()


def test_a_model_without_an_answer_is_wrong_as_the_evaluator_says(case: Case) -> None:
    case.clients.parameters[1] = np.nan
    made = case.count()
    assert made.after_own[1].sum() == made.after_others[1].sum() == 0
    assert Evaluator(case.module, case.samples, compute=Compute(workers=1)).models(case.clients)[1][1] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": np.ones((5, 69), bool)}, r"members of round 7 has shape \[5, 69\], but .* need \[5, 70\]"),
        ({"labels": np.ones((5, 3))}, r"labels of round 7 has shape \[5, 3\], but .* 4 classes need \[5, 4\]"),
        ({"client_ids": np.arange(4)}, r"clients of round 7 has shape \[5\], but its 4 client_ids"),
        ({"module": torch.nn.Linear(1, 4)}, r"the start model of round 7 does not fit the module"),
    ],
)
def test_what_does_not_fit_is_refused(case: Case, changes: dict[str, object], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        case.count(**changes)


# --- the result ---


def by_hand(round_: int = 1, ids: tuple[int, ...] = (3, 8)) -> Answers:
    """Two clients, three classes. Client 3 has class 0, client 8 has classes 0 and 1; nobody has class 2, and client 3
    forgets classes 1 and 2 of the others entirely."""
    return Answers(
        round_,
        np.array(ids),
        labels=np.array([[4, 0, 0], [2, 6, 0]]),
        own=np.array([[4, 0, 0], [2, 6, 0]]),
        others=np.array([[6, 8, 5], [8, 2, 5]]),
        before_own=np.array([[1, 0, 0], [1, 3, 0]]),
        after_own=np.array([[4, 0, 0], [1, 6, 0]]),
        before_others=np.array([[3, 8, 1], [4, 0, 1]]),
        after_others=np.array([[6, 0, 0], [4, 0, 5]]),
        diverged=np.zeros(2, bool),
    )


def test_accuracies_gains_and_losses_by_hand() -> None:
    result = Forgetting.of([by_hand()])
    nan = np.nan
    np.testing.assert_allclose(result.before_own[0], [[1 / 4, nan, nan], [1 / 2, 1 / 2, nan]])
    np.testing.assert_allclose(result.after_own[0], [[1, nan, nan], [1 / 2, 1, nan]])
    np.testing.assert_allclose(result.before_others[0], [[1 / 2, 1, 1 / 5], [1 / 2, 0, 1 / 5]])
    np.testing.assert_allclose(result.after_others[0], [[1, 0, 0], [1 / 2, 0, 1]])
    np.testing.assert_allclose(result.own_gain[0], [3 / 4, 3 / 8])
    np.testing.assert_allclose(result.others_loss[0], [(12 - 6) / 19, (5 - 9) / 15])
    np.testing.assert_array_equal(result.known[0], [[True, True, True], [True, False, True]])
    np.testing.assert_array_equal(result.forgotten[0], [[False, True, True], [False, False, False]])
    mean, stderr = mean_over_clients(result.own_gain)
    assert mean[0] == pytest.approx(9 / 16)
    assert stderr[0] == pytest.approx(np.std([3 / 4, 3 / 8], ddof=1) / np.sqrt(2))


def test_means_leave_out_clients_without_samples() -> None:
    values = np.array([[0.5, np.nan, 0.1, 0.3], [np.nan] * 4, [np.nan, 0.2, np.nan, np.nan]])
    mean, stderr = mean_over_clients(values)
    np.testing.assert_allclose(mean, [0.3, np.nan, 0.2])
    np.testing.assert_allclose(stderr, [0.2 / np.sqrt(3), np.nan, np.nan])
    # ten times 0.88 has a mean that is off by an ulp
    assert mean_over_clients(np.array([[0.88] * 10 + [np.nan]]))[1].tolist() == [0]


def test_a_result_comes_back_and_other_programs_open_it(tmp_path) -> None:
    result = Forgetting.of([by_hand(), by_hand(9, (4, 5))], {"split": "train", "data": "toy", "samples": 25})
    result.save(tmp_path / "figures" / "f.v1.nc")
    back = Forgetting.load(tmp_path / "figures" / "f.v1.nc")
    for name in ("rounds", "client_ids", "labels", "own", "others", *ACCURACIES):
        np.testing.assert_array_equal(getattr(back, name), getattr(result, name))
        assert getattr(back, name).dtype == getattr(result, name).dtype
    assert back.attrs == result.attrs
    for engine in ("h5netcdf", "netcdf4"):
        with xarray.open_dataset(tmp_path / "figures" / "f.v1.nc", engine=engine) as file:
            assert dict(file.sizes) == {"round": 2, "client": 2, "class": 3}
            assert file["round"].values.tolist() == [1, 9]
            assert file["client_ids"].dims == ("round", "client")
            assert file["own"].dtype == np.int64
            for name in ("own", "others", "labels", *ACCURACIES):
                assert file[name].dims == ("round", "client", "class")
            assert float(file["after_own"].sel(round=9)[1, 1]) == 1.0
            assert np.isnan(file["before_own"].values).sum() == 6  # as many as own has zeros
            assert (file["own"].values == 0).sum() == 6
    made = by_hand()
    assert Answers.from_json(json.loads(json.dumps(made.to_json()))).to_json() == made.to_json()


def test_no_round_is_refused() -> None:
    with pytest.raises(FedscopeError, match=r"there is no round to look at"):
        Forgetting.of([])


def first_of(one: Answers) -> Answers:
    """A round of its first client alone."""
    return Answers.from_json(
        {name: values if name == "round" else values[:1] for name, values in one.to_json().items()}
    )


def test_cohorts_of_other_sizes_are_one_array_and_each_rounds_own(tmp_path) -> None:
    alone, both = first_of(by_hand(5, (7, 8))), by_hand()
    attrs = {"run": {"path": "runs/fma"}, "split": "train", "data": "toy", "samples": 25}
    made = Forgetting.of([both, alone], attrs)
    made.save(tmp_path / "f.nc")
    for result in (made, Forgetting.load(tmp_path / "f.nc")):
        assert result.client_ids.tolist() == [[3, 8], [7, -1]]
        assert result.own.dtype == result.client_ids.dtype == np.int64
        assert (result.own[1, 1].tolist(), result.others[1, 1].tolist()) == ([0] * 3, [0] * 3)
        assert np.isnan([getattr(result, name)[1, 1] for name in ACCURACIES]).all()
        # each round is what it is by itself
        for i, one in enumerate((both, alone)):
            single = Forgetting.of([one], attrs)
            assert result.summary().splitlines()[i] == single.summary()
            whole, own = (json.dumps(found.findings()["rounds"]) for found in (result, single))
            assert own[1:-1] in whole  # as text, in which NaN is NaN
        assert [len(one["clients"]) for one in result.findings()["rounds"]] == [2, 1]
        assert "without" not in result.summary()
        *_, cells, _ = result.figure().axes
        assert cells.images[0].get_array().shape == (1, 3)
        assert [tick.get_text() for tick in cells.get_yticklabels()] == ["7"]
        said = words(cells.figure)
        assert "grey" not in said
        assert "such samples" not in said


def test_a_mean_of_no_change_has_no_minus() -> None:
    one = by_hand()
    result = Forgetting.of([replace(one, after_own=one.before_own, after_others=one.before_others)], {"split": "test"})
    assert "on a client's own data by +0 ± 0 points and on the others' by +0 ± 0 points" in result.summary()


def test_as_many_right_answers_of_other_classes_are_no_change() -> None:
    """Of 49 samples 20 are right after and 21 before, of 7 one more: their shares add up to 3e-17."""
    one = by_hand()
    first, then = np.array([[3, 1, 21], [6, 0, 0]]), np.array([[4, 1, 20], [5, 0, 0]])
    counts = {"own": np.array([[7, 3, 49], [12, 0, 0]]), "before_own": first, "after_own": then}
    result = Forgetting.of([replace(one, **counts)], {"split": "test"})
    assert result.own_gain[0].tolist() == [0.0, -1 / 12]
    # nor are a gain and losses that cancel over clients
    mean, _ = mean_over_clients(np.array([[0.1, 0.2, -0.3], [1e-17, 2e-17, 0.0]]))
    assert mean[0] == 0
    assert mean[1] > 0


def test_each_mean_is_told_with_the_clients_it_is_over() -> None:
    """Client 8 has all classes, so that none of the test data are the others'."""
    one = by_hand()
    every = np.array([[False], [True]])
    none = {name: np.where(every, 0, getattr(one, name)) for name in ("others", "before_others", "after_others")}
    result = Forgetting.of([replace(one, **none), by_hand(9)], {"split": "test"})
    first, second = result.summary().splitlines()
    assert (
        "on a client's own data by +56.2 ± 19 points and on the others' by -31.6 points (means of 2 and 1 clients"
        in first
    )
    assert first.endswith("; client 8 without others' samples here")
    assert "(mean of 2 clients ± standard error)" in second
    assert "without" not in second
    assert "above: means over clients that have such samples, bars" in " ".join(words(result.figure()).split())
    alike = Forgetting.of([by_hand(), by_hand(9)])
    assert "above: means over clients, bars" in " ".join(words(alike.figure()).split())


# --- the figure ---


def words(figure) -> str:
    return " ".join(text.get_text() for text in figure.texts)


def test_the_figure_draws_the_numbers() -> None:
    attrs = {"split": "train", "data": "digits", "samples": 25}
    result = Forgetting.of([by_hand(1), by_hand(9)], attrs)
    means, cells, bar = result.figure(3.5, "a title").axes
    own, others = (line for line in means.lines if len(line.get_xdata()) == 2 and line.get_marker() in ("o", "s"))
    np.testing.assert_array_equal(own.get_xdata(), [1, 9])
    np.testing.assert_allclose(own.get_ydata(), [100 * 9 / 16] * 2)
    np.testing.assert_allclose(others.get_ydata(), [-50 * (6 / 19 - 4 / 15)] * 2)
    (image,) = cells.images
    np.testing.assert_allclose(image.get_array().filled(np.nan), [[50, -100, -20], [0, 0, 80]], atol=1e-12)
    assert image.get_clim() == (-100, 100)
    turned = replace(result, before_others=result.after_others, after_others=result.before_others).figure()
    assert turned.axes[1].images[0].get_clim() == (-100, 100)  # white is 0 whichever side reaches farther
    dots = cells.collections[0]
    np.testing.assert_array_equal(dots.get_offsets(), [[0, 0], [0, 1], [1, 1]])
    sizes = dots.get_sizes()
    assert sizes[1] / sizes[0] == pytest.approx(2 / 6)
    assert sizes[2] == sizes[0]
    assert [tick.get_text() for tick in cells.get_yticklabels()] == ["3", "8"]
    assert bar.get_ylabel() == "change (points)"
    said = words(means.figure)
    for part in ("a title", "round 9", "others' data", "standard error", "digits train, 25 samples"):
        assert part in said, said
    assert "grey" not in said


def test_of_test_data_the_own_classes_are_cells_too() -> None:
    one = by_hand()
    own = one.labels > 0
    one = replace(one, others=np.where(own, 0, one.others), before_others=np.where(own, 0, one.before_others))
    one = replace(one, after_others=np.where(own, 0, one.after_others))
    result = Forgetting.of([one], {"split": "test"})
    (cells, _) = result.figure().axes
    shown = cells.images[0].get_array().filled(np.nan)
    np.testing.assert_allclose(shown, [[75, -100, -20], [0, 50, 80]], atol=1e-12)
    assert "test accuracy" in words(cells.figure)
    (cells, _) = replace(result, attrs={"split": "train"}).figure().axes
    assert cells.images[0].get_array().mask.tolist() == own.tolist()
    assert "grey: no such sample" in words(cells.figure)


def test_many_clients_and_one_alone_can_be_drawn(tmp_path) -> None:
    draw = np.random.default_rng(0)
    many = draw.integers(1, 9, (90, 100))
    zeros = np.zeros_like(many)
    ids = np.sort(draw.permutation(1000)[:90])
    figure = Forgetting.of([Answers(1, ids, many, zeros, many, zeros, zeros, many, zeros, np.zeros(90, bool))]).figure(
        2.0
    )
    assert "dots" not in words(figure)
    assert not figure.axes[0].collections
    save_figure(figure, tmp_path / "many", ("png",))
    one = {name: values[:1] for name, values in by_hand().to_json().items() if name != "round"}
    alone = Forgetting.of([Answers.from_json({**one, "round": 4})])
    save_figure(alone.figure(), tmp_path / "one", ("png",))
    assert np.isnan(mean_over_clients(alone.own_gain)[1]).all()
