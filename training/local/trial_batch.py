"""A few samples through a network before a run is begun: what fails on them would fail after the run's folder is made,
and the folder would be in the way of the next try."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ...checkpoints import FedscopeError
from ...evaluation.accelerators import is_out_of_memory
from ...evaluation.evaluator import Evaluator
from ...evaluation.seeded import forked
from ...evaluation.standard_tasks import is_own
from ..import_string import describe_error
from .worker_model import TrainableModel, mean_loss

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.device import Compute
    from ...evaluation.samples import Samples
    from .. import Dataset

#: samples that are tried
TRIED = 8


def try_batch(name: str, module: nn.Module, data: Dataset, compute: Compute, *, own: bool) -> None:
    """Measure a network on a few test samples, and of the user's own code take a gradient on a few training samples.

    Nothing of the module, of torch's random numbers or of the data changes. A cluster's workers may have devices that
    are not here, so there nothing is tried.

    Args:
        name: of the model, for sentences; own: whether the model or the task is the user's own code.

    Raises:
        FedscopeError: a network that does not take the samples, or whose outputs the task does not; one in which no
            gradient reaches a parameter.
    """
    if compute.cluster is not None:
        return
    with forked():
        if len(data.y_test):
            Evaluator(module, _few(data.samples("test")), compute=compute.exact)
        if own and len(data.y_train) > 1:
            _try_gradient(name, module, _few(data.samples("train")), compute.on(0))


def _few(samples: Samples) -> Samples:
    return replace(samples, x=samples.x[:TRIED], y=samples.y[:TRIED], indices=samples.indices[:TRIED])


def _try_gradient(name: str, module: nn.Module, samples: Samples, compute: Compute) -> None:
    """Take one gradient of the loss, as clients do.

    Raises:
        FedscopeError: says why there is none.
    """
    bench = TrainableModel(module, compute)
    bench.draw_masks(torch.Generator(device="cpu").manual_seed(0))
    device = compute.device
    x, y = bench.in_own_type(samples.x[:TRIED].to(device)), samples.y.to(device)
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
