"""Every question, asked on the command line and from Python: the same numbers; drawn again without torch; interrupted
between its files and asked again."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from asked import ASKED, FROM_PYTHON
from few import few

import fedscope
from fedscope.analysis.analysis import fit_file_name, single_result
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.decomposition.synergy.result import Synergy

pytestmark = pytest.mark.usefixtures("few_digits")


def told(capsys: pytest.CaptureFixture[str], command: str, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*command.split(), *more, "--out", "m", "--json"]) == 0, capsys.readouterr().err
    numbers: dict[str, Any] = json.loads(capsys.readouterr().out)
    return numbers


@pytest.fixture(scope="module")
def asked_once(two_rounds: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """The folder in which a command of ASKED was given with ``--out m``, and its numbers; each is given once."""
    known: dict[str, tuple[Path, str]] = {}

    def ask(name: str) -> tuple[Path, Any]:
        if name not in known:
            folder, printed = tmp_path_factory.mktemp(name), io.StringIO()
            (folder / "runs").symlink_to(two_rounds / "runs")
            with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
                patch.chdir(folder)
                assert run([*ASKED[name][0].split(), "--out", "m", "--json"]) == 0
            known[name] = folder, printed.getvalue()
        folder, words = known[name]
        return folder, json.loads(words)

    return ask


@pytest.mark.same_elsewhere
def test_every_command_of_a_result_is_a_function() -> None:
    assert FROM_PYTHON.keys() == ASKED.keys()
    names = {command.split()[0] for command, _ in ASKED.values()}
    assert [name for name in names if not hasattr(fedscope, name)] == []


@pytest.mark.parametrize("name", ASKED)
def test_the_function_and_the_command_give_the_same_numbers_and_files(
    asked_once: Callable[[str], tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    here, said = asked_once(name)
    monkeypatch.chdir(here)
    files = said.pop("files")
    # what draws pages lies beside them, once a folder
    there = [path.name for path in here.iterdir() if path.name != "runs" and not path.match("plotly-*.min.js")]
    assert sorted(files) == sorted(there)
    result = FROM_PYTHON[name]()
    assert result.numbers() == said
    assert json.loads(json.dumps(result.numbers(), allow_nan=False)) == result.numbers(), "plain JSON types"
    written = {path.name for path in result.save("n")}
    pictures = {file for file in files if file.endswith((".pdf", ".png", ".html"))}
    assert {f"m{file.removeprefix('n')}" for file in written} == set(files) - pictures


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        *(("subsets", 1), ("disperse", 1), ("disperse", 2), ("updates", 1), ("plane-both", 2), ("reaggregate", 1)),
        *(pytest.param(name, whole, marks=pytest.mark.slow) for name in ("decompose", "explain") for whole in (1, 2)),
        *(pytest.param(name, 2, marks=pytest.mark.slow) for name in ("updates", "reaggregate")),
    ],
)
def test_a_command_that_is_stopped_between_its_files_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, whole: int
) -> None:
    """After ``whole`` files of the result are there, and none of what follows; what lies there is finished."""
    right = told(capsys, ASKED[name][0])
    for path in here.iterdir():
        if path.name != "runs":
            path.unlink()
    renamed, real = [], Path.replace

    def stopping(path: Path, target: Any) -> Path:
        if len(renamed) == whole:
            raise KeyboardInterrupt
        renamed.append(target)
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stopping)
        assert run([*ASKED[name][0].split(), "--out", "m"]) == 130
    assert len(renamed) == whole
    assert told(capsys, ASKED[name][0]) == right
    left = [path.name for path in here.iterdir() if path.name.endswith((".tmp", ".partial"))]
    assert left == []


def test_a_replacement_that_is_stopped_halfway_is_never_taken_for_either(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a table of the new result and the file that says which result it is of."""
    old, new = "subsets runs/fma --rounds 1", "subsets runs/fma --rounds 2"
    told(capsys, old)
    renamed, real = [], Path.replace

    def stopping(path: Path, target: Any) -> Path:
        if renamed:
            raise KeyboardInterrupt
        renamed.append(target)
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stopping)
        assert run([*new.split(), "--out", "m", "--force"]) == 130
    assert run(["subsets", "runs/fma", "--out", "m", "--redraw"]) == 2
    assert "m.subsets.json does not exist, so there is nothing to draw again" in capsys.readouterr().err
    assert [one["round"] for one in told(capsys, new)["rounds"]] == [2]


REDRAW = """
import os
import sys
sys.path.insert(0, {tests!r})
from conftest import sketch
from matplotlib.figure import Figure
from fedscope.cli.main import run
from fedscope.decomposition.synergy.result import Synergy
Figure.savefig = sketch
for folder, words in {commands!r}:
    os.chdir(folder)
    assert run([*words, "--out", "m", "--redraw"]) == 0, words
    loaded = {{"torch", "torchvision"}} & set(sys.modules)
    assert not loaded, (words, loaded)
"""


@pytest.mark.programs
@pytest.mark.same_elsewhere
def test_results_are_drawn_again_the_same_and_without_torch(
    asked_once: Callable[[str], tuple[Path, Any]],
) -> None:
    commands = []
    for name, (command, _) in ASKED.items():
        # two share a module with others; the third asks for methods, whose modules are of torch
        if name not in ("parameters-tsne", "cka-models", "reaggregate"):
            commands.append((str(asked_once(name)[0]), command.split()))
    figures = {
        path: path.read_bytes()
        for folder, _ in commands
        for end in ("pdf", "png", "html")
        for path in Path(folder).glob(f"m.*{end}")
    }
    for path in figures:
        path.unlink()
    redraw = REDRAW.format(commands=commands, tests=str(Path(__file__).parents[2]))
    done = subprocess.run([sys.executable, "-P", "-c", redraw], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
    assert len(figures) > len(commands)
    assert [path for path, drawn in figures.items() if path.read_bytes() != drawn] == []


@pytest.mark.same_elsewhere
def test_a_typo_and_writing_a_run_load_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    code = """
import sys
import numpy as np
from fedscope.cli.main import run
from fedscope.decomposition.synergy.result import Synergy
assert run(["plane", "--gird", "5"]) == 2
from fedscope import Layout, Run
from fedscope.checkpoints import RoundRecord, RunWriter, TensorEntry, Weights
layout, ids, p = Layout((TensorEntry("w", (3,), "float32", "parameter"),)), np.arange(2), np.array([0.5, 0.5])
one, clients = Weights(layout, np.zeros(3, np.float32), {}), Weights(layout, np.ones((2, 3), np.float32), {})
with RunWriter.create("r", {"layout": layout.to_json(), "source": "mine"}, None, None) as writer:
    writer.write(RoundRecord(1, one, clients, one, None, ids, ids + 1, ids, p, p))
assert Run.open("r").round(1).clients().parameters.sum() == 6
assert not {"torch", "matplotlib"} & set(sys.modules), {"torch", "matplotlib"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-1500:]
    assert "'--grid'" in done.stderr


#: what may come to stand in a cell of a table
CELLS = ("", "x", "-1", "nan", "-inf", "1e999", "0.5", "7", "9" * 400, "True", "é\x00", "client-99")


def damaged_cells(folder: Path) -> Iterator[tuple[Path, int, str, str]]:
    """Every column of every table of a result, and what stands in one of its rows instead; one letter changed, too."""
    draw = random.Random(7)
    for path in sorted(folder.glob("m*.csv")):
        rows = list(csv.reader(io.StringIO(path.read_text())))
        for column, name in enumerate(rows[0]):
            row = draw.randrange(1, len(rows)) if len(rows) > 1 else 0
            own = rows[row][column]
            place = draw.randrange(len(own)) if own else 0
            flipped = own[:place] + chr(ord(own[place]) ^ 1 << draw.randrange(5)) + own[place + 1 :] if own else "a"
            for cell in (*CELLS, flipped):
                changed = [list(one) for one in rows]
                changed[row][column] = cell
                text = io.StringIO()
                csv.writer(text, lineterminator="\n").writerows(changed)
                yield path, row, f"{name} = {cell!r}", text.getvalue()


TABLES = [name for name, (_, files) in ASKED.items() if ".csv" in files and name not in ("data", "plane")]


@pytest.mark.same_elsewhere
@pytest.mark.parametrize(
    "name", few(TABLES, lambda name: name not in ("updates", "explain", "disperse", "decompose", "theory"))
)
def test_a_damaged_cell_of_any_column_is_drawn_or_refused(
    asked_once: Callable[[str], tuple[Path, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """Read back from Python every time; drawn again by the command for a few of those that can be read."""
    from fedscope.analysis.analysis import PreparedAnalysis

    source, _ = asked_once(name)
    shutil.copytree(source, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    asked: list[PreparedAnalysis[Any]] = []

    def take(question: PreparedAnalysis[Any], *_: Any) -> None:
        asked.append(question)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fedscope.cli.run_analysis.obtain", take)
        assert run([*ASKED[name][0].split(), "--out", "m"]) == 130
    kinds = [part.kind for part in asked[0].parts]
    cases = list(damaged_cells(Path()))
    assert len(cases) >= 3 * len(CELLS)
    drawn = 0
    for number, (path, _, _, text) in enumerate(cases):
        whole = path.read_text()
        path.write_text(text)
        refused = 0
        for kind in kinds:
            try:
                kind.load("m").numbers()
            except FedscopeError:
                refused += 1
        if not refused and number % 7 == 0 and drawn < 6:
            drawn += 1
            assert run([*ASKED[name][0].split(), "--out", "m", "--redraw"]) in (0, 2)
        path.write_text(whole)
    assert "Traceback" not in capsys.readouterr().err


def test_a_default_name_that_no_file_could_have_is_cut_and_another_stays(tmp_path: Path) -> None:
    """Twelve runs of a sweep, whose names stand one behind the other, were a file name of 308 bytes."""
    several = [f"method=fma-lr=0.05-seed={seed}" for seed in range(10, 22)]
    for names, cut in ((several, True), (several[:4], False), ([f"平均{seed}" * 12 for seed in range(3)], True)):
        name = "-".join(names)
        question = single_result(Synergy, tmp_path, name, dict)
        assert (question.name != name) is cut
        longest = max(question.parts[0].files(tmp_path / question.name), key=lambda file: len(file.name.encode()))
        longest.with_name(f"{longest.name}.partial.11").touch()
        assert len({question.name, *(single_result(Synergy, tmp_path, f"{name}{end}", dict).name for end in "ab")}) == 3


def test_names_are_cut_between_letters() -> None:
    assert fit_file_name("平" * 101).startswith("平" * 26 + "-")


def _of_rounds() -> list[str]:
    """Questions that take several rounds of a run; three take one, and a run of adapters has adapters."""
    from inspect import signature

    names = {command.split()[0] for command, _ in ASKED.values()} - {"adapters", "parameters", "reaggregate", "synergy"}
    return sorted(name for name in names if "rounds" in signature(getattr(fedscope, name)).parameters)


@pytest.mark.parametrize("name", _of_rounds())
def test_other_rounds_of_a_run_are_other_files_in_its_folder(recorded: Any, tmp_path: Path, name: str) -> None:
    """A range is not its ends, and the last round not all."""
    words = "--method fma --clients 8 --participation 1 --rounds 4 --set model.hidden=[6] --set run.evaluate_clients=0"
    run = recorded(tmp_path / "fma", *words.split())
    more = {"plane": {"grid": 5}, "wima": {"windows": [2]}}.get(name, {})
    made = [getattr(fedscope, name).prepare(str(run), rounds=rounds, **more) for rounds in ("2-4", "2,4", "4", "all")]
    assert {one.folder for one in made} == {run / "figures"}
    assert len({one.name for one in made}) == 4
