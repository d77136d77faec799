"""What tells a run from another in the same folder, and rounds from those that were recorded again in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..checkpoints import Run, real_path

#: in what tells a run: the checksums of the rounds that a question reads, by their numbers
SEALS = "seals"
#: a setting of a question on runs' metrics: what tells each one's from others of the same rounds
METRICS = "metrics_xxh3"


def identity(run: Run, rounds: Iterable[int] = ()) -> dict[str, Any]:
    """Return what tells this run from another that was in the same folder before, and these rounds from others that
    were recorded in their place.

    A run of another program does not say when it was made: its files do.

    Args:
        rounds: those whose models the question reads, under ``seals`` with the checksum of each; rounds that are not
            there, and those of earlier versions without checksums, have none. Models whose digests stand beside it need
            no rounds.
    """
    import hashlib

    said = {"path": str(run.path), "created": run.info.get("created"), "versions": run.info.get("versions")}
    if said["created"] is not None:
        asked = sorted({*rounds} & {*run.rounds})
        seals = {str(number): seal for number in asked if (seal := run.round(number).seal)}
        return {**said, **({SEALS: seals} if seals else {})}
    files = [file.stat() for file in sorted((run.path / "rounds").glob("*.h5"))]
    told = repr(([(file.st_size, file.st_mtime_ns) for file in files], run.info)).encode()
    return {**said, "files": hashlib.sha256(told).hexdigest()}


def identities(runs: Sequence[Run], asked: Sequence[tuple[Run, int]]) -> list[dict[str, Any]]:
    """Return the :func:`identity` of each run, with its own among the rounds asked for."""
    return [identity(run, [number for own, number in asked if own is run]) for run in runs]


def is_same_run(kept: Any, asked: Any) -> bool:
    """Check whether two :func:`identity` s, or lists of them, are of the same runs with the same rounds.

    A folder counts by its name, wherever it lies. Rounds are compared as far as both say them: a result of an earlier
    version says none.
    """
    if isinstance(kept, list) and isinstance(asked, list):
        return len(kept) == len(asked) and all(map(is_same_run, kept, asked))
    if not (isinstance(kept, dict) and isinstance(asked, dict) and "path" in kept and "path" in asked):
        return bool(kept == asked)
    return _placeless(kept) == _placeless(asked) and not other_rounds(kept, asked)


def has_grown(kept: Any, asked: Any) -> bool:
    """Check whether lists of :func:`identity` s are of the same runs, which have gone on since; only of those that say
    their last round, ``rounds``, it is known.

    >>> run = {"path": "g/x", "created": "then", "rounds": 3}
    >>> has_grown([run], [{**run, "rounds": 8}]), has_grown([run], [run]), has_grown([run], [{**run, "rounds": 2}])
    (True, False, False)
    >>> has_grown([run], [{**run, "created": "now", "rounds": 8}])
    False
    """
    if not (isinstance(kept, list) and isinstance(asked, list) and len(kept) == len(asked)):
        return False
    for before, now in zip(kept, asked, strict=True):
        told = all(isinstance(one.get("rounds"), int) and one.get("created") for one in (before, now))
        if not told or before["rounds"] > now["rounds"] or not is_same_run({**before, "rounds": now["rounds"]}, now):
            return False
    return any(before["rounds"] < now["rounds"] for before, now in zip(kept, asked, strict=True))


def split_seals(said: Any) -> tuple[Any, dict[str, str]]:
    """Return an :func:`identity`, or a list of them, without the rounds, and the seals of these by ``NAME@ROUND``."""
    if isinstance(said, list):
        parts = [split_seals(one) for one in said]
        return [one for one, _ in parts], {place: seal for _, seals in parts for place, seal in seals.items()}
    name = real_path(said["path"]).name
    seals = {f"{name}@{number}": seal for number, seal in said.get(SEALS, {}).items()}
    return {key: value for key, value in said.items() if key != SEALS}, seals


def other_rounds(kept: Mapping[str, Any], asked: Mapping[str, Any]) -> list[int]:
    """Return the rounds that were recorded again between two :func:`identity` s of a run."""
    before, now = kept.get(SEALS), asked.get(SEALS)
    if not isinstance(before, dict) or not isinstance(now, dict):
        return []
    return sorted(int(number) for number in before.keys() & now.keys() if before[number] != now[number])


def is_renamed(kept: Sequence[Any], asked: Sequence[Any], *, same_metrics: bool = False) -> bool:
    """Check whether :func:`identity` s are of the same runs in folders of other names, moved or copied. Runs may have
    been made in the same second, so rounds that both say must be the same ones.

    Args:
        same_metrics: whether the runs' metrics, which the question reads, are known to be the same.

    >>> run = {"path": "g/x", "created": "then", "seals": {"1": "a"}}
    >>> is_renamed([run], [{**run, "path": "g/y"}]), is_renamed([run], [{**run, "path": "g/y", "seals": {"1": "b"}}])
    (True, False)
    >>> is_renamed([{**run, "seals": {}}], [{**run, "path": "g/y"}])
    False
    """
    if len(kept) != len(asked):
        return False
    for before, now in zip(kept, asked, strict=True):
        seals = (before.get(SEALS), now.get(SEALS))
        told = all(isinstance(one, dict) for one in seals) and bool(seals[0].keys() & seals[1].keys())
        if before.get("created") is None or not (told or same_metrics):
            return False
        if not is_same_run({**before, "path": now["path"]}, now):
            return False
    return True


def _placeless(run: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in run.items() if key != SEALS}, "path": real_path(run["path"]).name}
