"""Data sets: shapes, scaling, standardisation, refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedscope.checkpoints import FedscopeError
from fedscope.training import load_data
from fedscope.training.dataset import standardised

RNG = np.random.default_rng(0)
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
    data = standardised("toy", "", raw)
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


def test_a_constant_channel_stays_finite() -> None:
    raw = images((4, 4, 3))
    raw["x_train"][..., 1] = 7
    assert np.isfinite(standardised("toy", "", raw).x_train).all()


@given(st.integers(0, 19), st.integers(0, 8))
def test_the_hash_notices_one_changed_value(row: int, column: int) -> None:
    raw = images((9, 9))
    before = standardised("toy", "", raw).sha256
    raw["x_train"] = raw["x_train"].copy()
    raw["x_train"][row, column, 0] ^= 1
    assert standardised("toy", "", raw).sha256 != before


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
        ({"x_train": np.full((20, 9, 9), "a")}, r"samples are integers or floats"),
    ],
)
def test_unreadable_arrays_are_refused(change: dict[str, np.ndarray | None], message: str) -> None:
    raw = {key: value for key, value in {**images((9, 9)), **change}.items() if value is not None}
    with pytest.raises(FedscopeError, match=message):
        standardised("toy", "", raw)


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
    assert data.sha256 == standardised("other", "", raw).sha256


def test_what_is_no_npz_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"there is no such file"):
        load_data(f"npz:{tmp_path}/nothing.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(FedscopeError, match=r"is not a readable \.npz"):
        load_data(f"npz:{tmp_path}/text.npz")
    np.savez(tmp_path / "code.npz", x_train=np.array([{}], dtype=object))
    with pytest.raises(FedscopeError, match=r"is not a readable \.npz"):
        load_data(f"npz:{tmp_path}/code.npz")


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
    pixels = data.x_train[:, 0, 0, 0] * data.deviations[0] + data.means[0]
    np.testing.assert_allclose(pixels * 255, [0, 10, 20, 40, 50, 60], atol=1e-3)


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"there is no folder .*train; it needs train/<class>/"):
        load_data(f"folder:{tmp_path}")
    folder(tmp_path)
    Image.fromarray(np.zeros((5, 9, 3), np.uint8)).save(tmp_path / "train" / "dog" / "z.png")
    with pytest.raises(FedscopeError, match=r"z\.png has 9 x 5 pixels, the first image 9 x 9"):
        load_data(f"folder:{tmp_path}")
    (tmp_path / "train" / "dog" / "z.png").unlink()
    (tmp_path / "test" / "eel").mkdir()
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "test" / "eel" / "z.png")
    with pytest.raises(FedscopeError, match=r"differ in the classes eel"):
        load_data(f"folder:{tmp_path}")


def test_torchvision_imports_beside_any_torch() -> None:
    # In a process of its own: whether the compiled part loads is decided once a process.
    code = "from fedscope.training.vision import torchvision_datasets as t; print(t().ImageFolder.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ImageFolder", done.stderr
