"""Random numbers of a user's own model or methods that fedscope does not draw: they come from streams that the whole
program shares."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...checkpoints.io.warn_user import warn_user
from ...evaluation.seeded import forked
from ..returned_arrays import is_own
from ..settings.registry import method_name
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


@contextmanager
def watching_draws(methods: Sequence[object]) -> Iterator[None]:
    """Say if methods of somebody's own draw from a stream that the whole program shares, of which no seed of a run is.

    Methods are not told about whose file seeds such streams.
    """
    own = [method for method in methods if is_own(method) and not _seeds(type(method))]
    before = _streams() if own else {}
    yield
    moved = [name for name, state in (_streams() if own else {}).items() if state != before[name]]
    if moved:
        warn_user(
            f"{' or '.join(map(method_name, own))} draws random numbers from {' and '.join(moved)}'s own stream, so "
            "the numbers of the run differ from run to run; draw them from a generator that is seeded by the round "
            "and the client, as np.random.default_rng((task.seed, task.round, task.client)), or (7, cohort.round)"
        )


def _streams() -> dict[str, object]:
    numpys: Any = np.random.get_state()  # noqa: NPY002
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "NumPy": [part.tobytes() if isinstance(part, np.ndarray) else part for part in numpys],
        "Python": random.getstate(),
    }


def _seeds(kind: type[object]) -> bool:
    """Check whether the file of a class seeds such a stream, as far as it can be read."""
    try:
        text = inspect.getsource(sys.modules[kind.__module__])
    except (KeyError, OSError, TypeError):
        return False
    return any(word in text for word in ("torch.manual_seed(", "random.seed(", ".set_rng_state(", ".set_state("))
