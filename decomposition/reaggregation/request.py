"""The request for a round aggregated again: rows of servers, and what they are measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...analysis.execution import Execution
from ...analysis.run_identity import identity
from ...analysis.settings import EvaluationConfig
from ...checkpoints import Run, Weights
from ...evaluation.device import precision_of
from ...landscape.alignment.step import align_weights, calibration_samples
from ...training.inputs.samples import (
    averaged_statistics,
    common_samples,
    dataset_of,
    describe_samples,
    given_settings,
    module_for,
)
from ...training.inputs.statistics import measured_statistics, statistics_settings
from .provenance import described, kept_by_others, sources_of
from .requested_servers import AskedServer, refuse_torn
from .result import Reaggregation

if TYPE_CHECKING:
    from ...evaluation.samples import Samples
    from ...training.config.config import Config
    from .aggregate import EvaluationData


@dataclass(frozen=True)
class ReaggregationRequest:
    """A recorded round and the servers that aggregate it.

    Attributes:
        servers: the names of those of rows.
        rows: one a server, each with the parts of the model where servers go by layer.
        configs: by server, those of layers among them: its configuration, and what it is called.
        from_state: begin with the state that the run's own server had before the round.
        align: ``none``, ``weights`` or ``activations``.
        normalization: where averages have running statistics from.
    """

    run: Run
    number: int
    servers: Sequence[str]
    rows: Sequence[AskedServer]
    configs: Mapping[str, tuple[Config, str]]
    source: EvaluationConfig
    from_state: bool = False
    align: str = "none"
    normalization: str = "averaged"

    def ready(self) -> tuple[dict[str, Any], Callable[[dict[str, Any], Execution], Reaggregation]]:
        """Read the samples and prepare the provenance and the function that aggregates and measures.

        Raises:
            FedscopeError: a run without data; layers of which two servers would hold one tensor.
        """
        from ...evaluation.tied_parameters import tied_names
        from .aggregate import EvaluationData

        dataset = dataset_of([self.run], self.source)
        samples, module = common_samples([self.run], dataset, self.source), module_for(self.run, self.source, dataset)
        for row in self.rows:
            refuse_torn(row.parts, tied_names(module))
        keeps, code = kept_by_others(self.configs), sources_of(self.configs)
        settings: dict[str, Any] = {
            "run": identity(self.run, [self.number - 1, self.number] if self.from_state else [self.number]),
            "round": self.number,
            "servers": list(self.servers),
            "settings": [row.config.tables()["server"] for row in self.rows],
            **(described(self.rows) if self.rows[0].parts else {}),
            "from_state": self.from_state,
            **({"align": self.align} if self.align != "none" else {}),
            **statistics_settings(self.source, self.normalization, module, dataset),
            **({"keeps": keeps} if keeps else {}),
            **({"code": code} if code else {}),
            **given_settings([self.run], self.source, module=module),
            **describe_samples(samples, self.source.seed if self.source.limit else None),
            "device": self.source.compute.name,
            "precision": precision_of(module, self.source.precision),
        }
        return settings, partial(self._answer, samples, EvaluationData(module, dataset, self.source.compute))

    def _answer(
        self, samples: Samples, measuring: EvaluationData, attrs: dict[str, Any], work: Execution
    ) -> Reaggregation:
        from .measure import measure_servers

        module, dataset = measuring.module, measuring.dataset
        statistics = measured_statistics(module, dataset, self.source, self.normalization)
        return measure_servers(
            self.run,
            self.number,
            self.rows,
            samples,
            measuring=measuring,
            from_state=self.from_state,
            attrs={**attrs, **averaged_statistics([self.run], statistics)},
            measured=statistics,
            aligned=None if self.align == "none" else partial(self._aligned, samples, measuring),
        )

    def _aligned(self, samples: Samples, measuring: EvaluationData, models: list[Weights]) -> list[Weights]:
        names = [f"client {k}" for k in self.run.round(self.number).client_ids]
        labels = ["the start", *names][-len(models) :]
        calibration = calibration_samples(measuring.dataset, samples, self.source)
        return align_weights(measuring.module, calibration, models, labels, self.align, self.source.compute)
