"""A run that comes to a machine without its device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.training.loop import train
from fedscope.training.loop.resume_device import device_to_resume

pytestmark = [
    pytest.mark.same_elsewhere,
    pytest.mark.usefixtures("few_digits"),
    pytest.mark.skipif(torch.accelerator.is_available(), reason="tests/device has it for a machine with a device"),
]


@pytest.fixture
def begun(tmp_path: Path) -> Run:
    """A run of two rounds, of which one is there."""
    return fedscope.train(clients=4, rounds=2, epochs=1, device="cpu", out=tmp_path / "r", until=1)


def test_a_run_from_another_machine_says_where_it_goes_on(
    begun: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "device_to_resume", lambda run, trained, asked: device_to_resume(run, "cuda:1", asked))
    capsys.readouterr()
    assert run(["train", "--resume", str(begun.path)]) == 2
    assert capsys.readouterr().err == (
        f"fedscope: {begun.path} was trained on cuda:1, and here is cpu; go on where a cuda device is, or train on "
        f"from its rounds in a run of its own: fedscope train --from {begun.path}@last --device cpu\n"
    )
    with pytest.raises(FedscopeError, match=r"^device='cpu' is of another kind than cuda:1, on which .* was trained"):
        fedscope.resume(begun.path, device="cpu")


def test_a_run_without_rounds_is_trained_anew(begun: Run) -> None:
    for path in begun.path.glob("rounds/*.h5"):
        path.unlink()
    with pytest.raises(FedscopeError, match=r"from its beginning: fedscope train .*config\.toml --device cpu$"):
        device_to_resume(Run.open(begun.path), "mps", None)


def test_the_device_may_be_said_again(begun: Run) -> None:
    assert run(["train", "--resume", str(begun.path), "--device", "cpu"]) == 0
    assert Run.open(begun.path).rounds == (1, 2)
