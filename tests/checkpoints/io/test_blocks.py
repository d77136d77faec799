"""A file in memory that lies in blocks, against one of the standard library that does not."""

from __future__ import annotations

import gc
import io
import weakref

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints.io import blocks
from fedscope.checkpoints.io.blocks import BLOCK, BlockFile

pytestmark = pytest.mark.same_elsewhere

PLACES = st.integers(0, 40)
STEPS = st.one_of(
    st.tuples(st.just("seek"), PLACES),
    st.tuples(st.just("write"), st.binary(max_size=30)),
    st.tuples(st.just("read"), PLACES),
    st.tuples(st.just("truncate"), PLACES),
    st.tuples(st.just("end"), st.integers(-5, 5)),
    st.tuples(st.just("on"), st.integers(0, 9)),
)


@given(steps=st.lists(STEPS, max_size=25), size=st.sampled_from([1, 4, 7, 64]))
def test_it_is_the_file_of_the_standard_library(steps: list[tuple[str, object]], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", size)
        ours, theirs = BlockFile(), io.BytesIO()
        for what, given_ in steps:
            for file in (ours, theirs):
                if what == "end":
                    file.seek(max(given_, -len(theirs.getvalue())), io.SEEK_END)  # type: ignore[type-var, arg-type]
                elif what == "on":
                    file.seek(given_, io.SEEK_CUR)  # type: ignore[arg-type]
                elif what == "truncate":  # the other one does not grow
                    file.truncate(min(given_, len(theirs.getvalue())))  # type: ignore[type-var, arg-type]
                elif what == "write":
                    file.write(given_)  # type: ignore[arg-type]
            if what == "seek":
                assert ours.seek(given_) == theirs.seek(given_)  # type: ignore[arg-type]
            if what == "read":
                assert ours.read(given_) == theirs.read(given_)  # type: ignore[arg-type]
            assert ours.tell() == theirs.tell()
        assert b"".join(ours.pour()) == theirs.getvalue()
        assert list(ours.pour()) == []


def test_what_is_grown_to_is_zeros_also_where_something_was() -> None:
    file = BlockFile()
    file.write(b"x" * (BLOCK + 10))
    file.truncate(5)
    file.truncate(BLOCK + 3)
    assert b"".join(file.pour()) == b"x" * 5 + bytes(BLOCK - 2)


def test_hdf5_writes_into_it_what_it_writes_elsewhere() -> None:
    values = np.random.default_rng(0).normal(size=(3, 2**17))  # a megabyte each
    found = []
    for room in (BlockFile(), io.BytesIO()):
        with h5py.File(room, "w") as file:
            file.create_dataset("a/b", data=values, chunks=(1, 2**17))
            file.attrs["says"] = "so"
        found.append(b"".join(room.pour()) if isinstance(room, BlockFile) else room.getvalue())
    assert found[0] == found[1]


def test_a_block_that_was_yielded_is_held_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bytes(bytearray):
        """One that can be referred to weakly."""

    monkeypatch.setattr(blocks, "bytearray", Bytes, raising=False)
    file = BlockFile()
    file.write(b"x" * (3 * BLOCK))
    there = [weakref.ref(block) for block in file._blocks]
    alive = []
    for block in file.pour():
        del block
        gc.collect()
        alive.append(sum(one() is not None for one in there))
    assert alive == [3, 2, 1]
