"""Files that the program itself holds open are read all the same, and what is wrong with others is said as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.io.hdf5 import open_hdf5
from fedscope.training.loop.verify_run import check_run

pytestmark = pytest.mark.same_elsewhere


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    halves, draw = [range(15), range(15, 30)], np.random.default_rng(0)
    with fedscope.Recorder(path, partition=halves, labels=np.arange(30) % 3) as recorder:
        for _ in range(2):
            clients = [{"w": draw.normal(size=4).astype(np.float32)} for _ in range(2)]
            mean = {"w": (clients[0]["w"] + clients[1]["w"]) / 2}
            recorder.round(start={"w": np.zeros(4, np.float32)}, clients=clients, samples=[15, 15], global_=mean)
    return path


@pytest.mark.parametrize("how", [{}, {"locking": True}, {"locking": False}, {"driver": "stdio"}])
def test_a_run_that_the_program_holds_open_is_read_and_sound(run: Path, how: dict[str, Any]) -> None:
    expected = fedscope.Run.open(run).round(1).read("global").parameters
    with h5py.File(run / "rounds/00001.h5", "r", **how), h5py.File(run / "partition.h5", "r", **how):
        opened = fedscope.Run.open(run)
        np.testing.assert_array_equal(opened.round(1).read("global").parameters, expected)
        assert opened.partition is not None
        assert len(opened.partition.clients) == 2
        assert check_run(run).faults == ()


def test_a_result_that_the_program_holds_open_is_loaded(tmp_path: Path) -> None:
    nets, x = [torch.nn.Linear(2, 2) for _ in range(2)], torch.randn(40, 2)
    saved = fedscope.line(nets, data=(x, (x[:, 0] > 0).long()), points=3)
    saved.save(tmp_path / "line")
    with h5py.File(tmp_path / "line.nc", "r"):
        for name in ("line", "line.nc"):
            np.testing.assert_array_equal(fedscope.load(tmp_path / name).loss, saved.loss)


def written(path: Path) -> bytes:
    with h5py.File(path, "w") as file:
        file.attrs["format"], file["w"] = "fedscope-round", np.arange(2000.0)
    return path.read_bytes()


@pytest.mark.parametrize("left", [0, 1, 7, 8, 12, 30, 47, 48, 95, 96, 500, 9000])
def test_what_is_left_of_a_file_is_said_to_be_that(tmp_path: Path, left: int) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(written(path)[:left])
    says = f"{path} is truncated ({left:,} bytes are left of it); it should be a round: copy it again"
    with pytest.raises(FedscopeError, match=f"^{re.escape(says)}$"), open_hdf5(path, "fedscope-round", 1, "a round"):
        pass


def test_a_whole_file_that_cannot_be_opened_is_damaged_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    content = bytearray(written(path))
    content[8] = 0xFF
    path.write_bytes(content)
    says = r"a\.h5 is damaged: Unable to .*open file \(bad superblock version number\); restore it from a copy$"
    with pytest.raises(FedscopeError, match=says), open_hdf5(path, "fedscope-round", 1, "a round"):
        pass


def test_a_base_whose_file_is_damaged_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "line.nc").write_bytes(written(tmp_path / "a.h5")[:50])
    says = (
        r"line\.nc is truncated \(50 bytes are left of it\); it should be a netCDF-4 result of fedscope: copy it again$"
    )
    with pytest.raises(FedscopeError, match=says):
        fedscope.load(tmp_path / "line")
