"""What is measured of domains and of all clients, against a loop over samples; and that measuring changes nothing."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from in_memory import contents

from fedscope.checkpoints import COLUMNS, FedscopeError, Run, Weights
from fedscope.checkpoints.rounds.metrics import FURTHER, further, read_table
from fedscope.training import Config, branch, data_of, merge, module_of, preset, resume, train
from fedscope.training.data.dataset import Groups
from fedscope.training.loop.metrics import ALL_MEASURED, domain_columns
from fedscope.training.loop.verify_run import check_run

NAMES = ("Art painting", "photo", "nobody's")


@pytest.fixture(scope="module", autouse=True)
def digits_of_domains(few_digits: None) -> Iterator[None]:
    """A fifth of the digits, in two domains by turns; the test split has none of a third one."""
    from fedscope.training.data.published import digits

    few = digits.PROVIDES("")
    groups = Groups(NAMES, np.arange(len(few.y_train)) % 3, np.arange(len(few.y_test)) % 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "PROVIDES", lambda argument, task=None: replace(few, groups={"domain": groups}))
        yield


def config(method: str = "fma", **sections: Any) -> Config:
    small = {
        "data": {"clients": 6, "client_test": 0.25},
        "model": {"hidden": [8]},
        "client": {"epochs": 1},
        "run": {"rounds": 4, "participation": 0.5, "evaluate_clients": 0, "evaluate_all": "1,last"},
    }
    own = {"ima": {"average": {"window": 2, "start": 3}}, "fedbabu": {"client": {"fine_tune_epochs": 2}}}
    return Config.read(merge(preset(method), small, own.get(method, {}), sections))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, made = tmp_path_factory.mktemp("measured"), {}

    def of(method: str) -> Run:
        if method not in made:
            made[method] = train(config(method), folder / method)
        return made[method]

    return of


def wrong(run: Run, model: Weights, x: Any, y: Any) -> np.ndarray:
    """Of each sample, one by one, whether a model misclassifies it."""
    module = module_of(run).eval()
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in model.arrays().items()})
    with torch.no_grad():
        return np.array([int(module(one[None]).argmax()) != int(label) for one, label in zip(x, y, strict=True)])


@pytest.mark.parametrize("method", ["fma", "ima"])
def test_the_error_of_a_domain_is_that_on_its_test_samples(runs: Any, method: str) -> None:
    run = runs(method)
    test = data_of(run).samples("test")
    for t in (1, 4):
        round_, which = run.round(t), {"": "global", "averaged_": "averaged"}
        for start, name in which.items():
            if name not in round_.models:
                if method == "ima":
                    assert np.isnan(round_.metrics[f"{start}test_error_photo"])
                else:
                    assert f"{start}test_error_photo" not in round_.metrics
                continue
            errors = wrong(run, round_.read(name), test.x, test.y)
            own = [errors[domain::2].mean() for domain in (0, 1)]
            assert round_.metrics[f"{start}test_error_Art_painting"] == pytest.approx(own[0])
            assert round_.metrics[f"{start}test_error_photo"] == pytest.approx(own[1])
            assert round_.metrics[f"{start}domain_error_mean"] == pytest.approx(np.mean(own))
            assert round_.metrics[f"{start}domain_error_std"] == pytest.approx(np.std(own))
            assert np.isnan(round_.metrics[f"{start}test_error_nobody_s"])


@pytest.mark.parametrize("method", ["fma", "ima", "ditto", "fedala", "fedbabu"])
def test_all_clients_are_tested_with_the_model_that_each_uses(runs: Any, method: str) -> None:
    """One for all; Ditto's and FedALA's own of their last participation, before it the deployed one."""
    run = runs(method)
    train_split, last = data_of(run).samples("train"), run.round("last")
    deployed = last.read("averaged" if method == "ima" else "global")
    found, tests = last.all_client_test_error, run.partition.test
    assert run.round(2).all_client_test_error is None
    assert found.shape == (6,)
    models = dict.fromkeys(range(6), deployed)
    kept = {"ditto": "personal", "fedala": "local"}.get(method)
    if kept:
        for t in run.rounds:
            ids = run.round(t).client_ids
            states = run.round(t).client_state(kept)
            models |= {int(k): states.row(i) for i, k in enumerate(ids)}
        assert sum(model is deployed for model in models.values()) < 6
    if method != "fedbabu":
        rows = {k: torch.from_numpy(tests[k]) for k in range(6)}
        expected = [wrong(run, models[k], train_split.x[rows[k]], train_split.y[rows[k]]).mean() for k in range(6)]
        np.testing.assert_allclose(found, expected)
    # the cohort's are those that the cohort's own columns are of
    cohort = found[last.client_ids]
    assert last.metrics["client_test_error_mean"] == pytest.approx(cohort.mean())
    assert last.metrics["client_test_error_std"] == pytest.approx(cohort.std())
    # and the deployed model on all of them: in FedSA's tables Ditto and FedALA are compared by theirs
    rows = [torch.from_numpy(tests[k]) for k in range(6)]
    shared = np.array([wrong(run, deployed, train_split.x[own], train_split.y[own]).mean() for own in rows])
    assert np.array_equal(found, shared) == (method in ("fma", "ima"))
    numbers = (found.mean(), found.std(), found.max(), shared.mean(), shared.std(), shared.max())
    assert [last.metrics[name] for name in ALL_MEASURED] == pytest.approx(numbers)


@pytest.mark.parametrize("method", ["fma", "ditto", "fedbabu"])
def test_measuring_everybody_changes_no_other_number(runs: Any, tmp_path: Path, method: str) -> None:
    plain, measured = train(config(method, run={"evaluate_all": "none"}), tmp_path / "plain"), runs(method)
    for t in plain.rounds:
        held = contents(measured.path / f"rounds/{t:05d}.h5")
        held.pop("all_client_test_error", None)
        assert held == contents(plain.path / f"rounds/{t:05d}.h5"), t
    theirs = plain.metrics()
    assert set(measured.metrics()) - set(theirs) == set(ALL_MEASURED)
    for name in set(theirs) - {"seconds"}:
        np.testing.assert_array_equal(theirs[name], measured.metrics()[name])


def test_the_table_has_further_columns_behind_those_of_every_run(runs: Any) -> None:
    path = runs("ima").path / "metrics.csv"
    own = (
        "test_error_Art_painting",
        "test_error_photo",
        "test_error_nobody_s",
        "domain_error_mean",
        "domain_error_std",
    )
    more = (*own, *(f"averaged_{name}" for name in own), *ALL_MEASURED)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == (*COLUMNS, *more, "crc32")
    assert [bool(row["all_client_test_error_worst"]) for row in rows] == [True, False, False, True]
    metrics = runs("ima").metrics()
    assert tuple(metrics) == (*COLUMNS, *more)
    for name in more:
        np.testing.assert_array_equal([float(row[name] or "nan") for row in rows], metrics[name])
    assert check_run(runs("ima").path).faults == ()


def test_a_changed_name_of_a_further_column_loses_all_rows(runs: Any, tmp_path: Path) -> None:
    table = tmp_path / "metrics.csv"
    table.write_text((runs("fma").path / "metrics.csv").read_text().replace("error_photo", "error_phoTo"))
    assert read_table(table) == {}
    shutil.copytree(runs("fma").path, tmp_path / "run")
    (tmp_path / "run/metrics.csv").write_text(table.read_text())
    np.testing.assert_array_equal(
        Run.open(tmp_path / "run").metrics()["test_error_photo"], runs("fma").metrics()["test_error_photo"]
    )


def test_an_interrupted_table_is_mended_with_all_its_columns(runs: Any, stop_after: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(config("ima"), tmp_path / "cut", watcher=stop_after(2))
    (tmp_path / "cut/metrics.csv").write_text("")
    found = resume(tmp_path / "cut").metrics()
    for name, values in runs("ima").metrics().items():
        if name != "seconds":
            np.testing.assert_array_equal(found[name], values)


def test_a_branch_adds_its_columns_to_those_of_its_history(runs: Any, tmp_path: Path) -> None:
    """An average over rounds brings averaged domains, and a measurement of all clients its own columns."""
    plain = train(config(run={"evaluate_all": "none"}), tmp_path / "plain")
    changes = {"average": {"method": "ima", "window": 2, "start": 3}, "run": {"evaluate_all": [3]}}
    made = branch(plain, 2, changes, tmp_path / "ima")
    assert set(ALL_MEASURED) & set(plain.metrics()) == set()
    table = read_table(made.path / "metrics.csv", made.identity)
    assert table.keys() == {1, 2, 3, 4}
    there = {name: [t for t in table if not np.isnan(table[t][name])] for name in table[1]}
    assert there["test_error_photo"] == [1, 2, 3, 4]
    assert there["all_client_test_error_mean"] == [3]
    assert there["averaged_test_error_photo"] == [3, 4]
    assert check_run(made.path).faults == ()


def test_a_row_a_client_that_is_too_short_is_damage(runs: Any, tmp_path: Path) -> None:
    shutil.copytree(runs("fma").path, tmp_path / "run")
    with h5py.File(tmp_path / "run/rounds/00001.h5", "r+") as file:
        del file["all_client_test_error"], file["checksums"], file.attrs["checksums"]
        file["all_client_test_error"] = np.zeros(5)
    with pytest.raises(FedscopeError, match=r"all_client_test_error has shape \(5,\), not one number a client of 6"):
        _ = Run.open(tmp_path / "run").round(1).metrics


def test_names_of_domains_are_names_of_columns() -> None:
    names = domain_columns(Groups(("MNIST-M", "Ünï/cöde", ",\n", "a b", "a_b", ""), np.empty(0), np.empty(0)))
    assert len({*names}) == 6
    columns = tuple(f"averaged_test_error_{name}" for name in names)
    assert further([columns]) == columns
    # and none of these is the name of a column that every run has
    assert [name for name in COLUMNS if FURTHER.fullmatch(name)] == []


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"run": {"evaluate_all": "1,9"}},
            r"^run.evaluate_all names round 9, but the run has 4; give rounds up to that, .last. for the last one, or "
            r"more --rounds$",
        ),
        (
            {"data": {"client_test": 0.0}},
            r"^run.evaluate_all = '1,last' tests clients on their own test parts, but data.client_test = 0 sets none "
            r"aside; give --set data.client_test=0.25$",
        ),
        ({"run": {"evaluate_all": "evry:2"}}, r'run.evaluate_all = "evry:2" is not a choice of rounds; did you mean'),
        ({"run": {"evaluate_all": "1,0"}}, r'run.evaluate_all = "1,0" is not a choice of rounds; give "all", "none"'),
        ({"run": {"evaluate_all": [0]}}, r"run.evaluate_all names round 0; rounds are whole numbers from 1 on"),
    ],
)
def test_rounds_that_cannot_be_are_refused(sections: Any, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        config(**sections)
