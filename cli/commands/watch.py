"""``fedscope watch``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ...checkpoints import FedscopeError
from ..printing import say, say_json


@click.command("watch", epilog="Example:  fedscope watch runs/ima")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--port", type=int, default=8765, show_default=True, metavar="PORT", help="0 takes any port that is free."
)
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(run: Path, port: int, as_json: bool) -> None:
    """Show a run in the browser while it goes on: curves, drift and the newest figures.

    The page is for browsers of this machine alone. The command only reads the run. Ctrl-C ends it.
    """
    from ...reporting.live.server import WatchServer

    if port and not 1024 <= port <= 65535:  # those below are for some users of some machines alone
        what = "a port of the system" if 0 < port < 1024 else "no port"
        raise FedscopeError(f"--port {port} is {what}; give a number from 1024 to 65535, or 0 for any that is free")
    with WatchServer(run, port) as server:
        if as_json:
            say_json({"url": server.url})
        else:
            say(f"{server.url} shows {run} while it goes on; Ctrl-C ends this")
        sys.stdout.flush()
        server.serve_forever()
