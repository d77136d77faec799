"""Data sets: shapes, scaling, standardisation, refusals."""

from __future__ import annotations

import os
import re
import warnings
import zlib
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedscope.analysis.settings import EvaluationConfig
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.evaluation.standard_tasks import CLASSIFICATION, TASKS
from fedscope.evaluation.tasks import Task
from fedscope.training import Config, data_of, load_data, resume, train
from fedscope.training.data.arrays import blocks
from fedscope.training.data.custom import taken_data
from fedscope.training.data.split import pool_splits
from fedscope.training.data.standardize import standardize
from fedscope.training.inputs.recorded_data import dataset_asked

RNG = np.random.default_rng(0)
REGRESSION = TASKS["regression"]
Y = {"y_train": np.arange(20) % 4, "y_test": np.arange(8) % 4}


def images(shape: tuple[int, ...], dtype: str = "uint8") -> dict[str, np.ndarray]:
    def draw(n: int) -> np.ndarray:
        values = RNG.integers(0, 256, (n, *shape))
        return (values / 255).astype(dtype) if dtype.startswith("f") else values.astype(dtype)

    return {"x_train": draw(20), "x_test": draw(8), **Y}


@pytest.mark.parametrize(
    ("shape", "becomes"),
    [((9, 9), (1, 9, 9)), ((9, 9, 3), (3, 9, 9)), ((3, 9, 9), (3, 9, 9)), ((9, 9, 1), (1, 9, 9)), ((12,), (12,))],
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_every_documented_shape_is_read_and_standardised(
    shape: tuple[int, ...], becomes: tuple[int, ...], dtype: str
) -> None:
    raw = images(shape, dtype)
    data = standardize("toy", "", raw)
    assert data.shape == becomes
    assert (data.classes, len(data.y_train), len(data.y_test)) == (4, 20, 8)
    # By hand, in float64: channels last, scaled, standardised by the training split.
    x = raw["x_train"].astype(np.float64) / (255 if dtype == "uint8" else 1)
    t = raw["x_test"].astype(np.float64) / (255 if dtype == "uint8" else 1)
    if shape == (9, 9, 3):
        x, t = x.transpose(0, 3, 1, 2), t.transpose(0, 3, 1, 2)
    x, t = x.reshape(20, *becomes), t.reshape(8, *becomes)
    axes = (0, 2, 3) if len(becomes) == 3 else ((0,) if dtype == "float32" else (0, 1))
    mean, deviation = x.mean(axes, keepdims=True), x.std(axes, keepdims=True)
    np.testing.assert_allclose(data.x_train, (x - mean) / deviation, atol=2e-6)
    np.testing.assert_allclose(data.x_test, (t - mean) / deviation, atol=2e-6)
    np.testing.assert_allclose(data.means, mean.ravel(), rtol=1e-5)


def test_blocks_of_large_samples_are_small_and_together_all_samples() -> None:
    assert [len(part) for part in blocks(np.empty((5000, 32, 32, 3), bool))] == [4096, 904]
    large = np.broadcast_to(np.arange(300)[:, None, None, None], (300, 224, 224, 3))
    parts = list(blocks(large))
    assert [len(part) for part in parts] == [111, 111, 78]
    assert np.concatenate([part[:, 0, 0, 0] for part in parts]).tolist() == list(range(300))
    assert len(list(blocks(np.broadcast_to(np.int8(0), (3, 1 << 25))))) == 3


def test_a_constant_channel_stays_finite() -> None:
    raw = images((4, 4, 3))
    raw["x_train"][..., 1] = 7
    assert np.isfinite(standardize("toy", "", raw).x_train).all()


@given(st.integers(0, 19), st.integers(0, 8))
def test_the_hash_notices_one_changed_value(row: int, column: int) -> None:
    raw = images((9, 9))
    before = standardize("toy", "", raw).sha256
    raw["x_train"] = raw["x_train"].copy()
    raw["x_train"][row, column, 0] ^= 1
    assert standardize("toy", "", raw).sha256 != before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": None}, r"toy lacks y_test; it has x_test, x_train, y_train"),
        ({"y_train": np.arange(19) % 4}, r"x_train has 20 samples, but y_train has 19 labels"),
        ({"y_train": np.arange(20) - 1}, r"y_train contains the label -1; labels count from 0"),
        ({"y_train": np.arange(20) / 3}, r"labels are whole numbers"),
        ({"x_train": np.zeros((20, 9, 9, 9), "uint8")}, r"samples of shape \[9, 9, 9\] are not understood"),
        ({"x_train": np.full((20, 9, 9), np.nan, "float32")}, r"x_train contains 1620 values that are not finite"),
        (
            {"x_test": np.zeros((8, 7, 7), "uint8")},
            r"training samples have shape \[1, 9, 9\], test samples \[1, 7, 7\]",
        ),
        ({"x_test": np.zeros((0, 9, 9), "uint8"), "y_test": np.zeros(0, int)}, r"the test split is empty"),
        ({"x_train": np.full((20, 9, 9), "a")}, r"samples are integers or floats$"),
        (
            {"x_train": np.ones((20, 9, 9), bool)},
            r"x_train has type bool; samples are integers or floats; give x.astype\('float32'\)$",
        ),
        ({"y_train": np.full(20, np.nan)}, r"y_train contains nan; labels are whole numbers from 0"),
        ({"y_train": np.full(20, np.inf)}, r"y_train contains inf; labels are whole numbers from 0"),
        ({"y_train": np.full(20, 2.0**70)}, r"contains the label 1.18059162071741e\+21, and a model would need as"),
        ({"y_train": np.arange(20) + 65_530}, r"y_train contains the label 65549, and a model would need as many outp"),
        ({"y_train": np.array(3)}, r"y_train has shape \[\] and type int64; labels are whole numbers"),
        ({"x_train": np.array(3.0)}, r"x_train has shape \[\]; give a row, or an image, a sample"),
        ({"x_test": np.zeros((8, 0, 9), "uint8")}, r"x_test has shape \[8, 0, 9\]; give a row, or an image, a sample"),
        (
            {"x_train": np.full((20, 9, 9), 1e300)},
            r"x_train contains 1620 values beyond 3\.4e\+38, the great",
        ),
    ],
)
def test_unreadable_arrays_are_refused(change: dict[str, np.ndarray | None], message: str) -> None:
    raw = {key: value for key, value in {**images((9, 9)), **change}.items() if value is not None}
    with pytest.raises(FedscopeError, match=message):
        standardize("toy", "", raw)


@pytest.mark.parametrize("moved", [False, True], ids=["as it is", "laid out otherwise"])
def test_digits_are_scikit_learns_in_the_order_of_its_split(moved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from fedscope.training.data.published import digits

    if moved:
        monkeypatch.setattr(digits, "find_spec", lambda name: None)
    split = digits.split_digits()
    whole = load_digits()
    x = (whole.images / 16).astype(np.float32)
    expected = train_test_split(x, whole.target, test_size=360, stratify=whole.target, random_state=0)
    for name, values in zip(("x_train", "x_test", "y_train", "y_test"), expected, strict=True):
        np.testing.assert_array_equal(split[name], values, strict=True)


def test_digits_are_split_stratified_and_always_alike() -> None:
    data = load_data("digits")
    assert data.x_train.shape == (1437, 1, 8, 8)
    shares = np.bincount(data.y_test) / 360 - np.bincount(data.y_train) / 1437
    assert abs(shares).max() < 0.002
    assert load_data("digits").sha256 == data.sha256


def test_npz_is_read_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = images((9, 9))
    np.savez(tmp_path / "toy.npz", **raw)
    monkeypatch.chdir(tmp_path)
    data = load_data("npz:toy.npz")
    assert data.name == f"npz:{tmp_path / 'toy.npz'}"
    assert data.sha256 == standardize("other", "", raw).sha256


def test_what_is_no_npz_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"there is no such file"):
        load_data(f"npz:{tmp_path}/nothing.npz")
    for shelf in ("npz", "folder"):
        with pytest.raises(FedscopeError, match=r"~nobody-at-all/x: there is no such user; write the whole path"):
            load_data(f"{shelf}:~nobody-at-all/x")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(FedscopeError, match=r"text.npz is truncated or not an \.npz file; copy or save it again"):
        load_data(f"npz:{tmp_path}/text.npz")
    np.savez(tmp_path / "code.npz", x_train=np.array([{}], dtype=object))
    with pytest.raises(
        FedscopeError, match=r"code.npz holds Python objects \(x_train\), which could run code; save its"
    ):
        load_data(f"npz:{tmp_path}/code.npz")
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(FedscopeError, match=r"pipe.npz is a named pipe, not an .npz file; give a regular file"):
        load_data(f"npz:{tmp_path}/pipe.npz")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, str]:
    """A file of data to spoil, its bytes, and the sum of its arrays."""
    path = tmp_path_factory.mktemp("data") / "toy.npz"
    np.savez(path, **images((3, 3)))
    return path, path.read_bytes(), load_data(f"npz:{path}").sha256


@settings(max_examples=40)
@given(at=st.integers(0, 10**6), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_npz_is_refused_or_the_same_data(toy: tuple[Path, bytes, str], at: int, bit: int, cut: bool) -> None:
    path, whole, sha256 = toy
    at %= len(whole)
    path.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
    refusal = ""
    try:
        assert load_data(f"npz:{path}").sha256 == sha256
    except FedscopeError as error:
        refusal = str(error)
    assert not cut or "toy.npz is truncated or not an .npz file" in refusal


def test_arrays_beside_the_four_are_left_alone(tmp_path: Path) -> None:
    raw = images((9, 9))
    names = np.array(["cat", "dog", "eel", "fox"])
    np.savez(tmp_path / "toy.npz", **raw, about=np.array([{}], dtype=object), classes=names)
    assert load_data(f"npz:{tmp_path}/toy.npz").classes == 4
    np.savez(tmp_path / "toy.npz", **raw, classes=7)
    assert load_data(f"npz:{tmp_path}/toy.npz").classes == 7
    np.savez(tmp_path / "toy.npz", **raw, classes=3)
    with pytest.raises(FedscopeError, match=r"classes is 3, but the labels go up to 3; give 4 or more, up to 65,536"):
        load_data(f"npz:{tmp_path}/toy.npz")
    np.savez(tmp_path / "toy.npz", x_train=raw["x_train"], other=names)
    with pytest.raises(FedscopeError, match=r"lacks y_train, x_test, y_test; it has other, x_train, and needs x_train"):
        load_data(f"npz:{tmp_path}/toy.npz")


def test_test_samples_alone_are_taken_as_they_are(tmp_path: Path) -> None:
    raw = images((9, 9, 3))
    np.savez(tmp_path / "toy.npz", x_test=raw["x_test"], y_test=raw["y_test"])
    with pytest.warns(FedscopeWarning, match=r"toy.npz has no training samples to standardise by: x_test is taken as"):
        data = load_data(f"npz:{tmp_path}/toy.npz")
    assert (data.shape, data.classes, data.means) == ((3, 9, 9), 4, ())
    expected = raw["x_test"].transpose(0, 3, 1, 2) / 255
    np.testing.assert_allclose(data.samples("test").x.numpy(), expected, rtol=1e-6)  # one rounding to single precision
    with pytest.raises(
        FedscopeError, match=r"toy.npz has no training samples \(x_train and y_train are missing\); add"
    ):
        data.samples("train")
    with pytest.raises(FedscopeError, match=r"lacks x_train and y_train, and training n"):
        train(Config.read({"data": {"name": f"npz:{tmp_path}/toy.npz"}}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    np.savez(tmp_path / "toy.npz", x_test=raw["x_test"].astype(int), y_test=raw["y_test"])
    with (
        pytest.warns(FedscopeWarning),
        pytest.raises(FedscopeError, match=r"x_test has type int64 and is taken as it is; give floats as the network"),
    ):
        load_data(f"npz:{tmp_path}/toy.npz")


def test_unknown_data_are_refused_with_what_there_is() -> None:
    with pytest.raises(FedscopeError, match=r"'digit' is not a data set that fedscope knows; did you mean \Wdigits"):
        load_data("digit")


def folder(root: Path, sizes: tuple[int, int] = (9, 9)) -> None:
    for split, count in (("train", 3), ("test", 2)):
        for label, name in enumerate(("cat", "dog")):
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = np.full((*sizes, 3), 40 * label + 10 * i, np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")


def test_folders_of_images_are_read(tmp_path: Path) -> None:
    folder(tmp_path)
    data = load_data(f"folder:{tmp_path}")
    assert data.x_train.shape == (6, 3, 9, 9)
    assert data.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    pixels = np.asarray(data.x_train)[:, 0, 0, 0] * data.deviations[0] + data.means[0]
    np.testing.assert_allclose(pixels * 255, [0, 10, 20, 40, 50, 60], atol=1e-3)


def test_images_come_in_order_from_folders_below_and_through_links(tmp_path: Path) -> None:
    folder(tmp_path)
    cats = tmp_path / "train" / "cat"
    for name, shade in (("z/1.PNG", 200), ("a/2.jpeg", 120), ("notes.txt", 0)):
        (cats / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((9, 9, 3), shade, np.uint8)).save(cats / name, "png")
    (tmp_path / "train" / "owl").symlink_to(tmp_path / "test" / "dog")
    (tmp_path / "test" / "owl").symlink_to(tmp_path / "test" / "dog")
    data = load_data(f"folder:{tmp_path}")
    assert data.y_train.tolist() == [0] * 5 + [1] * 3 + [2] * 2
    pixels = np.asarray(data.x_train)[:, 0, 0, 0] * data.deviations[0] + data.means[0]
    np.testing.assert_allclose(pixels * 255, [0, 10, 20, 120, 200, 40, 50, 60, 40, 50], atol=1e-3)
    (tmp_path / "train" / "emu").mkdir()
    with pytest.raises(FedscopeError, match=r"Found no valid file for the classes emu. Supported extensions are: .jpg"):
        load_data(f"folder:{tmp_path}")


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"there is no folder .*train; it needs train/<class>/"):
        load_data(f"folder:{tmp_path}")
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
    with pytest.raises(FedscopeError, match=r"Couldn't find any class folder in .*train\.$"):
        load_data(f"folder:{tmp_path}")
    folder(tmp_path)
    Image.fromarray(np.zeros((5, 9, 3), np.uint8)).save(tmp_path / "train" / "dog" / "z.png")
    with pytest.raises(FedscopeError, match=r"z\.png has 9 x 5 pixels, the first image 9 x 9"):
        load_data(f"folder:{tmp_path}")
    (tmp_path / "train" / "dog" / "z.png").unlink()
    (tmp_path / "train" / "dog" / "again").symlink_to("..")
    with pytest.raises(FedscopeError, match=r"train/dog/again is a link to a folder that contains it; remove it"):
        load_data(f"folder:{tmp_path}")
    (tmp_path / "train" / "dog" / "again").unlink()
    (tmp_path / "train" / "dog" / "z.png").symlink_to("nowhere.png")
    with pytest.raises(FedscopeError, match=r"z.png cannot be read: No such file or directory; check the path and its"):
        load_data(f"folder:{tmp_path}")
    (tmp_path / "train" / "dog" / "z.png").unlink()
    (tmp_path / "test" / "eel").mkdir()
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "test" / "eel" / "z.png")
    with pytest.raises(FedscopeError, match=r"differ in the classes eel"):
        load_data(f"folder:{tmp_path}")


def test_hidden_folders_and_files_are_no_classes_and_no_images(tmp_path: Path) -> None:
    folder(tmp_path)
    before = load_data(f"folder:{tmp_path}")
    noise = RNG.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    for split in ("train", "test"):
        for place in (".ipynb_checkpoints", "cat/.ipynb_checkpoints"):
            (tmp_path / split / place).mkdir()
            Image.fromarray(noise).save(tmp_path / split / place / "0-checkpoint.png")
        (tmp_path / split / "cat" / "._0.png").write_bytes(b"Mac OS X")
    (tmp_path / "train" / ".empty").mkdir()
    data = load_data(f"folder:{tmp_path}")
    assert (data.sha256, data.classes) == (before.sha256, 2)
    assert data.y_train.tolist() == before.y_train.tolist() == [0, 0, 0, 1, 1, 1]


def test_classes_that_are_numbers_in_another_order_are_told(tmp_path: Path) -> None:
    def said(names: Sequence[str]) -> list[str]:
        for split, name in product(("train", "test"), names):
            (place := tmp_path / str(names) / split / name).mkdir(parents=True)
            Image.fromarray(RNG.integers(0, 256, (4, 4, 3), dtype=np.uint8)).save(place / "0.png")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            load_data(f"folder:{tmp_path / str(names)}")
        return [str(one.message) for one in caught]

    (told,) = said(["2", "10", "1"])
    assert told == (
        f"folder:{tmp_path}/['2', '10', '1']: classes are numbered in alphabetical order, so the folder 10 is label 1; "
        "where labels shall follow the numbers, give all names 2 digits, as 01"
    )
    assert said(["02", "10", "01"]) == said(["0", "1", "2"]) == said(["3", "4"]) == said(["a1", "a10", "a2"]) == []


@pytest.mark.filterwarnings("error")
def test_damaged_images_are_refused_by_name_and_without_warnings(tmp_path: Path) -> None:
    folder(tmp_path)
    image = tmp_path / "train" / "cat" / "0.png"
    whole = image.read_bytes()
    for content in (whole[:-30], b"no image", whole.replace(b"IDAT", b"IDBT"), b""):
        image.write_bytes(content)
        with pytest.raises(FedscopeError, match=r"0.png is truncated or not an image; copy or save it again"):
            load_data(f"folder:{tmp_path}")
    image.unlink()
    os.mkfifo(image)
    with pytest.raises(FedscopeError, match=r"0.png is a named pipe, not an image; give a regular file"):
        load_data(f"folder:{tmp_path}")


@pytest.mark.parametrize(
    ("side", "sentence"),
    [
        (10_000, r"declares 1,800,000,000 bytes, but stores [\d,]+; copy it"),
        (20_000, r"0.png declares too many pixels"),
    ],
)
def test_an_image_that_is_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, side: int, sentence: str) -> None:
    folder(tmp_path)
    image = tmp_path / "train" / "cat" / "0.png"
    head = bytearray(image.read_bytes())
    head[16:24] = side.to_bytes(4, "big") * 2
    head[29:33] = zlib.crc32(head[12:29]).to_bytes(4, "big")
    image.write_bytes(head)
    with pytest.raises(FedscopeError, match=sentence):
        load_data(f"folder:{tmp_path}")


def one_more(root: Path, image: Image.Image, name: str = "z.png") -> Path:
    path = root / "train" / "cat" / name
    image.save(path)
    return path


@pytest.mark.parametrize(
    ("pixels", "name", "said"),
    [
        (
            np.uint16([[300, 64300], [4300, 8300]]),
            "z.png",
            r"has numbers from 300 to 64300, and what is read of images",
        ),
        (np.uint16([[0, 256], [0, 0]]), "z.png", r"has numbers from 0 to 256"),
        (np.uint16([[0, 300], [0, 0]]), "z.pgm", r"has numbers from 0 to 300"),
        (np.uint16([[0, 300], [0, 0]]), "z.tif", r"has numbers from 0 to 300"),
        (np.array([[0, 300], [0, 0]], ">u2"), "z.tif", r"has numbers from 0 to 300"),
        (np.int32([[-1, 3], [0, 0]]), "z.tif", r"has numbers from -1 to 3"),
        (np.float32([[0, 0.5], [1, 0]]), "z.tif", r"has numbers from 0 to 1"),
        (np.float32([[0, np.nan], [1, 0]]), "z.tif", r"has numbers from nan to nan"),
    ],
)
def test_numbers_that_bytes_do_not_hold_are_refused(tmp_path: Path, pixels: np.ndarray, name: str, said: str) -> None:
    """Pillow made all above 255 white: an X-ray of 16 bits was nothing else."""
    folder(tmp_path, (2, 2))
    path = one_more(tmp_path, Image.fromarray(pixels), name)
    with pytest.raises(
        FedscopeError, match=rf"cat/{name} {said}.*; scale the numbers .*\(--data npz:FILE\)$"
    ) as refusal:
        load_data(f"folder:{tmp_path}")
    assert "\n" not in str(refusal.value)
    if pixels.min() >= 0:  # both remedies
        x = np.asarray(Image.open(path))
        np.savez(tmp_path / "x.npz", x_train=[x, x // 2], y_train=[0, 1], x_test=[x, x // 2], y_test=[0, 1])
        assert len(np.unique(np.asarray(load_data(f"npz:{tmp_path}/x.npz").x_train))) > 2
    path.unlink()
    one_more(tmp_path, Image.fromarray((255 * np.float64([[0, 1], [0.25, 0.5]])).astype(np.uint8)))
    assert load_data(f"folder:{tmp_path}").x_train.shape == (7, 3, 2, 2)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", ">u2", "int32", "float32"])
def test_bytes_are_read_whatever_they_are_stored_as(tmp_path: Path, dtype: str) -> None:
    folder(tmp_path, (2, 2))
    one_more(tmp_path, Image.fromarray(np.array([[0, 255], [7, 128]], dtype)), "z.tif")
    monochrome = load_data(f"folder:{tmp_path}").x_train
    assert monochrome.stored[3].tolist() == [[[v] * 3 for v in row] for row in ([0, 255], [7, 128])]  # type: ignore[union-attr]


def test_colours_are_those_that_torchvision_reads(tmp_path: Path) -> None:
    """Palettes by their colours, without transparency."""
    from torchvision.datasets import ImageFolder

    folder(tmp_path, (4, 4))
    colours = RNG.integers(0, 256, (4, 4, 4), dtype=np.uint8)
    whole = Image.fromarray(colours, "RGBA")
    for mode, ending in (
        *((mode, "png") for mode in ("RGBA", "LA", "L", "1", "P")),
        *((mode, "tif") for mode in ("CMYK", "YCbCr", "LAB", "RGBX")),
        *((mode, "jpg") for mode in ("CMYK", "L")),
    ):
        one_more(tmp_path, whole.convert("RGB").convert(mode) if mode != "RGBA" else whole, f"z{mode}.{ending}")
    clear = whole.convert("P")
    clear.info["transparency"] = 0
    one_more(tmp_path, clear, "clear.png")
    read = load_data(f"folder:{tmp_path}").x_train.stored.numpy()  # type: ignore[union-attr]
    expected = [np.asarray(image) for image, _ in ImageFolder(str(tmp_path / "train"))]
    assert len(expected) == 18
    np.testing.assert_array_equal(read, expected)


def test_numbers_of_two_bytes_keep_their_shades_in_an_npz(tmp_path: Path) -> None:
    scans = RNG.integers(300, 65_000, (40, 4, 4)).astype(np.uint16)
    y = np.arange(40) % 2
    np.savez(tmp_path / "x.npz", x_train=scans, y_train=y, x_test=scans, y_test=y)
    data = load_data(f"npz:{tmp_path}/x.npz")
    scaled = scans / 65_535
    np.testing.assert_allclose(np.asarray(data.x_train)[:, 0], (scaled - scaled.mean()) / scaled.std(), atol=2e-6)


def constant(count: int, shape: tuple[int, ...] = (4, 4), dtype: str = "uint8") -> dict[str, np.ndarray]:
    y = np.arange(count) % 2
    x = np.full((count, *shape), 7, dtype)
    return {"x_train": x, "y_train": y, "x_test": x, "y_test": y}


def said_of(arrays: dict[str, np.ndarray], task: Task = CLASSIFICATION) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        standardize("toy", "", arrays, task=task)
        taken_data(arrays, task)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(("shape", "dtype"), [((4, 4), "uint8"), ((4, 4, 3), "uint16"), ((5,), "float32")])
def test_samples_that_are_all_the_same_are_said(shape: tuple[int, ...], dtype: str) -> None:
    found = said_of(constant(40, shape, dtype))
    said = "x_train: all 40 samples are the same, so no classes can be told apart; look at how they are made"
    assert found == [f"toy: {said}", f"arrays: {said}"]


def one_other(x: np.ndarray) -> np.ndarray:
    """The same samples but for one value of the last."""
    x = x.copy()
    x[-1].flat[0] = 8
    return x


@pytest.mark.parametrize(("shape", "dtype"), [((4, 4), "uint8"), ((4, 4, 3), "uint16"), ((5,), "float32")])
def test_test_samples_that_are_all_the_same_are_said(shape: tuple[int, ...], dtype: str) -> None:
    arrays = constant(40, shape, dtype)
    found = said_of({**arrays, "x_train": one_other(arrays["x_train"])})
    said = "x_test: all 40 samples are the same, so no classes can be told apart; look at how they are made"
    assert found == [f"toy: {said}", f"arrays: {said}"]


def test_test_samples_of_a_scale_that_float32_loses_are_said() -> None:
    x = RNG.normal(size=(80, 5)) + 3
    y = np.arange(40) % 2
    arrays = {"x_train": x[:40], "y_train": y, "x_test": x[40:] * 1e-12, "y_test": y}
    with pytest.warns(FedscopeWarning) as caught:
        standardize("toy", "", arrays)
    assert [str(one.message) for one in caught] == [
        "toy: x_test: float32 has one number alone for all 40 samples, though they differ: they vary too little beside "
        "the other split or beside their mean; give both splits in one scale"
    ]


@pytest.mark.parametrize(
    ("train_type", "test_type", "remedy"),
    [
        ("uint8", "int64", "x_test as uint8 too, on the other's scale (x_test.astype('uint8'))"),
        ("int64", "uint8", "x_train as uint8 too, on the other's scale (x_train.astype('uint8'))"),
        ("float32", "uint64", "x_test as float32 too, on the other's scale (x_test.astype('float32'))"),
        ("int32", "int64", "x_test as int32 too, on the other's scale (x_test.astype('int32'))"),
        ("int8", "int64", "both as floats of one scale (x.astype('float32'))"),
    ],
)
@pytest.mark.parametrize("shape", [(4, 4), (12,)])
def test_whole_numbers_of_two_types_are_refused(
    shape: tuple[int, ...], train_type: str, test_type: str, remedy: str
) -> None:
    raw = images(shape, "int64")
    raw["x_test"][0] = 200  # no int8
    changed = {**raw, "x_train": raw["x_train"].astype(train_type), "x_test": raw["x_test"].astype(test_type)}
    with pytest.raises(FedscopeError) as caught:
        standardize("toy", "", changed)
    assert str(caught.value) == (
        f"toy: x_train has type {train_type}, but x_test {test_type}, and whole numbers are divided by the greatest of "
        f"their type, so the two would be on other scales; give {remedy}"
    )


def test_pixels_beside_the_same_as_floats_of_another_range_are_said(tmp_path: Path) -> None:
    x = RNG.integers(0, 17, (60, 8, 8))
    y = np.arange(30) % 3
    arrays = {"x_train": x[:30].astype(np.uint8), "y_train": y, "x_test": x[30:] / 16, "y_test": y}
    found = said_of(arrays)
    said = "times as much as x_train, so it seems to be of another scale; give both splits in one"
    assert [re.sub(r"1[56]\.?\d*", "16", one) for one in found] == [
        f"{name}: x_test varies 16 {said}" for name in ("toy", "arrays")
    ]
    assert said_of({**arrays, "x_test": x[30:] / 255}) == []
    assert said_of({**arrays, "x_test": x[30:].astype(np.uint8)}) == []


def test_samples_that_may_be_the_same_are_silent() -> None:
    few, one, numbers = constant(9), constant(40), constant(40, (1,), "float32")
    one["x_train"], one["x_test"] = one_other(one["x_train"]), one_other(one["x_test"])
    assert said_of(few) == said_of(one) == []
    assert said_of({**numbers, "y_train": RNG.normal(size=40)[:, None], "y_test": np.zeros((40, 1))}, REGRESSION) == []
    channel = images((4, 4, 3))
    channel["x_train"][..., 1] = 7
    assert said_of(channel) == []


OFFSETS = [("float64", 1e8), ("float64", -1e8), ("int64", 1_700_000_000), ("float32", 1e5)]


@pytest.mark.parametrize(("dtype", "offset"), OFFSETS)
@pytest.mark.parametrize("shape", [(5,), (4, 4), (4, 4, 3)])
def test_what_varies_little_beside_its_mean_is_standardised_in_float64(
    shape: tuple[int, ...], dtype: str, offset: float
) -> None:
    draw = np.random.default_rng(3)
    x = (draw.normal(size=(60, *shape)) * (20 if dtype == "int64" else 1) + offset).astype(dtype)
    arrays = {"x_train": x[:40], "y_train": np.arange(40) % 2, "x_test": x[40:], "y_test": np.arange(20) % 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = standardize("toy", "", arrays)
    if dtype == "int64" or len(shape) == 2:
        axes: tuple[int, ...] = tuple(range(len(shape) + 1))
    else:
        axes = (0,) if len(shape) == 1 else (0, 1, 2)
    exact = x.astype(np.longdouble)
    if dtype == "int64" and len(shape) == 3:
        axes = (0, 1, 2)
    expected = (exact - exact[:40].mean(axes, keepdims=True)) / exact[:40].std(axes, keepdims=True)
    expected = expected[:, None] if len(shape) == 2 else np.moveaxis(expected, -1, 1) if len(shape) == 3 else expected
    np.testing.assert_allclose(data.x_train, expected[:40], atol=2e-6)
    np.testing.assert_allclose(data.x_test, expected[40:], atol=2e-6)
    greatest = np.iinfo(dtype).max if dtype == "int64" else 1
    np.testing.assert_allclose(data.means, exact[:40].mean(axes).ravel() / greatest, rtol=1e-12)


def test_ordinary_features_beside_one_of_a_large_mean_keep_their_bits() -> None:
    x = np.random.default_rng(3).normal(size=(60, 4)) + np.float64([0, 100, 1e9, 0])
    x[:, 3] = 0.1 + 0.2  # of no float32, and constant but for rounding
    x[::2, 3] = 0.3
    arrays = {"x_train": x[:40], "y_train": np.arange(40) % 2, "x_test": x[40:], "y_test": np.arange(20) % 2}
    data = standardize("toy", "", arrays)
    others = {**arrays, "x_train": x[:40, [0, 1, 3]], "x_test": x[40:, [0, 1, 3]]}
    alone = standardize("toy", "", others)
    np.testing.assert_array_equal(np.asarray(data.x_train)[:, [0, 1, 3]], alone.x_train)
    np.testing.assert_array_equal(np.asarray(data.x_test)[:, [0, 1, 3]], alone.x_test)
    assert not np.asarray(alone.x_train)[:, 2].any()


@pytest.mark.parametrize("offset", [1e8, 1e7])
def test_digits_that_float32_loses_are_said_of_samples_that_are_taken_as_they_are(offset: float) -> None:
    x = np.random.default_rng(3).normal(size=(60, 3)) + np.float64([0, offset, 0])
    y = np.arange(30) % 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        taken_data(((x[:30], y), (x[30:], y)))
    deviation = f"{x[:30, 1].std():.3g}"
    assert [str(one.message) for one in caught] == [
        f"arrays: x_train varies by {deviation} around {offset:.3g} in 1 of 3 values of a sample, and float32 loses "
        "such digits; give both splits less the training samples' mean (x - x_train.mean(0)), in float64"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        less = x - x[:30].mean(0)
        taken_data(((less[:30], y), (less[30:], y)))


def test_targets_whose_digits_float32_loses_are_said() -> None:
    x = np.random.default_rng(3).normal(size=(60, 1))
    with pytest.warns(FedscopeWarning) as caught:
        taken_data((x, x + 1e9), REGRESSION)
    assert [str(one.message) for one in caught] == [
        f"arrays: y_test varies by {x.std():.3g} around 1e+09 in 1 of 1 values of a sample, and float32 loses such "
        "digits; give targets less their mean in both splits (y - y_train.mean(0)), in float64"
    ]


@pytest.mark.parametrize("first", ["x_train", "x_test"])
@pytest.mark.parametrize("scale", [True, False])
def test_grey_images_of_bytes_with_and_without_a_channel_are_pooled(first: str, scale: bool) -> None:
    arrays = images((9, 9))
    one = standardize("toy", "", {**arrays, first: arrays[first][..., None]}, scale=scale)
    other = standardize("toy", "", arrays, scale=scale)
    assert one.shape == (1, 9, 9)
    for data in (one, other):
        assert pool_splits(data).x_train.shape == (28, 1, 9, 9)
    np.testing.assert_array_equal(np.asarray(pool_splits(one).x_train[:]), np.asarray(pool_splits(other).x_train[:]))


def test_a_file_of_samples_without_a_split_is_refused_alone_when_it_is_to_be_trained_on(tmp_path: Path) -> None:
    x, y = RNG.normal(size=(40, 3)), np.arange(40) % 2
    np.savez(tmp_path / "xy.npz", x=x, y=y)
    small = {"data.clients": 2, "run.participation": 1.0, "run.rounds": 1, "model.hidden": [4], "client.epochs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FedscopeError) as caught:
            train({**small, "data.name": f"npz:{tmp_path}/xy.npz"}, tmp_path / "run")
    assert str(caught.value) == (
        f"npz:{tmp_path}/xy.npz lacks x_train and y_train, and training needs them; add them to the file, or hand over "
        "its arrays in Python, data=(x, y), of which a fifth is set aside for tests"
    )
    made = train({**small, "data.name": (x, y)}, tmp_path / "run")
    assert sum(map(len, made.partition.clients)) == 32  # type: ignore[union-attr]


def test_what_an_old_run_was_trained_on_is_resumed_and_measured_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = RNG.integers(0, 200, (40, 5))
    arrays = {"x_train": x[:30].astype(np.uint8), "y_train": np.arange(30) % 2, "y_test": np.arange(10) % 2}
    name = f"npz:{tmp_path}/two.npz"
    np.savez(tmp_path / "two.npz", **arrays, x_test=x[30:])
    small = {"data.name": name, "data.clients": 2, "run.participation": 1.0, "run.rounds": 2, "model.hidden": [4]}
    types = (
        f"{name}: x_train has type uint8, but x_test int64, and whole numbers are divided by the greatest of their "
        "type, so the two"
    )
    remedy = "x_test as uint8 too, on the other's scale (x_test.astype('uint8'))"
    with monkeypatch.context() as before:
        before.setattr("fedscope.training.data.standardize.refuse_other_types", lambda *_: True)
        train(small, tmp_path / "run", until=1)
    with pytest.raises(FedscopeError) as caught:
        train(small, tmp_path / "other")
    assert str(caught.value) == f"{types} would be on other scales; give {remedy}"
    said = (
        f"{types} are on other scales: what the run has learnt is right, but what is measured of its test samples says "
        f"nothing; train a new run, and give it {remedy}"
    )
    run = Run.open(tmp_path / "run")
    for again in (
        lambda: data_of(run),
        lambda: data_of(run, given=name),
        lambda: dataset_asked([run], EvaluationConfig("test", data=name), CLASSIFICATION),
        lambda: resume(tmp_path / "run"),
    ):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            again()
        assert [str(one.message) for one in found] == [said]
    assert Run.open(tmp_path / "run").rounds == (1, 2)


def test_a_recorded_run_has_its_samples_in_the_way_that_it_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(3).normal(size=(40, 4)) + np.float64([1e8, 0, 5000, 0])
    x[:, 3] = 0.1
    arrays = {"x_train": x[:30], "y_train": np.arange(30) % 2, "x_test": x[30:], "y_test": np.arange(10) % 2}
    np.savez(tmp_path / "far.npz", **arrays)
    name = f"npz:{tmp_path}/far.npz"
    small = {"data.name": name, "data.clients": 2, "run.participation": 1.0, "run.rounds": 1, "model.hidden": [4]}
    now = load_data(name)
    new = train(small, tmp_path / "new")
    with monkeypatch.context() as before:
        before.setattr("fedscope.training.data.standardize._large_means", lambda _, x: np.zeros(x.shape[1]))
        was = load_data(name)
        old = train(small, tmp_path / "old")
    assert not np.array_equal(was.x_train, now.x_train)
    for run, data in ((old, was), (new, now)):
        for found in (
            data_of(run),
            data_of(run, given=name),
            dataset_asked([run], EvaluationConfig("test", data=name), CLASSIFICATION),
        ):
            assert (found.means, found.deviations) == (data.means, data.deviations)
            np.testing.assert_array_equal(found.x_train, data.x_train)
            np.testing.assert_array_equal(found.x_test, data.x_test)
    with pytest.warns(FedscopeWarning) as caught:
        both = dataset_asked([old, new], EvaluationConfig("test", data=name), CLASSIFICATION)
    assert [str(one.message) for one in caught] == [
        f"{name}: runs were trained on samples that were standardised in two ways (mean {was.means[0]:.9g} and "
        f"deviation {was.deviations[0]:.3g}, or {now.means[0]:.9g} and {now.deviations[0]:.3g}), and all are measured "
        "in that of the first; ask for one of them at a time"
    ]
    np.testing.assert_array_equal(both.x_train, was.x_train)


@pytest.mark.parametrize("value", [0.1, 0.3, 100 / 255])
def test_a_constant_of_many_samples_is_neither_lost_nor_of_other_bits(value: float) -> None:
    x = np.random.default_rng(3).normal(size=(50_000, 3)) + np.float64([0, 0, 1e8])
    x[:, 1] = value
    x[40_000:, 1] = 1.5 * value
    y = np.arange(len(x)) % 2
    arrays = {"x_train": x[:40_000], "y_train": y[:40_000], "x_test": x[40_000:], "y_test": y[40_000:]}
    data = standardize("toy", "", arrays)
    small = np.float32(1.5 * value) - np.float32(value)
    assert (data.means[1], data.deviations[1]) == (np.float32(value), 1)
    assert not np.asarray(data.x_train)[:, 1].any()
    np.testing.assert_array_equal(np.asarray(data.x_test)[:, 1], small)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken_data(((x[:40_000, :2], y[:40_000]), (x[40_000:, :2], y[40_000:])))


def test_ordinary_channels_beside_one_of_a_large_mean_keep_their_bits() -> None:
    x = np.random.default_rng(3).integers(-1000, 1000, (60, 4, 4, 3)).astype(np.int64) * 10**12
    x[..., 1] += 10**17
    x[..., 2] = 7 * 10**17
    x[..., 0] *= 1000
    arrays = {"x_train": x[:40], "y_train": np.arange(40) % 2, "x_test": x[40:], "y_test": np.arange(20) % 2}
    arrays["x_train"][..., 1] = 10**17 + x[:40, ..., 0] // 10**6
    arrays["x_test"][..., 1] = 10**17 + x[40:, ..., 0] // 10**6
    data = standardize("toy", "", arrays)
    alone = standardize("toy", "", {**arrays, "x_train": x[:40, ..., ::2], "x_test": x[40:, ..., ::2]})
    for split in ("x_train", "x_test"):
        np.testing.assert_array_equal(getattr(data, split)[:, ::2], getattr(alone, split))
    assert 0.9 < float(np.asarray(data.x_train)[:, 1].std()) < 1.1


@pytest.mark.parametrize("whole", ["x_train", "x_test"])
def test_floats_beside_whole_numbers_are_no_slip_where_nothing_is_tokens(whole: str) -> None:
    x = np.random.default_rng(3).integers(0, 5, (40, 4))
    splits = {"x_train": x[:20] / 1, "x_test": x[20:] / 1}
    splits[whole] = splits[whole].astype(np.int64)

    def taken(task: Task, scale: float = 1.0) -> list[str]:
        y = np.arange(20) % 2 if task.has_classes or task.tokens else RNG.normal(size=(20, 1))
        x_test = splits["x_test"] * np.asarray(scale, splits["x_test"].dtype)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            taken_data(((splits["x_train"], y), (x_test, y)), task)
        return [re.sub(r"varies \S+", "varies R", str(one.message)) for one in caught]

    assert taken(REGRESSION) == []
    assert taken(REGRESSION, 100) == [
        "arrays: x_test varies R times as much as x_train, so it seems to be of another scale; give both splits in one"
    ]
    other = "x_test" if whole == "x_train" else "x_train"
    with pytest.raises(FedscopeError) as caught:
        taken(TASKS["sequence-classification"])
    assert str(caught.value) == (
        f"arrays: {whole} has whole numbers, which are tokens here, but {other} has others; give both as token ids "
        "(int64), or both as floats"
    )
