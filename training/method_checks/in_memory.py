"""Federations played in memory, whose rounds are not recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...checkpoints import RoundRecord, Weights
from ...evaluation.device import Compute
from ..build import build_module, initial_model, split_dataset
from ..config.config import Config
from ..data.dataset import Dataset
from ..local.engine import Engine
from ..loop.federation import Federation, Unwatched
from ..loop.server import validator_of
from ..loop.state import Position, state_of
from ..methods.base import ClientState


@dataclass
class RoundsInMemory:
    """Rounds that were played, as a federation's memory.

    Attributes:
        position: where the federation stands.
    """

    federation: Federation
    position: Position
    records: dict[int, RoundRecord] = field(default_factory=dict)

    @classmethod
    def of(cls, federation: Federation) -> RoundsInMemory:
        """Stand before the first round."""
        return cls(federation, Position(0, initial_model(federation.engine.module)))

    def play(self, rounds: int) -> RoundRecord:
        """Play so many rounds, and return the last one."""
        for _ in range(rounds):
            record, self.position = self.federation.run_round(self.position, self, Unwatched())
            self.records[record.round] = record
        return record

    def row(self, round: int, *, mean: bool = False) -> Weights:
        """See :class:`fedscope.training.loop.state.Memory`."""
        record = self.records[round]
        found = record.state["average"]["clients_mean"] if mean else record.global_
        assert isinstance(found, Weights)
        return found

    def client_states(self, last: Mapping[int, int]) -> dict[int, ClientState]:
        """See :class:`fedscope.training.loop.state.Memory`."""
        states: dict[int, ClientState] = {}
        for client, round in last.items():
            record = self.records[round]
            if record.client_state:
                states[client] = state_of(record.client_state, record.client_ids.tolist().index(client))
        return states


def assembled(config: Config, data: Dataset) -> Federation:
    """Return the federation of a configuration; its models are not measured, but a server's own judgement is there."""
    config = replace(config, data=config.data.resolved())
    data, split = split_dataset(config, data)
    module = build_module(config.model.architecture, data.shape, data.classes, seed=config.run.seed)
    engine = Engine(module, Compute(workers=1), kind="cohort" if config.run.engine == "cohort" else "auto")
    federation = Federation.assemble(config, data, split, engine, measured=False)
    validator = validator_of(config.server, data, module, split, config.run.seed, engine.compute)
    return replace(federation, validator=validator)
