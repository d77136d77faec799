"""Errors of models that have diverged: an error is never missing, because an answer that is no number counts as wrong,
and the loss beside it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...checkpoints.io.errors import list_few, spans
from .measures import CurveMeasure, measure_of
from .run_curve import Curve, window_of


@dataclass(frozen=True)
class Lost:
    """Rounds of a run whose error is one of no answers.

    Attributes:
        run: its name.
        where: the rounds, in words: ``from round 2 on``, or ``in rounds 4-5`` where there was a loss again.
        wrong: whether no answer of them is right, as of a model that is no number; else the loss alone has ended.
    """

    run: str
    where: str
    wrong: bool

    @property
    def words(self) -> str:
        """Of one run, behind its name: ``diverged: no finite loss from round 2 on; its answers count as wrong``."""
        return _words(self.wrong, self.where)


def lost_in(curve: Curve, measure: CurveMeasure, last: int | None = None) -> Lost | None:
    """Find the rounds of a run's mean over its last ones whose error is of a model without a finite loss; None where
    there are none, and of measures without the loss of the same model.

    A missing loss alone says little: a loop may record none, or one every tenth round. So of the missing ones those
    count in which no answer is right, and those after which none has come for longer than rounds were left out before,
    where no error in these is as small as the last with a loss.
    An infinite loss is one: a loss of one's own may be infinite on a sample.

    Args:
        last: of how many measured rounds the mean is; None as in :meth:`Curve.tail`.

    >>> numbers = {"test_loss": np.array([2.3, np.nan, np.nan]), "test_error": np.array([0.9, 1.0, 1.0])}
    >>> lost_in(Curve("fma", np.arange(1, 4), numbers), measure_of("test_error"))
    Lost(run='fma', where='from round 2 on', wrong=True)
    """
    rounds, lost, wrong = _lost(curve, measure)
    window = lost[-(last or window_of(len(lost))) :]
    if not window.any():
        return None
    if window[-1]:
        kept = np.flatnonzero(~lost)
        first = int(rounds[kept[-1] + 1 if len(kept) else 0])
        return Lost(curve.run, f"from round {first} on", bool(wrong[rounds >= first].all()))
    own = rounds[-len(window) :][window]
    return Lost(curve.run, f"in round{'s' if len(own) > 1 else ''} {spans(own.tolist())}", True)


def rounds_without_number(curve: Curve, measure: CurveMeasure) -> np.ndarray:
    """List the rounds whose value of a measure is known not to be finite: an infinite one, and the loss of a model that
    has diverged, as its error says; a missing one is not.

    >>> numbers = {"test_loss": np.array([2.3, np.nan, np.nan]), "test_error": np.array([0.9, 1.0, 1.0])}
    >>> rounds_without_number(Curve("fma", np.arange(1, 4), numbers), measure_of("test_loss")).tolist()
    [2, 3]
    """
    infinite: np.ndarray = curve.round[np.isinf(curve.series(measure))]
    if measure.column not in ("test_loss", "averaged_test_loss"):
        return infinite
    rounds, lost, _ = _lost(curve, measure_of(measure.column.replace("loss", "error")))
    found: np.ndarray = np.union1d(infinite, rounds[lost])
    return found


def _lost(curve: Curve, measure: CurveMeasure) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rounds with an error, in which of them it is of a model without a finite loss, and in which of these
    no answer is right; no rounds of measures without the loss of the same model."""
    error, loss = _error(curve, measure), _loss_beside(curve, measure)
    if error is None or loss is None:
        return np.zeros(0, int), np.zeros(0, bool), np.zeros(0, bool)
    there = ~np.isnan(error)
    rounds, error, missing = curve.round[there], error[there], np.isnan(loss[there])
    share = bool((error <= 1).all())  # else it is in per cent, of which 1 is a good one
    wrong = missing & (error == 1) & share
    ended = Curve(curve.run, curve.round, {"test_loss": loss}).stale_at(measure_of("test_loss"))
    if ended is not None:
        gone = missing & (rounds > ended)
        # a loop that no longer measures its loss goes on learning; what has diverged does not
        learns = bool((error[gone] <= error[(rounds <= ended) & ~missing][-1:]).any())
        lost = wrong if learns else wrong | gone
    else:
        # of a run with no loss at all, which may be one that nobody measured, all answers have to be wrong
        lost = wrong if not np.isnan(loss).all() or wrong.all() else np.zeros_like(wrong)
    return rounds, lost, wrong


def describe_diverged(curves: Sequence[Curve], measure: CurveMeasure, last: int | None = None) -> list[str]:
    """Describe which of several runs enter a mean with the error of a model that has diverged.

    >>> numbers = {"test_loss": np.array([2.3, np.nan, np.nan]), "test_error": np.array([0.9, 1.0, 1.0])}
    >>> describe_diverged([Curve("fma", np.arange(1, 4), numbers)], measure_of("test_accuracy"))
    ['fma diverged: no finite loss from round 2 on; its answers count as wrong']
    """
    found = [lost for curve in curves if (lost := lost_in(curve, measure, last)) is not None]
    said = []
    if wrong := [one for one in found if one.wrong]:
        who, where = _runs(wrong)
        said.append(f"{who} {_words(True, where, len(wrong))}")
    if other := [one for one in found if not one.wrong]:
        who, where = _runs(other)
        said.append(f"{who} {_words(False, where, len(other))}")
    return said


def _words(wrong: bool, where: str, runs: int = 1) -> str:
    if wrong:
        return f"diverged: no finite loss {where}; {'their' if runs > 1 else 'its'} answers count as wrong"
    have = "have" if runs > 1 else "has"
    return f"{have} no finite loss {where}, as a model that diverged; answers that are no numbers count as wrong"


def _runs(found: Sequence[Lost]) -> tuple[str, str]:
    """Return the runs and where they lost it: behind each name where that differs."""
    places = {one.where for one in found}
    if len(places) == 1:
        return list_few((one.run for one in found), 5), places.pop()
    return list_few((f"{one.run} ({one.where})" for one in found), 5), "there"


def _error(curve: Curve, measure: CurveMeasure) -> np.ndarray | None:
    """The errors of a measure of one model; None of a mean over clients, whose losses there are not recorded."""
    name = measure.column.removeprefix("averaged_")
    of_one = name in ("test_error", "domain_error_mean") or name.startswith("test_error_")
    return curve.deployed(measure.column) if of_one and measure.is_reachable else None


def _loss_beside(curve: Curve, measure: CurveMeasure) -> np.ndarray | None:
    """The loss of the model that has the errors: that of the average in the rounds whose error is the average's."""
    own, averaged = curve.column("test_loss"), curve.column("averaged_test_loss")
    if measure.column.startswith("averaged_"):
        return averaged
    errors = curve.averaged(measure.column)
    return own if errors is None else np.where(np.isnan(errors), own, averaged)
