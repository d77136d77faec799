"""``fedscope decompose``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import Output, Source, output_options, parse_rounds, source_options

if TYPE_CHECKING:
    from ..decomposition import Decomposition, Outputs


@click.command("decompose", epilog="Example:  fedscope decompose runs/ima --rounds 1,20,40,last --draws local:4")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--rounds", default="1,last", show_default=True, metavar="1,20,last", help="Which rounds, or all.")
@click.option(
    "--draws",
    default="local:4",
    show_default=True,
    metavar="local:R",
    help="Where the R draws of the cohort come from: replays of the local training.",
)
@click.option(
    "--outputs",
    type=click.Choice(["probabilities", "logits"]),
    default="probabilities",
    show_default=True,
    help="Which outputs f(x) of a client are averaged and compared.",
)
@source_options("train", files=False)
@output_options
def command(runs: tuple[Path, ...], rounds: str, draws: str, outputs: Outputs, source: Source, output: Output) -> None:
    """What makes up the global model's loss: bias, variance, covariance and locality, adding up to what is measured.

    --split train takes all clients' training data (the paper's D).
    """
    from ..checkpoints import FedscopeError, Partial, versions
    from ..decomposition import Decomposition
    from ..training import recorded_clients, resolve_device
    from .factors import as_numbers, decompose_run, parse_draws, sentence
    from .names import slug
    from .results import figures, obtain, say
    from .sources import identity, open_run

    count = parse_draws(draws)
    opened = [open_run(path) for path in runs]
    names = [run.name for run in opened]
    for name in names:
        if names.count(name) > 1:
            raise FedscopeError(f"{names.count(name)} of the runs are called {name!r}; rename a folder")
    asked = [parse_rounds(rounds, run.rounds, str(run.path)) for run in opened]
    for run, numbers in zip(opened, asked, strict=True):
        for number in numbers:
            recorded_clients(run, number)
    what = "-".join([source.split, *names[1:], slug(rounds)])
    base = output.out or opened[0].path / "figures" / f"decompose-{what}"
    settings: dict[str, Any] = {
        "run": [identity(run) for run in opened],
        "rounds": asked,
        "draws": draws,
        "outputs": outputs,
        "split": source.split,
        "limit": source.limit,
        "seed": source.seed if source.limit else None,
        "device": resolve_device(source.device),
        "precision": source.precision,
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Decomposition:
        # Rounds do not enter the fingerprint: asking for more of them goes on with those that are done.
        question = {key: value for key, value in {**settings, "versions": versions()}.items() if key != "rounds"}
        with Partial(partial, question) as store:
            parts = tuple(
                decompose_run(run, numbers, count, outputs, source, settings["device"], store)
                for run, numbers in zip(opened, asked, strict=True)
            )
        return Decomposition(parts, split=source.split, draws=draws, attrs=attrs)

    main = Path(f"{base}.factors.json")
    result = obtain(compute, lambda _: Decomposition.load(base), lambda made: made.save(base), main, settings, output)
    tables = [Path(f"{base}.{kind}") for kind in ("factors.csv", "clients.csv", "factors.json")]
    say(
        "; ".join(sentence(part) for part in result.runs),
        [*tables, *figures(base, result.figure(output.inches, output.title))],
        as_json=output.as_json,
        rounds=[value for part in result.runs for value in as_numbers(part)],
    )
