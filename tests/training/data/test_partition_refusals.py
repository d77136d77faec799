"""Partitions of what cannot be split: one sentence each. And how partitions are written down."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.training import Config, partition, train
from fedscope.training.data.split import parse_partition
from fedscope.training.settings.registry import names

LABELS = np.random.default_rng(0).integers(0, 10, 400)


@pytest.mark.parametrize(
    ("text", "clients", "message"),
    [
        ("shards:20", 50, r"data.partition = 'shards:20' with 50 clients needs 1000 shards, but there are only 400"),
        ("iid", 401, r"data.clients = 401 is more than the 400 training samples"),
        ("shard:2", 5, r"'shard' is not a partition .*did you mean \Wshards"),
        ("shards:x", 5, r"'x' is not a number \(shards:shards\)"),
        ("shards:0", 5, r"data.partition.shards = 0 is out of range"),
        ("dirichlet:-1", 5, r"data.partition.alpha = -1 is out of range"),
        (
            "shards:2,30",
            7,
            r"'shards:2,30' with 7 clients needs 14 shards of 30 samples, but the 400 training samples make only 13",
        ),
        ("shards:2,0", 5, r"data.partition.size = 0 is out of range"),
        ("shards:2,1.5", 5, r"data.partition.size = 1.5 has the wrong type: it takes a whole number"),
        ("pathological:11", 5, r"wants 11 classes a client, but the training samples have 10; take at most that many"),
        ("pathological:2", 4, r"with 4 clients has room for 8 of the 10 classes; take more clients, or more classes"),
        ("pathological:10", 90, r"class 0 has \d+ training samples for the 90 clients that are to hold it"),
        ("dirichlet:0", 5, r"data.partition.alpha = 0 is out of range: it must be greater than 0"),
        ("dirichlet:nan", 5, r"data.partition.alpha = nan is not a finite number"),
        ("dirichlet:inf", 5, r"data.partition.alpha = inf is not a finite number"),
        ("pachinko:0", 5, r"data.partition.root = 0 is out of range: it must be greater than 0"),
        ("pachinko:0.1,-1", 5, r"data.partition.leaf = -1 is out of range: it must be greater than 0"),
        ("domains:2,dirichlet:0", 5, r"data.partition.alpha = 0 is out of range: it must be greater than 0"),
        ("iid", 0, r"data.clients = 0 is out of range: it must be at least 1"),
        ("dirichlet-clients:-0.1", 5, r"data.partition.alpha = -0.1 is out of range"),
        ("dirichlet-clients:0", 9, r"one class a client, but there are 10 classes and 9 clients; take at least 10"),
        ("iid:3", 5, r"gives 1 values, but iid takes 0"),
    ],
)
def test_impossible_partitions_are_refused(text: str, clients: int, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        partition(text, LABELS, 10, clients, seed=0)


def test_a_partition_by_groups_says_what_it_went_without() -> None:
    for text, kind in (("natural", "user"), ("domains:2", "domain"), ("pachinko", "superclass")):
        with pytest.raises(FedscopeError, match=rf"goes by the {kind} of a sample, which these data do not know; take"):
            partition(text, LABELS, 10, 4, seed=0)
    with pytest.raises(FedscopeError, match=r"they know the domain of a sample; take another partition"):
        partition("natural", LABELS, 10, 4, seed=0, groups={"domain": LABELS})
    with pytest.raises(
        FedscopeError, match=r"'natural' with 11 clients, but the data have 10 users; give --clients 10"
    ):
        partition("natural", LABELS, 10, 11, seed=0, groups={"user": LABELS})
    with pytest.raises(
        FedscopeError, match=r"'domains:2,iid' splits each of 10 domains into 2 clients; give --clients 20"
    ):
        partition("domains:2", LABELS, 10, 4, seed=0, groups={"domain": LABELS})
    with pytest.raises(FedscopeError, match=r"domain 0 has \d+ samples for 100 clients; take fewer clients a domain"):
        partition("domains:100", LABELS[:200], 10, 200, seed=0, groups={"domain": LABELS[:200] // 5})
    with pytest.raises(FedscopeError, match="splits domains by domain"):
        parse_partition("domains:2,domains:3")
    with pytest.raises(FedscopeError, match="'many' is not a number"):
        parse_partition("domains:many")
    assert parse_partition("domains:3,shards").written() == "domains:3,shards:2"
    assert parse_partition(parse_partition("domains:3,dirichlet:0.5").written()) == parse_partition(
        "domains:3,dirichlet:0.5"
    )


def test_labels_and_groups_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(FedscopeError, match=r"400 labels of training samples, but the user of 399; give both of"):
        partition("natural", LABELS, 10, 4, seed=0, groups={"user": LABELS[1:]})
    with pytest.raises(FedscopeError, match=r"have the label 9, but there are 9 classes, counted from 0; correct"):
        partition("iid", LABELS, 9, 4, seed=0)
    with pytest.raises(FedscopeError, match=r"have the label -1, but there are 10 classes, counted from 0; correct"):
        partition("iid", LABELS - 1, 10, 4, seed=0)
    with pytest.raises(FedscopeError, match=r"class \d is in superclasses \d and \d; give each class one superclass"):
        partition("pachinko", LABELS, 10, 4, seed=0, groups={"superclass": np.arange(400) % 5})


@pytest.mark.parametrize("text", ["shards:2", "pathological:2", "dirichlet:0.1", "dirichlet-clients:0", "pachinko"])
def test_a_class_without_samples_is_nobody_s(text: str) -> None:
    labels = np.where(LABELS == 4, 7, LABELS)
    counts = partition(text, labels, 10, 20, seed=0, groups={"superclass": labels // 2}).label_counts
    np.testing.assert_array_equal(counts.sum(0), np.bincount(labels, minlength=10))
    assert counts.shape == (20, 10)
    if text == "pathological:2":
        assert ((counts > 0).sum(1) == 2).all()


def test_a_class_without_samples_cannot_be_held() -> None:
    labels = np.where(LABELS == 4, 7, LABELS)
    with pytest.raises(FedscopeError, match=r"wants 10 classes a client, but the training samples have 9; take at"):
        partition("pathological:10", labels, 10, 20, seed=0)


def test_a_user_of_one_sample_has_no_test_part_and_that_is_said() -> None:
    user = np.concatenate([np.arange(5), np.full(395, 5)])
    said = (
        r"client_test = 0.25 sets nothing aside for 5 of 6 clients, which have too few samples \(0, 1, 2, ...\); they"
    )
    with pytest.warns(FedscopeWarning, match=said):
        split = partition("natural", LABELS, 10, 6, seed=0, client_test=0.25, groups={"user": user})
    assert split.test is not None
    assert [len(part) for part in split.clients] == [1] * 5 + [395 - 99]
    assert [len(part) for part in split.test] == [0] * 5 + [99]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partition("natural", LABELS, 10, 6, seed=0, groups={"user": user})


#: what each partition is without values
WITHOUT = {
    "dirichlet": "dirichlet:0.1",
    "dirichlet-clients": "dirichlet-clients:0.1",
    "domains": "domains:20,iid",
    "flwr": "flwr:IidPartitioner",  # more in test_flwr.py
    "iid": "iid",
    "natural": "natural",
    "pachinko": "pachinko:0.1,10",
    "pathological": "pathological:2",
    "shards": "shards:2",
}


def test_values_that_were_not_given_are_written_into_the_configuration() -> None:
    assert set(WITHOUT) == set(names("partitions"))
    for name, whole in WITHOUT.items():
        written = Config.read({"data": {"partition": name}}).tables()["data"]["partition"]
        assert written == whole
        assert parse_partition(written) == parse_partition(name)
    for some, whole in (
        ("pachinko:0.5", "pachinko:0.5,10"),
        ("domains:4", "domains:4,iid"),
        ("domains:4,pachinko", "domains:4,pachinko:0.1,10"),
        ("shards:3,250", "shards:3,250"),
    ):
        assert Config.read({"data": {"partition": some}}).data.partition == whole


def test_a_run_keeps_them(tmp_path: Path) -> None:
    settings = {"data": {"partition": "dirichlet", "clients": 4}, "client": {"epochs": 1}, "run": {"rounds": 1}}
    train(Config.read(settings), tmp_path / "run")
    stored = tomllib.loads((tmp_path / "run" / "config.toml").read_text(encoding="utf-8"))
    assert stored["data"]["partition"] == "dirichlet:0.1"
