"""What is measured after each round: test loss and error of the global, averaged and client models."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event

import numpy as np
import torch
from torch import Tensor, nn

from ..checkpoints import Partition, Weights
from ..landscape import Evaluator, Samples, run_in_workers
from ..landscape.evaluation.compute import CPU, Compute
from ..landscape.evaluation.flat import FlatModule
from ..landscape.evaluation.tally import Tally
from ..landscape.evaluation.tasks import Task
from .engine import Engine


@dataclass(frozen=True)
class Measured:
    """Test loss and error (share misclassified) of a round's models; NaN where there was nothing to measure, and where
    the task has no error."""

    test_loss: float
    test_error: float
    averaged_test_loss: float
    averaged_test_error: float
    client_error_mean: float
    client_error_std: float
    client_test_error_mean: float
    client_test_error_std: float


@dataclass(frozen=True)
class OwnTests:
    """The clients' own test parts (``data.client_test``)."""

    x: Tensor
    y: Tensor
    parts: tuple[np.ndarray, ...]
    engine: Engine
    task: Task

    @classmethod
    def of(cls, x: Tensor, y: Tensor, partition: Partition, engine: Engine, task: Task) -> OwnTests:
        """Of a partition that has them."""
        assert partition.test is not None
        return cls(x, y, partition.test, engine, task)

    def errors(self, ids: np.ndarray, models: Weights | list[Weights]) -> np.ndarray:
        """The mean error of each client's model on its own test samples, [C].

        NaN for a client with none, and where the task has no error. ``models`` is one model for all, or one each.
        """

        def work(item: tuple[np.ndarray, Weights], bench: FlatModule, stop: Event) -> float:
            rows, model = item
            if not len(rows):
                return float("nan")
            bench.load(model.parameters, model.buffers)
            tally = Tally(self.task, str(self.x.device))
            with torch.no_grad():
                for block in torch.split(torch.from_numpy(rows).to(self.x.device), 1024):
                    tally.add(bench.module(bench.prepare(self.x[block])), self.y[block])
            return tally.means()[1]

        def make() -> FlatModule:
            bench = FlatModule(self.engine.module, self.engine.compute.exact)
            bench.module.eval()
            return bench

        each = models if isinstance(models, list) else [models] * len(ids)
        items = [(self.parts[int(k)], model) for k, model in zip(ids, each, strict=True)]
        return np.array(list(run_in_workers(work, items, make=make, workers=self.engine.compute.workers)))


class Meter:
    """Measures rounds on a test split, its evaluators made once.

    Args:
        own: the clients' own test parts, where they have any.
        client_samples: how many test samples (a seeded, stratified subset) the clients' models see; 0 leaves them out.
    """

    def __init__(
        self,
        module: nn.Module,
        test: Samples,
        *,
        client_samples: int,
        seed: int,
        compute: Compute = CPU,
        own: OwnTests | None = None,
    ) -> None:
        self._own = own
        self._whole = Evaluator(module, test, compute=compute)
        self._clients: Evaluator | None = None
        if client_samples:
            part = test.limit(client_samples, seed)
            self._clients = self._whole if part is test else Evaluator(module, part, compute=compute)

    def measure(
        self,
        global_: Weights,
        averaged: Weights | None,
        clients: Weights,
        ids: np.ndarray,
        own: Weights | list[Weights],
    ) -> Measured:
        """The clients' deviations are over the cohort (divided by C), not standard errors.

        Args:
            own: the model that every client uses itself, or one each, for the clients' own test parts.
        """
        models = [global_] if averaged is None else [global_, averaged]
        losses, errors = self._whole.models(models)
        client_errors = np.array([np.nan])
        if self._clients is not None:
            _, client_errors = self._clients.models(clients)
        own_errors = np.array([np.nan]) if self._own is None else self._own.errors(ids, own)
        own_errors = own_errors[~np.isnan(own_errors)]
        return Measured(
            test_loss=float(losses[0]),
            test_error=float(errors[0]),
            averaged_test_loss=float(losses[1]) if averaged is not None else np.nan,
            averaged_test_error=float(errors[1]) if averaged is not None else np.nan,
            client_error_mean=float(client_errors.mean()),
            client_error_std=float(client_errors.std()),
            client_test_error_mean=float(own_errors.mean()) if len(own_errors) else np.nan,
            client_test_error_std=float(own_errors.std()) if len(own_errors) else np.nan,
        )
