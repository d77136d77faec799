"""The share of this machine that a job gets, where jobs are its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

VISIBLE = "CUDA_VISIBLE_DEVICES"

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """What a job may use.

    Attributes:
        cores: their numbers; () for all, and where the system knows no such thing.
        gpus: what ``CUDA_VISIBLE_DEVICES`` says; None: nothing, so that all are visible.
    """

    cores: tuple[int, ...] = ()
    gpus: str | None = None

    @classmethod
    def of(cls, place: int, cores: int, gpus: int, visible: Sequence[str]) -> Share:
        """Return the share of the job at a place among those at work.

        Args:
            cores, gpus: how many each job gets; without GPUs it sees those of the command that sends it.
            visible: the names of all GPUs.
        """
        own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
        seen = ",".join(in_turn(visible, place, gpus)) if gpus and visible else os.environ.get(VISIBLE)
        return cls(in_turn(own, place, cores), seen)

    def take(self) -> None:
        """Have this process keep to it, and those that it starts."""
        if self.cores:
            os.sched_setaffinity(0, self.cores)
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
