"""The kinds of code of one's own: where a configuration names each, and which option takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...checkpoints import FedscopeError, nearest


@dataclass(frozen=True)
class Kind:
    """A kind of code of one's own.

    Attributes:
        name: as ``--code NAME=module:Name`` has it; flag: that takes it when a run begins.
        section, key: of the configuration that names it.
        called: with its article, for sentences.
    """

    name: str
    flag: str
    section: str
    key: str
    called: str

    @property
    def place(self) -> str:
        """``server.method``: the setting that names it."""
        return f"{self.section}.{self.key}"


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("client", "--client", "client", "method", "a client method"),
        Kind("server", "--server", "server", "method", "a server method"),
        Kind("average", "--average", "average", "method", "an average over rounds"),
        Kind("model", "--model", "model", "name", "a model"),
        Kind("data", "--data", "data", "name", "a data set"),
        Kind("partition", "--partition", "data", "partition", "a partition"),
        Kind("optimiser", "--set client.optimiser", "client", "optimiser", "an optimiser"),
    )
}


def kind_named(name: str, option: str) -> Kind:
    """Return a kind by its name.

    Raises:
        FedscopeError: no such kind; ``option`` is what it was typed in.
    """
    if name not in KINDS:
        raise FedscopeError(f"{option}: {name!r} is no kind of code{nearest(name, KINDS)}; it takes {', '.join(KINDS)}")
    return KINDS[name]


def named_in(tables: Mapping[str, Any]) -> Iterator[tuple[Kind, Any]]:
    """Yield of a configuration's tables what they name of every kind.

    >>> [(kind.name, value) for kind, value in named_in({"server": {"method": "mine:FedX"}, "data": {"clients": 4}})]
    [('server', 'mine:FedX')]
    """
    for kind in KINDS.values():
        table = tables.get(kind.section)
        if isinstance(table, Mapping) and kind.key in table:
            yield kind, table[kind.key]
