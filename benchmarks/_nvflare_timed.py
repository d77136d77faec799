"""What an NVFlare server gets in place of the recorder when it is measured; NVFlare imports it by its dotted path."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from _common import peak_memory
from recording_frameworks import WriterTime

from fedscope.checkpoints.recorder.nvflare.events import END_RUN, START_RUN
from fedscope.checkpoints.recorder.nvflare.widget import RoundRecorder


class TimedRecorder(RoundRecorder):
    """Records some rounds, and tells what that took.

    Args:
        turns: a letter for each round, "r" if it is recorded.
        answer: the file that is told.
    """

    def __init__(self, path: str, turns: str, answer: str) -> None:
        super().__init__(path)
        self.turns, self.answer = turns, answer
        self._ends: list[float] = []
        self._calls = [0.0] * len(turns)
        self._writer = WriterTime()

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Take the time of an event, and pass it on in rounds that are recorded."""
        number = len(self._ends)
        if event_type in (START_RUN, END_RUN) or (number < len(self.turns) and self.turns[number] == "r"):
            began = time.perf_counter()
            super().handle_event(event_type, fl_ctx)
            if event_type not in (START_RUN, END_RUN):
                self._calls[number] += time.perf_counter() - began
        if event_type == "_after_model_update":
            self._ends.append(time.perf_counter())
        if event_type == END_RUN:
            told = {"ends": self._ends, "calls": self._calls, "written": self._writer.seconds, "peak": peak_memory()}
            Path(self.answer).write_text(json.dumps(told), encoding="utf-8")
