"""Networks of a user's own of which the clients of earlier versions left something out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...checkpoints.io.warn_user import warn_user
from ...evaluation.seeded import forked
from .dropout_masks import DROPOUT, has_own_forward
from .worker_model import TrainableModel

if TYPE_CHECKING:
    from torch import nn

    from ...checkpoints import Run
    from ...evaluation.samples import Samples

#: in ``run.json`` of runs that have such a network, and are trained with all of it
AS_WRITTEN = "as_written"


def was_trained_otherwise(module: nn.Module, samples: Samples) -> bool:
    """Check whether a network is one that earlier versions trained as another: without the ``forward`` and the hooks of
    its dropout layers, or without what its ``forward`` puts in the place of its tensors, for which it is called once.

    >>> import numpy as np
    >>> from torch import nn
    >>> from fedscope import Samples
    >>> samples = Samples(torch.ones(2, 3), torch.tensor([0, 1]), 2, "toy", "train", np.arange(2))
    >>> layers = nn.Dropout(0.5), type("Mine", (nn.Dropout,), {})(0.5)
    >>> [was_trained_otherwise(nn.Sequential(nn.Linear(3, 2), layer), samples) for layer in layers]
    [False, True]
    """
    for layer in module.modules():
        if isinstance(layer, DROPOUT) and (has_own_forward(layer) or layer._forward_hooks or layer._forward_pre_hooks):
            return True
    with forked(), torch.no_grad():
        bench = TrainableModel(module)
        bench.draw_masks(torch.Generator().manual_seed(0))
        try:
            bench.module(bench.in_own_type(samples.x[torch.arange(min(2, len(samples.y)))]))
        except Exception:  # whatever a module of the user's own raises: told where it is trained
            return False
        bench.settle()
    return bench.left_its_place


def tell_of_earlier_version(run: Run, module: nn.Module, samples: Samples) -> None:
    """Warn where what is trained now differs from the rounds of a run that an earlier version began."""
    if not run.info.get(AS_WRITTEN) and was_trained_otherwise(module, samples):
        warn_user(
            f"{run.path} was begun by an earlier version of fedscope, whose clients left out a part of this network "
            "(the forward or hooks of its dropout layers, or what its forward puts in the place of its tensors): "
            "clients that are trained now have it, and differ from those of the run; train it anew in another folder"
        )
