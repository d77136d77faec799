"""The notes of a page, and the page as text and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from ...checkpoints.io.visible_text import in_markdown, visible
from ...plotting.style import describe_statistics
from ..factors.fixed import all_alike
from ..factors.result import Decomposition
from ..factors.rows import is_recorded
from .intervals import Reading, broken, clients_differ, finite, read
from .single_factors import SMALL
from .statements import Evidence, Statement
from .wording import alike, in_rounds, label, list_words

if TYPE_CHECKING:
    from .result import Explanation

SOURCE = (
    "Claims: Zhou, Lin, Zhang and Tsang, Understanding and Improving Model Averaging in Federated Learning on "
    "Heterogeneous Data. Numbers and verdicts: these runs."
)
# What each source of draws cannot show.
DRAWS = {
    "local": " are replays of local training from the recorded start, independent across clients: the covariance is 0 "
    "by construction, and how the start itself varies is not seen",
    "rounds": " are the last rounds of one cohort: drift counts as variance",
    "none": ": these models alone. How other trainings of the same clients would scatter is not seen, and counts as "
    "bias",
    "runs": " are runs that differ in their seed. Losses, and test errors measured while training, are means over "
    "them; similarity, and what is compared on test data, are of the first of them",
}


def notes_on(
    result: Decomposition, known: Sequence[Evidence], statements: Sequence[Statement], early: int | None
) -> Iterator[str]:
    """Write the notes of a page: its rounds, samples and draws, what an interval is, and what is left out.

    Args:
        known: of every run.
        early: the last early round, if it was given.
    """
    yield from _phase_notes(known, early)
    yield from _loss_notes(result)
    yield from _draw_notes(result, known)
    yield f"Small means below {SMALL:g} of what it is compared with; that is our threshold, not the paper's."
    judged = {(one.claim, one.run) for one in statements}
    for own in known:
        yield from _run_notes(own, judged)
    seeds = "one partition" if result.draws.partition(":")[0] == "runs" else "one seed and one partition"
    which = "All of this is of" if len(result.runs) == 1 else "Each run is of"
    yield f"{which} {seeds}: the intervals say nothing about others."


def _phase_notes(known: Sequence[Evidence], early: int | None) -> Iterator[str]:
    """Describe the rounds of each run, and where its phases end."""
    for own in known:
        parts = list_words([f"{phase.name} is {phase.span}" for phase in own.phases])
        several = f"; {parts}" if len(own.phases) > 1 else ", the only one"
        yield f"{label(own.run)}: decomposed {in_rounds([one.round for one in own.rounds])}{several}."
        if 0 < own.recorded < (length := own.phases[-1].last):
            yield (
                f"{label(own.run)}: this was made when the run had {own.recorded} of its {length} rounds. Its phases "
                "are those of all of them."
            )
    usual = "with a tenth of the rounds, at least 5 and at most a third (--early sets it)"
    if any(len(own.phases) > 1 for own in known):
        yield (
            f"Early training ends {'as given by --early' if early else usual}; in the paper it ends near round 40 of "
            "400. Halving what follows is our choice."
        )


def _loss_notes(result: Decomposition) -> Iterator[str]:
    """Describe the outputs and samples of the loss, and the normalization statistics of its models."""
    rounds = [one for run in result.runs for one in run.rounds]
    what = " and ".join(sorted({one.outputs for one in rounds}))
    yield f"The loss is the squared error of {what}, summed over classes, mean over {_samples(result)}."
    if words := describe_statistics(result.attrs, str(result.attrs.get("normalization_policy", ""))):
        yield f"{words[0].upper()}{words[1:]}.".replace(r"\$", "$")
    if "data_accepted" in result.attrs:
        yield f"Data accepted (--accept-data): {visible(result.attrs['data_accepted'])}."


def _samples(result: Decomposition) -> str:
    rounds = [one for run in result.runs for one in run.rounds]
    counts = " to ".join(f"{n:,}" for n in sorted({min(o.samples for o in rounds), max(o.samples for o in rounds)}))
    return f"all {counts} samples of D" if _is_whole(result) else f"a sample of {counts} from the {result.split} split"


def _is_whole(result: Decomposition) -> bool:
    """True if every round was measured on all samples of D."""
    return all(one.population for run in result.runs for one in run.rounds)


def _draw_notes(result: Decomposition, known: Sequence[Evidence]) -> Iterator[str]:
    """Describe what the draws cannot show, and what an interval is."""
    rounds = [one for run in result.runs for one in run.rounds]
    stand_ins = [own.stand_in for own in known if own.stand_in]
    first = f" ({', '.join(stand_ins)})" if stand_ins else ""
    yield f"Draws {result.draws}{DRAWS.get(result.draws.partition(':')[0], '')}{first}."
    counted, whole = sorted({one.count for one in rounds}), _is_whole(result)
    if is_recorded(rounds):
        over = (
            "All samples of D are measured and nothing is drawn, so numbers are exact for these models."
            if whole
            else "± is half a 95 % interval over samples, of these models, unless its sentence says otherwise."
        )
        yield f"{over} A verdict needs numbers or intervals that are apart."
    elif any(all_alike(one) for one in rounds):
        yield f"{alike(rounds)} What needs one is undecided."
    elif all(one.independent and one.count > 2 for one in rounds):
        degrees = " or ".join(str(count - 1) for count in counted)
        over = "" if whole else ", with the error over samples added in quadrature"
        yield (
            f"± is half a 95 % interval over draws (t on {degrees} degrees of freedom){over}, unless its sentence says "
            "otherwise. A verdict needs intervals that do not touch; among many intervals some miss."
        )
    elif not all(one.independent for one in rounds):
        yield "The draws depend on each other, so no interval over draws exists, and what needs one is undecided."
    else:
        yield f"With R = {counted[0]} draws no interval over draws exists, and what needs one is undecided."


def _run_notes(own: Evidence, judged: Collection[tuple[str, str]]) -> Iterator[str]:
    """Describe what is left out of a run, or not as it seems; ``judged`` are the claims and runs that have a
    statement."""
    name = label(own.run)
    if clients_differ(own.rounds):
        yield (
            f"{name}: the clients differ between rounds. Intervals are over draws of the same clients; other "
            "clients would give other numbers."
        )
    steps = [read(one, "server_step") for one in own.rounds]
    if numbers := [one.round for one in steps if broken(one) and one.round is not None]:
        yield f"{name}: what the server's step changes is not finite in {in_rounds(numbers)}."
    if any(finite(step) for step in steps) and ("server-step", name) not in judged:
        yield f"{name}: the global model is the clients' average in every round; the server adds no step of its own."
    if ("better-than-clients", name) not in judged:
        yield f"{name}: no model was measured on test data, so clients are not compared with their average."
    elif ("averaging-over-rounds", name) not in judged:
        yield f"{name}: no average over rounds was recorded beside the global model in these rounds."


def title(explanation: Explanation) -> str:
    """Return the title of the page."""
    return f"What makes up the loss of the averaged model: {', '.join(explanation.runs)}"


def sections(explanation: Explanation) -> Iterator[tuple[str, list[tuple[int, Statement]]]]:
    """(heading, numbered statements) of each run, then of those between runs; no heading for a single run."""
    numbered = list(enumerate(explanation.statements, start=1))
    for run in explanation.runs:
        own = [(number, one) for number, one in numbered if one.run == run]
        yield run if len(explanation.runs) > 1 else "", own
    rest = [(number, one) for number, one in numbered if one.run not in explanation.runs]
    if rest:
        yield "Between runs", rest


def as_text(explanation: Explanation, width: int) -> str:
    """Wrapped at `width` characters."""

    def wrapped(words: str, indent: str, first: str | None = None) -> str:
        # Numbers stay whole: what may not break is a no-break space until the lines are made.
        kept = words.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")
        filled = textwrap.fill(
            kept,
            width,
            initial_indent=indent if first is None else first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return filled.replace("\N{NO-BREAK SPACE}", " ")

    lines = [title(explanation), ""]
    for heading, statements in sections(explanation):
        lines += [heading, ""] if heading else []
        for number, one in statements:
            lines.append(wrapped(f"{one.title}: {one.verdict.upper()}", "    ", f"{number:>2}. "))
            lines.append(wrapped(" ".join(filter(None, [one.sentence, one.decide])), "    "))
        lines.append("")
    lines += [wrapped(note, "  ", "- ") for note in explanation.notes]
    return "\n".join(lines)


def as_markdown(explanation: Explanation, figure: str | None) -> str:
    """Write the page as Markdown, with a table of all numbers at the end."""
    prose = partial(in_markdown, cell=False)
    lines = [f"# {prose(title(explanation))}", ""]
    for heading, statements in sections(explanation):
        lines += [f"## {prose(heading)}", ""] if heading else []
        for number, one in statements:
            decide = f" *{prose(one.decide)}*" if one.decide else ""
            said = f"**{prose(one.title)}: {one.verdict}.** {prose(one.sentence)}"
            lines += [f"{number}. {said}{decide}", ""]
            lines += [f"{' ' * (len(str(number)) + 2)}Paper: {prose(one.paper)}", ""]
    if figure is not None:
        lines += [f"![The factors over rounds]({quote(figure)})", ""]
    lines += ["## How to read this", ""]
    lines += [*(f"- {prose(note)}" for note in (*explanation.notes, SOURCE)), "", "## The numbers", ""]
    lines += ["| statement | number | round | value | low | high |", "| --- | --- | --- | --- | --- | --- |"]
    for number, one in enumerate(explanation.statements, start=1):
        lines += [f"| {number} | {' | '.join(map(in_markdown, cells(reading)))} |" for reading in one.readings]
    return "\n".join(lines) + "\n"


def cells(reading: Reading) -> list[str]:
    """Name, round, value and interval; empty where one does not exist."""
    numbers = ("" if value is None else f"{value:.6g}" for value in (reading.value, reading.low, reading.high))
    return [reading.name, "" if reading.round is None else str(reading.round), *numbers]
