"""Which software made a result."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def versions() -> dict[str, str]:
    """Versions of fedscope, torch, python and numpy, without importing them."""
    return {
        "fedscope": _version("fedscope"),
        "torch": _version("torch"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout on the path that was never installed
        return "not installed"
