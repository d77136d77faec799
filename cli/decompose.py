"""``fedscope decompose``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ..asking.source import Source
from .options import Output, output_options, source_options

if TYPE_CHECKING:
    from ..decomposition import Decomposition, Outputs
    from .decomposing import Asked


@click.command("decompose", epilog="Example:  fedscope decompose runs/ima --rounds 1,20,40,last --draws local:4")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    metavar="1,20,last",
    help="Which rounds, or all with their clients.  [default: the first and last of these; with rounds:R the last, "
    "because R rounds come before it]",
)
@click.option(
    "--draws",
    default="local:4",
    show_default=True,
    metavar="local:R|rounds:R|runs",
    help="Where the R draws of the cohort come from: replays of the local training; the last R rounds of one cohort; "
    "the RUNs themselves, which differ in their seed.",
)
@click.option(
    "--of",
    type=click.Choice(["global", "averaged", "both"]),
    default="global",
    show_default=True,
    help="Which average: of the round's clients, or of all clients in the window of an average over rounds.",
)
@click.option(
    "--loss",
    type=click.Choice(["squared", "cross-entropy", "zero-one"]),
    default="squared",
    show_default=True,
    help="Which loss; only the squared one has all factors.",
)
@click.option(
    "--outputs",
    type=click.Choice(["probabilities", "logits"]),
    default="probabilities",
    show_default=True,
    help="Which outputs f(x) of a client the squared loss averages and compares.",
)
@click.option(
    "--on",
    type=click.Choice(["all", "cohort"]),
    default="all",
    show_default=True,
    help="D: the training data of all clients, or of those that are averaged.",
)
@source_options("train", files=True)
@output_options
def command(
    runs: tuple[Path, ...],
    rounds: str | None,
    draws: str,
    of: str,
    loss: Literal["squared", "cross-entropy", "zero-one"],
    outputs: Outputs,
    on: str,
    source: Source,
    output: Output,
) -> None:
    """What makes up the global model's loss: bias, variance, covariance and locality, adding up to what is measured.

    --split train takes all clients' training data (the paper's D).
    """
    from ..asking.draws import groups_of, parse_draws
    from ..asking.runs import client_rounds, identity, open_runs, refuse_other_data, refuse_replays
    from ..asking.samples import given_settings, refuse_nameless
    from ..checkpoints import FedscopeError, Partial, versions
    from ..decomposition import Decomposition
    from ..training import resolve_device
    from .decomposing import Asked, decompose_runs
    from .factors import as_numbers, sentence
    from .results import FIGURE, figures, kinds, obtain, say

    models = ("global", "averaged") if of == "both" else (of,)
    asked = Asked(parse_draws(draws), models, loss, outputs, on)
    refuse_idle_options(asked, source)
    opened = open_runs(runs)
    names = [run.name for run in opened]
    refuse_nameless(opened, source)
    if asked.draws.kind == "local":
        refuse_replays(opened, "--draws rounds:4, the last rounds of one cohort")
    refuse_other_data(opened)
    usual = "last" if asked.draws.kind == "rounds" else "1,last"
    numbers = [client_rounds(run, rounds, last=asked.draws.kind == "rounds") for run in opened]
    groups = groups_of(opened, asked.draws)
    if asked.draws.kind == "runs" and len({tuple(own) for own in numbers}) > 1:
        raise FedscopeError(
            f"--rounds {rounds or '(none given)'} means other rounds in other runs, but --draws runs needs the same; "
            "write numbers"
        )
    rounds_of = dict(zip(names, numbers, strict=True))
    base = output.out or default_base(opened[0].path, names, rounds or usual, asked, source)
    settings: dict[str, Any] = {
        "run": [identity(run) for run in opened],
        "rounds": numbers,
        "draws": str(asked.draws),
        "of": of,
        "loss": loss,
        "outputs": outputs if loss == "squared" else None,
        "on": on,
        "split": source.split,
        "limit": source.limit,
        "seed": source.seed if source.limit else None,
        "device": resolve_device(source.device),
        "precision": source.precision,
        **given_settings(opened, source),
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Decomposition:
        # Rounds do not enter the fingerprint: asking for more of them goes on with those that are done.
        question = {key: value for key, value in {**settings, "versions": versions()}.items() if key != "rounds"}
        with Partial(partial, question) as store:
            parts = tuple(
                part
                for group in groups
                for part in decompose_runs(group, rounds_of[group[0].name], asked, source, settings["device"], store)
            )
        return Decomposition(parts, split=source.split, draws=str(asked.draws), loss=loss, attrs=attrs)

    main = Path(f"{base}.factors.json")
    taken = kinds(base, "factors.csv", "clients.csv", *FIGURE)
    result = obtain(
        compute, lambda _: Decomposition.load(base), lambda made: made.save(base), main, settings, output, taken
    )
    tables = [Path(f"{base}.{kind}") for kind in ("factors.csv", "clients.csv", "factors.json")]
    say(
        "\n".join(sentence(part) for part in result.runs),
        [*tables, *figures(base, result.figure(output.inches, output.title))],
        as_json=output.as_json,
        rounds=[value for part in result.runs for value in as_numbers(part)],
    )


def refuse_idle_options(asked: Asked, source: Source) -> None:
    """Refuse options that would change nothing.

    Raises:
        FedscopeError: logits with another loss; ``--on cohort`` on test data.
    """
    from ..checkpoints import FedscopeError

    if asked.loss != "squared" and asked.outputs != "probabilities":
        raise FedscopeError(f"--outputs {asked.outputs} is for the squared loss; leave it out with --loss {asked.loss}")
    if asked.on == "cohort" and source.split != "train":
        raise FedscopeError("--on cohort chooses among training data, and --split test has none; leave one of them out")


def default_base(run: Path, names: list[str], rounds: str, asked: Asked, source: Source) -> Path:
    """``RUN/figures/decompose-<what>``, where what is not the default is part of the name."""
    from ..asking.names import slug

    usual = {"local:4", "global", "squared", "probabilities", "all"}
    chosen = [str(asked.draws).replace(":", ""), "-".join(asked.models), asked.loss, asked.outputs, asked.on]
    given = [str(asked.draws), "-".join(asked.models), asked.loss, asked.outputs, asked.on]
    special = [word for word, plain in zip(chosen, given, strict=True) if plain not in usual]
    what = "-".join([source.split, *special, *names[1:], slug(rounds)])
    return run / "figures" / f"decompose-{what}"
