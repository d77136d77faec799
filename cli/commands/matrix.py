"""``fedscope matrix``."""

from __future__ import annotations

from pathlib import Path

import click

from ...analysis.settings import EvaluationConfig
from ..options import Output, output_options, rounds_option, source_options


@click.command("matrix", epilog="Example:  fedscope matrix runs/fma --rounds last")
@click.argument("run", type=click.Path(path_type=Path))
@rounds_option("the last of these")
@source_options("train", files=True, code=True)
@output_options
def command(run: Path, rounds: str | None, source: EvaluationConfig, output: Output) -> None:
    """Loss and error of every model of a round on every client's data and on the test data, and for how many clients
    the average is worse than their own model on their own data.

    --split train uses the samples that each client trained on. In the test data, a client's own samples are those of
    its classes. The clients' own models of a personal method of your own need its code: --code client=NAME.
    """
    from ...decomposition.matrix.analysis import matrix
    from ..run_analysis import answer

    answer(matrix.prepare(run, rounds=rounds, **vars(source)), output)
