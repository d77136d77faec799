"""How long something takes, in words."""

from __future__ import annotations


def spoken(seconds: float) -> str:
    """``42 s``, ``7 min``, ``3 h 05 min``.

    >>> spoken(42), spoken(431), spoken(11_112)
    ('42 s', '7 min', '3 h 05 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"
