"""What recording adds to a round of Flower.

The source papers' CNN (3 x 32 x 32), 10 clients x 500 samples in batches of 50, with 1 local epoch and with 5, in
Flower's simulation (1.41.0, `FedAvg`, a core a client, on all cores). In one simulation two recorded rounds and two
plain ones take turns, in the same processes. A round is the time from one round's end to the next. The second of each
two counts: a round is written while the next one is played, so the first recorded one lacks that, and the first plain
one has it. The first two rounds load things and are left out.

Rounds against rounds are told, but have noise of their own. What counts is made of two sharper figures, recorded less
plain: how much longer the strategy's calls take, for which clients wait, and what else the server's process needs of
processors, the thread that writes included, which clients lack. The first, and the second over the cores, as a share of
the plain round are what recording adds.

Memory is the peak of the server's process, Flower's own copies of the replies included: that of a simulation whose
rounds are all recorded less that of one whose rounds are all plain, in rounds of clients (clients do not train there).

Flower has the environment of `against_frameworks.py`, made once in `benchmarks/.peers`; fedscope and what recording
needs come beside it on the path.

    python benchmarks/recording_flower.py [pairs]
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _common import CLASSES, IMAGE, Line, cores, peak_memory, spread, table
from against_frameworks import FLOWER, RECORDING, NotHere, Peer, environment

# Imported by Flower's own Python, too, which has fedscope but not what it trains with.

TARGET, MEMORY = 0.05, 2.0
CLIENTS, OWN, BATCH, LOADING = 10, 500, 50, 2
HERE = Path(__file__).resolve().parent


# --- in Flower's environment ---


def cnn() -> Any:
    """As fedscope's ``cnn``."""
    from torch import nn

    convolutions = [nn.Conv2d(IMAGE[0], 64, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(64, 64, 5), nn.MaxPool2d(2)]
    linear = [nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 128), nn.ReLU(), nn.Linear(128, CLASSES)]
    return nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), *linear)


@functools.cache
def noise(partition: int) -> tuple[Any, Any]:
    """A client's samples, made once a worker."""
    import torch

    draw = torch.Generator().manual_seed(partition)
    return torch.randn(OWN, *IMAGE, generator=draw), torch.randint(0, CLASSES, (OWN,), generator=draw)


def client(message: Any, context: Any) -> Any:
    """What a client does with the model that it was sent."""
    import torch
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    x, y = noise(context.node_config["partition-id"])
    module = cnn()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(message.content["config"]["epochs"]):
        for rows in torch.randperm(OWN).split(BATCH):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimiser.step()
    told = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": OWN})}
    return Message(content=RecordDict(told), reply_to=message)


def play(folder: Path, epochs: int, recorded: Sequence[bool]) -> dict[str, Any]:
    """A simulation, some of whose rounds are recorded.

    Returns:
        When each round ended, on the wall and in processor time, what the strategy's calls took, the peak of memory.
    """
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    import fedscope

    plain = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    kept = fedscope.record(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS), folder / "run"
    )
    with fedscope.Recorder(folder / "loaded") as recorder:  # so that both have loaded what writes
        recorder.round(clients=[plain_arrays(cnn())])
    ends: list[float] = []
    calls: list[float] = []
    processor: list[float] = []

    class Turns(FedAvg):  # type: ignore[misc]
        def configure_train(self, server_round: int, *rest: Any) -> Any:
            began = time.perf_counter()
            made = (kept if recorded[server_round - 1] else plain).configure_train(server_round, *rest)
            calls.append(time.perf_counter() - began)
            return made

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            assert len([reply for reply in replies if not reply.has_error()]) == CLIENTS
            began = time.perf_counter()
            made = (kept if recorded[server_round - 1] else plain).aggregate_train(server_round, replies)
            ends.append(time.perf_counter())
            processor.append(time.process_time())
            calls[-1] += ends[-1] - began
            return made

    server, clients = ServerApp(), ClientApp(mods=[fedscope.partition_mod])
    clients.train()(client)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        Turns(fraction_evaluate=0.0).start(
            grid=grid,
            initial_arrays=ArrayRecord(cnn().state_dict()),
            num_rounds=len(recorded),
            train_config=ConfigRecord({"epochs": epochs}),
        )

    resources = {"init_args": {"num_cpus": cores()}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, clients, num_supernodes=CLIENTS, backend_config=resources)
    kept.recorder.close()
    assert len(ends) == len(recorded)
    assert kept.recorder.rounds == sum(recorded)
    return {"ends": ends, "processor": processor, "calls": calls, "peak": peak_memory()}


def plain_arrays(module: Any) -> Mapping[str, Any]:
    """A model by name."""
    return {name: value.numpy() for name, value in module.state_dict().items()}


def answer(folder: str, epochs: str, recorded: str) -> None:
    """Play as the words say, and leave the answer."""
    # from the module by its name, so that Flower's workers find functions there instead of being sent them every time
    import recording_flower

    found = recording_flower.play(Path(folder), int(epochs), [letter == "r" for letter in recorded])
    Path(folder, "answer.json").write_text(json.dumps(found), encoding="utf-8")


# --- in ours ---


def beside(folder: Path, peer: Peer) -> Path:
    """A folder for ``PYTHONPATH`` with fedscope as it is installed here and what recording needs, as far as the
    framework's environment does not have it.

    fedscope is copied, because NVFlare follows no links from the folders of packages.
    """
    folder.mkdir()
    for name in ("fedscope", *(() if peer.has_recording else RECORDING)):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        package = Path(found.origin).parent
        if name == "fedscope":
            shutil.copytree(package, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / name).symlink_to(package)
        if (libraries := package.with_name(f"{name}.libs")).exists():
            (folder / libraries.name).symlink_to(libraries)
    return folder


def played(python: Path, home: Path, epochs: int, recorded: str) -> dict[str, Any]:
    """A simulation in Flower's environment: of each letter a round, "r" recorded."""
    folder = home / f"{epochs}-{recorded}"
    folder.mkdir()
    words = {
        "PYTHONPATH": f"{HERE}{os.pathsep}{home / 'beside'}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    code = "import sys, recording_flower; recording_flower.answer(*sys.argv[1:])"
    done = subprocess.run(
        [python, "-c", code, folder, str(epochs), recorded],
        cwd=folder,
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        sys.exit(f"the simulation ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return dict(json.loads((folder / "answer.json").read_text(encoding="utf-8")))


def lines_of(epochs: int, found: Mapping[str, Any], recorded: str) -> list[Line]:
    """The figures of a simulation."""

    def of(letter: str, seconds: Sequence[float]) -> list[float]:
        """Those of the second rounds of the recorded pairs, or of the plain ones."""
        return [seconds[i] for i in range(LOADING + 1, len(recorded), 2) if recorded[i] == letter]

    def between(stamps: Sequence[float]) -> list[float]:
        return [0.0, *(after - before for before, after in itertools.pairwise(stamps))]

    def more(seconds: Sequence[float]) -> list[float]:
        return [a - b for a, b in zip(of("r", seconds), of("p", seconds), strict=True)]

    whole = between(found["ends"])
    plain, held, processor = of("p", whole), more(found["calls"]), more(between(found["processor"]))
    added = [(a + max(0.0, b - a) / cores()) / statistics.median(plain) for a, b in zip(held, processor, strict=True)]
    what = f"{epochs} epoch{'s' if epochs > 1 else ''}"
    return [
        Line(f"{what}: plain round, seconds", spread(plain)),
        Line(f"{what}: recorded round, seconds", spread(of("r", whole))),
        Line(
            "  added, round against round", spread([a / b for a, b in zip(more(whole), plain, strict=True)], "{:+.1%}")
        ),
        Line("  the strategy's calls take longer by, seconds", spread(held, "{:.3f}")),
        Line("  more processor time of the server, seconds", spread(processor, "{:.3f}")),
        Line(
            "  added, by both",
            spread(added, "{:+.1%}"),
            f"<= {TARGET:.0%}",
            statistics.median(added) <= TARGET,
        ),
    ]


def main(pairs: int) -> None:
    """Measure and print."""
    try:
        python = environment(HERE / ".peers", FLOWER)
    except NotHere as why:
        sys.exit(f"{FLOWER.name} cannot be installed: {why}")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        beside(home / "beside", FLOWER)
        lines = []
        for epochs, times in ((1, 2 * pairs), (5, pairs)):
            recorded = "pp" + "rrpp" * times
            lines += lines_of(epochs, played(python, home, epochs, recorded), recorded)
        size = CLIENTS * sum(value.numel() * value.element_size() for value in cnn().state_dict().values())
        peaks = [played(python, home, 0, letter * 8)["peak"] for letter in "rp"]
        rounds = (peaks[0] - peaks[1]) / size
        lines += [
            Line("peak of the server, plain, MB", f"{peaks[1] / 1e6:.0f}"),
            Line("peak of the server, recorded, MB", f"{peaks[0] / 1e6:.0f}"),
            Line(
                f"added, in rounds of clients ({size / 1e6:.0f} MB)",
                f"{rounds:.2f}",
                f"<= {MEMORY:g}",
                rounds <= MEMORY,
            ),
        ]
    table(f"Recording Flower: the papers' CNN, {CLIENTS} clients x {OWN} samples, {FLOWER.name}", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
