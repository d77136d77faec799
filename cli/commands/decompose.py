"""``fedscope decompose``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError
from ..options import (
    Output,
    choice,
    measured_settings,
    output_options,
    panel_option,
    rounds_option,
    source_options,
    statistics_option,
)


@click.command(
    "decompose",
    epilog="Example:  fedscope decompose runs/ima --rounds 1,20,40,last --draws local:4    "
    "Distances and errors alone:  fedscope decompose runs/ima --panel distance --panel error",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option("the first and last of these; with rounds:R only the last, which has enough rounds before it")
@click.option(
    "--draws",
    metavar="local:R|rounds:R|runs|none",
    help="Source of the R draws of the cohort. Replays of the local training (local:R), the last R rounds of one "
    "cohort (rounds:R), the RUNs, which differ in their seed (runs), or only the recorded models (none).  "
    "[default: local:4; none for a run that another program trained]",
)
@choice(
    "--of",
    ["global", "averaged", "both"],
    "Average of the round's clients, or of all clients in the window of an average over rounds.",
)
@choice("--loss", ["squared", "cross-entropy", "zero-one"], "Which loss; only the squared loss has all factors.")
@choice(
    "--outputs",
    ["probabilities", "logits"],
    "The client outputs f(x) that the squared loss averages and compares.",
)
@choice("--on", ["all", "cohort"], "Training data D: of all clients, or only of those that are averaged.")
@click.option(
    "--layers",
    metavar="each|PATTERN",
    help="Locality by layer: only its weights are averaged; each alone, or names together as conv*,fc or /^blocks/.",
)
@statistics_option
@panel_option(["factors", "clients", "distance", "error"])
@source_options("train", files=True, code=True)
@output_options
def command(
    runs: tuple[Path, ...], panels: tuple[str, ...], source: EvaluationConfig, output: Output, **settings: Any
) -> None:
    """What makes up the global model's loss: bias, variance, covariance and locality. They add up to the measured loss.

    --split train uses all clients' training data (the paper's D).

    --layers says which layer carries the locality. fedscope layers RUN lists the names.
    """
    from ...decomposition.factors.analysis import decompose
    from ..run_analysis import answer

    if panels and settings["layers"] is not None:
        raise FedscopeError(
            "--panel chooses parts of the figure of the factors, which --layers does not draw; give one"
        )
    drawing = {} if settings["layers"] is not None else {"panels": panels}
    answer(decompose.prepare(runs, **settings, **measured_settings(source)), output, **drawing)
