"""The models that clients use themselves after a round, and how all of them do on their own test parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import Weights
from ..guards.own_calls import ask
from ..guards.returned_arrays import is_own_method
from ..local.local_training import LocalTask
from ..local.own_updates import refuse_personal
from ..methods.base import State
from .metrics import Parts
from .state import Memory, state_of

if TYPE_CHECKING:
    from .federation import Federation


@dataclass(frozen=True)
class PersonalizedModels:
    """The models that clients use after a round: the one that the round has deployed, or where the method is personal
    their own.

    Attributes:
        deployed: ``averaged`` where there is one, else ``global``.
        states: what this round's clients keep after it, a row each.
        cohort: their ids.
    """

    federation: Federation
    round: int
    deployed: Weights
    states: Mapping[str, Weights | np.ndarray]
    cohort: np.ndarray

    @property
    def _personal(self) -> bool:
        return self.federation.config.client.personal and self.federation.partition.test is not None

    def of_cohort(self, tasks: Sequence[LocalTask]) -> Weights | Sequence[Weights]:
        """Of the round's clients, in their order: one for all, or one each.

        Args:
            tasks: the round's work.
        """
        return self.made(tasks) if self._personal else self.deployed

    def errors_of_all(self, parts: Parts, sent: State, last: Mapping[int, int], memory: Memory) -> np.ndarray:
        """Compute the error of each of the N clients on its own test part, [N]; NaN of one without.

        A client that did not take part in the round uses what it would use if it did not train: the deployed model, a
        personal one made of what it kept at its last participation, or fine-tuned from the deployed one. As many
        models as the cohort has are in memory, or on the disk, at a time.

        Args:
            parts: the clients' own test parts.
            sent: what was sent with the model in the round.
            last: the round of each client's last participation before this one.
        """
        clients = np.arange(self.federation.config.data.clients)
        if not self._personal:
            return parts.errors(clients, self.deployed)
        errors, step = np.empty(len(clients)), len(self.cohort)
        before = {k: t for k, t in last.items() if k not in set(self.cohort.tolist())}
        for first in range(0, len(clients), step):
            ids = clients[first : first + step]
            tasks = self.federation.tasks(self.round, ids, self.deployed, sent, before, memory, surveyed=False)
            errors[ids] = parts.errors(ids, self.made(tasks))
        return errors

    def deployed_errors_of_all(self, parts: Parts, own: np.ndarray) -> np.ndarray:
        """Return the same of the deployed model: ``own`` where clients use no models of their own."""
        return parts.errors(np.arange(len(own)), self.deployed) if self._personal else own

    def made(self, tasks: Sequence[LocalTask]) -> Sequence[Weights]:
        """Make the personal models of the clients of some tasks, in their order."""
        federation = self.federation
        places, client = {int(k): i for i, k in enumerate(self.cohort)}, federation.config.client

        def work(task: LocalTask) -> Weights:
            place = places.get(task.client)
            kept = task.state if place is None else state_of(self.states, place)
            made = ask(client, client.personalise, task, kept)
            if is_own_method(client):
                refuse_personal(client, made, task.start.layout, self.round, task.client)
            return made

        made = federation.engine.each(work, [replace(task, start=self.deployed) for task in tasks])
        return federation.storage.models(made, len(tasks))
