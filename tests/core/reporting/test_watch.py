"""``watch``: one page of a run that goes on, for this machine's browsers, which no other site may ask."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, RoundRecord, Run, RunWriter
from fedscope.cli.main import run as command
from fedscope.reporting.live import page as module
from fedscope.reporting.live.charts import MOST, chart_html, thinned
from fedscope.reporting.live.page import LivePage, progress_of
from fedscope.reporting.live.server import WatchServer
from fedscope.training.curves.measures import measure_of
from fedscope.training.curves.run_curve import Curve, curve_of
from fedscope.training.trackers.pictures import PNG, picture_files

pytestmark = pytest.mark.same_elsewhere

CHROMIUM = Path("/usr/bin/chromium")
HOSTILE = "<img src=x onerror=alert(1)>&\"'"


def recorded(path: Path, *rows: Mapping[str, float], planned: int = 4, **info: Any) -> Run:
    """A run of rounds without models."""
    empty = np.zeros(0)
    known = {"layout": [], "created": "2026-01-02T03:04:05+00:00", "identity": "a", **info}
    with RunWriter.create(path, known, {"run": {"rounds": planned}}, None) as writer:
        for number, own in enumerate(rows, 1):
            writer.write(RoundRecord(number, None, None, None, None, *[empty] * 5, metrics=dict(own)))
    return Run.open(path)


ROWS = tuple({"test_loss": 1.0 / t, "test_error": 0.5 / t, "seconds": 2.0, "drift_kept": 0.5} for t in range(1, 5))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "ima", *ROWS[:3])
    return tmp_path / "ima"


def figure(path: Path, name: str, content: bytes = PNG) -> Path:
    (path / "figures").mkdir(exist_ok=True)
    (path / "figures" / f"{name}.png").write_bytes(content)
    return path / "figures" / f"{name}.png"


@contextmanager
def served(path: Path) -> Iterator[WatchServer]:
    server = WatchServer(path, 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(
    server: WatchServer, target: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Ask with the target as it stands: a client would leave ``..`` out."""
    port = server.server_address[1]
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    link.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": f"127.0.0.1:{port}", **(headers or {})}.items():
        if value:
            link.putheader(name, value)
    link.endheaders()
    answer = link.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    link.close()
    return found


class Tags(HTMLParser):
    """A page's tags with their attributes, its text, and the values that run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


# --- what it says ---


def test_the_page_is_the_run_as_it_is(path: Path) -> None:
    figure(path, "old")
    os.utime(path / "figures" / "old.png", (1, 1))
    figure(path, "plane")
    with served(path) as server:
        status, headers, content = ask(server, "/")
        page = Tags(content.decode())
        assert status == 200
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert "Round 3 of 4" in page.text
        assert [attrs["id"] for tag, attrs in page.tags if tag == "section"] == ["head", "curves", "drift", "figures"]
        labels = [attrs["aria-label"] for tag, attrs in page.tags if tag == "svg"]
        assert labels == [
            "test loss (nats): 0.333 in round 3",
            "test error (%): 16.7 in round 3",
            "seconds a round: 2 in round 3",
            "length kept by the mean update: 0.5 in round 3",
        ]
        assert [attrs["alt"] for tag, attrs in page.tags if tag == "img"] == ["plane", "old"]  # the newest first
        for tag, attrs in page.tags:
            if tag == "img":
                status, headers, picture = ask(server, f"/{attrs['src']}")
                assert (status, headers["Content-Type"], picture) == (200, "image/png", PNG)
        before = ask(server, "/parts")[2].decode()
        assert before in content.decode()
        with RunWriter.open(path) as writer:
            writer.write(RoundRecord(4, None, None, None, None, *[np.zeros(0)] * 5, metrics=dict(ROWS[3])))
        now = ask(server, "/parts")[2].decode()
        assert "Complete: 4 of 4 rounds." in now
        assert "test loss (nats): 0.25 in round 4" in now
        shutil.rmtree(path)
        gone = Tags(ask(server, "/parts")[2].decode())
        assert [attrs["id"] for tag, attrs in gone.tags if tag == "section"] == ["head", "curves", "drift", "figures"]
        assert "ima" in gone.text
        assert ask(server, "/")[0] == 404


def test_a_run_without_rounds_numbers_or_figures_says_what_would_be_there(tmp_path: Path) -> None:
    recorded(tmp_path / "none")
    parts = LivePage(tmp_path / "none").parts()
    assert "Round 0 of 4." in parts
    for said in ("Nothing was measured yet.", "train with --set record.drift=true", "No figures yet"):
        assert said in parts


def test_charts_are_drawn_again_only_where_numbers_are_new(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks every two seconds, and a run of a thousand rounds takes a tenth of a second to draw."""
    drawn: list[int] = []

    def counted(run: Run) -> Curve:
        drawn.append(len(run.rounds))
        return curve_of(run)

    monkeypatch.setattr(module, "curve_of", counted)
    page = LivePage(path)
    page.parts()
    page.parts()
    figure(path, "new")
    assert 'alt="new"' in page.parts()
    assert drawn == [3]
    with RunWriter.open(path) as writer:
        writer.write(RoundRecord(4, None, None, None, None, *[np.zeros(0)] * 5, metrics=dict(ROWS[3])))
    assert "in round 4" in page.parts()
    assert drawn == [3, 4]


def test_how_far_it_is(path: Path) -> None:
    run = Run.open(path)
    curve, there = curve_of(run), (path / "metrics.csv").stat().st_mtime
    assert progress_of(run, curve, there + 3) == (
        "",
        "Round 3 of 4; the last one came 3 s ago, 2 s a round, about 2 s left.",
    )
    tone, said = progress_of(run, curve, there + 600)
    assert tone == "bad"
    assert said.endswith("the last one came 10 min ago, and those before took 2 s each: it may have stopped.")
    assert progress_of(recorded(path.with_name("whole"), *ROWS), curve) == ("good", "Complete: 4 of 4 rounds.")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ((10, 15, 20), "5 s a round, about 5 s left"),  # 3 s for writing each
        ((10, 15, 3000, 3005), "5 s a round, about 5 s left"),  # paused for most of an hour
        ((10, 15, 3000), "5 s a round, about 5 s left"),
        ((10, 3000, 3005), "5 s a round, about 5 s left"),
        ((10, 86410), "2 s a round, about 2 s left"),  # of writing nothing is known
        ((10, 86410, 172810), "2 s a round, about 2 s left"),
        ((10, 50), "40 s a round, about 40 s left"),  # a large model
        ((10, 10, 10), "2 s a round, about 2 s left"),  # copied
        ((30, 20, 10), "2 s a round, about 2 s left"),
    ],
)
def test_the_time_left_counts_the_writing_of_rounds(written: tuple[int, ...], said: str, tmp_path: Path) -> None:
    run = recorded(tmp_path / "large", *[{"seconds": 2.0}] * len(written), planned=len(written) + 1)
    for t, when in enumerate(written, 1):
        os.utime(run.path / f"rounds/{t:05d}.h5", (when, when))
    there = (run.path / "metrics.csv").stat().st_mtime
    assert progress_of(run, curve_of(run), there + 3) == (
        "",
        f"Round {len(written)} of {len(written) + 1}; the last one came 3 s ago, {said}.",
    )


def test_rounds_of_the_run_that_a_branch_begins_from_say_nothing_of_its_pace(tmp_path: Path) -> None:
    """Their files are that run's, with its times; it may have been trained a moment or a year before."""
    rows = [{"seconds": 2.0}] * 3
    run = recorded(tmp_path / "branch", *rows, planned=5, branch={"run": "fma", "round": 2, "history": []})
    for t, when in enumerate((10, 15, 40), 1):
        os.utime(run.path / f"rounds/{t:05d}.h5", (when, when))
    there = (run.path / "metrics.csv").stat().st_mtime
    assert progress_of(run, curve_of(run), there + 3) == (
        "",
        "Round 3 of 5; the last one came 3 s ago, 2 s a round, about 4 s left.",
    )
    tone, said = progress_of(run, curve_of(run), there + 600)
    assert (tone, said) == (
        "bad",
        "Round 3 of 5; the last one came 10 min ago, and those before took 2 s each: it may have stopped.",
    )


def test_an_averaged_model_is_the_line_and_the_global_one_goes_on_thin() -> None:
    none = np.nan
    values = {"test_error": np.array([0.8, 0.6, 0.5]), "averaged_test_error": np.array([none, 0.4, 0.2])}
    drawn = chart_html(Curve("ima", np.arange(1, 4), values), measure_of("test_error"))
    lines = dict(re.findall(r'<polyline class="(\w+)" points="([^"]*)"', drawn))
    heights = {kind: [float(place.split(",")[1]) for place in line.split()] for kind, line in lines.items()}
    assert heights["deployed"][0] == heights["global"][0] == 8.0  # the top: 80 %
    assert heights["deployed"][2] == 132.0  # the bottom: 20 %
    assert heights["global"][1] == pytest.approx(8 + 124 * 20 / 60, abs=0.1)
    assert "test error (%) <b>20</b>" in drawn


@pytest.mark.parametrize("values", [[np.inf, np.nan], [np.inf, 1.0, -np.inf], [0.0, 0.0], [1e-300, 1e300], [3.0]])
def test_any_numbers_are_drawn_within_the_picture(values: list[float]) -> None:
    """Which wrong line would put NaN into a page: no room between least and greatest, a logarithm of 0."""
    curve = Curve("x", np.arange(1, len(values) + 1), {"train_loss": np.array(values)})
    drawn = chart_html(curve, measure_of("train_loss"))
    assert "nan" not in drawn
    places = [float(part) for line in re.findall(r'points="([^"]*)"', drawn) for part in re.split("[ ,]", line)]
    assert all(0 <= place <= 320 for place in places)
    assert chart_html(curve, measure_of("test_loss")) == ""


def test_a_long_run_stays_small_and_keeps_its_peaks() -> None:
    values = np.zeros(100_000)
    values[[17, 70_001]] = 5.0, -5.0
    kept = thinned(values)
    assert len(kept) <= MOST
    assert {0, 17, 70_001, 99_999} <= set(kept.tolist())


# --- what it refuses ---


def test_only_get_is_answered(path: Path) -> None:
    with served(path) as server:
        for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW"):
            for target in ("/", "/parts", "/nothing"):
                status, headers, _ = ask(server, target, method)
                assert (status, headers["Allow"]) == (405, "GET"), method


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": ""},
        {"Host": "evil.example"},
        {"Host": "evil.example:8765"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost@evil.example"},
        {"Host": "127.0.0.1:8765 evil"},
        {"Host": "0.0.0.0"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "localhost:1", "Origin": "http://localhost:2"},
        {"Host": "localhost:1", "Origin": "https://localhost:1"},
    ],
    ids=str,
)
def test_another_site_is_told_nothing(path: Path, headers: Mapping[str, str]) -> None:
    """A name of its own that leads to this machine, or a page of its own that asks."""
    figure(path, "plane")
    with served(path) as server:
        (source,) = re.findall(r'src="([^"]*)"', ask(server, "/parts")[2].decode())
        for target in ("/", "/parts", f"/{source}"):
            status, _, content = ask(server, target, headers=headers)
            assert status == 403
            assert b"ima" not in content
            assert PNG not in content
        port = server.server_address[1]
        for own in (
            {"Host": f"localhost:{port}"},
            {"Host": "LocalHost:9999"},  # a tunnel from another port
            {"Host": "localhost"},
            {"Host": "localhost:5", "Origin": "http://localhost:5"},
            {"Sec-Fetch-Site": "same-origin"},
        ):
            assert ask(server, "/parts", headers=own)[0] == 200
        assert ask(server, "/parts", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert ask(server, f"/{source}", headers={"Sec-Fetch-Site": "same-site"})[0] == 403
        assert ask(server, "/", headers={"Sec-Fetch-Site": "cross-site"})[0] == 200  # a link


def test_two_hosts_are_none(path: Path) -> None:
    with served(path) as server:
        link = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
        link.putrequest("GET", "/", skip_host=True)
        link.putheader("Host", "localhost")
        link.putheader("Host", "evil.example")
        link.endheaders()
        assert link.getresponse().status == 403
        link.close()


@pytest.mark.parametrize(
    "target",
    [
        *("/../secret.png", "/figures/../run.json", "/figures/..%2f..%2fsecret.png", "/figures/%2e%2e/run.json"),
        *("/run.json", "/figures/", "/figures", "/figures/plane.png", "/figures/secret.png", "//etc/passwd", "/%00"),
        *("/figures/link.png", "http://evil.example/", "/figures//plane.png", "*", "/parts/", "/parts%20"),
    ],
)
def test_no_address_leads_to_another_file(path: Path, target: str) -> None:
    (path.parent / "secret.png").write_bytes(PNG + b"secret")
    figure(path, "plane")
    (path / "figures" / "link.png").symlink_to(path.parent / "secret.png")
    with served(path) as server:
        status, headers, content = ask(server, target)
        assert (status, content) == (404, b"There is nothing here.\n")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "link" not in ask(server, "/parts")[2].decode()


def test_a_figure_that_became_a_link_meanwhile_is_not_followed(path: Path) -> None:
    secret = path.parent / "secret.png"
    secret.write_bytes(PNG + b"secret")
    drawn = figure(path, "plane")
    (seen,) = picture_files(path / "figures")
    drawn.unlink()
    drawn.symlink_to(secret)
    assert seen.read() is None
    shutil.rmtree(path / "figures")
    (path / "figures").symlink_to(path.parent)
    assert picture_files(path / "figures") == []


def test_names_are_text_and_nothing_but_the_pages_own_script_runs(tmp_path: Path) -> None:
    run = recorded(tmp_path / HOSTILE.replace("/", ""), *ROWS, source=HOSTILE, clients=3)
    figure(run.path, f"x{HOSTILE}".replace("/", ""))
    page = Tags(html := LivePage(run.path).whole())
    assert [attrs for tag, attrs in page.tags if "onerror" in attrs] == []
    assert sum(tag == "img" for tag, _ in page.tags) == 1
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    (policy,) = [str(attrs["content"]) for _, attrs in page.tags if "http-equiv" in attrs and "content" in attrs][:1]
    assert policy.startswith("default-src 'none'; img-src data: blob: 'self'; connect-src 'self'; style-src")
    assert re.search(r" script-src 'sha256-\S+'; ", policy)
    assert HOSTILE not in html
    assert HOSTILE.replace("/", "") in page.text


def test_every_answer_says_that_no_other_site_may_show_it(path: Path) -> None:
    with served(path) as server:
        for target in ("/", "/parts", "/nothing"):
            _, headers, _ = ask(server, target)
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert headers["Cache-Control"] == "no-store"
            assert "Access-Control-Allow-Origin" not in headers
            assert "Python" not in str(headers)
        assert server.server_address[0] == "127.0.0.1"


# --- the command ---


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert command(["watch", *words]) == 2
    told = capsys.readouterr()
    assert not told.out
    return told.err.removeprefix("fedscope: ").rstrip("\n")


def test_a_port_in_use_and_what_is_no_port(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(path) as server:
        port = server.server_address[1]
        assert refused(capsys, "ima", "--port", str(port)) == (
            f"--port {port} is in use by another program; give another one, or --port 0 for any that is free"
        )
    for port in (-1, 65536):
        assert refused(capsys, "ima", f"--port={port}") == (
            f"--port {port} is no port; give a number from 1024 to 65535, or 0 for any that is free"
        )
    for port in (1, 80, 1023):  # also who may take it: the sentence offers none of them
        assert refused(capsys, "ima", f"--port={port}") == (
            f"--port {port} is a port of the system; give a number from 1024 to 65535, or 0 for any that is free"
        )
    assert refused(capsys, "nothing").startswith("nothing")
    assert refused(capsys, "ima@2") == "ima@2 names a model, but a whole run is asked for; give ima"


def test_a_port_that_is_not_for_everybody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socketserver.TCPServer.server_bind", forbidden)
    monkeypatch.setattr("http.server.HTTPServer.server_bind", forbidden)
    with pytest.raises(FedscopeError, match=r"^--port 80 cannot be taken \(Permission denied\); give one from 1024 to"):
        WatchServer(path, 80)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_cleanly(path: Path, number: signal.Signals) -> None:
    process, url = watching(path)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (128 + number, "")
    assert err.lstrip("\n") == "fedscope: stopped; what was complete is kept\n"


def watching(path: Path) -> tuple[subprocess.Popen[str], str]:
    """The command at work, and where its page is."""
    words = [sys.executable, "-P", "-m", "fedscope", "watch", str(path), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split(" ")[0]


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium here")
def test_a_browser_shows_the_rounds_that_come(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is changed by its own script: a round that came after it was sent is in it, and nothing else ran."""
    figure(path, "x<script>document.documentElement.id='ran'<!--".replace("/", ""))

    def sent(self: LivePage) -> str:
        page = whole(self)
        with RunWriter.open(self.path) as writer:
            writer.write(RoundRecord(4, None, None, None, None, *[np.zeros(0)] * 5, metrics=dict(ROWS[3])))
        return page.replace("<body>", "<body><script>document.documentElement.id = 'ran'</script>", 1)

    whole = LivePage.whole
    monkeypatch.setattr(LivePage, "whole", sent)
    with served(path) as server:
        dom = browsed(server.url, tmp_path, "--dump-dom")
    assert "Complete: 4 of 4 rounds." in dom
    assert 'id="ran"' not in dom
    assert re.search(r'<p id="connection"[^>]*></p>', dom)


def browsed(url: str, folder: Path, *more: str) -> str:
    """What Chromium prints of a page after some seconds, of its own time."""
    flags = (
        "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--virtual-time-budget=9000", "--hide-scrollbars",
        f"--user-data-dir={folder / 'user'}", *more,
    )  # fmt: skip
    return subprocess.run([CHROMIUM, *flags, url], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium here")
def test_the_page_fits_a_telephone(path: Path, tmp_path: Path) -> None:
    """390 pixels are less than Chromium's least window, so the page is in a frame."""
    figure(path, "a-name-without-a-blank-" * 8)
    page = re.sub(r'<meta http-equiv="Content[^>]*>', "", LivePage(path).whole())
    page = page.replace("</body>", "<script>document.title = document.documentElement.scrollWidth</script></body>")
    (tmp_path / "page.html").write_text(page)
    frame = (
        '<iframe src="page.html" width=390 height=900 onload="document.title = this.contentDocument.title"></iframe>'
    )
    (tmp_path / "frame.html").write_text(f"<title>none</title>{frame}")
    dom = browsed(f"file://{tmp_path / 'frame.html'}", tmp_path, "--dump-dom", "--allow-file-access-from-files")
    (width,) = re.findall("<title>([^<]*)</title>", dom)
    assert int(width) <= 390
