"""``--scale``: a recipe's set-up in small, with as many samples a client and the same share of clients a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any

from ..checkpoints import FedscopeError
from .config import Config, merge
from .partitions.domains import Domains
from .splitting import parse_partition

#: fewer are never played; fewer clients are never drawn for a round
LEAST_ROUNDS = LEAST_COHORT = 2
#: rounds counted from the first one
_STARTS = (("average", "start"), ("client", "calibrate_from"))
#: lengths in rounds, with the least that makes sense
_WINDOWS = {
    ("average", "window"): 2,
    ("average", "cycle"): 2,
    ("average", "explore_period"): 2,
    ("run", "evaluate_every"): 1,
}
_ROUNDS = (("run", "evaluate_all"), ("record", "clients"), ("record", "globals"))


def scaled(tables: Mapping[str, Mapping[str, Any]], scale: float) -> dict[str, dict[str, Any]]:
    """A configuration with rounds, samples and clients multiplied by ``scale``, starts and windows with them.

    Participation is kept, and so are rates and their decays. A round's cohort has at least two clients, a run two
    rounds, a window or a cycle two rounds, and no number grows beyond the configuration's. With ``natural`` clients are
    users, so fewer clients have fewer samples by themselves. ``domains:m`` keeps all domains, with fewer clients each.

    Args:
        scale: 0 < scale <= 1.

    Raises:
        FedscopeError: another scale; what :meth:`Config.read` refuses.

    >>> small = scaled({"data": {"clients": 100}, "run": {"rounds": 400, "participation": 0.1}}, 0.25)
    >>> small["run"]["rounds"], small["data"]["clients"], small["data"]["share"], small["run"]["participation"]
    (100, 25, 0.25, 0.1)
    """
    if not 0 < scale <= 1:
        raise FedscopeError(f"--scale {scale:g} is no share of a set-up; give a number above 0 and at most 1")
    config = Config.read(tables)
    full = config.tables()
    rounds = _smaller(config.run.rounds, scale, LEAST_ROUNDS)
    clients, partition = _fewer_clients(config, scale)
    changes: dict[str, dict[str, Any]] = {
        "run": {"rounds": rounds},
        "data": {"clients": clients, "partition": partition},
    }
    if not _by_user(config):
        changes["data"]["share"] = config.data.share * scale
    for section, key in _STARTS:
        if key in tables.get(section, {}):
            changes.setdefault(section, {})[key] = min(rounds, _smaller(tables[section][key], scale, 1))
    for (section, key), least in _WINDOWS.items():
        if key in full[section]:
            changes.setdefault(section, {})[key] = _smaller(full[section][key], scale, least)
    for section, key in _ROUNDS:
        if key in tables.get(section, {}):
            changes.setdefault(section, {})[key] = _scaled_rounds(tables[section][key], scale, rounds)
    return merge(tables, changes)


def scale_note(full: Config, small: Config, scale: float) -> str:
    """What a scale has made of a configuration, in a sentence.

    >>> full = Config.read({"data": {"clients": 100}, "run": {"rounds": 400, "participation": 0.1}})
    >>> scale_note(full, Config.read(scaled(full.tables(), 0.1)), 0.1)
    'scale 0.1: 40 of 400 rounds, 20 of 100 clients (two a round at least), 10 % of the training samples'
    """
    bounded = " (two a round at least)" if small.data.clients > full.data.clients * scale + 0.5 else ""
    least = " (two at least)" if small.run.rounds > full.run.rounds * scale + 0.5 else ""
    said = (
        f"scale {scale:g}: {small.run.rounds} of {full.run.rounds} rounds{least}, "
        f"{small.data.clients} of {full.data.clients} clients{bounded}"
    )
    return said if _by_user(full) else f"{said}, {100 * small.data.share:g} % of the training samples"


def _by_user(config: Config) -> bool:
    """Whether a client is a user, who brings all of their samples."""
    return config.data.partition == "natural"


def _smaller(number: int, scale: float, least: int) -> int:
    """The number in small, not below the least, but never greater than it was."""
    return min(number, max(least, round(scale * number)))


def _fewer_clients(config: Config, scale: float) -> tuple[int, str]:
    """How many clients, and how the samples are split over them."""
    clients, least = config.data.clients, ceil(LEAST_COHORT / config.run.participation - 1e-9)
    partitioner = parse_partition(config.data.partition)
    if not isinstance(partitioner, Domains):
        return _smaller(clients, scale, least), config.data.partition
    domains = clients // partitioner.each
    each = _smaller(partitioner.each, scale, max(1, ceil(least / domains)))
    return each * domains, replace(partitioner, each=each).written()


def _scaled_rounds(rounds: Any, scale: float, last: int) -> Any:
    """Rounds in small: of a list each, of ``last:N`` and ``every:N`` their N; words stay."""
    if isinstance(rounds, list | tuple):
        return sorted({min(last, _smaller(number, scale, 1)) for number in rounds})
    parts = []
    for part in str(rounds).split(","):
        word, colon, number = part.rpartition(":")
        parts.append(f"{word}{colon}{_smaller(int(number), scale, 1)}" if number.strip().isdigit() else part)
    return ",".join(dict.fromkeys(parts))
