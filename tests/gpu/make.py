"""`make gpu`: the tests and the benchmarks of an accelerator, on a machine that may have no network.

    python tests/gpu/make.py [--device cuda] [--data FILE.npz] [--out FILE] [--quick]
    python tests/gpu/make.py --environment    # lays out `.gpu/` and ends

Runs in the Python that it is started with, on that Python's own torch (2.6 or newer). What else fedscope needs and that
Python lacks is taken from `wheels/`, which `make gpu-wheels` fills where there is a network; nothing is installed but
into `.gpu/`. Writes one file: device, versions, the tests' end, the benchmarks' figures. `--device cpu --quick` tries
all of it where there is no accelerator.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

if sys.version_info < (3, 11):  # noqa: UP036 (this file is what a Python that is too old runs first)
    sys.exit(
        f"make gpu: {sys.executable} is Python {platform.python_version()}, and fedscope needs 3.11; PYTHON= names it"
    )

import tomllib

ROOT = Path(__file__).resolve().parents[2]
PLACE, WHEELS = ROOT / ".gpu", ROOT / "wheels"
#: of the tests, beside what fedscope needs
TOOLS = ("pytest>=8.2", "hypothesis>=6.100")
#: seconds; both together stay below eight minutes
TESTS, BENCHMARKS = 210, 250


def lacking(requirements: list[str]) -> list[str]:
    """Those that this Python does not have, or has too old, without their versions.

    >>> lacking(["pip>=1"]), lacking(["pip>=999", "no-such-package"])
    ([], ['pip', 'no-such-package'])
    """
    found = []
    for requirement in requirements:
        name, _, least = requirement.partition(">=")
        try:
            there = numbers(metadata.version(name))
        except metadata.PackageNotFoundError:
            there = ()
        if not there or there < numbers(least):
            found.append(name)
    return found


def numbers(version: str) -> tuple[int, ...]:
    """``2.11.0+cu130`` as (2, 11, 0); of nothing nothing.

    >>> numbers("2.11.0+cu130"), numbers("")
    ((2, 11, 0), ())
    """
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def provide(requirements: list[str]) -> None:
    """Unpack what is lacking from `wheels/`, with all that lies there, into `.gpu/site`.

    Raises:
        SystemExit: a wheel is not there either.
    """
    missing = lacking(requirements)
    if not missing:
        return
    there = {re.split(r"-\d", path.name)[0].lower().replace("_", "-"): path for path in WHEELS.glob("*.whl")}
    if absent := [name for name in missing if name.lower().replace("_", "-") not in there]:
        sys.exit(
            f"make gpu: {sys.executable} lacks {', '.join(absent)}, and wheels/ has none of it; run "
            f"`make gpu-wheels NAMES='{' '.join(absent)}'` where there is a network, and bring that folder"
        )
    words = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--upgrade", "--target", str(PLACE / "site")]
    done = subprocess.run([sys.executable, *words, *map(str, there.values())], check=False)
    if done.returncode:
        sys.exit(f"make gpu: {sys.executable} -m pip could not unpack wheels/, and has said why")


def project() -> dict[str, Any]:
    """What `pyproject.toml` says."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def refuse_data(path: Path) -> None:
    """Refuse what the benchmarks could not use, before the tests have run.

    Raises:
        SystemExit: no such file, or one that lacks an array or samples.
    """
    import numpy as np

    wanted = ("x_train", "y_train", "x_test", "y_test")
    try:
        with np.load(path) as arrays:
            lacks = [name for name in wanted if name not in arrays.files]
            few = not lacks and len(arrays["y_train"]) < 5_000
    except (OSError, ValueError) as error:
        sys.exit(f"make gpu: DATA={path} cannot be read ({str(error).splitlines()[0]}); give an .npz, or leave it out")
    if lacks or few:
        said = f"lacks {', '.join(lacks)}" if lacks else "has fewer than 5,000 training samples"
        sys.exit(f"make gpu: DATA={path} {said}; give CIFAR-10's arrays, or leave it out")


def lay_out() -> None:
    """The package as it is installed, by links, so that nothing is built."""
    folders = project()["tool"]["setuptools"]["package-dir"]
    package = PLACE / "fedscope"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for path in (ROOT / folders.pop("fedscope")).iterdir():
        (package / path.name).symlink_to(path)
    for name, folder in folders.items():
        (package / name.removeprefix("fedscope.")).symlink_to(ROOT / folder)


def step(words: list[str], seconds: int, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a Python program, printed as it comes; 124 where its time is up."""
    import threading

    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    began, lines = time.monotonic(), []
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    process.wait()
    timer.cancel()
    late = time.monotonic() - began >= seconds
    return (124 if late else process.returncode), "".join(lines)


def refuse_torch() -> None:
    """Refuse a Python whose torch is lacking or too old: the device's own is not replaced.

    Raises:
        SystemExit: says so.
    """
    own = [one for one in project()["project"]["dependencies"] if one.startswith("torch")]
    if short := lacking(own):
        sys.exit(f"make gpu: {sys.executable} lacks {' and '.join(short)} as new as {', '.join(own)}; PYTHON= names it")


def environment(tools: tuple[str, ...]) -> str:
    """Lay out `.gpu/` with fedscope and what this Python lacks of it and of tools; returns its PYTHONPATH.

    Raises:
        SystemExit: no torch, or one that is too old; a wheel that is not there.
    """
    refuse_torch()
    provide([*(one for one in project()["project"]["dependencies"] if not one.startswith("torch")), *tools])
    lay_out()
    return os.pathsep.join([str(PLACE), str(PLACE / "site")])


def main(device: str, data: Path | None, out: Path, quick: bool) -> int:
    """Do all of it; 0 where the tests passed and the benchmarks ran."""
    refuse_torch()
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        sys.exit(f"make gpu: torch {torch.__version__} sees no CUDA device; `make gpu DEVICE=cpu` tries it without one")
    if data is not None:
        refuse_data(data)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.touch()
    except OSError as error:
        sys.exit(f"make gpu: OUT={out} cannot be written: {error.strerror}; give another")
    around = {**os.environ, "PYTHONPATH": environment(TOOLS), "FEDSCOPE_DEVICE": device, "PYTHONUNBUFFERED": "1"}
    tests = ["-P", "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"]
    code, said = step(tests, TESTS, around)
    words = ["benchmarks/gpu.py", "--device", device, *(["--data", str(data)] if data else [])]
    rate, figures = step([*words, *(["--quick"] if quick else [])], BENCHMARKS, around)
    name = "cpu" if device == "cpu" else torch.cuda.get_device_name(device)
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda}"
    ends = {0: "passed", 124: "out of time"}
    out.write_text(
        f"# {name}\n\n{time.strftime('%Y-%m-%d')}; {versions}\n\n## Tests: {ends.get(code, 'failed')}\n\n```text\n"
        f"{said[-6000:].strip()}\n```\n\n## Benchmarks: {ends.get(rate, 'failed').replace('passed', 'ran')}"
        f"{' (in small: figures say nothing)' if quick else ''}\n\n```text\n{figures.strip()}\n```\n",
        encoding="utf-8",
    )
    print(f"make gpu: {out}")
    return code or rate


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda")
    words.add_argument("--data", type=Path)
    words.add_argument("--out", type=Path, default=ROOT / "gpu-results.md")
    words.add_argument("--quick", action="store_true")
    words.add_argument("--environment", action="store_true")
    given = words.parse_args()
    if given.environment:
        print(environment(()))
        sys.exit(0)
    sys.exit(main(given.device, given.data, given.out, given.quick))
