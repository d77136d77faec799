"""Stand-ins for the few classes of Flower that a recorded strategy meets, and strategies of its two interfaces."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
#: partitions by node, as numbers that Flower draws
NODES = {2**60 + 5: 2, 2**59 + 1: 0, 2**61 + 3: 1}


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


def evaluations(number: int) -> Iterator[Message]:
    """Three clients' accuracies; one fails in the second round."""
    for k in range(3):
        told_ = MetricRecord({"eval_acc": 0.1 * number + 0.2 * k, "eval_loss": 1.0, "num-examples": 10 * k + 1})
        yield Message(k) if (number, k) == (2, 0) else Message(k, Content(metrics=told_), "evaluate")


class Evaluating(Emptying):
    """A strategy of the message interface, with Flower's own order of a round, and what clients' evaluations say."""

    def __init__(self, evaluated: Callable[[int], Any] = evaluations) -> None:
        super().__init__()
        self.evaluated = evaluated

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
            self.aggregate_evaluate(number, self.evaluated(number))
            if evaluate_fn:
                self.seen_by_server.append(evaluate_fn(number, initial_arrays))
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
