"""Partitions of one's own: functions, classes with settings, lists; and what is no partition."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.methods import Partitioner, setting
from fedscope.training.data.own_partition import Listed, checked_parts
from fedscope.training.data.split import parse_partition, partition
from fedscope.training.settings.own_code import OwnCode

LABELS = np.arange(60) % 3


@dataclass(frozen=True)
class Sized(Partitioner):
    """Client k has k + first samples."""

    first: int = setting(2, "samples of client 0", least=1)

    def split(self, labels: Any, clients: int, random: Any, groups: Any) -> list[np.ndarray]:
        ends = np.cumsum(np.arange(clients) + self.first)
        return np.split(random.permutation(len(labels))[: ends[-1]], ends[:-1])


def of_thing(thing: Any, **changes: Any) -> Any:
    return partition(OwnCode.of("mine:split", thing), LABELS, 3, 4, **{"seed": 0, **changes})


def test_a_function_a_class_and_a_function_of_groups() -> None:
    def dealt(labels: Any, clients: int, random: Any) -> list[np.ndarray]:
        return [np.flatnonzero(np.arange(60) % clients == k) for k in range(clients)]

    made = of_thing(dealt)
    assert [part.tolist() for part in made.clients] == [list(range(k, 60, 4)) for k in range(4)]
    assert [len(part) for part in of_thing(Sized(first=3)).clients] == [3, 4, 5, 6]

    def by_user(labels: Any, clients: int, random: Any, groups: Any) -> list[np.ndarray]:
        return [np.flatnonzero(groups["user"] == k) for k in range(clients)]

    users = np.arange(60) // 15
    assert [part[0] for part in of_thing(by_user, groups={"user": users}).clients] == [0, 15, 30, 45]


def test_the_same_seed_gives_the_same_split() -> None:
    def mixed(labels: Any, clients: int, random: Any) -> list[np.ndarray]:
        return np.array_split(random.permutation(len(labels)), clients)

    one, same, other = (of_thing(mixed, seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one.clients, same.clients, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one.clients, other.clients, strict=True))


@pytest.mark.parametrize(
    "form",
    [
        lambda parts: dict(enumerate(parts)),
        lambda parts: {np.int64(k): set(parts[k].tolist()) for k in reversed(range(4))},
        np.stack,
        tuple,
        iter,
        lambda parts: (part.tolist() for part in parts),
        lambda parts: dict(enumerate(parts)).values(),
        lambda parts: np.array([*parts, None], object)[:4],
        lambda parts: [set(part.tolist()) for part in parts],
    ],
    ids=["dictionary", "sets by number", "array", "tuple", "iterator", "generator", "values", "objects", "sets"],
)
def test_forms_of_a_list_are_taken_of_a_function_and_as_they_are(form: Any) -> None:
    parts = [np.arange(k, 60, 4) for k in range(4)]
    for made in (
        of_thing(lambda labels, clients, random: form(parts)).clients,
        checked_parts(Listed.of(form(parts), "partition=").parts, 60, 4, "x"),
    ):
        assert [part.tolist() for part in made] == [part.tolist() for part in parts]


@given(st.integers(1, 6), st.integers(0, 30), st.randoms(use_true_random=False))
def test_parts_are_taken_if_and_only_if_they_are_disjoint_indices(clients: int, samples: int, random: Any) -> None:
    parts = [[random.randrange(-1, samples + 2) for _ in range(random.randrange(4))] for _ in range(clients)]
    everything = [index for part in parts for index in part]
    fine = all(0 <= index < samples for index in everything) and len(set(everything)) == len(everything)
    given_ = [np.array(part, np.int64) for part in parts]
    if fine:
        assert [part.tolist() for part in checked_parts(given_, samples, clients, "x")] == parts
    else:
        with pytest.raises(FedscopeError, match=r"^x gave "):
            checked_parts(given_, samples, clients, "x")


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (lambda *_: [np.arange(2)], r"gave 1 arrays for 4 clients; return a list with an index array a client"),
        (lambda *_: np.arange(4), r"gave ndarray for 4 clients"),
        (
            lambda *_: {0: [0], 1: [1], 3: [3]},
            r"gave nothing of the clients 2, but of 4 clients the numbers are 0 to 3; ",
        ),
        (
            lambda *_: {k: [k] for k in range(5)},
            r"gave rows of the clients 4, but of 4 clients the numbers are 0 to 3; g",
        ),
        (lambda *_: {str(k): [k] for k in range(4)}, r"gave rows of the clients '0', '1', '2', '3', but of 4"),
        (lambda *_: {}, r"gave nothing of the clients 0, 1, 2, 3, but"),
        (lambda *_: np.zeros((3, 2), int), r"gave 3 arrays for 4 clients"),
        (lambda *_: (1 / k for k in range(4)), r"failed with ZeroDivisionError: "),
        (lambda *_: [np.arange(2), np.arange(1, 3), [5], [6]], r"gave the sample 1 to clients 0 and 1; a sample is"),
        (lambda *_: [[0, 0], [1], [2], [3]], r"gave the sample 0 to client 0 twice"),
        (lambda *_: [[0.5], [1], [2], [3]], r"gave client 0 an array of float64 and shape \[1\]; give indices"),
        (lambda *_: [[0], [1], [2], [60]], r"gave client 3 the sample 60, and there are 60, counted from 0"),
        (lambda *_: 1 / 0, r"failed with ZeroDivisionError: .*; it is called with \(labels, clients, random\)"),
        (lambda *_: [[0], [], [2], [3]], r"leaves client 1 without samples; give it some"),
    ],
)
def test_what_is_no_partition_is_said(gives: Any, said: str) -> None:
    with pytest.raises(FedscopeError, match=rf"^data\.partition = 'mine:split' {said}"):
        of_thing(lambda labels, clients, random: gives())


def test_a_class_has_its_settings_in_its_name(tmp_path: Path) -> None:
    small = {"clients": 4, "rounds": 1, "epochs": 1}
    typed = f"{__name__}:Sized(first=3)"
    one = fedscope.train(partition=Sized(first=3), out=tmp_path / "object", **small)
    other = fedscope.train(partition=typed, out=tmp_path / "typed", **small)
    for run in (one, other):
        assert run.partition is not None
        assert [len(part) for part in run.partition.clients] == [3, 4, 5, 6]
        assert run.config["data"]["partition"] == typed  # type: ignore[index]
    assert parse_partition(typed).written() == typed, "it is read without its code"


def test_a_name_without_its_code_splits_nothing() -> None:
    made = parse_partition("mine:split")
    assert made.written() == "mine:split"
    with pytest.raises(FedscopeError, match=r"give --code partition=mine:split"):
        made.split(LABELS, 4, np.random.default_rng(0), {})
    assert parse_partition("shards:3").written() == "shards:3"


def test_lists_are_clients(tmp_path: Path) -> None:
    parts = [list(range(k, 300, 3)) for k in range(3)]
    run = fedscope.train(partition=parts, rounds=1, epochs=1, out=tmp_path / "run")
    assert run.partition is not None
    assert [part.tolist() for part in run.partition.clients] == parts
    assert run.config["data"]["clients"] == 3  # type: ignore[index]
    with pytest.raises(FedscopeError, match=r"partition= lists 3 clients, and data\.clients = 5"):
        fedscope.train(partition=parts, clients=5, rounds=1, out=tmp_path / "no")
    with pytest.raises(FedscopeError, match=r"partition= is int, not a partition"):
        fedscope.train(partition=5, rounds=1, out=tmp_path / "no")  # type: ignore[arg-type]
