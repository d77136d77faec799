"""Command lines that a sentence prints: as a shell takes them, so that they can be pasted whatever a path holds."""

from __future__ import annotations

import shlex


def quoted(*words: object) -> str:
    """Return words as a shell reads them back: each as it stands, or in quotes where a shell would take it apart.

    >>> print(quoted("runs/ima@40/client-17", "bob's runs & co/r@last"))
    runs/ima@40/client-17 'bob'"'"'s runs & co/r@last'
    """
    return shlex.join(map(str, words))


def command_line(*words: object) -> str:
    """Return the command of fedscope with these words, each quoted where it has to be.

    >>> command_line("train", "--resume", "my runs/ima")
    "fedscope train --resume 'my runs/ima'"
    """
    return quoted("fedscope", *words)
