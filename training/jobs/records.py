"""Records on disk of which job has which piece of work: a command that waits may die, and the next one finds them.

For every piece ``NAME.job.json`` says which job is to do it, by a token that nobody else has. It is written before the
job is sent, and the job reads it before it begins: one that finds another token has been replaced, and does nothing. So
no two jobs work on one folder, whether or not the file system has locks that hold between machines.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar, get_type_hints

from ...checkpoints import FedscopeError, write_durably
from ...checkpoints.io.untrusted import read_json

JOBS = "jobs"
_WHAT, _REMEDY = "the record of a job", "end its jobs, and remove it"

T = TypeVar("T", bound="_OnDisk")


class _OnDisk:
    """A dataclass of texts and numbers, in a file of its own."""

    END = ""

    @classmethod
    def path(cls, folder: Path, name: str) -> Path:
        return folder / f"{name}{cls.END}"

    @classmethod
    def read(cls: type[T], folder: Path, name: str) -> T | None:
        """Read the one of this name; None where there is none.

        Raises:
            FedscopeError: a damaged one.
        """
        path = cls.path(folder, name)
        if not path.is_file():
            return None
        found, kinds = read_json(path, _WHAT, _REMEDY), get_type_hints(cls)
        if not isinstance(found, dict):
            raise FedscopeError(f"{path} is damaged: it is no JSON object; {_REMEDY}")
        for one in fields(cls):  # type: ignore[arg-type]
            if one.name not in found and one.default is MISSING:
                raise FedscopeError(f"{path} is damaged: it does not say {one.name}; {_REMEDY}")
            value = found.get(one.name, one.default)
            if isinstance(value, bool) or not isinstance(value, kinds[one.name]):  # a truth is a whole number, too
                raise FedscopeError(f"{path} is damaged: its {one.name} is {value!r:.40}; {_REMEDY}")
        return cls(**{name: found[name] for name in kinds.keys() & found.keys()})

    def write(self, folder: Path, name: str) -> None:
        """Keep it in the place of an earlier one."""
        said: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        with write_durably(self.path(folder, name)) as temporary:
            temporary.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class JobRecord(_OnDisk):
    """A job that has a piece of work, or is about to be sent.

    Attributes:
        token: which no other job has; launcher: that it was sent by.
        batch: a name for all jobs that were sent together, index: its place among them.
        id: the launcher's; "" until it is known.
        host: where it was sent from.
        place: among the jobs at work.
    """

    END = ".job.json"
    token: str
    launcher: str
    batch: str
    index: int
    id: str = ""
    host: str = ""
    place: int = 0

    @classmethod
    def new(cls, launcher: str, batch: str, index: int, place: int = 0) -> Self:
        """One with a token of its own, sent from this machine."""
        return cls(secrets.token_hex(8), launcher, batch, index, host=socket.gethostname(), place=place)


@dataclass(frozen=True)
class JobOutcome(_OnDisk):
    """The end of a job, in its own words.

    Attributes:
        token: the job's; failure: the sentence with which it failed, None where it did not.
        host, capability: of the machine that computed.
    """

    END = ".outcome.json"
    token: str
    failure: str | None = None
    host: str = ""
    capability: str = ""


def outcomes_in(folder: Path, tokens: Mapping[str, str]) -> dict[str, JobOutcome]:
    """Read how those jobs ended that have said so.

    Args:
        tokens: of the jobs, by the name of what they do.
    """
    there = {path.name for path in folder.iterdir()}  # which makes network file systems look again
    found = {name: JobOutcome.read(folder, name) for name in tokens if f"{name}{JobOutcome.END}" in there}
    return {name: one for name, one in found.items() if one is not None and one.token == tokens[name]}
