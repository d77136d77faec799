"""The five factors of the loss of an averaged model, for one round.

Zhou, Lin, Zhang and Tsang, "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
Theorem 1, made into estimators that add up to the measured loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...checkpoints import FedscopeError, Partition, Round, Weights, stack
from ...checkpoints.io.torch_state import ordinary_tensors
from ...checkpoints.models.weights import taking_part
from ...evaluation.device import CPU, Compute
from ...evaluation.measured_statistics import Measured
from ...evaluation.samples import Samples
from ...evaluation.standard_tasks import Regression
from ...evaluation.validation import with_outputs
from ...training.data.membership import Members, indices_held, members_of
from ..draws.cohort_draws import CohortDraws
from .bias_variance_covariance_locality import client_biases, corollary_rows, factor_rows
from .cross_entropy import decompose_loss
from .gram import OutputMoments, chunk_moments
from .model_outputs import CHUNK, Chunk, add_up, has_one_each
from .rows import FactorRow, Loss, Outputs, RoundFactors
from .tasks import refuse_masked, refuse_other_task


@dataclass(frozen=True)
class ShownOutputs:
    """What the squared loss compares: f and y, in float64 where the outputs are; the models ran in single precision.

    Attributes:
        numbers: whether they are a regression's, of which both are divided by √k for targets of k numbers.
        outputs: f of a classification.
        classes: C.
    """

    numbers: bool
    outputs: Outputs
    classes: int

    def f(self, logits: Tensor) -> Tensor:
        """Outputs [..., C] of a model's logits."""
        f = logits.to(torch.float64)
        if self.numbers:
            return f / math.sqrt(f.shape[-1])
        return torch.softmax(f, dim=-1) if self.outputs == "probabilities" else f

    def y(self, y: Tensor) -> Tensor:
        """Targets [B, C]."""
        return self.f(y) if self.numbers else torch.nn.functional.one_hot(y, self.classes).to(torch.float64)


@ordinary_tensors()
def decompose_round(
    module: torch.nn.Module,
    samples: Samples,
    cohort: CohortDraws,
    members: Members | None,
    *,
    globals_: Weights | None,
    averaged: Weights | None,
    outputs: Outputs = "probabilities",
    population: bool,
    corollaries: bool = False,
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
    watch: Callable[[Chunk], None] | None = None,
    measured: Measured | None = None,
    chunk: int = CHUNK,
) -> RoundFactors:
    """Compute the five factors of one round, with closure, standard errors and the clients' own numbers.

    f_k^r(x) in R^C are the outputs of client k in draw r, y is one-hot, L is the squared error summed over classes (of
    probabilities: the Brier score, 0..2). With f̄_k = mean_r f_k^r, WENS^r = Σ_k p_k f_k^r, w_FMA^r = Σ_k p_k w_k^r and
    m_k = 1[the sample is client k's],

        T   = Σ_k p_k m_k (y − f̄_k)               H   = Σ_k p_k (1 − m_k) (y − f̄_k)
        e^r = Σ_k p_k (f_k^r − f̄_k)               e_T^r, e_H^r: the parts of e^r with m_k and with 1 − m_k

    the estimates are those of `estimates.estimate`, and locality = mean_r [L(w_FMA^r) − L(WENS^r)], signed, the same in
    both kinds. Both kinds close:

        bias + variance + covariance            = mean_r L(WENS^r)
        bias + variance + covariance + locality = mean_r L(w_FMA^r)

    with the right sides measured from the outputs; the row `closure_error` is the greatest relative error of the four.

    Standard errors are of two kinds, never added. `stderr_draws`: jackknife over R >= 3 independent draws, to be read
    with t on R − 1 degrees of freedom. `stderr_samples`: bootstrap over samples, in its closed form sd / √n, which is
    what infinitely many resamples converge to; empty where the samples are the population.

    Of a regression f are the outputs and y the targets, both divided by √k for targets of k numbers, so that L is the
    task's loss. Of sequences every position that counts is a sample; errors over samples take positions as
    independent, which neighbours are not quite.

    Samples are streamed: O(K R chunk C) numbers are held besides the models, whatever n. Outputs that are not finite
    are kept, and the factors are then nan.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        samples: the n samples of every mean.
        cohort: R >= 2 draws of the K clients.
        members: m_k for the rows of `samples`, bool [K, n] (`membership_train`, `membership_labels`); None where
            nothing splits the bias: train_bias, heter_bias and bias_cross are then empty, and `bias` is given.
        globals_: the round's recorded `global`, for global_loss and server_step = L(global) − L(w_FMA^1); where each
            draw has its own, all of them, [R, P], for global_loss = mean_r L(global^r) and server_step = mean_r
            [L(global^r) − L(w_FMA^r)], with standard errors over draws; or None.
        averaged: the round's recorded `averaged`, or each draw's, for averaged_loss; or None.
        outputs: f, "probabilities" or "logits".
        population: whether `samples` are all of D.
        corollaries: also the rows `corollary_1`, (K−1)/(nK) Σ_j min_{k≠l} Cov_kl(x_j), below which the covariance of
            clients with equal p cannot fall (its minimum is mostly noise where draws are few), and `corollary_2`, the
            loss of the ensemble with p_k = 1/K, ‖(1/K) Σ_k bias_k‖² + mean variance/K + (K−1)/K mean covariance,
            which is mean_r L(WENS^r) where p is uniform (with the square that the paper's statement leaves out).
        progress: called with (samples done, n) after every chunk.
        watch: called with every chunk's outputs, in the samples' order.
        measured: gives w_FMA^r its running statistics; None: they are averaged as the weights are.
        chunk: samples at a time, at most.

    Raises:
        FedscopeError: models, members or outputs that do not fit; a task of the user's own; logits of a class that all
            models mask.

    Source: Zhou et al., Theorem 1, Corollaries 1 and 2. The unbiased estimates, and the measured remainder in place of
    O(Δ²), are ours.
    """
    _check(samples, cohort, members, outputs)
    split = members is not None
    refuse_other_task(samples.task, samples.label, "squared")
    samples = with_outputs(module, samples)
    shown = ShownOutputs(isinstance(samples.task, Regression), outputs, samples.classes)

    def moments(part: Chunk, p: Tensor) -> OutputMoments:
        if watch is not None:
            watch(part)
        if outputs == "logits":
            refuse_masked(part, p, samples.label)
        clients, recorded = shown.f(part.clients), {name: shown.f(f) for name, f in part.recorded.items()}
        own = _membership(members, len(cohort.client_ids), part.of).to(clients.device)
        return chunk_moments(clients, shown.f(part.fma), recorded, shown.y(part.y), own, p, corollaries)

    recorded = {"global": globals_, "averaged": averaged}
    total, distance = add_up(
        module,
        samples,
        cohort,
        recorded,
        moments,
        measured=measured,
        compute=compute,
        progress=progress,
        chunk=chunk,
    )
    there = {name: model for name, model in recorded.items() if model is not None}
    own = {name for name, model in there.items() if has_one_each(model)}
    rows = [*factor_rows(total, cohort, distance, split=split, recorded=there, population=population, own=own)]
    return RoundFactors.of(
        cohort,
        distance,
        np.trace(total.spread, axis1=1, axis2=2) / cohort.count / total.n if cohort.count > 1 else None,
        client_biases(total) if split else (),
        outputs="outputs" if shown.numbers else outputs,
        samples=total.n,
        classes=samples.classes,
        population=population,
        split=split,
        rows=(*rows, *(corollary_rows(total, cohort) if corollaries else ())),
    )


def round_factors(
    module: torch.nn.Module,
    samples: Samples,
    cohort: CohortDraws,
    round_: Round,
    partition: Partition | None,
    *,
    others: Sequence[Round | None] = (),
    data_of: npt.NDArray[np.int64] | None = None,
    loss: Loss = "squared",
    outputs: Outputs = "probabilities",
    **settings: Any,
) -> RoundFactors:
    """Compute the factors of a recorded round, of its own average or, where clients of several rounds are joined
    (:func:`~fedscope.decomposition.join`), of the average over these; corollaries where runs are draws.

    With them stands `missing_share`, which data were missing: the share of D that none of the averaged clients holds,
    of which one of weight 0 is none; only with a partition, without which nothing splits the bias either.

    Args:
        round_: whose recorded `global` and `averaged` are measured, where there are any.
        others: the same round of the other runs where runs are draws, None of one that has no such round: losses of
            recorded models are then means over all runs, and do not exist where one of them did not keep its own.
        data_of: the clients whose training data are D; None: all.
        settings: of :func:`decompose_round` and :func:`~fedscope.decomposition.decompose_loss`.

    Raises:
        FedscopeError: models that do not fit.

    Source: Zhou et al., Section 6.1: averaging over rounds helps where rounds have different clients.
    """
    recorded = {name: _recorded([round_, *others], name) for name in ("global", "averaged")}
    settings |= {"globals_": recorded["global"] if cohort.trained is None else None, "averaged": recorded["averaged"]}
    if loss == "squared":
        members = None if partition is None else members_of(partition, cohort.client_ids, samples)
        settings |= {"outputs": outputs, "corollaries": cohort.source == "runs"}
        factors = decompose_round(module, samples, cohort, members, **settings)
    else:
        factors = decompose_loss(module, samples, cohort, loss=loss, **settings)
    if partition is None:
        return factors
    whole, held = indices_held(partition, data_of), indices_held(partition, cohort.client_ids[taking_part(cohort.p)])
    missing = 1.0 - np.isin(whole, held).mean() if len(whole) else 0.0
    return replace(factors, rows=(*factors.rows, FactorRow("missing_share", "measured", float(missing))))


def _recorded(rounds: Sequence[Round | None], name: str) -> Weights | None:
    """A recorded model; of several rounds that of each, [R, P]. None where one lacks it."""
    models = [one.read(name) for one in rounds if one is not None and name in one.models]
    if len(models) < len(rounds):
        return None
    return models[0] if len(models) == 1 else stack(models)


def _membership(members: Members | None, clients: int, of: np.ndarray) -> torch.Tensor:
    """m_k of a chunk, bool [K, B]. Without members every sample is foreign to every client: H is the total bias."""
    if members is None:
        return torch.zeros(clients, len(of), dtype=torch.bool)
    return torch.from_numpy(np.ascontiguousarray(members[:, of]))


def _check(samples: Samples, cohort: CohortDraws, members: Members | None, outputs: str) -> None:
    expected = (len(cohort.client_ids), len(samples.y))
    if members is not None and members.shape != expected:
        raise FedscopeError(
            f"members of round {cohort.round} has shape {list(members.shape)}, but there are {expected[0]} clients and "
            f"{expected[1]} samples: give a bool [K, n] for the rows of these samples"
        )
    if outputs not in ("probabilities", "logits"):
        raise FedscopeError(f'outputs = "{outputs}" is unknown: use "probabilities" or "logits"')
