"""Messages of NVFlare, read by their parts and without importing it.

A ``Shareable`` is a dictionary with headers. What trains puts a ``DXO`` into it: a kind (``WEIGHTS``, ``WEIGHT_DIFF``,
``COLLECTION``), data by name, and meta data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...io.errors import FedscopeError
from ..framework_evaluation import number_in
from ..framework_rounds import Tensors

#: kinds of a DXO
FULL, DIFF, COLLECTION = "WEIGHTS", "WEIGHT_DIFF", "COLLECTION"
#: under which a collection has the model, as in NVFlare's Scaffold
IN_COLLECTION = "_model_weights_"
STEPS = "NUM_STEPS_CURRENT_ROUND"
#: of ``FLModel.meta``: what each client weighed
ABOUT_METRICS = "metrics_aggregation_info"
OK = "OK"


def weights_in(message: Any) -> tuple[str, Mapping[str, Any], Mapping[str, Any]] | None:
    """Return kind, data and meta data of the model in a ``Shareable``; None where there is none."""
    dxo = message.get("DXO") if isinstance(message, Mapping) else None
    if not isinstance(dxo, Mapping):
        return None
    kind, data, meta = dxo.get("kind"), dxo.get("data"), dxo.get("meta")
    if kind == COLLECTION and isinstance(data, Mapping) and IN_COLLECTION in data:
        inner = data[IN_COLLECTION]
        kind, data, meta = inner.data_kind, inner.data, inner.meta
    if kind not in (FULL, DIFF) or not isinstance(data, Mapping) or not data:
        return None
    return FULL if kind == FULL else DIFF, data, meta or {}


def round_of(message: Any) -> int | None:
    """Return the round of a task, as its headers say it."""
    number = message.get_header("current_round")
    return number if isinstance(number, int) else None


def answered_round(message: Any) -> int | None:
    """Return the round of the task that a client answers."""
    number = message.get_cookie("contribution_round")
    return number if isinstance(number, int) else None


def steps_in(meta: Mapping[str, Any], *, by_aggregator: bool = False) -> float:
    """Return the steps that a client says it made, as NVFlare weighs it by them; 1 where it says none.

    Source: nvflare 2.9.0, ``aggregators/dxo_aggregator.py`` and ``workflows/base_fedavg.py``.

    Args:
        by_aggregator: of ``ScatterAndGather``, whose aggregator takes 0 as 0; ``FedAvg`` and ``Scaffold`` take it as 1.

    >>> steps_in({"NUM_STEPS_CURRENT_ROUND": np.int64(30)}), steps_in({}), steps_in({"NUM_STEPS_CURRENT_ROUND": None})
    (30.0, 1.0, 1.0)
    >>> steps_in({"NUM_STEPS_CURRENT_ROUND": 0}), steps_in({"NUM_STEPS_CURRENT_ROUND": 0}, by_aggregator=True)
    (1.0, 0.0)
    """
    try:
        steps = float(meta.get(STEPS, 1.0))
    except (TypeError, ValueError, OverflowError):
        return 1.0
    return steps if by_aggregator or (math.isfinite(steps) and steps > 0) else 1.0


def added(start: Tensors | None, difference: Tensors) -> dict[str, Any]:
    """Return the model of a client that sends what its training changed: start plus difference, as NVFlare adds it.

    Raises:
        FedscopeError: no start; a name that it lacks.
    """
    if start is None:
        raise FedscopeError("a client sends what it changed, and it is not known which model was sent")
    if other := [name for name in difference if name not in start]:
        raise FedscopeError(f"a client sends a change of {other[0]}, which the model that was sent does not have")
    whole: dict[str, Any] = dict(start)
    for name, change in difference.items():
        made = start[name] + change
        # a counter stays one, and what has no axes an array
        whole[name] = np.asarray(made).astype(start[name].dtype) if isinstance(made, np.ndarray | np.generic) else made
    return whole


def weights_told(result: Any) -> dict[str, float]:
    """Return what each client weighed, where the result of NVFlare's ``FedAvg`` says it; else nothing.

    Args:
        result: an ``FLModel``, or a ``Shareable``.
    """
    meta = getattr(result, "meta", None)
    about = meta.get(ABOUT_METRICS) if isinstance(meta, Mapping) else None
    sites = about.get("site_weights") if isinstance(about, Mapping) else None
    return {str(site["name"]): float(site["weight"]) for site in sites or ()}


def factors_of(aggregator: Any) -> dict[str, float]:
    """Return the ``aggregation_weights`` of an aggregator by client, which multiply the clients' steps."""
    given = getattr(aggregator, "aggregation_weights", None)
    if isinstance(given, Mapping) and isinstance(given.get(""), Mapping):  # of its one DXO
        given = given[""]
    if not isinstance(given, Mapping):
        return {}
    factors = {str(name): number_in(factor) for name, factor in given.items()}
    return {name: factor for name, factor in factors.items() if factor is not None}


def train_loss_in(result: Any) -> dict[str, float]:
    """Return the mean of the clients' ``train_loss``, where the result has it."""
    metrics = getattr(result, "metrics", None)
    loss = number_in(metrics.get("train_loss")) if isinstance(metrics, Mapping) else None
    return {} if loss is None else {"train_loss": loss}
