"""Slips with code of one's own, and what the sentence offers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fedscope
from fedscope import Run
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run

pytestmark = pytest.mark.same_elsewhere

FILES = {
    "slipnets.py": """
from torch import nn

class Net(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)
    def forward(self, x):
        return super().forward(x.flatten(1))

class Fails(Net):
    def __init__(self):
        raise RuntimeError("no such device")

net = Net()
""",
    "sliptask.py": """
from torch.nn import functional

def direct(outputs, y):
    return functional.cross_entropy(outputs, y, reduction="none")
""",
    "slipdata.py": """
import numpy as np

def boom():
    raise ValueError("no such disk")

def drawn():
    draw = np.random.default_rng()
    y = np.arange(80) % 4
    x = draw.normal(size=(80, 6)).astype("float32")
    return (x[:60], y[:60]), (x[60:], y[60:])
""",
    "slipserver.py": """
LIMIT = 3

def helper():
    return 1

class FedX:
    pass
""",
}
FEW = ["--clients", "4", "--participation", "1", "--rounds", "2", "--epochs", "1", "--method", "fma"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slips")
    fedscope.train(method="ima", clients=4, participation=1, rounds=3, epochs=1, out=folder / "run")
    return folder / "run"


@pytest.fixture
def here(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files and a run."""
    from shutil import copytree

    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    copytree(trained, "run")
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    capsys.readouterr()
    assert run(words) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said.splitlines()[-1]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "sentence", "never"),
    [
        # what a call failed for
        (["--task", "sliptask:direct"], "as in def make(): return direct", "give what it needs"),
        (["--data", "slipdata.py:boom"], "ValueError: no such disk (line 5 of slipdata.py)", "give what it needs"),
        (["--model", "slipnets.py:Fails"], "no such device (line 12 of slipnets.py)", "give what it needs"),
        (["--model", "slipnets.py:net"], "net is a Net that is made already; name its class", "give what it needs"),
        (["--model", "torch.nn:Linear"], "it is called without arguments: give what it needs", "line "),
        # a file named as a word
        (["--server", "slipserver"], "'slipserver' is not a server method that fedscope knows; did you mean "
         "slipserver:FedX?", "helper"),
        (["--client", "slipserver.FedX"], "did you mean slipserver:FedX?", "helper"),
        (["--model", "slipnets"], "did you mean slipnets:Net?", "mlp?"),
        (["--model", "slipnets.Fails"], "did you mean slipnets:Fails?", "mlp?"),
        # a setting without its section
        (["--set", "lr=0.1"], "'lr=0.1' is not understood; did you mean client.lr? write section.key=value", "xx"),
        (["--set", "clients=4"], "did you mean data.clients? write section.key=value", "xx"),
        (["--set", "hidn=4"], "is not understood; write section.key=value, as in", "did you mean"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_is_meant(
    words: list[str], sentence: str, never: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, ["train", *FEW, *words, "--out", "new"])
    assert sentence in said
    assert never not in said
    assert not Path("new").exists()


@pytest.mark.usefixtures("here")
def test_a_method_to_check_is_offered_from_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean slipserver:FedX?" in refused(capsys, ["check-method", "slipserver"])


@pytest.mark.usefixtures("here")
def test_a_run_is_trained_longer_by_a_branch(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, ["train", "--resume", "run"])
    assert said.endswith("to train longer, branch: fedscope train --from run@3 --rounds 5 --out run-longer")
    said = refused(capsys, ["train", "--resume", "run", "--rounds", "4"])
    assert "give it alone" in said
    command = said.partition("branch: fedscope ")[2]
    assert run(command.split()) == 0
    assert Run.open("run-longer").rounds == (1, 2, 3, 4)


@pytest.mark.usefixtures("here")
def test_a_run_with_a_gap_is_not_complete(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run/rounds/00002.h5").unlink()
    said = refused(capsys, ["train", "--resume", "run"])
    assert "run has its last round, 3, but lacks round 2, which was recorded; restore the files from a copy" in said
    assert run(["ls"]) == 0
    assert "3 of 3 without 2" in capsys.readouterr().out
    assert run(["ls", "run"]) == 0
    assert "\nmissing rounds 2\n" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_data_that_are_drawn_anew_are_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *FEW, "--data", "slipdata:drawn", "--out", "drawn"]) == 0
    for name in ("slipdata:drawn", "slipdata.py:drawn"):
        said = refused(capsys, ["subsets", "drawn", "--data", name])
        assert "the function returns other samples each time, or it has changed" in said
        assert "leave it out" not in said
    np.savez(
        "other.npz", x_train=np.ones((8, 6)), y_train=np.arange(8) % 4, x_test=np.ones((4, 6)), y_test=np.arange(4)
    )
    said = refused(capsys, ["subsets", "drawn", "--data", "npz:other.npz"])
    assert said.endswith("give --data slipdata:drawn")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("words", [["--data", "npz:nope.npz"], ["--model", "nope"], ["--task", "nope"]])
def test_measure_looks_at_options_although_nothing_is_missing(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["measure", "run"]) == 0
    assert "nothing is new" in capsys.readouterr().out
    assert "nope" in refused(capsys, ["measure", "run", *words])


@pytest.mark.usefixtures("here")
def test_a_round_in_place_of_a_run_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    last = Run.open("run").round("last")
    sentence = r"run@3 is a round, and a run is asked for; give 'run@3', or its run and rounds=3"
    for ask in (
        fedscope.subsets,
        fedscope.updates,
        fedscope.table,
        fedscope.curves,
        fedscope.decompose,
        fedscope.matrix,
    ):
        for given in (last, [last]):
            with pytest.raises(FedscopeError, match=sentence):
                ask(given)  # type: ignore[operator]


def test_a_state_dict_asks_for_its_module() -> None:
    from torch import nn

    net = nn.Linear(64, 10)
    with pytest.raises(FedscopeError, match=r"give model=, the module or the class that it is of, or a name"):
        fedscope.line([net.state_dict(), net.state_dict()], data="digits")
