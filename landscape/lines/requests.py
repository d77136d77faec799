"""Lines that are to be measured: between pairs of models, or by layer in each of a run's rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from ...analysis.analysis import SettingsAndCompute
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.run_identity import identity
from ...analysis.settings import EvaluationConfig
from ...training.inputs.data_of import SampleSet
from ...training.inputs.models import (
    ModelLike,
    ResolvedModels,
    calibration_of,
    calibration_settings,
    load_into_same,
    resolve_models,
)
from .. import Connectivity, LayerLine, LayerRounds, Line
from ..alignment.step import align_resolved
from ..run_alone import ChosenRounds
from .layer_rounds import RoundBarriers, round_barriers
from .whose_data import read_sets

if TYPE_CHECKING:
    from ...evaluation.samples import Samples
    from .layers import LayerLines

    Lines = Line | LayerLine

#: a round's progress is told in so many parts
SHARES = 1000


@dataclass(frozen=True)
class LineSettings:
    """How lines are measured.

    Attributes:
        points: on a line; span: its ends, as β.
        normalization: where BatchNorm statistics come from.
        align: what units are brought into one order by before, or ``none``.
        layers: the only ones that move; None: all.
        source: the samples and the device.
        sets: the samples of clients; none: those of the source.
    """

    points: int
    span: tuple[float, float]
    normalization: str
    align: str
    layers: str | None
    source: EvaluationConfig
    sets: Sequence[SampleSet]

    @property
    def betas(self) -> np.ndarray:
        """The points."""
        from ... import landscape

        return landscape.betas_on(self.span, self.points)

    def aligned(self) -> dict[str, Any]:
        """Return what a result says of the order of units; nothing where they stay."""
        return {"align": self.align} if self.align != "none" else {}


@dataclass(frozen=True)
class PairsRequest:
    """Lines between pairs of models, those of a round's ``clients`` among each other."""

    models: Sequence[ModelLike]
    how: LineSettings
    clients: bool = False

    def ready(self) -> SettingsAndCompute[Line | LayerLine | LayerRounds]:
        """Prepare the provenance, and the function that measures the lines.

        Raises:
            FedscopeError: models or samples that cannot be read.
        """
        how = self.how
        resolved = resolve_models(self.models, how.source)
        samples, about = read_sets(how.sets, resolved, how.source)
        settings = {
            **resolved.settings,
            **about,
            "points": how.points,
            "range": list(how.span),
            "normalization": how.normalization,
            **calibration_settings(resolved, how.source, how.normalization),
            **({"layers": how.layers} if how.layers is not None else {}),
            **how.aligned(),
        }
        return settings, partial(self._answer, resolved, samples)

    def _answer(
        self, resolved: ResolvedModels, samples: Mapping[str, Samples], attrs: dict[str, Any], work: Execution
    ) -> Lines:
        from ... import landscape

        how = self.how
        models = align_resolved(resolved, how.source, how.align)
        with work.progress("line") as report:
            measured: dict[str, Any] = {
                "betas": np.union1d(how.betas, [0.5]) if self.clients else how.betas,
                "normalization": how.normalization,
                "calibration": calibration_of(resolved, how.source, how.normalization),
                "compute": how.source.compute,
                "progress": report,
                "partial": work.keep,
                "provenance": attrs,
            }
            if how.layers is not None:
                pair = (models[0], models[1])
                return landscape.layer_lines(resolved.module, _only(samples), pair, layers=how.layers, **measured)
            pairs = combinations(models, 2) if self.clients else zip(models[::2], models[1::2], strict=False)
            on = _only(samples) if len(samples) == 1 else samples
            lines = landscape.line(resolved.module, on, list(pairs), **measured)
        return Connectivity(**vars(lines)) if self.clients else lines


@dataclass(frozen=True)
class LayerRoundsRequest:
    """The barriers of layers in each of a run's rounds."""

    over: ChosenRounds
    how: LineSettings

    @property
    def numbers(self) -> list[int]:
        """The rounds."""
        return list(self.over.pairs)

    def ready(self) -> SettingsAndCompute[Line | LayerLine | LayerRounds]:
        """Prepare the provenance, and the function that measures the rounds.

        Raises:
            FedscopeError: models or samples that cannot be read.
        """
        how = self.how
        resolved = resolve_models(self.over.pairs[self.numbers[0]], how.source)
        samples, about = read_sets(how.sets, resolved, how.source)
        own = ("addresses", "models_sha256", "run")
        settings: dict[str, Any] = {
            **{name: value for name, value in resolved.settings.items() if name not in own},
            **about,
            **{
                "run": identity(resolved.runs[0], self.numbers),
                "rounds": self.numbers,
                "layers": how.layers,
                "points": how.points,
            },
            **{"range": list(how.span), "normalization": how.normalization},
            **calibration_settings(resolved, how.source, how.normalization),
            **how.aligned(),
        }
        return settings, partial(self._answer, resolved, _only(samples), settings)

    def _answer(
        self,
        resolved: ResolvedModels,
        samples: Samples,
        settings: Mapping[str, Any],
        attrs: dict[str, Any],
        work: Execution,
    ) -> LayerRounds:
        from ... import landscape

        how = self.how
        assert how.layers is not None
        lines = landscape.LayerLines(
            resolved.module,
            samples,
            layers=how.layers,
            betas=how.betas,
            normalization=how.normalization,
            calibration=calibration_of(resolved, how.source, how.normalization),
            compute=how.source.compute,
        )
        with work.store(settings, *ROUNDS) as store:
            found = work.each("line", [self._round(resolved, lines, number) for number in self.numbers], store)
        said: dict[str, Any] = {"normalization_policy": lines.policy_of(resolved.models[0]).policy}
        said |= {"left_out": [self.over.left_out]} if self.over.left_out else {}
        return LayerRounds(tuple(cell for own in found for cell in own.cells), self.over.ends, {**attrs, **said})

    def _round(self, resolved: ResolvedModels, lines: LayerLines, number: int) -> WorkUnit[RoundBarriers]:
        def measure(report: Report) -> RoundBarriers:
            first = number == self.numbers[0]
            pair = resolved.models if first else load_into_same(resolved, self.over.pairs[number])
            a, b = align_resolved(replace(resolved, models=tuple(pair)), self.how.source, self.how.align)
            found = lines.between((a, b), progress=lambda done, of: report(SHARES * done // of, SHARES))
            return round_barriers(number, found)

        return WorkUnit(str(number), RoundBarriers, measure, SHARES)


def _only(samples: Mapping[str, Samples]) -> Samples:
    return next(iter(samples.values()))
