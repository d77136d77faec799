"""What a class says of its own functions does not hold of those that a class of somebody's own puts in their place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fedscope
from fedscope.checkpoints import FedscopeError, TemporaryMatrix, Weights, as_array
from fedscope.methods import ClientMethod, Served, ServerMethod, local_sgd, mean_update, updates
from fedscope.training import train
from fedscope.training.loop.server import step_server
from fedscope.training.methods.clients.fedprox import FedProx
from fedscope.training.methods.servers.fedadam import FedAdam
from fedscope.training.methods.servers.fma import FMA
from fedscope.training.settings.registry import find, names

#: as they were when flags were looked for in a class alone
COLUMNS = {"adabest", "diloco", "fedacg", "fedadagrad", "fedadam", "fedavgm", "feddyn", "fedgma", "fedmoswa", "fednova"}
COLUMNS |= {"fedswa", "fedyogi", "fma", "task-arithmetic", "checkpoints", "mimelite", "mime", "mimelite-adam"}


class Unit:
    """A mixin, not a client method."""

    def train(self, task: Any) -> Any:
        return local_sgd(task, self, correct=lambda w, g: g.mul_(1 / (1e-9 + g.norm())))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Mixed(Unit, FedProx):
    """Unit steps, by a mixin."""


@dataclass(frozen=True)
class Direct(FedProx):
    """Unit steps, in the class."""

    def train(self, task: Any) -> Any:
        return Unit.train(self, task)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ByProperty(FedProx):
    @property
    def strength(self) -> float:
        return 1.0


@dataclass(frozen=True)
class ByClassmethod(FedProx):
    @classmethod
    def strength(cls) -> float:
        return 1.0


@dataclass(frozen=True)
class Cached(FedProx):
    @cached_property
    def strength(self) -> float:
        return 1.0


@pytest.mark.parametrize("kind", [Mixed, Direct, ByProperty, ByClassmethod, Cached])
@pytest.mark.parametrize("flag", ["vectorised", "any_optimiser"])
def test_a_class_with_functions_of_its_own_says_itself_what_they_take(kind: type[ClientMethod], flag: str) -> None:
    assert not getattr(kind, flag)


def test_what_is_said_stays_said() -> None:
    @dataclass(frozen=True)
    class Plain(FedProx):
        """Nothing of its own."""

        check_with: ClassVar[Any] = {"mu": 2.0}

    @dataclass(frozen=True)
    class Says(Unit, FedProx):
        vectorised: ClassVar[bool] = True

    @dataclass(frozen=True)
    class Behind(FedProx, Unit):
        """FedProx's train comes first."""

    assert Plain.vectorised
    assert Plain.any_optimiser
    assert Says.vectorised
    assert not Says.any_optimiser
    assert Behind.vectorised
    assert Behind.any_optimiser


def test_a_mixins_training_takes_clients_one_by_one(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "data": {"clients": 20, "share": 0.3},
        "model": {"hidden": [4]},
        "client": {"epochs": 1},
        "run": {"rounds": 1, "participation": 1.0, "evaluate_clients": 0},
    }
    one, other = (train(given, tmp_path / kind.__name__, client=kind) for kind in (Mixed, Direct))
    assert one.config["run"]["engine"] == other.config["run"]["engine"] == "threads"
    cohort = {**given, "run": {**given["run"], "engine": "cohort"}}
    with pytest.raises(
        FedscopeError, match=r"cannot; give .*'auto'.*, or say vectorised = True in its class if its train takes"
    ):
        train(cohort, tmp_path / "cohort", client=Mixed)
    rows = [run.round(1).read("global").parameters for run in (one, other)]
    np.testing.assert_array_equal(*rows)


def test_a_run_that_trained_several_in_one_pass_does_not_go_on_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an earlier version, which took the class for one that may be trained so."""
    given: dict[str, Any] = {
        "data": {"clients": 4, "share": 0.3},
        "model": {"hidden": [4]},
        "client": {"epochs": 1},
        "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 0, "engine": "cohort"},
    }
    with monkeypatch.context() as earlier:
        earlier.setattr(Mixed, "vectorised", True)
        run = train(given, tmp_path / "run", client=Mixed, until=1)
    with pytest.raises(FedscopeError, match=r"trained several clients in one pass, .*write vectorised = True in its"):
        fedscope.resume(run.path, code={"client": Mixed})
    monkeypatch.setattr(Mixed, "vectorised", True)
    assert fedscope.resume(run.path, code={"client": Mixed}).rounds == (1, 2)


class Clips:
    """A mixin that clips whole updates."""

    def step(self, state: Any, start: Any, clients: Any, cohort: Any) -> Served:
        total = np.zeros(start.parameters.shape)
        for p, update in zip(cohort.p, updates(start, clients), strict=True):
            total += p * update * min(1.0, 0.1 / np.linalg.norm(update))
        return Served((start.parameters + total).astype(start.layout.dtype))


@dataclass(frozen=True)
class Clip(Clips, ServerMethod):
    """w + the mean of clipped updates."""


@dataclass(frozen=True)
class ClipFMA(Clips, FMA):
    """The same, derived from one that reads columns."""


@dataclass(frozen=True)
class Stepping(FedAdam):
    def step(self, state: Any, start: Any, clients: Any, cohort: Any) -> Served:
        return super().step(state, start, clients, cohort)


@dataclass(frozen=True)
class Tilted(FedAdam):
    """A helper of its own, which its step may call."""

    @property
    def tilt(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Weighing(FedAdam):
    """What no step calls."""

    def weights(self, samples: np.ndarray) -> np.ndarray:
        return np.full(len(samples), 1 / len(samples))

    def init(self, w: np.ndarray) -> Any:
        return super().init(w)


def test_a_server_with_a_step_of_its_own_reads_rows_unless_it_says_so() -> None:
    assert {kind.reads for kind in (Clip, ClipFMA, Stepping, Tilted)} == {"rows"}
    # FMA's mean forgets the model that was sent, and a step of one's own from it does not
    assert FMA.forgets_start
    assert not ClipFMA.forgets_start
    assert Weighing.reads == "columns"

    @dataclass(frozen=True)
    class Says(Stepping):
        reads: ClassVar[Any] = "columns"

        def step(self, state: Any, start: Any, clients: Any, cohort: Any) -> Served:
            return super().step(state, start, clients, cohort)

    assert Says.reads == "columns"
    assert {name for name in names("servers") if find("servers", name).reads == "columns"} <= COLUMNS
    assert find("servers", "fedadam").reads == find("servers", "fma").reads == "columns"


def on_disk(folder: Path, clients: Weights) -> Weights:
    rows = TemporaryMatrix(folder, clients.parameters.shape, clients.layout.dtype)  # type: ignore[arg-type]
    for k, row in enumerate(clients.parameters):
        rows[k] = row
    return Weights(clients.layout, as_array(rows), {})


@pytest.mark.parametrize("kind", [Clip, ClipFMA])
def test_clipping_is_of_whole_updates_on_the_disk_too(tmp_path: Path, small: Any, kind: Any) -> None:
    there = on_disk(tmp_path, small.clients())
    memory, disk = (step_server(kind(), {}, small.start, one, small.cohort(), 3) for one in (small.clients(), there))
    assert memory.parameters.tobytes() == disk.parameters.tobytes()


def test_rows_on_the_disk_that_are_taken_for_an_array_are_told_about(tmp_path: Path, small: Any) -> None:
    @dataclass(frozen=True)
    class Means(ServerMethod):
        def step(self, state: Any, start: Any, clients: Any, cohort: Any) -> Served:
            return Served(clients.parameters.mean(axis=0))

    @dataclass(frozen=True)
    class Halves(ServerMethod):
        def step(self, state: Any, start: Any, clients: Any, cohort: Any) -> Served:
            return Served((clients.parameters / 2)[0])

    @dataclass(frozen=True)
    class Asks(ServerMethod):
        def step(self, state: Any, start: Any, clients: Any, cohort: Any) -> Served:
            return Served(start.parameters + np.asarray(clients.parameters).mean(axis=0), start.nothing)

    there = on_disk(tmp_path, small.clients())
    for kind in (Means, Halves):
        with pytest.raises(FedscopeError, match=r"step takes clients\.parameters for an array .* reads = 'columns' in"):
            step_server(kind(), {}, small.start, there, small.cohort())
        kind.reads = "columns"  # the remedy
        assert step_server(kind(), {}, small.start, there, small.cohort()).parameters.shape == (
            small.start.layout.size,
        )
    with pytest.raises(AttributeError, match="nothing"):
        step_server(Asks(), {}, small.start, there, small.cohort())
    assert mean_update(small.start, there).shape == (small.start.layout.size,)


@dataclass(frozen=True)
class Picks(ServerMethod):
    """Takes some columns, as of an array."""

    def step(self, state: Any, start: Any, clients: Any, cohort: Any) -> Served:
        clients.parameters[:, np.array([0, 1])].mean(axis=0)
        return Served(start.parameters)


def test_rows_on_the_disk_that_are_taken_for_an_array_are_told_in_a_sentence(tmp_path: Path, small: Any) -> None:
    with pytest.raises(
        FedscopeError, match=r"step takes clients\.parameters for an array \(rows on the disk are asked"
    ):
        step_server(Picks(), {}, small.start, on_disk(tmp_path, small.clients()), small.cohort(), 3)
