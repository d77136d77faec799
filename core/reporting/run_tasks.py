"""What the task of a run has: classes that its clients differ in, an error beside its loss."""

from __future__ import annotations

from ..checkpoints import Run
from ..training.curves.result import Curves


def has_classes(run: Run) -> bool:
    """Check whether a run's samples have a class each, as far as it says: partitions of others count one."""
    return run.partition is None or run.partition.label_counts.shape[1] > 1


def has_error(run: Run) -> bool:
    """Check whether a run's task has an error, as far as it says."""
    return not Curves.of([run]).runs[0].loss_task
