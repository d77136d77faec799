"""``curves --tensorboard``: a run's numbers as event files, of runs that grow too, each round once."""

from __future__ import annotations

import csv
import json
import resource
import shutil
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from event_files import Event, read_events

import fedscope
from fedscope.checkpoints import RoundRecord, Run, RunWriter
from fedscope.cli.main import run
from fedscope.training import Config, train
from fedscope.training.curves import follow as curve_following
from fedscope.training.curves.analysis import whole_runs

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]

SMALL = "--clients 8 --participation 0.5 --rounds 5 --set model.hidden=[6] --set run.evaluate_clients=40"
RUNS = {"ima": f"--method ima {SMALL} --set average.start=3", "fma": f"--method fma {SMALL}"}
FILE = "events.out.tfevents.fedscope"
GROUPS = {
    "test": ("test_loss", "test_error", "averaged_test_loss", "averaged_test_error"),
    "clients": ("client_error_mean", "client_error_std"),
    "training": ("lr", "participants", "train_loss", "seconds", "parameters_down", "parameters_up"),
}
TAGS = {column: f"{group}/{column}" for group, columns in GROUPS.items() for column in columns}


def events(*words: str, to: str = "tb") -> list[Path]:
    assert run(["curves", *words, "--tensorboard", to]) == 0
    return sorted(Path(to).rglob(FILE))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(["curves", *words]) == 2
    told = capsys.readouterr()
    assert not told.out
    return told.err.removeprefix("fedscope: ").rstrip("\n")


def rounds_of(path: Path) -> list[int]:
    return [event.step for event in read_events(path)[1:]]


def recorded_elsewhere(path: str, *metrics: dict[str, float], last: int | None = None) -> Run:
    """A run of so many rounds without models; with ``last`` its configuration says how many it is to have."""
    empty = np.zeros(0)
    info = {"layout": [], "created": "2026-01-02T03:04:05+00:00", **({} if last else {"source": "a test"})}
    with RunWriter.create(Path(path), info, {"run": {"rounds": last}} if last else None, None) as writer:
        for number, own in enumerate(metrics, 1):
            writer.write(RoundRecord(number, None, None, None, None, *[empty] * 5, metrics=own))
    return Run.open(path)


def cut(name: str, last: int) -> Callable[[], None]:
    """Take a run's rounds away after ``last``; gives what brings the next one back."""
    path, aside = Path("runs", name), Path("aside", name)
    aside.mkdir(parents=True)
    later = sorted((path / "rounds").iterdir())[last:]
    lines = (path / "metrics.csv").read_text().splitlines(keepends=True)
    (path / "metrics.csv").write_text("".join(lines[: last + 1]))
    for file in later:
        file.rename(aside / file.name)
    waiting = iter([file.name for file in later])

    def one_more() -> None:
        file = next(waiting)
        (aside / file).rename(path / "rounds" / file)  # its row of metrics.csv comes late, or never

    return one_more


def at_each_look(monkeypatch: pytest.MonkeyPatch, happenings: Iterable[Callable[[], Any]]) -> None:
    """What happens between two looks of ``--follow``; nothing more may be waited for."""
    left = iter(happenings)
    monkeypatch.setattr(curve_following, "time", SimpleNamespace(sleep=lambda seconds: next(left)()))


def test_events_are_the_rows_of_the_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which line would a wrong one be: another column under a tag, a shifted step, 0 or NaN for an empty cell, float16,
    the global model's error for the deployed one, a wall time by the clock."""
    assert run(["curves", "runs/fma", "runs/ima", "--tensorboard", "tb"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *("2 runs as TensorBoard's event files; look at them: tensorboard --logdir tb", f"  tb/fma/{FILE}"),
        f"  tb/ima/{FILE}",
    ]
    for name in RUNS:
        with Path("runs", name, "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        head, *found = read_events(Path("tb", name, FILE))
        created = datetime.fromisoformat(json.loads(Path("runs", name, "run.json").read_text())["created"]).timestamp()
        assert head == Event(created, 0, "brain.Event:2", {})
        assert [event.step for event in found] == [1, 2, 3, 4, 5]
        seconds = np.cumsum([float(row["seconds"]) for row in rows])
        np.testing.assert_allclose([event.wall for event in found], created + seconds, rtol=0, atol=1e-6)
        for row, event in zip(rows, found, strict=True):
            there = {TAGS[key]: float(cell) for key, cell in row.items() if key in TAGS and cell}
            for key in ("test_loss", "test_error"):
                there[f"deployed/{key}"] = float(row[f"averaged_{key}"] or row[key])
            assert event.values == {tag: float(np.float32(value)) for tag, value in there.items()}
            assert ("test/averaged_test_error" in event.values) == (name == "ima" and event.step >= 3)
    assert {path.name for path in Path("runs/ima").iterdir()} == {path.name for path in Path("runs/fma").iterdir()}
    assert not Path("runs/ima/figures").exists()


def test_tensorboard_reads_them(runs: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (path,) = events("runs/ima")
    reader = EventAccumulator(str(path.parent), size_guidance={"scalars": 0})
    reader.Reload()
    mine = read_events(path)[1:]
    tags = {tag for event in mine for tag in event.values}
    assert set(reader.Tags()["scalars"]) == tags
    for tag in tags:
        assert [(one.step, one.wall_time, one.value) for one in reader.Scalars(tag)] == [
            (event.step, event.wall, event.values[tag]) for event in mine if tag in event.values
        ]


def test_the_same_run_gives_the_same_bytes_wherever_it_lies(runs: Path) -> None:
    (path,) = events("runs/ima")
    first, written = path.read_bytes(), path.stat().st_mtime_ns
    events("runs/ima")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (first, written)
    shutil.copytree("runs/ima", "copies/ima")
    assert events("copies/ima", to="other")[0].read_bytes() == first
    (mine,) = fedscope.curves("runs/ima").save_events("mine")
    assert (mine, mine.read_bytes()) == (Path("mine/ima", FILE), first)
    fedscope.curves("runs/ima").save("kept")  # and from its tables, which say when the run was created
    assert fedscope.Curves.load("kept").save_events("kept-events")[0].read_bytes() == first
    told = fedscope.curves(["runs/ima", "copies/ima"]).save_events("two")
    assert told == [Path("two/runs/ima", FILE), Path("two/copies/ima", FILE)]


def test_a_resumed_run_has_each_round_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: Any) -> None:
    monkeypatch.chdir(tmp_path)
    tables = {"data": {"clients": 8}, "model": {"hidden": [6]}, "run": {"rounds": 5, "participation": 0.5}}
    with pytest.raises(KeyboardInterrupt):
        train(Config.read(tables), "runs/cut", watcher=stop_after(2))
    (path,) = events("runs/cut")
    assert rounds_of(path) == [1, 2]
    before = path.read_bytes()
    assert run(["train", "--resume", "runs/cut"]) == 0
    events("runs/cut")
    assert rounds_of(path) == [1, 2, 3, 4, 5]
    assert path.read_bytes().startswith(before)
    # a branch begins with the history's rounds, in a folder of its own
    assert run(["train", "--from", "runs/cut@3", "--method", "fma", "--out", "runs/branch"]) == 0
    events("runs/cut", "runs/branch")
    one, other = (read_events(Path("tb", name, FILE)) for name in ("cut", "branch"))
    assert [event.step for event in other[1:]] == [1, 2, 3, 4, 5]
    assert [event.values["test/test_loss"] for event in one[1:4]] == [
        event.values["test/test_loss"] for event in other[1:4]
    ]


def test_what_a_kill_has_torn_is_completed(runs: Path) -> None:
    (path,) = events("runs/ima")
    whole = path.read_bytes()
    for length in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        events("runs/ima")
        assert path.read_bytes() == whole
    # a command beside this one has seen later rounds
    cut("ima", 2)
    events("runs/ima")
    assert path.read_bytes() == whole


def test_other_events_stay_without_force(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = events("runs/ima")
    whole = path.read_bytes()
    beside = {Path("tb", name): f"{name} mine" for name in ("notes.txt", "ima/figure.png")}
    for other, text in beside.items():
        other.write_text(text)
    changed = whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:]
    path.write_bytes(changed)
    told = f"tb/ima/{FILE} holds other events than those of ima; give another --tensorboard, or --force to replace it"
    assert refused(capsys, "runs/ima", "--tensorboard", "tb") == told
    assert refused(capsys, "runs/ima", "--tensorboard", "tb", "--follow").endswith(told)
    assert path.read_bytes() == changed
    assert path.stat().st_nlink == 1
    events("runs/ima", "--force")
    assert path.read_bytes() == whole
    # shorter than what is there, and not its beginning
    path.write_bytes(changed + b"more")
    events("runs/ima", "--force")
    assert path.read_bytes() == whole
    # those of another program would be shown as this run's
    foreign = Path("tb/ima/events.out.tfevents.1700000000.host")
    foreign.write_bytes(b"theirs")
    for force in ([], ["--force"]):
        assert refused(capsys, "runs/ima", "--tensorboard", "tb", *force) == (
            f"{foreign} was not written by fedscope, and TensorBoard would show both as one run; give another "
            "--tensorboard"
        )
    assert foreign.read_bytes() == b"theirs"
    assert {other: other.read_text() for other in beside} == beside
    path.unlink()
    foreign.unlink()
    path.symlink_to(Path("target").absolute())
    assert "is a link, not a file of events" in refused(capsys, "runs/ima", "--tensorboard", "tb", "--force")
    assert not Path("target").exists()


def test_infinite_losses_stay_and_what_is_no_number_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    losses = (0.5, np.inf, np.nan, 1e39)
    recorded_elsewhere("wild", *({"test_loss": loss, "server_rule": 1.0, "seconds": np.inf} for loss in losses))
    (path,) = events("wild")
    head, *found = read_events(path)
    assert head.wall == datetime.fromisoformat("2026-01-02T03:04:05+00:00").timestamp()
    assert [event.wall for event in found] == [head.wall] * 4  # of no time that is one
    assert [event.values.get("test/test_loss") for event in found] == [0.5, np.inf, None, np.inf]
    assert [event.values["server/server_rule"] for event in found] == [1.0] * 4
    recorded_elsewhere("bare", {}, {})
    assert refused(capsys, "wild", "bare", "--tensorboard", "other") == (
        "bare has no numbers for TensorBoard: nothing was measured while it was recorded; leave it out"
    )
    recorded_elsewhere("sparse", {}, {"test_loss": 0.5}, {})
    assert rounds_of(events("sparse", to="some")[0]) == [2]
    recorded_elsewhere("none")
    assert refused(capsys, "none", "--tensorboard", "other") == "none has no rounds yet"


def test_a_growing_run_is_followed_to_its_end(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {path.parent.name: path.read_bytes() for path in events("runs/fma", "runs/ima", to="whole")}
    seen: list[list[int]] = []
    fma, ima = cut("fma", 3), cut("ima", 0)

    def look(*more: Callable[[], None]) -> Callable[[], None]:
        def happen() -> None:
            paths = [Path("tb", name, FILE) for name in ("fma", "ima")]
            seen.append([rounds_of(path)[-1] if path.exists() else 0 for path in paths])
            for bring in more:
                bring()

        return happen

    at_each_look(monkeypatch, [look(fma), look(ima, ima), look(), look(ima, fma), look(ima, ima)])
    capsys.readouterr()
    assert run(["curves", "runs/fma", "runs/ima", "--tensorboard", "tb", "--follow"]) == 0
    assert seen == [[3, 0], [4, 0], [4, 2], [4, 2], [5, 3]]
    assert {path.parent.name: path.read_bytes() for path in Path("tb").rglob(FILE)} == whole
    told = capsys.readouterr()
    assert told.err.startswith(
        "fedscope: writing 2 runs into tb as rounds come; look at them: tensorboard --logdir tb; Ctrl-C ends this\n"
    )
    assert told.out.startswith("2 runs as TensorBoard's event files; look")
    at_each_look(monkeypatch, [])
    assert run(["curves", "runs/fma", "--tensorboard", "tb", "--follow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"files": [f"tb/fma/{FILE}"]}


def test_ctrl_c_ends_following_and_the_same_command_goes_on(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = events("runs/ima")
    whole = path.read_bytes()
    path.unlink()
    more = cut("ima", 2)

    def stop() -> None:
        raise KeyboardInterrupt

    asked = ["curves", "runs/ima", "--tensorboard", "tb", "--follow"]
    at_each_look(monkeypatch, [more, stop])
    assert run(asked) == 130
    assert capsys.readouterr().err.endswith("fedscope: stopped; what was complete is kept\n")
    assert rounds_of(path) == [1, 2, 3]
    at_each_look(monkeypatch, [more, more])
    assert run(asked) == 0
    assert path.read_bytes() == whole


def test_a_run_that_is_made_anew_is_not_mixed_with_the_old_one(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("runs/fma", "kept")
    cut("ima", 2)

    def gone() -> None:
        shutil.rmtree("runs/ima")

    def anew() -> None:
        shutil.copytree("kept", "runs/ima")

    at_each_look(monkeypatch, [gone, lambda: None, anew])
    told = refused(capsys, "runs/ima", "--tensorboard", "tb", "--follow", "--force")
    assert f"tb/ima/{FILE} holds other events than those of ima" in told
    assert rounds_of(Path("tb/ima", FILE)) == [1, 2]


def test_a_run_of_another_program_is_followed_until_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[tuple[int, int]] = []

    def to(last: int) -> Callable[[], None]:
        def grow() -> None:
            shutil.rmtree("flower")
            recorded_elsewhere("flower", {}, *({"test_loss": 1.0 / t} for t in range(1, last)))

        return grow

    def stop() -> None:
        raise KeyboardInterrupt

    recorded_elsewhere("flower", {})  # whose first round was not measured, which may be all right
    at_each_look(monkeypatch, [to(2), to(4), stop])
    with pytest.raises(KeyboardInterrupt):
        curve_following.follow({Path("flower"): None}, Path("tb"), report=lambda *one: told.append(one))
    assert told == [(1, 0), (2, 0), (4, 0)]
    assert rounds_of(Path("tb/flower", FILE)) == [2, 3, 4]


def test_all_runs_of_a_sweep_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"data": {"clients": 4}, "model": {"hidden": [6]}, "run": {"rounds": 2, "participation": 0.5}}
    fedscope.sweep({"method": ["fma", "fedavgm"]}, settings=settings, out="sweep")
    Path("sweep/runs/fedavgm").rename("aside")
    with pytest.warns(fedscope.checkpoints.FedscopeWarning, match="1 of 2 runs are not complete and are left out"):
        whole_runs(["sweep"])
    assert [path.parent.name for path in events("sweep")] == ["fma"]
    at_each_look(monkeypatch, [lambda: None, lambda: Path("aside").rename("sweep/runs/fedavgm")])
    assert run(["curves", "sweep", "--tensorboard", "tb", "--follow"]) == 0
    assert {path.parent.name: rounds_of(path) for path in Path("tb").rglob(FILE)} == {"fma": [1, 2], "fedavgm": [1, 2]}


def test_runs_of_one_name_have_folders_of_their_own_below_the_one_asked_for(runs: Path) -> None:
    for place in ("a/b", "c"):
        shutil.copytree("runs/ima", Path(place, "ima"))
    found = events("a/b/ima", "c/ima", "a/../runs/ima", to="out/tb")
    assert [path.parent.as_posix() for path in found] == ["out/tb/a/b/ima", "out/tb/c/ima", "out/tb/runs/ima"]
    assert {path.read_bytes() for path in found} == {found[0].read_bytes()}


def test_what_cannot_be_is_refused(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say = lambda *words: refused(capsys, "runs/ima", *words)  # noqa: E731
    assert say("--follow") == "--follow keeps TensorBoard's event files up to date; say where, with --tensorboard DIR"
    neither = "is for tables and figures, and --tensorboard writes neither; leave out one"
    for words, named in (
        (["--measure", "test_loss", "--measure", "lr"], "--measure test_loss"),
        (["--smooth", "5"], "--smooth 5"),
        (["--bands"], "--bands"),
        (["--out", "figure"], "--out figure"),
        (["--redraw"], "--redraw"),
        (["--title", "IMA"], "--title IMA"),
    ):
        assert say("--tensorboard", "tb", *words) == f"{named} {neither}"
    assert refused(capsys, "runs/ima", "runs/ima", "--tensorboard", "tb") == (
        "runs/ima, runs/ima: a run is given twice; give each once"
    )
    assert refused(capsys, "runs/imo", "--tensorboard", "tb", "--follow").startswith("runs/imo")
    Path("taken").write_text("mine")
    assert say("--tensorboard", "taken") == (
        f"taken/ima/{FILE} cannot be written: Not a directory; give another --tensorboard"
    )
    assert not Path("tb").exists()
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    assert say("--tensorboard", "tb") == (
        '--tensorboard takes tensorboard, which is not installed; install it: pip install "fedscope[tensorboard]"'
    )
    assert not Path("tb").exists()


def test_a_full_disk_is_one_sentence_and_the_same_command_goes_on(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        told = refused(capsys, "runs/ima", "--tensorboard", "tb")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert told == (f"tb/ima/{FILE} cannot be written: the disk is full; make room, and give the same command again")
    assert rounds_of(events("runs/ima")[0]) == [1, 2, 3, 4, 5]
