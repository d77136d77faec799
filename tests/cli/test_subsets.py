"""``fedscope subsets`` as a user gives it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.decomposition.subsets.result import Subsets
from fedscope.evaluation.evaluator import Evaluator
from fedscope.training import data_of, module_of

COMMAND = "subsets"
pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = [
    "--clients", "8", "--participation", "0.5", "--rounds", "4", "--epochs", "2",
    "--set", "model.hidden=[16]", "--partition", "dirichlet:1",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    for method, extra in (("ima", ["--set", "average.start=3"]), ("fma", ["--set", "record.clients=[1,3,4]"])):
        recorded(folder / "runs" / method, "--method", method, *SMALL, *extra)
    return folder


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_one_client_is_itself_and_all_are_the_global_model(runs: Path, said: Callable[..., str]) -> None:
    words = said("runs/fma", "--rounds", "1,last", "--out", "s")
    rows = rows_of("s.subsets.csv")
    assert [(row["round"], row["m"], row["subsets"]) for row in rows] == [
        (t, m, n) for t in "14" for m, n in (("1", "4"), ("2", "6"), ("3", "4"), ("4", "1"))
    ]
    assert {(row["run"], row["weights"], row["exhaustive"]) for row in rows} == {("fma", "samples", "True")}
    # the run measured its global model, which for FMA is the average of all, on the same test split
    metrics = {row["round"]: row for row in rows_of("runs/fma/metrics.csv")}
    for row in rows[3::4]:
        assert float(row["error_mean"]) == float(metrics[row["round"]]["test_error"])
        assert float(row["loss_mean"]) == pytest.approx(float(metrics[row["round"]]["test_loss"]), rel=1e-6)
    stored = Run.open("runs/fma")
    _, errors = Evaluator(module_of(stored), data_of(stored).samples("test")).models(stored.round(4).clients())
    assert float(rows[4]["error_mean"]) == pytest.approx(errors.mean(), rel=1e-12)
    assert float(rows[4]["error_std"]) == pytest.approx(errors.std(ddof=1), rel=1e-12)
    lines = words.splitlines()
    first, last = (f"{100 * float(rows[i]['error_mean']):.3g} %" for i in (4, 7))
    assert lines[1].startswith(
        f"fma, round 4: test error of a single client {first}, of the average of all 4 {last}; nine tenths of the "
        "difference are there from m = "
    )
    assert lines[2:] == [f"  s.{name}" for name in ("subsets.csv", "subsets.json", "pdf", "png")]


def test_runs_with_the_same_cohorts_meet_the_same_subsets(runs: Path, said: Callable[..., str]) -> None:
    out = json.loads(said("runs/fma", "runs/ima", "--rounds", "1", "--subsets", "3", "--sizes", "2,1", "--json"))
    fma, ima = out["rounds"]
    assert (fma["run"], fma["clients"], [row["m"] for row in fma["sizes"]]) == ("fma", 4, [1, 2])
    assert ima["sizes"] == fma["sizes"]  # in round 1 they have the same clients
    assert (fma["sizes"][1]["subsets"], fma["sizes"][1]["exhaustive"]) == (3, False)
    assert fma["sizes"][1]["error_stderr"] > 0
    assert Path(out["files"][0]) == Path("runs/fma/figures/subsets-test-ima-1.subsets.csv")
    assert all(Path(path).exists() for path in out["files"])


def test_the_seed_draws_and_the_weights_weigh(runs: Path, said: Callable[..., str]) -> None:
    words = ["runs/ima", "--rounds", "2", "--subsets", "2", "--sizes", "2,4", "--json"]
    made = {
        name: json.loads(said(*words, *more, "--out", name))["rounds"][0]["sizes"]
        for name, more in {"a": [], "b": ["--seed", "2"], "c": ["--weights", "uniform"]}.items()
    }
    assert made["a"][0] != made["b"][0]
    assert made["a"][1] == made["b"][1]
    samples = Run.open("runs/ima").round(2).client_samples
    assert len(set(samples)) > 1
    assert made["a"][1] != made["c"][1]
    assert Subsets.load("c").weights == "uniform"
    assert Subsets.load("b").attrs["seed"] == 2


def test_training_data_are_all_clients(runs: Path, said: Callable[..., str]) -> None:
    words = said("runs/ima", "--rounds", "last", "--split", "train", "--limit", "50", "--out", "t")
    assert words.startswith("ima, round 4: train error of a single client")
    assert {key: Subsets.load("t").attrs[key] for key in ("split", "samples", "data")} == {
        "split": "train", "samples": 50, "data": "digits"
    }  # fmt: skip


def test_a_cohort_of_one_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--out", "one", *SMALL, "--participation", "0.125", "--rounds", "1"]) == 0
    assert said("one", "--out", "s").startswith(
        "one, round 1: a cohort of one client, so nothing is averaged; test error "
    )
    (row,) = rows_of("s.subsets.csv")
    assert (row["m"], row["subsets"], row["exhaustive"], row["error_std"]) == ("1", "1", "True", "")
    with pytest.raises(FedscopeError, match=r"--sizes 2: one@1 has 1 client, so there is no average of 2; give size 1"):
        said("one", "--sizes", "2", "--out", "other")


def test_of_large_cohorts_some_sizes_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--clients", "24", "--participation", "1", "--rounds", "1", "--epochs", "1", "--set", "model.hidden=[8]"]
    assert run(["train", "--out", "large", *words]) == 0
    out = json.loads(said("large", "--subsets", "2", "--out", "s", "--json"))
    sizes = [row["m"] for row in out["rounds"][0]["sizes"]]
    assert sizes[:2] == [1, 2]
    assert sizes[-1] == 24
    assert len(sizes) <= 12
    out = json.loads(said("large", "--subsets", "1", "--sizes", "all", "--out", "t", "--json"))
    assert [row["m"] for row in out["rounds"][0]["sizes"]] == list(range(1, 25))
    assert out["rounds"][0]["sizes"][5]["error_std"] is None  # one subset of many has no deviation


def foreign(run_: Path) -> None:
    info = json.loads((run_ / "run.json").read_text())
    (run_ / "run.json").write_text(json.dumps({**info, "files": {}, "source": "flower 1.0"}))
    (run_ / "config.toml").unlink()


def test_the_start_is_not_needed(runs: Path, said: Callable[..., str], rewrite: Any) -> None:
    rewrite("runs/ima", 4, without=["start"])
    assert "average of all 4" in said("runs/ima", "--rounds", "last")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/fma", "--rounds", "2"], r"runs/fma@2: the clients of round 2 were not recorded; rounds 1, 3, 4 have"),
        (["runs/fma", "--sizes", "5"], r"--sizes 5: runs/fma@1 has 4 clients, so there is no average of 5; .* 1 to 4"),
        (["runs/fma", "--sizes", "0,1"], r"--sizes 0,1: runs/fma@1 has 4 clients, so there is no average of 0"),
        (["runs/fma", "--sizes", "1,x"], r"--sizes 1,x: 'x' is not a number; write 1,2,5,10 or all"),
    ],
)
def test_mistakes_end_in_one_sentence(runs: Path, said: Callable[..., str], words: list[str], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        said(*words)


def other_data(run_: Path) -> None:
    info = json.loads((run_ / "run.json").read_text())
    info["data"]["sha256"], info["files"] = "0" * 64, {}
    (run_ / "run.json").write_text(json.dumps(info))


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (foreign, ["runs/ima"], r"runs/ima was recorded by flower 1.0 and names no architecture; give --model"),
        (other_data, ["runs/fma", "runs/ima"], r"runs/fma and runs/ima were trained on different data; ask for one"),
    ],
)
def test_runs_that_cannot_be_measured_are_refused(
    runs: Path, said: Callable[..., str], change: Callable[[Path], None], words: list[str], message: str
) -> None:
    change(runs / "runs/ima")
    with pytest.raises(FedscopeError, match=message):
        said(*words)


def test_training_data_of_other_clients_are_other_data(runs: Path, said: Callable[..., str]) -> None:
    words = ["train", "--method", "fma", "--out", "runs/held", *SMALL, "--rounds", "1", "--set", "data.client_test=0.2"]
    assert run(words) == 0
    with pytest.raises(FedscopeError, match=r"runs/fma and runs/held were trained on different parts of the data"):
        said("runs/fma", "runs/held", "--rounds", "1", "--split", "train")
    assert said("runs/fma", "runs/held", "--rounds", "1")
    said("runs/held", "--rounds", "1", "--split", "train", "--out", "held")
    partition = Run.open("runs/held").partition
    assert partition is not None
    assert Subsets.load("held").attrs["samples"] == len(np.concatenate(partition.clients))


def test_a_client_that_diverged_is_named_and_the_numbers_stay(runs: Path, said: Callable[..., str]) -> None:
    ids = [int(k) for k in Run.open("runs/fma").round(4).client_ids]
    for rows, end in (
        ([2], f"; the model of client {ids[2]} in round 4 is not finite, nor are averages with it, and"),
        ([1, 2], f"; the models of clients {ids[1]}, {ids[2]} in round 4 are not finite, nor are averages with one of"),
    ):
        with h5py.File("runs/fma/rounds/00004.h5", "r+") as file:
            file.pop("checksums", None), file.attrs.pop("checksums", None)
            for row in rows:
                file["clients/head.bias"][row] = np.nan
        words = said("runs/fma", "--rounds", "1,4", "--out", "s", "--force")
        one, four = words.splitlines()[:2]
        assert "not finite" not in one
        assert end in four
        assert four.endswith("NaN outputs count as wrong")
        assert [row.diverged for row in Subsets.load("s").rounds] == [(), tuple(ids[row] for row in rows)]
        told = json.loads(said("runs/fma", "--rounds", "1,4", "--out", "s", "--json"))["rounds"]
        assert [row["diverged"] for row in told] == [[], [ids[row] for row in rows]]
        assert told[1]["sizes"][-1]["error_mean"] == 1
    for sizes in ("1", "1,2"):
        assert "in round 4 are not finite" in said("runs/fma", "--rounds", "4", "--sizes", sizes, "--out", sizes)
