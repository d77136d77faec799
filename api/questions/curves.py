"""Loss, error and client spread over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..asking.given_runs import RunLike, identity, open_run
from ..asking.measured_on import at_least
from ..asking.question import Part, Question, Ready, question
from ..checkpoints import Run
from ..training.curves import Curves


@question
def curves(
    runs: RunLike | Sequence[RunLike],
    *,
    measures: Sequence[str] = (),
    last: int = 10,
    smooth: int = 0,
) -> Question[Curves]:
    """Loss, error and client spread over rounds, as they were measured while training.

    ``test_loss`` and ``test_error`` are those of the model that a user would deploy: the averaged one where there is
    one.

    Args:
        runs: one, or several for one figure; whole runs.
        measures: columns of ``metrics.csv``, or ``accuracy`` for its error, as ``test_accuracy``, a panel each;
            ``test_loss`` and ``test_error`` by default.
        last: of how many measured rounds, the last ones, mean and deviation are told.
        smooth: window of a Savitzky-Golay smoothing in rounds, for the figure; 0 for none.

    Raises:
        FedscopeError: a run without rounds, or given twice; a measure that does not exist or has no numbers; a window
            that does not fit.
    """
    at_least("last", last, 1)
    names = tuple(dict.fromkeys([measures] if isinstance(measures, str) else measures))
    opened = [open_run(run, "") for run in ([runs] if isinstance(runs, Run | str | Path) else runs)]
    asked: dict[str, Any] = {"measures": names, "last": last, "smooth": smooth}
    measured = Curves.of(opened, **asked)
    measured.drawable()
    # Metrics grow while a run trains, so the last round belongs to what tells one result from another.
    runs_now = [{**identity(run), "rounds": run.rounds[-1]} for run in opened]
    settings: dict[str, Any] = {"run": runs_now, **measured.attrs}
    part = Part(Curves, lambda: Ready([settings], lambda attrs, _: [replace(measured, attrs=attrs[0])]))

    def join(results: list[Curves]) -> Curves:  # what is drawn and told is no part of the files
        return replace(results[0], **asked)

    name = "-".join(["curves", *(run.name for run in opened), *names])
    return Question(opened[0].path / "figures", name, (part,), join)
