"""Configuration: precedence, refusals with the nearest known key, and a resolved file that repeats itself."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError
from fedscope.training import Config, canonical_method, merge, preset, presets, read_assignments, read_toml
from fedscope.training.settings.registry import names
from fedscope.training.settings.settings import Settings, setting

pytestmark = pytest.mark.same_elsewhere


def test_defaults_are_those_of_the_command_line_reference() -> None:
    config = Config.read(preset("ima"))
    assert (config.data.name, config.data.clients, config.data.partition) == ("digits", 50, "shards:2")
    assert (config.run.rounds, config.run.participation, config.client.lr, config.client.epochs) == (60, 0.2, 0.05, 5)
    assert config.model.name == "mlp"
    assert config.average.table()["start"] == 45


@pytest.mark.parametrize("method", presets())
def test_a_resolved_configuration_reads_back_as_itself(method: str) -> None:
    config = Config.read(merge(preset(method), {"data": {"partition": "dirichlet:0.5"}, "model": {"hidden": [32]}}))
    text = tomli_w.dumps(config.tables())
    assert Config.read(tomllib.loads(text)) == config


@given(window=st.integers(1, 50), lr=st.floats(1e-6, 10), explore=st.sampled_from(["exp", "none", "cyclic"]))
def test_assignments_reach_the_settings_and_survive_the_file(window: int, lr: float, explore: str) -> None:
    raw = read_assignments([f"average.window={window}", f"client.lr={lr!r}", f"average.explore={explore}"])
    config = Config.read(merge(preset("ima"), raw))
    table = config.average.table()
    assert (table["window"], table["explore"], config.client.lr) == (window, explore, lr)
    assert Config.read(tomllib.loads(tomli_w.dumps(config.tables()))) == config


def test_later_layers_win_and_another_method_drops_only_the_settings_that_were_the_replaced_ones() -> None:
    merged = merge(
        {"average": {"method": "ima", "window": 3}, "client": {"lr": 0.1}},
        {"client": {"lr": 0.2, "batch": 7}},
        {"average": {"method": "none"}},
    )
    assert merged == {"average": {"method": "none"}, "client": {"lr": 0.2, "batch": 7}}


def test_lists_and_floats_written_as_whole_numbers_are_taken() -> None:
    config = Config.read({"client": {"lr": 1}, "record": {"clients": [1, 5]}, "model": {"hidden": [16, 8]}})
    assert config.client.lr == 1.0
    assert config.record.clients == (1, 5)
    assert config.model.architecture.table() == {"hidden": [16, 8]}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"client": {"momentun": 0.9}}, r"client\.momentun is not a setting of SGD; did you mean \Wmomentum\W\?"),
        ({"average": {"method": "ima", "windw": 3}}, r"average\.windw is not a setting of IMA; did you mean \Wwindow"),
        ({"average": {"window": 3}}, r"average\.window is not a setting of NoAverage"),
        ({"clients": {}}, r"\[clients\] is not a section; did you mean \Wclient"),
        ({"client": 3}, r"client = 3 is not a section; write \[client\]"),
        ({"run": {"rounds": 0}}, r"run\.rounds = 0 is out of range: it must be at least 1"),
        ({"run": {"rounds": "ten"}}, r"run\.rounds = 'ten' has the wrong type: it takes a whole number"),
        ({"run": {"rounds": 2.0}}, r"run\.rounds = 2\.0 has the wrong type"),
        ({"run": {"participation": 0}}, r"run\.participation = 0 is out of range: it must be greater than 0"),
        ({"run": {"participation": 1.5}}, r"run\.participation = 1\.5 is out of range: it must be at most 1"),
        ({"client": {"method": "sdg"}}, r"'sdg' is not a client method that fedscope knows; did you mean \Wsgd\W\?"),
        ({"client": {"method": 3}}, r"client\.method = 3 has the wrong type"),
        ({"model": {"name": "nlp"}}, r"'nlp' is not a model that fedscope knows; did you mean \Wmlp"),
        ({"data": {"partition": "shard:2"}}, r"'shard' is not a partition .*did you mean \Wshards"),
        ({"data": {"augment": "flip"}}, r"data\.augment = 'flip' is not a choice: it takes one of none, crop-flip"),
        ({"record": {"clients": "evry:3"}}, r'record\.clients = "evry:3" is not a recording policy; did you mean'),
    ],
)
def test_what_is_not_understood_is_refused_with_the_remedy(raw: dict[str, object], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        Config.read(raw)


@pytest.mark.parametrize("text", ["average.window", "window=3", ".window=3", "average.=3"])
def test_malformed_assignments_are_refused(text: str) -> None:
    with pytest.raises(FedscopeError, match=r"write section\.key=value"):
        read_assignments([text])


def test_an_unknown_method_is_refused_with_the_nearest() -> None:
    with pytest.raises(FedscopeError, match=r"--method 'imma' is not a method .*did you mean \Wima"):
        preset("imma")


NAMES = [("clients", "client"), ("servers", "server"), ("averages", "average")]


@pytest.mark.parametrize(("shelf", "section"), NAMES)
def test_a_method_s_name_is_taken_in_any_case_and_shown_as_its_file_has_it(shelf: Any, section: str) -> None:
    for name in names(shelf):
        kind = type(getattr(Config.read({section: {"method": name}}), section))
        for written in (name.upper(), name.title(), kind.about.name.partition(" (")[0]):
            config = Config.read({section: {"method": written}})
            assert config.tables()[section]["method"] == name
            assert config == Config.read({section: {"method": name}})


@pytest.mark.parametrize("name", presets())
def test_a_preset_s_name_is_taken_in_any_case(name: str) -> None:
    assert preset(name.upper()) == preset(name)
    assert canonical_method(name.title()) == name


def test_fedavg_is_what_the_field_calls_fma() -> None:
    assert preset("FedAvg") == preset("fma")
    config = Config.read({"client": {"method": "fedavg"}, "server": {"method": "FedAvg"}})
    assert config == Config.read({})
    assert config.title() == "fma"


def test_fedpake_is_what_fedsa_was_published_as() -> None:
    for name in ("fedpake", "FedPake", "FEDPAKE"):
        assert preset(name) == preset("fedsa")
        assert Config.read({"server": {"method": name}}).tables()["server"]["method"] == "fedsa"
    kept = {"server": {"method": "fedsa", "classes": 7}}
    assert merge(kept, {"server": {"method": "FedPake"}}) == kept, "the same method, which keeps its settings"
    with pytest.raises(FedscopeError, match=r"--method 'fedpak' is not a method .*; did you mean \Wfedpake\W\?"):
        preset("fedpak")
    with pytest.raises(FedscopeError, match=r"'fedpaks' is not a server method .*; did you mean \Wfedpake\W\?"):
        Config.read({"server": {"method": "fedpaks"}})
    with pytest.raises(FedscopeError, match=r"'fedpake' is not a client method .*; did you mean --server fedsa\?"):
        Config.read({"client": {"method": "fedpake"}})


def test_another_case_is_the_same_method_where_layers_are_merged() -> None:
    """So that it keeps the settings below, and another method drops them."""
    below = {"client": {"method": "FedProx", "mu": 0.5}}
    assert merge(below, {"client": {"method": "FEDPROX"}}) == {"client": {"method": "fedprox", "mu": 0.5}}
    assert merge(below, {"client": {"method": "SGD"}}) == {"client": {"method": "sgd"}}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"client": {"method": "SDG"}}, r"'SDG' is not a client method that fedscope knows; did you mean \Wsgd\W\?"),
        ({"server": {"method": "Scaffold"}}, r"'Scaffold' is not a server .*; did you mean --client scaffold\?"),
        ({"client": {"method": "FMA"}}, r"'FMA' is not a client method .*; did you mean --server fma\?"),
        (
            {"average": {"mu": 1.0}, "client": {"method": "FedProx"}},
            r"average\.mu is not .*; client\.mu is one of fedprox",
        ),
    ],
)
def test_a_typo_in_a_name_of_another_case_still_gets_its_hint(raw: dict[str, object], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        Config.read(raw)


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("dirichlet", "dirichlet:0.1"),
        ("dirichlet:", "dirichlet:0.1"),
        ("dirichlet:1", "dirichlet:1"),
        ("dirichlet:.250", "dirichlet:0.25"),
        ("dirichlet:0.123456789", "dirichlet:0.123456789"),
        ("dirichlet:1e-3", "dirichlet:0.001"),
        ("shards", "shards:2"),
        ("shards:3", "shards:3"),
        ("shards:3,250", "shards:3,250"),
        ("iid", "iid"),
    ],
)
def test_a_partition_is_resolved_with_the_values_that_were_left_out(written: str, resolved: str) -> None:
    config = Config.read({"data": {"partition": written}})
    assert config.tables()["data"]["partition"] == resolved
    assert Config.read(config.tables()) == config


# What a run recorded before a key existed did without it.
BEFORE: dict[str, tuple[str, dict[str, Any]]] = {
    "fedsam": ("client", {"sam_decay": "within"}),
    "fedasam": ("client", {"sam_decay": "within"}),
    "mofedsam": ("client", {"sam_decay": "within"}),
    "swa": ("average", {"include_start": False, "full_first": True}),
}


@pytest.mark.parametrize("method", presets())
def test_a_recorded_configuration_keeps_its_meaning(method: str) -> None:
    """Keys that came later say what the run did, not today's default; what a run has recorded is as it is."""
    tables = Config.read(preset(method)).tables()
    assert Config.recorded(tables) == Config.read(tables)
    section, values = BEFORE.get(method, ("client", {}))
    for key, value in values.items():
        assert tables[section].pop(key) != value
    assert {key: Config.recorded(tables).tables()[section][key] for key in values} == values


def test_files_that_are_no_configuration_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"nothing\.toml cannot be read as a configuration"):
        read_toml(tmp_path / "nothing.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("[run\nrounds = 3")
    with pytest.raises(FedscopeError, match=r"bad\.toml is not TOML: .*line 1"):
        read_toml(bad)


def test_a_choice_may_be_left_out() -> None:
    """``Literal[...] | None``, which Python holds as another kind of union than ``int | None``."""

    @dataclass(frozen=True)
    class Own(Settings):
        section: ClassVar[str] = "server"
        rule: Literal["one", "two"] | None = setting(None, "a rule")

    assert (Own().rule, Own(rule="two").rule) == (None, "two")
    with pytest.raises(FedscopeError, match=r"server\.rule = 'three' is not a choice: it takes one of one, two or"):
        Own(rule="three")  # type: ignore[arg-type]
