"""Rounds a second of a small federation, beside a plain PyTorch loop, Flower's simulation and Apple's pfl.

The federation is the same for all: the embedded digits (1,437 training samples of 64 pixels) dealt out to 20 clients,
all of them in every round, 5 local epochs in batches of 20 (400 steps a round), SGD at 0.05 with momentum 0.9 and
weight decay 1e-3, a perceptron 64-128-64-10, the average weighted by samples, 32 rounds. A round is the time from one
round's end to the next; the first two, which load things, are left out. Nobody evaluates between rounds. The accuracy
on the test split after the last round shows that everybody has learnt the same:

- fedscope, `fedscope.training.train` as `fedscope train` calls it: numbers and checksums of every round on the disk,
  clients and globals not kept, the last one excepted. Its last round, which is measured too, is evaluated. Once with
  `run.engine` "auto", once with "threads";
- the plain loop: a client after the other, `torch.optim.SGD`, averages, and nothing else; with torch's default number
  of threads, and with one;
- Flower 1.41.0: `run_simulation`, strategy `FedAvg`, a core a client, on all cores, samples read once a worker, the
  local training of the plain loop. Its runtime looks for messages every 0.1 s, on both ways, which so small a round
  waits for;
- pfl 0.6.0: `FederatedAveraging` on a `SimulatedBackend`; in one process, and in a process a core under torchrun, as
  its guide to fast simulations has it. Its data sets give the same batches in every epoch, so it shuffles nothing.

Everything runs in a process of its own, in turn, and the ratios are those of one turn; the medians count. The
frameworks have environments of their own, with our versions of torch and numpy, which are made once (two minutes, 1 to
2 GB each, more where pip finds a torch with CUDA) and used again. Without a network the benchmark says so and goes on.

    python benchmarks/against_frameworks.py [--repetitions 3] [--peers benchmarks/.peers]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from _common import Line, cores, in_fresh_process, spread, table

# Imported by the frameworks' own Pythons, too, which have torch and numpy but no fedscope.

CLIENTS, EPOCHS, BATCH, WIDTHS, CLASSES = 20, 5, 20, (64, 128, 64), 10
RATE, MOMENTUM, DECAY = 0.05, 0.9, 1e-3
#: of which the first ones are not measured
ROUNDS, LOADING = 32, 2
#: how far apart test accuracies may lie, in points; 360 test samples, so one is 0.28
APART = 3.0
MODULE = Path(__file__).stem
#: Python that fedscope runs on
OLDEST = (3, 11)
#: what recording needs but for numpy
RECORDING = ("h5py", "xxhash", "lazy_loader")


@dataclass(frozen=True)
class Peer:
    """A framework, and what pip installs of it beside torch and numpy.

    Attributes:
        python: the oldest that it runs on; where it is newer than fedscope's own, what recording needs is installed,
            too, because compiled packages of ours do not load there.
    """

    name: str
    requirement: str
    python: tuple[int, int] = OLDEST

    @property
    def has_recording(self) -> bool:
        """Whether its environment has what recording needs."""
        return self.python > OLDEST


FLOWER = Peer("Flower 1.41.0", "flwr[simulation]==1.41.0")
PFL = Peer("pfl 0.6.0", "pfl==0.6.0")
#: recorded, not raced: see recording_frameworks.py
NVFLARE = Peer("NVFlare 2.9.0", "nvflare==2.9.0")
BLAZEFL = Peer("BlazeFL 2.0.3", "blazefl[contrib]==2.0.3", (3, 12))


@dataclass(frozen=True)
class Measured:
    """Rounds a second and the last model's test accuracy in percent."""

    rate: float
    accuracy: float

    @classmethod
    def of(cls, ends: Sequence[float], accuracy: float) -> Measured:
        """From when each round ended."""
        assert len(ends) == ROUNDS
        return cls((len(ends) - LOADING) / (ends[-1] - ends[LOADING - 1]), accuracy)


# --- the federation, for everybody but fedscope ---


def write_federation(path: Path) -> Path:
    """Both splits of the digits, training samples in the order of their clients, and where a client's begin."""
    import numpy as np

    from fedscope.training.data.published.digits import split_digits

    split = {name: array.reshape(len(array), -1).squeeze() for name, array in split_digits().items()}
    parts = np.array_split(np.random.default_rng(0).permutation(len(split["y_train"])), CLIENTS)
    order = np.concatenate(parts)
    split |= {name: split[name][order] for name in ("x_train", "y_train")}
    np.savez(path, **split, begins=np.cumsum([len(part) for part in parts])[:-1])
    return path


@functools.cache
def clients(path: Path) -> list[tuple[Any, Any]]:
    """Samples and labels of each client, as tensors."""
    import numpy as np
    import torch

    with np.load(path) as file:
        x, y = (np.split(file[name], file["begins"]) for name in ("x_train", "y_train"))
    return [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in zip(x, y, strict=True)]


def perceptron() -> Any:
    """As fedscope's ``mlp``."""
    from torch import nn

    layers: list[Any] = []
    for before, after in itertools.pairwise(WIDTHS):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTHS[-1], CLASSES))


def sgd(parameters: Any, lr: float = RATE) -> Any:
    """A client's optimiser."""
    import torch

    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, weight_decay=DECAY)


def learn(module: Any, x: Any, y: Any) -> None:
    """One client's local training."""
    import torch

    optimiser = sgd(module.parameters())
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y)).split(BATCH):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimiser.step()


def accuracy(module: Any, path: Path) -> float:
    """On the test split, in percent."""
    import numpy as np
    import torch

    with np.load(path) as file, torch.inference_mode():
        right = module(torch.from_numpy(file["x_test"])).argmax(1).numpy() == file["y_test"]
    return 100 * float(right.mean())


# --- who plays it; each in a fresh process ---


def fedscope(path: Path, engine: str) -> Measured:
    """With its own partition, which gives clients as many samples."""
    from _common import durable

    from fedscope.training import Config, train

    config = Config.read(
        {
            "data": {"name": "digits", "clients": CLIENTS, "partition": "iid"},
            "model": {"name": "mlp", "hidden": list(WIDTHS[1:])},
            "client": {"epochs": EPOCHS, "batch": BATCH, "lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY},
            "run": {
                "rounds": ROUNDS,
                "participation": 1.0,
                "evaluate_every": ROUNDS,
                "evaluate_clients": 0,
                "device": "cpu",
                "engine": engine,
            },
            "record": {"clients": "none", "globals": "last:1"},
        }
    )
    run = train(config, path.parent / f"run-{time.time_ns()}")
    error = run.round(ROUNDS).metrics["test_error"]
    assert error is not None
    return Measured.of(durable(run.path), 100 * (1 - error))


def plain(path: Path, threads: int | None) -> Measured:
    """A client after the other; ``threads`` are torch's default where None."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    parts, module, ends = clients(path), perceptron(), []
    held = sum(len(y) for _, y in parts)
    model = {name: value.clone() for name, value in module.state_dict().items()}
    for _ in range(ROUNDS):
        mean = {name: torch.zeros_like(value) for name, value in model.items()}
        for x, y in parts:
            module.load_state_dict(model)
            learn(module, x, y)
            for name, value in module.state_dict().items():
                mean[name].add_(value, alpha=len(y) / held)
        model = mean
        ends.append(time.perf_counter())
    module.load_state_dict(model)
    return Measured.of(ends, accuracy(module, path))


def flower_client(message: Any, context: Any) -> Any:
    """What a client of Flower does with the model that it was sent."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    x, y = clients(Path(message.content["config"]["path"]))[context.node_config["partition-id"]]
    module = perceptron()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    learn(module, x, y)
    told = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(told), reply_to=message)


def flower(path: Path) -> Measured:
    """Flower's simulation."""
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    ends: list[float] = []
    module = perceptron()
    client, server = ClientApp(), ServerApp()
    client.train()(flower_client)

    class Timed(FedAvg):  # type: ignore[misc]
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            assert len(replies) == CLIENTS
            assert not any(reply.has_error() for reply in replies)
            result = super().aggregate_train(server_round, replies)
            ends.append(time.perf_counter())
            return result

    @server.main()
    def main(grid: Any, context: Any) -> None:
        result = Timed(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS).start(
            grid=grid,
            initial_arrays=ArrayRecord(module.state_dict()),
            num_rounds=ROUNDS,
            train_config=ConfigRecord({"path": str(path)}),
        )
        module.load_state_dict(result.arrays.to_torch_state_dict())

    resources = {"init_args": {"num_cpus": cores()}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=resources)
    return Measured.of(ends, accuracy(module, path))


def pfl(path: Path) -> Measured:
    """pfl's simulation, of one process or, under torchrun, of several."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    ends: list[float] = []

    class Module(torch.nn.Module):
        """The perceptron, with the methods that pfl asks for; ``metrics`` is called in the first round alone."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = perceptron()

        def loss(self, x: Any, y: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.layers(x), y)

        @torch.no_grad()
        def metrics(self, x: Any, y: Any) -> Any:
            return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}

    class Stopwatch(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            ends.append(time.perf_counter())
            return False, Metrics()

    torch.manual_seed(0)  # all processes begin with the same model
    # every client's data set is made once: it keeps its batches
    users = [PyTorchTensorDataset(part, user_id=str(i)) for i, part in enumerate(clients(path))]
    data = FederatedDataset(lambda i: users[i], get_user_sampler("minimize_reuse", list(range(CLIENTS))))
    module = Module()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ROUNDS, evaluation_frequency=ROUNDS, train_cohort_size=CLIENTS, val_cohort_size=0
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        PyTorchModel(module, sgd, torch.optim.SGD(module.parameters(), lr=1.0)),
        NNTrainHyperParams(local_batch_size=BATCH, local_num_epochs=EPOCHS, local_learning_rate=RATE),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Stopwatch()],
        send_metrics_to_platform=False,
    )
    if torch.distributed.is_initialized():  # else one process in a dozen aborts at its end
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return Measured.of(ends, accuracy(module.layers, path))


# --- the frameworks' environments ---


class NotHere(Exception):
    """A framework cannot be installed, or fails."""


def environment(folder: Path, peer: Peer) -> Path:
    """The Python of a framework's environment, which is made where it is not yet there, or was for other versions.

    Raises:
        NotHere: pip could not install it; there is no Python that it runs on.
    """
    import numpy as np
    import torch

    home = (folder / peer.name.split()[0].lower()).resolve()
    python, made_for = home / "bin" / "python", home / "requirements.txt"
    ours = [f"{name}=={module.__version__.partition('+')[0]}" for name, module in (("torch", torch), ("numpy", np))]
    ours += [f"{name}=={version(name)}" for name in RECORDING if peer.has_recording]
    base, told = python_for(peer)
    wanted = "\n".join([peer.requirement, *ours, told])
    if not (made_for.exists() and made_for.read_text(encoding="utf-8") == wanted):
        print(f"{peer.name} is installed in {home}", flush=True)
        _run([base, "-m", "venv", "--clear", home], timeout=300)
        _run([python, "-m", "pip", "install", "--quiet", peer.requirement, *ours], timeout=1800)
        made_for.write_text(wanted, encoding="utf-8")
    return python


def python_for(peer: Peer) -> tuple[Path, str]:
    """A Python that a framework runs on, and what it says of its version: ours, one on the path, one of pyenv's.

    Raises:
        NotHere: none is new enough.
    """
    if sys.version_info[:2] >= peer.python:
        return Path(sys.executable), sys.version
    names = [f"python3.{minor}" for minor in range(peer.python[1], peer.python[1] + 4)]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [*filter(None, map(shutil.which, names))]
    found += [str(path) for name in names for path in sorted(pyenv.glob(f"*/bin/{name}"))]
    for python in found:
        # those that pyenv puts on the path end with an error where their version is not chosen
        asked = [python, "-c", "import ensurepip, sys; print(sys.version)"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode == 0:
            return Path(python), done.stdout.removesuffix("\n")
    oldest = ".".join(map(str, peer.python))
    raise NotHere(f"it needs Python {oldest} or newer, and neither the path nor pyenv has one")


def play(python: Path, peer: str, federation: Path, processes: int = 1, threads: int | None = None) -> Measured:
    """Let a framework play in its own environment; ``threads`` are torch's default where None.

    Raises:
        NotHere: it failed.
    """
    answer = federation.with_name(f"{peer}.json")
    answer.unlink(missing_ok=True)
    command: list[str | Path] = [python, "-m"]
    if processes > 1:
        command += ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), "-m"]
    command += [MODULE, "--play", peer, "--federation", federation, "--answer", answer]
    words = {"FLWR_HOME": str(federation.parent), "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    if threads is not None:
        words["OMP_NUM_THREADS"] = str(threads)
    _run(command, timeout=600, words=words)
    return Measured(**json.loads(answer.read_text(encoding="utf-8")))


def _run(command: Sequence[Path | str], timeout: float, words: Mapping[str, str] | None = None) -> None:
    """Run a command that finds this module; ``words`` go into its environment."""
    here = str(Path(__file__).resolve().parent)
    try:
        subprocess.run(
            list(map(str, command)),
            env={**os.environ, "PYTHONPATH": here, **(words or {})},
            cwd=here,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
    except subprocess.CalledProcessError as error:
        said = [line.strip() for line in error.stdout.splitlines() if any(map(str.isalpha, line))]
        raise NotHere((said or [f"ended with {error.returncode}"])[-1][:100]) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(str(error)[:100]) from error


def _play(peer: str, federation: Path, answer: Path) -> None:
    """In a framework's environment: play, and leave the answer; of several processes the first one does."""
    # from the module by its name, so that Flower's workers find functions there instead of being sent them every time
    import against_frameworks

    found = getattr(against_frameworks, peer)(federation)
    if os.environ.get("RANK", "0") == "0":
        answer.write_text(json.dumps({"rate": found.rate, "accuracy": found.accuracy}), encoding="utf-8")


# --- all together ---


@dataclass(frozen=True)
class Contestant:
    """Who is measured.

    Attributes:
        measure: given the Python of the framework's environment, or ours.
        target: how many times as many rounds a second fedscope shall make; None where it is only told.
    """

    name: str
    measure: Callable[[Path], Measured]
    target: float | None = None
    peer: Peer | None = None


def contestants(federation: Path) -> list[Contestant]:
    """All of them, fedscope first."""
    everybody = [
        Contestant("fedscope", lambda _: in_fresh_process(fedscope, federation, "auto")),
        Contestant('fedscope, engine "threads"', lambda _: in_fresh_process(fedscope, federation, "threads")),
        Contestant("plain loop, torch's default threads", lambda _: in_fresh_process(plain, federation, None), 1.7),
        Contestant("plain loop, one thread", lambda _: in_fresh_process(plain, federation, 1)),
        Contestant(FLOWER.name, lambda python: play(python, "flower", federation), 5.0, FLOWER),
        Contestant(f"{PFL.name}, torch's default threads", lambda python: play(python, "pfl", federation), 1.0, PFL),
        Contestant(f"{PFL.name}, one thread", lambda python: play(python, "pfl", federation, threads=1), 1.0, PFL),
    ]
    if cores() > 1:
        name = f"{PFL.name}, a process of one thread a core"
        everybody.append(Contestant(name, lambda python: play(python, "pfl", federation, cores(), 1), 1.0, PFL))
    return everybody


def main(repetitions: int, folder: Path) -> None:
    """Measure and print."""
    pythons: dict[Peer | None, Path] = {None: Path(sys.executable)}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        everybody = contestants(write_federation(Path(name, "federation.npz")))
        for peer in (FLOWER, PFL):
            try:
                pythons[peer] = environment(folder, peer)
            except NotHere as why:
                failed |= {one.name: str(why) for one in everybody if one.peer is peer}
        found: dict[str, list[Measured]] = {one.name: [] for one in everybody}
        for _ in range(repetitions):
            for one in everybody:
                if one.name not in failed:
                    try:
                        found[one.name].append(one.measure(pythons[one.peer]))
                    except NotHere as why:
                        failed[one.name] = str(why)
    own = found[everybody[0].name]
    lines: list[Line] = []
    for one in everybody:
        if one.name in failed:
            lines.append(Line(f"{one.name}: not measured", failed[one.name]))
        else:
            lines += _lines(one, found[one.name], own)
    means = [statistics.fmean(each.accuracy for each in found[one.name]) for one in everybody if one.name not in failed]
    apart = max(means) - min(means)
    lines.append(Line("all: mean test accuracies apart, points", f"{apart:.1f}", f"<= {APART:g}", apart <= APART))
    table(f"{ROUNDS} rounds of {CLIENTS} clients, fedscope against frameworks, {repetitions} times", lines)


def _lines(one: Contestant, found: Sequence[Measured], own: Sequence[Measured]) -> list[Line]:
    lines = [Line(f"{one.name}: rounds a second", spread([each.rate for each in found]))]
    if found is not own:
        ratios = [a.rate / b.rate for a, b in zip(own, found, strict=False)]
        middle, wanted = statistics.median(ratios), one.target
        lines.append(
            Line(
                "  fedscope's, times as many",
                spread(ratios),
                "" if wanted is None else f">= {wanted:g}",
                None if wanted is None else middle >= wanted,
            )
        )
    return [*lines, Line("  test accuracy, %", spread([each.accuracy for each in found], "{:.1f}"))]


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--repetitions", type=int, default=3)
    words.add_argument("--peers", type=Path, default=Path(__file__).parent / ".peers")
    for word in ("--play", "--federation", "--answer"):  # how it calls itself in the frameworks' environments
        words.add_argument(word, help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.play:
        _play(given.play, Path(given.federation), Path(given.answer))
    else:
        main(given.repetitions, given.peers)
