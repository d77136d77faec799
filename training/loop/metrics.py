"""Metrics of each round: test loss and error of the global, averaged and client models, by domain and by
client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError, Weights
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.accelerators import empty_cache, is_out_of_memory, refuse_without_memory
from ...evaluation.device import CPU, Compute, run_in_workers
from ...evaluation.evaluator import Evaluator, default_batch
from ...evaluation.model_replica import FlatModule
from ...evaluation.samples import Samples
from ...evaluation.tasks import Tally, Task
from ...evaluation.uint8_images import Inputs
from ..data.dataset import Dataset, Groups
from ..local.engine import Engine

#: test loss and error (share misclassified) of a round's models; NaN where there was nothing to measure, and where the
#: task has no error
MEASURED = (
    *("test_loss", "test_error", "averaged_test_loss", "averaged_test_error"),
    *("client_error_mean", "client_error_std", "client_test_error_mean", "client_test_error_std"),
)


#: of all clients on their own test parts, in the rounds of ``run.evaluate_all``: with the model that each uses itself,
#: then with the deployed one, which is the same where the method makes no models of the clients' own
ALL_MEASURED = tuple(
    f"all_client_{whose}_error_{what}" for whose in ("test", "deployed") for what in ("mean", "std", "worst")
)


@dataclass(frozen=True)
class Parts:
    """Parts of a split, each to be measured by itself: the clients' own tests, the domains of the test split.

    Attributes:
        x, y: the whole split, on the engine's device.
        parts: the rows of each.
        batch: samples at a time, at most; half as many from where a device has run out of memory.
    """

    x: Inputs
    y: Tensor
    parts: tuple[np.ndarray, ...]
    engine: Engine
    task: Task
    batch: int
    _narrowed: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls, samples: Samples, parts: Sequence[np.ndarray], engine: Engine, there: tuple[Inputs, Tensor] | None = None
    ) -> Parts:
        """Of a split, brought to the engine's device, or ``there`` already."""
        device = engine.compute.device
        x, y = there or on_device(samples, device)
        return cls(x, y, tuple(parts), engine, samples.task, default_batch(engine.module, samples, device))

    def errors(self, ids: Sequence[int] | np.ndarray, models: Weights | Sequence[Weights]) -> np.ndarray:
        """Compute the mean error on each of these parts, [K]: NaN of an empty one, and where the task has no error.

        Args:
            models: one for all, or one each.
        """

        def work(item: tuple[np.ndarray, Weights], bench: FlatModule, stop: Event) -> float:
            rows, model = item
            if not len(rows):
                return float("nan")
            bench.load(model.parameters, model.buffers)
            return self._error(torch.tensor(rows).to(self.x.device), bench)

        def make() -> FlatModule:
            with refuse_without_memory(self.engine.compute.device, "hold a model"):
                bench = FlatModule(self.engine.module, self.engine.compute.exact)
            bench.module.eval()
            return bench

        each = [models] * len(ids) if isinstance(models, Weights) else models
        # one at a time, when a worker is free: they may be on the disk
        items = ((self.parts[int(k)], model) for k, model in zip(ids, each, strict=True))
        # the split is on the first device alone
        workers = 1 if self.engine.compute.is_gpu else self.engine.compute.workers
        return np.array(list(run_in_workers(work, items, make=make, workers=workers)))

    def _error(self, rows: Tensor, bench: FlatModule) -> float:
        """The mean error of a worker's model on some rows; a device that runs out of memory takes half as many samples
        at a time."""
        device = bench.compute.device
        while True:
            batch = self._narrowed[-1] if self._narrowed else self.batch
            try:
                return self._measure(rows, bench, batch)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                batch = min(batch, len(rows))
                if batch == 1:
                    raise FedscopeError(
                        f"{device} has no memory left for even one sample at a time; --device cpu always can"
                    ) from None
            # outside of `except`, which keeps the tensors of the failed attempt alive
            self._narrowed.append(batch // 2)
            empty_cache(device)
            warn_user(f"{device} ran out of memory with {batch:,} samples at a time; going on with {batch // 2:,}")

    def _measure(self, rows: Tensor, bench: FlatModule, batch: int) -> float:
        tally = Tally(self.task, str(self.x.device))
        with torch.no_grad(), bench.compute.products():
            for block in torch.split(rows, batch):
                tally.add(bench.module(bench.prepare(self.x[block])), self.y[block])
        return tally.means()[1]


@dataclass(frozen=True)
class MeasuredDomains:
    """The domains of the test split.

    Attributes:
        names: as columns say them.
        averages: whether there are averaged models, too.
    """

    names: tuple[str, ...]
    parts: Parts
    averages: bool

    @classmethod
    def of(cls, data: Dataset, engine: Engine, *, averages: bool) -> MeasuredDomains | None:
        """Of data that know the domains of their samples."""
        if (groups := data.groups.get("domain")) is None:
            return None
        rows = [np.flatnonzero(groups.test == number) for number in range(len(groups.names))]
        return cls(domain_columns(groups), Parts.of(data.samples("test"), rows, engine), averages)

    @property
    def columns(self) -> tuple[str, ...]:
        """Of ``metrics.csv``."""
        own = (*(f"test_error_{name}" for name in self.names), "domain_error_mean", "domain_error_std")
        return (*own, *(f"averaged_{name}" for name in own if self.averages))

    def measure(self, global_: Weights, averaged: Weights | None) -> dict[str, float]:
        """Compute the errors by column, then mean and deviation over the domains that have test samples."""
        models, count = [global_] if averaged is None else [global_, averaged], len(self.names)
        each = [model for model in models for _ in range(count)]
        errors = self.parts.errors([*range(count)] * len(models), each).reshape(-1, count)
        numbers = [number for row in errors for number in (*row, *summarize_errors(row))]
        return dict(zip(self.columns, map(float, numbers), strict=False))


def on_device(samples: Samples, device: str) -> tuple[Inputs, Tensor]:
    """Bring a split to a device.

    Raises:
        FedscopeError: the device has no memory for it.
    """
    with refuse_without_memory(device, f"hold the {len(samples.y):,} samples of {samples.label}"):
        return samples.x.to(device), samples.y.to(device)


def domain_columns(groups: Groups) -> tuple[str, ...]:
    """Return the groups' names as parts of columns' names, each another one.

    >>> domain_columns(Groups(("Art painting", "art-painting", "art painting"), np.empty(0), np.empty(0)))
    ('Art_painting', 'art-painting', 'art_painting')
    >>> domain_columns(Groups(("a b", "a_b", ""), np.empty(0), np.empty(0)))
    ('a_b', 'a_b.1', '2')
    """
    names: list[str] = []
    for number, name in enumerate(groups.names):
        word = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:60] or str(number)
        while word in names:
            word = f"{word}.{number}"
        names.append(word)
    return tuple(names)


class RoundMeter:
    """Measures rounds on a test split, its evaluators made once.

    Args:
        own: the clients' own test parts, where they have any.
        domains: of the test split, where it has any.
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
        own: Parts | None = None,
        domains: MeasuredDomains | None = None,
    ) -> None:
        self.own, self._domains = own, domains
        self._whole = Evaluator(module, test, compute=compute)
        self._clients: Evaluator | None = None
        if client_samples:
            part = test.limit(client_samples, seed)
            self._clients = self._whole if part is test else Evaluator(module, part, compute=compute)

    @property
    def samples(self) -> int:
        """How many test samples the global model is measured on."""
        return len(self._whole.samples)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of :meth:`measure`, of a run that averages over rounds."""
        return MEASURED if self._domains is None else MEASURED + self._domains.columns

    def measure(
        self,
        global_: Weights,
        averaged: Weights | None,
        clients: Weights,
        ids: np.ndarray,
        own: Weights | Sequence[Weights],
    ) -> dict[str, float]:
        """:data:`MEASURED` by name, then the domains'.

        The clients' deviations are over the cohort (divided by C), not standard errors.

        Args:
            own: the model that every client uses itself, or one each, for the clients' own test parts.
        """
        losses, errors = self._whole.models([global_] if averaged is None else [global_, averaged])
        client_errors = own_errors = np.empty(0)
        if self._clients is not None:
            _, client_errors = self._clients.models(clients)
        if self.own is not None:
            own_errors = self.own.errors(ids, own)
        deployed = (np.nan, np.nan) if averaged is None else (losses[1], errors[1])
        numbers = (losses[0], errors[0], *deployed, *summarize_errors(client_errors), *summarize_errors(own_errors))
        measured = {name: float(number) for name, number in zip(MEASURED, numbers, strict=True)}
        return measured if self._domains is None else measured | self._domains.measure(global_, averaged)


def summarize_all(own: np.ndarray, deployed: np.ndarray) -> dict[str, float]:
    """:data:`ALL_MEASURED` of the errors of all clients, [N]: mean, deviation over clients, and the greatest."""
    numbers: list[float] = []
    for errors in (own, deployed):
        there = errors[~np.isnan(errors)]
        numbers += (*summarize_errors(there), there.max() if len(there) else np.nan)
    return {name: float(number) for name, number in zip(ALL_MEASURED, numbers, strict=True)}


def summarize_errors(errors: np.ndarray) -> tuple[float, float]:
    """Mean and deviation of those that there are; NaN of none."""
    there = errors[~np.isnan(errors)]
    return (there.mean(), there.std()) if len(there) else (np.nan, np.nan)
