"""Whether a command line is answered: its user wants to read of flags, who calls from Python of keywords.

Beside the rooms, because ``fedscope --help`` loads none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

answering: ContextVar[bool] = ContextVar("answering", default=False)


@contextmanager
def speaking_flags() -> Iterator[None]:
    """Leave every sentence as it is written, because a command line is answered."""
    token = answering.set(True)
    try:
        yield
    finally:
        answering.reset(token)
