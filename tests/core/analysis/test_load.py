"""``fedscope.load``: every result comes back as itself, and everything else is refused with a sentence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from asked import FROM_PYTHON

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.results import Collection

pytestmark = pytest.mark.usefixtures("few_digits")

#: further answers, in which several runs, rounds or layers belong together
SEVERAL: dict[str, Callable[[], Any]] = {
    "planes-of-two-runs": lambda: fedscope.plane(["runs/other", "runs/fma"], rounds="2,1", grid=3, limit=60),
    "planes-both-over-rounds": lambda: fedscope.plane("runs/fma", rounds=[1, 2], grid=3, split="both", limit=60),
    "planes-of-clients": lambda: fedscope.plane(
        ["runs/fma@1", "runs/fma@2", "runs/fma@2/client-0"], grid=3, data_of="5,3", limit=60
    ),
    "updates-of-two-runs": lambda: fedscope.updates(["runs/other", "runs/fma"]),
    "cka-of-two-runs-and-layers": lambda: fedscope.cka(
        ["runs/other", "runs/fma"], rounds=2, layer=["output", "fc1"], limit=100
    ),
    "cka-of-layers": lambda: fedscope.cka(["runs/fma@1", "runs/fma@2"], layer=["output", "fc1"], limit=100),
    "curves-of-much": lambda: fedscope.curves(
        ["runs/other", "runs/fma"], measures=["test_accuracy", "lr"], target=0.2, last=1
    ),
    "curves-in-bands": lambda: fedscope.curves(["runs/other", "runs/fma"], bands=True),
    "lines": lambda: fedscope.line(["runs/fma@1", "runs/fma@2", "runs/fma@2", "runs/other@2"], points=3, limit=60),
    "sharpness-of-two": lambda: fedscope.sharpness(["runs/fma@2", "runs/other@2"], hessian=False, limit=60),
    "decompose-of-two": lambda: fedscope.decompose(
        ["runs/other", "runs/fma"], rounds=2, draws="local:2", split="test", limit=60
    ),
    "table": lambda: fedscope.table(["runs/fma", "runs/other"], target=0.1, last=1),
    "reaggregate-of-two": lambda: fedscope.reaggregate("runs/fma@2", ["fedavgm", "fedadam"]),
}
EVERY = FROM_PYTHON | SEVERAL


@pytest.fixture(scope="module")
def made(
    two_rounds: Path, tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]
) -> Callable[[str], tuple[Path, Any]]:
    """The folder with nothing but ``runs`` and the files of an answer saved under ``m``, and the answer; made once."""
    known: dict[str, tuple[Path, Any]] = {}

    def make(name: str) -> tuple[Path, Any]:
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            shutil.copytree(two_rounds / "runs", folder / "runs")
            if name in SEVERAL:
                words = "--method fma --clients 8 --participation 1 --rounds 2 --set model.hidden=[6]"
                recorded(folder / "runs/other", *words.split(), *["--set", "run.evaluate_clients=0", "--seed", "1"])
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                answer = EVERY[name]()
                answer.save("saved/m")
            known[name] = folder, answer
        return known[name]

    return make


def pictures(result: Any) -> dict[str, bytes]:
    """A digest of every figure."""
    drawn = {}
    try:
        figures = result.figures()
    except FedscopeError as error:
        return {"": str(error).encode()}
    for end, figure in figures.items():
        figure.savefig(file := BytesIO(), format="pdf")
        drawn[end] = file.getvalue()
    return drawn


@pytest.mark.parametrize("name", EVERY)
def test_what_is_saved_comes_back_as_itself(
    made: Callable[[str], tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder, answer = made(name)
    monkeypatch.chdir(folder)
    back = fedscope.load("saved/m")
    assert type(back) is type(answer)
    assert back.numbers() == answer.numbers()
    assert back.summary() == answer.summary()
    assert pictures(back) == pictures(answer)
    assert back.pages() == answer.pages() if not isinstance(answer, Collection) else True
    assert type(fedscope.load("saved")) is type(answer), "a folder's single result"
    again = back.save("again/m")
    assert sorted(path.name for path in again) == sorted(path.name for path in Path("saved").iterdir())
    for path in again:
        assert path.read_bytes() == Path("saved", path.name).read_bytes() or path.suffix == ".nc", path


@pytest.mark.parametrize("name", EVERY)
def test_every_result_becomes_frames_and_data_sets(made: Callable[[str], tuple[Path, Any]], name: str) -> None:
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    _, answer = made(name)
    frames, sets = answer.to_pandas(), answer.to_xarray()
    for frame in frames.values() if isinstance(frames, dict) else (frames,):
        assert isinstance(frame, pandas.DataFrame)
        assert len(frame)
        assert len(frame.columns)
    for one in sets.values() if isinstance(sets, dict) else (sets,):
        assert isinstance(one, xarray.Dataset)
        assert one.data_vars


@pytest.mark.parametrize("name", EVERY)
def test_every_result_is_one_screen(made: Callable[[str], tuple[Path, Any]], name: str) -> None:
    _, answer = made(name)
    lines = repr(answer).splitlines()
    print(repr(answer))
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    assert type(answer).__name__ in lines[0]
    assert lines[-1].startswith("  next: ")


def test_runs_rounds_and_reports_are_one_screen(made: Callable[[str], tuple[Path, Any]]) -> None:
    folder, _ = made("planes-of-two-runs")
    run = fedscope.Run.open(folder / "runs/fma")
    report = fedscope.report(run)
    for thing, words in (
        (run, ("fma", "460 parameters", "digits", "8 clients", "last round: 2 of 2", "test_error", ".metrics()")),
        (run.round(2), ("fma@2", "clients: 8 (0, 1,", "all models", "start, global", '.read("global")')),
        (report, ("Report on fma", "0 results", "sound", ".save(")),
    ):
        shown = repr(thing)
        print(shown)
        assert len(shown.splitlines()) <= 25
        assert max(map(len, shown.splitlines())) <= 100
        assert [word for word in words if word not in shown] == []
    assert "<iframe srcdoc=" in report._repr_html_()
    (folder / "runs/fma/rounds/00002.h5").write_bytes(b"spoilt")
    assert "it cannot be read: " in repr(fedscope.Run.open(folder / "runs/fma"))
    assert "it cannot be read: " in repr(fedscope.Run.open(folder / "runs/fma").round(2))
