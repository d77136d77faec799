"""What runs are called by their methods."""

from __future__ import annotations

import pytest

from fedscope.plotting.looks import looks_of
from fedscope.training import Config, preset, presets
from fedscope.training.curves.run_names import method_of_tables
from fedscope.training.settings.registry import names

pytestmark = pytest.mark.same_elsewhere


def test_a_half_of_a_method_never_has_the_name_of_the_whole() -> None:
    halved = set(names("clients")) & set(names("servers"))
    assert halved >= {"adabest", "fedacg", "feddyn", "fedswa", "fedmoswa"}
    for name in halved:
        both, one, other = (
            {"client": {"method": client}, "server": {"method": server}}
            for client, server in ((name, name), ("sgd", name), (name, "fma"))
        )
        assert [method_of_tables(tables) for tables in (both, one, other)] == [name, f"sgd+{name}", f"{name}+fma"]
        titles = [Config.read(tables).title() for tables in (both, one, other)]
        assert titles == [name, f"sgd-{name}", f"{name}-fma"]
        # its colour is the method's, not that of plain clients
        assert {look["color"] for look in looks_of([f"sgd+{name}", f"{name}+fma"])} == {looks_of([name])[0]["color"]}
    for name in presets():
        assert method_of_tables(preset(name)) == (name if name in names("clients") + names("servers") else "fma")
        assert Config.read(preset(name)).title() == name
    # with an average over rounds
    laid = {"server": {"method": "feddyn"}, "average": {"method": "ima"}}
    assert Config.read(laid).title() == "sgd-feddyn-ima"
    assert Config.read({**laid, "client": {"method": "feddyn"}}).title() == "feddyn-ima"
