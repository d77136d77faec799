"""``fedscope explain``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..asking.runs import parse_rounds
from ..asking.source import Source
from .options import Count, Output, output_options, refuse_given, source_options

if TYPE_CHECKING:
    from ..asking.draws import Draws
    from ..checkpoints import Run


@click.command("explain", epilog="Example:  fedscope explain runs/ima --rounds 1,5,20,40,last --draws local:4")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    metavar="1,20,last",
    help="Which rounds, or all.  [default: about ten of those whose clients were recorded, more of the early ones]",
)
@click.option(
    "--early",
    type=Count(1),
    metavar="R",
    help="The last round of early training.  [default: a tenth of the rounds, at least 5 and at most a third]",
)
@click.option(
    "--draws",
    default="local:4",
    show_default=True,
    metavar="local:R|rounds:R|runs",
    help="Where the R draws of the cohort come from, as for decompose; a verdict needs R = 3 or more, independent.",
)
@source_options("train", files=True)
@output_options
def command(
    runs: tuple[Path, ...], rounds: str | None, early: int | None, draws: str, source: Source, output: Output
) -> None:
    """Says on one page what the loss of the averaged model is made of in each phase, and what the data do not decide.

    The page is printed and written as .md and .html, beside the decomposition's own files and figure.
    """
    from ..asking.draws import groups_of, parse_draws
    from ..asking.runs import identity, open_runs, refuse_other_data, refuse_replays
    from ..asking.samples import given_settings, refuse_nameless
    from ..checkpoints import write_durably
    from ..decomposition import Decomposition
    from ..decomposition.explaining import last_early
    from ..training import resolve_device
    from .explaining import decomposed, explained, kept_explanation
    from .results import PAGE, figures, kinds, obtain, say, write_page

    asked = parse_draws(draws)
    if output.redraw:
        refuse_given(["early"], "judges anew, which --redraw does not; leave out one of both")
    opened = open_runs(runs)
    refuse_nameless(opened, source)
    if asked.kind == "local":
        refuse_replays(opened, "--draws rounds:4, the last rounds of one cohort")
    refuse_other_data(opened)
    names = [run.name for run in opened]
    groups = groups_of(opened, asked)
    firsts = [last_early(run.rounds[-1], early) if run.rounds else 0 for run in opened]
    numbers = [rounds_of(run, rounds, first, asked) for run, first in zip(opened, firsts, strict=True)]
    if asked.kind == "runs":
        numbers = same_rounds(numbers)
    base = output.out or default_base(opened, rounds, asked, source)
    # What decompose can be asked otherwise stands here too, so that its results are not taken for this one.
    settings: dict[str, Any] = {
        "run": [identity(run) for run in opened],
        "rounds": numbers,
        "draws": str(asked),
        "of": "global",
        "loss": "squared",
        "outputs": "probabilities",
        "on": "all",
        "split": source.split,
        "limit": source.limit,
        "seed": source.seed if source.limit else None,
        "device": resolve_device(source.device),
        "precision": source.precision,
        **given_settings(opened, source),
    }

    rounds_by_run = dict(zip(names, numbers, strict=True))

    def compute(attrs: dict[str, Any], partial: Path) -> Decomposition:
        return decomposed(groups, rounds_by_run, asked, source, settings, attrs, partial)

    def save(made: Decomposition) -> None:
        Path(f"{base}.explain.json").unlink(missing_ok=True)  # it is of the factors that are replaced
        made.save(base)

    main = Path(f"{base}.factors.json")
    taken = kinds(base, "clients.csv", "factors.csv", "explain.json", "md", *PAGE)
    result = obtain(compute, lambda _: Decomposition.load(base), save, main, settings, output, taken)
    last_by_run = {"+".join(run.name for run in group): last_early(group[0].rounds[-1], early) for group in groups}
    explanation = kept_explanation(base, result, last_by_run, redraw=output.redraw)
    if explanation is None:
        explanation = explained(base, result, groups, rounds_by_run, early, source, settings)
    drawn = figures(base, result.figure(output.inches, output.title))
    picture = next(path for path in drawn if path.suffix == ".png")
    pages = [write_page(base, explanation.as_html(picture.read_bytes())), Path(f"{base}.md")]
    with write_durably(pages[1]) as temporary:
        temporary.write_text(explanation.as_markdown(picture.name), encoding="utf-8")
    tables = [Path(f"{base}.{kind}") for kind in ("explain.json", "factors.csv", "clients.csv", "factors.json")]
    say(
        explanation.as_text() + "\n",
        [*pages, *tables, *drawn],
        as_json=output.as_json,
        statements=[
            {name: getattr(one, name) for name in ("claim", "run", "title", "verdict", "sentence", "decide")}
            for one in explanation.statements
        ],
    )


def rounds_of(run: Run, rounds: str | None, early: int, draws: Draws) -> list[int]:
    """The rounds asked for; by default some of those whose clients were recorded. ``early`` is the last early one.

    Raises:
        FedscopeError: rounds that the run does not have, or no round that could be decomposed.
    """
    from ..checkpoints import FedscopeError, recorded_clients, rounds_with_clients
    from ..decomposition.explaining import spread_rounds

    if rounds is not None:
        return parse_rounds(rounds, run.rounds, str(run.path))
    have = rounds_with_clients(run)
    if not have:
        recorded_clients(run, parse_rounds("last", run.rounds, str(run.path))[0])
    if draws.kind == "rounds":  # R - 1 rounds come before each
        have = have[draws.count - 1 :]
        if not have:
            raise FedscopeError(
                f"--draws {draws}: {run.path} has fewer than {draws.count} rounds with their clients; take fewer draws"
            )
    return spread_rounds(have, run.rounds[-1], early)


def same_rounds(numbers: Sequence[Sequence[int]]) -> list[list[int]]:
    """For runs that are draws of each other, the rounds that all have.

    Raises:
        FedscopeError: there is none.
    """
    from ..checkpoints import FedscopeError

    common = sorted(set(numbers[0]).intersection(*numbers[1:]))
    if not common:
        raise FedscopeError("--draws runs: the runs have no round in common; name with --rounds some that all have")
    return [common for _ in numbers]


def default_base(runs: Sequence[Run], rounds: str | None, draws: Draws, source: Source) -> Path:
    """``RUN/figures/explain-<what>``, where what is not the default is part of the name."""
    from ..asking.names import slug

    special = [] if str(draws) == "local:4" else [str(draws).replace(":", "")]
    names = [run.name for run in runs[1:]]
    what = "-".join([source.split, *special, *names, *([slug(rounds)] if rounds else [])])
    return runs[0].path / "figures" / f"explain-{what}"
