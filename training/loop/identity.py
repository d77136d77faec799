"""The identity of a run that is trained here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...checkpoints import Partition
from ...checkpoints.rounds.run_identity import derive_identity
from ...evaluation.standard_tasks import is_own_task
from ...evaluation.tasks import Task
from ..config.config import Config


def identity_of(info: Mapping[str, Any], config: Config, split: Partition, task: Task | None, *before: str) -> str:
    """Return the identity of a run that is trained here: of its configuration, data, model and program, so that the
    same run made again has the same, and a sibling of another seed or method has another.

    Of code of the user's own only its name is known, so such runs have it of the moment they began, too.

    Args:
        info: ``run.json``; split: who has which samples.
        before: of a branch, what it branches from.
    """
    data = info["data"]
    return derive_identity(
        {
            "config": config.tables(),
            "layout": info["layout"],
            "data": {name: data.get(name) for name in ("name", "sha256", "train", "test")},
            "partition": [_digest(parts) for parts in (split.clients, split.test or ())],
            "weights": info.get("weights", {}).get("sha256", ""),
            "versions": {name: info["versions"].get(name) for name in ("fedscope", "torch")},
            "created": info["created"] if task is not None and is_own_task(task) else "",
            "before": before,
        }
    )


def _digest(parts: Sequence[np.ndarray]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + np.asarray(part, "<i8").tobytes())
    return found.hexdigest()
