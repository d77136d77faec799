"""The request for averages of some of a round's clients: what is asked for, and its loop over rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.run_identity import identities
from ...analysis.settings import EvaluationConfig
from ...checkpoints import Round, Run, Weights
from ...evaluation.device import precision_of
from ...landscape.alignment.step import align_weights, calibration_samples
from ...training.inputs.data_of import RunData, SampleSet, describe_sets, read_sets
from ...training.inputs.samples import (
    averaged_statistics,
    common_samples,
    dataset_of,
    describe_samples,
    given_settings,
    module_for,
)
from ...training.inputs.statistics import measured_statistics, statistics_settings
from .result import RoundSubsets, Subsets, SubsetsAtPlaces

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.measured_statistics import MeasuredStatistics
    from ...evaluation.samples import Samples
    from ...training.data.dataset import Dataset


@dataclass(frozen=True)
class RoundSizes:
    """A round, and the sizes m of the subsets of its clients."""

    run: Run
    number: int
    sizes: tuple[int, ...]

    @property
    def round(self) -> Round:
        """Its record."""
        return self.run.round(self.number)


@dataclass(frozen=True)
class SubsetsRequest:
    """Averages to form and the samples to measure them on.

    Attributes:
        runs: all that are given; rounds: of all of them, with the sizes of each.
        sizes: as they were asked for: a finished round is the same whatever the others' sizes are.
        subsets: how many of a size.
        weights: ``samples`` or ``uniform``.
        data_of: whose training data; places: of each round. None: samples of a split.
        align: ``none``, ``weights`` or ``activations``.
        normalization: where averages have running statistics from.
    """

    runs: Sequence[Run]
    rounds: Sequence[RoundSizes]
    source: EvaluationConfig
    sizes: str | Sequence[int] | None = None
    subsets: int = 20
    weights: str = "samples"
    data_of: str | None = None
    places: Sequence[Sequence[SampleSet]] | None = None
    align: str = "none"
    normalization: str = "averaged"

    def ready(self) -> tuple[dict[str, Any], Callable[[dict[str, Any], Execution], Subsets]]:
        """Read the samples and prepare the provenance and the function that measures every round's averages.

        Raises:
            FedscopeError: runs without data, or with other data; samples that there are not.
        """
        material = self._material()
        module = material.modules[self.runs[0].name]
        settings: dict[str, Any] = {
            "run": identities(self.runs, [(one.run, one.number) for one in self.rounds]),
            "rounds": [[one.run.name, one.number] for one in self.rounds],
            "sizes": [list(one.sizes) for one in self.rounds],
            "subsets": self.subsets,
            "weights": self.weights,
            **({"align": self.align} if self.align != "none" else {}),
            **statistics_settings(self.source, self.normalization, module, material.dataset),
            **given_settings(self.runs, self.source, module=module),
            **material.about,
            "device": self.source.compute.name,
            "precision": precision_of(module, self.source.precision),
        }
        return settings, partial(self._answer, material, settings)

    def _material(self) -> Material:
        dataset = dataset_of(self.runs, self.source)
        modules = {run.name: module_for(run, self.source, dataset) for run in self.runs}
        if self.places is None:
            samples = common_samples(self.runs, dataset, self.source)
            return Material(dataset, modules, samples, None, describe_samples(samples, self.source.seed))
        every = [one for own in self.places for one in own]
        read = read_sets(RunData(tuple(self.runs), dataset), self.source, every)
        samples, _ = next(iter(read.values()))
        by_name = {name: own for name, (own, _) in read.items()}
        return Material(dataset, modules, samples, by_name, {**describe_sets(read), "data_of": self.data_of})

    def _answer(
        self, material: Material, settings: Mapping[str, Any], attrs: dict[str, Any], work: Execution
    ) -> Subsets:
        statistics = {
            name: measured_statistics(module, material.dataset, self.source, self.normalization)
            for name, module in material.modules.items()
        }
        several = list(self.sizes) if isinstance(self.sizes, Iterable) else [self.sizes]
        asked = self.sizes if self.sizes is None or isinstance(self.sizes, str) else several
        with work.store({**settings, "sizes": asked}, *ROUNDS) as store:
            tasks = [self._task(i, material, statistics[one.run.name]) for i, one in enumerate(self.rounds)]
            made: list[Any] = list(work.each("subsets", tasks, store))
        found: list[RoundSubsets] = made if self.places is None else [one for own in made for one in own.places]
        weights, found = self._say_weights(found)
        return Subsets(tuple(found), weights, {**attrs, **averaged_statistics(self.runs, *statistics.values())})

    def _task(self, i: int, material: Material, measured: MeasuredStatistics | None) -> WorkUnit[Any]:
        """A round."""
        run, number, sizes = self.rounds[i].run, self.rounds[i].number, self.rounds[i].sizes
        module = material.modules[run.name]

        def measure(report: Report) -> RoundSubsets | SubsetsAtPlaces:
            from .averages import round_subsets, subsets_at

            how: dict[str, Any] = {
                # another program may weigh its clients as it likes
                "weights": weights_of(run.round(number), run, self.weights),
                "aligned": None if self.align == "none" else partial(self._aligned, self.rounds[i], material),
                "measured": measured,
                "run": run.name,
                "sizes": sizes,
                "subsets": self.subsets,
                # not the run: those with the same cohorts meet the same subsets
                "seed": (self.source.seed, number),
                "compute": self.source.compute,
                "progress": report,
            }
            if self.places is None or material.by_place is None:
                return round_subsets(module, material.samples, run.round(number), **how)
            there = {one.name: material.by_place[one.name] for one in self.places[i]}
            return subsets_at(module, there, run.round(number), own=self.data_of == "own", **how)

        models = models_in(sizes, len(run.round(number).client_ids), self.subsets)
        kind: type[Any] = RoundSubsets if self.places is None else SubsetsAtPlaces
        return WorkUnit(f"{run.path}@{number}", kind, measure, models)

    def _aligned(self, asked: RoundSizes, material: Material, clients: list[Weights]) -> list[Weights]:
        names = [f"client {k}" for k in asked.round.client_ids]
        calibration = calibration_samples(material.dataset, material.samples, self.source)
        module = material.modules[asked.run.name]
        return align_weights(module, calibration, clients, names, self.align, self.source.compute)

    def _say_weights(self, found: Sequence[RoundSubsets]) -> tuple[str, list[RoundSubsets]]:
        """Return how the averages are weighed, and the rounds, of which those say it that are weighed otherwise."""
        by_name = {run.name: run for run in self.runs}
        words = [weights_of(by_name[one.run].round(one.round), by_name[one.run], self.weights) for one in found]
        alike = words[0] if len(set(words)) == 1 else self.weights
        return alike, [
            replace(one, weights=word if word != alike else "") for one, word in zip(found, words, strict=True)
        ]


@dataclass(frozen=True)
class Material:
    """Data and networks of a request.

    Attributes:
        modules: a run's network by its name.
        samples: those of the split, or of the first place; units are brought into one order by them.
        by_place: those of each place; None where no place is asked for.
        about: what the result says of them.
    """

    dataset: Dataset
    modules: Mapping[str, nn.Module]
    samples: Samples
    by_place: Mapping[str, Samples] | None
    about: dict[str, Any]


def weights_of(round_: Round, run: Run, weights: str) -> str:
    """Say how averages of a round weigh their clients: ``samples``, ``uniform``, or ``recorded`` where another program
    weighed them otherwise than by their samples."""
    from .averages import shares_of

    if weights != "samples" or not run.is_foreign:
        return weights
    by_samples = round_.has("client_samples") and np.array_equal(shares_of(round_, "recorded"), round_.client_samples)
    return "samples" if by_samples else "recorded"


def models_in(sizes: Sequence[int], clients: int, subsets: int) -> int:
    """Count the averages of a round."""
    return sum(min(subsets, comb(clients, m)) for m in sizes)
