"""Words that are typed in another spelling, for another place or beside others: the refusal says what to type."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedscope.cli.commands.bench import command as bench
from fedscope.cli.main import commands, fedscope, run
from fedscope.cli.option_types import Number

pytestmark = pytest.mark.same_elsewhere


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]) -> Path:
    monkeypatch.chdir(tmp_path)
    small = ("--clients", "4", "--epochs", "1", "--set", "run.participation=1.0")
    recorded(tmp_path / "runs" / "fma", "--method", "fma", "--rounds", "2", *small)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words]) == 2
    return capsys.readouterr().err.splitlines()[-1].removeprefix("fedscope: ").removeprefix("Error: ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("curves r --target 80%", "'80%' is not a number; write 0.8"),
        ("table r --target 50%", "'50%' is not a number; write 0.5"),
        ("curves r --target 0,8", "'0,8' is not a number; write 0.8"),
        ("curves r --target 0,87654321", "'0,87654321' is not a number; write 0.87654321"),
        ("curves r --target 1,000", "'1,000' is not a number; write 1000, or 1.000 if its comma is a decimal one"),
        ("curves r --target 1,000,000", "'1,000,000' is not a number; write 1000000"),
        ("line a b --range -1, 1", "'-1,' is not a number; write -1"),
        ("line a b --range (-1, 1)", "'(-1,' is not a number; write -1"),
        ("curves r --target much", "'much' is not a number; write 0.6 for 60 %"),
        ("plane r --margin 30%", "'30%' is not a number; write 0.3"),
        ("plane r --error-limits 0% 5%", "'0%' is not a number; write 0"),
        ("plane r --loss-limits 0 1,5", "'1,5' is one word; write --loss-limits 1 5, or 1.5 for one number"),
        ("sharpness r --rho 5%", "'5%' is not a number; write 0.05"),
        ("disperse r --fdr 5%", "'5%' is not a number; write 0.05"),
        ("disperse r --perplexity many", "'many' is not a number; write one, as in 0.5"),
        ("synergy r --quantile 99%", "'99%' is not a number; write 0.99"),
        ("line a b --range 0,1 --out x", "'0,1' is one word; write --range 0 1, or 0.1 for one number"),
        ("plane r --range 0,1,2,3 --out x y z", "'0,1,2,3' is one word; write --range 0 1 2 3"),
        ("plane r --margin −0.5", "'−0.5' is not a number; write -0.5"),
        ("line a b --range 0 --out x", "--out stands in the place of a number; give --range 2 numbers, then --out"),
        ("curves r --target --json", "--json stands in the place of a number; give --target a number, then --json"),
    ],
)
def test_a_number_in_another_spelling_is_told_the_right_one(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option = next(word for word in words.split() if word[:2] == "--")
    assert refused(capsys, *words.split()) == f"Invalid value for '{option}': {sentence}"


def test_a_missing_number_is_told_how_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "line", "a", "b", "--range", "0,1")
    assert said == "Option '--range' requires 2 arguments; write --range A B"
    assert refused(capsys, "plane", "r", "--range", "1", "2").endswith("; write --range A A B B")
    assert refused(capsys, "line", "a", "b", "--points") == "Option '--points' requires an argument."


def test_every_decimal_option_is_told() -> None:
    assert isinstance(next(param.type for param in bench.params if param.name == "seconds"), Number)
    context = fedscope.make_context("fedscope", ["ls"])
    for name in commands():
        command = fedscope.get_command(context, name)
        assert command is not None
        for param in command.params:
            assert type(param.type).__name__ not in ("FloatParamType", "FloatRange"), (name, param.name)


@pytest.mark.parametrize(
    ("words", "typed", "written"),
    [
        ("train –method fma", "–method", "--method"),
        ("train –force", "–force", "--force"),
        ("data —clients 4", "—clients", "--clients"),
        ("data —clients=4", "—clients=4", "--clients=4"),
        ("train –-force", "–-force", "--force"),
        ("–help", "–help", "--help"),
    ],
)
def test_typographic_dashes_are_said(words: str, typed: str, written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, *words.split()) == f"{typed} begins with a typographic dash; write {written}"


@pytest.mark.parametrize(
    "words",
    [("curves", "runs/none", "--title", "–h"), ("curves", "--", "–force"), ("ls", "--", "runs/fma", "–h")],
)
def test_a_typographic_dash_of_a_value_is_no_option(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words]) == 2
    assert "typographic" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [("",), ("", "runs/fma")])
def test_an_empty_command_is_told_the_commands(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, *words).startswith("No such command ''; there are train, data, ls, ")


def test_a_name_that_is_too_long_is_the_configuration_s(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Looking at ``NAME/run.json`` had failed first, and the sentence named that."""
    name = "a" * 300
    for words in (("train", name), ("train", f"{name}@2"), ("data", f"{name}.toml")):
        said = refused(capsys, *words)
        assert said == f"{words[1]} cannot be read as a configuration (File name too long); give a .toml file"
    assert refused(capsys, "data", f"{name}.yaml") == f"{name}.yaml/run.json cannot be read (File name too long)"


def test_a_folder_with_a_configuration_alone_is_no_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("configs").mkdir()
    Path("configs", "config.toml").write_text("[run]\nrounds = 2\n")
    assert refused(capsys, "train", "configs") == "configs is a folder, not a configuration; give a regular file"


def test_a_configuration_without_the_suffix_is_to_be_mended(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("conf").write_text("[run\nrounds = 2\n")
    assert refused(capsys, "train", "conf") == (
        "conf is not TOML: Expected ']' at the end of a table declaration (at line 1, column 5); mend it, or copy it "
        "again"
    )
    Path("conf").write_text("run: 2\n")
    assert refused(capsys, "train", "conf").endswith(
        "; give the settings in a .toml file, as [run] and rounds = 2 below it"
    )


def test_a_typographic_minus_counts_rounds_from_the_end(here: Path) -> None:
    for rounds in ("–1", "−1", "-1"):
        assert run(["updates", "runs/fma", "--rounds", rounds, "--out", "last"]) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "data runs/fma --clients 9 --set run.rounds=3 --data digits",
            "runs/fma is a run, whose data are what they are; leave --clients and --set run.rounds out",
        ),
        (
            "data runs/fma --set data.clients=4",
            "runs/fma is a run, whose data are what they are; leave --set data.clients out",
        ),
        (
            "train runs/fma",
            "runs/fma is a run, not a configuration; give its settings, runs/fma/config.toml, or go on with the run "
            "itself: fedscope train --resume runs/fma",
        ),
        (
            "train runs/fma@2",
            "runs/fma@2 is a round of a run, not a configuration; branch from it: fedscope train --from runs/fma@2",
        ),
        (
            "sweep runs/fma method=fma,ima",
            "runs/fma is a run, not a configuration; give its settings, runs/fma/config.toml",
        ),
        (
            "train c.json",
            "c.json is not TOML: Invalid statement (at line 1, column 1); give the settings in a .toml file, as [run] "
            "and rounds = 2 below it",
        ),
        (
            "data c.yaml",
            "c.yaml is neither a run nor a configuration; a run is a folder with a run.json, and a configuration a "
            ".toml file, with [data] and clients = 20 below it",
        ),
        (
            "train --set model.hidden=32",
            "model.hidden = 32 has the wrong type: it takes a list, each a whole number; give --set "
            "'model.hidden=[32]'",
        ),
        (
            "parameters runs/fma --parameter fc1.bias[0] --top 4",
            "--top 4 chooses the most skewed parameters where --parameter names none; leave one of the two out",
        ),
        ("disperse runs/fma --fdr 5", "--fdr 5 is out of range: give one between 0 and 1, such as 0.05"),
        (
            "synergy runs/fma@2 --cv-threshold 2",
            "--cv-threshold 2 is out of range: it must be at least 0 and less than 1",
        ),
        ("synergy runs/fma@2 --quantile 99", "--quantile 99 is out of range: it must be greater than 0 and at most 1"),
        (
            "plane runs/fma@2 --clients --adaptive --budget 15",
            "--budget 15 is no share of the points; give one above 0 and at most 1 (0.15 is 15 %)",
        ),
        (
            "table runs/fma --format LaTeXX",
            "--format 'LaTeXX' is not known; did you mean \"latex\"?; give text, markdown, csv, latex, typst",
        ),
    ],
)
def test_a_refusal_names_what_was_typed_and_what_to_type(
    here: Path, words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.json").write_text('{"run": {"rounds": 2}}')
    Path("c.yaml").write_text("run:\n  rounds: 2\n")
    assert refused(capsys, *words.split()) == sentence.replace("/", os.sep)


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("rounds = 2", "rounds = 2 stands in no section; write it below [run]"),
        ("batch_size = 8", "batch_size = 8 stands in no section; write batch = 8 below [client]"),
        (
            'method = "ima"',
            "method = 'ima' stands in no section; write method = 'sgd' below [client], method = 'fma' below [server] "
            "and method = 'ima' below [average], as --method ima chooses them",
        ),
        (
            'method = "imma"',
            "method = 'imma' stands in no section; write method below [client], [server] or [average], whose method it "
            "is",
        ),
        ('data = "digits"', "data = 'digits' is not a section; write [data] and name = 'digits' below it"),
        ("run = true", "run = true is not a section; write [run] and its keys below it"),
        (
            "ronds = 2",
            "ronds = 2 stands in no section; did you mean run.rounds?; sections are data, model, client, server, "
            "average, run, record",
        ),
    ],
)
def test_a_key_at_the_top_of_a_file_is_told_its_section(
    toml: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(toml)
    assert refused(capsys, "train", "c.toml") == f"c.toml: {sentence}"
    assert refused(capsys, "data", "c.toml", "--clients", "4") == sentence


def test_flags_of_data_that_a_setting_replaces_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--clients", "5", "--partition", "iid", "--set", "data.clients=4", "--set", "data.partition=shards:2"]
    assert run(["data", *words, "--out", "held"]) == 0
    said = capsys.readouterr().err
    assert "fedscope: --clients 5 and --set data.clients=4 are both given; --set counts: 4\n" in said
    partition = "--partition iid and --set data.partition=shards:2 are both given; --set counts: shards:2"
    assert f"fedscope: {partition}\n" in said
