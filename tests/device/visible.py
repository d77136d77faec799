"""A plugin of pytest's that lets any tests see the pretend device, in programs that they start, too, as on a machine
with a GPU: ``PYTHONPATH=tests pytest -p device.visible tests/training``."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from .pretend import everywhere, install

_FOLDERS = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """See pytest."""
    folder = config.stash[_FOLDERS] = Path(tempfile.mkdtemp())
    os.environ |= everywhere(folder / "everywhere")
    install()


def pytest_unconfigure(config: pytest.Config) -> None:
    """See pytest."""
    shutil.rmtree(config.stash[_FOLDERS])
