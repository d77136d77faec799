"""Work on a cluster's workers, who may be lost at any moment: a pool in this process stands for the cluster."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from socket import socket
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.distributed import engines as named
from fedscope.distributed import ray_workers as ray_pool
from fedscope.distributed import torchvision_import
from fedscope.distributed.engines import open_cluster
from fedscope.distributed.ray_workers import RayBackend
from fedscope.distributed.scheduler import MAX_LOSSES, WorkerLost, WorkerPool
from fedscope.distributed.serialization import LARGE, Parcel, Serializer, unpack
from fedscope.distributed.torchvision_import import beside_torchvision, torchvision_part
from fedscope.distributed.worker import ClusterWorker, MapJob, WorkerInfo


@dataclass
class Pool:
    """Workers in this process. Some are lost before they answer, as ``fate`` says of the n-th batch that is done."""

    size: int = 2
    fate: Any = lambda n, batch: False
    there: Any = lambda n: True
    info_of: Any = lambda n: WorkerInfo.here()
    hired: int = 0
    batches: int = 0
    stored: dict[int, Any] = field(default_factory=dict)
    given: list[int] = field(default_factory=list)
    alive: set[int] = field(default_factory=set)
    about: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"

    def __post_init__(self) -> None:
        self._workers: dict[int, ClusterWorker] = {}

    @cached_property
    def serializer(self) -> Serializer:
        return Serializer(self._store)

    def _store(self, array: Any) -> int:
        self.stored[len(self.stored)] = array
        return len(self.stored) - 1

    def start(self) -> int:
        self.hired += 1
        self.alive.add(self.hired)
        self._workers[self.hired] = ClusterWorker()
        return self.hired

    def info(self, worker: int) -> Any:
        return (worker, "info", None)

    def set_context(self, worker: int, context: str, make: Parcel) -> Any:
        if worker not in self.alive:
            return (worker, "set_context", None)
        # at once, as a worker does whether or not its answer is asked for
        arrays = [self.stored[number] for number in make.arrays]
        return (worker, "set_context", self._workers[worker].set_context(context, make.content, arrays))

    def work(self, worker: int, context: str, batch: Parcel) -> Any:
        self.given.append(worker)
        return (worker, "work", (context, batch.content, batch.arrays))

    def done(self, tickets: Sequence[Any], timeout: float) -> list[Any]:
        found = [ticket for ticket in tickets if ticket[1] != "info" or self.there(ticket[0])]
        random.shuffle(found)  # whoever is first
        return found[:1]

    def answer(self, ticket: Any) -> Any:
        worker, kind, what = ticket
        if worker not in self.alive:
            raise WorkerLost("gone")
        if kind == "info":
            return self.info_of(worker)
        if kind == "set_context":
            return what
        context, content, beside = what
        arrays = [self.stored[number] for number in beside]
        self.batches += 1
        if self.fate(self.batches, unpack(content, arrays)[1]):
            self.alive.discard(worker)
            raise WorkerLost("killed")
        return self._workers[worker].work(context, content, arrays)

    def stop(self, worker: int) -> None:
        self.alive.discard(worker)


@dataclass(frozen=True)
class Shift:
    """x + context, for any x."""

    by: int = 100

    def __call__(self, item: int, context: int, stop: Event) -> int:
        assert not stop.is_set()
        return item + context + self.by


def made() -> int:
    return 1000


def failing(item: int, context: Any, stop: Event) -> int:
    if item == 3:
        raise FedscopeError("three is not a number here")
    return item


def warning(item: int, context: Any, stop: Event) -> int:
    warnings.warn("halved the batches", FedscopeWarning, stacklevel=1)
    return item


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 30),
    size=st.integers(1, 4),
    lost=st.sets(st.integers(1, 25), max_size=3),
    seed=st.integers(0, 9),
)
def test_results_are_those_of_the_items_in_their_order_whoever_is_lost(
    count: int, size: int, lost: set[int], seed: int
) -> None:
    random.seed(seed)
    pool = Pool(size, fate=lambda n, batch: n in lost)
    team = WorkerPool(pool)
    job = MapJob(Shift(), made)
    for _ in range(2):  # and the second job meets workers that know its context, and others that do not
        assert list(team.run(job, range(count))) == [item + 1100 for item in range(count)]
    assert pool.hired <= size + len(lost)
    team.close()
    assert not pool.alive


def test_a_lost_worker_is_replaced_by_one_that_gets_work_once_it_is_there() -> None:
    late: set[int] = {3}
    pool = Pool(2, fate=lambda n, batch: n == 1, there=lambda worker: worker not in late)
    assert list(WorkerPool(pool).run(MapJob(Shift(), made), range(10))) == list(range(1100, 1110))
    assert pool.hired == 3
    assert 3 not in pool.given


def test_an_item_that_ends_its_workers_is_named_and_no_other_is() -> None:
    pool = Pool(2, fate=lambda n, batch: 7 in batch)
    team = WorkerPool(pool)
    team._seconds[""] = 1e-3  # so that it starts in a batch with others
    with pytest.raises(
        FedscopeError, match=rf"^client 7 has ended its worker {MAX_LOSSES + 1} times, and no other work has"
    ):
        list(team.run(MapJob(Shift(), made, name=lambda item: f"client {item}"), range(20)))
    # others are done by the same team
    assert list(team.run(MapJob(Shift(), made), range(7))) == list(range(1100, 1107))


def test_errors_are_the_tasks_own_and_warnings_are_told_once() -> None:
    team = WorkerPool(Pool())
    got: list[int] = []
    with pytest.raises(FedscopeError, match=r"^three is not a number here$"):
        got.extend(team.run(MapJob(failing), range(10)))
    assert got == list(range(len(got)))
    assert len(got) <= 3
    assert not team.backend.serializer._under_way
    with pytest.warns(FedscopeWarning, match=r"^halved the batches$") as told:
        assert list(team.run(MapJob(warning), range(4))) == [0, 1, 2, 3]
    assert len(told) == 1


def test_what_cannot_be_made_is_said_each_time_that_it_is_asked_for() -> None:
    team = WorkerPool(Pool())
    for _ in range(2):
        with pytest.raises(FedscopeError, match=r"^no bench here$"):
            list(team.run(MapJob(Shift(), unmade), range(10)))
    assert list(team.run(MapJob(Shift(), made), range(4))) == list(range(1100, 1104))


def unmade() -> None:
    raise FedscopeError("no bench here")


@pytest.mark.programs
def test_networks_of_torchvision_arrive_where_its_compiled_part_does_not_load() -> None:
    """A worker begins without torchvision, whose import fails beside a torch of another build."""
    module = torchvision_part("models.resnet").resnet18(num_classes=3)
    with Serializer(lambda array: array).held("net", module) as parcel:
        said = pickle.dumps((parcel.content, parcel.arrays))
    code = (
        "import pickle, sys; from fedscope.distributed.serialization import unpack; "
        "print(type(unpack(*pickle.load(sys.stdin.buffer))).__module__)"
    )
    opened_there = subprocess.run([sys.executable, "-P", "-c", code], input=said, capture_output=True)
    assert opened_there.stdout.strip() == b"torchvision.models.resnet", opened_there.stderr.decode()


def test_an_import_that_torchvision_breaks_is_made_again_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is half imported would be taken for whole; a torchvision of this process is not touched here."""
    modules: dict[str, None] = {"torchvisions": None}
    monkeypatch.setattr(torchvision_import, "sys", SimpleNamespace(modules=modules))
    monkeypatch.setattr(torchvision_import, "_SCHEMAS", {})
    found, said = [], "operator torchvision::nms does not exist"

    def make() -> str:
        found.append(set(modules))
        modules.update(dict.fromkeys(["torchvision", "torchvision.ops", "torchvision.ops.boxes"]))
        if len(found) == 1:
            raise RuntimeError(said)
        return "made"

    assert beside_torchvision(make) == "made"
    assert found == [{"torchvisions"}] * 2
    found.clear()
    said = "out of memory"
    with pytest.raises(RuntimeError, match=said):
        beside_torchvision(make)
    assert len(found) == 1, "another error is the caller's"


def test_workers_of_another_version_are_refused_and_of_another_processor_told() -> None:
    here = WorkerInfo.here()
    fedscope, torch_, python = here.versions
    other = replace(here, versions=(fedscope, "2.0", python), place="node7")
    with pytest.raises(
        FedscopeError, match=rf"^a worker on node7 has torch 2\.0, not {torch_.replace('+', '.')} as here; i"
    ):
        WorkerPool(Pool(info_of=lambda n: other)).describe()
    mixed = Pool(info_of=lambda n: replace(here, capability="ABACUS", place="node7") if n == 2 else here)
    with pytest.warns(FedscopeWarning, match=r"^the cluster is mixed: node7 computes with ABACUS, this machine with"):
        said = WorkerPool(mixed).describe()
    assert said["workers"] == "2 on 2 machines"
    assert said["capability"] == ", ".join(sorted({"ABACUS", here.capability}))


def test_without_any_worker_the_work_ends_with_a_sentence() -> None:
    with pytest.raises(
        FedscopeError, match=r"^the cluster has given no worker for 0 s: it has left, or others use all"
    ):
        list(WorkerPool(Pool(there=lambda n: False), patience=0.05).run(MapJob(Shift(), made), range(3)))


def test_workers_that_cannot_begin_are_not_asked_for_for_ever() -> None:
    class Barren(Pool):
        def answer(self, ticket: Any) -> Any:
            raise WorkerLost("ModuleNotFoundError: No module named 'fedscope'")

    pool = Barren(2)
    with pytest.raises(
        FedscopeError, match=r"end as they begin \(ModuleNotFoundError: No module named 'fedscope'\); i"
    ):
        WorkerPool(pool).describe()
    assert pool.hired < 10


def test_a_job_that_is_left_early_leaves_nothing_behind() -> None:
    pool = Pool(2)
    team = WorkerPool(pool)
    big = np.zeros(LARGE, np.uint8)
    results = team.run(MapJob(len_of), [[big, k] for k in range(50)])
    assert next(results) == LARGE
    results.close()
    assert len(pool.stored) == 1
    assert not pool.serializer._stored
    assert list(team.run(MapJob(Shift(), made), range(5))) == list(range(1100, 1105))


def len_of(item: list[Any], context: Any, stop: Event) -> int:
    return len(item[0])


#: partials are equal where they are the same
_MAKES = [partial(int, 1000 * context) for context in range(7)]


@settings(max_examples=60, deadline=None)
@given(contexts=st.lists(st.integers(0, 6), max_size=25), lost=st.sets(st.integers(1, 25), max_size=2))
@example(contexts=[0, 1, 2, 3, 0, 4, 0], lost=set())
def test_a_worker_knows_the_context_of_what_it_is_given(contexts: list[int], lost: set[int]) -> None:
    team = WorkerPool(Pool(2, fate=lambda n, batch: n in lost))
    for number, context in enumerate(contexts):  # of some jobs a worker gets nothing
        items = range(1 + number % 3)
        assert list(team.run(MapJob(Shift(0), _MAKES[context]), items)) == [item + 1000 * context for item in items]


def test_constants_are_stored_once_and_other_arrays_as_long_as_they_are_under_way() -> None:
    pool = Pool(2)
    team = WorkerPool(pool)
    data = torch.zeros(LARGE)
    for round_ in range(3):
        start = np.full(LARGE, round_, np.uint8)
        list(team.run(MapJob(len_of, constants=[data]), [[start, data, k] for k in range(6)]))
    assert [type(array).__name__ for array in pool.stored.values()].count("ndarray") == len(pool.stored)
    assert sum(array.nbytes == 4 * LARGE for array in pool.stored.values()) == 1
    assert len(pool.serializer._stored) == 1  # the constant
    del data
    assert not pool.serializer._stored  # nor are those of one training kept beside those of the next


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([(4, 3, 80, 90), (4, 1, 120, 140), (90_000,), (300, 300), (2, 2, 2, 9000)]),
    order=st.permutations(range(4)),
    dtype=st.sampled_from([torch.float32, torch.uint8, torch.int64, torch.bfloat16]),
    gaps=st.booleans(),
)
def test_tensors_arrive_as_they_lay_in_memory(
    shape: tuple[int, ...], order: list[int], dtype: torch.dtype, gaps: bool
) -> None:
    axes = [axis for axis in order if axis < len(shape)]
    whole = torch.arange(int(np.prod(shape)) * (2 if gaps else 1), dtype=torch.float32).to(dtype)
    lying = (whole[::2] if gaps else whole).reshape([shape[axis] for axis in axes])
    tensor = lying.permute([axes.index(axis) for axis in range(len(shape))])
    stored: list[Any] = []
    serializer = Serializer(lambda array: stored.append(array) or len(stored) - 1)
    with serializer.held("one", {"x": [tensor, tensor]}) as parcel:
        found = unpack(parcel.content, [stored[number] for number in parcel.arrays])["x"]
    assert found[0] is found[1] or torch.equal(found[0], found[1])
    assert torch.equal(found[0], tensor)
    assert found[0].dtype == dtype
    if not gaps or stored:
        assert found[0].stride() == tensor.stride()
    assert len(stored) <= 1


def test_engines_that_are_no_cluster_are_refused() -> None:
    counts, places = ("0", "00", "-1", "two"), ("node1", "//node1:10001", "http://node1:8265")
    for engine in ("ray:", "dask", *(f"ray:{where}" for where in (*counts, *places))):
        with pytest.raises(
            FedscopeError, match=r"is not a cluster; give ray, ray:2 \(so many workers on this machine\) or"
        ):
            open_cluster(engine)


def test_an_address_of_the_environment_is_named_where_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://node1:8265")
    with pytest.raises(FedscopeError, match=r"^RAY_ADDRESS = 'http://node1:8265' is not a cluster; give ray, ray:2"):
        open_cluster("ray")


def test_without_ray_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FedscopeError, match=r'pip install "fedscope\[ray\]", or leave --engine out$'):
        open_cluster("ray:2")


def test_a_ray_that_can_have_no_token_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    with pytest.raises(FedscopeError, match=r"^Ray was imported before .* set RAY_AUTH_MODE=token in the en"):
        RayBackend("local", 2)
    assert "RAY_AUTH_MODE" not in os.environ


@pytest.mark.parametrize("name", ["RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"])
def test_ray_reports_nothing_and_takes_no_gpu_away_unless_its_user_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr(ray_pool, "_joined", [])
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setenv(name, "1")
    RayBackend("local", 2)
    assert os.environ[name] == "1"
    monkeypatch.delenv(name)
    RayBackend("local", 2)
    assert os.environ[name] == "0"


def test_a_cluster_that_has_ended_and_one_that_lets_nobody_in_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**how: object) -> None:
        raise ConnectionError("Failed to connect")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=refuse))
    with socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(FedscopeError, match=r"does not let this command in .* RAY_AUTH_TOKEN here too"):
            RayBackend(address)
    with pytest.raises(FedscopeError, match=rf"^there is no Ray cluster at {address} "):
        RayBackend(address)


def test_one_process_has_one_team_and_one_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "_POOLS", {})
    monkeypatch.setattr(named, "_pool_of", lambda engine, device: WorkerPool(Pool(2)))
    first = open_cluster("ray:2")
    assert list(first.run(MapJob(Shift(), made), range(3))) == [1100, 1101, 1102]
    assert open_cluster("ray:2") is first
    assert first.backend.alive  # type: ignore[attr-defined]
    other = open_cluster("ray")
    assert not first.backend.alive  # type: ignore[attr-defined]
    assert list(other.run(MapJob(Shift(), made), range(3))) == [1100, 1101, 1102]
    assert list(open_cluster("ray:2").run(MapJob(Shift(), made), range(3))) == [1100, 1101, 1102]
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setattr(ray_pool, "_joined", ["local"])
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    RayBackend("local", 3)
    with pytest.raises(FedscopeError, match=r"^this process works with Ray at local already, and takes no other; use"):
        RayBackend("n:1")
