"""Estimates of the memory and the disk that a training takes, compared with what is free."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import FedscopeError, Layout, StateSize, Weights, format_size, size_on_disk
from ...checkpoints.io.warn_user import warn_user
from ..rng import cohort_size
from ..settings.registry import method_name
from .cohort_storage import HELD, put_aside
from .optimiser_choice import vectors_kept

if TYPE_CHECKING:
    from ..config.config import Config
    from ..methods.base import ServerMethod
    from ..models.model_info import ModelInfo


def memory_of_step(server: ServerMethod, layout: Layout, count: int) -> int:
    """Bytes of the models of ``count`` clients on the disk that a server's step holds at once.

    Of columns a block, which does not grow and counts for nothing; of rows a model; of layers the largest one of all
    clients, and up to as much again where most of its entries are of high dispersion.
    """
    if server.reads == "layers":
        size = count * max((prod(entry.shape) for entry in layout.parameters), default=0)
    else:
        size = layout.size if server.reads == "rows" else 0
    return size * layout.dtype.itemsize


def say_memory(server: ServerMethod, layout: Layout, count: int, whose: str) -> None:
    """Say how much memory a step from clients on the disk takes where that is much; of clients in memory nothing.

    Args:
        whose: the clients, for the sentence.

    Raises:
        FedscopeError: more than is free, where the system tells that.
    """
    if not put_aside(count, layout.size, layout.dtype) or (needed := memory_of_step(server, layout, count)) <= HELD:
        return
    name, free = method_name(server), free_memory()
    what = "a layer" if server.reads == "layers" else "one model at a time"
    holds = f"--server {name} holds {what} of {whose} in memory, {format_size(needed)}"
    if free is not None and needed > free:
        raise FedscopeError(f"{holds}, but {format_size(free)} are free; free some, or give --server fma")
    warn_user(holds)


def say_memory_of(config: Config, facts: ModelInfo) -> None:
    """Say the same of a training's rounds. Raises as :func:`say_memory`."""
    count = cohort_size(config.data.clients, config.run.participation)
    say_memory(config.server, facts.layout, count, f"all {count} clients of a round")


def free_memory() -> int | None:
    """Bytes that a process can still have, as Linux tells: of the machine, of the group that it is confined to, and
    of its own limit (``ulimit -v``)."""
    found: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    with suppress(ImportError, OSError, ValueError, IndexError):  # of ulimit -v
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

        if (limit := getrlimit(RLIMIT_AS)[0]) != RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            found.append(max(0, limit - pages * os.sysconf("SC_PAGE_SIZE")))
    return min(found, default=None)


def disk_needed(config: Config, facts: ModelInfo, *, after: int = 0) -> int:
    """About how many bytes the rounds after one will take, uncompressed."""
    w = Weights(facts.layout, np.zeros(facts.layout.size, facts.layout.dtype), {})
    arrays = [*config.server.init(w.parameters).values(), *config.client.begin(w, facts).values()]
    return size_on_disk(
        facts.layout,
        cohort_size(config.data.clients, config.run.participation),
        config.run.rounds,
        *config.record.policies(),
        after=after,
        kept=StateSize(
            client_vectors=vectors_kept(config.client),
            bytes=sum(np.asarray(array).nbytes for array in arrays),
            models=config.average.models_kept,
            window=config.average.reaches_back(),
        ),
        population=config.data.clients,
        sketch=config.record.sketch,
    )


def disk_aside(config: Config, facts: ModelInfo) -> int:
    """Estimate the bytes of a round's clients that are on the disk next to the run until the round is recorded."""
    count, size, dtype = (
        cohort_size(config.data.clients, config.run.participation),
        facts.layout.size,
        facts.layout.dtype,
    )
    matrices = 1 + vectors_kept(config.client)
    return matrices * count * size * dtype.itemsize if put_aside(count, size, dtype) else 0


def refuse_small_disk(needed: int, out: Path) -> None:
    """Compare the bytes that will be recorded with what is free.

    Raises:
        FedscopeError: it does not fit; names both and the remedies.
    """
    folder = out.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise FedscopeError(
            f"recording would take {format_size(needed)}, but {folder} has {format_size(free)} free; keep fewer "
            "clients (--set record.clients=every:10 or sample:10), compress (--set record.compression=delta), or "
            f"--force, which also replaces a run in {out}"
        )
