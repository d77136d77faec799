"""Federations played in memory, and what a round's file holds as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py

from fedscope.checkpoints import RoundRecord, Weights
from fedscope.evaluation.device import Compute
from fedscope.training import Config, Engine, Federation, build_module, load_data, partition
from fedscope.training.build import initial_model
from fedscope.training.loop.federation import Unwatched
from fedscope.training.loop.state import ClientState, Position, state_of


class InMemory:
    """A federation's memory without a disk."""

    def __init__(self) -> None:
        self.records: dict[int, RoundRecord] = {}

    def row(self, round: int, *, mean: bool = False) -> Weights:
        found = self.records[round].global_
        assert found is not None
        return found

    def client_states(self, last: Mapping[int, int]) -> dict[int, ClientState]:
        states: dict[int, ClientState] = {}
        for k, t in last.items():
            record = self.records[t]
            states[k] = state_of(record.client_state, record.client_ids.tolist().index(k))
        return states


def play(config: Config, module: Any = None) -> list[RoundRecord]:
    """All rounds of a configuration."""
    data, chosen = load_data(config.data.name), config.data
    split = partition(
        chosen.partition, data.y_train, data.classes, chosen.clients, seed=0, client_test=chosen.client_test
    )
    module = module or build_module(config.model.architecture, data.shape, data.classes, seed=0)
    federation = Federation.assemble(config, data, split, Engine(module, Compute(workers=1)))
    position, memory = Position(0, initial_model(module)), InMemory()
    for t in range(1, config.run.rounds + 1):
        memory.records[t], position = federation.run_round(position, memory, Unwatched())
    return list(memory.records.values())


def contents(path: Path) -> dict[str, bytes]:
    """All datasets of a file, by place; not the checksums, among them that of the seconds."""
    found: dict[str, bytes] = {}
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, item: found.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset) else None
        )
    return {name: value for name, value in found.items() if name != "checksums"}
