"""``fedscope reaggregate``."""

from __future__ import annotations

from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ..options import Output, align_option, output_options, source_options, statistics_option


@click.command(
    "reaggregate",
    epilog="Example:  fedscope reaggregate runs/fma@40 --server fedsa --set server.quantile=0.99    Several:  "
    "fedscope reaggregate runs/fma@40 --server fedswa --server fedgma",
)
@click.argument("run", metavar="RUN@ROUND")
@click.option("--rounds", metavar="40", help="Which round, if RUN names none.")
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="NAME",
    help="A server method, fedsa (or fedpake) for one; repeatable, one row each. With --layers the run's own by "
    "default.",
)
@click.option(
    "--layers",
    multiple=True,
    metavar="PATTERN=SERVER",
    help="A server for the layers that a pattern names, 'conv*=fedadam', or 'head=personal': each client keeps its "
    "own. Repeatable.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="server.KEY=VALUE",
    help="A setting for all these servers that have it; repeatable.",
)
@click.option(
    "--from-state",
    is_flag=True,
    help="Start with the state that the run's own server had before the round, instead of an empty one.",
)
@align_option
@statistics_option
@source_options("test", files=True, code=True)
@output_options
def command(run: str, assignments: tuple[str, ...], source: EvaluationConfig, output: Output, **settings: Any) -> None:
    """What another server method would have made of a recorded round's clients; nothing is trained.

    The command writes the models. It compares their loss and error with the recorded global model and with plain FMA.
    A server that keeps a state starts with an empty one unless --from-state is given. Averages over rounds are left
    out. Clients of more than half a GB in all stay in the round's file.

    With --layers the other layers are aggregated by --server. Where layers stay personal, loss and error are the means
    over clients of those of each one's own model.
    """
    from ...decomposition.reaggregation.analysis import reaggregate
    from ..run_analysis import answer

    answer(reaggregate.prepare(run, settings=assignments, **settings, **vars(source)), output)
