"""Launchers of jobs: on a SLURM cluster, or as processes of this machine, which is for laptops and for trying it
out."""

from __future__ import annotations

import fcntl
import getpass
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.processes import start_ticks
from ...distributed.cores import cores
from .job import SentJob
from .job_settings import LAUNCHERS, LOCAL, JobSettings, job_settings
from .records import JobRecord
from .share import Share, visible_gpus

if TYPE_CHECKING:
    from submitit import Executor

#: states in which SLURM will not run a job again
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"),
    *("PREEMPTED", "REVOKED", "LAUNCH_FAILED"),
}

#: what submitit replaces in the paths of jobs' files
_MARK = re.compile("%[jtAa]")
#: what it and ``sbatch`` replace in the paths of logs; a number may stand between
_SLURM_MARK = re.compile("%[0-9]*[AabJjNnstux]|%%")


class UnknownError(Exception):
    """A scheduler does not answer, so nothing is known of its jobs."""


@dataclass(frozen=True)
class PollIntervals:
    """Seconds.

    Attributes:
        look: between looks at what jobs leave on disk; ask: between questions for their states.
        grace: that a file of a job which has ended may need to be seen here, on a network file system.
    """

    look: float
    ask: float
    grace: float


class Launcher(Protocol):
    """Sends jobs, and knows which of them may still run."""

    @property
    def name(self) -> str:
        """One of LAUNCHERS."""

    @property
    def pace(self) -> PollIntervals:
        """The intervals at which it is asked."""

    @property
    def at_once(self) -> int | None:
        """So many jobs may have been sent and not ended; None where the scheduler sees to that."""

    def send(self, jobs: Sequence[SentJob], batch: str, folder: Path, at_work: int) -> list[str]:
        """Send jobs under a name; gives their ids.

        Args:
            at_work: how many jobs of the command are at work then, these among them.

        Raises:
            FedscopeError: no scheduler, or one that refuses them.
        """

    def states(self, records: Mapping[str, JobRecord]) -> dict[str, tuple[str, str | None]]:
        """Of each job its id, and how it ended; None where it waits, runs, or may run again.

        Raises:
            UnknownError: the scheduler does not answer.
        """

    def to_end(self, ids: Iterable[str]) -> str:
        """Return the command that ends jobs."""


def launcher(name: str, settings: JobSettings | None = None) -> Launcher:
    """A launcher by its name.

    Raises:
        FedscopeError: another name; submitit is not installed; no SLURM on this machine.
    """
    if name not in LAUNCHERS[1:]:
        raise FedscopeError(f"--launcher {name} is unknown{nearest(name, LAUNCHERS)}; give {', '.join(LAUNCHERS)}")
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise FedscopeError(
            f'--launcher {name} takes submitit, which is not installed; install it: pip install "fedscope[slurm]"'
        ) from None
    if name == "processes":
        return Processes(settings or JobSettings())
    for program in ("sbatch", "srun", "squeue"):
        if shutil.which(program) is None:
            raise FedscopeError(
                f"--launcher slurm finds no {program} on this machine; give the command on a login node of the "
                "cluster, or take --launcher processes"
            )
    return Slurm(settings or JobSettings())


def chosen_launcher(name: str, job: Mapping[str, Any] | None = None) -> Launcher | None:
    """A launcher by its name and the settings of its jobs; None for ``local``.

    Raises:
        FedscopeError: what :func:`launcher` refuses; settings of no job.
    """
    settings = job_settings(job or {})
    if name != LOCAL:
        return launcher(name, settings)
    if job:
        raise FedscopeError(
            f"--job {next(iter(job))} is about jobs, and --launcher local has none; give --launcher slurm"
        )
    return None


def refuse_marks(by: Launcher, folder: Path) -> None:
    """Refuse a folder of jobs whose name would be replaced in part.

    Args:
        folder: as it is handed on: links stay as they are.

    Raises:
        FedscopeError: names the mark.
    """
    who, marks = ("SLURM", _SLURM_MARK) if by.name == "slurm" else ("submitit", _MARK)
    if mark := marks.search(f"{folder.absolute()}"):
        raise FedscopeError(
            f"{folder.absolute()} has {mark[0]} in its name, and {who} puts something else, as a job's number, in the "
            f"place of that; write to a folder without it, or leave --launcher {by.name} out"
        )


def known_launcher(name: str) -> Launcher:
    """One that is only asked about jobs, for which it takes neither submitit nor that SLURM is there."""
    return Processes(JobSettings()) if name == "processes" else Slurm(JobSettings())


@dataclass(frozen=True)
class Slurm:
    """Job arrays of ``sbatch``."""

    settings: JobSettings
    name: str = field(default="slurm", init=False)
    pace: PollIntervals = field(default=PollIntervals(2.0, 20.0, 30.0), init=False)

    @property
    def at_once(self) -> int | None:
        """The array's own limit says it."""
        return None

    def executor(self, batch: str, folder: Path) -> Executor:
        """submitit's, which writes the batch script."""
        from submitit import SlurmExecutor

        made = SlurmExecutor(
            folder, max_num_timeout=self.settings.max_num_timeout, python=f"{shlex.quote(sys.executable)} -P"
        )
        made.update_parameters(**self.parameters(batch))
        return made

    def parameters(self, batch: str) -> dict[str, Any]:
        """Of the batch script."""
        given = self.settings
        chosen = {
            "mem": f"{round(1024 * given.mem_gb)}MB" if given.mem_gb else None,
            "partition": given.partition,
            "account": given.account,
            "qos": given.qos,
            "gpus_per_node": given.gpus_per_node or None,
        }
        return {
            "job_name": batch,
            "time": given.timeout_min,
            "cpus_per_task": given.cpus_per_task or 1,
            "array_parallelism": given.array_parallelism or 256,
            "signal_delay_s": given.signal_delay_s,
            "wckey": None,  # which submitit would set, and some clusters know no other than their own
            # from SLURM 22.05 on srun does not take the batch script's number of cores
            "srun_args": [f"--cpus-per-task={given.cpus_per_task or 1}"],
            # clusters may have it off; a job whose time is over is queued again
            "additional_parameters": {"requeue": True},
            **{name: value for name, value in chosen.items() if value is not None},
        }

    def send(self, jobs: Sequence[SentJob], batch: str, folder: Path, at_work: int) -> list[str]:
        """See :class:`Launcher`."""
        return _send(self.executor(batch, folder), jobs)

    def states(self, records: Mapping[str, JobRecord]) -> dict[str, tuple[str, str | None]]:
        """See :class:`Launcher`. By ``squeue``, which every cluster has; one whose end it has forgotten is gone."""
        words = ["squeue", "-h", "-r", "-t", "all", "-u", getpass.getuser(), "-o", "%i|%j|%T"]
        try:
            asked = subprocess.run(words, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnknownError(f"squeue does not answer ({error})") from error
        if asked.returncode:
            raise UnknownError(f"squeue does not answer ({(asked.stderr.strip().splitlines() or ['no reason'])[-1]})")
        rows = [line.strip().split("|") for line in asked.stdout.splitlines() if line.count("|") == 2]
        found: dict[str, tuple[str, str | None]] = {}
        for name, record in records.items():
            own = [row for row in rows if (row[0] == record.id if record.id else _is_of(row, record))]
            if not own:
                found[name] = (record.id, "GONE")
            else:
                found[name] = (own[-1][0], own[-1][2] if own[-1][2] in _ENDED else None)
        return found

    def to_end(self, ids: Iterable[str]) -> str:
        """See :class:`Launcher`."""
        return shlex.join(["scancel", *ids])


def _is_of(row: Sequence[str], record: JobRecord) -> bool:
    """Check whether a job in the queue is one whose id could not be written down."""
    index = row[0].partition("_")[2]
    return row[1] == record.batch and (index or "0") == str(record.index)


@dataclass(frozen=True)
class Processes:
    """Processes of this machine, each with its time, by submitit's local executor. They outlive who sent them."""

    settings: JobSettings
    name: str = field(default="processes", init=False)
    pace: PollIntervals = field(default=PollIntervals(0.1, 0.5, 1.0), init=False)

    @property
    def at_once(self) -> int | None:
        """As many as asked for, or as there are cores and GPUs for."""
        given = self.settings
        if given.array_parallelism:
            return given.array_parallelism
        room = cores() // (given.cpus_per_task or 1)
        return max(1, min(room, len(self.gpus) // given.gpus_per_node) if self.gpus else room)

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that jobs get in turn; none where they ask for none."""
        return visible_gpus() if self.settings.gpus_per_node else ()

    def send(self, jobs: Sequence[SentJob], batch: str, folder: Path, at_work: int) -> list[str]:
        """See :class:`Launcher`."""
        from submitit import LocalExecutor

        executor = LocalExecutor(
            # submitit begins such a job six times at most
            folder,
            max_num_timeout=min(5, self.settings.max_num_timeout),
            python=f"{shlex.quote(sys.executable)} -P",
        )
        executor.update_parameters(
            timeout_min=self.settings.timeout_min,
            signal_delay_s=self.settings.signal_delay_s,
        )
        each = self.settings.cpus_per_task or cores() // at_work
        for job in jobs:
            job.share = Share.of(job.place, each, self.settings.gpus_per_node, self.gpus)
        with _left_alone():
            ids = _send(executor, jobs)
        return [f"{pid}:{start_ticks(int(pid)) or 0}" for pid in ids]

    def states(self, records: Mapping[str, JobRecord]) -> dict[str, tuple[str, str | None]]:
        """See :class:`Launcher`. A process is known by its number and when it began: numbers are used again."""
        found: dict[str, tuple[str, str | None]] = {}
        for name, record in records.items():
            if record.id and record.host != socket.gethostname():
                raise UnknownError(f"jobs were sent as processes of {record.host}, and this is {socket.gethostname()}")
            pid, _, since = record.id.partition(":")
            runs = bool(pid) and start_ticks(int(pid)) == int(since)
            found[name] = (record.id, None if runs else "GONE")
        return found

    def to_end(self, ids: Iterable[str]) -> str:
        """See :class:`Launcher`."""
        return shlex.join(["kill", "-KILL", *(number.partition(":")[0] for number in ids)])


def _send(executor: Executor, jobs: Sequence[SentJob]) -> list[str]:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        with executor.batch():
            sent = [executor.submit(job) for job in jobs]
        return [str(job.job_id) for job in sent]
    except (FailedJobError, FailedSubmissionError) as error:
        why = [line for line in str(error).splitlines() if line.strip()]
        raise FedscopeError(
            f"the scheduler refuses the jobs ({why[-1] if why else 'without a reason'}); change --job, or ask who runs "
            "the cluster"
        ) from error


@contextmanager
def _left_alone() -> Iterator[None]:
    """Start processes within this context that do not hear of this terminal's Ctrl-C or end, because what is ignored
    stays so in a child, and that do not hold this command's output open, whose reader would wait for its end."""
    on_main = threading.current_thread() is threading.main_thread()  # elsewhere no signal can be set
    ignored = (signal.SIGINT, signal.SIGHUP) if on_main else ()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # as of a program without a terminal
            stream.flush()
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    streams = {number: _kept(number) for number in (0, 1, 2)}
    opened = os.open(os.devnull, os.O_RDWR)
    nothing = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(opened)  # which may be the number of a stream that is closed
    try:
        for number in streams:
            os.dup2(nothing, number)
        yield
    finally:
        for number, kept in streams.items():
            if kept is None:
                os.close(number)
                continue
            os.dup2(kept, number)
            os.close(kept)
        os.close(nothing)
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)


def _kept(number: int) -> int | None:
    """Return another descriptor of what a standard stream leads to, none of a standard stream's own; None where it is
    closed."""
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:
        return None
