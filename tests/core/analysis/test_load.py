"""``fedscope.load``: every result comes back as itself, and everything else is refused with a sentence."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from asked import FROM_PYTHON
from few import few

import fedscope
from fedscope.analysis.register import result_classes
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.landscape import Panel
from fedscope.results import ArrayResult, Collection, Result
from fedscope.results.arrays import write_netcdf
from fedscope.results.base import class_beside

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]

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
#: those whose parts come back as in another one
ALIKE = ("planes-of-two-runs", "planes-both-over-rounds", "planes-of-clients", "decompose-of-two")


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


@pytest.mark.parametrize("name", few(EVERY, lambda name: name not in ALIKE))
def test_what_is_saved_comes_back_as_itself(
    made: Callable[[str], tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder, answer = made(name)
    monkeypatch.chdir(folder)
    back = fedscope.load("saved/m")
    assert type(back) is type(answer)
    assert (back == answer) in (True, False), "and no question of numpy's about the truth of arrays"
    assert back.numbers() == answer.numbers()
    assert back.summary() == answer.summary()
    assert pictures(back) == pictures(answer)
    assert back.pages() == answer.pages()
    assert type(fedscope.load("saved")) is type(answer), "a folder's single result"
    again = back.save("again/m")
    assert sorted(path.name for path in again) == sorted(path.name for path in Path("saved").iterdir())
    for path in again:
        if path.suffix != ".nc":  # HDF5 has times in it
            assert path.read_bytes() == Path("saved", path.name).read_bytes(), path


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
def test_what_is_done_to_frames_and_data_sets_changes_no_result(
    made: Callable[[str], tuple[Path, Any]], name: str
) -> None:
    pytest.importorskip("pandas"), pytest.importorskip("xarray")
    _, answer = made(name)
    numbers, words, attrs = repr(answer.numbers()), answer.summary(), repr(answer.attrs)
    frames, sets = answer.to_pandas(), answer.to_xarray()
    for frame in frames.values() if isinstance(frames, dict) else (frames,):
        frame.iloc[:, :] = frame.iloc[::-1].to_numpy()
    for one in sets.values() if isinstance(sets, dict) else (sets,):
        for values in (*one.data_vars.values(), *one.coords.values()):
            if values.dtype.kind in "fiu" and values.name not in one.indexes:  # an index cannot be written to
                values.values[...] = values.values * 3 + 7
        for said in one.attrs.values():
            if isinstance(said, dict | list):
                said.clear()
    assert (repr(answer.numbers()), answer.summary(), repr(answer.attrs)) == (numbers, words, attrs)


def test_planes_are_taken_by_place_by_end_and_by_slice(made: Callable[[str], tuple[Path, Any]]) -> None:
    """A number of numpy's was a KeyError, and a slice a TypeError."""
    _, planes = made("planes-of-two-runs")
    parts = list(planes)
    assert planes[np.int64(1)] is planes[1] is planes[list(planes.parts)[1]] is parts[1]
    assert planes[-1] is parts[-1]
    assert planes[1:] == parts[1:]


#: whose figures take little
QUICK = ("table", "curves", "updates", "data")


@pytest.mark.parametrize("name", few(EVERY, lambda name: name in QUICK))
def test_every_result_is_shown_by_a_notebook(made: Callable[[str], tuple[Path, Any]], name: str) -> None:
    """Whatever it is of: of a table whose columns are no numbers of one setting there is no figure."""
    _, answer = made(name)
    shown = answer._repr_html_()
    drawn = shown.startswith("<p>") and "<img src=" in shown
    assert drawn or (shown == f"<pre>{escape(answer.summary().strip())}</pre>" and name == "table")


@pytest.mark.parametrize("name", EVERY)
def test_every_result_is_one_screen(made: Callable[[str], tuple[Path, Any]], name: str) -> None:
    _, answer = made(name)
    lines = repr(answer).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    assert type(answer).__name__ in lines[0]
    assert lines[-1].startswith("  next: ")


def test_runs_rounds_and_reports_are_one_screen(
    made: Callable[[str], tuple[Path, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made("planes-of-two-runs")[0], tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    folder = Path()
    run = fedscope.Run.open(folder / "runs/fma")
    report = fedscope.report(run)
    for thing, words in (
        (run, ("fma", "460 parameters", "digits", "8 clients", "last round: 2 of 2", "test_error", ".metrics()")),
        (run.round(2), ("fma@2", "clients: 8 (0, 1,", "all models", "start, global", '.read("global")')),
        (report, ("Report on fma", "0 results", "sound", ".save(")),
    ):
        shown = repr(thing)
        assert len(shown.splitlines()) <= 25
        assert max(map(len, shown.splitlines())) <= 100
        assert [word for word in words if word not in shown] == []
    assert "<iframe srcdoc=" in report._repr_html_()
    (folder / "runs/fma/rounds/00002.h5").write_bytes(b"spoilt")
    assert "it cannot be read: " in repr(fedscope.Run.open(folder / "runs/fma"))
    assert "it cannot be read: " in repr(fedscope.Run.open(folder / "runs/fma").round(2))


def test_every_class_of_results_can_be_opened() -> None:
    """Each concrete class of the package is known to the register, or is a collection of one that is."""
    known = set(result_classes())

    def below(kind: type) -> set[type]:
        return {kind, *(found for one in kind.__subclasses__() for found in below(one))}

    ours = {kind for kind in below(Result) if kind.__module__.startswith("fedscope.")}
    ours = {kind for kind in ours if "save" in dir(kind) and not kind.__module__.startswith("fedscope.results.")}
    collections = {class_beside(kind, kind.collected) for kind in known if kind.collected}
    assert ours == known | collections
    for kind in known:
        if kind.collected:
            whole = class_beside(kind, kind.collected)
            assert issubclass(whole, Collection)
            assert class_beside(whole, whole.part) is kind
    mains = [kind.suffixes[-1] for kind in known if not issubclass(kind, ArrayResult)]
    assert len(mains) == len(set(mains)), "a table's class is told by its name"


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("plane", ["m.nc", "m.basin.csv"]),
        ("line-clients", ["m.nc"]),
        ("explain", ["m.explain.json", "m.md", "m.factors.csv", "m.factors.json", "m.clients.csv"]),
        ("subsets", ["m.subsets.csv", "m.subsets.json", "m.subsets"]),
        ("updates", ["m.nc", "m.updates.csv"]),
        ("updates-of-two-runs", ["m.updates.csv"]),
        ("reaggregate", ["m.reaggregate.csv", "m.safetensors"]),
        ("curves-in-bands", ["m.curves.csv", "m.bands.csv"]),
    ],
)
def test_any_of_its_files_names_a_result(made: Callable[[str], tuple[Path, Any]], name: str, paths: list[str]) -> None:
    folder, answer = made(name)
    for path in paths:
        assert type(fedscope.load(folder / "saved" / path)) is type(answer), path
        assert fedscope.load(folder / "saved" / path).numbers() == answer.numbers(), path


def test_a_part_is_opened_by_its_own_file(made: Callable[[str], tuple[Path, Any]]) -> None:
    folder, planes = made("planes-both-over-rounds")
    one = fedscope.load(folder / "saved/m.round-2.train.nc")
    assert type(one) is fedscope.Plane
    assert one.numbers() == planes[".round-2.train"].numbers()
    assert list(fedscope.Planes.load(folder / "saved/m").parts) == list(planes.parts)
    with pytest.raises(
        FedscopeError, match=r"no result of plane lies at .*saved/n; its files would be called .*n\*\.nc"
    ):
        fedscope.Planes.load(folder / "saved/n")


def test_planes_of_older_versions_come_in_the_order_of_their_rounds(
    made: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    """Their files do not say their place; round 10 is behind round 2, and titles are those of their names."""
    _, planes = made("planes")
    for number, end in enumerate((".round-10", ".round-2", ".globals")):
        plane = planes[number % len(planes)]
        old = replace(plane, attrs=without(plane.attrs, "part", "parts"))
        old.save(tmp_path / f"old{end}")
    back = fedscope.load(tmp_path / "old")
    assert [panel.title for panel in back.panels()][1:] == ["Round 2", "Round 10"]
    assert not back.heads


def without(attrs: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in attrs.items() if key not in names}


def test_what_an_earlier_command_left_is_no_part_of_the_answer(
    made: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    """Planes of rounds 1 and 2 lay beside that of round 4, which an earlier command had put there, and came with it."""
    _, planes = made("planes-both-over-rounds")
    first, second = list(planes.parts)[:2]
    fedscope.Planes.of_parts({first: planes[first], ".round-4.test": planes[second]}).save(tmp_path / "m")
    planes.save(tmp_path / "m.more")  # of a base of its own
    planes.save(tmp_path / "m")
    left = rf"{tmp_path}/m\.round-4\.test\.nc is of another command than {tmp_path}/m{first}\.nc, .*, and left out$"
    for load in (fedscope.load, fedscope.Planes.load):
        with pytest.warns(FedscopeWarning, match=left):
            assert list(load(tmp_path / "m").parts) == list(planes.parts)
    Path(tmp_path, "m.round-4.test.nc").unlink()
    assert list(fedscope.load(tmp_path / "m").parts) == list(planes.parts)
    assert list(fedscope.load(tmp_path / "m.more").parts) == list(planes.parts)


def test_some_of_the_parts_are_what_is_there(made: Callable[[str], tuple[Path, Any]], tmp_path: Path) -> None:
    _, planes = made("planes-both-over-rounds")
    planes.save(tmp_path / "m")
    for path in tmp_path.glob(f"m{next(iter(planes.parts))}.*"):
        path.unlink()
    assert list(fedscope.load(tmp_path / "m").parts) == list(planes.parts)[1:]


@pytest.mark.parametrize("change", [{"part": 0}, {"run": [{"path": "runs/fma", "created": "later"}]}])
def test_parts_of_several_answers_are_not_put_together(
    made: Callable[[str], tuple[Path, Any]], tmp_path: Path, change: dict[str, Any]
) -> None:
    """Of earlier versions, whose files do not say what they are parts of: two in one place, or of a replaced run."""
    _, planes = made("planes-both-over-rounds")
    base, ends = tmp_path / "m", list(planes.parts)[:2]
    for number, end in enumerate(ends):
        attrs = {**without(planes[end].attrs, "parts"), **(change if number else {})}
        replace(planes[end], attrs=attrs).save(f"{base}{end}")
    files = ", ".join(f"{base}{end}.nc" for end in ends)
    for load in (fedscope.load, fedscope.Planes.load):
        with pytest.raises(FedscopeError) as caught:
            load(base)
        assert str(caught.value) == (
            f"{base} is the base of parts of several answers; give the file of one, or compute one anew with "
            f"--force: {files}"
        )


def test_planes_made_by_hand_keep_their_titles(made: Callable[[str], tuple[Path, Any]], tmp_path: Path) -> None:
    _, planes = made("planes")
    first, second = planes
    by_hand = fedscope.Planes(
        [[Panel(".b", first, "Early", "")], [Panel(".a", second, "Late", "own data")]], ("FMA", "IMA"), ".mine"
    )
    by_hand.save(tmp_path / "hand")
    back = fedscope.load(tmp_path / "hand")
    assert [(panel.end, panel.title, panel.data) for panel in back.panels()] == [
        (".b", "Early", ""),
        (".a", "Late", "own data"),
    ]
    assert (tuple(back.heads), back.end, len(back.rows)) == (("FMA", "IMA"), ".mine", 2)
    assert pictures(back) == pictures(by_hand)


def test_a_matrix_of_an_older_version_is_one_and_curves_of_all_pairs_are_curves(
    made: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    _, matrix = made("line-clients")
    matrix.save(tmp_path / "new")
    coords, variables = matrix.arrays()
    head = {"format": "fedscope-line", "version": 1, "ends": [list(two) for two in matrix.ends]}
    write_netcdf(tmp_path / "old.nc", coords, variables, {**matrix.attrs, **head})
    assert type(fedscope.load(tmp_path / "old")) is type(fedscope.Line.load(tmp_path / "old")) is fedscope.Connectivity
    curves = fedscope.Line(**vars(matrix))
    curves.save(tmp_path / "curves")
    assert type(fedscope.load(tmp_path / "curves")) is fedscope.Line
    write_netcdf(tmp_path / "wide.nc", coords, variables, {**matrix.attrs, **head, "range": [-0.5, 1.5]})
    assert type(fedscope.load(tmp_path / "wide")) is fedscope.Line


def test_models_of_a_reaggregation_are_read_when_they_are_used(made: Callable[[str], tuple[Path, Any]]) -> None:
    folder, answer = made("reaggregate-of-two")
    back = fedscope.load(folder / "saved/m")
    assert list(back.models) == list(answer.models) == ["fedavgm", "fedadam"]
    for server, model in back.models.items():
        tensors, made_of = model.arrays(), answer.models[server].arrays()
        assert tensors.keys() == made_of.keys()
        assert [name for name in tensors if tensors[name].tobytes() != made_of[name].tobytes()] == []


def test_a_long_frame_holds_every_value_beside_its_coordinates(made: Callable[[str], tuple[Path, Any]]) -> None:
    pytest.importorskip("pandas")
    _, plane = made("plane")
    frame = plane.to_pandas()
    assert list(frame.columns) == ["b", "a", "loss", "error"]
    for row in frame.sample(6, random_state=0).itertuples():
        i, j = np.flatnonzero(plane.b == row.b)[0], np.flatnonzero(plane.a == row.a)[0]
        assert row.loss == plane.loss[i, j]
        assert row.error == plane.error[i, j]
    models = plane.to_pandas("model")
    assert models["model_label"].tolist() == [model.label for model in plane.models]
    assert plane.to_pandas("model_loss").equals(models)
    with pytest.raises(
        FedscopeError, match=r"'modell' is neither an array nor a dimension of a result of plane; did you"
    ):
        plane.to_pandas("modell")
    _, lines = made("lines")
    frame = lines.to_pandas()
    assert frame[["pair", "beta"]].values.tolist() == [[pair, beta] for pair in lines.pairs for beta in lines.beta]
    assert frame["barrier"].tolist() == np.repeat(lines.barrier, len(lines.beta)).tolist()
    _, planes = made("planes")
    assert planes.to_pandas()["part"].tolist() == np.repeat(["round-1", "round-2"], 25).tolist()
    assert list(planes.to_xarray()) == ["round-1", "round-2"]


def test_a_data_set_of_tables_says_what_the_frames_do(made: Callable[[str], tuple[Path, Any]]) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    _, one = made("subsets")
    frame, table = one.to_pandas(), one.to_xarray()
    assert list(table.data_vars) == list(frame.columns)
    assert table.m.dtype.kind == "i"
    np.testing.assert_array_equal(table.error_mean.values, frame["error_mean"].to_numpy())
    _, several = made("decompose")
    frames, table = several.to_pandas(), several.to_xarray()
    assert isinstance(frames, dict)
    for name, frame in frames.items():
        assert table.sizes[name] == len(frame)
        assert [f"{name}_{column}" in table for column in frame.columns] == [True] * len(frame.columns)
    np.testing.assert_array_equal(table.factors_value.values, frames["factors"]["value"].to_numpy())
    assert table.attrs["split"] == "test"


@pytest.fixture(scope="module")
def strange(made: Callable[[str], tuple[Path, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what is no result, or of more than one."""
    folder = tmp_path_factory.mktemp("strange")
    source, line = made("lines")
    shutil.copytree(source / "runs", folder / "runs")
    for base in ("two/a", "two/b", "runs/fma/figures/line", "drawn/line"):
        line.save(folder / base)
    made("plane")[1].save(folder / "both/x")
    made("subsets")[1].save(folder / "both/x")
    (folder / "cut").mkdir()
    for path in made("subsets")[1].save(folder / "cut/s"):
        if path.suffix == ".json":
            path.unlink()
    (folder / "drawn/line.pdf").write_bytes(b"%PDF")
    (folder / "empty").mkdir()
    with h5py.File(folder / "theirs.nc", "w") as file:
        file.attrs["title"] = "weather"
        file["t"] = np.arange(3)
    with h5py.File(folder / "newer.nc", "w") as file:
        file.attrs["format"] = "fedscope-tomorrow"
    (folder / "classic.nc").write_bytes(b"CDF\x01" + bytes(40))
    (folder / "theirs.csv").write_text("a,b\n1,2\n")
    (folder / "notes.txt").write_text("hello")
    (folder / "plane.nc.partial").write_text("{}")
    (folder / "net.pt").write_bytes(b"PK")
    (folder / "sweeps").mkdir()
    (folder / "sweeps/sweep.json").write_text("{}")
    fedscope.recipe_names()
    damaged = (folder / "two/a.nc").read_bytes()
    (folder / "damaged.nc").write_bytes(damaged[: len(damaged) // 2])
    return folder


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "theirs.nc",
            r"theirs\.nc is another program's netCDF file, not a result .* \(it names no format\); open it with x",
        ),
        ("newer.nc", r"newer\.nc .* \(its format is 'fedscope-tomorrow'\)"),
        ("classic.nc", r"classic\.nc is not a netCDF-4 result of fedscope: it is not an HDF5 file"),
        (
            "theirs.csv",
            r"theirs\.csv is a CSV file, and no table of a result of fedscope; read it with pandas\.read_csv",
        ),
        ("notes.txt", r"notes\.txt is no file of a result of fedscope; give a result's file or its base"),
        (
            "drawn/line.pdf",
            r"line\.pdf is a figure, from which no numbers can be read; load its numbers: drawn/line\.nc",
        ),
        (
            "runs/fma",
            r"runs/fma is a run, not a result .* fedscope\.Run\.open\('runs/fma'\); its results are in runs/fma/fig",
        ),
        ("runs/other", r"runs/other is a run, not a result of one; open it with fedscope\.Run\.open\('runs/other'\)$"),
        (
            "runs/fma/rounds/00001.h5",
            r"is a file of a run, not a result; open the run with fedscope\.Run\.open\('runs/fma'\)",
        ),
        (
            "runs/fma/metrics.csv",
            r"is a file of a run, not a result; open the run with fedscope\.Run\.open\('runs/fma'\)",
        ),
        ("sweeps", r"sweeps is a sweep, not a result; open it with fedscope\.Sweep\.open\('sweeps'\)"),
        ("net.pt", r"net\.pt is a file of models, not a result; read it with fedscope\.load_model"),
        (
            "plane.nc.partial",
            r"is what an interrupted command has left, not a whole result; give the same command again",
        ),
        ("two", r"two holds 2 results; give one of them: a, b"),
        ("empty", r"empty is a folder without a result of fedscope in it"),
        ("both/x", r"both/x is the base of several results; give the file of one: both/x\.nc, both/x\.subsets\.json"),
        ("two/aa", r'two/aa does not exist, and is not the base of a result; did you mean "two/a"\?'),
        ("two/zzzzzz", r"two/zzzzzz does not exist, and is not the base of a result; two has a, b"),
        ("nowhere/x", r"nowhere/x does not exist, nor does the folder nowhere; give a result's file or its base"),
        (
            "cut/s.subsets.csv",
            r"cut/s\.subsets\.json does not exist: a result of subsets is s\.subsets\.csv, s\.subsets\.json",
        ),
        ("damaged.nc", r"damaged\.nc is (truncated|damaged)"),
    ],
)
def test_what_is_no_result_is_refused_by_what_it_is(
    strange: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(strange)
    with pytest.raises(FedscopeError, match=message) as refused:
        fedscope.load(path)
    assert "\n" not in str(refused.value)
    assert type(fedscope.load(Path("both/x.nc"))) is fedscope.Plane
    assert type(fedscope.load("both/x.subsets.csv")) is fedscope.Subsets


def test_what_was_left_out_of_updates_is_said_again(made: Callable[[str], tuple[Path, Any]], tmp_path: Path) -> None:
    _, updates = made("updates")
    part = replace(updates[0], attrs={**updates[0].attrs, "left_out": ["fma: round 3 left out"]})
    told = type(updates)({"": part}, ["fma: round 3 left out"])
    told.save(tmp_path / "u")
    assert fedscope.load(tmp_path / "u").summary() == told.summary()
    assert fedscope.load(tmp_path / "u").numbers()["notes"] == ["fma: round 3 left out"]


@pytest.mark.parametrize("given", [None, 5, b"runs"])
def test_what_is_no_path_is_refused_wherever_one_is_asked_for(given: Any) -> None:
    """Each ended in a TypeError of Python's: a variable that nothing was given to."""
    for ask in (fedscope.load, fedscope.Run.open, fedscope.Recorder):
        with pytest.raises(FedscopeError) as told:
            ask(given)
        assert str(told.value) == f"{given!r} is no path; give text or a pathlib.Path", ask
    if not isinstance(given, bytes):
        for ask in (fedscope.curves, fedscope.table, fedscope.explain):
            with pytest.raises(FedscopeError) as told:
                ask(given)
            kind = type(given).__name__
            assert str(told.value) == (
                f"one run is asked for, but got a {kind}; give its folder, and ask for each alone"
            ), ask
