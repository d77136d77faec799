"""Nothing that lies where a command writes is replaced without ``--force``: neither results nor a user's own files."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from asked import ASKED
from few import few

import fedscope
from fedscope.checkpoints import FedscopeWarning
from fedscope.cli.main import run

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]


@pytest.mark.parametrize(("command", "ends"), ASKED.values(), ids=ASKED)
def test_foreign_files_stay(here: Path, capsys: pytest.CaptureFixture[str], command: str, ends: str) -> None:
    for end in ends.split():
        own = Path(f"m.{end}")
        own.write_text("mine", encoding="utf-8")
        assert run([*command.split(), "--out", "m"]) == 2
        assert f"m.{end} is in the way, and without m" in capsys.readouterr().err
        assert own.read_text(encoding="utf-8") == "mine"
        assert sorted(path.name for path in here.iterdir()) == sorted(["runs", own.name])
        own.unlink()


#: one of each kind of file: tables, arrays, pages, models, several figures, of several results
KINDS = ("curves", "planes", "explain", "reaggregate", "parameters-tsne", "disperse", "plane-both")


@pytest.mark.parametrize("name", few(ASKED, lambda name: name in KINDS))
def test_force_writes_over_them_and_its_own_are_not_in_the_way(here: Path, name: str) -> None:
    command, ends = ASKED[name]
    first = Path(f"m.{ends.split()[0]}")
    first.write_text("mine", encoding="utf-8")
    assert run([*command.split(), "--out", "m", "--force"]) == 0
    assert not first.exists() or first.read_bytes() != b"mine"
    assert run([*command.split(), "--out", "m"]) == 0, "its own files are not in the way"


def test_what_is_missing_is_said_before_what_is_in_the_way(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["curves", "runs/fma", "--out", "m"]) == 0
    capsys.readouterr()
    assert run(["line", "runs/fma@1", "x.pt", "--out", "m"]) == 2
    assert capsys.readouterr().err.startswith("fedscope: x.pt does not exist; give a model's file, or a model of a run")
    assert run(["line", "runs/fma@1", "runs/fma@2", "--out", "m"]) == 2
    assert "m.pdf is in the way" in capsys.readouterr().err


def test_parts_of_another_command_are_named_and_not_loaded(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``fedscope.load`` gave planes of both commands as one answer."""
    asked = ["plane", "runs/fma", "--grid", "3", "--limit", "60", "--out", "y"]
    assert run([*asked, "--rounds", "1,2"]) == 0
    ends = list(fedscope.load("y").parts)
    assert {".round-1", ".round-2"} <= set(ends)
    capsys.readouterr()
    assert run([*asked, "--rounds", "2", "--force"]) == 0
    assert capsys.readouterr().err == (
        "fedscope: y.round-1.nc is of another command with the same base, and left as it is; fedscope.load leaves it "
        "out\n"
    )
    with pytest.warns(
        FedscopeWarning, match=r"^y\.round-1\.nc is of another command than y\.round-2\.nc.*, and left out$"
    ):
        assert list(fedscope.load("y").parts) == [end for end in ends if end != ".round-1"]
    assert run([*asked, "--rounds", "1,2"]) == 0, "they are of the same settings, and become one answer again"
    assert "is of another command" not in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        assert list(fedscope.load("y").parts) == ends
    assert run([*asked, "--rounds", "1,2", "--redraw"]) == 0


def test_parts_of_a_run_and_of_another_in_its_place_are_not_drawn_together(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plane", "runs/fma", "--grid", "3", "--limit", "60", "--rounds", "1,2", "--out", "y"]
    assert run(asked) == 0
    plane = fedscope.Plane.load("y.round-2")
    before = [{**one, "created": "before"} for one in plane.attrs["run"]]
    replace(plane, attrs={**plane.attrs, "run": before}).save("y.round-2")
    capsys.readouterr()
    assert run([*asked, "--redraw"]) == 2
    files = ", ".join(f"y{end}.nc" for end in (".round-1", ".round-2"))
    assert capsys.readouterr().err == (
        f"fedscope: {files} are of a run and of another that has replaced it, so they are not drawn together; leave "
        "out --redraw, and give --force\n"
    )
    assert run([*asked, "--force"]) == 0, "as it says"


def test_an_extension_that_was_typed_is_left_off(here: Path) -> None:
    assert run(["curves", "runs/fma", "--out", "fig.pdf"]) == 0
    assert run(["updates", "runs/fma", "--out", "lr0.1"]) == 0
    assert run(["reaggregate", "runs/fma@2", "--server", "fedavgm", "--out", "re.safetensors"]) == 0
    found = {path.name for path in here.iterdir()} - {"runs"}
    assert found == {
        *("fig.curves.csv", "fig.curves.json", "fig.pdf", "fig.png"),
        *("lr0.1.nc", "lr0.1.updates.csv", "lr0.1.pdf", "lr0.1.png"),
        *("re.safetensors", "re.reaggregate.csv", "re.reaggregate.json", "re.pdf", "re.png"),
    }


def test_examples_stand_on_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["updates", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  Example:  fedscope updates runs/ima" in lines
    assert "  Several runs in one figure:  fedscope updates runs/fma runs/ima" in lines
