"""Weights & Biases: files of an offline run, or its server where its user says so (``WANDB_MODE=online``)."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError
from ..curves.tags import timestamp
from .snapshot import Snapshot
from .tracker import Tracker, explained, refuse_missing

NAME = "wandb"
#: how wandb is to work, and the folder in which its files lie
MODE, FOLDER = "WANDB_MODE", "WANDB_DIR"
#: the axis of all charts
AXIS = "round"
#: in an offline run's folder: of what it is
ABOUT = "fedscope.json"
_OFFLINE, _ONLINE = ("offline", "dryrun"), ("online", "shared")
_FOLDER_REMEDY = f"see that its folder can be written ({FOLDER}), and give the same command again"
_SERVER_REMEDY = f"see that its server can be reached, or unset {MODE} to write files here"


def open_wandb(project: str, name: str) -> Tracker:
    """Files, or the server.

    Raises:
        FedscopeError: wandb is not installed, switched off, or not logged in.
    """
    mode = os.environ.get(MODE, "") or _OFFLINE[0]
    if mode not in (*_OFFLINE, *_ONLINE):
        raise FedscopeError(f"{MODE} = {mode} switches wandb off; unset it to write files here, or set it to online")
    if mode in _OFFLINE:  # or its makers are told what goes wrong
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        import wandb
    except ImportError:
        raise refuse_missing(NAME) from None
    return WandbFiles(wandb, project, name) if mode in _OFFLINE else WandbServer(wandb, project, name)


class WandbFiles:
    """An offline run's folder, which is written as a whole and then takes its place.

    A process of wandb's own writes these files, and goes on for a while after its parent was killed. So they are made
    in a folder of their own, which a killed call leaves aside, and the folder that is renamed has every round once.
    """

    def __init__(self, library: Any, project: str, name: str) -> None:
        self._library, self._project, self._name = library, project, name
        self._version = str(getattr(library, "__version__", "of an unknown version"))
        self._root = Path(os.environ.get(FOLDER) or ".") / "wandb"
        self._given: Snapshot | None = None
        self.where = f"{self._root}"
        self.looked_at = ""

    def write(self, run: Snapshot) -> None:
        """Keep it for :meth:`close`: nobody reads an offline run before it is synced."""
        self._given = run
        self.where = str(self._root / folder_of(run, self._project))
        self.looked_at = f"wandb sync {self.where}"

    def close(self) -> None:
        """Write the folder anew, unless it holds the same."""
        run = self._given
        if run is None:
            return
        place, about = self._root / folder_of(run, self._project), _about(run, self._project)
        refuse_strange_folder(place, run)
        if _read_about(place) == about:
            return
        aside = f".fedscope-{id_of(run, self._project)}-"
        with explained(NAME, self._version, _FOLDER_REMEDY):
            self._root.mkdir(parents=True, exist_ok=True)
            for left in self._root.glob(f"{aside}*"):  # of a call that was killed
                shutil.rmtree(left, ignore_errors=True)
            staging = self._root / f"{aside}{secrets.token_hex(4)}"
            staging.mkdir()
            try:
                own = _opened(self._library, run, self._project, self._name, mode="offline", dir=str(staging))
                made = Path(own.dir).parent
                _log(self._library, own, run, 0, {})
                own.finish()
                (made / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
                if place.exists():
                    place.rename(staging / "before")
                made.rename(place)
            finally:
                shutil.rmtree(staging, ignore_errors=True)


class WandbServer:
    """A run on a server, which says at the start which round it has last."""

    def __init__(self, library: Any, project: str, name: str) -> None:
        self._library, self._project, self._name = library, project, name
        self._version = str(getattr(library, "__version__", "of an unknown version"))
        with explained(NAME, self._version, _SERVER_REMEDY):
            if not library.login(prompt=False):
                raise FedscopeError(
                    f"wandb is not logged in, and {MODE} = {os.environ.get(MODE)} sends to its server; log in: wandb "
                    f"login, or unset {MODE} to write files here"
                )
        self.where = f"run {name} of wandb's project {project}"
        self.looked_at = ""
        self._own: Any = None
        self._last, self._figures = 0, dict[str, str]()

    def write(self, run: Snapshot) -> None:
        """Log what is missing."""
        with explained(NAME, self._version, _SERVER_REMEDY):
            if self._own is None:
                self._own = _opened(self._library, run, self._project, self._name)
                self.looked_at = str(self._own.url or "")
                there = dict(self._own.summary)
                self._last = int(there.get(AXIS) or 0)
                pictures = {key: value for key, value in there.items() if hasattr(value, "get")}
                self._figures = {key: str(value.get("caption")) for key, value in pictures.items()}
            self._last = _log(self._library, self._own, run, self._last, self._figures)

    def close(self) -> None:
        """Wait until everything is sent."""
        if self._own is not None:
            with explained(NAME, self._version, _SERVER_REMEDY):
                self._own.finish()
            self._own = None


def _opened(library: Any, run: Snapshot, project: str, name: str, **more: Any) -> Any:
    """wandb's own run, of which nothing but what is given is recorded: neither this machine nor this program."""
    quiet: Callable[..., Any] = library.Settings
    settings = quiet(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        disable_job_creation=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
    own = library.init(
        project=project,
        id=id_of(run, project),
        name=name,
        resume="allow",
        config=dict(run.settings),
        settings=settings,
        reinit="finish_previous",
        **more,
    )
    own.define_metric(AXIS)
    own.define_metric("*", step_metric=AXIS)
    return own


def _log(library: Any, own: Any, run: Snapshot, last: int, figures: dict[str, str]) -> int:
    """Log the rounds after ``last`` and the figures that are not there, which are noted; returns the last round."""
    with tempfile.TemporaryDirectory() as folder:
        images = {}
        for picture in run.pictures:
            key = f"figures/{picture.name}"
            if figures.get(key) == picture.digest:
                continue
            path = Path(folder, f"{picture.digest}.png")
            path.write_bytes(picture.content)
            images[key] = library.Image(str(path), caption=picture.digest)
            figures[key] = picture.digest
        points = [point for point in run.points if point.round > last]
        for point in points:
            more = images if point is points[-1] else {}
            own.log({AXIS: point.round, **point.values, **more})
        if images and not points:
            own.log({AXIS: run.last, **images})
        return run.last


def id_of(run: Snapshot, project: str) -> str:
    """What wandb knows the run by: the same for the same run under the same name."""
    return hashlib.sha256(f"{run.identity} {project} {run.name}".encode("utf-8", "surrogatepass")).hexdigest()[:12]


def folder_of(run: Snapshot, project: str) -> str:
    """The name of an offline run's folder, as wandb forms it, with the time at which the run was created."""
    when = datetime.fromtimestamp(timestamp(run.created), UTC)
    return f"offline-run-{when:%Y%m%d_%H%M%S}-{id_of(run, project)}"


def refuse_strange_folder(place: Path, run: Snapshot) -> None:
    """Refuse to replace a folder that is not of this run.

    Raises:
        FedscopeError: names it.
    """
    if place.is_symlink() or (place.exists() and _read_about(place).get("identity") != run.identity):
        raise FedscopeError(f"{place} is in the way, and fedscope has not written it; move it away")


def _about(run: Snapshot, project: str) -> dict[str, Any]:
    """What tells a folder from one of an earlier call."""
    told = hashlib.sha256(repr((project, sorted(run.settings.items()))).encode("utf-8", "surrogatepass"))
    for point in run.points:
        told.update(repr((point.round, sorted(point.values.items()))).encode())
    for picture in run.pictures:
        told.update(f"{picture.name} {picture.digest}".encode("utf-8", "surrogatepass"))
    return {"identity": run.identity, "rounds": len(run.points), "last": run.last, "sha256": told.hexdigest()}


def _read_about(place: Path) -> dict[str, Any]:
    try:
        found = json.loads((place / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
