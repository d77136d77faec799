"""`make papers`: the script that redraws the papers' figures, tried on small runs of the embedded digits."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MAKE = Path(__file__).parents[1] / "docs" / "papers" / "make"
EXAMPLES = ("verdicts.py", "outcomes.py", "kept.py", "ima_silo_rules.py", "page.py", "wima_rules.py", "fedsa_rules.py")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def make(folder: Path) -> str:
    words = [sys.executable, str(MAKE), "ima", "--quick", "--runs", str(folder)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_the_examples_of_the_verdicts_hold() -> None:
    words = [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", *(str(MAKE / name) for name in EXAMPLES)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_pages_are_what_their_kept_numbers_say() -> None:
    code = (
        "from page import answered, written; from papers_main import PAGES, PAPERS, page_of_findings\n"
        "for name, make in PAPERS.items():\n"
        "    results = PAGES / 'results' / name\n"
        "    if results.exists():\n"
        "        page = written(answered(make(False), results), results)\n"
        "        assert page == (PAGES / f'{name}.md').read_text(encoding='utf-8'), name\n"
        "        print(name)\n"
        "assert page_of_findings(PAGES) == (PAGES / 'findings.md').read_text(encoding='utf-8')\n"
    )
    load = (
        "import importlib.util, sys; sys.path.insert(0, sys.argv[1])\n"
        "spec = importlib.util.spec_from_file_location('papers_main', sys.argv[1] + '/__main__.py')\n"
        "sys.modules['papers_main'] = module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
    )
    done = subprocess.run([sys.executable, "-c", load + code, str(MAKE)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ima" in done.stdout.split()


def test_a_run_that_another_command_made_is_not_taken_for_this_one(tmp_path: Path) -> None:
    same = "--clients 2 --participation 1"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from work import *\n"
        "place = Workplace(Path(sys.argv[2]), Path(sys.argv[2]) / 'results')\n"
        "for words in sys.argv[3:]:\n"
        "    print('asked', flush=True)\n"
        "    run = Trained('a', f'--model mlp --rounds 1 {words}', 1)\n"
        "    place.ask([Asked('line', 'line a@1/client-0 a@1/client-1 --points 3', ('a',))], [run])\n"
    )
    words = [sys.executable, "-c", code, str(MAKE), str(tmp_path), same, same, f"{same} --lr 0.02"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (tmp_path / "results" / "line.nc").exists(), done.stderr
    first, second, third = done.stdout.split("asked\n")[1:]
    assert first
    assert second == "", "nothing is trained or asked"
    assert third == ""
    assert done.returncode == 1
    assert "a was made by another command; delete that folder, or give another --runs" in done.stderr


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
