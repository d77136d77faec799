"""What the tests on the pretend accelerator share: the device itself, which is torch's for the whole process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from device.pretend import NAME, install, limit, why_not
from gpu.conftest import alike, devices  # noqa: F401 (fixtures)
from gpu.questions import TRAIN

from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run


@pytest.fixture(scope="session", autouse=True)
def pretend(asked_device: str | None) -> str:
    """The name of the device; where it was not asked for, ordinary tests in this process would be computed on it."""
    if (asked_device or "").partition(":")[0] != NAME:
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


@pytest.fixture(scope="module")
def folder(few_digits: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run ``r`` of four rounds, trained on the processor, to be read."""
    folder = tmp_path_factory.mktemp("asked")
    assert run([*TRAIN.split(), "--device", "cpu", "--out", str(folder / "r")]) == 0
    return folder


@pytest.fixture
def outcome(capsys: pytest.CaptureFixture[str]) -> Callable[[Sequence[str]], str]:
    """``outcome(words)``: "" where a command ends well, else the one sentence of an error of our own; any other error
    is raised, also where the command line would have a sentence for it: functions have none."""

    def found(words: Sequence[str]) -> str:
        try:
            assert run([*words], debug=True) == 0, capsys.readouterr().err
        except FedscopeError as error:
            return str(error)
        return ""

    return found
