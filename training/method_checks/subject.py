"""The method that is checked, on a tiny federation of the embedded digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from ...checkpoints import Run, Weights
from ..build import data_to_train_on
from ..config.config import Config, merge
from ..config.from_python import nested_tables
from ..data.dataset import Dataset
from ..local.engine import Engine
from ..loop.federation import Federation, Watcher
from ..loop.train import train
from ..settings.code_kinds import named_in
from ..settings.own_code import OwnCode
from ..settings.registry import METHOD_SECTIONS, find
from .in_memory import assembled

#: eight clients with a fifth of the digits, of whom four take part in each of five rounds
TINY: Mapping[str, Mapping[str, Any]] = {
    "data": {"clients": 8, "partition": "shards:2", "share": 0.2},
    "model": {"hidden": [16]},
    "client": {"epochs": 1},
    "run": {
        "rounds": 5,
        "participation": 0.5,
        "evaluate_clients": 0,
        "evaluate_every": 5,
        "device": "cpu",
        "engine": "threads",
    },
}
#: computes a recorded round's clients again
Replay = Callable[[Run, int, Mapping[str, Any]], Weights]


@dataclass
class Subject:
    """A method, and what was found about it so far.

    Attributes:
        kind: ``client``, ``server`` or ``average``.
        name: as a configuration names it, with its code where it is somebody's own.
        given: settings of the configuration, which count more than :data:`TINY`.
        folder: for runs.
        replay: computes the clients of a recorded round again; from a room above this one.
    """

    kind: str
    name: str
    given: Mapping[str, Mapping[str, Any]]
    folder: Path
    replay: Replay
    _numbers: Any = field(default_factory=count, repr=False)

    @cached_property
    def type(self) -> type[Any]:
        """The method's class."""
        found: type[Any] = find(METHOD_SECTIONS[self.kind][0], self.name)
        return found

    def config(self, **changes: Mapping[str, Any]) -> Config:
        """Return the configuration, made anew, with changes by section.

        Raises:
            FedscopeError: what the methods refuse.
        """
        return Config.read(merge(self.tables(), changes))

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the settings; those of ``check_with`` count less than given ones."""
        own = {self.kind: {"method": self.name, **check_settings(self.type)}}
        return merge(TINY, own, nested_tables(self.given))

    @property
    def method(self) -> Any:
        """The method, made anew, with what it takes from the configuration filled in."""
        return getattr(self.config(), self.kind)

    @cached_property
    def federation(self) -> Federation:
        """The federation, in memory, whose clients are trained one by one by one worker."""
        return assembled(self.config(), self.data)

    @cached_property
    def data(self) -> Dataset:
        """The data set, whole."""
        return data_to_train_on(self.config().data.name)

    @property
    def engine(self) -> Engine:
        """The engine of :attr:`federation`."""
        return self.federation.engine

    @cached_property
    def run(self) -> Run:
        """A run of the method.

        Raises:
            Exception: whatever keeps it from being trained.
        """
        return self.train()

    def train(
        self,
        changes: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        workers: int = 1,
        watcher: Watcher | None = None,
    ) -> Run:
        """Train the method in a run of its own."""
        return train(self.config(**(changes or {})), self.place(), workers=workers, watcher=watcher)

    def place(self) -> Path:
        """Return a folder for a run."""
        return self.folder / f"run-{next(self._numbers)}"

    def code(self, config: Config | None = None) -> dict[str, OwnCode]:
        """Return the code of one's own in a configuration, by kind, as resuming takes it."""
        tables = (config or self.config()).tables()
        return {kind.name: value for kind, value in named_in(tables) if isinstance(value, OwnCode)}


def check_settings(kind: type[Any]) -> dict[str, Any]:
    """Return the settings with which a method does something in few rounds, of those that it has."""
    known = {key.name for key in fields(kind)}
    return {name: value for name, value in kind.check_with.items() if name in known}
