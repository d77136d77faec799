"""Clients given as what they have sent: a dictionary each, with the model and with numbers beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

from ..io.errors import FedscopeError

#: what loops call a client's number, and its number of samples
_IDS = ("client_id", "client", "cid", "id", "client_idx", "client_index", "uid", "user_id", "node_id", "site", "name")
_COUNTS = (
    *("num_examples", "num_samples", "n_samples", "n_examples", "samples", "n_k", "n", "num_data", "data_size"),
    *("sample_num", "local_sample_number", "num_train", "train_size", "weight"),
)


def unread_numbers(clients: Any, *, counted: bool, weighed: bool) -> str:
    """Say which numbers beside the models of replies are not read, and how they are given; empty where there are none.

    Args:
        clients: as they were given, models or replies.
        counted: whether clients are numbered from 0, as a list is.
        weighed: whether ``samples=`` or ``weights=`` say what they weigh.

    >>> reply = {"client_id": 3, "weights": {"w": [1.0]}, "num_examples": 10}
    >>> unread_numbers([reply], counted=True, weighed=True)
    "client_id beside 'weights' is not read; give clients={one['client_id']: one['weights'] for one in clients}, and ...
    >>> unread_numbers({3: reply}, counted=False, weighed=True)
    ''
    """
    replies = list(clients.values()) if isinstance(clients, Mapping) else list(clients)
    replies = [one[1] if isinstance(one, tuple) and len(one) == 2 else one for one in replies]
    if not replies or not all(isinstance(one, Mapping) for one in replies):
        return ""
    of_model = [name for name, value in replies[0].items() if isinstance(value, Mapping | list)]
    number = _named(replies, _IDS) if counted else ""
    count = "" if weighed else _named(replies, _COUNTS)
    if len(of_model) != 1 or not (number or count):
        return ""
    model, unread = of_model[0], " and ".join(filter(None, (number, count)))
    if isinstance(clients, Mapping):
        by, each = "k", "k, one in clients.items()"
    else:
        by = f"one[{number!r}]" if number else ""
        each = "one in clients" if counted else "by, one in clients"
        by = by or ("" if counted else "by")
    remedy = [_made("clients", by, f"one[{model!r}]", each)] if number else []
    remedy += [_made("samples", by, f"one[{count!r}]", each)] if count else []
    verb = "are" if " and " in unread else "is"
    alike = ", and what is given beside them by the same numbers" if number and weighed else ""
    return f"{unread} beside {model!r} {verb} not read; give {', '.join(remedy)}{alike}"


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
    whole = isinstance(one, tuple) and len(one) in (2, 3) and isinstance(one[1], int) and not isinstance(one[1], bool)
    return whole and (isinstance(one[0], Mapping | list) or hasattr(one[0], "state_dict"))


def _named(replies: Iterable[Mapping[Any, Any]], names: Iterable[str]) -> str:
    """Return the first of the names under which all replies hold a number, or a word."""
    return next((name for name in names if all(isinstance(one.get(name), Number | str) for one in replies)), "")


def _made(what: str, by: str, value: str, each: str) -> str:
    return f"{what}={{{by}: {value} for {each}}}" if by else f"{what}=[{value} for {each}]"
