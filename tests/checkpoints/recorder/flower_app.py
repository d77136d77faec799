"""Flower as it is, small: plays strategies and keeps what leaves the clients; run in an environment that has flwr.

    python flower_app.py [--simulation] FOLDER NAME...

``FOLDER/NAME/run`` is the recorded run, ``FOLDER/NAME/sent/ROUND-PARTITION.npz`` what left a client, after all mods,
``global-ROUND.npz`` what the strategy made of it. A name is a strategy of ``flwr.serverapp.strategy``, with "old:"
before it of ``flwr.server.strategy``; after a "+" comes what is special (:class:`Case`). Without ``--simulation``
clients answer within this process, in a random order. Prints what was warned of and raised, by name, as JSON.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = {"layer.weight": (40, 30), "layer.bias": (40,), "norm.running_mean": (40,), "norm.num_batches_tracked": ()}
CLIENTS, ROUNDS = 6, 3
#: settings that strategies need
SETTINGS: dict[str, dict[str, Any]] = {
    "QFedAvg": {"client_learning_rate": 0.1},
    "old:QFedAvg": {"qffl_learning_rate": 0.1, "evaluate_fn": lambda number, arrays, config: (0.5, {})},
    "FedProx": {"proximal_mu": 0.1},
    "old:FedProx": {"proximal_mu": 0.1},
    "MultiKrum": {"num_nodes_to_select": 3},
    "old:Bulyan": {"to_keep": 0},
    "old:DPFedAvgFixed": {"num_sampled_clients": CLIENTS, "clip_norm": 0.5},
}
FIXED = {"noise_multiplier": 0.01, "clipping_norm": 0.5, "num_sampled_clients": CLIENTS}
ADAPTIVE = {"noise_multiplier": 0.01, "num_sampled_clients": CLIENTS}


def initial(special: Sequence[str]) -> dict[str, np.ndarray]:
    """The first model: floats, and a counter of whole numbers as BatchNorm has it."""
    rng = np.random.default_rng(0)
    dtype = np.float16 if "half" in special else np.float32
    counter = np.array(7, np.float32 if "floats" in special else np.int64)
    return {name: rng.normal(size=shape).astype(dtype) if shape else counter for name, shape in SHAPES.items()}


def trained(model: list[np.ndarray], partition: int, special: Sequence[str]) -> list[np.ndarray]:
    """What a client makes of a model; like torch it loads it in its own dtypes."""
    rng = np.random.default_rng([partition, int(1e4 * abs(float(model[0].ravel()[0]))) % 2**31])
    mine = [array.astype(own.dtype) for array, own in zip(model, initial(special).values(), strict=True)]
    return [
        np.asarray(array + (0.1 * rng.normal(size=array.shape) if array.shape else partition + 3), array.dtype)
        for array in mine
    ]


def accuracy(partition: int) -> float:
    """A client's, on its own test data."""
    return (partition + 1) / 10


def centrally(number: int) -> tuple[float, float]:
    """Loss and accuracy of the server's model after a round."""
    return 2.0 - number / 4, number / 10


def samples(partition: int) -> int:
    """How many a client has."""
    return 10 * (partition + 1)


class Net:
    """A module by its interface alone: names in order, and which are trained."""

    def __init__(self, special: Sequence[str] = ()) -> None:
        self.special = special

    def state_dict(self) -> dict[str, np.ndarray]:
        """By name."""
        return initial(self.special)

    def named_parameters(self, remove_duplicate: bool = True) -> list[tuple[str, np.ndarray]]:
        """Those that are trained."""
        return [(name, value) for name, value in self.state_dict().items() if name.startswith("layer")]


class Case:
    """A strategy and what is special about how it is played.

    Words: "half" (float16), "floats" (no whole numbers), "lists" (arrays without names), "unnumbered" (no mod),
    "failing" (client 1 in round 2), "raising" (the strategy in the last round), "evaluating" (server and clients do).
    """

    def __init__(self, folder: Path, text: str) -> None:
        self.name, *self.special = text.split("+")
        self.old = self.name.startswith("old:")
        self.folder, self.sent = folder / text, folder / text / "sent"
        self.sent.mkdir(parents=True, exist_ok=True)

    # --- clients ---

    def client_app(self) -> Any:
        """The clients, and a mod outside all others that keeps what leaves."""
        import flwr
        from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
        from flwr.clientapp import ClientApp

        import fedscope

        sent, special = self.sent, self.special

        def keep(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
            reply = call_next(message, context)
            if message.metadata.message_type == "train":
                config = next(iter(message.content.config_records.values()))
                number = config["round"] if "round" in config else config["server-round"]
                (model,) = reply.content.array_records.values()
                arrays = [array.numpy() for array in model.values()]
                np.savez(sent / f"{number}-{context.node_config['partition-id']}.npz", *arrays)
            return reply

        def fail(number: int, partition: int) -> None:
            if "failing" in special and (number, partition) == (2, 1):
                raise RuntimeError("this client fails")

        def train(message: Any, context: Any) -> Any:
            partition, number = context.node_config["partition-id"], message.content["config"]["server-round"]
            fail(number, partition)
            mine = trained([array.numpy() for array in message.content["arrays"].values()], partition, special)
            arrays = (
                ArrayRecord(mine)
                if "lists" in special
                else ArrayRecord({name: Array(array) for name, array in zip(SHAPES, mine, strict=True)})
            )
            told = MetricRecord({"num-examples": samples(partition), "train_loss": 0.5 + partition})
            return Message(content=RecordDict({"arrays": arrays, "metrics": told}), reply_to=message)

        def evaluate(message: Any, context: Any) -> Any:
            told = {"num-examples": 1, "eval_acc": accuracy(context.node_config["partition-id"]), "eval_loss": 0.5}
            return Message(content=RecordDict({"metrics": MetricRecord(told)}), reply_to=message)

        def client_fn(context: Any) -> Any:
            partition = context.node_config["partition-id"]

            class Client(flwr.client.NumPyClient):  # type: ignore[misc]
                def fit(self, parameters: Any, config: Any) -> Any:
                    fail(config["round"], partition)
                    return trained(parameters, partition, special), samples(partition), {"train_loss": 0.5}

                def evaluate(self, parameters: Any, config: Any) -> Any:
                    return 0.5, 1, {"accuracy": accuracy(partition)}

            return Client().to_client()

        mods = [keep]
        if "unnumbered" not in special:
            mods.append(fedscope.partition_mod)
        if "ClientSide" in self.name:
            found = importlib.import_module("flwr.client.mod" if self.old else "flwr.clientapp.mod")
            mods.append(found.adaptiveclipping_mod if "Adaptive" in self.name else found.fixedclipping_mod)
        if self.old:
            return ClientApp(client_fn, mods=mods)
        app = ClientApp(mods=mods)
        app.train()(train)
        app.evaluate()(evaluate)
        return app

    # --- the server ---

    def strategy(self) -> Any:
        """Made, made to keep what it aggregates, and recorded."""
        import fedscope

        made = self._old() if self.old else self._new()
        call = "aggregate_fit" if self.old else "aggregate_train"
        before = getattr(made, call)

        def kept(number: int, *rest: Any) -> Any:
            if "raising" in self.special and number == ROUNDS:
                raise RuntimeError("this strategy fails")
            result = before(number, *rest)
            if result[0] is not None:
                np.savez(self.sent / f"global-{number}.npz", *self._arrays(result[0]))
            return result

        setattr(made, call, kept)
        return fedscope.record(made, self.folder / "run", model=Net(self.special))

    def _arrays(self, made: Any) -> list[np.ndarray]:
        from flwr.common import parameters_to_ndarrays

        return parameters_to_ndarrays(made) if self.old else [array.numpy() for array in made.values()]

    def _new(self) -> Any:
        import flwr.serverapp.strategy as strategies

        known = {"fraction_evaluate": 0.0, "min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}
        if "evaluating" in self.special:
            known |= {"fraction_evaluate": 1.0, "min_evaluate_nodes": CLIENTS}
        if self.name.startswith("Differential"):
            settings = ADAPTIVE if "Adaptive" in self.name else FIXED
            return getattr(strategies, self.name)(strategies.FedAvg(**known), **settings)
        return getattr(strategies, self.name)(**known, **SETTINGS.get(self.name, {}))

    def _old(self) -> Any:
        import flwr.server.strategy as strategies
        from flwr.common import ndarrays_to_parameters

        known = {
            "min_fit_clients": CLIENTS,
            "min_available_clients": CLIENTS,
            "fraction_evaluate": 0.0,
            "initial_parameters": ndarrays_to_parameters(list(initial(self.special).values())),
            "on_fit_config_fn": lambda number: {"round": number},
        }
        if "evaluating" in self.special:
            known |= {"fraction_evaluate": 1.0, "min_evaluate_clients": CLIENTS}
            known["evaluate_fn"] = lambda number, *_: (centrally(number)[0], {"accuracy": centrally(number)[1]})
        name = self.name.removeprefix("old:")
        if name.startswith("DPFedAvg"):
            return getattr(strategies, name)(strategies.FedAvg(**known), **SETTINGS[self.name])
        if name.startswith("Differential"):
            settings = ADAPTIVE if "Adaptive" in name else FIXED
            return getattr(strategies, name)(strategies.FedAvg(**known), **settings)
        return getattr(strategies, name)(**known, **SETTINGS.get(self.name, {}))

    def start(self, strategy: Any, grid: Any) -> None:
        """Play the rounds of the message interface."""
        from flwr.app import Array, ArrayRecord, MetricRecord

        model = initial(self.special)
        named = {name: Array(array) for name, array in model.items()}
        arrays = ArrayRecord(list(model.values())) if "lists" in self.special else ArrayRecord(named)
        more: dict[str, Any] = {}
        if "evaluating" in self.special:
            more["evaluate_fn"] = lambda number, _: MetricRecord(
                dict(zip(("loss", "accuracy"), centrally(number), strict=True))
            )
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=ROUNDS, **more)

    # --- both ways of playing ---

    def play_here(self) -> None:
        """Within this process."""
        strategy, grid = self.strategy(), LocalGrid(self.client_app())
        if not self.old:
            self.start(strategy, grid)
            return
        from flwr.server import Server, SimpleClientManager
        from flwr.server.compat.grid_client_proxy import GridClientProxy

        manager = SimpleClientManager()
        for node in grid.get_node_ids():
            manager.register(GridClientProxy(node, grid, 1))
        try:
            Server(client_manager=manager, strategy=strategy).fit(ROUNDS, None)
        finally:
            strategy.recorder.close()

    def play_simulation(self) -> None:
        """In Flower's simulation."""
        from flwr.server import ServerAppComponents, ServerConfig
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

        strategy = self.strategy()
        if self.old:
            config = ServerConfig(num_rounds=ROUNDS)
            server = ServerApp(server_fn=lambda context: ServerAppComponents(strategy=strategy, config=config))
        else:
            server = ServerApp()
            server.main()(lambda grid, context: self.start(strategy, grid))
        resources = {"init_args": {"num_cpus": 2}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server, self.client_app(), num_supernodes=CLIENTS, backend_config=resources)
        strategy.recorder.close()


class LocalGrid:
    """Answers messages by calling the ClientApp; nodes have random numbers as in Flower."""

    def __init__(self, app: Any) -> None:
        from flwr.supercore.task_identity import TaskIdentity

        # which messages bear; a simulation sets them
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self.app, self.draw = app, random.Random(0)
        self.partitions = {self.draw.getrandbits(62): k for k in range(CLIENTS)}

    def get_node_ids(self) -> list[int]:
        """All."""
        return list(self.partitions)

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Iterable[Any]:
        """An iterator, as the interface allows, in an order of its own."""
        from flwr.app import Context, Error, Message, RecordDict

        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            context = Context(1, node, {"partition-id": self.partitions[node]}, RecordDict(), {})
            try:
                replies.append(self.app(message, context))
            except RuntimeError as error:
                replies.append(Message(Error(0, str(error)), reply_to=message))
        self.draw.shuffle(replies)
        return iter(replies)


def main(folder: Path, texts: Iterable[str], simulation: bool) -> None:
    """Play them all."""
    found: dict[str, Any] = {}
    for text in texts:
        case, raised = Case(folder, text), ""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                case.play_simulation() if simulation else case.play_here()
            except Exception as error:
                raised = f"{type(error).__name__}: {error}"
        ours = [str(one.message) for one in told if one.category.__name__ == "FedscopeWarning"]
        found[text] = {"warned": ours, "raised": raised}
    print(json.dumps(found))


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--simulation"]
    main(Path(words[0]), words[1:], "--simulation" in sys.argv)
