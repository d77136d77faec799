"""Runs and rounds, as a user names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..checkpoints import (
    FedscopeError,
    Round,
    Run,
    parse_address,
    real_path,
    recorded_clients,
    rounds_with_clients,
)
from ..checkpoints.io.atomic import writing_words
from ..checkpoints.io.code_words import code_words_at
from ..checkpoints.io.errors import spans
from ..checkpoints.io.shell_words import command_line
from ..checkpoints.io.untrusted import at_home, expand_home
from ..checkpoints.io.visible_text import visible
from ..checkpoints.io.warn_user import warn_user
from ..checkpoints.models.adapters import about_adapters
from ..checkpoints.runs.run import warn_of_gaps

#: an opened run, or its folder
RunLike = Run | str | Path
#: in what tells a run: the checksums of the rounds that a question reads, by their numbers
SEALS = "seals"
#: a setting of a question on runs' metrics: what tells each one's from others of the same rounds
METRICS = "metrics_xxh3"
#: ``1,20,last``, ``1-5``, ``all``, a number, or several of these; None for a question's own default
Rounds = str | int | Sequence[int | str] | None


def rounds_text(rounds: Rounds) -> str | None:
    """Rounds as a command line has them.

    >>> rounds_text([1, 20, "last"]), rounds_text(7), rounds_text(None)
    ('1,20,last', '7', None)
    """
    if rounds is None or isinstance(rounds, str):
        return rounds
    return ",".join(map(str, rounds)) if isinstance(rounds, Iterable) else str(rounds)


def open_run(run: RunLike, option: str = "--rounds") -> Run:
    """A run, where a whole one is asked for; ``option`` is what names its rounds, "" where nothing does.

    Raises:
        FedscopeError: no run; an address of one of its models.
    """
    opened = _open(run, option)
    warn_of_gaps(opened)
    return opened


def _open(run: RunLike, option: str) -> Run:
    if isinstance(run, Run):
        return run
    refuse_no_run(run)
    run = expand_home(run)
    folder, at, rest = str(run).rpartition("@")
    if at and not Path(run).exists() and Path(folder, "run.json").is_file():
        rounds = f" (and {option} {rest.partition('/')[0]})" if option else ""
        raise FedscopeError(f"{run} names a model, but a whole run is asked for; give {folder}{rounds}")
    return Run.open(run)


def several(given: Any, *single: type) -> list[Any]:
    """What was given as a list, where it may be one thing alone.

    Args:
        single: what is one thing besides a run, a round and a path, though it can be iterated over.
    """
    alone = isinstance(given, (Run, Round, str, Path, *single)) or not isinstance(given, Iterable)
    return [given] if alone else list(given)


def as_runs(runs: Any) -> list[Any]:
    """One run or several as a list.

    Raises:
        FedscopeError: neither runs nor folders; a round says how it is named.
    """
    given = several(runs)
    for one in given:
        refuse_no_run(one)
    return [type(one)(at_home(str(one))) if isinstance(one, str | Path) else one for one in given]


def refuse_no_run(run: object) -> None:
    """Refuse what is neither a run nor the name of one.

    Raises:
        FedscopeError: says what it is, and of a round how it is named.
    """
    if isinstance(run, Run | str | Path):
        return
    if isinstance(run, Round):
        raise FedscopeError(
            f"{run.label} is a round, and a run is asked for; give {str(run.label)!r}, or its run and "
            f"rounds={run.number}"
        )
    raise FedscopeError(
        f"one run is asked for, but got a {type(run).__name__}; give its folder, and ask for each alone"
    )


def resolve_runs(
    runs: RunLike | Sequence[RunLike],
    rounds: Rounds,
    option: str = "--rounds",
    *,
    adapters: str = "factors",
    apart: bool = False,
) -> tuple[list[Run], list[str | None]]:
    """Whole runs, and the rounds asked for of each: ``RUN@60`` is the run with ``rounds=60``.

    Args:
        option: what names rounds, for sentences.
        adapters: what the question does with adapters, as
            :func:`~fedscope.checkpoints.models.adapters.about_adapters` takes it; ``products`` if it compares what
            they do, and says itself what there is to say.
        apart: call runs that share a name by their paths, instead of refusing them.

    Raises:
        FedscopeError: no run; two of one name; a run with rounds of its own together with ``rounds``; one model of a
            run.
    """
    given = as_runs(runs)
    opened: list[Run] = []
    asked: list[str | None] = []
    for run in given:
        folder, at, rest = ("", "", "") if isinstance(run, Run) else str(run).rpartition("@")
        if at and "/" not in rest and not Path(str(run)).exists() and Path(folder, "run.json").is_file():
            if rounds is not None:
                raise FedscopeError(
                    f"{run} names its rounds, and so does {option} {rounds_text(rounds)}; leave one out"
                )
            opened.append(Run.open(folder))
            asked.append(rest)
        else:
            opened.append(_open(run, option))
            asked.append(rounds_text(rounds))
            if asked[-1] is None or "all" in asked[-1] or ":" in asked[-1] or "-" in asked[-1]:  # counted among all
                warn_of_gaps(opened[-1])
    if apart:
        names = distinct_names(opened)
        opened = [run if name == run.name else run.called(name) for run, name in zip(opened, names, strict=True)]
    else:
        refuse_one_name(opened)
    if adapters != "products":
        warn_of_adapters(opened, adapters)
    return opened, asked


def resolve_run(
    run: RunLike | Sequence[RunLike], rounds: Rounds, *, adapters: str = "factors"
) -> tuple[Run, str | None]:
    """One whole run, and the rounds asked for of it, as :func:`resolve_runs`.

    Raises:
        FedscopeError: also several runs.
    """
    opened, asked = resolve_runs(run, rounds, adapters=adapters)
    if len(opened) != 1:
        names = ", ".join(str(one.path) for one in opened) or "none"
        raise FedscopeError(f"one run is asked for, but got {len(opened)} runs ({names}); ask for each alone")
    return opened[0], asked[0]


def warn_of_adapters(runs: Sequence[Run], subject: str = "factors") -> None:
    """Say of runs of adapters, once, what the numbers of their factors are not."""
    for run in runs:
        if about := about_adapters(run.layout.names, subject):
            warn_user(f"{run.path}: {about}")
            return


def one_round(
    run: RunLike | Sequence[RunLike], rounds: Rounds = None, *, adapters: str = "factors"
) -> tuple[Run, Round]:
    """A run and its one round: ``RUN@40``, or a run and ``rounds=40``; its clients were recorded.

    Args:
        adapters: as :func:`resolve_runs` takes it.

    Raises:
        FedscopeError: no run, no round or several, a model of the round, a round without its clients.
    """
    if not isinstance(run, Run | str | Path):  # several
        if len(run) != 1:
            raise FedscopeError(f"one round of a run is asked for, but got {len(run)} runs; ask for each alone")
        return one_round(run[0], rounds, adapters=adapters)
    address = "" if isinstance(run, Run) else str(run)
    if rounds is None and "@" in address and not Path(address).exists():
        parsed = parse_address(address)
        if parsed.round is None or parsed.which is not None:
            whole = "RUN@ROUND" if parsed.which is None else address.rpartition("/")[0]
            raise FedscopeError(f"{address} names a model, but all clients of a round are asked for; give {whole}")
        opened = Run.open(parsed.path)
        warn_of_adapters([opened], adapters)
        return opened, recorded_clients(opened, opened.round(parsed.round).number, start=False)
    if rounds is None and address:
        if Path(address).exists() and not (Path(address) / "run.json").is_file():
            Run.open(address)  # says what it is, and how models become a run
        hint = f", as in {run}@last" if (Path(address) / "run.json").is_file() else ", as in runs/ima@40"
        raise FedscopeError(f"{run} names no round; give RUN@ROUND{hint}, or --rounds")
    opened, asked = resolve_run(run, rounds, adapters=adapters)
    numbers = parse_rounds(asked or "last", opened.rounds, str(opened.path))
    if len(numbers) != 1:
        raise FedscopeError(f"{opened.path}: one round is asked for, but {asked} are {len(numbers)}; give one of them")
    return opened, recorded_clients(opened, numbers[0], start=False)


def open_runs(runs: Sequence[RunLike]) -> list[Run]:
    """Whole runs that are told apart by their names.

    Raises:
        FedscopeError: as :func:`open_run`; two of one name.
    """
    opened = [open_run(run) for run in runs]
    refuse_one_name(opened)
    return opened


def distinct_names(runs: Sequence[Run]) -> list[str]:
    """Return what runs are called side by side: by their folders' names, or where two share one all by their paths, as
    ``curves`` calls them.

    Raises:
        FedscopeError: a run is given twice.
    """
    names = [run.name for run in runs]
    if len(set(names)) == len(names):
        return names
    if len({real_path(run.path) for run in runs}) < len(runs):
        refuse_one_name(runs)
    return [visible(run.path) for run in runs]


def refuse_one_name(runs: Sequence[Run]) -> None:
    """Refuse runs that could not be told apart by their names.

    Raises:
        FedscopeError: two of one name.
    """
    names = [run.name for run in runs]
    for name in names:
        if (count := names.count(name)) > 1:
            same = len({real_path(run.path) for run in runs if run.name == name}) < count
            raise FedscopeError(
                f"{count} of the runs are called {name!r}; rename a folder"
                + (", and give a run only once" if same else "")
            )


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


def _placeless(run: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in run.items() if key != SEALS}, "path": real_path(run["path"]).name}


def client_rounds(run: Run, rounds: str | None, *, last: bool = False) -> list[int]:
    """Return the rounds asked for, where their clients are needed: ``all``, ``1-5``, ``last:10`` and ``every:20`` are
    among those whose clients were recorded, and without a word it is the first and the last of these, or with ``last``
    the last.

    Raises:
        FedscopeError: rounds that the run does not have, or of which it did not record the clients.
    """
    have = rounds_with_clients(run)
    if rounds is None and have:
        return [have[-1]] if last else sorted({have[0], have[-1]})
    found = rounds_among("last" if rounds is None else rounds, run, have)
    for number in found:
        recorded_clients(run, number, start=False)
    return found


def rounds_of_several(run: Run, rounds: str | None, why: str) -> tuple[list[int], list[str]]:
    """Return the rounds asked for in which there are two clients or more, and a sentence on those that are left out
    because there is one. Without a word it is the first and the last of these.

    Where no round is left it is the one asked for, or the first of them, which whoever asked refuses.

    Args:
        why: what one client is not, for the sentence: ``is no pair``.

    Raises:
        FedscopeError: as :func:`client_rounds`.
    """
    several = _with_clients(run, 2)
    if rounds is None and several:
        return sorted({several[0], several[-1]}), []
    asked = client_rounds(run, rounds)
    taken = [number for number in asked if number in several]
    if not taken:
        return asked[:1], []
    return taken, left_out(run, [number for number in asked if number not in several], f"one client {why}")


def left_out(run: Run, numbers: Sequence[int], why: str) -> list[str]:
    """Say that rounds are left out of an answer; nothing of none."""
    if not numbers:
        return []
    return [f"{run.name}: round{'s' if len(numbers) > 1 else ''} {spans(numbers)} left out, because {why}"]


def larger_cohort(run: Run, least: int = 2) -> str:
    """Say where a round has too few clients which rounds have ``least``, or how there will be some."""
    have = _with_clients(run, least)
    if not have:
        return run.larger_cohorts
    which = f"round {have[0]}, which has" if len(have) == 1 else f"one of rounds {spans(have)}, which have"
    return f"give {which} {least} clients or more"


def _with_clients(run: Run, least: int) -> list[int]:
    """List the rounds of which so many clients were recorded."""
    return [number for number in rounds_with_clients(run) if len(run.round(number).client_ids) >= least]


def rounds_among(asked: str, run: Run, have: Sequence[int]) -> list[int]:
    """Return the rounds that words mean where only some of a run's rounds have what a question needs.

    Each word counts for itself. ``all``, ``last:10`` and ``every:20``, and ``last`` beside these two, are among
    ``have``. ``1-5`` are those of them between its ends, or where none is all that were recorded. Other words are
    rounds by their numbers, which may not be among ``have``.

    Raises:
        FedscopeError: as :func:`parse_rounds`.
    """
    path, among = str(run.path), tuple(have) or run.rounds
    if asked.strip() == "all":
        return parse_rounds(asked, among, path)
    parse_rounds(asked, run.rounds, path)  # what is wrong is said of all words
    found: set[int] = set()
    for word in map(str.strip, asked.split(",")):
        if ":" in word or (":" in asked and not word.isdecimal() and not is_range(word)):
            found |= set(parse_rounds(word, among, path))
            continue
        numbers = parse_rounds(word, run.rounds, path)
        found |= set(numbers if not is_range(word) else [number for number in numbers if number in among] or numbers)
    return sorted(found)


def recorded_pair(run: Run, number: int, address: str = "") -> Round:
    """A round whose clients were recorded, and of which there are two or more.

    Args:
        address: of the round, as it was given.

    Raises:
        FedscopeError: they were not; there is only one.
    """
    round_ = recorded_clients(run, number, start=False)
    if len(round_.client_ids) < 2:
        raise FedscopeError(f"{address or round_.label} has a cohort of one, so there is no pair; {larger_cohort(run)}")
    return round_


def parse_rounds(text: str, available: tuple[int, ...], run: str, *, option: str = "--rounds") -> list[int]:
    """``1,20,last``, ``1-5``, ``-1``, ``last:10``, ``every:20`` or ``all`` as recorded round numbers, ascending,
    without repeats. A range is those recorded from its one end to its other.

    Raises:
        FedscopeError: a word that is no round, a round that the run does not have; a range that is upside down, or of
            which no round was recorded.

    >>> parse_rounds("1,last:2", (1, 2, 3, 4), "runs/ima"), parse_rounds("every:2", (1, 2, 3, 4), "runs/ima")
    ([1, 3, 4], [2, 4])
    >>> parse_rounds("1-2,4-last", (1, 2, 3, 4, 5), "runs/ima")
    [1, 2, 4, 5]
    """
    if not available:
        if writing := writing_words(Path(run)):
            raise FedscopeError(f"{run} has no rounds yet: {writing}")
        on = command_line("train", "--resume", run, *code_words_at(Path(run)))
        raise FedscopeError(f"{run} has no rounds yet; where it is trained here, go on with it: {on}")
    if text.strip() == "all":
        return list(available)
    rounds: set[int] = set()
    for word in text.split(","):
        word = word.strip()
        if ends := _RANGE.fullmatch(word):
            rounds |= set(_range(ends[1], ends[2], available, f"{option} {text}", run))
            continue
        if several := _several(word, available):
            rounds |= set(several)
            continue
        try:
            number = available[-1] if word == "last" else int(_MINUS.sub("-", word))
        except ValueError:
            raise FedscopeError(
                f"{option} {text}: {word!r} is not a round; write whole numbers, last, a range as 1-5, last:10 or all"
            ) from None
        if number < 0 and -number <= len(available):
            number = available[number]
        if number not in available:
            raise FedscopeError(f"{option} {text}: {run} has no round {number}; {_has(available)}")
        rounds.add(number)
    return sorted(rounds)


#: a minus as word processors write it
_MINUS = re.compile("^[\u2010-\u2015\u2212]")
#: ``1-5`` or ``20-last``
_RANGE = re.compile(r"(\d+)\s*[-\u2013]\s*(\d+|last)", re.ASCII)


def is_range(text: str) -> bool:
    """Tell whether a word of some rounds is a range.

    >>> is_range("1,3-5"), is_range("-1")
    (True, False)
    """
    return any(_RANGE.fullmatch(word.strip()) for word in text.split(","))


def spell_ranges(text: str) -> str:
    """Write ranges of rounds otherwise than numbers that stand in a row, for names of files.

    >>> spell_ranges("1-5,20-last"), spell_ranges("1,5,-1")
    ('1to5,20tolast', '1,5,-1')
    """
    words = (word.strip() for word in text.split(","))
    return ",".join(_RANGE.sub(r"\1to\2", word) if _RANGE.fullmatch(word) else word for word in words)


def _range(first: str, last: str, available: tuple[int, ...], asked: str, run: str) -> list[int]:
    """Return the rounds from one to another that were recorded."""
    low, high = int(first), available[-1] if last == "last" else int(last)
    if low > high:
        flipped = f"; write {high}-{low}" if last != "last" else f"; {_has(available)}"
        raise FedscopeError(f"{asked}: {first}-{last} is upside down{flipped}")
    for end in (low, high):
        if not available[0] <= end <= available[-1]:
            raise FedscopeError(f"{asked}: {run} has no round {end}; {_has(available)}")
    found = [number for number in available if low <= number <= high]
    if not found:
        raise FedscopeError(f"{asked}: {run} has no round from {low} to {high}; {_has(available)}")
    return found


def _has(available: tuple[int, ...]) -> str:
    """Say which rounds a run has, for sentences."""
    first, last = available[0], available[-1]
    return (f"it has {first} to {last}" if first < last else f"it has round {last} only") + (
        "" if len(available) == last - first + 1 else f" ({len(available)} of them)"
    )


def _several(word: str, available: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rounds of ``last:10``, as many as there are, or ``every:20``; none of another word."""
    kind, _, count = word.partition(":")
    if not (count.isascii() and count.isdecimal() and int(count) > 0):
        return ()
    if kind == "last":
        return available[-int(count) :]
    return tuple(t for t in available if t % int(count) == 0) if kind == "every" else ()


def refuse_other_data(runs: Sequence[Run]) -> None:
    """Refuse runs whose numbers would not lie on one axis; of those that do not say their data --data does.

    Raises:
        FedscopeError: they were trained on different data.
    """
    said = [(run, seen) for run in runs if (seen := run.info.get("data", {}).get("sha256")) is not None]
    for run, seen in said[1:]:
        if seen != said[0][1]:
            raise FedscopeError(
                f"{said[0][0].path} and {run.path} were trained on different data; ask for one of them at a time"
            )


def cannot_replay(runs: Sequence[Run]) -> Run | None:
    """Return the first run whose local training is not known, so that it cannot be replayed; None where there is
    none."""
    return next((run for run in runs if run.is_foreign and run.config is None), None)


def refuse_replays(runs: Sequence[Run], split: str) -> None:
    """Refuse draws by replay of runs whose local training is not known.

    Args:
        split: what is to be measured on; without a partition ``train`` cannot be, and the remedy says so at once.

    Raises:
        FedscopeError: a run without a configuration.
    """
    for run in runs:
        if cannot_replay([run]):
            on = " --split test" if split == "train" and run.partition is None else ""
            several = f", or --draws rounds:4{on}, the last rounds of one cohort" if len(run.rounds) > 3 else ""
            raise FedscopeError(
                f"{run.path} was recorded by {run.info['source']}, whose training cannot be replayed; give --draws "
                f"none{on}, the recorded models alone{several}"
            )
