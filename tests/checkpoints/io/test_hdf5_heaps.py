"""Zeroed collections of texts, which HDF5 would never get past."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.io.hdf5 import open_hdf5, refuse_endless

pytestmark = pytest.mark.same_elsewhere


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as written:
        written.attrs["format"] = "fedscope-round"
        written.attrs["metrics"] = "x" * 700
        written["w"] = np.arange(2000.0)
        written.attrs["last"] = "y" * 5000
    return path


def heaps(path: Path) -> list[int]:
    content, found = path.read_bytes(), []
    while (at := content.find(b"GCOL", found[-1] + 1 if found else 0)) >= 0:
        found.append(at)
    return found


def zero(path: Path, at: int, count: int) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + count] = bytes(len(content[at : at + count]))
    path.write_bytes(content)


def test_a_sound_file_passes(file: Path) -> None:
    assert len(heaps(file)) > 1, "texts in several collections"
    refuse_endless(file)
    refuse_endless(file.with_name("missing.h5"))


@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize(("first", "count"), [(16, 16), (16, 512), (20, 4096), (24, 8)])
def test_objects_without_a_size_are_refused_before_hdf5_meets_them(
    file: Path, which: int, first: int, count: int
) -> None:
    at = heaps(file)[which] + first
    zero(file, at, count)
    if first == 24:  # an object with a number and no length is a text of no letters, and HDF5 gets past it
        refuse_endless(file)
        return
    message = r"a\.h5 is damaged: its texts at byte [\d,]+ are zeroed; restore it"
    with pytest.raises(FedscopeError, match=message), open_hdf5(file, None, 1, "a round"):
        pass


@pytest.mark.programs
def test_hdf5_does_loop_there(file: Path) -> None:
    """Else this would be code for nothing; when a release of HDF5 ends here by itself, it can go."""
    zero(file, heaps(file)[0] + 16, 512)
    code = f"import h5py; print(dict(h5py.File({str(file)!r}).attrs))"
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=2)


def test_a_file_is_looked_through_once_until_it_changes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, real = [], Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: (opened.append(self), real(self, *a, **k))[1])
    refuse_endless(file)
    refuse_endless(file)
    assert opened == [file]
    zero(file, heaps(file)[0] + 16, 512)
    opened.clear()
    with pytest.raises(FedscopeError):
        refuse_endless(file)
    assert opened == [file]


def test_weights_that_look_like_a_collection_are_none(tmp_path: Path) -> None:
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as written:
        written["w"] = np.frombuffer(b"GCOL" + bytes(60), np.uint8)
    refuse_endless(path)
