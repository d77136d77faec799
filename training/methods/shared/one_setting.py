"""A setting that a method has once, though its client and its server both name it."""

from __future__ import annotations

from ....checkpoints import FedscopeError


def two_values(method: str, setting: str, **values: float) -> FedscopeError:
    """Say that two values differ, and how each of them is given to both: which one was meant is not known.

    In a branch one of them is the run's and the other one was typed; a file and the command line differ alike.

    Args:
        values: by section, the one that is looked at first.

    >>> print(two_values("FedDyn", "alpha", server=0.2, client=0.1))
    server.alpha = 0.2 and client.alpha = 0.1 differ, but FedDyn has one alpha; give --set server.alpha=0.2 --set \
client.alpha=0.2, or --set server.alpha=0.1 --set client.alpha=0.1
    """
    both = [" ".join(f"--set {section}.{setting}={value!r}" for section in values) for value in values.values()]
    said = " and ".join(f"{section}.{setting} = {value!r}" for section, value in values.items())
    return FedscopeError(f"{said} differ, but {method} has one {setting}; give {', or '.join(both)}")
