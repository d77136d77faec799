"""How long the whole demo takes, and how much memory.

`fedscope demo --force` in a temporary folder, as a user starts it: two federations trained, every figure computed and
drawn. Memory is the peak of the process and of all processes it started, added up, looked at every 0.1 s.

    python benchmarks/demo.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import Line, fedscope_command, peak_of_tree, table

SECONDS, BYTES = 240, 2e9


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.txt")
        began, peak = time.perf_counter(), 0
        steps: list[tuple[float, str]] = []
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [fedscope_command(), "demo", "--force"], cwd=folder, stdout=file, stderr=subprocess.STDOUT
            )
            while process.poll() is None:
                peak = max(peak, peak_of_tree(process.pid))
                time.sleep(0.1)
                said = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("$ ")]
                steps += [(time.perf_counter(), line) for line in said[len(steps) :]]
        ended = time.perf_counter()
        if process.returncode:
            print(log.read_text(encoding="utf-8"), file=sys.stderr)
        figures = sum(1 for _ in Path(folder, "demo").rglob("*.pdf"))
    took = ended - began
    ends = [when for when, _ in steps[1:]] + [ended]
    each = [
        Line("  " + " ".join(line.split()[2:5]), f"{end - start:.1f}")
        for (start, line), end in zip(steps, ends, strict=True)
    ]
    done = process.returncode == 0
    table(
        "Demo: fedscope demo --force" + ("" if done else f" (ended with {process.returncode})"),
        [
            Line("seconds", f"{took:.0f}", f"<= {SECONDS}", done and took <= SECONDS),
            *each,
            Line("peak memory, GB", f"{peak / 1e9:.2f}", f"< {BYTES / 1e9:.0f}", done and 0 < peak < BYTES),
            Line("figures", str(figures)),
        ],
    )


if __name__ == "__main__":
    main()
