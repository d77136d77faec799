"""Means of the last W globals over rounds and runs, measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from math import isfinite, isnan
from typing import Any, Self

import numpy as np

from ...checkpoints.io.errors import list_few
from ...results import Serializable, Table, TableResult, columns_of, deviation_over, group_rows


@dataclass(frozen=True)
class WindowMean(Serializable):
    """The mean of the last ``window`` globals, of which there were only ``globals`` where the window is longer than the
    run so far; of one it is ``global`` itself. ``loss``: mean cross-entropy in nats; ``error``: share misclassified,
    0..1, NaN where the task has none."""

    window: int
    globals: int
    loss: float
    error: float


@dataclass(frozen=True)
class Decayed(Serializable):
    """The mean of a window compared with the steps with a decaying rate that add up to it (equations 6 and 7).

    ``first`` is the window's first round. ``difference`` of the two as a share of the mean's norm, None where no model
    from before that round is there; whether it ``holds``, that is up to rounding; whether the ``starts`` of all its
    rounds were recorded, for else the global before stands for one; and how many of its rounds start ``elsewhere`` than
    at the global before. See
    :func:`~fedscope.decomposition.windows.decayed_steps.decayed_steps`.
    """

    window: int
    first: int
    difference: float | None = None
    holds: bool = False
    starts: bool = False
    elsewhere: int = 0


@dataclass(frozen=True)
class RoundMeans(Serializable):
    """One round of a run: a row a window, ascending, that of ``global`` first; of a run's last round also ``decayed``,
    what each window's mean is in steps."""

    run: str
    round: int
    rows: tuple[WindowMean, ...]
    decayed: tuple[Decayed, ...] = ()


@dataclass(frozen=True)
class WindowLine:
    """A run's means over the rounds asked for, by window.

    Attributes:
        run: its name; rounds: those that the means are over.
        windows: ascending, from 1 on.
        mean, std: of the error, [windows], or of the loss where there is no error; std is over the rounds (n - 1), NaN
            of one.
    """

    run: str
    rounds: tuple[int, ...]
    windows: tuple[int, ...]
    mean: np.ndarray
    std: np.ndarray

    @property
    def best(self) -> int:
        """The window with the least mean; 1 where it is ``global`` or none is finite."""
        return self.windows[int(np.nanargmin(self.mean))] if np.isfinite(self.mean).any() else 1


@dataclass(frozen=True)
class WindowMeans(TableResult):
    """Loss and error of the means of the last W globals.

    Attributes:
        rounds: of all runs.
        parts: which parameters are averaged: ``all``, ``features`` or ``classifier``; the rest is ``global``'s.
        attrs: provenance: runs, rounds, windows, data, split, samples, versions; ``averages``, of each run what it
            averages over rounds itself; ``paces``, of runs whose average changes clients' learning rates, from which
            round on.

    >>> from fedscope.decomposition.windows.result import RoundMeans, WindowMean, WindowMeans
    >>> rows = tuple(WindowMean(w, w, 2 * e, e) for w, e in ((1, 0.5), (5, 0.25)))
    >>> WindowMeans((RoundMeans("fma", 9, rows),)).lines()[0].best
    5
    """

    command = "wima"
    suffixes = (".wima.csv", ".wima.json")
    format = "fedscope-wima"
    tables = (Table(".wima.csv", {"run": str, "round": int, "parts": str, **columns_of(WindowMean)}),)

    rounds: tuple[RoundMeans, ...]
    parts: str = "all"
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measure(self) -> str:
        """The measure that is shown: the error, and the loss where the task has no error."""
        rows = [row for one in self.rounds for row in one.rows]
        without = all(isnan(row.error) for row in rows) and any(isfinite(row.loss) for row in rows)
        return "loss" if without else "error"

    def lines(self) -> list[WindowLine]:
        """Return the runs' means over their rounds."""
        made = []
        for run in dict.fromkeys(one.run for one in self.rounds):
            own = [one for one in self.rounds if one.run == run]
            values = np.array([[getattr(row, self.measure) for row in one.rows] for one in own])
            windows = tuple(row.window for row in own[0].rows)
            made.append(
                WindowLine(run, tuple(one.round for one in own), windows, values.mean(axis=0), deviation_over(values))
            )
        return made

    def rows(self) -> list[Any]:
        """BASE.wima.csv: a row a round and window."""
        return [[(one.run, one.round, self.parts, *astuple(row)) for one in self.rounds for row in one.rows]]

    def head(self) -> dict[str, Any]:
        """Return the rounds and which parts are averaged."""
        decayed = [[one.run, one.round, [asdict(row) for row in one.decayed]] for one in self.rounds if one.decayed]
        return {"parts": self.parts, "rounds": [[one.run, one.round] for one in self.rounds], "decayed": decayed}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        rows = group_rows(tables[0], "run", "round")
        # an older fedscope did not look at the steps
        decayed = {(run, number): found for run, number, found in head.get("decayed", [])}
        rounds = (
            RoundMeans.from_json(
                {"run": run, "round": number, "rows": rows[run, number], "decayed": decayed.get((run, number), [])}
            )
            for run, number in head["rounds"]
        )
        return cls(tuple(rounds), head["parts"], head["attrs"])

    def summary(self) -> str:
        """Every run's mean over its rounds by window, and the window with the least."""
        share = self.measure == "error"
        scale, digits, unit = (100, ".3g", " %") if share else (1, ".3g", "")
        said = []
        for line in self.lines():
            shown = [
                f"{scale * mean:{digits}}" + (f" ± {scale * std:.2g}" if isfinite(std) else "") + unit
                for mean, std in zip(line.mean, line.std, strict=True)
            ]
            when = f"round {line.rounds[0]}"
            if len(line.rounds) > 1:
                when = f"mean ± deviation over {len(line.rounds)} rounds from {line.rounds[0]} to {line.rounds[-1]}"
            means = ", ".join(f"{words} (W = {window})" for window, words in zip(line.windows, shown, strict=True))
            what = f"{self.attrs.get('split', '')} {self.measure}".strip()
            parts = "" if self.parts == "all" else f" ({self.parts} averaged)"
            best = f"W = {line.best}" if line.best > 1 else "W = 1, global itself"
            own = self.attrs.get("averages", {}).get(line.run, "none")
            # an older fedscope did not look at what SWA's cycles do
            note = _changed_words(own, self.attrs.get("paces", {}).get(line.run), known="paces" in self.attrs)
            note += self._short_words(line)
            note += self._broken_words(line)
            said.append(
                f"{line.run}, {when}: {what} of the mean of the last W globals{parts} {means}; least for {best}{note}"
            )
            newest = next(one for one in reversed(self.rounds) if one.run == line.run)
            if newest.decayed:
                said.append(f"{line.run}@{newest.round}, {said_of_steps(newest.decayed)}")
        return "\n".join(said)

    def _short_words(self, line: WindowLine) -> str:
        """Say which windows are longer than there are globals: W = 100 of eight rounds reads as if a hundred had been
        averaged, also where a mean is over rounds of which some have them all.

        >>> rounds = [RoundMeans("fma", t, (WindowMean(1, 1, 0.5, 0.25), WindowMean(3, min(t, 3), 0.4, 0.2)))
        ...           for t in (2, 3)]
        >>> one = WindowMeans(tuple(rounds))
        >>> one._short_words(one.lines()[0])
        '; in 1 of 2 rounds there are fewer than 3 globals: such a window is all of them'
        """
        last = line.rounds[-1]
        if line.windows[-1] > last:
            there = "is 1 global" if last == 1 else f"are {last} globals"
            return f"; up to round {last} there {there}: a longer window is all of them"
        short = [one for one in self.rounds if one.run == line.run and one.rows[-1].globals < one.rows[-1].window]
        if not short:
            return ""
        return (
            f"; in {len(short)} of {len(line.rounds)} rounds there are fewer than {line.windows[-1]} globals: such a "
            "window is all of them"
        )

    def _broken_words(self, line: WindowLine) -> str:
        """Say which windows have a loss that is not finite, and in how many rounds: their error is that of no answer.

        >>> rows = (WindowMean(1, 1, 0.5, 0.25), WindowMean(2, 2, float("nan"), 1.0))
        >>> one = WindowMeans((RoundMeans("fma", 9, rows),))
        >>> one._broken_words(one.lines()[0])
        '; the loss is not finite in 1 of 1 round (W = 2), where a model of the window or their mean has diverged'
        """
        own = [one for one in self.rounds if one.run == line.run]
        lost = {window: sum(not isfinite(one.rows[i].loss) for one in own) for i, window in enumerate(line.windows)}
        rounds = f"{len(own)} round{'s' if len(own) > 1 else ''}"
        counts = dict.fromkeys(count for count in lost.values() if count)
        parts = [
            f"in {count} of {rounds} (W = {list_few([window for window, its in lost.items() if its == count])})"
            for count in counts
        ]
        if not parts:
            return ""
        return f"; the loss is not finite {', '.join(parts)}, where a model of the window or their mean has diverged"

    def findings(self) -> dict[str, Any]:
        """Every round's windows, and every run's means over its rounds."""
        names = {f"{self.measure}_mean": "mean", f"{self.measure}_std": "std"}
        means = [
            {"run": line.run, "rounds": len(line.rounds), "window": window}
            | {name: float(getattr(line, own)[i]) for name, own in names.items()}
            for line in self.lines()
            for i, window in enumerate(line.windows)
        ]
        return {"rounds": [asdict(one) for one in self.rounds], "means": means}


def said_of_steps(decayed: Sequence[Decayed]) -> str:
    """Tell whether the mean of a window is steps with a decaying rate (equation 7), of all windows that end in a round.

    >>> said_of_steps([Decayed(5, 8, 3.1e-8, True, True)]).partition(": ")[2]
    'the same to 3e-08 (W = 5)'
    """
    finite = [one for one in decayed if one.difference is not None and isfinite(one.difference)]
    parts = []
    if own := [one for one in finite if one.holds]:
        parts.append(f"the same to {max(one.difference or 0 for one in own):.1g} ({_lengths(own)})")
    if own := [one for one in finite if not one.holds]:
        most = max(one.elsewhere for one in own)
        parts.append(f"not the same, off by {max(one.difference or 0 for one in own):.1g} ({_lengths(own)})")
        if most:
            parts[-1] += f": {most} round{'s do' if most > 1 else ' does'} not start from the global before"
    if own := [one for one in decayed if one.difference is not None and not isfinite(one.difference)]:
        parts.append(f"not finite ({_lengths(own)})")
    if own := [one for one in finite if not one.starts]:
        parts.append(f"starts that were not recorded are taken to be the global before ({_lengths(own)})")
    if own := [one for one in decayed if one.difference is None]:
        parts.append(f"not checked, for no model from before the window was recorded ({_lengths(own)})")
    equation = (
        "the mean of a window as the server's steps with a rate that falls from 1 to 1/W (the paper's equation 7)"
    )
    return f"{equation}: {'; '.join(parts)}"


def _lengths(decayed: Sequence[Decayed]) -> str:
    return f"W = {list_few([one.window for one in decayed])}"


def _changed_words(average: str, paced: int | None = None, *, known: bool = True) -> str:
    """Say that a run's own average over rounds was trained on, or may have been, or that its cycles have changed
    clients' learning rates from the round ``paced`` on, where that is ``known``; "" where it is for evaluation only.

    >>> _changed_words("ima"), _changed_words("swa")
    ('; it was trained with ima, which changes the globals', '')
    >>> _changed_words("swa", 3).partition(", so ")[0]
    "; its clients' learning rates follow SWA's cycles from round 3 on"
    """
    if paced is not None:
        return (
            f"; its clients' learning rates follow SWA's cycles from round {paced} on, so its globals are not those of "
            "a run with WIMA"
        )
    if average in ("none", "wima") or (average == "swa" and known):
        return ""
    # what code of the user's own does is not known here
    return f"; it was trained with {average}, which {'changes' if average == 'ima' else 'may change'} the globals"
