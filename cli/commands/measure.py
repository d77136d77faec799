"""``fedscope measure``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ..options import rounds_option, source_options
from ..printing import say, say_json, say_lines


@click.command(
    "measure",
    epilog="Example:  fedscope measure runs/mine && fedscope curves runs/mine    The clients, too:  "
    "fedscope measure runs/mine --clients    Names of your own:  fedscope measure runs/flower --model task:Net --data "
    "task:test_set",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option("all", "Which rounds.")
@click.option("--clients", is_flag=True, help="Also measure the clients' models: mean and deviation of their errors.")
@source_options("test", files=True)
@click.option("--force", is_flag=True, help="Measure all of it again, and replace what the training itself wrote.")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(
    runs: Sequence[Path], rounds: str | None, clients: bool, force: bool, as_json: bool, source: EvaluationConfig
) -> None:
    """Fill a run's curves from its recorded models: test loss and error of every round that has none.

    For runs that were recorded without an evaluation: loops of your own, Flower, imports. What the training wrote
    itself stays. The numbers lie in the run, with what they were measured on; curves, table and report read them. After
    Ctrl-C the same command goes on.
    """
    from ...analysis.runs import open_run
    from ...training.loop.measure_run import measure_run
    from ..progress import progress

    done: list[dict[str, Any]] = []
    for path in runs:
        run = open_run(path)
        with progress(f"measuring {run.name}") as report:
            found = measure_run(run, source, rounds=rounds, clients=clients, force=force, progress=report)
        written = [str(run.path / name) for name in ("measured.json", "metrics.csv") if (run.path / name).exists()]
        if as_json:
            done.append({**asdict(found), "run": str(found.run), "files": written})
            continue
        say_lines(found.summary())
        for name in written:
            say(f"  {name}")
    if as_json:
        say_json(done)
