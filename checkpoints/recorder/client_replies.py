"""Clients given as what they have sent: the model with numbers beside it, in a dictionary or a tuple."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from ..io.errors import FedscopeError

#: what loops call a client's number, and its number of samples
_IDS = ("client_id", "client", "cid", "id", "client_idx", "client_index", "uid", "user_id", "node_id", "site", "name")
_COUNTS = (
    *("num_examples", "num_samples", "n_samples", "n_examples", "samples", "n_k", "n", "num_data", "data_size"),
    *("sample_num", "local_sample_number", "num_train", "train_size", "weight"),
)
#: what they call a model that is a list of arrays
_MODELS = ("weights", "params", "parameters", "model", "state_dict", "state", "delta", "update")


def unread_numbers(clients: Any, place: str, *, counted: bool, weighed: bool) -> str:
    """Say which numbers beside the models of replies are not read, and how they are given; empty where there are none.

    Args:
        clients: as they were given, models or replies; place: of the round, for the refusal.
        counted: whether clients are numbered from 0, as a list is.
        weighed: whether ``samples=`` or ``weights=`` say what they weigh.

    Raises:
        FedscopeError: the model of a reply is a module, which is not found among numbers.

    >>> reply = {"client_id": 3, "weights": {"w": [1.0]}, "num_examples": 10}
    >>> unread_numbers([reply], "run@1", counted=True, weighed=True)
    "client_id beside 'weights' is not read; give clients={one['client_id']: one['weights'] for one in clients}, and ...
    >>> unread_numbers({3: reply}, "run@1", counted=False, weighed=True)
    ''
    """
    replies = list(clients.values()) if isinstance(clients, Mapping) else list(clients)
    replies = [one[1] if isinstance(one, tuple) and len(one) == 2 else one for one in replies]
    if not replies or not all(isinstance(one, Mapping) for one in replies):
        return ""
    of_model = [name for name, value in replies[0].items() if _is_model(name, value)]
    if len(of_model) != 1:
        return ""
    model, number = of_model[0], _number(replies) if counted else ""
    count = "" if weighed else _named(replies, _COUNTS, Real)
    is_module = hasattr(replies[0][model], "state_dict")
    if not (number or count or is_module):
        return ""
    words = number and isinstance(replies[0][number], str)
    if isinstance(clients, Mapping):
        by, each = "k", "k, one in clients.items()"
    else:
        by, each = ("", "one in clients") if counted else ("by", "by, one in clients")
        by = f"numbers[one[{number!r}]]" if words else f"one[{number!r}]" if number else by
    remedy = [_made("clients", by, f"one[{model!r}]", each)] if number or is_module else []
    if count:
        whole = all(isinstance(one[count], Integral) for one in replies)
        remedy.append(_made("samples" if whole else "weights", by, f"one[{count!r}]", each))
    once = ", with numbers = {name: k for k, name in enumerate(names)} made once before the rounds" if words else ""
    alike = ", and what is given beside them by the same numbers" if number and weighed else ""
    give = f"give {', '.join(remedy)}{once}{alike}"
    if is_module:
        raise FedscopeError(f"{place}: clients= are dictionaries with a module under {model!r}; {give}")
    unread = " and ".join(filter(None, (number, count)))
    return f"{unread} beside {model!r} {'are' if ' and ' in unread else 'is'} not read; {give}"


def refuse_tuples(clients: Any, place: str) -> None:
    """Refuse replies that are tuples of a model and its number of samples, as ``fit`` of a Flower client returns them.

    Raises:
        FedscopeError: says how the two are given.
    """
    by_number = isinstance(clients, Mapping)
    replies = list(clients.values()) if by_number else list(clients)
    if not replies or not all(_is_reply(one) for one in replies):
        return
    rest = "_, " * (len(replies[0]) - 2)
    first, second = f"model, {rest}_", f"_, n{', _' * (len(replies[0]) - 2)}"
    if by_number:
        given = (
            f"clients={{k: model for k, ({first}) in clients.items()}}, "
            f"samples={{k: n for k, ({second}) in clients.items()}}"
        )
    else:
        given = f"clients=[model for {first} in clients], samples=[n for {second} in clients]"
    raise FedscopeError(f"{place}: each of clients= is a model and its number of samples; give {given}")


def _is_reply(one: Any) -> bool:
    if not (isinstance(one, tuple) and len(one) in (2, 3)):
        return False
    is_model = isinstance(one[0], Mapping | list) or hasattr(one[0], "state_dict")
    is_count = isinstance(one[1], Integral) or (hasattr(one[1], "item") and getattr(one[1], "ndim", 1) == 0)
    return is_model and is_count and not isinstance(one[1], bool)


def _is_model(name: Any, value: Any) -> bool:
    """Check whether an entry of a reply is its model: a list alone may be a row of a model of plain numbers."""
    return isinstance(value, Mapping) or hasattr(value, "state_dict") or (isinstance(value, list) and name in _MODELS)


def _number(replies: Sequence[Mapping[Any, Any]]) -> str:
    """Return under which name replies say their client, each another one; "" where they do not."""
    name = _named(replies, _IDS, Integral) or _named(replies, _IDS, str)
    return name if name and len({one[name] for one in replies}) == len(replies) else ""


def _named(replies: Iterable[Mapping[Any, Any]], names: Iterable[str], kind: type) -> str:
    """Return the first of the names under which all replies hold such a value."""
    of_kind = (name for name in names if all(isinstance(one.get(name), kind) for one in replies))
    return next(of_kind, "")


def _made(what: str, by: str, value: str, each: str) -> str:
    return f"{what}={{{by}: {value} for {each}}}" if by else f"{what}=[{value} for {each}]"
