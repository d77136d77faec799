"""`fedscope plane` beyond three models: planes near many, several data sets in one pass, previews, its mistakes."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from strange_places import LINK, put, untouched

import fedscope
from fedscope import Plane, Planes, Run
from fedscope.analysis.execution import Execution
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.cli.main import run
from fedscope.evaluation.evaluator import Evaluator
from fedscope.landscape.planes.drawing.preview import Preview
from fedscope.training import data_of, module_of

pytestmark = pytest.mark.usefixtures("few_digits")

TRAIN = [
    "train", "--clients", "8", "--participation", "0.5", "--rounds", "5", "--epochs", "2", "--out", "runs/ima",
    "--set", "model.hidden=[8]", "--set", "average.start=3",
]  # fmt: skip
GRID = ["--grid", "4", "--limit", "60"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(TRAIN) == 0
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert run(["plane", *words, *GRID, "--json"]) == 0, capsys.readouterr()
    told: dict = json.loads(capsys.readouterr().out)
    return told


def clients_of(number: int) -> list[int]:
    return Run.open("runs/ima").round(number).client_ids.tolist()


def test_the_clients_plane_of_a_round(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, "runs/ima@4", "--clients", "--show", "runs/ima@4/global")
    labels = [model["label"] for model in told["models"]]
    assert labels[:4] == [f"ima@4/client-{k}" for k in clients_of(4)]
    assert [model["role"] for model in told["models"]] == ["anchor"] * 4 + ["mean", "shown"]
    assert len(told["basin"]["gaps"]) == 4
    plane = Plane.load("runs/ima/figures/plane-clients-ima@4.nc")
    assert plane.span == "clients"
    assert 0.5 < sum(plane.attrs["explained"]) <= 1
    assert Path("runs/ima/figures/plane-clients-ima@4.basin.csv").exists()


def test_the_trajectory_of_a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, "runs/ima", "--trajectory")
    assert [(model["label"], model["role"]) for model in told["models"]] == [
        (f"ima@{t}/global", "path") for t in range(1, 6)
    ]
    assert "basin" not in told
    assert Plane.load("runs/ima/figures/plane-trajectory.nc").path[-1].off_plane == 0
    few = asked(capsys, "runs/ima", "--trajectory", "--rounds", "1,3,last", "--out", "few")
    assert [model["label"] for model in few["models"]] == [f"ima@{t}/global" for t in (1, 3, 5)]


def test_random_directions_depend_on_the_seed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for out, seed in (("a", "0"), ("b", "1")):
        asked(capsys, "runs/ima@last", "--random", "--seed", seed, "--out", out)
    a, b = Plane.load("a.nc"), Plane.load("b.nc")
    assert (a.span, a.attrs["directions_seed"], b.attrs["directions_seed"]) == ("random", 0, 1)
    assert a.models[0].role == "origin"
    assert not np.array_equal(a.loss, b.loss)
    assert run(["plane", "runs/ima@last", "--random", *GRID, "--seed", "1", "--out", "a"]) == 2
    assert "a.nc holds another result, of --seed 0 (not 1);" in capsys.readouterr().err


ANCHORS = [f"runs/ima@{t}/global" for t in (3, 4, 5)]


PLANES: list[tuple[list[str], Any, dict[str, Any]]] = [
    ([*ANCHORS, "--show", "runs/ima@all/start"], ANCHORS, {"show": "runs/ima@all/start"}),
    ([*ANCHORS, "--adaptive", "--split", "train"], ANCHORS, {"adaptive": True, "split": "train"}),
    ([*ANCHORS, "--adaptive", "--budget", "100%"], ANCHORS, {"adaptive": True, "budget": 1}),
    (["runs/ima@4", "--clients", "--range", "-1", "2", "-3", "0.5"], "runs/ima@4",
     {"clients": True, "range": (-1, 2, -3, 0.5)}),
    (["runs/ima", "--trajectory", "--rounds", "1,3,last", "--margin", "1"], Path("runs/ima"),
     {"trajectory": True, "rounds": [1, 3, "last"], "margin": 1}),
    (["runs/ima@last", "--random", "--seed", "2"], "runs/ima@last", {"random": True, "seed": 2}),
    (["runs/ima", "--rounds", "2", "--split", "both"], "runs/ima", {"rounds": 2, "split": "both"}),
    (["runs/ima@5", "--random", "--data-of", "3,5"], "runs/ima@5", {"random": True, "data_of": [3, 5]}),
]  # fmt: skip
LINES: list[tuple[list[str], Any, dict[str, Any]]] = [
    ([*ANCHORS[:2], "runs/ima@1", "runs/ima@2", "--points", "5"],
     [(ANCHORS[0], ANCHORS[1]), ("runs/ima@1", "runs/ima@2")], {"points": 5}),
    (["runs/ima@4", "--clients", "--normalization", "keep"], "runs/ima@4",
     {"clients": True, "normalization": "keep"}),
    ([*ANCHORS[:2], "--range", "0", "3", "--split", "train"], ANCHORS[:2], {"range": (0, 3), "split": "train"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "ask", "models", "settings"),
    [(["plane", *words, *GRID], fedscope.plane, models, {**more, "grid": 4}) for words, models, more in PLANES]
    + [(["line", *words, *GRID[2:]], fedscope.line, models, more) for words, models, more in LINES],
)
def test_the_function_gives_the_commands_numbers(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], ask: Any, models: Any, settings: dict[str, Any]
) -> None:
    assert run([*words, "--out", "x", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    del told["files"]
    result = ask(models, **settings, limit=60)
    assert result.numbers() == told
    if "--range" in words and ask is fedscope.plane:
        assert (result.a[0], result.a[-1], result.b[0], result.b[-1]) == (-1, 2, -3, 0.5)


def test_a_run_that_is_open_is_as_good_as_its_folder(here: Path) -> None:
    opened, folder = (
        fedscope.plane(run, rounds=[1, "last"], grid=3, limit=60) for run in (Run.open("runs/ima"), "runs/ima")
    )
    assert opened.numbers() == folder.numbers()
    assert isinstance(opened, Planes)
    assert list(opened.parts) == [".round-1", ".round-5", ".globals"]
    assert opened.attrs["run"][0]["path"] == "runs/ima"


def test_both_splits_in_one_pass_are_two_ordinary_results(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    anchors = [f"runs/ima@{t}/global" for t in (3, 4, 5)]
    told = asked(capsys, *anchors, "--split", "both", "--out", "both")
    assert len(told["panels"]) == 2
    for split in ("test", "train"):
        asked(capsys, *anchors, "--split", split, "--out", f"alone-{split}")
        alone, together = Plane.load(f"alone-{split}.nc"), Plane.load(f"both.{split}.nc")
        assert np.array_equal(alone.loss, together.loss)
        assert together.attrs["split"] == split
        assert Path(f"both.{split}.basin.csv").read_bytes() == Path(f"alone-{split}.basin.csv").read_bytes()
    assert Path("both.both.pdf").exists()
    before = Path("both.both.png").read_bytes()
    Path("both.train.nc").unlink()  # the other one is not lost, and the pass makes both again
    asked(capsys, *anchors, "--split", "both", "--out", "both")
    assert Path("both.train.nc").exists()
    assert Path("both.both.png").read_bytes() == before


def test_whose_basin_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = clients_of(5)[:3]
    anchors = [f"runs/ima@5/client-{k}" for k in ids]
    told = run(["plane", *anchors, "--data-of", "clients", "--grid", "4", "--out", "whose", "--json"])
    assert told == 0
    panels = json.loads(capsys.readouterr().out)["panels"]
    partition = Run.open("runs/ima").partition
    assert partition is not None
    for i, (k, panel) in enumerate(zip(ids, panels, strict=True)):
        # a client's own model is the best of the three on its own data
        losses = [model["loss"] for model in panel["models"][:3]]
        assert min(losses) == losses[i]
        attrs = Plane.load(f"whose.client-{k}.nc").attrs
        assert (attrs["client"], attrs["split"], attrs["samples"]) == (k, "train", len(partition.clients[k]))
    one = asked(capsys, *anchors, "--data-of", str(ids[0]), "--out", "one")
    assert len(one["panels"]) == 1


def test_panels_take_both_splits_as_rows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, "runs/ima", "--rounds", "2", "--split", "both", "--out", "rows")
    assert len(told["panels"]) == 4
    assert {path.name for path in here.glob("rows*.nc")} == {
        f"rows.{what}.{split}.nc" for what in ("round-2", "globals") for split in ("test", "train")
    }


def test_shown_models_may_be_a_model_a_round(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    anchors = [f"runs/ima@{t}/global" for t in (1, 3, 5)]
    told = asked(capsys, *anchors, "--show", "runs/ima@all/global", "--show", "runs/ima@3,5/averaged", "--out", "x")
    assert [model["label"] for model in told["models"][4:]] == [
        *(f"ima@{t}/global" for t in range(1, 6)),
        *(f"ima@{t}/averaged" for t in (3, 5)),
    ]


def test_a_preview_shows_while_it_is_measured_and_goes(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedscope.landscape.planes.drawing.preview.EVERY", 0.0)
    monkeypatch.setattr("fedscope.landscape.planes.drawing.preview.SHARE", 1e9)
    drawn: list[str] = []
    whole = Preview._draw

    def draw(preview: Preview, plane: Plane) -> None:
        whole(preview, plane)
        assert Path("x.preview.png").read_bytes()[:4] == b"\x89PNG"
        drawn.append(f"{len(plane.a)} of {plane.attrs['grid']}")

    monkeypatch.setattr(Preview, "_draw", draw)
    assert run(["plane", "runs/ima@last", "--random", "--grid", "9", "--limit", "60", "--out", "x"]) == 0
    assert drawn == ["5 of 9 x 9", "9 of 9 x 9"]
    assert not Path("x.preview.png").exists()


@pytest.mark.parametrize("kind", [LINK, "a folder"])
def test_a_preview_that_cannot_be_written_is_said_once(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("fedscope.landscape.planes.drawing.preview.EVERY", 0.0)
    put(kind, Path("x.preview.png"), Path("victim").absolute())
    assert run(["plane", "runs/ima@last", "--random", "--grid", "9", "--limit", "60", "--out", "x"]) == 0
    told = capsys.readouterr()
    assert told.err.count("x.preview.png cannot be written") == 1
    assert "so there is no preview; going on without" in told.err
    assert Path("x.nc").exists()
    assert untouched(kind, Path("x.preview.png"), Path("victim").absolute())


def test_a_figure_of_another_question_leaves_the_first_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    anchors = [f"runs/ima@5/client-{k}" for k in clients_of(5)[:3]]
    asked(capsys, *anchors, "--out", "x")
    before = Path("x.png").read_bytes()
    asked(capsys, *anchors, "--out", "x", "--split", "both")
    asked(capsys, *anchors, "--out", "x", "--data-of", "0,1,0")
    assert Path("x.png").read_bytes() == before
    assert Path("x.both.png").exists()
    assert Path("x.data-of-0-1-0.png").exists()
    assert sorted(path.name for path in here.glob("x.client-*.nc")) == ["x.client-0.nc", "x.client-1.nc"]


def test_a_clients_own_data_are_its_rows_of_the_training_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    k = clients_of(5)[0]
    run_ = Run.open("runs/ima")
    told = asked(capsys, "runs/ima@5/global", "--random", "--data-of", str(k), "--out", "x", "--grid", "3")
    (panel,) = told["panels"]
    assert (panel["client"], panel["split"], panel["title"]) == (k, "train", f"client {k}'s data")
    assert run_.partition is not None
    whole, rows = data_of(run_).samples("train"), run_.partition.clients[k]
    own = replace(whole, x=whole.x[rows], y=whole.y[rows], indices=rows)
    loss, _ = Evaluator(module_of(run_), own.limit(60)).models(run_.round(5).read("global"))
    assert panel["models"][0]["loss"] == loss[0]
    assert run(["plane", "runs/ima@5/global", "--random", "--data-of", str(k), "--out", "y", "--limit", "9"]) == 0
    fewer = Plane.load(f"y.client-{k}.nc")
    assert fewer.attrs["samples"] == 9
    assert fewer.models[0].loss != loss[0]


@pytest.mark.same_elsewhere
@pytest.mark.parametrize(
    ("option", "name"),
    [
        (["--adaptive"], "--adaptive no (not yes)"),
        (["--range", "-1", "1", "-1", "1"], "--range none (not -1,1,-1,1)"),
        (["--normalization", "keep"], "--normalization interpolate (not keep)"),
        (["--split", "train"], "--split test (not train)"),
        (["--limit", "50"], "samples 60 (not 50)"),
        (["--limit", "50", "--seed", "1"], "samples 60 (not 50) and --seed 0 (not 1)"),
        (["--limit", "2000"], "samples 60 (not 72)"),
    ],
)
def test_a_result_is_not_taken_for_that_of_another_question(
    here: Path, capsys: pytest.CaptureFixture[str], option: list[str], name: str
) -> None:
    words = ["plane", *(f"runs/ima@{t}/global" for t in (3, 4, 5)), "--grid", "4", "--out", "x"]
    assert run([*words, "--limit", "60"]) == 0
    capsys.readouterr()
    assert run([*words, "--limit", "60", *option]) == 2
    assert f"x.nc holds another result, of {name}; give another --out, or --force" in capsys.readouterr().err


ENDED = ["plane", *(f"runs/ima@{t}/global" for t in (3, 4, 5)), "--limit", "60", "--grid", "21", "--out", "x"]


def kept_as(plane: Plane, base: str, **attrs: Any) -> None:
    """The same result, as if it had ended otherwise."""
    replace(plane, attrs={**plane.attrs, **attrs}).save(base)


def test_a_budget_that_ended_is_gone_on_from(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ENDED, "--adaptive", "--budget", "12%"]) == 0
    made = Plane.load("x.nc")
    assert made.computed is not None
    assert made.attrs["adaptive"] == 0.12
    assert made.attrs["points_computed"] <= 0.12 * 441
    kept_as(made, "x", held_out_beyond=3.0)
    missed, was = Path("x.nc").read_bytes(), made.computed
    # the same or a smaller budget has nothing to go on with
    for budget in ("0.12", "10%"):
        assert run([*ENDED, "--adaptive", "--budget", budget]) == 0
        told = capsys.readouterr()
        assert "already holds this result" in told.err
        assert "which a budget of 12 % did not reach: ask again with a larger --budget, or none" in told.out
    assert Path("x.nc").read_bytes() == missed
    # no budget: to the aim
    assert run([*ENDED, "--adaptive"]) == 0
    told = capsys.readouterr()
    assert "x.nc ended at a smaller budget; going on from what it measured" in told.err
    found = Plane.load("x.nc")
    assert found.computed is not None
    assert found.computed[was].all()
    assert found.computed.sum() > was.sum()
    np.testing.assert_array_equal(found.loss[was], made.loss[was])
    assert found.attrs["held_out_beyond"] <= 1
    assert found.attrs["points_taken_over"] == was.sum()
    assert f", {was.sum()} of them before, " in told.out or found.computed.all()
    # whose aim is met is the answer whatever the budget
    for words in ([], ["--budget", "5e1%"], ["--budget", "0.1"]):
        assert run([*ENDED, "--adaptive", *words]) == 0
        assert "already holds this result" in capsys.readouterr().err
    assert run(ENDED) == 2
    assert "x.nc holds another result, of --adaptive yes (not no)" in capsys.readouterr().err


@pytest.mark.same_elsewhere
def test_a_result_of_before_there_were_budgets_is_taken_as_one_of_15_percent(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ENDED, "--adaptive", "--budget", "15%"]) == 0
    made = Plane.load("x.nc")
    kept_as(made, "x", held_out_beyond=0.99, points_unknown=0)
    capsys.readouterr()
    assert run([*ENDED, "--adaptive"]) == 0
    assert "already holds this result" in capsys.readouterr().err
    kept_as(made, "x", held_out_beyond=0.99, points_unknown=1)
    assert run([*ENDED, "--adaptive"]) == 0
    assert "going on from what it measured" in capsys.readouterr().err
    # measured elsewhere, its points are not mixed with those of here
    kept_as(made, "x", held_out_beyond=3.0, device="cuda")
    with pytest.warns(FedscopeWarning, match=r"was measured on cuda in float32, and here it is cpu in float32: all"):
        fedscope.plane.prepare([f"runs/ima@{t}/global" for t in (3, 4, 5)], adaptive=True, limit=60, grid=21).answer(
            Execution(earlier=[Plane.load("x")])
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "15%"], "--budget 15% is about --adaptive, and without it all points are measured; add "),
        (["--adaptive", "--budget", "0"], "--budget 0 is no share of the points; give one above 0 and at most 1 (0."),
        (["--adaptive", "--budget", "150 %"], "--budget 150 % is no share of the points"),
        (["--adaptive", "--budget", "15"], "--budget 15 is no share of the points; give one above 0 and at most 1"),
        (["--adaptive", "--budget", "nan"], "--budget nan is no share of the points"),
        (["--adaptive", "--budget", "abc"], "'abc' is no share of the points; write 15% or 0.15"),
        (["--adaptive", "--budget", "9%"],
         "--budget 9% is 39 of 21 x 21 points, and fewer than 40 tell no surface; give a larger --budget or --grid"),
    ],
)  # fmt: skip
def test_a_budget_that_is_none(here: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run([*ENDED, *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("x.nc").exists()


def test_another_behaviour_of_the_same_architecture_is_another_question(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("nets_of_ours.py").write_text(
        "import os, torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a, self.b = torch.nn.Linear(64, 4), torch.nn.Linear(4, 10)\n"
        "    def forward(self, x):\n"
        "        return self.b(getattr(torch, os.environ['ACT'])(self.a(x.flatten(1))))\n"
    )
    draw = torch.Generator().manual_seed(0)
    shapes = {"a.weight": (4, 64), "a.bias": (4,), "b.weight": (10, 4), "b.bias": (10,)}
    for name in "abc":
        torch.save({key: torch.randn(shape, generator=draw) for key, shape in shapes.items()}, f"{name}.pt")
    words = ["plane", "a.pt", "b.pt", "c.pt", "--model", "nets_of_ours:Net", "--data", "digits", *GRID, "--out", "x"]
    monkeypatch.setenv("ACT", "tanh")
    assert run(words) == 0
    assert run(words) == 0  # the same one is drawn again
    assert "already holds this result" in capsys.readouterr().err
    monkeypatch.setenv("ACT", "relu")
    assert run(words) == 2
    assert "x.nc holds another result, of the model's code as it was before;" in capsys.readouterr().err


def test_clients_of_two_runs_are_not_mixed_up(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("runs/ima", "runs/other")
    k = clients_of(5)[0]
    words = ["plane", "runs/ima@5/global", "--random", "--show", f"runs/other@5/client-{k}", *GRID, "--data-of"]
    assert run([*words, "clients"]) == 2
    assert "is about one run's clients, but the models are of runs/ima and runs/other" in capsys.readouterr().err
    assert run([*words, str(k)]) == 0
    assert run(["plane", "runs/ima", "runs/other", "--rounds", "1", "--data-of", "clients", *GRID]) == 2
    assert "--data-of clients is another set of clients in every round" in capsys.readouterr().err
    Path("again").mkdir()
    Path("runs/other").rename("again/ima")
    assert run(["plane", "runs/ima", "again/ima", "--rounds", "1", *GRID]) == 2
    assert "2 of the runs are called 'ima'; rename a folder" in capsys.readouterr().err


def test_rows_of_panels_say_whose_data_they_are(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedscope.landscape.planes import figure as plane_figure

    seen: list[object] = []
    real = plane_figure.draw_panels

    def draw(planes: list, titles: list, *rest: object, rows: list[str], **colours: Any) -> object:
        seen.append((rows, [[plane.attrs["client"] for plane in row] for row in planes]))
        return real(planes, titles, *rest, rows=rows, **colours)

    monkeypatch.setattr(plane_figure, "draw_panels", draw)
    told = asked(capsys, "runs/ima", "--rounds", "1,2", "--data-of", "3,5", "--out", "x")
    assert seen == [(["client 3's data", "client 5's data"], [[3, 3, 3], [5, 5, 5]])]
    assert [panel["title"] for panel in told["panels"]][:2] == ["Round 1, client 3's data", "Round 2, client 3's data"]


def test_all_means_the_rounds_that_kept_the_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TRAIN[:-1], "average.start=3", "--set", "record.globals=last:2", "--out", "runs/thin"]) == 0
    capsys.readouterr()
    told = asked(capsys, *(f"runs/ima@{t}/global" for t in (1, 3, 5)), "--show", "runs/thin@all/global", "--out", "x")
    assert [model["label"] for model in told["models"][4:]] == ["thin@4/global", "thin@5/global"]
    assert run(["plane", "runs/thin", "--trajectory", *GRID]) == 2
    assert "runs/thin has recorded 2; train with record.globals = all" in capsys.readouterr().err


MISTAKES = [
    (["runs/ima@5", "--clients", "--random"], "--clients and --random are two planes; give one of them"),
    (["runs/ima", "--trajectory", "--rounds", "1,2"], "a trajectory's plane needs at least three rounds, but"),
    (["runs/ima@4", "runs/ima@5", "--random"], "--random takes one model, but got 2: runs/ima@4 runs/ima@5"),
    (["runs/ima", "--clients"], "runs/ima is a run; name one of its models, as in runs/ima@last"),
    (["runs/ima", "--rounds", "1,2", "--clients"], "--clients does not go with panels over --rounds"),
    (["runs/ima@5/global", "--clients"], "--clients takes one round, RUN@ROUND, but got runs/ima@5/global"),
    (["runs/ima@4", "runs/ima@5"], "a plane goes through three models, but got 2; give A B C, or a run and --rounds"),
    (["runs/ima@5", "--random", "--data-of", "99"], "runs/ima has no client 99; it has 0 to 7"),
    (["runs/ima@5", "--random", "--data-of", "al"], "--data-of al names no clients; write own, all, every or clients"),
    (["runs/ima@5", "--random", "--data-of", "own"], "--data-of own is one client's data, but 0 clients are among"),
    (["runs/ima", "--rounds", "1,2", "--data-of", "every"], "--data-of every is another set of clients in"),
    ([*(f"runs/ima@{t}/global" for t in (1, 3, 5)), "--data-of", "every"], "models are of rounds with different"),
    (["runs/ima@5", "--random", "--data-of", "clients"], "--data-of clients needs clients among the models, as in"),
    (["runs/ima@5", "--random", "--data-of", "1", "--split", "both"], "so --split both does not go with it"),
    (["runs/ima@5", "--random", "--range", "1", "0", "0", "1"], "the range 1 to 0 of a is empty; give the smaller end"),
    (["runs/ima@5", "--random", "--show", "runs/ima@1,9/global"], "--show 1,9: runs/ima has no round 9; it has 1 to"),
    (["runs/ima", "--trajectory", "--margin", "inf"], "a margin of inf is no room round the models"),
    (["runs/ima@5", "--random", "--split", "validation"], "'validation' is not one of 'test', 'train', 'both'"),
]


@pytest.mark.parametrize(("words", "sentence"), MISTAKES)
def test_mistakes_are_told_in_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert run(["plane", *words, *GRID]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert "Traceback" not in told


def test_how_surfaces_are_coloured_is_judged_before_anything_is_computed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three = [f"runs/ima@2/client-{k}" for k in Run.open("runs/ima").round(2).client_ids[:3]]
    for words, said in (
        ([*three, "--cmap", "magmaa"], '--cmap magmaa is no colour map of matplotlib; did you mean "magma"?'),
        ([*three, "--loss-limits", "3", "1"], "--loss-limits 3 1 is no scale; give two numbers, the lower one first"),
        (
            [*three, "--scale", "panel"],
            "--scale panel needs several planes, and this figure has one; leave it out",
        ),
        (
            [*three, "--error-limits", "0", "20"],
            "--error-limits 0 20 needs the error's surface, and a figure of one plane shows it from 6 inches on; leave "
            "it out, or give --width 6",
        ),
    ):
        assert run(["plane", *words, *GRID, "--out", "x"]) == 2
        assert capsys.readouterr().err.strip() == f"fedscope: {said}"
    assert not list(here.glob("x*"))


@pytest.mark.same_elsewhere
def test_colours_change_the_figure_and_no_number(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["runs/ima", "--rounds", "1,2", "--out", "x"]
    before = asked(capsys, *words)
    kept = {path.name: path.read_bytes() for path in here.glob("x*")}
    again = ("--redraw", "--cmap", "cividis", "--loss-limits", "0", "3", "--error-limits", "0", "100")
    after = asked(capsys, *words, *again, "--scale", "panel")
    assert {**after, "files": 0} == {**before, "files": 0}
    changed = {path.suffix for path in here.glob("x*") if path.read_bytes() != kept[path.name]}
    assert changed == {".png", ".pdf", ".html"}, "colours are drawing alone"
    pages = list(here.glob("x*.html"))
    assert all("log above 0" in page.read_text(encoding="utf-8") for page in pages)
    linear = asked(capsys, *words, "--redraw", "--colour-scale", "linear")
    assert {**linear, "files": 0} == {**before, "files": 0}
    assert all("(nats),\\u003cbr\\u003elinear" in page.read_text(encoding="utf-8") for page in pages), "heights, too"
    assert all(path.read_bytes() == kept[path.name] for path in here.glob("x*.nc"))


@pytest.mark.same_elsewhere
def test_limits_of_an_error_that_is_not_drawn_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three = [f"runs/ima@2/client-{k}" for k in Run.open("runs/ima").round(2).client_ids[:3]]
    limits = ["--error-limits", "0", "20"]
    assert run(["plane", *three, *GRID, "--out", "x", *limits, "--width", "6"]) == 0
    plane = Plane.load("x")
    needs = (
        "error_limits=0 20 needs the error's surface, and a figure of one plane shows it from 6 inches on; leave it "
    )
    with pytest.raises(FedscopeError, match=f"^{re.escape(needs)}out, or give width=6$"):
        plane.figure(error_limits=(0, 20))
    plane.figure(width=6, error_limits=(0, 20))
    none = replace(plane, error=np.full_like(plane.error, np.nan))
    with pytest.raises(
        FedscopeError, match=r"^error_limits=0 20 is about the error, and nothing here has one; leave it"
    ):
        none.figure(width=6, error_limits=(0, 20))
    assert run(["export", "x.nc", "x.h5"]) == 0
    capsys.readouterr()
    assert run(["import", "x.h5", "--out", "s", *limits]) == 2
    assert capsys.readouterr().err == f"fedscope: --{needs.replace('_', '-').replace('=', ' ')}out, or give --width 6\n"
    assert not list(here.glob("s.*"))
    assert run(["import", "x.h5", "--out", "s", *limits, "--width", "6"]) == 0
