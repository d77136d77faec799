"""Progress on stderr: bars with an honest time left on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..analysis.execution import Report, describe_seconds
from ..checkpoints.io.visible_text import visible
from .printing import say

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..checkpoints import RoundRecord

#: seconds between plain lines
_EVERY = 15.0


class PlainLine:
    """``plane: 40 % (1041 of 2601), 12 s left``, every quarter of a minute, never for what is done at once."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.began = self.said = time.monotonic()
        self.first: int | None = None

    def __call__(self, done: int, of: int, told: str = "") -> None:
        """``done`` of ``of`` pieces are ready; ``told`` stands behind that."""
        now = time.monotonic()
        if self.first is None:  # what an earlier call had finished says nothing about this one's speed
            self.first, self.began = done, now
        if now - self.said < _EVERY or not of:
            return
        self.said = now
        pace = (done - self.first) / (now - self.began) if done > self.first else 0.0
        left = f", {describe_seconds((of - done) / pace)} left" if pace else ""
        say(f"{self.label}: {100 * done / of:.0f} % ({done} of {of}){left}{told}", err=True)


def bars() -> Progress:
    """Bars on stderr that vanish when done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),  # a label is no markup
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        speed_estimate_period=math.inf,  # rich forgets what is older, and a round may take hours
    )


@contextmanager
def progress(label: str) -> Iterator[Report]:
    """Report ``(done, of)`` under a label."""
    if not sys.stderr.isatty():
        yield PlainLine(label)
        return
    with bars() as shown:
        task = shown.add_task(visible(label), total=None)

        def report(done: int, of: int) -> None:
            shown.update(task, completed=done, total=of)

        yield report


class TrainingWatcher:
    """Rounds > clients, as nested bars or as a line a round now and then; ``setting`` is said before the first."""

    def __init__(self, label: str, setting: str = "") -> None:
        self.label, self.setting = visible(label), setting
        self._bars: Progress | None = None
        self._round = 0  # whose clients are shown

    def __enter__(self) -> TrainingWatcher:
        if sys.stderr.isatty():
            self._bars = bars()
            self._bars.start()
            self._rounds = self._bars.add_task(self.label, total=None)
            self._clients = self._bars.add_task("  clients", total=None)
        else:
            self._line = PlainLine(self.label)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin(self, rounds: int, size: int) -> None:
        """Say what will be recorded before the first round is."""
        from ..checkpoints import format_size
        from ..checkpoints.io.errors import count_of

        of = f" of {self.setting}" if self.setting else ""
        say(f"{self.label}: {count_of(rounds, 'round')}{of}, recording up to {format_size(size)}", err=True)

    def client(self, round: int, done: int, of: int) -> None:
        """One more client of a round has trained."""
        if self._bars is not None:
            if round != self._round:  # what lies between two rounds says nothing about the speed of clients
                self._bars.reset(self._clients)
                self._round = round
            self._bars.update(self._clients, completed=done, total=of, description=f"  round {round}, clients")

    def round(self, record: RoundRecord, of: int) -> None:
        """A round is on disk."""
        kept = record.metrics.get("drift_kept")
        drift = "" if kept is None or kept != kept else f"kept {100 * kept:.0f} % of the updates"
        if self._bars is None:
            self._line(record.round, of, f", {drift}" if drift else "")
            return
        error = record.metrics.get("averaged_test_error")
        if error is None or error != error:
            error = record.metrics.get("test_error")
        shown = "" if error is None else f"  test error {100 * error:.1f} %"
        if error is not None and error != error:  # a task without one
            averaged, loss = (record.metrics.get(name) for name in ("averaged_test_loss", "test_loss"))
            shown = f"  test loss {averaged if averaged == averaged else loss:.3g}"
        shown += f"  {drift}" if drift else ""
        self._bars.update(self._rounds, completed=record.round, total=of, description=self.label + shown)


def fetch(name: str) -> None:
    """Fetch the files of a data set that are not there yet, with progress in megabytes.

    Raises:
        FedscopeError: what :func:`~fedscope.training.data.formats.download.download` refuses.
    """
    from ..training.data.formats.download import download

    with progress(f"{name}, MB") as report:
        fetched = download(name, report)
    for path in fetched:
        say(f"fedscope: fetched {path}", err=True)
