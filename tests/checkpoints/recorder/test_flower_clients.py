"""Which client a reply of Flower is of: its partition, or the number of its node."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flower_stand_ins import (
    NODES,
    Averaging,
    ConfigRecord,
    Content,
    Emptying,
    Message,
    MetricRecord,
    Net,
    arrays,
    cohort,
    model,
    parameters,
    play,
    reply,
    result,
    same,
)
from recorder_warnings import told

import fedscope
from fedscope.checkpoints import Run


def test_without_partitions_clients_keep_the_number_of_their_first_reply(tmp_path: Path) -> None:
    def unnumbered(number: int) -> list[Message]:
        nodes = [2**60 + k for k in range(4)]
        return [reply(node, model(node % 7)) for node in (nodes[:3] if number == 1 else nodes[::-1])]

    strategy = fedscope.record(Emptying(), tmp_path / "run")
    assert told(lambda: play(strategy, unnumbered)) == [
        f"{tmp_path}/run: clients are numbered in the order in which they reply, which another run need not repeat; "
        "give every ClientApp(mods=[fedscope.partition_mod])"
    ]
    run = Run.open(tmp_path / "run")
    for t, ids in ((1, [0, 1, 2]), (2, [0, 1, 2, 3]), (3, [0, 1, 2, 3])):
        assert run.round(t).client_ids.tolist() == ids
        for k in ids:
            same(run.round(t).client(k).arrays(), model((2**60 + k) % 7))


def test_without_partitions_it_is_told_that_rows_of_a_partition_are_of_others(tmp_path: Path) -> None:
    about = {"partition": {k: [k] for k in range(3)}, "labels": [0, 1, 0]}
    strategy = fedscope.record(Emptying(), tmp_path / "run", **about)
    found = told(lambda: play(strategy, lambda number: [reply(2**60 + k, model(k)) for k in range(3)]))
    assert "another run need not repeat, and partition= gives them rows of others; give every ClientApp" in found[0]


def test_a_mod_puts_the_partition_into_replies_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    flwr = ModuleType("flwr.app")
    flwr.ConfigRecord = ConfigRecord  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flwr", ModuleType("flwr"))
    monkeypatch.setitem(sys.modules, "flwr.app", flwr)

    def through(answer: Message, asked: str, config: dict[str, Any]) -> Any:
        context = SimpleNamespace(node_config=config)
        assert fedscope.partition_mod(Message(message_type=asked), context, lambda message, context: answer) is answer
        return answer.content

    def new() -> Message:
        return reply(1, model(0))

    def old() -> Message:
        return Message(1, Content({"fitres.metrics": ConfigRecord(loss=0.5), "fitres.parameters": arrays(model(0))}))

    own = "fedscope.partition-id"
    assert through(new(), "train", {"partition-id": 3})[own] == {"partition-id": 3}
    assert through(new(), "train.warm_up", {"partition-id": 0})[own] == {"partition-id": 0}
    assert through(old(), "train", {"partition-id": 3})["fitres.metrics"] == {"loss": 0.5, own: 3}
    assert own not in through(old(), "train", {"partition-id": 3})
    assert sorted(through(new(), "evaluate", {"partition-id": 3})) == ["arrays", "metrics"]
    assert through(old(), "evaluate", {"partition-id": 3})["fitres.metrics"] == {"loss": 0.5}
    for config in ({}, {"partition-id": "3"}, {"partition-id": -2}, {"partition-id": True}, {"partition-id": 1.5}):
        assert through(new(), "train", config)[own] == {"partition-id": -1}
        assert through(old(), "train", config)["fitres.metrics"] == {"loss": 0.5, own: -1}
    assert through(Message(1), "train", {"partition-id": 3}) is None


def test_a_node_without_a_partition_is_told_how_to_get_one(tmp_path: Path) -> None:
    """It was told to have a mod that it had."""

    def modded(number: int) -> list[Message]:
        return [reply(node, model(node), partition=-1) for node in range(3)]

    assert told(lambda: play(fedscope.record(Emptying(), tmp_path / "run"), modded)) == [
        f"{tmp_path}/run: clients are numbered in the order in which they reply, which another run need not repeat; "
        "partition_mod finds no whole number from 0 as partition-id in their node config; start each SuperNode with "
        'its own, as --node-config "partition-id=3"'
    ]
    assert Run.open(tmp_path / "run").info["numbered_by"] == "replies"


@pytest.mark.parametrize("own", [7, "p7", None])
def test_a_metric_of_the_users_own_is_neither_read_nor_taken_off(own: Any, tmp_path: Path) -> None:
    """A metric partition-id of a user's client was taken for the mod's, and was gone when the strategy looked."""
    about = {} if own is None else {"partition-id": own}
    for name, partition in (("without", None), ("with", 2)):
        strategy = fedscope.record(Averaging(), tmp_path / name, model=Net)
        strategy.configure_fit(1, parameters(list(model(1).values())), "manager")
        results = [result(9, list(model(5).values()), partition=partition)]
        results[0][1].metrics |= about
        said = told(lambda: strategy.aggregate_fit(1, results, []))  # noqa: B023, called at once
        assert strategy.metrics == [{"loss": 0.5, **about}]
        strategy.recorder.close()
        run = Run.open(tmp_path / name)
        assert run.round(1).client_ids.tolist() == ([0] if partition is None else [2])
        assert run.info["numbered_by"] == ("replies" if partition is None else "partition-id")
        assert said == (
            []
            if partition is not None
            else [
                f"{tmp_path}/without: clients are numbered in the order in which they reply, which another run need "
                "not repeat; give every ClientApp(mods=[fedscope.partition_mod])"
            ]
        )


def anonymous(number: int) -> list[Message]:
    return [reply(node, model(node % 7)) for node in range(2**60, 2**60 + 3)]


def test_a_resume_that_numbers_clients_otherwise_is_told(tmp_path: Path) -> None:
    """One number was of two clients, and nothing said so."""

    def resumed(replies: Any, *, former: Any = None) -> list[str]:
        strategy = fedscope.record(former or Emptying(), tmp_path / "run", resume=True)
        return [one for one in told(lambda: play(strategy, replies, 1)) if "from round" in one]

    def said(number: int, now: str, before: str) -> list[str]:
        return [
            f"{tmp_path}/run: from round {number} on clients are numbered {now}, and before {before}, so that one "
            "number may be of two clients; record these rounds to another path, or ask of either part alone, as with "
            f"--rounds {'1-' if number > 2 else ''}{number - 1}"
        ]

    by_partition, by_reply = "by their partition-id", "in the order in which they replied"
    assert resumed(cohort) == []
    assert resumed(cohort) == []
    assert resumed(anonymous) == said(3, by_reply, by_partition)
    fedscope.record(Emptying(), tmp_path / "run", force=True).recorder.close()
    same_nodes = fedscope.record(Emptying(), tmp_path / "run", force=True)
    play(same_nodes, anonymous, 1)
    assert resumed(cohort) == said(2, by_partition, by_reply)
    assert resumed(anonymous) == said(3, f"anew {by_reply}", by_reply)


def test_recorded_again_in_one_program_a_run_keeps_the_numbers_of_nodes(tmp_path: Path) -> None:
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    assert len(told(lambda: play(strategy, anonymous, 1))) == 1
    fedscope.record(strategy, tmp_path / "run", resume=True)
    assert told(lambda: play(strategy, lambda number: anonymous(number)[::-1], 1)) == []
    for t in (1, 2):
        for k, node in enumerate(range(2**60, 2**60 + 3)):
            same(Run.open(tmp_path / "run").round(t).client(k).arrays(), model(node % 7))


@pytest.mark.usefixtures("quiet")
def test_weights_of_another_key_count_no_samples(tmp_path: Path) -> None:
    """Batches were recorded as samples."""

    class ByBatches(Emptying):
        weighted_by_key = "num-batches"

    def weighed(number: int) -> list[Message]:
        return [reply(n, model(k), 100, k, more=MetricRecord({"num-batches": k + 1})) for n, k in NODES.items()]

    play(fedscope.record(ByBatches(), tmp_path / "run"), weighed, 1)
    round_ = Run.open(tmp_path / "run").round(1)
    np.testing.assert_allclose(round_.weights, [1 / 6, 2 / 6, 3 / 6])
    assert not round_.has("client_samples")


def test_a_model_by_its_name_gives_arrays_no_names(tmp_path: Path) -> None:
    def unnamed(number: int) -> list[Message]:
        return [reply(n, {str(i): v for i, v in enumerate(model(k).values())}, partition=k) for n, k in NODES.items()]

    strategy = fedscope.record(Emptying(), tmp_path / "run", model="task:Net")
    first = arrays({str(i): v for i, v in enumerate(model(0).values())})
    assert told(lambda: strategy.start(grid=unnamed, initial_arrays=first, num_rounds=2)) == [
        f"{tmp_path}/run: clients send arrays without names, which the run has as 0, 1, 2, ... and task:Net cannot "
        "load; give the module or its class in place of its name, as model=Net"
    ]
