"""``fedscope table``: prints, keeps, and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedscope.cli.main import run
from fedscope.training import table

pytestmark = pytest.mark.usefixtures("few_digits")

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


def test_it_is_kept_and_drawn_where_there_is_an_axis(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["table", *ALL, "--out", "kept/a"]) == 0
    assert sorted(path.name for path in Path("kept").iterdir()) == ["a.table.csv", "a.table.json"]
    assert run(["table", *ALL, "--out", "kept/a"]) == 2
    assert "kept/a.table.csv is there already; give --force" in capsys.readouterr().err
    assert run(["table", *ALL, "--out", "kept/a", "--columns", "run.rounds", "--force"]) == 0


def test_commands_stand_under_their_rows(runs: Path, said: Callable[..., str]) -> None:
    lines = said(*ALL, "--commands").splitlines()
    assert lines[0] == "# no average"
    assert lines[1] == "fedscope train runs/fma-0/config.toml --out runs/fma-0-again"
    assert run(lines[1].split()[1:]) == 0, "it makes the run again"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/fma-0", "--format", "tex"], "--format 'tex' is not known"),
        (["runs/none"], "runs/none"),
        (["runs/fma-0", "--measure", "test_acuracy"], "test_acuracy"),
        (["runs/fma-0", "--rows", "metod"], "'metod' is not a setting of these runs; did you mean \"method\"?"),
        (["runs/fma-0", "runs/ima-0", "--baseline", "fmaa"], "--baseline 'fmaa' is no row"),
    ],
)
def test_mistakes_are_one_sentence(
    runs: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["table", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
