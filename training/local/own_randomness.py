"""Random numbers of a user's own model that fedscope does not draw: they come from torch's own stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...checkpoints.io.warn_user import warn_user
from ...evaluation.seeded import forked
from .dropout_masks import MaskStream, address_dropout

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.samples import Samples


def draws_by_itself(module: nn.Module, samples: Samples) -> bool:
    """Check whether a module draws from torch's own stream while it trains: it is called once on two samples, and the
    stream is looked at.

    ``nn.Dropout`` does not count, because fedscope draws its masks. What fails here fails where it is trained, too,
    and is told there.

    >>> import numpy as np
    >>> from fedscope import Samples
    >>> samples = Samples(torch.ones(2, 3), torch.tensor([0, 1]), 2, "toy", "train", np.arange(2))
    >>> from torch import nn
    >>> layers = nn.Dropout(0.5), nn.AlphaDropout(0.5)
    >>> [draws_by_itself(nn.Sequential(nn.Linear(3, 2), layer), samples) for layer in layers]
    [False, True]
    """
    from ...evaluation.model_replica import FlatModule

    own = FlatModule(module).module.train()
    masks = MaskStream()
    address_dropout(own, masks)
    masks.begin(torch.Generator().manual_seed(0), torch.device("cpu"))
    with forked(), torch.no_grad():
        before = torch.get_rng_state()
        try:
            own(samples.x[:2])
        except Exception:  # whatever a module of the user's own raises
            return False
        return not torch.equal(torch.get_rng_state(), before)


def warn_of_draws(model: str) -> None:
    """Say what such a model's numbers depend on."""
    warn_user(
        f"model.name = {model!r} draws random numbers from torch's own stream while it trains, so its numbers differ "
        "between devices and from run to run; use nn.Dropout, whose masks fedscope draws from run.seed"
    )
