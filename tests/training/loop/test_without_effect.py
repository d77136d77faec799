"""Settings that count only beside another one are told where they count for nothing, and never where they count."""

from __future__ import annotations

import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import fedscope
from fedscope.checkpoints import FedscopeWarning
from fedscope.training import Config, resume, train
from fedscope.training.settings.registry import METHOD_SECTIONS, find, names
from fedscope.training.settings.settings import without_effect

pytestmark = pytest.mark.same_elsewhere

#: by section and key, another value than the default
OTHER = {
    **{("average", "explore_decay"): 0.1, ("average", "explore_low"): 1e-4, ("average", "explore_high"): 0.04},
    **{("server", "beta"): 0.5, ("client", "beta2"): 0.9, ("client", "tau"): 0.01},
}


def conditional() -> list[tuple[str, str, Any]]:
    """Section, method and key of every such setting."""
    return [
        (section, name, key)
        for section, (shelf, _, _) in METHOD_SECTIONS.items()
        if section != "model"
        for name in names(shelf)
        for key in fields(find(shelf, name))
        if key.metadata["only_with"]
    ]


def test_every_such_setting_is_told_beside_every_value_with_which_it_does_nothing() -> None:
    asked = conditional()
    assert {(section, key.name) for section, _, key in asked} == set(OTHER)
    assert {name for _, name, _ in asked} == {"checkpoints", "ima", "mime", "mimelite"}
    choices = {"explore": ("exp", "const", "cyclic", "triangle", "epochs", "stage", "none")}
    choices["shape"] = ("uniform", "linear", "cosine", "minus_sqrt", "ema")
    choices["optimiser"] = ("momentum", "adam")
    for section, name, key in asked:
        other, *counts = key.metadata["only_with"]
        assert set(counts) < set(choices[other])
        for value in choices[other]:
            given = {section: {"method": name, other: value, key.name: OTHER[section, key.name]}}
            said = list(without_effect(getattr(Config.read(given), section)))
            assert said == list(without_effect(getattr(Config.read(given), section))), "each time, not the first alone"
            assert len(said) == (value not in counts), (name, key.name, value)
            default = {section: {"method": name, other: value}}
            assert not list(without_effect(getattr(Config.read(default), section)))


def test_a_rate_of_another_exploration_is_told_where_it_is_trained(tmp_path: Path) -> None:
    small = {"data": {"clients": 4, "share": 0.2}, "model": {"hidden": [4]}, "client": {"epochs": 1}}
    small["run"] = {"rounds": 2, "participation": 0.5, "evaluate_clients": 0}
    words = (
        r"^average\.explore_high = 0\.5 has no effect with average\.explore = 'exp'; leave it out, or give "
        r"config=\{'average': \{'explore': 'cyclic'\}\} \(it counts with cyclic, triangle\)$"
    )
    with pytest.warns(FedscopeWarning, match=words):
        train({**small, "average": {"method": "ima", "explore_high": 0.5}}, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        train({**small, "average": {"method": "ima", "explore": "cyclic", "explore_high": 0.5}}, tmp_path / "cyclic")


def doubts(**tables: Any) -> list[str]:
    config = Config.read(tables)
    return [*config.server.doubts(config), *config.average.doubts(config)]


LEFT_OUT = "leave exploring out with --set average.explore=none"


@pytest.mark.parametrize("explore", ["stage", "epochs"])
def test_an_exploration_whose_first_step_comes_too_late_is_told(explore: str) -> None:
    def said(rounds: int, **average: Any) -> list[str]:
        return doubts(run={"rounds": rounds}, average={"method": "ima", "explore": explore, **average})

    words = (
        f"average.explore = '{explore}' has no effect: its first step comes average.explore_period = 20 rounds after "
        "round {0}, where averaging starts, and the last round is {1}; "
    )
    less = "give --set average.explore_period=15, or less, or "
    assert said(60) == [words.format(45, 60) + less + LEFT_OUT]
    assert said(60, explore_period=15) == [], "the remedy: it counts in the last round"
    assert said(60, explore="none") == [], "the other one"
    assert said(4) == [words.format(3, 4) + LEFT_OUT], "no period is that short"
    assert said(80) == []
    assert said(60, start=40) == []


def test_an_epoch_less_of_one_is_told() -> None:
    average = {"method": "ima", "explore": "epochs", "explore_period": 2}
    assert doubts(client={"epochs": 1}, average=average) == [
        "average.explore = 'epochs' has no effect with client.epochs = 1, of which none can be left out; give --epochs "
        f"2 or more, or {LEFT_OUT}"
    ]
    assert doubts(client={"epochs": 2}, average=average) == []
    assert doubts(client={"epochs": 1}, average={**average, "explore": "stage"}) == []


def test_cycles_that_raise_the_rate_are_told() -> None:
    average = {"method": "ima", "explore": "cyclic"}
    assert doubts(client={"lr": 0.001}, average=average) == [
        "average.explore = 'cyclic' begins its cycles at the rate 0.01, and the clients' first is 0.001; give another "
        "highest rate, as in --set average.explore_high=0.001"
    ]
    assert doubts(client={"lr": 0.001}, average={**average, "explore_high": 0.001}) == [], "the remedy"
    (small,) = doubts(client={"lr": 4e-5}, average=average)
    assert small.endswith("as in --set average.explore_high=4e-05 --set average.explore_low=4e-06")
    assert doubts(client={"lr": 4e-5}, average={**average, "explore_high": 4e-5, "explore_low": 4e-6}) == []
    assert doubts(client={"lr": 0.01, "lr_decay": 0.99}, average=average) == [], "cycles of the rate of round 1"


CLIENTS = (
    "--server checkpoints takes clients for checkpoints of one training, the one with the greatest id for the newest, "
    "and weighs those of a federation by their numbers; give --server fma, or --set server.shape=uniform without "
    "server.last"
)


def test_clients_that_are_weighed_by_their_numbers_are_told() -> None:
    assert doubts(server={"method": "checkpoints"}) == [CLIENTS]
    assert doubts(server={"method": "checkpoints", "shape": "uniform", "last": 2}) == [CLIENTS]
    assert doubts(server={"method": "checkpoints", "shape": "uniform"}) == []
    assert doubts(server={"method": "fedadam"}) == []


def test_doubts_are_told_where_a_run_is_trained_and_reaggregated(tmp_path: Path) -> None:
    small = {"data": {"clients": 4, "share": 0.2}, "model": {"hidden": [4]}, "client": {"epochs": 1}}
    small["run"] = {"rounds": 2, "participation": 0.5, "evaluate_clients": 0}
    with pytest.warns(FedscopeWarning, match="checkpoints.* takes clients for checkpoints of one training"):
        train({**small, "server": {"method": "checkpoints"}}, tmp_path / "checkpoints")
    with pytest.warns(FedscopeWarning, match="no effect: its first step comes average.explore_period = 20 rounds"):
        train({**small, "average": {"method": "ima", "explore": "stage"}}, tmp_path / "stage")
    with warnings.catch_warnings():  # what can be changed no more is not said again
        warnings.simplefilter("error", FedscopeWarning)
        for name, tables in (
            ("one", {"server": {"method": "checkpoints"}}),
            ("two", {"average": {"method": "ima", "explore": "stage"}}),
            ("three", {"average": {"method": "ima", "explore_high": 0.5}}),
        ):
            with pytest.warns(FedscopeWarning):
                train({**small, **tables}, tmp_path / name, until=1)
            assert resume(tmp_path / name).rounds == (1, 2)
    run = train(small, tmp_path / "run")
    with pytest.warns(FedscopeWarning, match="checkpoints.* takes clients for checkpoints of one training"):
        fedscope.reaggregate(run, "checkpoints", rounds="last", limit=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        fedscope.reaggregate(run, "checkpoints", rounds="last", limit=20, settings={"shape": "uniform"})


def of_client(outputs: int, *samples: int, **client: Any) -> list[str]:
    return list(Config.read({"client": client}).client.doubts(outputs, samples))


@pytest.mark.parametrize("name", ["fedprox", "fedacg"])
def test_a_pull_at_the_model_that_was_sent_alone_is_told(name: str) -> None:
    assert of_client(10, 40, 50, method=name, epochs=1, batch=50) == [
        f"client.method = '{name}' does what sgd does here: no client makes a second step in a round (client.epochs = "
        "1, and client.batch = 50 holds the 50 samples of the largest), and at the first one it is the model that was "
        "sent, to which nothing pulls it; give --epochs 2, or --client sgd"
    ]
    assert of_client(10, 40, 50, method=name, epochs=2, batch=50) == [], "the remedy"
    assert of_client(10, 40, 50, method=name, epochs=1, batch=49) == []
    assert of_client(10, 40, 50, method="sgd", epochs=1, batch=50) == []


def test_distillation_of_no_class_is_told() -> None:
    assert of_client(2, 40, method="fedntd") == [
        "client.method = 'fedntd' does what sgd does here: of two classes a single one is left without that of the "
        "sample, and nothing is to be kept of it; give --client sgd"
    ]
    assert of_client(3, 40, method="fedntd") == of_client(0, 40, method="fedntd") == []


def test_a_client_method_that_does_nothing_is_told_where_it_is_trained(tmp_path: Path) -> None:
    small = {"data": {"clients": 4, "share": 0.2}, "model": {"hidden": [4]}, "client": {"epochs": 1, "batch": 400}}
    small["run"] = {"rounds": 1, "participation": 0.5, "evaluate_clients": 0}
    with pytest.warns(FedscopeWarning, match=r"^client\.method = 'fedprox' does what sgd does here: .*; give epochs=2"):
        train({**small, "client": {**small["client"], "method": "fedprox"}}, tmp_path / "run")
