"""Environments of frameworks for slow tests, made once a machine as ``benchmarks/against_frameworks.py`` makes them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]


def runner_in(peer: str, home: Path, words: Mapping[str, str] | None = None) -> Callable[..., str]:
    """Make what runs a script in a framework's environment and gives what it prints; skips where there is none.

    Args:
        peer: the name in ``against_frameworks``.
        home: a folder in which what recording needs is put, beside the framework.
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
    light = beside(home / "beside")

    def run(*script: str | Path, cwd: Path) -> str:
        said = {**os.environ, "PYTHONPATH": f"{light}{os.pathsep}{cwd}", **(words or {})}
        command = list(map(str, [python, *script]))
        done = subprocess.run(command, cwd=cwd, env=said, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{command} ended:\n{done.stdout[-3000:]}{done.stderr[-5000:]}"
        return done.stdout + done.stderr

    return run
