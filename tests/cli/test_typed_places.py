"""Where a typed path leads: ``~`` that no shell has expanded, and folders that take the default name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run as command
from fedscope.landscape import Plane

pytestmark = pytest.mark.same_elsewhere


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a run, beside the home folder."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    fedscope.train(clients=3, rounds=1, participation=1, out="ima")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("curves ima --out=~/x/c", "x/c.curves.json"),
        ("table ima --out=~/t", "t.table.json"),
        ("report ima --out=~/r", "r.html"),
        ("export ima@last ~/m.safetensors", "m.safetensors"),
        ("export ima --to csv ~/n.csv", "n.csv"),
        ("train --method fma --rounds 1 --out=~/fma", "fma/run.json"),
        ("import ima.pt --out=~/made", "made/run.json"),
    ],
)
def test_no_command_makes_a_folder_called_tilde(here: Path, words: str, made: str) -> None:
    assert command(["export", "ima@last", "ima.pt"]) == 0
    assert command(words.split()) == 0
    assert (here / "home" / made).is_file()
    assert not Path("~").exists()


def test_a_user_that_there_is_not_is_one_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert command(["curves", "ima", "--out=~nobody-of-this-name/x"]) == 2
    assert capsys.readouterr().err == "fedscope: ~nobody-of-this-name/x: there is no such user; write the whole path\n"


def test_python_writes_and_reads_at_home(here: Path) -> None:
    start, *models = ({"w": np.full(3, value, np.float32)} for value in (0, 1, 2))
    with fedscope.Recorder("~/mine") as recorder:
        recorder.round(start=start, clients=dict(enumerate(models, 1)), metrics={"test_loss": 1.0})
    run = fedscope.train(clients=3, rounds=1, participation=1, out="~/fma")
    assert run.path == here / "home" / "fma"
    assert fedscope.Run.open("~/fma").path == run.path
    assert fedscope.load_model("~/mine@1/client-2").weights.parameters.tolist() == [2, 2, 2]
    assert fedscope.updates("~/mine@1").list_names() == ("mine",)
    curves = fedscope.curves(["~/fma", Path("~/mine")])
    for base in ("~/c/curves", Path("~/c/curves")):
        assert {path.parent for path in curves.save(base)} == {here / "home" / "c"}
        assert type(curves).load(base).list_names() == ("fma", "mine")
    assert fedscope.load("~/c/curves").list_names() == ("fma", "mine")
    unknown = np.full((2, 3), np.nan)
    plane = Plane(np.arange(3.0), np.arange(2.0), np.ones((2, 3)), unknown, (), 0.0, "none", {"split": "test"})
    fedscope.landscape.write_surface("~/s.h5", plane)
    assert fedscope.landscape.read_surface("~/s.h5").loss.tolist() == plane.loss.tolist()
    fedscope.landscape.write_points("~/s.csv", plane)
    fedscope.report("~/fma").save("~/page.html")
    fedscope.export_metrics("~/fma", "csv", file="~/n.csv")
    assert not Path("~").exists()
    assert {"s.h5", "s.csv", "page.html", "n.csv"} <= {path.name for path in (here / "home").iterdir()}
    with pytest.raises(FedscopeError, match=r"there is no such user; write the whole path"):
        fedscope.Recorder("~nobody-of-this-name/mine")


@pytest.mark.parametrize("typed", ["out/", "new/deep/", ".", "./", "..", "~/", "~", "out/."])
def test_what_can_only_be_a_folder_is_one(here: Path, typed: str) -> None:
    Path("out").mkdir()
    folder = here / "home" if typed[0] == "~" else Path(typed)
    assert command(["curves", "ima", "--out", typed]) == 0
    assert (folder / "curves-ima.curves.json").is_file()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("line ima@last ima@last/start --points 3", "line-ima@last-ima@last-start.nc"),
        ("report ima", "report.html"),
        ("table ima", "table.table.json"),
    ],
)
def test_a_folder_takes_the_default_name(here: Path, words: str, name: str) -> None:
    assert command([*words.split(), "--out", "out/"]) == 0
    assert Path("out", name).is_file()
    assert {path.name for path in Path().iterdir()} == {"ima", "out"}


def test_a_base_that_is_a_folder_too_stays_a_base(here: Path) -> None:
    Path("out").mkdir()
    assert command(["curves", "ima", "--out", "out"]) == 0
    assert command(["curves", "ima", "--out", "made/new.pdf"]) == 0
    assert Path("out.curves.json").is_file()
    assert Path("made/new.curves.json").is_file()
    assert not list(Path("out").iterdir())


def test_a_result_in_a_folder_is_found_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["curves", "ima", "--out", "out/"]) == 0
    capsys.readouterr()
    assert command(["curves", "ima", "--out", "out/", "--redraw"]) == 0
    assert command(["curves", "ima", "--out", "out/"]) == 0
    assert "out/curves-ima.curves.json already holds" in capsys.readouterr().err


def test_an_imported_run_takes_its_folder_with_a_slash(here: Path) -> None:
    assert command(["export", "ima@last", "ima.pt"]) == 0
    assert command(["import", "ima.pt", "--out", "made/"]) == 0
    assert Path("made/run.json").is_file()


def test_what_lies_at_home_is_asked_from_there(here: Path) -> None:
    fedscope.train(clients=3, rounds=1, participation=1, out="~/fma")
    assert command(["export", "~/fma@last", "~/m.safetensors"]) == 0
    assert command(["export", "~/fma@1/start", "~/s.safetensors"]) == 0
    small = ["data.clients=3", "run.rounds=1", "run.participation=1"]
    assert command(["sweep", "method=fma", *(word for one in small for word in ("--set", one)), "--out", "~/sw"]) == 0
    whole = str(here / "home")
    assert fedscope.table("~/sw").rows() == fedscope.table(f"{whole}/sw").rows()
    assert fedscope.curves("~/sw").rows() == fedscope.curves(f"{whole}/sw").rows()
    assert command(["matrix", "~/fma@1"]) == 0
    assert command(["import", "~/m.safetensors", "--out", "made"]) == 0
    assert fedscope.import_models("~/m*.safetensors", "again", start="~/s.safetensors").rounds == (1,)
    assert fedscope.report("~/fma", results=["~"]).title
