"""What ``repr`` shows of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..io.errors import FedscopeError, spans
from ..io.quiet import without_warnings
from ..io.repr_screen import screen
from ..rounds.round_repr import metrics_words

if TYPE_CHECKING:
    from .run import Run


def describe_run(run: Run) -> str:
    """Describe a run on one screen: its methods, model, data and last round; what cannot be read says why, because a
    repr never fails."""
    told = []
    with without_warnings():  # said where the numbers are used
        for words in (_made_words, _last_words):
            try:
                told += [line for line in words(run) if line]
            except (FedscopeError, OSError) as error:
                told.append(f"it cannot be read: {error}")
    calls = ['round("last")', "metrics()", "fedscope.curves(run)", "fedscope.report(run)"]
    return screen(f"Run {run.path}, rounds {spans(run._visible) or 'none'}", told, calls)


def _made_words(run: Run) -> list[str]:
    info, config = run.info, run.config or {}
    methods = [_of(config, section, "method") for section in ("client", "server", "average")]
    named = [
        f"{section} {name}" for section, name in zip(("client", "server", "average"), methods, strict=True) if name
    ]
    by = [f"recorded by {run.info['source']}"] if run.is_foreign else named
    if run.is_foreign and isinstance(info.get("method"), str):
        by.insert(0, f"method {info['method']}")
    model = _of(config, "model", "name") or info.get("model")
    data, clients = info.get("data"), info.get("clients")
    about = [f"{model}, " if isinstance(model, str) else "", f"{run.layout.size:,} parameters"]
    parts = [f"model: {''.join(about)}"]
    if isinstance(data, dict) and data.get("name"):
        parts.append(f"data: {data['name']}")
    if isinstance(clients, int):
        parts.append(f"{clients:,} clients")
    return [", ".join(by), "; ".join(parts)]


def _last_words(run: Run) -> list[str]:
    if not run.rounds:
        return ["no round is recorded yet"]
    planned = f" of {run.planned}" if run.planned else ""
    numbers = metrics_words(run.round("last").metrics)
    return [f"last round: {run.rounds[-1]}{planned}{f', {numbers}' if numbers else ''}"]


def _of(config: dict[str, Any], section: str, key: str) -> str:
    table = config.get(section)
    found = table.get(key) if isinstance(table, dict) else None
    return found if isinstance(found, str) else ""
