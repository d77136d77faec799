"""Clients of whose samples none counts in the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoints import Partition
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.standard_tasks import is_own_task

if TYPE_CHECKING:
    from ..data.dataset import Dataset


def warn_of_uncounted(data: Dataset, split: Partition) -> None:
    """Name the clients in which nothing counts, because a criterion ignores their labels or gives them the weight 0.

    They train with gradient 0, and weigh in averages by their samples as the others do.
    """
    if not is_own_task(data.task):  # of the others each sample counts
        return
    samples = data.samples("train")
    weights = samples.task.weights(samples.y)
    if weights is None:
        return
    counts = weights.cpu().numpy() != 0
    lost = [k for k, own in enumerate(split.clients) if not counts[own].any()]
    if lost:
        one = len(lost) == 1
        warn_user(
            f"no sample of client{'' if one else 's'} {list_few(lost, 6)} counts in {data.task.name}: "
            f"{'its' if one else 'their'} loss is 0 and so is {'its' if one else 'their'} gradient; if that "
            "is not meant, give another --partition"
        )
