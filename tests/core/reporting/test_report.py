"""The report of runs: what it says is what the runs' files say, and the page needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run as fedscope
from fedscope.reporting.clients import clients_of
from fedscope.reporting.discover import find_results
from fedscope.reporting.missing_results import find_missing, seconds
from fedscope.reporting.report import report
from fedscope.training import Config, train
from fedscope.training.loop.verify_run import check_run

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]


class Page(HTMLParser):
    """A page's tags, and the text of each element that has an id or is one of some kinds."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._in = ""
        self._goes_on = self._whole = False  # in the middle of a line; in what must not be broken
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._in = tag
        self._goes_on = self._whole = ("style", "white-space:nowrap") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in = ""
        self._goes_on, self._whole = self._whole, False

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts.append(data)
        elif self._goes_on:
            self.text[-1] += data
            self._goes_on = False
        elif self._in != "style":
            self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def trained(out: Path, **sections: Any) -> Run:
    tables: dict[str, Any] = {
        "data": {"clients": 6, "partition": "dirichlet:0.5"},
        "model": {"hidden": [8]},
        "run": {"rounds": 3, "participation": 0.5},
        **sections,
    }
    return train(Config.read(tables), out, keep_going=True)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Two runs; of the first a plane, updates and a decomposition lie beside it."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("one", "two"):
        trained(folder / name, client={"lr": 0.05 if name == "one" else 0.02})
    for words in (
        ["plane", "one@3", "--clients", "--grid", "5"],
        ["updates", "one"],
        ["decompose", "one", "--rounds", "last", "--draws", "local:2"],
    ):
        where = str(folder / words[1].partition("@")[0])
        assert fedscope([words[0], where + words[1].removeprefix("one"), *words[2:]]) == 0
    return folder


@pytest.fixture
def runs(asked: Path, tmp_path: Path) -> Path:
    shutil.copytree(asked, tmp_path / "runs")
    return tmp_path / "runs"


def test_the_page_needs_nothing_but_itself(runs: Path) -> None:
    html = report(runs / "one").html
    page = Page(html)
    assert report(runs / "one").html == html
    assert len(html) < 6_000_000
    policy = next(own["content"] for own in page.of("meta") if own.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src ")
    run, data = [], []
    for attrs, text in zip(page.of("script"), page.scripts, strict=True):
        assert "src" not in attrs
        (data if attrs.get("type") == "application/json" else run).append(text)
    hashes = {base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in run}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    assert len(data) == 1
    assert {trace["type"] for trace in json.loads(data[0])["data"]} >= {"surface", "contour"}
    assert not page.of("link")
    assert all(own["src"].startswith("data:image/png;base64,") and len(own["alt"]) > 40 for own in page.of("img"))
    assert len(page.of("img")) >= 4
    assert len(page.of("h1")) == 1


def test_runs_of_other_seeds_are_told(runs: Path) -> None:
    trained(runs / "three", client={"lr": 0.02}, run={"rounds": 3, "participation": 0.5, "seed": 1})
    labelled = Page(report([runs / "one", runs / "three"], labels={"three": "Three"}).html)
    assert (
        "one has seed 0; Three has seed 1 (data.seed 0); none in common, so a difference between these is not one of "
        "the same seeds."
    ) in labelled.words
    for same in (["one", "two"], ["two", "three"]):
        page = Page(report([runs / name for name in same]).html)
        assert "in common" not in page.words, "the same seed, or seeds of one thing"


def test_it_says_what_the_files_say(runs: Path) -> None:
    run = Run.open(runs / "one")
    page = Page(report(run).html)
    sums = check_run(run.path).checksums
    assert f"Yes: 3 rounds are there, {sums:,} checksums hold" in page.words
    metrics = run.round(3).metrics
    own, clients, spread = (metrics[name] for name in ("test_error", "client_error_mean", "client_error_std"))
    assert own is not None
    assert clients is not None
    assert spread is not None
    beside_it = f"{100 * own:.1f} %; the clients have {100 * clients:.1f} ± {100 * spread:.1f} %"
    said = f"in round 3 the average of the clients has an error of {beside_it}"
    assert said in page.words
    verdict = "Yes" if clients - own > spread else "No" if own - clients > spread else "Too close to say"
    assert f"{verdict}: {said}" in page.words
    for found in find_results(run).results:
        for line in found.result.summary().splitlines():
            assert " ".join(line.split()) in page.words
    for path in [runs / "one" / "run.json", *(runs / "one" / "rounds").glob("*.h5")]:
        assert hashlib.sha256(path.read_bytes()).hexdigest() in page.words
    assert (runs / "one" / "config.toml").read_text().split("\n")[1] in "".join(page.text)
    assert "All clients' models of rounds 1-3." in page.words
    (decomposed,) = [one.result for one in find_results(run).results if one.kind.name == "Decomposition"]
    worst = max(abs(row["closure_error"]) for row in decomposed.numbers()["rounds"])
    assert worst < 1e-6  # exactly 0 where threads happen to add so
    assert f"the factors add up to the loss, but for {worst:.0e} of it at most" in page.words
    assert "fedscope cka RUN --rounds last compares what clients answer." in page.words


def test_the_clients_are_those_of_the_rounds(runs: Path) -> None:
    run = Run.open(runs / "one")
    found = {one.id: one for one in clients_of(run)}
    ids = [int(k) for t in run.rounds for k in run.round(t).client_ids]
    assert {k: one.rounds for k, one in found.items()} == {k: ids.count(k) for k in ids}
    assert run.partition is not None
    for k, one in found.items():
        last = run.round(one.last)
        at = last.client_ids.tolist().index(k)
        assert one.loss == float(last.client_loss[at])
        assert one.samples == len(run.partition.clients[k])
        counts = run.partition.label_counts[k]
        assert one.classes[0] == (int(counts.argmax()), counts.max() / counts.sum())
        weights = [
            run.round(t).weights[run.round(t).client_ids.tolist().index(k)]
            for t in run.rounds
            if k in run.round(t).client_ids
        ]
        assert one.weight == pytest.approx(np.mean(weights), rel=1e-15)


def test_a_damaged_file_and_diverged_clients_come_first(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = runs / "two" / "rounds" / "00002.h5"
    with h5py.File(path, "r+") as file:
        file["global/fc1.weight"][0, 0] += 1
    made = report(runs / "two")
    assert made.faults > 0
    assert "No: rounds/00002.h5: global/fc1.weight is not what was written" in Page(made.html).words
    lost = trained(tmp_path / "lost", client={"lr": 1e30})
    unsound = report(lost)
    words = Page(unsound.html).words
    assert unsound.faults == 0
    assert fedscope(["report", str(lost.path), "--out", str(tmp_path / "page")]) == 0
    assert f"  lost is not sound: {unsound.broken['lost'].removeprefix('No: ')}" in capsys.readouterr().out
    pattern = r"No: (client \d+|\d clients) diverged \(the training loss is not finite in rounds? [1-3-]+\)"
    assert re.search(pattern, words)
    assert "(round 3; it diverged: no finite loss from round 1 on; its answers count as wrong)" in words


def test_a_round_that_cannot_be_read_is_a_fault_of_the_page_and_not_its_end(runs: Path) -> None:
    path = runs / "two" / "rounds" / "00001.h5"
    path.write_bytes(path.read_bytes()[:900])
    run = Run.open(runs / "two")
    words = Page(report(run).html).words
    assert "No: rounds/00001.h5:" in words
    assert "All clients' models of rounds 2-3." in words
    kept = {int(k) for t in (2, 3) for k in run.round(t).client_ids}
    assert {one.id for one in clients_of(run)} == kept


def test_results_of_another_run_are_left_out_and_said_to_be(runs: Path) -> None:
    shutil.copytree(runs / "one" / "figures", runs / "two" / "figures")
    (runs / "one" / "figures" / "updates-all.nc").write_bytes(b"no result")
    found = find_results(Run.open(runs / "two"))
    assert not found.results
    assert set(found.left_out.values()) == {"it is of another run, or of one that has stood in this folder before"}
    assert "left out: updates-all.nc" in Page(report(runs / "one").html).words


def test_two_runs_stand_side_by_side_each_by_its_name_and_one_needs_none(runs: Path) -> None:
    both, alone = report([runs / "one", runs / "two"]).html, report(runs / "one").html
    words = Page(both).words
    assert words.count("Is the run sound?") == 2
    assert "Report on one and two" in words
    assert "one: Where are the models on the loss surface?" in words
    for part in ("clients", "checks", "configuration"):
        inside = [re.split("<h2[ >]", page.partition(f"<h2 id={part}>")[2])[0] for page in (both, alone)]
        assert [re.findall("<h3>(.*?)</h3>", one) for one in inside] == [["one", "two"], []]


def test_names_are_words_and_never_markup(runs: Path) -> None:
    name = "<script>alert(1)</script>"
    (runs / "one").rename(runs / "a<b>c")
    html = report(runs / "a<b>c", title=name).html
    assert name not in html
    assert "<b>c" not in html.replace("&lt;b&gt;c", "")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    data = html.partition('type="application/json"')[2].partition("</script>")[0]
    assert "</" not in data.replace("<\\/", "")


def test_the_command_writes_over_reports_and_nothing_else(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, page = str(runs / "one"), tmp_path / "page.html"
    assert fedscope(["report", one, "--out", str(page)]) == 0
    assert f"{page}: 3 results, sound" in capsys.readouterr().out
    first = page.read_bytes()
    assert fedscope(["report", one, "--out", str(tmp_path / "page"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        **{"results": 3, "faults": 0, "broken": {}, "files": [str(page)]},
    }
    assert page.read_bytes() == first
    page.write_text("<html>mine</html>")
    assert fedscope(["report", one, "--out", str(page)]) == 2
    assert (
        f"{page} is in the way, and is not a report; give another --out, or --force to replace it"
        in capsys.readouterr().err
    )
    assert page.read_text() == "<html>mine</html>"
    assert fedscope(["report", one, "--out", str(page), "--force"]) == 0
    assert page.read_bytes() == first
    for words, said in (
        ([str(tmp_path / "nowhere")], "nowhere does not exist"),
        ([one, one], "2 of the runs are called 'one'"),
        ([f"{one}@2"], f"{one}@2 names a model, but a whole run is asked for; give {one}\n"),
    ):
        assert fedscope(["report", *words, "--out", str(tmp_path / "other")]) == 2
        assert said in capsys.readouterr().err


def test_no_runs_are_refused() -> None:
    with pytest.raises(FedscopeError, match="a report is about runs, and none is given; give RUN, or several"):
        report([])


def test_what_is_lacking_is_asked_first(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedscope.reporting.missing_results import find_missing

    run = Run.open(runs / "two")
    asked, refused = find_missing(run, find_results(run))
    words = [one.words.partition(" ")[0] for one in asked]
    assert words == ["explain", "plane", "subsets", "cka", "matrix", "line", "updates", "updates"]
    assert not refused
    assert fedscope(["report", str(runs / "two"), "--compute", "--out", str(tmp_path / "page")]) == 0
    said = capsys.readouterr()
    assert re.search(r"^two: 8 questions, about \d+ s$", said.err, re.MULTILINE)
    assert "8 results, sound" in said.out
    assert {one.kind.name for one in find_results(run).results} == {
        *("Explanation", "Plane", "Subsets", "ClientCKA", "Matrix", "LayerRounds", "ClientUpdates", "LayerUpdates"),
    }
    words = Page((tmp_path / "page.html").read_text(encoding="utf-8")).words
    assert "statements below:" in words
    clients = (tmp_path / "page.html").read_text(encoding="utf-8").partition("<h2 id=clients>")[2]
    assert "For how many clients is the average worse at home?" in clients.partition("<h2 ")[0]
    assert "log above minimum" in (tmp_path / "page.html").read_text(encoding="utf-8")
    linear = report(runs / "two", colour_scale="linear").html
    assert re.search(r"\(nats\),(<br>|\\u003cbr\\u003e)linear", linear)
    assert "log above minimum" not in linear
    with pytest.raises(FedscopeError, match="colour_scale='lin' is no scale of colours"):
        report(runs / "two", colour_scale="lin")
    assert find_missing(run, find_results(run)) == ([], {})


def test_a_recorded_run_is_reported_and_what_cannot_be_asked_is_said(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedscope import Recorder

    first = Run.open(runs / "one").round(1)
    clients = {int(k): first.client(int(k)).arrays() for k in first.client_ids}
    with Recorder(tmp_path / "loop", source="a loop", method="FedX") as recorder:
        recorder.round(start=first.read("start").arrays(), clients=clients, global_=first.read("global").arrays())
    assert fedscope(["report", str(tmp_path / "loop"), "--compute", "--out", str(tmp_path / "page")]) == 0
    said = capsys.readouterr().err
    assert "names neither architecture nor data; give --model and --data" in said
    words = Page((tmp_path / "page.html").read_text(encoding="utf-8")).words
    assert "FedX, recorded by a loop" in words
    assert "Not known: the clients' models were not measured (fedscope measure RUN --clients does it)." in words
    assert "Nothing was measured on test data round by round (fedscope measure RUN does it)." in words
    assert "none: another program trained this run" in words


def test_factors_of_a_run_without_a_partition_are_asked_on_test_data(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedscope import Recorder

    first = Run.open(runs / "one").round(1)
    clients = {int(k): first.client(int(k)).arrays() for k in first.client_ids}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reported_net.py").write_text(
        """
from torch import nn


def net():
    layers = nn.Sequential(nn.Flatten())
    for name, layer in (("fc1", nn.Linear(64, 8)), ("act", nn.ReLU()), ("head", nn.Linear(8, 10))):
        layers.add_module(name, layer)
    return layers
"""
    )
    with Recorder(tmp_path / "loop", source="a loop", model="reported_net:net", data="digits") as recorder:
        recorder.round(start=first.read("start").arrays(), clients=clients, global_=first.read("global").arrays())
    words = ["report", str(tmp_path / "loop"), "--compute", "--out", str(tmp_path / "page")]
    assert fedscope(words) == 0
    said = capsys.readouterr()
    asked = f"fedscope subsets {tmp_path / 'loop'} --rounds 1"
    assert f"$ {asked}" in said.err
    assert f"not answered: {tmp_path / 'loop'} names model reported_net:net, and no code" in said.err
    assert f"{asked} --model reported_net:net" in said.err
    assert fedscope([*words, "--model", "reported_net:net"]) == 0
    said = capsys.readouterr()
    assert f"$ fedscope explain {tmp_path / 'loop'} --draws none --split test --model reported_net:net" in said.err
    assert "not answered" not in said.err
    assert "7 results, sound" in said.out


def test_results_that_lie_elsewhere_are_shown_where_they_are_of_the_runs(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `--out` has put into another folder, of this run, of both, and of none."""
    there = runs / "elsewhere"
    there.mkdir()
    for path in (runs / "one" / "figures").glob("updates*"):
        path.rename(there / path.name)
    assert fedscope(["line", f"{runs}/one@3", f"{runs}/two@3", "--points", "3", "--out", str(there / "line")]) == 0
    before = report(runs / "one").results
    both = report([runs / "one", runs / "two"], results=[there])
    words = Page(both.html).words
    assert (both.results, before) == (4, 2), "a plane, a decomposition, updates; of both runs one line"
    assert "Do the clients' updates cancel?" in words
    assert words.count("What is the loss between two models?") == 1
    alone = report(runs / "two", results=there)
    assert alone.results == 1, "the line, which is of this run, too"
    assert "of another run" not in Page(alone.html).words, "what is others' is passed over"
    assert report(runs / "one", results=runs / "one" / "figures").results == before, "no result twice"
    capsys.readouterr()
    assert fedscope(["report", str(runs / "one"), "--results", str(runs / "nowhere")]) == 2
    said = capsys.readouterr().err.strip()
    assert said == f"fedscope: {runs}/nowhere is not a folder, so there are no results in it; give another --results"


def test_fewer_samples_are_measured_and_the_time_is_said(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--limit` reaches every question that measures, and is in its result; without `--compute` it means nothing."""
    assert fedscope(["report", str(runs / "two"), "--limit", "50"]) == 2
    said = capsys.readouterr().err.strip()
    assert said == "fedscope: --limit 50 limits what --compute measures; add --compute, or leave --limit out"
    run = Run.open(runs / "two")
    asked, refused = find_missing(run, find_results(run), 50)
    assert refused == {}
    measured = {}
    for one in asked:
        settings = one.question.parts[0].settings[0]
        measured[one.words.split()[0]] = settings.get("samples", settings.get("limit"))
        assert ("--limit 50" in one.words) == (one.words.split()[0] != "updates"), "which measures nothing"
    assert measured == {"explain": 50, "plane": 50, "subsets": 50, "cka": 50, "matrix": 50, "line": 50, "updates": None}
    whole, fewer = seconds(run, asked, None, 50)
    assert 0 < fewer < whole


def test_runs_are_called_by_their_labels(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [runs / "one", runs / "two"]
    page = report(given, labels=["ours", "theirs <b>"])
    assert page.title == "Report on ours and theirs <b>"
    words = Page(page.html).words
    assert "ours: Where are the models on the loss surface?" in words
    for part in ("clients", "checks", "configuration"):
        inside = re.split("<h2[ >]", page.html.partition(f"<h2 id={part}>")[2])[0]
        assert re.findall("<h3>(.*?)</h3>", inside) == ["ours", "theirs &lt;b&gt;"]
    # curves and results say the labels too; folders and files keep their names
    curves = re.split("<h2[ >]", page.html.partition("<h2 id=curves>")[2])[0]
    said = re.sub("<[^>]*>", " ", curves)
    assert "ours" in said
    assert "theirs &lt;b&gt;" in said
    assert re.search(r"\b(one|two)\b", said) is None
    assert report({"ours": given[0], "theirs <b>": given[1]}).html == page.html
    assert report(given, labels={"two": "theirs <b>", "one": "ours"}).html == page.html
    monkeypatch.chdir(runs)
    assert fedscope(["report", "one", "two", "--label", "ours", "--label", "theirs <b>", "--out", "page"]) == 0
    assert Page(Path("page.html").read_text(encoding="utf-8")).words == words


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["a", "b", "c"], "3 labels are given, but the result names 2, one, two; give one for each, or OLD=NEW"),
        (["a"], "1 label is given, but the result names 2, one, two; give one for each, or OLD=NEW"),
        (["two", "two"], "two runs of the report would be called 'two'; give each a label of its own"),
        ({"three": "a"}, "'three' is no run of this report; it is about one, two"),
        (["  ", "b"], "the label of 'one' is empty; give a word that a page can show"),
        ([1], "labels hold 1, which is no text; give a word for each run or model"),
    ],
)
def test_labels_that_do_not_fit_are_refused(runs: Path, labels: Any, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=f"^{re.escape(sentence)}$"):
        report([runs / "one", runs / "two"], labels=labels)
