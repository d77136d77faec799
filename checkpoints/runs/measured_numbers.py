"""``measured.json``: numbers of a run's rounds that were measured after it was recorded, and on what.

The rounds' files never change. What is measured of their models later stands here, and readers of a run's numbers take
it in the place of what a round's file says. ``metrics.csv`` holds the same, as far as a writer has come to it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..io.atomic import write_durably
from ..io.errors import FedscopeError, spans
from ..io.hdf5 import check_version
from ..io.untrusted import RESULT, read_json
from ..rounds.metrics import COLUMNS, FURTHER, Metrics, to_json

NAME = "measured.json"
FORMAT, VERSION = "fedscope-measured", 1
#: of a file that is not what was written
REMEDY = "delete it, and measure again: fedscope measure RUN"
#: columns that are measured of models; the others say how a round was trained
_MEASURED = frozenset(name for name in COLUMNS if "test_" in name or name.startswith("client_error"))
#: the setting of numbers that stand in the place of the training's own
REPLACES = "replaces_recorded"
#: what a setting is
_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Measurement:
    """Numbers that were measured with the same settings.

    Attributes:
        settings: on what and how: the data and their sha256, the samples, the device, the versions; ``columns`` with
            other settings stand in another measurement.
        rows: by round, the numbers by column; NaN where there is none, as of a task without an error.
    """

    settings: Mapping[str, Any]
    rows: Mapping[int, Metrics] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it has, in the order of ``metrics.csv``."""
        there = {name for row in self.rows.values() for name in row}
        return tuple(sorted(there, key=lambda name: (*COLUMNS, name).index(name)))

    @property
    def words(self) -> str:
        """What was measured, in which rounds, on what.

        >>> Measurement({"data": "digits", "samples": 360, "split": "test"}, {1: {"test_loss": 0.5}}).words
        'test_loss of round 1, on 360 test samples of digits'
        """
        rounds = f"round{'s' if len(self.rows) > 1 else ''} {spans(self.rows)}"
        samples, split, data = (self.settings.get(key, "?") for key in ("samples", "split", "data"))
        count = f"{samples:,}" if isinstance(samples, int) else samples
        *others, last = self.columns
        names = f"{', '.join(others)} and {last}" if others else last
        return f"{names} of {rounds}, on {count} {split} samples of {data}"

    @property
    def told(self) -> dict[str, Any]:
        """What the provenance of a result that shows the numbers says of them."""
        keys = ("data", "data_sha256", "split", "samples", "seed", "task", "standardised", "data_accepted")
        about = {key: self.settings[key] for key in (*keys, REPLACES) if key in self.settings}
        version = self.settings.get("versions")
        made = {"fedscope": version["fedscope"]} if isinstance(version, dict) and "fedscope" in version else {}
        return {"words": self.words, **about, **made}

    def without(self, rows: Mapping[int, Collection[str]]) -> Measurement:
        """Return it without these columns of these rounds."""
        kept = {
            t: {name: value for name, value in row.items() if name not in rows.get(t, ())}
            for t, row in self.rows.items()
        }
        return replace(self, rows={t: row for t, row in kept.items() if row})


@dataclass(frozen=True)
class MeasuredNumbers:
    """All that was measured of a run afterwards; no number stands in two measurements."""

    measurements: tuple[Measurement, ...] = ()

    def of(self, number: int) -> dict[str, float | int | None]:
        """Return the numbers of a round by column; those that are NaN too."""
        return {name: value for one in self.measurements for name, value in one.rows.get(number, {}).items()}

    def add(self, one: Measurement) -> MeasuredNumbers:
        """Return them with more, which stand in the place of those of the same round and column; settings that are
        there already get more rows."""
        others = [other.without(one.rows) for other in self.measurements]
        found, is_new = list[Measurement](), True
        for other in others:
            if other.settings == one.settings:
                rows = {t: {**other.rows.get(t, {}), **one.rows.get(t, {})} for t in {*other.rows, *one.rows}}
                found.append(replace(other, rows=dict(sorted(rows.items()))))
                is_new = False
            elif other.rows:
                found.append(other)
        return MeasuredNumbers(tuple([*found, one] if is_new else found))

    def up_to(self, last: int) -> MeasuredNumbers:
        """Return those of rounds that are not behind ``last``."""
        cut = [replace(one, rows={t: row for t, row in one.rows.items() if t <= last}) for one in self.measurements]
        return MeasuredNumbers(tuple(one for one in cut if one.rows))

    @property
    def replaced(self) -> frozenset[int]:
        """The rounds in which numbers stand in the place of the training's own."""
        return frozenset(t for one in self.measurements if one.settings.get(REPLACES) for t in one.rows)

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds of which anything was measured, ascending."""
        return tuple(sorted({t for one in self.measurements for t in one.rows}))


def merge_numbers(recorded: Metrics, measured: Metrics) -> dict[str, float | int | None]:
    """Return a round's numbers with what was measured of it; a number that was measured to be none replaces none.

    >>> merge_numbers({"test_loss": 1.0, "lr": 0.1}, {"test_loss": 2.0, "test_error": float("nan")})
    {'test_loss': 2.0, 'lr': 0.1}
    """
    return {**recorded, **{name: value for name, value in measured.items() if is_number(value)}}


def is_number(value: float | int | None) -> bool:
    """Check whether there is a number: infinities are, NaN is none."""
    return value is not None and not math.isnan(value)


def read_measured(folder: Path, identity: str = "") -> MeasuredNumbers:
    """Read what was measured of the run in a folder; nothing where there is no such file.

    Raises:
        FedscopeError: a damaged file, or one of another run.
    """
    path = folder / NAME
    try:
        said = read_json(path, "a run's measured numbers", REMEDY, RESULT)
    except FileNotFoundError:
        return MeasuredNumbers()
    except OSError as error:
        raise FedscopeError(f"{path} cannot be read ({error.strerror}); check its rights") from None
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise FedscopeError(f'{path} does not hold measured numbers: it does not say "format": "{FORMAT}"; {REMEDY}')
    check_version(path, said.get("version"), VERSION)
    if said.get("sha256") != _own(said):
        raise FedscopeError(f"{path} is not as it was written (its own sha256 does not fit what it says); {REMEDY}")
    if said.get("identity") != identity:
        raise FedscopeError(f"{path} is of another run (its identity is not that of run.json); {REMEDY}")
    parts = said.get("measurements")
    found = [_read_measurement(one) for one in parts] if isinstance(parts, list) else [None]
    if None in found:
        raise FedscopeError(f"{path} holds other things than numbers of rounds; {REMEDY}")
    return MeasuredNumbers(tuple(one for one in found if one is not None))


def write_measured(folder: Path, numbers: MeasuredNumbers, identity: str = "") -> None:
    """Write what was measured, durably; a file without numbers goes."""
    path = folder / NAME
    if not numbers.measurements:
        path.unlink(missing_ok=True)
        return
    head = json.dumps({"format": FORMAT, "version": VERSION, "identity": identity})[:-1]
    body = ", ".join(_write_measurement(one) for one in numbers.measurements)
    text = f'{head}, "measurements": [{body}]}}'
    with write_durably(path) as temporary:
        own = _own(json.loads(text))
        temporary.write_text(f'{text[:-1]},\n "sha256": "{own}"}}\n', encoding="utf-8")


def _write_measurement(one: Measurement) -> str:
    """Write a measurement, a line a round."""
    rows = ",\n".join(f'  "{t}": {to_json(row)}' for t, row in sorted(one.rows.items()))
    return f'\n {{"settings": {json.dumps(one.settings)}, "rounds": {{\n{rows}}}}}'


def _own(said: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in said.items() if name != "sha256"}
    try:
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    except RecursionError:  # nested deeper than anything that was written
        text = ""
    return hashlib.sha256(text.encode()).hexdigest()


def _read_measurement(said: Any) -> Measurement | None:
    """A measurement; None of anything else."""
    if not isinstance(said, dict) or not isinstance(said.get("settings"), dict):
        return None
    rounds = said.get("rounds")
    if not isinstance(rounds, dict) or not rounds or not all(map(_is_setting, said["settings"].values())):
        return None
    rows: dict[int, Metrics] = {}
    for number, row in rounds.items():
        whole = number.isascii() and number.isdecimal() and len(number) < 16 and not number.startswith("0")
        if not whole or not isinstance(row, dict) or not row or not all(map(is_measured, row)):
            return None
        values = {name: math.nan if value is None else value for name, value in row.items()}
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values.values()):
            return None
        try:
            rows[int(number)] = {name: float(value) for name, value in values.items()}
        except OverflowError:
            return None
    return Measurement(said["settings"], rows)


def _is_setting(value: Any) -> bool:
    """Check whether a setting is plain, or has parts that are: versions by name, a run's rounds."""
    if isinstance(value, dict):
        return all(isinstance(one, _PLAIN) for one in value.values())
    return isinstance(value, _PLAIN) or (isinstance(value, list) and all(isinstance(one, _PLAIN) for one in value))


def is_measured(column: str) -> bool:
    """Check whether a column of ``metrics.csv`` is measured of models.

    >>> is_measured("averaged_test_error"), is_measured("test_error_photo"), is_measured("train_loss")
    (True, True, False)
    """
    domains = FURTHER.fullmatch(column) is not None and ("test_error" in column or "domain_error" in column)
    return column in _MEASURED or domains


def find_differences(
    numbers: Iterable[Measurement], settings: Mapping[str, Any], names: Sequence[str]
) -> Iterator[str]:
    """Yield what other settings earlier numbers have, among ``names``, a clause each.

    >>> list(find_differences([Measurement({"samples": 100}, {1: {"lr": 1.0}})], {"samples": 360}, ["samples"]))
    ['samples 100 (not 360)']
    """
    for one in numbers:
        for name in names:
            had, asked = one.settings.get(name), settings.get(name)
            if had != asked:
                yield f"{name.replace('_', ' ')} {'none' if had is None else had} (not {asked})"
