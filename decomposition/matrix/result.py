"""Losses of a round's models on every client's data, over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ...checkpoints.io.errors import list_few
from ...plotting.style import describe_errors
from ...results import Serializable, Table, TableResult, columns_of, deviation_over, group_rows
from .significance import is_sure

#: the models of a round that all clients share, in the order of the rows; those that were recorded are there
SERVER = ("start", "global", "averaged")
#: the mean of all nodes of a round without one start, which none of them has
MERGED = "merged"
#: the place that is the whole test split
TEST = "test"


@dataclass(frozen=True)
class LossCell(Serializable):
    """One model at one place: loss and error over the ``samples`` there, and their standard errors over samples.

    ``model`` is ``client-7``, ``start``, ``global`` or ``averaged``, ``place`` ``client-7`` or ``test``; a number is
    None where it does not exist: an error where the task has none, a standard error of one sample.
    """

    #: labels name runs, and no such model
    of_run: ClassVar[bool] = True

    model: str
    place: str
    samples: int
    loss: float | None
    loss_stderr: float | None
    error: float | None
    error_stderr: float | None


@dataclass(frozen=True)
class Gain(Serializable):
    """What one client gains by a shared model at home: its own model's loss (error) minus the shared one's, on its own
    ``samples``; below 0 where the client's own model is better. ``p`` is the client's weight in the mean."""

    client: int
    p: float
    than: str
    samples: int
    loss_gain: float | None
    loss_gain_stderr: float | None
    error_gain: float | None
    error_gain_stderr: float | None


@dataclass(frozen=True)
class RoundMatrix(Serializable):
    """One round: its ``clients`` in an order in which those with similar labels are neighbours, cells and gains.

    ``deployed`` is the model that the gains in sentences are of: ``averaged`` where the round has one, else ``global``.
    ``loss_counts`` are how much the samples of each client count in a mean of losses, on average, in the order of
    ``clients``, and ``error_counts`` in one of errors: there where p are by samples, and the samples of the task do not
    count alike.
    """

    round: int
    clients: tuple[int, ...]
    deployed: str
    cells: tuple[LossCell, ...]
    gains: tuple[Gain, ...]
    loss_counts: tuple[float, ...] = ()
    error_counts: tuple[float, ...] = ()

    @property
    def measure(self) -> str:
        """What is shown: the error, and the loss where the task has no error."""
        return "loss" if all(cell.error is None for cell in self.cells) else "error"

    @property
    def models(self) -> tuple[str, ...]:
        """The rows: clients, then the shared models that there are."""
        there = {cell.model for cell in self.cells}
        return (*(f"client-{k}" for k in self.clients), *(name for name in (*SERVER, MERGED) if name in there))

    @property
    def places(self) -> tuple[str, ...]:
        """The columns: the clients' own data, then the test split."""
        return (*(f"client-{k}" for k in self.clients), TEST)

    def table(self, value: str) -> np.ndarray:
        """Return a value of the cells as an array [models, places]; NaN where it does not exist.

        >>> numbers = {"client-3": 0.5, "test": 1.0}
        >>> cells = [LossCell("client-3", place, 2, loss, None, None, None) for place, loss in numbers.items()]
        >>> RoundMatrix(1, (3,), "global", tuple(cells), ()).table("loss").tolist()
        [[0.5, 1.0]]
        """
        rows, columns = ({name: i for i, name in enumerate(names)} for names in (self.models, self.places))
        found = np.full((len(rows), len(columns)), np.nan)
        for cell in self.cells:
            number = getattr(cell, value)
            found[rows[cell.model], columns[cell.place]] = np.nan if number is None else number
        return found

    @property
    def lost(self) -> tuple[str, ...]:
        """The models that have a finite loss nowhere: their errors are those of no answers, all wrong, beside which any
        other model gains."""
        finite = {cell.model for cell in self.cells if _is_number(cell.loss)}
        measured = {cell.model for cell in self.cells}
        return tuple(name for name in self.models if name in measured and name not in finite)

    @property
    def diverged(self) -> tuple[int, ...]:
        """The clients whose own model is one of :attr:`lost`."""
        return tuple(k for k in self.clients if f"client-{k}" in self.lost)

    @property
    def is_lost(self) -> bool:
        """True if the deployed model is one of :attr:`lost`: then nobody gains by it or loses."""
        return self.deployed in self.lost

    def shown(self) -> np.ndarray:
        """Return what is drawn, [models, places]: the measure, errors in per cent, without those of :attr:`lost`."""
        there = np.array([name not in self.lost for name in self.models], np.bool_)
        return np.where(there[:, None], self.table(self.measure) * (100 if self.measure == "error" else 1), np.nan)

    def gains_of(self, than: str) -> list[Gain]:
        """Return the clients' gains by one shared model, in the order of the clients."""
        own = {gain.client: gain for gain in self.gains if gain.than == than}
        return [own[client] for client in self.clients if client in own]

    def weighted(self, value: str) -> dict[str, float]:
        """Σ_k p_k value[model, client k] of every model: over all clients' data where p is as their samples.

        Where samples of the task do not count alike, p_k is multiplied with ``loss_counts`` (or ``error_counts``) for
        that. Clients without samples here do not count, and the weights of the others add up to 1.
        """
        table = self.table(value)[:, :-1]
        p = np.array([gain.p for gain in self.gains_of(self.deployed)])
        there = np.array([cell.samples > 0 for cell in self.cells[: len(self.clients)]])
        if counts := {"loss": self.loss_counts, "error": self.error_counts}.get(value, ()):
            p, there = p * np.array(counts), there & (np.array(counts) > 0)
        shares = np.where(there, p, 0.0)
        means = np.where(there, table, 0.0) @ (shares / shares.sum())
        return dict(zip(self.models, means.tolist(), strict=True))


@dataclass(frozen=True)
class Matrix(TableResult):
    """Loss and error of every model of a round at every place: each client's own data, and the test split.

    ``attrs`` is the provenance: run, data, split, samples, device, versions.

    >>> from fedscope.decomposition.matrix.result import Matrix, RoundMatrix
    >>> Matrix("ima", (RoundMatrix(1, (), "global", (), ()),)).rows()
    [[], []]
    """

    command = "matrix"
    suffixes = (".matrix.csv", ".gains.csv", ".matrix.json")
    format = "fedscope-matrix"
    paged = {"": "draw_page"}
    tables = (
        Table(".matrix.csv", {"run": str, "round": int, **columns_of(LossCell)}),
        Table(".gains.csv", {"run": str, "round": int, **columns_of(Gain)}),
    )

    run: str
    rounds: tuple[RoundMatrix, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def rows(self) -> list[Any]:
        """BASE.matrix.csv: a row a model and place; BASE.gains.csv: a row a client and shared model."""
        return [
            [(self.run, one.round, *astuple(row)) for one in self.rounds for row in getattr(one, name)]
            for name in ("cells", "gains")
        ]

    def head(self) -> dict[str, Any]:
        """Return the run, and of its rounds what their rows do not say."""
        return {
            "run": self.run,
            "rounds": [
                {"round": one.round, "clients": list(one.clients), "deployed": one.deployed, **_counts(one)}
                for one in self.rounds
            ],
        }

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        cells, gains = (group_rows(table, "round") for table in tables)
        rounds = (
            RoundMatrix.from_json(
                {**one, "cells": cells.get((one["round"],), []), "gains": gains.get((one["round"],), [])}
            )
            for one in head["rounds"]
        )
        return cls(head["run"], tuple(rounds), head["attrs"])

    def summary(self) -> str:
        """Say of every round for how many clients the average is worse at home than their own model, and by how
        much."""
        return "\n".join(_sentence(self.run, one) for one in self.rounds)

    def findings(self) -> dict[str, Any]:
        """Every round's means by model, and the clients' gains by the deployed model."""
        return {"run": self.run, "rounds": [_numbers(one) for one in self.rounds]}


@dataclass(frozen=True)
class AtHome:
    """The gains of a round's clients by its deployed model, at home.

    Attributes:
        measured: clients with samples of their own whose gain is a number, those left out whose own model diverged;
            none where the deployed model did.
        worse: for whom their own model is better; surely: by more than two standard errors, see
            :func:`~fedscope.decomposition.matrix.significance.is_sure`.
        mean, stderr: of the gains over clients.
        least: the client that gains least, that is, loses most.
    """

    measured: int
    worse: int
    surely: int
    mean: float
    stderr: float
    least: Gain | None


def sum_gains(one: RoundMatrix) -> AtHome:
    """Sum the gains by the deployed model up."""
    name = f"{one.measure}_gain"
    gains = [
        gain
        for gain in one.gains_of(one.deployed)
        if _is_number(getattr(gain, name)) and gain.client not in one.diverged and not one.is_lost
    ]
    values = np.array([getattr(gain, name) for gain in gains])
    if not gains:
        return AtHome(0, 0, 0, math.nan, math.nan, None)
    stderr = float(deviation_over(values)) / math.sqrt(len(values))
    surely = sum(
        is_sure(gain.samples, getattr(gain, name), getattr(gain, f"{name}_stderr"), of_errors=one.measure == "error")
        for gain, value in zip(gains, values, strict=True)
        if value < 0
    )
    least = gains[int(values.argmin())]
    return AtHome(len(gains), int(np.sum(values < 0)), surely, float(values.mean()), stderr, least)


def _sentence(run: str, one: RoundMatrix) -> str:
    where, home = f"{run}, round {one.round}: ", sum_gains(one)
    if one.is_lost:
        return f"{where}{lost_words(one)}"
    if home.least is None:
        nobody = f"{where}no client has samples of its own on which its model and the {one.deployed} model are numbers"
        return f"{nobody}{left_out(one)}"
    kind = "error" if one.measure == "error" else "loss"
    whole = f"{home.measured} client{'s' if home.measured > 1 else ''}"
    worse = (
        f"{where}on their own data the {one.deployed} model has a larger {kind} than the client's own model for "
        f"{home.worse} of {whole} ({home.surely} of them by more than two standard errors)"
    )
    verb = "gains" if home.mean >= 0 else "loses"
    mean = f"there it {verb} {_shown(one, abs(home.mean), home.stderr)} on average over clients"
    least = home.least
    gain, stderr = getattr(least, f"{kind}_gain"), getattr(least, f"{kind}_gain_stderr")
    table, models = one.table(kind), one.models
    tests = table[:, -1]
    deployed = tests[models.index(one.deployed)]
    clients = np.array([test for k, test in zip(one.clients, tests, strict=False) if k not in one.diverged])
    test = f"test {kind} {_level(one, deployed)}, of a client's model {_level(one, float(clients.mean()))} on average"
    if home.mean >= 0:
        word, most = "least", _shown(one, gain, stderr, sign="+")
    else:
        word, most = "most", _shown(one, abs(gain), stderr)
    worst = f", {word} for client {least.client} ({most})" if home.measured > 1 else ""
    errors = describe_errors(f"{mean}{worst}", "clients, and for one client over its samples")
    return f"{worse}; {mean}{worst}; {test}{errors}{left_out(one)}"


def lost_words(one: RoundMatrix) -> str:
    """Say that the deployed model diverged, and who else has.

    >>> cells = [LossCell(model, TEST, 2, math.nan, None, 1.0, 0.0) for model in ("client-3", "global")]
    >>> lost_words(RoundMatrix(1, (3,), "global", tuple(cells), ()))
    "the global model has no finite loss, so it has no gains (NaN outputs count as wrong); nor has any client's model"
    """
    said = f"the {one.deployed} model has no finite loss, so it has no gains (NaN outputs count as wrong)"
    if not one.diverged:
        return said
    if len(one.diverged) == len(one.clients):
        return f"{said}; nor has any client's model"
    return f"{said}; nor has the own model of {_named(one.diverged)}"


def left_out(one: RoundMatrix) -> str:
    """Say whose models diverged, behind a sentence; "" where none has."""
    if not one.diverged:
        return ""
    return f"; left out, because the own model has no finite loss: {_named(one.diverged)}"


def _named(clients: Sequence[int]) -> str:
    return f"client {clients[0]}" if len(clients) == 1 else f"clients {list_few(clients, 6)}"


def _shown(one: RoundMatrix, value: float, stderr: float | None, sign: str = "") -> str:
    scale, unit = (100, " points") if one.measure == "error" else (1, "")
    spread = "" if stderr is None or not math.isfinite(stderr) else f" ± {scale * stderr:.2g}"
    return f"{scale * value:{sign}.3g}{spread}{unit}"


def _level(one: RoundMatrix, value: float) -> str:
    return f"{100 * value:.3g} %" if one.measure == "error" else f"{value:.3g}"


def _numbers(one: RoundMatrix) -> dict[str, Any]:
    home = sum_gains(one)
    tests = {cell.model: {"loss": cell.loss, "error": cell.error} for cell in one.cells if cell.place == TEST}
    return {
        "round": one.round,
        "clients": list(one.clients),
        **({"diverged": list(one.diverged)} if one.diverged else {}),
        "deployed": one.deployed,
        "worse_at_home": home.worse,
        "worse_by_two_stderr": home.surely,
        "measured": home.measured,
        f"{one.measure}_gain": home.mean,
        f"{one.measure}_gain_stderr": home.stderr,
        "test": tests,
        "gains": [asdict(gain) for gain in one.gains_of(one.deployed)],
    }


def _counts(one: RoundMatrix) -> dict[str, list[float]]:
    """How much samples count, where they do not count alike."""
    known = {name: list(getattr(one, name)) for name in ("loss_counts", "error_counts")}
    return {name: counts for name, counts in known.items() if counts}


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def neighbours(label_counts: np.ndarray) -> Sequence[int]:
    """Order clients so that those with similar labels are neighbours: places into ``label_counts`` [C, classes].

    Leaves of the average-linkage tree of distances ‖q_i − q_j‖₁ between shares of labels, in the order in which
    neighbours are nearest (Bar-Joseph et al. 2001, as scipy has it).

    >>> [int(k) for k in neighbours(np.array([[9, 0], [0, 7], [8, 1], [1, 6]]))]
    [0, 2, 3, 1]
    """
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import pdist

    counts = np.asarray(label_counts, np.float64)
    if len(counts) < 3:
        return range(len(counts))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    apart = pdist(shares, "cityblock")
    if not apart.any():
        return range(len(counts))
    order = leaves_list(optimal_leaf_ordering(linkage(apart, "average"), apart))
    return [int(k) for k in (order if order[0] <= order[-1] else order[::-1])]
