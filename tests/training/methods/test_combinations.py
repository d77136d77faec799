"""Any client x any server x any average: all of them play, or are refused with the reason."""

from __future__ import annotations

from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_memory import play

from fedscope.checkpoints import FedscopeError
from fedscope.training import Config, train
from fedscope.training.settings.registry import find, names

pytestmark = pytest.mark.same_elsewhere

CLIENTS, SERVERS, AVERAGES = names("clients"), names("servers"), names("averages")
SMALL: dict[str, Any] = {
    "data": {"clients": 3, "partition": "iid", "client_test": 0.2},
    "model": {"hidden": [4]},
    "run": {"rounds": 3, "participation": 0.6, "evaluate_clients": 0, "evaluate_every": 3},
}
#: settings that let a method do something in three rounds, and cheaply
OWN: dict[str, dict[str, Any]] = {
    "ima": {"window": 2, "start": 1},
    "wima": {"window": 2},
    "swa": {"start": 2, "cycle": 2},
    "fedgen": {"generator_steps": 2, "hidden": 4, "noise": 3},
    "fedbabu": {"fine_tune_epochs": 1},
}


def settings(data: str, client: str, server: str, average: str, /, **sections: Any) -> Config:
    tables = {name: {**table, **sections.get(name, {})} for name, table in SMALL.items()}
    tables["data"]["name"] = data
    tables["client"] = {"method": client, "epochs": 1, "batch": 4, "lr": 0.02, **OWN.get(client, {})}
    tables["client"] |= sections.get("client", {})
    tables["server"] = {"method": server}
    tables["average"] = {"method": average, **OWN.get(average, {})}
    return Config.read(tables)


def some(client: str) -> list[tuple[str, str]]:
    """Each server once, averages in turn, from another one on for each client: in all, every pair of methods meets."""
    turn = CLIENTS.index(client)
    return [(server, AVERAGES[(turn + k) % len(AVERAGES)]) for k, server in enumerate(SERVERS)]


def test_every_pair_of_methods_is_among_those_that_meet() -> None:
    met = {(client, *pair) for client in CLIENTS for pair in some(client)}
    assert {(client, server) for client, server, _ in met} == set(product(CLIENTS, SERVERS))
    assert {(client, average) for client, _, average in met} == set(product(CLIENTS, AVERAGES))
    assert {(server, average) for _, server, average in met} == set(product(SERVERS, AVERAGES))


@pytest.mark.parametrize("pairs", [pytest.param("some"), pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_method_goes_with_every_server_and_average_or_is_refused_with_the_reason(
    data: str, client: str, pairs: str
) -> None:
    kind = find("clients", client)
    for server, average in some(client) if pairs == "some" else product(SERVERS, AVERAGES):
        if server == "fednova" and (kind.proximal or kind.changing_rate or kind.own_start):
            # its a_i is that of plain steps at a constant rate from the model that was sent
            with pytest.raises(FedscopeError, match=rf"--server fednova counts steps .* but --client {client} "):
                settings(data, client, server, average)
            continue
        config = settings(data, client, server, average)
        records = play(config)
        for record in records:
            assert record.global_ is not None
            assert np.isfinite(record.global_.parameters).all(), f"{client} x {server} x {average}"
            assert np.isfinite(record.client_loss).all()
        first, last = records[0].start, records[-1].global_
        assert first is not None
        assert last is not None
        assert (first.parameters != last.parameters).any()
        assert (records[-1].averaged is not None) == (average != "none")


def write(path: Path, x: np.ndarray, y: np.ndarray) -> str:
    np.savez(path, x_train=x, y_train=y, x_test=x[:6], y_test=y[:6])
    return f"npz:{path}"


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_method_trains_on_what_little_there_is(tmp_path: Path, client: str) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(12, 4)).astype(np.float32)
    sorted_labels = np.repeat([0, 1, 3], 4)  # class 2 is missing, and a shard holds one class
    name = write(tmp_path / "little.npz", x, sorted_labels)
    one_class = {"data": {"clients": 3, "partition": "shards:1", "client_test": 0.0}}
    for sections in (
        {**one_class, "run": {"participation": 1.0, "rounds": 2}},
        {**one_class, "run": {"participation": 0.3, "rounds": 2}},  # a cohort of one
        {"data": {"clients": 1, "client_test": 0.0}, "run": {"rounds": 2}},  # one client
        {"data": {"clients": 12, "client_test": 0.0}, "run": {"rounds": 2}, "client": {"batch": 50}},  # one sample each
    ):
        for record in play(settings(name, client, "fma", "none", **sections)):
            assert record.global_ is not None
            assert np.isfinite(record.global_.parameters).all(), sections


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_diverges_is_named_whatever_the_method(tmp_path: Path, data: str, client: str) -> None:
    wild = settings(data, client, "fma", "none", client={"lr": 1e25, "epochs": 3})
    with pytest.raises(FedscopeError, match=r"round \d: the training loss of clients? \d.* is not finite at learning"):
        train(wild, tmp_path / "wild")


SWITCHES = [
    (shelf, name, key.name)
    for shelf in ("clients", "servers", "averages")
    for name in names(shelf)  # type: ignore[arg-type]
    for key in fields(find(shelf, name))  # type: ignore[arg-type]
    if key.metadata["off"]
]


@pytest.mark.parametrize(("shelf", "name", "key"), SWITCHES)
def test_a_number_that_would_switch_a_method_off_is_refused(shelf: Any, name: str, key: str) -> None:
    with pytest.raises(FedscopeError, match=rf"\.{key} = 0 would switch the method off; give a number greater than 0"):
        find(shelf, name)(**{key: 0.0})


def test_there_are_switches() -> None:
    named = {name for _, name, _ in SWITCHES}
    assert {"fedprox", "fedsam", "feddyn", "fedacg", "adabest", "fedavgm", "moon", "fedntd"} <= named


@pytest.mark.parametrize("shelf", ["clients", "servers", "averages"])
def test_every_method_has_its_row_of_the_feature_table(shelf: Any) -> None:
    for name in names(shelf):
        about = find(shelf, name).about
        assert about.name
        assert about.changes
        assert "|" not in "".join((about.name, about.paper, about.changes, about.keeps, about.down, about.up))
        assert about.paper or name in ("none", "lora")  # the mean of products is no paper's
