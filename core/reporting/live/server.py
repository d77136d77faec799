"""A server of one page, for browsers of this machine.

What a browser may be made to do by another site is refused: only GET, only under the names of this machine (or a site
that gives its own name this address could read the page), only from the page itself.
"""

from __future__ import annotations

import errno
import re
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ...analysis.runs import open_run
from ...checkpoints import FedscopeError
from ...training.trackers.pictures import picture_files
from .page import LivePage, address_of

ADDRESS = "127.0.0.1"
PORT = 8765
#: seconds after which a browser that says nothing is left
PATIENCE = 20
#: a tunnel to this machine may have another port
_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?", re.IGNORECASE)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
#: of what is no page
_NOTHING = "default-src 'none'; frame-ancestors 'none'"


class WatchServer(ThreadingHTTPServer):
    """Serves a run's page until it is closed."""

    daemon_threads = True

    def __init__(self, run: Path, port: int = PORT) -> None:
        """Take the port.

        Raises:
            FedscopeError: no run there, or a model of it; the port is in use, or not for everybody.
        """
        open_run(run, "")
        self.run, self.page = run, LivePage(run)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise FedscopeError(
                    f"--port {port} is in use by another program; give another one, or --port 0 for any that is free"
                ) from None
            raise FedscopeError(
                f"--port {port} cannot be taken ({error.strerror}); give one from 1024 to 65535, or --port 0"
            ) from None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over browsers that went away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers a request."""

    server: WatchServer
    server_version, sys_version = "fedscope", ""
    timeout = PATIENCE

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # all but GET
            return self._refuse_method
        raise AttributeError(name)

    def do_GET(self) -> None:
        """Answer with the page, its parts or a figure."""
        path = self.path.partition("?")[0]
        if not self._is_own(path):
            self._send(HTTPStatus.FORBIDDEN, b"Only pages of this machine may ask here.\n")
        elif path == "/":
            try:
                page = self.server.page.whole()
            except FedscopeError:  # the run is just gone
                self._send(HTTPStatus.NOT_FOUND, b"There is no run any more.\n")
                return
            policy = "frame-ancestors 'none'"
            self._send(HTTPStatus.OK, page.encode("utf-8", "replace"), "text/html; charset=utf-8", policy)
        elif path == "/parts":
            parts = self.server.page.parts()
            self._send(HTTPStatus.OK, parts.encode("utf-8", "replace"), "text/html; charset=utf-8")
        else:
            self._send_figure(path)

    def _send_figure(self, path: str) -> None:
        for one in picture_files(self.server.run / "figures"):
            if path == f"/{address_of(one)}" and (content := one.read()) is not None:
                self._send(HTTPStatus.OK, content, "image/png", keeps=True)
                return
        self._send(HTTPStatus.NOT_FOUND, b"There is nothing here.\n")

    def _is_own(self, path: str) -> bool:
        """Check whether a page of this server, or a person, asks."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
            return False
        origins = self.headers.get_all("Origin") or []
        if any(origin.lower() != f"http://{hosts[0]}".lower() for origin in origins):
            return False
        # a link on another site may lead to the page, which shows nothing to that site; the rest is the page's own
        return path == "/" or self.headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none")

    def _refuse_method(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"Only GET is answered.\n", allow=True)

    def _send(
        self,
        status: HTTPStatus,
        content: bytes,
        kind: str = "text/plain; charset=utf-8",
        policy: str = _NOTHING,
        *,
        keeps: bool = False,
        allow: bool = False,
    ) -> None:
        self.send_response(status)
        keep = "private, max-age=31536000, immutable" if keeps else "no-store"
        more = {"Allow": "GET"} if allow else {}
        for name, value in {
            **_HEADERS,
            **more,
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": policy,
            "Cache-Control": keep,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a request a second is none of the user's news."""
