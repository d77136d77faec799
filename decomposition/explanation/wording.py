"""Numbers, lists and remedies in words."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10
from typing import TypeVar

from ..factors.fixed import all_alike, is_replayed
from ..factors.result import RunFactors
from ..factors.rows import RoundFactors, is_recorded
from .intervals import Reading, broken

T = TypeVar("T")

NAMES = {
    "heter_bias": "heterogeneous bias",
    "train_bias": "training bias",
    "bias_cross": "the cross term",
    "bias": "bias",
    "variance": "variance",
    "covariance": "covariance",
    "locality": "locality",
    "fma_loss": "the loss of the averaged model",
    "delta_max": "Δ",
}


# More digits of a value than these are for the table of numbers.
DIGITS = 4


def spell(one: Reading) -> str:
    """A value with half its interval, which has one digit, or two that begin with 1; without an interval the value.
    Not more than four digits of the value.

    >>> spell(Reading("variance", 1, 0.2381, 0.2348, 0.2414)), spell(Reading("variance", 1, 0.2381))
    ('0.238 ± 0.003', '0.238')
    >>> spell(Reading("train_bias", 1, 3.5213e-8, 3.4e-8, 3.6426e-8))
    '3.52e-08 ± 1.2e-09'
    >>> spell(Reading("fma_loss", 1, 0.89922261582, 0.89922261578, 0.89922261586))
    '0.8992 ± 4e-11'
    """
    if one.value is None:
        return "no value"
    half = one.half
    if not half or not isfinite(one.value):
        return f"{one.value:.3g}"
    if not isfinite(half):
        return f"{one.value:.3g} ± {half}"
    place = floor(log10(half))
    digits = 2 if half / 10.0**place < 1.95 else 1
    decimals = digits - 1 - place
    if one.value and decimals > DIGITS - 1 - floor(log10(abs(one.value))):
        return f"{one.value:#.{DIGITS}g}".rstrip(".") + f" ± {half:.1g}"
    if decimals > 6 or (decimals > 4 and abs(one.value) < 1e-3):
        lead = floor(log10(abs(one.value))) if one.value else place
        return f"{one.value:.{max(lead + decimals, 0)}e} ± {half:.{digits - 1}e}"
    return f"{one.value:.{max(decimals, 0)}f} ± {half:.{max(decimals, 0)}f}"


def share(part: float, whole: float) -> str:
    """Per cent, as in `98 %`.

    >>> share(0.056, 0.0566), share(0.0014, 0.067), share(3e-8, 0.5)
    ('99 %', '2.1 %', '6e-06 %')
    """
    per_cent = 100 * part / whole
    return f"{per_cent:.0f} %" if abs(per_cent) >= 9.95 else f"{per_cent:.2g} %"


def list_words(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def in_rounds(numbers: Sequence[int]) -> str:
    """`round 3`, `rounds 3, 6 and 12`."""
    return f"round{'s' if len(numbers) > 1 else ''} {list_words([str(number) for number in numbers])}"


def label(run: RunFactors) -> str:
    """Its name; of an average over rounds `ima (averaged)`."""
    return f"{run.run} (averaged)" if run.model == "averaged" else run.run


def capital(words: str) -> str:
    """Begin a text with a capital letter; the rest as it is."""
    return words[:1].upper() + words[1:]


def ends(values: Sequence[T]) -> list[T]:
    """Return the first and the last, for sentences; once where there is one, none where there is none."""
    return [values[0], values[-1]] if len(values) > 1 else list(values)


# Remedies that several claims have, and what stands instead of one.
CHANGES = "Rounds between these, where there are any, would say where it changes."
CANNOT = "More draws cannot help where values are not finite; only rounds without such values can decide it."


def not_finite(values: Sequence[Reading]) -> str:
    """Describe the numbers that are NaN or infinite, and that draws do not change it; empty where none is.

    >>> print(not_finite([Reading("variance", 3, float("nan")), Reading("locality", 3, 0.1)]))
    Not finite: variance in round 3. More draws cannot help where values are not finite; only rounds without such \
values can decide it.
    """
    rounds: dict[str, list[int]] = {}
    for one in values:
        if broken(one) and one.round is not None and one.round not in rounds.setdefault(one.name, []):
            rounds[one.name].append(one.round)
    by_rounds: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in rounds.items():
        by_rounds.setdefault(tuple(sorted(numbers)), []).append(NAMES.get(name, name.replace("_", " ")))
    where = "; ".join(f"{list_words(names)} in {in_rounds(numbers)}" for numbers, names in by_rounds.items())
    return f"Not finite: {where}. {CANNOT}" if where else ""


def split_hint(split: str, what: str) -> str:
    """Say what would tell own samples from others', for rounds in which nothing does: ``split`` is what was measured
    on, "" where the run does not say whose samples are whose."""
    return f"--split train {what}." if split == "test" else f"Knowing whose samples are whose {what}."


def too_few_before(undrawn: Sequence[int], rounds: Sequence[RoundFactors]) -> str:
    """Say why rounds whose clients were recorded have no draws, where draws are rounds: a clause.

    Args:
        undrawn: such rounds; rounds: decomposed ones, of the same draws.
    """
    one = rounds[0]
    has, them = ("has", "it") if len(undrawn) == 1 else ("have", "them")
    return (
        f"{in_rounds(undrawn)} {has} too few rounds of the cohort before {them}: --draws {one.draws} needs "
        f"{one.count - 1}"
    )


def narrower(rounds: Sequence[RoundFactors], values: Sequence[Reading] = (), *, replays: bool = True) -> str:
    """Say what gives intervals, or narrower ones; of ``values`` that are not finite, that nothing does.

    Args:
        replays: whether local training can be done again; else there is no other source of draws.
    """
    if any(broken(one) for one in values):
        return not_finite(values)
    if is_recorded(rounds):
        if all(one.population for one in rounds):
            return "All samples are measured and nothing is drawn: only other models would decide it."
        if values and all(one.half == 0 for one in values):
            return "No sample enters these numbers and nothing is drawn: only other models would decide it."
        return "More samples would make the intervals narrower."
    if any(all_alike(one) for one in rounds):
        return alike(rounds)
    if not all(one.independent for one in rounds):
        cannot = "and the run's training cannot be replayed for independent ones."
        return f"Dependent draws have no intervals{'; --draws local:8 has.' if replays else f', {cannot}'}"
    fewest = min(one.count for one in rounds)
    if fewest < 3:
        return f"R = {fewest} draws have no interval; --draws local:4 has."
    samples = "" if all(one.population for one in rounds) else ", and a greater --limit"
    if is_replayed(rounds):
        return f"More draws, as --draws local:{2 * fewest}{samples}, would make the intervals narrower."
    return f"More runs with other seeds{samples} would make the intervals narrower."


def alike(rounds: Sequence[RoundFactors]) -> str:
    """Describe rounds whose draws are the same models: which, and what follows."""
    numbers = [one.round for one in rounds if all_alike(one)]
    draws = "replays" if is_replayed(rounds) else "draws"
    subject = f"The {draws}" if len(numbers) == len(rounds) else f"In {in_rounds(numbers)} the {draws}"
    # seen of the variance alone: a rate that moves nothing does it, too
    why = ", as where clients take full batches" if is_replayed(rounds) else ""
    return f"{subject} are all alike{why}: no interval over draws exists."
