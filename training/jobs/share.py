"""The share of this machine that a job gets, where jobs are its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...distributed.cores import VARIABLE, cores

VISIBLE = "CUDA_VISIBLE_DEVICES"
#: by which OpenMP, and so torch and numpy, count the threads of one computation
THREADS = "OMP_NUM_THREADS"

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """What a job may use.

    Attributes:
        cores: how many it counts on. Which ones the system says: two commands know nothing of each other, and would
            take the same ones.
        gpus: what ``CUDA_VISIBLE_DEVICES`` says; None: nothing, so that all are visible.
    """

    cores: int
    gpus: str | None = None

    @classmethod
    def of(cls, place: int, own_cores: int, gpus: int, visible: Sequence[str]) -> Share:
        """Return the share of the job at a place among those at work.

        Args:
            own_cores, gpus: how many each job gets; without GPUs it sees those of the command that sends it.
            visible: the names of all GPUs.
        """
        seen = ",".join(in_turn(visible, place, gpus)) if gpus and visible else os.environ.get(VISIBLE)
        return cls(max(1, min(own_cores, cores())), seen)

    def take(self) -> None:
        """Have this process keep to it, and those that it starts."""
        given = os.environ.get(THREADS, "")
        if self.cores < cores() and not (given.isdecimal() and int(given) <= self.cores):
            os.environ[THREADS] = str(self.cores)
        os.environ[VARIABLE] = str(self.cores)
        if self.gpus is None:
            os.environ.pop(VISIBLE, None)  # submitit's executor of processes has set it
        else:
            os.environ[VISIBLE] = self.gpus


def in_turn(things: Sequence[T], place: int, count: int) -> tuple[T, ...]:
    """Deal things out, so many to each place, from the first again once all are dealt.

    >>> in_turn("abcd", 1, 2), in_turn("abcd", 2, 2), in_turn("abc", 1, 2), in_turn("", 0, 2)
    (('c', 'd'), ('a', 'b'), ('c', 'a'), ())
    """
    many = min(count, len(things))
    return tuple(things[(place * many + i) % len(things)] for i in range(many))


def visible_gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that this command may use, as ``CUDA_VISIBLE_DEVICES`` has them. torch is asked in a
    process of its own where it is not loaded."""
    if "torch" in sys.modules:
        import torch

        count = torch.cuda.device_count()
    else:
        code = "import torch; print(torch.cuda.device_count())"
        asked = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True).stdout.strip()
        count = int(asked) if asked.isdecimal() else 0
    named = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return tuple((named or [str(number) for number in range(count)])[:count])
