"""``fedscope sharpness`` as a user gives it."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedscope
from fedscope.checkpoints import FedscopeError, load_model, write_file
from fedscope.cli.main import fedscope as group
from fedscope.landscape import Sharpness

pytestmark = pytest.mark.usefixtures("few_digits")

QUICK = ["--limit", "60", "--draws", "2", "--probes", "2", "--top", "2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    words = ["--clients", "8", "--participation", "0.5", "--rounds", "4", "--set", "model.hidden=[16]"]
    for method, extra in (("ima", ["--set", "average.start=3"]), ("fma", [])):
        recorded(folder / "runs" / method, "--method", method, *words, *extra)
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    group.main(["sharpness", *words], standalone_mode=False)
    return capsys.readouterr().out


def test_runs_over_rounds_are_one_table_and_one_figure(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = said(capsys, "runs/fma", "runs/ima", "--rounds", "1,last", *QUICK, "--out", "s")
    lines = words.splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == [
        "fma@1/global", "fma@4/global", "ima@1/global", "ima@4/averaged"
    ]  # fmt: skip
    assert lines[4] == "± one standard error over the random directions drawn"
    assert lines[5:] == ["  s.sharpness.csv", "  s.sharpness.json", "  s.pdf", "  s.png"]
    made = Sharpness.load("s")
    trace = made.models[1].measure("trace")
    assert trace is not None
    assert f"trace {trace.value:.3g} ± {trace.stderr:.1g}; within 0.05 it rises by" in lines[1]
    assert (made.attrs["split"], made.attrs["samples"], made.attrs["rho"]) == ("train", 60, 0.05)
    with Path("s.sharpness.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["split"] for row in rows} == {"train"}
    # the same again is read back, another is not overwritten
    png = Path("s.png").read_bytes()
    assert said(capsys, "runs/fma", "runs/ima", "--rounds", "1,last", *QUICK, "--out", "s") == words
    assert Path("s.png").read_bytes() == png
    with pytest.raises(FedscopeError, match=r"s\.sharpness\.json holds another result, of --rho [\d.]+ \(not 0\.1\);"):
        said(capsys, "runs/fma", "runs/ima", "--rounds", "1,last", *QUICK, "--out", "s", "--rho", "0.1")


def test_addresses_files_and_the_function_give_the_same_numbers(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_file("best.pt", load_model("runs/fma@last/global").weights)
    models = ["runs/fma", "runs/ima@3,4/global", "best.pt"]
    settings = ["--no-hessian", "--split", "test", "--relative", "0.2", "--seed", "1"]
    out = json.loads(said(capsys, *models, *QUICK[:4], *settings, "--json"))  # without what is of the Hessian
    assert [(one["run"], one["round"], one["model"]) for one in out["models"]] == [
        ("fma", 4, "global"), ("ima", 3, "global"), ("ima", 4, "global"), ("", None, "best")
    ]  # fmt: skip
    assert out["models"][0]["measures"] == out["models"][3]["measures"]
    assert "trace" not in out["models"][0]["measures"]
    assert all(Path(path).exists() for path in out["files"])
    assert Path(out.pop("files")[0]).parent == Path("runs/fma/figures")
    asked: dict[str, Any] = {"hessian": False, "split": "test", "relative": 0.2, "seed": 1}
    assert fedscope.sharpness(models, **asked, limit=60, draws=2).numbers() == out


def test_a_density_is_one_more_file(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("curvlinops")
    words = said(capsys, "runs/fma@last", *QUICK, "--density", "8", "--out", "d")
    assert "  d.spectrum.csv\n" in words
    assert Sharpness.load("d").models[0].spectrum is not None


def test_the_seed_draws_directions_too(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["runs/fma@last", "--no-hessian", "--draws", "2", "--json"]
    values = [
        json.loads(said(capsys, *words, "--seed", str(seed), "--out", f"s{seed}"))["models"][0]["measures"]
        for seed in (0, 1)
    ]
    assert values[0]["loss"] == values[1]["loss"]
    assert values[0]["ball_mean"] != values[1]["ball_mean"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/fma@last", "--rounds", "1"], r"--rounds 1 is for whole runs, but runs/fma@last names a model"),
        (["runs/fma", "--rounds", "9"], r"--rounds 9: runs/fma has no round 9; it has 1 to 4"),
        (["runs/nothing"], r"runs/nothing is not an address of a model; give RUN@ROUND"),
        (["runs"], r"runs"),
        (["runs/fma@last", "--rho", "0"], r"--rho 0 is not a radius about a model; give a positive number"),
        (["runs/fma@last", "--precision", "bf16"], r"--precision bf16 cannot tell losses so near .* leave it out"),
    ],
)
def test_mistakes_end_in_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(FedscopeError, match=message):
        said(capsys, *words)
