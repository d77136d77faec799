"""--style and --format, on every command that draws, and their mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from drawable import surface

from fedscope.analysis.register import analyses
from fedscope.cli.main import run
from fedscope.plotting.user_style import current

pytestmark = pytest.mark.same_elsewhere

DRAWING = [one.name for one in analyses() if one.name not in ("embed",)]


@pytest.fixture
def plane(tmp_path: Path) -> list[str]:
    """A command that draws a surface again."""
    surface().save(tmp_path / "plane")
    from fedscope.landscape.interchange.goldstein import write_surface

    write_surface(tmp_path / "surface.h5", surface())
    return ["import", f"{tmp_path}/surface.h5", "--out", f"{tmp_path}/drawn"]


def size_of(svg: Path) -> float:
    """Width in inches."""
    found = re.search(r'width="([\d.]+)pt"', svg.read_text())
    assert found is not None
    return float(found[1]) / 72


@pytest.mark.drawn
def test_a_style_file_and_formats_are_what_is_written(plane: list[str], tmp_path: Path) -> None:
    (tmp_path / "my.mplstyle").write_text("font.family: DejaVu Serif\nfigure.figsize: 4, 3\n")
    assert run([*plane, "--style", f"{tmp_path}/my.mplstyle", "--format", "svg,PDF"]) == 0
    assert {path.suffix for path in tmp_path.glob("drawn*")} >= {".svg", ".pdf"}
    assert not (tmp_path / "drawn.png").exists()
    assert size_of(tmp_path / "drawn.svg") == pytest.approx(4.0)
    assert current().width is None, "the style ends with the command"
    before = (tmp_path / "drawn.svg").read_bytes()
    assert run([*plane, "--style", f"{tmp_path}/my.mplstyle", "--format", "svg", "--force"]) == 0
    assert (tmp_path / "drawn.svg").read_bytes() == before
    assert run([*plane, "--width", "5in", "--style", f"{tmp_path}/my.mplstyle", "--format", "svg", "--force"]) == 0
    assert size_of(tmp_path / "drawn.svg") == pytest.approx(5.0), "a width that is asked for counts"


def test_without_them_files_are_as_ever(plane: list[str], tmp_path: Path) -> None:
    assert run(plane) == 0
    assert {path.suffix for path in tmp_path.glob("drawn*")} >= {".png", ".pdf"}
    assert not (tmp_path / "drawn.svg").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "eps"], "'eps' is no format of figures; give pdf, png or svg"),
        (["--format", ""], "'' is no format of figures"),
        (["--style", "nowhere.mplstyle"], "the style nowhere.mplstyle does not exist"),
    ],
)
def test_mistakes_are_one_sentence(
    plane: list[str], tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*plane, *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("drawn*"))


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_what_was_found_is_told_also_where_its_figure_is_refused(
    plane: list[str], tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*plane, *more]) == 0
    (tmp_path / "my.mplstyle").write_text("font.size: 16\n")
    told = capsys.readouterr().out
    for path in tmp_path.glob("drawn*"):
        path.unlink()
    assert run([*plane, *more, "--style", f"{tmp_path}/my.mplstyle", "--width", "2in"]) == 2
    found = capsys.readouterr()
    assert found.err.splitlines()[-1] == (
        "fedscope: a figure of 2 inches is too narrow for type of 16 pt; make it 4.1 inches, or the type smaller"
    )
    written = sorted(path.name for path in tmp_path.glob("drawn*"))
    assert written
    assert not any(name.endswith((".pdf", ".png", ".html")) for name in written)
    if more:
        assert json.loads(found.out) == {**json.loads(told), "files": [f"{tmp_path}/{name}" for name in written]}
    else:
        listed = [line for line in told.splitlines() if not line.endswith((".pdf", ".png", ".html"))]
        assert found.out.splitlines() == listed


def test_a_style_that_figures_cannot_have_stops_a_command(
    plane: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.mplstyle").write_text("text.usetex: True\n")
    assert run([*plane, "--style", f"{tmp_path}/my.mplstyle"]) == 2
    assert "line 1, sets text.usetex, which figures of fedscope cannot have" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*DRAWING, "explain", "table", "report", "demo"])
def test_every_command_that_draws_takes_a_style(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert "--style FILE.mplstyle" in said
    assert name in ("report", "demo") or "pdf,png,svg" in said
