"""A cluster's workers with devices of their own: the samples of the clients that they train, taken there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ...evaluation.device import Compute
from .local_training import LocalTask


def on_device(tasks: Sequence[LocalTask], compute: Compute) -> list[LocalTask]:
    """Return the tasks with the samples that they use on the worker's device, and no others: of all clients' data,
    which a worker shares with others of its machine, a round needs a part.

    On a processor the tasks as they are, which read the data in place.
    """
    if not compute.is_gpu or not tasks:
        return list(tasks)
    used = np.unique(np.concatenate([task.indices for task in tasks]))
    rows = torch.from_numpy(used)
    x, y = (values[rows].to(compute.device) for values in (tasks[0].x, tasks[0].y))
    return [replace(task, x=x, y=y, indices=np.searchsorted(used, task.indices)) for task in tasks]
