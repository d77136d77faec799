"""What is asked of a recorded round: servers, whole or by layer, and the configuration that each would have had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...checkpoints import FedscopeError, Layout, Run
from ...checkpoints.io.errors import list_few, nearest
from ...checkpoints.models.layers import chosen_layers, layers_of
from ...training.config.config import Config, merge
from ...training.loop.run_history import config_at
from ...training.settings.registry import find, method_name, names

#: in the place of a server: each client keeps its own layers
PERSONAL = "personal"


@dataclass(frozen=True, eq=False)
class LayerPart:
    """Layers that are aggregated together, as a model of their own.

    Attributes:
        pattern: that named them; "" for those that no pattern names.
        names: of their tensors, statistics among them.
        config: with their server; where clients keep them, with plain FMA, which gives what a new client would get.
        personal: whether clients keep them.
    """

    pattern: str
    names: frozenset[str]
    config: Config
    personal: bool = False


def layers_given(layers: Mapping[str, Any] | Sequence[str] | str | None) -> list[tuple[str, Any]]:
    """Return patterns and what each names: a server, or ``personal``.

    A pattern ends at the last ``=``, because a regular expression may hold others, and no server's name holds one.

    Raises:
        FedscopeError: a word without a server; a pattern that is given twice.

    >>> layers_given(["head=personal", "/(?=conv)/=fedadam"])
    [('head', 'personal'), ('/(?=conv)/', 'fedadam')]
    """
    if isinstance(layers, Mapping):
        return [(str(pattern).strip(), server) for pattern, server in layers.items()]
    given: dict[str, str] = {}
    for word in [layers] if isinstance(layers, str) else layers or ():
        pattern, _, server = (part.strip() for part in word.rpartition("="))
        if not pattern or not server:
            raise FedscopeError(
                f"--layers {word} gives no layers a server; write PATTERN=SERVER, as in 'head={PERSONAL}' or "
                "'conv*=fedadam'"
            )
        if pattern in given:
            raise FedscopeError(f"--layers {pattern} is given twice; give each layer one server")
        given[pattern] = server
    return list(given.items())


def refuse_unknown(pattern: str, server: Any) -> None:
    """Refuse a word that is nearly ``personal``, which the sentence on unknown servers does not know.

    Raises:
        FedscopeError: names it.
    """
    known = (*names("servers"), PERSONAL)
    if isinstance(server, str) and server not in known and PERSONAL in nearest(server, [PERSONAL]):
        raise FedscopeError(f"--layers {pattern}={server} names no server{nearest(server, [PERSONAL])}")


def parts_of(
    layout: Layout, base: Config, servers: Iterable[tuple[str, Config, bool]], *, base_given: bool = False
) -> tuple[LayerPart, ...]:
    """Return the parts of a model: those that patterns name, in their order, and the others, by the base's server.

    Args:
        servers: patterns, each with a configuration and whether clients keep the layers.
        base_given: whether the user has named the base's server, so that it must have a layer left.

    Raises:
        FedscopeError: a pattern that names no layer; a layer that two name; a server that has to see the whole model
            and is given a part; a named base without layers.
    """
    parts, owner = list[LayerPart](), dict[str, str]()
    for pattern, config, personal in servers:
        chosen = chosen_layers(layout, pattern)
        for layer in chosen:
            if layer.name in owner:
                raise FedscopeError(
                    f"--layers {owner[layer.name]} and --layers {pattern} both name {layer.name}; give each layer one "
                    "server"
                )
            owner[layer.name] = pattern
        tensors = frozenset(entry.name for layer in chosen for entry in layer.entries)
        parts.append(LayerPart(pattern, tensors, config, personal))
    others = [layer for layer in layers_of(layout) if layer.name not in owner]
    if others:
        parts.append(LayerPart("", frozenset(entry.name for one in others for entry in one.entries), base))
    elif base_given:
        raise FedscopeError(
            f"--layers name every layer, so none is left for --server {method_name(base.server)}; leave --server out"
        )
    whole = [method_name(part.config.server) for part in parts if part.config.server.needs_all]
    if len(parts) > 1 and whole:
        raise FedscopeError(
            f"{list_few(dict.fromkeys(whole))} looks at whole models, so it cannot aggregate some layers alone; "
            "give fma or another server that goes layer by layer"
            + (", or say reads = 'columns' or 'layers' in its class if it does" if any(":" in n for n in whole) else "")
        )
    return tuple(parts)


def refuse_torn(parts: Sequence[LayerPart], tied: Mapping[str, frozenset[str]]) -> None:
    """Refuse parts of which two hold one tensor under two names.

    Args:
        tied: the names of each such tensor, by every one of them.

    Raises:
        FedscopeError: names both.
    """
    for part in parts:
        for name in sorted(part.names & tied.keys()) if part.pattern else ():
            if beside := sorted(tied[name] - part.names):
                raise FedscopeError(
                    f"--layers {part.pattern} names {name}, which is the same tensor as {beside[0]} in the model (tied "
                    "weights); name the layers of both in one pattern, separated by a comma"
                )


@dataclass(frozen=True)
class AskedServer:
    """A row that is asked for.

    Attributes:
        config: see :func:`reaggregating_config`.
        label: what it is called.
        parts: of the model, where servers go by layer.
    """

    config: Config
    label: str
    parts: tuple[LayerPart, ...] = ()


def reaggregating_config(run: Run, number: int, server: str, settings: Mapping[str, Any] | None = None) -> Config:
    """Return the configuration that made a round, with another server method and no average over rounds.

    As in a branch, the run's own method keeps the run's settings, and another one begins with its paper's; what all
    servers have (``weighting``) stays. Of a run of another program, which does not say how its clients were trained,
    nothing stays.

    Raises:
        FedscopeError: an unknown method or setting; a method that does not go with the clients that the round was
            trained with, with the reason; one that counts local steps or all clients, and a run that does not say them.
    """
    find("servers", server)  # an unknown name is said first, and a package's method imported
    if run.is_foreign and run.config is None:
        config = Config.read({"server": {"method": server, **dict(settings or {})}})
        if config.server.counts_steps:
            raise FedscopeError(
                f"--server {server} counts local steps, and {run.path}, which was recorded by {run.info['source']}, "
                "does not say how its clients stepped; give another server"
            )
        if config.server.counts_clients and "clients" not in run.info:
            raise FedscopeError(
                f"--server {server} counts all clients, and {run.path}, which was recorded by {run.info['source']}, "
                "does not say how many there are; record it with partition= and labels=, or give another server"
            )
        return config
    run.require("config.toml")
    before = config_at(run, number).tables()
    chosen = {"server": {"method": server, **dict(settings or {})}, "average": {"method": "none"}}
    return Config.with_placeholders(merge(before, chosen))
