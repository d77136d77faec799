"""The device in programs that a test starts: torch asks installed packages for backends when it is imported, and a
folder on ``PYTHONPATH`` can be such a package."""

from __future__ import annotations

import os
from pathlib import Path

from .native import build, install, limit

_FOLDER = "pretend_device_in_children"
_ENTRY = f"[torch.backends]\npretend = {_FOLDER}.pretend.everywhere:begin\n"
_METADATA = "Metadata-Version: 2.1\nName: pretend-device\nVersion: 1\n"


def everywhere(folder: Path, *, most: int | None = None, without_float64: bool = False) -> dict[str, str]:
    """Return the environment of programs that have the device as soon as they import torch.

    Args:
        folder: an empty one, which must stay as long as they run.
        most: bytes that the device has in each of them; None: as many as the machine.
        without_float64: float64 tensors cannot be made on the device.
    """
    build()  # once, and not by each of several programs
    about = folder / "pretend_device-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(_METADATA, encoding="utf-8")
    (about / "entry_points.txt").write_text(_ENTRY, encoding="utf-8")
    package = folder / _FOLDER
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "pretend").symlink_to(Path(__file__).parent)
    known = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *([known] if known else [])]),
        "PRETEND_BYTES": "" if most is None else str(most),
        "PRETEND_WITHOUT_FLOAT64": "1" if without_float64 else "",
    }


def begin() -> None:
    """Have the device in this process; torch calls it, while it is imported."""
    install(without_float64=bool(os.environ.get("PRETEND_WITHOUT_FLOAT64")))
    if most := os.environ.get("PRETEND_BYTES"):
        limit(int(most))
