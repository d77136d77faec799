"""Partitioners of flwr-datasets: the rules on a stand-in for the package, and the package itself where it is there."""

from __future__ import annotations

import importlib
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.training import Config, partition, train
from fedscope.training.build import config_of
from fedscope.training.data.split import parse_partition

LABELS = np.random.default_rng(0).integers(0, 10, 400)
GROUPS = {"user": np.arange(400) % 25, "domain": np.arange(400) % 4}
PACKAGES = ("datasets", "flwr_datasets")

DATASETS = """
class Dataset:
    def __init__(self, columns):
        self.columns = {name: list(map(int, values)) for name, values in columns.items()}
        self.column_names = [*columns]

    from_dict = classmethod(lambda cls, columns: cls(columns))
    __getitem__ = lambda self, name: self.columns[name]
    select = lambda self, rows: Dataset({name: [of[i] for i in rows] for name, of in self.columns.items()})
"""
PARTITIONER = '''
import sys, warnings
from typing import Callable
from datasets import Dataset

class Partitioner:
    made = []

class DealingPartitioner(Partitioner):
    """Row i to client i mod N; the last ``spare`` rows to nobody."""

    def __init__(self, num_partitions, partition_by, spare=0, mode="plain", sizes: list | None = None, seed=42):
        Partitioner.made.append(self)
        self.num_partitions, self.partition_by, self.spare = num_partitions, partition_by, spare
        self.mode, self.sizes, self.seed = mode, sizes, seed
        if mode == "angry":
            raise ValueError("modes are\\nplain")

    def load_partition(self, i):
        if self.mode == "loud":
            print("half done", file=sys.stderr)
            warnings.warn("a class is nobody's")
            warnings.warn("old", DeprecationWarning)
        rows = range(i, len(self.dataset["index"]) - self.spare, self.num_partitions)
        found = self.dataset.select(range(9) if self.mode == "twice" else rows)
        if self.mode == "columns":
            found.column_names.remove("index")
        return found

class NaturalIdPartitioner(Partitioner):
    def __init__(self, partition_by):
        self.partition_by = partition_by

    num_partitions = property(lambda self: len(set(self.dataset[self.partition_by])))

    def load_partition(self, i):
        who = self.dataset[self.partition_by]
        return self.dataset.select([row for row, user in enumerate(who) if user == sorted(set(who))[i]])

class NeedyPartitioner(Partitioner):
    def __init__(self, num_partitions, group_size, seed=42): ...

class SizeFncPartitioner(Partitioner):
    def __init__(self, num_partitions, size_fn: Callable): ...
'''


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package of the same names, of which every rule can be seen."""
    place = tmp_path / "packages"
    (place / "flwr_datasets").mkdir(parents=True)
    (place / "flwr_datasets" / "__init__.py").touch()
    (place / "flwr_datasets" / "partitioner.py").write_text(PARTITIONER)
    (place / "datasets.py").write_text(DATASETS)
    forget()
    with monkeypatch.context() as patch:
        patch.syspath_prepend(place)
        yield importlib.import_module("flwr_datasets.partitioner")
    forget()


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)


def test_a_part_is_what_the_partitioner_gives_of_the_rows_in_random_order(stand_in: Any) -> None:
    split = partition("flwr:DealingPartitioner,spare=7", LABELS, 10, 6, seed=3, groups=GROUPS)
    (made,) = stand_in.Partitioner.made
    assert (made.num_partitions, made.partition_by, made.spare, made.mode) == (6, "label", 7, "plain")
    table = made.dataset.columns
    order = np.array(table["index"])
    assert sorted(order.tolist()) == list(range(400))
    assert order.tolist() != list(range(400))
    for name, of in {"label": LABELS, **GROUPS}.items():
        np.testing.assert_array_equal(table[name], of[order])
    for k, part in enumerate(split.clients):
        np.testing.assert_array_equal(part, np.sort(order[: 400 - 7][k::6]))
        np.testing.assert_array_equal(split.label_counts[k], np.bincount(LABELS[part], minlength=10))
    assert split.label_counts.sum() == 393


def test_the_seed_is_the_data_s_unless_one_is_given(stand_in: Any) -> None:
    for text, seed in (("", 3), ("", 3), ("", 4), (",seed=9", 3)):
        partition(f"flwr:DealingPartitioner{text}", LABELS, 10, 6, seed=seed)
    one, same, other, given = [made.seed for made in stand_in.Partitioner.made]
    assert one == same != other
    assert given == 9


def test_a_user_is_a_client_and_domains_are_split_inside(stand_in: Any) -> None:
    split = partition("flwr:NaturalIdPartitioner", LABELS, 10, 25, seed=0, groups=GROUPS)
    assert [set(GROUPS["user"][part].tolist()) for part in split.clients] == [{user} for user in range(25)]
    split = partition("flwr:NaturalIdPartitioner,partition_by=domain", LABELS, 10, 4, seed=0, groups=GROUPS)
    assert [set(GROUPS["domain"][part].tolist()) for part in split.clients] == [{0}, {1}, {2}, {3}]
    inside = "domains:5,flwr:DealingPartitioner,spare=3"
    split = partition(inside, LABELS, 10, 20, seed=0, client_test=0.25, groups=GROUPS)
    assert split.test is not None
    for k, (own, test) in enumerate(zip(split.clients, split.test, strict=True)):
        assert set(GROUPS["domain"][[*own, *test]].tolist()) == {k // 5}
    assert sum(map(len, [*split.clients, *split.test])) == 400 - 4 * 3
    whole = "domains:5,flwr:DealingPartitioner,partition_by=label,spare=3,mode=plain"
    assert parse_partition(inside).resolved().written() == whole


def test_what_was_not_given_is_written_and_read_back_without_the_package(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"clients": 4, "partition": "flwr:DealingPartitioner, sizes=[[1, 2], [3]], spare = 2"}
    config = Config.read({"data": settings, "client": {"epochs": 1}, "run": {"rounds": 1}})
    run = train(config, tmp_path / "run")
    assert stand_in.Partitioner.made[0].sizes == [[1, 2], [3]]
    written = tomllib.loads((tmp_path / "run" / "config.toml").read_text(encoding="utf-8"))["data"]["partition"]
    assert written == "flwr:DealingPartitioner,partition_by=label,spare=2,mode=plain,sizes=[[1, 2], [3]]"
    assert parse_partition(written).resolved().written() == written
    forget()
    for name in PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)
    assert config_of(run).data.partition == written
    assert run.partition is not None
    assert sum(map(len, run.partition.clients)) == 1437 - 2


def test_its_words_to_users_are_passed_on_and_its_others_are_not(
    stand_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        partition("flwr:DealingPartitioner,mode=loud", LABELS, 10, 4, seed=0)
    assert [(each.category, str(each.message)) for each in said] == [
        (FedscopeWarning, "data.partition = 'flwr:DealingPartitioner,mode=loud': a class is nobody's")
    ]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (":Dealing", r"flwr-datasets has no Dealing; did you mean \WDealingPartitioner\W\?; it h"),
        (":Partitioner", r"flwr-datasets has no Partitioner; did you mean"),
        (
            ":DealingPartitioner,spar=2",
            r"spar is not a parameter of DealingPartitioner; did you mean \Wspare\W\?; it t",
        ),
        (":DealingPartitioner,num_partitions=3", r"num_partitions is the number of clients; leave it out, and"),
        (":NeedyPartitioner", r"NeedyPartitioner needs group_size; write flwr:NeedyPartitioner,group_size=\.\.\."),
        (":SizeFncPartitioner", r"size_fn of SizeFncPartitioner is a function, which no configuration can hold"),
        (":DealingPartitioner,3", r"'3' is not a parameter; write key=value, as in flwr:PathologicalPart"),
        (":DealingPartitioner,spare=", r"'spare=' is not a parameter; write key=value"),
        (":DealingPartitioner,spare=1,spare=2", r"gives spare twice; leave one out"),
        (":DealingPartitioner,mode=angry", r"flwr-datasets refuses it \(modes are plain\); change its para"),
        (":DealingPartitioner,mode=twice", r"gives sample \d+ to 6 clients; a sample is one client's, take"),
        (":DealingPartitioner,mode=columns", r"splits columns, not samples; take another partitioner"),
        (":DealingPartitioner,spare=396", r"leaves client 4 without samples; use fewer clients or another seed"),
        (":NaturalIdPartitioner", r"'flwr:NaturalIdPartitioner' makes 25 parts for 6 clients; give --clients 25"),
        (":NaturalIdPartitioner,partition_by=writer", r"goes by the writer of a sample, which these data do not"),
    ],
)
def test_what_it_does_not_take_is_refused(stand_in: Any, rest: str, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        partition(f"flwr{rest}", LABELS, 10, 6, seed=0, groups=GROUPS)


@pytest.mark.usefixtures("absent")
def test_without_the_package_the_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    config = Config.read({"data": {"partition": "flwr", "clients": 4}})
    assert config.data.partition == "flwr:IidPartitioner"
    sentence = (
        r"'flwr:IidPartitioner' needs flwr-datasets, which cannot be imported \(.*\); pip install 'fedscope\[flwr\]'"
    )
    with pytest.raises(FedscopeError, match=sentence):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


#: of the package's partitioners all that split samples by what a text can say, and how many clients each serves here
REAL = {
    "IidPartitioner": 20,
    "LinearPartitioner": 20,
    "SquarePartitioner": 8,
    "ExponentialPartitioner": 5,
    "SizePartitioner,partition_sizes=[100, 300]": 2,
    "PathologicalPartitioner,num_classes_per_partition=2,class_assignment_mode=deterministic": 20,
    "DirichletPartitioner,alpha=0.5,min_partition_size=2": 10,
    "InnerDirichletPartitioner,partition_sizes=[100, 100, 200],alpha=0.5": 3,
    "ShardPartitioner,num_shards_per_partition=2": 20,
    "ContinuousPartitioner,strictness=0.5,partition_by=domain": 10,
    "NaturalIdPartitioner": 25,
    "GroupedNaturalIdPartitioner,group_size=5": 5,
    f"DistributionPartitioner,distribution_array={[[0.5] * 2] * 10},num_unique_labels_per_partition=2,"
    "preassigned_num_samples_per_label=2": 10,
}


@pytest.mark.slow
@pytest.mark.parametrize("text", REAL)
def test_every_partitioner_of_the_package_splits(text: str) -> None:
    pytest.importorskip("flwr_datasets")
    clients, written = REAL[text], f"flwr:{text}"
    split = partition(written, LABELS, 10, clients, seed=0, groups=GROUPS)
    owned = np.concatenate(split.clients)
    assert len(split.clients) == clients
    assert len(owned) == len(set(owned.tolist())) == split.label_counts.sum()
    again = partition(parse_partition(written).resolved().written(), LABELS, 10, clients, seed=0, groups=GROUPS)
    for a, b in zip(split.clients, again.clients, strict=True):
        np.testing.assert_array_equal(a, b)
    if text.startswith("Pathological"):
        assert ((split.label_counts > 0).sum(1) == 2).all()
    if text.startswith("Natural"):
        assert [set(GROUPS["user"][part].tolist()) for part in split.clients].count(set()) == 0
        assert all(len(set(GROUPS["user"][part].tolist())) == 1 for part in split.clients)
    if text.startswith("Size"):
        assert split.label_counts.sum(1).tolist() == [100, 300]


@pytest.mark.slow
def test_the_whole_package_is_tried() -> None:
    package = pytest.importorskip("flwr_datasets.partitioner")
    others = {"Partitioner", "IdToSizeFncPartitioner", "VerticalEvenPartitioner", "VerticalSizePartitioner"}
    assert {text.partition(",")[0] for text in REAL} | others == set(package.__all__)
    with pytest.raises(FedscopeError, match="is a function, which no configuration can hold"):
        partition("flwr:IdToSizeFncPartitioner", LABELS, 10, 2, seed=0)
    with pytest.raises(FedscopeError, match="splits columns, not samples"):
        partition("flwr:VerticalEvenPartitioner", LABELS, 10, 2, seed=0)
