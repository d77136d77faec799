"""The check that a method equals another one in a limit that its author names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...checkpoints import FedscopeError
from ..settings.registry import METHOD_SECTIONS, find
from ..settings.values import format_value
from .outcome import CheckFailed, NotAsked, apart, digits, length, share
from .subject import Subject

#: of the model's norm, after all rounds
BOUND = 1e-6


def hold(subject: Subject) -> str:
    """Train the method in each of its limits, and the method that it is there."""
    limits = vars(subject.type).get("limits", {})
    if not limits:
        raise NotAsked("the class names no limits")
    said = []
    for other, settings in limits.items():
        try:
            kind = find(METHOD_SECTIONS[subject.kind][0], other)
            one = subject.train({subject.kind: settings})
            shared = {name: settings[name] for name in settings if name in {key.name for key in fields(kind)}}
            two = subject.train({subject.kind: {"method": other, **shared}})
        except FedscopeError as error:
            raise CheckFailed(f"limits names {other} with {_shown(settings)}, which is refused: {error}") from error
        off = 0.0
        for number in one.rounds:
            mine, theirs = (run.round(number).read("global").parameters for run in (one, two))
            off = max(off, share(apart(mine, theirs), length(theirs)))
        if not off <= BOUND:
            raise CheckFailed(
                f"with {_shown(settings)} it is not {other}: after {len(one.rounds)} rounds it is off by {digits(off)} "
                f"of the model's norm, more than {digits(BOUND)}"
            )
        said.append(f"with {_shown(settings)} it is {other}, off by {digits(off)} of the model's norm")
    return "; ".join(said)


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {format_value(value)}" for name, value in settings.items()) or "its own settings"
