"""mlflow: where ``MLFLOW_TRACKING_URI`` says, by default a file of this folder."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import quoted
from .snapshot import IDENTITY, Snapshot
from .tracker import explained, refuse_missing, refuse_other_numbers

NAME = "mlflow"
URI = "MLFLOW_TRACKING_URI"
_REMEDY = (
    f"check {URI}, and for a server that you are logged in (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
    "MLFLOW_TRACKING_TOKEN)"
)
_OTHER = "give another --project, or delete the run in mlflow"
#: metrics and parameters that a server takes at once
_MOST, _MOST_PARAMETERS = 1000, 100
#: letters of a parameter that every version keeps, and of a metric's or a parameter's name
_LONGEST, _LONGEST_NAME = 500, 250


class MLflow:
    """A run of an experiment of mlflow's.

    It is asked what every metric has of which step, and given the others. Another value of a step would stand beside
    the first, so it is refused. A figure is an artifact under its name, with its
    digest in a tag; written again it is the same artifact.
    """

    def __init__(self, project: str, name: str) -> None:
        if not os.environ.get(URI):  # else the user's own settings decide what a server is told
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault(
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"
        )  # its own 7 take minutes to say that nobody is there
        try:
            import mlflow
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise refuse_missing(NAME) from None
        self._metric, self._param = Metric, Param
        self._version = str(getattr(mlflow, "__version__", "of an unknown version"))
        self._project, self._name = project, name
        with explained(NAME, self._version, _REMEDY):
            uri = re.sub(r"//[^/@]*@", "//", str(mlflow.get_tracking_uri()))  # a password may stand in it
            self._client: Any = MlflowClient()
        self.where = f"run {name} of mlflow's experiment {project} in {uri}"
        here = uri.startswith(("sqlite:", "file:", "/"))
        self.looked_at = f"mlflow ui --backend-store-uri {quoted(uri)}" if here else uri
        self._run = ""
        #: what is there by (tag, round)
        self._there: dict[tuple[str, int], float] = {}
        self._figures: dict[str, str] = {}
        self._is_complete = False

    def write(self, run: Snapshot) -> None:
        """Log what is missing."""
        self._is_complete = run.is_complete
        run = _as_mlflow_spells(run)
        with explained(NAME, self._version, _REMEDY):
            if not self._run:
                self._open(run)
            refuse_other_numbers(run, self._there, self.where, _OTHER)
            missing = [
                (self._metric(tag, value, round(1000 * point.wall), point.round), ((tag, point.round), value))
                for point in run.points
                for tag, value in point.values.items()
                if (tag, point.round) not in self._there
            ]
            for some in _portions(missing, _MOST):
                self._client.log_batch(self._run, metrics=[metric for metric, _ in some])
                self._there |= dict(place for _, place in some)
            for picture in run.pictures:
                tag = _tag_of(picture.name)
                if self._figures.get(tag) == picture.digest:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder, f"{picture.name}.png")
                    path.write_bytes(picture.content)
                    self._client.log_artifact(self._run, str(path), "figures")
                self._client.set_tag(self._run, tag, picture.digest)
                self._figures[tag] = picture.digest

    def close(self) -> None:
        """Say that the run has ended, where it has."""
        if self._run and self._is_complete:
            with explained(NAME, self._version, _REMEDY):
                self._client.set_terminated(self._run)

    def _open(self, run: Snapshot) -> None:
        """Find this run's record, or make it; ask what it has."""
        found = self._client.get_experiment_by_name(self._project)
        if found is not None and found.lifecycle_stage != "active":
            raise FedscopeError(
                f"mlflow's experiment {self._project} was deleted; restore it, or give another --project"
            )
        experiment = found.experiment_id if found is not None else self._client.create_experiment(self._project)
        mine = self._client.search_runs([experiment], f"tags.`{IDENTITY}` = '{run.identity}'")
        if mine:
            own = mine[0]
        else:
            began = round(1000 * run.points[0].wall) if run.points else None
            own = self._client.create_run(
                experiment, run_name=self._name, tags={IDENTITY: run.identity}, start_time=began
            )
        self._run = own.info.run_id
        self._figures = dict(own.data.tags)
        settings = [
            self._param(spell(key), str(value)[:_LONGEST])
            for key, value in run.settings.items()
            if spell(key) not in own.data.params and key != IDENTITY
        ]
        for some in _portions(settings, _MOST_PARAMETERS):
            self._client.log_batch(self._run, params=some)
        tags = own.data.metrics
        self._there = {
            (tag, one.step): one.value for tag in tags for one in self._client.get_metric_history(self._run, tag)
        }


def _as_mlflow_spells(run: Snapshot) -> Snapshot:
    """Return a run whose numbers are called as in mlflow, where what is there is looked up by these names."""
    points = (replace(point, values={spell(tag): value for tag, value in point.values.items()}) for point in run.points)
    return replace(run, points=tuple(points))


def spell(name: str) -> str:
    """Return a name with letters that mlflow takes: no others than in words, ``.``, ``-``, ``/`` and spaces, and no
    path that leads to another one. No two names become one: fedscope's own have no spaces.

    >>> spell("test/test_error"), spell("training/precision@10"), spell("training/a//b")
    ('test/test_error', 'training/precision at 10', 'training/a/ /b')
    """
    parts = [f" {part}" if part in ("", ".", "..") else re.sub(r"[^\w.-]", _in_words, part) for part in name.split("/")]
    spelled = "/".join(parts)
    if len(spelled) <= _LONGEST_NAME:
        return spelled
    return f"{spelled[: _LONGEST_NAME - 20]} {_short_digest(name)}"


def _in_words(letter: re.Match[str]) -> str:
    return " at " if letter[0] == "@" else f" {ord(letter[0]):x} "


def _tag_of(name: str) -> str:
    """Of a figure's digest: mlflow's tags hold few kinds of letters."""
    return f"fedscope.figure.{_short_digest(name)}"


def _short_digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _portions(values: list[Any], most: int) -> Iterator[list[Any]]:
    for at in range(0, len(values), most):
        yield values[at : at + most]
