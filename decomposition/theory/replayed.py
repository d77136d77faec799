"""The variance of clients over replays of their local training."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ...checkpoints import FedscopeError
from ...landscape.evaluation.compute import CPU, Compute
from ...landscape.evaluation.evaluator import Evaluator
from ...landscape.evaluation.samples import Samples
from ...landscape.evaluation.tasks import require_classes
from ..cohort.draws import CohortDraws
from ..factors.records import Outputs

# Samples at a time: O(K R chunk C) outputs are held.
CHUNK = 500


def replay_variances(
    module: nn.Module,
    samples: Samples,
    cohort: CohortDraws,
    *,
    outputs: Outputs = "probabilities",
    compute: Compute = CPU,
) -> np.ndarray:
    """E_D Σ_r ‖f_k^r(x) − f̄_k(x)‖² / (R − 1) of every client, [K], in squared units of the outputs.

    The variance over mini-batch orders from one start, unbiased for independent draws: of a client, what the variance
    of a decomposition adds up with p_k². The models run in single precision, the sums are in double.

    Args:
        cohort: R >= 2 independent draws of the K clients.
        outputs: f, "probabilities" or "logits".

    Raises:
        FedscopeError: dependent draws, which have no such variance; models that do not fit the module.
    """
    if not cohort.independent:
        raise FedscopeError(
            f"the draws {cohort.source} of round {cohort.round} depend on each other, so their spread is no variance "
            "over replays; use --draws local:4"
        )
    require_classes(samples, "the variance of clients' outputs")
    evaluator = Evaluator(module, samples, compute=compute)
    difference = evaluator.layout.difference(cohort.draws[0].layout)
    if difference:
        raise FedscopeError(f"the clients of round {cohort.round} do not fit the module: {difference}")
    models = [draw.row(k) for k in range(len(cohort.client_ids)) for draw in cohort.draws]
    total = torch.zeros(len(cohort.client_ids), dtype=torch.float64)
    for start in range(0, len(samples), CHUNK):
        f = evaluator.logits(models, slice(start, start + CHUNK)).double()
        if outputs == "probabilities":
            f = torch.softmax(f, dim=-1)
        every = f.reshape(-1, cohort.count, *f.shape[1:])  # [K, R, B, C]
        total += every.var(dim=1, correction=1).sum(dim=(1, 2))
    variances: np.ndarray = (total / len(samples)).numpy()
    return variances
