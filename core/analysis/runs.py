"""Runs, as a user names them, with the rounds asked for of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..checkpoints import FedscopeError, Round, Run, parse_address, real_path, recorded_clients
from ..checkpoints.io.untrusted import at_home, expand_home, is_there
from ..checkpoints.io.visible_text import visible
from ..checkpoints.io.warn_user import warn_user
from ..checkpoints.models.adapters import about_adapters
from ..checkpoints.runs.run import warn_of_gaps
from .rounds import Rounds, larger_cohort, parse_rounds, rounds_text

#: an opened run, or its folder
RunLike = Run | str | Path


def open_run(run: RunLike, option: str = "--rounds") -> Run:
    """A run, where a whole one is asked for; ``option`` is what names its rounds, "" where nothing does.

    Raises:
        FedscopeError: no run; an address of one of its models.
    """
    opened = run_at(run, option)
    warn_of_gaps(opened)
    return opened


def run_at(run: RunLike, option: str = "--rounds") -> Run:
    """As :func:`open_run`, without a warning of rounds that are gone."""
    if isinstance(run, Run):
        return run
    refuse_no_run(run)
    run = expand_home(run)
    folder, at, rest = str(run).rpartition("@")
    if at and not is_there(Path(run)) and is_there(Path(folder, "run.json")):
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
        if at and "/" not in rest and not is_there(Path(str(run))) and is_there(Path(folder, "run.json")):
            if rounds is not None:
                raise FedscopeError(
                    f"{run} names its rounds, and so does {option} {rounds_text(rounds)}; leave one out"
                )
            opened.append(Run.open(folder))
            asked.append(rest)
        else:
            opened.append(run_at(run, option))
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
    if rounds is None and "@" in address and not is_there(Path(address)):
        parsed = parse_address(address)
        if parsed.round is None or parsed.which is not None:
            whole = "RUN@ROUND" if parsed.which is None else address.rpartition("/")[0]
            raise FedscopeError(f"{address} names a model, but all clients of a round are asked for; give {whole}")
        opened = Run.open(parsed.path)
        warn_of_adapters([opened], adapters)
        return opened, recorded_clients(opened, opened.round(parsed.round).number, start=False)
    if rounds is None and address:
        if is_there(Path(address)) and not is_there(Path(address) / "run.json"):
            Run.open(address)  # says what it is, and how models become a run
        hint = f", as in {run}@last" if is_there(Path(address) / "run.json") else ", as in runs/ima@40"
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
