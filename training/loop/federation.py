"""The round loop, written once for every method: cohort, local training, server step, average over rounds, record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch

from ...checkpoints import Partition, RoundRecord, Weights, stack, weighted_mean
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapters import settings_of_run
from ...checkpoints.rounds.drift import drift_of
from ...evaluation.uint8_images import Inputs
from ...evaluation.unlike_buffers import warn_of_averaged
from ..build import model_info
from ..config.config import Config
from ..data.dataset import Dataset
from ..guards.own_calls import ask
from ..guards.returned_arrays import is_own_method
from ..local.cohort_storage import MEMORY, CohortStorage
from ..local.engine import Engine, Trained
from ..local.local_training import LocalTask
from ..local.optimiser_choice import warn_of_rate
from ..local.optimisers import refuse_useless
from ..local.own_updates import refuse_sometimes, refuse_unrecorded
from ..local.profile import time_span
from ..local.worker_model import head_layer
from ..methods.base import Averaged, Cohort, Exchange, History, LocalSchedule, Served, State, Validator
from ..methods.refused_returns import refuse_averaged, refuse_begun, refuse_shared, refuse_weights
from ..models.model_info import ModelInfo
from ..rng import draw_cohort
from ..settings.registry import method_name
from ..settings.settings import without_effect
from .metrics import ALL_MEASURED, MeasuredDomains, Parts, RoundMeter, on_device, summarize_all
from .personalized import PersonalizedModels
from .server import step_server, validator_of, warn_of_test_data
from .state import Memory, Position, next_start


class Watcher(Protocol):
    """A listener to a training: progress bars, logs, tests."""

    def begin(self, rounds: int, size: int) -> None:
        """Training begins; its rounds will take about ``size`` bytes, uncompressed."""

    def client(self, round: int, done: int, of: int) -> None:
        """One more client of a round has trained."""

    def round(self, record: RoundRecord, of: int) -> None:
        """A round has been recorded, durably."""


class Unwatched:
    """A listener that does nothing."""

    def begin(self, rounds: int, size: int) -> None: ...
    def client(self, round: int, done: int, of: int) -> None: ...
    def round(self, record: RoundRecord, of: int) -> None: ...


@dataclass(frozen=True)
class _Aggregated:
    """A round before it is measured: the clients' work, and the models made of it."""

    tasks: Sequence[LocalTask]
    sent: State
    trained: Trained
    cohort: Cohort
    global_: Weights
    averaged: Weights | None
    served: Served


@dataclass(frozen=True)
class Federation:
    """A federation ready for rounds. :meth:`run_round` depends on its arguments, memory and configuration alone.

    ``x`` and ``y`` are the training split on the engine's device, held once for all clients and workers; ``storage`` is
    where a round's clients lie until it is recorded; ``adapters`` is what ``run.json`` says of adapters.
    """

    config: Config
    partition: Partition
    engine: Engine
    facts: ModelInfo
    meter: RoundMeter | None
    x: Inputs
    y: torch.Tensor
    validator: Validator | None = None
    storage: CohortStorage = MEMORY
    adapters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def assemble(
        cls,
        config: Config,
        data: Dataset,
        partition: Partition,
        engine: Engine,
        *,
        measured: bool = True,
        resumed: bool = False,
        info: Mapping[str, Any] | None = None,
    ) -> Federation:
        """Put a federation together, its data moved to the engine's device once; replays are not ``measured``.

        Args:
            resumed: whether the settings are those of a run that goes on, which can be chosen no more: what is to be
                said of them was said when it was begun.
            info: what ``run.json`` says. Servers are told of adapters what it says, and so is who aggregates a round
                again: nothing in a run of an earlier version, whatever the module says.

        Raises:
            FedscopeError: a method that needs to know the model's head, and a model in which none is known; an
                optimiser that does not go with the model; a device without memory for the data.
        """
        facts = model_info(config, engine.module, data.classes, data.task)
        refuse_useless(config.client, engine.module, facts.head, config.model.name)
        if measured and not resumed:
            warn_of_rate(config.client, engine.module)
            said = (without_effect(chosen) for chosen in (config.client, config.server, config.average))
            outputs = 0 if facts.head is None else head_layer(engine.module, facts.head).out_features
            of_client = config.client.doubts(outputs, [len(own) for own in partition.clients])
            for sentence in (*chain(*said), *of_client, *config.server.doubts(config), *config.average.doubts(config)):
                warn_user(sentence)
        train = data.samples("train")
        # a cluster's workers take what they need to devices of their own
        cluster = engine.compute.cluster is not None
        x, y = (train.x, train.y) if cluster else on_device(train, engine.compute.device)
        meter = None
        if measured:
            meter = RoundMeter(
                engine.module,
                data.samples("test"),
                client_samples=config.run.evaluate_clients,
                seed=config.run.seed,
                compute=engine.compute.exact,
                own=None
                if partition.test is None
                else Parts.of(
                    train, partition.test, engine, (x.to(engine.compute.device), y.to(engine.compute.device))
                ),
                domains=MeasuredDomains.of(data, engine, averages=method_name(config.average) != "none"),
            )
        validator = None
        if measured:
            validator = validator_of(config.server, data, engine.module, partition, config.run.seed, engine.compute)
            if validator is not None:
                warn_of_test_data(config.server)
        return cls(config, partition, engine, facts, meter, x, y, validator, adapters=settings_of_run(info or {}))

    def pace(self, round: int) -> LocalSchedule:
        """eta_t and epochs of round t: the client's schedule, then the average's exploration."""
        client = self.config.client
        return self.config.average.explore_pace(round, client.pace(round), client)

    def cohort(self, round: int) -> np.ndarray:
        """Return the ids of round t's clients, ascending."""
        return draw_cohort(self.config.data.seed, round, self.config.data.clients, self.config.run.participation)

    def tasks(
        self,
        round: int,
        ids: Sequence[int] | np.ndarray,
        start: Weights,
        sent: State,
        last: Mapping[int, int],
        memory: Memory,
        *,
        draw: int = 1,
        surveyed: bool = True,
    ) -> list[LocalTask]:
        """A round's work, client by client; ``draw`` 1 is the recorded one.

        Where the method surveys the cohort before it trains, that happens here, unless nobody trains.
        """
        states = memory.client_states({int(k): last[int(k)] for k in ids if int(k) in last})
        tasks = [
            LocalTask(
                round=round,
                client=int(k),
                x=self.x,
                y=self.y,
                indices=self.partition.clients[int(k)].copy(),  # a method's own code may write to it
                start=start,
                pace=self.pace(round),
                seed=self.config.run.seed,
                facts=self.facts,
                draw=draw,
                augment=self.config.data.augment,
                sent=sent,
                state=states.get(int(k), {}),
                last=last.get(int(k), 0),
            )
            for k in ids
        ]
        if self.config.client.surveys and surveyed:
            found = self.engine.survey(self.config.client, tasks, self.weights(ids))
            tasks = [replace(task, surveyed=found) for task in tasks]
        return tasks

    def weights(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """p of a cohort, [C].

        Raises:
            ReturnedError: a server of somebody's own gives what are no weights of a mean.
        """
        server = self.config.server
        p = server.weights(np.array([len(self.partition.clients[int(k)]) for k in ids]))
        if is_own_method(server):
            refuse_weights(server, p, len(ids))
        return p

    def run_round(self, position: Position, memory: Memory, watcher: Watcher) -> tuple[RoundRecord, Position]:
        """Play the round after ``position``: its full record, and where the federation stands then."""
        config, t, began = self.config, position.round + 1, time.perf_counter()
        ids = self.cohort(t)
        sent = self._begin(position) if position.sent is None else position.sent
        p, profile = self.weights(ids), self.engine.profile
        with time_span(profile, "training", t):
            tasks = self.tasks(t, ids, position.start, sent, position.last, memory)
            trained = self.engine.train(config.client, tasks, p, partial(watcher.client, t), self.storage)
        if is_own_method(config.client) and position.sent is not None:
            if position.clients_kept is None:
                refuse_unrecorded(config.client, trained.states, t)
            elif position.same_client:
                refuse_sometimes(config.client, trained.states, t, before=bool(position.last))
        cohort = self._cohort(t, ids, p, trained)
        with time_span(profile, "aggregation", t):
            global_, averaged, served, average, row = self._serve(position, trained.clients, cohort, memory)
            exchange = Exchange(
                start=position.start,
                clients=trained.clients,
                global_=global_,
                cohort=cohort,
                facts=self.facts,
                message=trained.message,
                surveyed=tasks[0].surveyed,
            )
            shared = ask(config.client, config.client.share, sent, exchange)
            if is_own_method(config.client):
                refuse_shared(config.client, sent, shared, t)
            start = next_start(config, t, global_, averaged, served.state)
        made = _Aggregated(tasks, sent, trained, cohort, global_, averaged, served)
        metrics, everybody = self._measure(made, position, memory)
        metrics["seconds"] = time.perf_counter() - began
        state: dict[str, Any] = {**served.state}
        state |= {name: part for name, part in (("sent", shared), ("average", average)) if part}
        record = RoundRecord(
            round=t,
            start=position.start,
            clients=trained.clients,
            global_=global_,
            averaged=averaged,
            client_ids=ids,
            client_samples=trained.samples,
            client_steps=trained.steps,
            client_loss=trained.loss,
            weights=p,
            state=state,
            client_state=trained.states,
            metrics=metrics,
            all_client_test_error=everybody,
        )
        rows = {**position.recent, t: row}
        return record, Position(
            round=t,
            start=start,
            recent={s: rows[s] for s in sorted(rows) if s > t - config.average.window_size()},
            server=served.state,
            sent=shared,
            average=average,
            last={**position.last, **dict.fromkeys(ids.tolist(), t)} if trained.states else {},
            clients_kept=bool(trained.states),
        )

    def _begin(self, position: Position) -> State:
        """Make what is sent with the model in the client method's first round."""
        client = self.config.client
        sent = ask(client, client.begin, position.start, self.facts)
        if is_own_method(client):
            refuse_begun(client, sent)
        return sent

    def _cohort(self, round: int, ids: np.ndarray, p: np.ndarray, trained: Trained) -> Cohort:
        """A round's clients as the server sees them."""
        return Cohort(
            round=round,
            client_ids=ids,
            samples=trained.samples,
            steps=trained.steps,
            p=p,
            clients=self.config.data.clients,
            lr=self.pace(round).lr,
            reach=trained.reach,
            label_counts=self.partition.label_counts[ids],
            validator=self.validator,
            adapters=self.adapters,
            seed=self.config.run.seed,
        )

    def _measure(
        self, made: _Aggregated, position: Position, memory: Memory
    ) -> tuple[dict[str, float | int | None], np.ndarray | None]:
        """A round's row of ``metrics.csv`` without its time, and the test errors of all clients where they are asked
        for."""
        config, t, ids, trained = self.config, made.cohort.round, made.cohort.client_ids, made.trained
        metrics: dict[str, float | int | None] = {
            "round": t,
            "lr": made.cohort.lr,
            "participants": len(ids),
            "train_loss": float(made.cohort.p @ trained.loss),
        }
        if made.served.p is not None:
            metrics["soup_clients"] = int(np.count_nonzero(made.served.p))
        everybody = None
        with time_span(self.engine.profile, "evaluation", t):
            if config.record.drift:
                metrics |= drift_of(position.start, trained.clients, made.cohort.p, made.global_)
            if self.meter is not None:
                deployed = made.global_ if made.averaged is None else made.averaged
                own = PersonalizedModels(self, t, deployed, trained.states, ids)
                metrics |= dict.fromkeys(self.meter.columns, None)
                if t % config.run.evaluate_every == 0 or t == config.run.rounds:
                    models = made.global_, made.averaged, trained.clients
                    metrics |= self.meter.measure(*models, ids, own.of_cohort(made.tasks))
                if config.run.evaluates_all():
                    metrics |= dict.fromkeys(ALL_MEASURED, None)
                if config.run.evaluates_all(t) and self.meter.own is not None:
                    everybody = own.errors_of_all(self.meter.own, made.sent, position.last, memory)
                    metrics |= summarize_all(everybody, own.deployed_errors_of_all(self.meter.own, everybody))
        model, surveyed = config.client.model_size(self.facts), _size(made.tasks[0].surveyed)
        metrics["parameters_down"] = len(ids) * (model + _size(made.sent) + surveyed)
        metrics["parameters_up"] = len(ids) * (model + trained.message_size + surveyed)
        return metrics, everybody

    def _serve(
        self, position: Position, clients: Weights, cohort: Cohort, memory: Memory
    ) -> tuple[Weights, Weights | None, Served, Mapping[str, Any], Weights]:
        """``global``, ``averaged``, the server's step, the average's state, and the row that later averages look back
        at."""
        config, t = self.config, cohort.round
        first = config.average.averages_first

        def row(s: int) -> Weights:
            return position.recent[s] if s in position.recent else memory.row(s, mean=first)

        history = History(row, self.facts)
        kept = position.average
        if position.server is None:
            server = ask(config.server, config.server.init, position.start.parameters)
            if is_own_method(config.server):
                refuse_begun(config.server, server)
        else:
            server = position.server
        if first:
            warn_of_averaged(clients.buffers, clients.layout.names, cohort.p)
            mean = weighted_mean(clients, cohort.p, integer_from=int(cohort.samples.argmax()))
            found = self._average(kept, t, mean, history)
            if found.weights is None:  # as without the average, to the last bit
                served = step_server(config.server, server, position.start, clients, cohort)
                target = mean
            else:
                target = found.weights
                served = step_server(config.server, server, position.start, stack([target]), _one(cohort))
            global_ = self._settled(Weights(clients.layout, served.parameters, target.buffers), position.start)
            return global_, None, served, {**found.state, "clients_mean": mean}, mean
        served = step_server(config.server, server, position.start, clients, cohort)
        made = Weights(clients.layout, served.parameters, mean_buffers(clients, cohort, served))
        global_ = self._settled(made, position.start)
        found = self._average(kept, t, global_, history)
        averaged = None if found.weights is None else self.facts.settled(found.weights, position.start)
        if found.weights is not None:  # over rounds
            both = {name: (own, global_.buffers[name]) for name, own in position.start.buffers.items()}
            warn_of_averaged(both, clients.layout.names)
        return global_, averaged, served, found.state, global_

    def _settled(self, made: Weights, start: Weights) -> Weights:
        """As :meth:`ModelInfo.settled`; a mean is one to the last bit: in float64 that of equal numbers may round."""
        if method_name(self.config.server) == "fma":
            return made
        return self.facts.settled(made, start)

    def _average(self, state: Mapping[str, Any], round: int, row: Weights, history: History) -> Averaged:
        """The average over rounds, and its state.

        The clients' mean, which stands beside that state in a round's file, is the loop's: the method is not given it,
        and may return all that it is given.
        """
        own = {name: value for name, value in state.items() if name != "clients_mean"}
        found = ask(self.config.average, self.config.average.average, own, round, row, history)
        if is_own_method(self.config.average):
            refuse_averaged(self.config.average, found, own, row.layout, round)
        return found


def mean_buffers(clients: Weights, cohort: Cohort, served: Served) -> dict[str, np.ndarray]:
    """Compute the clients' buffers averaged with p, whatever the server: optimiser methods act on parameters alone.

    With the weights of a server that has some of its own (greedy, checkpoints), those of its clients.
    """
    no_parameters = np.empty((len(clients), 0), clients.layout.dtype)
    only_buffers = Weights(clients.layout, no_parameters, clients.buffers)
    p, largest = (cohort.p, cohort.samples) if served.p is None else (served.p, served.p)
    warn_of_averaged(clients.buffers, clients.layout.names, p)
    return weighted_mean(only_buffers, p, integer_from=int(largest.argmax())).buffers


def _one(cohort: Cohort) -> Cohort:
    """Return the cohort as if it were one client, which has the mean model."""
    return replace(
        cohort,
        client_ids=cohort.client_ids[:1],
        samples=cohort.samples.sum(keepdims=True),
        steps=cohort.steps.max(keepdims=True),
        p=np.ones(1),
        reach=np.atleast_1d(cohort.p @ cohort.reach),
        label_counts=cohort.label_counts.sum(axis=0, keepdims=True),
    )


def _size(state: State) -> int:
    return sum(np.size(array) for array in state.values())
