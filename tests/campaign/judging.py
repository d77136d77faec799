"""How a command ended, in one word, and the table of many."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .drawing import CANARY
from .warm import MEMORY

OUTCOMES = (
    "fine",
    "refused",
    "not one sentence",
    "traceback",
    "memory",
    "hang",
    "believed",
    "changed an input",
    "ran code",
)
#: of these, what is as it should be
GOOD = ("fine", "refused")
#: files that commands may write, and what says when and from what a result was made
WRITTEN = ("out", "figures", "stdout", "stderr", ".writer")
ABOUT = ("attrs", "created", "versions", "provenance", "seconds", "crc32", "run.json")


@dataclass(frozen=True)
class Case:
    """One case: what was spoilt, how, and the command line; ``seed`` draws all of it."""

    seed: int
    group: str
    file: str
    how: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.seed}: {self.how} of {self.file}: fedscope {' '.join(self.words)}"


def judge(
    folder: Path, ended: dict[str, Any], before: dict[str, str], sound: dict[str, Any] | None, most: int, resumed: bool
) -> str:
    """One of OUTCOMES.

    Args:
        before: :func:`fingerprints` of the spoilt folder.
        sound: :func:`numbers` of the same command on sound files; None where an altered file cannot be told.
        most: bytes of memory at the peak.
        resumed: whether the command goes on writing ``runs/half``.
    """
    said = (folder / "stderr").read_text(errors="replace") if (folder / "stderr").exists() else ""
    if (folder / CANARY).exists():
        return "ran code"
    if ended["late"]:
        return "hang"
    if ended["status"] == MEMORY or "MemoryError" in said or ended["peak"] > most:
        return "memory"
    if ended["status"] not in (0, 2) or "Traceback" in said:
        return "traceback"
    after = fingerprints(folder)
    if any(after.get(name) != digest for name, digest in before.items() if not (resumed and _grows(name))):
        return "changed an input"
    if ended["status"] == 2:
        # what it is about to do, said before it reads
        begun = (
            " recording up to ",
            " replays of local training (",
            " is another run's table, or damaged",
            " lacks round",
        )
        lines = [line for line in said.strip().split("\n") if line and not any(words in line for words in begun)]
        sentence = len(lines) == 1 and lines[0].startswith("fedscope: ") and len(lines[0]) < 2000
        return "refused" if sentence or said.startswith("Usage:") else "not one sentence"
    return "fine" if sound is None or numbers(folder, before, resumed) == sound else "believed"


def fingerprints(folder: Path) -> dict[str, str]:
    """The content of all files that are inputs, and what links are."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if set(path.relative_to(folder).parts) & set(WRITTEN) or path.name.startswith("out."):
            continue
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = _digest(path)
        elif not path.is_dir():
            found[name] = "strange"
    # a figure drawn again is no input
    return {name: digest for name, digest in found.items() if not name.endswith((".pdf", ".png", ".html", ".md"))}


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes()).hexdigest()


def _grows(name: str) -> bool:
    return name.startswith("runs/half/") and ("kept/" in name or name.endswith(("metrics.csv", ".tmp")))


def numbers(folder: Path, before: dict[str, str], resumed: bool) -> dict[str, Any]:
    """What a command computed, by file and name; rounds that lay there before, or are copies of such, it did not."""
    inputs = set(before.values())
    files = [*folder.glob("out*"), *folder.glob("out/**/*"), *(folder.glob("runs/half/rounds/*.h5") if resumed else ())]
    found: dict[str, Any] = {}
    for path in sorted(files):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or (path.suffix == ".h5" and _digest(path) in inputs):
            continue
        if path.suffix in (".nc", ".h5"):
            try:
                with h5py.File(path, "r") as file:
                    file.visititems(lambda key, item, name=name: found.update(_values(f"{name}:{key}", item)))
            except (OSError, RuntimeError, KeyError) as error:  # what a command writes can be read
                found[name] = str(error)
        elif path.suffix == ".json":
            found[name] = repr(_bare(json.loads(path.read_text().replace(str(folder), ""))))
        elif path.suffix == ".csv":
            rows = list(csv.reader(path.read_text().splitlines()))
            keep = [i for i, column in enumerate(rows[0]) if column not in ABOUT]
            found[name] = [[row[i] for i in keep] for row in rows]
        elif path.suffix == ".safetensors":
            found[name] = path.read_bytes()
    return found


def _values(name: str, item: Any) -> dict[str, Any]:
    if not isinstance(item, h5py.Dataset) or name.endswith(":checksums"):  # also of the seconds that a round took
        return {}
    if item.size is None or item.size > 10**8:  # spoilt, and copied with a branch's history
        return {name: str(item.shape)}
    return {name: np.asarray(item[()]).tobytes() if item.dtype.kind != "O" else repr(item[()])}


def _bare(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _bare(value) for key, value in tree.items() if key not in ABOUT}
    return [_bare(value) for value in tree] if isinstance(tree, list) else tree


def table(found: Iterable[tuple[Case, str]]) -> str:
    """What was spoilt by how it ended, in Markdown."""
    counts = Counter((case.group, outcome) for case, outcome in found)
    groups = dict.fromkeys(group for group, _ in counts)
    lines = [f"| spoilt | cases | {' | '.join(OUTCOMES)} |", "| --- " * (len(OUTCOMES) + 2) + "|"]
    for group in groups:
        row = [counts[group, outcome] for outcome in OUTCOMES]
        lines.append(f"| {group} | {sum(row)} | {' | '.join(str(n or '') for n in row)} |")
    return "\n".join(lines)
