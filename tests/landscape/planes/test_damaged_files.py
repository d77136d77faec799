"""A plane's file, and a surface from elsewhere, of which something is of another type or shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.landscape import read_surface, write_surface
from fedscope.landscape.planes.result import Plane, PlaneModel

A, B = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0])
MODEL = PlaneModel("ima@3", 1.0, 0.5, 0.0, 0.1, 0.2, 0.1, 0.2, "anchor", 0.3, 0.4)
PLANE = Plane(A, B, np.ones((2, 3)), np.zeros((2, 3)), (MODEL,), 0.1, "none", {"split": "test", "samples": 3})


def put(name: str, values: Any) -> Callable[[h5py.File], None]:
    """Other values in the place of a variable's, along the same dimensions."""

    def spoil(file: h5py.File) -> None:
        scales = [dim[0] for dim in file[name].dims if len(dim)]
        del file[name]
        file[name] = values
        for axis, scale in enumerate(scales):
            file[name].dims[axis].attach_scale(scale)

    return spoil


def refused_as(path: Path, spoil: Callable[[h5py.File], None], read: Callable[[Path], Plane], sentence: str) -> None:
    with h5py.File(path, "r+") as file:
        spoil(file)
    with pytest.raises(FedscopeError) as refused:
        read(path)
    assert sentence in str(refused.value)
    assert str(path) in str(refused.value)


def say(**attrs: Any) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.update(attrs)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (put("loss", np.full((2, 3), "x", object)), "loss is object of shape [2, 3], not numbers of shape [2, 3]"),
        (
            lambda file: file["a"].write_direct(np.array([0.0, 2.0, 1.0])),
            "a is not a rising row of at least two coordin",
        ),
        (
            lambda file: file["b"].write_direct(np.array([0.0, np.nan])),
            "b is not a rising row of at least two coordinates",
        ),
        (put("model_loss", np.full(1, "x", object)), "model_loss is object of shape [1], not a value a model"),
        (put("model_label", np.ones(1)), "model_label is float64 of shape [1], not a value a model"),
        (say(samples="many"), "its attribute samples is 'many'"),
        (say(samples=-1), "its attribute samples is '-1'"),
        (say(explained="[0.5, null]"), "its attribute explained is '[0.5, None]'"),
        (say(kind=3), "its attribute kind is '3'"),
        (say(cos_uv="x"), "its attribute cos_uv is 'x'"),
        (lambda file: file.attrs.pop("cos_uv"), "does not say its cos_uv"),
    ],
)
def test_a_plane_of_other_things_is_refused(tmp_path: Path, spoil: Callable[[h5py.File], None], sentence: str) -> None:
    PLANE.save(tmp_path / "p.nc")
    refused_as(tmp_path / "p.nc", spoil, Plane.load, sentence)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (put("test_loss", h5py.Empty("f8")), "has no numbers in test_loss"),
        (say(samples="many"), "its attribute samples is 'many'"),
        (say(units=3), "its attribute units is '3'"),
        (lambda file: file.pop("test_loss") and file.create_dataset("test_loss", (2**40,), "f8"), "declares 8.8 TB"),
    ],
)
def test_a_surface_of_other_things_is_refused(
    tmp_path: Path, spoil: Callable[[h5py.File], None], sentence: str
) -> None:
    write_surface(tmp_path / "s.h5", PLANE)
    refused_as(tmp_path / "s.h5", spoil, read_surface, sentence)


def test_a_surface_may_say_its_units_in_bytes(tmp_path: Path) -> None:
    """As Python 2 wrote text."""
    write_surface(tmp_path / "s.h5", PLANE)
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        file.attrs["units"] = np.bytes_("L2 distance")
    assert read_surface(tmp_path / "s.h5").attrs["units"] == "L2 distance"
