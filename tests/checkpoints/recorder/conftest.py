"""Fixtures of recorders."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
