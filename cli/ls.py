"""``fedscope ls``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command("ls", epilog="Example:  fedscope ls runs/ima")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--check", "checks", is_flag=True, help="Verify every checksum of runs, and that their files agree.")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(paths: tuple[Path, ...], checks: bool, as_json: bool) -> None:
    """The runs here (or below a folder), or what one run holds."""
    from ..checkpoints import FedscopeError, Run, find_runs

    if checks:
        from .checking import check

        check(paths, as_json)
        return
    if len(paths) > 1:
        raise FedscopeError(f"ls shows one run or folder, but {len(paths)} were given; several are for --check")
    path = paths[0] if paths else None
    if path is not None and (path / "run.json").is_file():
        holdings = describe(Run.open(path))
        if as_json:
            click.echo(json.dumps(holdings))
            return
        for name, value in holdings.items():
            click.echo(f"{name:<14}{value}")
        return
    folder = path or Path()
    if not folder.is_dir():
        raise FedscopeError(f"{folder} is neither a run nor a folder; give a run, or a folder that holds runs")
    rows = [described(run) for run in find_runs(folder)]
    if as_json:
        click.echo(json.dumps(rows))
    elif not rows:
        click.echo(f"no runs below {folder.resolve()}; train one: fedscope train")
    else:
        columns = ("run", "method", "data", "rounds", "test error", "size")
        table = [columns, *(tuple(str(row[column]) for column in columns) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def described(run: Any) -> dict[str, Any]:
    """What a run holds; of a damaged one, what is wrong with it, so that it does not hide the others."""
    from ..checkpoints import FedscopeError

    try:
        return describe(run)
    except FedscopeError as error:
        unknown = dict.fromkeys(("data", "rounds", "test error", "size"), "-")
        return {"run": str(run.path), "method": f"damaged: {error}", **unknown}


def describe(run: Any) -> dict[str, Any]:
    """What a run holds, as words."""
    import numpy as np

    from ..checkpoints.errors import spans

    config = run.config or {}
    rounds = run.rounds
    planned = config.get("run", {}).get("rounds")
    methods = [config.get(section, {}).get("method") for section in ("client", "server", "average")]
    plain_ones = ("sgd", "fma", "none")  # as in Config.title, without reading the methods' files
    special = dict.fromkeys(method for method in methods if method and method not in plain_ones)
    branch = run.info.get("branch")
    with_clients = [t for t in rounds if run.round(t).has_clients]
    error = "-"
    if config and rounds:
        metrics = run.metrics()
        averaged, plain = metrics["averaged_test_error"], metrics["test_error"]
        measured = np.where(np.isnan(averaged), plain, averaged)
        if len(measured) and not np.isnan(measured[-1]):
            error = f"{100 * measured[-1]:.1f} %"
    size = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    return {
        "run": str(run.path),
        "method": "-".join(special) or (methods[0] and "fma") or run.info.get("source", "-"),
        "data": run.info.get("data", {}).get("name", "-"),
        "partition": config.get("data", {}).get("partition", "-"),
        "clients": run.info.get("clients", "-"),
        "model": f"{config.get('model', {}).get('name', '-')}, {run.layout.size:,} parameters",
        "rounds": f"{rounds[-1] if rounds else 0}" + (f" of {planned}" if planned else ""),
        "with clients": spans(with_clients) or "none",
        "averaged": spans([t for t in rounds if "averaged" in run.round(t).models]) or "none",
        "test error": error,
        "size": f"{size / 1e6:.1f} MB",
        "created": run.info.get("created", "-"),
        **({"branched from": f"{branch['run']}@{branch['round']}"} if branch else {}),
    }
