"""What is measured after each round: test loss and error of the global, averaged and client models."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event

import numpy as np
import torch
from torch import Tensor, nn

from ..checkpoints import Weights
from ..landscape import Evaluator, Samples, run_in_workers
from ..landscape.evaluation.compute import CPU, Compute
from ..landscape.evaluation.pixels import Inputs
from ..landscape.evaluation.replica import FlatModule
from ..landscape.evaluation.tasks import Tally, Task
from .engine import Engine

#: test loss and error (share misclassified) of a round's models; NaN where there was nothing to measure, and where the
#: task has no error
MEASURED = (
    *("test_loss", "test_error", "averaged_test_loss", "averaged_test_error"),
    *("client_error_mean", "client_error_std", "client_test_error_mean", "client_test_error_std"),
)


@dataclass(frozen=True)
class OwnTests:
    """The clients' own test parts (``data.client_test``)."""

    x: Inputs
    y: Tensor
    parts: tuple[np.ndarray, ...]
    engine: Engine
    task: Task

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
    ) -> dict[str, float]:
        """:data:`MEASURED` by name; the clients' deviations are over the cohort (divided by C), not standard errors.

        Args:
            own: the model that every client uses itself, or one each, for the clients' own test parts.
        """
        losses, errors = self._whole.models([global_] if averaged is None else [global_, averaged])
        client_errors = own_errors = np.empty(0)
        if self._clients is not None:
            _, client_errors = self._clients.models(clients)
        if self._own is not None:
            own_errors = self._own.errors(ids, own)
            own_errors = own_errors[~np.isnan(own_errors)]
        deployed = (np.nan, np.nan) if averaged is None else (losses[1], errors[1])
        numbers = (losses[0], errors[0], *deployed, *_spread(client_errors), *_spread(own_errors))
        return {name: float(number) for name, number in zip(MEASURED, numbers, strict=True)}


def _spread(errors: np.ndarray) -> tuple[float, float]:
    """Mean and deviation; NaN of none."""
    return (errors.mean(), errors.std()) if len(errors) else (np.nan, np.nan)
