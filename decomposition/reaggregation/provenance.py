"""What a result says of the servers that it was asked for: their code, what they keep, and their layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...training.config.config import Config
from ...training.settings.code_source import source_of
from ...training.settings.own_code import OwnCode
from ...training.settings.registry import is_known, method_name
from .requested_servers import PERSONAL, AskedServer


def kept_by_others(made: Mapping[str, tuple[Config, str]]) -> dict[str, str]:
    """Say what servers that are not fedscope's keep: a result that is read later does not import them."""
    return {name: config.server.about.keeps or "a state" for name, config in _of_others(made)}


def sources_of(made: Mapping[str, tuple[Config, str]]) -> dict[str, str]:
    """Return the SHA-256 of the sources of servers that are not fedscope's, with what they import: these may change,
    and keep their names."""
    kinds = {name: type(config.server) for name, config in _of_others(made)}
    return {name: source_of(kind).digest for name, kind in kinds.items() if not kind.__module__.startswith("fedscope.")}


def _of_others(made: Mapping[str, tuple[Config, str]]) -> list[tuple[str, Config]]:
    """Return the servers that are not fedscope's: of packages, and the user's own."""
    return [
        (str(name), config)
        for name, (config, _) in made.items()
        if isinstance(name, OwnCode) or not is_known("servers", name)
    ]


def described(asked: Sequence[AskedServer]) -> dict[str, Any]:
    """Describe the parts for a result's provenance: patterns with their servers, and these servers' settings."""
    parts = [part for part in asked[0].parts if part.pattern]
    return {
        "layers": [[one.pattern, PERSONAL if one.personal else method_name(one.config.server)] for one in parts],
        "layer_settings": [{} if one.personal else one.config.tables()["server"] for one in parts],
    }
