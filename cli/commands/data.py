"""``fedscope data``."""

from __future__ import annotations

from pathlib import Path

import click

from ..option_types import Count
from ..options import Output, output_options
from ..train_flags import warn_of_overridden


@click.command(
    "data",
    epilog="Example:  fedscope data --partition dirichlet:0.1 --clients 20    Of a run:  fedscope data runs/ima",
)
@click.argument("federation", metavar="[CONFIG|RUN]", required=False, type=click.Path(path_type=Path))
@click.option("--data", "name", metavar="NAME", help="As for train: digits, npz:PATH, cifar10, ...")
@click.option("--partition", metavar="SPLIT", help="As for train: shards:2, pathological:2, dirichlet:0.1, ...")
@click.option("--clients", type=Count(1), metavar="N", help="Number of clients.")
@click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any other setting; repeatable.")
@click.option("--shown", type=Count(1), default=3, show_default=True, help="Number of clients whose samples are shown.")
@click.option("--samples", type=Count(1), default=8, show_default=True, help="Number of samples of each.")
@click.option("--download", is_flag=True, help="Fetch missing files of a published data set.")
@output_options
def command(
    federation: Path | None,
    name: str | None,
    partition: str | None,
    clients: int | None,
    assignments: tuple[str, ...],
    shown: int,
    samples: int,
    download: bool,
    output: Output,
) -> None:
    """What a federation looks like before anything is trained: samples by client and class, and a few to look at.

    CONFIG is a .toml file, as for train. Without it, the defaults of train are used. Flags and --set override it.
    """
    from ...decomposition.client_data.analysis import data, name_of, refuse_assigned
    from ..progress import fetch
    from ..run_analysis import answer

    flags = {"name": name, "partition": partition, "clients": clients}
    given = {key: value for key, value in flags.items() if value is not None}
    settings = {"data": given} if given else {}
    if assignments:
        from ...training.config.config import merge, read_assignments

        assigned = read_assignments(assignments)
        warn_of_overridden(settings, assigned)
        refuse_assigned(federation, [f"--{key}" for key in given if key != "name"], assigned)
        settings = merge(settings, assigned)
    if settings:
        from ...training.user_code.typed import typed_tables

        settings = typed_tables(settings)
    if download:
        fetch(name_of(federation, settings))
    answer(data.prepare(federation, settings=settings, shown=shown, samples=samples), output)
