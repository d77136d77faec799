"""Bytes that are standardised when they are read, and data sets that are decoded once."""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.cli.main import run
from fedscope.evaluation import uint8_images as pixels
from fedscope.evaluation.uint8_images import Uint8Images, in_batches
from fedscope.landscape import Plane
from fedscope.training.build import load_data
from fedscope.training.data import standardize as making
from fedscope.training.data.dataset import Dataset
from fedscope.training.data.formats import cache, idx
from fedscope.training.data.standardize import standardize

SHAPES = {"images": (9, 7), "colours": (6, 5, 3), "channels first": (3, 9, 9), "one channel": (9, 9, 1), "rows": (12,)}


def raw(shape: tuple[int, ...], train: int = 5000, test: int = 8) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    x = {
        f"x_{split}": draw.integers(0, 256, (n, *shape), dtype=np.uint8)
        for split, n in (("train", train), ("test", test))
    }
    return {**x, "y_train": np.arange(train) % 4, "y_test": np.arange(test) % 4}


def at_once(data: Dataset, x: np.ndarray) -> np.ndarray:
    """All samples standardised in float32, one operation after the other over the whole array."""
    means, deviations = (np.array(values, np.float32) for values in (data.means, data.deviations))
    last = x.transpose(0, 2, 3, 1) if x.ndim == 4 and x.shape[1] == 3 else x
    in_float = (last.astype(np.float32) / np.float32(255)).reshape(-1, len(means))
    made: np.ndarray = ((in_float - means) / deviations).reshape(last.shape)
    return made.transpose(0, 3, 1, 2) if x.ndim == 4 else made[:, None] if x.ndim == 3 else made


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_bytes_read_in_any_order_are_the_same_bits(shape: tuple[int, ...]) -> None:
    arrays = raw(shape)
    data = standardize("toy", "", arrays)
    for split, x in (("train", data.x_train), ("test", data.x_test)):
        assert isinstance(x, Uint8Images)
        expected = at_once(data, arrays[f"x_{split}"])
        assert x.shape == expected.shape
        assert x.dim() == expected.ndim
        np.testing.assert_array_equal(np.asarray(x), expected)
        rows = np.random.default_rng(0).integers(0, len(x), 11)
        np.testing.assert_array_equal(x[rows].numpy(), expected[rows])
        np.testing.assert_array_equal(x[torch.from_numpy(rows)].numpy(), expected[rows])
        np.testing.assert_array_equal(torch.cat(list(in_batches(x, 3000))).numpy(), expected)
        assert x[rows].dim() < 4 or x[rows].is_contiguous(memory_format=torch.channels_last)
        np.testing.assert_array_equal(x.to(dtype=torch.float64)[rows].numpy(), expected[rows].astype(np.float64))


def test_moments_of_bytes_are_those_of_floats() -> None:
    """5,000 samples are two blocks. Sums in another order differ in float64's last digits; float32 has 7 of them."""
    arrays = raw((6, 5, 3))
    in_float = {name: values / np.float32(255) if name[0] == "x" else values for name, values in arrays.items()}
    bytes_, floats = standardize("toy", "", arrays), standardize("toy", "", in_float)
    assert isinstance(floats.x_train, np.ndarray)
    assert bytes_.means == pytest.approx(floats.means, rel=1e-11)
    assert bytes_.deviations == pytest.approx(floats.deviations, rel=1e-11)
    np.testing.assert_array_equal(np.asarray(bytes_.x_train), floats.x_train)


def write_mnist(folder: Path, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    for split, n in (("train", 100), ("t10k", 20)):
        for kind, values in (("images-idx3", draw.integers(0, 256, (n, 28, 28))), ("labels-idx1", np.arange(n) % 10)):
            head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            (folder / f"{split}-{kind}-ubyte.gz").write_bytes(
                gzip.compress(head + values.astype(np.uint8).tobytes(), 1)
            )


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small MNIST in its true format, and an empty cache."""
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mnist").mkdir()
    write_mnist(tmp_path / "mnist")
    return tmp_path / "mnist"


def same(one: Dataset, other: Dataset) -> None:
    assert (one.name, one.sha256, one.means, one.deviations, one.classes) == (
        *(other.name, other.sha256, other.means, other.deviations, other.classes),
    )
    for a, b in ((one.x_train, other.x_train), (one.x_test, other.x_test), (one.y_train, other.y_train)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert one.groups.keys() == other.groups.keys()


@pytest.mark.parametrize("model", [pytest.param("mlp", marks=pytest.mark.slow), "cnn"])
def test_training_and_planes_from_bytes_are_those_from_floats(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """Bit for bit, also where bytes are standardised for each model anew."""
    as_bytes = making._as_bytes
    federation = ["--clients", "3", "--partition", "iid", "--rounds", "2", "--epochs", "1", "--participation", "1"]
    made = []
    for name, held, standardise in (
        ("floats", 0, lambda name, stored, known: making._as_floats(name, stored)),
        ("bytes", 1 << 28, as_bytes),
        ("each", 0, as_bytes),
    ):
        monkeypatch.setenv("FEDSCOPE_CACHE", "off" if name == "floats" else str(tmp_path / "cache"))
        monkeypatch.setattr(pixels, "HELD", held)
        monkeypatch.setattr(making, "_as_bytes", standardise)
        folder, plane = tmp_path / name, tmp_path / f"{name}-plane"
        words = ["--data", f"mnist:{mnist}", "--model", model, *federation, "--set", "data.client_test=0.2"]
        assert run(["train", "--method", "fma", *words, "--out", str(folder)]) == 0
        models = [f"{folder}@2/client-{k}" for k in range(3)]
        assert run(["plane", *models, "--grid", "3", "--split", "both", "--out", str(plane)]) == 0
        recorded = Run.open(folder)
        numbers = {key: values for key, values in recorded.metrics().items() if "seconds" not in key}
        surfaces = [Plane.load(tmp_path / f"{name}-plane.{split}").loss for split in ("train", "test")]
        made.append((recorded.round(2).clients().parameters, *numbers.values(), *surfaces))
    for other in made[1:]:
        for a, b in zip(made[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_set_is_decoded_once(mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", "off")
    expected = load_data(f"mnist:{mnist}")
    assert not (tmp_path / "cache").exists()
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    first = load_data(f"mnist:{mnist}")
    monkeypatch.setattr(idx, "read_idx", None)
    again = load_data(f"mnist:{mnist}")
    same(first, expected)
    same(again, expected)
    (kept,) = (tmp_path / "cache").iterdir()
    if (maps := Path("/proc/self/maps")).exists():  # in no memory of their own
        assert maps.read_text().count(f"{kept}/x_train.npy") == 2
    assert kept.name.startswith("mnist-")
    assert {path.name for path in kept.iterdir()} == {
        *("about.json", "x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy"),
    }


def test_groups_are_kept_and_images_decoded_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    for domain, label, i in itertools.product(("art_painting", "cartoon", "photo", "sketch"), "ab", range(10)):
        path = tmp_path / "PACS" / domain / label / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (6, 6, 3), dtype=np.uint8)).save(path)
    monkeypatch.setenv("FEDSCOPE_CACHE", "off")
    expected = load_data(f"pacs:{tmp_path}")
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    saved: list[str] = []
    real = np.save
    monkeypatch.setattr(np, "save", lambda path, values: (saved.append(Path(path).name), real(path, values)))
    load_data(f"pacs:{tmp_path}")
    assert not any(name.startswith("x_") for name in saved), "the images were decoded where they stay"
    data = load_data(f"pacs:{tmp_path}")
    same(data, expected)
    assert data.groups["domain"].names == expected.groups["domain"].names
    np.testing.assert_array_equal(data.groups["domain"].train, expected.groups["domain"].train)


def test_images_that_an_earlier_fedscope_made_white_are_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    for split, label, i in itertools.product(("train", "test"), "ab", range(2)):
        path = tmp_path / "own" / split / label / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 2), 40 * i, np.uint8)).save(path)
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    with monkeypatch.context() as patched:
        patched.setattr(cache, "VERSIONS", {})
        load_data(f"folder:{tmp_path}/own")
    with pytest.warns(FedscopeWarning, match="is of version 2, this fedscope's is 3; decoding folder:.* again"):
        load_data(f"folder:{tmp_path}/own")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_data(f"folder:{tmp_path}/own")


def spoil_bytes(kept: Path) -> None:
    path = kept / "x_train.npy"
    values = bytearray(path.read_bytes())
    values[-7] ^= 1
    path.write_bytes(values)


def truncate(kept: Path) -> None:
    (kept / "y_test.npy").write_bytes((kept / "y_test.npy").read_bytes()[:-3])


def other_version(kept: Path) -> None:
    about = json.loads((kept / "about.json").read_text())
    (kept / "about.json").write_text(json.dumps({**about, "version": 99}))


def edit(change: dict[str, Any]) -> Any:
    """An edit of what is said of the arrays; None removes a key."""

    def edited(kept: Path) -> None:
        about = {**json.loads((kept / "about.json").read_text()), **change}
        said = json.dumps({key: value for key, value in about.items() if value is not None})
        (kept / "about.json").write_text(said)

    return edited


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (edit({"means": [0.9]}), "about.json is damaged; decoding mnist:.* again"),
        (edit({"deviations": [7.0]}), "about.json is damaged; decoding mnist:.* again"),
        (edit({"classes": 12}), "about.json is damaged; decoding mnist:.* again"),
        (edit({"sha256": "0" * 64}), "about.json is damaged; decoding mnist:.* again"),
        (edit({"means": [0.1, 0.2]}), "about.json is damaged; decoding mnist:.* again"),
        (
            lambda kept: (kept / "about.json").write_text("[" * 200_000 + "]" * 200_000),
            "about.json is damaged: its JSON is nested too deep; decoding mnist:.* again",
        ),
        (spoil_bytes, "x_train.npy is damaged; decoding mnist:.* again"),
        (truncate, "y_test.npy is damaged; decoding"),
        (lambda kept: (kept / "x_test.npy").unlink(), "No such file or directory: .*; decoding"),
        (lambda kept: (kept / "about.json").write_text("{"), "Expecting property name"),
        (lambda kept: (kept / "about.json").write_text("[]"), "about.json is damaged; decoding mnist"),
        (other_version, "is of version 99, this fedscope's is 2; decoding"),
    ],
)
def test_a_damaged_cache_is_made_anew(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, message: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("FEDSCOPE_CACHE", "off")
        expected = load_data(f"mnist:{mnist}")
    load_data(f"mnist:{mnist}")
    (kept,) = (tmp_path / "cache").iterdir()
    spoil(kept)
    with pytest.warns(FedscopeWarning, match=message):
        same(load_data(f"mnist:{mnist}"), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(load_data(f"mnist:{mnist}"), expected)
    assert list((tmp_path / "cache").iterdir()) == [kept]


def test_a_cache_of_an_earlier_version_is_taken_without_a_word(mnist: Path, tmp_path: Path) -> None:
    """It has no checksum of what is said of it; one that cannot be written would be decoded by every command."""
    expected = load_data(f"mnist:{mnist}")
    (kept,) = (tmp_path / "cache").iterdir()
    about = json.loads((kept / "about.json").read_text())
    del about["about_xxh3_64"]
    (kept / "about.json").write_text(json.dumps(about))
    before = (kept / "about.json").stat().st_mtime_ns
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(load_data(f"mnist:{mnist}"), expected)
    assert (kept / "about.json").stat().st_mtime_ns == before


def test_files_that_changed_are_decoded_anew(mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_data(f"mnist:{mnist}")
    write_mnist(mnist, seed=1)
    with pytest.warns(FedscopeWarning, match="the files have changed since they were decoded; decoding mnist:"):
        changed = load_data(f"mnist:{mnist}")
    monkeypatch.setenv("FEDSCOPE_CACHE", "off")
    same(changed, load_data(f"mnist:{mnist}"))


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", "off")
    expected = load_data(f"mnist:{mnist}")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "file"))
    with pytest.warns(FedscopeWarning, match="could not be kept decoded in .*file .it cannot be written to., so each"):
        same(load_data(f"mnist:{mnist}"), expected)
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))

    def full(path: Path, values: np.ndarray) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(np, "save", full)
        with pytest.warns(
            FedscopeWarning, match=r"No space left on device.*make room, or set FEDSCOPE_CACHE to another"
        ):
            same(load_data(f"mnist:{mnist}"), expected)
    assert list((tmp_path / "cache").iterdir()) == [], "nothing half written"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), FedscopeError("half a file")])
def test_a_decoding_that_ends_leaves_nothing(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def end(path: Path, room: Any) -> np.ndarray:
        raise error

    monkeypatch.setattr(idx, "read_idx", end)
    with pytest.raises(type(error)):
        load_data(f"mnist:{mnist}")
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_decoding_left_is_swept_after_a_day(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_data(f"mnist:{mnist}")
    (kept,) = (tmp_path / "cache").iterdir()
    for name in ("old", "new"):
        kept.with_name(f"{kept.name}.{name}.tmp").mkdir()
    monkeypatch.setattr(cache.time, "time", lambda: (tmp_path / "cache").stat().st_mtime + cache.STALE / 2)
    spoil_bytes(kept)
    with pytest.warns(FedscopeWarning):
        load_data(f"mnist:{mnist}")
    assert len(list((tmp_path / "cache").glob("*.tmp"))) == 2
    monkeypatch.setattr(cache.time, "time", lambda: (tmp_path / "cache").stat().st_mtime + 2 * cache.STALE)
    spoil_bytes(kept)
    with pytest.warns(FedscopeWarning):
        load_data(f"mnist:{mnist}")
    assert list((tmp_path / "cache").iterdir()) == [kept]


def test_of_two_commands_that_decode_at_once_both_go_on(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, inner = cache._Work.write, []

    def meanwhile(self: Any, *args: Any) -> None:
        real(self, *args)
        if not inner:
            inner.append(1)
            load_data(f"mnist:{mnist}")

    monkeypatch.setattr(cache._Work, "write", meanwhile)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outer = load_data(f"mnist:{mnist}")
    same(outer, load_data(f"mnist:{mnist}"))
    (kept,) = (tmp_path / "cache").iterdir()
    assert (kept / "about.json").exists()
