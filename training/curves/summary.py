"""Text summaries of curves: means over the last rounds, where they reach a target, and what they lack."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

import numpy as np

from ...checkpoints.io.errors import list_few
from .bands import Band
from .measures import MEASURES, TOTALS, USUAL, CurveMeasure, measure_of
from .run_curve import WINDOW, Curve
from .run_names import USUAL_TASK

#: a unit stays with the word before it
_TIED = "\N{NO-BREAK SPACE}("
#: letters of an axis label that a panel has room for
_LETTERS = 24


def break_label(label: str) -> str:
    """An axis label in rows.

    >>> break_label("own-test accuracy of all clients (%)")
    'own-test accuracy of all\\nclients (%)'
    """
    return fill(label.replace(" (", _TIED), _LETTERS, break_long_words=False).replace(_TIED, " (")


def tails(measure: CurveMeasure, curves: Sequence[Band | Curve], last: int | None) -> str:
    """A measure's mean over the last measured rounds, with its deviation over these rounds, or of bands over seeds.

    Args:
        last: of how many; None for a tenth of them (:func:`~fedscope.training.curves.run_curve.window_of`). One round
            has no deviation.
    """
    single = True
    parts, over_seeds, total = [], any(isinstance(one, Band) for one in curves), measure.column in TOTALS
    for one in curves:
        mean, deviation, count = one.tail(measure.name, last)
        if not count:
            curve = one.curve if isinstance(one, Band) else one
            no_error = bool(curve.loss_task) and measure.column.endswith("error")
            parts.append(f"{one.label} {'has no error, only a loss' if no_error else 'not measured'}")
            continue
        digits, scale, unit = (".1f", 100, " %") if measure.is_share else (".3g", 1, "")
        spread = f" ± {scale * deviation:{digits}}" if count > 1 else ""
        few = ", all that were measured" if last is not None and count < last and not over_seeds else ""
        what = f" ({count} {'seed' if over_seeds else 'round'}{'s' if count > 1 else ''}{few})"
        single &= count == 1
        parts.append(f"{one.label} {scale * mean:{digits}}{spread}{unit}{'' if total and not over_seeds else what}")
    if total:
        return (
            f"{measure.words}, after the last round{', mean ± deviation over seeds' * over_seeds}: {', '.join(parts)}"
        )
    said = f"{measure.words}{_whose(measure)}"
    many = WINDOW if last is None else f"{last} at most"
    if over_seeds:
        how = f"mean ± deviation over seeds, of each one's last measured rounds, {many}"
    elif single:
        how = "last measured round"
    else:
        how = f"mean ± deviation over the last measured rounds, {many}"
    return f"{said}, {how}: {', '.join(parts)}"


def describe_reached(measure: CurveMeasure, curves: Sequence[Band | Curve], target: float) -> str:
    """Describe the first measured round with a target accuracy, and how many parameters were sent until then.

    Of a band these are its mean's; each seed's round is told with them.
    """
    parts = []
    for one in curves:
        line, each = (one.curve, one.each_reach(measure, target)) if isinstance(one, Band) else (one, {})
        there = line.reach(measure, target)
        seeds = f"; each seed {', '.join(str(t or 'not') for t in each.values())}" if len(each) > 1 else ""
        if there.round is None:
            best = f"best {100 * there.best:.1f} %{seeds}"
            parts.append(f"{one.label} not reached in {int(line.round[-1])} rounds ({best})")
        else:
            sent = f"{there.parameters_down:.3g} parameters to clients, {there.parameters_up:.3g} from them"
            told = "" if np.isnan(there.parameters_down + there.parameters_up) else sent
            beside = "; ".join(word for word in (told, seeds.removeprefix("; ")) if word)
            parts.append(f"{one.label} {there.round}{f' ({beside})' if beside else ''}")
    accuracy = measure.words.replace("error", "accuracy")
    return f"rounds to {100 * target:g} % {accuracy}{_whose(measure)}: {', '.join(parts)}"


def describe_other_losses(measures: Sequence[CurveMeasure], tasks: Sequence[str | None]) -> list[str]:
    """Say that losses are of different tasks; [] where they are of one, or no measure is a loss.

    >>> describe_other_losses([measure_of("test_loss")], [None, "mytask:huber"])
    ['the losses are of different tasks (classification, mytask:huber), which do not compare']
    """
    named = dict.fromkeys(task or USUAL_TASK for task in tasks)
    if len(named) < 2 or not any(measure.is_loss for measure in measures):
        return []
    return [f"the losses are of different tasks ({list_few(named, 4)}), which do not compare"]


def describe_stale(curves: Sequence[Curve], measure: CurveMeasure) -> str:
    """Describe that numbers of the last rounds are missing or were not finite; "" where they are there.

    >>> describe_stale([Curve("a", np.arange(1, 4), {"lr": np.array([0.1, 0.1, np.nan])})], measure_of("lr"))
    'lr of a was last a number in round 2 of 3; later ones are missing or not finite'
    """
    found = [(one, last) for one in curves if (last := one.stale_at(measure)) is not None]
    if not found:
        return ""
    whose = list_few((curve.run for curve, _ in found), 5)
    where = {f"round {last} of {int(curve.round[-1])}" for curve, last in found}
    at = where.pop() if len(where) == 1 else f"rounds {min(last for _, last in found)} to {max(t for _, t in found)}"
    return f"{measure.column} of {whose} was last a number in {at}; later ones are missing or not finite"


def describe_missing(curves: Sequence[Curve], asked: Sequence[CurveMeasure]) -> str:
    """Describe that runs have no numbers of what is asked for, and what they have."""
    names = dict.fromkeys(name for curve in curves for name in (*MEASURES, *curve.values))
    # how the server aggregates is no curve: `fedscope ls` says it
    names = {name: None for name in names if not name.startswith("server_")}
    have = [name for name in names if any(not np.isnan(curve.column(name)).all() for curve in curves)]
    runs, columns = (
        list_few(curve.run for curve in curves) if len(curves) > 12 else " and ".join(curve.run for curve in curves),
        " or ".join(TOTALS.get(measure.column, measure.column) for measure in asked),
    )
    lacks = f"{runs} {'has' if len(curves) == 1 else 'have'} no numbers of {columns}"
    # a loop's own column with the name that 1 less an error column has stands for what it lacks
    taken = {name: measure_of(name).column for name in have if measure_of(name).column != name}
    for name, column in taken.items():
        lacks += f" (its own {name} is another column, which no question takes; record {column}, 1 less the accuracy)"
    if have := [name for name in have if name not in taken]:
        lacks += f", only of {list_few(have, 24)}; ask for one of these with --measure"
    else:
        lacks += ": nothing was measured while it was recorded"
    if not any(measure.column in USUAL for measure in asked):
        return lacks
    only_errors = all(measure.is_share for measure in asked)
    if only_errors and all(curve.loss_task for curve in curves):
        tasks = list_few({curve.loss_task: None for curve in curves})
        return f"{lacks}; what was learnt ({tasks}) has a loss and no error"
    if all(curve.no_server for curve in curves):
        return (
            f"{lacks}; without a server there is no model that they would be of, but fedscope measure RUN --clients "
            "gives client_error_mean, and fedscope consensus RUN the error of the merged model"
        )
    unless = ", if their task has an error (a regression has none)" if only_errors and "test_loss" in have else ""
    return f"{lacks}{',' if have else ';'} {'or ' if have else ''}measure its models now{unless}: " + (
        "fedscope measure RUN, with --model and --data if the run names none"
    )


def _whose(measure: CurveMeasure) -> str:
    return " of the deployed model" if measure.is_deployed else ""
