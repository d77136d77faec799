"""trackio: a database of this machine's, or the Space or server that its user has set."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import quoted
from .snapshot import IDENTITY, Picture, Snapshot, TrackedPoint
from .tracker import explained, refuse_missing, refuse_other_numbers

NAME = "trackio"
#: where the environment sends what trackio logs
SPACE, SERVER = "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"
_REMEDY = "see that its folder can be written (TRACKIO_DIR), and give the same command again"
_OTHER = "give another --name or --project, or delete the run in trackio"
_GROUP = "figures"


class Trackio:
    """A run of trackio's.

    A row of its database has a round's numbers, and is there or not, whatever a kill meets. So it is asked which rows
    are there, and given what is missing. A Space or a server is asked for its last round alone.
    """

    def __init__(self, project: str, name: str) -> None:
        self._remote = os.environ.get(SPACE) or os.environ.get(SERVER) or ""
        if not self._remote:  # or the library of the Hugging Face Hub, which it uses, counts its users there
            os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        try:
            import trackio
            from trackio.sqlite_storage import SQLiteStorage
            from trackio.utils import get_storage_mode
        except ImportError:
            raise refuse_missing(NAME) from None
        self._library: Any = trackio
        self._storage: Any = SQLiteStorage
        self._project, self._name = project, name
        self._version = str(getattr(trackio, "__version__", "of an unknown version"))
        with explained(NAME, self._version, _REMEDY):
            SQLiteStorage.validate_project_name(project)
            mode = get_storage_mode()
        if self._remote:
            self._refuse_logged_out()
        elif mode != "sqlite":
            raise FedscopeError(
                "trackio's folder lies on a network file system, where it cannot be asked which rounds it has; set "
                "TRACKIO_DIR to a folder of this machine"
            )
        self.where = f"run {name} of trackio's project {project}" + (f" in {self._remote}" if self._remote else "")
        self.looked_at = self._remote or f"trackio show --project {quoted(project)}"
        #: by round, the tags that are there; None before it was asked
        self._there: dict[int, set[str]] | None = None
        #: what they hold, by (tag, round); nothing of a Space or a server
        self._numbers: dict[tuple[str, int], Any] = {}

    def write(self, run: Snapshot) -> None:
        """Log what is missing, and see that it has come."""
        with explained(NAME, self._version, _REMEDY):
            there = self._there if self._there is not None else self._ask(run)
            refuse_other_numbers(run, self._numbers, self.where, _OTHER)
            points, pictures = _missing(run, there)
            if not points and not pictures:
                self._there = there
                return
            own = self._open(run)
            if self._remote and self._there is None:
                # what it had before: rounds come in their order
                for point in run.points:
                    if point.round < int(getattr(own, "_next_step", 0)):
                        there[point.round] |= set(point.values)
                points, pictures = _missing(run, there)
            with tempfile.TemporaryDirectory() as folder:
                for point in points:
                    self._library.log(dict(point.values), step=point.round)
                for picture in pictures:
                    self._library.log({f"{_GROUP}/{picture.name}": self._image(picture, folder)}, step=run.last)
                self._library.finish()
            if self._remote:
                for point in points:
                    there[point.round] |= set(point.values)
                there[-1] |= {_tag_of(picture) for picture in pictures}
            else:
                there = self._ask(run)
                if any(_missing(run, there)):
                    raise OSError("not all rounds have come into its database")
            self._there = there

    def close(self) -> None:
        """Everything is written."""

    def _open(self, run: Snapshot) -> Any:
        more = {"auto_log_gpu": False, "auto_log_cpu": False, "embed": False}
        return self._library.init(self._project, name=self._name, resume="allow", config=dict(run.settings), **more)

    def _ask(self, run: Snapshot) -> defaultdict[int, set[str]]:
        """Which tags each round has; those of figures are its digest, under round -1.

        Raises:
            FedscopeError: the run of this name is another one.
        """
        there: defaultdict[int, set[str]] = defaultdict(set)
        if self._remote or not self._storage.get_project_db_path(self._project).exists():
            return there
        rows = self._storage.get_logs(self._project, self._name)
        settings = self._storage.get_run_config(self._project, self._name) or {}
        if rows and settings.get(IDENTITY) != run.identity:
            raise FedscopeError(
                f"trackio's project {self._project} has another run that is called {self._name}; give --name or "
                "--project"
            )
        for row in rows:
            for tag, value in row.items():
                if tag.startswith(f"{_GROUP}/"):
                    there[-1].add(f"{tag} {dict(value).get('caption')}")
                else:
                    there[int(row["step"])].add(tag)
                    self._numbers[tag, int(row["step"])] = value
        return there

    def _image(self, picture: Picture, folder: str) -> Any:
        path = Path(folder, f"{picture.digest}.png")
        path.write_bytes(picture.content)
        return self._library.Image(str(path), caption=picture.digest)

    def _refuse_logged_out(self) -> None:
        if not os.environ.get(SPACE):
            return  # a server of its own, whose token trackio asks for
        from huggingface_hub import get_token

        if get_token() is None:
            raise FedscopeError(
                f"trackio is not logged in, and {SPACE} = {self._remote} sends to Hugging Face; log in: hf auth login, "
                f"or unset {SPACE} to keep the run on this machine"
            )


def _tag_of(picture: Picture) -> str:
    return f"{_GROUP}/{picture.name} {picture.digest}"


def _missing(run: Snapshot, there: dict[int, set[str]]) -> tuple[list[TrackedPoint], list[Picture]]:
    """What a tracker lacks: of each round the numbers that are not there, and the figures."""
    points = []
    for point in run.points:
        lacking = {tag: value for tag, value in point.values.items() if tag not in there.get(point.round, ())}
        if lacking:
            points.append(TrackedPoint(point.round, point.wall, lacking))
    return points, [picture for picture in run.pictures if _tag_of(picture) not in there.get(-1, ())]
