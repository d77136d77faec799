"""What recording adds to a round of NVFlare, of pfl and of BlazeFL.

The source papers' CNN (3 x 32 x 32), 500 samples a client in batches of 50, 1 local epoch: 4 clients in NVFlare's
simulator (2.9.0, `FedAvg`, a process a client), 10 users in pfl's (0.6.0, `FederatedAveraging`, one process) and 10
clients in BlazeFL's (2.0.3, `FedAvgBaseServerHandler`, one process; needs Python 3.12). Recorded rounds and plain ones
take turns in one simulation; a round is the time from one's end to the next, the first two are left out. Rounds against
rounds are mostly noise. What counts is counted inside: the time of the recorder's calls, for
which clients wait, and the processor time of the thread that writes, which it takes from them at worst. Both, as a
share of the plain round, are what recording adds.

Memory is the peak of the server's process, in simulations that do not train and whose rounds are all recorded, less
that of those whose rounds are all plain, in rounds of clients.

The frameworks have the environments of `against_frameworks.py`, made once in `benchmarks/.peers`; fedscope and what
recording needs come beside them on the path.

    python benchmarks/recording_frameworks.py [pairs [nvflare] [pfl] [blazefl]]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _common import Line, peak_memory, spread, table
from against_frameworks import BLAZEFL, NVFLARE, PFL, NotHere, Peer, environment
from recording_flower import BATCH, HERE, LOADING, OWN, beside, cnn, noise

# Imported by the frameworks' own Pythons, too, which have fedscope but not what it trains with.

TARGET, MEMORY = 0.05, 2.0
#: whose memory is measured
HELD = 10
CLIENTS = {NVFLARE.name: 4, PFL.name: 10, BLAZEFL.name: 10}
FUNCTIONS = {NVFLARE.name: "play_nvflare", PFL.name: "play_pfl", BLAZEFL.name: "play_blazefl"}


# --- in a framework's environment ---


class WriterTime:
    """The processor time that the thread which writes has taken, for each round that it wrote.

    Loads what writes, so that simulations that record nothing have it, too.
    """

    def __init__(self) -> None:
        import numpy as np

        import fedscope
        from fedscope.checkpoints.io.background import Background

        with tempfile.TemporaryDirectory() as name, fedscope.Recorder(Path(name) / "run") as recorder:
            recorder.round(clients=[{"w": np.zeros(3, np.float32)}])
        self.seconds: list[float] = []
        own = Background._do

        def do(background: Any, work: Any) -> None:
            began = time.thread_time()
            own(background, work)
            self.seconds.append(time.thread_time() - began)

        Background._do = do  # type: ignore[method-assign]


def learn(module: Any, client: int, epochs: int) -> None:
    """One client's local training."""
    import torch

    x, y = noise(client)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(epochs):
        for rows in torch.randperm(OWN).split(BATCH):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimiser.step()


NVFLARE_CLIENT = """
import sys
import numpy as np
import nvflare.client as flare
sys.path.insert(0, {here!r})
flare.init()
k = int(flare.get_site_name().rpartition("-")[2])
if {epochs}:
    import torch
    from recording_frameworks import cnn, learn
    torch.set_num_threads(1)
while flare.is_running():
    got = flare.receive()
    sent = {{name: np.array(value) + 1 for name, value in got.params.items()}}
    if {epochs}:
        module = cnn()
        module.load_state_dict({{name: torch.from_numpy(value) for name, value in sent.items()}})
        learn(module, k, {epochs})
        sent = {{name: value.numpy() for name, value in module.state_dict().items()}}
    flare.send(flare.FLModel(params=sent, meta={{"NUM_STEPS_CURRENT_ROUND": 10}}))
"""


def play_nvflare(folder: Path, epochs: int, turns: str) -> dict[str, Any]:
    """A job, some of whose rounds are recorded; its server tells what that took."""
    from _nvflare_timed import TimedRecorder
    from nvflare.app_common.workflows.fedavg import FedAvg
    from nvflare.client.config import ExchangeFormat
    from nvflare.job_config.api import FedJob
    from nvflare.job_config.script_runner import ScriptRunner

    clients = CLIENTS[NVFLARE.name] if epochs else HELD
    first = {name: value.numpy().tolist() for name, value in cnn().state_dict().items()}
    (folder / "first.json").write_text(json.dumps(first), encoding="utf-8")
    (folder / "client.py").write_text(NVFLARE_CLIENT.format(here=str(HERE), epochs=epochs), encoding="utf-8")
    job = FedJob(name="job", min_clients=clients)
    job.set_app_packages(["fedscope", "_nvflare_timed", "_nvflare_first"])
    from _nvflare_first import First

    job.to_server(First(str(folder / "first.json")), id="persistor")
    job.to_server(FedAvg(num_clients=clients, num_rounds=len(turns), persistor_id="persistor", task_check_period=0.1))
    job.to_server(TimedRecorder(str(folder / "run"), turns, str(folder / "told.json")), id="fedscope")
    runner = {"server_expected_format": ExchangeFormat.NUMPY, "framework": "raw"}
    job.to_clients(ScriptRunner(script=str(folder / "client.py"), **runner))
    job.simulator_run(str(folder / "workspace"), n_clients=clients, threads=clients)
    return dict(json.loads((folder / "told.json").read_text(encoding="utf-8")))


def play_pfl(folder: Path, epochs: int, turns: str) -> dict[str, Any]:
    """A simulation, some of whose rounds are recorded."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    import fedscope

    torch.set_num_threads(1)
    clients, writer = CLIENTS[PFL.name], WriterTime()
    calls, ends, inside = [0.0] * len(turns), [], [0.0]

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = cnn()

        def loss(self, x: Any, y: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.layers(x), y)

        def metrics(self, x: Any, y: Any) -> Any:
            return {}

    class Timed(FederatedAveraging):  # type: ignore[misc, unused-ignore]
        def train_one_user(self, *given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            made = super().train_one_user(*given, **named)
            inside[0] += time.perf_counter() - began
            return made

        def process_aggregated_statistics_from_all_contexts(self, *given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            made = super().process_aggregated_statistics_from_all_contexts(*given, **named)
            inside[0] += time.perf_counter() - began
            return made

    algorithm = Timed()
    plain = {name: getattr(algorithm, name) for name in ("train_one_user", PROCESS)}
    fedscope.record_pfl(algorithm, folder / "run")
    recorded = {name: getattr(algorithm, name) for name in plain}

    def turn(name: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            number = len(ends)
            inside[0], began = 0.0, time.perf_counter()
            made = (recorded if turns[number] == "r" else plain)[name](*given, **named)
            calls[number] += time.perf_counter() - began - inside[0]
            if name == PROCESS:
                ends.append(time.perf_counter())
            return made

        return call

    for name in plain:
        setattr(algorithm, name, turn(name))
    users = [PyTorchTensorDataset(list(noise(k)), user_id=str(k)) for k in range(clients)]
    data = FederatedDataset(lambda k: users[k], get_user_sampler("minimize_reuse", list(range(clients))))
    module = Module()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    params = {"evaluation_frequency": 10**9, "train_cohort_size": clients, "val_cohort_size": 0}
    steps: dict[str, Any] = {"local_num_epochs": epochs} if epochs else {"local_num_epochs": None, "local_num_steps": 1}
    algorithm.run(
        NNAlgorithmParams(central_num_iterations=len(turns), **params),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(local_batch_size=BATCH, local_learning_rate=0.01, **steps),
        send_metrics_to_platform=False,
    )
    assert algorithm.recorder.rounds == turns.count("r")
    return {"ends": ends, "calls": calls, "written": writer.seconds, "peak": peak_memory()}


def play_blazefl(folder: Path, epochs: int, turns: str) -> dict[str, Any]:
    """A simulation, some of whose rounds are recorded."""
    import torch
    from blazefl.contrib.fedavg import FedAvgBaseClientTrainer, FedAvgBaseServerHandler, FedAvgUplinkPackage
    from torch.utils.data import DataLoader, TensorDataset

    import fedscope

    torch.set_num_threads(1)
    clients, writer = CLIENTS[BLAZEFL.name] if epochs else HELD, WriterTime()
    calls, ends, inside = [0.0] * len(turns), [], [0.0]

    class Selector:
        def select_model(self, name: str) -> Any:
            return cnn()

    class Data:
        def get_dataloader(self, cid: int, batch_size: int, **named: Any) -> Any:
            return DataLoader(TensorDataset(*noise(cid)), batch_size, shuffle=True)

    class Timed(FedAvgBaseServerHandler):  # type: ignore[misc, unused-ignore]
        get_summary = None  # nothing is evaluated, so that a round is recorded as it ends

        def downlink_package(self) -> Any:
            began = time.perf_counter()
            made = super().downlink_package()
            inside[0] += time.perf_counter() - began
            return made

        def global_update(self, buffer: Any) -> None:
            began = time.perf_counter()
            super().global_update(buffer)
            inside[0] += time.perf_counter() - began

    class Still(FedAvgBaseClientTrainer):  # type: ignore[misc, unused-ignore]
        def train(self, model_parameters: Any, train_loader: Any, cid: int) -> Any:
            if epochs:
                return super().train(model_parameters, train_loader, cid)
            return FedAvgUplinkPackage(cid, model_parameters + 1, OWN)

    about: dict[str, Any] = {"global_round": len(turns), "num_clients": clients, "sample_ratio": 1.0, "seed": 0}
    handler: Any = Timed(Selector(), "cnn", Data(), device="cpu", batch_size=BATCH, **about)
    trainer = Still(Selector(), "cnn", Data(), "cpu", clients, epochs, BATCH, 0.01, 0)
    names = ("downlink_package", "load", "global_update", "sample_clients")
    plain = {name: getattr(handler, name) for name in names}
    fedscope.record_blazefl(handler, folder / "run")
    recorded = {name: getattr(handler, name) for name in names}

    def turn(name: str) -> Any:
        def call(*given: Any) -> Any:
            number = len(ends)
            inside[0], began = 0.0, time.perf_counter()
            made = (recorded if turns[number] == "r" else plain)[name](*given)
            if name in ("downlink_package", "global_update"):  # the latter is within load
                calls[number] += time.perf_counter() - began - inside[0]
            if name == "global_update":
                ends.append(time.perf_counter())
            return made

        return call

    for name in names:
        setattr(handler, name, turn(name))
    while not handler.if_stop():
        cohort = handler.sample_clients()
        trainer.local_process(handler.downlink_package(), cohort)
        for one in trainer.uplink_package():
            handler.load(one)
    assert handler.recorder.rounds == turns.count("r")
    return {"ends": ends, "calls": calls, "written": writer.seconds, "peak": peak_memory()}


PROCESS = "process_aggregated_statistics_from_all_contexts"


def answer(function: str, folder: str, epochs: str, turns: str) -> None:
    """Play as the words say, and leave the answer."""
    found = globals()[function](Path(folder), int(epochs), turns)
    Path(folder, "answer.json").write_text(json.dumps(found), encoding="utf-8")


# --- in ours ---


def played(python: Path, peer: Peer, home: Path, epochs: int, turns: str) -> dict[str, Any]:
    """A simulation in a framework's environment: of each letter a round, "r" recorded."""
    folder = Path(tempfile.mkdtemp(dir=home))
    words = {"PYTHONPATH": f"{HERE}{os.pathsep}{home / FUNCTIONS[peer.name]}"}
    code = "import sys, recording_frameworks; recording_frameworks.answer(*sys.argv[1:])"
    done = subprocess.run(
        [python, "-c", code, FUNCTIONS[peer.name], folder, str(epochs), turns],
        cwd=folder,
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode or not (folder / "answer.json").exists():
        sys.exit(f"{peer.name} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return dict(json.loads((folder / "answer.json").read_text(encoding="utf-8")))


def lines_of(peer: Peer, found: Mapping[str, Any], turns: str) -> list[Line]:
    """The figures of a simulation."""
    whole = [after - before for before, after in zip([0.0, *found["ends"]], found["ends"], strict=False)]
    plain = [whole[i] for i in range(LOADING, len(turns)) if turns[i] == "p"]
    calls = [found["calls"][i] for i in range(LOADING, len(turns)) if turns[i] == "r"]
    written = found["written"][-len(calls) :]
    added = [(held + wrote) / statistics.median(plain) for held, wrote in zip(calls, written, strict=True)]
    return [
        Line(f"{peer.name}: plain round, seconds", spread(plain)),
        Line("  the recorder's calls, seconds", spread(calls, "{:.4f}")),
        Line("  processor time of its thread, seconds", spread(written, "{:.4f}")),
        Line("  added, by both", spread(added, "{:+.2%}"), f"<= {TARGET:.0%}", statistics.median(added) <= TARGET),
    ]


def memory_of(python: Path, peer: Peer, home: Path) -> list[Line]:
    """What recording holds."""
    size = HELD * sum(value.numel() * value.element_size() for value in cnn().state_dict().values())
    recorded, plain = (played(python, peer, home, 0, letter * 6)["peak"] for letter in "rp")
    rounds = (recorded - plain) / size
    label = f"  memory added, in rounds of clients ({size / 1e6:.0f} MB)"
    return [Line(label, f"{rounds:.2f}", f"<= {MEMORY:g}", rounds <= MEMORY)]


def main(pairs: int, words: Sequence[str]) -> None:
    """Measure and print, of those whose names begin with a word, or of all."""
    peers = [peer for peer in (NVFLARE, PFL, BLAZEFL) if not words or peer.name.lower().startswith(tuple(words))]
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for peer in peers:
            beside(home / FUNCTIONS[peer.name], peer)
            try:
                python = environment(HERE / ".peers", peer)
            except NotHere as why:
                lines.append(Line(f"{peer.name} cannot be installed", str(why)))
                continue
            turns = "pp" + "rp" * pairs
            lines += lines_of(peer, played(python, peer, home, 1, turns), turns)
            lines += memory_of(python, peer, home)
    table(f"Recording other frameworks: the papers' CNN, {OWN} samples a client", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4, sys.argv[2:])
