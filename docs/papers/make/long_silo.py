"""IMA's Figures 2, 3, 4 and 8, across silos, at 400 rounds without and with a decay of the rate: claims, and the rules
by which they are judged. Written before these runs, and changed after the first seed where that is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from long_device import beat_each
from long_kept import CHANGED, OVER, POOLED, SAID, Bound, Claim, Long, error, keyed, loaded
from outcomes import Outcome, in_general, over_seeds, pooled
from verdicts import Number

#: the two runs, without and with a decay
PLAIN, DECAY = "silo", "silo-decay"
BOTH = {PLAIN: "without decay", DECAY: "with decay"}
#: the paper's early phase ends near round 40 of 400, and it looks at round 75
EARLY, RISE = 0.1, 0.1875
#: of a late test error, the mean over the rounds so near: single rounds fluctuate
AROUND = 5
#: bounds of ours, from half of each to its double; of a rise to 1.25 times, half of the rise and its double
ZERO = Bound("below the share … of the loss", 0.01, (0.005, 0.01, 0.02), (0.001, 0.01, 0.05))
STAYS = Bound("at most … times as great", 1.25, (1.125, 1.25, 1.5), (1.1, 1.25, 1.5))
SIMILAR = Bound("below …", 0.5, (0.4, 0.5, 0.6))


def silo(long: Long) -> dict[str, list[Outcome]]:
    """By figure, of the two federations of 10 clients."""
    return {
        "fig2": keyed(long, no_training_bias, early_bias, together, rise_without, dominate),
        "fig3": keyed(
            long,
            greater_distance,
            greater_error,
            early_distance,
            decay_phase,
            stays,
            falls_with_distance,
            locality_adds,
        ),
        "fig4a": keyed(long, falls_with_number, ever_less),
        "fig4b": keyed(long, similar, least_similar_without),
        "fig8": keyed(long, three_across_silos),
    }


def three_across_silos(long: Long) -> Outcome:
    """Figure 8."""
    return beat_each(long, "fig8", "Across silos, too, the mean of three clients")


def claim_of(
    long: Long,
    said: str,
    rule: str,
    *,
    runs: Sequence[str] = (PLAIN, DECAY),
    bound: Bound | None = None,
    early: bool = False,
    ours: bool = False,
    said_of_learnt: bool = True,
) -> Claim:
    """A claim about the factors of both runs, in the late rounds or in the early ones."""
    of = {run: long.of(run) for run in runs}
    found = [_decomposed(folder, run) for run, own in of.items() for folder in own.values()]
    rounds = sorted(set.intersection(*found)) if found else []
    edge = next((t for t in rounds if t >= EARLY * rounds[-1]), 0)
    kept = tuple(t for t in rounds if (t <= edge if early else t >= edge))
    cost = long.cost(PLAIN)
    if len(runs) > 1:  # both are needed for one more seed
        cost = type(cost)(cost.seeds, 2 * cost.rounds, cost.hours + long.cost(DECAY).hours)
    rule = f"{rule} {SAID}" if said_of_learnt and not early else rule
    return Claim(said, rule, of, kept, cost, ours, bound, early)


def _decomposed(folder: Path, run: str) -> set[int]:
    (own,) = loaded("Explanation", folder / "fig2").decomposition.runs
    assert own.run == run, (own.run, run)
    return {one.round for one in own.rounds}


def factor(name: str, round_: int, folder: Path) -> float:
    """A factor of a round; of the corrected estimates where there are two."""
    (own,) = loaded("Explanation", folder / "fig2").decomposition.runs
    of = next(one for one in own.rounds if one.round == round_)
    rows = {row.estimate: row.value for row in of.rows if row.factor == name}
    return float(next(rows[one] for one in ("unbiased", "measured", "plugin") if one in rows))


def bias(round_: int, folder: Path) -> float:
    """Heterogeneous bias."""
    return factor("heter_bias", round_, folder)


def distance(round_: int, folder: Path) -> float:
    """Δ, the greatest distance of a client to the average."""
    return factor("delta_max", round_, folder)


def no_training_bias(long: Long) -> Outcome:
    """Figure 2, as the paper measures it: the factor."""
    claim = claim_of(
        long,
        "Training bias, the factor, stays almost zero throughout training.",
        f"In both runs its greatest share of the averaged model's loss over all decomposed rounds, learnt or not, is "
        f"below {100 * ZERO.nominal:g} % ({OVER}). Ten clients with disjoint data that know nothing have 1 % already, "
        "so only less is evidence.",
        bound=ZERO,
        said_of_learnt=False,
    )

    def share(round_: int, folder: Path) -> float:
        return factor("train_bias", round_, folder) / factor("fma_loss", round_, folder)

    def greatest(folder: Path) -> float:
        return max(share(t, folder) for t in _every(claim))

    def judge(_: Sequence[int], bound: float) -> Outcome:
        numbers = [claim.over_seeds(f"greatest {BOTH[run]}", greatest, run) for run in BOTH]
        return replace(claim.inside(numbers, -math.inf, bound, percent=True), changed=CHANGED)

    return claim.judged(judge)


def _every(claim: Claim) -> list[int]:
    found = [_decomposed(own[seed], run) for run, own in claim.runs.items() for seed in claim.seeds]
    return sorted(set.intersection(*found))


def early_bias(long: Long) -> Outcome:
    """Figure 2, to about round 40 of 400."""
    claim = claim_of(
        long,
        "Until about a tenth of the rounds the test error falls although heterogeneous bias rises.",
        "From the first round to a tenth of them the test error falls and heterogeneous bias rises, in both runs: "
        f"each change, so signed, is above 0 ({OVER}).",
        early=True,
    )
    return _changes(claim, {"error": -1, "heterogeneous bias": 1})


def early_distance(long: Long) -> Outcome:
    """Figure 3, to about round 40 of 400."""
    claim = claim_of(
        long,
        "Until about a tenth of the rounds the distance of the clients rises while the test error falls.",
        f"From the first round to a tenth of them Δ rises and the test error falls, in both runs: each change, so "
        f"signed, is above 0 ({OVER}).",
        early=True,
    )
    return _changes(claim, {"error": -1, "Δ": 1})


def _changes(claim: Claim, signs: Mapping[str, int]) -> Outcome:
    """From the first of the rounds to the last, in every run."""

    def value(name: str, run: str, round_: int, folder: Path) -> float:
        if name == "error":
            return error(folder, run, round_, around=AROUND if not claim.early else 0)
        return bias(round_, folder) if name == "heterogeneous bias" else distance(round_, folder)

    def judge(rounds: Sequence[int], _: float) -> Outcome:
        if len(rounds) < 2:
            return claim.untested("only one of its rounds has learnt")

        def change(name: str, run: str, folder: Path) -> float:
            first, last = (value(name, run, t, folder) for t in (rounds[0], rounds[-1]))
            return signs[name] * (last - first)

        words = {name: f"{'rise' if sign > 0 else 'fall'} of {name}" for name, sign in signs.items()}
        cases = [(name, run) for name in signs for run in claim.runs]
        return claim.above(
            [claim.over_seeds(f"{words[name]} {BOTH[run]}", partial(change, name, run), run) for name, run in cases]
        )

    return claim.judged(judge)


def together(long: Long) -> Outcome:
    """Figure 2, later."""
    claim = claim_of(
        long,
        "After about a tenth of the rounds heterogeneous bias and the test error move together.",
        "By seed Kendall's τ between both over the later decomposed rounds; its mean over seeds is above 0 in both "
        f"runs ({OVER}). Errors are means over the rounds within {AROUND}.",
    )
    return _ranked(claim, bias)


def falls_with_distance(long: Long) -> Outcome:
    """Figure 3, later."""
    claim = claim_of(
        long,
        "After about a tenth of the rounds the test error falls as the distance of the clients, Δ, does.",
        "By seed Kendall's τ between both over the later decomposed rounds; its mean over seeds is above 0 in both "
        f"runs ({OVER}). Errors are means over the rounds within {AROUND}.",
    )
    return _ranked(claim, distance)


def _ranked(claim: Claim, of: Callable[[int, Path], float]) -> Outcome:
    from scipy.stats import kendalltau

    def judge(rounds: Sequence[int], _: float) -> Outcome:
        if len(rounds) < 4:
            return claim.untested(f"only {len(rounds)} of its rounds have learnt, too few for a rank correlation")

        def ranked(run: str, folder: Path) -> float:
            found = kendalltau([of(t, folder) for t in rounds], [error(folder, run, t, around=AROUND) for t in rounds])
            return 0.0 if math.isnan(found.statistic) else float(found.statistic)

        return claim.above([claim.over_seeds(f"τ {BOTH[run]}", partial(ranked, run), run) for run in claim.runs])

    return claim.judged(judge)


def rise_without(long: Long) -> Outcome:
    """Figure 2, the second half of its sentence."""
    claim = claim_of(
        long,
        "Without decay heterogeneous bias and the test error rise slightly after about a tenth of the rounds.",
        "From a tenth of the rounds, or the first later one that has learnt, to the last each rises: its change is "
        f"above 0 ({OVER}). Errors are means over the rounds within {AROUND}.",
        runs=(PLAIN,),
    )
    return _changes(claim, {"heterogeneous bias": 1, "error": 1})


def dominate(long: Long) -> Outcome:
    """Section 5.3.5: both, not one of them."""
    claim = claim_of(
        long,
        "After early training heterogeneous bias and the locality term O(Δ²) both dominate the loss.",
        "Pooled over the later rounds, each minus the greatest of training bias, variance and covariance is above 0 in "
        f"both runs ({OVER}). Clients that know nothing have a heterogeneous bias of 0.73, or 81 % of the loss, so "
        "near that it is no evidence by itself, as in the short runs. Replays have no covariance. The theorem bounds "
        "the locality and leaves its sign open; read as the paper does, it adds.",
    )

    def lead(name: str, round_: int, folder: Path) -> float:
        others = ("train_bias", "variance", "covariance")
        return factor(name, round_, folder) - max(factor(other, round_, folder) for other in others)

    def judge(rounds: Sequence[int], _: float) -> Outcome:
        numbers = []
        for name, words in (("heter_bias", "heterogeneous bias"), ("locality", "locality")):
            for run, own in claim.runs.items():
                cases = {t: {seed: lead(name, t, own[seed]) for seed in claim.seeds} for t in rounds}
                numbers.append(pooled(f"{words} {BOTH[run]}", cases))
        return claim.above(numbers)

    return claim.judged(judge)


def greater_distance(long: Long) -> Outcome:
    """Figure 3's comparison of the distances."""
    return greater_without(long, "distance")


def greater_error(long: Long) -> Outcome:
    """Figure 3's comparison of the errors."""
    return greater_without(long, "error")


def greater_without(long: Long, what: str) -> Outcome:
    """Figure 3's comparison: what a decay does to the distance, and to the error."""
    words = {"distance": "The distance of the clients, Δ, is", "error": "The test error is"}[what]
    claim = claim_of(
        long,
        f"{words} greater without decay than with it, after early training.",
        f"The difference, pooled over the later rounds, is above 0, and {POOLED} ({OVER})."
        + (f" Errors are means over the rounds within {AROUND}." if what == "error" else ""),
    )

    def judge(rounds: Sequence[int], _: float) -> Outcome:
        if what == "distance":
            cases = {t: claim.by_seed(partial(distance, t), PLAIN, DECAY) for t in rounds}
        else:
            cases = {t: _errors(claim, t) for t in rounds}
        return _pooled(claim, cases, percent=what == "error")

    return claim.judged(judge)


def _errors(claim: Claim, round_: int) -> dict[int, float]:
    plain, decay = ({s: error(claim.runs[run][s], run, round_, around=AROUND) for s in claim.seeds} for run in BOTH)
    return {seed: plain[seed] - decay[seed] for seed in claim.seeds}


def _pooled(claim: Claim, cases: Mapping[int, Mapping[int, float]], *, percent: bool = False) -> Outcome:
    parts: list[Number] = [over_seeds(f"round {t}", own) for t, own in cases.items()]
    effect = pooled(f"{len(cases)} rounds", cases)
    found = in_general(claim.said, claim.rule, effect, parts, claim.cost, percent=percent, ours=claim.ours)
    return replace(found, changed="single rounds were not corrected for how many there are")


def decay_phase(long: Long) -> Outcome:
    """Figure 3, with decay, rounds 40 to 75 of 400."""
    claim = claim_of(
        long,
        "With decay, between a tenth and about a fifth of the rounds the distance falls while the test error rises.",
        f"From round 40 to 75 of 400 each change, so signed, is above 0 ({OVER}). Errors are means over the rounds "
        f"within {AROUND}.",
        runs=(DECAY,),
    )
    end = RISE * (_every(claim)[-1] if claim.seeds else 0)
    phase = tuple(t for t in claim.rounds if t <= end)
    if claim.seeds and len(phase) < 2:
        return claim.untested("its rounds were not decomposed")
    return _changes(replace(claim, rounds=phase), {"Δ": -1, "error": 1})


def stays(long: Long) -> Outcome:
    """Section 5.3.2."""
    claim = claim_of(
        long,
        "After early training the distance of the clients stays bounded.",
        f"The greatest Δ of the later rounds is at most {STAYS.nominal:g} times that of the first of them, in both "
        f"runs ({OVER}).",
        bound=STAYS,
    )

    def judge(rounds: Sequence[int], bound: float) -> Outcome:
        def ratio(folder: Path) -> float:
            return max(distance(t, folder) for t in rounds) / distance(rounds[0], folder)

        return claim.inside([claim.over_seeds(BOTH[run], ratio, run) for run in claim.runs], -math.inf, bound)

    return claim.judged(judge)


def locality_adds(long: Long) -> Outcome:
    """Ours: a sign that the theorem leaves open."""
    claim = claim_of(
        long,
        "After early training locality, signed, adds to the loss.",
        f"Pooled over the later rounds it is above 0 in both runs ({OVER}). The paper reads O(Δ²) as adding.",
        ours=True,
    )

    def judge(rounds: Sequence[int], _: float) -> Outcome:
        numbers = []
        for run, own in claim.runs.items():
            cases = {t: {seed: factor("locality", t, own[seed]) for seed in claim.seeds} for t in rounds}
            numbers.append(pooled(BOTH[run], cases))
        return claim.above(numbers)

    return claim.judged(judge)


def _subsets(long: Long, said: str, rule: str) -> Claim:
    """A claim about the error of averages of m clients, in the rounds of which it was measured."""
    claim = claim_of(long, said, rule)
    found = [set(_sizes(own[seed])) for own in claim.runs.values() for seed in claim.seeds]
    rounds = set.intersection(*found) if found else set()
    return replace(claim, rounds=tuple(t for t in claim.rounds if t in rounds))


def _sizes(folder: Path) -> dict[int, dict[int, float]]:
    """Mean test error by round and number of averaged clients."""
    return {
        one.round: {row.m: row.error_mean for row in one.sizes}
        for one in loaded("Subsets", folder / "fig4-subsets").rounds
    }


def falls_with_number(long: Long) -> Outcome:
    """Figure 4, left."""
    claim = _subsets(
        long,
        "The test error falls with the number of averaged clients.",
        "The mean error of averages of one, of two and of five clients minus that of the average of all, each pooled "
        f"over the later rounds, is above 0 without and with decay, and {POOLED} ({OVER}).",
    )

    def fall(round_: int, few: int, folder: Path) -> float:
        own = _sizes(folder)[round_]
        return own[min(max(1, few), max(own))] - own[max(own)]

    def judge(rounds: Sequence[int], _: float) -> Outcome:
        cases = {f"{BOTH[run]}, from {few}": (run, few) for run in claim.runs for few in (1, 2, 5)}
        found = {name: {f"round {t}": partial(fall, t, few) for t in rounds} for name, (_, few) in cases.items()}
        return claim.in_general(found, percent=True, runs={name: run for name, (run, _) in cases.items()})

    return claim.judged(judge)


def ever_less(long: Long) -> Outcome:
    """Figure 4, left, and Section 5.3.3: more clients help, ever less."""
    claim = _subsets(
        long,
        "Averaging more clients helps ever less.",
        "The fall of the error from one client to half of them minus the fall from half to all, pooled over the later "
        f"rounds, is above 0 without and with decay, and {POOLED} ({OVER}).",
    )

    def bend(round_: int, folder: Path) -> float:
        own = _sizes(folder)[round_]
        half, all_ = max(own) // 2, max(own)
        return (own[1] - own[half]) - (own[half] - own[all_])

    def judge(rounds: Sequence[int], _: float) -> Outcome:
        found, runs = _by_run(claim, rounds, bend)
        return claim.in_general(found, percent=True, runs=runs)

    return claim.judged(judge)


def _by_run(
    claim: Claim, rounds: Sequence[int], of: Callable[[int, Path], float]
) -> tuple[dict[str, dict[str, Callable[[Path], float]]], dict[str, str]]:
    """A number of each round, as an effect of each run; and the run of each effect."""
    found: dict[str, dict[str, Callable[[Path], float]]] = {
        BOTH[run]: {f"round {t}": partial(of, t) for t in rounds} for run in claim.runs
    }
    return found, {BOTH[run]: run for run in claim.runs}


def cka(round_: int, folder: Path) -> float:
    """Mean similarity of two clients' outputs."""
    return float(next(one.mean for one in loaded("ClientCKA", folder / "fig4-cka").rounds if one.round == round_))


def similar(long: Long) -> Outcome:
    """Figure 4, right."""
    claim = claim_of(
        long,
        "The clients' outputs have little in common.",
        "The mean CKA of two clients' outputs, pooled over the later rounds, is below "
        f"{SIMILAR.nominal:g} in both runs, and {POOLED} ({OVER}).",
        bound=SIMILAR,
    )

    def judge(rounds: Sequence[int], bound: float) -> Outcome:
        found, runs = _by_run(claim, rounds, cka)
        return claim.in_general(found, -math.inf, bound, runs=runs)

    return claim.judged(judge)


def least_similar_without(long: Long) -> Outcome:
    """Figure 4's comparison."""
    claim = claim_of(
        long,
        "The clients' outputs are least similar without decay.",
        f"Their mean CKA with decay minus that without, pooled over the later rounds, is above 0, and {POOLED} "
        f"({OVER}).",
    )

    def judge(rounds: Sequence[int], _: float) -> Outcome:
        return _pooled(claim, {t: claim.by_seed(partial(cka, t), DECAY, PLAIN) for t in rounds})

    return claim.judged(judge)
