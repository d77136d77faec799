"""``--model arch.py:Net``: a file of code that is typed on a command line is run; a text from anywhere else is not."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.training import load_data
from fedscope.training.import_string import CodeFile, ImportString

pytestmark = pytest.mark.same_elsewhere

ARCH = """
from pathlib import Path

from sidekick import HIDDEN  # lies next to it
from torch import nn

Path("ran").touch()


class Net(nn.Sequential):
    def __init__(self, hidden=HIDDEN):
        super().__init__(nn.Flatten(), nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3))


def small():
    return Net(2)


def load():
    import numpy as np

    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    return x, np.arange(30) % 3
"""


def net(hidden: int = 5) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my nets").mkdir()
    (tmp_path / "my nets/arch.py").write_text(ARCH)
    (tmp_path / "my nets/sidekick.py").write_text("HIDDEN = 5")
    for k in range(2):
        torch.manual_seed(k)
        torch.save(net().state_dict(), f"m{k}.pt")
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.savez("test.npz", x_test=x, y_test=np.arange(30) % 3)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if "arch" in name or name == "sidekick":
            del sys.modules[name]


def losses(*options: str) -> np.ndarray:
    """On the line between the two files, as the command has measured them."""
    assert run(["line", "m0.pt", "m1.pt", *options, "--points", "3", "--force", "--out", "l"]) == 0
    return fedscope.Line.load("l").loss


@pytest.mark.parametrize("model", ["my nets/arch.py:Net", "./my nets/arch.py:Net(5)", "my nets/arch.py:Net(hidden=5)"])
@pytest.mark.filterwarnings("ignore:.*no training samples")
def test_a_file_is_the_module_that_it_holds(here: Path, model: str) -> None:
    found = losses("--model", model, "--data", "test.npz")
    assert Path("ran").exists()
    with np.load("test.npz") as arrays:
        data = arrays["x_test"], arrays["y_test"]
    own = fedscope.line([torch.load(f"m{k}.pt") for k in range(2)], model=net(), data=data, points=3)
    np.testing.assert_array_equal(found, own.loss)
    assert np.ptp(found) > 0
    np.testing.assert_array_equal(losses("--model", model, "--data", "npz:test.npz"), found)
    np.testing.assert_array_equal(losses("--model", model, "--data", "my nets/arch.py:load"), found)


def test_what_is_wrong_with_a_file_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The likeliest mistakes: no name in it, another file, another name, a path as a module's; another kind of data."""
    (here / "x.csv").touch()
    (here / "sets").mkdir()
    for options, sentence in (
        (["--model", "my nets/arch.py"], "names a file and nothing in it; write my nets/arch.py:Net; it defines Net, "),
        (["--model", "my nets/arhc.py:Net"], 'there is no file my nets/arhc.py; did you mean "my nets/arch.py"?'),
        (["--model", "nowhere/x.py:Net"], "there is no file nowhere/x.py; give the path of a Python file, or a module"),
        (["--model", "my nets/arch.py:Nett"], 'has no Nett; did you mean "Net"?'),
        (["--model", "my nets/arch:Net"], "; on a command line the file my nets/arch.py is my nets/arch.py:Net"),
        (["--model", "my nets/arch.py:Net(HIDDEN)"], "HIDDEN is not a literal"),
        (["--data", "tset.npz"], '--data npz:tset.npz: there is no such file; did you mean "test.npz"?'),
        (["--data", "x.csv"], "--data x.csv is no .npz; save its arrays with numpy.savez (x_test, y_test, and x_train"),
        (["--data", "sets"], "--data sets is a folder; write folder:sets"),
        (["--data", "my nets/arch.py"], "names a file and nothing in it; write my nets/arch.py:Net; it defines Net, "),
    ):  # fmt: skip
        words = dict([("--model", "my nets/arch.py:Net"), ("--data", "test.npz"), tuple(options)])  # type: ignore[list-item]
        assert run(["line", "m0.pt", "m1.pt", *(word for pair in words.items() for word in pair)]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert "Traceback" not in said


@pytest.mark.filterwarnings("ignore:.*no training samples")
def test_a_file_that_fails_says_so_and_is_read_anew(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arch = here / "my nets/arch.py"
    arch.write_text("import nothing_like_it")
    words = ["line", "m0.pt", "m1.pt", "--model", "my nets/arch.py:Net", "--data", "test.npz"]
    assert run(words) == 2
    assert "my nets/arch.py needs nothing_like_it, which is not installed" in capsys.readouterr().err
    arch.write_text("1 / 0")
    assert run(words) == 2
    assert "my nets/arch.py cannot be imported: ZeroDivisionError" in capsys.readouterr().err
    assert "arch" not in sys.modules


def test_two_files_of_one_name_are_two_modules(here: Path) -> None:
    """And one that is called as something installed does not take its place."""
    made = []
    for folder, hidden in (("a", 1), ("b", 2)):
        (here / folder).mkdir()
        for stem in ("arch", "json"):
            (here / folder / f"{stem}.py").write_text(f"def width():\n    return {hidden}\n")
            text = CodeFile.typed("--model", f"{folder}/{stem}.py:width")
            made.append(ImportString.parse("--model", text)())
    assert made == [1, 1, 2, 2]
    assert sys.modules["json"] is json


@pytest.mark.parametrize("text", ["my nets/arch.py:Net", "arch.py:Net", "./arch.py:load"])
def test_a_plain_text_runs_no_file(here: Path, text: str) -> None:
    """Whoever says it: a run's file, a configuration, or Python, which can import it itself."""
    (here / "arch.py").write_text(ARCH)
    data = np.zeros((3, 4), np.float32), np.arange(3)
    for ask in (
        lambda: ImportString.parse("--model", text),
        lambda: fedscope.line(["m0.pt", "m1.pt"], model=text, data=data),
        lambda: fedscope.line(["m0.pt", "m1.pt"], model=net(), data=text),
        lambda: fedscope.line(["m0.pt", "m1.pt"], model=net(), data=data, task=text),
        lambda: load_data(text),
        lambda: fedscope.training.Config.read({"model": {"name": text}}),
    ):
        with pytest.raises(FedscopeError):
            ask()
    assert not Path("ran").exists()
    with pytest.raises(FedscopeError, match=r"is not a module:factory; .*"):
        ImportString.parse("--model", text)


@pytest.mark.filterwarnings("ignore")
def test_a_run_keeps_the_text_and_nobody_runs_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "my nets/arch.py:Net", "--data", "test.npz", "--out", "runs/soup"]
    assert run(["import", "m0.pt", "m1.pt", *words]) == 0
    info = json.loads(Path("runs/soup/run.json").read_text())
    assert info["model"] == "my nets/arch.py:Net"
    assert info["data"]["name"] == f"npz:{here.resolve() / 'test.npz'}"
    Path("ran").unlink(missing_ok=True)
    for name in ("arch", "sidekick"):
        sys.modules.pop(name, None)
    assert run(["line", "runs/soup", "--points", "3"]) == 2
    said = capsys.readouterr().err
    assert "if you know it, give --model 'my nets/arch.py:Net': fedscope line runs/soup --points 3 --model" in said
    with pytest.raises(FedscopeError, match=r"give model=Net \(imported from my nets/arch.py\): .*soup', model=Net\)$"):
        fedscope.subsets("runs/soup")
    assert not Path("ran").exists()
    assert run(["line", "runs/soup", "--points", "3", "--model", "my nets/arch.py:Net"]) == 0
    assert Path("ran").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_task_in_a_file_is_trained_with_and_asked_of(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its run names the module, as of all code in files; the folder of the file is not where the command runs."""
    loss = "def scaled(by=1):\n    from torch.nn import functional\n"
    loss += "    return lambda out, y: by * functional.cross_entropy(out, y, reduction='none')\n"
    (here / "my nets/arch_losses.py").write_text(loss)
    few = ["--data", "digits", "--clients", "4", "--participation", "1", "--partition", "iid", "--method", "fma"]
    few += ["--rounds", "2", "--model", "mlp", "--set", "model.hidden=[4]"]
    named = ["--task", "my nets/arch_losses.py:scaled(3)"]
    assert run(["train", *few, *named, "--until", "1", "--out", "runs/own"]) == 0
    assert 'task = "arch_losses:scaled(3)"' in Path("runs/own/config.toml").read_text()
    assert run(["train", *few, "--set", "model.task=my nets/arch_losses.py:scaled", "--out", "runs/set"]) == 2
    assert "names a file, which a setting does not run; give --task 'my nets/" in capsys.readouterr().err
    assert run(["train", "--resume", "runs/own", "--task", "my nets/arch_losses.py:scaled(2)"]) == 2
    assert (
        "trained with the task arch_losses:scaled(3), and arch_losses:scaled(2) is another" in capsys.readouterr().err
    )
    assert run(["train", "--resume", "runs/own", *named]) == 0
    assert run(["train", *few, "--out", "runs/plain"]) == 0
    capsys.readouterr()
    # the commands that go on with it name its task
    assert run(["train", "--resume", "runs/own", *named]) == 2
    longer = capsys.readouterr().err.strip().partition("to train longer, branch: fedscope ")[2]
    assert longer == "train --from runs/own@2 --rounds 4 --task 'arch_losses:scaled(3)' --out runs/own-longer"
    assert run(shlex.split(longer)) == 0
    ends = [f"runs/own@{number}" for number in (1, 2)]
    found = []
    for task in (named, ["--task", "classification"]):
        assert run(["line", *ends, *task, "--points", "3", "--force", "--out", "l"]) == 0
        found.append(fedscope.Line.load("l").loss)
    np.testing.assert_allclose(found[0], 3 * found[1], rtol=1e-5)  # float32 losses of few samples
