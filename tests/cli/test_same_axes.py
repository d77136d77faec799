"""`fedscope plane A B --same-axes`: rounds of several runs along one pair of directions; its files and mistakes."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import fedscope
from fedscope import Plane, Planes, Run
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.landscape.planes.surface.evaluate import PlaneEvaluation
from fedscope.training.inputs import models as inputs

pytestmark = pytest.mark.usefixtures("few_digits")

TRAIN = ["train", "--clients", "8", "--participation", "0.5", "--rounds", "4", "--set", "model.hidden=[8]"]
RUNS = {
    "fma": ["--method", "fma"],
    "ima": ["--set", "average.start=3", "--lr", "0.2"],
    "wide": ["--method", "fma", "--set", "model.hidden=[9]", "--rounds", "1"],
    "late": ["--method", "fma", "--set", "record.clients=[2]"],
    "other": ["--method", "fma", "--set", "data.seed=5", "--rounds", "2"],
}
TWO = ["runs/fma@4", "runs/ima@4"]
GRID = ["--grid", "9", "--limit", "60"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, words in RUNS.items():
            assert run([*TRAIN, *words, "--out", f"runs/{name}"]) == 0
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["plane", *words, "--same-axes", *GRID, "--json"]) == 0, capsys.readouterr()
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def clients(name: str, number: int) -> list[str]:
    return [f"{name}@{number}/client-{k}" for k in Run.open(f"runs/{name}").round(number).client_ids]


def test_two_rounds_on_one_pair_of_directions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, *TWO, "--out", "p")
    assert [panel["title"] for panel in told["panels"]] == ["fma@4", "ima@4"]
    planes = [Plane.load(f"p.{name}@4.nc") for name in ("fma", "ima")]
    assert planes[0].a.tobytes() == planes[1].a.tobytes()
    assert planes[0].b.tobytes() == planes[1].b.tobytes()
    for name, plane in zip(("fma", "ima"), planes, strict=True):
        assert [model.label for model in plane.anchors] == clients(name, 4), "only its own models are on a plane"
        assert [run["path"] for run in plane.attrs["run"]] == [f"runs/{name}"]
        assert plane.attrs["addresses"] == [f"runs/{label}" for label in clients(name, 4)]
        assert Path(f"p.{name}@4.basin.csv").exists()
        # all models of both have room
        for other in planes:
            assert all(other.a[0] < m.a < other.a[-1] and other.b[0] < m.b < other.b[-1] for m in plane.models)
    (rise,) = told["same_axes"]
    assert rise["labels"] == ["fma@4", "ima@4"]
    assert {path.name for path in here.glob("p*") if path.suffix in (".html", ".pdf", ".png")} == {
        "p.html",
        "p.pdf",
        "p.png",
    }


def test_a_plane_is_the_one_of_its_round_where_the_directions_are_those(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # a copy differs as the run does: both rounds together have the components of the one
    shutil.copytree("runs/fma", "runs/copy")
    box = ["--range", "-1", "1", "-1", "1"]
    asked(capsys, "runs/fma@4", "runs/copy@4", *box, "--out", "p")
    assert run(["plane", "runs/fma@4", "--clients", *GRID, *box, "--out", "alone"]) == 0
    alone = Plane.load("alone.nc")
    for name in ("fma", "copy"):
        found = Plane.load(f"p.{name}@4.nc")
        # directions differ in the last bits of float64, so that a parameter may round otherwise to float32
        np.testing.assert_allclose(found.loss, alone.loss, rtol=1e-5)
        assert [m.loss for m in found.models] == [m.loss for m in alone.models]
        np.testing.assert_allclose([m.off_plane for m in found.models], [m.off_plane for m in alone.models], atol=1e-6)
        np.testing.assert_allclose(found.attrs["explained"], alone.attrs["explained"], rtol=1e-6)


def test_the_function_gives_the_commands_numbers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, settings in (
        ([], {}),
        (["--random", "--seed", "3"], {"random": True, "seed": 3}),
        (["--show", "runs/ima@4/global"], {"show": "runs/ima@4/global"}),
        (["--data-of", "1,2"], {"data_of": [1, 2]}),
    ):
        told = asked(capsys, *TWO, *words, "--out", "x", "--force")
        del told["files"]
        found = fedscope.plane(TWO, same_axes=True, grid=9, limit=60, **settings)  # type: ignore[arg-type]
        assert found.numbers() == told


def test_each_point_is_measured_once_and_each_model_read_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    formed: Counter[tuple[int, int]] = Counter()
    read: Counter[str] = Counter()
    evaluations: list[PlaneEvaluation] = []  # which keeps their ids apart
    form, load = PlaneEvaluation.form, inputs.read_address

    def counted(self: PlaneEvaluation, i: int, replica: Any) -> None:
        if self not in evaluations:
            evaluations.append(self)
        formed[evaluations.index(self), i] += 1
        form(self, i, replica)

    def load_counted(address: str, *more: Any) -> Any:
        read[address] += 1
        return load(address, *more)

    monkeypatch.setattr(PlaneEvaluation, "form", counted)
    monkeypatch.setattr(inputs, "read_address", load_counted)
    fedscope.plane(TWO, same_axes=True, show="runs/fma@4/global", grid=9, limit=60, split="both")
    sizes = [len(clients("fma", 4)) + 1 + 1, len(clients("ima", 4)) + 1]
    assert formed == {(p, i): 1 for p, models in enumerate(sizes) for i in range(models + 81)}
    labels = [*clients("fma", 4), "fma@4/global", *clients("ima", 4)]
    assert read == {f"runs/{label}": 1 for label in labels}


def test_random_directions_from_models_of_any_kind(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, "runs/fma@4/global", "runs/ima@4/averaged", "runs/fma@1/start", "--random", "--out", "p")
    assert [panel["kind"] for panel in told["panels"]] == ["random"] * 3
    planes = fedscope.load("p")
    assert isinstance(planes, Planes)
    assert planes.same_axes
    assert planes.labels == ("fma@4/global", "ima@4/averaged", "fma@1/start")
    for plane in planes:
        assert (plane.models[0].a, plane.models[0].b, plane.models[0].role) == (0, 0, "origin")
        assert plane.loss[4, 4] == plane.models[0].loss
    assert "the flattest" in planes.summary() or "so " not in planes.summary().splitlines()[-1]


def test_both_splits_are_a_row_and_a_page_each(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, *TWO, "--split", "both", "--out", "p")
    assert [one["data"] for one in told["same_axes"]] == ["test data", "train data"]
    made = {path.name for path in here.glob("p*")}
    assert {"p.both.pdf", "p.test.html", "p.train.html", "p.fma@4.test.nc", "p.ima@4.train.nc"} <= made
    assert "p.html" not in made
    planes = fedscope.load("p")
    assert [[panel.heading for panel in row] for row in planes.rows] == [["fma@4", "ima@4"]] * 2
    assert tuple(planes.heads) == ("test data", "train data")
    assert list(planes.pages()) == [".test", ".train"]
    assert list(planes.figures()) == [".both"]
    for page in planes.pages().values():
        assert page.count('"scene2"') >= 1
    planes.save("again")
    assert fedscope.load("again").numbers() == planes.numbers()


def test_a_page_has_one_scale_of_heights_and_colours(here: Path) -> None:
    from fedscope.landscape.planes.same_axes_page import page_figure

    planes = fedscope.plane(TWO, same_axes=True, grid=9, limit=60)
    drawn = page_figure(planes)
    surfaces = [trace for trace in drawn["data"] if trace["type"] == "surface"]
    assert [trace["scene"] for trace in surfaces] == ["scene", "scene2"]
    assert len({trace["cmax"] for trace in surfaces}) == 1
    assert [trace["showscale"] for trace in surfaces] == [True, False]
    layout = drawn["layout"]
    assert layout["scene"]["zaxis"]["range"] == layout["scene2"]["zaxis"]["range"]
    assert layout["scene"]["zaxis"]["ticktext"] == layout["scene2"]["zaxis"]["ticktext"]
    assert [words["text"] for words in layout["annotations"]] == ["<b>fma@4</b>", "<b>ima@4</b>"]
    for axis in ("xaxis", "yaxis"):
        ends = layout[axis]["range"]
        assert ends == layout[f"{axis}2"]["range"] == layout["scene"][axis]["range"] == layout["scene2"][axis]["range"]
    contours = [trace for trace in drawn["data"] if trace["type"] == "contour"]
    assert [(trace["xaxis"], trace["yaxis"]) for trace in contours] == [("x", "y"), ("x2", "y2")]
    for scene, name in (("scene", "fma@4"), ("scene2", "ima@4")):
        named = [trace["name"] for trace in drawn["data"] if trace.get("scene") == scene and trace.get("name")]
        assert named
        assert all(words.startswith(name) for words in named), "its own models alone"


def test_bands_are_as_high_in_every_panel(here: Path) -> None:
    from fedscope.landscape.planes.drawing.color_scales import SurfaceColours, scale_of

    planes = list(fedscope.plane(TWO, same_axes=True, grid=9, limit=60))
    scale = scale_of(planes, "loss")
    assert scale.kind == "linear scale"
    np.testing.assert_allclose(np.diff(scale.edges), np.diff(scale.edges)[0], rtol=1e-9)
    assert scale_of(planes, "loss", SurfaceColours(colour_scale="log")).base == "the minimum"
    assert scale_of(planes[:1], "loss").base == "the minimum", "alone it is a plane as any other"


def test_labels_are_those_of_the_planes(here: Path) -> None:
    planes = fedscope.plane(dict(zip(("FedAvg", "IMA"), TWO, strict=True)), same_axes=True, grid=9, limit=60)
    assert [panel.heading for panel in planes.panels()] == ["FedAvg", "IMA"]
    assert "(FedAvg) and" in planes.summary()
    renamed = fedscope.plane(TWO, same_axes=True, grid=9, limit=60).renamed({"fma": "FedAvg"})
    assert [panel.heading for panel in renamed.panels()] == ["FedAvg@4", "ima@4"]


def test_models_are_shown_on_the_plane_of_their_own_round(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ["--show", "runs/ima@4", "--show", "runs/fma@3/global", "--show", "runs/fma@4/global"]
    told = asked(capsys, *TWO, *shown)
    own = [[m["label"] for m in panel["models"] if m["role"] == "shown"] for panel in told["panels"]]
    assert own == [["fma@3/global", "fma@4/global"], ["ima@4"]]
    off = {m["label"]: m["off_plane"] for panel in told["panels"] for m in panel["models"]}
    assert min(off["fma@3/global"], off["ima@4"]) > 0.01
    two = asked(capsys, "runs/fma@3", "runs/fma@4", "--show", "runs/fma@3/global")
    assert [sum(m["role"] == "shown" for m in panel["models"]) for panel in two["panels"]] == [1, 0]


def test_clients_own_data_are_rows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, *TWO, "--data-of", "1,2", "--out", "p")
    assert [one["data"] for one in told["same_axes"]] == ["client 1's data", "client 2's data"]
    assert {path.name for path in here.glob("p*.html")} == {"p.client-1.html", "p.client-2.html"}
    assert Plane.load("p.ima@4.client-1.nc").attrs["data_run"] == "ima"


def test_another_pair_is_another_result(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked(capsys, *TWO, "--out", "p")
    assert run(["plane", "runs/fma@4", "runs/fma@3", "--same-axes", *GRID, "--out", "p"]) == 2
    said = capsys.readouterr().err
    assert "p.fma@4.nc holds another result, of directions of other models (--same-axes); give another --out" in said
    before = Path("p.png").read_bytes()
    with h5py.File("p.fma@4.nc") as file:
        kept = file["loss"][:]
    asked(capsys, *TWO, "--out", "p")
    assert "already holds this result" in run_again(capsys)
    with h5py.File("p.fma@4.nc") as file:
        assert np.array_equal(file["loss"][:], kept)
    assert Path("p.png").read_bytes() == before


def run_again(capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["plane", *TWO, "--same-axes", *GRID, "--out", "p"]) == 0
    return capsys.readouterr().err


MISTAKES = [
    (TWO[:1], "--same-axes compares the planes of 2 to 4 rounds or models, but got 1: runs/fma@4; give another one"),
    ([f"runs/fma@{t}" for t in (1, 2, 3, 4)] + ["runs/ima@4"], "2 to 4 rounds or models, but got 5: runs/fma@1"),
    (["runs/fma@4", "runs/fma@4"], "runs/fma@4 is named twice, so both planes would be the same; name another one"),
    (["runs/fma@4", "runs/fma@last"], "runs/fma@4 and runs/fma@last are both called fma@4, and panels are told apart"),
    (["runs/fma", "runs/ima"], "--same-axes takes rounds, RUN@ROUND, whose clients tell the directions, but got runs/"
     "fma; give runs/fma@last, or --random for directions that need no clients"),
    (["runs/fma@4/global", "runs/ima@4"], "but got runs/fma@4/global; give RUN@last, or --random for directions"),
    (["runs/fma@1", "runs/wide@1"], "runs/wide@1/client-"),
    (["runs/fma@1", "runs/wide@1"], "does not fit the architecture of runs/fma@1/client-"),
    (["runs/fma@4", "runs/late@4"], "runs/late@4: the clients of round 4 were not recorded"),
    (["runs/fma@4", "runs/ima@9"], "runs/ima@9: the run has rounds 1-4"),
    ([*TWO, "--rounds", "1,2"], "--rounds 1,2 does not go with --same-axes, which takes rounds as RUN@ROUND; leave it"),
    ([*TWO, "--trajectory"], "--trajectory has the axes of one run, so --same-axes does not go with it; give --random"),
    ([*TWO, "--clients", "--random"], "--clients and --random are two planes; give one of them"),
    ([*TWO, "--show", "runs/late@4/global"], "--show runs/late@4/global is of none of the runs that --same-axes draws"),
    (["runs/fma@3", "runs/fma@4", "--show", "runs/fma@2/global"], "--show runs/fma@2/global is of no round that --sa"),
    (["runs/fma@2", "runs/other@2", "--data-of", "1"], "gave their clients different samples, so --data-of 1 names "),
    ([*TWO, "--data-of", "clients"], "--data-of clients is about one run's clients, but the models are of runs/fma"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), MISTAKES)
def test_mistakes_are_told_in_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert run(["plane", *words, "--same-axes", *GRID, "--out", "x"]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert "Traceback" not in told
    assert not list(here.glob("x*"))


def test_from_python_a_mistake_names_the_keyword(here: Path) -> None:
    with pytest.raises(FedscopeError, match="same_axes=True compares the planes of 2 to 4"):
        fedscope.plane(TWO[:1], same_axes=True, grid=3)
