"""How good models are, for servers that choose among clients."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, cast

from torch import nn

from ...checkpoints import FedscopeError, FedscopeWarning, Partition
from ...evaluation.compute import Compute
from ...evaluation.evaluator import Evaluator
from ..data.dataset import Dataset
from ..data.membership import held_by
from ..methods.base import Judge, ServerMethod
from ..settings.registry import method_name


def warn_of_test_data(server: ServerMethod) -> None:
    """Warn where a server chooses on the test split, on which a run's models are measured."""
    if server.judges_on is not None and server.judges_on[0] == "test":
        warnings.warn(
            f"--server {method_name(server)} chooses on the test split, on which the run's models are measured, too: "
            "their test errors look better than they are; --set server.split=train chooses on training data",
            FedscopeWarning,
            stacklevel=2,
        )


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
