"""The clients' mean cross-entropy or 0-1 loss in bias and variance, and what averaging their weights adds to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ...checkpoints import FedscopeError, Weights, weighted_mean
from ...landscape.evaluation.compute import CPU, Compute
from ...landscape.evaluation.known_tasks import Sequences
from ...landscape.evaluation.samples import Samples
from ...landscape.evaluation.tasks import require_classes
from ..cohort.distances import distances
from ..cohort.draws import CohortDraws
from . import likelihood, votes
from .loss_rows import loss_rows
from .loss_sums import LossSums, Split, chunk_sums
from .records import RoundFactors
from .rows import client_rows
from .streaming import CHUNK, Chunk, stream_outputs


class _Kind(Protocol):
    """What the file of a loss provides: its own form of the outputs, the losses of single models, the factors."""

    def prepare(self, logits: Tensor, /) -> Tensor: ...
    def losses(self, outputs: Tensor, y: Tensor, /) -> Tensor: ...
    def split(self, outputs: Tensor, y: Tensor, p: Tensor, /) -> Split: ...


_KINDS: Mapping[str, _Kind] = {"cross-entropy": likelihood, "zero-one": votes}
_OUTPUTS = {"cross-entropy": "probabilities", "zero-one": "predictions"}


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
    chunk: int = CHUNK,
) -> RoundFactors:
    """Bias and variance of the clients' mean loss, and the remainder to the loss of the averaged model.

    With f_k^r(x) the outputs of client k in draw r, p_k the weights and w_FMA^r = Σ_k p_k w_k^r,

        bias + variance             = Σ_k p_k mean_r L(f_k^r)     (row `client_loss`)
        bias + variance + remainder = mean_r L(w_FMA^r)           (row `fma_loss`)

    where both right sides are measured and the remainder is their difference, signed: below 0 the averaged model beats
    its clients. The row `closure_error` says how exactly they add up. The two losses are

    * "cross-entropy" (nats): bias = CE(f̂), variance = Σ_k p_k mean_r KL(f̂ ‖ f_k^r), with f̂ the normalised p-weighted
      geometric mean of clients and draws (`likelihood.split`);
    * "zero-one" (a share, 0..1): bias = 1[y* != y], with y* the main prediction; the variance P(f != y*) adds where y*
      is right (`variance_where_right`), and P(f = y) is subtracted where it is wrong (`variance_where_wrong`): the row
      `variance` is net. Ties of votes go to the lowest class (`votes.split`).

    Here the expectation is over a client (with p_k) *and* its draw: clients that differ from each other are variance,
    though each be certain, whereas the variance of the squared error's decomposition is over draws alone. Bias does not
    split into training and heterogeneous bias, and there is no covariance. Every estimate is a plug-in one: f̂ and y*
    are of R draws, and no unbiased estimate is known (rows "unbiased" are empty).

    Standard errors, in two columns that are never added. `stderr_draws`: jackknife over R >= 3 independent draws, each
    draw actually left out, to be read with t on R − 1 degrees of freedom. Of the 0-1 bias and variance it is coarse: a
    main prediction flips or stays, so that with R = 4 the variance is overstated 1.4 to 1.8 times (measured), and an
    error of 0 means that no draw flips one. `stderr_samples`: sd / √n over samples; empty where the samples are the
    population.

    Samples are streamed, as in `decompose_round`. An output of nan makes the cross-entropy nan; of a 0-1 loss it is a
    wrong answer and no vote, as in `Evaluator`.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        samples: the n samples of every mean.
        cohort: R >= 2 draws of the K clients.
        loss: "cross-entropy" or "zero-one"; of the squared error see `decompose_round`.
        globals_: the round's recorded `global`, for global_loss and server_step = L(global) − L(w_FMA^1); or None.
        averaged: the round's recorded `averaged`, for averaged_loss; or None.
        population: whether `samples` are all of D.
        progress: called with (samples done, n) after every chunk.
        chunk: samples at a time, at most.

    Raises:
        FedscopeError: models that do not fit, or an unknown loss; a task that has no class at any position.

    Two clients, certain of different classes where the second is true (one draw taken twice), seen as votes: the main
    prediction is the heavier client's, which is wrong, and the lighter one is right in spite of it.

    >>> from fedscope.checkpoints import Layout
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
    if loss not in _KINDS:
        raise FedscopeError(
            f'loss = "{loss}" is unknown: use "cross-entropy" or "zero-one", or decompose_round for the squared error'
        )
    if not isinstance(samples.task, Sequences):  # whose positions have classes
        require_classes(samples, f"the decomposition of the {loss} loss")
    kind = _KINDS[loss]
    recorded = {name: w for name, w in (("global", globals_), ("averaged", averaged)) if w is not None}
    fma = [weighted_mean(draw, cohort.p) for draw in cohort.draws]
    p = torch.from_numpy(np.asarray(cohort.p, dtype=np.float64))
    total: LossSums | None = None
    for part in stream_outputs(
        module,
        samples,
        cohort,
        fma,
        recorded,
        compute=compute,
        progress=progress,
        chunk=chunk,
    ):
        sums = _sums(kind, part, p.to(part.clients.device), "global" if cohort.trained is None else "averaged")
        total = sums if total is None else total.merge(sums)
    assert total is not None, "Samples has refused n = 0"
    distance = distances(cohort, fma)
    return RoundFactors(
        round=cohort.round,
        draws=cohort.source,
        count=cohort.count,
        independent=cohort.independent,
        outputs=_OUTPUTS[loss],
        samples=total.n,
        classes=samples.classes,
        population=population,
        split=False,
        rows=tuple(loss_rows(total, cohort, distance, loss, population=population)),
        clients=tuple(client_rows(cohort, distance, total.clients / total.n)),
        loss=loss,
    )


def _sums(kind: _Kind, part: Chunk, p: Tensor, deployed: str) -> LossSums:
    outputs, y = kind.prepare(part.clients), part.y
    # Measured from the losses of single models and not from the factors: closure compares the two.
    client_loss = torch.tensordot(p, kind.losses(outputs, y), dims=1)
    fma_loss = kind.losses(kind.prepare(part.fma), y)
    models = {f"{name}_loss": kind.losses(kind.prepare(f), y) for name, f in part.recorded.items()}
    if f"{deployed}_loss" in models:
        models["server_step"] = models[f"{deployed}_loss"] - fma_loss[0]
    over_draws = {"client_loss": client_loss, "fma_loss": fma_loss, "remainder": fma_loss - client_loss}
    return chunk_sums(kind.split(outputs, y, p), over_draws, models)
