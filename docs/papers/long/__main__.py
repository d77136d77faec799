"""The papers' figures at their own length: `make papers-long`.

    python docs/papers/long [UNIT ...] [--runs FOLDER] [--data FILE.npz] [--list] [--keep] [--hours H]
                             [--all-cores] [--device cuda] [--here] [--quick]

Does one unit of the plan after the other, at the lowest priority and on all cores but one (`--all-cores`: where nothing
else is to be done meanwhile), with fedscope as one commit has it, and goes on after any stop. FOLDER (PAPERS_LONG, else
~/.fedscope-papers) lies outside the checkout. A file PAUSE in it pauses everything. `--keep` copies the numbers of
finished units into `docs/papers/results/long`, where they are committed. FILE is CIFAR-10 (x_train, y_train, x_test,
y_test; see docs/howto/own-data.md), by default FOLDER/cifar10.npz. `--device cuda` trains and asks on an accelerator,
whose numbers stand apart. `--here` takes the fedscope that this Python imports for that of the commit, where nothing
can be installed (`make papers-gpu`). `--quick` tries all of it on small runs of the embedded digits.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "make"))  # what a run and a question are, stands there

from calls import Caller  # noqa: E402
from frozen import Identity, accelerator, data_sum, frozen, head, machine, spared, usable, write_whole  # noqa: E402
from pause import HOME  # noqa: E402
from plan import QUICK, Scale, Unit, at_data, on_device, units  # noqa: E402
from units import Place, groups, keep  # noqa: E402

from fedscope.checkpoints import FedscopeError  # noqa: E402

KEPT = HERE.parent / "results" / "long"
#: bytes that a unit's runs take at most
ROOM = 4 << 30


@dataclass(frozen=True)
class Order:
    """What is to be done, and where.

    Attributes:
        names: of units, all if none; home: the folder of runs; data: the file; hours: after which no unit begins.
        quick: small runs; commit: whose fedscope is taken; cores: for commands; device: as ``cuda``; here: whether
            this Python's fedscope is that of the commit.
    """

    names: tuple[str, ...]
    home: Path
    data: Path
    hours: float
    quick: bool
    commit: str | None
    cores: frozenset[int]
    device: str
    here: bool

    @property
    def kept(self) -> Path:
        """Where numbers are that count already."""
        return self.home / "kept" if self.quick else KEPT


def main(asked: Order) -> None:
    """Do the units, or those named, that are not finished."""
    asked.home.mkdir(parents=True, exist_ok=True)
    plan = planned(asked)
    place = placed(asked)
    end = time.monotonic() + 3600 * asked.hours
    for unit in plan:
        if place.is_finished(unit, asked.kept):
            print(f"{unit.name}: finished", flush=True)
            continue
        if time.monotonic() > end:
            print(f"{unit.name}: left for another time, after {asked.hours:g} hours", flush=True)
            return
        refuse_full(asked.home)
        print(f"{unit.name}: {unit.shown}; about {unit.hours:g} h of two idle cores", flush=True)
        place.do(unit, Caller(asked.home, asked.cores))
        print(f"{unit.name}: finished; --keep copies its numbers", flush=True)


def planned(asked: Order) -> tuple[Unit, ...]:
    """The units that are asked for, in the plan's order."""
    plan = units(QUICK if asked.quick else Scale())
    if unknown := [name for name in asked.names if name not in {unit.name for unit in plan}]:
        sys.exit(f"make papers-long: {unknown[0]!r} is no unit; --list shows them")
    chosen = tuple(on_device(unit, asked.device) for unit in plan if not asked.names or unit.name in asked.names)
    return chosen if asked.quick else tuple(at_data(unit, f"npz:{asked.data.resolve()}") for unit in chosen)


def placed(asked: Order) -> Place:
    """The frozen install: of the commit whose numbers on these data and this machine are kept, else of this one."""
    if not asked.quick and asked.data.is_dir():
        sys.exit(f"make papers-long: {asked.data} is a folder; name an .npz of CIFAR-10 with --data")
    sum_ = "digits00" if asked.quick else data_sum(asked.data)
    own, device = machine(asked.device), accelerator(asked.device)
    this = (sys.executable, "-P", "-m", "fedscope")
    if asked.quick and asked.commit is None:  # the environment that runs this
        return Place(asked.home, this, Identity("0" * 40, sum_, own), device)
    if asked.here:
        return Place(asked.home, this, Identity(asked.commit or head(), sum_, own), device)
    known = [one.commit for one, _ in groups(asked.kept) if (one.data, one.machine) == (sum_, own)]
    said = asked.home / "commit"
    if said.exists():
        known.append(said.read_text(encoding="utf-8").strip())
    commit = asked.commit or next(iter(known), None) or head()
    bin_ = frozen(asked.home, commit)
    write_whole(said, commit + "\n")
    return Place(asked.home, (bin_ / "fedscope",), Identity(commit, sum_, own), device)


def refuse_full(home: Path) -> None:
    """Say before a unit begins that its runs would not fit."""
    free = shutil.disk_usage(home).free
    if free < ROOM:
        sys.exit(
            f"make papers-long: {home} has {free / 2**30:.1f} GB free, and a unit takes up to {ROOM >> 30} GB; free "
            "some, or give another folder with --runs"
        )


def listed(quick: bool, home: Path) -> None:
    """The plan, and how far it is; of each commit, data file and machine by itself."""
    finished: dict[str, set[str]] = {}
    for folder in (home / "kept" if quick else KEPT, home / "finished"):
        for identity, of in groups(folder):
            finished.setdefault(identity.folder, set()).update(of)
    begun: dict[str, set[str]] = {}
    for path in sorted((home / "units").glob("*/*")):
        begun.setdefault(path.parent.name, set()).add(path.name)
    known = list(dict.fromkeys((*finished, *begun))) or [""]
    for one in known:
        if len(known) > 1:
            print(f"{one}:")
        for unit in units(QUICK if quick else Scale()):
            begins = unit.place in begun.get(one, ())
            state = "finished" if unit.name in finished.get(one, ()) else "begun" if begins else ""
            print(f"{unit.name:16} {unit.hours:4.1f} h  {state:9} {unit.shown}")


def stop(*_: object) -> NoReturn:
    """As Ctrl-C."""
    raise KeyboardInterrupt


def refused(sentence: str) -> NoReturn:
    """End with the status of a wrong call."""
    print(f"make papers-long: {sentence}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("units", nargs="*", metavar="UNIT")
    words.add_argument("--runs", type=Path, default=HOME)
    words.add_argument("--data", type=Path)
    words.add_argument("--list", action="store_true")
    words.add_argument("--keep", action="store_true")
    words.add_argument("--hours", type=float, default=float("inf"))
    words.add_argument("--all-cores", action="store_true", help="where nothing else is to be done meanwhile")
    words.add_argument("--device", default="cpu", metavar="NAME")
    words.add_argument("--here", action="store_true", help="this Python's fedscope is that of --commit, or of HEAD")
    words.add_argument("--quick", action="store_true")
    words.add_argument("--commit", help="freeze this commit, and begin a group of numbers of its own")
    given = words.parse_args()
    cores = usable() if given.all_cores else spared()
    folder = given.runs.expanduser().resolve()
    signal.signal(signal.SIGTERM, stop)
    try:
        if folder.exists() and not folder.is_dir():
            sys.exit(f"make papers-long: {folder} is a file; name a folder for the runs with --runs")
        if given.list:
            listed(given.quick, folder)
        elif given.keep:
            for path in keep(folder / "finished", folder / "kept" if given.quick else KEPT):
                print(os.path.relpath(path))
        else:
            where = folder, given.data or folder / "cifar10.npz"
            main(
                Order(
                    tuple(given.units), *where, given.hours, given.quick, given.commit, cores, given.device, given.here
                )
            )
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command has said why
    except FedscopeError as error:  # as of a full disk
        refused(str(error))
    except OSError as error:  # as of a folder that nothing can be made in
        where = error.filename or folder
        refused(f"{where}: {error.strerror or error}; free some room or the right to write there, or change --runs")
    except SystemExit as error:
        if isinstance(error.code, str):
            refused(error.code.removeprefix("make papers-long: "))
        raise
    except KeyboardInterrupt:
        print("make papers-long: stopped; the same command goes on", file=sys.stderr)
        sys.exit(130)
