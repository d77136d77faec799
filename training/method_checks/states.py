"""The check that what is kept between rounds keeps its form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...checkpoints import Run, Weights
from .outcome import CheckFailed
from .subject import Subject


def constant(subject: Subject) -> str:
    """Names, shapes and types of all that is kept, round by round."""
    run = subject.run
    forms: dict[str, tuple[tuple[int, ...], str]] = {}
    first = 0
    for number in run.rounds:
        own = dict(_kept(run, number))
        first = first if forms or not own else number
        for name, form in own.items():
            if name not in forms and forms and number > first and not name.startswith(("average ", "client ")):
                raise CheckFailed(f"{name} is new in round {number}; keep the same names in every round")
            if forms.setdefault(name, form) != form:
                before = forms[name]
                raise CheckFailed(
                    f"{name} is {form[1]} {list(form[0])} in round {number} and was {before[1]} {list(before[0])}; "
                    "keep shape and type in every round"
                )
        if gone := sorted(name for name in forms if name not in own):
            raise CheckFailed(f"{gone[0]} is gone in round {number}; keep the same names in every round")
    if not forms:
        return f"nothing is kept in {len(run.rounds)} rounds"
    parts = [f"{name} {form[1]} {list(form[0])}" for name, form in sorted(forms.items())]
    return f"the same in {len(run.rounds)} rounds: {', '.join(parts)}"


def _kept(run: Run, number: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
    """Shapes and types of what is kept of a round; of clients without their axis."""
    place = run.round(number)
    state = dict(place.state())
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for who, part in (("sent", state.pop("sent", {})), ("average", state.pop("average", {})), ("server", state)):
        found |= {f"{who} {name}": _form(value) for name, value in _flat(part).items()}
    for name in place.client_states:
        shape, kind = _form(place.client_state(name))
        found[f"client {name}"] = shape[1:], kind
    return found


def _flat(state: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}/")
        else:
            found[before + name] = value
    return found


def _form(value: Any) -> tuple[tuple[int, ...], str]:
    array = np.asarray(value.parameters if isinstance(value, Weights) else value)
    return array.shape, str(array.dtype)
