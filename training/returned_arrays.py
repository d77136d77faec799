"""What methods of one's own may return: arrays and states that a run's files hold, in one form for all rounds.

fedscope's own methods are not looked at, so that nothing is spent on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..checkpoints import FedscopeError, Layout, Weights
from ..checkpoints.io.errors import list_few
from .import_string import describe_type

#: fedscope itself
_ROOT = __name__.partition(".")[0]
#: kinds of numbers that a round's file holds
_KINDS = "biuf"


class ReturnedError(FedscopeError):
    """A method has returned what the loop of rounds cannot go on with.

    Attributes:
        check: which check of ``fedscope check-method`` is about it.
    """

    def __init__(self, sentence: str, check: str = "plays") -> None:
        super().__init__(sentence)
        self.check = check

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.check)


def is_own(method: object) -> bool:
    """Check whether a method is somebody's own, and not one of fedscope's.

    >>> from fedscope.training.methods.servers.fma import FMA
    >>> is_own(FMA())
    False
    """
    return is_somebodys(type(method))


def is_somebodys(kind: type[Any]) -> bool:
    """Check the same of a class."""
    return kind.__module__.partition(".")[0] != _ROOT


def refuse_vector(
    what: str, values: Any, layout: Layout, round: int, more: str = "", kind: str = "start.layout.dtype"
) -> None:
    """Refuse what is no vector of all parameters, in the model's type.

    Args:
        kind: what the function calls that type.

    Raises:
        ReturnedError: begins with ``what``.
    """
    where = f"in round {round}{more}"
    if not isinstance(values, np.ndarray):
        raise ReturnedError(f"{what} as {describe_type(values)} {where}; return a NumPy array [{layout.size:,}]")
    if values.shape != (layout.size,):
        raise ReturnedError(
            f"{what} of shape {list(values.shape)} {where}, but the model has {layout.size:,} parameters; return one "
            f"vector [{layout.size:,}]"
        )
    if values.dtype != layout.dtype:
        raise ReturnedError(
            f"{what} as {values.dtype} {where}, but the model is {layout.dtype}; compute in float64 and end with "
            f".astype({kind})"
        )


def refuse_buffers(what: str, weights: Weights, where: str, given: str) -> None:
    """Refuse a model without one of its buffers, or with one of another name or shape.

    Args:
        where: in which round, and of whom; given: what holds the buffers, as the function calls it.

    Raises:
        ReturnedError: begins with ``what``.
    """
    shapes = {entry.name: entry.shape for entry in weights.layout.buffers}
    own = {name: np.shape(values) for name, values in weights.buffers.items()}
    if own == shapes:
        return
    odd = next(name for name in (*shapes, *own) if own.get(name) != shapes.get(name))
    if odd not in own:
        said = f"without the buffer {odd}"
    elif odd not in shapes:
        said = f"with a buffer {odd}, which the model has not"
    else:
        said = f"with the buffer {odd} of shape {list(own[odd])} and not {list(shapes[odd])}"
    raise ReturnedError(f"{what} {said} {where}; return those of {given}")


def refuse_unwritable(place: str, state: Any, what: str = "state", where: str = "", *, models: bool = False) -> None:
    """Refuse a state that a round's file cannot hold.

    Args:
        models: whether it may hold models.

    Raises:
        ReturnedError: names the part.
    """
    at = f" ({where})" if where else ""
    if not isinstance(state, Mapping):
        raise ReturnedError(
            f"{place} returned {describe_type(state)} as its {what}{at}; return a dictionary of arrays by name", "state"
        )
    for name, value in state.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise ReturnedError(
                f"{place} names a part of its {what} {name!r}{at}; give it a word without / as its name", "state"
            )
        if models and isinstance(value, Weights):
            continue
        if isinstance(value, bool | int | float):
            continue
        if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in _KINDS:
            held = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else describe_type(value)
            raise ReturnedError(
                f"{place} returned {what} {name!r} as {held}{at}, which a round's file cannot hold; keep NumPy arrays "
                "of numbers, as in np.array(3)",
                "state",
            )


def changed(place: str, what: str, before: Mapping[str, Any], after: Mapping[str, Any], round: int) -> str:
    """Say that a state has changed its form."""
    return (
        f"{place} changes the form of {what} in round {round} ({difference(forms(before), forms(after))}); keep the "
        "same names and shapes in every round, so that a run can be resumed and its files stay as large as they are"
    )


def forms(state: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes; of a model its parameters'."""
    return {name: np.shape(value.parameters if isinstance(value, Weights) else value) for name, value in state.items()}


def difference(before: Mapping[str, Sequence[int]], after: Mapping[str, Sequence[int]]) -> str:
    """Say what differs between two forms."""
    clauses = [
        f"{name} had shape {list(before[name])} and has {list(after[name])}"
        for name in before
        if name in after and before[name] != after[name]
    ]
    new, gone = [name for name in after if name not in before], [name for name in before if name not in after]
    clauses += [f"{list_few(new, 4)} is new"] if new else []
    clauses += [f"{list_few(gone, 4)} is gone"] if gone else []
    return ", ".join(clauses[:3])
