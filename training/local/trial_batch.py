"""A few samples through a network before a run is begun: what fails on them would fail after the run's folder is made,
and the folder would be in the way of the next try."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...checkpoints import FedscopeError
from ...evaluation.accelerators import is_out_of_memory
from ...evaluation.criteria import LabelCriterion
from ...evaluation.evaluator import Evaluator
from ...evaluation.seeded import forked
from ...evaluation.standard_tasks import PADDED, is_own
from ..import_string import describe_error
from .optimisers import may_need_no_gradient
from .worker_model import TrainableModel, mean_loss

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.device import Compute
    from ...evaluation.samples import Samples
    from .. import Dataset
    from ..methods.base import ClientMethod

_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)

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
    with forked(), _undrawn(module):
        if len(data.y_test):
            Evaluator(module, _few(data.samples("test")), compute=compute.exact)
        if rows is not None:
            _try_gradient(name, module, data.samples("train"), rows, compute.on(0))


def _few(samples: Samples) -> Samples:
    """Take the first samples that count, of which a criterion may ignore some."""
    if not isinstance(samples.task, LabelCriterion):
        return replace(samples, x=samples.x[:MEASURED], y=samples.y[:MEASURED], indices=samples.indices[:MEASURED])
    rows = torch.nonzero(samples.y != PADDED)[:MEASURED, 0]
    there = rows.to(samples.x.device)
    return replace(samples, x=samples.x[there], y=samples.y[rows], indices=samples.indices[rows.cpu().numpy()])


@contextmanager
def _undrawn(module: nn.Module) -> Iterator[None]:
    """Whatever is drawn meanwhile, NumPy's and Python's generators and a network's are what they were before."""
    held = list(_generators_of(module))
    ours, states = random.getstate(), [_state_of(one) for one in held]
    numpys = np.random.get_state()  # noqa: NPY002 - the stream that somebody else's code draws from
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)  # noqa: NPY002
        for one, state in zip(held, states, strict=True):
            _set_state(one, state)


def _generators_of(module: nn.Module) -> Iterator[Any]:
    """Yield the generators that a network's layers, their classes and the modules of these name; each once."""
    layers = [*module.modules()]
    classes = {kind for layer in layers for kind in type(layer).__mro__ if not kind.__module__.startswith("torch.")}
    files = {kind.__module__ for kind in classes} & sys.modules.keys()
    found: dict[int, Any] = {}
    for holder in [*layers, *classes, *(sys.modules[name] for name in files)]:
        found.update((id(one), one) for one in [*vars(holder).values()] if isinstance(one, _GENERATORS))
    # the system's has no state
    yield from (one for one in found.values() if not isinstance(one, random.SystemRandom))


def _state_of(one: Any) -> Any:
    if isinstance(one, torch.Generator):
        return one.get_state()
    return one.bit_generator.state if isinstance(one, np.random.Generator) else one.__getstate__()


def _set_state(one: Any, state: Any) -> None:
    if isinstance(one, torch.Generator):
        one.set_state(state)
    elif isinstance(one, np.random.Generator):
        one.bit_generator.state = state
    else:
        one.__setstate__(state)


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
            return
    except Exception as error:  # whatever the user's code or torch raises
        if is_out_of_memory(error):
            return  # said where clients are trained, who may have smaller batches
        raise FedscopeError(
            f"--model {name} cannot be trained on {len(y)} of {samples.label}: {describe_error(error)}"
        ) from error
    task = f", or the task {samples.task.name} does" if is_own(samples.task) else ""
    raise FedscopeError(
        f"the loss of --model {name} has no gradient: its forward computes under torch.no_grad(), or detaches what it "
        f"returns{task}; take that out"
    )
