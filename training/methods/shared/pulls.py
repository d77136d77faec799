"""Terms that pull a client towards the model it was sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...guards.returned_arrays import is_own_method
from ...settings.registry import method_name

if TYPE_CHECKING:
    from ..base import ClientMethod


def pull_without_effect(method: ClientMethod, samples: Sequence[int]) -> Iterator[str]:
    """Yield that a method is SGD where no client makes a second step: at the first one it is where it was sent.

    Args:
        samples: of each client.
    """
    largest = max(samples, default=0)
    if not is_own_method(method) and method.epochs == 1 and 0 < largest <= method.batch:
        yield (
            f"client.method = {method_name(method)!r} does what sgd does here: no client makes a second step in a "
            f"round (client.epochs = 1, and client.batch = {method.batch} holds the {largest} samples of the largest), "
            "and at the first one it is the model that was sent, to which nothing pulls it; give --epochs 2, or "
            "--client sgd"
        )
