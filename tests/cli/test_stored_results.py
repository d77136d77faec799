"""Results that lie there are read back only where they are the answer: of the same data, models and numbers; and what
is derived or drawn from them goes with them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.analysis.execution import Execution
from fedscope.checkpoints import FedscopeWarning
from fedscope.cli.main import run

DRAW = np.random.default_rng(5)
X, Y = DRAW.normal(size=(40, 4)).astype(np.float32), DRAW.integers(0, 3, 40)
OTHER_X, OTHER_Y = DRAW.normal(size=(40, 4)).astype(np.float32), DRAW.integers(0, 3, 40)
MODULE = """
from torch import nn

def small():
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "nets_stored.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedscope.plotting.style.save_figure", drawn)
    yield tmp_path
    sys.modules.pop("nets_stored", None)


def drawn(_: object, base: str, formats: Iterable[str]) -> list[Path]:
    """Figures are files here, and what is in them is not looked at."""
    paths = [Path(f"{base}.{kind}") for kind in formats]
    for path in paths:
        path.write_text("drawn")
    return paths


def net(t: int, k: int = 0) -> nn.Module:
    made = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    draw = torch.Generator().manual_seed(100 * t + k)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return made


def record(path: str, rounds: Iterable[int] = (1, 2), *, shift: int = 0, errors: bool = False, **more: Any) -> None:
    """A loop's rounds of three clients; ``shift`` makes other models."""
    with fedscope.Recorder(path, **more) as recorder:
        for t in rounds:
            models = {k: net(t + shift, k) for k in (1, 2, 3)}
            numbers = {"metrics": {"test_error": 0.25}} if errors else {}
            recorder.round(start=net(t + shift), clients=models, global_=net(t + shift, 9), **numbers)


def write_data(path: str, x: np.ndarray, y: np.ndarray) -> None:
    np.savez(path, x_test=x, y_test=y)


def written(path: Path) -> tuple[int, int]:
    """Tell a file from one that was written in its place."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert run([*words, "--json"]) == 0, capsys.readouterr().err
    answer = json.loads(capsys.readouterr().out)
    answer.pop("files")
    return answer


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(list(words)) == 2, capsys.readouterr()
    return capsys.readouterr().err


def is_read_back(capsys: pytest.CaptureFixture[str], *words: str) -> bool:
    capsys.readouterr()
    assert run(list(words)) == 0, capsys.readouterr().err
    return "already holds this result" in capsys.readouterr().err


def without(path: str, *keys: str) -> None:
    """A result as an earlier version wrote it."""
    content = json.loads(Path(path).read_text())
    for key in keys:
        del content["attrs"][key]
    Path(path).write_text(json.dumps(content))


# --- data ---


@pytest.mark.parametrize("command", ["decompose", "explain"])
def test_a_decomposition_is_of_the_data_that_it_was_measured_on(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record("r")
    asked = [command, "r", "--draws", "none", "--split", "test", "--rounds", "1,2"]
    asked += ["--model", "nets_stored:small", "--data", "npz:t.npz"]
    write_data("t.npz", OTHER_X, OTHER_Y)
    other = told(capsys, *asked, "--out", "other")
    write_data("t.npz", X, Y)
    first = told(capsys, *asked, "--out", "e")
    assert first != other
    assert is_read_back(capsys, *asked, "--out", "e")
    write_data("t.npz", OTHER_X, OTHER_Y)
    said = refused(capsys, *asked, "--out", "e")
    assert "e.factors.json holds another result, of data that have changed since; give another --out" in said
    assert told(capsys, *asked, "--out", "e", "--force") == other
    without("e.factors.json", "data_sha256")
    assert "of an earlier fedscope, which kept nothing that tells the data" in refused(capsys, *asked, "--out", "e")


def test_a_stopped_decomposition_goes_on_with_the_same_data_alone(tmp_path: Path) -> None:
    record("r")
    how: dict[str, Any] = {"draws": "none", "split": "test", "model": net(0)}
    keep = Execution(keep=tmp_path / "kept")
    fedscope.decompose.prepare("r", rounds=1, data=(X, Y), **how).answer(keep)
    with pytest.warns(FedscopeWarning, match="was left by an analysis with other settings"):
        found = fedscope.decompose.prepare("r", rounds="1,2", data=(OTHER_X, OTHER_Y), **how).answer(keep)
    fresh = fedscope.decompose("r", rounds="1,2", data=(OTHER_X, OTHER_Y), **how)
    assert found.findings() == fresh.findings()


@pytest.mark.parametrize("kind", ["kept", "file"])
def test_a_run_that_keeps_what_tells_its_data_has_decompositions_as_before(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their results say no sum of the data, and those of earlier versions are read back."""
    write_data("t.npz", X, Y)
    record("r", data=(X, Y) if kind == "kept" else "npz:t.npz")
    asked = ["decompose", "r", "--draws", "none", "--split", "test", "--model", "nets_stored:small", "--out", "e"]
    assert not is_read_back(capsys, *asked)
    assert "data_sha256" not in json.loads(Path("e.factors.json").read_text())["attrs"]
    assert is_read_back(capsys, *asked)
    if kind == "kept":  # accepted data are others
        write_data("o.npz", OTHER_X, OTHER_Y)
        said = refused(capsys, *asked, "--data", "npz:o.npz", "--accept-data")
        assert "e.factors.json holds another result" in said


# --- rounds that were recorded again ---


def play_again(path: str, t: int, shift: int = 50, error: float | None = None) -> None:
    """A round, the last one, recorded again with other models."""
    Path(path, f"rounds/{t:05d}.h5").unlink()
    with fedscope.Recorder(path, resume=True) as recorder:
        models = {k: net(t + shift, k) for k in (1, 2, 3)}
        recorder.round(
            start=net(t + shift),
            clients=models,
            global_=net(t + shift, 9),
            metrics={} if error is None else {"test_error": error},
        )


MEASURED = ["--model", "nets_stored:small", "--data", "npz:t.npz"]
QUESTIONS = {
    "subsets": [*MEASURED, "--rounds", "2"],
    "updates": [],
    "disperse": [],
    "embed": ["--embed", "pca"],
    "parameters": [],
    "consensus": MEASURED,
    "predictors": MEASURED,
    "decompose": [*MEASURED, "--draws", "none", "--split", "test"],
    "cka": MEASURED,
    "wima": [*MEASURED, "--windows", "2", "--rounds", "2"],
    "synergy": [],
    "layers": ["--layers", "each", "--points", "3", "--rounds", "1,2", *MEASURED],
    "theory": [*MEASURED, "--kernel", "none", "--shrink", "none", "--split", "test"],
    "reaggregate": [*MEASURED, "--server", "fma"],
    "curves": [],
}
COMMANDS = {"embed": "disperse", "layers": "line"}
OF_ROUND = ("synergy", "reaggregate")


@pytest.mark.parametrize("question", QUESTIONS)
def test_results_are_of_the_rounds_that_they_were_measured_on(
    question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of the run has them, and a run whose round was recorded again has not."""
    write_data("t.npz", X, Y)
    record("a/r", errors=question == "curves")
    shutil.copytree("a/r", "b/r")
    for file in Path("b/r").rglob("*"):
        file.touch()  # a copy may be younger
    at = "@2" if question in OF_ROUND else ""
    words = [COMMANDS.get(question, question), "{}/r" + at, *QUESTIONS[question], "--out", "q"]
    assert not is_read_back(capsys, *(word.format("a") for word in words))
    assert is_read_back(capsys, *(word.format("b") for word in words))
    play_again("b/r", 2, error=0.5 if question == "curves" else None)
    said = refused(capsys, *(word.format("b") for word in words))
    of = "metrics that have changed since" if question == "curves" else "a/r with another round 2"
    assert f"holds another result, of {of}; give another --out, or --force" in said


def test_a_result_of_a_run_that_was_renamed_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """It bears the name that the run had; a run that only looks like it is another one."""
    record("r", errors=True)
    record("other", errors=True)
    assert not is_read_back(capsys, "curves", "r", "--out", "q")
    Path("r").rename("s")
    main = "q.curves.json"
    more = "give another --out, or --force to replace it"
    said = refused(capsys, "curves", "s", "--out", "q")
    assert said == f"fedscope: {main} holds another result, of this run under another name, r; {more}\n"
    play_again("other", 2, error=0.5)
    said = refused(capsys, "curves", "other", "--out", "q")
    assert said == f"fedscope: {main} holds another result, of the run r; {more}\n"
    assert not is_read_back(capsys, "curves", "s", "--out", "q", "--force"), "the remedy is one"


def test_an_alignment_is_of_all_the_rounds_that_it_was_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the first one it says its models, too."""
    write_data("t.npz", X, Y)
    record("r")
    asked = ["align", "r", "--rounds", "1,2", *MEASURED, "--out", "q"]
    assert not is_read_back(capsys, *asked)
    assert is_read_back(capsys, *asked)
    play_again("r", 2, error=None)
    assert "holds another result, of r with another round 2; give another --out" in refused(capsys, *asked)


def test_a_result_that_says_no_rounds_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of earlier versions, whatever was recorded since."""
    record("r", errors=True)
    assert not is_read_back(capsys, "disperse", "r", "--out", "q")
    assert not is_read_back(capsys, "curves", "r", "--out", "c")
    for path in ("q.dispersion.json", "c.curves.json"):
        content = json.loads(Path(path).read_text())
        head = content.get("attrs", content)
        for one in head["run"]:
            one.pop("seals", None)
        head.pop("metrics_xxh3", None)
        Path(path).write_text(json.dumps(content))
    play_again("r", 2)
    assert is_read_back(capsys, "disperse", "r", "--out", "q")
    assert is_read_back(capsys, "curves", "r", "--out", "c")


def test_rounds_that_come_later_leave_results_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    record("r", (1, 2))
    asked = ["updates", "r", "--rounds", "1,2", "--out", "q"]
    assert not is_read_back(capsys, *asked)
    with fedscope.Recorder("r", resume=True) as recorder:
        recorder.round(start=net(3), clients={k: net(3, k) for k in (1, 2, 3)}, global_=net(3, 9))
    assert is_read_back(capsys, *asked)


def test_a_stopped_question_goes_on_with_more_rounds_and_not_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedscope.decomposition.updates import angles

    record("r", (1, 2, 3))
    keep, real, calls = Execution(keep=tmp_path / "kept"), angles.geometry, []
    monkeypatch.setattr(angles, "geometry", lambda *args, **how: calls.append(how["number"]) or real(*args, **how))
    fedscope.updates.prepare("r", rounds="3").answer(keep)
    fedscope.updates.prepare("r", rounds="1,3").answer(keep)
    assert calls == [3, 1]
    play_again("r", 3)
    with pytest.warns(FedscopeWarning, match="was made of rounds that were recorded again since"):
        found = fedscope.updates.prepare("r", rounds="1-3").answer(keep)
    assert calls == [3, 1, 1, 2, 3]
    assert found.findings() == fedscope.updates("r").findings()


# --- what is derived and drawn ---


def test_the_table_of_several_runs_is_of_those_that_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for name, shift in (("r1", 0), ("prox", 10), ("s0", 20)):
        record(name, shift=shift)
    asked = {names: ["updates", *names.split(), "--out", "x"] for names in ("r1 prox", "r1 s0")}
    table = Path("x.updates.csv")
    made = {}
    for names in ("r1 prox", "r1 s0"):
        assert run(asked[names]) == 0
        made[names] = table.read_bytes()
    assert made["r1 prox"] != made["r1 s0"]
    for names in ("r1 prox", "r1 s0"):
        assert is_read_back(capsys, *asked[names])
        assert table.read_bytes() == made[names]
    assert run([*asked["r1 prox"], "--redraw"]) == 0
    assert table.read_bytes() == made["r1 prox"]
    before = written(table)
    assert run(asked["r1 prox"]) == 0
    assert written(table) == before


def test_bands_that_are_drawn_again_are_of_the_stored_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        record(f"fma-{seed}", method="fma", seed=seed, data=(X, Y), errors=True)
    asked = ["curves", "fma-0", "fma-1", "--bands", "--out", "b"]
    first = told(capsys, *asked)
    table = Path("b.bands.csv").read_bytes()
    play_again("fma-1", 2, error=0.75)
    assert told(capsys, *asked, "--redraw") == first
    assert Path("b.bands.csv").read_bytes() == table
    anew = told(capsys, *asked, "--force")
    assert anew != first
    assert Path("b.bands.csv").read_bytes() != table


def test_each_word_of_a_trajectory_counts_among_the_recorded_globals() -> None:
    from fedscope.landscape.planes.inputs import plane_models

    with fedscope.Recorder("r") as recorder:
        for t in range(1, 11):
            models = {k: net(t, k) for k in (1, 2)}
            recorder.round(start=net(t), clients=models, **({} if t % 2 else {"global_": net(t, 9)}))
    for words, numbers in {"last:3": (6, 8, 10), "1-3,last:2": (2, 8, 10), "1-5,every:4": (2, 4, 8)}.items():
        assert plane_models(["r"], "trajectory", words, ()).members == tuple(f"r@{t}/global" for t in numbers)


LINE = ["line", "r@1", "r@2", "--points", "3", "--model", "nets_stored:small", "--data", "npz:t.npz", "--out", "L"]


def pictures(base: str) -> set[str]:
    return {kind for kind in (".pdf", ".png", ".svg") if Path(f"{base}{kind}").exists()}


def test_figures_of_a_replaced_result_go_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    write_data("t.npz", X, Y)
    record("r", (1, 2, 3))
    others = [Path(name) for name in ("L.eps", "L.notes.png", "Lx.pdf", "L.tiff")]
    for path in others:
        path.write_text("mine")
    assert run(LINE) == 0
    assert run([*LINE, "--format", "svg"]) == 0  # of the same result: each is drawn of it
    assert pictures("L") == {".pdf", ".png", ".svg"}
    assert run([*LINE, "--redraw", "--format", "png"]) == 0
    assert pictures("L") == {".pdf", ".png", ".svg"}
    other = ["r@3" if word == "r@2" else word for word in LINE]
    assert "holds another result" in refused(capsys, *other, "--format", "svg")
    assert pictures("L") == {".pdf", ".png", ".svg"}
    assert run([*other, "--force", "--format", "svg"]) == 0
    assert pictures("L") == {".svg"}
    assert [path.read_text() for path in others] == ["mine"] * len(others)


def test_figures_where_no_result_lay_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing says that they are fedscope's."""
    write_data("t.npz", X, Y)
    record("r")
    Path("L.svg").write_text("mine")
    assert run([*LINE, "--force"]) == 0
    assert Path("L.svg").read_text() == "mine"
    Path("L.svg").unlink()
    Path("L.svg").symlink_to("mine.svg")
    Path("mine.svg").write_text("mine")
    assert run([*LINE, "--force"]) == 0
    assert Path("L.svg").read_text() == "mine"


def test_a_figure_of_a_replaced_table_goes_with_it() -> None:
    for name, factor in (("a", 0.1), ("b", 0.2), ("c", 0.3)):
        record(name, method="fma", settings={"client.lr": factor}, data=(X, Y), errors=True)
    asked = ["table", "a", "b", "c", "--columns", "client.lr", "--out", "T"]
    assert run(asked) == 0
    assert pictures("T") == {".pdf", ".png"}
    assert run([*asked, "--force", "--figure-format", "svg"]) == 0
    assert pictures("T") == {".svg"}
    assert run([*asked[:2], "--out", "T", "--force"]) == 0
    assert pictures("T") == set()


# --- test errors of the run ---


@pytest.mark.parametrize("command", ["decompose", "explain", "cka"])
def test_errors_that_were_measured_afterwards_are_in_results_that_lie_there(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data("t.npz", X, Y)
    record("r")
    asked = [command, "r", "--rounds", "1,2", *MEASURED]
    if command != "cka":
        asked += ["--draws", "none", "--split", "test"]
    assert run([*asked, "--out", "e"]) == 0
    before = fedscope.load("e")
    fedscope.measure("r", model="nets_stored:small", data="npz:t.npz")
    assert run([*asked, "--out", "e", "--redraw"]) == 0  # as it was made
    assert repr(fedscope.load("e").summary()) == repr(before.summary())
    assert is_read_back(capsys, *asked, "--out", "e")
    assert run([*asked, "--out", "fresh"]) == 0
    found, fresh = fedscope.load("e"), fedscope.load("fresh")
    assert told(capsys, *asked, "--out", "e") == told(capsys, *asked, "--out", "fresh")
    if command == "cka":
        errors = [one.test_error for one in found.rounds]
        assert np.isnan([one.test_error for one in before.rounds]).all()
        assert errors == [one.test_error for one in fresh.rounds]
        assert not np.isnan(errors).any()
        return
    old, new, other = (one if command == "decompose" else one.decomposition for one in (before, found, fresh))
    assert old.runs[0].curves == ()
    (curve,) = new.runs[0].curves
    assert (curve,) == other.runs[0].curves
    assert curve.rounds == (1, 2)
    assert new.runs[0].rounds == old.runs[0].rounds
    if command == "explain":
        assert found.statements == fresh.statements != before.statements


@pytest.mark.usefixtures("few_digits")
def test_a_run_that_went_on_leaves_the_errors_of_a_result_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--clients", "3", "--participation", "1", "--epochs", "1", "--set", "model.hidden=[8]"]
    assert run(["train", "--method", "fma", "--out", "t", "--rounds", "3", "--until", "2", *small]) == 0
    asked = ["decompose", "t", "--draws", "none", "--split", "test", "--rounds", "1,2", "--out", "e"]
    assert run(asked) == 0
    files = {path: written(path) for path in Path().glob("e.*.[cj]s*")}
    assert len(files) == 3
    assert run(["train", "--resume", "t"]) == 0
    assert is_read_back(capsys, *asked)
    assert {path: written(path) for path in files} == files
