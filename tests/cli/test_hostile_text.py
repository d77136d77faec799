"""Folders and files that hold more than words: what commands print, write and draw of them stays words."""

from __future__ import annotations

import ast
import csv
import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from asked import ASKED
from few import few
from hostile import TEXTS, Page, steers

import fedscope
import fedscope.cli
from fedscope.checkpoints import FedscopeWarning, Run, write_file
from fedscope.checkpoints.io.visible_text import visible
from fedscope.checkpoints.runs.info import seal
from fedscope.cli.main import run
from fedscope.training.curves.result import Curves

pytestmark = pytest.mark.same_elsewhere

#: a folder's name may hold all but / and NUL; pages, mathematics, markup of rich, rows, terminals, legends, formulas
NAME = "_$\\frac$平<b onclick=x>[red][/]&lt;\x1b[31m\n|=\x9b\u202e é".replace("/", "\u2215")
#: takes seconds: the others hold the same names
SLOW = {"decompose", "explain", "theory", "planes", "plane-both", "parameters-tsne", "curves-target", "cka-models"}


@pytest.fixture
def renamed(two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a run of such a name, and ``runs/fma``."""
    for name, of in ((NAME, "fma"), ("fma", "fma"), (f"{NAME}lora", "lora")):
        shutil.copytree(two_rounds / "runs" / of, tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints on both streams, which steers no terminal, and warns of nothing but in its own words."""

    def printed(*words: str, status: int = 0) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("always", FedscopeWarning)
            ended = run(list(words))
        found = capsys.readouterr()
        assert ended == status, found
        text = found.out + found.err
        assert not steers(text)
        assert "Traceback" not in text
        return text

    return printed


def change_info(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a run's ``run.json``, and seal it anew."""
    info = json.loads((path / "run.json").read_text())
    change(info)
    (path / "run.json").write_text(json.dumps(seal(path, {**info, "files": {}})))


@pytest.mark.parametrize("name", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in ASKED])
def test_every_question_takes_a_run_of_any_name(renamed: Path, say: Callable[..., str], name: str) -> None:
    words, files = ASKED[name]
    text = say(
        *(word.replace("runs/fma", f"runs/{NAME}").replace("runs/lora", f"runs/{NAME}lora") for word in words.split()),
        "--out",
        "m",
    )
    assert not [line for line in text.splitlines() if line.startswith("|=")], "no line begins within the name"
    for end in files.split():
        assert (renamed / f"m.{end}").exists()
    for page in renamed.glob("m*.html"):
        read = Page(page.read_text(encoding="utf-8"))
        read.refuse_open()
        assert not [tag for tag, _ in read.elements if tag in ("b", "title") and "onclick" in dict(_)]


@pytest.mark.drawn
@pytest.mark.parametrize("words", [["curves"], ["updates"], ["line", "@1", "@2", "--points", "3", "--split", "test"]])
def test_figures_draw_any_name_without_a_warning(renamed: Path, say: Callable[..., str], words: list[str]) -> None:
    """Neither mathematics nor a character that the font lacks is said on stderr."""
    command, *rest = words
    given = [f"runs/{NAME}{word}" if word.startswith("@") else word for word in rest] or [f"runs/{NAME}", "runs/fma"]
    text = say(command, *given, "--out", "m")
    assert "Glyph" not in text
    assert "glyph" not in text
    assert (renamed / "m.png").stat().st_size > 5000


def test_dollars_of_a_name_stay_dollars(renamed: Path, say: Callable[..., str]) -> None:
    """What stands between two of them is no mathematics, below a figure either."""
    Path("runs/fma").rename("runs/lr$_$x")
    say("align", "runs/lr$_$x@1", "--out", "m")
    said = " ".join(text.get_text() for text in fedscope.load("m").figure().texts)
    assert said.startswith("8 models of lr\\$_\\$x matched by weights")


def test_a_legend_names_every_run(renamed: Path) -> None:
    """Matplotlib leaves entries out that begin with an underscore."""
    figure = Curves.of([Run.open(f"runs/{NAME}"), Run.open("runs/fma")]).figure()
    (legend,) = figure.legends
    first, second = (text.get_text() for text in legend.get_texts()[:2])
    assert second == "fma"
    assert first.removeprefix("\N{ZERO WIDTH NON-JOINER}").replace("\\$", "$").startswith("_$\\frac$平<b onclick=x>")


def test_long_names_leave_room_for_the_curves(renamed: Path) -> None:
    Path(f"runs/{NAME}").rename("runs/" + "n" * 250)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = Curves.of([Run.open("runs/" + "n" * 250)]).figure()
        figure.canvas.draw()  # type: ignore[no-untyped-call]
    assert figure.axes[0].get_position().width > 0.5


@pytest.mark.drawn
def test_a_title_that_is_no_mathematics_is_refused(here: Path, say: Callable[..., str]) -> None:
    text = say("curves", "runs/fma", "--title", "$\\frac$", "--out", "c", status=2)
    assert "is no mathematics that matplotlib can write (Expected \\frac{num}{den}" in text


@pytest.mark.parametrize("kind", ["script", "attribute", "comment", "escape", "rows", "long"])
def test_a_label_of_a_foreign_result_is_text_when_it_is_drawn_again(
    here: Path, say: Callable[..., str], kind: str
) -> None:
    words = ["plane", "runs/fma@1", "runs/fma@2", "runs/fma@2/client-0", "--grid", "3", "--split", "test", "--out", "p"]
    say(*words)
    whole = Page(Path("p.html").read_text(encoding="utf-8"))
    with h5py.File("p.nc", "r+") as file:
        file["model_label"][0] = TEXTS[kind].replace("\x00", "")
        file.attrs["data"] = TEXTS[kind].replace("\x00", "")
    say(*words, "--redraw")
    page = Page(Path("p.html").read_text(encoding="utf-8"))
    assert page.shape == whole.shape
    page.refuse_open()
    if kind == "script":
        assert page.title == "Loss on the plane through </title><script src=x.js></script>, fma@2 and fma@2/client-0"


@pytest.mark.parametrize("planted", ["other bytes", "link"])
def test_what_draws_a_page_is_written_by_fedscope(here: Path, say: Callable[..., str], planted: str) -> None:
    """A folder of somebody else's may hold a file of its name, and of its size, which the page would run."""
    words = ["plane", "runs/fma@1", "runs/fma@2", "runs/fma@2/client-0", "--grid", "3", "--split", "test", "--out", "p"]
    say(*words)
    (library,) = here.glob("plotly-*.min.js")
    sound = library.read_bytes()
    library.unlink()
    if planted == "link":
        (here / "other.js").write_bytes(sound)
        library.symlink_to("other.js")
    else:
        library.write_bytes(b"alert(1);".ljust(len(sound)))
    say(*words)
    assert library.read_bytes() == sound
    assert not library.is_symlink()
    before = library.stat().st_mtime_ns
    say(*words)
    assert library.stat().st_mtime_ns == before, "written once a folder"


@pytest.mark.parametrize("kind", few(TEXTS, lambda kind: [*TEXTS].index(kind) % 3 == 0))
def test_what_a_run_says_of_itself_is_shown_and_no_more(
    two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[..., str], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = TEXTS[kind]
    shutil.copytree(two_rounds / "runs" / "fma", "r")

    def change(info: dict[str, Any]) -> None:
        info["created"] = text
        info["data"]["name"] = text
        info["versions"] = {**info["versions"], "fedscope": text}
        info["branch"] = {"run": text, "round": 1, "created": text, "history": []}

    change_info(Path("r"), change)
    listed, own = say("ls"), say("ls", "r")
    # beside what is said of config.toml, which is of other data
    rows, fields = ([line for line in said.splitlines() if line[:10] != "fedscope: "] for said in (listed, own))
    assert len(rows) == 2, "a run is a row"
    assert len(fields) <= 20
    assert all(len(line) < 600 for line in fields), "and none of its words is longer than a screen"
    if len(text) < 100:
        assert f"data          {visible(text)}\n" in own
        assert f"created       {visible(text)}\n" in own
    say("ls", "--check", "r")
    say("curves", "r", "--out", "c")
    for form in ("text", "markdown", "csv", "latex", "typst"):
        say("table", "r", "--format", form)
    say("report", "r", "--out", "page")
    page = Page(Path("page.html").read_text(encoding="utf-8"))
    page.refuse_open()
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"b onclick", "iframe", "link"}
    assert len(page.scripts) == 1, "a table sorts, and there is no surface"
    assert not page.comments


@pytest.mark.parametrize("kind", TEXTS)
def test_a_refusal_of_any_path_is_one_line(here: Path, say: Callable[..., str], kind: str) -> None:
    name = TEXTS[kind].replace("\x00", "").replace("/", "\u2215")[:200]
    for words in (
        ["ls", name],
        ["curves", f"./{name}"],
        ["export", f"./{name}@1", "m.pt"],
        ["train", "--resume", f"./{name}"],
    ):
        text = say(*words, status=2)
        assert len(text.splitlines()) == 1
        assert visible(name) in text
    say("curves", f"--{name}", status=2)


def test_sentences_list_a_few_of_many(here: Path, say: Callable[..., str]) -> None:
    np.savez("many.npz", **{f"a{i:05d}": np.zeros(1) for i in range(3000)})
    text = say("train", "--data", "npz:many.npz", "--out", "new", status=2)
    assert "it has a00000, a00001, " in text
    assert ", ..., and needs x_train" in text
    assert len(text) < 500


def test_progress_shows_any_label(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from fedscope.cli import progress

    monkeypatch.setattr(progress, "_EVERY", -1.0)
    line = progress.PlainLine(f"{NAME}: cka")
    line(1, 4)
    watcher = progress.TrainingWatcher(f"runs/{NAME}", NAME)
    watcher.begin(3, 1000)
    said = capsys.readouterr().err
    assert not steers(said)
    assert len(said.splitlines()) == 2
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.progress("[/red] [bold]" + NAME) as report:  # markup that does not close
        report(1, 2)


def test_warnings_are_lines_that_steer_nothing(say: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.cli import main

    def warn(arguments: list[str], **_: Any) -> int:
        warnings.warn(f"{NAME} is odd", FedscopeWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(main.fedscope, "main", warn)
    assert say("ls") == f"fedscope: {visible(NAME)} is odd\n"


def test_only_one_file_of_the_command_line_prints() -> None:
    """So that whatever is printed passes there."""
    folder = Path(fedscope.cli.__file__).parent
    for file in folder.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        named = {node.attr for node in calls if isinstance(node, ast.Attribute)}
        named |= {node.id for node in calls if isinstance(node, ast.Name)}
        if file.name != "printing.py":
            assert not named & {"echo", "secho", "print", "pprint"}, file.name


def test_a_run_named_as_a_formula_is_none_in_tables(here: Path, say: Callable[..., str]) -> None:
    name = '=HYPERLINK("http:'
    shutil.copytree("runs/fma", name)
    say("curves", name, "runs/fma", "--out", "c")
    with Path("c.curves.csv").open(newline="") as file:
        cells = {row["run"] for row in csv.DictReader(file)}
    assert cells == {f"'{name}", "fma"}
    assert {curve.run for curve in Curves.load("c").runs} == {name, "fma"}
    before = Path("c.curves.csv").read_bytes()
    say("curves", name, "runs/fma", "--out", "c")  # read back, and the same
    assert Path("c.curves.csv").read_bytes() == before


def test_a_table_of_an_earlier_fedscope_reads_as_it_stands(here: Path, say: Callable[..., str]) -> None:
    say("curves", "runs/fma", "--out", "c")
    table, about = Path("c.curves.csv"), Path("c.curves.json")
    about.write_text(json.dumps({**json.loads(about.read_text()), "table_xxh3": {}}))
    table.write_text(table.read_text().replace("\nfma,", "\n=fma,"))
    assert [curve.run for curve in Curves.load("c").runs] == ["=fma"]


def test_a_configuration_of_other_data_than_run_json_is_said(
    two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(two_rounds / "runs" / "fma", "r")
    assert "names the data" not in say("ls", "r")
    change_info(Path("r"), lambda info: info["data"].update(name="usps"))
    assert "r/config.toml names the data 'digits', and run.json 'usps', which are taken; one of the two" in say(
        "ls", "r"
    )
    with pytest.warns(FedscopeWarning, match="names the data 'digits'"):
        assert Run.open("r").config


def test_a_model_of_zeros_is_named(here: Path, say: Callable[..., str]) -> None:
    layout = Run.open("runs/fma").layout
    from fedscope.checkpoints import Weights

    write_file("zeros.safetensors", Weights(layout, np.zeros(layout.size, np.float32), {}))
    words = ["--data", "digits", "--no-hessian", "--split", "test", "--out", "s"]
    text = say("sharpness", "zeros.safetensors", "runs/fma@2", *words, status=2)
    assert "fedscope: zeros.safetensors has no filter that is not 0, so nothing is relative to one" in text
