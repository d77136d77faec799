"""``fedscope cka``."""

from __future__ import annotations

from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError
from ..option_types import Count
from ..options import Output, choice, output_options, panel_option, rounds_option, source_options


@click.command(
    "cka",
    epilog="Example:  fedscope cka runs/ima --rounds 1,20,last    Of any models:  "
    "fedscope cka runs/fma@last runs/ima@last runs/ima@1/start    Test errors against similarity:  "
    "fedscope cka runs/fma runs/ima --rounds 1,20,40,last --panel error",
)
@click.argument("models", nargs=-1, required=True, metavar="RUN [RUN ...] | A B [C ...]")
@rounds_option("the first and last of these", "Which rounds of every RUN; all means all that have their clients.")
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="NAME|PATTERN",
    help="Compare the outputs of this submodule, such as conv1, or of layers: conv* or /^blocks/; repeatable, one "
    "result each.  [default: output, the logits]",
)
@choice(
    "--estimator",
    ["unbiased", "biased"],
    "Estimator of HSIC on a minibatch; the biased one is high for any features that outnumber the samples.",
)
@click.option(
    "--batch",
    type=Count(4),
    help="Most samples of a minibatch.  [default: 256, or an eighth of the samples if that is less]",
)
@panel_option(["maps", "rounds", "error"])
@source_options("test", files=True)
@output_options
def command(
    models: tuple[str, ...],
    layers: tuple[str, ...],
    panels: tuple[str, ...],
    source: EvaluationConfig,
    output: Output,
    **settings: Any,
) -> None:
    """How similar the outputs of models are: linear CKA of all pairs. It is 1 if they differ by a rotation and a scale.

    RUN compares the clients of each of its --rounds with each other and with the round's global model. A B [C ...]
    gives one matrix of any models: RUN@ROUND[/WHICH] or files. RUN@all/global gives one model per round.

    --seed also shuffles the samples before they are cut into minibatches.
    """
    from ...decomposition.cka.analysis import cka
    from ...decomposition.cka.result import ClientCKA
    from ..run_analysis import answer

    question = cka.prepare(models, layer=layers or "output", **settings, **vars(source))
    if panels and question.parts[0].kind is not ClientCKA:
        raise FedscopeError(f"--panel {panels[0]} is for whole runs, and models have one matrix; leave it out")
    answer(question, output, **({"panels": panels} if panels else {}))
