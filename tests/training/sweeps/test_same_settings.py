"""Which run is the one that a sweep's plan means, although it says paths and what was settled late otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.training import Setup, train_plan
from fedscope.training.sweeps.axes import read_axes
from fedscope.training.sweeps.plan import Plan, plan_sweep
from fedscope.training.sweeps.same_settings import is_same_setting
from fedscope.training.sweeps.state import rounds_of

pytestmark = pytest.mark.same_elsewhere

SMALL: dict[str, dict[str, Any]] = {
    "data": {"clients": 4},
    "model": {"hidden": [6]},
    "client": {"epochs": 1},
    "run": {"rounds": 2, "participation": 0.5, "evaluate_clients": 0},
}
WORDS = "--clients 4 --participation 0.5 --rounds 2 --epochs 1 --set model.hidden=[6] --set run.evaluate_clients=0"


def same(key: str, recorded: Any, meant: Any, directory: Path | None = None, data: str = "digits") -> bool:
    section, _, name = key.partition(".")
    return is_same_setting((section, name), recorded, meant, directory, data)


def test_a_file_is_known_by_its_place_and_one_that_has_moved_by_its_name(tmp_path: Path) -> None:
    for name in ("one/a.npz", "two/a.npz", "two/b.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    one, two = (f"{tmp_path}/{name}/a.npz" for name in ("one", "two"))
    for key, kind in (("data.name", "npz:"), ("data.name", "folder:"), ("model.weights", "")):
        assert same(key, kind + one, f"{kind}one/a.npz", tmp_path)
        assert same(key, kind + one, f"{kind}../one/a.npz", tmp_path / "two")
        assert not same(key, kind + two, f"{kind}one/a.npz", tmp_path), "both are there, and two"
        assert not same(key, f"{kind}{tmp_path}/two/b.npz", f"{kind}one/a.npz", tmp_path)
        assert same(key, f"{kind}/gone/a.npz", f"{kind}one/a.npz", tmp_path), "it was elsewhere"
        assert same(key, kind + one, f"{kind}/gone/a.npz"), "and is here now"
        assert not same(key, kind + one, None)
    (tmp_path / "link").symlink_to("one")
    assert same("data.name", f"npz:{one}", "npz:link/a.npz", tmp_path)


@pytest.mark.parametrize(
    ("key", "recorded", "meant", "is_same"),
    [
        ("data.name", "cifar10:/data/here", "cifar10:there", True),
        ("data.name", "cifar10", "cifar100", False),
        ("data.name", "mine:load", "mine:other", False),
        ("data.name", "text:/a/one.txt@/a/gpt", "text:one.txt@gpt", True),
        ("data.name", "text:/a/one.txt@/a/gpt", "text:one.txt@bert", False),
        ("data.name", "text:/a/one.txt@/a/gpt", "text:two.txt@gpt", False),
        ("model.weights", "/a/w.pt:teacher", "w.pt:teacher", True),
        ("model.weights", "/a/w.pt:teacher", "w.pt:student", False),
        ("data.partition", "iid", "shards:2", False),
        ("data.partition", "mine:split", "mine:other", False),
        ("data.partition", "flwr:DirichletPartitioner,alpha=0.5,seed=1", "flwr:DirichletPartitioner,alpha=0.50", True),
        ("data.partition", "flwr:DirichletPartitioner,alpha=0.1,seed=1", "flwr:DirichletPartitioner,alpha=0.5", False),
        ("data.partition", "domains:2,flwr:IidPartitioner,a=1", "domains:2,flwr:IidPartitioner", True),
        ("data.partition", "domains:3,flwr:IidPartitioner,a=1", "domains:2,flwr:IidPartitioner", False),
        ("run.device", "cpu", "auto", True),
        ("run.rounds", 3, 2, False),
    ],
)
def test_settings_that_are_settled_late(key: str, recorded: Any, meant: Any, is_same: bool) -> None:
    assert same(key, recorded, meant) is is_same


def test_what_is_learnt_is_what_the_plan_says_or_what_the_data_are_for() -> None:
    assert same("model.task", None, "classification")
    assert same("model.task", "classification", None)
    assert not same("model.task", "multilabel", None)
    assert not same("model.task", None, "multilabel")
    assert same("model.task", "sequences", None, data="shakespeare")


# --- whole runs ---


def plan_of(*texts: str, stored: dict[str, Any] | None = None) -> Plan:
    return plan_sweep(Setup("", stored or {}), read_axes(texts), (), SMALL)


def test_a_run_of_another_partition_is_not_the_plans(tmp_path: Path, recorded: Any) -> None:
    recorded(tmp_path / "runs" / "iid", "--method", "fma", *WORDS.split(), "--partition", "iid")
    plan = plan_of("data.partition=iid,shards:3", "method=fma")
    shutil.move(tmp_path / "runs" / "iid", tmp_path / "runs" / plan.runs[1].name)
    with pytest.raises(FedscopeError) as found:
        rounds_of(tmp_path, plan.runs[1])
    assert str(found.value) == (
        f"{tmp_path}/runs/{plan.runs[1].name} is not the run that the sweep's plan has there: its data.partition is "
        "iid, not shards:3; move it elsewhere, and it is trained again"
    )


def test_a_configuration_that_was_edited_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    plan = plan_of("method=fma,fedavgm", stored={"data": {"partition": "iid"}, "client": {"lr": 0.1}})
    plan.write(tmp_path)
    plan.write_given(tmp_path)
    plan.refuse_edited(tmp_path)
    path = tmp_path / "config.toml"
    before = path.read_text()
    for edited, what in (
        (before.replace("iid", "shards:2"), "its data.partition is shards:2, and was iid"),
        (before.replace("lr = 0.1", ""), "its client.lr is not given, and was 0.1"),
        (f"{before}batch = 3\n", "its client.batch is 3, and was not given"),
    ):
        path.write_text(edited)
        with pytest.raises(FedscopeError) as found:
            train_plan(plan, tmp_path)
        assert str(found.value) == (
            f"{path} was edited since the sweep was planned with it: {what}; restore it, or remove it, and it is "
            "written again; for another configuration begin another sweep"
        )
        assert not (tmp_path / "runs").exists()
    path.write_text(f"# what it says is what counts\n{before}")
    plan.refuse_edited(tmp_path)
    path.unlink()
    plan.write_given(tmp_path)
    assert path.read_text() == before
