"""Runs of one name from two folders: called by their paths, as ``curves`` calls them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedscope
from fedscope.cli.main import run as command

pytestmark = pytest.mark.same_elsewhere

BOTH = ["runs/ima", "s1/ima"]
ONCE = "fedscope: 2 of the runs are called 'ima'; rename a folder, and give a run only once\n"


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, out in enumerate(BOTH):
        fedscope.train(clients=3, rounds=1, participation=1, seed=seed, out=out)


def test_decompose_takes_draws_of_runs_of_one_name(two: None, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["decompose", *BOTH, "--draws", "runs", "--rounds", "1", "--split", "test"]
    assert command(asked) == 0
    said = capsys.readouterr().out
    assert said.startswith("runs/ima+s1/ima, round 1: ")
    assert Path("runs/ima/figures/decompose-test-runs-s1-ima-1.factors.csv").read_text().count("runs/ima+s1/ima") > 0
    assert command(asked) == 0  # it is found again
    again = capsys.readouterr()
    assert "already holds this result" in again.err
    assert again.out == said
    assert command([*asked, "--redraw"]) == 0


def test_each_of_them_has_rows_of_its_own(two: None) -> None:
    found = fedscope.decompose(BOTH, draws="none", rounds=1, split="test")
    assert found.list_names() == ("runs/ima", "s1/ima")
    alone = [fedscope.decompose(one, draws="none", rounds=1, split="test").rows()[0] for one in BOTH]
    assert [row[1:] for row in found.rows()[0]] == [row[1:] for rows in alone for row in rows]


def test_a_report_tells_them_apart(two: None) -> None:
    for run in BOTH:
        assert command(["updates", run]) == 0
    made = fedscope.report(BOTH)
    assert made.title == "Report on runs/ima and s1/ima"
    assert (made.results, made.broken) == (2, {})
    made.save("page.html")
    heads = re.findall(r"<h3>([^<]*)</h3>", Path("page.html").read_text())
    assert {"runs/ima", "s1/ima"} <= set(heads)
    assert "ima" not in heads
    names = ["first", "second"]
    labelled = fedscope.report(BOTH, labels=names)
    labelled.save("labelled.html")
    page = re.sub(r'<(script|svg).*?</\1>|src="[^"]*"', "", Path("labelled.html").read_text(), flags=re.DOTALL)
    assert labelled.title == "Report on first and second"
    told = {label: fedscope.updates(run).summary().split()[5] for label, run in zip(names, BOTH, strict=True)}
    assert dict(re.findall(r"(first|second): mean cosine between updates (\S+)", page)) == told  # whose result is whose
    assert len(set(told.values())) == 2
    assert fedscope.report(BOTH, labels={"s1/ima": "second"}).title == "Report on runs/ima and second"


@pytest.mark.parametrize("words", ["decompose runs/ima runs/ima --draws none", "report runs/ima runs/ima"])
def test_a_run_that_is_given_twice_is_refused(two: None, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert command(words.split()) == 2
    assert capsys.readouterr().err == ONCE


def test_names_that_differ_stay_as_they_are(two: None) -> None:
    Path("s1/ima").rename("s1/other")
    found = fedscope.decompose(["runs/ima", "s1/other"], draws="none", rounds=1, split="test")
    assert found.list_names() == ("ima", "other")
    assert fedscope.report(["runs/ima", "s1/other"]).title == "Report on ima and other"


def test_labels_of_them_stand_beside_their_paths(two: None) -> None:
    """As of runs of two names, so that the command does not take them for the runs' own."""
    found = fedscope.decompose(BOTH, rounds=1, split="test").renamed({"runs/ima": "A", "s1/ima": "B"})
    assert [one.get("label") for one in found.attrs["run"]] == ["A", "B"]
    assert [one["path"].rpartition("/")[0].rpartition("/")[2] for one in found.attrs["run"]] == ["runs", "s1"]


def test_a_report_calls_runs_and_no_servers_so(two: None) -> None:
    """A run has the name of a server's row; and labels are of runs, however their paths were typed before."""
    both = [one.replace("ima", "fma") for one in BOTH]
    for one, other in zip(BOTH, both, strict=True):
        Path(one).rename(other)
    assert command(["reaggregate", f"{both[0]}@1", "--server", "ties", "--split", "test"]) == 0
    assert command(["decompose", *both, "--rounds", "1", "--split", "test", "--draws", "none"]) == 0
    fedscope.report([str(Path(one).resolve()) for one in both], labels=["A", "B"]).save("page.html")
    page = re.sub(r'<(script|svg).*?</\1>|src="[^"]*"', "", Path("page.html").read_text(), flags=re.DOTALL)
    assert "ties less fma on the same samples" in page
    for name in "AB":
        assert f"{name}, round 1: training bias" in page
    assert not any(f"{one}, round 1" in page for one in both)


@pytest.mark.parametrize(
    "words",
    [
        ["line", "{}@1/client-0", "{}@1/global", "--points", "3"],
        ["plane", "{}@1/client-0", "{}@1/client-1", "{}@1/global", "--grid", "3"],
        ["plane", "{}", "--rounds", "1", "--grid", "3"],
        ["sharpness", "{}@1/global", "--no-hessian", "--draws", "1"],
    ],
)
def test_a_result_of_a_run_by_another_path_is_found_again(
    two: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """It was "another result"; a run of the same name that holds other models still is one."""

    def ask(run: str) -> int:
        return command([*(word.format(run) for word in words), "--limit", "20", "--out", "kept/x"])

    assert ask("runs/ima") == 0
    for path in (f"{tmp_path}/runs/ima", "runs/../runs/ima"):
        capsys.readouterr()
        assert ask(path) == 0
        assert "already holds this result" in capsys.readouterr().err
    Path("runs").rename("moved")
    assert ask("moved/ima") == 0
    assert ask("s1/ima") == 2
    said = capsys.readouterr().err
    assert "holds another result, of " in said
    assert "made again" not in said  # nor have weights changed: it is another run
    assert "have changed" not in said
