"""The component of a server that records its job; a job's files name it by its dotted path."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...io.errors import FedscopeError
from ...io.untrusted import expand_home
from ..recorder import Recorder
from .events import EventRounds

Widget: Any = object  # so that the module can be read without NVFlare
with suppress(ImportError):
    from nvflare.widgets.widget import Widget  # type: ignore[import-not-found, no-redef, unused-ignore]


class RoundRecorder(Widget):  # type: ignore[misc, unused-ignore]
    """Records the rounds of the job that it is in, on the server.

    In a ``config_fed_server.json`` of your own it stands among the components::

        {"id": "fedscope", "path": "fedscope.checkpoints.recorder.nvflare.widget.RoundRecorder",
         "args": {"path": "/data/runs/job", "model": "task:Net", "data": "task:test_set"}}

    Args:
        path: of the new run's folder, on the server; an absolute one.
        method: by default the name of the framework.
        model, data: names.
        clients: the clients' names in the order of their numbers; by default ``site-3`` is client 3.
        standardise, seed, settings, keep, sketch, drift, lora_alpha, base, resume, force: as of
            :class:`~fedscope.Recorder`.

    Raises:
        FedscopeError: NVFlare is not installed.
    """

    def __init__(
        self,
        path: str,
        model: str | None = None,
        data: str | None = None,
        standardise: bool | None = None,
        method: str | None = None,
        seed: int | None = None,
        settings: dict[str, Any] | None = None,
        clients: list[str] | None = None,
        keep: str = "all",
        sketch: int = 0,
        drift: bool = False,
        lora_alpha: float | None = None,
        base: str | None = None,
        resume: bool = False,
        force: bool = False,
    ) -> None:
        if Widget is object:
            raise FedscopeError("nvflare is not installed; pip install nvflare==2.9.0")
        super().__init__()
        # by their names, by which NVFlare writes them into the job's files
        self.path = str(expand_home(path).absolute())
        self.model, self.data, self.standardise = model, data, standardise
        self.method, self.seed, self.settings = method, seed, settings
        self.clients, self.keep, self.sketch, self.drift = clients, keep, sketch, drift
        self.lora_alpha, self.base = lora_alpha, base
        self.resume, self.force = resume, force
        self._rounds = EventRounds(self._open, clients)

    def _open(self) -> Recorder:
        about: dict[str, Any] = {"model": self.model, "data": self.data, "standardise": self.standardise}
        about |= {"method": self.method, "seed": self.seed, "settings": self.settings}
        about |= {"keep": self.keep, "sketch": self.sketch, "drift": self.drift}
        about |= {"lora_alpha": self.lora_alpha, "base": self.base}
        return Recorder(self.path, source="NVFlare", resume=self.resume, force=self.force, **about)

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Take an event of the server; whatever goes wrong is a warning, and the job goes on."""
        self._rounds.handle(event_type, fl_ctx)
