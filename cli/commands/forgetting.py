"""``fedscope forgetting``."""

from __future__ import annotations

from pathlib import Path

import click

from ...analysis.settings import EvaluationConfig
from ..options import Output, output_options, rounds_option, source_options


@click.command("forgetting", epilog="Example:  fedscope forgetting runs/ima --rounds 1,20,last")
@click.argument("run", type=click.Path(path_type=Path))
@rounds_option("the first and last of these")
@source_options("train", files=True)
@output_options
def command(run: Path, rounds: str | None, source: EvaluationConfig, output: Output) -> None:
    """How a client's local training changes its accuracy on its own data and on the others' data, class by class.

    --split train uses all clients' training data. In the test data, a client's own samples are those of its classes.
    """
    from ...decomposition.forgetting.analysis import forgetting
    from ..run_analysis import answer

    answer(forgetting.prepare(run, rounds=rounds, **vars(source)), output)
