"""The decomposition of one or more runs: a result that saves, loads, draws and tells itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Self

from ...plotting.style import describe_errors
from ...results import Table, TableResult, columns_of, group_rows, optional_int
from ...training.curves.run_curve import ErrorCurve
from ..draws.cohort_draws import RECORDED
from .fixed import fixed_factors
from .rows import ClientRow, FactorRow, RoundFactors, refuse_one_name

# what a row of BASE.clients.csv has of a client, before the run's model
CLIENT = ("client", "samples", "train_bias", "heter_bias", "variance", "distance")
# What a round's tables do not say and a figure needs.
ROUND_FIELDS = (
    *("round", "draws", "count", "independent", "outputs"),
    *("samples", "classes", "population", "split", "loss"),
)


@dataclass(frozen=True)
class RunFactors:
    """One model of one run over rounds: the run's name; `model`, "global" (the rounds' w_FMA) or "averaged" (the
    average over rounds, whose clients are those of all rounds in it); the decomposed rounds in order; the test errors
    to be drawn below."""

    run: str
    model: str
    rounds: tuple[RoundFactors, ...]
    curves: tuple[ErrorCurve, ...] = ()

    def summary(self) -> str:
        """Describe the last decomposed round in words, with its numbers."""
        last = self.rounds[-1]

        def shown(factor: str) -> str:
            row = last.row(factor)
            if row.value is None:
                return "not defined"
            error = "" if row.stderr_draws is None else f" ± {row.stderr_draws:.1g}"
            return f"{row.value:.3g}{error}"

        bias = (
            f"training bias {shown('train_bias')}, heterogeneous bias {shown('heter_bias')}, "
            f"cross {shown('bias_cross')}"
            if last.split
            else f"bias {shown('bias')}"
        )
        rest = ("variance", "covariance", "locality") if last.loss == "squared" else ("variance", "remainder")
        # of the recorded models alone some do not exist
        known = [factor for factor in rest if last.draws != RECORDED or last.row(factor).value is not None]
        fixed = fixed_factors([last])
        parts = [bias, *(f"{factor} {shown(factor)}{' (0 by construction)' * (factor in fixed)}" for factor in known)]
        closure = last.row("closure_error").value or 0.0
        which = "" if self.model == "global" else f", {self.model}"
        said = f"{self.run}{which}, round {last.round}: {', '.join(parts)} = loss {shown('fma_loss')}"
        errors = describe_errors(said, "draws")
        return f"{said} (closes to {closure:.0e}){errors}{self._steps(last)}{_without_samples(last)}"

    def _steps(self, last: RoundFactors) -> str:
        """Describe what the servers' steps in the window of an average over rounds add to the average of its clients;
        rounding is not worth a word."""
        step, loss = last.row("server_step").value, last.row("averaged_loss").value
        if self.model == "global" or step is None or loss is None or abs(step) <= 1e-4 * abs(loss):
            return ""
        return f"; the servers' steps add {step:.3g} to it: the recorded averaged model has loss {loss:.3g}"


@dataclass(frozen=True)
class Decomposition(TableResult):
    """The five factors of the rounds of one or more runs, all on the same split.

    `split` is "train" or "test", `loss` "squared" (the squared error summed over classes; with probabilities the Brier
    score), `draws` the source of the draws as given ("local:4"), `attrs` the provenance: data, seed, precision, device,
    versions. Values on the test split and on the training split are never in one result, so never on one axis.

    Raises:
        FedscopeError: two runs of one name and model.

    >>> from fedscope.decomposition.factors.result import Decomposition, RunFactors
    >>> result = Decomposition((RunFactors("ima", "global", ()),), split="train", draws="local:4")
    >>> list(result.factors())
    []
    """

    command = "decompose"
    suffixes = (".factors.csv", ".clients.csv", ".factors.json")
    format = "fedscope-decomposition"
    version = 2
    tables = (
        Table(
            ".factors.csv",
            {"run": str, "round": int, "model": str, "split": str, "loss": str, "draws": str, **columns_of(FactorRow)},
        ),
        Table(
            ".clients.csv",
            {"run": str, "round": int, **columns_of(ClientRow, *CLIENT), "model": str, "trained": optional_int},
        ),
    )

    runs: tuple[RunFactors, ...]
    split: str
    draws: str
    loss: str = "squared"
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_one_name([(run.run, run.model) for run in self.runs])

    def factors(self) -> Iterator[tuple[RunFactors, RoundFactors, FactorRow]]:
        """Every row of every round of every run."""
        return ((run, one, row) for run in self.runs for one in run.rounds for row in one.rows)

    def rows(self) -> list[Any]:
        """BASE.factors.csv and BASE.clients.csv: tidy, empty where a value does not exist."""
        factors = (
            (run.run, one.round, run.model, self.split, self.loss, self.draws, *astuple(row))
            for run, one, row in self.factors()
        )
        clients = (
            (run.run, one.round, *(getattr(row, name) for name in CLIENT), run.model, row.trained)
            for run in self.runs
            for one in run.rounds
            for row in one.clients
        )
        return [factors, clients]

    def head(self) -> dict[str, Any]:
        """Return the runs and rounds, the weights of the clients, the error curves."""

        def told(one: RoundFactors) -> dict[str, Any]:
            fields = {name: getattr(one, name) for name in ROUND_FIELDS}
            return {**fields, "rows": len(one.rows), "weights": [row.weight for row in one.clients]}

        runs = [
            {
                "run": run.run,
                "model": run.model,
                "rounds": [told(one) for one in run.rounds],
                "curves": [curve.to_json() for curve in run.curves],
            }
            for run in self.runs
        ]
        return {"split": self.split, "loss": self.loss, "draws": self.draws, "runs": runs}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        factors, clients = (group_rows(rows, "run", "model", "round") for rows in tables)

        def round_of(run: Mapping[str, Any], told: Mapping[str, Any]) -> RoundFactors:
            place = run["run"], run["model"], told["round"]
            rows, weighted = factors.get(place, []), zip(clients.get(place, []), told["weights"], strict=True)
            if len(rows) != told["rows"]:
                raise ValueError(f"{len(rows)} rows of a round that has {told['rows']}")
            fields = {name: told[name] for name in ROUND_FIELDS}
            members = [{**row, "weight": weight} for row, weight in weighted]
            return RoundFactors.from_json({**fields, "rows": rows, "clients": members})

        runs = (
            RunFactors(
                run["run"],
                run["model"],
                tuple(round_of(run, told) for told in run["rounds"]),
                tuple(map(ErrorCurve.from_json, run["curves"])),
            )
            for run in head["runs"]
        )
        return cls(tuple(runs), head["split"], head["draws"], head["loss"], head["attrs"])

    def summary(self) -> str:
        """Describe the last decomposed round of every run in words."""
        return "\n".join(run.summary() for run in self.runs)

    def findings(self) -> dict[str, Any]:
        """Every round's factors: of each what is measured, or its unbiased estimate where there is one, else the
        plug-in one."""
        rounds = [
            {"run": run.run, "model": run.model, "round": one.round}
            | {factor: _best(one.rows, factor) for factor in dict.fromkeys(row.factor for row in one.rows)}
            for run in self.runs
            for one in run.rounds
        ]
        return {"rounds": rounds}


def _best(rows: Sequence[FactorRow], factor: str) -> float | None:
    known = {row.estimate: row.value for row in rows if row.factor == factor}
    return next((v for kind in ("measured", "unbiased", "plugin") if (v := known.get(kind)) is not None), None)


def _without_samples(one: RoundFactors) -> str:
    """Describe the clients that a limited set of samples leaves without any of their own."""
    empty = sorted({row.client for row in one.clients if one.loss == "squared" and row.train_bias is None})
    if not one.split or not empty:
        return ""
    named = ", ".join(map(str, empty[:10])) + (", ..." if len(empty) > 10 else "")
    return f"; no sample among the {one.samples:,} is of client {named}, so their own bias is empty"
