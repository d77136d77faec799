"""Rounds whose clients lie on the disk: the same files to the last bit, for every method, and nothing left behind."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from few import few
from in_memory import contents

from fedscope.checkpoints import (
    FedscopeError,
    FedscopeWarning,
    Layout,
    Round,
    Run,
    TemporaryMatrix,
    TensorEntry,
    Weights,
    as_array,
    as_disk_matrix,
    weighted_mean,
)
from fedscope.decomposition.reaggregation import aggregate as reaggregation
from fedscope.decomposition.reaggregation.aggregate import reaggregate
from fedscope.decomposition.reaggregation.requested_servers import reaggregating_config
from fedscope.training import Config, branch, merge, resume, train
from fedscope.training.local import cohort_storage as cohort_room
from fedscope.training.local import resources as memory
from fedscope.training.local.cohort_storage import CohortStorage
from fedscope.training.local.engine import Engine
from fedscope.training.local.resources import say_memory
from fedscope.training.loop import server as server_stepping
from fedscope.training.loop import train as training_loop
from fedscope.training.loop.federation import mean_buffers
from fedscope.training.loop.server import step_server
from fedscope.training.loop.state import RunMemory
from fedscope.training.methods.base import Cohort
from fedscope.training.methods.servers.fma import FMA
from fedscope.training.settings.registry import find, names

#: at their defaults some servers would do what FMA does on rounds this small
OWN: dict[str, Any] = {"fedgma": {"tau": 0.9}, "fedsa": {"quantile": 0.9}, "fisher": {"samples": 20}}


def config(client: str = "sgd", server: str = "fma", average: str = "none", /, **sections: Any) -> Config:
    averages = {"ima": {"start": 2, "window": 2}, "wima": {"window": 2}, "swa": {"start": 2, "cycle": 2}}
    known = {
        "data": {"clients": 5, "partition": "dirichlet:0.5"},
        "model": {"hidden": [6]},
        "client": {"method": client, "epochs": 1, "batch": 40},
        "server": {"method": server, **OWN.get(server, {})},
        "average": {"method": average, **averages.get(average, {})},
        "run": {"rounds": 3, "participation": 0.6, "evaluate_clients": 50},
    }
    return Config.read(merge(known, sections))


@contextmanager
def streamed(columns: int = 700) -> Iterator[list[TemporaryMatrix]]:
    """Every cohort on the disk, in several blocks of columns; gives what was made there."""
    made: list[TemporaryMatrix] = []
    real = TemporaryMatrix.__init__

    def watched(self: TemporaryMatrix, *arguments: Any) -> None:
        made.append(self)
        real(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cohort_room, "HELD", 0)
        patch.setattr(server_stepping, "NUMBERS", columns)
        patch.setattr(TemporaryMatrix, "__init__", watched)
        yield made


def files(run: Path) -> dict[str, dict[str, bytes]]:
    """What all HDF5 files of a run hold."""
    return {str(path.relative_to(run)): contents(path) for path in sorted(run.rglob("*.h5"))}


def numbers(run: Run) -> list[dict[str, Any]]:
    """The rounds' numbers but the seconds; as text, in which NaN is itself."""
    return [{k: str(v) for k, v in run.round(t).metrics.items() if k != "seconds"} for t in run.rounds]


def assert_same(one: Path, other: Path) -> None:
    assert files(one) == files(other)
    assert numbers(Run.open(one)) == numbers(Run.open(other))


# --- the same bits ---


#: servers that differ in what they read of the rows: means, medians of signs, norms, columns, groups, one by one
READING = {"fma", "fedadam", "feddyn", "fednova", "fedgma", "fedsa", "greedy", "adabest"}
#: clients that differ in what they keep and send: nothing, vectors, models, arrays, heads, full gradients
KEEPING = {"sgd", "scaffold", "feddyn", "ditto", "fedgen", "fedbabu", "mime", "moon"}


@pytest.mark.parametrize("server", few(names("servers"), lambda name: name in READING))
def test_a_streamed_run_is_the_run_in_memory_for_every_server(server: str, tmp_path: Path) -> None:
    """A server that is given blocks of columns although a parameter depends on others would fail here."""
    chosen = config("sgd", server)
    train(chosen, tmp_path / "memory")
    with streamed() as made:
        train(chosen, tmp_path / "disk")
    assert len(made) == 3
    assert_same(tmp_path / "memory", tmp_path / "disk")


@pytest.mark.parametrize("client", few(names("clients"), lambda name: name in KEEPING))
def test_and_for_every_client_method(client: str, tmp_path: Path) -> None:
    """What clients keep is on the disk, too, and what servers share is made of rows there."""
    chosen = config(client)
    train(chosen, tmp_path / "memory")
    with streamed() as made:
        train(chosen, tmp_path / "disk")
    assert len(made) >= 3 * (1 + chosen.client.vectors_kept)
    assert_same(tmp_path / "memory", tmp_path / "disk")


@pytest.mark.parametrize(
    "chosen",
    [
        config("sgd", "fma", "ima"),
        config("sgd", "fedadam", "ima", average={"before_server": True}),
        config("sgd", "fma", "wima"),
        config("sgd", "fma", "swa"),
        config(record={"compression": "delta"}),
        config("scaffold", record={"clients": "none", "globals": "none"}),
        config(record={"clients": "every:2", "sketch": 64}),
        config(model={"hidden": [5, 4]}),
        config(run={"engine": "cohort"}, data={"clients": 8}),
        config(run={"evaluate_all": "all"}, data={"client_test": 0.25}),
        config("ditto", run={"evaluate_all": "all"}, data={"client_test": 0.25}),
        config("fedala", run={"evaluate_all": "2"}, data={"client_test": 0.25}),
    ],
    ids=[
        *("ima", "ima-first", "wima", "swa", "delta", "none-kept", "sketch", "many-layers", "cohort", "everybody"),
        *("personal", "personal-learnt"),
    ],
)
def test_and_for_averages_policies_and_engines(chosen: Config, tmp_path: Path) -> None:
    train(chosen, tmp_path / "memory")
    with streamed() as made:
        train(chosen, tmp_path / "disk")
    assert made
    assert_same(tmp_path / "memory", tmp_path / "disk")


def test_what_clients_kept_is_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(config("scaffold", run={"rounds": 2, "participation": 1.0}), tmp_path / "run")
    memory_, last = RunMemory(run), dict.fromkeys(range(5), 2)
    whole = memory_.client_states(last)
    asked, real = [], Round.client_state

    def watched(self: Round, name: str, ids: Any = None) -> Any:
        asked.append(list(ids))
        return real(self, name, ids)

    monkeypatch.setattr(Round, "client_state", watched)
    with streamed():
        found = memory_.client_states(last)
        assert not asked, "nothing is read before it is asked for"
        for k in range(5):
            assert sorted(found[k]) == sorted(whole[k])
            assert len(found[k]) == len(whole[k])
            for name, value in whole[k].items():
                assert np.asarray(found[k][name]).tobytes() == np.asarray(value).tobytes()
            assert "nothing" not in found[k]
            assert found[k].get("nothing") is None
            sent = pickle.loads(pickle.dumps(found[k]))  # to a worker elsewhere
            assert {name: sent[name].tobytes() for name in sent} == {
                name: np.asarray(value).tobytes() for name, value in whole[k].items()
            }
    assert all(len(ids) == 1 for ids in asked)


def test_models_of_large_networks_do_not_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow client does not let 16 others a worker wait in memory, where each of them is large."""
    from fedscope.training.build import build_module
    from fedscope.training.local import engine as module
    from fedscope.training.models.architectures.mlp import MLP

    small = Engine(build_module(MLP(hidden=(4,)), (1, 8, 8), 10))
    assert small._ahead == 16
    size = sum(value.numel() * 4 for value in small.module.parameters())
    monkeypatch.setattr(module, "WAITING", 5 * size)
    assert small._ahead == 5
    monkeypatch.setattr(module, "WAITING", 1)
    assert small._ahead == 2


def test_buffers_are_averaged_as_in_memory(tmp_path: Path) -> None:
    """BatchNorm's running statistics and its integer counter, which stay in memory."""
    draw = np.random.default_rng(0)
    layout = Layout(
        (
            TensorEntry("a.weight", (4, 3), "float32", "parameter"),
            TensorEntry("a.mean", (4,), "float32", "buffer"),
            TensorEntry("a.count", (), "int64", "buffer"),
        )
    )
    values = draw.normal(size=(3, 12)).astype(np.float32)
    buffers = {"a.mean": draw.normal(size=(3, 4)).astype(np.float32), "a.count": np.array([1, 2, 3])}
    aside = TemporaryMatrix(tmp_path, values.shape, values.dtype)
    for k, row in enumerate(values):
        aside[k] = row
    p = np.array([0.2, 0.3, 0.5])
    cohort = Cohort(1, np.arange(3), np.array([2, 3, 5]), np.ones(3, np.int64), p)
    one, other = Weights(layout, values, buffers), Weights(layout, as_array(aside), buffers)
    assert weighted_mean(other, p).parameters.tobytes() == weighted_mean(one, p).parameters.tobytes()
    served = step_server(find("servers", "fma")(), {}, one.row(0), other, cohort)
    for name, value in mean_buffers(one, cohort, served).items():
        assert mean_buffers(other, cohort, served)[name].tobytes() == value.tobytes()
    assert mean_buffers(other, cohort, served)["a.count"] == 3


def test_a_server_is_given_blocks_and_not_the_cohort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    widths, real = [], FMA.step

    def watching(self: Any, state: Any, start: Any, clients: Any, cohort: Any) -> Any:
        assert isinstance(clients.parameters, np.ndarray)
        widths.append(clients.parameters.shape)
        return real(self, state, start, clients, cohort)

    monkeypatch.setattr(FMA, "step", watching)
    with streamed(columns=300):
        run = train(config(run={"rounds": 1}), tmp_path / "run")
    size = run.layout.size
    assert {count for count, _ in widths} == {3}
    assert max(width for _, width in widths) == 100
    assert sum(width for _, width in widths) == size > 300


def test_clients_fill_rows_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from an engine whose workers overtake each other."""
    chosen = config("scaffold")
    train(chosen, tmp_path / "memory")

    def backwards(self: Engine, method: Any, tasks: Any) -> Any:
        yield from reversed(list(enumerate(self.each(method.train, tasks))))

    monkeypatch.setattr(Engine, "_together", backwards)
    monkeypatch.setattr(find("clients", "scaffold"), "vectorised", True)
    with streamed():
        train(config("scaffold", run={"engine": "cohort"}), tmp_path / "disk")
    assert files(tmp_path / "memory") == files(tmp_path / "disk")


# --- a round again ---


@pytest.mark.parametrize("compression", ["none", "delta"])
def test_a_round_is_aggregated_again_from_its_file(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(config("sgd", "fedavgm", record={"compression": compression}), tmp_path / "run")
    asked = [reaggregating_config(run, 3, server, OWN.get(server)) for server in names("servers")]
    expected = reaggregate(run, 3, asked)
    seen = []
    real = reaggregation.step_server

    def watching(server: Any, state: Any, start: Any, clients: Any, cohort: Any) -> Any:
        seen.append(as_disk_matrix(clients.parameters))
        return real(server, state, start, clients, cohort)

    monkeypatch.setattr(reaggregation, "step_server", watching)
    with streamed() as made:
        found = reaggregate(run, 3, asked)
        (own,) = reaggregate(run, 3, [reaggregating_config(run, 3, "fedavgm")], from_state=True)
    assert all(rows is not None for rows in seen)
    assert not made, "nothing is written"
    assert [one.weights.parameters.tobytes() for one in found] == [one.weights.parameters.tobytes() for one in expected]
    assert [(one.diverged, one.members, one.state) for one in found] == [
        (one.diverged, one.members, one.state) for one in expected
    ]
    assert own.weights.parameters.tobytes() == run.round(3).read("global").parameters.tobytes()


def test_a_server_that_holds_a_layer_says_how_much(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    layout = Layout(
        (
            TensorEntry("conv.weight", (512, 512, 3, 3), "float32", "parameter"),
            TensorEntry("fc", (100,), "float32", "parameter"),
        )
    )
    fedsa, fma, greedy = (find("servers", name)() for name in ("fedsa", "fma", "greedy"))
    monkeypatch.setattr(memory, "free_memory", lambda: 10**10)
    with pytest.warns(FedscopeWarning, match=r"--server fedsa holds a layer of all 200 clients in memory, 1\.9 GB"):
        say_memory(fedsa, layout, 200, "all 200 clients")
    monkeypatch.setattr(memory, "free_memory", lambda: 10**9)
    with pytest.raises(FedscopeError, match=r"1\.9 GB, but 1 GB are free; free some, or give --server fma"):
        say_memory(fedsa, layout, 200, "all 200 clients")
    say_memory(fma, layout, 200, "all 200 clients")
    say_memory(greedy, layout, 200, "all 200 clients")
    say_memory(fedsa, layout, 20, "all 20 clients")  # these are in memory anyway
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    with pytest.warns(FedscopeWarning, match="holds a layer"):
        say_memory(fedsa, layout, 200, "all 200 clients")


def test_free_memory_is_that_of_the_machine_or_unknown() -> None:
    free = memory.free_memory()
    assert free is None or 2**20 < free < 2**50


def test_the_refusal_comes_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 100)
    monkeypatch.setattr(memory, "HELD", 0)
    monkeypatch.setattr("fedscope.training.build.HELD", 0)  # the model itself has its own refusal
    run = train(config(run={"rounds": 2}), tmp_path / "fma")
    with streamed() as made:
        with pytest.raises(FedscopeError, match="server='fedsa' holds a layer of all 3 clients of a round in memory"):
            train(config("sgd", "fedsa"), tmp_path / "run")
        with pytest.raises(FedscopeError, match="--server fedsa holds a layer of all 3 clients of a round"):
            branch(run, 1, {"server": {"method": "fedsa"}}, tmp_path / "branch")
        with pytest.raises(FedscopeError, match=r"layer of all 3 clients of .*fma@2 in memory, .* but 100 B are free"):
            reaggregate(run, 2, [reaggregating_config(run, 2, "fedsa")])
    assert not made
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "branch").exists()


# --- interruptions ---


def test_nothing_is_seen_of_what_is_put_aside_and_nothing_stays_open(tmp_path: Path) -> None:
    """In the middle of a round the folder holds the run's files alone; after it nobody holds the rows."""
    seen: set[str] = set()

    class Watcher:
        def begin(self, rounds: int, size: int) -> None: ...
        def client(self, round: int, done: int, of: int) -> None:
            seen.update(path.name for path in (tmp_path / "run").rglob("*"))

        def round(self, record: Any, of: int) -> None: ...

    with streamed() as made:
        train(config(record={"clients": "none"}), tmp_path / "run", watcher=Watcher())
        made.clear()
        assert not [name for name in opened(tmp_path / "run") if "deleted" in name]
    assert not [name for name in seen if "clients" in name]


def opened(folder: Path) -> list[str]:
    """The files in a folder that this process has open."""
    found = []
    for link in Path("/proc/self/fd").glob("*"):
        try:
            name = str(link.readlink())
        except OSError:
            continue
        if name.startswith(str(folder)):
            found.append(name)
    return found


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Stopped after its second client of round 2, of which nothing may be left; resumed in memory, and the other way
    round."""
    chosen = config("scaffold", "fedavgm", record={"clients": "every:2"})
    train(chosen, tmp_path / "whole")

    class Stop:
        def begin(self, rounds: int, size: int) -> None: ...
        def client(self, round: int, done: int, of: int) -> None:
            if (round, done) == (2, 2):
                raise KeyboardInterrupt

        def round(self, record: Any, of: int) -> None: ...

    with streamed(), pytest.raises(KeyboardInterrupt):
        train(chosen, tmp_path / "disk", watcher=Stop())
    assert Run.open(tmp_path / "disk").rounds == (1,)
    resume(tmp_path / "disk")
    with pytest.raises(KeyboardInterrupt):
        train(chosen, tmp_path / "memory", watcher=Stop())
    with streamed():
        resume(tmp_path / "memory")
    assert_same(tmp_path / "whole", tmp_path / "disk")
    assert_same(tmp_path / "whole", tmp_path / "memory")


@pytest.mark.programs
def test_a_killed_run_leaves_nothing_but_whole_rounds(tmp_path: Path) -> None:
    """SIGKILL while the third round's clients are put aside."""
    code = f"""
import os, signal
from fedscope.checkpoints import TemporaryMatrix
from fedscope.training import Config, train
from fedscope.training.local import cohort_storage as cohort_room
from fedscope.training.loop.federation import Unwatched

cohort_room.HELD = 0
class Die(Unwatched):
    def client(self, round, done, of):
        if (round, done) == (3, 2):
            os.kill(os.getpid(), signal.SIGKILL)
train(Config.read({config(record={"clients": "none"}).tables()!r}), {str(tmp_path / "run")!r}, watcher=Die())
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert Run.open(tmp_path / "run").rounds in ((1,), (1, 2))  # the last one may be on its way
    assert not [name for name in left if "clients." in name], left
    with streamed():
        resume(tmp_path / "run")
    assert not list((tmp_path / "run").rglob(".*.tmp"))
    train(config(record={"clients": "none"}), tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_a_full_disk_says_what_clients_take_and_keeps_whole_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, wrote = os.pwrite, []

    def full(descriptor: int, data: Any, place: int) -> int:
        if place and len(data) > 100:  # not the lock's few bytes; the first round's rows fit
            wrote.append(place)
            if len(wrote) > 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, place)

    monkeypatch.setattr(os, "pwrite", full)
    with streamed(), pytest.raises(FedscopeError, match=r"run: the disk is full: the clients of a round, .* take \d"):
        train(config(), tmp_path / "run")
    monkeypatch.undo()
    assert Run.open(tmp_path / "run").rounds == (1,)
    resume(tmp_path / "run")
    train(config(), tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "run")


# --- the rule ---


def test_small_cohorts_stay_in_memory(tmp_path: Path) -> None:
    """The rule is on the bytes of the matrix alone: 2^29 of them are held, one more row is not."""
    room = CohortStorage(tmp_path)
    kind = np.dtype("float32")
    assert as_disk_matrix(room.rows(2**9, 2**18, kind)) is None
    aside = as_disk_matrix(room.rows(2**9 + 1, 2**18, kind))
    assert isinstance(aside, TemporaryMatrix)
    assert aside.shape == (513, 2**18)
    assert as_disk_matrix(cohort_room.MEMORY.rows(2**9 + 1, 2**10, kind)) is None
    assert not list(tmp_path.iterdir())


def test_room_on_the_disk_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put aside takes as much again as the round, and counts before training."""
    asked = []
    monkeypatch.setattr(training_loop, "refuse_small_disk", lambda needed, out: asked.append(needed))
    run = train(config("scaffold", run={"rounds": 1}), tmp_path / "memory")
    with streamed():
        train(config("scaffold", run={"rounds": 1}), tmp_path / "disk")
    assert asked[1] - asked[0] == 2 * 3 * run.layout.size * 4


@pytest.mark.programs
def test_memory_does_not_grow_with_the_cohort(tmp_path: Path) -> None:
    """numpy's own account of a step over 40 and over 10 clients of 2 M parameters: less than two rows more."""
    size = 2_000_000
    layout = Layout((TensorEntry("w", (size,), "float32", "parameter"),))
    start, server, peaks = Weights(layout, np.zeros(size, np.float32), {}), find("servers", "fedadam")(), []
    for count in (10, 40):
        rows = TemporaryMatrix(tmp_path, (count, size), np.dtype("float32"))
        row = np.ones(size, np.float32)
        for k in range(count):
            rows[k] = row
        cohort = Cohort(
            1, np.arange(count), np.ones(count, np.int64), np.ones(count, np.int64), np.full(count, 1 / count)
        )
        state = server.init(start.parameters)
        tracemalloc.start()
        step_server(server, state, start, Weights(layout, as_array(rows), {}), cohort)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 2 * 4 * size
    assert peaks[1] < 40 * 4 * size / 2
