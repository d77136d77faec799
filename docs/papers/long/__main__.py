"""The papers' figures at their own length: `make papers-long`.

    python docs/papers/long [UNIT ...] [--runs FOLDER] [--data FILE.npz] [--list] [--keep] [--hours H]
                             [--all-cores] [--quick]

Does one unit of the plan after the other, at the lowest priority and on all cores but one (`--all-cores`: where nothing
else is to be done meanwhile), with fedscope as one commit has it, and goes on after any stop. FOLDER (PAPERS_LONG, else
~/.fedscope-papers) lies outside the checkout. A file PAUSE in it pauses everything. `--keep` copies the numbers of
finished units into `docs/papers/results/long`, where they are committed. FILE is CIFAR-10 (x_train, y_train, x_test,
y_test; see docs/howto/own-data.md), by default FOLDER/cifar10.npz. `--quick` tries all of it on small runs of the
embedded digits.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "make"))  # what a run and a question are, stands there

from calls import Caller  # noqa: E402
from frozen import Identity, data_sum, frozen, head, machine, spared, usable  # noqa: E402
from pause import HOME  # noqa: E402
from plan import QUICK, Scale, Unit, at_data, units  # noqa: E402
from units import Place, groups, keep  # noqa: E402

KEPT = HERE.parent / "results" / "long"
#: bytes that a unit's runs take at most
ROOM = 4 << 30


def main(
    names: list[str], home: Path, data: Path, hours: float, quick: bool, frozen_at: str | None, cores: frozenset[int]
) -> None:
    """Do the units, or those named, that are not finished."""
    home.mkdir(parents=True, exist_ok=True)
    plan = planned(names, quick, data)
    kept = home / "kept" if quick else KEPT
    place = placed(home, data, kept, quick, frozen_at)
    end = time.monotonic() + 3600 * hours
    for unit in plan:
        if place.is_finished(unit, kept):
            print(f"{unit.name}: finished", flush=True)
            continue
        if time.monotonic() > end:
            print(f"{unit.name}: left for another time, after {hours:g} hours", flush=True)
            return
        refuse_full(home)
        print(f"{unit.name}: {unit.shown}; about {unit.hours:g} h of two idle cores", flush=True)
        place.do(unit, Caller(home, cores))
        print(f"{unit.name}: finished; --keep copies its numbers", flush=True)


def planned(names: list[str], quick: bool, data: Path) -> tuple[Unit, ...]:
    """The units that are asked for, in the plan's order."""
    plan = units(QUICK if quick else Scale())
    if unknown := [name for name in names if name not in {unit.name for unit in plan}]:
        sys.exit(f"make papers-long: {unknown[0]!r} is no unit; --list shows them")
    chosen = tuple(unit for unit in plan if not names or unit.name in names)
    return chosen if quick else tuple(at_data(unit, f"npz:{data.resolve()}") for unit in chosen)


def placed(home: Path, data: Path, kept: Path, quick: bool, frozen_at: str | None) -> Place:
    """The frozen install: of the commit whose numbers on these data and this machine are kept, else of this one."""
    sum_ = "digits00" if quick else data_sum(data)
    own = machine()
    if quick and frozen_at is None:  # the environment that runs this
        return Place(home, Path(sys.executable).with_name("fedscope"), Identity("0" * 40, sum_, own))
    known = [one.commit for one, _ in groups(kept) if (one.data, one.machine) == (sum_, own)]
    said = home / "commit"
    if said.exists():
        known.append(said.read_text(encoding="utf-8").strip())
    commit = frozen_at or next(iter(known), None) or head()
    bin_ = frozen(home, commit)
    said.write_text(commit + "\n", encoding="utf-8")
    return Place(home, bin_ / "fedscope", Identity(commit, sum_, own))


def refuse_full(home: Path) -> None:
    """Say before a unit begins that its runs would not fit."""
    free = shutil.disk_usage(home).free
    if free < ROOM:
        sys.exit(
            f"make papers-long: {home} has {free / 2**30:.1f} GB free, and a unit takes up to {ROOM >> 30} GB; free "
            "some, or give another folder with --runs"
        )


def listed(quick: bool, home: Path) -> None:
    """The plan, and how far it is."""
    kept = home / "kept" if quick else KEPT
    finished = {name for _, of in groups(kept) for name in of} | {
        name for _, of in groups(home / "finished") for name in of
    }
    begun = {path.name for path in (home / "units").glob("*/*")}
    for unit in units(QUICK if quick else Scale()):
        state = "finished" if unit.name in finished else "begun" if unit.place in begun else ""
        print(f"{unit.name:16} {unit.hours:4.1f} h  {state:9} {unit.shown}")


def stop(*_: object) -> NoReturn:
    """As Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("units", nargs="*", metavar="UNIT")
    words.add_argument("--runs", type=Path, default=HOME)
    words.add_argument("--data", type=Path)
    words.add_argument("--list", action="store_true")
    words.add_argument("--keep", action="store_true")
    words.add_argument("--hours", type=float, default=float("inf"))
    words.add_argument("--all-cores", action="store_true", help="where nothing else is to be done meanwhile")
    words.add_argument("--quick", action="store_true")
    words.add_argument("--commit", help="freeze this commit, and begin a group of numbers of its own")
    given = words.parse_args()
    cores = usable() if given.all_cores else spared()
    folder = given.runs.expanduser().resolve()
    signal.signal(signal.SIGTERM, stop)
    try:
        if given.list:
            listed(given.quick, folder)
        elif given.keep:
            for path in keep(folder / "finished", folder / "kept" if given.quick else KEPT):
                print(os.path.relpath(path))
        else:
            data = given.data or folder / "cifar10.npz"
            main(given.units, folder, data, given.hours, given.quick, given.commit, cores)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command has said why
    except KeyboardInterrupt:
        print("make papers-long: stopped; the same command goes on", file=sys.stderr)
        sys.exit(130)
