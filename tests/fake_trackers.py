"""Trackers as their own users see them, small: what is logged lies in lists that a test reads."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Killed(BaseException):
    """Stands for a kill: nothing of the product's own may catch it."""


class Fakes:
    """All three, put in the place of the installed ones.

    Attributes:
        trackio: rows (run, step, values), which are there once `finish` was called, as trackio's thread brings them.
        mlflow: (run, key, step) to value, in the order in which they came.
        wandb: (step, values) of all runs on the server; offline ones lie in their folders.
        left: how many points may come before a kill; None for all.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trackio: list[tuple[str, int, dict[str, Any]]] = []
        self.settings: dict[str, dict[str, Any]] = {}
        self.inits: list[dict[str, Any]] = []
        self.mlflow: list[tuple[str, str, int, float, int]] = []
        self.runs: dict[str, Any] = {}
        self.artifacts: list[str] = []
        self.wandb: list[dict[str, Any]] = []
        self.left: int | None = None
        self.logged_in = True

    def point(self) -> None:
        """One more comes, or a kill."""
        if self.left is not None:
            if not self.left:
                raise Killed
            self.left -= 1

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have them imported."""
        modules = {**self._trackio(), **self._mlflow(), "wandb": self._wandb()}
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)

    # --- trackio ---

    def _trackio(self) -> dict[str, ModuleType]:
        queued: list[tuple[str, int, dict[str, Any]]] = []
        now: list[str] = []

        def init(project: str, *, name: str, config: dict[str, Any], **more: Any) -> Any:
            self.inits.append({"project": project, "name": name, **more})
            self.settings.setdefault(name, config)
            now[:] = [name]
            queued.clear()
            last = max((step for run, step, _ in self.trackio if run == name), default=-1)
            print("* Trackio project initialized")  # which nobody asked for
            return SimpleNamespace(_next_step=last + 1)

        def log(values: dict[str, Any], step: int) -> None:
            queued.append((now[0], step, values))

        def finish() -> None:
            while queued:
                self.point()
                self.trackio.append(queued.pop(0))

        storage = SimpleNamespace(
            validate_project_name=lambda project: None,
            get_project_db_path=lambda project: self.folder if self.trackio else self.folder / "none",
            get_logs=lambda project, name: [
                {**values, "step": step, "timestamp": "now"} for run, step, values in self.trackio if run == name
            ],
            get_run_config=lambda project, name: self.settings.get(name),
        )
        image = lambda path, caption: {"_type": "trackio.image", "caption": caption}  # noqa: E731
        top = _module("trackio", __version__="0.43.1", init=init, log=log, finish=finish, Image=image)
        return {
            "trackio": top,
            "trackio.sqlite_storage": _module("trackio.sqlite_storage", SQLiteStorage=storage),
            "trackio.utils": _module("trackio.utils", get_storage_mode=lambda: "sqlite"),
            "huggingface_hub": _module("huggingface_hub", get_token=lambda: "token" if self.logged_in else None),
        }

    # --- mlflow ---

    def _mlflow(self) -> dict[str, ModuleType]:
        fakes = self

        class Client:
            def get_experiment_by_name(self, name: str) -> Any:
                return SimpleNamespace(experiment_id="7", lifecycle_stage="active") if fakes.runs else None

            def create_experiment(self, name: str) -> str:
                if not fakes.logged_in:
                    raise RuntimeError("403: who are you?\nmore lines")
                return "7"

            def search_runs(self, experiments: list[str], asked: str) -> list[Any]:
                return [run for run in fakes.runs.values() if f"'{run.identity}'" in asked]

            def create_run(self, experiment: str, run_name: str, tags: dict[str, str], start_time: int) -> Any:
                data = SimpleNamespace(tags=dict(tags), params={}, metrics={})
                made = SimpleNamespace(
                    identity=tags["fedscope.identity"], info=SimpleNamespace(run_id=f"r{len(fakes.runs)}"), data=data
                )
                fakes.runs[made.info.run_id] = made
                return made

            def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
                fakes.runs[run].data.params |= {one.key: one.value for one in params}
                for one in (*params, *metrics):
                    _refuse_name(one.key)
                for one in metrics:
                    fakes.point()
                    fakes.runs[run].data.metrics[one.key] = one.value
                    fakes.mlflow.append((run, one.key, one.step, one.value, one.timestamp))

            def get_metric_history(self, run: str, key: str) -> list[Any]:
                return [SimpleNamespace(step=one[2], value=one[3]) for one in fakes.mlflow if one[:2] == (run, key)]

            def log_artifact(self, run: str, path: str, folder: str) -> None:
                fakes.artifacts.append(f"{folder}/{Path(path).name}")

            def set_tag(self, run: str, key: str, value: str) -> None:
                fakes.runs[run].data.tags[key] = value

            def set_terminated(self, run: str) -> None:
                fakes.runs[run].ended = True

        entities = _module(
            "mlflow.entities",
            Metric=lambda key, value, timestamp, step: SimpleNamespace(
                key=key, value=value, timestamp=timestamp, step=step
            ),
            Param=lambda key, value: SimpleNamespace(key=key, value=value),
        )
        top = _module("mlflow", __version__="2.0", get_tracking_uri=lambda: "https://me:secret@host/api")
        return {
            "mlflow": top,
            "mlflow.entities": entities,
            "mlflow.tracking": _module("mlflow.tracking", MlflowClient=Client),
        }

    # --- wandb ---

    def _wandb(self) -> ModuleType:
        fakes = self

        class Own:
            def __init__(self, id: str, **given: Any) -> None:
                fakes.inits.append({"id": id, **given})
                self.url, self.summary, self.offline = "https://host/run", dict[str, Any](), given.get("mode")
                self.rows: list[dict[str, Any]] = [] if self.offline else fakes.wandb
                for row in self.rows:
                    self.summary |= row
                if self.offline:
                    self.dir = str(Path(given["dir"], "wandb", f"offline-run-1-{id}", "files"))
                    Path(self.dir).mkdir(parents=True)

            def define_metric(self, *_: str, **__: str) -> None:
                pass

            def log(self, values: dict[str, Any]) -> None:
                fakes.point()
                self.rows.append(values)
                if self.offline:
                    Path(self.dir, "rows.txt").write_text(repr(self.rows))

            def finish(self) -> None:
                pass

        return _module(
            "wandb",
            __version__="0.31.5",
            init=lambda id, **given: Own(id, **given),
            login=lambda prompt: fakes.logged_in,
            Settings=lambda **given: given,
            Image=lambda path, caption: {"caption": caption},
        )


def _refuse_name(name: str) -> None:
    """As mlflow 3.17 does on Windows, which takes the fewest letters."""
    path = posixpath.normpath(name)
    if not re.match(r"^[/\w.\- ]*$", name) or path != name or path.startswith(("..", "/")) or len(name) > 250:
        raise ValueError(f"Invalid value {name!r}: names may only contain alphanumerics and a few letters more")


def _module(name: str, **content: Callable[..., Any] | Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made
