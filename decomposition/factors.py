"""The five factors of the loss of an averaged model, for one round.

Zhou, Lin, Zhang and Tsang, "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data", Theorem 1, made into estimators that add up to the measured loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from ..checkpoints import FedscopeError, Weights, weighted_mean
from ..landscape.evaluator import Evaluator
from ..landscape.samples import Samples
from .draws import CohortDraws
from .gram import Array, Moments, chunk_moments
from .membership import Members
from .records import Outputs, RoundFactors
from .rows import client_rows, factor_rows

# A multiple of the batch that suits convolutions on a CPU (50), so that none is a remainder.
CHUNK = 500
# Outputs of one chunk in float64, all models: 64 MiB. With many classes or clients the chunk shrinks, so that memory does not grow.
CHUNK_NUMBERS = 8 * 2**20


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
    device: str = "cpu",
    precision: str = "float32",
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    chunk: int = CHUNK,
) -> RoundFactors:
    """The five factors of one round, with closure, standard errors and the clients' own numbers.

    f_k^r(x) in R^C are the outputs of client k in draw r (class probabilities, or logits), y is one-hot, L is the squared error summed over classes (with probabilities: the Brier score), in
    0..2. fbar_k = mean_r f_k^r, WENS^r = sum_k p_k f_k^r, w_FMA^r = sum_k p_k w_k^r, m_k = 1[sample belongs to client k], and

        T = sum_k p_k m_k (y - fbar_k)     H = sum_k p_k (1 - m_k)(y - fbar_k)     e^r = sum_k p_k (f_k^r - fbar_k) = e_T^r + e_H^r, split by m_k alike

    The table of estimates stands in `estimates.estimate`; locality = mean_r [L(w_FMA^r) - L(WENS^r)] is signed and the same in both. Plug-in and unbiased estimates both close:

        bias + variance + covariance = mean_r L(WENS^r)        ... + locality = mean_r L(w_FMA^r)

    with the right sides measured from the outputs; `closure_error` is the greater of the two relative errors, over both kinds of estimate.

    `samples` [n]; `members` bool [K, n] (`membership_train`, `membership_labels`) or None where nothing splits the bias: train_bias, heter_bias and bias_cross are then empty.
    `globals_` and `averaged` are the round's recorded models, None where there is none; server_step = L(global) - L(w_FMA^1). `population=True` says that the samples are all of D.
    `stderr_draws`: jackknife over draws for R >= 3 independent draws, read with t on R-1 degrees of freedom. `stderr_samples`: the bootstrap over samples in its closed form, sd / sqrt(n) (what
    infinitely many resamples converge to), where the samples are not the population. The two are different things and are never added.
    `progress(done, n)` is called after each chunk. Holds O(K R chunk C) numbers besides the models. Non-finite outputs are kept: the factors are then nan.

    Raises FedscopeError for samples or members that do not fit. Source: Theorem 1 of Zhou et al.; the unbiased estimates and the remainder in place of O(Delta^2) are this package's.
    """
    n, draws = len(samples.y), cohort.count
    if members is not None and members.shape != (len(cohort.client_ids), n):
        raise FedscopeError(
            f"members of round {cohort.round} has shape {list(members.shape)}, but there are {len(cohort.client_ids)} "
            f"clients and {n} samples: give a bool [K, n] for the rows of these samples"
        )
    if outputs not in ("probabilities", "logits"):
        raise FedscopeError(f'outputs = "{outputs}" is unknown: use "probabilities" or "logits"')
    fma = [weighted_mean(draw, cohort.p) for draw in cohort.draws]
    total: Moments | None = None
    evaluator = Evaluator(module, samples, device=device, precision=precision, workers=workers)
    for rows, moments in _stream(evaluator, samples, cohort, fma, globals_, averaged, members, outputs, chunk):
        total = moments if total is None else total.merge(moments)
        if progress is not None:
            progress(rows.stop, n)
    assert total is not None
    distance = np.stack([_distances(draw, mean) for draw, mean in zip(cohort.draws, fma, strict=True)], axis=1)
    recorded = {"global": globals_ is not None, "averaged": averaged is not None}
    return RoundFactors(
        round=cohort.round,
        draws=cohort.source,
        count=draws,
        independent=cohort.independent,
        outputs=outputs,
        samples=n,
        classes=samples.classes,
        population=population,
        split=members is not None,
        rows=tuple(
            factor_rows(total, cohort, distance, split=members is not None, recorded=recorded, population=population)
        ),
        clients=tuple(client_rows(total, cohort, distance, split=members is not None)),
    )


def _stream(
    evaluator: Evaluator,
    samples: Samples,
    cohort: CohortDraws,
    fma: Sequence[Weights],
    globals_: Weights | None,
    averaged: Weights | None,
    members: Members | None,
    outputs: Outputs,
    chunk: int,
) -> Iterator[tuple[slice, Moments]]:
    n, clients, draws = len(samples.y), len(cohort.client_ids), cohort.count
    # Client-major, so that the outputs are [K, R, ...] without a copy.
    models = [draw.row(k) for k in range(clients) for draw in cohort.draws] + list(fma)
    extra = [model for model in (globals_, averaged) if model is not None]
    models += extra
    size = max(16, min(chunk, CHUNK_NUMBERS // (len(models) * samples.classes)))
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        f = evaluator.logits(models, rows).to(torch.float64)
        if outputs == "probabilities":
            f = torch.softmax(f, dim=-1)
        y = torch.nn.functional.one_hot(samples.y[rows].to(f.device), samples.classes).to(f.dtype)
        # Without members every sample is foreign to every client: H is then the total bias.
        mine = np.zeros((clients, rows.stop - start), dtype=np.bool_) if members is None else members[:, rows]
        more = list(f[(clients + 1) * draws :])
        yield (
            rows,
            chunk_moments(
                f[: clients * draws].reshape(clients, draws, *f.shape[1:]),
                f[clients * draws : (clients + 1) * draws],
                more.pop(0) if globals_ is not None else None,
                more.pop(0) if averaged is not None else None,
                y,
                torch.from_numpy(np.ascontiguousarray(mine)).to(f.device),
                torch.from_numpy(np.asarray(cohort.p, dtype=np.float64)).to(f.device),
            ),
        )


def _distances(clients: Weights, mean: Weights) -> Array:
    """||w_k - w_FMA|| over the parameters [K]; a row at a time, so that float64 costs one model and not the cohort."""
    centre = mean.parameters.astype(np.float64)
    return np.array([np.linalg.norm(row.astype(np.float64) - centre) for row in clients.parameters])
