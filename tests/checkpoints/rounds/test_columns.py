"""Pieces of columns that threads read by themselves, and blocks of them one after the other, against whole matrices."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    Round,
    RoundRecord,
    TensorEntry,
    Weights,
    read_chunks,
    read_columns,
    write_round,
)
from fedscope.checkpoints.io import checksums
from fedscope.checkpoints.rounds import columns as round_columns
from fedscope.checkpoints.rounds import reader
from fedscope.checkpoints.rounds.columns import read_once

LAYOUT = Layout(
    (
        TensorEntry("fc.weight", (40, 9), "float32", "parameter"),
        TensorEntry("steps", (), "int64", "buffer"),
        TensorEntry("scale", (), "float32", "parameter"),
        TensorEntry("empty", (0, 4), "float32", "parameter"),
        TensorEntry("head.weight", (17,), "float32", "parameter"),
    )
)
CLIENTS = 9


def recorded(folder: Path, compression: Any = "none") -> Round:
    """A round with all its models, among whose numbers are NaN and -0."""
    draw = np.random.default_rng(3)
    clients = Weights(
        LAYOUT, draw.normal(size=(CLIENTS, LAYOUT.size)).astype(np.float32), {"steps": np.zeros(CLIENTS, np.int64)}
    )
    clients.parameters[1, 2], clients.parameters[2, 0] = np.nan, -0.0
    start, new, averaged = (
        Weights(LAYOUT, draw.normal(size=LAYOUT.size).astype(np.float32), {"steps": np.int64(0)}) for _ in range(3)
    )
    numbers = np.arange(CLIENTS)
    path = folder / "00007.h5"
    write_round(
        path, RoundRecord(7, start, clients, new, averaged, *[numbers] * 4, np.full(CLIENTS, 1 / CLIENTS)), compression
    )
    return Round(path, LAYOUT, "runs/toy")


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was verified before."""
    monkeypatch.setattr(reader, "VERIFIED", checksums.Verified(files=16, tables=16))


def whole(round_: Round, which: str) -> np.ndarray:
    return round_.clients().parameters if which == "clients" else round_.read(which).parameters[None]


def rewritten(round_: Round) -> None:
    """As another program may write it: other chunks, another byte order, no chunks."""
    with h5py.File(round_.path, "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        for name in LAYOUT.slices:
            rows = file["clients"][name][()]
            del file["clients"][name]
            if name == "fc.weight":
                file["clients"].create_dataset(name, data=rows, chunks=(3, 20, 9))
            elif name == "head.weight":
                file["clients"].create_dataset(name, data=rows.astype(">f4"))
            else:
                file["clients"].create_dataset(name, data=rows)


def same(round_: Round, which: str, columns: int) -> None:
    """Every column of every model is in one piece, bit for bit, read in any order and by several threads."""
    expected, seen = whole(round_, which), np.zeros(LAYOUT.size, int)
    found = list(read_chunks(round_, columns, which=which))
    with ThreadPoolExecutor(3) as threads:
        values = list(threads.map(lambda piece: piece.read(), reversed(found)))
    for piece, read in zip(reversed(found), values, strict=True):
        assert read.shape == (piece.rows, piece.count)
        assert 0 < piece.count <= columns
        assert read.tobytes() == np.ascontiguousarray(expected[:, piece.where]).tobytes()
        assert piece.where.start == LAYOUT.slices[piece.layer].start + piece.start
        seen[piece.where] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("columns", [1, 13, 10_000])
@pytest.mark.parametrize("compression", ["none", "delta"])
@pytest.mark.parametrize("which", ["clients", "start", "global", "averaged"])
def test_pieces_are_the_columns_of_the_models(tmp_path: Path, which: str, compression: str, columns: int) -> None:
    same(recorded(tmp_path, compression), which, columns)


def test_rows_are_read_as_they_lie_in_the_file_and_in_any_file(tmp_path: Path, monkeypatch: Any) -> None:
    round_ = recorded(tmp_path)
    assert {piece.file.name for piece in read_chunks(round_, 50)} == {round_.path}
    rewritten(round_)
    own = {piece.layer: piece.file.name == round_.path for piece in read_chunks(round_, 500)}
    assert own == {"fc.weight": False, "scale": True, "head.weight": False}
    same(round_, "clients", 50)
    monkeypatch.delattr(round_columns.os, "preadv")  # as on Windows
    same(round_, "clients", 50)


@pytest.mark.parametrize("columns", [13, 10_000])
@pytest.mark.parametrize("kind", ["none", "delta", "rewritten"])
def test_columns_that_are_read_once_are_those_of_the_models(tmp_path: Path, kind: str, columns: int) -> None:
    round_ = recorded(tmp_path, "delta" if kind == "delta" else "none")
    if kind == "rewritten":
        rewritten(round_)
    expected, seen = whole(round_, "clients"), np.zeros(LAYOUT.size, int)
    buffer = np.empty(CLIENTS * columns, np.float32)
    for where, values in read_once(round_, columns, lambda count: buffer[:count]):
        assert values.tobytes() == np.ascontiguousarray(expected[:, where]).tobytes()
        assert np.shares_memory(values, buffer)
        seen[where] += 1
    assert (seen == 1).all()


def test_each_byte_is_read_once_and_verified_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(monkeypatch)
    round_, read, real = recorded(tmp_path), [], round_columns.os.preadv

    def counted(fd: int, into: Any, place: int) -> int:
        read.append(real(fd, into, place))
        return read[-1]

    monkeypatch.setattr(round_columns.os, "preadv", counted)
    for _ in read_once(round_, 50, lambda count: np.empty(count, np.float32)):
        pass
    assert sum(read) == CLIENTS * LAYOUT.size * 4


@pytest.mark.parametrize("place", [0, -4], ids=["in the first columns", "in the last ones"])
def test_a_damaged_row_is_refused_after_its_last_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    fresh(monkeypatch)
    round_ = recorded(tmp_path)
    begin = next(read_chunks(round_, 1000)).places[4] + place % (360 * 4)
    fresh(monkeypatch)
    with round_.path.open("r+b") as file:
        file.seek(begin)
        file.write(b"\x01\x02")
    seen: list[int] = []

    def read() -> None:
        for where, _ in read_once(round_, 50, lambda count: np.empty(count, np.float32)):
            seen.append(where.stop)

    with pytest.raises(FedscopeError, match=r"00007\.h5 is damaged: client 4's fc\.weight is not what was written"):
        read()
    assert seen == [50, 100, 150, 200, 250, 300, 350]  # the last ten are not handed out


def test_only_compressed_rounds_are_packed(tmp_path: Path) -> None:
    (tmp_path / "delta").mkdir()
    assert not recorded(tmp_path).is_packed
    assert recorded(tmp_path / "delta", "delta").is_packed


def test_the_system_may_read_less_than_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    round_, real = recorded(tmp_path), round_columns.os.preadv
    monkeypatch.setattr(round_columns.os, "preadv", lambda fd, into, place: real(fd, [into[0][:100]], place))
    same(round_, "clients", 360)


def test_a_buffer_is_filled_and_used(tmp_path: Path) -> None:
    round_, buffer = recorded(tmp_path), np.empty(CLIENTS * 50 + 3, np.float32)
    piece = next(read_chunks(round_, 50))
    values = piece.read(buffer)
    assert np.shares_memory(values, buffer)
    np.testing.assert_array_equal(values, whole(round_, "clients")[:, :50])


def test_a_file_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    round_ = recorded(tmp_path)
    piece = next(read_chunks(round_, 50))
    with round_.path.open("r+b") as file:
        file.truncate(piece.places[3] + 8)
    with pytest.raises(FedscopeError, match=r"00007\.h5 is truncated: it ends before byte \d+; restore it from a copy"):
        piece.read()


def test_a_temporary_folder_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: memoryview) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(round_columns, "TemporaryFile", lambda buffering: Full())
    with pytest.raises(
        FedscopeError, match=r"has no room for clients/fc\.weight of runs/toy@7 \(No space.*another folder in TMPDIR"
    ):
        list(read_chunks(recorded(tmp_path, "delta"), 50))


def test_files_are_closed_with_their_last_piece(tmp_path: Path) -> None:
    found = list(read_chunks(recorded(tmp_path, "delta"), 50))
    kept, raws = found[3], [piece.file.raw for piece in found]
    del found
    assert [raw.closed for raw in raws] == [raw is not kept.file.raw for raw in raws]
    kept.read()


@pytest.mark.parametrize("compression", ["none", "delta"])
@pytest.mark.parametrize("numbers", [1, 30, 60, 10_000])
def test_blocks_are_the_columns_of_the_clients_each_once(tmp_path: Path, compression: str, numbers: int) -> None:
    round_ = recorded(tmp_path, compression)
    clients, seen = whole(round_, "clients"), np.zeros(LAYOUT.size, int)
    for block in read_columns(round_, numbers=numbers):
        assert block.values.tobytes() == np.ascontiguousarray(clients[:, block.where]).tobytes()
        assert block.where.start == LAYOUT.slices[block.layer].start + block.start
        seen[block.where] += 1
        assert block.values.size <= max(numbers, CLIENTS)  # at least a column
    assert (seen == 1).all()


def test_only_the_layers_asked_for_are_read(tmp_path: Path) -> None:
    blocks = list(read_columns(recorded(tmp_path), ["head.weight", "scale"]))
    assert [block.layer for block in blocks] == ["scale", "head.weight"]


def test_models_that_are_not_there_are_refused(tmp_path: Path) -> None:
    round_ = recorded(tmp_path)
    with pytest.raises(FedscopeError, match=r"no parameter 'fc\.weigt'; did you mean \"fc\.weight\"\?"):
        next(read_chunks(round_, 50, ["fc.weigt"]))
    with pytest.raises(FedscopeError, match=r"no parameter 'zzz'; it has fc\.weight, scale, empty, head\.weight"):
        next(read_columns(round_, ["zzz"]))
    with h5py.File(round_.path, "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        del file["clients"], file["averaged"]
    bare = Round(round_.path, LAYOUT, "runs/toy")
    with pytest.raises(FedscopeError, match=r"the clients of round 7 were not recorded"):
        next(read_chunks(bare, 50))
    with pytest.raises(FedscopeError, match=r"runs/toy@7/averaged: round 7 recorded start, global"):
        next(read_chunks(bare, 50, which="averaged"))
