"""The names of launchers, and what a job asks of its scheduler, under the names of Hydra's launcher for submitit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ..settings.values import parse_value

#: names of launchers: ``local`` is one command after the other in this one's own process, as ever
LOCAL = "local"
LAUNCHERS = (LOCAL, "processes", "slurm")
#: of texts that end up in a batch script
_TEXTS = ("partition", "account", "qos")
#: the least value of each number
_LEAST = {
    "timeout_min": 1,
    "cpus_per_task": 1,
    "gpus_per_node": 0,
    "array_parallelism": 1,
    "max_num_timeout": 0,
    "signal_delay_s": 1,
}
#: numbers that depend on the launcher where they are not given
_OPEN = ("cpus_per_task", "array_parallelism")


@dataclass(frozen=True)
class JobSettings:
    """The resources that each job is given.

    Attributes:
        timeout_min: minutes that a job may take before it is stopped and queued again; what is complete stays.
        cpus_per_task: cores; None for 1 on SLURM, and for those of the machine, divided among the jobs at work, where
            jobs are processes.
        gpus_per_node: GPUs.
        mem_gb: memory in GB; None for the cluster's default.
        partition, account, qos: as ``sbatch`` takes them; None for the cluster's defaults.
        array_parallelism: so many jobs at work at a time; None for 256 on SLURM, and for as many as there are cores and
            GPUs for (``cpus_per_task``, or one, and ``gpus_per_node`` each) where jobs are processes.
        max_num_timeout: how often a job that has run out of its time is queued again.
        signal_delay_s: seconds before the end of its time at which a job is told.

    Raises:
        FedscopeError: a value of another type or out of range.

    >>> JobSettings(timeout_min=120, partition="gpu").mem_gb is None
    True
    """

    timeout_min: int = 60
    cpus_per_task: int | None = None
    gpus_per_node: int = 0
    mem_gb: float | None = None
    partition: str | None = None
    array_parallelism: int | None = None
    max_num_timeout: int = 10
    account: str | None = None
    qos: str | None = None
    signal_delay_s: int = 30

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and name in _OPEN:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise FedscopeError(f"--job {name}={value} is not a whole number from {least} on; give one")
        if self.mem_gb is not None:
            number = isinstance(self.mem_gb, int | float) and not isinstance(self.mem_gb, bool)
            if not number or not 0 < self.mem_gb < math.inf:
                raise FedscopeError(f"--job mem_gb={self.mem_gb} is not a memory size; give GB, as in mem_gb=16")
        for name in _TEXTS:
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not text.strip() or "\n" in text):
                raise FedscopeError(f"--job {name}={text!r} is not a name; give one of the cluster's")
        if self.signal_delay_s >= 60 * self.timeout_min:
            raise FedscopeError(
                f"--job signal_delay_s={self.signal_delay_s} leaves nothing of timeout_min={self.timeout_min}; "
                "give fewer seconds, or more minutes"
            )

    def table(self) -> dict[str, Any]:
        """Return the values by name."""
        return asdict(self)


JOB_KEYS = tuple(field.name for field in fields(JobSettings))


def job_settings(given: Mapping[str, Any]) -> JobSettings:
    """Settings by name.

    Raises:
        FedscopeError: a name that there is not; says the nearest.
    """
    for name in given:
        if name not in JOB_KEYS:
            hint = nearest(name, JOB_KEYS)
            raise FedscopeError(f"--job {name} is not a setting of jobs{hint}; there are {', '.join(JOB_KEYS)}")
    return replace(JobSettings(), **given)


def read_job(texts: Iterable[str]) -> dict[str, Any]:
    """Settings written as ``KEY=VALUE``, by name.

    Raises:
        FedscopeError: another form, or a key twice.

    >>> read_job(["timeout_min=30", "mem_gb=1.5", "partition=7"])
    {'timeout_min': 30, 'mem_gb': 1.5, 'partition': '7'}
    """
    given: dict[str, Any] = {}
    for text in texts:
        key, equals, word = (part.strip() for part in text.partition("="))
        if not equals or not word:
            raise FedscopeError(f"--job {text} has no value; write KEY=VALUE, as in timeout_min=60")
        if key in given:
            raise FedscopeError(f"--job {key} is given twice; leave one out")
        given[key] = word if key in _TEXTS else parse_value(word)
    return given
