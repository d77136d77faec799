"""``fedscope subsets``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import Count, Output, Source, output_options, source_options

if TYPE_CHECKING:
    from torch import nn

    from ..checkpoints import Partial, Run
    from ..decomposition.subsets import RoundSubsets, Subsets
    from ..landscape import Samples


@click.command("subsets", epilog="Example:  fedscope subsets runs/ima --rounds 1,20,last")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    metavar="1,20,last",
    help="Which rounds, or all with their clients.  [default: the first and last of these]",
)
@click.option(
    "--sizes",
    metavar="1,2,5,10",
    help="Numbers m of clients in an average, or all.  [default: all; of more than 20 clients 12 from 1 to C]",
)
@click.option(
    "--subsets",
    type=Count(1),
    default=20,
    show_default=True,
    help="How many subsets of a size, drawn with --seed; all where there are no more.",
)
@click.option(
    "--weights",
    type=click.Choice(["samples", "uniform"]),
    default="samples",
    show_default=True,
    help="Weights of a subset's clients: by their numbers of samples, or equal.",
)
@source_options("test", files=True)
@output_options
def command(
    runs: tuple[Path, ...],
    rounds: str | None,
    sizes: str | None,
    subsets: int,
    weights: str,
    source: Source,
    output: Output,
) -> None:
    """How many models an average needs: the error of averages of m of a round's C clients, for m = 1 to C.

    A cohort of C clients has C averages of one, the clients themselves, and one of all. --split train takes all
    clients' training data.
    """
    from ..checkpoints import Partial, versions
    from ..decomposition.subsets import Subsets
    from ..training import resolve_device
    from .given import dataset_of, given_settings, module_for
    from .names import slug
    from .results import FIGURE, figures, kinds, obtain, say
    from .sources import client_rounds, common_samples, describe_samples, identity, open_runs

    opened = open_runs(runs)
    names = [run.name for run in opened]
    dataset = dataset_of(opened, source)
    asked = []
    for run in opened:
        for number in client_rounds(run, rounds):
            cohort = len(run.round(number).client_ids)
            asked.append((run, number, sizes_of(sizes, cohort, f"{run.path}@{number}")))
    samples = common_samples(opened, dataset, source)
    modules = {run.name: module_for(run, source, dataset) for run in opened}
    base = (
        output.out
        or opened[0].path / "figures" / f"subsets-{'-'.join([source.split, *names[1:], slug(rounds or '1,last')])}"
    )
    settings: dict[str, Any] = {
        "run": [identity(run) for run in opened],
        "rounds": [[run.name, number] for run, number, _ in asked],
        "sizes": [list(own) for _, _, own in asked],
        "subsets": subsets,
        "weights": weights,
        **given_settings(opened, source),
        **describe_samples(samples, source.seed),
        "device": resolve_device(source.device),
        "precision": source.precision,
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Subsets:
        # Rounds do not enter the fingerprint: asking for more of them goes on with those that are done.
        question = {key: value for key, value in {**settings, "versions": versions()}.items() if key != "rounds"}
        question["sizes"] = sizes
        with Partial(partial, question) as store:
            return Subsets(measured(asked, modules, samples, settings, store), weights, attrs)

    main = Path(f"{base}.subsets.json")
    taken = kinds(base, "subsets.csv", *FIGURE)
    result = obtain(compute, lambda _: Subsets.load(base), lambda made: made.save(base), main, settings, output, taken)
    say(
        "\n".join(sentence(one, source.split) for one in result.rounds),
        [
            *(Path(f"{base}.subsets.{kind}") for kind in ("csv", "json")),
            *figures(base, result.figure(output.inches, output.title)),
        ],
        as_json=output.as_json,
        rounds=[
            {
                **{"run": one.run, "round": one.round, "clients": one.clients, "diverged": list(one.diverged)},
                "sizes": [asdict(row) for row in one.sizes],
            }
            for one in result.rounds
        ],
    )


def measured(
    asked: Sequence[tuple[Run, int, tuple[int, ...]]],
    modules: Mapping[str, nn.Module],
    samples: Samples,
    settings: dict[str, Any],
    store: Partial,
) -> tuple[RoundSubsets, ...]:
    """Every round's averages; ``modules`` are by run. Finished rounds are kept in ``store``."""
    from math import comb

    import numpy as np

    from ..decomposition.diverged import diverged_rows
    from ..decomposition.subsets import RoundSubsets, average_subsets
    from .progress import progress, within

    def models(run: Run, number: int, sizes: tuple[int, ...]) -> int:
        return sum(min(settings["subsets"], comb(len(run.round(number).client_ids), m)) for m in sizes)

    expected, before = sum(models(*one) for one in asked), 0
    done: list[RoundSubsets] = []
    with progress("subsets") as report:
        for run, number, sizes in asked:
            key = f"{run.path}@{number}"
            if key not in store.done:
                round_ = run.round(number)
                clients, n = round_.clients(), round_.client_samples
                rows = average_subsets(
                    modules[run.name],
                    samples,
                    clients,
                    n if settings["weights"] == "samples" else np.ones(len(n)),
                    sizes=sizes,
                    subsets=settings["subsets"],
                    # not the run: those with the same cohorts meet the same subsets
                    seed=(settings["seed"], number),
                    device=settings["device"],
                    precision=settings["precision"],
                    progress=within(report, before, expected),
                )
                diverged = tuple(int(k) for k in round_.client_ids[diverged_rows(clients)])
                store.add(key, RoundSubsets(run.name, number, len(n), rows, diverged).to_json())
                del clients  # before the next round's are read
            done.append(RoundSubsets.from_json(store.done[key]))
            before += models(run, number, sizes)
            report(before, expected)
    return tuple(done)


def sizes_of(text: str | None, clients: int, where: str) -> tuple[int, ...]:
    """``1,2,5,10`` or ``all`` as sizes of subsets of a cohort, ascending; None for the default ones.

    Raises:
        FedscopeError: a word that is no number; a size that the cohort does not have.
    """
    from ..checkpoints import FedscopeError
    from ..decomposition.subsets import spread_sizes

    if text is None:
        return spread_sizes(clients)
    if text.strip() == "all":
        return tuple(range(1, clients + 1))
    found = set()
    for word in text.split(","):
        try:
            size = int(word)
        except ValueError:
            raise FedscopeError(f"--sizes {text}: {word.strip()!r} is no number; write 1,2,5,10 or all") from None
        if not 1 <= size <= clients:
            raise FedscopeError(
                f"--sizes {text}: {where} has {clients} client{'s' if clients > 1 else ''}, so there is no average of "
                f"{size}; give {'sizes from 1 to ' if clients > 1 else 'size '}{clients}"
            )
        found.add(size)
    return tuple(sorted(found))


def sentence(one: RoundSubsets, split: str) -> str:
    """A round in words: the error of one, of all, and how many are enough."""

    from ..decomposition.diverged import diverged_words

    def shown(i: int) -> str:
        row = one.sizes[i]
        spread = "" if row.error_stderr is None else f" ± {100 * row.error_stderr:.2g}"
        return f"{100 * row.error_mean:.3g}{spread} %"

    first, last = one.sizes[0].m, one.sizes[-1].m
    begin = f"{one.run}, round {one.round}: "
    diverged = diverged_words(one.diverged, one.round)
    whose = "it" if len(one.diverged) == 1 else "one of them"
    broken = f"; {diverged}, nor are averages with {whose}, and NaN outputs count as wrong" if diverged else ""
    if one.clients == 1:
        return f"{begin}a cohort of one client, so nothing is averaged; {split} error {shown(0)}{broken}"
    of = "a single client" if first == 1 else f"averages of {first}"
    if len(one.sizes) == 1:
        return f"{begin}{split} error of {of} {shown(0)}{broken}"
    last_of = f"the average of all {last}" if last == one.clients else f"averages of {last}"
    enough = one.enough()
    said = f"; nine tenths of the difference are there from m = {enough} on" if enough is not None else ""
    return f"{begin}{split} error of {of} {shown(0)}, of {last_of} {shown(-1)}{said}{broken}"
