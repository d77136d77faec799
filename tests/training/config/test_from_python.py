"""Plain dictionaries of settings: the same run as their configuration, and mistakes with the nearest key."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.training.config.from_python import config_with, nested_tables
from fedscope.training.config.sources import Setup
from fedscope.training.settings.registry import find, preset
from fedscope.training.sweeps.axes import read_axes
from fedscope.training.sweeps.plan import plan_sweep

pytestmark = pytest.mark.same_elsewhere

SMALL: dict[str, Any] = {
    "data": {"clients": 4, "share": 0.2},
    "model": {"name": "mlp", "hidden": [4]},
    "run": {"rounds": 2, "participation": 0.5, "evaluate_clients": 0},
}


def test_a_dictionary_trains_the_same_run_as_its_configuration(tmp_path: Path) -> None:
    given = fedscope.train(SMALL, tmp_path / "given")
    made = fedscope.train(fedscope.Config.read(SMALL), tmp_path / "made")
    assert given.config == made.config
    assert given.rounds == (1, 2)
    for number in given.rounds:
        one, other = (run.round(number).read("global").parameters for run in (given, made))
        np.testing.assert_array_equal(one, other)


def test_single_settings_and_a_method_are_taken_too() -> None:
    flat = config_with({"method": "fedprox", "client.mu": 0.3, "run.rounds": 7, "run": {"rounds": 3, "seed": 5}}, {})
    nested = fedscope.Config.read({"client": {"method": "fedprox", "mu": 0.3}, "run": {"rounds": 7, "seed": 5}})
    assert flat == nested
    assert config_with(flat, {}) is flat
    assert config_with({}, {}) == fedscope.Config.read({})
    # a chosen method counts more than that of the short name
    assert config_with({"method": "ima", "average": {"method": "none"}}, {}).title() == "fma"
    held = fedscope.data({"data.clients": 5, "data": {"partition": "iid"}})
    assert held.counts.shape[0] == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rnu": {"rounds": 2}}, r'rnu is neither a section nor a setting; did you mean "run"\?; sections are data'),
        ({"run": {"ronds": 2}}, r'run\.ronds is not a setting; did you mean "rounds"\?'),
        ({"run.ronds": 2}, r'run\.ronds is not a setting; did you mean "rounds"\?'),
        ({"rnu.rounds": 2}, r'\[rnu\] is not a section; did you mean "run"\?'),
        ({"rounds": 2}, r'rounds is a setting of a section; give \{"run": \{"rounds": 2\}\}$'),
        ({"clients": 9}, r'give \{"data": \{"clients": 9\}\} or \{"record": \{"clients": 9\}\}'),
        ({"lr": 0.1}, r'give \{"client": \{"lr": 0\.1\}\}'),
        ({"ronds": 2}, r'did you mean "run\.rounds"\?'),
        ({"run": 2}, r"run = 2 is not a section"),
        ({"method": "imma"}, r"'imma' is not a method .*did you mean \Wima"),
        ({"method": 3}, r"method = 3 has the wrong type"),
        ({"client": {"method": "fedporx"}}, r"'fedporx' is not a client method .*did you mean \Wfedprox"),
        ({"run": {"rounds": "many"}}, r"run\.rounds = 'many' has the wrong type: it takes a whole number"),
        (f"[run]\n{'rounds = 3 # ' * 40}", r"settings are str '\[run\]"),
        ("conf.toml", r"settings are str 'conf\.toml', not a dictionary; give fedscope\.Config, or tables as in"),
    ],
)  # fmt: skip
def test_what_is_no_setting_is_refused_with_what_is_near(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        fedscope.train(given, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_setting_that_is_given_twice_is_said_once_with_what_counts(recwarn: pytest.WarningsRecorder) -> None:
    config_with({"run": {"rounds": 2}, "run.rounds": 3, "method": "ima"}, {"epochs": 2})
    assert [str(one.message) for one in recwarn] == [
        '{"run": {"rounds": 2}} and {"run.rounds": 3} are both given; the whole name counts: 3'
    ]
    recwarn.clear()
    nested_tables({"run": {"rounds": 2}, "run.rounds": 2, "run.seed": 1})
    nested_tables({"model": {"hidden": (32,)}, "model.hidden": [32]})
    nested_tables({"client": {"method": "FedProx"}, "client.method": "fedprox"})
    nested_tables({"run": {"participation": float("nan")}, "run.participation": float("nan")})
    partition = [np.arange(5), np.arange(5, 9)]
    nested_tables({"data": {"partition": partition}, "data.partition": partition})
    assert not recwarn
    with pytest.warns(FedscopeWarning, match=r"are both given; the whole name counts"):
        nested_tables({"data": {"partition": [np.arange(3)]}, "data.partition": [np.arange(4)]})
    with pytest.warns(FedscopeWarning, match=r"are both given; the whole name counts"):
        nested_tables({"data": {"partition": [torch.arange(3)]}, "data.partition": [torch.arange(3)]})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"data": "digits"}, """data = 'digits' is not a section; give its settings as {"data": {"name": 'digits'}}"""),
        ({"run": 2}, 'run = 2 is not a section; give its settings as {"run": {KEY: VALUE}}'),
        ({"rounds": {"run": 1}}, 'rounds is a setting of a section; give {"run": {"rounds": 1}}'),
        ({"rounds": {"x": 1}}, 'rounds is a setting of a section; give {"run": {"rounds": VALUE}}'),
        (
            {"partition": {0: [0, 1], 1: [2, 3]}},
            'partition is a setting of a section; give {"data": {"partition": {0: [0, 1], 1: [2, 3]}}}',
        ),
        ({"seed": {"data": 1}}, 'seed is a setting of a section; give {"data": {"seed": 1}}'),
        ({"name": {"model": "cnn"}}, """name is a setting of a section; give {"model": {"name": 'cnn'}}"""),
        ({"batch_size": {"client": 3}}, 'batch_size is a setting of a section; give {"client": {"batch": 3}}'),
        (
            {"clients": {"lr": 1}},
            'clients is neither a section nor a setting; did you mean "client"?; sections are data, '
            "model, client, server, average, run, record",
        ),
        (
            {"model": {"hidden": 32}},
            "model.hidden = 32 has the wrong type: it takes a list, each a whole number, written [32]",
        ),
    ],
)
def test_a_remedy_is_one_of_python_s(tmp_path: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedscopeError) as refused:
        fedscope.train(given, tmp_path / "run")
    assert str(refused.value) == sentence


def test_a_method_of_another_section_is_offered_in_whole_quotes(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"; did you mean client='fedprox'\?; it has adabest, "):
        fedscope.train({"run.rounds": 1}, tmp_path / "run", server="fedprox")
    with pytest.raises(FedscopeError, match=r"^method='fedasamm' is not a method that fedscope knows; did you mean"):
        fedscope.recipe("ima/fig2").configured("fedasamm")


def test_what_is_given_is_not_changed() -> None:
    given = {"run": {"rounds": 2}, "run.rounds": 3, "method": "ima"}
    with pytest.warns(FedscopeWarning):
        assert nested_tables(given)["run"] == {"rounds": 3}
    assert given == {"run": {"rounds": 2}, "run.rounds": 3, "method": "ima"}


@pytest.mark.parametrize("method", ["fedprox", "scaffold", "fedadam", "swa", "fma"])
@pytest.mark.parametrize(
    "given",
    [
        {"run": {"rounds": 80}},
        {"average": {"method": "ima", "start": 4, "window": 2}, "client": {"lr": 0.03}, "run": {"rounds": 80}},
        {"client": {"method": "feddyn", "alpha": 0.3}, "server": {"method": "feddyn"}, "run": {"rounds": 80}},
        {"server": {"method": "fedavgm", "momentum": 0.5}, "average": {"method": "wima"}},
    ],
)
def test_a_method_replaces_that_of_a_configuration_as_on_the_command_line(given: dict[str, Any], method: str) -> None:
    wanted = Setup("", given).config(method, {"client": {"epochs": 2}})
    chosen = {section: name["method"] for section, name in preset(method).items()}
    for config in (fedscope.Config.read(given), given):
        made = config_with(config, {"method": method, "epochs": 2})
        assert {section: made.tables()[section]["method"] for section in chosen} == chosen
        assert made == wanted


def test_single_methods_count_more_than_a_method_and_it_more_than_a_configuration() -> None:
    config = fedscope.Config.read({"client": {"method": "fedprox", "mu": 0.3}, "average": {"method": "ima"}})
    assert config_with(config, {"method": "fedadam", "average": "wima"}).title() == "fedadam-wima"
    assert config_with(config, {"client": "scaffold"}).title() == "scaffold-ima"
    # settings of a method that the keyword chooses again, or that the tables have without its name
    assert config_with(config, {"method": "fedprox"}).tables()["client"]["mu"] == 0.3
    assert config_with({"client": {"mu": 0.3}}, {"method": "fedprox"}).tables()["client"]["mu"] == 0.3


@pytest.mark.parametrize(
    ("given", "keywords", "said"),
    [
        (
            {"server": {"method": "fedadam"}},
            {"method": "ima"},
            "drops server.method = 'fedadam' of the configuration; to keep it, give server='fedadam' beside it",
        ),
        ({"average": {"method": "ima"}}, {"method": "fedprox"}, "drops average.method = 'ima' of"),
        (
            {"client": {"method": "feddyn"}, "server.method": "feddyn", "average": {"method": "ima"}},
            {"method": "fedprox"},
            "drops average.method = 'ima' of",  # both halves of FedDyn are replaced as one
        ),
        (
            {"client": {"method": "fedprox"}, "server": {"method": "fedadam"}},
            {"method": "ima"},
            "drops client.method = 'fedprox' and server.method = 'fedadam' of the configuration; to keep them, give cl",
        ),
        ({"average": {"method": "ima"}}, {"method": "fedprox", "average": "wima"}, ""),
        ({"client": {"method": "scaffold"}}, {"method": "fedprox"}, ""),  # a client method for another
        ({"method": "ima"}, {"method": "fedprox"}, ""),
        ({"average": {"method": "IMA"}}, {"method": "ima"}, ""),
        ({"average": {"method": "none"}, "client": {"lr": 0.2}}, {"method": "ima"}, ""),
        ({"average": {"method": "ima"}}, {"rounds": 9}, ""),
    ],
)
def test_methods_of_a_configuration_that_a_keyword_drops_are_named(
    given: dict[str, Any], keywords: dict[str, Any], said: str
) -> None:
    for config in (given, config_with(given, {}))[: 1 if "method" in given else 2]:  # of a Config it is no short name
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            config_with(config, keywords)
        assert [said in str(one.message) for one in found] == ([True] if said else [])


def test_a_sweep_takes_a_configuration_and_varies_methods(tmp_path: Path) -> None:
    config = fedscope.Config.read(SMALL)
    made = fedscope.sweep({"method": ["fma", "fedavgm"]}, config=config, out=tmp_path / "sweep")
    assert [run.config["server"]["method"] for run in made.runs] == ["fma", "fedavgm"]
    assert all(run.config["data"] == config.tables()["data"] for run in made.runs)
    with pytest.raises(
        FedscopeError, match=r"method='fedprox' is no setting of all runs: .*\{\"method\": \['fedprox'\]"
    ):
        fedscope.sweep({"run.seed": [1]}, method="fedprox", out=tmp_path / "other")
    with pytest.raises(FedscopeError, match=r"^method='fedprox' is no setting of all runs: "):
        fedscope.sweep({"run.seed": [1]}, settings={"method": "fedprox"}, out=tmp_path / "other")


@pytest.mark.parametrize("config", [None, {"client": {"lr": 0.1}}], ids=["nothing", "tables"])
def test_a_sweep_without_a_method_has_the_default_of_train(config: dict[str, Any] | None, tmp_path: Path) -> None:
    settings = {**SMALL, "run.rounds": 1}
    made = fedscope.sweep({"client.batch": [8]}, config=config, settings=settings, out=tmp_path / "sweep")
    wanted = config_with({**SMALL, **(config or {}), "run.rounds": 1, "client.batch": 8}, {})
    (run,) = made.plan.runs
    assert run.tables == wanted.tables()
    assert wanted.title() == "fma"
    # the printed command trains the same: there IMA is the default
    assert " ".join(run.arguments).count("--set average.method=none") == 1
    again = fedscope.sweep({"client.batch": [8]}, config=config, settings=settings, out=tmp_path / "sweep")
    assert [one.name for one in again.runs] == ["batch8"]


def test_settings_of_an_average_that_no_sweep_names_say_how_to_have_it(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError) as caught:
        fedscope.sweep({"average.window": [2, 3]}, settings=SMALL, out=tmp_path / "sweep")
    assert str(caught.value) == (
        "average.window is not a setting of NoAverage; it is one of ima, wima; [average] has none; runs for which no "
        "method is named have no average over rounds, so give average='ima'"
    )
    settings = {**SMALL, "run.rounds": 1}
    made = fedscope.sweep({"average.window": [2]}, settings=settings, average="ima", out=tmp_path / "sweep")
    assert [run.config.title() for run in made.plan.runs] == ["ima"]
    with pytest.raises(FedscopeError) as caught:
        fedscope.sweep({"average.windows": [2]}, settings=SMALL, out=tmp_path / "other")
    assert "so give" not in str(caught.value)


def test_a_sweep_that_was_planned_with_ima_is_another(tmp_path: Path) -> None:
    """As earlier versions did where no method was named."""
    out = tmp_path / "sweep"
    out.mkdir()
    plan_sweep(Setup(), read_axes(["client.batch=8"]), (), nested_tables(SMALL)).write(out)
    with pytest.raises(FedscopeError) as caught:
        fedscope.sweep({"client.batch": [8]}, settings=SMALL, out=out)
    assert str(caught.value) == (
        f"{out} holds another sweep, with average.method = ima in batch8, not none; give another out=, or fedscope "
        f"sweep --resume {out}"
    )


@pytest.mark.parametrize(
    ("axes", "stored", "settings", "title"),
    [
        ("method=ima", {}, {}, "ima"),
        ("client.batch=8", {"average": {"method": "ima"}}, {}, "ima"),
        ("client.batch=8", {}, {"average": {"method": "wima"}}, "wima"),
        ("average.method=ima", {}, {}, "ima"),
    ],
)
def test_a_method_that_is_named_stays(axes: str, stored: Any, settings: Any, title: str) -> None:
    plans = [plan_sweep(Setup("", stored, default=name), read_axes([axes]), (), settings) for name in ("ima", "fma")]
    (one,), (other,) = (plan.runs for plan in plans)
    assert one == other
    assert one.config.title() == title


@pytest.mark.parametrize("where", ["settings", "config"])
def test_a_sweep_takes_whole_names_as_train_does(where: str, tmp_path: Path) -> None:
    """The remedy of the refusal, ``[run.rounds]``, was refused, too."""
    given = {**SMALL, "run.rounds": 1, "client.lr": 0.25}
    (made,) = fedscope.sweep({"method": ["fma"]}, out=tmp_path / "sweep", **{where: given}).runs
    assert (made.config["run"]["rounds"], made.config["client"]["lr"], made.rounds) == (1, 0.25, (1,))
    with pytest.raises(FedscopeError, match=r"^rounds is a setting of a section; give {\"run\": {\"rounds\": 1}}$"):
        fedscope.sweep({"method": ["fma"]}, out=tmp_path / "other", **{where: {"rounds": 1}})


@pytest.mark.parametrize(
    ("given", "section", "key", "share", "own"),
    [
        ({"average": {"method": "ima"}}, "average", "start", 0.75, 7),
        ({"average": {"method": "swa"}}, "average", "start", 0.75, 7),
        ({"client": {"method": "fedfa"}}, "client", "calibrate_from", 0.25, 3),
    ],
)
def test_defaults_follow_the_number_of_rounds_and_what_was_given_stays(
    given: dict[str, Any], section: str, key: str, share: float, own: int
) -> None:
    config = fedscope.Config.read({**given, "run": {"rounds": 60}})
    assert config.tables()[section][key] == 60 * share
    for changed in (config_with(config, {"rounds": 80}), config_with({**given, "run.rounds": 60}, {"rounds": 80})):
        assert changed == fedscope.Config.read({**given, "run": {"rounds": 80}})
        assert changed.tables()[section][key] == 80 * share
    told = fedscope.Config.read({**given, section: {**given[section], key: own}, "run": {"rounds": 60}})
    assert config_with(told, {"rounds": 80}).tables()[section][key] == own
    # twice, and another keyword between
    twice = config_with(config_with(config, {"rounds": 70, "lr": 0.03}), {"rounds": 80})
    assert twice.tables()[section][key] == 80 * share
    assert twice.client.lr == 0.03
    # all of what was recorded was given, and so is what somebody changed by hand
    kept = fedscope.Config.read(config.tables())
    by_hand = replace(config, run=replace(config.run, seed=3))
    assert config == kept
    for one in (kept, by_hand):
        assert config_with(one, {"rounds": 80}).tables()[section][key] == 60 * share
    assert config_with(by_hand, {"rounds": 80}).run.seed == 3


def test_what_a_method_takes_from_another_follows_it_too() -> None:
    both = fedscope.Config.read({"client": {"method": "feddyn", "alpha": 0.3}, "server": {"method": "feddyn"}})
    assert both.tables()["server"]["alpha"] == 0.3
    changed = config_with(both, {"client": find("clients", "feddyn")(alpha=0.7)})
    assert (changed.tables()["client"]["alpha"], changed.tables()["server"]["alpha"]) == (0.7, 0.7)
    # a γ that nobody gave is not refused with clients that have none
    halves = fedscope.Config.read({"client": {"method": "fedmoswa"}, "server": {"method": "fedmoswa"}})
    assert config_with(halves, {"client": "sgd"}).tables()["server"]["method"] == "fedmoswa"


def test_a_sweep_over_rounds_of_a_configuration_has_the_defaults_of_each(tmp_path: Path) -> None:
    config = fedscope.Config.read({**SMALL, "average": {"method": "ima"}})
    plan = plan_sweep(Setup("", config.asked()), read_axes(["run.rounds=4,8"]), ())
    assert [run.tables["average"]["start"] for run in plan.runs] == [3, 6]
