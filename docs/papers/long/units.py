"""A unit done: what is lacking is trained, what was not asked is asked, and its numbers count once they are whole."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from calls import Caller
from frozen import Identity, processor, write_whole
from pause import lives
from plan import Unit
from work import KEPT, Trained

#: written last: numbers without it are half of a killed unit's, and count for nothing
UNIT = "unit.json"


@dataclass(frozen=True)
class Place:
    """Where long runs lie.

    Attributes:
        home: outside the checkout; fedscope: the words of the frozen command; identity: what numbers of one group
            share; device: the accelerator's name, "" of the processor.
    """

    home: Path
    fedscope: tuple[str | Path, ...]
    identity: Identity
    device: str = ""

    @property
    def finished(self) -> Path:
        """The numbers of whole units."""
        return self.home / "finished" / self.identity.folder

    def folder(self, unit: Unit) -> Path:
        """Of a unit's runs."""
        return self.home / "units" / self.identity.folder / unit.place

    def is_finished(self, unit: Unit, kept: Path) -> bool:
        """Whether the unit's numbers are whole, here or among those that are committed."""
        return any(known(folder / unit.name) for folder in (self.finished, kept / self.identity.folder))

    def do(self, unit: Unit, call: Caller) -> None:
        """Train and ask what is lacking; it goes on after any stop.

        Raises:
            subprocess.CalledProcessError: a command failed, and has said why.
            SystemExit: another driver does this unit, or one of the same runs.
        """
        folder = self.folder(unit)
        (folder / "answers").mkdir(parents=True, exist_ok=True)
        with alone(unit, folder):
            self._do(unit, folder, call)

    def _do(self, unit: Unit, folder: Path, call: Caller) -> None:
        answers = folder / "answers"
        spent = folder / f"{unit.name}.seconds.json"
        before = _read(spent) or {"active": 0.0, "cpu": 0.0}
        try:
            for run in unit.runs:
                self._train(run, folder, call)
            for one in unit.asked:
                done = answers / f"{one.name}.done"
                if not done.exists() or done.read_text(encoding="utf-8") != one.command:
                    words = [*shlex.split(one.words), "--out", f"answers/{one.name}", "--force"]
                    call([*self.fedscope, *words], folder)
                    write_whole(done, one.command)
        finally:
            now = {"active": before["active"] + call.active, "cpu": before["cpu"] + call.cpu}
            write_whole(spent, json.dumps(now) + "\n")
            call.active = call.cpu = 0.0
        self._gather(unit, folder, now, len(call.cores))

    def _train(self, run: Trained, folder: Path, call: Caller) -> None:
        there = _rounds(folder / run.name)
        said = folder / f"{run.name}.command"
        if there and said.exists() and said.read_text(encoding="utf-8") != run.command:
            raise SystemExit(
                f"make papers-long: {folder / run.name} was made by another command; delete that folder, or name "
                "another folder of runs with --runs"
            )
        if there >= run.rounds:
            return
        write_whole(said, run.command)
        begun = (folder / run.name / "run.json").exists()
        words = ["--resume", run.name] if begun else [*shlex.split(run.words), "--out", run.name]
        print(f"{folder.name}/{run.name}: {there} of {run.rounds} rounds", flush=True)
        call([*self.fedscope, "train", *words], folder)

    def _gather(self, unit: Unit, folder: Path, spent: dict[str, float], cores: int) -> None:
        """Copy the numbers to one folder, which gets its name when it is whole."""
        target = self.finished / unit.name
        made = _partial(target)
        made.mkdir(parents=True)
        for one in unit.asked:
            for path in sorted((folder / "answers").glob(f"{one.name}.*")):
                if path.suffix in KEPT:
                    shutil.copy(path, made / path.name)
        for run in unit.runs:
            shutil.copy(folder / run.name / "metrics.csv", made / f"{run.name}.metrics.csv")
        about = {
            "unit": unit.name,
            "shown": unit.shown,
            **asdict(self.identity),
            "processor": processor(),
            **({"device": self.device} if self.device else {}),
            "cores": cores,
            # what a killed command took is in its rounds alone
            "seconds": round(max(spent["active"], sum(_trained_seconds(folder / run.name) for run in unit.runs))),
            "cpu_seconds": round(spent["cpu"]),
            "finished": date.today().isoformat(),
            "commands": [one.command for one in (*unit.runs, *unit.asked)],
        }
        (made / UNIT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)


@contextmanager
def alone(unit: Unit, folder: Path) -> Iterator[None]:
    """While one driver does a unit, no other does it, or another of the same runs.

    Raises:
        SystemExit: another does; names its process.
    """
    from fedscope.checkpoints.io.locks import HeldError, hold, sign

    try:
        held = hold(folder / ".driver", "the lock of a unit", wait=0.1)
    except HeldError as other:
        remedy = other.remedy or "wait until it ends, stop it, or name other units"
        raise SystemExit(f"make papers-long: {unit.name} is being done by {other.by}; {remedy}") from None
    try:
        sign(held)
        yield
    finally:
        held.release()


def _partial(target: Path) -> Path:
    """Where a folder is made until it is whole: of this process alone. What killed ones left goes."""
    for path in target.parent.glob(f"{target.name}.partial*"):
        number = path.name.rpartition("-")[2]
        if not (number.isdigit() and int(number) != os.getpid() and lives(int(number))):
            shutil.rmtree(path, ignore_errors=True)
    return target.with_name(f"{target.name}.partial-{os.getpid()}")


def _trained_seconds(run: Path) -> float:
    """Return how long a run's rounds took, each as long as the median: some stood still while others worked."""
    with (run / "metrics.csv").open(encoding="utf-8", newline="") as file:
        seconds = [float(row["seconds"] or 0) for row in csv.DictReader(file)]
    return len(seconds) * median(seconds) if seconds else 0.0


def known(folder: Path) -> dict[str, Any] | None:
    """What is said of a whole unit's numbers; None of half-written ones, and where there are none."""
    about = _read(folder / UNIT)
    return about if about is not None and {"unit", "commit", "data", "machine"} <= about.keys() else None


def groups(kept: Path) -> Iterator[tuple[Identity, dict[str, Path]]]:
    """Units whose numbers are kept, by the identity that they share; different ones are never averaged. Nor are units
    of one kind whose commands differ in more than the seed: those of a changed plan follow by themselves."""
    found: dict[Identity, dict[str, Path]] = {}
    for path in sorted(kept.glob(f"*/*/{UNIT}")):
        about = known(path.parent)
        if about is not None and about["unit"] == path.parent.name:  # else a killed copy's, which may lack numbers
            identity = Identity(*(str(about[key]) for key in ("commit", "data", "machine")))
            found.setdefault(identity, {})[str(about["unit"])] = path.parent
    parts = [(identity, own) for identity, of in found.items() for own in _by_plan(of)]
    yield from sorted(parts, key=lambda item: (-len(item[1]), item[0].folder))


def _by_plan(folders: Mapping[str, Path]) -> list[dict[str, Path]]:
    """The units of the plan that most of each kind have, of as many the first seed's; then those of other plans."""
    kinds: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, folder in folders.items():
        kinds.setdefault(re.sub(r"-\d+(-ima)?$", r"\1", name), {}).setdefault(planned(folder), []).append(name)
    parts: list[dict[str, Path]] = []
    for variants in kinds.values():
        for i, names in enumerate(sorted(variants.values(), key=lambda names: -len(names))):
            parts += [{}] if i == len(parts) else []
            parts[i] |= {name: folders[name] for name in names}
    return parts


def planned(folder: Path) -> tuple[str, ...]:
    """A unit's commands without the seed, the place of the data and the accelerator's number: the plan that it has."""
    words = (known(folder) or {}).get("commands", ())
    seedless = (re.sub(r"(--seed |\bdata\.seed=)\d+", r"\1…", str(command)) for command in words)
    return tuple(re.sub(r"npz:\S*/|--device \S+", "", command) for command in seedless)


def keep(finished: Path, kept: Path) -> list[Path]:
    """Copy finished units to the numbers that are committed, without the folder of this machine in which the data lay;
    returns what is new.

    Raises:
        SystemExit: other numbers of the same unit, commit, data and machine are kept already.
    """
    new = []
    for path in sorted(finished.glob(f"*/*/{UNIT}")):
        source, target = path.parent, kept / path.parent.parent.name / path.parent.name
        if known(source) is None:
            continue
        made = _partial(target)
        try:
            if _kept(source, made, target, f"{finished.parent}/"):
                new.append(target)
        except OSError as error:  # also what copying a folder raises
            raise SystemExit(
                f"make papers-long: {target} cannot be written ({_reason(error)}); free some room, or the right to "
                "write there, then give --keep again"
            ) from None
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return new


def _kept(source: Path, made: Path, target: Path, place: str) -> bool:
    """Copy a unit's numbers; whether they are new."""
    shutil.copytree(source, made)
    _forget(made, place)
    if known(target) is not None:
        if _numbers(made) != _numbers(target):
            raise SystemExit(
                f"make papers-long: {target} keeps other numbers of the same commit, data and machine than "
                f"{source}; find out why before you delete one of them"
            )
        return False
    shutil.rmtree(target, ignore_errors=True)
    made.rename(target)
    return True


def _reason(error: OSError) -> str:
    """Why, in a few words; of several files the first."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return str(error.args[0][0][-1])
    return error.strerror or str(error)


def _forget(folder: Path, place: str) -> None:
    """Leave out a folder of this machine wherever a file names one in it."""
    from fedscope.results.arrays import read_netcdf, write_netcdf

    for path in sorted(folder.iterdir()):
        if path.suffix == ".nc":
            variables, attrs = read_netcdf(path)
            coords = {name: one for name, one in variables.items() if tuple(one[0]) == (name,)}
            others = {name: one for name, one in variables.items() if name not in coords}
            write_netcdf(path, coords, others, json.loads(json.dumps(attrs).replace(place, "")))
        elif place in (text := path.read_text(encoding="utf-8")):
            path.write_text(text.replace(place, ""), encoding="utf-8")


def _numbers(folder: Path) -> dict[str, bytes]:
    """All files but the one that says how long it took, and when."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != UNIT}


def _rounds(folder: Path) -> int:
    from fedscope.checkpoints import Run

    if not (folder / "run.json").exists():
        return 0
    rounds: Sequence[int] = Run.open(folder).rounds
    return rounds[-1] if rounds else 0


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
