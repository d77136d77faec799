"""Every architecture of the papers, of its true width, on stand-in data: trained two rounds, killed while the second is
written, resumed and branched to the same bits, replayed, and asked every question that its page allows."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from fedscope import ClientCKA, Decomposition, Dispersion, Subsets
from fedscope.checkpoints import Run
from fedscope.cli.main import run as command
from fedscope.decomposition.draws.replay import Replayer
from fedscope.decomposition.updates.result import ClientUpdates

pytestmark = pytest.mark.slow

#: shape of the stand-in samples, channels last as in files, or the length of a sequence
SAMPLES: dict[str, tuple[int, ...]] = {
    "alexnet-gn": (63, 63, 3),
    "cnn-femnist": (28, 28, 1),
    "cnn-gn": (28, 28, 3),
    "lstm": (12,),
    "mobilenetv2-gn": (32, 32, 3),
    "resnet18": (16, 16, 3),
    "resnet18-gn": (16, 16, 3),
    "resnet20-gn": (16, 16, 3),
    "resnet34": (16, 16, 3),
    "vgg11-gn": (32, 32, 3),
    "vit-b16": (32, 32, 3),
}
CLASSES, TRAIN, TEST = 4, 14, 16
#: kills the training with the file of its second round half written
TORN = """
import os, signal
from pathlib import Path

sync = os.fsync

def torn(descriptor):
    if list(Path("stopped/rounds").glob(".00002.h5*.tmp")):
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)

os.fsync = torn
from fedscope.cli.main import main
main()
"""


def stand_in(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Images whose brightness says their class, or tokens that count up."""
    random, number = np.random.default_rng(0), TRAIN + TEST
    if len(shape) == 1:
        x = (random.integers(0, 90, (number, 1)) + np.arange(shape[0])) % 90
        x[:, -1] = 89
        y = (x + 1) % 90
    else:
        y = np.arange(number) % CLASSES
        x = (60 * y.reshape(-1, 1, 1, 1) + random.integers(0, 60, (number, *shape))).astype(np.uint8)
    return {"x_train": x[:TRAIN], "y_train": y[:TRAIN], "x_test": x[TRAIN:], "y_test": y[TRAIN:]}


@pytest.fixture
def words(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The settings of a training in an empty folder, which is emptied again: the largest models take gigabytes."""
    model: str = request.param
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", **stand_in(SAMPLES[model]))
    words = f"--data npz:data.npz --model {model} --partition iid --clients 2 --participation 1 --rounds 2 --method fma"
    words += " --epochs 1 --batch 3 --lr 0.01 --set data.client_test=0"
    yield [*words.split(), *(["--task", "sequences"] if model == "lstm" else [])]
    for path in tmp_path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def do(*arguments: str) -> None:
    assert command(list(arguments)) == 0, arguments


def same(one: Run, other: Run) -> None:
    """All models, and all numbers but the seconds, bit for bit."""
    assert one.rounds == other.rounds == (1, 2)
    for t in one.rounds:
        rounds = one.round(t), other.round(t)
        for which in ("start", "global"):
            mine, theirs = (round_.read(which).arrays() for round_ in rounds)
            assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine), (t, which)
        mine, theirs = (round_.clients().arrays() for round_ in rounds)
        assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine), t
        numbers = [{**round_.metrics, "seconds": None} for round_ in rounds]
        assert numbers[0] == numbers[1]


def play(words: list[str]) -> Run:
    """An uninterrupted training, and one that is killed, resumed, and branched."""
    do("train", *words, "--out", "whole")
    code = [sys.executable, "-P", "-c", TORN, "train", *words, "--out", "stopped"]
    killed = subprocess.run(code, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert Run.open("stopped").rounds == (1,)
    assert list(Path("stopped/rounds").glob(".00002.h5*.tmp")), "a file was half written"
    do("train", "--resume", "stopped")
    whole = Run.open("whole")
    same(whole, Run.open("stopped"))
    shutil.rmtree("stopped")
    do("train", "--from", "whole@1", "--method", "fma", "--rounds", "2", "--out", "branch")
    same(whole, Run.open("branch"))
    shutil.rmtree("branch")
    return whole


def replayed(run: Run) -> None:
    """Draw 1 is the recorded training, draw 2 another one."""
    replayer, round_ = Replayer.of(run), run.round(2)
    recorded, again = round_.clients(), replayer.replay(round_, 1)
    assert again.parameters.tobytes() == recorded.parameters.tobytes()
    for name, values in recorded.buffers.items():
        assert again.buffers[name].tobytes() == values.tobytes()
    assert replayer.replay(round_, 2).parameters.tobytes() != recorded.parameters.tobytes()


def analysed(run: Run) -> None:
    """Each command ends well, and what it found is so by another way."""
    round_, ask = run.round(2), "whole@2"
    rows = round_.clients().parameters.astype(np.float64) - round_.read("start").parameters

    do("plane", f"{ask}/start", f"{ask}/global", f"{ask}/client-0", "--grid", "3", "--split", "test", "--out", "p")
    assert Path("p.nc").exists()

    do("decompose", "whole", "--rounds", "2", "--draws", "local:2", "--split", "test", "--out", "d")
    assert Path("d.factors.csv").exists()

    do("cka", "whole", "--rounds", "2", "--split", "test", "--out", "c")
    found = ClientCKA.load("c.nc").rounds[0].cka
    np.testing.assert_allclose(np.diag(found), 1)
    assert found[0, 1] == found[1, 0]

    do("disperse", "whole", "--rounds", "2", "--out", "s")
    dispersed = Dispersion.load("s").rounds[0]
    assert dispersed.whole.parameters == run.layout.size == sum(row.parameters for row in dispersed.layers)

    do("updates", "whole", "--rounds", "2", "--out", "u")
    cosine = rows[0] @ rows[1] / np.linalg.norm(rows[0]) / np.linalg.norm(rows[1])
    assert ClientUpdates.load("u.nc").rounds[0].cosine[0, 1] == pytest.approx(cosine, abs=1e-6)

    do("synergy", ask, "--out", "y")
    assert Path("y.nc").exists()

    do("reaggregate", ask, "--server", "fedavgm", "--out", "r")
    table = Path("r.reaggregate.csv").read_text().splitlines()
    fma = next(dict(zip(table[0].split(","), line.split(","), strict=True)) for line in table if ",fma," in f",{line}")
    assert fma["identical"] == "True"


@pytest.mark.parametrize("words", ["resnet18", "resnet20-gn"], indirect=True)
def test_results_on_averages_say_what_became_of_the_statistics(words: list[str], capsys: Any) -> None:
    do("train", *words, "--out", "whole")
    normalised = bool(Run.open("whole").layout.buffers)
    said = "normalization statistics averaged as the weights are"
    do("reaggregate", "whole@2", "--server", "fedavgm", "--out", "r")
    assert (f"{said}, with p, for every server" in capsys.readouterr().out) == normalised
    for question, kind in (("decompose", Decomposition), ("subsets", Subsets)):
        draws = ["--draws", "local:2"] if question == "decompose" else []
        do(question, "whole", "--rounds", "2", "--split", "test", *draws, "--out", question)
        result = kind.load(question)
        assert result.attrs.get("normalization_policy") == ("averaged" if normalised else None)
        shown = [text.get_text() for text in result.figure().findobj(Text)]  # a line each
        assert any("ormalization statistics" in line for line in shown) == normalised
    do("explain", "whole", "--rounds", "2", "--split", "test", "--draws", "local:2", "--out", "e")
    assert (f"- {said[0].upper()}{said[1:]}." in Path("e.md").read_text()) == normalised


@pytest.mark.parametrize("words", SAMPLES, indirect=True)
def test_a_model_trains_is_killed_goes_on_and_is_analysed(words: list[str]) -> None:
    run = play(words)
    replayed(run)
    analysed(run)
