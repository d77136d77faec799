"""Locality by layer: what averaging the weights of some layers adds to averaging the clients' outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ...checkpoints import Partition, Round, Weights, weighted_mean
from ...checkpoints.models.layer_selections import Selection
from ...checkpoints.models.weights import taking_part
from ...evaluation.device import CPU, Compute
from ...evaluation.samples import Samples
from ...evaluation.standard_tasks import Regression
from ...evaluation.tied_parameters import tied_names
from ...evaluation.validation import with_outputs
from ..draws.cohort_draws import CohortDraws
from .bias_variance_covariance_locality import mean_error
from .decompose_round import ShownOutputs, round_factors
from .gram import Array, unweighted_as_0
from .layer_rows import LayerFactors, RoundLayerFactors
from .model_outputs import Chunk, model_outputs
from .rows import FACTORS, FactorRow, Outputs, RoundFactors

Progress = Callable[[int, int], None]


def round_layer_factors(
    module: nn.Module,
    samples: Samples,
    cohort: CohortDraws,
    round_: Round,
    partition: Partition | None,
    selections: Sequence[Selection],
    *,
    outputs: Outputs = "probabilities",
    population: bool,
    compute: Compute = CPU,
    progress: Progress | None = None,
    **settings: Any,
) -> RoundLayerFactors:
    """Compute the factors of a recorded round for selections of layers, of which the last is all layers.

    For a selection S of layers let w_k^r(S) be client k's model in draw r with the tensors of S (parameters and
    statistics) replaced by those of the average w_FMA^r = Σ_k p_k w_k^r, and the others left as they are: only S is
    averaged. These models answer together, and

        WENS_S^r    = Σ_k p_k f(w_k^r(S))
        locality_S  = mean_r [L(WENS_S^r) − L(WENS^r)]

    Without a layer, WENS_S is the ensemble of the clients' outputs, WENS, and locality 0. With all layers every
    w_k^r(S) is w_FMA^r, so that WENS_S^r = f(w_FMA^r) and locality_S is the locality of
    :func:`~fedscope.decomposition.decompose_round`. So it says what the step from averaged outputs to averaged weights
    does when it is taken in S alone. The other factors are those of the clients' models, which no selection changes,
    and every selection closes:

        bias + variance + covariance               = mean_r L(WENS^r)
        bias + variance + covariance + locality_S  = mean_r L(WENS_S^r)

    in both kinds of estimates, with the right sides measured from the outputs. Localities of single layers do not add
    up to that of all: layers act on each other.

    The rows of a selection are those of the factors with its own ``locality``; ``ensemble_loss``, L(WENS);
    ``fma_loss``, mean_r L(WENS_S^r); ``delta_max`` and ``delta_mean``, the distances ‖w_k^r − w_FMA^r‖ in the
    parameters of S alone, whose squares do add up over layers; and ``closure_error``. Those of all layers are today's
    rows of the whole, bit for bit. Standard errors are of the same two kinds; that over samples is of the differences
    of each sample's losses.

    Tensors that the module holds under two names (tied weights) are averaged together.

    Args:
        selections: see :func:`~fedscope.checkpoints.models.layer_selections.selections_of`, of the run's layout.
        population: whether `samples` are all of D.
        progress: called with (samples done, of) of all selections after every chunk.
        settings: others of :func:`~fedscope.decomposition.round_factors`, of the squared loss.

    Raises:
        FedscopeError: models that do not fit.
    """
    samples = with_outputs(module, samples)
    shown = ShownOutputs(isinstance(samples.task, Regression), outputs, samples.classes)
    p = torch.from_numpy(np.asarray(cohort.p, dtype=np.float64))
    apart: list[torch.Tensor] = []

    def watch(part: Chunk) -> None:
        apart.append(_losses(shown, part.clients, part.y, p))

    passes = _Passes(progress, len(selections))
    whole = round_factors(
        module,
        samples,
        cohort,
        round_,
        partition,
        outputs=outputs,
        population=population,
        compute=compute,
        progress=passes.next(),
        watch=watch,
        **settings,
    )
    averages = [weighted_mean(draw, cohort.p) for draw in cohort.draws]
    squares = _squared_distances(cohort, averages)
    tied = tied_names(module)
    cells = []
    for selection in selections[:-1]:
        names = selection.names.union(*(tied.get(name, ()) for name in selection.names))
        models = PartlyAveraged(cohort.draws, averages, names)
        own = []
        for rows, logits in model_outputs(
            module, samples, models, {}, number=cohort.round, compute=compute, progress=passes.next()
        ):
            f, y, _ = samples.task.positions(logits, samples.y[rows])
            own.append(_losses(shown, f.reshape(-1, cohort.count, *f.shape[1:]), y.to(f.device), p))
        distance = np.sqrt(sum((squares[name] for name in selection.parameters), np.zeros(squares[""].shape)))
        far = distance[taking_part(np.asarray(cohort.p))]
        measured = _Measured(torch.cat(apart, dim=1).numpy(), torch.cat(own, dim=1).numpy(), far)
        cells.append(LayerFactors(selection.label, selection.size, measured.rows(cohort, whole, population)))
    cells.append(LayerFactors(selections[-1].label, selections[-1].size, whole.rows))
    return RoundLayerFactors.of(whole, cells)


class PartlyAveraged(Sequence[Weights]):
    """The clients' models of all draws with some tensors averaged, client by client; each is formed when it is asked
    for, so that a worker holds one."""

    def __init__(self, draws: Sequence[Weights], averages: Sequence[Weights], names: frozenset[str]) -> None:
        self._draws, self._averages, self._names = draws, averages, names

    def __len__(self) -> int:
        return len(self._draws) * len(self._draws[0])

    def __getitem__(self, i: int) -> Weights:  # type: ignore[override]
        if not 0 <= i < len(self):
            raise IndexError(i)
        client, draw = divmod(i, len(self._draws))
        model, average = self._draws[draw].row(client), self._averages[draw]
        parameters = np.array(model.parameters)
        for name, where in model.layout.slices.items():
            if name in self._names:
                parameters[where] = average.parameters[where]
        buffers = {
            name: average.buffers[name] if name in self._names else values for name, values in model.buffers.items()
        }
        return Weights(model.layout, parameters, buffers)


@dataclass(frozen=True)
class _Measured:
    """What is measured of a selection.

    Attributes:
        apart: the loss of WENS^r on every sample, [R, n]; own: that of WENS_S^r.
        distance: ‖w_k^r − w_FMA^r‖ in the selection [K, R], of clients with a weight.
    """

    apart: Array
    own: Array
    distance: Array

    def rows(self, cohort: CohortDraws, whole: RoundFactors, population: bool) -> tuple[FactorRow, ...]:
        """Make the rows: those that no selection changes, from the whole, and this one's."""
        jackknife = cohort.independent and cohort.count >= 3
        apart, own = self.apart.mean(axis=1), self.own.mean(axis=1)
        locality = own - apart

        def row(factor: str, kind: str, values: Array, by_sample: Array | None = None) -> FactorRow:
            over_samples = None if population or by_sample is None else _sample_error(by_sample.mean(axis=0))
            return FactorRow(
                factor, kind, float(values.mean()), mean_error(values) if jackknife else None, over_samples
            )

        known = {(one.factor, one.estimate): one for one in whole.rows}
        rows = []
        for kind in ("plugin", "unbiased"):
            for factor in FACTORS:
                given = known[factor, kind]
                if factor == "locality" and given.value is not None:
                    given = row(factor, kind, locality, self.own - self.apart)
                rows.append(given)
        rows.append(known["ensemble_loss", "measured"])
        rows.append(row("fma_loss", "measured", own, self.own))
        rows.append(row("delta_max", "measured", self.distance.max(axis=0)))
        rows.append(row("delta_mean", "measured", self.distance.mean(axis=0)))
        rows.append(FactorRow("closure_error", "measured", _closure(known, locality, own)))
        return tuple(rows)


class _Passes:
    """Samples done of several passes over them."""

    def __init__(self, progress: Progress | None, count: int) -> None:
        self._progress, self._count, self._begun = progress, count, 0

    def next(self) -> Progress | None:
        """Return what the next pass calls."""
        at, self._begun = self._begun, self._begun + 1
        if self._progress is None:
            return None
        tell = self._progress
        return lambda done, of: tell(at * of + done, self._count * of)


def _losses(shown: ShownOutputs, clients: torch.Tensor, y: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The squared error of Σ_k p_k f_k^r on each of B samples, [R, B], of logits [K, R, B, C]."""
    own = p.to(clients.device)
    ensemble = torch.tensordot(own, unweighted_as_0(own, shown.f(clients)), dims=1)
    found: torch.Tensor = (shown.y(y) - ensemble).square().sum(-1).cpu()
    return found


def _squared_distances(cohort: CohortDraws, averages: Sequence[Weights]) -> dict[str, Array]:
    """‖w_k^r − w_FMA^r‖² in each parameter, [K, R]; under "" zeros."""
    layout, shape = cohort.draws[0].layout, (len(cohort.client_ids), cohort.count)
    found = {name: np.zeros(shape) for name in ("", *layout.slices)}
    for r, (draw, average) in enumerate(zip(cohort.draws, averages, strict=True)):
        for k, model in enumerate(draw.parameters):
            with np.errstate(invalid="ignore", over="ignore"):  # of clients that diverged
                moved = model.astype(np.float64) - average.parameters
                for name, where in layout.slices.items():
                    found[name][k, r] = moved[where] @ moved[where]
    return found


def _sample_error(values: Array) -> float:
    """The standard error of a mean over samples, as bootstrap converges to it: deviation / √n."""
    return float(np.sqrt(np.square(values - values.mean()).sum()) / values.size)


def _closure(known: Mapping[tuple[str, str], FactorRow], locality: Array, own: Array) -> float:
    """How far the factors with the selection's locality are from adding up, in either kind of estimate, and not less
    than without it."""
    errors = [known["closure_error", "measured"].value or 0.0]
    for kind in ("plugin", "unbiased"):
        parts = [known[factor, kind].value for factor in ("bias", "variance", "covariance")]
        if parts[0] is None:
            continue
        added = sum(part or 0.0 for part in parts) + locality.mean()
        errors.append(abs(added - own.mean()) / max(own.mean(), np.finfo(np.float64).tiny))
    return float(np.max(errors))
