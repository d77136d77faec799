"""`make papers`: the script that redraws the papers' figures, tried on small runs of the embedded digits."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MAKE = Path(__file__).parents[1] / "docs" / "papers" / "make"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def make(folder: Path) -> str:
    words = [sys.executable, str(MAKE), "--quick", "--runs", str(folder)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_the_examples_of_the_verdicts_hold() -> None:
    words = [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", str(MAKE / "verdicts.py")]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_pages_are_made_once_and_again_from_their_numbers_alone(tmp_path: Path) -> None:
    assert "ima/device: 0 of 12 rounds" in make(tmp_path)
    first = contents(tmp_path / "pages")
    page = first["ima.md"].decode()
    for name in ("fig1", "fig2", "fig3", "fig4a", "fig4b", "fig5b", "fig5c", "fig8", "fig10"):
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
    words = [sys.executable, str(MAKE), "--runs", str(tmp_path / "runs")]
    before = sorted(MAKE.parent.rglob("*"))
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "cifar10.npz" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(MAKE.parent.rglob("*")) == before, "no folder is made for what is not there"


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    words = "train --recipe ima/fig1 --data digits --model mlp --set data.partition=shards:2 --set run.rounds=12"
    more = "--set record.clients=[1,6,12] --set run.evaluate_clients=0 --until 4 --out ima/device"
    fedscope = Path(sys.executable).with_name("fedscope")
    subprocess.run([fedscope, *words.split(), *more.split()], cwd=tmp_path, check=True)
    assert "ima/device: 4 of 12 rounds" in make(tmp_path)
