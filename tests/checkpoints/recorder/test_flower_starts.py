"""What clients of a recorded Flower strategy start from: the model that was sent to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flower_stand_ins import (
    NODES,
    Array,
    ArrayRecord,
    Arrays,
    Averaging,
    Content,
    Emptying,
    Message,
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
from fedscope.checkpoints.rounds.verify import check_round


class Sending(Emptying):
    """Sends models of its own in place of what it is given."""

    def __init__(self, sent: Callable[[int, int, ArrayRecord], ArrayRecord | None]) -> None:
        super().__init__()
        self.sent = sent

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        for node, k in NODES.items():
            sent = self.sent(server_round, k, arrays)
            message = Message(0, Content() if sent is None else Content(arrays=sent))
            message.metadata.dst_node_id = node
            yield message

    def start(self, grid: Any, initial_arrays: Any, num_rounds: int = 3, **more: Any) -> Any:
        for number in range(1, num_rounds + 1):
            assert len(list(self.configure_train(number, initial_arrays, "config", grid))) == 3
            initial_arrays = self.aggregate_train(number, grid(number))[0]
        return initial_arrays


def moved(from_: Arrays, k: int = 1) -> Arrays:
    """A model after a little training."""
    return {n: a + np.asarray(0.01 * k, a.dtype) if a.dtype.kind == "f" else a for n, a in from_.items()}


def near(seed: Callable[[int, int], int]) -> Callable[[int], list[Message]]:
    """Replies that lie near models, whose seeds are by round and client."""
    return lambda t: [reply(n, moved(model(seed(t, k)), k + 1), 10, k) for n, k in NODES.items()]


@pytest.mark.usefixtures("quiet")
def test_what_all_clients_are_sent_is_the_start_whatever_the_strategy_was_given(tmp_path: Path) -> None:
    pruned = {1: arrays(model(50)), 2: arrays(model(51))}
    for name, copies in (("one", False), ("copies", True)):
        strategy = Sending(lambda t, k, given: ArrayRecord(pruned[t]) if copies else pruned[t])  # noqa: B023
        strategy.gives_nothing_in = (2,)
        play(fedscope.record(strategy, tmp_path / name), near(lambda t, k: 49 + t), 2)
        run = Run.open(tmp_path / name)
        same(run.round(1).read("start").arrays(), model(50))
        same(run.round(2).read("start").arrays(), model(51))
        # a strategy that gives nothing keeps the model that it was given
        same(run.round(2).read("global").arrays(), run.round(1).read("global").arrays())
    play(fedscope.record(Sending(lambda t, k, given: ArrayRecord(given)), tmp_path / "equal"), cohort, 1)
    same(Run.open(tmp_path / "equal").round(1).read("start").arrays(), model(0))


def test_several_models_that_are_sent_are_the_starts_of_their_clients(tmp_path: Path) -> None:
    """All clients of a clustered strategy had the model as start that it was given."""
    strategy = Sending(lambda t, k, given: arrays(model(60 + k % 2)) if t > 1 else given)
    replies = near(lambda t, k: 60 + k % 2 if t > 1 else 0)
    assert told(lambda: play(fedscope.record(strategy, tmp_path / "run"), replies)) == [
        f"{tmp_path}/run: clients are sent several models in round 2 of Flower, so the run has what each started "
        "from, as starts, and no one start; questions about one start leave such rounds out"
    ]
    run = Run.open(tmp_path / "run")
    same(run.round(1).read("start").arrays(), model(0))
    for t in (2, 3):
        assert "start" not in run.round(t).models
        for k in range(3):
            same(run.round(t).starts([k]).row(0).arrays(), model(60 + k % 2))


def test_the_older_interface_sends_models_too(tmp_path: Path) -> None:
    class Clustered(Averaging):
        def configure_fit(self, server_round: int, given: Any, client_manager: Any) -> list[Any]:
            own = [given, parameters(list(model(61).values()))]
            sent = own[1:] * 3 if server_round == 1 else [own[k % 2] for k in range(3)]
            return [(SimpleNamespace(cid=str(k)), SimpleNamespace(parameters=one)) for k, one in enumerate(sent)]

    strategy = fedscope.record(Clustered(), tmp_path / "run", model=Net)

    def play_round(t: int) -> None:
        strategy.configure_fit(t, parameters(list(model(t).values())), None)
        own = [moved(model(61 if t == 1 or k % 2 else t)) for k in range(3)]
        strategy.aggregate_fit(t, [result(k, list(one.values()), partition=k) for k, one in enumerate(own)], [])

    assert told(lambda: play_round(1)) == []
    assert [one.split(", so")[0] for one in told(lambda: play_round(2))] == [
        f"{tmp_path}/run: clients are sent several models in round 2 of Flower"
    ]
    strategy.recorder.close()
    run = Run.open(tmp_path / "run")
    same(run.round(1).read("start").arrays(), model(61))
    assert "start" not in run.round(2).models


def given_back(record: ArrayRecord) -> Arrays:
    return {name: array.numpy() for name, array in record.items()}


def with_variates(t: int, k: int, given: ArrayRecord) -> ArrayRecord:
    return ArrayRecord({**given, **{f"variates.{name}": array for name, array in given.items()}})


def head(t: int, k: int, given: ArrayRecord) -> ArrayRecord:
    return ArrayRecord({"a.scale": given["a.scale"]})


def turned(t: int, k: int, given: ArrayRecord) -> ArrayRecord:
    return ArrayRecord({**given, "a.weight": Array(given["a.weight"].numpy().T)})


@pytest.mark.parametrize(
    "sent", [with_variates, head, turned, lambda t, k, given: ArrayRecord(), lambda t, k, given: None]
)
def test_a_message_that_is_no_model_of_the_round_leaves_the_given_one_as_start(
    sent: Callable[[int, int, ArrayRecord], ArrayRecord | None], tmp_path: Path
) -> None:
    """Every round was lost, or had what was sent as start."""
    strategy = Sending(lambda t, k, given: sent(t, k, given) if t > 1 else given)
    assert told(lambda: play(fedscope.record(strategy, tmp_path / "run"), cohort)) == [
        f"{tmp_path}/run: clients are sent something else than a model of the round's names and shapes in round 2 of "
        "Flower, so start is the model given to configure_train"
    ]
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    for t in (2, 3):
        same(run.round(t).read("start").arrays(), run.round(t - 1).read("global").arrays())


def test_variates_in_the_older_interface_leave_the_given_model_as_start(tmp_path: Path) -> None:
    class Scaffold(Averaging):
        def configure_fit(self, server_round: int, given: Any, client_manager: Any) -> list[Any]:
            sent = SimpleNamespace(parameters=SimpleNamespace(tensors=given.tensors * 2))
            return [(SimpleNamespace(cid=str(k)), sent) for k in range(3)]

    strategy = fedscope.record(Scaffold(), tmp_path / "run", model=Net)

    def play_rounds() -> None:
        for t in (1, 2):
            strategy.configure_fit(t, parameters(list(model(t).values())), None)
            strategy.aggregate_fit(t, [result(k, list(model(10 * t + k).values()), partition=k) for k in range(3)], [])

    assert told(play_rounds) == [
        f"{tmp_path}/run: clients are sent something else than a model of the round's names and shapes in round 1 of "
        "Flower, so start is the model given to configure_fit"
    ]
    strategy.recorder.close()
    same(Run.open(tmp_path / "run").round(2).read("start").arrays(), model(2))


@pytest.mark.parametrize("own", [False, True])
def test_differences_that_are_sent_are_no_start(own: bool, tmp_path: Path) -> None:
    """As of a strategy that saves traffic: clients add them to the model that they have."""
    before: list[Arrays] = [model(0)]

    def sent(t: int, k: int, given: ArrayRecord) -> ArrayRecord:
        if t == 1:
            return given
        last, now = before[-1], given_back(given)
        return arrays({name: (now[name] - last[name]) * (1 + own * k) for name in now})

    def replies(t: int) -> list[Message]:
        return [reply(n, moved(model(0), t + k), partition=k) for n, k in NODES.items()]

    strategy = Sending(sent)
    assert told(lambda: play(fedscope.record(strategy, tmp_path / "run"), replies)) == [
        f"{tmp_path}/run: clients' models in round 2 of Flower are further from what they were sent than from the "
        "model given to configure_train, as where messages hold differences of models, so start is the model given"
    ]
    run = Run.open(tmp_path / "run")
    for t in (2, 3):
        same(run.round(t).read("start").arrays(), run.round(t - 1).read("global").arrays())


@pytest.mark.usefixtures("quiet")
def test_rounding_of_what_is_sent_decides_nothing(tmp_path: Path) -> None:
    """Clients' models are as far from the rounded model as from the given one, but for what their training happens to
    undo."""
    halves = {n: a.astype(np.float16).astype(a.dtype) for n, a in model(0).items()}
    strategy = Sending(lambda t, k, given: arrays(halves))
    apart = {n: a + np.sign(a - halves[n]) for n, a in model(0).items()}
    play(fedscope.record(strategy, tmp_path / "run"), lambda t: [reply(n, apart, 10, k) for n, k in NODES.items()], 1)
    same(Run.open(tmp_path / "run").round(1).read("start").arrays(), halves)


@pytest.mark.usefixtures("quiet")
def test_one_model_in_several_dtypes_and_orders_is_one_start(tmp_path: Path) -> None:
    """It was told as several models, and questions about one start left the rounds out."""

    def sent(t: int, k: int, given: ArrayRecord) -> ArrayRecord:
        own = given_back(given)
        forms: tuple[Callable[[Any], np.ndarray], ...] = (np.asarray, np.ascontiguousarray, np.float64)
        return arrays({name: np.asarray(forms[k](own[name])).reshape(own[name].shape) for name in reversed(own)})

    play(fedscope.record(Sending(sent), tmp_path / "run"), cohort, 1)
    same(Run.open(tmp_path / "run").round(1).read("start").arrays(), model(0))


def test_a_client_of_whom_no_message_is_known_starts_from_the_given_model(tmp_path: Path) -> None:
    """One late reply lost a round of a clustered strategy."""
    strategy = fedscope.record(Sending(lambda t, k, given: arrays(model(60))), tmp_path / "run")
    start = arrays(model(0))

    def play_round() -> None:
        list(strategy.configure_train(1, start, "config", None))
        late = reply(99, moved(model(0)), partition=5)
        strategy.aggregate_train(1, [*near(lambda t, k: 60)(1), late])

    assert told(play_round) == [
        f"{tmp_path}/run: it is not known which model node 99 was sent in round 1 of Flower, so its start is the model "
        "given to configure_train",
        f"{tmp_path}/run: clients are sent several models in round 1 of Flower, so the run has what each started "
        "from, as starts, and no one start; questions about one start leave such rounds out",
    ]
    strategy.recorder.close()
    same(Run.open(tmp_path / "run").round(1).starts([5]).row(0).arrays(), model(0))


@pytest.mark.parametrize("about", [{"sketch": 16}, {"drift": True}, {"keep": "sample:2"}, {"keep": "none"}])
def test_whatever_is_asked_for_besides_rounds_of_several_models_are_recorded(
    about: dict[str, Any], tmp_path: Path
) -> None:
    """With ``sketch=`` each was lost."""
    strategy = Sending(lambda t, k, given: arrays(model(60 + k % 2)))
    said = told(lambda: play(fedscope.record(strategy, tmp_path / "run", **about), near(lambda t, k: 60 + k % 2)))
    what = {"sketch": "no sketches are kept", "drift": "no drift is measured"}
    assert said[1:] == [
        f"{tmp_path}/run@1: {what[name]} without one start for all clients, which updates are made of"
        for name in about
        if name in what
    ]
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    assert not run.round(1).has_sketch
    assert [check_round(run.round(t)).faults for t in run.rounds] == [()] * 3
