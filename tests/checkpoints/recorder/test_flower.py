"""Flower's strategies, recorded, on stand-ins for its few classes; test_flower_long.py has the real ones."""

from __future__ import annotations

import gc
import inspect
import io
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused_recordings import REFUSED

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.rounds.sketches import sketch
from fedscope.checkpoints.rounds.verify import check_round
from fedscope.training.curves.run_names import both_seeds, method_of

Arrays = dict[str, np.ndarray]
#: partitions by node, as numbers that Flower draws
NODES = {2**60 + 5: 2, 2**59 + 1: 0, 2**61 + 3: 1}


# --- stand-ins ---


class Array:
    """``flwr.app.Array``: a ``.npy`` file and what it is."""

    def __init__(self, values: np.ndarray, dtype: str | None = None) -> None:
        file = io.BytesIO()
        np.save(file, values)
        self.data, self.dtype, self.stype = file.getvalue(), dtype or str(values.dtype), "numpy.ndarray"

    def numpy(self) -> np.ndarray:
        """A copy."""
        return np.load(io.BytesIO(self.data))


class Records(dict[str, Any]):
    """What a message holds."""


class MetricRecord(Records):
    """Numbers."""


class ConfigRecord(Records):
    """Settings."""


class ArrayRecord(Records):
    """A model."""


def arrays(model: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(value) for name, value in model.items()})


class Content(Records):
    """``flwr.app.RecordDict``."""

    array_records = property(lambda self: {k: v for k, v in self.items() if isinstance(v, ArrayRecord)})
    metric_records = property(lambda self: {k: v for k, v in self.items() if isinstance(v, MetricRecord)})
    config_records = property(lambda self: {k: v for k, v in self.items() if isinstance(v, ConfigRecord)})


class Message:
    """``flwr.app.Message``; without content it is a failure."""

    def __init__(self, node: int = 0, content: Content | None = None, message_type: str = "train") -> None:
        self.metadata = SimpleNamespace(src_node_id=node, message_type=message_type)
        self.content = content

    def has_content(self) -> bool:
        return self.content is not None

    def has_error(self) -> bool:
        return self.content is None


def reply(node: int, model: Arrays, samples: Any = 10, partition: int | None = None, **more: Any) -> Message:
    content = Content(arrays=arrays(model), metrics=MetricRecord({"num-examples": samples}), **more)
    if partition is not None:
        content["fedscope.partition-id"] = ConfigRecord({"partition-id": partition})
    return Message(node, content)


class Emptying:
    """A strategy of the message interface that takes the median, and like Flower's empties the replies."""

    weighted_by_key, arrayrecord_key = "num-examples", "arrays"
    gives_nothing_in: Sequence[int] = ()
    fails_in = 0

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        assert config == "config"
        return [grid]

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[Any, Any]:
        if server_round == self.fails_in:
            raise ZeroDivisionError("the strategy fails")
        good = [message for message in replies if message.has_content()]
        self.seen += [sorted(message.content) for message in good]
        if server_round in self.gives_nothing_in or not good:
            return None, None
        records = [message.content["arrays"] for message in good]
        stacked = {name: np.stack([record.pop(name).numpy() for record in records]) for name in list(records[0])}
        return arrays({k: np.asarray(np.median(v, axis=0)) for k, v in stacked.items()}), {"train_loss": 0.25}

    def start(self, grid: Any, initial_arrays: Any, num_rounds: int = 3, **more: Any) -> Any:
        self.more = more
        for number in range(1, num_rounds + 1):
            self.configure_train(number, initial_arrays, "config", grid)
            made, _ = self.aggregate_train(number, grid(number))
            initial_arrays = initial_arrays if made is None else made
        return initial_arrays


class Averaging:
    """A strategy of the older interface."""

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        return [client_manager]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[Any, Any]:
        self.metrics = [result.metrics for _, result in results]
        models = [[np.load(io.BytesIO(tensor)) for tensor in result.parameters.tensors] for _, result in results]
        return parameters([np.asarray(np.mean(layer, axis=0)) for layer in zip(*models, strict=True)]), {}


def parameters(model: Sequence[np.ndarray]) -> Any:
    return SimpleNamespace(tensors=[Array(value).data for value in model])


def result(node: int, model: Sequence[np.ndarray], samples: int = 10, partition: int | None = None) -> tuple[Any, Any]:
    metrics = {"loss": 0.5} | ({} if partition is None else {"fedscope.partition-id": partition})
    fit = SimpleNamespace(parameters=parameters(model), num_examples=samples, metrics=metrics)
    return SimpleNamespace(cid=str(node)), fit


class Net:
    """A module by its interface."""

    def state_dict(self) -> Arrays:
        return model(0)

    def named_parameters(self, remove_duplicate: bool = True) -> list[tuple[str, np.ndarray]]:
        return [("a.weight", model(0)["a.weight"]), ("a.scale", model(0)["a.scale"])]


def model(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "a.weight": np.asfortranarray(rng.normal(size=(4, 3)).astype(np.float32)),
        "a.scale": rng.normal(size=4).astype(np.float16),
        "norm.num_batches_tracked": np.array(seed, np.int64),
    }


def same(found: Arrays, expected: Arrays) -> None:
    """Bit for bit; the halves are read as float32."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].shape == value.shape
        assert found[name].astype(value.dtype).tobytes() == value.tobytes(), name


def play(strategy: Any, replies: Callable[[int], Any], rounds: int = 3, **more: Any) -> Any:
    return strategy.start(grid=replies, initial_arrays=arrays(model(0)), num_rounds=rounds, **more)


def cohort(number: int) -> Iterator[Message]:
    """Replies in another order every round; an iterator, as the interface allows."""
    nodes = list(NODES)
    for node in nodes[number % 3 :] + nodes[: number % 3]:
        yield reply(node, model(10 * number + NODES[node]), 10 * (NODES[node] + 1), NODES[node])


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def told(work: Callable[[], Any]) -> list[str]:
    """What is warned of, in order."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    return [str(one.message) for one in found if issubclass(one.category, FedscopeWarning)]


# --- what is recorded ---


@pytest.mark.usefixtures("quiet")
def test_what_clients_sent_is_recorded_before_a_strategy_empties_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    strategy = Emptying()
    parts, y = {0: range(10), 2: range(30, 60), 1: range(10, 30)}, [1] * 10 + [0, 1] * 25
    assert fedscope.record(strategy, "run", data="digits", partition=parts, labels=y) is strategy
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # as an app may
    end = play(strategy, cohort, should_stop="later versions have it")
    assert strategy.more == {"should_stop": "later versions have it"}
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    assert (run.info["source"], run.info["data"]) == ("Flower (Emptying)", {"name": "digits"})
    assert run.partition is not None
    assert run.partition.label_counts.tolist() == [[0, 10], [10, 10], [15, 15]]
    before = model(0)
    for t in run.rounds:
        round_ = run.round(t)
        assert round_.client_ids.tolist() == [0, 1, 2]
        assert round_.client_samples.tolist() == [10, 20, 30]
        for k in range(3):
            same(round_.client(k).arrays(), model(10 * t + k))
        same(round_.read("start").arrays(), before)
        middle = {n: np.median([model(10 * t + k)[n] for k in range(3)], axis=0) for n in before}
        # the median of whole numbers is a float, which clients load as a whole number
        before = {n: np.asarray(value).astype(before[n].dtype) for n, value in middle.items()}
        same(round_.read("global").arrays(), before)
        assert round_.metrics["train_loss"] == 0.25
        assert check_round(round_).faults == ()
    assert end["norm.num_batches_tracked"].numpy().dtype == np.float64
    # what the mod added is gone before the strategy looks
    assert strategy.seen == [["arrays", "metrics"]] * 9
    # and the folder is given back
    fedscope.Recorder(tmp_path / "run", resume=True).close()


@pytest.mark.usefixtures("quiet")
def test_a_run_goes_under_its_strategy_or_the_method_that_is_said(tmp_path: Path) -> None:
    play(fedscope.record(Emptying(), tmp_path / "by-strategy"), cohort)
    play(fedscope.record(Emptying(), tmp_path / "said", method="FedX", seed=2, settings={"lr": 0.1}), cohort)
    named = [
        (method_of(run), both_seeds(run)[0]) for run in map(Run.open, (tmp_path / "by-strategy", tmp_path / "said"))
    ]
    assert named == [("Flower (Emptying)", None), ("FedX", 2)]
    assert Run.open(tmp_path / "said").info["settings"] == {"lr": 0.1}


@pytest.mark.usefixtures("quiet")
def test_sketches_of_all_and_the_models_of_a_few(tmp_path: Path) -> None:
    for name, kept in {"all": {}, "few": {"keep": "sample:1", "sketch": 32}}.items():
        play(fedscope.record(Emptying(), tmp_path / name, **kept), cohort)
    whole, few = (Run.open(tmp_path / name) for name in ("all", "few"))
    for t in few.rounds:
        one, other = whole.round(t), few.round(t)
        assert (other.has_sample, len(other.sampled_ids), other.sketch().shape) == (True, 1, (3, 32))
        same(other.sampled().row(0).arrays(), one.client(int(other.sampled_ids[0])).arrays())
        start, clients = one.read("start").parameters, one.clients().parameters
        np.testing.assert_array_equal(other.sketch(), sketch(few.layout, start, clients, 32))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("named", [False, True])
def test_the_older_interface_whichever_way_it_is_called(named: bool, tmp_path: Path) -> None:
    strategy = fedscope.record(Averaging(), tmp_path / "run", model=Net)
    for t in (1, 2):
        start = parameters(list(model(t).values()))
        results = [result(n, list(model(10 * t + k).values()), k + 1, k) for n, k in NODES.items()]
        if named:
            strategy.configure_fit(server_round=t, parameters=start, client_manager="manager")
            made, _ = strategy.aggregate_fit(server_round=t, results=results, failures=[])
        else:
            assert strategy.configure_fit(t, start, "manager") == ["manager"]
            made, _ = strategy.aggregate_fit(t, results, [ValueError("a client that failed")])
        assert strategy.metrics == [{"loss": 0.5}] * 3
    strategy.configure_fit(3, start, "manager")
    strategy.aggregate_fit(3, [result(7, list(model(1).values()), partition=1)], [])  # whose model is the mean
    strategy.recorder.close()
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    same(run.round(2).read("start").arrays(), model(2))
    same(run.round(2).client(1).arrays(), model(21))
    assert run.round(2).client_samples.tolist() == [1, 2, 3]
    ends = [np.load(io.BytesIO(tensor)) for tensor in made.tensors]
    same(
        run.round(2).read("global").arrays(),
        {name: end.astype(own.dtype) for (name, own), end in zip(model(0).items(), ends, strict=True)},
    )
    assert [entry.kind for entry in run.layout.entries] == ["parameter", "parameter", "buffer"]


@pytest.mark.usefixtures("quiet")
def test_messages_by_keyword(tmp_path: Path) -> None:
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    assert strategy.configure_train(server_round=1, arrays=arrays(model(0)), config="config", grid=7) == [7]
    strategy.aggregate_train(server_round=1, replies=cohort(1))
    strategy.recorder.close()
    same(Run.open(tmp_path / "run").round(1).client(2).arrays(), model(12))


@pytest.mark.usefixtures("quiet")
def test_a_strategy_that_gives_nothing_leaves_the_model_and_failures_are_no_clients(tmp_path: Path) -> None:
    strategy = Emptying()
    strategy.gives_nothing_in = (1,)
    play(fedscope.record(strategy, tmp_path / "run"), lambda t: [Message(77), *cohort(t)], 2)
    run = Run.open(tmp_path / "run")
    same(run.round(1).read("global").arrays(), model(0))
    same(run.round(2).read("start").arrays(), model(0))
    assert run.round(1).client_ids.tolist() == [0, 1, 2]


@pytest.mark.usefixtures("quiet")
def test_a_strategy_that_fails_fails_as_before_and_its_rounds_are_complete(tmp_path: Path) -> None:
    strategy = Emptying()
    strategy.fails_in = 3
    with pytest.raises(ZeroDivisionError, match=r"^the strategy fails$"):
        play(fedscope.record(strategy, tmp_path / "run"), cohort, 5)
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2)
    assert check_round(run.round(2)).faults == ()
    fedscope.Recorder(tmp_path / "run", resume=True).close()


@pytest.mark.usefixtures("quiet")
def test_unnamed_arrays_take_their_names_from_the_model(tmp_path: Path) -> None:
    def unnamed(number: int) -> list[Message]:
        return [
            reply(n, {str(i): v for i, v in enumerate(model(number + k).values())}, partition=k)
            for n, k in NODES.items()
        ]

    for name, architecture, expected in (("a", Net(), list(model(0))), ("b", None, ["0", "1", "2"])):
        strategy = fedscope.record(Emptying(), tmp_path / name, model=architecture)
        first = arrays({str(i): v for i, v in enumerate(model(0).values())})
        strategy.start(grid=unnamed, initial_arrays=first, num_rounds=1)
        run = Run.open(tmp_path / name)
        assert [entry.name for entry in run.layout.entries] == expected
        assert next(iter(run.round(1).client(1).arrays().values())).tobytes() == model(2)["a.weight"].tobytes()


@pytest.mark.usefixtures("quiet")
def test_data_are_kept_and_code_is_named_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = np.ones((5, 3), np.float32), np.zeros(5, int)
    about: dict[str, Any] = {"data": test, "standardise": False, "model": "task:Net"}
    fedscope.record(Emptying(), tmp_path / "kept", **about).start(
        grid=cohort, initial_arrays=arrays(model(0)), num_rounds=1
    )
    run = Run.open(tmp_path / "kept")
    assert run.info["data"]["standardise"] is False
    np.testing.assert_array_equal(np.load(run.path / "recorded-data.npz")["x_test"], test[0])
    said = capsys.readouterr().out
    assert said.endswith(f"fedscope subsets {tmp_path / 'kept'} --model task:Net\n")


@pytest.mark.usefixtures("quiet")
def test_named_arrays_keep_their_names_in_any_order(tmp_path: Path) -> None:
    def turned(number: int) -> list[Message]:
        return [reply(n, dict(reversed(model(k).items())), partition=k) for n, k in NODES.items()]

    play(fedscope.record(Emptying(), tmp_path / "run", model=Net), turned, 1)
    same(Run.open(tmp_path / "run").round(1).client(1).arrays(), model(1))


@pytest.mark.usefixtures("quiet")
def test_the_only_record_is_the_model_and_of_several_the_strategys_own(tmp_path: Path) -> None:
    def with_variates(number: int) -> list[Message]:
        return [reply(n, model(k), partition=k, variates=arrays(model(99))) for n, k in NODES.items()]

    def called_otherwise(number: int) -> list[Message]:
        found = list(cohort(number))
        for message in found:
            assert message.content is not None
            message.content["weights"] = message.content.pop("arrays")
        return found

    play(fedscope.record(Emptying(), tmp_path / "several"), with_variates, 1)
    same(Run.open(tmp_path / "several").round(1).client(0).arrays(), model(0))
    strategy = Emptying()
    strategy.gives_nothing_in = (1,)
    play(fedscope.record(strategy, tmp_path / "one"), called_otherwise, 1)
    same(Run.open(tmp_path / "one").round(1).client(1).arrays(), model(11))


@pytest.mark.usefixtures("quiet")
def test_what_a_model_weighs_is_under_the_key_of_the_innermost_strategy(tmp_path: Path) -> None:
    class Inner:
        weighted_by_key, arrayrecord_key = "tokens", "arrays"

    class Wrapper(Emptying):
        weighted_by_key = arrayrecord_key = property(lambda self: getattr(None, "missing"))  # noqa: B009
        strategy = Inner()

    def weighed(number: int) -> list[Message]:
        return [reply(n, model(k), partition=k, more=MetricRecord(tokens=0.5 + k)) for n, k in NODES.items()]

    play(fedscope.record(Wrapper(), tmp_path / "run"), weighed, 1)
    round_ = Run.open(tmp_path / "run").round(1)
    np.testing.assert_allclose(round_.weights, np.array([0.5, 1.5, 2.5]) / 4.5, rtol=1e-15)
    assert not round_.has("client_samples")


@pytest.mark.usefixtures("quiet")
def test_recording_again_ends_the_former_recording(tmp_path: Path) -> None:
    strategy = fedscope.record(Emptying(), tmp_path / "a")
    play(strategy, cohort, 1)
    with pytest.raises(FedscopeError, match="holds a run with 1 round; give force=True"):
        fedscope.record(strategy, tmp_path / "a")
    play(fedscope.record(strategy, tmp_path / "a", resume=True), cohort, 2)
    assert Run.open(tmp_path / "a").rounds == (1, 2, 3)
    play(fedscope.record(strategy, tmp_path / "a", force=True), cohort, 1)
    assert Run.open(tmp_path / "a").rounds == (1,)
    fedscope.record(strategy, tmp_path / "b")
    play(fedscope.record(strategy, tmp_path / "c"), cohort, 1)
    fedscope.Recorder(tmp_path / "b").close()  # is free
    assert not (tmp_path / "b" / "run.json").exists()
    assert (Run.open(tmp_path / "a").rounds, Run.open(tmp_path / "c").rounds) == ((1,), (1,))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("name", "about", "message"), REFUSED)
def test_a_recording_that_is_refused_leaves_the_former_one(
    name: str, about: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """The former one had ended by then, so that the rest of the training was lost."""
    (tmp_path / "taken").write_text("mine")
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    former = strategy.recorder

    def replies(number: int) -> Iterator[Message]:
        if number == 2:
            former.flush()
            with pytest.raises(FedscopeError, match=message):
                fedscope.record(strategy, tmp_path / name, **about)
            with pytest.raises(FedscopeError, match="is being written by this program itself"):
                fedscope.Recorder(tmp_path / "run", resume=True)
            assert strategy.recorder is former
        return cohort(number)

    play(strategy, replies)
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3)
    fedscope.Recorder(tmp_path / "run", resume=True).close()  # is free


# --- who is who ---


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


# --- what clients start from ---


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


# --- what would be lost ---


def test_a_second_start_is_told_that_the_first_has_closed_the_run(tmp_path: Path) -> None:
    """Its first round was lost without a word, and the others with another one."""
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    play(strategy, cohort, 2)
    closed = (
        f"{tmp_path}/run: the run is closed, which strategy.start does, so no further round of Flower is recorded; "
        "before the next one call fedscope.record again, with resume=True to go on with this run, or with another path"
    )
    assert told(lambda: play(strategy, cohort, 1)) == [closed]
    assert told(lambda: play(strategy, cohort, 1)) == []
    play(fedscope.record(strategy, tmp_path / "run", resume=True), cohort, 1)
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3)


def test_a_run_that_a_program_closes_itself_is_told_as_that(tmp_path: Path) -> None:
    """It was said that strategy.start had, which nobody had called."""
    strategy = fedscope.record(Emptying(), tmp_path / "run")

    def play_round(t: int) -> None:
        strategy.configure_train(t, arrays(model(0)), "config", None)
        strategy.aggregate_train(t, cohort(t))

    play_round(1)
    strategy.recorder.close()
    assert told(lambda: play_round(2)) == [
        f"{tmp_path}/run: the run is closed, which recorder.close() does, so no further round of Flower is recorded; "
        "before the next one call fedscope.record again, with resume=True to go on with this run, or with another path"
    ]


def test_a_round_that_waits_as_the_program_ends_is_recorded(tmp_path: Path) -> None:
    code = f"""
        import sys
        sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
        import test_flower as here
        import fedscope

        strategy = fedscope.record(here.Evaluating(), sys.argv[1])
        for number in range(1, int(sys.argv[2]) + 1):
            strategy.configure_train(number, here.arrays(here.model(0)), "config", None)
            strategy.aggregate_train(number, here.cohort(number))
    """
    for rounds in (1, 3):
        path = tmp_path / f"run{rounds}"
        words = [sys.executable, "-P", "-c", textwrap.dedent(code), str(path), str(rounds)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        assert done.stderr == ""
        assert Run.open(path).rounds == tuple(range(1, rounds + 1))
        assert check_round(Run.open(path).round(rounds)).faults == ()


def test_a_round_that_waits_as_its_strategy_is_dropped_is_told_and_the_folder_is_free(tmp_path: Path) -> None:
    """As by a cell of a notebook that runs again."""
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    for number in (1, 2):
        strategy.configure_train(number, arrays(model(0)), "config", None)
        strategy.aggregate_train(number, cohort(number))

    def drop() -> None:
        nonlocal strategy
        strategy = None
        gc.collect()

    assert told(drop) == [
        f"{tmp_path}/run: round 2 of Flower waited for its evaluation when its recorder was dropped, so it is not "
        "recorded; end a loop with recorder.close()"
    ]
    again = fedscope.record(Evaluating(), tmp_path / "run", resume=True)
    assert told(lambda: play(again, cohort, 1)) == []
    assert Run.open(tmp_path / "run").rounds == (1, 2)


# --- what cannot be recorded is a warning, and the training goes on ---


def lacking(arrays_: Arrays) -> Arrays:
    return {name: value for name, value in arrays_.items() if name != "a.scale"}


def replies_with(change: Callable[[list[Message]], Any]) -> Callable[[int], list[Message]]:
    """Cohorts of which the second round's is changed."""

    def made(number: int) -> list[Message]:
        found = list(cohort(number))
        return (change(found) or found) if number == 2 else found

    return made


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda found: [*found[:2], reply(5, model(1), partition=2), found[2]], "client 2 replied twice; give every"),
        (lambda found: [Message(1), Message(2)], "no client sent a model"),
        (
            lambda found: [*found[:2], reply(5, model(1))],
            "node 5 does not say its partition, as clients did in the first round; give every ClientApp(mods=[",
        ),
        (
            lambda found: [reply(1, lacking(model(1)), partition=1)],
            "run@2: client 1 lacks a.scale; give models of one architecture",
        ),
        (
            lambda found: found[0].content.update(other=found[0].content.pop("arrays"), more=arrays(model(1))),
            'a reply has 2 ArrayRecords, none of them called "arrays"',
        ),
        (lambda found: found[0].content.pop("arrays") and None, 'a reply has 0 ArrayRecords, none of them called "ar'),
        (
            lambda found: setattr(found[0].content["arrays"]["a.scale"], "data", b"\x93NUMPY\x01\x00nonsense"),
            "ValueError: ",
        ),
        (
            lambda found: [reply(1, {**model(1), "a.scale": np.array(["x"] * 4)}, partition=1)],
            "run@2: client 1: a.scale is <U1, which a run cannot hold",
        ),
        (lambda found: [reply(1, model(1), -3, 1)], "run@2: samples are -3.0; give whole numbers from 0 on"),
    ],
)
def test_a_round_that_cannot_be_recorded_is_told_and_left_out(
    change: Callable[[list[Message]], Any], reason: str, tmp_path: Path
) -> None:
    class Careless(Emptying):
        def aggregate_train(self, server_round: int, replies: Any) -> tuple[Any, Any]:
            return (None, None) if server_round == 2 else super().aggregate_train(server_round, replies)

    strategy = fedscope.record(Careless(), tmp_path / "run")
    found = told(lambda: play(strategy, replies_with(change), 4))
    assert len(found) == 1
    start = f"{tmp_path}/run: round 2 of Flower is not recorded, so later ones have lower numbers in the run: "
    assert found[0].startswith(start)
    assert reason in found[0]
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    same(run.round(2).client(0).arrays(), model(30))


def test_a_first_round_that_is_not_recorded_numbers_nobody(tmp_path: Path) -> None:
    """Its clients had said no partition, so that none was asked for any more; its arrays were in another type."""
    strategy = fedscope.record(Emptying(), tmp_path / "run")

    def replies(number: int) -> Iterator[Message]:
        if number > 1:
            return cohort(number)
        wide = {name: array.astype(np.float64) for name, array in model(1).items()}
        return iter([reply(7, wide), reply(9, wide, float("nan"))])

    said = told(lambda: play(strategy, replies))
    assert [one.partition(": ")[2].partition(" ")[0] for one in said] == ["clients", "round"]
    assert "round 1 of Flower is not recorded" in said[1]
    assert "the clients' weights are 10.0, nan" in said[1]
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2)
    assert run.round(1).client_ids.tolist() == [0, 1, 2]
    for k in range(3):
        same(run.round(1).client(k).arrays(), model(20 + k))


def test_each_kind_of_fault_is_told_once(tmp_path: Path) -> None:
    def twice(number: int) -> list[Message]:
        return [reply(1, model(1), partition=number), reply(2, model(1), partition=number)]

    strategy = fedscope.record(Emptying(), tmp_path / "run")
    found = told(lambda: play(strategy, twice, 5))
    assert [sentence.partition(": ")[2][:42] for sentence in found] == ["round 1 of Flower is not recorded, so late"]


def test_an_aggregation_without_its_beginning_is_told(tmp_path: Path) -> None:
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    strategy.configure_train(1, arrays(model(0)), "config", None)
    assert told(lambda: strategy.aggregate_train(1, cohort(1))) == []
    (sentence,) = told(lambda: strategy.aggregate_train(2, cohort(2)))
    assert sentence.endswith("it is not known which model was sent")
    strategy.recorder.close()
    assert Run.open(tmp_path / "run").rounds == (1,)


def test_tensors_in_other_types_than_at_first_are_told(tmp_path: Path) -> None:
    def widened(number: int) -> list[Message]:
        name = "norm.num_batches_tracked"
        return [
            reply(n, {**model(k), name: model(k)[name].astype(float) + 0.5} if number > 1 else model(k), partition=k)
            for n, k in NODES.items()
        ]

    strategy = fedscope.record(Emptying(), tmp_path / "run")
    assert told(lambda: play(strategy, widened)) == [
        f"{tmp_path}/run: client 2 sends norm.num_batches_tracked in float64, clients of the first round in int64, as "
        "which it is recorded"
    ]
    same(Run.open(tmp_path / "run").round(3).client(1).arrays(), model(1))


def test_replies_without_numbers_of_samples_are_told(tmp_path: Path) -> None:
    def silent(number: int) -> list[Message]:
        return [reply(n, model(k), [1, 2] if k else 7, k) for n, k in NODES.items()]

    strategy = fedscope.record(Emptying(), tmp_path / "run")
    (sentence,) = told(lambda: play(strategy, silent))
    assert sentence.startswith(f"{tmp_path}/run: replies do not say how many samples clients have, so all weigh the s")
    assert Run.open(tmp_path / "run").round(1).weights.tolist() == [1 / 3] * 3


def test_a_disk_that_fails_does_not_stop_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.checkpoints.runs import writer as run_writer

    def full(*_: Any) -> None:
        raise OSError(5, "the disk is broken")

    strategy = fedscope.record(Emptying(), tmp_path / "run")
    monkeypatch.setattr(run_writer.RunWriter, "write_image", full)
    ends: list[Any] = []
    found = told(lambda: ends.append(play(strategy, cohort)))
    assert {k: v.data for k, v in ends[0].items()} == {k: v.data for k, v in play(Emptying(), cohort).items()}
    assert len(found) == 1
    assert "recording has ended, because [Errno 5] the disk is broken; no round of it is recorded" in found[0]


def test_strategies_that_hide_what_clients_sent_are_told(tmp_path: Path) -> None:
    class DifferentialPrivacyServerSideFixedClipping(Emptying):
        pass

    class Mine(DifferentialPrivacyServerSideFixedClipping):
        pass

    assert told(lambda: fedscope.record(Mine(), tmp_path / "private")) == [
        "Mine clips models or adds noise to their mean: the run holds clients' models as they reach the server, and "
        "global is not their mean"
    ]
    strategy = fedscope.record(Averaging(), tmp_path / "secure", model=Net())
    mean = list(model(0).values())
    results = [result(node, mean, partition=k) for node, k in NODES.items()]
    for _, fit in results:
        fit.parameters = results[0][1].parameters
    strategy.configure_fit(1, parameters(mean), None)
    assert told(lambda: strategy.aggregate_fit(1, results, [])) == [
        f"{tmp_path}/secure: all clients' models are one and the same, as secure aggregation gives their mean alone; "
        "questions about clients have no answer in this run"
    ]
    strategy.recorder.close()
    assert Run.open(tmp_path / "secure").rounds == (1,)


def test_bfloat16_needs_what_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def brain(number: int) -> list[Message]:
        found = [reply(n, model(k), partition=k) for n, k in NODES.items()]
        for message in found:
            message.content["arrays"]["a.scale"] = Array(np.zeros(4, "V2"), "bfloat16")  # type: ignore[index]
        return found

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    strategy.gives_nothing_in = (1,)
    (sentence,) = told(lambda: play(strategy, brain, 1))
    assert sentence.endswith("a.scale is bfloat16, which needs ml_dtypes; pip install ml_dtypes")


# --- evaluations ---


class Evaluating(Emptying):
    """A strategy of the message interface, with Flower's own order of a round."""

    def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        return []

    def aggregate_evaluate(self, server_round: int, replies: Any) -> Any:
        for message in replies:
            if message.has_content():
                message.content.clear()  # as a strategy may
        return None

    def start(
        self, grid: Any, initial_arrays: Any, num_rounds: int = 3, timeout: float = 1, evaluate_fn: Any = None
    ) -> Any:
        self.seen_by_server = [evaluate_fn and evaluate_fn(0, initial_arrays)]
        for number in range(1, num_rounds + 1):
            self.configure_train(number, initial_arrays, "config", grid)
            initial_arrays = self.aggregate_train(number, grid(number))[0]
            self.configure_evaluate(number, initial_arrays, "config", grid)
            self.aggregate_evaluate(number, evaluations(number))
            if evaluate_fn:
                self.seen_by_server.append(evaluate_fn(number, initial_arrays))
        return initial_arrays


def evaluations(number: int) -> Iterator[Message]:
    """Three clients' accuracies; one fails in the second round."""
    for k in range(3):
        told_ = MetricRecord({"eval_acc": 0.1 * number + 0.2 * k, "eval_loss": 1.0, "num-examples": 10 * k + 1})
        yield Message(k) if (number, k) == (2, 0) else Message(k, Content(metrics=told_), "evaluate")


def centrally(number: int, arrays_: Any) -> Any:
    """What an ``evaluate_fn`` gives; nothing in the second round."""
    return None if number == 2 else MetricRecord({"accuracy": 1 - number / 10, "loss": number + 0.5, "f1": 0.3})


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("by_place", [False, True])
def test_evaluations_of_server_and_clients_are_numbers_of_their_round(by_place: bool, tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    first = arrays(model(0))
    if by_place:
        strategy.start(cohort, first, 3, 60.0, centrally)
    else:
        strategy.start(grid=cohort, initial_arrays=first, evaluate_fn=centrally)
    assert strategy.seen_by_server == [centrally(number, None) for number in range(4)]
    run = Run.open(tmp_path / "run")
    found = run.metrics()
    np.testing.assert_allclose(found["test_loss"], [1.5, np.nan, 3.5])
    np.testing.assert_allclose(found["test_error"], [0.1, np.nan, 0.3])
    errors = [[1 - 0.1 * t - 0.2 * k for k in range(3) if (t, k) != (2, 0)] for t in (1, 2, 3)]
    np.testing.assert_allclose(found["client_test_error_mean"], [np.mean(own) for own in errors])
    np.testing.assert_allclose(found["client_test_error_std"], [np.std(own) for own in errors])
    assert [run.round(t).metrics["train_loss"] for t in run.rounds] == [0.25] * 3
    assert [check_round(run.round(t)).faults for t in run.rounds] == [()] * 3


@pytest.mark.usefixtures("quiet")
def test_without_its_evaluation_a_round_is_recorded_all_the_same(tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    for t in (1, 2, 3):
        strategy.configure_train(t, arrays(model(0)), "config", None)
        strategy.aggregate_train(t, cohort(t))
        if t == 1:
            strategy.aggregate_evaluate(1, evaluations(1))
            assert strategy.recorder.flush() == 1
    assert strategy.recorder.flush() == 3
    strategy.aggregate_evaluate(3, evaluations(3))  # too late
    strategy.recorder.close()
    found = Run.open(tmp_path / "run").metrics()["client_test_error_mean"]
    np.testing.assert_allclose(found, [0.7, np.nan, np.nan])


class EvaluatingOld(Averaging):
    """A strategy of the older interface."""

    central: Any = (2.5, {"accuracy": 0.75})
    asks = True

    def evaluate(self, server_round: int, parameters: Any) -> Any:
        return self.central

    def configure_evaluate(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        return [client_manager] if self.asks else []

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> tuple[Any, Any]:
        return 0.5, {}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("order", ["central", "clients"])
def test_evaluations_of_the_older_interface_in_either_order(order: str, asks: bool, tmp_path: Path) -> None:
    strategy = EvaluatingOld()
    strategy.asks = asks
    fedscope.record(strategy, tmp_path / "run", model=Net)
    start = parameters(list(model(1).values()))
    assert strategy.evaluate(0, parameters=start) == (2.5, {"accuracy": 0.75})
    for t in (1, 2):
        strategy.configure_fit(t, start, "manager")
        strategy.aggregate_fit(t, [result(n, list(model(k).values()), k + 1, k) for n, k in NODES.items()], [])

        def clients(t: int = t) -> None:
            answers = [(None, SimpleNamespace(loss=1.0, metrics={"accuracy": 0.5 + 0.1 * k})) for k in range(3)]
            if strategy.configure_evaluate(t, start, "manager"):
                assert strategy.aggregate_evaluate(t, answers, []) == (0.5, {})

        def central(t: int = t) -> None:
            strategy.evaluate(server_round=t, parameters=start)

        for part in (central, clients) if order == "central" else (clients, central):
            part()
        assert strategy._fedscope._held is None  # nothing waits for more
    strategy.recorder.close()
    run = Run.open(tmp_path / "run")
    assert [(row["test_loss"], row["test_error"]) for row in run.table_rows().values()] == [(2.5, 0.25)] * 2
    found = run.metrics()["client_test_error_mean"]
    np.testing.assert_allclose(found, [0.4] * 2 if asks else [np.nan] * 2)


def test_an_accuracy_in_per_cent_is_told_and_not_taken(tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    (sentence,) = told(
        lambda: play(strategy, cohort, evaluate_fn=lambda number, arrays: {"accuracy": 87.5, "loss": 0.5})
    )
    assert sentence == (
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 87.5, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share"
    )
    found = Run.open(tmp_path / "run").metrics()
    assert found["test_loss"].tolist() == [0.5] * 3
    assert np.isnan(found["test_error"]).all()


def test_rounds_that_were_read_as_shares_before_are_named(tmp_path: Path) -> None:
    """An accuracy of 1 % was an error of 0, for ever and without a word."""
    accuracies = {0: 0.5, 1: 1.0, 2: 0.0, 3: 0.75, 4: 15.0, 5: 0.5}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(
        lambda: play(strategy, cohort, 5, evaluate_fn=lambda number, _: {"accuracy": accuracies[number], "loss": 2.0})
    ) == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 15, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share and record again, since test_error of rounds 1, 3 was read as "
        "a share before, and is wrong, or measure it once the run is closed: fedscope measure "
        f"{tmp_path}/run --rounds 1-3 --force --accept-data --model NAME --data NAME"
    ]
    found = Run.open(tmp_path / "run").metrics()
    np.testing.assert_allclose(found["test_error"], [0.0, 1.0, 0.25, np.nan, np.nan])
    assert found["test_loss"].tolist() == [2.0] * 5


def test_the_model_before_all_rounds_tells_the_scale(tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    found = told(lambda: play(strategy, cohort, 2, evaluate_fn=lambda number, _: {"accuracy": 1.0 if number else 10.0}))
    assert found == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 10, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share"
    ]
    assert "test_error" not in Run.open(tmp_path / "run").round(1).metrics


def test_a_number_beside_tells_the_scale(tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    found = told(
        lambda: play(strategy, cohort, 2, evaluate_fn=lambda number, _: {"accuracy": 1.0, "top5_accuracy": 9.0})
    )
    assert found == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 1 beside top5_accuracy = 9, which is no share from 0 to "
        "1, so no error is recorded of it or of later rounds; give a share"
    ]
    assert "test_error" not in Run.open(tmp_path / "run").round(1).metrics


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("accuracy", 1.2, "1.2"), ("error", float("inf"), "inf"), ("accuracy", -0.25, "-0.25"), ("error", 1.5, "1.5")],
)
def test_a_number_out_of_range_leaves_out_its_own_round(name: str, value: float, shown: str, tmp_path: Path) -> None:
    """All later rounds were left out, and those before were said to be wrong."""
    given = {0: 0.5, 1: 0.25, 2: value, 3: 0.75, 4: 1 + 5e-7}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(lambda: play(strategy, cohort, 4, evaluate_fn=lambda number, _: {name: given[number]})) == [
        f"{tmp_path}/run: Flower's evaluation gives {name} = {shown}, which is no share from 0 to 1, so no error is "
        "recorded of it; give a share"
    ]
    expected = np.array([0.25, np.nan, 0.75, 1.0])
    found = Run.open(tmp_path / "run").metrics()["test_error"]
    np.testing.assert_allclose(found, 1 - expected if name == "accuracy" else expected)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("beside", [{"train_error": 3.1}, {"eval_error_rate": 7.0}, {"train_acc": np.inf}])
def test_what_is_no_accuracy_is_no_scale_of_one(beside: dict[str, float], tmp_path: Path) -> None:
    """An error or a loss beside it ended the column."""
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    play(strategy, cohort, evaluate_fn=lambda number, _: {"accuracy": 0.75, **beside})
    assert Run.open(tmp_path / "run").metrics()["test_error"].tolist() == [0.25] * 3


def test_one_client_out_of_range_leaves_out_its_own_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replies(number: int) -> list[Message]:
        own = [1.25 if (number, k) == (2, 1) else 0.5 for k in range(3)]
        return [Message(k, Content(metrics=MetricRecord({"eval_acc": one}))) for k, one in enumerate(own)]

    monkeypatch.setitem(globals(), "evaluations", replies)
    assert told(lambda: play(fedscope.record(Evaluating(), tmp_path / "run"), cohort)) == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 1.25, which is no share from 0 to 1, so no error is "
        "recorded of it; give a share"
    ]
    found = Run.open(tmp_path / "run").metrics()["client_test_error_mean"]
    np.testing.assert_allclose(found, [0.5, np.nan, 0.5])


def test_of_several_clients_one_in_per_cent_says_the_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replies(number: int) -> list[Message]:
        return [Message(k, Content(metrics=MetricRecord({"eval_acc": 1.25 + 9 * k}))) for k in range(3)]

    monkeypatch.setitem(globals(), "evaluations", replies)
    assert told(lambda: play(fedscope.record(Evaluating(), tmp_path / "run"), cohort)) == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 10.25, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share"
    ]


def test_rounds_of_clients_that_were_read_as_shares_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def percent(number: int) -> list[Message]:
        return [Message(k, Content(metrics=MetricRecord({"eval_acc": 0.5 if number < 3 else 20.0}))) for k in range(3)]

    monkeypatch.setitem(globals(), "evaluations", percent)
    assert told(lambda: play(fedscope.record(Evaluating(), tmp_path / "run"), cohort, 4)) == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 20, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share and record again, since client_test_error_mean of rounds 1-2 "
        "was read as a share before, and is wrong"
    ]
    found = Run.open(tmp_path / "run").metrics()
    np.testing.assert_allclose(found["client_test_error_mean"], [0.5, 0.5, np.nan, np.nan])
    np.testing.assert_allclose(found["client_test_error_std"], [0.0, 0.0, np.nan, np.nan])


def test_numbers_of_test_data_go_before_those_of_validation_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shortest name was taken, as val_loss beside test_loss."""

    def both(number: int) -> list[Message]:
        numbers = {"val_acc": 0.9, "test_accuracy": 0.25 * (number > 0), "accuracy": 0.8}
        return [Message(k, Content(metrics=MetricRecord(numbers))) for k in range(3)]

    monkeypatch.setitem(globals(), "evaluations", both)
    centrally_ = {"val_loss": 0.1, "val_acc": 0.9, "accuracy": 0.7, "loss": 1.0, "test_loss": 2.0, "test_accuracy": 0.5}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    # those of validation data say by their names that they may differ
    assert told(lambda: play(strategy, cohort, 2, evaluate_fn=lambda number, _: centrally_)) == [
        f"{tmp_path}/run: in Flower's evaluation {column} is taken from '{name}', and '{other}' beside it says "
        "otherwise; give one number for each"
        for column, name, other in (
            ("client_test_error_mean", "test_accuracy", "accuracy"),
            ("test_loss", "test_loss", "loss"),
            ("test_error", "test_accuracy", "accuracy"),
        )
    ]
    row = Run.open(tmp_path / "run").round(1).metrics
    names = ("test_loss", "test_error", "client_test_error_mean")
    assert [row[name] for name in names] == [2.0, 0.5, 0.75]


def test_which_of_several_numbers_is_taken_is_told_once(tmp_path: Path) -> None:
    numbers = {"test_loss": 1.0, "central_test_loss": 2.0, "eval_accuracy": 0.5, "global_accuracy": 0.5}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(lambda: play(strategy, cohort, evaluate_fn=lambda number, _: numbers)) == [
        f"{tmp_path}/run: in Flower's evaluation test_loss is taken from 'test_loss', and 'central_test_loss' beside "
        "it says otherwise; give one number for each"
    ]
    row = Run.open(tmp_path / "run").round(1).metrics
    assert (row["test_loss"], row["test_error"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    "word", ["local", "client", "clients", "avg", "mean", "average", "federated", "distributed", "aggregated"]
)
def test_the_server_s_own_numbers_go_before_those_of_clients(word: str, tmp_path: Path) -> None:
    """The mean of local models on their own test data was the error of the server's."""
    numbers = {f"{word}_test_accuracy": 0.5, "val_accuracy": 0.75, f"{word}_test_loss": 3.0, "loss": 1.0}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(lambda: play(strategy, cohort, evaluate_fn=lambda number, _: numbers)) == [
        f"{tmp_path}/run: in Flower's evaluation {column} is taken from {taken!r}, and '{word}_test_{what}' beside it "
        "says otherwise; give one number for each"
        for column, taken, what in (("test_loss", "loss", "loss"), ("test_error", "val_accuracy", "accuracy"))
    ]
    row = Run.open(tmp_path / "run").round(1).metrics
    assert (row["test_loss"], row["test_error"]) == (1.0, 0.25)


def test_validation_data_taken_before_a_mean_of_test_data_is_told(tmp_path: Path) -> None:
    numbers = {"val_accuracy": 0.75, "mean_test_accuracy": 0.5, "test_loss": 1.0, "val_loss": 2.0}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(lambda: play(strategy, cohort, evaluate_fn=lambda number, _: numbers)) == [
        f"{tmp_path}/run: in Flower's evaluation test_error is taken from 'val_accuracy', and 'mean_test_accuracy' "
        "beside it says otherwise; give one number for each"
    ]


def test_the_loss_that_the_older_interface_gives_apart_comes_first(tmp_path: Path) -> None:
    class Local(EvaluatingOld):
        central = 2.5, {"accuracy": 0.75, "test_loss": 3.0, "local_test_loss": 4.0}

    strategy = fedscope.record(Local(), tmp_path / "run", model=Net)
    start = parameters(list(model(1).values()))
    strategy.configure_fit(1, start, "manager")
    strategy.aggregate_fit(1, [result(n, list(model(k).values()), k + 1, k) for n, k in NODES.items()], [])
    assert told(lambda: strategy.evaluate(1, start)) == [
        f"{tmp_path}/run: in Flower's evaluation test_loss is taken from the loss beside the metrics, and 'test_loss' "
        "beside it says otherwise; give one number for each"
    ]
    strategy.recorder.close()
    assert Run.open(tmp_path / "run").round(1).metrics["test_loss"] == 2.5


class OneNumber:
    """A tensor of one number, by its interface."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        return self.value


@pytest.mark.usefixtures("quiet")
def test_numbers_are_read_whatever_they_are_in(tmp_path: Path) -> None:
    """Those of numpy and of torch were left out without a word."""

    class Measuring(EvaluatingOld):
        central = OneNumber(1.5), {"accuracy": np.array(0.75), "test_loss": "low", "f1": [1.0], "error": True}

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[Any, Any]:
            return super().aggregate_fit(server_round, results, failures)[0], {"train_loss": np.float32(0.25)}

    strategy = fedscope.record(Measuring(), tmp_path / "run", model=Net)
    start = parameters(list(model(1).values()))
    strategy.configure_fit(1, start, "manager")
    strategy.aggregate_fit(1, [result(n, list(model(k).values()), k + 1, k) for n, k in NODES.items()], [])
    strategy.evaluate(1, start)
    strategy.recorder.close()
    row = Run.open(tmp_path / "run").round(1).metrics
    assert (row["train_loss"], row["test_loss"], row["test_error"]) == (0.25, 1.5, 0.25)


def test_metrics_that_nobody_understands_disturb_nobody(tmp_path: Path) -> None:
    class Odd:
        metadata = SimpleNamespace(src_node_id=1)

        def has_content(self) -> bool:
            raise RuntimeError("odd")

    class Careless(Evaluating):
        def aggregate_evaluate(self, server_round: int, replies: Any) -> Any:
            return "no record"

    strategy = fedscope.record(Careless(), tmp_path / "run")
    strategy.configure_train(1, arrays(model(0)), "config", None)
    strategy.aggregate_train(1, cohort(1))
    (sentence,) = told(lambda: strategy.aggregate_evaluate(1, [Odd()]))
    assert sentence.endswith("run: Flower's evaluation is not recorded: RuntimeError: odd")
    strategy.recorder.close()
    assert Run.open(tmp_path / "run").rounds == (1,)


# --- what is refused at once ---


@pytest.mark.parametrize(
    ("strategy", "settings", "message"),
    [
        (Emptying, {}, "Emptying is a class; give an instance, as in record(Emptying(), …)"),
        (
            Net(),
            {},
            "Net is not a strategy of Flower: it has neither configure_train and aggregate_train nor configure_f",
        ),
        (None, {}, "NoneType is not a strategy of Flower"),
        (Averaging(), {}, "sends arrays without names, which a run takes from the model; give the module or its class"),
        (Averaging(), {"model": "cnn"}, "as model=Net, not 'cnn'"),
        (Emptying(), {"model": 3}, "a model was given as int; give a module"),
        (
            Emptying(),
            {"model": lambda width: Net()},
            "model= cannot be made without arguments (test_what_is_no_strategy",
        ),
        (Emptying(), {"partition": {0: [1]}}, "partition= needs labels="),
    ],
)
def test_what_is_no_strategy_or_no_model_is_refused(
    strategy: Any, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FedscopeError) as raised:
        fedscope.record(strategy, tmp_path / "run", **settings)
    assert message.partition("(test_")[0] in str(raised.value)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_folder_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.txt").write_text("mine")
    with pytest.raises(FedscopeError, match="holds something else than a run"):
        fedscope.record(Emptying(), tmp_path / "run", force=True)


def test_recording_needs_neither_flower_nor_torch(tmp_path: Path) -> None:
    code = """
        import sys
        sys.modules["flwr"] = sys.modules["torch"] = None
        import fedscope

        class Strategy:
            def configure_train(self, server_round, arrays, config, grid): ...
            def aggregate_train(self, server_round, replies): ...

        fedscope.record(Strategy(), sys.argv[1]).recorder.close()
        fedscope.partition_mod
    """
    subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code), str(tmp_path / "run")], check=True)


def test_drift_is_measured_as_the_run_goes_on(tmp_path: Path) -> None:
    play(fedscope.record(Emptying(), tmp_path / "run", drift=True), cohort)
    for number in (1, 2, 3):
        assert 0 < Run.open(tmp_path / "run").round(number).metrics["drift_kept"] <= 1


def test_the_scale_of_adapters_is_taken_as_by_the_recorder_of_loops(tmp_path: Path) -> None:
    said = told(lambda: play(fedscope.record(Emptying(), tmp_path / "run", lora_alpha=8), cohort, rounds=1))
    assert "lora_alpha = 8 was given, but the models hold no factors of adapters; leave it out" in said[0]


@pytest.mark.parametrize(
    ("record", "without"),
    [
        (fedscope.record, set()),
        (fedscope.record_pfl, set()),
        (fedscope.record_blazefl, set()),
        # a job is sent as files, and its data stay where they are
        (fedscope.record_nvflare, {"keep_data", "partition", "labels"}),
    ],
)
def test_a_framework_s_recorder_takes_what_the_recorder_takes(record: Callable[..., Any], without: set[str]) -> None:
    options = set(inspect.signature(fedscope.Recorder).parameters) - {"source"}
    assert options - set(inspect.signature(record).parameters) == without
