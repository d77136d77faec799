"""What slow tests of frameworks share: environments, made once a machine as ``benchmarks/against_frameworks.py`` makes
them, models that a framework's program wrote, and how-tos that run there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
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


def read(path: Path) -> dict[str, np.ndarray]:
    """A model as a program wrote it."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def bits(model: Mapping[str, Any], types: Mapping[str, np.dtype[Any]] | None = None) -> dict[str, tuple[Any, ...]]:
    """Type, shape and bytes of each array, in the types that were sent where they are given."""
    arrays = {name: np.asarray(array) for name, array in model.items()}
    cast = {name: array.astype(types[name]) if types else array for name, array in arrays.items()}
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in cast.items()}


def commands_of_page(page: Path, run: Callable[..., str], folder: Path, program: str) -> list[str]:
    """Run a how-to, its program in the framework's environment; what it shows must be what comes.

    Args:
        run: of :func:`runner_in`.
        program: under which name the page's program is run.

    Returns:
        The commands of fedscope that it has.
    """
    from test_docs import assert_shown, finish, steps_of

    seen = []
    for step in steps_of(page):
        if step.language == "python":
            (folder / program).write_text(step.text, encoding="utf-8")
            run(program, cwd=folder)
        elif re.search(r"\bfedscope ", step.text):
            output = finish(step, ["sh", "-c", step.text], folder)
            if step.language == "console":
                assert_shown(step, output)
            else:
                assert [path for path in step.shown if not (folder / path).exists()] == []
            seen.append(step.text.split()[1])
    return seen
