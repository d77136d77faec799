"""netCDF files: read back, and opened by xarray with both of its engines."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError
from fedscope.results.arrays import read_netcdf, write_netcdf

pytestmark = pytest.mark.same_elsewhere

LOSS = np.arange(6.0).reshape(2, 3)
COORDS = {
    "b": (("b",), np.array([0.0, 1.5]), {"units": "L2 distance", "long_name": "along v"}),
    "a": (("a",), np.array([-1.0, 0.0, 2.0]), {}),
    "pair": (("pair",), np.array(["ima@1 → ima@2", "β"], dtype=object), {}),
}
VARIABLES = {
    "loss": (("b", "a"), LOSS, {"units": "nat", "long_name": "mean cross-entropy"}),
    "barrier": (("pair",), np.array([np.nan, np.inf]), {}),
    "model_label": (("model",), np.array(["client 3", "mean", "ö"]), {}),
    "shown": (("model",), np.array([True, False, True]), {}),
}
ATTRS = {
    "title": "a plane",
    "cos_uv": 0.25,
    "samples": 360,
    "addresses": ["ima@1", "ima@2"],
    "versions": {"torch": "2.13.0"},
    "limit": None,
    "flag": True,
    "tricky": "null",
    "number": "17",
    "list": "[not json",
}


@pytest.fixture
def path(tmp_path):
    write_netcdf(tmp_path / "plane.nc", COORDS, VARIABLES, ATTRS)
    return tmp_path / "plane.nc"


def test_what_is_written_is_read(path):
    variables, attrs = read_netcdf(path)
    assert attrs == ATTRS
    for name, (dims, values, about) in {**COORDS, **VARIABLES}.items():
        got_dims, got, got_about = variables[name]
        assert got_dims == dims
        np.testing.assert_array_equal(got, values)
        assert got_about == about
    assert list(variables["model"][1]) == [0, 1, 2]
    assert variables["model_label"][1].tolist() == ["client 3", "mean", "ö"]


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_xarray_opens_it(path, engine):
    import xarray

    with xarray.open_dataset(path, engine=engine) as data:
        assert set(data.dims) == {"a", "b", "pair", "model"}
        assert data.loss.dims == ("b", "a")
        np.testing.assert_array_equal(data.loss, LOSS)
        assert data.loss.attrs == {"units": "nat", "long_name": "mean cross-entropy"}
        assert data.loss.sel(b=1.5, a=2.0) == 5
        assert data.barrier.sel(pair="β") == np.inf
        assert data.model.dtype.kind == "i"
        assert data.model_label.sel(model=2).item() == "ö"
        assert data.attrs["title"] == "a plane"
        assert data.attrs["cos_uv"] == 0.25
        assert data.attrs["versions"] == '{"torch": "2.13.0"}'


def test_the_netcdf_library_opens_it(path):
    import netCDF4

    with netCDF4.Dataset(path) as data:
        assert {name: len(dim) for name, dim in data.dimensions.items()} == {"b": 2, "a": 3, "pair": 2, "model": 3}
        assert data["loss"].dimensions == ("b", "a")


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(FedscopeError, match=r"loss has 3 along a, but a has 2 values"):
        write_netcdf(tmp_path / "x.nc", {"a": (("a",), np.zeros(2), {})}, {"loss": (("a",), np.zeros(3), {})})
    with pytest.raises(FedscopeError, match=r"loss of shape \(3,\) does not fit the dimensions \(b, a\)"):
        write_netcdf(tmp_path / "x.nc", {}, {"loss": (("b", "a"), np.zeros(3), {})})
    assert not list(tmp_path.iterdir())


def test_foreign_files_are_refused(tmp_path):
    (tmp_path / "x.nc").write_bytes(b"CDF\x01" + bytes(100))
    with pytest.raises(FedscopeError, match=r"x.nc is not a netCDF-4 result of fedscope: it is not an HDF5 file"):
        read_netcdf(tmp_path / "x.nc")
    with pytest.raises(FedscopeError, match=r"y.nc does not exist"):
        read_netcdf(tmp_path / "y.nc")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_seen_before_hdf5_opens_the_file(tmp_path: Path, place: float, bit: int) -> None:
    path = tmp_path / "a.nc"
    write_netcdf(path, {}, {"loss": (("a", "b"), np.arange(6.0).reshape(2, 3), {})}, {"split": "test"})
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 31))] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(FedscopeError, match=r"a\.nc is damaged: its bytes are not those that were written; close it"):
        read_netcdf(path)


def test_a_file_that_is_open_for_writing_is_to_be_closed(path: Path) -> None:
    with h5py.File(path, "a"), pytest.raises(FedscopeError) as refused:
        read_netcdf(path)
    assert str(refused.value) == (
        f"{path} is damaged: its bytes are not those that were written; close it where it is open for writing, else "
        "compute it again with --force, or restore it from a copy"
    )
    assert read_netcdf(path)[1] == ATTRS


def test_a_file_that_another_program_changed_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    write_netcdf(path, {}, {"loss": (("a",), np.arange(3.0), {})})
    with h5py.File(path, "r+") as file:
        file["loss"][1] = 9.0
        file.attrs["more"] = "x" * 5000
    variables, attrs = read_netcdf(path)
    assert variables["loss"][1].tolist() == [0.0, 9.0, 2.0]
    assert attrs["more"] == "x" * 5000
