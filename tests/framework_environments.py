"""Environments of frameworks for slow tests, made once a machine as ``benchmarks/against_frameworks.py`` makes them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]


def runner_in(
    peer: str, home: Path, words: Mapping[str, str] | None = None, seconds: float = 600
) -> Callable[..., str]:
    """Make what runs a script in a framework's environment and gives what it prints; skips where there is none.

    Args:
        peer: the name in ``against_frameworks``.
        home: a folder in which what recording needs is put, beside the framework.
        seconds: after which a script is killed, with ``subprocess.TimeoutExpired``.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        import against_frameworks
        from recording_flower import beside

        wanted = getattr(against_frameworks, peer)
        folder = ROOT / "benchmarks" / ".peers"
        folder.mkdir(exist_ok=True)
        with FileLock(folder / "lock"):
            try:
                python = against_frameworks.environment(folder, wanted)
            except against_frameworks.NotHere as why:
                pytest.skip(f"{wanted.requirement} cannot be installed: {why}")
    light = beside(home / "beside", wanted)

    def run(*script: str | Path, cwd: Path) -> str:
        said = {**os.environ, "PYTHONPATH": f"{light}{os.pathsep}{cwd}", **(words or {})}
        command = list(map(str, [python, *script]))
        words_: dict[str, Any] = {"cwd": cwd, "env": said, "text": True, "start_new_session": True}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **words_) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # simulators leave workers behind
                raise
        assert process.returncode == 0, f"{command} ended:\n{output[-8000:]}"
        return str(output)

    return run
