"""``fedscope bench``: what it counts, what follows from it, and mistakes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from torch import nn

from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.training import BenchmarkResult, bench, benchmark
from fedscope.training.benchmark import IMAGE, Rate, _work

pytestmark = pytest.mark.same_elsewhere


def test_work_is_two_per_weight_and_output() -> None:
    inputs, hidden, classes = 3 * 32 * 32, 7, 10
    module = nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    forward, backward = _work(module)
    assert forward == 2 * (inputs * hidden + hidden * classes)
    # gradients of all weights, and of all inputs but the images
    assert backward == 2 * (inputs * hidden + 2 * hidden * classes)
    channels, out, kernel = IMAGE[0], 4, 3
    convolution = nn.Sequential(nn.Conv2d(channels, out, kernel), nn.Flatten())
    pixels = (IMAGE[1] - kernel + 1) ** 2
    assert _work(convolution) == (2 * pixels * out * channels * kernel**2,) * 2


@pytest.fixture(scope="module", autouse=True)
def one_core() -> Iterator[None]:
    """Threads that wait for a core that others use measure for half a minute what takes half a second."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkResult:
    return bench("mlp", "cpu", folder=tmp_path_factory.mktemp("disk") / "new", seconds=0.01, disk=2**22)


def test_shares_are_of_the_products_in_the_same_arithmetic(measured: BenchmarkResult) -> None:
    assert list(measured.products) == list(measured.training) == list(measured.evaluation) == ["float32", "bf16"]
    assert (measured.model, measured.engine) == ("mlp", "threads")
    sizes = 3 * 32 * 32, 128, 64, 10
    work = 2 * sum(a * b for a, b in pairwise(sizes))
    for rates, each in ((measured.evaluation, work), (measured.training, 3 * work - 2 * sizes[0] * sizes[1])):
        for kind, rate in rates.items():
            assert rate.samples > 0
            assert rate.gflops == pytest.approx(rate.samples * each / 1e9, rel=1e-9)
            assert rate.share == pytest.approx(rate.gflops / measured.products[kind], rel=1e-9)
    assert measured.written > 0


def test_what_follows_is_said(measured: BenchmarkResult) -> None:
    fast = {"float32": Rate(2_500, 50, 0.5), "bf16": Rate(5_000, 100, 0.25)}
    made = BenchmarkResult(
        "cnn", "cpu", "threads", 1, {"float32": 100, "bf16": 400}, fast, fast, 3e8, None, {"torch": "2"}
    )
    lines = made.summary().splitlines()
    assert "engine threads, 1 worker; model cnn, 3x32x32, batches of 50" in lines
    assert " ".join(lines[4].split()) == "float32 100 GFLOP/s 2,500 samples/s, 50 % 2,500 samples/s, 50 %"
    assert "a round of 10 clients x 500 samples x 5 epochs trains for about 10 s in float32, 5 s in bf16" in lines
    assert "bf16 trains 2 times as fast as float32: --set run.precision=bf16" in lines
    assert lines[-1] == "disk: written 300 MB/s"
    slow = BenchmarkResult(
        "cnn", "cpu", "threads", 2, made.products, {**fast, "bf16": Rate(9, 9, 0)}, fast, 3e8, 2e9, {}
    )
    assert "--set" not in slow.summary()
    assert slow.summary().endswith("disk: written 300 MB/s, read 2,000 MB/s")


@pytest.mark.programs
def test_the_command_prints_it_and_refuses_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    disk = benchmark._disk
    monkeypatch.setattr(benchmark, "_disk", lambda folder, size: disk(folder, size // 64))
    assert run(["bench", "--model", "mlp", "--device", "cpu", "--seconds", "0.01", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["round_seconds"]["float32"] == pytest.approx(25_000 / found["training"]["float32"]["samples"])
    assert list(tmp_path.iterdir()) == [], "nothing is left where the disk was measured"
    Path("file").write_text("", encoding="utf-8")
    for words, message in (
        (["--model", "cnnn"], "'cnnn' is not a model that fedscope knows; did you mean \"cnn\"?"),
        (["--model", "lstm"], "model.name = 'lstm' needs tokens [n, L], but a sample has shape [3, 32, 32]"),
        (["--seconds", "0"], "--seconds 0 measures nothing; give a time above 0"),
        (["--seconds", "nan"], "--seconds nan measures nothing; give a time above 0"),
        (["--seconds", "inf"], "--seconds inf never ends; give a time above 0"),
        (["--folder", "file"], "file cannot be written: File exists; give another --folder"),
        (["--device", "tpu"], "device = 'tpu' is not a device; use auto, cpu, cuda, mps, xpu"),
    ):
        assert run(["bench", *words]) == 2
        assert message in capsys.readouterr().err


def test_folders_that_were_made_for_it_go(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("new/below", "there/new", "there"):
        benchmark._disk(tmp_path / name, 1)
        assert [path.name for path in tmp_path.rglob("*")] == ["there"], name


def test_a_disk_that_cannot_be_written_comes_before_all_else() -> None:
    with pytest.raises(FedscopeError, match="cannot be written"):
        bench("cnnn", folder="/dev/null/x")
