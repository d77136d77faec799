"""How much memory analyses of a recorded run take beside the interpreter, in units of one round's clients.

Two runs on the digits, three rounds of ten clients each, are trained: one of a larger network (`mlp`, hidden =
[1536, 1536]: 2.5 million parameters, 99 MB of clients a round) and one of a tiny network. `fedscope plane RUN --rounds
1,2,last` and `fedscope decompose RUN --rounds 1,2,last --draws local:2` run on both as subprocesses. What a command
takes for the larger run beyond the tiny one is what the models cost; interpreter, torch, matplotlib and samples are in
both. A plane holds three models at a time, however many points it has, so its target is one round's clients. A
decomposition of R draws asks for R cohorts at once, and each worker trains on a copy of the model and its gradient:
R + 1 rounds' clients are allowed.

    python benchmarks/analysis_memory.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _common import Line, fedscope_command, peak_of_tree, table

CLIENTS, DRAWS, ROUNDS = 10, 2, 3
HIDDEN = {"large": [1536, 1536], "tiny": [4]}
FINE = 21
COMMANDS = {
    "plane": ["plane", "--rounds", "1,2,last", "--grid", "3"],
    f"plane of {FINE} x {FINE} points": ["plane", "--rounds", "1,2,last", "--grid", str(FINE)],
    "decompose": ["decompose", "--rounds", "1,2,last", "--draws", f"local:{DRAWS}"],
}


def peak_of(words: Sequence[str | Path], folder: str) -> int:
    """The peak memory of a command in bytes."""
    with Path(folder, "log.txt").open("w+", encoding="utf-8") as log:
        process, peak = subprocess.Popen(words, stdout=log, stderr=log), 0
        while process.poll() is None:
            peak = max(peak, peak_of_tree(process.pid))
            time.sleep(0.01)
        if process.returncode:
            log.seek(0)
            sys.exit(f"{' '.join(map(str, words))} ended with {process.returncode}:\n{log.read()}")
    return peak


def main() -> None:
    """Measure and print."""
    from fedscope.training import Config, train

    peaks: dict[tuple[str, str], int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size, hidden in HIDDEN.items():
            config = Config.read(
                {
                    "data": {"clients": CLIENTS, "partition": "iid"},
                    "model": {"hidden": hidden},
                    "client": {"epochs": 1},
                    "run": {"rounds": ROUNDS, "participation": 1.0},
                }
            )
            run = train(config, Path(folder, size))
            if size == "large":
                model = run.layout.size * run.layout.dtype.itemsize / 1e6
            for command, (name, *options) in COMMANDS.items():
                out = Path(folder, f"{size}-{len(peaks)}")
                words: list[str | Path] = [fedscope_command(), name, run.path, *options, "--out", out]
                peaks[command, size] = peak_of(words, folder)
    cohort = CLIENTS * model
    allowed = {name: DRAWS + 1.0 if name == "decompose" else 1.0 for name in COMMANDS}
    lines = [Line("one round's clients, MB", f"{cohort:.0f}")]
    for command in COMMANDS:
        large, tiny = peaks[command, "large"] / 1e6, peaks[command, "tiny"] / 1e6
        ratio = (large - tiny) / cohort
        lines += [
            Line(f"{command}: peak, MB", f"{large:.0f}"),
            Line(f"{command}: of a tiny run, MB", f"{tiny:.0f}"),
            Line(
                f"{command}: beyond it, rounds of clients",
                f"{ratio:.2f}",
                f"<= {allowed[command]:.0f}",
                tiny > 0 and ratio <= allowed[command],
            ),
        ]
    table(f"Memory of analyses: {', '.join(COMMANDS)} of {ROUNDS} rounds of {CLIENTS} clients", lines)


if __name__ == "__main__":
    main()
