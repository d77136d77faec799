"""Sweeps whose runs are jobs, here processes of this machine: the same bits, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_memory import contents

from fedscope.checkpoints import Run
from fedscope.cli.main import run
from fedscope.training import Setup, Sweep
from fedscope.training.jobs.records import JOBS, JobOutcome, JobRecord
from fedscope.training.sweeps.axes import read_axes
from fedscope.training.sweeps.by_jobs import RunOfSweep
from fedscope.training.sweeps.plan import plan_sweep

pytestmark = pytest.mark.programs

SMALL = ("--set", "data.clients=4", "--set", "model.hidden=[4]", "--set", "client.epochs=1")
#: two processes at a time, each told that its time is over long after the tests
JOB = ("--launcher", "processes", "--job", "array_parallelism=2")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def same(made: Path | str, expected: Path | str) -> int:
    """How many rounds two sweeps have, all of them the same."""
    files = [
        {path.relative_to(sweep): path for path in Path(sweep).glob("runs/*/rounds/*.h5")} for sweep in (made, expected)
    ]
    assert files[0].keys() == files[1].keys()
    for name, path in files[0].items():
        assert contents(path) == contents(files[1][name]), name
    return len(files[0])


def test_a_sweep_by_jobs_is_the_sweep_in_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    """FMA branches from IMA, whose job begins it; then nothing is left to do."""
    words = ["sweep", "method=fma,ima", *SMALL, "--set", "run.rounds=6", "--set", "average.start=4"]
    assert run([*words, "--out", "one"]) == 0
    assert run([*words, "--out", "jobs", *JOB]) == 0
    assert same("jobs", "one") == 12
    assert "branch" in Run.open("jobs/runs/fma").info
    assert "train --resume" in Path("jobs/logs/fma.log").read_text(), "it has gone on in a job of its own"
    ours, theirs = (Run.open(f"{sweep}/runs/fma").metrics() for sweep in ("jobs", "one"))
    for column in theirs.keys() - {"seconds"}:
        np.testing.assert_array_equal(ours[column], theirs[column], err_msg=column)
    records = [path.read_bytes() for path in sorted(Path("jobs", JOBS).glob("*.job.json"))]
    capsys.readouterr()
    assert run(["sweep", "--resume", "jobs", *JOB, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["complete"] == ["fma", "ima"]
    assert records == [path.read_bytes() for path in sorted(Path("jobs", JOBS).glob("*.job.json"))], "none was sent"


def test_what_is_about_jobs_is_refused_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    for words, sentence in (
        (["--job", "timeout_min=5"], "--job timeout_min is about jobs, and --launcher local has none; give --launcher"),
        (
            ["--job", "timeout=5", "--launcher", "processes"],
            '--job timeout is not a setting of jobs; did you mean "tim',
        ),
        (
            ["--job", "mem_gb=x", "--launcher", "processes"],
            "--job mem_gb=x is not a memory size; give GB, as in mem_gb=16",
        ),
    ):
        assert run(["sweep", "method=fma,ima", *words]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"fedscope: {sentence}")
        assert said.count("\n") == 1
    assert not Path("sweeps").exists()


def test_a_run_begins_its_branches_but_not_those_that_have_jobs(tmp_path: Path) -> None:
    """Words alone: a branch that was sent, because the other run had failed before, may be at work."""
    plan = plan_sweep(Setup(), read_axes(["method=fma,fedavgm,ima"]), (), {"average": {}, "run": {"rounds": 6}})
    folder = tmp_path / "sweep"
    (folder / JOBS).mkdir(parents=True)
    trunk, branch = plan.of("ima"), plan.of("fma")
    assert branch.after == ("ima", 4)
    asked: list[list[str]] = []

    def do(words: Sequence[str], log: Path) -> int:
        asked.append([*words])
        return 0

    spec = RunOfSweep(folder, trunk, None)
    waiting = RunOfSweep(folder, branch, None)
    assert waiting.waits_for() == "ima"
    spec._begin(branch, {"ima": 5, "fma": None}, do)
    assert asked == [], "it has gone on without it"
    assert waiting.waits_for() is None, "so the branch is trained from its start, by its own job"
    (folder / JOBS / "fma.begun").unlink()
    JobRecord.new("slurm", "b", 0).write(folder / JOBS, "fma")
    spec._begin(branch, {"ima": 4, "fma": None}, do)
    assert asked == []
    (folder / JOBS / "fma.begun").unlink()
    (folder / JOBS / "fma.job.json").unlink()
    spec._begin(branch, {"ima": 4, "fma": None}, do)
    (words,) = asked
    assert words[:3] == ["train", "--from", f"{folder / 'runs' / 'ima'}@4"]
    assert words[-2:] == ["--until", "5"]
    assert waiting.waits_for() is None
    spec._begin(branch, {"ima": 4, "fma": 5}, do)
    assert len(asked) == 1, "once"


# --- whoever is killed ---

ROUNDS = 40
#: some seconds each
EPOCHS = ("--set", "data.clients=4", "--set", "model.hidden=[4]", "--set", "client.epochs=100")
WORDS = ("client.method=sgd,scaffold", "average.method=none,ima", *EPOCHS, "--set", f"run.rounds={ROUNDS}")


def start(*words: str | Path) -> subprocess.Popen[str]:
    """A `fedscope` command in a process group of its own, with Ctrl-C as at a terminal."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from fedscope.cli.main import main; main()", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def until(what: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found


def rounds(folder: Path) -> int:
    return len(list(folder.glob("runs/*/rounds/[0-9]*.h5")))


def jobs_of(folder: Path) -> dict[int, str]:
    """The processes at work for a sweep: those of submitit, by number, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if "submitit" in line and str(folder) in line:
                found[int(entry.name)] = line
    return found


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference") / "sweep"
    process = start("sweep", *WORDS, "--out", folder)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "reaches"),
    [(signal.SIGINT, "all"), (signal.SIGTERM, "all"), (signal.SIGKILL, "the command"), (signal.SIGKILL, "all")],
)
def test_the_command_dies_and_the_same_command_goes_on_with_its_jobs(
    how: signal.Signals, reaches: str, reference: Path, tmp_path: Path
) -> None:
    """A terminal's Ctrl-C reaches all that it has started, a kill of the whole group ends the jobs, too."""
    folder = tmp_path / "sweep"
    process = start("sweep", *WORDS, "--out", folder, *JOB)
    until(lambda: rounds(folder) > 3)
    before = {name: JobRecord.read(folder / JOBS, name) for name in ("sgd-ima", "scaffold-ima")}
    (os.killpg if reaches == "all" else os.kill)(process.pid, how)
    _, err = process.communicate(timeout=60) if how != signal.SIGKILL else (None, "")
    assert process.wait(60) == (-how if how == signal.SIGKILL else 128 + how)
    if how != signal.SIGKILL:
        assert re.search("2 jobs go on by themselves; the same command collects what they do, and this ends", err), err
        assert f"fedscope: go on with: fedscope sweep --resume {folder} --launcher processes --job array_par" in err
    survive = (how, reaches) != (signal.SIGKILL, "all")
    assert bool(jobs_of(folder)) == survive
    process = start("sweep", "--resume", folder, *JOB)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert ("of an earlier command still run" in err) == survive
    after = {name: JobRecord.read(folder / JOBS, name) for name in before}
    assert (before == after) == survive, "no second one is sent where one is at work"
    assert same(folder, reference) == 4 * ROUNDS
    assert not jobs_of(folder)


@pytest.mark.slow
def test_a_job_that_is_killed_is_named_and_the_same_command_goes_on(reference: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    process = start("sweep", *WORDS, "--out", folder, *JOB)
    until(lambda: len(list(folder.glob("runs/scaffold-ima/rounds/*.h5"))) > 3)
    record = JobRecord.read(folder / JOBS, "scaffold-ima")
    assert record is not None
    number = record.id.partition(":")[0]
    for pid in [pid for pid in jobs_of(folder) if number in (str(pid), parent(pid))]:
        os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    log = folder / "logs" / "scaffold-ima.log"
    assert f"its job {number} was ended from outside; the same command sends another, see {log}" in err
    assert "scaffold-ima" in Sweep.open(folder).failures
    process = start("sweep", *WORDS, "--out", folder, *JOB)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert same(folder, reference) == 4 * ROUNDS
    assert dict(Sweep.open(folder).failures) == {}


def parent(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]


@pytest.mark.slow
def test_a_run_that_always_fails_is_named_with_its_log(capsys: pytest.CaptureFixture[str], few_digits: None) -> None:
    assert run(["sweep", "client.lr=0.1,1e30", *SMALL, "--set", "run.rounds=2", "--out", "s", *JOB]) == 2
    found = capsys.readouterr()
    assert "lr1e30: failed: " in found.err
    assert found.err.endswith("fedscope: 1 of 2 runs failed: lr1e30; see s/logs\n")
    outcome = JobOutcome.read(Path("s", JOBS), "lr1e30")
    assert outcome is not None
    assert outcome.failure == Sweep.open("s").failures["lr1e30"]
    assert outcome.failure.splitlines()[-1] in Path("s/logs/lr1e30.log").read_text()


@pytest.mark.slow
def test_a_job_whose_time_is_over_goes_on_where_it_stood(tmp_path: Path) -> None:
    """Told after two seconds, it stops with whole rounds, and is queued again until the run is complete."""
    words = ["method=fma,ima", *SMALL, "--set", "run.rounds=2000", "--set", "client.epochs=5"]
    once = ["--set", "run.evaluate_every=1000"]
    process = start(
        "sweep", *words, *once, "--out", tmp_path / "s", "--launcher", "processes", *TOLD, "max_num_timeout=1"
    )
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2, err
    assert "it ran out of time too often; what is complete is kept, and the same command continues: give a" in err
    logs = Path(tmp_path / "s" / "logs" / "ima.log").read_text()
    assert logs.count("$ fedscope train --recipe") + logs.count("$ fedscope train --method") == 1
    assert "$ fedscope train --resume" in logs
    run_ = Run.open(tmp_path / "s" / "runs" / "ima")
    assert run_.rounds == tuple(range(1, len(run_.rounds) + 1))
    assert len(run_.rounds) > 1
    alone = start("train", "--method", "ima", *SMALL, *words[-4:], *once, "--out", tmp_path / "one", "--until",
                  str(len(run_.rounds)))  # fmt: skip
    _, err = alone.communicate(timeout=300)
    assert alone.returncode == 0, err
    for t in run_.rounds:
        name = f"rounds/{t:05d}.h5"
        assert contents(run_.path / name) == contents(tmp_path / "one" / name)


#: of a minute, all but some seconds are left when a job is told
TOLD = ("--job", "timeout_min=1", "--job", "signal_delay_s=50", "--job")


@pytest.mark.slow
def test_what_jobs_train_is_not_trained_beside_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sweep"
    process = start("sweep", *WORDS, "--out", folder, *JOB)
    until(lambda: rounds(folder) > 3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert run(["sweep", "--resume", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "of --launcher processes still work here, on sgd-ima for one; give the same --launcher to wait for" in said
    assert run(["sweep", "--resume", str(folder), *JOB]) == 0
    shutil.rmtree(folder / JOBS)
    assert run(["sweep", "--resume", str(folder)]) == 0
