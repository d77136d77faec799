"""Damaged and hostile model files: one sentence each, and never more memory or time than the file is worth."""

from __future__ import annotations

import io
import os
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from fedscope.checkpoints import FedscopeError, Layout, TensorEntry, Weights, read_file, write_file
from fedscope.checkpoints.io.archives import read_npz
from fedscope.checkpoints.io.untrusted import read_json, read_text, read_toml

torch.manual_seed(0)
STATE = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).state_dict()
LAYOUT = Layout.of(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def torch_bytes(state: object, zipped: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def npz_bytes(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


FILES = {
    "zip.pt": torch_bytes(STATE),
    "legacy.pt": torch_bytes(STATE, zipped=False),
    "net.safetensors": save(STATE),
    "net.npz": npz_bytes(**{name: value.numpy() for name, value in STATE.items()}),
}

DAMAGES = ["flip", "cut", "zero"]


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(FILES)), st.integers(0, 10**6), st.integers(0, 7), st.sampled_from(["flip", "cut", "zero"])
)
def test_damage_is_refused_or_seen_in_the_weights_only(folder: Path, name: str, at: int, bit: int, how: str) -> None:
    """Zip files have checksums, so that damage is never another weight; the other two have none."""
    whole = bytearray(FILES[name])
    at %= len(whole)
    if how == "flip":
        whole[at] ^= 1 << bit
    elif how == "cut":
        del whole[at:]
    else:
        whole[at : at + 64] = bytes(len(whole[at : at + 64]))
    path = folder / name
    path.write_bytes(whole)
    refusal, weights = "", None
    try:
        weights = read_file(path, LAYOUT)
    except FedscopeError as error:
        refusal = str(error)
    assert (str(path) in refusal and "\n" not in refusal) or weights is not None
    if weights is not None and zipfile.is_zipfile(path):
        for key, value in weights.arrays().items():
            np.testing.assert_array_equal(value, STATE[key].numpy())


def test_a_zip_file_that_says_it_spans_disks_is_refused(tmp_path: Path) -> None:
    """zipfile stumbles over it even when it is only asked whether it is one."""
    spoilt = bytearray(FILES["zip.pt"])
    spoilt[spoilt.index(b"PK\x06\x07") + 16] = 2
    (tmp_path / "net.pt").write_bytes(spoilt)
    with pytest.raises(FedscopeError, match=r"net.pt is truncated or not "):
        read_file(tmp_path / "net.pt", LAYOUT)


def header_of(shape: str) -> bytes:
    """An .npy that declares a shape and holds three numbers."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ones(3, np.float32))
    return buffer.getvalue().replace(b"(3,)", shape.encode()).replace(b" " * (len(shape) - 4) + b"\n", b"\n")


def test_an_array_that_declares_more_than_is_stored_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "net.npz", "w") as archive:
        archive.writestr("w.npy", header_of("(1099511627776,)"))
    sentence = r"net.npz: w declares 4,398,046,511,104 bytes \(\[1099511627776\] of float32\), but 12 are stored; copy"
    with pytest.raises(FedscopeError, match=sentence):
        read_npz(tmp_path / "net.npz")


@pytest.mark.parametrize("name", ["net.npz", "net.pt"])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, name: str) -> None:
    inside = {"net.npz": "w.npy", "net.pt": "net/data.pkl"}[name]
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(inside, "w") as file:
        for _ in range(70):
            file.write(bytes(2**20))
    size = (tmp_path / name).stat().st_size
    assert size < 2**17
    with pytest.raises(FedscopeError, match=rf"{name} declares 73,400,320 bytes, but stores {size:,}; copy it again"):
        read_file(tmp_path / name, LAYOUT)


def test_members_that_lie_in_each_other_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.npy", bytes(1000))
    content = buffer.getvalue()
    at = content.index(b"PK\x01\x02")
    entry, end = content[at : content.index(b"PK\x05\x06")], content[content.index(b"PK\x05\x06") :]
    entries = b"".join(entry.replace(b"a.npy", f"{k}.npy".encode()) for k in range(4))
    head = content[:at] + entries + end[:8] + (4).to_bytes(2, "little") * 2 + len(entries).to_bytes(4, "little")
    (tmp_path / "net.npz").write_bytes(head + at.to_bytes(4, "little") + end[20:])
    with pytest.raises(FedscopeError, match=r"net.npz declares 4,000 bytes of members, but stores 1,\d\d\d; copy"):
        read_npz(tmp_path / "net.npz")


def test_a_name_twice_and_a_password_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "net.npz", "w") as archive:
        archive.writestr("w.npy", header_of("(3,)"))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("w.npy", header_of("(3,)"))
    with pytest.raises(FedscopeError, match=r"net.npz holds w.npy twice; save it again"):
        read_npz(tmp_path / "net.npz")
    locked = bytearray(FILES["net.npz"])
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "net.npz").write_bytes(locked)
    with pytest.raises(FedscopeError, match=r"net.npz is encrypted; save it without a password"):
        read_npz(tmp_path / "net.npz")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_storage_that_declares_more_than_is_stored_is_refused_with_both_numbers(tmp_path: Path, zipped: bool) -> None:
    whole = torch_bytes({"w": torch.ones(4)}, zipped)
    if zipped:
        spoilt = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(whole)) as archive, zipfile.ZipFile(spoilt, "w") as other:
            for name in archive.namelist():
                content = archive.read(name)
                other.writestr(name, content.replace(b"K\x04t", b"J\xff\xff\xff\x7ft"))
        content = spoilt.getvalue()
    else:
        content = whole.replace(b"K\x04N", b"J\xff\xff\xff\x7fN")
    assert b"\x7f" in content
    (tmp_path / "net.pt").write_bytes(content)
    with pytest.raises(
        FedscopeError, match=r"net.pt declares a storage of 2,147,483,647 elements, but stores [\d,]+ bytes; copy"
    ):
        read_file(tmp_path / "net.pt")


def test_a_header_of_safetensors_that_declares_more_than_is_stored_is_refused(tmp_path: Path) -> None:
    whole = FILES["net.safetensors"]
    for length in (2**62, 2**40, len(whole)):
        (tmp_path / "net.safetensors").write_bytes(length.to_bytes(8, "little") + whole[8:])
        with pytest.raises(FedscopeError, match=r"net.safetensors is truncated or not a safetensors file"):
            read_file(tmp_path / "net.safetensors", LAYOUT)


def test_a_flipped_bit_of_a_weight_is_not_another_weight(tmp_path: Path) -> None:
    """torch itself reads it."""
    spoilt = bytearray(FILES["zip.pt"])
    spoilt[spoilt.index(STATE["0.weight"].numpy().tobytes()) + 2] ^= 1
    (tmp_path / "net.pt").write_bytes(spoilt)
    assert not torch.equal(torch.load(tmp_path / "net.pt", weights_only=True)["0.weight"], STATE["0.weight"])
    with pytest.raises(FedscopeError, match=r"net.pt is truncated or not a checkpoint of torch; copy or save it again"):
        read_file(tmp_path / "net.pt", LAYOUT)


def test_a_checkpoint_that_was_saved_without_checksums_is_read(tmp_path: Path) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(STATE, tmp_path / "net.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    assert read_file(tmp_path / "net.pt", LAYOUT).layout == LAYOUT


@pytest.mark.parametrize("ending", [".pt", ".safetensors", ".npz", ".ckpt"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, ending: str) -> None:
    os.mkfifo(tmp_path / f"pipe{ending}")
    (tmp_path / f"folder{ending}").mkdir()
    (tmp_path / f"device{ending}").symlink_to("/dev/zero")
    for name, kind in (("pipe", "a named pipe"), ("folder", "a folder"), ("device", "a device")):
        with pytest.raises(FedscopeError, match=rf"{name}{ending} is {kind}, not a model's file; give a regular file"):
            read_file(tmp_path / f"{name}{ending}", LAYOUT)
    (tmp_path / "net.pt").write_bytes(FILES["zip.pt"])
    (tmp_path / "link.pt").symlink_to("net.pt")
    assert len(read_file(tmp_path / "link.pt", LAYOUT)) == 1


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_what_cannot_be_written_is_said_with_the_reason_and_leaves_nothing(tmp_path: Path, ending: str) -> None:
    weights = Weights(LAYOUT, np.ones(LAYOUT.size, np.float32), {e.name: np.ones(e.shape) for e in LAYOUT.buffers})
    (tmp_path / f"taken{ending}").mkdir()
    with pytest.raises(
        FedscopeError,
        match=rf"taken{ending} is a folder, not a file that can be replaced; remove it, or write elsewhere",
    ):
        write_file(tmp_path / f"taken{ending}", weights)
    with pytest.raises(FedscopeError, match=rf"net{ending} cannot be written \(No such file or directory\)"):
        write_file(tmp_path / "nowhere" / f"net{ending}", weights)
    write_file(tmp_path / f"net{ending}", weights)
    whole = (tmp_path / f"net{ending}").read_bytes()
    odd = Layout((TensorEntry("w", (2,), "complex64", "parameter"),))
    if ending == ".safetensors":
        with pytest.raises(FedscopeError, match=r"odd.safetensors cannot be written \(.*\); give another ending"):
            write_file(tmp_path / f"odd{ending}", Weights(odd, np.ones(2, "S3"), {}))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(FedscopeError, match=rf"net{ending} cannot be written: the disk is full; make room"):
            write_file(tmp_path / f"net{ending}", weights)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / f"net{ending}").read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"net{ending}", f"taken{ending}"])


def test_the_mark_of_an_editor_is_no_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[run]\nrounds = 3\n", encoding="utf-8-sig")
    assert read_toml(path, "a configuration", "mend it") == {"run": {"rounds": 3}}
    path.write_text('{"a": 1}', encoding="utf-8-sig")
    assert read_json(path, "a configuration", "mend it") == {"a": 1}
    assert read_text(path, "a text", "mend it", mark=True)[0] == "\ufeff"
    for encoding in ("utf-16", "utf-16-be"):
        path.write_bytes((b"\xfe\xff" if encoding == "utf-16-be" else b"") + "[run]\n".encode(encoding))
        with pytest.raises(
            FedscopeError, match=r"a.toml is a text in UTF-16, and a configuration is one in UTF-8; sav"
        ):
            read_toml(path, "a configuration", "mend it")


def test_a_run_is_trained_from_a_configuration_with_a_mark(tmp_path: Path) -> None:
    from fedscope.training.config.config import read_toml as configuration

    (tmp_path / "c.toml").write_text('[client]\nmethod = "sgd"\n', encoding="utf-8-sig")
    assert configuration(tmp_path / "c.toml") == {"client": {"method": "sgd"}}
