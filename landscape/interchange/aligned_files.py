"""Clients of an import whose units are brought into one order before they are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError
from ...checkpoints.recorder.coerce_models import ModelTensors
from ..alignment.step import align_weights, calibration_samples


class AlignedFiles:
    """Brings the units of a round's clients into the order of the model that they were sent, or without it into that of
    the first of them.

    Args:
        by: their ``weights`` or their ``activations``.
        first: of the clients' files, which the architecture must fit.

    Raises:
        FedscopeError: no architecture, or no data to follow its units with; a model that was made of the clients as
            they are.
    """

    def __init__(
        self,
        by: str,
        first: Path,
        *,
        model: Any,
        data: str | None,
        standardise: bool | None,
        base: Path | str | None,
        global_: Path | str | None,
    ) -> None:
        from ...training.inputs.models import resolve_models

        needed = {
            "model": (model, "units are followed through the network"),
            "data": (data, "the network is called on a few samples to follow its units"),
        }
        for option, (given, why) in needed.items():
            if given is None:
                raise FedscopeError(f"--align {by} needs --{option}, because {why}; give it, or leave out --align")
        if global_ is not None:
            raise FedscopeError(
                f"--align {by} changes the clients that --global {global_} was made of; leave one of them out"
            )
        settings = {"model": model, "data": data, "standardise": standardise, "base": base}
        source = EvaluationConfig.of("test", settings)
        posed = resolve_models([str(first)], source)
        self.by = by
        self._module, self._compute = posed.module, source.compute
        self._samples = calibration_samples(posed.dataset, posed.samples, source)
        self._layout = posed.models[0].weights.layout

    def __call__(self, start: ModelTensors | None, clients: Mapping[int, ModelTensors], /) -> dict[int, ModelTensors]:
        """Return the clients in one order; the start stays as it is."""
        numbers = sorted(clients)
        named = {**({} if start is None else {"start": start}), **{f"client-{k}": clients[k] for k in numbers}}
        given = [self._layout.flatten(one.numbers()) for one in named.values()]
        made = align_weights(self._module, self._samples, given, list(named), self.by, self._compute)
        own = made if start is None else made[1:]
        return {k: clients[k].with_numbers(one.arrays()) for k, one in zip(numbers, own, strict=True)}
