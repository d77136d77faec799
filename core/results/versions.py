"""Packages that are installed, and their versions."""

from __future__ import annotations

import platform
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..checkpoints.io.errors import FedscopeError


def of_installed(package: str, extra: str) -> Any:
    """A package that fedscope does without.

    Raises:
        FedscopeError: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise FedscopeError(f"{package} is not installed; pip install 'fedscope[{extra}]'") from None


def versions() -> dict[str, str]:
    """Versions of fedscope, torch, python and numpy, without importing them."""
    return {
        "fedscope": _version("fedscope"),
        "torch": _version("torch"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
    }


@cache  # read from the disk, and the same as long as the process lives
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout on the path that was never installed
        return "not installed"
