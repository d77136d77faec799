"""``fedscope sharpness``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..asking.source import Source
from .options import Count, Output, output_options, source_options

if TYPE_CHECKING:
    from ..landscape.curvature import Curvature, Sharpness


@click.command(
    "sharpness",
    epilog="Example:  fedscope sharpness runs/fma@last runs/ima@last    Over rounds:  "
    "fedscope sharpness runs/fma runs/ima --rounds 1,20,last",
)
@click.argument("models", nargs=-1, required=True, metavar="RUN@ROUND|RUN ...")
@click.option("--rounds", metavar="1,20,last", help="Which rounds of every RUN, or all.  [default: last]")
@click.option("--rho", type=float, default=0.05, show_default=True, help="Radius of the ball, an L2 distance.")
@click.option(
    "--relative", type=float, default=0.1, show_default=True, help="Radius in lengths of the model's filters."
)
@click.option("--draws", type=Count(1), default=10, show_default=True, help="Directions of the means over the balls.")
@click.option("--top", type=Count(1), default=5, show_default=True, help="How many of the largest eigenvalues.")
@click.option("--probes", type=Count(1), default=10, show_default=True, help="Random vectors for the trace.")
@click.option(
    "--density",
    type=Count(0),
    default=0,
    show_default=True,
    metavar="STEPS",
    help="The spectral density too, in so many steps, as in 64; needs pip install 'fedscope[hessian]'.",
)
@click.option("--no-hessian", is_flag=True, help="Rises of the loss only: no eigenvalues, trace and density.")
@source_options("train", files=True)
@output_options
def command(
    models: tuple[str, ...],
    rounds: str | None,
    rho: float,
    relative: float,
    draws: int,
    top: int,
    probes: int,
    density: int,
    no_hessian: bool,
    source: Source,
    output: Output,
) -> None:
    """How sharp the loss is at models: the Hessian's eigenvalues and trace, and how far the loss rises nearby.

    A model is RUN@ROUND[/WHICH] or a file; a RUN stands for those of its --rounds. The loss is that of the training
    data, which methods like FedSAM say to be flatter; --split test measures the other. --seed also draws directions.
    """
    from ..asking.models import pose
    from ..asking.names import base_for
    from ..checkpoints import FedscopeError
    from ..landscape.curvature import Sharpness, sharpness
    from .progress import progress
    from .results import FIGURE, figures, kinds, obtain, say

    if source.precision != "float32":
        raise FedscopeError(
            f"--precision {source.precision} cannot tell losses so near to each other apart; leave it out (float32)"
        )
    addresses = addresses_of(models, rounds)
    base = base_for(output.out, "sharpness", addresses)
    question = pose(addresses, source)
    asked: dict[str, Any] = {
        **{"rho": rho, "relative": relative, "draws": draws, "seed": source.seed, "hessian": not no_hessian},
        **{"top": top, "probes": probes, "density": 0 if no_hessian else density},
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Sharpness:
        with progress("sharpness") as report:
            return sharpness(
                question.module,
                question.samples,
                question.models,
                **asked,
                device=question.settings["device"],
                progress=report,
                partial=partial,
                provenance=attrs,
            )

    main = Path(f"{base}.sharpness.json")
    settings = {**question.settings, **asked}
    taken = kinds(base, "sharpness.csv", "spectrum.csv", *FIGURE)
    result = obtain(
        compute, lambda _: Sharpness.load(base), lambda made: made.save(base), main, settings, output, taken
    )
    written = [Path(f"{base}.{kind}") for kind in ("sharpness.csv", "spectrum.csv", "sharpness.json")]
    say(
        "\n".join(sentence(model) for model in result.models),
        [
            *(path for path in written if path.exists()),
            *figures(base, result.figure(output.inches, output.title)),
        ],
        as_json=output.as_json,
        models=[as_numbers(model) for model in result.models],
    )


def addresses_of(models: tuple[str, ...], rounds: str | None) -> list[str]:
    """An address a model: those given, and for every whole run one a round.

    Raises:
        FedscopeError: rounds that a run does not have; rounds where no run is given.
    """
    from ..asking.models import expand
    from ..asking.runs import open_run, parse_rounds
    from ..checkpoints import FedscopeError

    whole = [given for given in models if "@" not in Path(given).name and Path(given).is_dir()]
    if rounds is not None and not whole:
        raise FedscopeError(f"--rounds {rounds} is for whole runs, but {models[0]} names a model; give its run instead")
    addresses: list[str] = []
    for given in models:
        if given in whole:
            run = open_run(Path(given))
            addresses += [f"{given}@{number}" for number in parse_rounds(rounds or "last", run.rounds, given)]
        else:
            addresses += expand(given)
    return addresses


def sentence(model: Curvature) -> str:
    """A model's numbers in words."""

    def shown(name: str, digits: str = ".3g") -> str:
        one = model.measure(name)
        if one is None or one.value is None:
            return "unknown"
        spread = name in ("trace", "ball_mean", "filter_mean") and one.stderr is not None
        return f"{one.value:{digits}}" + (f" ± {one.stderr:.1g}" if spread else "")

    def radius(name: str) -> str:
        one = model.measure(name)
        return "" if one is None or one.radius is None else f"{one.radius:g}"

    hessian = ""
    if model.measure("trace") is not None:
        hessian = f"eigenvalues {shown('eigenvalue_min')} to {shown('eigenvalue_1')}, trace {shown('trace')}; "
    return (
        f"{model.label}: loss {shown('loss')}; {hessian}"
        f"within {radius('worst_case')} it rises by {shown('worst_case')} or more at worst and {shown('ball_mean')} on "
        f"average, within {radius('filter_worst_case')} of the filters by {shown('filter_worst_case')} or more and "
        f"{shown('filter_mean')}"
    )


def as_numbers(model: Curvature) -> dict[str, Any]:
    """A model's numbers, for --json."""
    values = {one.name: {"value": one.value, "stderr": one.stderr} for one in model.measures}
    return {"run": model.run, "round": model.round, "model": model.model, "measures": values}
