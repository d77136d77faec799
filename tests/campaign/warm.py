"""Command lines, each in a fork of a process that has imported everything: a tenth of a second a case, not four.

Run as a program it reads a JSON line a case, ``{"folder", "words", "seconds", "bytes"}``, and answers with one,
``{"status", "signal", "late", "peak"}``; what a command said lies in the folder's ``stdout`` and ``stderr``.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: exit statuses of a child whose command raised
TRACEBACK, MEMORY = 101, 102
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Warm:
    """A warm process; cases go to it one after the other."""

    def __init__(self) -> None:
        tests = Path(__file__).parents[1]
        code = f"import sys; sys.path.insert(0, {str(tests)!r}); from campaign.warm import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE, "MPLBACKEND": "Agg"},
        )

    def run(self, folder: Path, words: list[str], seconds: float, more: int) -> dict[str, Any]:
        """How a command line ends in a folder, with so many seconds and so many bytes of addresses more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(
            json.dumps({"folder": str(folder), "words": words, "seconds": seconds, "bytes": more}),
            file=self._process.stdin,
            flush=True,
        )
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def serve() -> None:
    """Import all that commands import, then fork a child a case until there are no more."""
    _import_all()
    gc.collect()
    gc.freeze()  # or the first collection in a child copies all that is imported
    for line in sys.stdin:
        case = json.loads(line)
        child = os.fork()
        if child == 0:
            _play(case)
        print(json.dumps(_watch(child, case["seconds"])), flush=True)


def _import_all() -> None:
    import pkgutil
    from importlib import import_module

    import torch

    import fedscope

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(fedscope.__path__, "fedscope."):
        import_module(module.name)
    others = ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf", "matplotlib.pyplot", "plotly.io")
    for name in (*others, "sklearn.manifold", "scipy.stats", "scipy.signal", "scipy.cluster.hierarchy", "safetensors"):
        import_module(name)
    import fedscope.plotting.style as paper

    paper.DPI = 30  # a figure must be drawn, not be beautiful


def _play(case: dict[str, Any]) -> None:
    status = TRACEBACK
    try:
        os.setsid()
        os.chdir(case["folder"])
        for number, name in enumerate(("/dev/null", "stdout", "stderr")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + case["bytes"],) * 2)
        from fedscope.cli.main import run

        status = run(case["words"])
    except MemoryError:
        traceback.print_exc()
        status = MEMORY
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _watch(child: int, seconds: float) -> dict[str, Any]:
    begun, late = time.monotonic(), False
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return {"status": code, "late": late, "peak": used.ru_maxrss * 1024, "cpu": used.ru_utime + used.ru_stime}
        if not late and time.monotonic() - begun > seconds:
            late = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.005)
