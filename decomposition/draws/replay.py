"""Draws of a round's cohort by replay: the recorded local training again, with other mini-batch orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from ...checkpoints import FedscopeError, Round, Run, Weights, recorded_clients
from ...evaluation.device import CPU, Compute
from ...evaluation.module_copy import copy_module
from ...evaluation.standard_tasks import CLASSIFICATION
from ...training.build import config_of, data_of, learnt_by, model_info, module_of, partition_of
from ...training.data.dataset import Dataset
from ...training.guards.own_calls import ask
from ...training.local.earlier_versions import tell_of_earlier_version
from ...training.local.engine import Engine
from ...training.local.local_training import LocalTask
from ...training.loop.federation import Federation
from ...training.loop.run_history import config_at, method_start
from ...training.loop.state import RunMemory, going_on, last_participations, sends_unsaid
from ...training.models.custom import Factory, OwnModel
from ...training.settings.missing_code import is_given
from ...training.user_code.kept_source import refuse_other_source
from .. import CohortDraws
from .given_code import refuse_ungiven


@dataclass(frozen=True)
class Replayer:
    """Replays clients of a recorded run; made once for all of a run's rounds.

    Attributes:
        federation: of the run's own configuration; see :meth:`federation_at`.
        known: who took part in the rounds that have been looked at.
        code_changed: whether code of another source than a round was made with is taken.
    """

    run: Run
    federation: Federation
    known: dict[int, list[int]] = field(default_factory=dict)
    code_changed: bool = False

    @classmethod
    def of(
        cls,
        run: Run,
        data: Dataset | None = None,
        *,
        compute: Compute = CPU,
        code: Mapping[str, Any] | None = None,
        code_changed: bool = False,
        module: nn.Module | None = None,
    ) -> Replayer:
        """Rebuild the run's federation from its files.

        Args:
            code, code_changed: of the user's own that the run names, by kind; as in :func:`fedscope.training.resume`.
            module: its architecture, where the run only names that.

        Raises:
            FedscopeError: the run came from another program, or its data have changed; code that was not given.
        """
        run = refuse_ungiven(run, code, rounds=())  # compared with the source of each round that is replayed
        config = config_of(run)
        split = partition_of(run)
        given = is_given(config.model.architecture)
        made = module_of(run) if module is None or given else copy_module(module)
        engine = Engine(made, compute.in_precision(config.run.precision), kind=config.run.engine)
        data = data or data_of(run)
        if data.task.name != (config.model.architecture.task or CLASSIFICATION.name):
            data = replace(data, task=learnt_by(run))  # what is measured may be another task than what was trained
        if isinstance(config.model.architecture, Factory | OwnModel):
            tell_of_earlier_version(run, engine.module, data.samples("train"))
        return cls(run, Federation.assemble(config, data, split, engine, measured=False), code_changed=code_changed)

    def federation_at(self, round: int) -> Federation:
        """Return the federation that played a round: another one than the run's in the history of a branch."""
        config = config_at(self.run, round)
        facts = model_info(
            config, self.federation.engine.module, self.federation.facts.classes, self.federation.facts.task
        )
        engine = self.federation.engine
        engine = replace(engine, compute=engine.compute.in_precision(config.run.precision), kind=config.run.engine)
        return replace(self.federation, config=config, facts=facts, engine=engine)

    def replay(self, round_: Round, draw: int, progress: Callable[[int, int], None] | None = None) -> Weights:
        """Compute the cohort's models after local training from the recorded start, [C, P]; draw 1 is the recorded one.

        Clients train as the configuration that made the round says, from the states that they had, and with what they
        were sent.

        Raises:
            FedscopeError: the recording policy has left out a state that a client had; code with another source than
                the round was trained with.
        """
        federation, tasks = self.work_of(round_, draw)
        p = federation.weights(round_.client_ids)
        return federation.engine.train(federation.config.client, tasks, p, progress).clients

    def work_of(self, round_: Round, draw: int = 1, *, surveyed: bool = True) -> tuple[Federation, list[LocalTask]]:
        """Return the federation that played a round, and the round's work, client by client.

        Raises:
            FedscopeError: as :meth:`replay`.
        """
        t, ids, memory = round_.number, round_.client_ids, RunMemory(self.run)
        if not self.code_changed:
            refuse_other_source(self.run, t)
        federation = self.federation_at(t)
        config, start = federation.config, round_.read("start")
        first = ask(config.client, config.client.begin, start, federation.facts)
        # What is sent in a method's first round is not in the round before.
        begins = t == method_start(self.run, "client", t) + 1
        sent = first if begins else memory.kept(t - 1).sent
        said = begins or bool(sent) or memory.tells_state(t - 1) or not sends_unsaid(config.client)
        if (first and not sent) or not (said or memory.left_nothing("client", t - 1)):
            raise FedscopeError(
                f"{self.run.path}@{t}: what was sent with the model in round {t} is not recorded, because "
                f"record.globals leaves round {t - 1} out; train with record.globals = 'all' to replay it"
            )
        if not begins:
            facts = federation.facts
            sent = going_on(self.run, t - 1, "client", config, sent, lambda one: ask(one, one.begin, start, facts))
        last = last_participations(self.run, t - 1, config, self.known)
        if begins:
            last = {}
        return federation, federation.tasks(t, ids, start, sent, last, memory, draw=draw, surveyed=surveyed)

    def local_draws(self, number: int, count: int, progress: Callable[[int, int], None] | None = None) -> CohortDraws:
        """``local:R``: R independent draws of a round's cohort, the first the recorded one.

        Args:
            number: the round.
            count: R, at least 2.
            progress: called with how many of the (R - 1) C replays are done.

        Raises:
            FedscopeError: R < 2; a round whose clients or start were not recorded (says which rounds have them).
        """
        if count < 2:
            raise FedscopeError(
                f"--draws local:{count}: one draw gives no variance and no covariance; use local:2 or more"
            )
        round_ = recorded_clients(self.run, number)
        draws, each = [round_.clients()], len(round_.client_ids)
        for draw in range(2, count + 1):
            before = (draw - 2) * each

            def shifted(done: int, _: int, before: int = before) -> None:
                if progress is not None:
                    progress(before + done, (count - 1) * each)

            draws.append(self.replay(round_, draw, shifted))
        return CohortDraws(
            round=number,
            client_ids=round_.client_ids,
            p=round_.weights,
            draws=tuple(draws),
            client_samples=round_.client_samples,
            source=f"local:{count}",
            independent=True,
        )
