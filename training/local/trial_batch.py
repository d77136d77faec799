"""A few samples through a network before a run is begun: what fails on them would fail after the run's folder is made,
and the folder would be in the way of the next try."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...checkpoints import FedscopeError
from ...checkpoints.io.random_streams import undrawn
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.accelerators import is_out_of_memory
from ...evaluation.criteria import LabelCriterion
from ...evaluation.evaluator import Evaluator
from ...evaluation.standard_tasks import PADDED, is_own_task
from ..import_string import describe_error
from .optimisers import may_need_no_gradient
from .unrecorded_state import warn_of_plain_state
from .worker_model import TrainableModel, mean_loss

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.device import Compute
    from ...evaluation.samples import Samples
    from .. import Dataset
    from ..methods.base import ClientMethod

#: test samples that are measured
MEASURED = 8
#: training samples in a gradient, at most, for its memory
LARGEST = 64


def trial_rows(method: ClientMethod, clients: Sequence[np.ndarray], seed: int) -> np.ndarray | None:
    """Draw the training samples of a mini-batch that some client could have, at random from one client's.

    Data may be sorted, so the first ones may be of one class. The generator is of its own.

    Args:
        clients: the indices of each client's samples.

    Returns:
        As many as a batch has, the smallest client has, and :data:`LARGEST` allows; None where
        :func:`~fedscope.training.local.optimisers.may_need_no_gradient`, or a client has none.
    """
    count = min([LARGEST, method.batch, *map(len, clients)])
    if not count or may_need_no_gradient(method):
        return None
    draw = np.random.default_rng(seed)
    own = clients[int(draw.integers(len(clients)))]
    return own[draw.permutation(len(own))[:count]]


def try_batch(name: str, module: nn.Module, data: Dataset, compute: Compute, rows: np.ndarray | None) -> None:
    """Measure a network on a few test samples, and take a gradient on a few training samples.

    Nothing of the module or of the data changes, and no random numbers: torch's, NumPy's, Python's, or those of a
    generator that the network's classes or their modules hold. A cluster's workers may have devices that are not here,
    so there nothing is tried.

    Args:
        name: of the model, for sentences; rows: training samples, see :func:`trial_rows`; None for no gradient.

    Raises:
        FedscopeError: a network that does not take the samples, or whose outputs the task does not; one in which no
            gradient reaches a parameter.
    """
    if compute.cluster is not None:
        return
    with undrawn(module.modules()):
        if len(data.y_test):
            Evaluator(module, _few(data.samples("test")), compute=compute.exact)
        if rows is not None:
            _try_gradient(name, module, data.samples("train"), rows, compute.on(0))


def _few(samples: Samples) -> Samples:
    """Take the first samples that count, of which a criterion may ignore some."""
    if not isinstance(samples.task, LabelCriterion):
        return replace(samples, x=samples.x[:MEASURED], y=samples.y[:MEASURED], indices=samples.indices[:MEASURED])
    counts = (samples.y != PADDED).reshape(len(samples.y), -1).any(dim=1)  # of masks any position
    rows = torch.nonzero(counts)[:MEASURED, 0]
    there = rows.to(samples.x.device)
    return replace(samples, x=samples.x[there], y=samples.y[rows], indices=samples.indices[rows.cpu().numpy()])


def _tell_of_unheld(bench: TrainableModel, x: torch.Tensor) -> None:
    """Warn of what the forward of a network puts in the place of its tensors and no model can hold; also in a batch of
    fewer samples, as the last one of an epoch may be."""
    bench.settle()
    if bench.left_its_place and len(x) > 2:
        with suppress(Exception), torch.no_grad():  # said where it is trained
            bench.module(x[1:])
        bench.settle()
    for sentence in bench.unheld:
        warn_user(sentence)


def _try_gradient(name: str, module: nn.Module, samples: Samples, rows: np.ndarray, compute: Compute) -> None:
    """Take one gradient of the loss of some samples, as clients do.

    Raises:
        FedscopeError: says why there is none.
    """
    bench = TrainableModel(module, compute)
    bench.draw_masks(torch.Generator(device="cpu").manual_seed(0))
    device = compute.device
    picked = torch.from_numpy(rows).to(samples.y.device)
    x, y = bench.in_own_type(samples.x[picked].to(device)), samples.y[picked].to(device)
    try:
        with compute.products(), compute.forward():
            value = mean_loss(samples.task)(bench.module, x, y)
        if value.requires_grad:
            value.backward()  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever the user's code or torch raises
        if is_out_of_memory(error):
            return  # said where clients are trained, who may have smaller batches
        raise FedscopeError(
            f"--model {name} cannot be trained on {len(y)} of {samples.label}: {describe_error(error)}"
        ) from error
    if value.requires_grad:
        _tell_of_unheld(bench, x)
        trial = TrainableModel(module, compute)
        warn_of_plain_state(module, trial, lambda: mean_loss(samples.task)(trial.module, x, y))
        return
    task = f", or the task {samples.task.name} does" if is_own_task(samples.task) else ""
    raise FedscopeError(
        f"the loss of --model {name} has no gradient: its forward computes under torch.no_grad(), or detaches what it "
        f"returns{task}; take that out"
    )
