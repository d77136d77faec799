"""``fedscope new``."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ..printing import say

KINDS = ("client", "server", "average", "model", "data", "partition")


@click.command(
    "new", epilog="Example:  fedscope new server fedx && fedscope train --server fedx:FedX --average none --rounds 5"
)
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("name", metavar="NAME")
def command(kind: str, name: str) -> None:
    """Write a method, model, data set or partition of your own to start from: NAME.py in this folder.

    KIND is client, server, average, model, data or partition. The file has a formula, settings and a test. It is never
    written over another one.
    """
    from ...checkpoints import FedscopeError, write_durably
    from ...training.settings.code_kinds import KINDS as ALL
    from ...training.settings.entry_points import importable_elsewhere
    from ...training.user_code.templates import called, filled

    module = name.removesuffix(".py")
    if not module.isidentifier():
        offer = re.sub(r"\W+", "_", Path(module).name).strip("_")
        offer = offer if offer.isidentifier() else "mine"
        raise FedscopeError(f"{name!r} is no name of a module; give letters, digits and _, as in {offer}")
    path = Path(f"{module}.py")
    _refuse_taken(path)
    if where := importable_elsewhere(module):
        raise FedscopeError(f"{module!r} is a module already ({where}), which the file would hide; give another NAME")
    try:
        with write_durably(path) as temporary:
            temporary.write_text(filled(kind, module), encoding="utf-8")
            _refuse_taken(path)  # by what has come in between
    except OSError as error:
        raise FedscopeError(f"{path} cannot be written ({error.strerror}); go to a folder of your own") from error
    from ...checkpoints.io.shell_words import command_line

    own, flag = called(kind, module), ALL[kind].flag
    say(f"{path}: {ALL[kind].called} of your own")
    if kind in ("client", "server", "average"):
        say(f"  check it: {command_line('check-method', own)}")
    more = ["--average", "none"] if kind in ("client", "server") else []
    data = ["--model", "mlp"] if kind == "data" else []
    say(f"  train it: {command_line('train', flag, own, *more, *data, '--rounds', 10)}")


def _refuse_taken(path: Path) -> None:
    """Refuse to write over anything."""
    from ...checkpoints import FedscopeError

    if path.exists() or path.is_symlink():
        raise FedscopeError(f"{path} is there already, and nothing is written over it; give another NAME")
