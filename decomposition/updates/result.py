"""The geometry of updates over rounds, of a run and of several."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few, spans
from ...checkpoints.io.untrusted import regular
from ...plotting.style import describe_errors
from ...results import ArrayResult, Collection, along, pad_cohorts
from ...results.arrays import Variable
from ...results.csv_cells import cell
from ...results.labels import name_of_run
from ...results.tables import add_suffix, write_csv
from .angles import RoundUpdates

CLIENTS = {"weights": "weight of the client in the mean", "norm": "L2 norm of the update"}
NUMBERS = {
    "cosine_mean": "mean cosine over pairs of clients that moved",
    "cosine_stderr": "its standard error, jackknife over clients",
    "cosine_min": "least cosine of a pair",
    "cosine_max": "greatest cosine of a pair",
    "mean_norm": "weighted mean of the updates' L2 norms",
    "norm_of_mean": "L2 norm of the weighted mean update",
    "orthogonal": "norm_of_mean / mean_norm if the updates were orthogonal",
    "diversity": "weighted gradient diversity",
}
MEASURED = (
    *("cosine_mean", "cosine_stderr", "cosine_min", "cosine_max"),
    *("mean_norm", "norm_of_mean", "cancellation", "diversity", "orthogonal"),
)
COLUMNS = ("run", "round", "clients", *MEASURED, "unmoved", "diverged")
# Of more rounds than this in which clients diverged only the first one's clients are named.
NAMED = 3


@dataclass(frozen=True, eq=False)
class ClientUpdates(ArrayResult):
    """The geometry of a run's updates, round by round; rounds of fewer clients are padded in its file.

    ``attrs`` is the provenance: run, rounds, versions.

    Raises:
        FedscopeError: no round.
    """

    command = "updates"
    kind = "geometry-of-updates"
    collected = "Updates"
    needed = {
        **{"round": "round", "client_ids": "round client", "cosine": "round client client2"},
        **{**dict.fromkeys(CLIENTS, "round client"), **dict.fromkeys(NUMBERS, "round")},
    }
    optional = {"sketch": "round"}

    rounds: tuple[RoundUpdates, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rounds:
            raise FedscopeError("the geometry of updates needs a round; give at least one (--rounds last)")

    @property
    def run(self) -> str:
        """The run's name, "" where it is not known."""
        return name_of_run(self.attrs.get("run"))

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``round``, ``client`` and ``client2``, padded to the largest cohort: ids with -1, numbers with
        NaN."""
        most = max(len(round_.client_ids) for round_ in self.rounds)

        def of_all(name: str, fill: float = np.nan) -> np.ndarray:
            return pad_cohorts([getattr(round_, name) for round_ in self.rounds], most, fill)

        variables = {
            "client_ids": along("round client", of_all("client_ids", -1), "client, -1 for none"),
            "cosine": along("round client client2", of_all("cosine"), "cosine of two updates", "1"),
            **{name: along("round client", of_all(name), about, "1") for name, about in CLIENTS.items()},
        }
        for name, about in NUMBERS.items():
            variables[name] = along("round", np.array([getattr(round_, name) for round_ in self.rounds]), about, "1")
        if any(round_.sketch for round_ in self.rounds):
            sizes = np.array([round_.sketch for round_ in self.rounds], np.int64)
            variables["sketch"] = along("round", sizes, "numbers of a client that this is told from; 0 for exact", "1")
        numbers = np.array([round_.round for round_ in self.rounds], np.int64)
        return {"round": along("round", numbers, "round")}, variables

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """Build the result from what :meth:`arrays` gave."""
        rounds = []
        for i, number in enumerate(values["round"]):
            there = values["client_ids"][i] >= 0
            known: dict[str, Any] = {name: values[name][i][there] for name in ("client_ids", *CLIENTS)}
            known |= {name: float(values[name][i]) for name in NUMBERS}
            known["sketch"] = int(values["sketch"][i]) if "sketch" in values else 0
            cosine = values["cosine"][i][np.ix_(there, there)]
            rounds.append(RoundUpdates(round=int(number), cosine=cosine, **known))
        return cls(tuple(rounds), attrs)

    def summary(self) -> str:
        """Describe the first and the last round: how alike the updates point, and how much of their length the mean
        keeps."""
        first, last = self.rounds[0], self.rounds[-1]
        shown = [first] if last is first else [first, last]
        cosines = ", ".join(f"{_cosine(round_)} in round {round_.round}" for round_ in shown)
        kept = ", ".join(f"{_kept_words(round_)} in round {round_.round}" for round_ in shown)
        across = ", ".join(
            "undefined" if math.isnan(round_.orthogonal) else f"{round_.orthogonal:.3g}" for round_ in shown
        )
        sentence = (
            f"{self.run}: mean cosine between updates {cosines}; of their mean length the mean update keeps {kept} "
            f"(orthogonal ones: {across})"
        )
        sentence += describe_errors(sentence, "clients")
        for round_ in self.rounds:
            if round_.unmoved:
                has = "have" if len(round_.unmoved) > 1 else "has"
                sentence += f"; {_who(round_.unmoved)} of round {round_.round} did not move and {has} no direction"
        parts = [sentence, of_adapters(self.attrs), from_sketches(self), describe_divergence(self)]
        return "; ".join(part for part in parts if part)

    def findings(self) -> dict[str, Any]:
        """Every round's numbers, those of the table: None where one does not exist, infinite where updates cancel
        entirely; in JSON, which has no infinity, both are null."""
        rounds = []
        for round_ in self.rounds:
            numbers = measured(round_)
            where = {"run": self.run, "round": round_.round, "clients": len(round_.client_ids)}
            told = {"sketch": round_.sketch} if round_.sketch else {}
            rounds.append({**where, **numbers, "unmoved": round_.unmoved, "diverged": round_.diverged, **told})
        return {"rounds": rounds}


class Updates(Collection[ClientUpdates]):
    """The geometry of the updates of one or more runs, which have one table.

    Attributes:
        notes: what was left out.
    """

    command = "updates"
    derived = (".updates.csv",)
    part, whole = "ClientUpdates", True

    def __init__(self, parts: Mapping[str, ClientUpdates], notes: Sequence[str] = ()) -> None:
        super().__init__(parts)
        self.notes = list(notes)

    @classmethod
    def of_parts(cls, parts: Mapping[str, ClientUpdates]) -> Self:
        """Build the collection of its parts, each of which says what was left out of it."""
        return cls(parts, [note for part in parts.values() for note in part.attrs.get("left_out", ())])

    def derive(self, base: Path | str, *, again: bool = True) -> list[Path]:
        """``BASE.updates.csv``, a row a run and round; fields are empty where a value does not exist, also where a
        client that diverged makes it infinite.

        ``unmoved`` is how many clients are where they started, ``diverged`` how many have no finite update; the rest is
        in :class:`~fedscope.decomposition.updates.angles.RoundUpdates`.

        Each run has files of its own, which may all be there while the table is of another question's runs. So it is
        also written where its rows are of others; what else has become of it stays.
        """
        path = add_suffix(Path(base), ".updates.csv")
        rows = [_row(part.run, round_) for part in self for round_ in part.rounds]
        if again or _rounds_in(path) != [(cell(run), str(number)) for run, number, *_ in rows]:
            write_csv(path, COLUMNS, rows)
        return [path]

    def summary(self) -> str:
        """Every run's sentence, and what was left out."""
        return "\n".join([super().summary(), *self.notes])

    def findings(self) -> dict[str, Any]:
        """Every round's numbers, and what was left out."""
        return {"rounds": [row for part in self for row in part.findings()["rounds"]], "notes": self.notes}


def _rounds_in(path: Path) -> list[tuple[str, str]]:
    """Return run and round of every whole row of a table that lies there; none where there is no table."""
    if not path.exists():
        return []
    with regular(path).open(newline="", encoding="utf-8", errors="replace") as file, suppress(csv.Error):
        return [(row[0], row[1]) for row in islice(csv.reader(file), 1, None) if len(row) == len(COLUMNS)]
    return []


def describe_divergence(result: ClientUpdates) -> str:
    """Describe the clients that diverged, by round, and what that costs; "" where none did."""
    lost = [round_ for round_ in result.rounds if round_.diverged]
    without = [round_ for round_ in lost if round_.has_mean]
    have = "they have" if sum(len(round_.diverged) for round_ in without) > 1 else "it has"
    said = [
        _lost_words([round_ for round_ in lost if not round_.has_mean], "no mean exists there"),
        _lost_words(
            without, f"with weight 0 {have} no part in the mean, and only cosines over pairs are missing there"
        ),
    ]
    return "; ".join(filter(None, said))


def _lost_words(lost: Sequence[RoundUpdates], cost: str) -> str:
    """Say who diverged in some rounds, and what it costs; "" of none."""
    if not lost:
        return ""
    if len(lost) <= NAMED:
        who = ", ".join(f"{_who(round_.diverged)} of round {round_.round}" for round_ in lost)
        return f"{who} diverged: {cost}"
    first = lost[0]
    return (
        f"clients of rounds {spans(round_.round for round_ in lost)} diverged, first {_who(first.diverged)} of round "
        f"{first.round}: {cost}"
    )


def of_adapters(attrs: Mapping[str, Any]) -> str:
    """Say that updates are those of what adapters add; "" of other models."""
    if "adapters" not in attrs:
        return ""
    return "updates are those of the products B·A that the adapters add, and the mean is that of the products"


def from_sketches(result: ClientUpdates, *, short: bool = False) -> str:
    """Describe the rounds that are told from sketches, and how far off their numbers may be; "" where none is.

    Args:
        short: for a figure, without the formula.
    """
    rounds = [round_ for round_ in result.rounds if round_.sketch]
    if not rounds:
        return ""
    k = min(round_.sketch for round_ in rounds)
    which = f"rounds {spans(round_.round for round_ in rounds)}" if len(rounds) > 1 else f"round {rounds[0].round}"
    if short:
        error = f"cosines off by up to {1 / math.sqrt(k):.2g}, one standard deviation"
        return f"{which} from sketches of {k:,} numbers a client, {error}"
    return (
        f"{which} from sketches of {k:,} numbers a client: a length is off by {100 / math.sqrt(2 * k):.2g} %, the "
        f"cosine ρ of a pair by (1 − ρ²) {1 / math.sqrt(k):.2g} (one standard deviation)"
    )


def measured(round_: RoundUpdates) -> dict[str, float | None]:
    """Return a round's numbers by their columns, None where one does not exist, also where a client that diverged makes
    it infinite."""

    def field_of(value: float) -> float | None:
        # the diversity of updates that cancel entirely is infinite, and a value
        return None if math.isnan(value) or (round_.diverged and math.isinf(value)) else value

    return {name: field_of(float(getattr(round_, name))) for name in MEASURED}


def _row(run: str, round_: RoundUpdates) -> list[Any]:
    numbers = measured(round_).values()
    return [run, round_.round, len(round_.client_ids), *numbers, len(round_.unmoved), len(round_.diverged)]


def _cosine(round_: RoundUpdates) -> str:
    if math.isnan(round_.cosine_mean):
        return "not defined"
    return f"{round_.cosine_mean:.3g}" + ("" if math.isnan(round_.cosine_stderr) else f" ± {round_.cosine_stderr:.1g}")


def _kept_words(round_: RoundUpdates) -> str:
    return "an undefined share" if math.isnan(round_.cancellation) else f"{round_.cancellation:.3g}"


def _who(ids: Sequence[int]) -> str:
    return f"client{'s' if len(ids) > 1 else ''} {list_few(ids)}"
