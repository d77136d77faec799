"""What a tracker is to fedscope, and how its own errors are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from math import isclose, isfinite
from numbers import Real
from typing import Any, Protocol

from ...checkpoints import FedscopeError
from ..curves.tags import tag_of
from .snapshot import Snapshot

#: the versions with which all of this was tested
TESTED = {"trackio": "0.43", "wandb": "0.31", "mlflow": "3.17"}
#: by which a store may change a number: a server's database may hold 32 bits
_ROUNDING = 1e-6
#: the same training takes another time when it is done again
_CLOCK = tag_of("seconds")


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


def refuse_other_numbers(run: Snapshot, there: Mapping[tuple[str, int], Any], where: str, remedy: str) -> None:
    """Refuse to go on in a record whose numbers are not those of the run any more: ``measure --force`` replaces a run's
    numbers, and a tracker keeps what it was given.

    Args:
        there: by tag and round what the tracker has; what is not finite is not compared, as not every store keeps it.

    Raises:
        FedscopeError: names one of them, and both values.
    """
    for point in run.points:
        for tag, value in point.values.items():
            old = there.get((tag, point.round))
            if tag == _CLOCK or not isinstance(old, Real) or not isfinite(old) or not isfinite(value):
                continue
            if not isclose(old, value, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
                raise FedscopeError(
                    f"{where} has {tag} = {float(old):.6g} of round {point.round}, and the run now has {value:.6g}: it "
                    f"was measured anew since, and a tracker keeps what it was given; {remedy}"
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
