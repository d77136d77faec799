"""Every command that takes a device gives the processor's numbers there, and says where it computed."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import torch
from device.asked import OTHERS, WRITTEN
from gpu.questions import SAMPLES
from torch import nn

from fedscope import Recorder, adapters
from fedscope.checkpoints import Run
from fedscope.cli.main import commands, fedscope, run
from fedscope.training import benchmark

pytestmark = pytest.mark.device


def test_every_command_that_takes_a_device_is_asked() -> None:
    context = click.Context(fedscope)
    made = {name: fedscope.get_command(context, name) for name in commands()}
    taking = {name for name, one in made.items() if one and any("--device" in option.opts for option in one.params)}
    assert taking == {words.split()[0] for words in [*OTHERS.values(), *(words for words, _ in WRITTEN.values())]}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_command_gives_the_processors_numbers(
    name: str,
    folder: Path,
    pretend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    alike: Callable[..., int],
    devices: Callable[[Path], set[str]],
) -> None:
    monkeypatch.chdir(folder)
    words, relative = WRITTEN[name]
    for on in ("cpu", pretend):
        assert run([*words.split(), "--device", on, "--out", str(tmp_path / on / "x")]) == 0
        if name != "parameters":  # scikit-learn computes
            assert on in devices(tmp_path / on)
    assert alike(tmp_path / "cpu", tmp_path / pretend, relative, SAMPLES) > 0


def test_a_training_gives_the_processors_bits(few_digits: None, pretend: str, tmp_path: Path) -> None:
    made = {}
    for on in ("cpu", f"{pretend}:1"):
        assert run([*OTHERS["train"].split(), "--device", on, "--out", str(tmp_path / on)]) == 0
        made[on] = Run.open(tmp_path / on)
        assert made[on].info["device"] == on
    here, there = (one.round(2).read("global").parameters for one in made.values())
    assert here.tobytes() == there.tobytes()


def test_a_run_is_measured(
    folder: Path, pretend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = []
    for on in ("cpu", pretend):
        shutil.copytree(folder / "r", tmp_path / "own")
        capsys.readouterr()
        assert run([*OTHERS["measure"].split(), "--device", on]) == 0
        capsys.readouterr()
        found.append(Run.open("own").metrics())
        shutil.rmtree("own")
    here, there = found
    assert here["test_loss"] == pytest.approx(there["test_loss"], rel=1e-5)


class Low(nn.Module):
    """A linear layer with an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.lora_A, self.lora_B = nn.Linear(6, 4), nn.Linear(6, 2, bias=False), nn.Linear(2, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.base(x) + self.lora_B(self.lora_A(x))
        return made


def test_adapters_are_measured_beside_their_base(pretend: str, tmp_path: Path) -> None:
    assert OTHERS["adapters"].split()[0] == "adapters"
    torch.manual_seed(0)
    net, x, y = Low(), torch.randn(40, 6), torch.arange(40) % 4
    torch.save(
        {name.removeprefix("base."): one for name, one in net.state_dict().items() if "base" in name}, tmp_path / "b.pt"
    )

    def client() -> dict[str, torch.Tensor]:
        return {name: torch.randn_like(one) for name, one in net.state_dict().items() if "lora" in name}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that factors are averaged
        with Recorder(tmp_path / "lora", lora_alpha=2) as recorder:
            recorder.round(start=client(), clients=[client() for _ in range(3)], global_=client())
    how = {"model": net, "data": (x, y), "base": tmp_path / "b.pt"}
    here, there = (adapters(tmp_path / "lora", device=on, **how) for on in ("cpu", pretend))
    assert there.attrs["device"] == pretend
    one, other = here.cells[-1], there.cells[-1]
    assert one.cost
    assert (other.cost, other.cost_stderr) == pytest.approx((one.cost, one.cost_stderr), rel=1e-4)
    assert here.cells[0] == there.cells[0]


def test_the_device_is_timed(
    pretend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "_LARGE", 64)  # else minutes on a processor
    assert run([*OTHERS["bench"].split(), "--device", f"{pretend}:1", "--folder", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device"] == "pretend:1, a pretend accelerator"
    assert set(found["products_gflops"]) == {"float32", "bf16"}
