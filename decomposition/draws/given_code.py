"""Code of the user's own that replays need: given by the caller, never taken from a run's files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError, Run

if TYPE_CHECKING:
    from ...analysis.settings import EvaluationConfig


def refuse_ungiven(
    run: Run,
    code: Mapping[str, Any] | None = None,
    *,
    changed: bool = False,
    rounds: Collection[int],
    otherwise: str = "; --draws none needs none of it",
) -> Run:
    """Return the run with the code that was given for it, and that of installed packages.

    Args:
        code, changed, rounds: see :func:`~fedscope.training.user_code.kept_source.playing`.
        otherwise: how the question is asked without, for the sentence.

    Raises:
        FedscopeError: a client method, or an average over rounds, which may set clients' pace, that is not here (says
            how it is given); code that nothing asks for; another source than the run has.
    """
    from ...training.loop.run_history import segments
    from ...training.settings.missing_code import is_given, needs_code
    from ...training.settings.registry import method_name
    from ...training.user_code.kept_source import playing
    from ...training.user_code.provided_code import code_of_objects

    if run.is_foreign:
        return run
    run.require("config.toml")
    given, _ = playing(run, code_of_objects(code), changed=changed, all_=False, rounds=rounds)
    for _, config in segments(given):
        for section in ("client", "average"):
            method = getattr(config, section)
            if not is_given(method):
                raise FedscopeError(f"{run.path}: {needs_code(section, method_name(method))}{otherwise}")
    return given


def code_settings(replayed: Iterable[tuple[Run, Collection[int]]], source: EvaluationConfig) -> dict[str, Any]:
    """Describe the code of replays that is not what the rounds were trained with, for a result's provenance; nothing
    where all of it is.

    Args:
        replayed: the runs, each with its rounds.
    """
    from ...training.user_code.kept_source import other_sources
    from ...training.user_code.provided_code import code_of_objects

    if not source.code and not source.code_changed:
        return {}
    given = code_of_objects(source.code)
    others: dict[str, str] = {}
    for run, rounds in replayed:
        if not run.is_foreign:
            others |= other_sources(run, given, changed=source.code_changed, rounds=rounds)
    return {"code": others} if others else {}
