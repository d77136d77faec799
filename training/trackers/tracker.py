"""What a tracker is to fedscope, and how its own errors are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Protocol

from ...checkpoints import FedscopeError
from .snapshot import Snapshot

#: the versions with which all of this was tested
TESTED = {"trackio": "0.43", "wandb": "0.31", "mlflow": "3.17"}


class Tracker(Protocol):
    """Where points and figures go.

    A tracker is asked what it has, and is given what it lacks: whatever ended an earlier call, and wherever, no point
    comes twice and none is lost.
    """

    #: for a sentence: what it keeps the run in, and how one looks at it
    where: str
    looked_at: str

    def write(self, run: Snapshot) -> None:
        """Bring it up to a run as it is now."""

    def close(self) -> None:
        """Have everything written that :meth:`write` was given."""


def refuse_missing(name: str) -> FedscopeError:
    """The sentence for a tracker that is not installed."""
    return FedscopeError(
        f'--to {name} takes {name}, which is not installed; install it: pip install "fedscope[{name}]"'
    )


@contextmanager
def explained(name: str, version: str, remedy: str) -> Iterator[None]:
    """Run a tracker's own code: what it prints is left out, what it raises becomes one sentence.

    Raises:
        FedscopeError: names the tracker, its version and its own words.
    """
    try:
        with redirect_stdout(StringIO()):
            yield
    except (FedscopeError, KeyboardInterrupt):
        raise
    except Exception as error:
        own = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        tested = "" if version.startswith(TESTED[name]) else f" (fedscope was tested with {TESTED[name]})"
        raise FedscopeError(f"{name} {version}{tested} failed: {own.rstrip('.')}; {remedy}") from error
