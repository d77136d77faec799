"""``data.pool``: train and test samples together; models are tested on what clients set aside, wherever it is asked."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_memory import contents

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.evaluation.uint8_images import Uint8Images
from fedscope.training import Config, branch, data_of, load_data, merge, module_of, partition, preset, resume, train
from fedscope.training.build import split_dataset
from fedscope.training.data import split as pooling
from fedscope.training.data.dataset import Dataset, Groups
from fedscope.training.data.standardize import standardize

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = {
    "data": {"clients": 6, "client_test": 0.25, "pool": True},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 4, "participation": 0.5, "evaluate_clients": 0, "evaluate_all": "last"},
}


def config(method: str = "fma", **sections: Any) -> Config:
    return Config.read(merge(preset(method), SMALL, sections))


def images(count: int = 60) -> Dataset:
    """Bytes that stay bytes, of two domains."""
    random = np.random.default_rng(2)
    arrays: dict[str, Any] = {}
    for split, n in (("train", count), ("test", count // 3)):
        arrays[f"x_{split}"] = random.integers(0, 256, (n, 6, 6, 3), np.uint8)
        arrays[f"y_{split}"] = np.arange(n) % 5
    made = standardize("images", "", arrays)
    groups = Groups(("a", "b"), np.arange(count) % 2, np.arange(count // 3) % 2)
    return replace(made, groups={"domain": groups})


@pytest.mark.parametrize("kind", ["floats", "bytes"])
def test_the_training_split_is_both_splits_one_behind_the_other(kind: str) -> None:
    data = load_data("digits") if kind == "floats" else images()
    assert isinstance(data.x_train, Uint8Images) == (kind == "bytes")
    whole = pooling.pool_splits(data)
    n = len(data.y_train)
    x = np.asarray(whole.x_train)
    assert x[:n].tobytes() == np.asarray(data.x_train).tobytes(), "standardised as the training split is"
    assert x[n:].tobytes() == np.asarray(data.x_test).tobytes()
    assert whole.y_train.tolist() == [*data.y_train.tolist(), *data.y_test.tolist()]
    assert len(whole.y_test) == len(data.y_test)
    assert isinstance(whole.x_train, Uint8Images) == (kind == "bytes")
    for name, groups in whole.groups.items():
        before = data.groups[name]
        assert groups.train.tolist() == [*before.train.tolist(), *before.test.tolist()]


def test_what_is_not_known_of_every_test_sample_is_not_known_of_the_whole() -> None:
    data = images()
    unknown = replace(data.groups["domain"], test=np.full(20, -1))
    assert set(
        pooling.pool_splits(replace(data, groups={"domain": data.groups["domain"], "user": unknown})).groups
    ) == {"domain"}


@pytest.mark.parametrize("kind", ["floats", "bytes"])
def test_the_test_split_is_what_the_clients_set_aside(kind: str) -> None:
    whole = pooling.pool_splits(load_data("digits") if kind == "floats" else images())
    split = partition("iid", whole.y_train, whole.classes, 5, seed=1, client_test=0.2)
    assert split.test is not None
    tested = pooling.with_client_test_parts(whole, split)
    rows = sorted(int(row) for part in split.test for row in part)
    assert not set(rows) & {int(row) for part in split.clients for row in part}, "tested on what is trained on"
    assert len(set(rows)) == len(tested.y_test)
    assert tested.y_test.tolist() == whole.y_train[rows].tolist()
    assert np.asarray(tested.x_test).tobytes() == np.asarray(whole.x_train)[rows].tobytes()
    assert tested.y_train is whole.y_train
    for name, groups in tested.groups.items():
        assert groups.test.tolist() == whole.groups[name].train[rows].tolist()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, few_digits: None) -> Run:
    return train(config(), tmp_path_factory.mktemp("pooled") / "fma")


def test_a_runs_data_are_those_that_it_was_trained_on(run: Run) -> None:
    data, split = split_dataset(config(), load_data("digits"))
    found = data_of(run)
    assert run.partition is not None
    assert [part.tolist() for part in run.partition.clients] == [part.tolist() for part in split.clients]
    for name in ("x_train", "y_train", "x_test", "y_test"):
        assert np.asarray(getattr(found, name)).tobytes() == np.asarray(getattr(data, name)).tobytes()
    assert run.info["data"]["train"] == len(found.y_train) == 288 + 72
    assert run.info["data"]["test"] == len(found.y_test) == sum(map(len, split.test or ()))


def test_the_test_error_is_that_on_all_clients_test_parts(run: Run) -> None:
    """And so the mean of the clients' own ones, each weighted by its samples."""
    last, data = run.round("last"), data_of(run)
    module = module_of(run).eval()
    weights = last.read("global").arrays()
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    assert run.partition is not None
    assert run.partition.test is not None
    rows = np.concatenate(run.partition.test)
    with torch.no_grad():
        answers = module(torch.from_numpy(np.asarray(data.x_train)[rows])).argmax(1).numpy()
    expected = float((answers != data.y_train[rows]).mean())
    assert last.metrics["test_error"] == pytest.approx(expected)
    sizes = [len(part) for part in run.partition.test]
    assert np.average(last.all_client_test_error, weights=sizes) == pytest.approx(expected)


def test_a_pooled_run_resumes_and_is_branched_from_bit_for_bit(run: Run, tmp_path: Path) -> None:
    train(config(), tmp_path / "stopped", until=2)
    resumed = resume(tmp_path / "stopped")
    branched = branch(run, 2, {}, tmp_path / "branched")
    for other in (resumed, branched):
        assert other.rounds == run.rounds
        for t in run.rounds:
            assert contents(other.path / f"rounds/{t:05d}.h5") == contents(run.path / f"rounds/{t:05d}.h5")


def test_questions_about_a_pooled_run_are_measured_on_the_clients_test_parts(run: Run) -> None:
    data, last = data_of(run), run.round(4)
    measured = fedscope.decompose(run, rounds=4, draws="local:2", split="test")
    (loss,) = {row[8] for row in next(iter(measured.rows())) if row[6] == "global_loss"}
    module = module_of(run).eval()
    weights = last.read("global").arrays()
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    with torch.no_grad():
        answers = module(torch.from_numpy(np.asarray(data.x_test))).softmax(1).double().numpy()
    assert loss == pytest.approx(((answers - np.eye(10)[data.y_test]) ** 2).sum(1).mean(), rel=1e-5)

    subsets = fedscope.subsets(f"{run.path}@4", split="test")
    assert subsets.attrs["samples"] == len(data.y_test)
    whole = max(next(iter(subsets.rows())), key=lambda row: row[3])
    assert whole[6] == pytest.approx(last.metrics["test_error"]), "of the average of all of the cohort"
    held = fedscope.data(run)
    assert held.counts.sum() + held.test.sum() == 288 + 72
    assert fedscope.curves(run).runs[0].values["test_error"][-1] == last.metrics["test_error"]


def test_pooling_without_test_parts_is_refused() -> None:
    with pytest.raises(
        FedscopeError,
        match=r"data\.pool = true leaves no test samples but the clients' own test parts, and data\.client_test = 0 "
        r"sets none aside; give --set data\.client_test=0\.25",
    ):
        config(data={"client_test": 0.0}, run={"evaluate_all": "none"})


@pytest.mark.parametrize("method", ["ditto", "fedala", "fedbabu", "fma"])
def test_all_clients_are_tested_with_the_deployed_model_too(method: str, tmp_path: Path) -> None:
    """Each on its own part; a method without personal models has no other."""
    deployed = train(config(method, run={"rounds": 2}), tmp_path / method)
    last = deployed.round("last")
    data, parts = data_of(deployed), deployed.partition
    assert parts is not None
    assert parts.test is not None
    module = module_of(deployed).eval()
    weights = last.read("global").arrays()
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    with torch.no_grad():
        expected = [
            float(
                (
                    module(torch.from_numpy(np.asarray(data.x_train)[rows])).argmax(1).numpy() != data.y_train[rows]
                ).mean()
            )
            for rows in parts.test
        ]
    assert last.metrics["all_client_deployed_error_mean"] == pytest.approx(np.mean(expected), abs=1e-12)
    same = np.allclose(np.asarray(last.all_client_test_error), expected)
    assert same == (method == "fma")


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Run, str]:
    """A run on a file, and where that lies now."""
    digits = load_data("digits")
    arrays = {name: np.asarray(getattr(digits, name)) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "mine.npz", **arrays)
    made = train(config(data={"name": f"npz:{tmp_path / 'mine.npz'}"}), tmp_path / "run")
    (tmp_path / "mine.npz").rename(tmp_path / "moved.npz")
    return Run.open(made.path), f"npz:{tmp_path / 'moved.npz'}"


def test_data_that_lie_elsewhere_now_are_divided_as_in_the_training(moved: tuple[Run, str]) -> None:
    """The remedy of the refusal measured on the file's own test samples, three in four of which clients had trained on;
    and questions of training samples ended in an IndexError."""
    run, data = moved
    with pytest.raises(FedscopeError, match="if they lie elsewhere now, give data= with that place"):
        fedscope.subsets(f"{run.path}@4")
    assert run.partition is not None
    aside = np.sort(np.concatenate(run.partition.test or ()))
    found = fedscope.subsets(f"{run.path}@4", data=data)
    whole = max(next(iter(found.rows())), key=lambda row: row[3])
    assert found.attrs["samples"] == len(aside) == run.info["data"]["test"]
    assert whole[6] == pytest.approx(run.round(4).metrics["test_error"]), "of the average of all of the cohort"
    sharp = fedscope.sharpness(f"{run.path}@4/global", data=data, split="test", hessian=False)
    assert sharp.attrs["samples"] == len(aside)
    for cell in fedscope.matrix(run, rounds=4, data=data).rounds[0].cells:
        own = aside if cell.place == "test" else run.partition.clients[int(cell.place.removeprefix("client-"))]
        assert cell.samples == len(own)
    answers = fedscope.forgetting(run, rounds=4, data=data)
    assert answers.attrs["samples"] == sum(map(len, run.partition.clients))


def test_measure_fills_in_what_the_run_itself_would_have_measured(moved: tuple[Run, str], tmp_path: Path) -> None:
    """Of the same models of the same seed: the rounds that one run measured and the other did not."""
    every, data = moved
    sections: dict[str, Any] = {"data": {"name": data}, "run": {"evaluate_every": 4}}
    few = train(config(**sections), tmp_path / "few")
    name = data.removeprefix("npz:")
    Path(name).rename(tmp_path / "again.npz")
    filled = fedscope.measure(few, data=f"npz:{tmp_path / 'again.npz'}")
    assert filled.new["test_error"] == (1, 2, 3)
    assert filled.settings["samples"] == every.info["data"]["test"]
    numbers = Run.open(few.path).all_metrics()["test_error"]
    # of models in one batch or several, which a last bit of a loss tells apart and no error of 90 samples does
    np.testing.assert_allclose(numbers, every.all_metrics()["test_error"], rtol=1e-12)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory, few_digits: None) -> dict[str, Run]:
    """Of another seed of the data, of the same one, and with the data's own test split."""
    folder = tmp_path_factory.mktemp("others")
    return {
        "seed": train(config(data={"seed": 1}), folder / "seed"),
        "same": train(config("fedbabu"), folder / "same"),
        "plain": train(config(data={"pool": False}), folder / "plain"),
    }


ASKED = {
    "subsets": lambda runs, **how: fedscope.subsets([f"{run.path}@4" for run in runs], **how),
    "line": lambda runs, **how: fedscope.line([f"{run.path}@4/global" for run in runs], points=3, **how),
    "consensus": lambda runs, **how: fedscope.consensus(runs, rounds=4, **how),
    "decompose": lambda runs, **how: fedscope.decompose(runs, rounds=4, draws="none", **how),
    "cka": lambda runs, **how: fedscope.cka(runs, rounds="4", **how),
}


@pytest.mark.parametrize("question", ASKED)
def test_runs_that_are_tested_on_other_samples_are_not_measured_together(
    question: str, run: Run, others: dict[str, Run]
) -> None:
    """All were measured on the test split of the first, which the others had trained on."""
    for other in (others["seed"], others["plain"]):
        for pair in ([run, other], [other, run]):
            with pytest.raises(
                FedscopeError, match=r"were trained on different parts of the data \(their clients keep"
            ):
                ASKED[question](pair, split="test")
    ASKED[question]([run, others["same"]], split="test")


def test_what_is_the_same_for_both_is_still_measured_together(run: Run, others: dict[str, Run], tmp_path: Path) -> None:
    """Clients' own training data, both runs' whole training split, and data that neither has seen."""
    pair = [run, others["seed"]]
    how: dict[str, Any] = {"rounds": 4, "draws": "none", "split": "train"}
    both, alone = fedscope.decompose(pair, **how), [fedscope.decompose(one, **how) for one in pair]
    assert [*next(iter(both.rows()))] == [row for one in alone for row in next(iter(one.rows()))]
    assert ASKED["line"](pair, split="train").attrs["samples"] == 288 + 72
    random = np.random.default_rng(0)
    x, y = random.random((20, 1, 8, 8), np.float32), np.arange(20) % 10
    np.savez(tmp_path / "new.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(FedscopeError, match="say with data= on which other samples to measure"):
        ASKED["line"](pair, split="test")
    found = ASKED["line"](pair, split="test", data=f"npz:{tmp_path / 'new.npz'}")
    assert found.attrs["samples"] == 20, "as the sentence advises"
    with pytest.raises(FedscopeError, match="different parts of the data"):
        ASKED["line"](pair, split="test", data="digits")


def test_the_network_of_a_pooled_run_is_compared_on_its_own_test_split(run: Run, others: dict[str, Run]) -> None:
    """With training samples two runs go together, whose recorded errors are of other samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        found = ASKED["line"]([run, others["seed"]], split="train", model=module_of(run))
    assert not {"data_accepted", "recorded_numbers"} & set(found.attrs)


def test_curves_of_runs_that_are_tested_on_other_samples_say_so(run: Run, others: dict[str, Run]) -> None:
    both = f"{run.name} and plain are tested on different samples \\({run.name} on its clients' test parts"
    with pytest.warns(FedscopeWarning, match=both):
        fedscope.curves([run, others["plain"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        fedscope.curves([run, others["same"]])
        fedscope.curves([run, others["seed"]])  # seeds, whose mean one wants
        fedscope.curves(others["plain"])
