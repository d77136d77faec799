"""Configurations with any value of any type of TOML at any place: each is taken or refused in one sentence."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.runs.info import seal
from fedscope.cli.main import run
from fedscope.training import Config, merge, preset

pytestmark = pytest.mark.same_elsewhere

METHODS = ("ima", "scaffold", "fedadam", "fedasam", "wima")
SECTIONS = {name: Config.read(preset(name)).tables() for name in METHODS}
#: of every type of TOML, with the edges of each
VALUES: tuple[Any, ...] = (
    *(float("-inf"), float("nan"), 0.0, -2.5, 1e308),
    *(0, -1, 3, 10**18, -(10**19), 10**400),
    *(True, False, "", "word", "a\nb\x00", "9" * 3000),
    *([], [1], ["x"], [1.5, "x"], [[1], [2]], [float("inf")], [10**400], [{"a": 1}]),
    *({}, {"a": 1}, {"a": {"b": []}}),
    datetime.date(2020, 1, 1),
    datetime.time(1, 2),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
)
PLACES = [(name, (section,)) for name in METHODS for section in (*SECTIONS[name], "extra")]
PLACES += [
    (name, (section, key)) for name in METHODS for section, table in SECTIONS[name].items() for key in (*table, "extra")
]


def changed(name: str, place: tuple[str, ...], value: Any) -> dict[str, Any]:
    tables = json.loads(json.dumps(SECTIONS[name]))
    table = tables if len(place) == 1 else tables[place[0]]
    table[place[-1]] = value
    return tables  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("read", [Config.read, Config.recorded, lambda tables: merge({}, tables)])
def test_every_value_at_every_place_is_taken_or_refused(name: str, read: Callable[[Any], Any]) -> None:
    taken = refused = 0
    for other, place in PLACES:
        for value in VALUES if other == name else ():
            try:
                read(changed(name, place, value))
                taken += 1
            except FedscopeError:
                refused += 1
    assert min(taken, refused) > 10


@settings(max_examples=8, deadline=None)
@given(place=st.sampled_from([place for name, place in PLACES if name == "ima"]), value=st.sampled_from(VALUES))
def test_a_run_with_such_a_configuration_is_read_or_refused(
    recorded: Any, tmp_path_factory: pytest.TempPathFactory, place: tuple[str, ...], value: Any
) -> None:
    """By what reads the file by itself, and by what understands all of it; its seal is right."""
    path = tmp_path_factory.mktemp("run") / "ima"
    recorded(path, "--method", "ima", "--rounds", "2", "--clients", "4")
    tables = json.loads(json.dumps(Run.open(path).config))
    (tables if len(place) == 1 else tables[place[0]])[place[-1]] = value
    (path / "config.toml").write_text(tomli_w.dumps(tables))
    (path / "run.json").write_text(json.dumps(seal(path, json.loads((path / "run.json").read_text()))))
    for words in (
        ["ls", str(path)],
        ["ls", "--check", str(path)],
        ["table", str(path)],
        ["train", "--resume", str(path)],
    ):
        assert run(words) in (0, 2)


def test_the_refusal_names_the_file_and_the_key(recorded: Any, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "ima"
    recorded(path, "--method", "ima", "--rounds", "2", "--clients", "4")
    text = (path / "config.toml").read_text()
    for old, new, says in (
        ('method = "ima"', "method = -inf", "config.toml says average.method = -inf, which should be text"),
        ("rounds = 2", "rounds = 2.5", "config.toml says run.rounds = 2.5, which should be a whole number from 1 on"),
        ("[server]", "[extra]", "config.toml: [extra] is not a section"),
        ("lr = 0.05", "lr = 2020-01-01", "config.toml says client.lr = datetime.date(2020, 1, 1), which no setting is"),
    ):
        assert old in text
        (path / "config.toml").write_text(text.replace(old, new))
        (path / "run.json").write_text(json.dumps(seal(path, json.loads((path / "run.json").read_text()))))
        assert run(["train", "--resume", str(path)]) == 2
        assert says in capsys.readouterr().err
