"""``tiny-imagenet`` from files as they are distributed, small ones that the tests write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.training import load_data

#: as in the true file, not in the order of the alphabet
WNIDS = ("n02124075", "n04067472", "n01443537")
VAL = (2, 0, 1, 1)


def write(root: Path, each: int = 5) -> Path:
    """Every image of another shade, one of them grey; boxes stand beside the classes."""
    draw = np.random.default_rng(0)

    def picture(path: Path, grey: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, (4, 4) if grey else (4, 4, 3), dtype=np.uint8)
        Image.fromarray(np.kron(pixels, np.ones((16, 16) + (1,) * (not grey), np.uint8))).save(path, "jpeg", quality=95)

    for wnid in WNIDS:
        for i in range(each):
            picture(root / f"train/{wnid}/images/{wnid}_{i}.JPEG", grey=(wnid, i) == (WNIDS[0], 1))
        (root / f"train/{wnid}/{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t63\t63\n")
    for i in range(len(VAL)):
        picture(root / f"val/images/val_{i}.JPEG")
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    # the file's own order is the samples'
    lines = [f"val_{i}.JPEG\t{WNIDS[VAL[i]]}\t0\t32\t44\t62\n" for i in (3, 0, 1, 2)]
    (root / "val/val_annotations.txt").write_text("".join(lines))
    (root / "words.txt").write_text("n02124075\tEgyptian cat\n")
    return root


def pixels(data: object, split: str) -> np.ndarray:
    return np.asarray(getattr(data, f"x_{split}").stored)


def decoded(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


@pytest.mark.parametrize("typed", ["", "tiny-imagenet-200"])
@pytest.mark.parametrize("kept", [True, False])
def test_images_and_labels_are_those_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, kept: bool
) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache") if kept else "off")
    root = write(tmp_path / "tiny-imagenet-200")
    data = load_data(f"tiny-imagenet:{tmp_path / typed}")
    assert (data.name, data.shape, data.classes) == (f"tiny-imagenet:{root}", (3, 64, 64), 3)
    assert data.y_train.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert data.y_test.tolist() == [VAL[i] for i in (3, 0, 1, 2)]
    train = [decoded(root / f"train/{wnid}/images/{wnid}_{i}.JPEG") for wnid in WNIDS for i in range(5)]
    np.testing.assert_array_equal(pixels(data, "train"), train)
    np.testing.assert_array_equal(
        pixels(data, "test"), [decoded(root / f"val/images/val_{i}.JPEG") for i in (3, 0, 1, 2)]
    )
    assert (train[1] == train[1][..., :1]).all(), "the grey one"


def test_it_is_decoded_once_and_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "tiny-imagenet-200")
    saved: list[str] = []
    real = np.save
    monkeypatch.setattr(np, "save", lambda path, values: (saved.append(Path(path).name), real(path, values)))
    first = load_data(f"tiny-imagenet:{tmp_path}")
    assert set(saved) == {"y_train.npy", "y_test.npy"}, "images are decoded where they stay"
    monkeypatch.setattr(Image, "open", None)
    again = load_data(f"tiny-imagenet:{tmp_path}")
    assert again.sha256 == first.sha256
    np.testing.assert_array_equal(pixels(again, "train"), pixels(first, "train"))


def test_it_is_looked_for_in_the_folder_of_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    with pytest.raises(
        FedscopeError,
        match=r"--data tiny-imagenet: found no wnids.txt, val/val_annotations.txt; looked in data, data/tiny-imagenet, "
        r"data/tiny-imagenet-200. Get them from http://cs231n.stanford.edu/tiny-imagenet-200.zip, or by ",
    ):
        load_data("tiny-imagenet")
    write(tmp_path / "data/tiny-imagenet-200")
    annotate("\n\n")(tmp_path / "data/tiny-imagenet-200")  # empty lines are nothing
    assert len(load_data("tiny-imagenet").y_train) == 15
    (tmp_path / "data/tiny-imagenet-200/wnids.txt").unlink()
    with pytest.raises(FedscopeError, match=r"has 1 of the 2 files, but not wnids.txt; get the rest from http://"):
        load_data("tiny-imagenet")


def annotate(line: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        with (root / "val/val_annotations.txt").open("a") as file:
            file.write(line)

    return change


def sort_val(root: Path) -> None:
    """As many scripts leave it."""
    for i, number in enumerate(VAL):
        folder = root / "val" / WNIDS[number]
        folder.mkdir(exist_ok=True)
        (root / f"val/images/val_{i}.JPEG").rename(folder / f"val_{i}.JPEG")
    (root / "val/images").rmdir()


def save(name: str, size: tuple[int, int]) -> Callable[[Path], object]:
    return lambda root: Image.new("RGB", size).save(root / name)


def without_class(root: Path) -> None:
    (root / "train" / WNIDS[1]).rename(root / "train" / "n99")


def without_images(root: Path) -> None:
    for path in (root / "train" / WNIDS[1] / "images").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_class, r"train has no folder for 1 of the 3 classes of wnids.txt \(n04067472\); unpack .*zip again"),
        (without_images, r"the class n04067472 has no images in .*train/n04067472/images; unpack"),
        (lambda root: (root / "train").rename(root / "t"), r"no folder for 3 of the 3 classes of wnids.txt"),
        (lambda root: (root / "train/n99").mkdir(), r"train has the classes n99, which wnids.txt lacks"),
        (lambda root: (root / "wnids.txt").write_text("n1 n2 n1"), r"wnids.txt names n1 twice"),
        (lambda root: (root / "wnids.txt").write_text("\n"), r"wnids.txt names no class"),
        (lambda root: (root / "wnids.txt").write_bytes(b"\xff\xfe"), r"wnids.txt is damaged: byte 0 is not UTF-8"),
        (
            annotate("val_4.JPEG\tn04067472\t0\t0\t9\t9\n"),
            r"val/images lacks 1 of the 5 images of val_annotations.txt \(v",
        ),
        (annotate("val_4.JPEG\tn7\t0\t0\t9\t9\n"), r"line 5 of .*txt is 'val_4.*', which is not an image and a class"),
        (annotate("val_4.JPEG\n"), r"line 5 of .*val_annotations.txt is 'val_4.JPEG', which is not an image"),
        (annotate("val_0.JPEG\tn01443537\n"), r"line 5 of .*val_annotations.txt names val_0.JPEG a second time"),
        (
            sort_val,
            r"val/images lacks 4 of the 4 images of val_annotations.txt \(val_3.JPEG, val_0.JPEG, val_1.JPEG, ...\); "
            "unpack .* again, and leave val/ as it is",
        ),
        (save("val/images/val_9.JPEG", (64, 64)), r"val/images has val_9.JPEG, of which val_annotations.txt gives"),
        (save(f"train/{WNIDS[2]}/images/{WNIDS[2]}_7.JPEG", (32, 64)), r"_7.JPEG has 32 x 64 pixels, the first"),
        (save("val/images/val_3.JPEG", (32, 32)), r"val_0.JPEG has 64 x 64 pixels, the first image 32 x 32"),
        (
            lambda root: (root / f"train/{WNIDS[0]}/images/{WNIDS[0]}_2.JPEG").write_bytes(b"\xff\xd8\xff"),
            r"n02124075_2.JPEG is truncated or not an image; copy or save it again",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], message: str
) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    change(write(tmp_path / "tiny-imagenet-200"))
    with pytest.raises(FedscopeError, match=message) as raised:
        load_data(f"tiny-imagenet:{tmp_path}")
    assert "\n" not in str(raised.value)
    assert [*(tmp_path / "cache").glob("*")] == [], "nothing half decoded"


def test_val_of_another_size_than_train_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path)
    for i in range(4):
        Image.new("RGB", (32, 32)).save(root / f"val/images/val_{i}.JPEG")
    with pytest.raises(FedscopeError, match=r"training samples have shape \[3, 64, 64\], test samples \[3, 32, 32\]"):
        load_data(f"tiny-imagenet:{tmp_path}")


def test_a_federation_is_trained_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "set")
    words = ["--data", f"tiny-imagenet:{tmp_path / 'set'}", "--partition", "pathological:2", "--clients", "3"]
    assert run(["data", *words, "--out", str(tmp_path / "d")]) == 0
    assert "of 3; 15 samples in all" in capsys.readouterr().out
    small = ["--rounds", "2", "--set", "model.hidden=[4]", "--participation", "1"]
    assert run(["train", "--method", "fma", *words, *small, "--out", str(tmp_path / "r")]) == 0


@pytest.mark.parametrize("command", ["data", "train"])
def test_a_name_with_an_underscore_is_no_code_of_ones_own(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--data", "tiny_imagenet:there"]) == 2
    assert (
        "'tiny_imagenet' is not a data set that fedscope knows; did you mean \"tiny-imagenet\"?"
        in capsys.readouterr().err
    )
