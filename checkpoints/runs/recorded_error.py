"""``recorded-error.json``: the check that a recorded run's models have the error that was recorded of them, made
once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..io.atomic import write_durably
from ..io.errors import FedscopeError
from ..io.untrusted import read_json, real_path

NAME = "recorded-error.json"
FORMAT, VERSION = "fedscope-recorded-error", 1
#: outcomes that a run keeps: of several data sets and ways to take them
MOST = 100
#: letters of a text in it, at most
LONGEST = 5000
#: a difference is one above both: so many samples, and such a share of all
SAMPLES, SHARE = 2, 0.002


@dataclass(frozen=True)
class ErrorCheck:
    """A recorded model's numbers, and the same measured on a whole test split.

    Attributes:
        round, model: which model, ``global`` or ``averaged``.
        recorded_error, recorded_loss: of ``metrics.csv``; NaN where it has none.
        error, loss: as measured; the error is NaN of a task without one.
        samples: of the test split; data: its name; standardised: whether it was, by the training split.
        explained: a clause that says why the recorded error is another number and the data are right; empty where
            nothing does.
        hint: a clause that says what was seen of a difference that is not explained.
    """

    round: int
    model: str
    recorded_error: float
    recorded_loss: float
    error: float
    loss: float
    samples: int
    data: str
    standardised: bool
    explained: str = ""
    hint: str = ""

    @property
    def differs(self) -> bool:
        """True if the errors differ by more than rounding does, and nothing explains it."""
        return not self.explained and errors_differ(self.recorded_error, self.error, self.samples)

    def sentence(self) -> str:
        """Both numbers.

        >>> ErrorCheck(12, "global", 0.0472, 0.1, 0.0694, 0.2, 397, "npz:/a/mine.npz", True).sentence()
        'test_error of round 12 was recorded as 4.72 %, but global has 6.94 % on all 397 test samples of ...
        """
        if math.isfinite(self.recorded_error) and math.isfinite(self.error):
            but = "but global has" if errors_differ(self.recorded_error, self.error, self.samples) else "and global has"
            what, numbers = "test_error", (format_error(self.recorded_error), format_error(self.error))
        else:
            but, what, numbers = "and global has", "test_loss", (f"{self.recorded_loss:.4g}", f"{self.loss:.4g}")
        how = "standardised by the training split" if self.standardised else "taken as they are"
        return (
            f"{what} of round {self.round} was recorded as {numbers[0]}, {but.replace('global', self.model)} "
            f"{numbers[1]} on all {self.samples:,} test samples of {self.data}, {how}"
        )


def errors_differ(recorded: float, measured: float, samples: int) -> bool:
    """Check whether two errors differ by more than two samples and 0.2 points; not where one is missing.

    >>> [errors_differ(0.05, *other) for other in ((0.052, 10_000), (0.0521, 10_000), (0.07, 100), (0.08, 100))]
    [False, True, False, True]
    """
    away = abs(recorded - measured)  # NaN is never above
    return away * samples > SAMPLES + 1e-6 and away > SHARE + 1e-9


def format_error(error: float) -> str:
    """Format an error in per cent; of what is no share the number itself.

    >>> format_error(0.0472), format_error(4.72)
    ('4.72 %', '4.72 (a share is from 0 to 1)')
    """
    return f"{100 * error:.4g} %" if 0 <= error <= 1 else f"{error:.4g} (a share is from 0 to 1)"


def stored_checks(run: Path) -> dict[str, ErrorCheck]:
    """Read the checks that a run's folder keeps, by their keys; what is damaged or of another kind is left out."""
    try:
        found = read_json(run / NAME, "a run's outcomes", "remove it")
    except (OSError, FedscopeError):
        return {}
    if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
        return {}
    outcomes = found.get("outcomes")
    read = {str(key): _read(value) for key, value in outcomes.items()} if isinstance(outcomes, dict) else {}
    return {key: outcome for key, outcome in read.items() if outcome is not None}


def store_check(run: Path, key: str, outcome: ErrorCheck) -> None:
    """Store a check with the earlier ones; a folder that cannot be written to keeps none."""
    outcomes = {**stored_checks(run), key: outcome}
    said = {one: _plain(value) for one, value in list(outcomes.items())[-MOST:]}
    with suppress(OSError, FedscopeError), write_durably(run / NAME) as temporary:
        text = json.dumps({"format": FORMAT, "version": VERSION, "outcomes": said}, indent=1)
        temporary.write_text(text + "\n", encoding="utf-8")


def check_once(
    run: Path, key: str, seen: dict[tuple[str, str], ErrorCheck], measure: Callable[[], ErrorCheck]
) -> ErrorCheck:
    """Return the check that a run's folder keeps, else the one that this process has seen, else a new one; both have
    it afterwards.

    Args:
        key: all that the check depends on.
        seen: checks of this process, by the run's folder and the key, for folders that cannot be written.
    """
    place = str(real_path(run)), key
    kept = stored_checks(run).get(key)
    outcome = kept or seen.get(place) or measure()
    if kept is None:
        store_check(run, key, outcome)
    seen[place] = outcome
    return outcome


def _plain(outcome: ErrorCheck) -> dict[str, Any]:
    """Make values that strict readers of JSON take: no NaN, no infinities."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(outcome).items()
    }


def _read(value: Any) -> ErrorCheck | None:
    kinds = {"int": int, "float": (int, float), "str": str, "bool": bool}
    if not isinstance(value, Mapping):
        return None
    given: dict[str, Any] = {}
    for field in fields(ErrorCheck):
        one: Any = value.get(field.name)
        if str(field.type) == "float" and one is None:
            one = math.nan
        if not isinstance(one, kinds[str(field.type)]) or (isinstance(one, bool) and field.type != "bool"):  # type: ignore[arg-type]
            return None
        if isinstance(one, str) and not (one.isprintable() and len(one) <= LONGEST):
            return None
        given[field.name] = float(one) if field.type == "float" else one
    return ErrorCheck(**given) if given["model"] in ("global", "averaged") else None
