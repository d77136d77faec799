"""Clusters by the names that ``--engine`` takes."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ..checkpoints import FedscopeError
from ..old_paths import names_of

if TYPE_CHECKING:
    from .scheduler import WorkerPool

_FORMS = "ray, ray:2 (so many workers on this machine) or ray:HOST:6379 (a cluster), or threads for none"
#: what Ray takes beside a number of workers; its own ray://HOST:10001 is a client's, and http://HOST:8265 a page
_ADDRESS = re.compile(r"auto|local|(\[[^]/\s]+\]|[^]/:\s]+):[0-9]+")


def is_cluster(engine: str) -> bool:
    """Check whether an engine is a cluster's workers.

    >>> is_cluster("ray:auto"), is_cluster("threads")
    (True, False)
    """
    return engine.partition(":")[0] == "ray"


#: Ray has one connection a process, and its workers are kept from question to question
_POOLS: dict[str, WorkerPool] = {}


def open_cluster(engine: str) -> WorkerPool:
    """Open a cluster by its name. ``ray``: that of ``RAY_ADDRESS``, or where that is not set a worker a core of this
    machine; ``ray:2``; or ``ray:ADDRESS``. Workers of another name end.

    Raises:
        FedscopeError: another name; Ray is not installed; no cluster is there.
    """
    if engine not in _POOLS:
        _POOLS[engine] = _pool_of(engine)
    for other, workers in _POOLS.items():  # whose workers have the cores that this one's need
        if other != engine:
            workers.close()
    return _POOLS[engine]


def _pool_of(engine: str) -> WorkerPool:
    from .ray_workers import RayBackend
    from .scheduler import WorkerPool

    kind, separator, where = engine.partition(":")
    if kind != "ray" or (separator and not where):
        raise FedscopeError(f"engine {engine!r} is not a cluster; give {_FORMS}")
    if re.fullmatch("[0-9]*[1-9][0-9]*", where):
        return WorkerPool(RayBackend("local", int(where)))
    known = os.environ.get("RAY_ADDRESS", "")
    address = where or known or "local"
    if not _ADDRESS.fullmatch(address):
        what = f"engine {engine!r}" if where else f"RAY_ADDRESS = {known!r}"
        raise FedscopeError(f"{what} is not a cluster; give {_FORMS}")
    return WorkerPool(RayBackend(address))


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
