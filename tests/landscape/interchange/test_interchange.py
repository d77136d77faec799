"""Surfaces of other programs: which index is which, what was not computed, what their files do not say."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from legible import assert_apart, assert_inside
from matplotlib.figure import Figure

from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.cli.main import run
from fedscope.landscape import Plane, PlaneModel, draw_panels, write_surface
from fedscope.landscape.interchange.garipov import read_plane
from fedscope.landscape.interchange.goldstein import read_surface
from fedscope.landscape.interchange.import_models import import_surface
from fedscope.landscape.planes.drawing.color_scales import scale_of
from fedscope.landscape.planes.drawing.fill import axis_labels, remarks
from fedscope.landscape.planes.drawing.markers import rows_of

pytestmark = pytest.mark.same_elsewhere

X, Y = np.linspace(-1, 1, 7), np.linspace(-0.5, 1, 4)
UNKNOWN = float("nan")


def loss_at(x: Any, y: Any) -> Any:
    """No symmetry that would hide an exchanged or reversed axis."""
    return 2 + x + 0.3 * x * y + 5 * y**2


def crunched(path: Path, split: str = "train", x: np.ndarray = X, y: np.ndarray = Y, **more: Any) -> Path:
    """A file as ``plot_surface.py`` fills it: point ``ind`` of the flattened mesh, one after the other, over -1."""
    losses, accuracies = -np.ones((len(x), len(y))), -np.ones((len(x), len(y)))
    xs, ys = (mesh.ravel() for mesh in np.meshgrid(x, y))
    for ind in range(losses.size):
        losses.ravel()[ind] = loss_at(xs[ind], ys[ind])
        accuracies.ravel()[ind] = 100 - 10 * loss_at(xs[ind], ys[ind])
    for ind, value in more.pop("values", {}).items():
        losses.ravel()[ind] = accuracies.ravel()[ind] = value
    with h5py.File(path, "a") as file:
        for name, array in {"xcoordinates": x, "ycoordinates": y, **more}.items():
            if name not in file:
                file[name] = array
        file[f"{split}_loss"], file[f"{split}_acc"] = losses, accuracies
    return path


def test_every_point_of_their_surface_is_where_they_computed_it(tmp_path: Path) -> None:
    found = read_surface(crunched(tmp_path / "s.h5", dir_file="nets/resnet56_weights.h5"))
    np.testing.assert_array_equal(found.a, X)
    np.testing.assert_array_equal(found.b, Y)
    np.testing.assert_array_equal(found.loss, loss_at(X[None, :], Y[:, None]))
    np.testing.assert_allclose(found.error, loss_at(X[None, :], Y[:, None]) / 10, rtol=1e-12)
    assert (found.span, found.models, found.normalization_policy, found.computed) == ("surface", (), "unknown", None)
    assert np.isnan(found.cos_uv)
    told = {name: found.attrs[name] for name in ("split", "units", "loss_units", "holes", "dir_file")}
    assert told == {
        "split": "train",
        "units": "direction lengths",
        "loss_units": "",
        "holes": 0,
        "dir_file": "nets/resnet56_weights.h5",
    }


def test_what_was_not_computed_is_a_hole_and_what_is_not_finite_stays(tmp_path: Path) -> None:
    path = crunched(tmp_path / "s.h5", values={0: -1, 9: -1, 10: -1, 20: np.nan, 21: np.inf})
    with h5py.File(path, "r+") as file:
        file["train_acc"][:].ravel()
        accuracies = file["train_acc"][:]
        accuracies.ravel()[5] = -1  # the loss of this point is known
        file["train_acc"][:] = accuracies
    found = read_surface(path)
    assert np.isnan(found.loss.ravel()[[0, 9, 10, 20]]).all()
    assert found.loss.ravel()[21] == np.inf
    assert np.isfinite(np.delete(found.loss.ravel(), [0, 9, 10, 20, 21])).all()
    assert np.isnan(found.error.ravel()[[0, 5, 9, 10]]).all()
    assert found.attrs["holes"] == 3
    assert remarks([found]) == "s.h5 (loss-landscape); 3 of 28 points not computed, 2 not finite (hatched)"


def test_a_loss_of_zero_and_one_just_above_minus_one_are_no_holes(tmp_path: Path) -> None:
    found = read_surface(crunched(tmp_path / "s.h5", values={3: 0.0, 4: -0.999}))
    assert found.loss.ravel()[[3, 4]].tolist() == [0.0, -0.999]
    assert found.attrs["holes"] == 0


def test_a_file_of_two_splits_is_read_for_the_one_asked_for(tmp_path: Path) -> None:
    path = crunched(tmp_path / "s.h5", values={0: 9.0})
    assert read_surface(path).attrs["split"] == "train"
    with pytest.raises(FedscopeError, match=r"s.h5 has no test losses, only those of train; give --split train"):
        read_surface(path, "test")
    crunched(path, "test", values={0: 7.0})
    assert read_surface(path).loss[0, 0] == 7.0
    assert read_surface(path, "train").loss[0, 0] == 9.0


def half_computed(path: Path) -> Path:
    """A file of which one split is whole, and the other's surface was just laid out."""
    crunched(path)
    return crunched(path, "test", values=dict.fromkeys(range(28), -1))


def test_a_split_without_one_value_gives_way_to_the_other(tmp_path: Path) -> None:
    path = half_computed(tmp_path / "s.h5")
    said = r"s.h5 has no test losses yet \(all are -1: not computed\)"
    with pytest.warns(FedscopeWarning, match=said + ", so its train losses are taken$"):
        found = read_surface(path)
    assert (found.attrs["split"], found.attrs["holes"]) == ("train", 0)
    np.testing.assert_array_equal(found.loss, loss_at(X[None, :], Y[:, None]))
    with pytest.raises(FedscopeError, match=said + ", only those of train; give --split train$"):
        read_surface(path, "test")


def test_a_split_with_values_is_taken_without_a_word(tmp_path: Path) -> None:
    path = half_computed(tmp_path / "s.h5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_surface(path, "train").attrs["split"] == "train"  # which was asked for
        some = crunched(tmp_path / "some.h5", "test", values=dict.fromkeys(range(27), -1))
        crunched(some)
        assert read_surface(some).attrs["holes"] == 27  # a surface that is just computed
        diverged = crunched(tmp_path / "diverged.h5", "test", values=dict.fromkeys(range(28), np.nan))
        crunched(diverged)
        assert read_surface(diverged).attrs["split"] == "test"
        own = Plane(X, Y, np.full((4, 7), -1.0), np.full((4, 7), np.nan), (), 0.0, "none", {"split": "test"})
        write_surface(tmp_path / "own.h5", own)
        assert read_surface(tmp_path / "own.h5").attrs["holes"] == 0


@pytest.mark.parametrize("splits", [("test",), ("train",), ("train", "test")])
def test_a_surface_without_one_value_is_refused(
    tmp_path: Path, splits: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for split in splits:
        crunched(tmp_path / "s.h5", split, values=dict.fromkeys(range(28), -1))
    assert run(["import", str(tmp_path / "s.h5"), "--out", str(tmp_path / "q")]) == 2
    said = capsys.readouterr().err
    assert "s.h5 has coordinates but no losses (all are -1): nothing was computed yet; compute its surface fi" in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s.h5"]


@pytest.mark.parametrize("name", ["xcoordinates", "train_loss", "train_acc", "computed", "dir_file"])
@pytest.mark.parametrize("kind", ["external", "soft"])
def test_links_are_not_followed(tmp_path: Path, name: str, kind: str) -> None:
    """One into another file may lead to a named pipe, which waits for ever."""
    crunched(tmp_path / "other.h5", computed=np.ones((7, 4), np.int8), dir_file="w.h5")
    path = crunched(tmp_path / "s.h5", computed=np.ones((7, 4), np.int8), dir_file="w.h5")
    with h5py.File(path, "r+") as file:
        file.move(name, "kept")
        file[name] = h5py.ExternalLink("other.h5", f"/{name}") if kind == "external" else h5py.SoftLink("/kept")
    with pytest.raises(FedscopeError, match=rf"s\.h5: {name} is a link, but the file must hold its data itself; give"):
        read_surface(path)


@pytest.mark.parametrize("name", ["xcoordinates", "train_loss", "train_acc", "computed"])
def test_a_shape_that_does_not_fit_is_refused_before_its_values_are_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = crunched(tmp_path / "s.h5", computed=np.ones((7, 4), np.int8))
    shape = (5, 10**4) if name == "xcoordinates" else (5 * 10**4,)
    with h5py.File(path, "r+") as file:
        del file[name]
        file.create_dataset(name, data=np.zeros(shape, "i1"), compression="gzip")
    read: list[str] = []
    whole = h5py.Dataset.__getitem__

    def noting(self: Any, *args: Any, **more: Any) -> Any:
        read.append(self.name)
        return whole(self, *args, **more)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", noting)
    with pytest.raises(FedscopeError, match=rf"s\.h5 has {name} of shape \[5"):
        read_surface(path)
    assert f"/{name}" not in read


def test_without_accuracies_the_error_is_unknown_and_not_drawn(tmp_path: Path) -> None:
    path = crunched(tmp_path / "s.h5")
    with h5py.File(path, "r+") as file:
        del file["train_acc"]
    found = read_surface(path)
    assert np.isnan(found.error).all()
    assert len(found.figure(7.0).axes) == len(found.figure(3.5).axes) == 2  # the surface and its colour bar
    assert len(draw_panels([found, found], ["one", "two"], 7.0).axes) == 2 * 1 + 1
    write_surface(tmp_path / "again.h5", found)
    with h5py.File(tmp_path / "again.h5") as file:
        assert "train_acc" not in file


def remake(**arrays: Any) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array

    return make


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (remake(xcoordinates=X, train_loss=X), r"s\.h5 holds a curve along one direction \(xcoordinates only\)"),
        (remake(**{"xdirection/0": X}), r"s\.h5 holds directions, not a surface; give the \.h5 that plot_surface"),
        (remake(proj_xcoord=X), r"s\.h5 holds a trajectory's projection, not a surface"),
        (remake(loss=X), r"s\.h5 is not a surface of loss-landscape: it has no xcoordinates"),
        (remake(xcoordinates=X, ycoordinates=Y), r"s\.h5 has coordinates but no losses: nothing was computed yet"),
        (
            remake(xcoordinates=X, ycoordinates=Y, test_loss=np.ones((7, 5))),
            r"s\.h5 has test_loss of shape \[7, 5\], but 7 x and 4 y coordinates",
        ),
        (remake(xcoordinates=X, ycoordinates=[0.5]), r"s\.h5 has ycoordinates of shape \[1\], and a surface needs at"),
        (remake(xcoordinates=[0.0, 0.0], ycoordinates=Y), r"s\.h5 has xcoordinates that repeat or are not finite"),
        (remake(**{"xcoordinates/0": X, "ycoordinates": Y}), r"s\.h5 has no numbers in xcoordinates; compute"),
        (remake(xcoordinates=h5py.Empty("f8"), ycoordinates=Y), r"s\.h5 has no numbers in xcoordinates"),
        (remake(xcoordinates=X, ycoordinates=["1"]), r"s\.h5 has no numbers in ycoordinates"),
        (remake(xcoordinates=X, ycoordinates=Y, **{"train_loss/0": X}), r"s\.h5 has no numbers in train_loss"),
        (remake(xcoordinates=X, ycoordinates=Y, train_loss=h5py.Empty("f8")), r"has no numbers in train_loss"),
        (
            remake(xcoordinates=X, ycoordinates=Y, train_loss=np.ones((7, 4)), computed=np.ones(3)),
            r"s\.h5 has computed of shape \[3\], but 7 x and 4 y",
        ),
        (
            lambda path: path.write_text("x,y\n" * 99),
            r"s\.h5 is not a surface of loss-landscape: it is not an HDF5 file",
        ),
        (lambda path: None, r"s\.h5 does not exist; it should be a surface of loss-landscape"),
    ],
)
def test_what_is_no_surface_is_named(tmp_path: Path, make: Callable[[Path], None], sentence: str) -> None:
    make(tmp_path / "s.h5")
    with pytest.raises(FedscopeError, match=sentence):
        read_surface(tmp_path / "s.h5")


@st.composite
def planes(draw: st.DrawFn) -> Plane:
    """Planes of any shape and any values that a loss can have."""
    columns, rows = draw(st.integers(2, 6)), draw(st.integers(2, 6))
    steps = st.floats(1e-3, 10)
    a, b = (np.cumsum(draw(st.lists(steps, min_size=n, max_size=n))) for n in (columns, rows))
    losses = st.one_of(st.just(UNKNOWN), st.floats(0))
    shares = st.one_of(st.just(UNKNOWN), st.floats(0, 1))
    loss, error = (
        np.array(draw(st.lists(values, min_size=rows * columns, max_size=rows * columns))).reshape(rows, columns)
        for values in (losses, shares)
    )
    split = draw(st.sampled_from(["train", "test"]))
    return Plane(a, b, loss, error, (), 0.0, "none", {"split": split, "data": "digits", "samples": 360})


@given(planes())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, plane: Plane) -> None:
    path = tmp_path_factory.mktemp("round") / "s.h5"
    write_surface(path, plane)
    found = read_surface(path)
    for name in ("a", "b"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plane, name))
    np.testing.assert_array_equal(found.loss, plane.loss)
    # through per cent and back: a few roundings of a number up to 100
    np.testing.assert_allclose(found.error, plane.error, rtol=0, atol=1e-15)
    told = ("split", "units", "loss_units", "data", "samples", "program", "holes")
    assert [found.attrs[name] for name in told] == [
        plane.attrs["split"], "L2 distance", "nat", "digits", 360, "fedscope", 0,
    ]  # fmt: skip
    write_surface(path, found)
    again = read_surface(path)
    np.testing.assert_array_equal(again.loss, plane.loss)
    assert again.attrs == found.attrs


def test_units_go_along(tmp_path: Path) -> None:
    theirs = read_surface(crunched(tmp_path / "s.h5"))
    assert axis_labels(theirs)[1][0] == "y (direction lengths)"
    assert scale_of([theirs], "loss").label == "train loss"  # of nats their file says nothing
    write_surface(tmp_path / "again.h5", theirs)
    assert read_surface(tmp_path / "again.h5").attrs["units"] == "direction lengths"
    assert read_surface(tmp_path / "again.h5").attrs["program"] == "loss-landscape"
    ours = Plane(X, Y, theirs.loss, theirs.error, (), 0.0, "none", {"split": "test"})
    write_surface(tmp_path / "ours.h5", ours)
    assert axis_labels(read_surface(tmp_path / "ours.h5"))[1][0] == "distance ($L_2$)"
    assert scale_of([read_surface(tmp_path / "ours.h5")], "loss").label == "test loss (nats)"


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_a_surface_without_models_is_kept_and_opens_in_xarray(tmp_path: Path, engine: str) -> None:
    xarray = pytest.importorskip("xarray")
    found = read_surface(crunched(tmp_path / "s.h5", values={3: -1}))
    found.save(tmp_path / "s.nc")
    again = Plane.load(tmp_path / "s.nc")
    assert again.loss.tobytes() == found.loss.tobytes()
    assert (again.models, again.attrs) == ((), found.attrs)
    with xarray.open_dataset(tmp_path / "s.nc", engine=engine) as data:
        assert data.sizes == {"b": 4, "a": 7, "model": 0}
        np.testing.assert_array_equal(data["loss"], found.loss)


# --- dnn-mode-connectivity ---

U_LENGTH, V_LENGTH = 30.0, 12.0
ALPHAS, BETAS = np.linspace(-0.2, 1.2, 8), np.linspace(-0.3, 1.1, 5)


def connected(path: Path, **changes: Any) -> Path:
    """A ``plane.npz`` as their loop over alphas and, inside, betas fills it; oblong, so that an exchange shows."""
    arrays: dict[str, Any] = {
        "ts": np.linspace(0, 1, 5),
        "bend_coordinates": np.array([[0, 0], [11.0, V_LENGTH], [U_LENGTH, 0]]),
        "curve_coordinates": np.stack([np.linspace(0, U_LENGTH, 5), [0, 3, 5, 3, 0]], axis=1),
        "alphas": ALPHAS,
        "betas": BETAS,
        "grid": np.zeros((len(ALPHAS), len(BETAS), 2)),
    }
    for name in ("tr_loss", "tr_nll", "tr_acc", "tr_err", "te_loss", "te_nll", "te_acc", "te_err"):
        arrays[name] = np.zeros((len(ALPHAS), len(BETAS)))
    for i, alpha in enumerate(ALPHAS):
        for j, beta in enumerate(BETAS):
            at = arrays["grid"][i, j] = [alpha * U_LENGTH, beta * V_LENGTH]
            for short, more in (("tr", 0.0), ("te", 1.0)):
                nll = loss_at(*at) + more
                arrays[f"{short}_nll"][i, j], arrays[f"{short}_loss"][i, j] = nll, nll + 0.25
                arrays[f"{short}_acc"][i, j] = 100 - alpha - more
                arrays[f"{short}_err"][i, j] = 100.0 - arrays[f"{short}_acc"][i, j]
    arrays |= changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@pytest.mark.parametrize(("split", "more"), [("train", 0.0), ("test", 1.0)])
def test_every_point_of_a_plane_npz_is_where_it_was_computed(tmp_path: Path, split: str, more: float) -> None:
    found = read_plane(connected(tmp_path / "plane.npz"), split)
    np.testing.assert_array_equal(found.a, ALPHAS * U_LENGTH)
    np.testing.assert_array_equal(found.b, BETAS * V_LENGTH)
    np.testing.assert_allclose(found.loss, loss_at(found.a[None, :], found.b[:, None]) + more, rtol=1e-12)
    expected = np.broadcast_to((ALPHAS + more) / 100, (5, 8))
    np.testing.assert_allclose(found.error, expected, atol=1e-12)
    assert (found.span, found.attrs["split"], found.attrs["units"]) == ("surface", split, "L2 distance")


def test_the_ends_of_the_curve_and_its_bend_are_anchors_without_losses_of_their_own(tmp_path: Path) -> None:
    found = read_plane(connected(tmp_path / "plane.npz"))
    assert [(m.label, m.a, m.b, m.off_plane) for m in found.anchors] == [
        ("start of the curve", 0.0, 0.0, 0.0),
        ("bend", 11.0, V_LENGTH, 0.0),
        ("end of the curve", U_LENGTH, 0.0, 0.0),
    ]
    assert [(m.a, m.b) for m in found.path] == [(0, 0), (7.5, 3), (15, 5), (22.5, 3), (30, 0)]
    assert np.isnan([(m.loss, m.error, m.stored_loss) for m in found.models]).all()
    assert found.mean is None
    assert [row.numbers() for row in rows_of(found)] == [("", "", "")] * 3
    assert remarks([found]) == "plane.npz (dnn-mode-connectivity); line: the curve (5 points)"


def test_of_more_bends_the_further_ones_are_shown_somewhere_off_the_plane(tmp_path: Path) -> None:
    bends = np.array([[0, 0], [11.0, V_LENGTH], [U_LENGTH, 0], [20.0, 1.0]])
    found = read_plane(connected(tmp_path / "plane.npz", bend_coordinates=bends))
    assert [(m.label, m.role) for m in found.models[:4]] == [
        ("bend 0", "anchor"), ("bend 1", "anchor"), ("bend 2", "anchor"), ("bend 3", "shown"),
    ]  # fmt: skip
    assert np.isnan([m.off_plane for m in found.models[3:]]).all()


def test_the_loss_is_the_cross_entropy_where_the_file_has_it(tmp_path: Path) -> None:
    assert read_plane(connected(tmp_path / "a.npz")).attrs["loss_is"] == "tr_nll"
    found = read_plane(connected(tmp_path / "b.npz", tr_nll=None, tr_err=None))
    assert found.attrs["loss_is"] == "tr_loss"
    np.testing.assert_allclose(found.loss, loss_at(found.a[None, :], found.b[:, None]) + 0.25, rtol=1e-12)
    assert np.isnan(found.error).all()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"grid": None},
            r"plane\.npz is not a plane of dnn-mode-connectivity: it has no grid; a model's \.npz needs no imp",
        ),
        ({"grid": np.zeros((3, 4))}, r"plane\.npz has a grid of shape \[3, 4\], not \[A, B, 2\]"),
        (
            {"grid": np.random.default_rng(0).normal(size=(8, 5, 2))},
            r"plane\.npz has a grid that is not a product of two",
        ),
        (
            {"grid": np.stack(np.broadcast_arrays(ALPHAS[:, None], ALPHAS[:, None] + BETAS), -1)},
            r"that is not a product of",
        ),
        ({"grid": np.zeros((8, 5, 2))}, r"plane\.npz has a grid along its first axis that repeat"),
        ({"tr_nll": np.zeros((5, 8))}, r"plane\.npz has tr_nll of shape \[5, 8\] on a grid of \[8, 5\]"),
        ({"tr_nll": None, "tr_loss": None}, r"plane\.npz has no train losses, only those of test; give --split test"),
        ({"ts": np.linspace(0, 1, 4)}, r"plane\.npz has ts of shape \[4\] for 5 curve_coordinates; compute the plane"),
        ({"bend_coordinates": np.zeros(2)}, r"plane\.npz has bend_coordinates of shape \[2\], not \[n, 2\]"),
        ({"curve_coordinates": np.zeros((5, 3))}, r"plane\.npz has curve_coordinates of shape \[5, 3\], not \[n, 2\]"),
        ({"bend_coordinates": np.array(["a", "b"])}, r"plane\.npz has no numbers in bend_coordinates"),
        ({"grid": np.full((8, 5, 2), "1.0")}, r"plane\.npz has no numbers in grid; compute the plane again"),
        ({"tr_nll": np.full((8, 5), "x")}, r"plane\.npz has no numbers in tr_nll"),
        ({"grid": np.zeros((0, 0, 2))}, r"plane\.npz has a grid of shape \[0, 0, 2\], not \[A, B, 2\]"),
        ({"grid": np.zeros((3, 0, 2))}, r"plane\.npz has a grid of shape \[3, 0, 2\], not \[A, B, 2\]"),
        (
            {"grid": np.array([{}])},
            r"plane\.npz holds Python objects \(grid\), which could run code; save its arrays alone",
        ),
    ],
)
def test_what_is_no_plane_npz_is_named(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        read_plane(connected(tmp_path / "plane.npz", **changes), "train")


def test_no_npz_at_all_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"plane\.npz does not exist"):
        read_plane(tmp_path / "plane.npz")
    (tmp_path / "plane.npz").write_bytes(b"PK not a zip")
    with pytest.raises(FedscopeError, match=r"plane\.npz is truncated or not an \.npz file"):
        read_plane(tmp_path / "plane.npz")


# --- how planes of all kinds are drawn ---


def model(label: str, a: float, b: float, role: str) -> PlaneModel:
    return PlaneModel(label, a, b, 0.4, 0.5 + a * a + b * b, 0.1, UNKNOWN, UNKNOWN, role)


def native(kind: str, *models: PlaneModel, high: float = 1.0, **attrs: Any) -> Plane:
    """A plane of fedscope's own, ``high`` times as high as wide."""
    a, b = np.linspace(-2, 2, 13), high * np.linspace(-2, 2, 9)
    loss = 0.4 + a[None, :] ** 2 + (b[:, None] / high) ** 2
    about = {"kind": kind, "data": "digits", "split": "test", "samples": 360, **attrs}
    return Plane(a, b, loss, loss / 20, models, 0.0, "none", about)


def clients(count: int = 10) -> Plane:
    places = 0.5 * np.random.default_rng(0).normal(size=(count, 2))
    anchors = [model(f"ima@20/client-{k}", *at, role="anchor") for k, at in enumerate(places)]
    return native("clients", *anchors, model("mean", 0, 0, "mean"), explained=[0.53, 0.19])


def trajectory(count: int = 60) -> Plane:
    path = [model(f"ima@{i + 1}/global", 1.5 - i / 40, 0.3 * np.sin(i / 9), "path") for i in range(count)]
    return native("trajectory", *path, model("ima@60/averaged", 0.1, 0.2, "shown"), explained=[0.811, 0.07])


def kinds(folder: Path) -> dict[str, Figure]:
    holes = read_surface(crunched(folder / "s.h5", values=dict.fromkeys(range(5), -1)))
    curve = read_plane(connected(folder / "plane.npz"))
    figures = {
        "random": native("random", model("ima@60/averaged", 0, 0, "origin")).figure(3.5),
        "flat": native("trajectory", *trajectory().models, high=0.12, explained=[0.8, 0.1]).figure(3.5),
        "clients and a curve": draw_panels([clients(), trajectory(), curve], ["Round 1", "Round 20", "Curve"], 3.5),
        "holes in panels": draw_panels([holes, holes], ["one", "two"], 3.5),
    }
    for width in (3.5, 7.0):
        figures[f"clients {width}"] = clients().figure(width)
        figures[f"trajectory {width}"] = trajectory().figure(width, "A title")
        figures[f"holes {width}"] = holes.figure(width)
        figures[f"curve {width}"] = curve.figure(width)
    return figures


def test_no_label_lies_over_another_or_outside(tmp_path: Path) -> None:
    for figure in kinds(tmp_path).values():
        boxes = assert_inside(figure, figure.get_figwidth())
        assert len(boxes) > 8
        assert_apart(boxes)


def test_rows_of_many_models_are_few_and_whole() -> None:
    assert [row.label for row in rows_of(clients(100))] == [
        "100 clients, each alone",
        "their mean",
        "minimum of the surface",
    ]
    labels = [row.label for row in rows_of(trajectory())]
    assert labels == ["first: ima@1/global", "last: ima@60/global", "ima@60/averaged"]
    markers = [(row.look["marker"], row.look["color"]) for row in rows_of(trajectory())]
    assert len(set(markers)) == 3, "first, last and the shown model are told apart"
    texts = {text.get_text() for text in clients(100).figure(3.5).texts}
    assert {"100 clients, each alone", "distance ($L_2$), component 2: 19 %"} <= texts
    assert remarks([clients()]) == "digits test, 360 samples; the components show 72 % of the models' variance"


def test_points_of_another_programs_curve_are_a_line_without_a_key(tmp_path: Path) -> None:
    curve = read_plane(connected(tmp_path / "plane.npz"))
    texts = [text.get_text() for text in draw_panels([curve, clients()], ["Curve", "Round 1"], 3.5).texts]
    assert "start of the curve, bend, end of the curve" in texts
    assert not any("models of the run" in text for text in texts)
    assert "first of 60 models of the run" in [t.get_text() for t in draw_panels([trajectory()], ["T"], 3.5).texts]


def test_a_round_of_three_clients_is_no_plane_through_three_models() -> None:
    assert [row.label for row in rows_of(clients(3))][:2] == ["3 clients, each alone", "their mean"]
    axes = clients(3).figure(3.5).axes[0]
    assert [text.get_text() for text in axes.texts] == []


def entries(plane: Plane) -> int:
    """How many markers or lines stand in the contour plot, and so in the legend."""
    return plane.page().rpartition("Plotly.newPlot")[2].partition('"template"')[0].count('"type":"scatter"')


def test_a_page_has_one_entry_for_a_path_and_for_the_clients(tmp_path: Path) -> None:
    assert entries(trajectory()) == 2
    assert entries(clients()) == 3, "clients, their mean, the minimum"
    assert entries(read_plane(connected(tmp_path / "plane.npz"))) == 4
    surface = read_surface(crunched(tmp_path / "s.h5", values={3: -1}))
    assert entries(surface) == 0
    assert "x (direction lengths)" in surface.page()
    assert "1 of 28 points not computed (holes)" in surface.page()
    assert '"scaleanchor"' not in surface.page().rpartition("Plotly.newPlot")[2], "lengths of two directions differ"
    assert '"scaleanchor"' in clients().page().rpartition("Plotly.newPlot")[2]


def adaptive_plane(**attrs: Any) -> Plane:
    """An interpolated plane of fedscope's own: which points were measured has no symmetry."""
    plane = native("models", **attrs)
    measured = np.random.default_rng(5).random(plane.loss.shape) < 0.3
    plane.loss[0, 4] = UNKNOWN  # a loss that is one, as interpolation leaves it
    return replace(plane, computed=measured)


MARKS = {
    "client": 3, "points_computed": 36, "points_held_out": 7, "points_unknown": 1, "held_out_loss_error": 0.004,
    "held_out_loss_relative": 0.02, "held_out_error_error": UNKNOWN, "held_out_error_rms": 0.3,
}  # fmt: skip


def test_an_interpolated_surface_keeps_its_marks(tmp_path: Path) -> None:
    plane = adaptive_plane(**MARKS)
    write_surface(tmp_path / "s.h5", plane)
    found = read_surface(tmp_path / "s.h5")
    np.testing.assert_array_equal(found.computed, plane.computed)
    assert found.computed is not None
    assert found.computed.dtype == bool
    for name, value in MARKS.items():
        np.testing.assert_equal(found.attrs[name], value)
    assert remarks([found]) == remarks([plane])
    assert f"{np.count_nonzero(~found.computed)} of 117 points interpolated" in remarks([found])
    # in the order of their arrays, so that a point's mark stands where its loss does
    with h5py.File(tmp_path / "s.h5") as file:
        assert file["computed"].shape == file["test_loss"].shape == (13, 9)
        assert file["computed"][:].ravel().tolist() == plane.computed.ravel().tolist()  # type: ignore[union-attr]


def test_coordinates_that_fall_are_read_from_their_other_end_and_marks_turn_with_them(tmp_path: Path) -> None:
    marks = np.arange(28) % 5 == 0  # no symmetry
    path = crunched(tmp_path / "s.h5", x=X[::-1], y=Y[::-1], computed=marks.reshape(7, 4).astype(np.int8))
    found = read_surface(path)
    np.testing.assert_array_equal(found.a, X)
    np.testing.assert_array_equal(found.loss, loss_at(X[None, :], Y[:, None]))
    assert found.computed is not None
    assert found.computed.tolist() == marks.reshape(4, 7)[::-1, ::-1].tolist()


def test_holes_are_holes_again(tmp_path: Path) -> None:
    found = read_surface(crunched(tmp_path / "s.h5", values={0: -1, 9: -1, 21: np.inf}))
    write_surface(tmp_path / "again.h5", found)
    with h5py.File(tmp_path / "s.h5") as theirs, h5py.File(tmp_path / "again.h5") as ours:
        np.testing.assert_array_equal(ours["train_loss"], theirs["train_loss"])
        np.testing.assert_array_equal(ours["train_acc"][:] == -1, theirs["train_acc"][:] == -1)
    assert read_surface(tmp_path / "again.h5").attrs["holes"] == 2


def test_holes_among_losses_that_are_nan_stay_nan_and_are_counted(tmp_path: Path) -> None:
    found = read_surface(crunched(tmp_path / "s.h5", values={0: -1, 9: -1, 20: np.nan}))
    for name in ("once", "twice"):
        write_surface(tmp_path / f"{name}.h5", found)
        with h5py.File(tmp_path / f"{name}.h5") as file:
            assert not (file["train_loss"][:] == -1).any()
        found = read_surface(tmp_path / f"{name}.h5")
        assert found.attrs["holes"] == 2
        assert "2 of 28 points not computed, 1 not finite" in remarks([found])


def test_planes_npz_that_fall_are_read_from_their_other_end(tmp_path: Path) -> None:
    path = connected(tmp_path / "plane.npz")
    straight = read_plane(path)
    with np.load(path) as file:
        turned = {name: values[::-1, ::-1] if values.shape[:2] == (8, 5) else values for name, values in file.items()}
    np.savez(tmp_path / "turned.npz", **turned)
    found = read_plane(tmp_path / "turned.npz")
    for name in ("a", "b", "loss", "error"):
        np.testing.assert_array_equal(getattr(found, name), getattr(straight, name))


@pytest.fixture
def stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_say_how_much_is_interpolated(stands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plane = adaptive_plane(**MARKS)
    plane.save("p.nc")
    assert run(["export", "p.nc", "p.h5"]) == 0
    share = f"{100 * np.mean(~plane.computed):.0f} %"  # type: ignore[operator]
    assert capsys.readouterr().out == f"p.h5: 9 x 13 points of loss and accuracy, {share} of them interpolated\n"
    assert run(["import", "p.h5", "--out", "q"]) == 0
    assert f"; {share} of them interpolated; " in capsys.readouterr().out
    np.testing.assert_array_equal(Plane.load("q.nc").computed, plane.computed)
    clients().save("whole.nc")
    assert run(["export", "whole.nc", "whole.h5"]) == 0
    assert capsys.readouterr().out == "whole.h5: 9 x 13 points of loss and accuracy\n"


def test_the_function_reads_what_the_command_does(stands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crunched(stands / "s.h5", values={3: -1})
    assert run(["import", "s.h5", "--out", "q", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("files") == ["q.nc", "q.pdf", "q.png", "q.html"]
    found = import_surface("s.h5")
    assert found.numbers() == told == {
        "grid": [4, 7], "program": "loss-landscape", "split": "train", "units": "direction lengths", "holes": 1
    }  # fmt: skip
    assert Plane.load("q").numbers() == told
    assert found.summary().startswith("s.h5, loss-landscape: train loss on 4 x 7 points, ")
    assert Plane.load("q").attrs == found.attrs


def test_a_moved_file_is_the_same_surface(stands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crunched(stands / "s.h5")
    assert run(["import", "s.h5", "--out", "q"]) == 0
    (stands / "s.h5").rename(stands / "moved.h5")
    assert run(["import", "moved.h5", "--out", "q"]) == 0
    assert "q.nc already holds this result" in capsys.readouterr().err


def test_a_plane_of_fedscopes_own_is_not_redrawn_by_import(stands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients().save("p.nc")
    assert run(["import", "s.h5", "--out", "p", "--redraw"]) == 2
    said = capsys.readouterr().err
    assert "p.nc holds no imported surface but a plane that fedscope has computed; draw it again with the com" in said
    assert said.count("\n") == 1


def test_a_loss_of_minus_one_of_fedscopes_own_is_no_hole(tmp_path: Path) -> None:
    """Its planes have no holes, and a task's loss may be below 0; in another program's file -1 stays a hole."""
    loss = np.linspace(-2, 1, 28).reshape(4, 7)
    loss[1, 2] = loss[3, 4] = -1.0
    own = Plane(X, Y, loss, np.full_like(loss, np.nan), (), 0.0, "none", {"split": "test"})
    write_surface(tmp_path / "own.h5", own)
    found = read_surface(tmp_path / "own.h5")
    np.testing.assert_array_equal(found.loss, loss)
    assert found.attrs["holes"] == 0
    write_surface(tmp_path / "again.h5", found)
    np.testing.assert_array_equal(read_surface(tmp_path / "again.h5").loss, loss)
    assert np.isnan(read_surface(crunched(tmp_path / "theirs.h5", values={3: -1})).loss).sum() == 1
