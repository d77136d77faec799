"""What a framework's own evaluations say, as the numbers of a run: of the server's model on test data, of clients on
theirs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

#: words of a metric's name that say on which split it was measured
_TEST, _VALIDATION = frozenset(("test", "testing")), frozenset(("val", "valid", "validation"))
#: words of a metric's name that say that clients measured it, or that it is a mean over them
_BY_CLIENTS = frozenset(
    ("federated", "distributed", "client", "clients", "local", "mean", "avg", "average", "aggregated")
)
#: words of a metric's name that say where or how it was measured, and not what
_ABOUT = (
    frozenset(("eval", "evaluate", "evaluation", "central", "centralized", "centralised", "server", "global"))
    | _BY_CLIENTS
    | _TEST
    | _VALIDATION
)
_LOSS, _ERROR, _ACCURACY = frozenset(("loss",)), frozenset(("error", "err")), frozenset(("accuracy", "acc"))
#: further words of accuracies, which are on the scale of accuracies and errors beside them
_KINDS = re.compile(r"top\d*|k|\d+|train|training|dev|best|balanced")
#: rounding of a mean of shares, which may be above 1 by it
_ROUNDING = 1e-6
#: above which a number is in per cent. Shares that a program gets wrong, as those of a last batch that is smaller, are
#: little above 1; per cents below it are accuracies of 1.5 % and less, and are followed by higher ones.
_PER_CENT = 1.5
#: ranks of a split, of numbers that clients measured, and of a loss that is given apart
_SPLITS, _CLIENTS, _APART = 3, 3, -3


class NoShareError(ValueError):
    """An accuracy or an error that is no share from 0 to 1.

    Attributes:
        column: which has no number for it.
        percent: whether it says that the evaluation is on another scale, as in per cent.
        others: what the evaluation says besides.
    """

    def __init__(self, message: str, *, percent: bool) -> None:
        super().__init__(message)
        self.percent, self.column, self.others = percent, "", Evaluation()


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation says of a round.

    Attributes:
        numbers: by column of ``metrics.csv``.
        shares: the columns that are right only if accuracies and errors are shares, which 0 does not tell.
        ranks: by column on what it was measured: 0 test data, 1 nobody says it, 2 validation data; of the server's
            evaluation 3 more where clients measured it, and 3 less for a loss that is given apart.
        choices: a clause for each column of which there were several numbers.
    """

    numbers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    shares: frozenset[str] = frozenset()
    ranks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Found:
    """A number among metrics: what it is called, and what it is of; of accuracies the error that they leave."""

    name: str
    what: str
    rank: int
    words: int
    given: float

    @property
    def value(self) -> float:
        return 1 - self.given if self.what == "accuracy" else self.given


def read_evaluation(metrics: Any, loss: Any = None) -> Evaluation:
    """Read ``test_loss`` and ``test_error`` from the metrics of the server's model; nothing where there are none.

    Names are taken by their words: ``loss`` and ``accuracy``, alone or with words like ``test``, ``eval`` and
    ``centralized``; those of test data before others, and those of validation data last. Behind all of these are names
    with words like ``client``, ``local`` and ``mean``, as they are not of the server's model. An accuracy is 1 less the
    error.

    Args:
        loss: of the older interface, which gives it apart; comes first.

    Raises:
        NoShareError: an accuracy or an error below 0 or above 1, as one in per cent, or beside such an accuracy.

    >>> dict(read_evaluation({"eval_loss": 0.25, "accuracy": 0.75, "num-examples": 400}).numbers)
    {'test_loss': 0.25, 'test_error': 0.25}
    >>> dict(read_evaluation({"top5_accuracy": 0.9, "train_loss": 0.1}, 0.5).numbers)
    {'test_loss': 0.5}
    >>> dict(read_evaluation({"val_loss": 0.1, "test_loss": 2.0, "val_accuracy": 0.9, "test_accuracy": 0.5}).numbers)
    {'test_loss': 2.0, 'test_error': 0.5}
    >>> dict(read_evaluation({"accuracy": 0.75, "local_test_accuracy": 0.5}).numbers)
    {'test_error': 0.25}
    """
    given = metrics if isinstance(metrics, Mapping) else {}
    apart = number_in(loss)
    first = [] if apart is None else [_Found("the loss beside the metrics", "loss", _APART, 1, apart)]
    found, choice = _choose([*first, *_search(given, "loss", _LOSS, of_server=True)], "test_loss")
    read = Evaluation() if found is None else _evaluation("test_loss", found, choice)
    try:
        error, choice = _read_error(given, "test_error", of_server=True)
    except NoShareError as wrong:
        wrong.column, wrong.others = "test_error", read
        raise
    return read if error is None else joined(read, _evaluation("test_error", error, choice))


def read_client_evaluations(replies: Iterable[Mapping[str, Any]], aggregated: Any = None) -> Evaluation:
    """Read mean and deviation of the clients' errors on their own test data, ``client_test_error_mean`` and ``_std``,
    every client with the same weight; the deviation divides by their number.

    Args:
        replies: each client's metrics.
        aggregated: what the strategy made of them, for the mean alone where no reply has an error.

    Raises:
        NoShareError: as :func:`read_evaluation`.

    >>> dict(read_client_evaluations([{"eval_acc": 0.5}, {"eval_acc": 1.0}, {"loss": 1.0}]).numbers)
    {'client_test_error_mean': 0.25, 'client_test_error_std': 0.25}
    >>> dict(read_client_evaluations([{"correct": 3}], {"accuracy": 0.75}).numbers)
    {'client_test_error_mean': 0.25}
    """
    mean, std = "client_test_error_mean", "client_test_error_std"
    try:
        read = _read_errors(replies, mean)
        errors = [error for error, _ in read if error is not None and not math.isnan(error.value)]
        if not errors:
            error, choice = _read_error(aggregated if isinstance(aggregated, Mapping) else {}, mean)
            return Evaluation() if error is None else _evaluation(mean, error, choice)
    except NoShareError as wrong:
        wrong.column = mean
        raise
    values = [error.value for error in errors]
    return Evaluation(
        {mean: float(np.mean(values)), std: float(np.std(values))},
        frozenset((mean, std)) if any(error.given for error in errors) else frozenset(),
        dict.fromkeys((mean, std), max(error.rank for error in errors)),
        tuple(choice for _, choice in read if choice)[:1],
    )


def joined(one: Evaluation, other: Evaluation) -> Evaluation:
    """Put two evaluations together; where both have a number, that of test data is taken, or else the first one's.

    >>> val, test = read_evaluation({"val_loss": 1.0}), read_evaluation({"test_loss": 2.0})
    >>> dict(joined(val, test).numbers), dict(joined(test, val).numbers)
    ({'test_loss': 2.0}, {'test_loss': 2.0})
    """
    after = {
        name
        for name in other.numbers
        if name not in one.numbers
        or other.ranks[name] < one.ranks[name]
        or (math.isnan(one.numbers[name]) and other.ranks[name] == one.ranks[name])
    }
    again = tuple(
        f"{name} is {one.numbers[name]:g} by the first of its evaluations, which is taken, and {value:g} by a later one"
        for name, value in other.numbers.items()
        if name not in after and other.ranks[name] == one.ranks[name] and _differ(one.numbers[name], value)
    )
    return Evaluation(
        {**one.numbers, **{name: other.numbers[name] for name in other.numbers if name in after}},
        (one.shares - after) | (other.shares & after),
        {**one.ranks, **{name: other.ranks[name] for name in after}},
        (*one.choices, *other.choices, *again),
    )


def without(one: Evaluation, columns: Iterable[str]) -> Evaluation:
    """Return an evaluation without some columns."""
    gone = frozenset(columns)
    return Evaluation(
        {name: value for name, value in one.numbers.items() if name not in gone},
        one.shares - gone,
        {name: rank for name, rank in one.ranks.items() if name not in gone},
        one.choices,
    )


def metrics_of_message(message: Any) -> dict[str, Any]:
    """Return all numbers of a reply, whatever its records are called."""
    return {name: value for record in message.content.metric_records.values() for name, value in record.items()}


def number_in(value: Any) -> float | None:
    """Return a number as a float, also one of numpy or in a tensor; None of anything else, as of texts and switches.

    >>> number_in(np.float32(0.25)), number_in(np.array(3)), number_in(True), number_in("0.5"), number_in([0.5])
    (0.25, 3.0, None, None, None)
    """
    try:
        one = value.item() if callable(getattr(value, "item", None)) else value
        return None if one is None or isinstance(one, bool | str | bytes) else float(one)
    except Exception:  # whatever a program has among its metrics
        return None


def _evaluation(column: str, found: _Found, choice: str) -> Evaluation:
    shares = frozenset((column,)) if found.what != "loss" and found.given else frozenset[str]()
    return Evaluation({column: found.value}, shares, {column: found.rank}, (choice,) if choice else ())


def _read_errors(replies: Iterable[Mapping[str, Any]], column: str) -> list[tuple[_Found | None, str]]:
    """Read the error of each reply; where several are no shares, one in per cent is raised."""
    read, wrong = [], []
    for metrics in replies:
        try:
            read.append(_read_error(metrics, column))
        except NoShareError as error:
            wrong.append(error)
    if wrong:
        raise next((error for error in wrong if error.percent), wrong[0])
    return read


def _read_error(metrics: Mapping[str, Any], column: str, *, of_server: bool = False) -> tuple[_Found | None, str]:
    """Read an error, or what an accuracy leaves; None where there is neither, and a clause where there are several."""
    found, choice = _choose(
        [
            *_search(metrics, "error", _ERROR, of_server=of_server),
            *_search(metrics, "accuracy", _ACCURACY, of_server=of_server),
        ],
        column,
    )
    if found is None or math.isnan(found.given):
        return found, choice
    own = _is_percent(found.given)
    # an error beside may be of any scale, as a mean deviation is
    beside = next(((name, value) for name, value in _accuracies(metrics) if not own and _is_percent(value)), None)
    if -_ROUNDING <= found.given <= 1 + _ROUNDING and beside is None:
        return replace(found, given=min(max(found.given, 0.0), 1.0)), choice
    by = "" if beside is None else f" beside {beside[0]} = {beside[1]:g}"
    percent = own or beside is not None
    raise NoShareError(
        f"{found.what} = {found.given:g}{by}, which is no share from 0 to 1, so no error is recorded of it"
        f"{' or of later rounds' if percent else ''}",
        percent=percent,
    )


def _is_percent(value: float) -> bool:
    return _PER_CENT < value < math.inf


def _search(metrics: Mapping[str, Any], what: str, wanted: frozenset[str], *, of_server: bool) -> list[_Found]:
    """Find the numbers whose names have a wanted word, and else none but those that say where they were measured."""
    found = []
    for name, value in metrics.items():
        words, number = _words(name), number_in(value)
        if words & wanted and words - wanted <= _ABOUT and number is not None:
            rank = 0 if words & _TEST else 2 if words & _VALIDATION else 1
            rank += _CLIENTS if of_server and words & _BY_CLIENTS else 0
            found.append(_Found(repr(str(name)), what, rank, len(words), number))
    return found


def _choose(found: list[_Found], column: str) -> tuple[_Found | None, str]:
    """Take that of the lowest rank with the fewest words; a clause where another one has another value, but for those
    of validation data beside others, which say by their names that they may."""
    if not found:
        return None, ""
    best = min(found, key=lambda one: (one.rank, one.what == "accuracy", one.words))
    alike = [one for one in found if best.rank % _SPLITS == 2 or one.rank % _SPLITS != 2]
    other = next((one for one in alike if _differ(best.value, one.value)), None)
    if other is None:
        return best, ""
    return best, f"{column} is taken from {best.name}, and {other.name} beside it says otherwise"


def _accuracies(metrics: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    """Yield the accuracies among metrics, of whatever kind and split."""
    for name, value in metrics.items():
        words, number = _words(name), number_in(value)
        rest = words - _ACCURACY - _ABOUT
        if words & _ACCURACY and all(map(_KINDS.fullmatch, rest)) and number is not None:
            yield str(name), number


def _words(name: Any) -> set[str]:
    return {word for word in re.split(r"[^a-z0-9]+", str(name).lower()) if word}


def _differ(one: float, other: float) -> bool:
    return not (math.isclose(one, other, rel_tol=1e-5, abs_tol=_ROUNDING) or (math.isnan(one) and math.isnan(other)))
