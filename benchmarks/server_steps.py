"""What a method does on the server, beside the clients' local training: for every server, client and average.

20 clients of ResNet-18 (3 x 3 stem, GroupNorm, 10 classes; 11.2 million parameters, 62 layers), FedSA's set-up. A new
process for each server makes 20 rows that scatter about one model and takes its first step for the memory beyond rows
and state, then a few more for the time. FedSA is asked three times: as in its paper; with `quantile = 0.99`; and with
`quantile = 0.5`, where nearly all entries are of high dispersion, which is the most that it can have to do.

A round's local training is measured on the same machine and not run to its end: a few steps of fedscope's own local SGD
(batch 50 of 3 x 32 x 32), one single-threaded worker a core as in a run, times the steps of a round: 20 clients x 1
epoch x 1,875 samples (three quarters of CIFAR-10's 50,000, split in 20) in batches of 50, over the workers.

Memory is told in models (P numbers of 4 bytes), the step's result among them, and for FedSA also in float64 copies of
the largest layer of all clients.

Client methods: what :meth:`share` takes, given the models that came back and the average of the messages, where the
method has any. Averages over rounds: one round's, with the earlier globals in memory.

    python benchmarks/server_steps.py [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import time
from math import ceil
from typing import Any

from _common import (
    CLASSES,
    IMAGE,
    Line,
    cores,
    in_fresh_process,
    memory_from_now,
    peak_memory,
    random_clients,
    spread,
    table,
)

SHARE, LAYERS = 0.10, 1.5
CLIENTS, OWN, BATCH = 20, 1_875, 50
FEDSA: dict[str, dict[str, float]] = {
    "fedsa, quantile = 0.99": {"quantile": 0.99},
    "fedsa, quantile = 0.5": {"quantile": 0.5},
}


def resnet18() -> Any:
    """ResNet-18 as federated papers use it for images of 32 x 32."""
    from fedscope.training.settings.registry import find

    return find("models", "resnet18-gn")(projector=0).build(IMAGE, CLASSES)


def local_step(steps: int) -> float:
    """Seconds of one local step while all workers are at work."""
    import numpy as np
    import torch

    from fedscope.checkpoints import Layout
    from fedscope.evaluation.device import run_in_workers
    from fedscope.training.build import initial_model
    from fedscope.training.local.local_training import LocalTask, local_sgd
    from fedscope.training.local.worker_model import TrainableModel
    from fedscope.training.methods.base import LocalSchedule
    from fedscope.training.methods.clients.sgd import SGD
    from fedscope.training.models.model_info import ModelInfo

    module = resnet18()
    x = torch.randn(steps * BATCH, *IMAGE).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, CLASSES, (len(x),))
    start, facts = initial_model(module), ModelInfo(Layout.of(module), CLASSES, CLIENTS)

    def train(samples: int, bench: Any, _: Any) -> float:
        indices = np.arange(samples)
        task = LocalTask(1, 0, x, y, indices, start, LocalSchedule(0.01, 1), seed=0, facts=facts, bench=bench)
        began = time.perf_counter()
        update = local_sgd(task, SGD(batch=BATCH))
        return (time.perf_counter() - began) / update.steps

    # the first round of tasks warms up
    each = [*run_in_workers(train, [BATCH] * cores() + [len(x)] * cores(), make=lambda: TrainableModel(module))]
    return statistics.mean(each[cores() :])


def server_step(name: str, repetitions: int) -> tuple[list[float], int, int, int]:
    """Seconds of a server's steps, the bytes that its first one takes, P, and the entries of the largest layer."""
    import torch

    from fedscope.training.build import initial_model
    from fedscope.training.settings.registry import find

    torch.manual_seed(0)
    module = resnet18()
    method = find("servers", name.partition(",")[0])(**FEDSA.get(name, {}))
    start, clients = initial_model(module), random_clients(module, CLIENTS)
    cohort = whole_cohort()
    state = method.init(start.parameters)
    before = memory_from_now()
    state = method.step(state, start, clients, cohort).state
    taken = peak_memory() - before
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        state = method.step(state, start, clients, cohort).state
        seconds.append(time.perf_counter() - began)
    sizes = [where.stop - where.start for where in clients.layout.slices.values()]
    return seconds, taken, clients.layout.size, max(sizes)


def whole_cohort() -> Any:
    """All clients, equal ones."""
    import numpy as np

    from fedscope.training.methods.base import Cohort

    steps, everybody = ceil(OWN / BATCH), np.full(CLIENTS, 1.0)
    return Cohort(
        round=2,
        client_ids=np.arange(CLIENTS),
        samples=np.full(CLIENTS, OWN),
        steps=np.full(CLIENTS, steps),
        p=everybody / CLIENTS,
        clients=CLIENTS,
        lr=0.01,
        reach=0.01 * steps * everybody,
        label_counts=np.full((CLIENTS, CLASSES), OWN // CLASSES),
    )


def client_share(name: str, repetitions: int) -> list[float]:
    """Seconds of what a client method has the server do after a round; its messages are those of a real short one."""
    from dataclasses import replace

    import numpy as np
    import torch

    from fedscope.checkpoints import Layout
    from fedscope.training import Config, Engine
    from fedscope.training.build import initial_model
    from fedscope.training.local.local_training import LocalTask
    from fedscope.training.methods.base import Exchange, LocalSchedule
    from fedscope.training.models.model_info import ModelInfo

    torch.manual_seed(0)
    module = resnet18()
    method: Any = Config.read({"client": {"method": name, "batch": 2}}).client
    start, clients = initial_model(module), random_clients(module, CLIENTS)
    facts = ModelInfo(Layout.of(module), CLASSES, CLIENTS, head="fc")
    x, y = torch.randn(2, *IMAGE), torch.tensor([0, 1])
    sent = method.begin(start, facts)
    task = LocalTask(2, 0, x, y, np.arange(2), start, LocalSchedule(0.001, 1), seed=0, facts=facts, sent=sent)
    engine = Engine(module)
    surveyed = engine.survey(method, [task], np.ones(1)) if method.surveys else {}
    message = engine.train(method, [replace(task, surveyed=surveyed)], np.ones(1)).message
    exchange = Exchange(start, clients, clients.row(0), whole_cohort(), facts, message, surveyed)
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        sent = method.share(sent, exchange)
        seconds.append(time.perf_counter() - began)
    return seconds


def average_step(name: str, repetitions: int) -> list[float]:
    """Seconds of an average over rounds, in a round in which it averages."""
    from fedscope.training import Config
    from fedscope.training.methods.base import History
    from fedscope.training.models.model_info import ModelInfo

    own = {"swa": {"start": 2, "cycle": 2}, "ima": {"start": 1}, "wima": {"window": 5}}.get(name, {})
    method = Config.read({"average": {"method": name, **own}}).average
    rows = random_clients(resnet18(), 12)
    history = History(lambda t: rows.row(t - 1), ModelInfo(rows.layout))
    state: Any = {}
    seconds = []
    for t in range(1, 9 + repetitions):
        began = time.perf_counter()
        state = method.average(state, t, rows.row(min(t, 12) - 1), history).state
        seconds.append(time.perf_counter() - began)
    return seconds[8:]


def main(repetitions: int) -> None:
    """Measure and print."""
    from fedscope.training.methods.base import ClientMethod
    from fedscope.training.settings.registry import find, names

    before = in_fresh_process(local_step, 3)
    measured = {name: in_fresh_process(server_step, name, repetitions) for name in [*names("servers"), *FEDSA]}
    sharing = [name for name in names("clients") if find("clients", name).share is not ClientMethod.share]
    shared = {name: in_fresh_process(client_share, name, repetitions) for name in sharing}
    averages = [name for name in names("averages") if name != "none"]
    averaged = {name: in_fresh_process(average_step, name, repetitions) for name in averages}
    step = statistics.mean([before, in_fresh_process(local_step, 3)])
    round_ = CLIENTS * ceil(OWN / BATCH) * step / cores()
    lines = [
        Line("local step of 50 images, all workers at work, seconds", f"{step:.2f}"),
        Line(f"so a round's local training on {cores()} workers, seconds", f"{round_:.0f}"),
    ]
    for name, (seconds, taken, size, largest) in measured.items():
        share = statistics.median(seconds) / round_
        lines += [
            Line(f"{name}: seconds", spread(seconds)),
            Line(f"{name}: share of the round", f"{share:.2%}", f"<= {SHARE:.0%}", share <= SHARE),
            Line(f"{name}: memory, models", f"{taken / (4 * size):.1f}"),
        ]
        if name.startswith("fedsa"):
            copies = taken / (8 * CLIENTS * largest)
            lines.append(
                Line(f"{name}: memory, largest layers x clients", f"{copies:.2f}", f"<= {LAYERS}", copies <= LAYERS)
            )
    for kind, each in (("client", shared), ("average", averaged)):
        for name, own in each.items():
            share = statistics.median(own) / round_
            lines += [
                Line(f"{kind} {name}: seconds", spread(own)),
                Line(f"{kind} {name}: share of the round", f"{share:.2%}", f"<= {SHARE:.0%}", share <= SHARE),
            ]
    table(f"Server steps: {CLIENTS} clients x {size / 1e6:.1f} million parameters", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
