"""Options that are given twice where one counts, which is said: the other one would go without a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click


def describe_repeats(command: click.Command, context: click.Context, words: Sequence[str]) -> list[str]:
    """Say of every option of a command line that is given several times which value counts, the last one's.

    Options that take several values, and flags without a value, may be given as often as one likes.

    Args:
        context: of the group; words: behind the command's name.
    """
    own = click.Context(command, info_name=command.name, parent=context, resilient_parsing=True)
    try:
        values, _, order = command.make_parser(own).parse_args(list(words))
    except click.UsageError:  # the command says it itself
        return []
    found = []
    for param, times in Counter(one for one in order if isinstance(one, click.Option)).items():
        if times < 2 or param.multiple or param.count or (param.is_flag and not param.secondary_opts):
            continue
        flags = "/".join(max(names, key=len) for names in (param.opts, param.secondary_opts) if names)
        value = values.get(param.name or "")
        last = max(param.opts if value else param.secondary_opts, key=len) if param.is_flag else _spelled(value)
        often = "twice" if times == 2 else f"{times} times"
        found.append(f"{flags} is given {often}, and the last one counts: {last}")
    return found


def _spelled(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
