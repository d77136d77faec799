"""What methods of one's own may return: arrays and states that a run's files hold, in one form for all rounds.

fedscope's own methods are not looked at, so that nothing is spent on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Layout, Weights
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.hdf5 import is_storable
from ..import_string import describe_type

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


def is_own_method(method: object) -> bool:
    """Check whether a method is somebody's own, and not one of fedscope's.

    >>> from fedscope.training.methods.servers.fma import FMA
    >>> is_own_method(FMA())
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


def refuse_unwritable(
    place: str, state: Any, what: str = "state", where: str = "", *, layout: Layout | None = None
) -> None:
    """Refuse a state that a round's file cannot hold.

    Args:
        layout: of the models that it may hold; None where it may hold none.

    Raises:
        ReturnedError: names the part.
    """
    at = f" ({where})" if where else ""
    if not isinstance(state, Mapping):
        raise ReturnedError(
            f"{place} returned {describe_type(state)} as its {what}{at}; return a dictionary of arrays by name", "state"
        )
    for name, value in state.items():
        if not isinstance(name, str) or "/" in name or not is_storable(name):
            raise ReturnedError(
                f"{place} names a part of its {what} {name!r}{at}; give it a word without / as its name", "state"
            )
        if layout is not None and isinstance(value, Weights):
            _refuse_kept_model(place, name, value, layout, what, at)
            continue
        if isinstance(value, bool | int | float) and np.asarray(value).dtype.kind in _KINDS:
            continue
        if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in _KINDS:
            held = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else describe_type(value)
            held = f"{value}" if isinstance(value, int) else held
            raise ReturnedError(
                f"{place} returned {what} {name!r} as {held}{at}, which a round's file cannot hold; keep NumPy arrays "
                "of numbers, as in np.array(3)",
                "state",
            )


def _refuse_kept_model(place: str, name: str, model: Weights, layout: Layout, what: str, at: str) -> None:
    """Refuse a model in a state that is none of the run's: it would be written, and could not be read again.

    Raises:
        ReturnedError: names the part.
    """
    keep = "keep one of the run's layout, or its parameters as an array"
    if model.layout != layout:
        raise ReturnedError(
            f"{place} returned {what} {name!r} as a model of another layout{at} "
            f"({layout_difference(model.layout, layout)}); {keep}",
            "state",
        )
    if np.shape(model.parameters) != (layout.size,):
        raise ReturnedError(
            f"{place} returned {what} {name!r} as a model whose parameters have shape "
            f"{list(np.shape(model.parameters))}{at}, and a model has one vector [{layout.size:,}]; {keep}",
            "state",
        )
    refuse_buffers(f"{place} returned {what} {name!r}", model, at.strip() or "as a model", "the model that it is of")


def layout_difference(own: Layout, layout: Layout) -> str:
    """Say what differs between the layout of a model and that of the run's."""
    if own.names != layout.names:
        if own.size != layout.size:
            return f"{own.size:,} parameters, not {layout.size:,}"
        lost = [name for name in layout.names if name not in own.by_name]
        return f"without {list_few(lost, 2)}" if lost else "other names, or another order of them"
    for one, other in zip(own.entries, layout.entries, strict=True):
        if one.shape != other.shape:
            return f"{one.name} has shape {list(one.shape)}, not {list(other.shape)}"
        if one.dtype != other.dtype:
            return f"{one.name} is {one.dtype}, not {other.dtype}"
        if one.kind != other.kind:
            return f"{one.name} is a {one.kind}, not a {other.kind}"
    return "another one"


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
