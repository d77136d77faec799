"""Jobs: what they are given, who sends them and who finds them again. No scheduler is at work here."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch  # so that jobs in this process know it

from fedscope.checkpoints import FedscopeError
from fedscope.distributed.cores import cores
from fedscope.training.jobs.blocks import PartBlock
from fedscope.training.jobs.environment import Environment
from fedscope.training.jobs.job import Do, SentJob
from fedscope.training.jobs.job_settings import JobSettings, job_settings, read_job
from fedscope.training.jobs.launchers import PollIntervals, Processes, Slurm, UnknownError, launcher, refuse_marks
from fedscope.training.jobs.progress import Progress
from fedscope.training.jobs.records import JobOutcome, JobRecord
from fedscope.training.jobs.share import Share
from fedscope.training.jobs.wait import refuse_live_jobs, wait_for_jobs

# --- what a job is given ---


def test_settings_are_hydras_and_are_read_as_words() -> None:
    given = read_job(["timeout_min=30", "mem_gb=1.5", "partition=gpu", "gpus_per_node=1", "account=007"])
    assert job_settings(given) == JobSettings(30, gpus_per_node=1, mem_gb=1.5, partition="gpu", account="007")
    names = {"timeout_min", "cpus_per_task", "gpus_per_node", "mem_gb", "partition", "array_parallelism"}
    assert names | {"max_num_timeout"} <= JobSettings().table().keys()


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (
            ["timeout=30"],
            r'^--job timeout is not a setting of jobs; did you mean "timeout_min"\?; there are timeout_min',
        ),
        (["xyzzy=30"], r"^--job xyzzy is not a setting of jobs; there are timeout_min, cpus_per_task"),
        (["timeout_min"], r"^--job timeout_min has no value; write KEY=VALUE, as in timeout_min=60$"),
        (["timeout_min="], r"^--job timeout_min= has no value"),
        (["qos=a", "qos=b"], r"^--job qos is given twice; leave one out$"),
        (["timeout_min=0"], r"^--job timeout_min=0 is not a whole number from 1 on; give one$"),
        (["timeout_min=1.5"], r"^--job timeout_min=1.5 is not a whole number from 1 on"),
        (["cpus_per_task=true"], r"^--job cpus_per_task=True is not a whole number from 1 on"),
        (["max_num_timeout=-1"], r"^--job max_num_timeout=-1 is not a whole number from 0 on"),
        (["array_parallelism=0"], r"^--job array_parallelism=0 is not a whole number from 1 on"),
        (["mem_gb=0"], r"^--job mem_gb=0 is not a memory size; give GB, as in mem_gb=16$"),
        (["mem_gb=16GB"], r"^--job mem_gb=16GB is not a memory size"),
        (
            ["signal_delay_s=60", "timeout_min=1"],
            r"^--job signal_delay_s=60 leaves nothing of timeout_min=1; give fewer",
        ),
    ],
)
def test_other_settings_are_refused(texts: list[str], sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        job_settings(read_job(texts))


# --- who runs them ---


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs of SLURM's names: sbatch keeps the script that it is given, squeue prints ``queue``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "sbatch": f"cp $1 {tmp_path}/script.sh; echo Submitted batch job 42",
        "srun": "exit 1",
        "squeue": f"cat {tmp_path}/queue || {{ echo slurm_load_jobs error >&2; exit 1; }}",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_the_script_for_slurm_is_an_array_of_jobs_that_are_queued_again(cluster: Path) -> None:
    settings = JobSettings(90, 4, 1, 1.5, "gpu", 2, 3, account="me", qos="long", signal_delay_s=45)
    folder = cluster / "jobs"
    jobs = [SentJob(Piece(f"{i}", cluster), cluster, "token", Environment({}, "")) for i in range(3)]
    by = launcher("slurm", settings)
    assert by.send(jobs, "fedscope-1", folder, 3) == ["42_0", "42_1", "42_2"]
    script = (cluster / "script.sh").read_text()
    python = shlex.quote(sys.executable)
    out, err = (f"{folder}/%A_%a_%t_log.{end}" for end in ("out", "err"))
    assert (
        script
        == f"""#!/bin/bash

# Parameters
#SBATCH --account=me
#SBATCH --array=0-2%2
#SBATCH --cpus-per-task=4
#SBATCH --error={err.replace("%t", "0")}
#SBATCH --gpus-per-node=1
#SBATCH --job-name=fedscope-1
#SBATCH --mem=1536MB
#SBATCH --nodes=1
#SBATCH --open-mode=append
#SBATCH --output={out.replace("%t", "0")}
#SBATCH --partition=gpu
#SBATCH --qos=long
#SBATCH --requeue
#SBATCH --signal=USR2@45
#SBATCH --time=90

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output {out} --error {err} --cpus-per-task=4 {python} -P -u -m submitit.core._submit {folder}
"""
    )
    from submitit.core.utils import DelayedSubmission

    sent = [DelayedSubmission.load(folder / f"42_{i}_submitted.pkl") for i in range(3)]
    assert [one.function.spec.name for one in sent] == ["0", "1", "2"]
    assert {(one._timeout_min, one._timeout_countdown) for one in sent} == {(90, 3)}
    assert by.send(jobs[:1], "fedscope-2", folder, 1) == ["42"]
    assert "--array" not in (cluster / "script.sh").read_text()


def test_the_script_says_nothing_of_what_is_left_to_the_cluster(cluster: Path) -> None:
    job = SentJob(Piece("0", cluster), cluster, "token", Environment({}, ""))
    launcher("slurm").send([job], "b", cluster / "jobs", 1)
    script = (cluster / "script.sh").read_text()
    for word in ("partition", "account", "qos", "mem", "gpus", "wckey"):
        assert f"--{word}" not in script
    assert "--time=60\n" in script


def test_what_squeue_says_of_jobs(cluster: Path) -> None:
    (cluster / "queue").write_text(
        "7_0|fedscope-a|RUNNING\n7_1|fedscope-a|TIMEOUT\n7_2|fedscope-a|PENDING\n8|fedscope-b|COMPLETING\n"
        "9_1|fedscope-c|RUNNING\n9_0|fedscope-c|OUT_OF_MEMORY\n70|fedscope-d|RUNNING\nCLUSTER: odd\n"
    )

    def record(batch: str, index: int, id: str = "") -> JobRecord:
        return JobRecord("token", "slurm", batch, index, id)

    asked = {
        "runs": record("fedscope-a", 0, "7_0"),
        "timed out": record("fedscope-a", 1, "7_1"),
        "waits": record("fedscope-a", 2, "7_2"),
        "alone": record("fedscope-b", 0),
        "unwritten": record("fedscope-c", 1),
        "killed": record("fedscope-c", 0),
        "never sent": record("fedscope-e", 0),
        "forgotten": record("fedscope-a", 3, "7_3"),
        "of a shorter number": record("x", 0, "7"),
    }
    assert launcher("slurm").states(asked) == {
        "runs": ("7_0", None),
        "timed out": ("7_1", "TIMEOUT"),
        "waits": ("7_2", None),
        "alone": ("8", None),
        "unwritten": ("9_1", None),
        "killed": ("9_0", "OUT_OF_MEMORY"),
        "never sent": ("", "GONE"),
        "forgotten": ("7_3", "GONE"),
        "of a shorter number": ("7", "GONE"),
    }
    (cluster / "queue").unlink()
    with pytest.raises(UnknownError, match=r"^squeue does not answer \(slurm_load_jobs error\)$"):
        launcher("slurm").states(asked)


def test_what_is_lacking_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(
        FedscopeError, match=r'^--launcher slrm is unknown; did you mean "slurm"\?; give local, processes'
    ):
        launcher("slrm")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        FedscopeError, match=r"^--launcher slurm finds no sbatch on this machine; give the command on a"
    ):
        launcher("slurm")
    monkeypatch.setitem(sys.modules, "submitit", None)
    for name in ("slurm", "processes"):
        with pytest.raises(
            FedscopeError, match=rf"^--launcher {name} takes submitit.*; install it: pip install \"fedscope\[slurm\]\"$"
        ):
            launcher(name)


def test_a_scheduler_that_refuses_is_quoted(cluster: Path) -> None:
    (cluster / "bin" / "sbatch").write_text("#!/bin/sh\necho sbatch: error: invalid partition: gpu >&2\nexit 1\n")
    job = SentJob(Piece("0", cluster), cluster, "token", Environment({}, ""))
    with pytest.raises(
        FedscopeError, match=r"^the scheduler refuses the jobs \(.*invalid partition: gpu\); change --job"
    ):
        launcher("slurm").send([job], "b", cluster / "jobs", 1)


def test_a_process_is_known_by_its_number_and_when_it_began() -> None:
    by = Processes(JobSettings())
    began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    record = JobRecord.new("processes", "b", 0)
    asked = {
        "this": replace(record, id=f"{os.getpid()}:{began}"),
        "an earlier one of its number": replace(record, id=f"{os.getpid()}:{int(began) - 1}"),
        "unwritten": record,
    }
    found = {name: how for name, (_, how) in by.states(asked).items()}
    assert found == {"this": None, "an earlier one of its number": "GONE", "unwritten": "GONE"}
    with pytest.raises(UnknownError, match="jobs were sent as processes of elsewhere, and this is"):
        by.states({"other": replace(asked["this"], host="elsewhere")})


# --- who waits for them ---


@dataclass(frozen=True)
class Piece:
    """A job spec that writes a file; the file ``NAME.fails`` holds the sentence with which it fails."""

    name: str
    folder: Path
    after: str | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def directory(self) -> Path | None:
        return None

    def work(self, do: Do) -> str | None:
        if (fails := self.folder / f"{self.name}.fails").exists():
            if fails.read_text() == "raise":
                raise RuntimeError("Job not requeued because: timed-out too many times.")
            return fails.read_text()
        with (self.folder / f"{self.name}.done").open("a") as done:
            done.write("once ")
        return None

    def is_complete(self) -> bool:
        return (self.folder / f"{self.name}.done").exists()

    def waits_for(self) -> str | None:
        return self.after


@dataclass
class Queue:
    """A launcher whose jobs run when ``states`` is asked, those of ``lost`` never do; in this process."""

    folder: Path
    name: str = "slurm"
    at_once: int | None = None
    pace: PollIntervals = field(default=PollIntervals(0.0, 0.0, 0.0))
    waiting: dict[str, SentJob] = field(default_factory=dict)
    batches: list[list[str]] = field(default_factory=list)
    lost: tuple[str, ...] = ()
    silent: int = 0
    at_send: Callable[[], None] = lambda: None
    at_work: list[int] = field(default_factory=list)

    def send(self, jobs: Sequence[SentJob], batch: str, folder: Path, at_work: int) -> list[str]:
        self.batches.append([job.spec.name for job in jobs])
        self.at_work.append(at_work)
        ids = [f"{len(self.batches)}_{i}" for i in range(len(jobs))]
        self.waiting |= {id: job for id, job in zip(ids, jobs, strict=True) if job.spec.name not in self.lost}
        self.at_send()
        return ids

    def states(self, records: Mapping[str, JobRecord]) -> dict[str, tuple[str, str | None]]:
        if self.silent:
            self.silent -= 1
            raise UnknownError("squeue does not answer (down)")
        found: dict[str, tuple[str, str | None]] = {}
        for name, record in records.items():
            id = record.id or next((id for id, job in self.waiting.items() if job.token == record.token), "")
            found[name] = (id, None if id in self.waiting else "CANCELLED")
        return found

    def run(self, *ids: str) -> None:
        for id in ids or list(self.waiting):
            self.waiting.pop(id)()

    def to_end(self, ids: Sequence[str]) -> str:
        return f"scancel {' '.join(ids)}"


@dataclass
class Told(Progress):
    """A watcher; every look gives ``each_look`` a turn."""

    each_look: Callable[[], object] = lambda: None
    over: dict[str, str | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def advance(self, done: int, of: int) -> None:
        self.each_look()

    def ended(self, name: str, failure: str | None) -> None:
        assert name not in self.over, "said once"
        self.over[name] = failure

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def pieces(folder: Path, names: str = "abc") -> list[Piece]:
    return [Piece(name, folder) for name in names]


def stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (JobRecord, "[]", "it is no JSON object"),
        (JobRecord, "null", "it is no JSON object"),
        (JobRecord, "{}", "it does not say token"),
        (JobRecord, '{"token": "t", "launcher": "l", "batch": "b", "index": "1"}', "its index is '1'"),
        (JobRecord, '{"token": "t", "launcher": "l", "batch": "b", "index": true}', "its index is True"),
        (JobOutcome, "3", "it is no JSON object"),
        (JobOutcome, "{}", "it does not say token"),
        (JobOutcome, '{"token": "t", "failure": [1]}', "its failure is [1]"),
    ],
)
def test_damaged_records_are_refused(
    tmp_path: Path, kind: type[JobRecord] | type[JobOutcome], text: str, said: str
) -> None:
    path = kind.path(tmp_path, "a")
    path.write_text(text)
    with pytest.raises(FedscopeError) as refused:
        kind.read(tmp_path, "a")
    assert str(refused.value) == f"{path} is damaged: {said}; end its jobs, and remove it"


@pytest.mark.parametrize("text", ["[]", "{}", '{"capability": 3}'])
def test_a_damaged_end_of_a_block_is_refused(tmp_path: Path, text: str) -> None:
    block = PartBlock(tmp_path, 0, 0, 2)
    path = tmp_path / block.name / "complete.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(FedscopeError) as refused:
        _ = block.capability
    remedy = "remove it, and its points are measured again"
    assert str(refused.value) == f"{path} is damaged: it does not say capability; {remedy}"


def test_every_errand_has_one_job_and_one_that_waits_is_sent_when_the_other_has_ended(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    told = Told(queue.run)
    specs = [Piece("c", tmp_path, after="b"), Piece("a", tmp_path), Piece("b", tmp_path)]
    assert wait_for_jobs(specs, queue, tmp_path / "jobs", told) == {"a": None, "b": None, "c": None}
    assert queue.batches == [["a", "b"], ["c"]]
    assert told.over == {"a": None, "b": None, "c": None}
    assert {path.name: path.read_text() for path in tmp_path.glob("*.done")} == dict.fromkeys(
        ("a.done", "b.done", "c.done"), "once "
    )
    again = Told()
    wait_for_jobs(specs, queue, tmp_path / "jobs", again)
    assert len(queue.batches) == 2, "nothing is lacking"
    assert again.over == {}


def test_jobs_of_a_command_that_died_are_found_and_no_second_one_is_sent(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    told = Told(stop)
    with pytest.raises(KeyboardInterrupt):
        wait_for_jobs(pieces(tmp_path), queue, tmp_path / "jobs", told)
    assert told.notes == [
        "3 jobs go on by themselves; the same command collects what they do, and this ends them: scancel 1_0 1_1 1_2"
    ]
    queue.run("1_1")  # while nobody waits
    told = Told(queue.run)
    assert wait_for_jobs(pieces(tmp_path), queue, tmp_path / "jobs", told) == {"a": None, "b": None, "c": None}
    assert told.notes == ["2 jobs of an earlier command still run"]
    assert queue.batches == [["a", "b", "c"]]


def test_jobs_whose_ids_were_never_written_down_are_found_too(tmp_path: Path) -> None:
    queue = Queue(tmp_path, at_send=stop)  # they are in the queue, and the command is gone
    with pytest.raises(KeyboardInterrupt):
        wait_for_jobs(pieces(tmp_path), queue, tmp_path / "jobs", Told())
    assert [record.id for name in "abc" if (record := JobRecord.read(tmp_path / "jobs", name))] == ["", "", ""]
    with pytest.raises(KeyboardInterrupt):
        wait_for_jobs(pieces(tmp_path), queue, tmp_path / "jobs", Told(stop))
    assert [record.id for name in "abc" if (record := JobRecord.read(tmp_path / "jobs", name))] == ["1_0", "1_1", "1_2"]
    wait_for_jobs(pieces(tmp_path), queue, tmp_path / "jobs", Told(queue.run))
    assert queue.batches == [["a", "b", "c"]]


def test_a_job_that_was_replaced_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = Queue(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        wait_for_jobs(pieces(tmp_path, "a"), queue, tmp_path / "jobs", Told(stop))
    old = queue.waiting.pop("1_0")  # no scheduler knows it any more
    with pytest.raises(KeyboardInterrupt):
        wait_for_jobs(pieces(tmp_path, "a"), queue, tmp_path / "jobs", Told(stop))
    assert queue.batches == [["a"], ["a"]]
    assert old() is None
    assert "a is another job's by now; nothing done" in capsys.readouterr().out
    assert not (tmp_path / "a.done").exists()
    wait_for_jobs(pieces(tmp_path, "a"), queue, tmp_path / "jobs", Told(queue.run))
    assert (tmp_path / "a.done").read_text() == "once "


def test_a_job_that_is_ended_from_outside_is_named_and_the_next_command_sends_another(tmp_path: Path) -> None:
    queue = Queue(tmp_path, lost=("b",))
    ended = wait_for_jobs(pieces(tmp_path), queue, tmp_path / "jobs", Told(queue.run))
    assert ended["a"] is None
    log = tmp_path / "b.log"
    assert ended["b"] == f"its job 1_1 was ended from outside (CANCELLED); the same command sends another, see {log}"
    queue.lost = ()
    assert wait_for_jobs(pieces(tmp_path), queue, tmp_path / "jobs", Told(queue.run))["b"] is None
    assert queue.batches == [["a", "b", "c"], ["b"]]


def test_a_job_that_fails_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "a.fails").write_text("client 3 is not a number, see a.log")
    queue = Queue(tmp_path)
    told = Told(queue.run)
    specs = [*pieces(tmp_path), Piece("d", tmp_path, after="a")]
    ended = wait_for_jobs(specs, queue, tmp_path / "jobs", told)
    assert ended == {"a": "client 3 is not a number, see a.log", "b": None, "c": None, "d": None}
    assert told.over == ended
    outcome = JobOutcome.read(tmp_path / "jobs", "b")
    assert outcome is not None
    assert outcome.capability == torch.backends.cpu.get_cpu_capability()


def test_one_whose_time_is_over_too_often_says_what_to_change(tmp_path: Path) -> None:
    (tmp_path / "a.fails").write_text("raise")
    queue = Queue(tmp_path)

    def run() -> None:
        if queue.waiting:
            with pytest.raises(RuntimeError, match="timed-out"):
                queue.run()

    ended = wait_for_jobs(pieces(tmp_path, "a"), queue, tmp_path / "jobs", Told(run))
    assert ended["a"] is not None
    assert (
        "it ran out of time too often; what is complete is kept, and the same command continues: give a larger --job"
        in ended["a"]
    )


def test_a_scheduler_that_does_not_answer_is_waited_for_but_not_at_first(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    told = Told(lambda: setattr(queue, "silent", 2) if not told.notes and queue.waiting else queue.run())
    assert wait_for_jobs(pieces(tmp_path, "a"), queue, tmp_path / "jobs", told) == {"a": None}
    assert told.notes == ["squeue does not answer (down); waiting for it"]
    with pytest.raises(KeyboardInterrupt):
        wait_for_jobs(pieces(tmp_path, "b"), queue, tmp_path / "jobs", Told(stop))
    queue.silent = 1
    with pytest.raises(FedscopeError, match=r"^squeue does not answer \(down\), so it is not known whether jobs of an"):
        wait_for_jobs(pieces(tmp_path, "b"), queue, tmp_path / "jobs", Told())
    assert queue.batches == [["a"], ["b"]]


def test_jobs_of_another_launcher_are_not_doubled(tmp_path: Path, cluster: Path) -> None:
    queue = Queue(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        wait_for_jobs(pieces(tmp_path, "a"), queue, tmp_path / "jobs", Told(stop))
    other = Queue(tmp_path, name="processes")
    (cluster / "queue").write_text("1_0|fedscope-x|PENDING\n")
    sentence = (
        r"1 job of --launcher slurm still works here, on a for one; give --launcher slurm again, or end them: scancel"
    )
    with pytest.raises(FedscopeError, match=sentence):
        wait_for_jobs(pieces(tmp_path, "a"), other, tmp_path / "jobs", Told(other.run))
    with pytest.raises(FedscopeError, match=r"wait for them, or end them: scancel 1_0$"):
        refuse_live_jobs(["a", "b"], tmp_path / "jobs", "wait for them")
    (cluster / "queue").write_text("1_0|fedscope-x|CANCELLED\n")
    refuse_live_jobs(["a", "b"], tmp_path / "jobs", "wait for them")
    assert wait_for_jobs(pieces(tmp_path, "a"), other, tmp_path / "jobs", Told(other.run)) == {"a": None}


def test_no_more_are_sent_than_may_be_at_work(tmp_path: Path) -> None:
    queue = Queue(tmp_path, at_once=2)
    most = []

    def one() -> None:
        most.append(len(queue.waiting))
        queue.run(*list(queue.waiting)[:1])

    wait_for_jobs(pieces(tmp_path, "abcde"), queue, tmp_path / "jobs", Told(one))
    assert max(most) == 2
    assert [name for batch in queue.batches for name in batch] == list("abcde")


def test_a_job_that_is_sent_later_takes_the_place_of_one_that_has_ended(tmp_path: Path) -> None:
    """Of the three jobs at work no two see the same GPUs."""
    queue = Queue(tmp_path, at_once=3)
    places: dict[str, int] = {}

    def one() -> None:
        now = {job.spec.name: job.place for job in queue.waiting.values()}
        assert sorted(set(now.values())) == sorted(now.values())
        places.update(now)
        queue.run(*list(queue.waiting)[1:2] or list(queue.waiting)[:1])

    wait_for_jobs(pieces(tmp_path, "abcde"), queue, tmp_path / "jobs", Told(one))
    assert places == {"a": 0, "b": 1, "c": 2, "d": 1, "e": 2}
    record = JobRecord.read(tmp_path / "jobs", "d")
    assert record is not None
    assert record.place == 1


def test_a_place_that_a_job_of_an_earlier_command_has_is_not_given_again(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        wait_for_jobs(pieces(tmp_path, "ab"), queue, tmp_path / "jobs", Told(stop))
    queue.waiting.pop("1_0")()  # the first has ended
    seen: dict[str, int] = {}

    def look() -> None:
        seen.update({job.spec.name: job.place for job in queue.waiting.values()})
        queue.run()

    wait_for_jobs(pieces(tmp_path, "bcd"), queue, tmp_path / "jobs", Told(look))
    assert seen == {"b": 1, "c": 0, "d": 2}


# --- what processes keep to ---


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pretended machine of six cores and three GPUs, on which nothing may be tied to certain cores."""

    def tied(*_: object) -> None:
        pytest.fail("jobs of two commands would be tied to the same cores, and others idle")

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", tied, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "FEDSCOPE_CORES"):
        monkeypatch.delenv(name, raising=False)


def shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, at_work: int = 0, **job: int
) -> list[Share | None]:
    """The shares of so many jobs that are sent at once."""
    jobs = [SentJob(Piece(f"{i}", tmp_path), tmp_path, "token", Environment({}, ""), i) for i in range(count)]
    monkeypatch.setattr("fedscope.training.jobs.launchers._send", lambda executor, jobs: ["1"] * len(jobs))
    Processes(JobSettings(**job)).send(jobs, "b", tmp_path / "jobs", at_work or count)
    return [job.share for job in jobs]


@pytest.mark.usefixtures("machine")
def test_processes_share_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Processes(JobSettings(cpus_per_task=2)).at_once == 3
    assert Processes(JobSettings(gpus_per_node=2)).at_once == 1
    assert Processes(JobSettings(gpus_per_node=1)).at_once == 3
    assert shares(tmp_path, monkeypatch, 4, cpus_per_task=2, gpus_per_node=1) == [
        Share(2, "0"),
        Share(2, "1"),
        Share(2, "2"),
        Share(2, "0"),
    ]
    assert shares(tmp_path, monkeypatch, 1, cpus_per_task=9, gpus_per_node=9) == [Share(6, "0,1,2")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-a,7")
    assert shares(tmp_path, monkeypatch, 2, gpus_per_node=1) == [Share(3, "5"), Share(3, "GPU-a")]
    # who asks for none sees what the command sees, and trains where it would
    assert shares(tmp_path, monkeypatch, 1) == [Share(6, "5, GPU-a,7")]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert shares(tmp_path, monkeypatch, 1) == [Share(6, None)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert Processes(JobSettings(gpus_per_node=1)).at_once == 6
    assert shares(tmp_path, monkeypatch, 1, gpus_per_node=1) == [Share(6, None)]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("count", "at_work", "job", "each"),
    [
        (1, 1, {}, 6),  # a sweep of one run, --blocks 1
        (1, 1, {"array_parallelism": 1}, 6),
        (2, 2, {"array_parallelism": 2}, 3),
        (1, 3, {}, 2),  # beside two that go on
        (6, 6, {}, 1),
        (9, 9, {"array_parallelism": 9}, 1),
        (1, 1, {"cpus_per_task": 1}, 1),  # as asked
    ],
)
def test_jobs_divide_the_cores_among_those_at_work(
    count: int, at_work: int, job: dict[str, int], each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shares(tmp_path, monkeypatch, count, at_work, **job) == [Share(each, None)] * count


def test_who_sends_jobs_says_how_many_are_at_work(tmp_path: Path) -> None:
    queue = Queue(tmp_path, at_once=2)
    wait_for_jobs(pieces(tmp_path, "abc"), queue, tmp_path / "jobs", Told(lambda: queue.run(*list(queue.waiting)[:1])))
    assert queue.at_work == [2, 2]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("seen", [None, "1,2"])
@pytest.mark.parametrize(
    ("own", "given", "threads"), [(2, None, "2"), (2, "1", "1"), (2, "4", "2"), (2, "all", "2"), (6, None, None)]
)
def test_a_job_keeps_to_its_share(
    own: int, given: str | None, threads: str | None, seen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """submitit's executor has set the GPUs for it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, value in (("FEDSCOPE_CORES", ""), ("OMP_NUM_THREADS", given or "")):  # as they were afterwards
        monkeypatch.setenv(name, value)
    if given is None:
        del os.environ["OMP_NUM_THREADS"]
    record = JobRecord.new("processes", "b", 0)
    record.write(tmp_path, "a")
    job = SentJob(Piece("a", tmp_path), tmp_path, record.token, Environment.here(), 1, Share(own, seen))
    assert job.checkpoint().function.share == job.share, "so does what goes on with it"
    assert job() is None
    assert cores() == own
    assert os.environ.get("OMP_NUM_THREADS") == threads
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == seen


def test_a_job_that_was_sent_before_there_were_shares_does_its_work(tmp_path: Path) -> None:
    record = JobRecord.new("processes", "b", 0)
    record.write(tmp_path, "a")
    job = SentJob(Piece("a", tmp_path), tmp_path, record.token, Environment.here(), 1, Share(1, None))
    del job.place, job.share
    again = pickle.loads(pickle.dumps(job)).checkpoint().function
    assert (again.place, again.share) == (0, None)
    assert job() is None


@pytest.mark.programs
def test_processes_see_their_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by the jobs themselves."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-x")
    (tmp_path / "tells.py").write_text(TELLS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    from tells import Tells  # type: ignore[import-not-found]

    by = Processes(JobSettings(timeout_min=2, array_parallelism=2))
    assert wait_for_jobs([Tells(tmp_path, name) for name in "ab"], by, tmp_path / "jobs", Progress()) == {
        "a": None,
        "b": None,
    }
    said = [json.loads((tmp_path / f"{name}.said").read_text()) for name in "ab"]
    assert said == [[sorted(os.sched_getaffinity(0)), max(1, cores() // 2), "GPU-x"]] * 2


@pytest.mark.parametrize(
    ("name", "processes", "slurm"),
    [
        ("50%dropout", None, None),
        ("x%20y", None, None),
        ("100%", None, None),
        ("50%adam", "%a", "%a"),
        ("a%t", "%t", "%t"),
        ("a%x", None, "%x"),
        ("a%3N", None, "%3N"),
        ("a%%b", None, "%%"),
    ],
)
def test_a_name_is_refused_where_it_would_be_replaced(
    name: str, processes: str | None, slurm: str | None, tmp_path: Path
) -> None:
    for by, who, mark in (
        (Processes(JobSettings()), "submitit", processes),
        (Slurm(JobSettings()), "SLURM", slurm),
    ):
        if mark is None:
            refuse_marks(by, tmp_path / name)
            continue
        with pytest.raises(FedscopeError) as caught:
            refuse_marks(by, tmp_path / name)
        assert str(caught.value) == (
            f"{tmp_path / name} has {mark} in its name, and {who} puts something else, as a job's number, in the place "
            f"of that; write to a folder without it, or leave --launcher {by.name} out"
        )


#: a job spec that writes down what it sees
TELLS = """
import json, os
from dataclasses import dataclass
from pathlib import Path

from fedscope.distributed.cores import cores


@dataclass(frozen=True)
class Tells:
    folder: Path
    name: str
    directory: None = None

    @property
    def log(self):
        return self.folder / f"{self.name}.log"

    def work(self, do):
        said = [sorted(os.sched_getaffinity(0)), cores(), os.environ.get("CUDA_VISIBLE_DEVICES")]
        (self.folder / f"{self.name}.tmp").write_text(json.dumps(said))
        os.replace(self.folder / f"{self.name}.tmp", self.folder / f"{self.name}.said")

    def is_complete(self):
        return (self.folder / f"{self.name}.said").exists()

    def waits_for(self):
        return None
"""


# --- the same bits ---


def test_a_job_computes_with_the_versions_it_was_sent_with_or_not_at_all(tmp_path: Path) -> None:
    here = Environment.here()
    assert here.refusal(here) is None
    assert here.refusal(replace(here, versions={**here.versions, "python": "3.99"})) is None
    for name in ("fedscope", "torch", "numpy"):
        other = replace(here, versions={**here.versions, name: "0.0.7"})
        record = JobRecord.new("slurm", "b", 0)
        record.write(tmp_path, "a")
        said = SentJob(Piece("a", tmp_path), tmp_path, record.token, other)()
        assert said == (
            f"the job was sent by {name} 0.0.7 but finds {name} {here.versions[name]}; give the same command again "
            "where both are the same"
        )
        outcome = JobOutcome.read(tmp_path, "a")
        assert outcome is not None
        assert outcome.failure == said
    assert not (tmp_path / "a.done").exists()


def test_another_kind_of_processor_is_said(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    told = Told(queue.run)

    def elsewhere() -> None:
        queue.run()
        outcome = JobOutcome.read(tmp_path / "jobs", "a")
        assert outcome is not None
        replace(outcome, capability="QUBITS").write(tmp_path / "jobs", "a")

    told.each_look = elsewhere
    wait_for_jobs(pieces(tmp_path, "a"), queue, tmp_path / "jobs", told)
    capability = torch.backends.cpu.get_cpu_capability()
    assert told.notes == [
        f"a was computed with QUBITS, and here is {capability}: its last bits may differ from those that this machine "
        "gives"
    ]


def test_a_launcher_is_as_the_wait_needs_it() -> None:
    assert Slurm(JobSettings()).at_once is None, "the array says how many"
    assert Processes(JobSettings(array_parallelism=3)).at_once == 3
    assert Processes(JobSettings(cpus_per_task=10_000)).at_once == 1
