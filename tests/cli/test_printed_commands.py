"""Commands that fedscope prints can be pasted into a shell, whatever the folders of runs and files are called."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.io.hdf5_validation import remedy
from fedscope.checkpoints.io.shell_words import command_line, quoted
from fedscope.checkpoints.runs.writer import RunWriter
from fedscope.cli.commands.train import _resumable
from fedscope.cli.main import commands, run
from fedscope.cli.main import fedscope as group
from fedscope.training import Config, Setup, train
from fedscope.training.jobs.job_settings import JobSettings
from fedscope.training.jobs.launchers import Slurm
from fedscope.training.loop.resume_device import _anew
from fedscope.training.settings.missing_code import needs_code
from fedscope.training.sweeps.plan import plan_sweep
from fedscope.training.sweeps.state import FAILURES, failures_in

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]

#: a shell takes it apart in three ways
ODD = "bob's runs & co"
SMALL = ["--set", "data.clients=4", "--set", "model.hidden=[4]", "--set", "run.rounds=2", "--set", "client.epochs=1"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A run of two rounds, `r`, in such a folder."""
    folder = tmp_path_factory.mktemp("odd") / ODD
    tables: dict[str, Any] = {"data": {"clients": 4}, "model": {"hidden": [4]}, "client": {"epochs": 1}}
    tables["run"] = {"rounds": 2, "participation": 1.0}
    train(Config.read(tables), folder / "r")
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder above a copy of it, in which one stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.copytree(trained, ODD)
    return tmp_path


def parsed(command: str) -> list[str]:
    """The words of a command line behind `fedscope`, which the command's own options and arguments take."""
    program, name, *words = shlex.split(command)
    assert program == "fedscope"
    one = group.get_command(group.make_context("fedscope", ["ls"]), name)
    assert one is not None, name
    one.make_context(name, list(words))
    return [name, *words]


def said_by(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    capsys.readouterr()
    assert run(list(words)) == status, capsys.readouterr()
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out + found.err


def test_words_come_back_from_a_shell_as_they_went_in() -> None:
    for word in ("runs/ima@40/client-17", "last:10", "../a-b_c.d/e", "npz:x=1,y", "~home", "a b", "it's", "$x;`y`", ""):
        assert shlex.split(quoted(word)) == [word]
    assert quoted("runs/ima@last", Path("a/b.pt"), 3) == "runs/ima@last a/b.pt 3"
    assert shlex.split(command_line("plane", f"{ODD}@1", "--grid", 5)) == [
        "fedscope",
        "plane",
        f"{ODD}@1",
        "--grid",
        "5",
    ]


def test_what_a_report_asks_first_can_be_asked_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by(capsys, "report", f"{ODD}/r", "--compute", "--limit", "20", "--out", f"{ODD}/page")
    asked = re.findall(r"^\$ (fedscope .*)$", said, re.M)
    assert [shlex.split(one)[1] for one in asked] == [
        *("explain", "plane", "subsets", "cka", "matrix", "line", "updates", "updates"),
    ]
    before = {path: path.read_bytes() for path in Path(ODD, "r", "figures").iterdir() if path.suffix in (".csv", ".nc")}
    for one in asked:
        words = parsed(one)
        assert words[1].removesuffix("@2") == f"{ODD}/r"
        if words[0] in ("updates", "cka"):  # the others take longer, and are taken apart alike
            said_by(capsys, *words)
    assert before == {path: path.read_bytes() for path in before}, "what is there is the answer"


def test_a_report_says_what_cannot_be_answered(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run that names code of one's own, each question's refusal has the command that names it, too."""
    Path("nets.py").write_text("from torch import nn\n\n\ndef net():\n    return nn.Linear(2, 2)\n")
    start = {"weight": np.zeros((2, 2), np.float32), "bias": np.zeros(2, np.float32)}
    rows = np.eye(2, dtype=np.float32)
    np.savez("two.npz", x_train=rows, y_train=np.arange(2), x_test=rows, y_test=np.arange(2))
    with Recorder(Path(ODD, "own"), model="nets:net", data=f"npz:{here}/two.npz") as recorder:
        clients = [{name: value + k for name, value in start.items()} for k in (1, 2)]
        recorder.round(start=start, clients=clients, global_={name: value + 1.5 for name, value in start.items()})
    (printed,) = re.findall(r": (fedscope subsets .*)$", capsys.readouterr().out, re.M)
    assert parsed(printed)[1:] == [f"{here}/{ODD}/own", "--model", "nets:net"]
    said = said_by(capsys, "report", f"{ODD}/own", "--compute", "--out", f"{ODD}/page")
    refused = re.findall(r"(?:not asked|not answered): .*: (fedscope .*)$", said, re.M)
    assert len(refused) >= 4
    for one in refused:
        words = parsed(one)
        assert words[1].removesuffix("@1") == f"{ODD}/own"
        assert words[-2:] == ["--model", "nets:net"]


def test_a_run_goes_on_by_what_is_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), _resumable(Path(ODD, "r")):
        raise KeyboardInterrupt
    (on,) = re.findall(r"go on with: (fedscope .*)$", capsys.readouterr().err, re.M)
    assert "is complete" in said_by(capsys, *parsed(on), status=2)
    (on,) = re.findall("`(fedscope .*)`", said_by(capsys, "train", *SMALL, "--out", f"{ODD}/r", status=2))
    assert parsed(on) == ["train", "--resume", f"{ODD}/r"]
    run_ = Run.open(Path(ODD, "r"))
    assert parsed(_anew(run_, "cpu").partition(": ")[2]) == ["train", "--from", f"{ODD}/r@last", "--device", "cpu"]
    assert parsed(remedy(Path(ODD, "r/rounds/00002.h5")).partition(": ")[2]) == ["train", "--from", f"{ODD}/r@1"]
    with pytest.raises(FedscopeError, match="was trained by fedscope; go on with it: ") as refused:
        Recorder(Path(ODD, "r"), resume=True)
    assert parsed(str(refused.value).partition(": ")[2]) == ["train", "--resume", f"{here}/{ODD}/r"]
    shutil.rmtree(Path(ODD, "r/rounds"))
    Path(ODD, "r/rounds").mkdir()
    (on,) = re.findall(r"go on with it: (fedscope .*)$", said_by(capsys, "updates", f"{ODD}/r", status=2), re.M)
    assert parsed(on) == ["train", "--resume", f"{ODD}/r"]


def test_a_damaged_run_is_branched_by_what_is_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(ODD, "r/rounds/00002.h5")
    with h5py.File(file, "r+") as opened:
        opened["global/fc1.weight"][0, 0] += 1
    (again,) = re.findall(r"round: (fedscope .*)$", said_by(capsys, "ls", "--check", f"{ODD}/r", status=2), re.M)
    assert parsed(again) == ["train", "--from", f"{ODD}/r@ROUND"]


def test_remedies_name_a_path_as_a_shell_takes_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by(capsys, "cka", f"{ODD}/r@1/global", status=2)
    (other,) = re.findall(r"compared by (fedscope .*)\)$", said, re.M)
    said_by(capsys, *parsed(other), "--limit", "20")
    said = said_by(capsys, "reaggregate", f"{ODD}/r@2", "--server", "fedprox", status=2)
    assert parsed(said.partition("a branch: ")[2].strip()) == ["train", "--from", f"{ODD}/r@2"]
    said = said_by(capsys, "curves", f"{ODD}/r", "--tensorboard", f"{ODD}/events")
    assert shlex.split(re.findall("look at them: (.*)$", said, re.M)[0])[-1] == f"{ODD}/events"
    Path(ODD, "mnist").touch()
    said = said_by(capsys, "data", "--data", f"mnist:{ODD}/mnist", status=2)
    assert shlex.split(said.partition("its folder, ")[2]) == ["--data", f"mnist:{ODD}"]
    assert shlex.split(needs_code("server", "my nets:S").rpartition("give ")[2]) == ["--code", "server=my nets:S"]


def test_imported_files_are_asked_by_what_is_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their code lies in such a folder, too."""
    code = f"{ODD}/nets.py:net"
    Path(ODD, "nets.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    draw = np.random.default_rng(0)
    files = [f"{ODD}/{name}.safetensors" for name in "ab"]
    for file in files:
        save_file({"1.weight": draw.normal(size=(10, 64)).astype("f"), "1.bias": np.zeros(10, "f")}, file)
    (made,) = re.findall("; (fedscope .*) makes a run", said_by(capsys, "subsets", files[0], status=2))
    assert parsed(made) == ["import", files[0], "FILE", "...", "--out", "RUN"]
    said = said_by(capsys, "import", *files, "--out", f"{ODD}/soup", "--model", code, "--data", "digits")
    first, second = (parsed(line.strip()) for line in said.splitlines() if line.strip().startswith("fedscope "))
    assert first == ["subsets", f"{ODD}/soup", "--model", code]
    assert second == ["plane", f"{ODD}/soup@1", "--clients", "--model", code]
    said_by(capsys, *first, "--limit", "20")
    said = said_by(capsys, "export", f"{ODD}/soup@1", status=2)
    assert parsed(re.findall("as in: (fedscope .*); or", said)[0]) == ["export", f"{ODD}/soup@1", "out.safetensors"]


def test_a_sweep_is_dry_and_goes_on_by_what_is_printed(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["sweep", "method=fma,fedavgm", *SMALL, "--out", f"{ODD}/s"]
    *dry, _ = said_by(capsys, *words, "--dry-run").splitlines()
    outs = [parsed(line)[-1] for line in dry if line.startswith("fedscope ")]
    assert outs == [f"{ODD}/s/runs/fma", f"{ODD}/s/runs/fedavgm"]

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fedscope.training.train_plan", stopped)
        said = said_by(capsys, *words, "--launcher", "processes", "--job", "timeout_min=5", status=130)
    assert parsed(re.findall("go on with: (fedscope .*)$", said, re.M)[0])[:3] == ["sweep", "--resume", f"{ODD}/s"]
    Path(ODD, "s").mkdir()
    Path(ODD, "s", FAILURES).write_text("[")
    with pytest.raises(FedscopeError, match="train again: ") as refused:
        failures_in(Path(ODD, "s"), plan_sweep(Setup(), [[{"method": "fma"}]]))
    assert parsed(str(refused.value).rpartition("again: ")[2]) == ["sweep", "--resume", f"{ODD}/s"]


def test_a_batch_script_takes_such_a_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    Path("srun").write_text("#!/bin/sh\nexit 1\n")  # submitit looks for it
    Path("srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}{os.pathsep}{os.environ['PATH']}")
    made = Slurm(JobSettings(60)).executor("fedscope-1", here / ODD / "jobs")
    text = made._make_submission_file_text(made._submitit_command_str, "x")
    given = [shlex.split(line.removeprefix("#SBATCH ")) for line in text.splitlines() if "#SBATCH --output" in line]
    assert given == [[f"--output={here / ODD}/jobs/%j_0_log.out"]]
    assert shlex.split(text.splitlines()[-1])[-1] == str(here / ODD / "jobs")


def test_the_disk_may_be_full(here: Path) -> None:
    from fedscope.checkpoints.io.errors import DiskFullError
    from fedscope.checkpoints.runs import writer

    with RunWriter.open(Path(ODD, "r")) as opened, pytest.raises(DiskFullError) as refused, writer._room(opened):
        raise DiskFullError("no space")
    assert parsed(str(refused.value).rpartition(": ")[2]) == ["train", "--resume", f"{ODD}/r"]


def test_no_sentence_puts_a_value_into_a_command_as_it_stands() -> None:
    """Neither behind `fedscope COMMAND` nor behind a remedy's flag that takes a path or code."""
    names = "|".join(commands())
    command = re.compile(rf"fedscope (?:{names})(?: [^;:,.()`]*)?$")
    flag = re.compile(
        r"\b(?:give|or|folder,|replay) --(?:data|model|task|code|base|resume|from|server)[ =](?:[a-z]+=)?$"
    )
    package = Path(fedscope.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            before = ""
            for part in node.values:
                if isinstance(part, ast.Constant):
                    before += str(part.value)
                    continue
                assert isinstance(part, ast.FormattedValue)
                value = ast.unparse(part.value)
                if (command.search(before) or flag.search(before)) and not value.startswith(
                    ("quoted(", "command_line(")
                ):
                    found.append(f"{path.relative_to(package)}:{node.lineno}: {value}")
                before += "x"
    assert not found, "\n".join(found)
