"""An option that takes one of some words on the command line takes no other word from Python."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import click
import pytest

import fedscope
from fedscope.analysis.register import analyses
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import fedscope as program

#: by question: what is asked about, of ``two_rounds``; of all others the run
ABOUT: dict[str, Any] = {
    "align": ["runs/fma@1", "runs/fma@2"],
    "line": ["runs/fma@1", "runs/fma@2"],
    "plane": ["runs/fma@1", "runs/fma@2", "runs/fma@2/client-0"],
    "reaggregate": ("runs/fma@2", "fma"),
    "synergy": "runs/fma@2",
}
#: what the option needs beside it
BESIDE: dict[tuple[str, str], dict[str, Any]] = {("parameters", "backend"): {"tsne": True, "rounds": 2}}


def choices() -> list[tuple[str, str, tuple[str, ...]]]:
    """Every question's options of words that its function has, too."""
    found = []
    context = click.Context(program)
    for name in [one.name for one in analyses() if program.get_command(context, one.name) is not None]:
        command = program.get_command(context, name)
        assert command is not None
        taken = inspect.signature(getattr(fedscope, name)).parameters
        measured = "measured" in taken
        for option in command.params:
            if isinstance(option.type, click.Choice) and (
                option.name in taken or (measured and option.name in ("split", "precision"))
            ):
                found.append((name, str(option.name), tuple(map(str, option.type.choices))))
    return found


def test_there_are_many() -> None:
    assert {("subsets", "weights"), ("cka", "estimator"), ("parameters", "backend"), ("line", "split")} <= {
        (name, option) for name, option, _ in choices()
    }


@pytest.mark.parametrize(("name", "option", "words"), choices())
def test_another_word_is_refused(
    name: str, option: str, words: tuple[str, ...], two_rounds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(two_rounds)
    about = ABOUT.get(name, "runs/fma")
    given = about if isinstance(about, tuple) else (about,)
    with pytest.raises(FedscopeError) as refused:
        getattr(fedscope, name)(*given, **{option: "anything"}, **BESIDE.get((name, option), {}))
    said = str(refused.value)
    assert "anything" in said
    assert all(word in said for word in words)
    assert option in said or option == "backend"
