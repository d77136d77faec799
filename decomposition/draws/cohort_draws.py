"""Draws of a whole cohort, which the expectation over client models is estimated from: from what was recorded, the last
rounds of one run or one round of several runs; and the cohorts of several rounds as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Round, Run, Weights, real_path, recorded_clients, rounds_with_clients
from ...checkpoints.rounds.run_identity import shared_rounds
from ...training.user_code.different_sources import other_source

# p is compared with 1 because every identity of the decomposition needs sum_k p_k = 1: y - WENS = sum_k p_k (y - f_k).
P_TOLERANCE = 1e-9
#: the source of a single draw, the recorded models
RECORDED = "none"


@dataclass(frozen=True)
class CohortDraws:
    """R draws of the K client models of one round, `(w_1^r .. w_K^r)` for r = 1..R; draw 1 is the recorded one.

    Fields: `round`; `client_ids` [K]; `p` [K] float64, the aggregation weights, sum 1; `draws`, R matrices `Weights`
    [K, P] in the order of `client_ids`; `client_samples` [K], None where they are not known; `source`, where the draws
    come from as it was asked for (`"local:4"`, `"rounds:5"`, `"runs"`, or `"none"` for the recorded models alone),
    written into every result and figure; `independent`, whether the R draws are independent of each other: only then do
    unbiased estimates and standard errors over draws exist; `trained` [K], the round in which each model was trained,
    where that is not `round` for all: an average over rounds has the clients of several, and then a client may occur
    more than once.

    Raises FedscopeError for R = 1 (no variance and no covariance: refused, never reported as 0) unless the source is
    `"none"`, of which these are empty, for rows that do not fit the clients, for layouts that differ between draws, and
    for p that is negative or does not sum to 1.
    """

    round: int
    client_ids: npt.NDArray[np.int64]
    p: npt.NDArray[np.float64]
    draws: Sequence[Weights]
    client_samples: npt.NDArray[np.int64] | None
    source: str
    independent: bool
    trained: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.count < 2 and self.source != RECORDED:
            raise FedscopeError(
                f"R = {self.count} gives no variance and no covariance (round {self.round}, draws {self.source}): take "
                "two draws of the cohort or more, for example --draws local:4"
            )
        cohort = len(self.client_ids)
        for name, values in (("p", self.p), ("client_samples", self.client_samples), ("trained", self.trained)):
            if values is not None and len(values) != cohort:
                raise FedscopeError(
                    f"round {self.round} has {cohort} client_ids, but {name} has {len(values)} values: "
                    "give each client one"
                )
        if cohort == 0 or not np.all(self.p >= 0) or abs(float(np.sum(self.p)) - 1.0) > P_TOLERANCE:
            raise FedscopeError(
                f"the weights p of round {self.round} sum to {float(np.sum(self.p))!r} over {cohort} clients: they "
                "must be non-negative and sum to 1"
            )
        for number, draw in enumerate(self.draws, start=1):
            if draw.parameters.ndim != 2 or draw.parameters.shape[0] != cohort:
                raise FedscopeError(
                    f"draw {number} of round {self.round} has shape {list(draw.parameters.shape)}, but there are "
                    f"{cohort} clients: a draw is the matrix [K, P] of all of them"
                )
            difference = self.draws[0].layout.difference(draw.layout)
            if difference is not None:
                raise FedscopeError(f"draw {number} of round {self.round} has another layout than draw 1: {difference}")

    @property
    def count(self) -> int:
        """R, the number of draws."""
        return len(self.draws)


def recorded_draw(run: Run, number: int) -> CohortDraws:
    """`none`: the round's recorded clients as they are, a single draw.

    There is no variance and no covariance; what another training of the same clients would change counts as bias.

    Raises:
        FedscopeError: the round's clients were not recorded.
    """
    return _cohort([recorded_clients(run, number, start=False)], RECORDED, independent=False)


def draws_of_rounds(run: Run, number: int, count: int) -> CohortDraws:
    """`rounds:R`: the clients of the last R recorded rounds up to `number` as draws, the newest first.

    They are points of the clients' solution sets: the drift between rounds counts as variance and the draws depend on
    each other, so there are plug-in estimates only and no standard error over draws.

    Raises:
        FedscopeError: the round's clients were not recorded; fewer than R rounds up to it; cohorts that differ.
    """
    return _cohort(rounds_of_cohort(run, number, count), f"rounds:{count}", independent=False)


def rounds_of_cohort(run: Run, number: int, count: int) -> list[Round]:
    """Return the rounds whose clients :func:`draws_of_rounds` takes, the newest first; raises as it does, without
    models."""
    source = f"rounds:{count}"
    last = recorded_clients(run, number, start=False)
    have = [t for t in rounds_with_clients(run) if t <= number]
    if len(have) < count:
        raise FedscopeError(
            f"--draws {source}: up to round {number}, {run.path} recorded the clients of {len(have)} only; take a "
            f"later round, fewer draws, or --draws {'none' if run.is_foreign else 'local:4'}"
        )
    rounds = [last, *(run.round(t) for t in reversed(have[-count:-1]))]
    for round_ in rounds[1:]:
        if not np.array_equal(round_.client_ids, last.client_ids):
            raise FedscopeError(
                f"--draws {source} needs one cohort in all {count} rounds, but at {run.path} the cohorts of rounds "
                f"{round_.number} and {number} differ (partial participation), so they are draws of different clients; "
                f"use --draws {'none' if run.is_foreign else 'local:4'}"
            )
    return rounds


def draws_of_runs(runs: Sequence[Run], number: int) -> CohortDraws:
    """`runs`: one round of R runs that differ only in their seed, as R independent draws, the first run's first.

    The expectation is unconditional: over initial models, mini-batch orders and everything else that the seed draws.

    Raises:
        FedscopeError: one run; models, partitions, data, cohorts or weights p that differ; a run given twice.
    """
    refuse_unequal_runs(runs)
    first = runs[0]
    rounds = [recorded_clients(run, number, start=False) for run in runs]
    for run, round_ in zip(runs[1:], rounds[1:], strict=True):
        if not np.array_equal(round_.client_ids, rounds[0].client_ids):
            raise FedscopeError(
                f"--draws runs: {first.path} and {run.path} have different cohorts in round {number}; train them with "
                "one data.seed, which draws the cohorts"
            )
        if not np.array_equal(round_.weights, rounds[0].weights):
            raise FedscopeError(
                f"--draws runs: {first.path} and {run.path} weight the clients of round {number} differently; train "
                "them with one server.weighting"
            )
    return _cohort(rounds, "runs", independent=True)


def refuse_unequal_runs(runs: Sequence[Run]) -> None:
    """Refuse runs that are not draws of one thing; what :func:`draws_of_runs` says without reading a model.

    Raises:
        FedscopeError: one run; models, partitions, data or settings that differ; one run or one seed twice; a branch.
    """
    if len(runs) < 2:
        raise FedscopeError(
            f"--draws runs: {runs[0].path} is the only run with its configuration; give two or more that differ only "
            "in their seed, or use --draws local:4"
        )
    for one, other in combinations(runs, 2):
        _same_question(one, other)


def join(cohorts: Sequence[CohortDraws], shares: npt.ArrayLike, round: int) -> CohortDraws:
    """Return the cohorts of several rounds as one, for a model that averages those rounds' averages.

    Σ_τ a_τ w_FMA^τ = Σ_τ Σ_k a_τ p_k^τ w_k^τ is again a weighted average of client models, with the weights a_τ p_k^τ:
    the theorem holds for it as it stands. Draw r takes the r-th draw of every round. Where the server makes more than
    w_FMA of the clients, the recorded `averaged` differs from it by those steps (`server_step` of the result).

    Args:
        cohorts: of the rounds τ.
        shares: a_τ, sum 1.
        round: whose average it is; it may be later than the last τ.

    Raises:
        FedscopeError: numbers of draws or sources that differ.
    """
    last = cohorts[-1]
    for cohort in cohorts:
        if (cohort.count, cohort.source) != (last.count, last.source):
            raise FedscopeError(
                f"round {cohort.round} has {cohort.count} draws ({cohort.source}), round {last.round} has {last.count} "
                f"({last.source}): rounds that are joined need the same ones"
            )
    weights = np.asarray(shares, dtype=np.float64)
    p = np.concatenate([share * cohort.p for share, cohort in zip(weights, cohorts, strict=True)])
    return CohortDraws(
        round=round,
        client_ids=np.concatenate([cohort.client_ids for cohort in cohorts]),
        p=p / p.sum(),  # Σ a_τ is 1 up to rounding, and P_TOLERANCE is no excuse
        draws=tuple(_concatenate([cohort.draws[r] for cohort in cohorts]) for r in range(last.count)),
        client_samples=_join_known([cohort.client_samples for cohort in cohorts]),
        source=last.source,
        independent=last.independent,
        trained=np.concatenate([np.full(len(cohort.client_ids), cohort.round) for cohort in cohorts]),
    )


def _cohort(rounds: Sequence[Round], source: str, *, independent: bool) -> CohortDraws:
    first = rounds[0]
    return CohortDraws(
        round=first.number,
        client_ids=first.client_ids,
        p=first.weights,
        draws=tuple(round_.clients() for round_ in rounds),
        client_samples=first.client_samples if first.has("client_samples") else None,
        source=source,
        independent=independent,
    )


def _join_known(parts: Sequence[npt.NDArray[np.int64] | None]) -> npt.NDArray[np.int64] | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _concatenate(parts: Sequence[Weights]) -> Weights:
    buffers = {name: np.concatenate([part.buffers[name] for part in parts]) for name in parts[0].buffers}
    return Weights(parts[0].layout, np.concatenate([part.parameters for part in parts]), buffers)


def _same_question(one: Run, other: Run) -> None:
    """Refuse two runs that are not draws of one thing."""
    both = f"--draws runs: {one.path} and {other.path}"
    if real_path(one.path) == real_path(other.path):
        raise FedscopeError(f"{both} are one run; give each once")
    difference = one.layout.difference(other.layout)
    if difference is not None:
        raise FedscopeError(f"{both} trained different models: {difference}")
    if one.info.get("data", {}).get("sha256") != other.info.get("data", {}).get("sha256"):
        raise FedscopeError(f"{both} were trained on different data; draws need the same")
    for run in (one, other):
        run.require("partition.h5")
    if last := shared_rounds(one.info, other.info):
        raise FedscopeError(
            f"{both} have their rounds up to {last} from one training, so they are no draws of their own; give runs "
            "of which none is a branch of another or of one that both begin with, as sweep --alone trains them"
        )
    ours, theirs = one.partition, other.partition
    assert ours is not None
    assert theirs is not None
    same = len(ours.clients) == len(theirs.clients)
    if not (same and all(map(np.array_equal, ours.clients, theirs.clients))):
        drawn = [(run.config or {}).get("data", {}).get("seed") for run in (one, other)]
        varied = f" (data.seed {drawn[0]} and {drawn[1]})" if drawn[0] != drawn[1] else ""
        how = ", as sweep run.seed=0,1,2 does; sweep --seeds varies run.seed and data.seed" if varied else ""
        raise FedscopeError(
            f"{both} have different partitions of the data{varied}; train them with one data.partition and "
            f"data.seed{how}"
        )
    for name, mine, its in _settings(one, other):
        if mine != its:
            raise FedscopeError(
                f"{both} differ in {name} ({mine!r} and {its!r}), but draws may differ only in run.seed; give runs of "
                "one configuration"
            )
    if _history(one) != _history(other):
        raise FedscopeError(
            f"{both} were branched at other rounds, or from runs with other settings; give runs that differ in "
            "run.seed alone, as sweep --alone trains them"
        )
    if name := other_source(one, other):
        raise FedscopeError(
            f"{both} differ in {name}, but draws may differ only in run.seed; give runs that one source has trained"
        )
    seeds = [(run.config or {}).get("run", {}).get("seed") for run in (one, other)]
    if None not in seeds and seeds[0] == seeds[1]:
        raise FedscopeError(
            f"{both} both have run.seed = {seeds[0]}, so they are the same draw; train with other --seed"
        )


def _history(run: Run) -> list[tuple[int, dict[str, object]]]:
    """What the rounds before a branch were trained with, but for the seed."""
    parts = run.info.get("branch", {}).get("history", ())
    return [(int(last), {name: value for name, value, _ in _compared(tables, tables)}) for last, tables in parts]


def _settings(one: Run, other: Run) -> list[tuple[str, object, object]]:
    """Select the settings on which the draws' distribution depends: all but the seed, where a run is computed and
    kept."""
    return _compared(one.config or {}, other.config or {})


def _compared(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    settings = []
    for section in sorted({*ours, *theirs} - {"record"}):
        mine, its = ours.get(section, {}), theirs.get(section, {})
        if not isinstance(mine, dict) or not isinstance(its, dict):
            continue
        for key in sorted({*mine, *its}):
            # the data are compared by their content, wherever they lie
            if (section != "run" or key in ("participation", "precision")) and (section, key) != ("data", "name"):
                settings.append((f"{section}.{key}", mine.get(key), its.get(key)))
    return settings
