"""Reports, counts, similarities and curves of a run whose task has no classes and no error."""

from __future__ import annotations

import csv
import html
import re
from pathlib import Path

import numpy as np
import pytest

import fedscope
from fedscope import Run
from fedscope.cli.main import run as command
from fedscope.reporting.clients import clients_of

pytestmark = pytest.mark.same_elsewhere


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression, and a run of classes on other targets of the same samples."""
    folder, draw = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0)
    x, w = draw.normal(size=(60, 4)).astype(np.float32), draw.normal(size=4)
    y = (x @ w).astype(np.float32)
    arrays = {"x_train": x[:40], "x_test": x[40:]}
    np.savez(folder / "numbers.npz", y_train=y[:40], y_test=y[40:], **arrays)
    np.savez(folder / "classes.npz", y_train=(y[:40] > 0).astype(int), y_test=(y[40:] > 0).astype(int), **arrays)
    small = {"clients": 4, "rounds": 2, "participation": 1, "partition": "iid", "method": "fma", "lr": 0.01}
    for name, task in (("numbers", "regression"), ("classes", None)):
        fedscope.train(data=f"npz:{folder / name}.npz", task=task, out=folder / "runs" / name, **small)
    return folder


@pytest.fixture
def here(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(runs)
    return tmp_path


def words_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8")))


def test_a_report_names_commands_that_answer(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It sent to explain, which needs classes, and to measures of clients' errors, which there are none of."""
    assert command(["report", "runs/numbers", "--out", str(here / "page")]) == 0
    said = words_of(here / "page.html")
    assert "the clients' models were not measured (fedscope subsets RUN does it)" in said
    assert "Not measured: fedscope decompose RUN says it." in said
    assert "fedscope decompose RUN says what the loss is made of" in said
    assert "explain RUN" not in said
    assert command(["report", "runs/classes", "--out", str(here / "other")]) == 0
    said = words_of(here / "other.html")
    assert "Not measured: fedscope explain RUN says it." in said
    assert "decompose RUN" not in said


def test_clients_have_no_class(here: Path) -> None:
    """Each held "0 (100 %)", as if all had one label."""
    assert [one.classes for one in clients_of(Run.open("runs/numbers"))] == [()] * 4
    assert all(one.classes for one in clients_of(Run.open("runs/classes")))
    assert command(["data", "runs/numbers", "--out", str(here / "counts")]) == 0
    with (here / "counts.counts.csv").open(encoding="utf-8", newline="") as file:
        assert [(row["class"], row["samples"]) for row in csv.DictReader(file)] == [("", "10")] * 4


def test_clients_without_labels_agree_about_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fedscope.synergy("runs/numbers@2").summary()
    assert "labels: the run's task has no classes, so there are none" in said
    assert "label set" not in said
    assert "label set" in fedscope.synergy("runs/classes@2").summary()
    assert "similar labels" not in fedscope.matrix("runs/numbers").pages()[""]
    assert command(["theory", "runs/numbers", "--kernel", "none"]) == 2
    assert capsys.readouterr().err.startswith("fedscope: theory (Lemma 1) needs a class a sample, and npz:")


def test_a_run_without_an_error_was_measured(here: Path) -> None:
    said = fedscope.curves(["runs/numbers", "runs/classes"]).summary()
    assert "numbers has no error, only a loss, classes " in said
    assert "not measured" not in said
