"""What is trained and asked for a paper's page: commands of fedscope, each done once, in a folder that may be left and
come back to at any moment."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: the command beside the interpreter that runs this
FEDSCOPE = Path(sys.executable).with_name("fedscope")
#: what is kept of an answer: its numbers. Pictures are drawn from them, pages in HTML are too large to commit
KEPT = (".csv", ".json", ".nc")


@dataclass(frozen=True)
class Trained:
    """A run that figures are made of.

    Attributes:
        name: below the working folder, as in ``ima/device``; words: of ``fedscope train``, all but ``--out``.
        rounds: how many it has.
    """

    name: str
    words: str
    rounds: int

    @property
    def command(self) -> str:
        """As a user types it."""
        return f"fedscope train {self.words} --out {self.name}"


@dataclass(frozen=True)
class Swept:
    """A sweep that figures are made of.

    Attributes:
        name: below the working folder; words: of ``fedscope sweep``, all but ``--out``.
    """

    name: str
    words: str

    @property
    def command(self) -> str:
        """As a user types it."""
        return f"fedscope sweep {self.words} --out {self.name}"


@dataclass(frozen=True)
class Asked:
    """A question about runs.

    Attributes:
        name: of its files, as in ``fig1``; words: a command, all but ``--out``; runs: the names of those it needs.
    """

    name: str
    words: str
    runs: tuple[str, ...]

    @property
    def command(self) -> str:
        """As a user types it."""
        return f"fedscope {self.words} --out {self.name}"


@dataclass(frozen=True)
class Workplace:
    """Where a paper's runs and answers lie.

    Attributes:
        runs: the working folder; data sets named ``npz:NAME.npz`` lie there. It is not committed.
        results: what is kept of the answers, which is committed.
    """

    runs: Path
    results: Path

    def train(self, wanted: Sequence[Trained | Swept]) -> None:
        """Train what is lacking, and go on with what was interrupted.

        Raises:
            subprocess.CalledProcessError: a command failed, and has said why.
        """
        said = self.runs / "trained.json"
        trained = json.loads(said.read_text(encoding="utf-8")) if said.exists() else {}
        for one in wanted:
            folder = self.runs / one.name
            if folder.exists() and trained.get(one.name, one.command) != one.command:
                sys.exit(
                    f"make papers: {folder} was made by another command; delete that folder, or give another --runs"
                )
            trained[one.name] = one.command
            said.write_text(json.dumps(trained, indent=1) + "\n", encoding="utf-8")
            if isinstance(one, Swept):  # which trains what is lacking itself
                subprocess.run(
                    [FEDSCOPE, "sweep", *shlex.split(one.words), "--out", one.name], cwd=self.runs, check=True
                )
                continue
            there = self._rounds(one)
            if there >= one.rounds:
                continue
            begun = (self.runs / one.name / "run.json").exists()
            words = ["--resume", one.name] if begun else [*shlex.split(one.words), "--out", one.name]
            print(f"{one.name}: {there} of {one.rounds} rounds", flush=True)
            subprocess.run([FEDSCOPE, "train", *words], cwd=self.runs, check=True)

    def _rounds(self, one: Trained) -> int:
        from fedscope.checkpoints import Run

        if not (self.runs / one.name / "run.json").exists():
            return 0
        rounds = Run.open(self.runs / one.name).rounds
        return rounds[-1] if rounds else 0

    def ask(self, questions: Sequence[Asked], runs: Sequence[Trained | Swept]) -> None:
        """Answer what was not answered yet, or was answered by another command or of other runs; trains what that
        needs.

        Raises:
            SystemExit: a run in the working folder was made by another command.
            subprocess.CalledProcessError: a command failed, and has said why.
        """
        answered, made = (self.kept(name) for name in ("commands", "runs"))
        for one in questions:
            needed = {run.name: run for run in runs if run.name in one.runs}
            behind = {name: run.command for name, run in needed.items()}
            if answered.get(one.name) == one.command and made.get(one.name) == behind and self.files(one.name):
                continue
            self.train(list(needed.values()))
            # another question of the same name begins anew, the same one goes on where it stopped
            folder = f"answers/{hashlib.sha256(f'{one.command} {behind}'.encode()).hexdigest()[:8]}"
            answers = self.runs / folder
            answers.mkdir(parents=True, exist_ok=True)
            words = [*shlex.split(one.words), "--out", f"{folder}/{one.name}"]
            subprocess.run([FEDSCOPE, *words], cwd=self.runs, check=True)
            self.results.mkdir(parents=True, exist_ok=True)
            for path in self.files(one.name):
                path.unlink()
            for path in sorted(answers.glob(f"{one.name}.*")):
                if path.suffix in KEPT:
                    shutil.copy(path, self.results / path.name)
            answered[one.name], made[one.name] = one.command, behind
            for name, said in (("commands", answered), ("runs", made)):
                text = json.dumps(said, indent=1, sort_keys=True) + "\n"
                (self.results / f"{name}.json").write_text(text, encoding="utf-8")

    def kept(self, name: str) -> dict[str, Any]:
        """``commands``: what was asked, by the answer's name; ``runs``: the commands of the runs behind it."""
        path = self.results / f"{name}.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return found

    def files(self, name: str) -> list[Path]:
        """What is kept of an answer."""
        return sorted(self.results.glob(f"{name}.*"))
