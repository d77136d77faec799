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
#: kinds of devices that Ray gives out, all of them as ``num_gpus``; a backend that torch got from elsewhere is one, too
_NOT_GIVEN = ("mps",)
#: what Ray takes beside a number of workers; its own ray://HOST:10001 is a client's, and http://HOST:8265 a page
_ADDRESS = re.compile(r"auto|local|(\[[^]/\s]+\]|[^]/:\s]+):[0-9]+")


def is_cluster(engine: str) -> bool:
    """Check whether an engine is a cluster's workers.

    >>> is_cluster("ray:auto"), is_cluster("ray@0.5"), is_cluster("threads")
    (True, True, False)
    """
    return re.split("[:@]", engine)[0] == "ray"


#: Ray has one connection a process, and its workers are kept from question to question
_POOLS: dict[tuple[str, str], WorkerPool] = {}


def open_cluster(engine: str, device: str = "cpu") -> WorkerPool:
    """Open a cluster by its name. ``ray``: that of ``RAY_ADDRESS``, or where that is not set a worker a core of this
    machine; ``ray:2``; or ``ray:ADDRESS``. Workers of another name end.

    Args:
        device: the kind on which its workers compute, ``cpu`` or ``cuda``. On an accelerator a worker has a device of
            its own, or shares one: of two workers for each device both have a half. ``ray@0.25`` and
            ``ray:ADDRESS@0.25`` say a worker's share of a device.

    Raises:
        FedscopeError: another name; Ray is not installed; no cluster is there; a device that Ray does not give out.
    """
    _refuse_device(device)
    name = engine, device
    if name not in _POOLS:
        _POOLS[name] = _pool_of(engine, device)
    for other, workers in _POOLS.items():  # whose workers have the cores that this one's need
        if other != name:
            workers.close()
    return _POOLS[name]


def _refuse_device(device: str) -> None:
    """Refuse a device that is one of this machine's alone.

    Raises:
        FedscopeError: a device with a number, or of a kind that Ray does not know.
    """
    kind, numbered, _ = device.partition(":")
    if numbered and kind != "cpu":
        raise FedscopeError(
            f"--device {device} is one of this machine's, and --engine ray gives each worker its own; give --device "
            f"{kind}, and tell Ray which it may use (CUDA_VISIBLE_DEVICES)"
        )
    if kind in _NOT_GIVEN:
        raise FedscopeError(
            f"--device {kind} is no device that Ray gives to workers; give --device cpu with --engine ray"
        )


def _share(engine: str, text: str) -> float:
    """Return a worker's share of a device.

    Raises:
        FedscopeError: none that fits into a device.
    """
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0001 <= share <= 1:  # Ray counts in ten-thousandths
        raise FedscopeError(
            f"engine {engine!r} names the share {text!r} of a device; give one from 0.0001 to 1: ray@0.5"
        )
    return share


def _pool_of(engine: str, device: str) -> WorkerPool:
    from .ray_workers import RayBackend
    from .scheduler import WorkerPool

    named, at, text = engine.partition("@")
    share = _share(engine, text) if at else None
    if share is not None and device == "cpu":
        raise FedscopeError(
            f"engine {engine!r} shares a device, and the workers compute on processors; leave @{text} out"
        )
    kind, separator, where = named.partition(":")
    if kind != "ray" or (separator and not where):
        raise FedscopeError(f"engine {engine!r} is not a cluster; give {_FORMS}")
    if re.fullmatch("[0-9]*[1-9][0-9]*", where):
        return WorkerPool(RayBackend("local", int(where), device, share))
    known = os.environ.get("RAY_ADDRESS", "")
    address = where or known or "local"
    if not _ADDRESS.fullmatch(address):
        what = f"engine {engine!r}" if where else f"RAY_ADDRESS = {known!r}"
        raise FedscopeError(f"{what} is not a cluster; give {_FORMS}")
    return WorkerPool(RayBackend(address, None, device, share))


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
