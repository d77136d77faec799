"""Attributes of a run's and a result's files, with any value of any type HDF5 has: each is read or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Layout, Partition, Round, RoundRecord, TensorEntry, Weights, write_round
from fedscope.checkpoints.io.hdf5 import UnreadableAttribute, attribute, check_version
from fedscope.checkpoints.rounds.verify import check_round
from fedscope.results.arrays import read_netcdf, write_netcdf

pytestmark = pytest.mark.same_elsewhere

LAYOUT = Layout((TensorEntry("fc.weight", (2, 3), "float32", "parameter"), TensorEntry("n", (), "int64", "buffer")))
IDENTITY = "0123456789abcdef" * 2


def references(file: Any) -> Any:
    return file.ref


VALUES: tuple[Any, ...] = (
    *(np.inf, -np.inf, np.nan, 2.5, -1, 0, 1, 3, 2**63 - 1, np.uint64(2**64 - 1), np.float16(np.inf), np.bool_(True)),
    *("", "word", "fedscope-round", "delta", "model", "x" * 60_000, b"\xff\xfe", np.bytes_("fedscope-round"), "ä" * 40),
    *(np.arange(3), np.array([1]), np.array(["a"], "S3"), np.zeros((0,)), np.array([[1.0]]), np.complex64(1 + 2j)),
    np.array((1, 2.0), dtype=[("a", "i4"), ("b", "f8")]),
    np.array(1, dtype=h5py.enum_dtype({"A": 1})),
    np.void(b"\x00\x01"),
    h5py.Empty("f4"),
    references,
)


def put(item: Any, name: str, value: Any) -> None:
    if name in item.attrs:
        del item.attrs[name]
    if value is references:
        item.attrs.create(name, item.file.ref, dtype=h5py.ref_dtype)
    elif value is bitfield:
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(item.id, name.encode(), h5py.h5t.STD_B8LE, space)
    else:
        item.attrs[name] = value


def bitfield() -> None:
    """Of a type that NumPy has not."""


def models(count: int | None, seed: int) -> Weights:
    draw, lead = np.random.default_rng(seed), () if count is None else (count,)
    return Weights(LAYOUT, draw.normal(size=(*lead, 6)).astype(np.float32), {"n": np.ones(lead, np.int64)})


def written(path: Path) -> Round:
    three = np.arange(3)
    state = {"momentum": models(None, 5).parameters, "model": models(None, 6)}
    record = RoundRecord(
        4,
        models(None, 1),
        models(3, 2),
        models(None, 3),
        None,
        three,
        three + 1,
        three + 1,
        three / 2,
        np.full(3, 1 / 3),
        state=state,
        client_state={"control": models(3, 7).parameters},
        metrics={"test_loss": 0.5},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_round(path, record, "delta", LAYOUT, IDENTITY)
    return fresh(path)


def fresh(path: Path) -> Round:
    return Round(path, LAYOUT, "runs/ima", 20, IDENTITY)


def read(reader: Callable[[], Any]) -> Any:
    """What is read, or the sentence that refuses it."""
    try:
        return reader()
    except FedscopeError as error:
        return str(error)


def content(round_: Round) -> list[Any]:
    """All that a round says."""
    control = round_.client_state("control")
    state = round_.state()
    return [
        round_.metrics,
        round_.client_ids.tolist(),
        round_.clients().parameters.tolist(),
        round_.read("global").parameters.tolist(),
        state["momentum"].tolist(),
        state["model"].parameters.tolist(),
        np.asarray(control).tolist(),
    ]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Any], list[tuple[str, str]]]:
    """A round's file, what it says, and where it has attributes."""
    path = tmp_path_factory.mktemp("round") / "rounds/00004.h5"
    round_ = written(path)
    places: list[tuple[str, str]] = []
    with h5py.File(path, "r") as file:
        places += [("/", name) for name in file.attrs]
        file.visititems(lambda at, item: places.extend((at, name) for name in item.attrs))
    return path.read_bytes(), content(round_), places


PLACES = 10


def test_these_are_the_attributes_of_a_round(sound: Any) -> None:
    names = {name for _, name in sound[2]}
    assert names == {
        "format",
        "version",
        "round",
        "metrics",
        "identity",
        "checksums",
        "xxh3_64",
        "kind",
        "encoding",
        "dtype",
    }
    assert len(sound[2]) >= PLACES


@pytest.mark.parametrize("number", range(len(VALUES) + 2))
def test_a_round_with_any_attribute_is_what_was_written_or_refused(sound: Any, tmp_path: Path, number: int) -> None:
    """Never another content, never another error; ``ls --check`` finds what readers find, as far as it matters."""
    whole, expected, places = sound
    path = tmp_path / "rounds/00004.h5"
    path.parent.mkdir()
    for at, name in places:
        path.unlink(missing_ok=True)
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            if number < len(VALUES):
                put(file[at], name, VALUES[number])
            elif number == len(VALUES):
                del file[at].attrs[name]
            else:
                put(file[at], name, bitfield)
        found = read(lambda: content(fresh(path)))
        if isinstance(found, str):
            assert "00004.h5" in found
            assert len(found) < 1000
            assert check_round(fresh(path)).faults, (at, name)
        else:
            assert found == expected, (at, name)


def test_a_partition_with_any_attribute_is_what_was_written_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "partition.h5"
    for name in ("format", "version", "identity"):
        for value in (*VALUES, bitfield):
            Partition((np.arange(3), np.arange(3, 5)), None, np.array([[3], [2]])).save(path, IDENTITY)
            with h5py.File(path, "r+") as file:
                put(file, name, value)
            found = read(lambda: Partition.load(path, IDENTITY))
            if isinstance(found, str):
                assert "partition.h5" in found
            else:
                assert [part.tolist() for part in found.clients] == [[0, 1, 2], [3, 4]]


def test_a_result_with_any_attribute_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    for value in (*VALUES, bitfield):
        for at in ("/", "loss"):
            write_netcdf(path, {}, {"loss": (("a",), np.arange(3.0), {"units": "nats"})}, {"kind": "models"})
            with h5py.File(path, "r+") as file:
                put(file[at], "kind", value)
            found = read(lambda: read_netcdf(path))
            if isinstance(found, str):
                assert "a.nc" in found
                assert at == "/"
            else:
                assert found[0]["loss"][1].tolist() == [0.0, 1.0, 2.0]
                assert isinstance(found[1]["kind"], str | int | float)


@pytest.mark.parametrize(
    "found", [None, "", "1", True, np.inf, -np.inf, np.nan, 1.5, [1], {}, UnreadableAttribute(), 10**400]
)
def test_a_version_that_is_none_is_refused(tmp_path: Path, found: Any) -> None:
    with pytest.raises(FedscopeError, match=r"no whole number; it is damaged or foreign|upgrade it"):
        check_version(tmp_path, found, 1)


def test_older_versions_and_this_one_are_read(tmp_path: Path) -> None:
    for found in (0, 1, np.int64(1), 1.0):
        check_version(tmp_path, found, 1)


def test_an_attribute_is_a_text_a_number_or_neither(tmp_path: Path) -> None:
    kinds: dict[Callable[[Any], bool], Any] = {
        lambda value: value is None: "absent",
        lambda value: isinstance(value, UnreadableAttribute): np.arange(3),
        lambda value: value == "word": "word",
        lambda value: value == 7: np.uint8(7),
    }
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for i, (holds, value) in enumerate(kinds.items()):
            if value != "absent" if isinstance(value, str) else True:
                file.attrs[str(i)] = value
            assert holds(attribute(file, str(i)))
