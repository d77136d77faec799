"""Nothing is written through a link, a second name, a named pipe or a socket that lies where a file belongs."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strange_places import HARD, KINDS, LINK, VICTIM, at_once, put, untouched

from fedscope import Recorder
from fedscope.checkpoints import (
    FedscopeError,
    FedscopeWarning,
    Layout,
    Partition,
    RoundRecord,
    Run,
    RunWriter,
    TensorEntry,
    Weights,
    WriterLock,
    write_durably,
    write_file,
)
from fedscope.checkpoints.io.safe_write import (
    append,
    open_own,
    own_folder,
    refuse_linked,
    refuse_strange,
)
from fedscope.checkpoints.rounds.metrics import append_row
from fedscope.results.arrays import write_netcdf
from fedscope.results.resume import ResumeStore, lock_result
from fedscope.results.tables import write_csv, write_info

pytestmark = pytest.mark.same_elsewhere

ROOT = Path(__file__).resolve().parents[3]
LAYOUT = Layout((TensorEntry("w", (3,), "float32", "parameter"),))
INFO = {"layout": LAYOUT.to_json(), "source": "a test"}
IDS = np.arange(2)


def record(t: int) -> RoundRecord:
    clients = Weights(LAYOUT, np.full((2, 3), t, np.float32), {})
    return RoundRecord(t, None, clients, None, None, IDS, IDS + 1, IDS, IDS / 1, IDS / 1, metrics={"lr": 0.1})


def run_at(path: Path) -> Path:
    """A run with a round, and something kept for a resume."""
    with RunWriter.create(path, INFO, {}, None) as writer:
        writer.keep(record(1), "states")
        writer.write(record(1))
    return path


def _go_on(run: Path) -> None:
    with RunWriter.open(run) as writer:
        writer.write(record(writer.last + 1))


def _replace(run: Path) -> None:
    RunWriter.create(run, INFO, {}, None, force=True).close()


def _only_a_lock(run: Path) -> None:
    for path in [*run.rglob("*.h5"), *(run / name for name in ("run.json", "config.toml", "metrics.csv"))]:
        path.unlink(missing_ok=True)
    for folder in (*(run / "kept").glob("*"), run / "kept", run / "rounds"):
        with suppress(OSError):  # a link, or no longer there
            folder.rmdir()
    RunWriter.create(run, INFO, {}, None).close()


def _record_on(run: Path) -> None:
    Recorder(run, resume=True).close()


def _record_anew(run: Path) -> None:
    Recorder(run, force=True).close()


def _claim(run: Path) -> None:
    with lock_result(run / "a.nc.partial", []):
        pass


def _store(run: Path) -> None:
    with ResumeStore(run / "a.partial", {"grid": 3}) as store:
        store.add("1", 0.5)


def _events(run: Path) -> None:
    from fedscope.training.curves.tensorboard import _open_events

    with _open_events(run) as file:
        file.write(b"event")


def _log(run: Path) -> None:
    from fedscope.training.jobs.worker import Worker

    with Worker() as worker:
        worker.begin(["--version"], run / "fma.log")


def _mark(run: Path) -> None:
    from fedscope.training.sweeps.by_jobs import _make_mark

    _make_mark(run / "fma.begun")


def _table(run: Path) -> None:
    append_row(run / "metrics.csv", 2, {"lr": 0.1})


#: what opens a file in place, and which
IN_PLACE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "going on with a run": (".writer", _go_on),
    "replacing a run": (".writer", _replace),
    "a new run where a lock lies": (".writer", _only_a_lock),
    "a recorder that goes on": (".writer", _record_on),
    "a recorder that replaces": (".writer", _record_anew),
    "a lock": (".writer", lambda run: WriterLock(run).release()),
    "what stands for a lock": (".writer.lock", _go_on),
    "the table of a run that goes on": ("metrics.csv", _go_on),
    "a row of the table": ("metrics.csv", _table),
    "a result's claim": ("a.nc.partial", _claim),
    "what stands for a claim's lock": ("a.nc.partial.lock", _claim),
    "a store": ("a.partial", _store),
    "TensorBoard's events": ("events.out.tfevents.fedscope", _events),
    "what stands for the events' lock": (".fedscope.lock", _events),
    "a log": ("fma.log", _log),
    "the mark of a branch": ("fma.begun", _mark),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", IN_PLACE)
def test_nothing_strange_is_opened_for_writing(tmp_path: Path, door: str, kind: str) -> None:
    name, enter = IN_PLACE[door]
    run, victim = run_at(tmp_path / "run"), tmp_path / "victim"
    put(kind, run / name, victim)
    with at_once(), pytest.raises(FedscopeError) as refused:
        enter(run)
    said = str(refused.value)
    assert said.startswith(f"{run / name} is {'a link' if 'link' in kind and kind != HARD else kind}"), said
    assert said.endswith("; remove it")
    assert untouched(kind, run / name, victim)
    (run / name).rmdir() if kind == "a folder" else (run / name).unlink()
    enter(run)  # the remedy is one


def _text(path: Path) -> None:
    with write_durably(path) as temporary:
        temporary.write_text("new")


def _profile(path: Path) -> None:
    from fedscope.training import Profile

    Profile().save(path)


def _page(path: Path) -> None:
    from fedscope.cli.run_analysis import write_page

    write_page(path, "<html></html>")


def _report(path: Path) -> None:
    from fedscope.reporting.report import Report

    Report("<html></html>", 0, 0, {}).save(path, force=True)


def _figure(path: Path) -> None:
    from matplotlib.figure import Figure

    from fedscope.plotting.style import save_figure

    save_figure(Figure(), path.with_suffix(""))


def _job(path: Path) -> None:
    from fedscope.training.jobs.records import JobRecord

    JobRecord.new("slurm", "batch", 0).write(path.parent, path.name.removesuffix(".job.json"))


def _failures(path: Path) -> None:
    from fedscope.training.sweeps.state import keep_failures

    keep_failures(path.parent, {"fma": "failed"})


#: what puts a new file in the place of an old one
REPLACING: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "any file": ("a.txt", _text),
    "a model": ("a.safetensors", lambda path: write_file(path, Weights(LAYOUT, np.zeros(3, np.float32), {}))),
    "a state_dict": ("a.pt", lambda path: write_file(path, Weights(LAYOUT, np.zeros(3, np.float32), {}))),
    "arrays": ("a.nc", lambda path: write_netcdf(path, {}, {"x": (("n",), np.zeros(2), {})})),
    "a table": ("a.csv", lambda path: write_csv(path, ("x",), [(1,)])),
    "what is said of a table": ("a.json", lambda path: write_info(path, "f", 1, {})),
    "a partition": ("p.h5", lambda path: Partition((np.arange(3),), None, np.array([[3]])).save(path)),
    "a profile": ("trace.json", _profile),
    "a page": ("a.html", _page),
    "a report": ("r.html", _report),
    "a figure": ("f.pdf", _figure),
    "the record of a job": ("fma.job.json", _job),
    "the failures of a sweep": ("failures.json", _failures),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", REPLACING)
def test_a_file_takes_only_a_files_place(tmp_path: Path, door: str, kind: str) -> None:
    name, write = REPLACING[door]
    place, victim = tmp_path / "folder" / name, tmp_path / "victim"
    place.parent.mkdir()
    put(kind, place, victim)
    if kind == HARD:  # the other name keeps what it holds, as every copy by links expects
        write(place)
        assert place.read_bytes() != VICTIM.encode()
        assert victim.read_text() == VICTIM
        assert place.stat().st_nlink == 1
        return
    what = "a link" if "link" in kind else kind
    with (
        at_once(),
        pytest.raises(FedscopeError, match=f"^{re.escape(str(place))} is {what}, not .*; remove it, or write"),
    ):
        write(place)
    assert untouched(kind, place, victim)
    assert [path.name for path in place.parent.iterdir()] == [name]


def test_what_draws_pages_takes_a_links_place_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one file that every folder has alike: what a page runs depends on no link."""
    from fedscope.cli.run_analysis import write_page

    monkeypatch.setattr("fedscope.plotting.web_page.split_library", lambda page: (page, "plotly.js", b"library"))
    put(LINK, tmp_path / "plotly.js", tmp_path / "victim")
    with pytest.warns(
        FedscopeWarning, match=r"plotly\.js was a link; what it leads to is left alone, and a file takes"
    ):
        write_page(tmp_path / "a.html", "<html></html>")
    assert (tmp_path / "plotly.js").read_bytes() == b"library"
    assert not (tmp_path / "plotly.js").is_symlink()
    assert (tmp_path / "victim").read_text() == VICTIM


FOLDERS = ("rounds", "kept", "kept/states", "kept/globals", "kept/clients")


@pytest.mark.parametrize("enter", [_go_on, _replace, _only_a_lock, _record_on, _record_anew])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_runs_folder_that_is_a_link_is_left_alone(tmp_path: Path, name: str, enter: Callable[[Path], None]) -> None:
    """Where it leads are another run's rounds, and temporaries that somebody may be writing."""
    run, other = run_at(tmp_path / "run"), tmp_path / "other"
    other.mkdir()
    inside = [other / "00001.h5", other / "00007.h5", other / ".00008.h5.0123abcd.tmp"]
    for path in inside:
        path.write_text(VICTIM)
    (run / name).rename(tmp_path / "away") if (run / name).exists() else None
    (run / name).symlink_to(other)
    said = f"^{re.escape(str(run / name))} is a link, and nothing is written or removed where it leads; put a folder"
    if (name, enter) == ("rounds", _only_a_lock):
        said = "run exists and holds 2 rounds of a run that has lost its run.json"
    with at_once(), pytest.raises(FedscopeError, match=said):
        enter(run)
    assert sorted(other.iterdir()) == sorted(inside)
    assert {path.read_text() for path in inside} == {VICTIM}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "a folder"])
def test_what_is_no_folder_is_refused_as_one(tmp_path: Path, kind: str) -> None:
    put(kind, tmp_path / "rounds", tmp_path / "victim")
    said = "a link" if "link" in kind and kind != HARD else "a file" if kind == HARD else kind
    for enter in (refuse_linked, own_folder):
        with at_once(), pytest.raises(FedscopeError, match=f"rounds is {said}, "):
            enter(tmp_path / "rounds")
    assert untouched(kind, tmp_path / "rounds", tmp_path / "victim")
    own_folder(tmp_path / "new")
    own_folder(tmp_path / "new")


@pytest.mark.parametrize("name", ["a.jobs", "a.jobs/0123", "a.jobs/0123/0-1-of-2"])
def test_blocks_of_a_surface_are_measured_in_folders_of_their_own(tmp_path: Path, name: str) -> None:
    from fedscope.training.jobs.blocks import PartBlock

    block = PartBlock(tmp_path / "a.jobs" / "0123", 0, 0, 2)
    (tmp_path / "other").mkdir()
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).symlink_to(tmp_path / "other")
    with pytest.raises(FedscopeError, match=f"^{re.escape(str(tmp_path / name))} is a link, "):
        block.measure(None)  # type: ignore[arg-type]
    if name.count("/") == 2:
        with pytest.raises(FedscopeError, match=f"^{re.escape(str(tmp_path / name))} is a link, "):
            block.work(lambda *_: 0)
    assert not list((tmp_path / "other").iterdir())


def test_the_folder_of_a_run_may_be_a_link(tmp_path: Path) -> None:
    """As where a run lies on another disk."""
    (tmp_path / "scratch").mkdir()
    run = run_at(tmp_path / "scratch" / "run")
    (tmp_path / "runs").symlink_to("scratch")
    (tmp_path / "linked").symlink_to(run)
    _go_on(tmp_path / "runs" / "run")
    _go_on(tmp_path / "linked")
    assert Run.open(run).rounds == (1, 2, 3)


def test_a_copy_by_hard_links_goes_on_without_its_original(tmp_path: Path) -> None:
    """As ``cp -al`` makes one, once the two files that are written in place are removed, which the sentences name."""
    run = run_at(tmp_path / "run")
    before = {path.relative_to(run): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    for name in before:
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(run / name, tmp_path / "copy" / name)
    for name in (".writer", "metrics.csv"):
        with pytest.raises(FedscopeError, match=rf"copy/{name} is a hard link: another name has .*; remove it$"):
            _go_on(tmp_path / "copy")
        (tmp_path / "copy" / name).unlink()
    _go_on(tmp_path / "copy")
    assert Run.open(tmp_path / "copy").metrics()["lr"].tolist() == [0.1, 0.1]
    assert before == {path.relative_to(run): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def test_what_comes_in_between_is_not_opened_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look and the opening are two steps."""
    looked = []

    def too_late(path: Path, *_: Any, **__: Any) -> None:
        looked.append(path)
        if len(looked) == 1:
            path.symlink_to(tmp_path / "victim")
        else:
            refuse_strange(path, "a log")

    monkeypatch.setattr("fedscope.checkpoints.io.safe_write.refuse_strange", too_late)
    with pytest.raises(FedscopeError, match="is a link, not a log"):
        open_own(tmp_path / "log", "a log")
    assert not (tmp_path / "victim").exists()

    def late_pipe(path: Path, *_: Any, **__: Any) -> None:
        os.mkfifo(path)

    monkeypatch.setattr("fedscope.checkpoints.io.safe_write.refuse_strange", late_pipe)
    with at_once(), pytest.raises(FedscopeError, match="is a named pipe, not a log; remove it"):
        open_own(tmp_path / "pipe", "a log")


def test_a_file_of_its_own_is_made_and_gone_on_with(tmp_path: Path) -> None:
    for text in (b"one ", b"two"):
        with append(tmp_path / "log", "a log") as file:
            file.write(text)
    assert (tmp_path / "log").read_text() == "one two"
    with pytest.raises(FileNotFoundError):
        append(tmp_path / "nowhere" / "log", "a log")


# --- no other door ---

#: what opens files by itself, and why it may
ALLOWED = {
    "checkpoints/io/safe_write.py": "it is the door",
    "checkpoints/io/atomic.py": "new files of names that nobody can foresee; reading, to sync",
    "checkpoints/io/locks.py": "files that must not be there yet",
    "checkpoints/io/hdf5.py": "temporaries of write_durably",
    "checkpoints/recorder/in_memory_round.py": "in memory",
    "core/results/resume.py": "a descriptor of open_own",
    "training/curves/tensorboard.py": "a descriptor of a lock",
    "training/data/formats/cache.py": "a new folder of mkdtemp",
    "training/data/formats/download.py": "temporaries of write_durably, and a new folder",
    "training/jobs/launchers.py": "/dev/null",
    "training/trackers/pictures.py": "reading, without following links",
    "training/trackers/to_mlflow.py": "a temporary folder",
    "training/trackers/to_trackio.py": "a temporary folder",
    "training/trackers/to_wandb.py": "a new hidden folder, and a temporary one",
    "cli/streams.py": "/dev/null",
}
_WRITES = ("write_text", "write_bytes", "touch", "symlink_to", "hardlink_to")


def writes(source: str) -> list[str]:
    """The calls that may write a file which is not a temporary one.

    >>> writes("path.write_text('x'); temporary.write_text('x'); open(p, 'a'); path.open(); os.open(p, 0)")
    ['path.write_text', 'open', 'os.open']
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        on, _, last = name.rpartition(".")
        texts = [
            str(one.value) for one in [*node.args, *(k.value for k in node.keywords)] if isinstance(one, ast.Constant)
        ]
        opens = last in ("open", "fdopen", "File") and any(
            re.fullmatch(r"r?[wax+]b?\+?|r\+b?|rb\+", text) for text in texts
        )
        if name == "os.open" or last == "flock" or ((opens or last in _WRITES) and on != "temporary"):
            found.append(name)
    return found


def test_every_door_is_known() -> None:
    """Who opens a file for writing takes the one that looks first: a new place that does not is found here."""
    folders = ("checkpoints", "cli", "core", "decomposition", "landscape", "training")
    found = {
        path.relative_to(ROOT).as_posix(): calls
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (calls := writes(path.read_text(encoding="utf-8")))
    }
    assert {name: calls for name, calls in found.items() if name not in ALLOWED} == {}
    assert sorted(found) == sorted(ALLOWED), "one that opens nothing any more"


def test_no_path_is_resolved_in_a_way_that_fails_for_a_circle() -> None:
    """``Path.resolve`` raises RuntimeError for a link to itself in Python 3.11 and 3.12."""
    for folder in ("checkpoints", "cli", "core", "decomposition", "landscape", "training"):
        for path in (ROOT / folder).rglob("*.py"):
            # a method's resolve takes a configuration
            assert not re.search(r"\.resolve\((strict\b.*)?\)", path.read_text(encoding="utf-8")), path
