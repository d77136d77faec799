"""Clients of an import whose units are brought into one order before they are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...checkpoints import FedscopeError
from ...checkpoints.recorder.coerce_models import ModelTensors
from ..alignment.step import calibration_samples
from .network_of_files import NetworkFor, NetworkOfFiles

#: what the network and the data are needed for
WHY = "units are followed through the network", "the network is called on a few samples to follow its units"


def aligned_files(by: str, network: NetworkFor, *, global_: Path | str | None) -> AlignedFiles:
    """Return what aligns clients by their ``weights`` or their ``activations``.

    Raises:
        FedscopeError: a model that was made of the clients as they are; as :func:`~.network_of_files.network_of_files`.
    """
    if global_ is not None:
        raise FedscopeError(
            f"--align {by} changes the clients that --global {global_} was made of; leave one of them out"
        )
    return AlignedFiles(by, network(f"--align {by}", WHY))


class AlignedFiles:
    """Brings the units of a round's clients into the order of the model that they were sent, or without it into that of
    the first of them.

    Args:
        by: their ``weights`` or their ``activations``.
    """

    def __init__(self, by: str, network: NetworkOfFiles) -> None:
        self.by = by
        self._network = network
        self._samples = calibration_samples(network.dataset, network.samples, network.source)

    def __call__(self, start: ModelTensors | None, clients: Mapping[int, ModelTensors], /) -> dict[int, ModelTensors]:
        """Return the clients in one order; the start stays as it is."""
        from ..alignment.measure_alignment import Aligner

        numbers = sorted(clients)
        named = {**({} if start is None else {"start": start}), **{f"client-{k}": clients[k] for k in numbers}}
        given = [self._network.layout.flatten(one.numbers()) for one in named.values()]
        aligner = Aligner(self._network.module, self._samples, self._network.compute)
        # matched in the network's precision, and moved in that of the files
        own = [one.numbers() for one in named.values()]
        made = aligner.moved(given, list(named), self.by, "first", own)
        return {
            k: named[f"client-{k}"].with_numbers(one) for k, one in zip(numbers, made[-len(numbers) :], strict=True)
        }
