"""The round loop, written once for every method: cohort, local training, server step, average over rounds, record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
import torch

from ..checkpoints import FedscopeError, Partition, RoundRecord, Weights, weighted_mean
from .building import draw_cohort
from .config import Config
from .dataset import Dataset
from .engine import Engine
from .local import LocalTask
from .measuring import Measured, Meter
from .methods import Cohort, Pace, State


class Watcher(Protocol):
    """Who watches a training: progress bars, logs, tests."""

    def begin(self, rounds: int, size: int) -> None:
        """Training begins; ``size`` bytes at most will be recorded, uncompressed, by the end of all rounds."""

    def client(self, round: int, done: int, of: int) -> None:
        """One more client of a round has trained."""

    def round(self, record: RoundRecord, of: int) -> None:
        """A round has been recorded, durably."""


class Unwatched:
    """Nobody watches."""

    def begin(self, rounds: int, size: int) -> None:
        """Nothing."""

    def client(self, round: int, done: int, of: int) -> None:
        """Nothing."""

    def round(self, record: RoundRecord, of: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Position:
    """Where a federation stands between two rounds: all that the next round depends on.

    Attributes:
        round: the last round that was played, 0 before the first.
        start: the model that the next round sends out.
        globals_: the last ``global``s, oldest first, as many as the average over rounds needs.
        state: the server's state.
    """

    round: int
    start: Weights
    globals_: tuple[Weights, ...] = ()
    state: State | None = None


@dataclass(frozen=True)
class Federation:
    """A federation ready to play rounds. :meth:`play` depends on its arguments and the configuration alone.

    ``x`` and ``y`` are the training split on the engine's device, held once for all clients and workers.
    """

    config: Config
    partition: Partition
    engine: Engine
    meter: Meter | None
    x: torch.Tensor
    y: torch.Tensor

    @classmethod
    def assemble(
        cls, config: Config, data: Dataset, partition: Partition, engine: Engine, *, measured: bool = True
    ) -> Federation:
        """Put a federation together, its data moved to the engine's device once; replays are not ``measured``."""
        train = data.samples("train")
        meter = measured and Meter(
            engine.module,
            data.samples("test"),
            client_samples=config.run.evaluate_clients,
            seed=config.run.seed,
            device=engine.device,
        )
        return cls(config, partition, engine, meter or None, train.x.to(engine.device), train.y.to(engine.device))

    def pace(self, round: int) -> Pace:
        """eta_t and epochs of round t: the client's schedule, then the average's exploration."""
        client = self.config.client
        return self.config.average.explore_pace(round, client.pace(round), client)

    def task(self, round: int, client: int, start: Weights, *, draw: int = 1) -> LocalTask:
        """One client's work in a round; ``draw`` 1 is the recorded one."""
        return LocalTask(
            round=round,
            client=client,
            x=self.x,
            y=self.y,
            indices=self.partition.clients[client],
            start=start,
            pace=self.pace(round),
            seed=self.config.run.seed,
            draw=draw,
            augment=self.config.data.augment,
        )

    def play(self, position: Position, watcher: Watcher) -> tuple[RoundRecord, Position]:
        """Play the round after ``position``: its full record, and where the federation stands then."""
        config, t, began = self.config, position.round + 1, time.perf_counter()
        ids = draw_cohort(config.data.seed, t, config.data.clients, config.run.participation)
        tasks = [self.task(t, int(k), position.start) for k in ids]
        trained = self.engine.train(config.client, tasks, lambda done, of: watcher.client(t, done, of))
        clients, samples = trained.clients, trained.samples
        p = config.server.weights(samples)
        cohort = Cohort(t, ids, samples, trained.steps, p, config.data.clients, self.pace(t).lr)
        state = config.server.init(position.start.parameters) if position.state is None else position.state
        served = config.server.step(state, position.start, clients, cohort)
        # Optimiser methods act on parameters; buffers are always averaged.
        buffers = weighted_mean(clients, p, integer_from=int(samples.argmax())).buffers if clients.buffers else {}
        global_ = Weights(clients.layout, served.parameters, buffers)
        # One more than the average needs, so that a resume file written before the round's own file serves both.
        window = (*position.globals_, global_)[-max(1, config.average.window_size()) - 1 :]
        averaged = config.average.average(t, window)
        metrics: dict[str, float | int | None] = {
            "round": t,
            "lr": self.pace(t).lr,
            "participants": len(ids),
            "train_loss": float(p @ trained.loss),
        }
        if self.meter is not None and (t % config.run.evaluate_every == 0 or t == config.run.rounds):
            metrics |= asdict(self.meter.measure(global_, averaged, clients))
        else:
            metrics |= dict.fromkeys(Measured.__dataclass_fields__, None)
        metrics["seconds"] = time.perf_counter() - began
        record = RoundRecord(
            round=t,
            start=position.start,
            clients=clients,
            global_=global_,
            averaged=averaged,
            client_ids=ids,
            client_samples=samples,
            client_steps=trained.steps,
            client_loss=trained.loss,
            weights=p,
            state=dict(served.state),
            client_state={},
            metrics=metrics,
        )
        return record, Position(t, self.next_start(t, global_, averaged), window, served.state)

    def next_start(self, round: int, global_: Weights, averaged: Weights | None) -> Weights:
        """What round t + 1 sends out: ``averaged`` where the method restarts from it, else ``global``."""
        return averaged if averaged is not None and self.config.average.restarts(round + 1) else global_


def diverged(ids: Sequence[int] | np.ndarray, losses: np.ndarray) -> list[int]:
    """The clients whose training loss is not finite."""
    return [int(k) for k, loss in zip(ids, losses, strict=True) if not np.isfinite(loss)]


def refuse_divergence(run: str, round: int, ids: np.ndarray, losses: np.ndarray, lr: float) -> None:
    """Stop where a client's loss is no number.

    Raises:
        FedscopeError: names the round, the clients and the remedy.
    """
    lost = diverged(ids, losses)
    if lost:
        whose = f"client {lost[0]}" if len(lost) == 1 else f"clients {', '.join(map(str, lost[:5]))}"
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        raise FedscopeError(
            f"round {round}: the training loss of {whose}{more} is not finite at learning rate {lr:g}; the round is "
            f"recorded in {run}; use a smaller --lr, or --resume {run} --keep-going"
        )
