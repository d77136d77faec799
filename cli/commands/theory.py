"""``fedscope theory``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ..option_types import Count
from ..options import Output, choice, output_options, refuse_given, source_options, statistics_option


@click.command(
    "theory",
    epilog="Example:  fedscope theory runs/fma    "
    "Lemma 1 alone, quickly:  fedscope theory runs/fma --kernel none --rounds 1,20,40,last --limit 500",
)
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--rounds", metavar="1,20,last", help="Rounds of Lemma 1.  [default: all with clients]")
@click.option(
    "--shrink",
    metavar="20,last|none",
    help="Rounds whose clients are also drawn towards their mean.  [default: the last]",
)
@click.option("--kernel", metavar="20,last|none", help="Rounds of Theorem 2.  [default: the last of --rounds]")
@click.option(
    "--kernel-samples", type=Count(1), default=1000, show_default=True, help="Number of samples in the kernel."
)
@click.option(
    "--dimension", type=Count(1), default=1024, show_default=True, help="Dimension to which gradients are projected."
)
@click.option(
    "--draws",
    metavar="local:R|none",
    help="Replays whose variance is compared with Theorem 2, or none.  "
    "[default: local:4; none for a run that another program trained]",
)
@choice("--outputs", ["probabilities", "logits"], "The client outputs f(x) to average and compare.")
@statistics_option
@source_options("train", files=True, code=True)
@output_options
def command(run: Path, source: EvaluationConfig, output: Output, **settings: Any) -> None:
    """Whether Lemma 1 and Theorem 2 of model averaging (Zhou et al.) hold in a recorded run.

    Lemma 1: averaging weights equals averaging outputs up to O(Δ²), where Δ is the clients' greatest distance from
    their mean. It is tested over rounds, and on one round's clients drawn towards their mean.

    Theorem 2: a client's variance is n_k/(2 λ_k) MMD² + λ_D − n_k/(2 λ_k) β_D (equation 3) in the neural tangent
    kernel, MMD that between its data and all clients' data. The paper reads this as MMD² alone. Both are compared with
    the variance.

    --split applies to Lemma 1; the kernel always uses the training data. --seed draws the subsets and the projection.
    """
    from ...decomposition.theory.analysis import IDLE, theory
    from ..run_analysis import answer

    if str(settings["kernel"]).strip() == "none":
        refuse_given(["kernel_samples", "dimension"], IDLE)

    answer(theory.prepare(run, **settings, **vars(source)), output)
