"""``gldv2`` from lists and photos as they are distributed, small ones that the tests write."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.distributed.torchvision_import import torchvision_part
from fedscope.training import load_data
from fedscope.training.data.formats import cache, images
from fedscope.training.data.formats.images import centre_square, read_squares
from fedscope.training.data.published import gldv2
from fedscope.training.data.split import partition

pytestmark = pytest.mark.same_elsewhere

#: user, photo, class; user 10 has one photo, and the classes are few of 2,028
TRAIN = [
    *(("3", f"{i}a{i}000000000000{i}", i % 3) for i in range(5)),
    ("10", "beef000000000000", 2),
    *(("2", f"0{i}c00000000000f{i}", 7) for i in range(3)),
]
TEST = [("00a0000000000001", 7), ("fed0000000000000", 0), ("ace0000000000000", 2)]
#: width, height
SIZES = [(300, 230), (230, 300), (224, 224), (90, 60), (640, 225), (225, 641)]


def photo(size: tuple[int, int], seed: int) -> Image.Image:
    """Smooth, as photos are, so that JPEG and resizing leave it alone."""
    y, x = np.mgrid[: size[1], : size[0]]
    draw = np.random.default_rng(seed)
    waves = [np.sin(x * draw.uniform(0.01, 0.05) + y * draw.uniform(0.01, 0.05) + phase) for phase in range(3)]
    return Image.fromarray(np.round(127.5 * (np.stack(waves, axis=2) + 1)).astype(np.uint8))


def place(folder: Path, image: str) -> Path:
    return folder / image[0] / image[1] / image[2] / f"{image}.jpg"


def write(root: Path, photos: str = "", lists: str = "") -> Path:
    """The lists in the folder ``lists`` of ``root``, the photos in ``photos``; one photo is grey."""
    (root / lists).mkdir(parents=True, exist_ok=True)
    for name, head, rows in (
        ("federated_train.csv", ("user_id", "image_id", "class"), TRAIN),
        ("test.csv", ("image_id", "class"), TEST),
    ):
        with (root / lists / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])
    for i, image in enumerate([*(row[1] for row in TRAIN), *(row[0] for row in TEST)]):
        path = place(root / photos, image)
        path.parent.mkdir(parents=True, exist_ok=True)
        made = photo(SIZES[i % len(SIZES)], i)
        (made.convert("L") if i == 1 else made).save(path, "jpeg", quality=92)
    return root


def by_torchvision(path: Path, side: int = 224) -> np.ndarray:
    torchvision_part("transforms")
    from torchvision.transforms import CenterCrop, Compose, Resize

    return np.asarray(Compose([Resize(side), CenterCrop(side)])(Image.open(path).convert("RGB")))


def stored(data: Any, split: str) -> np.ndarray:
    return np.asarray(getattr(data, f"x_{split}").stored)


@pytest.mark.parametrize(
    ("photos", "lists", "kept"), [("", "", True), ("train", "", True), ("train", "landmarks-user-160k", False)]
)
def test_photos_classes_and_authors_are_those_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photos: str, lists: str, kept: bool
) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache") if kept else "off")
    root = write(tmp_path / "landmarks", photos, lists)
    for _ in range(2):  # decoded, then from the cache
        data = load_data(f"gldv2:{root}")
        assert (data.name, data.shape, data.classes) == (f"gldv2:{root}", (3, 224, 224), 2028)
        assert data.y_train.tolist() == [label for _, _, label in TRAIN]
        assert data.y_test.tolist() == [label for _, label in TEST]
        for split, ids in (("train", [row[1] for row in TRAIN]), ("test", [row[0] for row in TEST])):
            expected = np.stack([by_torchvision(place(root / photos, image)) for image in ids])
            assert np.abs(stored(data, split).astype(int) - expected).max() <= 1, "of 255"
        user = data.groups["user"]
        assert user.names == ("2", "3", "10")
        assert [user.names[number] for number in user.train] == [row[0] for row in TRAIN]
        assert user.test.tolist() == [-1] * 3
    split = partition("natural", data.y_train, data.classes, 3, seed=0, groups={"user": user.train})
    assert [part.tolist() for part in split.clients] == [[6, 7, 8], [0, 1, 2, 3, 4], [5]]


@pytest.mark.parametrize("size", [*SIZES, (1, 1), (3, 1000), (1000, 3), (500, 501), (447, 449), (7, 5)])
@pytest.mark.parametrize("side", [224, 32])
def test_the_middle_is_what_torchvision_takes(tmp_path: Path, size: tuple[int, int], side: int) -> None:
    photo(size, 0).save(tmp_path / "p.png")
    with Image.open(tmp_path / "p.png") as image:
        made = centre_square(image, side)
    assert made.shape == (side, side, 3)
    assert np.abs(made.astype(int) - by_torchvision(tmp_path / "p.png", side)).max() <= 1


def test_a_photo_of_that_size_keeps_its_pixels() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    np.testing.assert_array_equal(centre_square(Image.fromarray(noise), 224), noise)
    wide = np.concatenate([noise[:, :7], noise, noise[:, :7]], axis=1)
    np.testing.assert_array_equal(centre_square(Image.fromarray(wide), 224), noise)


def test_photos_of_numbers_that_bytes_do_not_hold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    Image.fromarray(np.uint16([[300, 64300], [4300, 8300]])).save(path)
    with pytest.raises(
        FedscopeError, match=r"here: .*p\.png has numbers from 300 to 64300, and what is read of images"
    ):
        read_squares("here", [path], 2, cache.in_memory)


def test_one_photo_at_a_time_is_in_memory(tmp_path: Path) -> None:
    """Beyond the room that was given, which may be a file."""
    import tracemalloc

    photo((400, 300), 0).save(tmp_path / "p.jpg")
    peaks = []
    for count in (4, 40):
        room = np.empty((count, 224, 224, 3), np.uint8)
        tracemalloc.start()
        read_squares("toy", [tmp_path / "p.jpg"] * count, 224, lambda shape, room=room: room)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 224 * 224 * 3


def test_photos_are_decoded_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    root = write(tmp_path / "landmarks")
    saved: list[str] = []
    real = np.save
    monkeypatch.setattr(np, "save", lambda path, values: (saved.append(Path(path).name), real(path, values)))
    load_data(f"gldv2:{root}")
    assert set(saved) == {"y_train.npy", "y_test.npy", "user_train.npy", "user_test.npy"}
    monkeypatch.setattr(images, "centre_square", None)
    load_data(f"gldv2:{root}")


def test_a_set_larger_than_memory_needs_a_cache_with_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "landmarks")
    monkeypatch.setattr(cache, "_memory", lambda: 1_000_000)
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    load_data(f"gldv2:{root}")
    monkeypatch.setenv("FEDSCOPE_CACHE", "off")
    with pytest.raises(
        FedscopeError,
        match=r"x_train takes 1.4 MB decoded, which is more than the memory here, and there is no cache; mak",
    ):
        load_data(f"gldv2:{root}")

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(cache.os, "posix_fallocate", full, raising=False)
    with pytest.raises(FedscopeError, match=r"and there is no room in .*other; make room, or set FEDSCOPE_CACHE to a"):
        load_data(f"gldv2:{root}")
    assert [*(tmp_path / "other").iterdir()] == []


def test_it_is_looked_for_in_the_folder_of_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    with pytest.raises(
        FedscopeError,
        match=r"--data gldv2: found no federated_train.csv, test.csv; looked in data, data/gldv2. Get them from "
        r"https://\S+ \(the lists, landmarks-user-160k.zip\) and https://\S+/google-landmark \(the photos\) and give",
    ):
        load_data("gldv2")
    write(tmp_path / "data" / "gldv2", "train", "landmarks-user-160k")
    assert len(load_data("gldv2").y_train) == len(TRAIN)
    (tmp_path / "data/gldv2/landmarks-user-160k/test.csv").unlink()
    with pytest.raises(
        FedscopeError, match=r"data/gldv2 has 1 of the 2 files, but not test.csv; get the rest from http"
    ):
        load_data("gldv2")
    with pytest.raises(
        FedscopeError, match=r"gldv2 cannot be downloaded: it has no files with a published checksum; get it from http"
    ):
        fedscope.download("gldv2")


def listing(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda root: (root / name).write_text(change((root / name).read_text()))


def without(*numbers: int) -> Callable[[Path], object]:
    def remove(root: Path) -> None:
        for number in numbers:
            place(root, TRAIN[number][1]).unlink()

    return remove


def spoilt(content: bytes) -> Callable[[Path], object]:
    return lambda root: place(root, TRAIN[3][1]).write_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            listing("federated_train.csv", lambda text: text.replace("user_id,image_id,class", "id,url,landmark_id")),
            r"federated_train.csv lacks the column user_id and the column image_id and the column class "
            r"\(it has id, url, landmark_id\); get it from https://",
        ),
        (listing("test.csv", lambda text: text.replace("class", "label")), r"test.csv lacks the column class"),
        (listing("test.csv", lambda text: ""), r"lacks the column image_id and the column class \(it has \); get it"),
        (listing("test.csv", lambda text: text.splitlines()[0]), r"test.csv names no photo; get it from"),
        (
            listing("test.csv", lambda text: text + "ace0000000000001,2028\n"),
            r"line 5 of .*test.csv has the class '2028', and classes are 0 to 2027; get it from",
        ),
        (listing("test.csv", lambda text: text + "ace0000000000001,-1\n"), r"has the class '-1', and classes are"),
        (listing("test.csv", lambda text: text + "ace0000000000001,1.0\n"), r"has the class '1.0', and classes are"),
        (listing("test.csv", lambda text: text[:-5]), r"line 4 of .* has the class '', and classes are 0 to 2027"),
        (
            listing("test.csv", lambda text: text + "../../etc/passwd,1\n"),
            r"line 5 of .*test.csv has the photo '../../etc/passwd', and photos are named by letters and digits",
        ),
        (listing("test.csv", lambda text: text + ",1\n"), r"has the photo '', and photos are named"),
        (listing("federated_train.csv", lambda text: text + ",ace0000000000000,1\n"), r"line 11 of .* has no user_id"),
        (listing("test.csv", lambda text: text + "\0,1\n"), r"test.csv"),
        (lambda root: (root / "test.csv").write_bytes(b"\xff\xd8\xff"), r"test.csv is damaged: byte 0 is not UTF-8"),
        (
            without(4),
            r"1 of 12 photos are missing \(4a40000000000004\); looked for a/b/c/abc....jpg in \S+, \S+train; get",
        ),
        (
            without(0, 1, 2, 3),
            r"4 of 12 photos are missing \(0a00000000000000, 1a10000000000001, 2a2.*, ...\); looked",
        ),
        (spoilt(b"\xff\xd8\xff\xe0"), r"3a30000000000003.jpg is truncated or not an image; copy or save it again"),
        (spoilt(b""), r".jpg is truncated or not an image; copy or save it again"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], message: str
) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    change(write(tmp_path / "landmarks"))
    with pytest.raises(FedscopeError, match=message) as raised:
        load_data(f"gldv2:{tmp_path / 'landmarks'}")
    assert "\n" not in str(raised.value)
    assert [*(tmp_path / "cache").glob("*")] == [], "nothing half decoded"


def test_a_photo_cut_short_is_named(tmp_path: Path) -> None:
    path = place(write(tmp_path), TRAIN[0][1])
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FedscopeError, match=rf"{path.name} is truncated or not an image; copy or save it again"):
        load_data(f"gldv2:{tmp_path}")


@pytest.mark.parametrize("photos", ["", "train", "landmarks-user-160k", "landmarks-user-160k/train"])
def test_the_folder_of_the_lists_is_as_good(tmp_path: Path, photos: str) -> None:
    write(tmp_path, photos, "landmarks-user-160k")
    assert len(load_data(f"gldv2:{tmp_path / 'landmarks-user-160k'}").y_train) == len(TRAIN)


def test_a_byte_order_mark_and_names_of_authors_are_taken(tmp_path: Path) -> None:
    write(tmp_path)
    listing("federated_train.csv", lambda text: "\ufeff" + text.replace("\n10,", "\nJane Doe,"))(tmp_path)
    assert load_data(f"gldv2:{tmp_path}").groups["user"].names == ("2", "3", "Jane Doe")


def test_every_author_is_a_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "set", "train")
    words = ["--data", f"gldv2:{tmp_path / 'set'}", "--partition", "natural"]
    assert run(["data", *words, "--clients", "3", "--out", str(tmp_path / "d")]) == 0
    assert "3 clients, each with 1 to 5 samples" in capsys.readouterr().out
    small = ["--rounds", "2", "--set", "model.hidden=[2]", "--participation", "1"]
    assert run(["train", "--method", "fma", *words, "--clients", "3", *small, "--out", str(tmp_path / "r")]) == 0
    assert [len(rows) for rows in Run.open(tmp_path / "r").partition.clients] == [3, 5, 1]
    capsys.readouterr()
    assert run(["data", *words, "--clients", "4", "--out", str(tmp_path / "d")]) == 2
    assert "but the data have 3 users; give --clients 3 or fewer" in capsys.readouterr().err
    assert gldv2.CLASSES == 2028
