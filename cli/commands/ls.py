"""``fedscope ls``, and with ``--check``: are these runs as they were written?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...checkpoints import FedscopeError, Run, find_run_folders, is_without_info, real_path, size_of
from ...checkpoints.io.code_words import code_words_at, is_recorded_at
from ...checkpoints.io.errors import list_few, spans
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.visible_text import brief
from ...checkpoints.recorder.identify_server import describe_server
from ...checkpoints.rounds.metrics import read_table
from ...checkpoints.runs.folders import LOST
from ...checkpoints.runs.measured_numbers import merge_numbers
from ...checkpoints.runs.recorded_error import NAME, stored_checks
from ...training.curves.run_names import both_seeds, settings_of, title_of
from ...training.user_code.kept_source import sources_in
from ..printing import say, say_json
from ..progress import progress

if TYPE_CHECKING:
    from ...checkpoints import Round
    from ...training.loop.verify_run import Soundness

#: characters of what is printed of a run: of its path and of what is wrong with it, and of all else that it says
LONGEST, LONG = 4096, 500


@click.command("ls", epilog="Example:  fedscope ls runs/ima")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--check", "checks", is_flag=True, help="Verify every checksum of the runs, and that their files agree.")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(paths: tuple[Path, ...], checks: bool, as_json: bool) -> None:
    """List the runs in this folder or below PATH, or show what one run holds."""
    if checks:
        check(paths, as_json)
        return
    if len(paths) > 1:
        raise FedscopeError(f"ls shows one run or folder, but {len(paths)} were given; several are for --check")
    path = paths[0] if paths else None
    if path is not None and (path / "run.json").is_file():
        holdings = describe(Run.open(path))
        if as_json:
            say_json(holdings)
            return
        width = max(14, *(len(name) + 1 for name in holdings))
        for name, value in holdings.items():
            say(f"{name:<{width}}{_cell(name, value)}")
        return
    folder = path or Path()
    _refuse_no_folder(folder)
    rows = [describe_folder(run) for run in find_run_folders(folder)]
    if as_json:
        say_json(rows)
    elif not rows:
        say(f"no runs below {real_path(folder)}; train one: fedscope train")
    else:
        columns = ("run", "method", "data", "rounds", "seed", "lr", "test error", "size", "created")
        shown = [{**row, "created": row["created"][:16].replace("T", " ")} for row in rows]
        table = [columns, *(tuple(_cell(column, row[column]) for column in columns) for row in shown)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(column: str, value: object) -> str:
    """Shorten what a run says of itself to the length of such words."""
    return brief(value, LONGEST if column in ("run", "method") else LONG)


def describe_folder(path: Path) -> dict[str, Any]:
    """The row of a run's folder; of a damaged one, what is wrong with it, so that it does not hide the others."""
    why = f"{path / 'run.json'} {LOST}"
    try:
        if not is_without_info(path):
            return row_of(Run.open(path))
    except FedscopeError as error:
        why = str(error)
    unknown = dict.fromkeys(("data", "rounds", "seed", "lr", "test error", "size", "created"), "-")
    return {"run": str(path), "method": f"damaged: {why}", **unknown}


def row_of(run: Run) -> dict[str, Any]:
    """Describe a run from the other files than its rounds: a thousand rounds are not opened to list a run."""
    config = run.config or {}
    last = run.rounds[-1] if run.rounds else 0
    planned = run.planned if not run.is_foreign or last < (run.planned or 0) else None
    settings, seed = settings_of(run), both_seeds(run)[0]
    return {
        "run": str(run.path),
        "method": title_of(run),
        "data": run.info.get("data", {}).get("name", "-"),
        "partition": settings.get("data.partition", "-"),
        "clients": run.info.get("clients", "-"),
        "model": f"{config.get('model', {}).get('name') or run.info.get('model', '-')}, {run.layout.size:,} parameters",
        "rounds": (f"{last} of {planned}" if planned else f"{last}") + _without(run),
        "seed": "-" if seed is None else seed,
        "lr": settings.get("client.lr", settings.get("lr", "-")),
        "test error": last_error(run),
        "size": f"{size_of(run) / 1e6:.1f} MB",
        "created": str(run.info.get("created", "-")),
    }


def _without(run: Run) -> str:
    """Name the rounds up to the last one that are gone, in a clause; "" where none is."""
    last = run.rounds[-1] if run.rounds else 0
    gone = [t for t in run.lacking if t < last]  # later ones are trained again
    return f" without {spans(gone)}" if gone else ""


def last_error(run: Run) -> str:
    """Read the deployed model's test error in the last round."""
    if not run.rounds:
        return "-"
    last = run.rounds[-1]
    # a writer that was killed, and another program, may leave the row out
    numbers = read_table(run.path / "metrics.csv", run.identity).get(last) or run.round(last).metrics
    numbers = merge_numbers(numbers, run.measured.of(last))
    measured = [numbers.get(name) for name in ("averaged_test_error", "test_error")]
    return next((f"{100 * error:.1f} %" for error in measured if error is not None and not isnan(error)), "-")


def describe(run: Run) -> dict[str, Any]:
    """Describe what one run holds; every round is opened."""
    rounds = [run.round(t) for t in run.rounds]
    row, branch, names = row_of(run), run.info.get("branch"), run.info.get("client_names")
    created = row.pop("created")
    size, error = row.pop("size"), row.pop("test error")
    return {
        **row,
        **({"missing rounds": spans(run.lacking)} if run.lacking else {}),
        "with clients": spans(one.number for one in rounds if one.has_clients) or "none",
        **({"names": brief(list_few(f"{k} {one}" for k, one in names.items()), LONG)} if names else {}),
        **({"sampled": sampled} if (sampled := sampled_words(rounds)) else {}),
        **(
            {"with sketches": spans(sketched)} if (sketched := [one.number for one in rounds if one.has_sketch]) else {}
        ),
        "averaged": spans(one.number for one in rounds if "averaged" in one.models) or "none",
        "test error": error,
        **({"measured": later} if (later := "; ".join(one.words for one in run.measured.measurements)) else {}),
        "size": size,
        "created": created,
        **({"server": server} if run.is_foreign and (server := server_of(run, rounds)) else {}),
        **({"branched from": f"{branch['run']}@{branch['round']}"} if branch else {}),
        **({"code changed": changed} if (changed := "; ".join(changed_sources(run))) else {}),
    }


def changed_sources(run: Run) -> Iterator[str]:
    """Yield which code of one's own went on with another source, and after which rounds: ``server mine:FedX after round
    4``."""
    for (kind, name), (_, *later) in sources_in(run).items():
        after = [entry["after"] for entry in later]
        if after:
            yield f"{kind} {name} after round{'s' if len(after) > 1 else ''} {spans(after)}"


def sampled_words(rounds: Sequence[Round]) -> str:
    """Describe which rounds hold the models of some clients alone, and of how many; "" where none does."""
    some = [one for one in rounds if one.has_sample]
    counts = sorted({(len(one.sampled_ids), len(one.client_ids)) for one in some})
    of = " or ".join(f"{kept} of {clients}" for kept, clients in counts[:3]) + (", ..." if len(counts) > 3 else "")
    return f"{spans(one.number for one in some)} (the models of {of} clients)" if some else ""


def server_of(run: Run, rounds: Sequence[Round]) -> str:
    """Describe how a recorded run's server came to its models, or why that is not known; "" where there is nothing to
    say."""
    table = run.path / "metrics.csv"
    if server := describe_server(read_table(table, run.identity) if table.exists() else {}):
        return server
    if any(one.own_starts for one in rounds):
        return "none that all start from: each client starts from a model of its own"
    for name in ("start", "global"):
        if rounds and not any(name in one.models for one in rounds):
            return f"not checked, because no round has its {name}"
    return ""


def check(paths: Sequence[Path], as_json: bool) -> None:
    """Check runs, and those below folders, and say of each what is wrong with it, all of it.

    Raises:
        FedscopeError: nothing to check; a run that is not sound.
    """
    from ...training.loop.verify_run import check_run

    runs = list(dict.fromkeys(run for path in paths or [Path()] for run in runs_at(path)))
    if not runs:
        raise FedscopeError(f"there are no runs below {', '.join(map(str, paths)) or real_path(Path())}; give a run")
    broken, rows = dict[Path, bool](), []
    for run in runs:
        with progress(f"checking {run}") as report:
            found = check_run(run, report)
        if found.faults:
            # of a run that is none any more nothing can be trained again
            broken[run] = not {"run.json", "rounds", "config.toml"} & {file for file, _ in found.faults}
        rows.append(checked_row(run, found))
        if not as_json:
            for line in checked_lines(run, found):
                say(line)
    if as_json:
        say_json(rows)
    if broken:
        which = f"{next(iter(broken))} is" if len(runs) == 1 else f"{len(broken)} of {len(runs)} runs are"
        raise FedscopeError(f"{which} damaged; restore what is named from a copy{_again(broken)}")


def _again(broken: Mapping[Path, bool]) -> str:
    """What else than a copy helps damaged runs: their training.

    Args:
        broken: by run, whether there is enough of it to go on from a round.
    """
    trained = [run for run in broken if not is_recorded_at(run)]
    if not trained:
        return ", or record its training again" if len(broken) == 1 else ", or record their training again"
    if from_ := next((run for run in trained if broken[run]), None):
        line = command_line("train", "--from", f"{from_}@ROUND", *code_words_at(from_, branch=True))
        return f", or train again from the last sound round: {line}"
    return ", or train again"


def runs_at(path: Path) -> list[Path]:
    """A run, or all runs below a folder as ``ls`` finds them, and those with a damaged ``run.json``.

    Raises:
        FedscopeError: no such folder.
    """
    _refuse_no_folder(path)
    return [path] if (path / "run.json").is_file() else find_run_folders(path)


def checked_lines(run: Path, found: Soundness) -> Iterator[str]:
    """Make the lines that the command prints of a run."""
    rounds = f"{found.rounds} round{'s' if found.rounds != 1 else ''}"
    if not found.faults:
        yield f"{run}  sound: {rounds}, {words_of(found)}{f'; but {found.torn}' if found.torn else ''}"
    else:
        count = len(found.faults)
        yield f"{run}  damaged: {rounds}, {words_of(found)}, {count} fault{'s' if count != 1 else ''}"
        for file, what in found.faults:
            yield f"  {file}: {what}"
        if found.torn:
            yield f"  {found.torn}"
    for outcome in stored_checks(run).values():
        yield f"  {NAME}: {outcome.sentence()}" + (f": {outcome.explained}" if outcome.explained else "")


def words_of(found: Soundness) -> str:
    """Describe how much could be verified."""
    sums = f"{found.checksums:,} checksums"
    if not found.without:
        return sums
    if len(found.without) == found.rounds:
        return "no checksums (recorded without them: only sizes, types and sums were looked at)"
    return f"{sums}, none of rounds {spans(found.without)} (recorded without them)"


def checked_row(run: Path, found: Soundness) -> dict[str, Any]:
    """A run for ``--json``."""
    return {
        "run": str(run),
        "sound": not found.faults,
        "rounds": found.rounds,
        "checksums": found.checksums,
        "without checksums": list(found.without),
        **({"torn": found.torn} if found.torn else {}),
        "faults": [{"file": file, "what": what} for file, what in found.faults],
        "recorded errors": [
            {"sentence": one.sentence(), "differs": one.differs, "explained": one.explained}
            for one in stored_checks(run).values()
        ],
    }


def _refuse_no_folder(path: Path) -> None:
    if not path.is_dir():
        raise FedscopeError(f"{path} is neither a run nor a folder; give a run, or a folder that holds runs")
