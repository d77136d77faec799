"""How soon `fedscope --help` answers, beside an empty Python started in turn with it; the median of ten counts.

python benchmarks/start.py [times]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from _common import Line, fedscope_command, spread, table

TARGET = 0.3


def main(times: int) -> None:
    """Measure and print."""

    def seconds(command: Sequence[str | Path]) -> float:
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began

    commands: dict[str, list[str | Path]] = {
        "fedscope --help": [fedscope_command(), "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    for command in commands.values():
        seconds(command)  # the first one reads the files and compiles them
    took = {name: [0.0] * times for name in commands}
    for i in range(times):
        for name, command in commands.items():
            took[name][i] = seconds(command)
    help_, empty = took.values()
    middle = statistics.median(help_)
    table(
        f"Start: {times} times",
        [
            Line("fedscope --help, seconds", spread(help_, "{:.3f}"), f"< {TARGET}", middle < TARGET),
            Line("python -c pass, seconds", spread(empty, "{:.3f}")),
            Line("ratio", f"{middle / statistics.median(empty):.1f}"),
        ],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
