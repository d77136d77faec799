"""How good models are, for servers that choose among clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from torch import nn

from ..checkpoints import FedscopeError, Partition
from ..decomposition.cohort.membership import held_by
from ..landscape import Evaluator
from ..landscape.evaluation.compute import Compute
from .dataset import Dataset
from .methods import Judge, ServerMethod
from .registry import method_name


def judge_of(
    server: ServerMethod, data: Dataset, module: nn.Module, partition: Partition | None, seed: int, compute: Compute
) -> Judge | None:
    """What measures models on the samples that a server names, in float32; None where it names none.

    Args:
        partition: of ``train`` the samples that clients train on are taken; all where it is None.
        seed: of the subset, where it asks for one.

    Raises:
        FedscopeError: a split without samples.
    """
    if server.judges_on is None:
        return None
    split, count = server.judges_on
    if not len(data.y_train if split == "train" else data.y_test):
        other = "train" if split == "test" else "test"
        raise FedscopeError(
            f"--server {method_name(server)} compares models on the {split} split, but {data.name} has no {split} "
            f"samples; give --set server.split={other}"
        )
    samples = data.samples(cast(Any, split))
    if split == "train" and partition is not None and len(rows := held_by(partition)) < len(samples):
        samples = replace(samples, x=samples.x[rows], y=samples.y[rows], indices=rows)
    if count is not None:
        samples = samples.limit(count, seed)
    return Evaluator(module, samples, compute=compute.exact).models
