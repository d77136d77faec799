"""Memory of a round whose clients lie on the disk, trained and aggregated again, and what putting them there costs.

200 clients of a perceptron of 11.1 million parameters (44 MB each, 8.9 GB a round), each trained for one step on seven
of the digits: the training is nearly nothing, so that what is measured is what happens to the models. Two rounds of
which the second records its clients, by one core, because every further one trains in a working set of its own (0.3 GB
here), and by all; then `fedscope reaggregate` with FMA, and with FMA and FedAdam. Peaks are of the process and its
children. A round is on the disk twice for a while: where there is no room for 3 rounds, 50 clients are taken, and that
is said.

Then the time: a round of 20 such clients, recorded, with its clients on the disk and in memory, in turn, each in a
process of its own, from the first client to the round's file; and reaggregation beside reading the round's file once.

    python benchmarks/streaming.py [repetitions]
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _common import Line, fedscope_command, in_fresh_process, read_seconds, spread, table
from analysis_memory import peak_of

CLIENTS, FEWER, COMPARED = 200, 50, 20
HIDDEN = "[3300, 3300]"
LIMIT, MODEL = 1e9, 4 * 11_140_810


def words_of(clients: int, rounds: int) -> list[str]:
    """The settings of a run."""
    words = ["--method", "fma", "--data", "digits", "--partition", "iid", "--participation", "1", "--epochs", "1"]
    words += ["--clients", str(clients), "--rounds", str(rounds), "--set", f"model.hidden={HIDDEN}"]
    return [*words, "--set", "record.clients=last:1", "--set", "run.evaluate_clients=20"]


def round_seconds(clients: int, held: int, folder: str) -> float:
    """Of a round after a first one, from its first client to its file."""
    from fedscope.training import Config, train
    from fedscope.training.local import cohort_storage as cohort_room
    from fedscope.training.local.profile import ROUND, Profile

    cohort_room.HELD = held
    profile = Profile()
    config = Config.read(
        {
            "data": {"clients": clients, "partition": "iid"},
            "model": {"hidden": [3300, 3300]},
            "client": {"epochs": 1},
            "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 20},
        }
    )
    with tempfile.TemporaryDirectory(dir=folder) as own:
        train(config, Path(own, "run"), profile=profile)
    return next(span.seconds for span in profile.spans if (span.part, span.round) == (ROUND, 2))


def main(repetitions: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        free = shutil.disk_usage(folder).free
        clients = CLIENTS if free > 3 * CLIENTS * MODEL else FEWER
        if clients < CLIENTS:
            print(f"{folder} has {free / 1e9:.0f} GB free, too little for 3 x {CLIENTS} models: {clients} are taken")
        first, run, cohort = Path(folder, "first"), Path(folder, "run"), clients * MODEL
        core = str(min(os.sched_getaffinity(0)))
        lines = [Line("one round's clients, GB", f"{cohort / 1e9:.1f}")]
        trained, again = ["train", *words_of(clients, 2), "--out"], ["reaggregate", f"{run}@2", "--server", "fma"]
        commands: dict[str, list[str | Path]] = {
            "train, one core": [*trained, first],
            "train, all cores": [*trained, run],
            "reaggregate, fma": [*again, "--out", Path(folder, "fma")],
            "reaggregate, fma and fedadam": [*again, "--server", "fedadam", "--out", Path(folder, "two")],
        }
        for what, words in commands.items():
            began = time.perf_counter()
            alone = ["taskset", "-c", core] if "one core" in what else []
            peak = peak_of([*alone, fedscope_command(), *words], folder)
            spent = time.perf_counter() - began
            lines.append(Line(f"{what}: peak, GB", f"{peak / 1e9:.2f}", f"<= {LIMIT / 1e9:.0f}", peak <= LIMIT))
            lines.append(Line("  as a share of the round's clients", f"{peak / cohort:.1%}"))
            lines.append(Line("  seconds", f"{spent:.0f}"))
            shutil.rmtree(first, ignore_errors=True)
        seconds = read_seconds(run / "rounds" / "00002.h5")
        lines.append(Line("reading the round's file once, seconds", f"{seconds:.1f}"))
        shutil.rmtree(run)
        took: dict[str, list[float]] = {"on the disk": [], "in memory": []}
        for _ in range(repetitions):
            for way, held in (("on the disk", 0), ("in memory", 2**62)):
                took[way].append(in_fresh_process(round_seconds, COMPARED, held, folder))
        for way, values in took.items():
            lines.append(Line(f"a recorded round of {COMPARED} clients, {way}: seconds", spread(values)))
        ratio = statistics.median(a / b for a, b in zip(*took.values(), strict=True))
        lines.append(Line("  on the disk over in memory", f"{ratio:.2f}"))
    table(f"Rounds on the disk: {clients} clients of {MODEL / 4e6:.1f} million parameters", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
