"""``fedscope updates``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..asking.runs import parse_rounds
from .options import Output, output_options

if TYPE_CHECKING:
    from ..checkpoints import Run
    from ..decomposition.updates import ClientUpdates, RoundUpdates


@click.command(
    "updates",
    epilog="Example:  fedscope updates runs/ima    Several runs in one figure:  fedscope updates runs/fma runs/ima",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    default="all",
    show_default=True,
    metavar="1,20,last",
    help="Which rounds, or all of which clients were recorded.",
)
@output_options
def command(runs: tuple[Path, ...], rounds: str, output: Output) -> None:
    """Whether clients go the same way: cosines between their updates, and how much of them cancels in the mean.

    An update is a client's model less the model that it was sent. No data are needed, and nothing is evaluated.
    """
    from ..asking.names import slug
    from ..asking.runs import open_runs
    from ..decomposition.updates import as_numbers, draw_updates, sentence, write_table
    from .results import FIGURE, figures, kinds, refuse_taken, say

    opened = open_runs(runs)
    asked = [rounds_of(run, rounds) for run in opened]
    notes = [note for run, own in zip(opened, asked, strict=True) for note in _left_out(run, rounds, own)]
    what = "-".join([*(run.name for run in opened[1:]), slug(rounds)])
    base = output.out or opened[0].path / "figures" / f"updates-{what}"
    files = [Path(f"{base}.{run.name}.nc") if len(opened) > 1 else Path(f"{base}.nc") for run in opened]
    refuse_taken(files, kinds(base, "updates.csv", *FIGURE), output)
    drawn_again = all(file.exists() for file in files) and not output.force
    made = [_run(run, own, file, output) for run, own, file in zip(opened, asked, files, strict=True)]
    table = Path(f"{base}.updates.csv")
    if not (drawn_again and table.exists()):  # a result that is only drawn again keeps its numbers as they lie there
        table = write_table(made, base)
    say(
        "\n".join([*(sentence(result) for result in made), *notes]),
        [table, *files, *figures(base, draw_updates(made, output.inches, output.title))],
        as_json=output.as_json,
        rounds=[row for result in made for row in as_numbers(result)],
        notes=notes,
    )


def _run(run: Run, numbers: list[int], file: Path, output: Output) -> ClientUpdates:
    """One run's result."""
    from ..asking.runs import identity
    from ..checkpoints import Partial
    from ..decomposition.updates import ClientUpdates, RoundUpdates, geometry, update_products
    from .progress import progress, within
    from .results import obtain

    settings: dict[str, Any] = {"run": identity(run), "rounds": numbers}

    def compute(attrs: dict[str, Any], partial: Path) -> ClientUpdates:
        # Rounds do not enter the fingerprint: asking for more of them goes on with those that are done.
        known = {key: value for key, value in attrs.items() if key != "rounds"}
        done: list[RoundUpdates] = []
        size = run.layout.size
        with Partial(partial, known) as store, progress(f"updates of {run.name}") as report:
            for i, number in enumerate(numbers):
                if str(number) not in store.done:
                    round_ = run.round(number)
                    products = update_products(round_, within(report, i * size, len(numbers) * size))
                    one = geometry(products, round_.weights, number=number, client_ids=round_.client_ids)
                    store.add(str(number), one.to_json())
                done.append(RoundUpdates.from_json(store.done[str(number)]))
                report((i + 1) * size, len(numbers) * size)
        return ClientUpdates(tuple(done), attrs)

    return obtain(compute, ClientUpdates.load, lambda result: result.save(file), file, settings, output)


def rounds_of(run: Run, rounds: str) -> list[int]:
    """The rounds asked for, of which clients and the model they were sent were recorded; ``all`` are those of several
    clients.

    Raises:
        FedscopeError: a round that lacks them (says which have them), or with a cohort of one.
    """
    from ..checkpoints import FedscopeError, recorded_clients

    pairs = [t for t in _recorded(run) if len(run.round(t).client_ids) > 1]
    numbers = parse_rounds(rounds, run.rounds, str(run.path))
    if rounds.strip() == "all":
        numbers = pairs or _recorded(run)[-1:] or numbers[-1:]
    for number in numbers:
        round_ = recorded_clients(run, number, start=False)
        if "start" not in round_.models:
            raise FedscopeError(
                f"{run.path}@{number} recorded its clients, but not the model they were sent (start), so there are no "
                "updates; give another round, or train with record.globals = 'all'"
            )
        if len(round_.client_ids) < 2:
            if not pairs:
                raise FedscopeError(
                    f"{run.path}: every recorded round has a cohort of one, so there is no pair of updates; train "
                    "with more clients a round (--clients, --participation)"
                )
            raise FedscopeError(
                f"{run.path}@{number} has a cohort of one, so there is no pair of updates; give other rounds, or "
                "--rounds all, which leaves it out"
            )
    return numbers


def _recorded(run: Run) -> list[int]:
    """The rounds of which clients and the model they were sent were recorded."""
    return [t for t in run.rounds if run.round(t).has_clients and "start" in run.round(t).models]


def _left_out(run: Run, rounds: str, taken: list[int]) -> list[str]:
    """What ``all`` does not take though clients were recorded."""
    from ..checkpoints.errors import spans

    alone = [t for t in _recorded(run) if t not in taken] if rounds.strip() == "all" else []
    if not alone:
        return []
    which = f"round{'s' if len(alone) > 1 else ''} {spans(alone)}"
    return [f"{run.name}: {which} left out, because one client is no pair of updates"]
