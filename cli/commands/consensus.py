"""``fedscope consensus``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ..options import Output, measured_settings, output_options, rounds_option, source_options


@click.command("consensus", epilog="Example:  fedscope consensus runs/ring --rounds 1,20,last")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option("all of these")
@source_options("test", files=True)
@output_options
def command(runs: tuple[Path, ...], source: EvaluationConfig, output: Output, **settings: Any) -> None:
    """How far nodes' models are apart, before and after mixing, and what their mean would be.

    For runs without a server: gossip, rings, personal models. The merged model of a round is the mean of all its nodes,
    which such a run never makes. Of other runs the nodes are the clients of a round.
    """
    from ...decomposition.consensus.analysis import consensus as question
    from ..run_analysis import answer

    answer(question.prepare(runs, **settings, **measured_settings(source)), output)
