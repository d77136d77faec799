"""Random numbers of a user's own model or methods that fedscope does not draw: they come from streams that the whole
program shares."""

from __future__ import annotations

import inspect
import random
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...checkpoints.io.warn_user import warn_user
from ...evaluation.seeded import forked
from ..guards.returned_arrays import is_own_method
from ..settings.code_source import source_of
from ..settings.registry import method_name
from .dropout_masks import MaskStream, address_dropout

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.samples import Samples

#: how a client's generator is made, for sentences: without the draw, replays of a round would meet the same noise
CLIENT_SEED = "np.random.default_rng((task.seed, task.round, task.client, task.draw))"
#: likewise a server's: without the seed, runs of several seeds would
SERVER_SEED = "np.random.default_rng((cohort.seed, cohort.round))"


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
            own(samples.x[torch.arange(min(2, len(samples.y)))])  # a copy, as a layer may write to it
        except Exception:  # whatever a module of the user's own raises
            return False
        return not torch.equal(torch.get_rng_state(), before)


def warn_of_draws(model: str) -> None:
    """Say what such a model's numbers depend on."""
    warn_user(
        f"model.name = {model!r} draws random numbers from torch's own stream while it trains, so its numbers differ "
        "between devices and from run to run; use nn.Dropout, whose masks fedscope draws from run.seed"
    )


def unseeded(methods: Sequence[object]) -> list[object]:
    """Return the methods that are somebody's own, but for those whose files seed the streams that the program shares;
    it reads these files."""
    return [method for method in methods if is_own_method(method) and not _seeds(type(method))]


@contextmanager
def watching_draws(own: Sequence[object]) -> Iterator[None]:
    """Say if in a round of methods of somebody's own numbers are drawn from a stream that the whole program shares,
    which no seed of a run sets.

    Who draws is not known (the methods, what they call, a loss), nor whether a number of the run depends on it.

    Args:
        own: what :func:`unseeded` leaves.
    """
    before = _streams() if own else {}
    yield
    moved = [name for name, state in (_streams() if own else {}).items() if state != before[name]]
    if moved:
        warn_user(
            f"a round of {' and '.join(map(method_name, own))} drew random numbers from {' and '.join(moved)}'s own "
            "stream, which no seed of the run sets: where its numbers depend on them, they differ from run to run; "
            f"draw them from a generator with a seed of its own in each round: of a client {CLIENT_SEED}, of a server "
            f"{SERVER_SEED}, or torch.Generator().manual_seed(...) with a number drawn from it"
        )


def _streams() -> dict[str, object]:
    numpys: Any = np.random.get_state()  # noqa: NPY002
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "NumPy": [part.tobytes() if isinstance(part, np.ndarray) else part for part in numpys],
        "Python": random.getstate(),
    }


#: a call by which a stream is seeded or put back, as ``torch.manual_seed(``, ``np.random.seed(`` or a helper's
#: ``seed_all(``; of a generator of one's own, ``g.manual_seed(``, none
_SEEDING = re.compile(
    r"\b(torch|random|cuda)\.\w*seed\w*\(|\.seed_\w+\(|(?<!def )(?<![\w.])\w*seed\w*\(|set_(rng_)?state\(|setstate\("
)


def _seeds(kind: type[object]) -> bool:
    """Check whether a class, its file, or one of one's own that it imports seeds such a stream, as far as they can be
    read."""
    texts = [one.text for one in source_of(kind).imports]
    for thing in (kind, sys.modules.get(kind.__module__)):
        with suppress(OSError, TypeError):
            texts.append(inspect.getsource(thing))  # type: ignore[arg-type]
    return any(_SEEDING.search(text) for text in texts)
