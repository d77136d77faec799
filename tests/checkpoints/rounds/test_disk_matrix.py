"""Matrices on the disk answer as numpy's do, and read no more than was asked for."""

from __future__ import annotations

import gc
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import (
    DiskMatrix,
    FedscopeError,
    Layout,
    Round,
    RoundRecord,
    TemporaryMatrix,
    TensorEntry,
    Weights,
    as_array,
    as_disk_matrix,
    mean,
    read_chunks,
    recorded_matrix,
    weighted_mean,
    write_round,
)
from fedscope.checkpoints.rounds import disk_matrix as rows_on_disk

LAYOUT = Layout(
    (
        TensorEntry("a.weight", (5, 3), "float32", "parameter"),
        TensorEntry("a.mean", (5,), "float32", "buffer"),
        TensorEntry("a.none", (0, 2), "float32", "parameter"),
        TensorEntry("b.scale", (), "float32", "parameter"),
        TensorEntry("b.count", (), "int64", "buffer"),
        TensorEntry("b.weight", (11,), "float32", "parameter"),
    )
)
IDS = np.array([2, 3, 5, 8])


def models(seed: int = 0) -> Weights:
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(4, LAYOUT.size)).astype(np.float32)
    rows[1, 4] = -0.0
    means = draw.normal(size=(4, 5)).astype(np.float32)
    return Weights(LAYOUT, rows, {"a.mean": means, "b.count": np.array([4, 3, 2, 1])})


def record(clients: Weights) -> RoundRecord:
    start = clients.row(0)
    number = np.arange(4)
    return RoundRecord(1, start, clients, start, None, IDS, number, number, number * 1.0, np.full(4, 0.25))


def aside(values: np.ndarray, folder: Path) -> TemporaryMatrix:
    rows = TemporaryMatrix(folder, values.shape, values.dtype)
    for k in (2, 0, 3, 1):
        rows[k] = values[k]
    return rows


@pytest.fixture(params=["scratch", "recorded", "packed"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> DiskMatrix:
    if request.param == "scratch":
        return aside(models().parameters, tmp_path)
    write_round(tmp_path / "1.h5", record(models()), "delta" if request.param == "packed" else "none")
    found = as_disk_matrix(recorded_matrix(Round(tmp_path / "1.h5", LAYOUT, "run")).parameters)
    assert found is not None
    return found


def test_they_answer_as_an_array(rows: DiskMatrix) -> None:
    values = models().parameters
    assert (len(rows), rows.shape, rows.dtype, rows.ndim, rows.nbytes) == (
        4,
        values.shape,
        values.dtype,
        2,
        values.nbytes,
    )
    assert np.asarray(rows).tobytes() == values.tobytes()
    for k in (0, 3, -1, np.int64(2)):
        assert rows[k].tobytes() == values[k].tobytes()
    assert [row.tobytes() for row in rows] == [row.tobytes() for row in values]
    assert rows[[3, 1]].tobytes() == values[[3, 1]].tobytes()
    assert rows[np.array([True, False, False, True])].tobytes() == values[[0, 3]].tobytes()
    assert rows[1:3].tobytes() == values[1:3].tobytes()
    for where in (slice(0, 5), slice(12, 20), slice(15, 16), slice(7, 7), slice(-3, None), slice(None)):
        part = rows[:, where]
        assert part.shape == values[:, where].shape
        assert np.asarray(part).tobytes() == values[:, where].tobytes(), where
        assert part[2].tobytes() == values[2, where].tobytes()
        assert np.asarray(rows[..., where]).tobytes() == values[:, where].tobytes()
    assert np.asarray(rows[:, 4:20][:, 3:9]).tobytes() == values[:, 7:13].tobytes()


@pytest.mark.parametrize("numbers", [1, 12, 40, 10**6])
def test_blocks_are_all_columns_in_order(rows: DiskMatrix, numbers: int) -> None:
    values, at = models().parameters, 0
    for where, block in rows.blocks(numbers):
        assert where.start == at
        assert block.size <= max(4, numbers)
        assert block.tobytes() == values[:, where].tobytes()
        at = where.stop
    assert at == LAYOUT.size


def test_means_of_them_are_those_of_arrays(rows: DiskMatrix) -> None:
    known = models()
    clients = Weights(LAYOUT, as_array(rows), known.buffers)
    p = np.array([0.1, 0.0, 0.6, 0.3])
    for found, expected in (
        (weighted_mean(clients, p, 2), weighted_mean(known, p, 2)),
        (mean(clients), mean(known)),
        (clients.row(3), known.row(3)),
    ):
        for name, value in expected.arrays().items():
            assert found.arrays()[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("compression", ["none", "delta"])
def test_a_round_written_from_the_disk_is_the_same_file(compression: str, tmp_path: Path) -> None:
    known = models()
    write_round(tmp_path / "memory.h5", record(known), compression)  # type: ignore[arg-type]
    rows = Weights(LAYOUT, as_array(aside(known.parameters, tmp_path)), known.buffers)
    write_round(tmp_path / "disk.h5", replace(record(known), clients=rows), compression)  # type: ignore[arg-type]
    assert (tmp_path / "memory.h5").read_bytes() == (tmp_path / "disk.h5").read_bytes()


def test_buffers_of_a_recorded_round_are_read(tmp_path: Path) -> None:
    write_round(tmp_path / "1.h5", record(models()))
    found = recorded_matrix(Round(tmp_path / "1.h5", LAYOUT, "run")).buffers
    assert {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in models().buffers.items()
    }


def test_damage_is_found_whichever_way_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "1.h5"
    write_round(path, record(models()))
    content = bytearray(path.read_bytes())
    at = content.find(models().parameters[2, 16:27].tobytes())
    assert at > 0
    content[at] ^= 1
    for ask in (lambda rows: rows[2], lambda rows: list(rows.blocks(8)), lambda rows: np.asarray(rows[:, 16:20])):
        damaged = (
            tmp_path / f"{len(list(tmp_path.iterdir()))}" / "1.h5"
        )  # each read by itself: right rows are remembered
        damaged.parent.mkdir()
        damaged.write_bytes(content)
        rows = recorded_matrix(Round(damaged, LAYOUT, "run")).parameters
        with pytest.raises(FedscopeError, match=r"client 5's b\.weight is not what was written"):
            ask(rows)


def test_scratch_reads_nothing_else_and_any_thread_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(4000, dtype=np.float64).reshape(4, 1000)
    rows, read, real = aside(values, tmp_path), [], rows_on_disk.read_at

    def counted(file: int, left: memoryview, place: int) -> int:
        read.append(real(file, left, place))
        return read[-1]

    monkeypatch.setattr(rows_on_disk, "read_at", counted)
    assert np.asarray(rows[:, 10:20]).tolist() == values[:, 10:20].tolist()
    assert sum(read) == 4 * 10 * 8
    monkeypatch.delattr(os, "preadv")  # as on systems without it
    assert np.asarray(rows).tolist() == values.tolist()
    monkeypatch.undo()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda k: rows[k % 4].tobytes(), range(400)))
    assert found == [values[k % 4].tobytes() for k in range(400)]


@pytest.mark.parametrize("held_by", ["nobody", "a cycle"])
def test_files_are_closed_without_a_warning(held_by: str, tmp_path: Path) -> None:
    """Also of rows and pieces that an error's traceback holds, which are collected together with their files."""
    write_round(tmp_path / "1.h5", record(models()))
    round_ = Round(tmp_path / "1.h5", LAYOUT, "run")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        held: list[Any] = [next(read_chunks(round_, 2)), TemporaryMatrix(tmp_path, (2, 3), np.dtype("float32"))]
        if held_by == "a cycle":
            held.append(held)
            del held
            gc.collect()
        else:
            del held
    assert [str(one.message) for one in told] == []


def test_what_is_no_row_or_was_not_written_is_refused(tmp_path: Path) -> None:
    rows = TemporaryMatrix(tmp_path, (3, 4), np.dtype("float32"))
    rows[0] = np.zeros(4)
    with pytest.raises(FedscopeError, match=r"row 2 .* was never written"):
        rows[2]
    with pytest.raises(IndexError, match="no row 3 of 3"):
        rows[3]
    with pytest.raises(ValueError, match="there are 4 columns"):
        rows[1] = np.zeros(3)
    for key in ((0, slice(0, 2)), (slice(None), 1), (slice(None), slice(0, 4, 2))):
        with pytest.raises(IndexError):
            rows[key]
