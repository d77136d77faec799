"""Printing, for every command: what files and folders say is shown, and steers no terminal.

No other file of the command line writes to the standard streams; a test looks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click


def _visible(text: str, keep: str = "") -> str:
    from ..checkpoints.io.visible_text import visible  # numpy and h5py, which --help does without

    return visible(text, keep)


def say(line: str, *, err: bool = False) -> None:
    """Print one line, whatever it quotes; ``err`` prints it on stderr."""
    click.echo(_visible(line), err=err)


def say_lines(lines: str, *, err: bool = False) -> None:
    """Print text that is lines: a summary, a table. What it quotes was made visible where it came in, for here nobody
    can tell its ends of lines from the text's own."""
    click.echo(_visible(lines, keep="\n"), err=err)


def say_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a machine-readable result, a line of ASCII."""
    # the only control character that JSON in ASCII holds as it is
    click.echo(json.dumps(value).replace("\x7f", "\\u007f"))
