"""The results that a report lacks, computed into the runs' folders; what cannot be asked is told, and the others go
on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..analysis.analysis import PreparedAnalysis, Step
from ..analysis.execution import Execution, Report
from ..analysis.settings import is_same_setting
from ..checkpoints import FedscopeError, Run
from ..results import lock_result
from .discover import find_results
from .missing_results import FEWER_SAMPLES, LONG_REPORT, MissingResult, find_missing, seconds

#: told what is done, how far it is, and of how much
Tell = Callable[[str, int, int], None]


def compute_missing(
    run: Run,
    results: Sequence[Path],
    limit: int | None,
    given: Mapping[str, Any],
    answer: Callable[[MissingResult], object],
    tell: Callable[[str], None],
    warn: Callable[[str, str], None],
) -> None:
    """Answer what nobody has asked of a run yet, a question after the other, into ``RUN/figures``.

    Args:
        results: further folders whose results count as asked.
        limit: the samples that are measured; given: data, model and how they are taken.
        answer: answers one question and keeps the result.
        tell: takes what there is to do, in a line.
        warn: takes the words of a question that cannot be asked or answered, and why.
    """
    asked, refused = find_missing(run, find_results(run, results), limit, given)
    for words, why in refused.items():
        warn(f"not asked: fedscope {words}", why)
    if not asked:
        return
    took, less = seconds(run, asked, limit, FEWER_SAMPLES, given=given)
    is_long = limit is None and took > max(LONG_REPORT, 2 * less)
    hint = f"; --limit {FEWER_SAMPLES} takes about {_spell(less)}" if is_long else ""
    tell(f"{run.name}: {len(asked)} question{'s' if len(asked) > 1 else ''}, about {_spell(took)}{hint}")
    for one in asked:
        tell(f"$ fedscope {one.words}")
        answer(one)


def keep_answer(question: PreparedAnalysis[Any], base: Path, progress: Tell | None = None) -> None:
    """Answer a question and save its results at ``base``, as its command does without figures; what lies there of the
    same question is taken as it is, and an interrupted one goes on.

    Raises:
        FedscopeError: what the question refuses; another result in its place; another command that is writing it.
    """
    results: list[Any] = []
    for part in question.parts:
        mains = [part.kind.paths(f"{base}{end}")[-1] for end in part.ends]
        partial = mains[0].with_name(f"{mains[0].name}.partial")
        with lock_result(partial, part.files(base)) as claim:
            made = _read_back(part, base, mains, results)
            if made is None:
                made = part.answer(Execution(partial, _told(progress), before=tuple(results)))
                claim.saving = True
                for result, end in zip(made, part.ends, strict=True):
                    result.save(f"{base}{end}")
        part.release()
        results += made


def _read_back(part: Step[Any], base: Path, mains: Sequence[Path], before: Sequence[Any]) -> list[Any] | None:
    """Return the results that lie there; None where there are none.

    Raises:
        FedscopeError: others than those that are asked for.
    """
    if part.read_back is not None:
        read = part.read_back(base, before, False)
        return None if read is None else [read]
    if not all(main.exists() for main in mains):
        return None
    found = [part.kind.load(f"{base}{end}") for end in part.ends]
    for main, result, settings in zip(mains, found, part.settings, strict=True):
        if not all(is_same_setting(name, result.attrs.get(name), value) for name, value in settings.items()):
            raise FedscopeError(
                f"{main} holds another result of the same name; move it to another folder, or remove it"
            )
    return found


def _told(progress: Tell | None) -> Any:
    @contextmanager
    def label_progress(label: str) -> Iterator[Report]:
        yield (lambda done, of: None) if progress is None else (lambda done, of: progress(label, done, of))

    return label_progress


def _spell(seconds: float) -> str:
    """``5 minutes``, ``12 s``."""
    return f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{max(1, seconds):.0f} s"
