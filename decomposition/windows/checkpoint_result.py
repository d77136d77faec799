"""Means of the last checkpoints by window and weighting, measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from math import isfinite, isnan
from pathlib import Path
from typing import Any, ClassVar, Self

from ...checkpoints.io.errors import list_few
from ...plotting.style import describe_statistics
from ...results import Table, TableResult, columns_of
from ...results.labels import name_of_run

#: what the newest checkpoint alone is called where weightings stand
NEWEST = "newest"


@dataclass(frozen=True)
class CheckpointMean:
    """The mean of the last ``window`` checkpoints; of one it is the newest itself.

    Attributes:
        window: how many are averaged; weights: how they weigh, ``linear``.
        loss: mean cross-entropy in nats; error: share misclassified, 0..1, NaN where the task has none.
        gained, gained_stderr: the mean over samples of the newest checkpoint's loss less that of the mean on the same
            sample, and its standard error over samples; above 0 the mean is better. error_gained, error_gained_stderr:
            alike. None where a loss is not finite or there is no error.
    """

    window: int
    weights: str
    loss: float
    error: float
    gained: float | None
    gained_stderr: float | None
    error_gained: float | None
    error_gained_stderr: float | None


@dataclass(frozen=True)
class CheckpointWindows(TableResult):
    """What means of the last checkpoints gain on the newest one, by window and weighting.

    Attributes:
        means: the newest checkpoint first, then by weighting and window.
        attrs: provenance: run, round, windows, weights, data, split, samples, versions; ``checkpoints``, how many there
            are; ``diverged``, those that are not finite, and ``copies``, those of the same weights, where there are
            some.

    >>> from fedscope.decomposition.windows.checkpoint_result import CheckpointMean, CheckpointWindows
    >>> rows = [CheckpointMean(1, "newest", 0.5, 0.2, 0.0, 0.0, 0.0, 0.0)]
    >>> rows += [CheckpointMean(w, "linear", 0.5 - g, 0.2, g, 0.01, 0.0, 0.0) for w, g in ((2, 0.1), (4, 0.2))]
    >>> CheckpointWindows(tuple(rows)).best.window
    4
    """

    command = "wima"
    suffixes = (".checkpoints.csv", ".checkpoints.json")
    format = "fedscope-checkpoint-windows"
    drawn: ClassVar = {"": "checkpoint_figure:draw_checkpoints"}
    tables = (Table(".checkpoints.csv", {"run": str, "round": int, **columns_of(CheckpointMean)}),)

    means: tuple[CheckpointMean, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a table whose first row is not the newest checkpoint."""
        if not self.means or self.means[0].weights != NEWEST:
            raise ValueError("the newest checkpoint comes first")

    @property
    def _of(self) -> str:
        """The name of the run, or of the folder of files."""
        run = self.attrs.get("run")
        return name_of_run(run) if isinstance(run, dict) else Path(self.attrs.get("folder", "")).name

    @property
    def newest(self) -> CheckpointMean:
        """The newest checkpoint alone."""
        return self.means[0]

    @property
    def weightings(self) -> tuple[str, ...]:
        """How checkpoints weigh, in the order of the rows."""
        return tuple(dict.fromkeys(one.weights for one in self.means[1:]))

    @property
    def best(self) -> CheckpointMean:
        """The mean that gains most; the newest checkpoint where none gains anything."""
        return max(self.means, key=lambda one: -1.0 if one.gained is None else one.gained)

    def of(self, weights: str) -> list[CheckpointMean]:
        """Return the means of a weighting, by window."""
        return [one for one in self.means[1:] if one.weights == weights]

    @classmethod
    def runs_named(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        """None are known: its names are those of checkpoints, too."""
        return frozenset()

    def rows(self) -> list[Any]:
        """BASE.checkpoints.csv: a row a mean."""
        about = self._of, self.attrs.get("round", 0)
        return [[(*about, *astuple(one)) for one in self.means]]

    def head(self) -> dict[str, Any]:
        """Return nothing: the provenance says it all."""
        return {}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` gave."""
        rows = ({name: row[name] for name in CheckpointMean.__annotations__} for row in tables[0])
        return cls(tuple(CheckpointMean(**row) for row in rows), head["attrs"])

    def summary(self) -> str:
        """Say what every mean gains, as a table, and which gains most."""
        attrs, newest = self.attrs, self.newest
        at = f"@{attrs['round']}" if isinstance(attrs.get("run"), dict) else ""
        where = f"{self._of}{at}, " if self._of else ""
        count = attrs.get("checkpoints", self.means[-1].window)
        error = "" if isnan(newest.error) else f", error {100 * newest.error:.3g} %"
        lines = [
            f"{where}{attrs.get('split', '')} data, {attrs.get('samples', 0):,} samples: the newest of {count} "
            f"checkpoints has a loss of {newest.loss:.4g}{error}",
            "loss that the mean of the last W gains on it, on the same samples (± 1.96 standard errors):",
        ]
        windows = list(dict.fromkeys(one.window for one in self.means[1:]))
        table = [["W", *self.weightings]]
        for window in windows:
            own = [one for one in self.means[1:] if one.window == window]
            table.append([str(window), *(gain_words(one.gained, one.gained_stderr) for one in own)])
        wide = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["  " + "  ".join(f"{text:>{w}}" for text, w in zip(row, wide, strict=True)) for row in table]
        return "\n".join([*lines, *self.notes()])

    def notes(self) -> list[str]:
        """Say which mean gains most, whether it is more than chance, and how statistics were made."""
        best, notes = self.best, order_words(self.attrs)
        if broken := self.attrs.get("diverged"):
            are = f"{list_few(broken, 4)} {'is' if len(broken) == 1 else 'are'}"
            notes.append(f"{are} not finite, so no mean with {'it' if len(broken) == 1 else 'them'} exists")
        if isnan(self.newest.loss):
            notes.append("the newest checkpoint has no loss that means could be compared with")
        elif best.window == 1:
            notes.append("no mean gains on the newest checkpoint")
        else:
            error = ""
            if best.error_gained is not None:
                gain = gain_words(best.error_gained, best.error_gained_stderr, 100)
                error = f", and {gain} points of error"
            doubt = ""
            if not best.gained_stderr:  # of one sample, or of samples that are all the same
                doubt = "; samples say nothing of how sure that is"
            elif not (best.gained or 0) > 1.96 * best.gained_stderr:
                doubt = "; the interval includes 0"
            told = f"{gain_words(best.gained, best.gained_stderr)} by the last {best.window}, {best.weights}{error}"
            spread = " (± 1.96 standard errors over samples)" if " ± " in told else ""
            notes.append(f"most gained: {told}{spread}{doubt}")
            notes.append(
                f"it is the best of {len(self.means) - 1} on these samples, where it looks better than it is: measure "
                "it on others"
            )
        if words := describe_statistics(self.attrs, str(self.attrs.get("normalization_policy", ""))):
            notes.append(words)
        return notes

    def findings(self) -> dict[str, Any]:
        """Return every mean, and the best one."""
        return {"means": [asdict(one) for one in self.means], "best": asdict(self.best), "notes": self.notes()}


def order_words(attrs: Mapping[str, Any]) -> list[str]:
    """Say in which order the files of a folder were taken, and what was left out.

    >>> order_words({"names": ["step-20.pt", "step-100.pt"]})
    ['in the order of their names, numbers as numbers, the newest last: step-20.pt, step-100.pt']
    """
    names, left = attrs.get("names"), attrs.get("left_out")
    if not names:
        return []
    some = names if len(names) <= 4 else [*names[:2], "...", names[-1]]
    said = [f"in the order of their names, numbers as numbers, the newest last: {', '.join(some)}"]
    said += [f"left out, beside the checkpoints' folders: {list_few(left, 3)}"] if left else []
    return said + ([copy_words(attrs["copies"])] if attrs.get("copies") else [])


def copy_words(copies: Sequence[Sequence[str]]) -> str:
    """Say which checkpoints are copies.

    >>> copy_words([["epoch=3.ckpt", "last.ckpt"]]), copy_words([["a", "b"], ["c", "d"]])
    ('epoch=3.ckpt, last.ckpt hold the same weights', 'a, b hold the same weights, and so do c, d')
    """
    some = [list_few(own, 4) for own in copies[:3]]
    words = f"{some[0]} hold the same weights" + "".join(f", and so do {own}" for own in some[1:])
    return words if len(copies) <= 3 else f"{words}, and those of {len(copies) - 3} more"


def gain_words(gained: float | None, stderr: float | None, scale: float = 1) -> str:
    """``+0.0123 ± 0.0039``, with the half of a 95 % interval.

    >>> gain_words(0.01234, 0.002), gain_words(None, None)
    ('+0.0123 ± 0.0039', '-')
    """
    if gained is None or not isfinite(gained):
        return "-"
    return f"{scale * gained:+.3g}" + ("" if stderr is None else f" ± {1.96 * scale * stderr:.2g}")
