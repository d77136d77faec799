"""``--scale``: a recipe's set-up in small, with as many samples a client and the same share of clients a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError
from ...old_paths import names_of
from ..data.partitions.domains import Domains
from ..data.split import parse_partition
from ..settings.values import format_value
from .config import Config, merge

Tables = Mapping[str, Mapping[str, Any]]

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


def scale_tables(tables: Tables, scale: float) -> dict[str, dict[str, Any]]:
    """A configuration with rounds, samples and clients multiplied by ``scale``, starts and windows with them.

    Participation is kept, and so are rates and their decays. A round's cohort has at least two clients, a run two
    rounds (three where SWA needs them), a window or a cycle two rounds, and no number grows beyond the configuration's.
    Where the cohort's minimum keeps more clients, each has fewer samples. With ``natural`` clients are users and with
    ``shards:c,size`` a client's samples are counted, so fewer clients have fewer samples by themselves. ``domains:m``
    keeps all domains, with fewer clients each. ``pathological:c`` and ``dirichlet-clients:0`` keep their clients, who
    would have no room for all classes, and each has fewer samples.

    Args:
        scale: 0 < scale <= 1.

    Raises:
        FedscopeError: another scale; what :meth:`Config.read` refuses.

    >>> small = scale_tables({"data": {"clients": 100}, "run": {"rounds": 400, "participation": 0.1}}, 0.25)
    >>> small["run"]["rounds"], small["data"]["clients"], small["data"]["share"], small["run"]["participation"]
    (100, 25, 0.25, 0.1)
    """
    if not 0 < scale <= 1:
        raise FedscopeError(f"--scale {scale:g} is not a share of a set-up; give a number above 0 and at most 1")
    config = Config.read(tables)
    full = config.tables()
    rounds = _smaller(config.run.rounds, scale, _least_rounds(full))
    clients, partition = _fewer_clients(config, scale, _least_clients(config.run.participation))
    changes: dict[str, dict[str, Any]] = {
        "run": {"rounds": rounds},
        "data": {"clients": clients, "partition": partition},
    }
    if not _counted_by_client(config):
        changes["data"]["share"] = config.data.share * scale
    for (section, key), least in _WINDOWS.items():
        if key in full[section]:
            changes.setdefault(section, {})[key] = _smaller(full[section][key], scale, least)
    for section, key in _STARTS:
        if key in tables.get(section, {}):
            changes.setdefault(section, {})[key] = min(rounds, _smaller(tables[section][key], scale, 1))
    if "cycle" in full["average"]:  # the first one ends within the run, and a round comes before it
        average = changes["average"]
        average["cycle"] = min(average["cycle"], rounds - 1)
        latest, start = rounds - average["cycle"] + 1, average.get("start", ceil(0.75 * rounds))
        average["start"] = min(full["average"]["start"], latest, max(2, start))
    for section, key in _ROUNDS:
        if key in tables.get(section, {}):
            changes.setdefault(section, {})[key] = _scaled_rounds(tables[section][key], scale, rounds)
    return merge(tables, changes)


def scale_notes(full: Config, small: Config, scale: float) -> Iterator[str]:
    """Describe what a scale has made of a configuration: all that differs, and which minima were met.

    >>> full = Config.read({"data": {"clients": 100}, "run": {"rounds": 400, "participation": 0.1}})
    >>> list(scale_notes(full, Config.read(scale_tables(full.tables(), 0.1)), 0.1))
    ['40 of 400 rounds', '20 of 100 clients (two a round at least)', '10 % of the samples']
    """
    before, after = full.tables(), small.tables()
    rounds, fewest = small.run.rounds, _least_rounds(before)
    met = rounds == fewest > round(scale * full.run.rounds)
    yield f"{rounds} of {full.run.rounds} rounds{_least_words(fewest) if met else ''}"
    clients, cohort = small.data.clients, _least_clients(small.run.participation)
    met = clients == _fewer_clients(full, scale, cohort)[0] > _fewer_clients(full, scale, 1)[0]
    if parse_partition(full.data.partition).places_every_class:
        yield f"all {clients} clients (or there may be no room for all classes)"
    else:
        yield f"{clients} of {full.data.clients} clients{' (two a round at least)' if met else ''}"
    if _counted_by_client(small):
        yield "their samples alone"
    elif small.data.share != full.data.share:
        yield f"{100 * small.data.share:.3g} % of the samples"
    for section, key in (*_STARTS, *_WINDOWS, *_ROUNDS):
        old, new = before[section].get(key), after[section].get(key)
        unused = key == "explore_period" and before[section].get("explore") in ("exp", "const", "none")
        if old is not None and new is not None and old != new and not unused:
            least = _WINDOWS.get((section, key), 1)
            met = least > 1 and new == least > round(scale * old)
            yield f"{section}.{key} {format_value(new)} of {format_value(old)}{_least_words(least) if met else ''}"


def _least_words(least: int) -> str:
    return f" ({('one', 'two', 'three')[least - 1]} at least)"


def _least_rounds(full: Tables) -> int:
    """Two; three where a round comes before a cycle of two."""
    return LEAST_ROUNDS + ("cycle" in full["average"])


def _counted_by_client(config: Config) -> bool:
    """Check whether a client's samples do not depend on how many clients there are."""
    return parse_partition(config.data.partition).counted_by_client


def _smaller(number: int, scale: float, least: int) -> int:
    """Return the number in small, not below the least, but never greater than it was."""
    return min(number, max(least, round(scale * number)))


def _least_clients(participation: float) -> int:
    """Count the clients that make a cohort of two."""
    return ceil(LEAST_COHORT / participation - 1e-9)


def _fewer_clients(config: Config, scale: float, least: int) -> tuple[int, str]:
    """Return how many clients, at least so many, and how the samples are split over them."""
    clients, partitioner = config.data.clients, parse_partition(config.data.partition)
    if partitioner.places_every_class:
        return clients, config.data.partition
    if not isinstance(partitioner, Domains) or clients < partitioner.each:
        return _smaller(clients, scale, least), config.data.partition
    domains = clients // partitioner.each
    each = _smaller(partitioner.each, scale, max(1, ceil(least / domains)))
    return each * domains, replace(partitioner, each=each).written()


def _scaled_rounds(rounds: Any, scale: float, last: int) -> Any:
    """Rounds in small: of a list each, of ``last:N`` and ``every:N`` their N, of ``sample:m`` the clients; words stay.

    >>> _scaled_rounds("sample:20", 0.25, 10), _scaled_rounds([1, 40], 0.25, 10)
    ('sample:5', [1, 10])
    """
    if isinstance(rounds, list | tuple):
        return sorted({min(last, _smaller(number, scale, 1)) for number in rounds})
    parts = []
    for part in str(rounds).split(","):
        word, colon, number = part.rpartition(":")
        parts.append(f"{word}{colon}{_smaller(int(number), scale, 1)}" if number.strip().isdigit() else part)
    return ",".join(dict.fromkeys(parts))


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
