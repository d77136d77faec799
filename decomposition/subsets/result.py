"""Averages of subsets of clients over rounds and runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import cached_property
from math import isfinite, isnan
from typing import Any, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.style import describe_alignment, describe_errors
from ...results import Serializable, Table, TableResult, columns_of, deviation_over, group_rows
from ..draws.divergence import diverged_words

# Means of one error over different numbers of subsets differ by as much, relative to the largest error of 1.
ROUNDING = 1e-12
#: the place of averages that are each measured on their members' data
OWN = "own"


@dataclass(frozen=True)
class SizeRow(Serializable):
    """Averages of ``m`` clients: over ``subsets`` of them, all there are where ``exhaustive``.

    ``error``: share misclassified, 0..1; ``loss``: mean cross-entropy in nats. ``std`` is over the subsets, ``stderr``
    that of the mean (see :func:`~fedscope.decomposition.subsets.averages.average_subsets`); None where it does not
    exist.
    """

    m: int
    subsets: int
    exhaustive: bool
    error_mean: float
    error_std: float | None
    error_stderr: float | None
    loss_mean: float
    loss_std: float | None
    loss_stderr: float | None
    error_min: float
    error_max: float


@dataclass(frozen=True)
class RoundSubsets(Serializable):
    """One round of a run: C ``clients``, and a row a size, ascending.

    ``diverged``: the ids of the clients whose model holds a NaN or an infinity; so does every average with one of them,
    and where its outputs are NaN, they count as wrong. ``place``: on whose training data, ``all``, ``client-3`` or
    ``own`` (of the members of each average); "" on a split. ``weights``: ``recorded`` where averages weigh clients by
    the p that another program recorded, which are not as their samples; "" where they are as those of all rounds.
    """

    run: str
    round: int
    clients: int
    sizes: tuple[SizeRow, ...]
    diverged: tuple[int, ...] = ()
    place: str = ""
    weights: str = ""

    @property
    def data(self) -> str:
        """Whose data, in words; "" of a split."""
        if self.of_client is not None:
            return f"client {self.of_client}'s data"
        return {"all": "all clients' data", OWN: "the members' own data"}.get(self.place, "")

    @property
    def of_client(self) -> int | None:
        """The client whose data they are; None of others."""
        number = self.place.removeprefix("client-")
        return int(number) if number != self.place else None

    @property
    def measure(self) -> str:
        """The measure that is shown: the error, and the loss where the task has no error."""
        without = all(isnan(row.error_mean) for row in self.sizes) and any(
            isfinite(row.loss_mean) for row in self.sizes
        )
        return "loss" if without else "error"

    def enough(self, share: float = 0.9) -> int | None:
        """Return the least size from which on mean errors, or losses (:attr:`measure`), have come down by ``share`` of
        the way from the first size to the last; None where the last is no better than the first, but for rounding.

        >>> rows = [SizeRow(m, 1, False, e, None, None, e, None, None, e, e) for m, e in ((1, 0.5), (2, 0.2), (4, 0.1))]
        >>> RoundSubsets("ima", 1, 4, tuple(rows)).enough(0.75)
        2
        """
        means = [getattr(row, f"{self.measure}_mean") for row in self.sizes]
        first, last = means[0], means[-1]
        if not first - last > ROUNDING:
            return None
        least = self.sizes[-1].m
        for row, mean in zip(reversed(self.sizes), reversed(means), strict=True):
            if mean > last + (1 - share) * (first - last):
                break
            least = row.m
        return least

    def summary(self, split: str) -> str:
        """Describe the round in words: the error of one, of all, and how many are enough."""

        def shown(i: int) -> str:
            row = self.sizes[i]
            if self.measure == "loss":
                return f"{row.loss_mean:.3g}" + ("" if row.loss_stderr is None else f" ± {row.loss_stderr:.2g}")
            spread = "" if row.error_stderr is None else f" ± {100 * row.error_stderr:.2g}"
            return f"{100 * row.error_mean:.3g}{spread} %"

        what = f"{split} {self.measure}".strip()
        first, last = self.sizes[0].m, self.sizes[-1].m
        begin = f"{self.run}, round {self.round}{', on ' if self.place else ''}{self.data}: "
        diverged = diverged_words(self.diverged, self.round)
        whose = "it" if len(self.diverged) == 1 else "one of them"
        broken = f"; {diverged}, nor are averages with {whose}, and NaN outputs count as wrong" if diverged else ""
        if self.clients == 1:
            return f"{begin}a cohort of one client, so nothing is averaged; {what} {shown(0)}{broken}"
        of = "a single client" if first == 1 else f"averages of {first}"
        if len(self.sizes) == 1:
            return f"{begin}{what} of {of} {shown(0)}{describe_errors(shown(0), 'subsets')}{broken}"
        last_of = f"the average of all {last}" if last == self.clients else f"averages of {last}"
        # of a part of the way from one client to all it would be taken for the whole
        enough = self.enough() if (first, last) == (1, self.clients) else None
        when = f"; nine tenths of the difference are there from m = {enough} on" if enough is not None else ""
        said = f"{what} of {of} {shown(0)}, of {last_of} {shown(-1)}"
        return f"{begin}{said}{when}{describe_errors(said, 'subsets')}{broken}"


@dataclass(frozen=True)
class SubsetsAtPlaces(Serializable):
    """One round of a run on the data of several places."""

    places: tuple[RoundSubsets, ...]


@dataclass(frozen=True)
class Subsets(TableResult):
    """Error and loss of an average by the number of models in it.

    ``weights`` is ``samples`` (p proportional to the clients' numbers of samples), ``uniform``, or ``recorded`` where
    all rounds have the p of another program; a round's own ``weights`` are there where they differ; ``attrs`` the
    provenance: data, split, samples, seed, subsets asked for, device, versions.

    Raises:
        FedscopeError: two rounds that could not be told apart.

    >>> from fedscope.decomposition.subsets.result import RoundSubsets, Subsets
    >>> list(Subsets((RoundSubsets("ima", 1, 10, ()),), "samples").sizes())
    []
    """

    command = "subsets"
    suffixes = (".subsets.csv", ".subsets.json")
    format = "fedscope-subsets"
    # version 1 had no places
    version = 2
    older = (1,)
    tables = (
        Table(
            ".subsets.csv",
            {"run": str, "round": int, "weights": str, **columns_of(SizeRow), "place": str},
            added={"place": ""},
        ),
    )

    rounds: tuple[RoundSubsets, ...]
    weights: str
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = Counter((one.run, one.round, one.place) for one in self.rounds)
        for (run, round_, _), count in named.items():
            if count > 1:
                raise FedscopeError(
                    f"round {round_} of {run} is there twice, and its rows could not be told apart; rename one of two "
                    "runs with the same name"
                )

    def sizes(self) -> Iterator[tuple[RoundSubsets, SizeRow]]:
        """Every size of every round."""
        return ((one, row) for one in self.rounds for row in one.sizes)

    def rows(self) -> list[Any]:
        """BASE.subsets.csv: a row a size, empty where a value does not exist."""
        return [
            [(one.run, one.round, one.weights or self.weights, *astuple(row), one.place) for one, row in self.sizes()]
        ]

    def head(self) -> dict[str, Any]:
        """Return the rounds, and what their rows do not say."""
        return {"weights": self.weights, "rounds": [_about(one) for one in self.rounds]}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        sizes = group_rows(tables[0], "run", "round", "place")
        rounds = (
            RoundSubsets.from_json({**one, "sizes": sizes.get((one["run"], one["round"], one.get("place", "")), [])})
            for one in head["rounds"]
        )
        return cls(tuple(rounds), head["weights"], head["attrs"])

    def summary(self) -> str:
        """Every round's error of one, of all, and how many are enough; on the data of several clients their mean."""
        lines, split = [], str(self.attrs.get("split", ""))
        for one in self.rounds:
            group = self.on_clients(one)
            if len(group) < 2:
                lines.append(one.summary("" if one.place else split))
            elif one is group[0]:
                lines.append(_of_clients(group))
        return "\n".join([*lines, *([words] if (words := self.alignment_words()) else [])])

    def alignment_words(self) -> str:
        """Say that clients are averaged in another order of their units than their own; nothing where it is theirs."""
        words = describe_alignment(self.attrs, "the first client")
        return f"the clients' {words}" if words else ""

    def on_clients(self, one: RoundSubsets) -> list[RoundSubsets]:
        """Return the same round on each client's data, where ``one`` is on a client's; else nothing."""
        return list(self._on_clients.get((one.run, one.round), ())) if one.of_client is not None else []

    @cached_property
    def _on_clients(self) -> dict[tuple[str, int], list[RoundSubsets]]:
        """Those on a client's data, by run and round: of thousands of clients nothing looks through all for each."""
        found: dict[tuple[str, int], list[RoundSubsets]] = {}
        for one in self.rounds:
            if one.of_client is not None:
                found.setdefault((one.run, one.round), []).append(one)
        return found

    def findings(self) -> dict[str, Any]:
        """Every round's sizes."""
        rounds = [{**_about(one), "sizes": [asdict(row) for row in one.sizes]} for one in self.rounds]
        return {"rounds": rounds, **({"align": self.attrs["align"]} if self.attrs.get("align") else {})}


def _about(one: RoundSubsets) -> dict[str, Any]:
    about: dict[str, Any] = {name: getattr(one, name) for name in ("run", "round", "clients", "diverged")}
    return about | {name: value for name in ("place", "weights") if (value := getattr(one, name))}


def _of_clients(group: Sequence[RoundSubsets]) -> str:
    """Describe a round on the data of several clients: means over them, and for how many more models are better."""
    one, measure = group[0], group[0].measure
    ends = np.array([[getattr(own.sizes[i], f"{measure}_mean") for i in (0, -1)] for own in group], float)

    def shown(values: np.ndarray) -> str:
        scale, unit = (100, " %") if measure == "error" else (1, "")
        error = deviation_over(values) / np.sqrt(len(values))
        return f"{scale * values.mean():.3g} ± {scale * error:.2g}{unit}"

    first, last = one.sizes[0].m, one.sizes[-1].m
    begin = f"{one.run}, round {one.round}, on the data of each of {len(group)} clients: {measure} of "
    of = "a single client" if first == 1 else f"averages of {first}"
    if len(one.sizes) == 1:
        return f"{begin}{of} {shown(ends[:, 0])}, mean ± standard error over clients"
    last_of = f"the average of all {last}" if last == one.clients else f"averages of {last}"
    better = int((ends[:, 1] < ends[:, 0]).sum())
    diverged = diverged_words(one.diverged, one.round)
    return (
        f"{begin}{of} {shown(ends[:, 0])}, of {last_of} {shown(ends[:, 1])}, means ± standard errors over clients; on "
        f"the data of {better} of them the latter is less{f'; {diverged}' if diverged else ''}"
    )
