"""Consensus of nodes over rounds and runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite, isnan
from typing import Any, Self

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import spans
from ...results import Serializable, Table, TableResult, columns_of, group_rows
from ..draws.divergence import diverged_words, lost_rounds

#: a matrix that leaves more than this share of the distance before mixing does not explain the next starts
EXPLAINED = 0.01
#: identified weights below this are left out of the file
LEAST = 1e-3


@dataclass(frozen=True)
class RoundConsensus(Serializable):
    """One round of a run: C ``nodes``, their distances, and their merged model against their own.

    Attributes:
        before: the consensus distance √(1/C Σ ‖w_c − w̄‖²) after local training; ``after``: of the next starts, that is
            after mixing, None where neither they nor the matrix is known.
        moved: ‖w̄ − w⁰‖, the mean's distance to the initial model, None where round 1's start was not recorded.
        before_relative, after_relative: ``before`` and ``after`` in shares of ``moved``; None where there is none.
        mixing: ``given``, ``identified``, ``unknown``, or ``one`` where all nodes are sent one model.
        residual: what the matrix leaves of the next starts, a share of ``before``; None where nothing says it.
        contraction: the share of the distance before that mixing leaves at most, of adapters of that between their
            factors; None of no matrix.
        staleness: the mean age of the nodes' starts in rounds; None where it was not recorded.
        merged_loss, merged_error, nodes_loss, nodes_error, loss_gain, error_gain: see
            :class:`~fedscope.decomposition.consensus.merged.MergedLosses`.
    """

    run: str
    round: int
    nodes: int
    before: float
    after: float | None
    moved: float | None
    before_relative: float | None
    after_relative: float | None
    mixing: str
    residual: float | None
    contraction: float | None
    staleness: float | None
    merged_loss: float
    merged_error: float
    nodes_loss: float
    nodes_error: float
    loss_gain: float
    loss_gain_stderr: float
    error_gain: float
    error_gain_stderr: float

    @property
    def measure(self) -> str:
        """The measure that is shown: the error, and the loss where the task has no error."""
        return "loss" if isnan(self.merged_error) and isnan(self.nodes_error) else "error"


@dataclass(frozen=True)
class MixingWeight(Serializable):
    """The weight of the model of node ``of`` in the next start of ``node``."""

    node: int
    of: int
    weight: float


@dataclass(frozen=True)
class MeasuredRound(Serializable):
    """A round, the weights of its mixing, and what there is to say of it: nodes that ``diverged``, and ``why`` a matrix
    is not known."""

    row: RoundConsensus
    weights: tuple[MixingWeight, ...] = ()
    diverged: tuple[int, ...] = ()
    why: str = ""

    @property
    def is_lost(self) -> bool:
        """True where a model gives no answers: all of them count as wrong, so a difference of errors is none. A loss
        that is infinite is one of answers, too (a probability of 0), but for models that diverged. Where the loss is
        what is shown, it is lost itself."""
        row = self.row
        if row.measure == "loss" or self.diverged:
            return not isfinite(row.loss_gain)
        return isnan(row.merged_loss) or isnan(row.nodes_loss)


@dataclass(frozen=True)
class Consensus(TableResult):
    """How far nodes' models are apart over rounds, before and after mixing, and their merged model against their own.

    ``attrs`` is the provenance: data, split, samples, device, versions.

    Raises:
        FedscopeError: two rounds that could not be told apart.

    >>> from fedscope.decomposition.consensus.result import Consensus
    >>> Consensus(()).rows()
    [[], None]
    """

    command = "consensus"
    suffixes = (".consensus.csv", ".mixing.csv", ".consensus.json")
    format = "fedscope-consensus"
    tables = (
        Table(".consensus.csv", columns_of(RoundConsensus)),
        Table(".mixing.csv", {"run": str, "round": int, **columns_of(MixingWeight)}, optional=True),
    )

    rounds: tuple[MeasuredRound, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [(one.row.run, one.row.round) for one in self.rounds]
        for run, round_ in named:
            if named.count((run, round_)) > 1:
                raise FedscopeError(
                    f"round {round_} of {run} is there twice, and its rows could not be told apart; rename one of two "
                    "runs with the same name"
                )

    @property
    def measure(self) -> str:
        """The measure that is shown: the error, and the loss where no round has an error."""
        return "error" if any(one.row.measure == "error" for one in self.rounds) else "loss"

    def of_runs(self) -> dict[str, list[MeasuredRound]]:
        """Return the rounds of each run."""
        found: dict[str, list[MeasuredRound]] = {}
        for one in self.rounds:
            found.setdefault(one.row.run, []).append(one)
        return found

    def only(self, run: str) -> Self:
        """Return the rounds of one run alone."""
        return replace(self, rounds=tuple(one for one in self.rounds if one.row.run == run))

    def rows(self) -> list[Any]:
        """BASE.consensus.csv: a row a round; BASE.mixing.csv: a row a weight, where a matrix is known."""
        weights = [
            (one.row.run, one.row.round, own.node, own.of, own.weight) for one in self.rounds for own in one.weights
        ]
        return [[tuple(asdict(one.row).values()) for one in self.rounds], weights or None]

    def head(self) -> dict[str, Any]:
        """Return what the rows do not say, and how many weights belong to each round."""
        return {
            "rounds": [
                [one.row.run, one.row.round, len(one.weights), list(one.diverged), one.why] for one in self.rounds
            ]
        }

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        rows = {(row["run"], row["round"]): row for row in tables[0]}
        weights = group_rows(tables[1], "run", "round")
        rounds = []
        for run, number, count, diverged, why in head["rounds"]:
            own = [{name: row[name] for name in ("node", "of", "weight")} for row in weights.get((run, number), [])]
            if len(own) != count:
                raise ValueError(f"{count} weights were written for round {number} of {run}, and {len(own)} are there")
            content = {"row": rows[run, number], "weights": own, "diverged": diverged, "why": why}
            rounds.append(MeasuredRound.from_json(content))
        return cls(tuple(rounds), head["attrs"])

    def summary(self) -> str:
        """Every run's last round: distances before and after mixing, and the merged model against its nodes."""
        return "\n".join(self._told(run, rounds) for run, rounds in self.of_runs().items())

    def _told(self, run: str, rounds: list[MeasuredRound]) -> str:
        last = rounds[-1]
        row = last.row
        nodes = f"{row.nodes} nodes" if row.nodes > 1 else "one node"
        parts = [f"{run}, round {row.round}: {nodes}, consensus distance {row.before:.3g}{_share(row.before_relative)}"]
        parts[0] += f" before mixing, {_after(last)}"
        parts.append(self._merged(last))
        lost = [one for one in rounds if one.is_lost or not isfinite(self._gain(one.row)[0])]
        better = [one for one in rounds if one not in lost and self._gain(one.row)[0] > 0]
        if len(rounds) > 1 and any(one.row.nodes > 1 for one in rounds):
            parts.append(f"it is better in {len(better)} of {len(rounds)} rounds")
            parts.append(lost_rounds([one.row.round for one in lost]))
        # only where some of the runs are none of adapters those that are have their names there
        of_adapters = "adapters" in self.attrs and run in self.attrs.get("adapter_runs", [run])
        of_products = "distances are between the products B·A that the adapters add" if of_adapters else ""
        parts += filter(
            None, [_way_words(row), _mixing_words(rounds), of_products, diverged_words(last.diverged, row.round)]
        )
        return "; ".join(filter(None, parts))

    def _gain(self, row: RoundConsensus) -> tuple[float, float]:
        return getattr(row, f"{self.measure}_gain"), getattr(row, f"{self.measure}_gain_stderr")

    def _merged(self, one: MeasuredRound) -> str:
        row = one.row
        if one.is_lost:
            return _lost_words(row)
        what = f"{self.attrs.get('split', '')} {self.measure}".strip()
        scale, unit = (100, " %") if self.measure == "error" else (1, "")
        merged, nodes = (scale * getattr(row, f"{of}_{self.measure}") for of in ("merged", "nodes"))
        gain, error = (scale * value for value in self._gain(row))
        points = " points" if unit else ""
        spread = f" ± {error:.2g}" if isfinite(error) else ""
        than = f"{abs(gain):.3g}{spread}{points} {'less' if gain >= 0 else 'more'}" if isfinite(gain) else "not finite"
        than += ", one standard error over samples" if spread else ""
        if row.nodes == 1:
            return f"{what} of its model {nodes:.3g}{unit}"
        return f"{what} of their merged model {merged:.3g}{unit}, of the nodes {nodes:.3g}{unit} on average ({than})"

    def findings(self) -> dict[str, Any]:
        """Every round's numbers."""
        return {"rounds": [asdict(one.row) for one in self.rounds]}


def _share(relative: float | None) -> str:
    return "" if relative is None or not isfinite(relative) else f" ({100 * relative:.3g} % of the mean's way)"


def _way_words(row: RoundConsensus) -> str:
    """Say why there are no shares of the mean's way; "" where there are."""
    return (
        "how far the mean has come is not known, because round 1's start was not recorded" if row.moved is None else ""
    )


def _lost_words(row: RoundConsensus) -> str:
    """Say of a round without a gain whose loss is not finite."""
    whose = "its model" if row.nodes == 1 else "a node's model" if isfinite(row.merged_loss) else "their merged model"
    said = f"{whose} has no finite loss, so nothing is gained or lost"
    return said if row.measure == "loss" else f"{said} (NaN outputs count as wrong)"


def _after(one: MeasuredRound) -> str:
    row = one.row
    if row.mixing == "one":
        return "after it 0, as all get one model"
    return "after it not known" if row.after is None else f"{row.after:.3g} after it"


def _unknown_residual(row: RoundConsensus) -> str:
    """Say why the share of the distance before mixing is none."""
    if row.before != 0 or (row.after is not None and not isfinite(row.after)):
        return "a model is not finite"
    return "there is one node" if row.nodes == 1 else "all nodes have one model"


def _mixing_words(rounds: list[MeasuredRound]) -> str:
    """Describe where the mixing is known from, and what it does not explain."""
    residuals = [(one.row.residual, one) for one in rounds if one.row.residual is not None]
    finite = [(share, one) for share, one in residuals if isfinite(share)]
    unknown = [one for one in rounds if one.row.mixing == "unknown"]
    said = []
    if finite:
        share, worst = max(finite, key=lambda known: known[0])
        source = "mixing as given" if worst.row.mixing == "given" else "mixing identified"
        fits = f"{source} leaves {100 * share:.1g} % of the next starts unexplained at most"
        if share > EXPLAINED:
            fits = (
                f"{source} does not explain the next starts: {100 * share:.3g} % of the distance is left in round "
                f"{worst.row.round}"
            )
        said.append(fits)
    lost = [one for share, one in residuals if not isfinite(share)]
    for why in ("all nodes have one model", "there is one node", "a model is not finite"):
        if own := [one for one in lost if _unknown_residual(one.row) == why]:
            where = f"round{'s' if len(own) > 1 else ''} {spans(one.row.round for one in own)}"
            said.append(f"what mixing leaves is not known in {where}, where {why}")
    if unknown and (len(unknown) > 1 or not residuals):
        first = unknown[0]
        which = f"{len(unknown)} rounds" if len(unknown) > 1 else f"round {first.row.round}"
        said.append(f"mixing not known in {which}: {first.why}")
    return "; ".join(said)
