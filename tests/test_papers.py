"""`make papers`: the script that redraws the papers' figures, tried on small runs of the embedded digits."""

from __future__ import annotations

import doctest
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paper_script import MAKE, imported

from fedscope.cli.main import run

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere]

EXAMPLES = ("verdicts", "outcomes", "kept", "ima_silo_rules", "page", "wima_rules", "fedsa_rules")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def make(folder: Path) -> str:
    words = [sys.executable, str(MAKE), "ima", "--quick", "--runs", str(folder)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def made() -> Iterator[SimpleNamespace]:
    """The modules of the script."""
    with imported() as modules:
        yield modules


def test_the_examples_of_the_verdicts_hold(made: SimpleNamespace) -> None:
    found = [doctest.testmod(getattr(made, name), optionflags=doctest.ELLIPSIS) for name in EXAMPLES]
    assert [one.failed for one in found] == [0] * len(EXAMPLES)
    assert all(one.attempted for one in found)


def test_the_pages_are_what_their_kept_numbers_say(made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim is judged once, for its paper's page and for the page ahead that counts it."""
    papers = {}
    for name, make in made.script.PAPERS.items():
        paper = make(False)
        papers[name] = replace(paper, figures=tuple(replace(one, judged=cache(one.judged)) for one in paper.figures))
    monkeypatch.setattr(made.script, "PAPERS", {name: lambda quick, own=paper: own for name, paper in papers.items()})
    groups = cache(made.page.groups)
    for module in (made.page, made.findings):
        monkeypatch.setattr(module, "groups", groups)
    pages = made.script.PAGES
    measured = {name: pages / "results" / name for name in papers if (pages / "results" / name).exists()}
    assert "ima" in measured
    for name, results in measured.items():
        page = made.page.written(made.page.answered(papers[name], results), results)
        assert page == (pages / f"{name}.md").read_text(encoding="utf-8"), name
    assert made.script.page_of_findings(pages) == (pages / "findings.md").read_text(encoding="utf-8")


def test_a_run_that_another_command_made_is_not_taken_for_this_one(
    made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(words: Sequence[Any], *, cwd: Path, check: bool) -> None:
        """A command as the script starts it, without a process of its own."""
        assert words[0] == Path(sys.executable).with_name("fedscope")
        assert check
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            assert run([*map(str, words[1:])]) == 0

    monkeypatch.setattr(made.work.subprocess, "run", here)
    place = made.work.Workplace(tmp_path, tmp_path / "results")

    def ask(words: str) -> str:
        trained = made.work.Trained("a", f"--model mlp --rounds 1 --clients 2 --participation 1{words}", 1)
        line = made.work.Asked("line", "line a@1/client-0 a@1/client-1 --points 3", ("a",))
        place.ask([line], [trained])
        return capsys.readouterr().out

    assert ask("")
    assert (tmp_path / "results" / "line.nc").exists()
    assert ask("") == "", "nothing is trained or asked"
    said = "a was made by another command; delete that folder, or give another --runs"
    with pytest.raises(SystemExit, match=said):
        ask(" --lr 0.02")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("ending", [".json", ".csv", ".nc"])
def test_half_written_numbers_are_said_with_their_file(made: SimpleNamespace, tmp_path: Path, ending: str) -> None:
    kept = made.script.PAGES / "results" / "fedsa"
    results = shutil.copytree(kept, tmp_path / "results" / "fedsa")
    assert made.kept.damaged(results) == ""
    half = next(path for path in sorted(results.glob(f"*{ending}")) if path.name != "commands.json")
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2 - 1])
    with pytest.raises(SystemExit) as stopped, made.script.told_of_damage(results):
        raise ValueError("what cannot be read")
    answer = half.name.partition(".")[0]
    assert str(stopped.value) == (
        f"make papers: {half} is damaged or half-written; `git checkout -- {half}` brings back what is committed, or "
        f"delete {results / answer}.* and run `make papers` again"
    )
    with pytest.raises(ValueError, match="of another cause"), made.script.told_of_damage(kept):
        raise ValueError("of another cause")


def test_a_file_for_the_runs_and_half_written_commands_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = [sys.executable, str(MAKE), "ima", "--quick", "--pages", "--runs"]
    done = subprocess.run([*words, str(tmp_path / "file")], check=False, capture_output=True, text=True)
    said = f"make papers: {tmp_path / 'file'} is a file; name a folder for the runs with --runs\n"
    assert (done.returncode, done.stderr) == (2, said)
    commands = tmp_path / "runs" / "pages" / "results" / "ima" / "commands.json"
    commands.parent.mkdir(parents=True)
    commands.write_text('{"fig1": "fedsc')
    done = subprocess.run([*words, str(tmp_path / "runs")], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        f"make papers: {commands} is damaged or half-written; `git checkout -- {commands}` brings back what is "
        f"committed, or delete {commands.with_suffix('')}.* and run `make papers` again\n",
    )


@pytest.mark.slow
def test_pages_are_made_once_and_again_from_their_numbers_alone(tmp_path: Path) -> None:
    assert "ima/device: 0 of 12 rounds" in make(tmp_path)
    first = contents(tmp_path / "pages")
    page = first["ima.md"].decode()
    for name in (
        "fig1",
        "fig2",
        "fig3",
        "fig4a",
        "fig4b",
        "fig5b",
        "fig5c",
        "fig7a",
        "fig7b",
        "fig7c",
        "fig8",
        "fig10",
    ):
        assert f"](ima/{name}.png)" in page
        assert first[f"ima/{name}.png"].startswith(b"\x89PNG")
        assert f"| {name} | " in page, "each figure has a verdict"
    assert str(tmp_path) not in page
    shutil.rmtree(tmp_path / "ima")
    shutil.rmtree(tmp_path / "answers")
    assert make(tmp_path) == "", "nothing is trained or asked"
    assert contents(tmp_path / "pages") == first
    # an answer that is lost is asked again, with the runs that it needs
    (tmp_path / "pages" / "results" / "ima" / "fig5c.nc").unlink()
    assert "ima/device-ima: 0 of 12 rounds" in make(tmp_path)


def test_data_that_are_missing_are_said_and_nothing_else(tmp_path: Path) -> None:
    make = shutil.copytree(MAKE, tmp_path / "make", ignore=shutil.ignore_patterns("__pycache__"))
    words = [sys.executable, "-B", str(make), "--runs", str(tmp_path / "runs")]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "cifar10.npz" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["make", "runs"], "no folder for what is not there"


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    words = "train --recipe ima/fig1 --data digits --model mlp --set data.partition=shards:2 --set run.rounds=12"
    more = "--set record.clients=[1,6,12] --set run.evaluate_clients=0 --until 4 --out ima/device"
    fedscope = Path(sys.executable).with_name("fedscope")
    subprocess.run([fedscope, *words.split(), *more.split()], cwd=tmp_path, check=True)
    assert "ima/device: 4 of 12 rounds" in make(tmp_path)
