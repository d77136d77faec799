"""Devices that are not there: a command names those that are, and a run goes on on its own kind alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from device.asked import OTHERS
from device.pretend import limit, loaded

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run

pytestmark = pytest.mark.device

THERE = "there are cpu, pretend:0 and pretend:1; use --device pretend"


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("pretend:9", f"device = 'pretend:9' is not here; {THERE}"),
        *(
            (name, f"device = '{name}', but torch {torch.__version__} sees no {kind} device here; {THERE}")
            for name, kind in (("cuda", "CUDA"), ("cuda:1", "CUDA"), ("xpu", "XPU"), ("mps", "MPS"))
        ),
        *(
            (name, f"device = {name!r} is not a device; use auto, cpu, cuda, mps, xpu, or one's number: cuda:1")
            for name in ("gpu", "meta", "", "pretend:x", "pretend:-1", "vulkan")
        ),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(
    device: str, sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for words in (OTHERS["train"], "cka r --rounds 4", "disperse r --rounds 4 --embed pca", OTHERS["bench"]):
        capsys.readouterr()
        assert run([*words.split(), "--device", device, *([] if "bench" in words else ["--out", "x"])]) == 2
        assert capsys.readouterr().err == f"fedscope: {sentence}\n"
    assert not Path("x").exists()


def test_a_device_that_others_use_is_refused_with_the_reason(limited: None, pretend: str, tmp_path: Path) -> None:
    limit(loaded().held())
    with pytest.raises(
        FedscopeError, match=r"'pretend:1' cannot be used now \(pretend out of memory.*device='cpu' always can"
    ):
        fedscope.train(device="pretend:1", rounds=1, clients=4, out=tmp_path / "r")


def begun(tmp_path: Path, device: str, name: str = "r") -> Path:
    """A run of two rounds, of which one is there."""
    path = tmp_path / name
    words = [*OTHERS["train"].split(), "--device", device, "--until", "1", "--out", str(path)]
    assert run(words) == 0
    return path


def moved(path: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the run came from a machine with this device."""
    from fedscope.training.loop import train

    asked = train.device_to_resume
    monkeypatch.setattr(train, "device_to_resume", lambda run, trained, other: asked(run, device, other))


@pytest.mark.parametrize(
    ("trained", "sentence"),
    [
        (
            "cuda:1",
            "{run} was trained on cuda:1, and here are cpu, pretend:0, pretend:1; go on where a cuda device "
            "is, or train on from its rounds in a run of its own: fedscope train --from {run}@last --device pretend:1",
        ),
        (
            "pretend:7",
            "{run} was trained on pretend:7, not all of which can be used here (device = 'pretend:7' is not here); "
            "give --device with those of pretend:0, pretend:1 that can be used",
        ),
        (
            "pretend:0,pretend:7",
            "{run} was trained on pretend:0,pretend:7, not all of which can be used here (device = 'pretend:7' is not "
            "here); give --device with those of pretend:0, pretend:1 that can be used",
        ),
    ],
    ids=["another kind", "one of the kind", "half of several"],
)
def test_a_run_whose_devices_are_gone_says_how_it_goes_on(
    trained: str,
    sentence: str,
    few_digits: None,
    pretend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = begun(tmp_path, pretend)
    moved(path, trained, monkeypatch)
    capsys.readouterr()
    assert run(["train", "--resume", str(path)]) == 2
    assert capsys.readouterr().err == f"fedscope: {sentence.format(run=path)}\n"


def test_a_run_goes_on_on_another_device_of_its_kind_with_the_same_bits(
    few_digits: None, pretend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = begun(tmp_path, pretend), begun(tmp_path, pretend, "other")
    capsys.readouterr()
    assert run(["train", "--resume", str(path), "--device", "cpu"]) == 2
    assert capsys.readouterr().err == (
        f"fedscope: --device cpu is of another kind than pretend, on which {path} was trained, and rounds differently; "
        f"train on from its rounds in a run of its own: fedscope train --from {path}@last --device cpu\n"
    )
    assert run(["train", "--resume", str(path), "--device", "pretend:1"]) == 0
    fedscope.resume(other)
    one, same = Run.open(path).round(2), Run.open(other).round(2)
    assert one.read("global").parameters.tobytes() == same.read("global").parameters.tobytes()
    assert (
        run(["train", "--from", f"{path}@last", "--device", "cpu", "--out", str(tmp_path / "b"), "--rounds", "3"]) == 0
    )
    assert Run.open(tmp_path / "b").info["device"] == "cpu"


def test_a_run_of_the_processor_does_not_go_on_on_a_device(few_digits: None, pretend: str, tmp_path: Path) -> None:
    path = begun(tmp_path, "cpu")
    with pytest.raises(FedscopeError, match=r"^device='pretend' is of another kind than cpu, on which"):
        fedscope.resume(path, device=pretend)
    assert fedscope.resume(path, device="cpu").rounds == (1, 2)
