"""Commands on folders that somebody else has made: what lies in a file's place is left alone, and said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from strange_places import CIRCLE, DANGLING, HARD, KINDS, LINK, VICTIM, at_once, put, untouched

from fedscope.cli.main import run
from fedscope.training import sweep

pytestmark = pytest.mark.same_elsewhere

SMALL = [
    "--method",
    "fma",
    "--clients",
    "8",
    "--participation",
    "1",
    "--set",
    "model.hidden=[6]",
    "--set",
    "run.evaluate_clients=0",
]
PIPE = "a named pipe"
#: files, and the commands that would write them; the run has a round of two, unless it is ``whole``
WRITTEN: dict[str, tuple[str, Sequence[str]]] = {
    "train --resume": ("half/.writer", ("train", "--resume", "half")),
    "train --force": ("half/.writer", ("train", *SMALL, "--rounds", "1", "--out", "half", "--force")),
    "train --out, only a lock": ("new/.writer", ("train", *SMALL, "--rounds", "1", "--out", "new")),
    "train --resume, its table": ("half/metrics.csv", ("train", "--resume", "half")),
    "train --from": ("new/.writer", ("train", "--from", "whole@1", "--out", "new")),
    "train --profile": ("trace.json", ("train", "--resume", "half", "--profile", "trace.json")),
    "import": ("new/.writer", ("import", "whole.pt", "--out", "new")),
    "export": ("out.pt", ("export", "whole@1", "out.pt", "--force")),
    "updates, its claim": ("whole/figures/updates-all.nc.partial", ("updates", "whole")),
    "updates, its arrays": ("whole/figures/updates-all.nc", ("updates", "whole")),
    "updates, its arrays again": ("whole/figures/updates-all.nc", ("updates", "whole", "--force")),
    "updates, its picture": ("whole/figures/updates-all.pdf", ("updates", "whole", "--force")),
    "updates --redraw, its picture": ("given/u.pdf", ("updates", "whole", "--redraw", "--out", "given/u")),
    "updates --redraw, its table": ("given/u.updates.csv", ("updates", "whole", "--redraw", "--out", "given/u")),
    "curves, its table": ("whole/figures/curves-whole.curves.csv", ("curves", "whole", "--force")),
    "curves --tensorboard": ("tb/whole/events.out.tfevents.fedscope", ("curves", "whole", "--tensorboard", "tb")),
    "export --to": ("whole/.exporting", ("export", "whole", "--to", "csv", "x.csv")),
    "export --to csv": ("x.csv", ("export", "whole", "--to", "csv", "x.csv", "--force")),
    "report": ("whole/figures/report.html", ("report", "whole", "--force")),
}
#: where a new file takes an old one's place, and whoever has the old one by another name keeps it
REPLACING = ("train --profile", "export", "export --to csv", "curves, its table", "report")


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("material")
    recorded(folder / "whole", *SMALL, "--rounds", "2")
    recorded(folder / "half", *SMALL, "--rounds", "2", "--until", "1")
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert run(["export", "whole@1", "whole.pt"]) == 0
        assert run(["updates", "whole", "--out", "given/u"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def here(material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(material, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], words: Sequence[str]) -> str:
    """The one sentence with which a command ends."""
    capsys.readouterr()
    with at_once():
        assert run(list(words)) == 2, capsys.readouterr()
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedscope: ")]
    assert said
    assert "Errno" not in said[-1]
    return said[-1].removeprefix("fedscope: ")


@pytest.mark.parametrize("kind", [LINK, HARD, CIRCLE, PIPE])
@pytest.mark.parametrize("door", WRITTEN)
def test_a_command_writes_through_nothing(here: Path, capsys: pytest.CaptureFixture[str], door: str, kind: str) -> None:
    name, words = WRITTEN[door]
    place, victim = here / name, here / "victim"
    place.parent.mkdir(parents=True, exist_ok=True)
    put(kind, place, victim)
    if kind == HARD and (door in REPLACING or ("updates" in door and "claim" not in door)):
        with at_once():
            run(list(words))
        assert victim.read_text() == VICTIM
        return
    said = refused(capsys, words)
    assert name.rpartition("/")[2] in said
    assert untouched(kind, place, victim)


@pytest.mark.parametrize("name", ["rounds", "kept", "figures"])
def test_a_folder_of_a_run_that_is_a_link_is_not_written_into(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "00001.h5").write_text(VICTIM)
    half = here / "half" / name
    half.rename(here / "away") if half.exists() else None
    half.symlink_to(elsewhere)
    asked = {
        "rounds": (("train", *SMALL, "--rounds", "1", "--out", "half", "--force"),),
        "kept": (("train", "--resume", "half"), ("train", *SMALL, "--rounds", "1", "--out", "half", "--force")),
        "figures": (("curves", "half"), ("updates", "half"), ("report", "half")),
    }[name]
    for words in asked:
        said = refused(capsys, words)
        assert said.startswith(f"half/{name} is a link, and nothing is written or removed where it leads; put a folder")
    assert [path.name for path in elsewhere.iterdir()] == ["00001.h5"]
    assert (elsewhere / "00001.h5").read_text() == VICTIM
    if name == "figures":  # the remedies
        assert run(["curves", "half", "--out", "half/figures/chosen"]) == 0
        assert (elsewhere / "chosen.pdf").exists(), "a place that was given is the user's own choice"


# --- sweeps ---

TINY = {
    "data": {"clients": 4},
    "model": {"hidden": [6]},
    "client": {"epochs": 1},
    "run": {"rounds": 1, "participation": 0.5, "evaluate_clients": 0},
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two runs, of which the second is missing."""
    folder = tmp_path_factory.mktemp("swept") / "s"
    sweep({"method": ["fma", "fedavgm"]}, settings=TINY, out=folder)
    shutil.rmtree(folder / "runs" / "fedavgm")
    return folder


@pytest.fixture
def half_swept(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(swept, "s")
    return tmp_path / "s"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [".writer", "logs/fedavgm.log", "logs", "runs"])
def test_a_sweep_writes_through_nothing(
    half_swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    place, victim = half_swept / name, tmp_path / "victim"
    if name in ("logs", "runs"):
        if kind == "a folder":
            return
        place.rename(tmp_path / "away")
    put(kind, place, victim)
    said = refused(capsys, ("sweep", "--resume", "s"))
    assert said.startswith(f"{place if name != '.writer' else 's/.writer'} is ")
    assert untouched(kind, place, victim)
    assert not Path("s/runs/fedavgm").exists()


@pytest.mark.parametrize("kind", [LINK, HARD])
def test_what_a_sweep_says_of_failures_is_a_file_of_its_own(
    half_swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    put(kind, half_swept / "failures.json", tmp_path / "victim")
    before = '{"fedavgm": "failed"}'  # as it would be believed
    (tmp_path / "victim").write_text(before)
    monkeypatch.setattr("fedscope.training.sweeps.running.arguments_of", lambda *_: ["no such command"])
    assert run(["sweep", "--resume", "s"]) == 2
    assert (tmp_path / "victim").read_text() == before


def test_a_log_of_a_sweep_that_is_a_link_keeps_what_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it comes once the sweep has begun: the process that trains looks by itself."""
    from fedscope.checkpoints import FedscopeError
    from fedscope.training.jobs.worker import Worker

    monkeypatch.chdir(tmp_path)
    put(LINK, tmp_path / "log", tmp_path / "victim")
    monkeypatch.setattr("fedscope.training.jobs.worker.refuse_strange", lambda *_: None)
    with Worker() as worker, pytest.raises(FedscopeError, match="log is a link, not the log of a command"):
        worker.begin(["--version"], Path("log"))
    with Worker() as worker:
        worker.begin(["--version"], Path("other"))
        assert worker.status(60) == 0
        worker.begin(["--version"], Path("log"))  # by a process that is there already
        assert worker.status(60) != 0
    assert untouched(LINK, tmp_path / "log", tmp_path / "victim")


# --- reading ---

READ = {
    "run.json": ("ls half", "curves half", "train --resume half"),
    "config.toml": ("ls --check half", "train --resume half", "report half"),
    "partition.h5": ("ls --check half", "train --resume half", "report half"),
    "metrics.csv": ("curves half", "ls half"),
    "rounds/00001.h5": ("ls --check half", "updates half", "export half@1 o.pt", "report half"),
    "rounds": ("ls --check half", "curves half"),
}


@pytest.mark.parametrize("kind", [DANGLING, CIRCLE, PIPE, "a folder", "a socket"])
@pytest.mark.parametrize("name", READ)
def test_reading_neither_waits_nor_fails_with_a_traceback(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    place = here / "half" / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    put(kind, place, here / "victim")
    for words in READ[name]:
        capsys.readouterr()
        with at_once():  # an exception that is no sentence comes through
            status = run(words.split())
        said = capsys.readouterr()
        assert status in (0, 1, 2), words
        assert "Errno" not in said.out + said.err
    assert untouched(kind, place, here / "victim")


@pytest.mark.parametrize("kind", [DANGLING, CIRCLE, PIPE, "a folder", "a socket"])
@pytest.mark.parametrize("name", ["u.nc", "u.updates.csv"])
def test_a_result_that_is_no_file_is_said(here: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str) -> None:
    (here / "given" / name).unlink()
    put(kind, here / "given" / name, here / "victim")
    for more in (("--redraw",), ()):
        assert f"given/{name}" in refused(capsys, ("updates", "whole", "--out", "given/u", *more))
    assert untouched(kind, here / "given" / name, here / "victim")


@pytest.mark.parametrize(
    ("target", "says"), [("loop.npz", "leads to itself"), ("away.npz", "is a link to what does not")]
)
def test_a_link_that_leads_nowhere_is_said_as_one(
    here: Path, capsys: pytest.CaptureFixture[str], target: str, says: str
) -> None:
    """And never followed by "did you mean" the same name."""
    Path("loop.npz").symlink_to(target)
    Path("net.npz").symlink_to("whole.pt")
    for words in (
        "import loop.npz --out s",
        "import whole.pt loop.npz --out s",
        "import whole.pt --start loop.npz --out s",
        "import whole.pt --global loop.npz --out s",
        "line loop.npz whole@1",
        "line whole@1 loop.npz",
    ):
        said = refused(capsys, words.split())
        assert says in said, words
        assert "did you mean" not in said
    for words in ("train --data npz:loop.npz --out s", "train --resume loop.npz", "train loop.npz", "ls loop.npz"):
        refused(capsys, words.split())
    for words in (("train", *SMALL, "--out", "loop.npz"), ("sweep", "method=fma,ima", "--out", "loop.npz")):
        assert says in refused(capsys, words)


def test_images_may_lie_in_folders_with_a_circle(tmp_path: Path) -> None:
    from fedscope.checkpoints import real_path

    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "folder").mkdir()
    assert real_path(tmp_path / "link" / ".." / "link") == tmp_path.resolve() / "folder"
    assert real_path(tmp_path / "circle").name == "circle"
    assert real_path("nothing\0there").is_absolute()


# --- what cannot be printed ---

PRINTED = (
    ("train --resume half", "the run half is whole, with 2 of 2 rounds"),
    ("train --resume half --json", "the run half is whole, with 2 of 2 rounds"),
    ("updates whole --out u", "what was found is whole in u.updates.csv, u.nc, u.pdf, ..."),
    ("import whole.pt --out new", "the run new is whole"),
    ("ls whole", "the files that this command has written are whole"),
    ("export whole@1 o.pt", "the files that this command has written are whole"),
    ("recipes", "the files that this command has written are whole"),
    ("--help", "the files that this command has written are whole"),
)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.slow
@pytest.mark.parametrize(("words", "whole"), PRINTED)
def test_standard_output_that_cannot_be_written_is_named(here: Path, words: str, whole: str) -> None:
    command = [sys.executable, "-P", "-m", "fedscope.cli", *words.split()]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    reason = os.strerror(28)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == f"fedscope: standard output cannot be written ({reason}); {whole}"
    assert "Exception ignored" not in ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_training_goes_on_where_nothing_can_be_said(here: Path) -> None:
    command = [sys.executable, "-P", "-m", "fedscope.cli", "train", "--resume", "half"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=full)
        assert ended.returncode == 2
        assert len(np.loadtxt("half/metrics.csv", delimiter=",", skiprows=1, usecols=0)) == 2
        assert subprocess.run([*command[:4], "ls", "nothing"], stderr=full).returncode == 2
        assert subprocess.run([*command[:4], "ls", "half"], stdout=subprocess.DEVNULL, stderr=full).returncode == 0


@pytest.mark.parametrize("words", ["--help", "recipes", "ls whole", "ls whole --json", "updates whole --out u"])
def test_a_reader_that_is_gone_is_no_error(here: Path, words: str) -> None:
    """As of ``fedscope ls | head -0``."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:  # noqa: PTH123 (of a descriptor)
        command = [sys.executable, "-P", "-m", "fedscope.cli", *words.split()]
        ended = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_mistake_is_one_though_nobody_reads_standard_output(here: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:  # noqa: PTH123 (of a descriptor)
        command = [sys.executable, "-P", "-m", "fedscope.cli", "ls", "nothing"]
        assert subprocess.run(command, stdout=pipe, stderr=subprocess.DEVNULL).returncode == 2
