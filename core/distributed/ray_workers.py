"""Workers that are Ray's actors, on this machine or on a cluster."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from socket import create_connection
from threading import current_thread, main_thread
from typing import Any

from ..checkpoints import FedscopeError
from .scheduler import WorkerLost
from .serialization import Parcel, Serializer, own_by_value
from .worker import ClusterWorker, become_worker, take_device

#: seconds to look for a cluster
SEARCH = 10
#: where this process has joined Ray
_joined: list[str] = []


@dataclass(frozen=True)
class RayBackend:
    """Actors with one core each, and on an accelerator a device or a share of one; a lost one is not brought back by
    Ray.

    Attributes:
        address: of a cluster, as ``ray.init`` takes it: ``auto``, ``HOST:6379``; ``local`` for one of this machine
            alone, which ends with this process.
        workers: at most so many.
        device: on which they compute, ``cpu`` or an accelerator's kind.
        share: of a device, that a worker has; None for a device a worker, or where there are more workers than
            devices for equal shares.

    Raises:
        FedscopeError: Ray is not installed; there is no cluster at the address, or one of another version.
    """

    address: str = "local"
    workers: int | None = None
    device: str = "cpu"
    share: float | None = None

    def __post_init__(self) -> None:
        # read when Ray is imported: no reports to its makers; no GPU taken away from whoever asks for none
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Ray listens on all of the machine's addresses, and runs what it is sent
        open_to_all = self.address == "local" and "RAY_AUTH_MODE" not in os.environ
        too_late = open_to_all and "ray" in sys.modules
        if open_to_all and not too_late:
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            import ray
        except ImportError:
            raise FedscopeError(
                'the engine ray needs Ray, which is not installed; pip install "fedscope[ray]", or leave --engine out'
            ) from None
        if ray.is_initialized():
            if _joined and _joined[-1] != self.address:
                raise FedscopeError(
                    f"this process works with Ray at {_joined[-1]} already, and takes no other; use {self.address} in "
                    "a process of its own"
                )
            return
        if too_late:
            raise FedscopeError(
                "Ray was imported before it could be given a token, so that all of the network could send it work; set "
                "RAY_AUTH_MODE=token in the environment, or call ray.init first"
            )
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address == "local":
            from .cores import cores

            how |= {"num_cpus": self.workers or cores(), "include_dashboard": False}
            if self.on_devices:
                # said, because Ray looks for the kinds that it knows
                how["num_gpus"] = count = _devices_here()
                how["num_cpus"] = self.workers or max(cores(), int(count / (self.share or 1)))
        try:
            _refuse_silent(self.address)
        except OSError as error:
            raise FedscopeError(
                f"there is no Ray cluster at {self.address} ({_first_line(error)}); start one with ray start --head, "
                "or give --engine ray for this machine alone"
            ) from None
        before = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=self.address, **how)
        except (ConnectionError, TimeoutError) as error:
            raise FedscopeError(
                f"what listens at {self.address} does not let this command in ({_first_line(error)}); give the "
                "cluster's RAY_AUTH_MODE and RAY_AUTH_TOKEN here too, and the port that ray start --head names"
            ) from None
        except (RuntimeError, ValueError, OSError) as error:
            raise FedscopeError(f"Ray cannot be used at {self.address}: {_first_line(error)}") from None
        finally:
            if current_thread() is main_thread():  # Ray has put a handler of its own there
                signal.signal(signal.SIGTERM, before)
        _joined.append(self.address)

    @property
    def on_devices(self) -> bool:
        """Whether workers compute on an accelerator."""
        return self.device != "cpu"

    @property
    def size(self) -> int:
        """The cores of the cluster, or on accelerators the shares of its devices; ``workers`` if these are fewer."""
        import ray

        resources = ray.cluster_resources()
        there = int(resources.get("CPU", 0))
        if self.on_devices:
            there = min(there, self._devices() * int(1 / self.own_share + 1e-9))
        return there if self.workers is None else min(self.workers, there)

    @cached_property
    def own_share(self) -> float:
        """A worker's share of a device: as many workers have one as is needed for all to have some.

        Raises:
            FedscopeError: the cluster has no devices.
        """
        if not (devices := self._devices()):
            raise FedscopeError(
                f"Ray at {self.address} has no GPU to give to workers, and --device {self.device} asks for one each; "
                "start Ray with --num-gpus on the machines that have some, or give --device cpu"
            )
        if self.share is not None or self.workers is None:
            return self.share or 1.0
        together = max(1, ceil(self.workers / devices))
        return int(10_000 / together) / 10_000  # Ray counts in ten-thousandths, and all must fit

    def _devices(self) -> int:
        import ray

        return int(ray.cluster_resources().get("GPU", 0))

    @property
    def about(self) -> dict[str, str]:
        """``{"ray": its version}``."""
        import ray

        return {"ray": ray.__version__}

    @cached_property
    def serializer(self) -> Serializer:
        """Arrays go to Ray's object store, from which the workers of a machine read them in place; code of one's own
        goes with what uses it."""
        from ray import cloudpickle

        return Serializer(self._store, own_by_value(cloudpickle.CloudPickler, cloudpickle.register_pickle_by_value))

    def start(self) -> Any:
        """Start an actor."""
        return self._class.remote(self.device)

    def info(self, worker: Any) -> Any:
        """See :class:`~fedscope.distributed.scheduler.WorkerBackend`, as all below."""
        return worker.info.remote()

    def set_context(self, worker: Any, context: str, make: Parcel) -> Any:
        return worker.set_context.remote(context, make.content, *make.arrays)

    def work(self, worker: Any, context: str, batch: Parcel) -> Any:
        return worker.work.remote(context, batch.content, *batch.arrays)

    def done(self, tickets: Sequence[Any], timeout: float) -> list[Any]:
        import ray

        if not tickets:
            return []
        waiting = list(tickets)
        first, _ = ray.wait(waiting, num_returns=1, timeout=timeout)
        if not first:
            return []
        found, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return list(found)

    def answer(self, ticket: Any) -> Any:
        import ray
        from ray import exceptions

        try:
            return ray.get(ticket)
        except exceptions.RayTaskError as error:  # errors of tasks are answers: this is about the call itself
            raise FedscopeError(f"a worker of the cluster cannot take its task: {_first_line(error.cause)}") from None
        except exceptions.RayError as error:
            raise WorkerLost(_last_line(error)) from None

    def stop(self, worker: Any) -> None:
        import ray

        ray.kill(worker, no_restart=True)

    @cached_property
    def _class(self) -> Any:
        import ray

        own = {"num_gpus": self.own_share} if self.on_devices else {}
        return ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, **own)(_Actor)

    def _store(self, array: Any) -> Any:
        import ray
        from ray import exceptions

        try:
            return ray.put(array)
        except exceptions.ObjectStoreFullError:
            raise FedscopeError(
                f"Ray's object store has no room for {array.nbytes / 1e6:,.0f} MB; start the cluster with a larger "
                "--object-store-memory, or use fewer workers; what was complete is kept, and --resume goes on"
            ) from None


class _Actor:
    """A cluster worker as an actor of Ray."""

    def __init__(self, device: str = "cpu") -> None:
        import ray
        from ray import cloudpickle

        become_worker()
        if device != "cpu":
            take_device(device, ray.get_gpu_ids())
        self.worker = ClusterWorker(cloudpickle.dumps, device)

    def info(self) -> Any:
        return self.worker.info()

    def set_context(self, context: str, content: bytes, *arrays: Any) -> Any:
        return self.worker.set_context(context, content, arrays)

    def work(self, context: str, content: bytes, *arrays: Any) -> Any:
        return self.worker.work(context, content, arrays)


def _devices_here() -> int:
    import torch

    return int(torch.accelerator.device_count())


def _refuse_silent(address: str) -> None:
    """Refuse an address where nobody listens at ``HOST:PORT``: Ray tries for minutes.

    Raises:
        OSError: nobody does.
    """
    host, separator, port = (_current_address() if address == "auto" else address).rpartition(":")
    if separator and port.isdecimal():
        create_connection((host.strip("[]"), int(port)), timeout=SEARCH).close()


def _current_address() -> str:
    """Find the address that Ray would take for ``auto``: it notes clusters in a file, and one of them may have ended.

    Raises:
        ConnectionError: there is none.
    """
    try:
        from ray._private.services import get_ray_address_from_environment

        return str(get_ray_address_from_environment("auto", None))
    except (ImportError, TypeError):  # another version has it elsewhere, and tries for itself
        return ""


def _first_line(error: Any) -> str:
    """Shorten an error to its beginning: a line, or as many as a sentence takes."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    said = " ".join(lines) if lines[0].endswith(":") else lines[0]
    return said[:300].rstrip(".")


def _last_line(error: Any) -> str:
    """Shorten an error to its end, which of an error that was passed on names the first one."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()[:300].rstrip(".")
