"""Networks of a user's own of which the clients of earlier versions left something out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...checkpoints.io.random_streams import undrawn
from ...checkpoints.io.warn_user import warn_user
from .dropout_masks import DROPOUT
from .worker_model import TrainableModel

if TYPE_CHECKING:
    from torch import nn

    from ...checkpoints import Run
    from ...evaluation.samples import Samples

#: in ``run.json`` of runs that have such a network, and are trained with all of it
AS_WRITTEN = "as_written"


def was_trained_otherwise(module: nn.Module, samples: Samples) -> bool:
    """Check whether a network is one that earlier versions trained as another.

    They left out the ``forward`` and the hooks of its dropout layers, put back into training those that it keeps in
    evaluation mode, and lost what its ``forward`` puts in the place of its tensors, for which it is called once.

    >>> import numpy as np
    >>> from torch import nn
    >>> from fedscope import Samples
    >>> samples = Samples(torch.ones(2, 3), torch.tensor([0, 1]), 2, "toy", "train", np.arange(2))
    >>> layers = nn.Dropout(0.5), type("Mine", (nn.Dropout,), {"forward": lambda self, x: x / 2})(0.5)
    >>> [was_trained_otherwise(nn.Sequential(nn.Linear(3, 2), layer), samples) for layer in layers]
    [False, True]
    """
    for layer in module.modules():
        if isinstance(layer, DROPOUT) and (_is_overridden(layer) or layer._forward_hooks or layer._forward_pre_hooks):
            return True
    with undrawn(module.modules()), torch.no_grad():
        try:
            bench = TrainableModel(module)
            if any(isinstance(layer, DROPOUT) and layer.p and not layer.training for layer in bench.module.modules()):
                return True  # kept so by a train() of the network's own
            bench.draw_masks(torch.Generator().manual_seed(0))
            bench.module(bench.in_own_type(samples.x[torch.arange(min(2, len(samples.y)))]))
        except Exception:  # whatever a module of the user's own raises: told where it is trained
            return False
        bench.settle()
    return bench.left_its_place


def _is_overridden(layer: nn.Module) -> bool:
    """Check whether a dropout layer computes by a ``forward`` of its own."""
    return "forward" in vars(layer) or all(type(layer).forward is not kind.forward for kind in DROPOUT)


def tell_of_earlier_version(run: Run, module: nn.Module, samples: Samples) -> None:
    """Warn where what is trained now differs from the rounds of a run that an earlier version began."""
    if not run.info.get(AS_WRITTEN) and was_trained_otherwise(module, samples):
        warn_user(
            f"{run.path} was begun by an earlier version of fedscope, whose clients trained this network "
            "otherwise (the forward, hooks or mode of its dropout layers, or what its forward puts in the place of its "
            "tensors): clients that are trained now differ from those of the run; train it anew in another folder"
        )
