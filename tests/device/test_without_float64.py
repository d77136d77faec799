"""A device without float64, as Apple's are: a command computes on it what it can, or is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from device.asked import OTHERS, WRITTEN
from gpu.questions import SAMPLES

from fedscope.checkpoints import Run
from fedscope.evaluation.device import Compute

pytestmark = pytest.mark.device


def test_auto_is_the_processor(without_float64: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSCOPE_DEVICE")
    assert Compute("auto").device == "cpu"
    assert Compute(without_float64).device == without_float64


@pytest.mark.parametrize("name", WRITTEN)
def test_a_command_gives_the_processors_numbers_or_says_why_it_cannot(
    name: str,
    folder: Path,
    without_float64: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Callable[[Sequence[str]], str],
    alike: Callable[..., int],
) -> None:
    monkeypatch.chdir(folder)
    words, relative = WRITTEN[name]
    refused = outcome([*words.split(), "--device", without_float64, "--out", str(tmp_path / "there" / "x")])
    if refused:
        assert f"{without_float64}" in refused
        assert "float64" in refused
        assert "--device cpu" in refused
        return
    assert outcome([*words.split(), "--device", "cpu", "--out", str(tmp_path / "cpu" / "x")]) == ""
    # what the processor sums in float64 may be summed in float32 there
    assert alike(tmp_path / "cpu", tmp_path / "there", max(relative, 1e-4), SAMPLES) > 0


def test_a_training_gives_the_processors_models(
    few_digits: None, without_float64: str, tmp_path: Path, outcome: Callable[[Sequence[str]], str]
) -> None:
    made = {}
    for on in ("cpu", without_float64):
        assert outcome([*OTHERS["train"].split(), "--device", on, "--out", str(tmp_path / on)]) == ""
        made[on] = Run.open(tmp_path / on).round(2)
    here, there = made.values()
    assert (here.read("global").parameters == there.read("global").parameters).all()
    assert there.metrics["test_loss"] == pytest.approx(here.metrics["test_loss"], rel=1e-5)
