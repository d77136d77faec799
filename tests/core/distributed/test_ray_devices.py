"""Workers of Ray on accelerators: what Ray is asked for, shares of devices, and what is refused. A stand-in for Ray
says what it is asked; real workers on a pretend device are in ``tests/device``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints import FedscopeError
from fedscope.distributed import engines, ray_workers
from fedscope.distributed import worker as workers
from fedscope.distributed.engines import is_cluster, open_cluster
from fedscope.distributed.serialization import is_own_module
from fedscope.distributed.worker import ClusterWorker, take_device
from fedscope.evaluation.device import Compute


@dataclass
class Ray:
    """Stands for the module ``ray`` with so many cores and devices; what it is asked for is kept."""

    cores: int = 8
    devices: float = 2.0
    asked: dict[str, Any] = field(default_factory=dict)
    actors: list[tuple[Any, ...]] = field(default_factory=list)

    def is_initialized(self) -> bool:
        return bool(self.asked)

    def init(self, **how: Any) -> None:
        self.asked = how
        self.cores, self.devices = how.get("num_cpus", self.cores), how.get("num_gpus", self.devices)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cores), **({"GPU": float(self.devices)} if self.devices else {})}

    def remote(self, **how: Any) -> Any:
        self.asked["remote"] = how
        return lambda actor: SimpleNamespace(remote=lambda *words: self.actors.append(words))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    """It, imported; this machine has two devices and four cores."""
    found = Ray()
    monkeypatch.setitem(sys.modules, "ray", found)  # type: ignore[arg-type]
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr(ray_workers, "_joined", [])
    monkeypatch.setattr(ray_workers, "_devices_here", lambda: 2)
    monkeypatch.setattr("fedscope.distributed.cores.cores", lambda: 4)
    monkeypatch.setattr(engines, "_POOLS", {})
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return found


@pytest.mark.parametrize(
    ("engine", "cores", "share", "size"),
    [
        ("ray", 4, 1.0, 2),  # a device a worker
        ("ray:1", 1, 1.0, 1),
        ("ray:2", 2, 1.0, 2),
        ("ray:3", 3, 0.5, 3),  # two on one of them, since no worker has parts of two devices
        ("ray:4", 4, 0.5, 4),
        ("ray:6", 6, 0.3333, 6),
        ("ray@0.25", 8, 0.25, 8),
        ("ray@0.1", 20, 0.1, 20),
        ("ray:3@0.25", 3, 0.25, 3),
    ],
)
def test_workers_of_this_machine_have_its_devices_or_shares_of_them(
    engine: str, cores: int, share: float, size: int, ray: Ray
) -> None:
    pool = open_cluster(engine, "cuda")
    assert (ray.asked["num_gpus"], ray.asked["num_cpus"]) == (2, cores)
    assert pool.device == "cuda"
    assert pool.backend.size == size
    pool.backend.start()
    assert ray.asked["remote"] == {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "num_gpus": share}
    assert ray.actors == [("cuda",)]


def test_on_processors_ray_is_asked_for_no_device(ray: Ray) -> None:
    pool = open_cluster("ray:2")
    assert "num_gpus" not in ray.asked
    pool.backend.start()
    assert ray.asked["remote"] == {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
    assert pool.backend.size == 2
    assert ray.actors == [("cpu",)]


def test_a_cluster_has_as_many_workers_as_devices_and_cores_for_them(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "_refuse_silent", lambda address: None)
    backend = open_cluster("ray:n:6379@0.5", "cuda").backend
    assert ray.asked["address"] == "n:6379"
    assert "num_gpus" not in ray.asked, "the machines have said theirs"
    ray.devices, ray.cores = 5, 40
    assert backend.size == 10
    ray.cores = 7
    assert backend.size == 7


def test_a_cluster_without_devices_is_refused(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "_refuse_silent", lambda address: None)
    ray.devices = 0
    with pytest.raises(FedscopeError, match=r"^Ray at n:6379 has no GPU to give .* asks for one each; start Ray with"):
        open_cluster("ray:n:6379", "cuda").begin()


@pytest.mark.parametrize(
    ("engine", "device", "sentence"),
    [
        (
            "ray",
            "cuda:1",
            r"^--device cuda:1 is one of this machine's, and --engine ray gives each worker its own; give",
        ),
        ("ray", "mps", r"^--device mps is no device that Ray gives to workers; give --device cpu with --engine ray$"),
        ("ray@2", "cuda", r"^engine 'ray@2' names the share '2' of a device; give one from 0\.0001 to 1: ray@0\.5$"),
        ("ray@", "cuda", r"names the share '' of a device"),
        ("ray@half", "cuda", r"names the share 'half' of a device"),
        ("ray@nan", "cuda", r"names the share 'nan' of a device"),
        ("ray:2@0.5", "cpu", r"shares a device, and the workers compute on processors; leave @0\.5 out$"),
    ],
)
def test_what_ray_cannot_give_is_refused_before_it_starts(engine: str, device: str, sentence: str, ray: Ray) -> None:
    assert is_cluster(engine)
    with pytest.raises(FedscopeError, match=sentence):
        open_cluster(engine, device)
    assert not ray.asked


def test_a_computation_has_workers_of_its_own_kind(ray: Ray) -> None:
    pool = SimpleNamespace(device="cuda")
    with pytest.raises(
        FedscopeError, match=r"^the cluster's workers compute on cuda, and device = 'cpu'; give --device"
    ):
        Compute("cpu", cluster=pool)  # type: ignore[arg-type]
    assert open_cluster("ray:2", "cuda") is not open_cluster("ray:2", "cpu")


def test_a_worker_takes_the_device_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    module = SimpleNamespace(device_count=lambda: 4, set_device=taken.append)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: module)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    take_device("cuda", [3])
    module.device_count = lambda: 1  # Ray has hidden the others
    take_device("cuda", ["GPU-8a2b"])
    assert taken == [3, 0]
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(FedscopeError, match=r"^torch .* sees no cuda device there$"):
        take_device("cuda", [0])


def test_memory_that_runs_out_in_a_worker_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(workers, "unpack", lambda content, arrays: full)
    with pytest.raises(
        FedscopeError, match=r"^a worker on .* has no memory left on its cuda device; have fewer workers"
    ):
        ClusterWorker(device="cuda").set_context("one", b"", []).result()


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_another_pythons_packages_are_installed_too(folder: str, tmp_path: Path) -> None:
    """As torch of the system's Python is in an environment that was made with --system-site-packages."""
    theirs, own = ModuleType("theirs"), ModuleType("own")
    theirs.__file__, own.__file__ = str(tmp_path / folder / "theirs.py"), str(tmp_path / "own.py")
    assert not is_own_module(theirs)
    assert is_own_module(own)


def test_a_task_goes_to_a_processor_as_it_is(small: Any) -> None:
    from fedscope.training.local.own_samples import on_device

    task = small.task(indices=np.arange(3))
    (same,) = on_device([task], Compute("cpu"))
    assert same is task
