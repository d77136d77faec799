"""Options that are given twice where one counts: the command goes on, and says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from fedscope.checkpoints import FedscopeWarning, Run
from fedscope.cli.main import commands, fedscope, run
from fedscope.cli.repeats import describe_repeats
from fedscope.cli.train_flags import warn_of_overridden
from fedscope.training import read_assignments

pytestmark = pytest.mark.same_elsewhere


def said(name: str, *words: str) -> list[str]:
    context = click.Context(fedscope, info_name="fedscope")
    command = fedscope.get_command(context, name)
    assert command is not None
    return describe_repeats(command, context, words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("line", "a", "b", "--points", "3", "--points", "5"), "--points is given twice, and the last one counts: 5"),
        (("line", "a", "b", "--points=3", "--points=5"), "--points is given twice, and the last one counts: 5"),
        (("train", *["--rounds", "1"] * 3), "--rounds is given 3 times, and the last one counts: 1"),
        (
            ("line", "a", "b", "--standardise", "--no-standardise"),
            "--standardise/--no-standardise is given twice, and the last one counts: --no-standardise",
        ),
        (
            ("plane", "a", "--loss-limits", "0", "1", "--loss-limits", "0", "2"),
            "--loss-limits is given twice, and the last one counts: 0 2",
        ),
        (("line", "a", "b", "--points", "3"), ""),
        (("line", "a", "a", "--out", "a"), ""),
        (("line", "a", "b", "--label", "A", "--label", "A"), ""),
        (("train", "--set", "a.b=1", "--set", "a.b=1", "--force", "--force"), ""),
        (("line", "--points"), ""),  # which the command refuses itself
        (("line", "--ponits", "--ponits"), ""),
    ],
)
def test_which_value_counts_is_said(words: tuple[str, ...], sentence: str) -> None:
    assert said(*words) == ([sentence] if sentence else [])


def test_every_command_can_be_asked() -> None:
    """Each of its options that takes one value, twice."""
    for name in commands():
        context = click.Context(fedscope, info_name="fedscope")
        command = fedscope.get_command(context, name)
        assert command is not None
        for param in command.params:
            if isinstance(param, click.Option) and not param.is_flag:
                flag, values = max(param.opts, key=len), ["1"] * param.nargs
                words = [flag, *values, flag, *values]
                assert any(flag in one for one in said(name, *words)) is not param.multiple, (name, flag)


def test_the_command_line_says_it_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--clients", "4", "--epochs", "1", "--set", "run.participation=1.0"]
    words = ["--rounds", "2", "--rounds", "1", "--lr", "0.3", "--set", "client.lr=0.1", "--set", "client.lr=0.2"]
    assert run(["train", *small, *words, "--out", "run", "--json"]) == 0
    found = capsys.readouterr()
    assert "fedscope: --rounds is given twice, and the last one counts: 1\n" in found.err
    twice = "--set client.lr=0.1 and --set client.lr=0.2 are both given; the last one counts: 0.2"
    assert f"fedscope: {twice}\n" in found.err
    assert found.err.count("both given") == 2
    assert "fedscope: --lr 0.3 and --set client.lr=0.2 are both given; --set counts: 0.2\n" in found.err
    config: Any = Run.open("run").config
    assert config["client"]["lr"] == 0.2
    assert config["run"]["rounds"] == 1


def test_a_mistake_is_one_sentence_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ls", "--check", "nowhere"]) == 2
    alone = capsys.readouterr().err
    assert len(alone.splitlines()) == 1
    assert run(["line", "a", "b", "--points", "3", "--points", "x"]) == 2
    assert "twice" not in capsys.readouterr().err


def test_a_setting_that_is_said_twice_alike_is_no_matter(recwarn: pytest.WarningsRecorder) -> None:
    assert read_assignments(["client.lr=0.1", "client.lr=1e-1"]) == {"client": {"lr": 0.1}}
    read_assignments(["client.method=FedProx", "client.method=fedprox", "client.lr=nan", "client.lr=nan"])
    warn_of_overridden({"server": {"method": "FedAvgM"}}, {"server": {"method": "fedavgm"}})
    assert not recwarn
    with pytest.warns(FedscopeWarning, match=r"^--set client.lr=0.1 and --set client.lr=0.2 are both given; the last"):
        assert read_assignments(["client.lr=0.1", "client.lr=0.2"]) == {"client": {"lr": 0.2}}


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--lr", "nan"],
        ["train", "--set", "client.lr=nan"],
        ["train", "--set", "client.lr=nan", "--set", "client.momentum=0.5"],
        ["sweep", "client.lr=nan,0.1", "--out", "sweep"],
        ["sweep", "run.seed=0,1", "--set", "client.lr=nan", "--out", "sweep"],
    ],
)
def test_what_is_not_equal_to_itself_is_said_once_and_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    assert capsys.readouterr().err == "fedscope: client.lr = nan is not a finite number\n"
    assert not list(tmp_path.iterdir())
