"""The check that a method equals another one in a limit that its author names."""

from __future__ import annotations

from dataclasses import fields

from ...checkpoints import FedscopeError
from ..settings.registry import METHOD_SECTIONS, find
from .outcome import CheckFailed, NotAsked, apart, length, share
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
            one = subject.train(**{subject.kind: dict(settings)})
            shared = {name: settings[name] for name in settings if name in {key.name for key in fields(kind)}}
            two = subject.train(**{subject.kind: {"method": other, **_alike(subject, kind), **shared}})
        except FedscopeError as error:
            raise CheckFailed(f"limits names {other} with {_shown(settings)}, which is refused: {error}") from error
        off = 0.0
        for number in one.rounds:
            mine, theirs = (run.round(number).read("global").parameters for run in (one, two))
            off = max(off, share(apart(mine, theirs), length(theirs)))
        if not off <= BOUND:
            raise CheckFailed(
                f"with {_shown(settings)} it is not {other}: after {len(one.rounds)} rounds it is off by {off:.1e} of "
                f"the model's norm, more than {BOUND:.0e}"
            )
        said.append(f"with {_shown(settings)} it is {other}, off by {off:.1e} of the model's norm")
    return "; ".join(said)


def _alike(subject: Subject, kind: type) -> dict[str, object]:
    """The settings that are common to all methods of a kind, such as rates, as this method has them."""
    if subject.kind != "client":
        return {}
    known = {key.name for key in fields(kind)}
    common = {key.name for key in fields(subject.type.__mro__[-3])} if len(subject.type.__mro__) > 2 else set()
    table = subject.method.table()
    return {name: table[name] for name in table if name in known & common}


def _shown(settings: object) -> str:
    assert isinstance(settings, dict)
    return ", ".join(f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
                     for name, value in settings.items()) or "its defaults"
