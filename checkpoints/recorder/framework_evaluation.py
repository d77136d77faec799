"""What a framework's own evaluations say, as the numbers of a run: of the server's model on test data, of clients on
theirs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

#: words of a metric's name that say where or how it was measured, and not what
_ABOUT = frozenset(
    (
        *("test", "testing", "eval", "evaluate", "evaluation", "val", "valid", "validation", "central", "centralized"),
        *("centralised", "server", "global", "federated", "distributed", "client", "clients", "local"),
        *("mean", "avg", "average", "aggregated"),
    )
)
_LOSS, _ERROR, _ACCURACY = frozenset(("loss",)), frozenset(("error", "err")), frozenset(("accuracy", "acc"))


class NoShareError(ValueError):
    """An accuracy or an error that is no share from 0 to 1.

    Attributes:
        numbers: what the evaluation says besides.
    """

    numbers: Mapping[str, float] = MappingProxyType({})


def read_evaluation(metrics: Any, loss: Any = None) -> dict[str, float]:
    """Read ``test_loss`` and ``test_error`` from the metrics of the server's model; nothing where there are none.

    Names are taken by their words: ``loss`` and ``accuracy``, alone or with words like ``test``, ``eval`` and
    ``centralized``. An accuracy is 1 less the error.

    Args:
        loss: of the older interface, which gives it apart.

    Raises:
        NoShareError: an accuracy or an error below 0 or above 1, as one in per cent.

    >>> read_evaluation({"eval_loss": 0.25, "accuracy": 0.75, "num-examples": 400})
    {'test_loss': 0.25, 'test_error': 0.25}
    >>> read_evaluation({"top5_accuracy": 0.9, "train_loss": 0.1}), read_evaluation(None, 0.5)
    ({}, {'test_loss': 0.5})
    """
    given = metrics if isinstance(metrics, Mapping) else {}
    value = loss if _is_number(loss) else _find_number(given, _LOSS)
    numbers = {} if value is None else {"test_loss": float(value)}
    try:
        error = read_error(given)
    except NoShareError as wrong:
        wrong.numbers = numbers
        raise
    return numbers if error is None else {**numbers, "test_error": error}


def read_error(metrics: Mapping[str, Any]) -> float | None:
    """Read an error, or what an accuracy leaves; None where there is neither. Raises as :func:`read_evaluation`."""
    if (error := _find_number(metrics, _ERROR)) is not None:
        return _check_share("error", error)
    accuracy = _find_number(metrics, _ACCURACY)
    return None if accuracy is None else 1 - _check_share("accuracy", accuracy)


def read_client_evaluations(replies: Iterable[Mapping[str, Any]], aggregated: Any = None) -> dict[str, float]:
    """Read mean and deviation of the clients' errors on their own test data, ``client_test_error_mean`` and ``_std``,
    every client with the same weight; the deviation divides by their number.

    Args:
        replies: each client's metrics.
        aggregated: what the strategy made of them, for the mean alone where no reply has an error.

    Raises:
        NoShareError: as :func:`read_evaluation`.

    >>> read_client_evaluations([{"eval_acc": 0.5}, {"eval_acc": 1.0}, {"loss": 1.0}])
    {'client_test_error_mean': 0.25, 'client_test_error_std': 0.25}
    >>> read_client_evaluations([{"correct": 3}], {"accuracy": 0.75})
    {'client_test_error_mean': 0.25}
    """
    found = [error for metrics in replies if (error := read_error(metrics)) is not None and not math.isnan(error)]
    if found:
        return {"client_test_error_mean": float(np.mean(found)), "client_test_error_std": float(np.std(found))}
    error = read_error(aggregated) if isinstance(aggregated, Mapping) else None
    return {} if error is None else {"client_test_error_mean": error}


def metrics_of_message(message: Any) -> dict[str, Any]:
    """Return all numbers of a reply, whatever its records are called."""
    return {name: value for record in message.content.metric_records.values() for name, value in record.items()}


def _find_number(metrics: Mapping[str, Any], wanted: frozenset[str]) -> float | None:
    """The number whose name has a wanted word, and else none but those that say where it was measured; the one with the
    fewest words."""
    found = []
    for name, value in metrics.items():
        words = {word for word in re.split(r"[^a-z0-9]+", str(name).lower()) if word}
        if words & wanted and words - wanted <= _ABOUT and _is_number(value):
            found.append((len(words), float(value)))
    return min(found, key=lambda one: one[0])[1] if found else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _check_share(what: str, value: float) -> float:
    if not (math.isnan(value) or 0 <= value <= 1):
        raise NoShareError(f"{what} = {value:g}, which is no share from 0 to 1, so no error is recorded of it")
    return value
