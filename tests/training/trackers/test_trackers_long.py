"""The trackers as they are: trackio's own database, wandb's offline files, mlflow's database and its files, and exports
that are killed at any moment.

They lie in an environment that is made once a machine in ``benchmarks/.peers``. fedscope's own comes before it on the
path, so that nothing of fedscope's is another version there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from fedscope.checkpoints import RoundRecord, Run, RunWriter
from fedscope.training.trackers.pictures import PNG
from fedscope.training.trackers.snapshot import snapshot_of
from fedscope.training.trackers.tracker import TESTED

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
ROUNDS = 40
MAIN = "from fedscope.cli.main import main\nsys.argv[0] = 'fedscope'\nmain()"
#: what each tracker has, as JSON: points as [tag, round, value], and the names of figures
READ = {
    "trackio": """
        from trackio.sqlite_storage import SQLiteStorage
        rows = SQLiteStorage.get_logs("fedscope", "ima")
        points = [[tag, row["step"], value] for row in rows for tag, value in row.items() if "/" in tag]
        figures = [tag for tag, *_ in points if tag.startswith("figures/")]
        points = [point for point in points if not point[0].startswith("figures/")]
    """,
    "mlflow": """
        from mlflow.tracking import MlflowClient
        client = MlflowClient()
        experiment = client.get_experiment_by_name("fedscope")
        runs = client.search_runs([experiment.experiment_id]) if experiment else []
        points = [
            [tag, one.step, one.value]
            for run in runs for tag in run.data.metrics
            for one in client.get_metric_history(run.info.run_id, tag)
        ]
        figures = [one.path[:-4] for run in runs for one in client.list_artifacts(run.info.run_id, "figures")]
    """,
    "wandb": """
        from pathlib import Path
        from wandb.proto.wandb_internal_pb2 import Record

        def records(data):  # LevelDB's log: blocks of 32 KiB of pieces with a sum, a length and a kind
            at, whole = 7, b""
            while at + 7 <= len(data):
                if 32768 - at % 32768 < 7:
                    at += 32768 - at % 32768
                length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
                whole += data[at + 7 : at + 7 + length]
                at += 7 + length
                if kind in (1, 4):  # a whole one, or its last piece
                    yield whole
                    whole = b""

        rows = []
        for path in Path("wandb").glob("offline-run-*/*.wandb"):
            for data in records(path.read_bytes()):
                record = Record()
                record.ParseFromString(data)
                if record.WhichOneof("record_type") == "history":
                    items = record.history.item
                    rows.append({i.key or i.nested_key[0]: json.loads(i.value_json) for i in items})
        points = [[tag, row["round"], value] for row in rows for tag, value in row.items() if "/" in tag]
        figures = [tag for tag, *_ in points if tag.startswith("figures/")]
        points = [point for point in points if not point[0].startswith("figures/")]
    """,
}


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder of the trackers' packages."""
    home = ROOT / "benchmarks" / ".peers" / "trackers"
    home.parent.mkdir(exist_ok=True)
    python, made_for = home / "bin" / "python", home / "made-for.txt"
    wanted = "\n".join([*(f"{name}=={version}.*" for name, version in TESTED.items()), sys.version])
    with FileLock(home.parent / "trackers-lock"):
        if not (made_for.exists() and made_for.read_text() == wanted):
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, timeout=300)
            install = [python, "-m", "pip", "install", "--quiet", *wanted.splitlines()[:-1]]
            done = subprocess.run(install, capture_output=True, text=True, timeout=1800)
            if done.returncode:
                pytest.skip(f"the trackers cannot be installed: {done.stderr[-500:]}")
            made_for.write_text(wanted)
    (folder,) = home.glob("lib/python*/site-packages")
    return folder


class Here:
    """A folder with a run, in which commands find the trackers."""

    def __init__(self, folder: Path, packages: Path, store: str) -> None:
        self.folder, self.packages = folder, packages
        home = {"HOME": str(folder), "TRACKIO_DIR": str(folder / "trackio")}
        gone = ("WANDB_MODE", "WANDB_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "MLFLOW_TRACKING_URI")
        self.environment = {key: value for key, value in os.environ.items() if key not in gone} | home
        if store == "files":
            self.environment |= {"MLFLOW_TRACKING_URI": (folder / "store").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}

    def begin(self, script: str, *words: str) -> subprocess.Popen[str]:
        """A program with the trackers at the end of its path."""
        whole = f"import json, sys\nsys.path.append({str(self.packages)!r})\n{textwrap.dedent(script)}"
        command = [sys.executable, "-P", "-c", whole, *words]
        out = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=out, stderr=out, text=True)

    def finished(self, script: str, *words: str) -> str:
        process = self.begin(script, *words)
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        return out

    def export(self, *words: str) -> str:
        return self.finished(MAIN, "export", "ima", *words)

    def has(self, to: str) -> tuple[Counter[tuple[str, int, float]], list[str]]:
        told = self.finished(f"{textwrap.dedent(READ[to])}\nprint('told', json.dumps([points, figures]))")
        points, figures = json.loads(told.rpartition("told ")[2])
        return Counter((tag, step, value) for tag, step, value in points), sorted(figures)

    def wanted(self) -> Counter[tuple[str, int, float]]:
        told = snapshot_of(Run.open(self.folder / "ima"), "ima").points
        return Counter((tag, point.round, value) for point in told for tag, value in point.values.items())


def write(path: Path, first: int, last: int, writer: RunWriter | None = None) -> RunWriter:
    """Rounds of a run without models."""
    empty = np.zeros(0)
    if writer is None:
        info = {"layout": [], "created": "2026-01-02T03:04:05+00:00", "identity": "a"}
        config = {"run": {"rounds": ROUNDS}, "client": {"lr": 0.1, "method": "sgd"}}
        writer = RunWriter.create(path, info, config, None)
    for number in range(first, last + 1):
        row = {"test_loss": 1.0 / number, "test_error": 0.5 / number, "seconds": 2.0, "drift_kept": 0.3}
        writer.write(RoundRecord(number, None, None, None, None, *[empty] * 5, metrics=row))
    return writer


@pytest.fixture(params=["trackio", "wandb", "mlflow", "mlflow files"])
def here(request: pytest.FixtureRequest, packages: Path, tmp_path: Path) -> tuple[Here, str]:
    to, _, store = str(request.param).partition(" ")
    return Here(tmp_path, packages, store), to


def draw(folder: Path, name: str) -> None:
    import matplotlib.pyplot as plt

    (folder / "ima" / "figures").mkdir(exist_ok=True)
    figure = plt.figure(figsize=(1, 1))
    figure.savefig(folder / "ima" / "figures" / f"{name}.png")
    plt.close(figure)
    assert (folder / "ima" / "figures" / f"{name}.png").read_bytes().startswith(PNG)


def test_everything_is_there_once(here: tuple[Here, str], tmp_path: Path) -> None:
    place, to = here
    write(tmp_path / "ima", 1, 30).__exit__(None, None, None)
    draw(tmp_path, "plane-clients-ima@20")
    assert "30 rounds, 1 figure" in place.export("--to", to)
    assert place.has(to) == (place.wanted(), ["figures/plane-clients-ima@20"])
    place.export("--to", to)
    assert place.has(to) == (place.wanted(), ["figures/plane-clients-ima@20"])
    with RunWriter.open(tmp_path / "ima") as writer:
        write(tmp_path / "ima", 31, ROUNDS, writer)
    draw(tmp_path, "line")
    said = json.loads(place.export("--to", to, "--json", "--follow"))
    assert (said["rounds"], said["figures"]) == (ROUNDS, 2)
    assert place.has(to) == (place.wanted(), ["figures/line", "figures/plane-clients-ima@20"])
    assert not list(tmp_path.rglob(".fedscope-*"))
    assert not (tmp_path / "ima" / ".exporting").exists()


@pytest.mark.parametrize("follows", [False, True], ids=["at once", "as it grows"])
def test_kills_at_any_moment_leave_no_point_twice_and_none_out(
    here: tuple[Here, str], tmp_path: Path, follows: bool
) -> None:
    """The whole time of an export is passed over by kills, from before it opens the tracker until after its end."""
    place, to = here
    writer = write(tmp_path / "ima", 1, 2)
    draw(tmp_path, "plane")
    began = time.monotonic()
    place.export("--to", to)
    whole = time.monotonic() - began
    words, last, met = ["--to", to, *(["--follow"] if follows else [])], 2, 0
    for share in np.linspace(0.1, 1.6 if follows else 0.9, 12):
        last += 3
        process = place.begin(MAIN, "export", "ima", *words)
        time.sleep(share * whole / 2)
        write(tmp_path / "ima", last - 2, last, writer)
        time.sleep(share * whole / 2)
        process.send_signal(signal.SIGKILL)
        met += process.wait() == -signal.SIGKILL
        process.communicate()
    writer.__exit__(None, None, None)
    assert met >= 6
    found, _ = place.has(to)
    assert max(found.values(), default=1) == 1
    assert found <= place.wanted()
    place.export("--to", to)
    assert place.has(to) == (place.wanted(), ["figures/plane"])


def test_the_page(packages: Path, tmp_path: Path) -> None:
    """Every command and program of the how-to, on a run with two figures."""
    from test_docs import assert_shown, steps_of

    page = ROOT / "docs" / "howto" / "trackers.md"
    (tmp_path / "runs").mkdir()
    write(tmp_path / "runs" / "ima", 1, ROUNDS).__exit__(None, None, None)
    (tmp_path / "ima").symlink_to("runs/ima")
    for name in ("plane", "curves"):
        draw(tmp_path, name)
    place, seen = Here(tmp_path, packages, ""), 0
    for step in steps_of(page):
        if step.language == "python":
            place.finished(step.text)
        else:
            output = place.finished(MAIN, *step.text.split()[1:])
            if step.language == "console":
                assert_shown(step, output)
        seen += 1
    assert seen == 6
    assert (tmp_path / "ima-numbers.csv").is_file()


def test_what_is_missing_is_one_sentence(packages: Path, tmp_path: Path) -> None:
    """In words of the real packages: nobody is logged in, no server answers."""
    write(tmp_path / "ima", 1, 2).__exit__(None, None, None)
    place = Here(tmp_path, packages, "")
    place.environment |= {"WANDB_API_KEY": ""}
    cases: list[tuple[str, dict[str, str], str]] = [
        ("wandb", {"WANDB_MODE": "online"}, "fedscope: wandb is not logged in, and WANDB_MODE = online sends to"),
        ("trackio", {"TRACKIO_SPACE_ID": "me/space"}, "fedscope: trackio is not logged in, and TRACKIO_SPACE_ID"),
        ("mlflow", {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}, "failed: "),
    ]
    for to, words, told in cases:
        place.environment |= words
        process = place.begin(MAIN, "export", "ima", "--to", to)
        out, err = process.communicate(timeout=240)
        assert (process.returncode, out) == (2, ""), err
        assert told in err
        assert "Traceback" not in err
