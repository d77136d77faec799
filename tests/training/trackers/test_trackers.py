"""``export --to``: a run's numbers and figures in a tracker, each once, whatever ends an export."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_trackers import Fakes, Killed

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, RoundRecord, Run, RunWriter
from fedscope.checkpoints.io.locks import hold
from fedscope.checkpoints.rounds.metrics import is_own_column
from fedscope.cli.main import run as command
from fedscope.training.trackers import export as module
from fedscope.training.trackers.pictures import PNG
from fedscope.training.trackers.snapshot import pictures_in, snapshot_of
from fedscope.training.trackers.to_mlflow import spell

pytestmark = pytest.mark.same_elsewhere

REMOTE = ("trackio", "wandb", "mlflow")
SETTINGS = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "WANDB_MODE", "WANDB_DIR", "MLFLOW_TRACKING_URI")


def recorded(path: str | Path, *rows: dict[str, float], planned: int | None = None, identity: str = "a") -> Run:
    """A run of rounds without models."""
    empty = np.zeros(0)
    info = {"layout": [], "created": "2026-01-02T03:04:05+00:00", "identity": identity}
    config = None if planned is None else {"run": {"rounds": planned}, "client": {"lr": 0.1}}
    info |= {"source": "a test"} if planned is None else {}
    with RunWriter.create(Path(path), info, config, None) as writer:
        for number, own in enumerate(rows, 1):
            writer.write(RoundRecord(number, None, None, None, None, *[empty] * 5, metrics=own))
    return Run.open(path)


ROWS = tuple({"test_loss": 1.0 / t, "test_error": 0.5 / t, "seconds": 2.0, "drift_kept": 0.5} for t in range(1, 5))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    for name in ("HF_HUB_DISABLE_TELEMETRY", "MLFLOW_DISABLE_TELEMETRY", "WANDB_ERROR_REPORTING"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    recorded("ima", *ROWS, planned=4)
    return tmp_path


@pytest.fixture
def fakes(here: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    made = Fakes(here)
    made.install(monkeypatch)
    return made


def figure(name: str, more: bytes = b"") -> None:
    Path("ima/figures").mkdir(exist_ok=True)
    Path("ima/figures", f"{name}.png").write_bytes(PNG + more)


def points(fakes: Fakes, to: str) -> Counter[tuple[str, int, float]]:
    """Every point that a tracker has, and how often."""
    if to == "mlflow":
        return Counter((key, step, value) for _, key, step, value, _ in fakes.mlflow)
    if to == "trackio":
        rows = [(step, values) for _, step, values in fakes.trackio]
    else:
        told = [row for path in Path("wandb").glob("offline*/files/rows.txt") for row in literal_eval(path.read_text())]
        rows = [(row["round"], row) for row in (told or fakes.wandb)]
    return Counter(
        (tag, step, value)
        for step, values in rows
        for tag, value in values.items()
        if not tag.startswith("figures/") and tag != "round"
    )


def wanted(run: str = "ima") -> Counter[tuple[str, int, float]]:
    told = snapshot_of(Run.open(run), run)
    return Counter((tag, point.round, value) for point in told.points for tag, value in point.values.items())


def refused(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert command(["export", *words]) == 2
    told = capsys.readouterr()
    assert not told.out
    return told.err.removeprefix("fedscope: ").rstrip("\n")


@pytest.mark.parametrize("to", REMOTE)
def test_each_point_and_figure_comes_once(fakes: Fakes, to: str, capsys: pytest.CaptureFixture[str]) -> None:
    figure("plane")
    assert command(["export", "ima", "--to", to]) == 0
    said = capsys.readouterr().out
    assert "4 rounds, 1 figure" in said
    assert said.count("\n") == 1
    assert "secret" not in said
    assert points(fakes, to) == wanted()
    assert ("test/test_error", 2, 0.25) in points(fakes, to)
    assert ("drift/drift_kept", 3, 0.5) in points(fakes, to)
    folders = {path.stat().st_ino for path in Path("wandb").glob("offline*")}
    assert command(["export", "ima", "--to", to, "--json"]) == 0
    assert {path.stat().st_ino for path in Path("wandb").glob("offline*")} == folders  # the same ones
    assert json.loads(capsys.readouterr().out) | {"where": ""} == {
        **{"to": to, "where": "", "rounds": 4, "figures": 1, "files": []}
    }
    assert points(fakes, to) == wanted()
    figure("plane", b"redrawn")
    figure("other")
    fedscope.export_metrics("ima", to)
    assert points(fakes, to) == wanted()
    shown = {"trackio": [tag for *_, values in fakes.trackio for tag in values if "figures/" in tag]}
    shown["mlflow"] = fakes.artifacts
    if to in shown:
        names = [name.removesuffix(".png") for name in shown[to]]
        assert names == ["figures/plane", "figures/other", "figures/plane"]
    else:
        (path,) = Path("wandb").glob("*/files/rows.txt")  # one folder, written anew
        assert [tag for row in literal_eval(path.read_text()) for tag in row if "figures/" in tag] == [
            "figures/other",
            "figures/plane",
        ]
    assert not Path("ima", module.LOCK).exists()


#: that a loop may give its numbers: see ``checkpoints.rounds.metrics.OWN``
ODD = ("precision@10", "precision_at_10", "a@", "a//b", "a/b", "a/", "a/./b", "a/../b", "a/.", "a.", "_" + "@" * 79)


@pytest.mark.parametrize("to", [*REMOTE, "csv"])
def test_every_name_that_a_loop_may_give_goes_along(fakes: Fakes, to: str) -> None:
    assert all(map(is_own_column, ODD))
    rows = [{name: float(t * i) for i, name in enumerate(ODD, 1)} | {"test_error_a.b-c": 0.5} for t in (1, 2)]
    recorded("odd", *rows, planned=2)
    file = Path("t.csv") if to == "csv" else None
    for _ in range(2):  # of which the second has nothing to bring
        fedscope.export_metrics("odd", to, file=file)
    if file is not None:
        assert len(next(csv.reader([file.read_text().splitlines()[0]]))) == 1 + len(ODD) + 1
        return
    found = points(fakes, to)
    assert sorted(found.values()) == [1] * 2 * (len(ODD) + 1)  # no two of them became one
    assert sorted(value for _, _, value in found) == sorted(value for row in rows for value in row.values())
    with RunWriter.open(Path("odd")) as writer:
        writer.write(RoundRecord(3, None, None, None, None, *[np.zeros(0)] * 5, metrics=rows[0]))
    fedscope.export_metrics("odd", to)
    assert sum(points(fakes, to).values()) == 3 * (len(ODD) + 1)


def test_names_that_mlflow_takes_are_as_they_were(fakes: Fakes) -> None:
    """A run that an earlier fedscope has begun there goes on under the same names."""
    names = ("test/test_error", "training/val_top-5", "test/test_error_a.b-c", "training/räte", "client.lr")
    assert [spell(name) for name in names] == list(names)
    odd = ["@", " at ", "a b", "a 20 b", "", " ", ".", " .", "..", "ü", "\U0001f600", "a" * 251, "a" * 252]
    assert len({spell(name) for name in odd}) == len(odd)


def test_a_table_has_no_project_nor_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    why = "is for what goes to a tracker, and --to csv writes a table; leave it out"
    for words in ("--project foo", "--name bar"):
        assert refused("ima", "t.csv", "--to", "csv", *words.split(), capsys=capsys) == f"{words} {why}"
    assert not Path("t.csv").exists()
    with pytest.raises(FedscopeError, match=r"^project='foo' is for what goes to a tracker, and to='csv' writes"):
        fedscope.export_metrics("ima", "csv", file="t.csv", project="foo")


@pytest.mark.parametrize("to", [*REMOTE, "wandb online"])
def test_a_kill_after_any_point_leaves_none_twice_and_none_out(
    fakes: Fakes, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if to == "wandb online":
        to = "wandb"
        monkeypatch.setenv("WANDB_MODE", "online")
    figure("plane")
    kills = 0
    for left in (0, 1, 2, 1, 3, 0):
        fakes.left = left
        try:
            fedscope.export_metrics("ima", to)
        except Killed:
            kills += 1
        assert max(points(fakes, to).values(), default=1) == 1
        assert points(fakes, to) <= wanted()
    assert kills > 2
    fakes.left = None
    fedscope.export_metrics("ima", to)
    assert points(fakes, to) == wanted()
    assert [path.name for path in Path("wandb").glob(".*")] == []


def test_numbers_that_were_measured_later_come_later(fakes: Fakes) -> None:
    """Of rounds that a tracker has in part: trackio by row and mlflow by metric."""
    for to in ("trackio", "mlflow"):
        fedscope.export_metrics("ima", to)
    shutil.rmtree("ima")
    recorded("ima", *({**row, "train_loss": 3.0} for row in ROWS), planned=4)
    for to in ("trackio", "mlflow"):
        fedscope.export_metrics("ima", to)
        assert points(fakes, to) == wanted()
    assert fakes.trackio[4:] == [("ima", t, {"training/train_loss": 3.0}) for t in range(1, 5)]


@pytest.mark.parametrize("to", ["trackio", "mlflow"])
def test_numbers_that_were_replaced_are_refused(fakes: Fakes, to: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As by ``measure --force``: a tracker keeps what it was given, and a curve of both is of no run."""
    figure("plane")
    fedscope.export_metrics("ima", to)
    before, figures = points(fakes, to), len(fakes.artifacts)
    shutil.rmtree("ima")
    recorded("ima", *ROWS[:2], {**ROWS[2], "test_error": 0.4, "train_loss": 3.0}, *ROWS[3:], planned=4)
    figure("other")
    remedy = {
        "trackio": "give another --name or --project, or delete the run in trackio",
        "mlflow": "give another --project, or delete the run in mlflow",
    }
    said = refused("ima", "--to", to, capsys=capsys)
    assert said.startswith(f"run ima of {to}'s ")
    assert "test_error = 0.166667 of round 3, and the run now has 0.4: it was measured anew since" in said
    assert said.endswith(f"; {remedy[to]}")
    assert points(fakes, to) == before, "nothing has come beside it"
    assert len(fakes.artifacts) == figures


@pytest.mark.parametrize("to", ["trackio", "mlflow"])
def test_what_a_store_rounds_and_how_long_a_round_took_are_no_other_numbers(fakes: Fakes, to: str) -> None:
    fedscope.export_metrics("ima", to)
    before = points(fakes, to)
    shutil.rmtree("ima")
    again = [{name: value * (1 + 1e-8) for name, value in row.items()} | {"seconds": 9.0} for row in ROWS]
    recorded("ima", *again, planned=4)
    fedscope.export_metrics("ima", to)
    assert points(fakes, to) == before


@pytest.mark.parametrize("to", ["trackio", "mlflow"])
def test_numbers_that_are_replaced_while_it_follows_are_refused(
    fakes: Fakes, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree("ima")
    recorded("ima", *ROWS[:2], planned=4)

    def replaced() -> None:
        shutil.rmtree("ima")
        recorded("ima", ROWS[0], {**ROWS[1], "test_loss": 0.75}, planned=4)

    at_each_look(monkeypatch, [replaced])
    with pytest.raises(FedscopeError, match=r"test_loss = 0\.5 of round 2, and the run now has 0\.75: it was measured"):
        fedscope.export_metrics("ima", to, follow=True)


def test_nothing_leaves_this_machine_unless_the_user_has_said_so(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which wrong line would send: no mode for wandb, whose own default is its server; counts of users."""
    for to in REMOTE:
        fedscope.export_metrics("ima", to)
    (trackio, wandb) = fakes.inits
    assert "space_id" not in trackio
    assert (trackio["auto_log_cpu"], trackio["auto_log_gpu"], trackio["embed"]) == (False, False, False)
    assert wandb["mode"] == "offline"
    assert wandb["settings"]["x_disable_meta"]
    assert wandb["settings"]["console"] == "off"
    assert [os.environ[name] for name in ("HF_HUB_DISABLE_TELEMETRY", "WANDB_ERROR_REPORTING")] == ["1", "false"]
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    monkeypatch.setenv("WANDB_MODE", "online")
    fedscope.export_metrics("ima", "wandb")
    assert "mode" not in fakes.inits[-1]
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert refused("ima", "--to", "wandb", capsys=capsys) == (
        "WANDB_MODE = disabled switches wandb off; unset it to write files here, or set it to online"
    )


@pytest.mark.parametrize("to", REMOTE)
def test_a_tracker_that_is_not_installed(
    here: Path, to: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, to, None)
    assert refused("ima", "--to", to, capsys=capsys) == (
        f'--to {to} takes {to}, which is not installed; install it: pip install "fedscope[{to}]"'
    )
    with pytest.raises(FedscopeError, match=rf"^to='{to}' takes {to}, which is not installed"):
        fedscope.export_metrics("ima", to)


def test_a_tracker_that_is_not_logged_in_or_fails(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.logged_in = False
    assert refused("ima", "--to", "mlflow", capsys=capsys) == (
        "mlflow 2.0 (fedscope was tested with 3.17) failed: 403: who are you?; check MLFLOW_TRACKING_URI, and for a "
        "server that you are logged in (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
        "MLFLOW_TRACKING_TOKEN)"
    )
    monkeypatch.setenv("WANDB_MODE", "online")
    assert refused("ima", "--to", "wandb", capsys=capsys) == (
        "wandb is not logged in, and WANDB_MODE = online sends to its server; log in: wandb login, or unset WANDB_MODE "
        "to write files here"
    )
    monkeypatch.setenv("TRACKIO_SPACE_ID", "me/space")
    assert refused("ima", "--to", "trackio", capsys=capsys) == (
        "trackio is not logged in, and TRACKIO_SPACE_ID = me/space sends to Hugging Face; log in: hf auth login, or "
        "unset TRACKIO_SPACE_ID to keep the run on this machine"
    )
    assert points(fakes, "trackio") == Counter()
    fakes.logged_in = True
    fedscope.export_metrics("ima", "trackio")
    fedscope.export_metrics("ima", "trackio")  # the Space is asked for its last round
    assert points(fakes, "trackio") == wanted()


def test_a_tracker_that_loses_rows_is_not_believed(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    """trackio turns what it cannot write into a warning."""
    sys.modules["trackio"].finish = lambda: None  # type: ignore[attr-defined]
    assert refused("ima", "--to", "trackio", capsys=capsys) == (
        "trackio 0.43.1 failed: not all rounds have come into its database; see that its folder can be written "
        "(TRACKIO_DIR), and give the same command again"
    )


def test_trackio_on_a_network_file_system_cannot_be_asked(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules["trackio.utils"].get_storage_mode = lambda: "jsonl"  # type: ignore[attr-defined]
    assert "lies on a network file system, where it cannot be asked which rounds it has; set TRACKIO_DIR to" in refused(
        "ima", "--to", "trackio", capsys=capsys
    )


def test_another_run_of_the_name_is_not_mixed_in(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    for to in REMOTE:
        fedscope.export_metrics("ima", to)
    before = points(fakes, "trackio"), points(fakes, "mlflow")
    shutil.rmtree("ima")
    recorded("ima", {"test_loss": 9.0}, planned=1, identity="b")
    assert refused("ima", "--to", "trackio", capsys=capsys) == (
        "trackio's project fedscope has another run that is called ima; give --name or --project"
    )
    assert points(fakes, "trackio") == before[0]
    fedscope.export_metrics("ima", "trackio", name="again")
    for to in ("mlflow", "wandb"):  # which have numbers for their runs
        fedscope.export_metrics("ima", to)
    assert len(fakes.runs) == len(list(Path("wandb").glob("offline-run-*"))) == 2
    (first,) = [path for path in Path("wandb").glob("offline-run-*") if "9.0" in (path / "files/rows.txt").read_text()]
    (first / "fedscope.json").write_text("{}")
    assert refused("ima", "--to", "wandb", capsys=capsys) == (
        f"{first} is in the way, and fedscope has not written it; move it away"
    )


def test_runs_without_numbers_or_rounds(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    recorded("bare", {}, {})
    recorded("none", planned=2)
    for to in REMOTE:
        assert refused("bare", "--to", to, capsys=capsys) == (
            "bare has no numbers to export: nothing was measured while it was recorded; measure it: fedscope measure "
            "bare"
        )
        assert refused("none", "--to", to, capsys=capsys).startswith("none has no rounds yet")
    assert refused("nothing", "--to", "csv", "x.csv", capsys=capsys).startswith("nothing")
    assert not Path("x.csv").exists()


def test_infinite_losses_stay_and_what_is_no_number_is_none(fakes: Fakes) -> None:
    recorded("wild", {"test_loss": np.inf}, {"test_loss": np.nan, "lr": 0.1}, {}, {"lr": 0.2})
    fedscope.export_metrics("wild", "trackio")
    found = [(step, {**values}) for _, step, values in fakes.trackio]
    assert found == [
        (1, {"deployed/test_loss": np.inf, "test/test_loss": np.inf}),
        (2, {"training/lr": 0.1}),
        (4, {"training/lr": 0.2}),
    ]


def test_a_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure("plane")
    recorded("grown", *ROWS[:2], planned=4)
    assert command(["export", "grown", "--to", "csv", "x.csv"]) == 0
    assert capsys.readouterr().out == "x.csv: 2 rounds\n"
    with Path("x.csv").open() as file:
        first = list(csv.DictReader(file))
    assert [row["round"] for row in first] == ["1", "2"]
    assert (first[1]["test/test_loss"], first[1]["drift/drift_kept"]) == ("0.5", "0.5")
    assert command(["export", "ima", "--to", "csv", "x.csv"]) == 0  # the same numbers, and more of them
    whole = Path("x.csv").read_text()
    assert len(whole.splitlines()) == 5
    for other in ("1,2\n3,4\n", whole.replace("0.25", "0.26"), "round,x\n1,2\n", whole + "9,1\n", "\0", 'a"b\nround'):
        Path("x.csv").write_text(other)
        assert refused("ima", "--to", "csv", "x.csv", capsys=capsys) == (
            "x.csv is in the way, and holds something else than this run's numbers; give another name, or --force to "
            "replace it"
        )
        assert Path("x.csv").read_text() == other
    assert command(["export", "ima", "--to", "csv", "x.csv", "--force"]) == 0
    assert Path("x.csv").read_text() == whole
    Path("link.csv").symlink_to("x.csv")
    assert "link.csv is a link" in refused("ima", "--to", "csv", "link.csv", "--force", capsys=capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ima --to csv", "--to csv writes a table; name its file, as in: fedscope export runs/ima --to csv ima.csv"),
        ("ima out.csv --to mlflow", "--to mlflow writes no file; leave out.csv out"),
        ("ima out.txt --to csv", "out.txt must end in .csv, for --to csv writes a table"),
        ("ima no/out.csv --to csv", "no is not a folder; make it, or give another name"),
        ("ima --to mlflow --force", "--force replaces a file, and --to mlflow writes none; leave it out"),
        ("ima@2 --to trackio", "ima@2 names a model, but a whole run is asked for; give ima"),
        ("ima@2 out.pt --follow", "--follow is for what goes to a tracker; add --to, or leave it out"),
        ("ima@2 out.pt --name x", "--name x is for what goes to a tracker; add --to, or leave it out"),
        (
            "ima",
            "ima is written as a file; name it, as in: fedscope export ima out.safetensors; or for a run's numbers "
            "name a tracker: --to csv, trackio, wandb or mlflow",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    fakes: Fakes, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(*words.split(), capsys=capsys) == said
    assert points(fakes, "trackio") == points(fakes, "mlflow") == Counter()


def test_the_remedy_of_a_call_is_a_keyword(fakes: Fakes) -> None:
    with pytest.raises(FedscopeError, match=r"^to='csv' writes a table; name its file, as file='ima\.csv'$"):
        fedscope.export_metrics("ima", "csv")


def test_python_names_its_keywords(fakes: Fakes) -> None:
    with pytest.raises(
        FedscopeError, match=r"^to='wand' is unknown; did you mean \"wandb\"\? there are trackio, wandb"
    ):
        fedscope.export_metrics("ima", "wand")


# --- a run that grows ---


def at_each_look(monkeypatch: pytest.MonkeyPatch, happenings: Iterable[Callable[[], Any]]) -> None:
    """What happens between two looks; nothing more may be waited for."""
    left = iter(happenings)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: next(left)()))


def grow(to: int, identity: str = "a") -> Callable[[], None]:
    """The same run with more rounds, or another one."""

    def happen() -> None:
        shutil.rmtree("ima")
        recorded("ima", *ROWS[:to], planned=4, identity=identity)

    return happen


@pytest.mark.parametrize("to", [*REMOTE, "csv"])
def test_a_growing_run_is_followed_to_its_end(
    fakes: Fakes, to: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(max((step for _, step, _ in points(fakes, to)), default=0))

    grow(0)()
    at_each_look(monkeypatch, [grow(1), look, grow(3), lambda: (look(), figure("late"), grow(4)())])
    words = ["x.csv"] if to == "csv" else []
    assert command(["export", "ima", *words, "--to", to, "--follow"]) == 0
    told = capsys.readouterr()
    assert told.err == f"fedscope: exporting ima to {to} as rounds come; Ctrl-C ends this\n"
    assert ": 4 rounds" in told.out
    if to == "csv":
        with Path("x.csv").open() as file:
            assert [row["round"] for row in csv.DictReader(file)] == ["1", "2", "3", "4"]
    else:
        assert points(fakes, to) == wanted()
    if to in ("trackio", "mlflow"):
        assert seen == [1, 3]
    assert [made.ended for made in fakes.runs.values()] == ([True] if to == "mlflow" else [])


def test_a_run_that_has_nothing_new_is_not_read_again(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures may be many megabytes; a new one, and numbers that were measured meanwhile, are seen."""
    read: list[int] = []

    def reading(run: Run, name: str) -> Any:
        read.append(len(run.rounds))
        return snapshot_of(run, name)

    def nothing() -> None:
        pass

    def measured() -> None:
        os.utime("ima/metrics.csv", ns=(1, 1))

    grow(1)()
    monkeypatch.setattr(module, "snapshot_of", reading)
    changes = [nothing, nothing, lambda: figure("new"), nothing, measured, nothing, grow(4)]
    at_each_look(monkeypatch, changes)
    fedscope.export_metrics("ima", "trackio", follow=True)
    assert read == [1, 1, 1, 4]


@pytest.mark.parametrize("to", REMOTE)
def test_ctrl_c_ends_following_and_the_same_command_goes_on(
    fakes: Fakes, to: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    grow(1)()
    at_each_look(monkeypatch, [grow(2), stop])
    assert command(["export", "ima", "--to", to, "--follow"]) == 130
    assert capsys.readouterr().err.endswith("fedscope: stopped; what was complete is kept\n")
    assert {step for _, step, _ in points(fakes, to)} == {1, 2}
    assert not any(hasattr(made, "ended") for made in fakes.runs.values())
    at_each_look(monkeypatch, [grow(4)])
    assert command(["export", "ima", "--to", to, "--follow"]) == 0
    assert points(fakes, to) == wanted()


def test_a_run_that_is_moved_meanwhile_is_not_waited_for(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing() -> None:
        pass

    grow(2)()
    at_each_look(monkeypatch, [lambda: Path("ima").rename("moved"), *[nothing] * (module.GONE - 1)])
    assert refused("ima", "--to", "trackio", "--follow", capsys=capsys).endswith(
        "ima is no run any more: it was moved or removed while it was exported; if it was moved, export it from where "
        "it is now, which goes on"
    )
    assert {step for _, step, _ in points(fakes, "trackio")} == {1, 2}
    Path("moved").rename("ima")
    assert command(["export", "ima", "--to", "trackio"]) == 0


def test_a_run_that_is_made_anew_meanwhile(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grow(2)()
    at_each_look(monkeypatch, [grow(3, "b")])
    assert refused("ima", "--to", "trackio", "--follow", capsys=capsys).endswith(
        "ima was made anew while it was exported; export the new run under another --name"
    )
    assert {step for _, step, _ in points(fakes, "trackio")} == {1, 2}


def test_two_exports_at_a_time(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = hold(Path("ima", module.LOCK), "a lock")
    assert refused("ima", "--to", "trackio", capsys=capsys) == (
        "ima is being exported by another process; wait until it ends"
    )
    held.release()
    assert fakes.trackio == []

    def read_only(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "hold", read_only)
    with pytest.warns(
        FedscopeWarning, match=r"^ima cannot be written, so nothing keeps a second export to trackio away"
    ):
        fedscope.export_metrics("ima", "trackio")
    assert points(fakes, "trackio") == wanted()


def test_only_pictures_of_the_folder_itself_are_figures(here: Path) -> None:
    """Wrong lines that would show another file of the user: a link is followed, a name alone believed."""
    Path("secret.png").write_bytes(PNG + b"secret")
    folder = Path("ima/figures")
    figure("plane")
    (folder / "link.png").symlink_to(Path("secret.png").absolute())
    (folder / "text.png").write_text("no picture")
    (folder / ".hidden.png").write_bytes(PNG)
    (folder / "folder.png").mkdir()
    (folder / "table.csv").write_text("a")
    os.mkfifo(folder / "pipe.png")
    assert [(one.name, one.content) for one in pictures_in(folder)] == [("plane", PNG)]
    assert pictures_in(Path("nowhere")) == ()


def test_a_run_without_settings_is_exported(fakes: Fakes) -> None:
    recorded("loop", *ROWS)
    fedscope.export_metrics("loop", "mlflow", project="mine", name="other")
    assert points(fakes, "mlflow") == wanted("loop")
    assert fakes.mlflow[0][-1] == 1000 * (1767323045 + 2)  # when it was created, and two seconds
    (made,) = fakes.runs.values()
    assert not hasattr(made, "ended")  # nobody knows whether it goes on


def test_settings_go_along(fakes: Fakes) -> None:
    for to in REMOTE:
        fedscope.export_metrics("ima", to)
    (made,) = fakes.runs.values()
    assert made.data.params == {"run.rounds": "4", "client.lr": "0.1"}
    assert fakes.settings["ima"]["client.lr"] == fakes.inits[-1]["config"]["client.lr"] == 0.1
