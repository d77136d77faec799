"""Bars on a terminal: a time left whatever a unit takes."""

from __future__ import annotations

import numpy as np
import pytest

from fedscope.checkpoints import RoundRecord
from fedscope.cli import progress

pytestmark = pytest.mark.same_elsewhere


@pytest.mark.parametrize("each", [0.5, 40.0, 7200.0])
def test_the_time_left_is_told_from_the_second_unit_on(each: float, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, now = progress.bars(), [0.0]
    monkeypatch.setattr(shown, "get_time", lambda: now[0])
    task, left = shown.add_task("run", total=None), []
    for done in range(1, 5):
        now[0] += each
        shown.update(task, completed=done, total=10)
        left.append(shown.tasks[0].time_remaining)
    assert left == [None, *(int(each * (10 - done) + 0.5) for done in (2, 3, 4))]


def test_what_lies_between_two_rounds_is_no_time_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring and writing a round take 1000 s, a client one."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    now, empty = [0.0], np.zeros(0)
    with progress.TrainingWatcher("run") as watcher:
        bars = watcher._bars
        assert bars is not None
        monkeypatch.setattr(bars, "get_time", lambda: now[0])
        for t in (1, 2):
            now[0] += 1000
            for done in (1, 2, 3):
                now[0] += 1
                watcher.client(t, done, 10)
            watcher.round(RoundRecord(t, None, None, None, None, *[empty] * 5), 4)
        rounds, clients = bars.tasks
        assert clients.time_remaining == 7
        assert rounds.time_remaining == pytest.approx(2006, abs=1)  # which is rounded up
