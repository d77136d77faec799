"""``fedscope forgetting`` as a user gives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray

from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.decomposition.forgetting.result import Forgetting, mean_over_clients
from fedscope.evaluation.evaluator import Evaluator
from fedscope.training import data_of, module_of

COMMAND = "forgetting"
pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = ["--clients", "8", "--participation", "0.5", "--rounds", "4", "--set", "model.hidden=[16]"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    words = ["--set", "record.clients=[1,3,4]", "--set", "data.client_test=0.2"]
    recorded(folder / "runs" / "fma", "--method", "fma", *SMALL, *words)
    return folder


def together(accuracy: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Right answers [K]."""
    return np.nansum(accuracy * count, axis=1)


def test_training_data_are_the_clients_own_or_the_others(runs: Path, said: Callable[..., str]) -> None:
    words = said("runs/fma", "--rounds", "1,4", "--out", "f")
    made, stored = Forgetting.load("f.nc"), Run.open("runs/fma")
    partition = stored.partition
    assert partition is not None
    every = np.concatenate(partition.clients)
    assert made.attrs["samples"] == len(every) < len(data_of(stored).samples("train"))  # without clients' test parts
    for i, number in enumerate((1, 4)):
        ids = stored.round(number).client_ids
        np.testing.assert_array_equal(made.client_ids[i], ids)
        np.testing.assert_array_equal(made.own[i], partition.label_counts[ids])
        np.testing.assert_array_equal(made.labels[i], partition.label_counts[ids])
        np.testing.assert_array_equal(made.own[i] + made.others[i], [partition.label_counts.sum(0)] * 4)
        samples = data_of(stored).samples("train")
        for k, client in enumerate(ids):  # its own data, and everything, as the evaluator has it
            for rows, right, count in (
                (partition.clients[client], together(made.after_own[i], made.own[i]), made.own[i]),
                (
                    every,
                    together(made.after_own[i], made.own[i]) + together(made.after_others[i], made.others[i]),
                    made.own[i] + made.others[i],
                ),
            ):
                part = type(samples)(samples.x[rows], samples.y[rows], 10, "digits", "train", rows)
                _, error = Evaluator(module_of(stored), part).models(stored.round(number).client(client))
                assert right[k] / count[k].sum() == pytest.approx(1 - error[0], abs=1e-9)
        # what was sent is one model, which knows the same of everything
        before = together(made.before_own[i], made.own[i]) + together(made.before_others[i], made.others[i])
        part = type(samples)(samples.x[every], samples.y[every], 10, "digits", "train", every)
        _, error = Evaluator(module_of(stored), part).models(stored.round(number).read("start"))
        np.testing.assert_allclose(before / len(every), 1 - error[0])
    (gain, loss), (gains, losses) = (
        [100 * value[1] for value in mean_over_clients(v)] for v in (made.own_gain, made.others_loss)
    )
    known, forgotten = int(made.known[1].sum()), int(made.forgotten[1].sum())
    assert words.splitlines()[1] == (
        f"fma, round 4: local training changes the accuracy on a client's own data by {gain:+.3g} ± {loss:.2g} points "
        f"and on the others' by {-gains:+.3g} ± {losses:.2g} points (mean of 4 clients ± standard error); {forgotten} "
        f"of {known} pairs of client and class known before are forgotten entirely"
    )
    assert gains > 10  # clients of two classes forget the others'
    assert words.splitlines()[2:] == ["  f.nc", "  f.pdf", "  f.png"]


def test_test_data_are_own_by_class(runs: Path, said: Callable[..., str]) -> None:
    out = json.loads(said("runs/fma", "--rounds", "last", "--split", "test", "--json"))
    assert Path(out["files"][0]) == Path("runs/fma/figures/forgetting-test-last.nc")
    with xarray.open_dataset(out["files"][0]) as file:
        own, others, labels = (file[name].values[0] for name in ("own", "others", "labels"))
    test = np.bincount(data_of(Run.open("runs/fma")).samples("test").y.numpy(), minlength=10)
    np.testing.assert_array_equal(own, np.where(labels > 0, test, 0))
    np.testing.assert_array_equal(others, np.where(labels > 0, 0, test))
    (one,) = out["rounds"]
    made = Forgetting.load(out["files"][0])
    assert one["own_gain"] == mean_over_clients(made.own_gain)[0][0]
    assert one["others_loss_stderr"] == mean_over_clients(made.others_loss)[1][0]
    assert [client["client"] for client in one["clients"]] == made.client_ids[0].tolist()
    assert [client["others_loss"] for client in one["clients"]] == made.others_loss[0].tolist()
    assert (one["known"], one["forgotten"]) == (int(made.known.sum()), int(made.forgotten.sum()))


def test_where_everybody_has_every_class_no_test_data_are_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--out", "iid", "--partition", "iid", *SMALL, "--rounds", "1"]) == 0
    words = said("iid", "--split", "test", "--out", "t")
    assert "and no sample is the others' (mean of 4 clients ± standard error)" in words
    assert not Forgetting.load("t.nc").others.any()
    assert "of 40 pairs" in said("iid", "--out", "d") or Forgetting.load("d.nc").others.all()


def test_clients_without_samples_in_a_subset_are_named(runs: Path, said: Callable[..., str]) -> None:
    words = said("runs/fma", "--rounds", "last", "--limit", "5", "--out", "f")
    made = Forgetting.load("f.nc")
    without = made.client_ids[0][made.own[0].sum(1) == 0]
    assert len(without)
    assert f"{', '.join(map(str, without))} without own samples here" in words
    assert f"(means of {4 - len(without)} and 4 clients ± standard error)" in words
    assert np.isnan(made.own_gain[0]).sum() == len(without)
    assert np.isnan(made.before_own[0][made.own[0] == 0]).all()
    out = json.loads(said("runs/fma", "--rounds", "last", "--limit", "5", "--out", "f", "--json"))
    assert [one["own_gain"] for one in out["rounds"][0]["clients"]].count(None) == len(without)


def test_a_cohort_of_one_has_no_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--out", "one", *SMALL, "--participation", "0.125", "--rounds", "1"]) == 0
    words = said("one", "--out", "f")
    assert "points (one client); " in words
    assert "±" not in words


def test_cohorts_of_other_sizes_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--out", "few", *SMALL, "--participation", "0.25", "--rounds", "1"]) == 0
    assert run(["train", "--from", "few@1", "--out", "more", *SMALL[2:], "--rounds", "2"]) == 0
    first, last, *_ = said("more", "--out", "f").splitlines()
    assert "(mean of 2 clients ± standard error)" in first
    assert "(mean of 4 clients ± standard error)" in last
    (alone, *_) = said("more", "--rounds", "1", "--out", "g").splitlines()
    assert first == alone
    with xarray.open_dataset("f.nc") as file:
        assert (file["client_ids"].values >= 0).sum(axis=1).tolist() == [2, 4]


def without_start(run_: Path) -> None:
    with h5py.File(run_ / "rounds/00004.h5", "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        del file["start"]


def foreign(run_: Path) -> None:
    info = json.loads((run_ / "run.json").read_text())
    (run_ / "run.json").write_text(json.dumps({**info, "files": {}, "source": "flower 1.0"}))
    (run_ / "partition.h5").unlink()


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (None, ["--rounds", "2"], r"runs/fma@2: the clients of round 2 were not recorded; rounds 1, 3, 4 have them"),
        (without_start, [], r"runs/fma@4 recorded its clients, but not the model .*no before; rounds 1, 3 have it"),
        (foreign, [], r"runs/fma does not say which client holds which samples \(no partition\.h5\), so no d"),
    ],
)
def test_mistakes_end_in_one_sentence(
    runs: Path, said: Callable[..., str], change: Callable[[Path], None] | None, words: list[str], message: str
) -> None:
    if change is not None:
        change(runs / "runs/fma")
    with pytest.raises(FedscopeError, match=message):
        said("runs/fma", *words)


def test_a_client_that_diverged_is_named_and_the_numbers_stay(runs: Path, said: Callable[..., str]) -> None:
    assert "not finite" not in said("runs/fma", "--rounds", "1,4", "--out", "sound")
    client = int(Run.open("runs/fma").round(4).client_ids[1])
    with h5py.File("runs/fma/rounds/00004.h5", "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        file["clients/fc2.bias" if "clients/fc2.bias" in file else "clients/head.bias"][1] = np.nan
    sound, broken = said("runs/fma", "--rounds", "1,4", "--out", "f").splitlines()[:2]
    assert "not finite" not in sound  # round 1
    assert broken.endswith(f"; the model of client {client} in round 4 is not finite, and NaN outputs count as wrong")
    made = Forgetting.load("f.nc")
    assert [made.diverged_in(i) for i in (0, 1)] == [[], [client]]
    assert not np.nan_to_num(made.after_own[1, 1]).any()
    one, four = json.loads(said("runs/fma", "--rounds", "1,4", "--out", "f", "--json"))["rounds"]  # of the kept result
    assert (one["diverged"], four["diverged"]) == ([], [client])
