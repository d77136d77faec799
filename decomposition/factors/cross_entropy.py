"""The clients' mean cross-entropy or 0-1 loss in bias and variance, and what averaging their weights adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...checkpoints import FedscopeError, Weights
from ...checkpoints.io.torch_state import ordinary_tensors
from ...checkpoints.models.weights import taking_part
from ...evaluation.device import CPU, Compute
from ...evaluation.measured_statistics import Measured
from ...evaluation.samples import Samples
from ...evaluation.validation import with_outputs
from ..draws.cohort_draws import CohortDraws
from .bias_variance_covariance_locality import jackknife_error, mean_error
from .gram import unweighted_as_0
from .model_outputs import CHUNK, Chunk, PassSettings, add_up
from .rows import FACTORS_OF, MEASURED_OF, FactorRow, RoundFactors
from .sample_losses import KINDS, Split, without_each
from .tasks import refuse_other_task, with_classes

Array = npt.NDArray[np.float64]

# Nats, or a share: a loss below it is rounding at the precision that a relative error is asked for.
FLOOR = 1e-9


@ordinary_tensors()
def decompose_loss(
    module: torch.nn.Module,
    samples: Samples,
    cohort: CohortDraws,
    *,
    loss: Literal["cross-entropy", "zero-one"],
    globals_: Weights | None,
    averaged: Weights | None,
    population: bool,
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
    measured: Measured | None = None,
    chunk: int = CHUNK,
) -> RoundFactors:
    """Bias and variance of the clients' mean loss, and the remainder to the loss of the averaged model.

    With f_k^r(x) the outputs of client k in draw r, p_k the weights and w_FMA^r = Σ_k p_k w_k^r,

        bias + variance             = Σ_k p_k mean_r L(f_k^r)     (row `client_loss`)
        bias + variance + remainder = mean_r L(w_FMA^r)           (row `fma_loss`)

    where both right sides are measured and the remainder is their difference, signed: below 0 the averaged model beats
    its clients. The row `closure_error` says how exactly they add up. The two losses are

    * "cross-entropy" (nats): bias = CE(f̂), variance = Σ_k p_k mean_r KL(f̂ ‖ f_k^r), with f̂ the normalised p-weighted
      geometric mean of clients and draws (`losses.split_cross_entropy`);
    * "zero-one" (a share, 0..1): bias = 1[y* != y], with y* the main prediction; the variance P(f != y*) adds where y*
      is right (`variance_where_right`), and P(f = y) is subtracted where it is wrong (`variance_where_wrong`): the row
      `variance` is net. Ties of votes go to the lowest class (`losses.split_zero_one`).

    Here the expectation is over a client (with p_k) *and* its draw: clients that differ from each other are variance,
    though each be certain, whereas the variance of the squared error's decomposition is over draws alone. Bias does not
    split into training and heterogeneous bias, and there is no covariance. Every estimate is a plug-in one: f̂ and y*
    are of R draws, and no unbiased estimate is known (rows "unbiased" are empty).

    Standard errors, in two columns that are never added. `stderr_draws`: jackknife over R >= 3 independent draws, each
    draw actually left out, to be read with t on R − 1 degrees of freedom. Of the 0-1 bias and variance it is coarse: a
    main prediction flips or stays, so that with R = 4 the variance is overstated 1.4 to 1.8 times (measured), and an
    error of 0 means that no draw flips one. `stderr_samples`: sd / √n over samples; empty where the samples are the
    population.

    Samples whose label is ignored do not count. Samples are streamed, as in `decompose_round`. An output of nan makes
    the cross-entropy nan; of a 0-1 loss it is a wrong answer and no vote, as in `Evaluator`.

    Args:
        loss: "cross-entropy" or "zero-one"; of the squared error see `decompose_round`.
        module, samples, cohort, globals_, averaged, population, compute, progress, chunk: as for `decompose_round`.

    Raises:
        FedscopeError: models that do not fit, or an unknown loss; a task that has no class at any position, or whose
            own loss (error, of "zero-one") is another, as with weights of classes.

    Two clients, certain of different classes where the second is true (one draw taken twice), seen as votes: the main
    prediction is the heavier client's, which is wrong, and the lighter one is right in spite of it.

    >>> import numpy as np, torch
    >>> from fedscope import Layout, Samples, decompose_loss
    >>> from fedscope.checkpoints import Weights
    >>> from fedscope.decomposition.draws.cohort_draws import CohortDraws
    >>> module = torch.nn.Linear(1, 2, bias=False)
    >>> clients = Weights(Layout.of(module), np.array([[9, 0], [0, 9]], np.float32), {})
    >>> p, ids, one = np.array([0.75, 0.25]), np.arange(2), torch.ones(1, 1)
    >>> cohort = CohortDraws(1, ids, p, [clients, clients], np.array([3, 1]), "rounds:2", independent=False)
    >>> samples = Samples(one, torch.tensor([1]), 2, "toy", "train", np.arange(1))
    >>> result = decompose_loss(
    ...     module, samples, cohort, loss="zero-one", globals_=None, averaged=None, population=True
    ... )
    >>> [result.row(name).value for name in ("bias", "variance", "client_loss", "remainder", "fma_loss")]
    [1.0, -0.25, 0.75, 0.25, 1.0]

    Source: Heskes (1998) for the cross-entropy, Domingos (2000) for the 0-1 loss; clients and draws as what varies, and
    the remainder, are ours.
    """
    if loss not in KINDS:
        raise FedscopeError(
            f'loss = "{loss}" is unknown: use "cross-entropy" or "zero-one", or decompose_round for the squared error'
        )
    samples = with_classes(samples, loss)
    refuse_other_task(samples.task, samples.label, loss)
    samples = with_outputs(module, samples)
    kind, deployed = KINDS[loss], "global" if cohort.trained is None else "averaged"

    def sums(part: Chunk, p: Tensor) -> LossSums:
        outputs, y = kind.prepare(part.clients), part.y
        # Measured from the losses of single models and not from the factors: closure compares the two.
        client_loss = torch.tensordot(p, unweighted_as_0(p, kind.losses(outputs, y)), dims=1)
        fma_loss = kind.losses(kind.prepare(part.fma), y)
        models = {f"{name}_loss": kind.losses(kind.prepare(f), y) for name, f in part.recorded.items()}
        if (loss_of := models.get(f"{deployed}_loss")) is not None:
            models["server_step"] = loss_of - (fma_loss if loss_of.dim() == 2 else fma_loss[0])
        over_draws = {"client_loss": client_loss, "fma_loss": fma_loss, "remainder": fma_loss - client_loss}
        over_draws |= {name: values for name, values in models.items() if values.dim() == 2}
        alone = {name: values for name, values in models.items() if values.dim() == 1}
        return chunk_sums(kind.split(outputs, y, p), over_draws, alone)

    recorded = {"global": globals_, "averaged": averaged}
    how: PassSettings = {"compute": compute, "progress": progress, "chunk": chunk}
    total, distance = add_up(module, samples, cohort, recorded, sums, measured=measured, **how)
    return RoundFactors.of(
        cohort,
        distance,
        total.clients / total.n,
        outputs=kind.outputs,
        samples=total.n,
        classes=samples.classes,
        population=population,
        split=False,
        rows=tuple(loss_rows(total, cohort, distance, loss, population=population)),
        loss=loss,
    )


@dataclass(frozen=True)
class LossSums:
    """Sums over n samples: `mean` and `squares`, by row of the result, the mean over samples and the sum of squared
    deviations from it; `left_out` [R], the sums over samples without each of the draws; `clients` [K], the sums of
    their variances."""

    n: int
    mean: Mapping[str, float]
    squares: Mapping[str, float]
    left_out: Mapping[str, Array]
    clients: Array

    def merge(self, more: LossSums) -> LossSums:
        """Return the sums of both sets of samples; squares about the common mean (Chan et al. 1983)."""
        n = self.n + more.n
        step = {name: more.mean[name] - value for name, value in self.mean.items()}
        return LossSums(
            n=n,
            mean={name: value + step[name] * (more.n / n) for name, value in self.mean.items()},
            squares={
                name: value + more.squares[name] + step[name] ** 2 * (self.n * more.n / n)
                for name, value in self.squares.items()
            },
            left_out={name: value + more.left_out[name] for name, value in self.left_out.items()},
            clients=self.clients + more.clients,
        )


def chunk_sums(parts: Split, over_draws: Mapping[str, Tensor], models: Mapping[str, Tensor]) -> LossSums:
    """Compute the sums of one chunk of B samples.

    Args:
        parts: the factors.
        over_draws: what is a mean over draws, by name [R, B].
        models: what is one number a sample, by name [B].
    """
    columns = {**parts.factors, **{name: values.mean(0) for name, values in over_draws.items()}, **models}
    without = {**parts.left_out, **{name: without_each(values) for name, values in over_draws.items()}}
    mean = {name: float(values.mean()) for name, values in columns.items()}
    return LossSums(
        n=parts.clients.shape[1],
        mean=mean,
        squares={name: float((values - mean[name]).square().sum()) for name, values in columns.items()},
        left_out={name: values.sum(1).cpu().numpy() for name, values in without.items()},
        clients=parts.clients.sum(1).cpu().numpy(),
    )


def loss_rows(
    total: LossSums, cohort: CohortDraws, distance: Array, loss: str, *, population: bool
) -> Iterator[FactorRow]:
    """Every factor, plug-in and then the empty rows of unbiased estimates, which do not exist; then what is measured,
    in the orders of `records.FACTORS_OF` and `records.MEASURED_OF`.

    `distance` [K, R] are ||w_k^r - w_FMA^r||.
    """
    jackknife = cohort.independent and cohort.count >= 3

    def row(factor: str, kind: str) -> FactorRow:
        if factor not in total.mean:
            return FactorRow(factor, kind, None)
        left_out = total.left_out.get(factor)
        return FactorRow(
            factor,
            kind,
            total.mean[factor],
            jackknife_error(left_out / total.n) if jackknife and left_out is not None else None,
            None if population else float(np.sqrt(total.squares[factor]) / total.n),
        )

    yield from (row(factor, "plugin") for factor in FACTORS_OF[loss])
    yield from (FactorRow(factor, "unbiased", None) for factor in FACTORS_OF[loss])
    far = distance[taking_part(np.asarray(cohort.p))]
    deltas = {"delta_max": far.max(0), "delta_mean": far.mean(0)}
    for factor in MEASURED_OF[loss]:
        if factor in deltas:
            values = deltas[factor]
            yield FactorRow(factor, "measured", float(values.mean()), mean_error(values) if jackknife else None)
        elif factor == "closure_error":
            yield FactorRow(factor, "measured", closure_error(total.mean))
        else:
            yield row(factor, "measured")


def closure_error(mean: Mapping[str, float]) -> float:
    """Measure how far the factors are from adding up: the greater error of bias + variance against the clients' mean
    loss and, with the remainder, against mean_r L(w_FMA^r), relative to the greater of these two losses. nan where an
    output is not finite."""
    added = mean["bias"] + mean["variance"]
    errors = [abs(added - mean["client_loss"]), abs(added + mean["remainder"] - mean["fma_loss"])]
    return float(np.max(errors) / np.max([mean["client_loss"], mean["fma_loss"], FLOOR]))
