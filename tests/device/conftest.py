"""What the tests on the pretend accelerator share: the device itself, which is torch's for the whole process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from device.pretend import NAME, install, limit, why_not


@pytest.fixture(scope="session", autouse=True)
def pretend() -> str:
    """The name of the device; where it was not asked for, ordinary tests in this process would be computed on it."""
    if os.environ.get("FEDSCOPE_DEVICE", "").partition(":")[0] != NAME:
        pytest.skip("FEDSCOPE_DEVICE=pretend asks for the pretend device, as `make test-device` does")
    if why := why_not():
        pytest.skip(why)
    import torch

    # as the workers on a processor have: with several, the last bits depend on how many. Autograd's thread for the
    # device has as many as were set when it began
    torch.set_num_threads(1)
    return install()


@pytest.fixture
def without_float64(pretend: str) -> Iterator[str]:
    """The device without float64, as Apple's are."""
    install(without_float64=True)
    yield pretend
    install()


@pytest.fixture
def limited(pretend: str) -> Iterator[None]:
    """Whatever a test lets the device have, it has all again afterwards."""
    yield
    limit(None)
