"""fedscope as one commit has it, installed for long runs alone, so that other work neither changes nor breaks them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Identity:
    """What numbers must share to be averaged.

    Attributes:
        commit: of the frozen install, 40 digits; data: SHA-256 of the data file; machine: its architecture and what
            torch's kernels use of it, as ``x86_64-AVX512``, or the accelerator, as ``cuda-NVIDIA-H200``, on which the
            last bits of trained models depend.
    """

    commit: str
    data: str
    machine: str

    @property
    def folder(self) -> str:
        """Where numbers of this identity are kept."""
        return f"{self.commit[:10]}-{self.data[:8]}-{self.machine}"

    def differences(self, other: Identity) -> str:
        """In what two differ, in words; "" where they are the same."""
        return ", ".join(key for key, value in asdict(self).items() if asdict(other)[key] != value)


def frozen(home: Path, commit: str) -> Path:
    """The frozen install's ``bin`` folder, made on the first call: an environment of its own with this commit.

    Raises:
        subprocess.CalledProcessError: the commit is not there, or cannot be installed; what says so was printed.
    """
    place = home / "frozen" / commit[:10]
    if not (place / "installed").exists():
        print(f"installing commit {commit[:10]} into {place}; this takes a minute or two", flush=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "tree.tar"
            subprocess.run(["git", "archive", "-o", archive, commit], cwd=CHECKOUT, check=True)
            with tarfile.open(archive) as tree:
                tree.extractall(folder, filter="data")
            archive.unlink()
            pip = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
            subprocess.run([*pip, "-c", "constraints.txt", "."], cwd=folder, check=True)
        (place / "installed").touch()
    return place / "bin"


def write_whole(path: Path, text: str) -> None:
    """Write a file of which a full disk, a kill or another driver leaves all or nothing."""
    from fedscope.checkpoints.io.atomic import write_durably

    with write_durably(path) as made:
        made.write_text(text, encoding="utf-8")


def head() -> str:
    """The checkout's commit.

    Raises:
        SystemExit: what would be frozen is not committed, or there is no git.
    """
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=CHECKOUT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        sys.exit(f"make papers-long: {CHECKOUT} is no git checkout, and long runs need a commit to be frozen at")
    return said.stdout.strip()


def data_sum(path: Path) -> str:
    """The SHA-256 of a file, kept beside it: it is asked for at every start.

    Raises:
        SystemExit: the file is not there; says how it is made.
    """
    if not path.exists():
        sys.exit(
            f"make papers-long: {path} is missing; put an .npz of CIFAR-10 there, with x_train, y_train, x_test and "
            "y_test (docs/howto/own-data.md), or name another with --data; numbers count only beside those of the same "
            "file, so take the one that other units were made from"
        )
    kept, said = path.with_name(f"{path.name}.sha256"), f"{path.stat().st_size} {path.stat().st_mtime_ns}"
    with suppress(OSError, ValueError, KeyError, TypeError):  # not there, or cut off by a full disk
        known = json.loads(kept.read_text(encoding="utf-8"))
        if known["file"] == said:
            return str(known["sha256"])
    made = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            made.update(block)
    write_whole(kept, json.dumps({"file": said, "sha256": made.hexdigest()}) + "\n")
    return made.hexdigest()


def machine(device: str = "cpu") -> str:
    """``x86_64-AVX512``: the architecture, and the kernels that torch takes on it; ``cuda-NVIDIA-H200``."""
    import torch

    if device != "cpu":
        return f"{device.partition(':')[0]}-{accelerator(device)}".replace(" ", "-")
    return f"{platform.machine()}-{torch.backends.cpu.get_cpu_capability()}".replace(" ", "")


def processor() -> str:
    """The processor's name, for the reader; "" where the system does not say it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def accelerator(device: str) -> str:
    """The name of a device, as ``NVIDIA H200``; "" of the processor.

    Raises:
        SystemExit: torch sees no such device.
    """
    import torch

    if device == "cpu":
        return ""
    kind, _, number = device.partition(":")
    try:
        torch.device(device)
        return str(torch.get_device_module(kind).get_device_name(int(number or 0)))
    except (RuntimeError, AssertionError, ValueError, AttributeError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        sys.exit(f"make papers-long: torch {torch.__version__} sees no device {device} ({said}); leave --device out")


def usable() -> frozenset[int]:
    """The cores that this process may use."""
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return frozenset(own)


def spared() -> frozenset[int]:
    """The cores for long runs: all that this process may use but one."""
    own = sorted(usable())
    return frozenset(own[1:] or own)
