"""``fedscope table``: prints, keeps, and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedscope.cli.main import run
from fedscope.training import table

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]

COMMAND = "table"
_SMALL = "--clients 4 --participation 1 --rounds 3 --set model.hidden=[4] --set run.evaluate_clients=0"
RUNS = {f"{method}-{seed}": f"--method {method} --seed {seed} {_SMALL}" for method in ("fma", "ima") for seed in (0, 1)}
ALL = tuple(f"runs/{name}" for name in RUNS)


def test_it_prints_the_function_s_table(runs: Path, said: Callable[..., str]) -> None:
    found = table(ALL, last=2)
    for form in ("text", "markdown", "csv", "latex", "typst"):
        assert said(*ALL, "--last", "2", "--format", form) == found.text(form) + "\n"
    numbers = json.loads(said(*ALL, "--last", "2", "--json"))
    assert numbers.pop("files") == []
    assert numbers == found.numbers()
    assert said(*ALL, "--last", "2", "--format", "LaTeX") == found.text("latex") + "\n"


def test_it_is_kept_and_drawn_where_there_is_an_axis(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["table", *ALL, "--out", "kept/a"]) == 0
    assert sorted(path.name for path in Path("kept").iterdir()) == ["a.table.csv", "a.table.json"]
    assert run(["table", *ALL, "--out", "kept/a"]) == 2
    assert "kept/a.table.csv is there already; give --force" in capsys.readouterr().err
    assert run(["table", *ALL, "--out", "kept/a", "--columns", "run.rounds", "--force"]) == 0
    assert run(["table", *ALL, "--out", "kept/b.csv"]) == 0
    assert Path("kept/b.table.csv").exists(), "an extension that was typed is left off"


def test_runs_of_other_seeds_are_not_called_one_seed(runs: Path, said: Callable[..., str]) -> None:
    note = "fma has seed 0; ima has seed 1 (data.seed 0); none in common, so there is no paired difference"
    one = said("runs/fma-0", "runs/ima-1")
    assert "one seed each, not the same one, each run's last measured round" in one
    assert one.endswith(f"\nnote: {note}\n")
    assert json.loads(said("runs/fma-0", "runs/ima-1", "--json"))["notes"] == [note]


def test_labels_are_shown_and_files_keep_the_names(runs: Path, said: Callable[..., str]) -> None:
    words = (*ALL, "--label", "fma=FedAvg", "--label", "IMA=ours")
    found = table(ALL, labels=["FedAvg", "ours"])
    assert found.text().splitlines()[1].startswith("FedAvg ")
    assert said(*words) == found.text() + "\n"
    assert said(*ALL, "--label", "FedAvg", "--label", "ours", "--format", "latex") == found.text("latex") + "\n"
    assert [line for line in said(*words, "--commands").splitlines() if line.startswith("#")] == ["# FedAvg", "# ours"]
    for baseline, name in (("ima", "ours"), ("ours", "ours"), ("fma", "FedAvg"), ("FedAvg", "FedAvg")):
        assert json.loads(said(*words, "--baseline", baseline, "--json"))["baseline"] == name
    said(*words, "--out", "named")
    said(*ALL, "--out", "plain")
    for suffix in ("csv", "json"):
        assert Path(f"named.table.{suffix}").read_bytes() == Path(f"plain.table.{suffix}").read_bytes()


def test_commands_stand_under_their_rows(runs: Path, said: Callable[..., str]) -> None:
    lines = said(*ALL, "--commands").splitlines()
    assert lines[0] == "# fma"
    assert lines[1] == "fedscope train runs/fma-0/config.toml --out runs/fma-0-again"
    assert run(lines[1].split()[1:]) == 0, "it makes the run again"


def test_a_key_without_values_is_no_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "method"]) == 2
    assert capsys.readouterr().err == "fedscope: method has no values; write what is varied as method=A,B,C\n"


def test_a_picture_of_another_is_not_overwritten(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for share in ("0.5", "1"):
        words = ["--participation", share, "--method", "fma", "--clients", "4", "--rounds", "1", "--out", f"p{share}"]
        assert run(["train", *words, "--set", "model.hidden=[4]"]) == 0
    Path("mine.pdf").write_bytes(b"mine")
    assert run(["table", "p0.5", "p1", "--columns", "run.participation", "--out", "mine"]) == 2
    assert "mine.pdf is there already; give --force" in capsys.readouterr().err
    assert Path("mine.pdf").read_bytes() == b"mine"
    assert not Path("mine.table.csv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/fma-0", "--format", "tex"], "--format 'tex' is not known"),
        (["runs/none"], "runs/none"),
        (["runs/fma-0", "--measure", "test_acuracy"], "test_acuracy"),
        (["runs/fma-0", "--rows", "metod"], "'metod' is not a setting of these runs; did you mean \"method\"?"),
        (
            ["runs/fma-0", "--columns", "run.seed"],
            "--columns 'run.seed' is what every cell is a mean over, ± the deviation; leave it out (single runs have",
        ),
        (["runs/fma-0", "runs/ima-0", "--baseline", "fmaa"], "--baseline 'fmaa' is not a row"),
        (
            ["runs/fma-0", "runs/ima-0", "--label", "FedAvg"],
            "1 label is given, but the table has 2 rows, fma, ima; give one for each, or OLD=NEW",
        ),
    ],
)
def test_mistakes_are_one_sentence(
    runs: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["table", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("word", "remedy"), [("60%", "0.6"), ("3/5", "0.6"), ("most", "0.6 for 60 %")])
def test_a_share_is_a_number(word: str, remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["table", "runs/fma-0", "--target", word], ["train", "--scale", word], ["sweep", "--scale", word]):
        assert run(command) == 2
        assert capsys.readouterr().err.endswith(f"'{word}' is not a number; write {remedy}\n")
