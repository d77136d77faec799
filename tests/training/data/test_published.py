"""Published data sets, read from small files in the layout in which each is distributed."""

from __future__ import annotations

import bz2
import gzip
import io
import pickle
import pickletools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fedscope.checkpoints import FedscopeError
from fedscope.training import load_data, partition
from fedscope.training.data.arrays import digest
from fedscope.training.data.dataset import ARRAYS
from fedscope.training.data.formats import cache
from fedscope.training.data.standardize import standardize

pytestmark = pytest.mark.same_elsewhere

RNG = np.random.default_rng(3)


def idx(values: np.ndarray) -> bytes:
    """As Y. LeCun's page describes the format."""
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.tobytes()


def arrays(shape: tuple[int, ...], classes: int = 10) -> dict[str, np.ndarray]:
    made = {}
    for split, n in (("train", 30), ("test", 20)):
        made[f"x_{split}"] = RNG.integers(0, 256, (n, *shape), dtype=np.uint8)
        made[f"y_{split}"] = (np.arange(n) % classes).astype(np.uint8)
    return made


def write_mnist(folder: Path, *, packed: bool = True) -> dict[str, np.ndarray]:
    made = arrays((28, 28))
    for split, stem in (("train", "train"), ("test", "t10k")):
        for key, kind in (("x", "images-idx3"), ("y", "labels-idx1")):
            data = idx(made[f"{key}_{split}"])
            name = f"{stem}-{kind}-ubyte"
            (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
    return made


def python2_pickle(batch: dict[str, Any]) -> bytes:
    """As cPickle of Python 2 wrote CIFAR's: protocol 2, texts as bytes, NumPy's old module names."""
    with io.BytesIO() as stored:
        pickle.dump({key.encode(): value for key, value in batch.items()}, stored, protocol=2)
        text = stored.getvalue()
    return text.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def write_cifar10(folder: Path) -> dict[str, np.ndarray]:
    made = arrays((3, 32, 32))
    for i in range(5):
        rows = slice(6 * i, 6 * i + 6)
        batch = {"data": made["x_train"][rows].reshape(6, -1), "labels": made["y_train"][rows].tolist()}
        (folder / f"data_batch_{i + 1}").write_bytes(python2_pickle(batch | {"batch_label": f"batch {i} of 5"}))
    test = {"data": made["x_test"].reshape(20, -1), "labels": made["y_test"].tolist()}
    (folder / "test_batch").write_bytes(python2_pickle(test))
    return made


def write_cifar100(folder: Path) -> dict[str, np.ndarray]:
    made = arrays((3, 32, 32), classes=20)
    for split in ("train", "test"):
        fine = made[f"y_{split}"].tolist()
        batch = {"data": made[f"x_{split}"].reshape(len(fine), -1), "fine_labels": fine}
        (folder / split).write_bytes(python2_pickle(batch | {"coarse_labels": [label // 5 for label in fine]}))
    return made


def write_svhn(folder: Path) -> dict[str, np.ndarray]:
    made = arrays((32, 32, 3))
    for split in ("train", "test"):
        y = made[f"y_{split}"].astype(np.int64)
        stored = {"X": made[f"x_{split}"].transpose(1, 2, 3, 0), "y": np.where(y == 0, 10, y)[:, None].astype(np.uint8)}
        savemat(folder / f"{split}_32x32.mat", stored)
    return made


def write_usps(folder: Path) -> dict[str, np.ndarray]:
    made = arrays((16, 16))
    for split, name in (("train", "usps.bz2"), ("test", "usps.t.bz2")):
        lines = [
            " ".join([str(y + 1), *(f"{i + 1}:{v / 127.5 - 1:.6f}" for i, v in enumerate(x.ravel().tolist()))])
            for x, y in zip(made[f"x_{split}"], made[f"y_{split}"].tolist(), strict=True)
        ]
        (folder / name).write_bytes(bz2.compress(("\n".join(lines) + "\n").encode()))
    return made


WRITERS: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    "mnist": write_mnist,
    "fmnist": write_mnist,
    "cifar10": write_cifar10,
    "cifar100": write_cifar100,
    "svhn": write_svhn,
    "usps": write_usps,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_published_set_is_read_as_the_arrays_that_it_holds(name: str, tmp_path: Path) -> None:
    written = WRITERS[name](tmp_path)
    expected = standardize("by hand", "", written)
    data = load_data(f"{name}:{tmp_path}")
    for key in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(data, key), getattr(expected, key))
    assert data.classes == (20 if name == "cifar100" else 10)
    assert (data.name, data.path) == (f"{name}:{tmp_path}", str(tmp_path))
    if name not in ("mnist", "fmnist"):  # whose labels are bytes
        written |= {key: written[key].astype(np.int64) for key in ("y_train", "y_test")}
    assert data.sha256 == digest(written, ARRAYS), "of the arrays in the layout in which the set is distributed"


def large_mnist(folder: Path) -> None:
    for stem, n in (("train", 8000), ("t10k", 2000)):
        for kind, shape in (("images-idx3", (n, 28, 28)), ("labels-idx1", (n,))):
            (folder / f"{stem}-{kind}-ubyte").write_bytes(idx(np.ones(shape, np.uint8)))


def large_cifar10(folder: Path) -> None:
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        data = np.ones((500, 3072), np.uint8)
        (folder / name).write_bytes(pickle.dumps({b"data": data, b"labels": list(range(10)) * 50}))


def large_digit5(folder: Path) -> None:
    for domain in DIGIT5:
        (folder / domain / "partitions").mkdir(parents=True)
        for part in (*(f"partitions/train_part{i}.pkl" for i in range(10)), "test.pkl"):
            (folder / domain / part).write_bytes(pickle.dumps((np.ones((50, 32, 32, 3), np.uint8), np.arange(50) % 10)))


def large_femnist(folder: Path) -> None:
    for split in ("train", "test"):
        with h5py.File(folder / f"fed_emnist_{split}.h5", "w") as file:
            for writer in range(60):
                file[f"examples/f{writer:03}/pixels"] = np.ones((100, 28, 28), np.float32)
                file[f"examples/f{writer:03}/label"] = np.arange(100, dtype=np.int32) % 62


@pytest.mark.parametrize("write", [large_mnist, large_cifar10, large_digit5, large_femnist])
def test_images_are_decoded_a_part_at_a_time(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the file in the cache that they are put into: half of them are never in memory."""
    write(tmp_path)
    peaks, real = [], cache._Work.room

    def begun(work: Any, which: str, shape: tuple[int, ...]) -> np.ndarray:
        tracemalloc.start()
        return real(work, which, shape)

    def decoded(shown: str, path: str, arrays: Any, **known: Any) -> Any:
        if tracemalloc.is_tracing():
            peaks.append(tracemalloc.get_traced_memory()[1] / (arrays["x_train"].nbytes + arrays["x_test"].nbytes))
            tracemalloc.stop()
        return standardize(shown, path, arrays, **known)

    monkeypatch.setattr(cache._Work, "room", begun)
    monkeypatch.setattr(cache, "standardize", decoded)
    load_data(f"{write.__name__.removeprefix('large_')}:{tmp_path}")
    assert len(peaks) == 1
    assert peaks[0] < 0.5


@pytest.mark.parametrize("packed", [True, False])
def test_the_files_are_found_where_other_programs_put_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    folder = tmp_path / "data" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    write_mnist(folder, packed=packed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    assert load_data("mnist").name == f"mnist:{folder}"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("FEDSCOPE_DATA", str(tmp_path / "data"))
    assert load_data("mnist").name == f"mnist:{folder}"


def test_what_is_missing_is_named_with_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FedscopeError, match=r"found no usps.bz2, usps.t.bz2; looked in data, data/usps, data/USPS. Get "
    ):
        load_data("usps")
    write_cifar10(tmp_path)
    (tmp_path / "data_batch_3").unlink()
    with pytest.raises(FedscopeError, match=r"has 5 of the 6 files, but not data_batch_3; get the rest from https://"):
        load_data(f"cifar10:{tmp_path}")


class Harmful:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (eval, ("1/0",))


def spoiled(name: str, folder: Path) -> tuple[Path, Callable[[bytes], bytes]]:
    """A file of the set, and what the test does to it."""
    return {
        "shorter": (folder / "t10k-images-idx3-ubyte", lambda data: data[:-1]),
        "longer": (folder / "t10k-images-idx3-ubyte", lambda data: data + b"\0"),
        "no idx": (folder / "t10k-images-idx3-ubyte", lambda data: b"PK\3\4" + data),
        "other type": (folder / "t10k-images-idx3-ubyte", lambda data: data[:2] + b"\x0d" + data[3:]),
        "bomb": (folder / "t10k-images-idx3-ubyte", lambda data: data[:4] + b"\xff" * 12 + data[16:]),
        "empty": (folder / "train-labels-idx1-ubyte", lambda data: b""),
        "lengths": (folder / "train-labels-idx1-ubyte", lambda data: idx(np.zeros(29, np.uint8))),
        "code": (folder / "test_batch", lambda data: pickle.dumps({b"data": Harmful()})),
        "cut": (folder / "test_batch", lambda data: data[: len(data) // 2]),
        "no labels": (folder / "test_batch", lambda data: pickle.dumps({b"data": np.zeros((2, 3072), np.uint8)})),
        "not rows": (folder / "test_batch", lambda data: pickle.dumps({b"data": np.zeros((2, 9)), b"labels": [1, 2]})),
        "objects": (folder / "test_batch", lambda data: pickle.dumps({b"data": [{}], b"labels": [1]})),
        "few labels": (
            folder / "test_batch",
            lambda data: pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}),
        ),
    }[name]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("shorter", r"t10k-images-idx3-ubyte declares 15,680 values, but has only 15,679; copy it again"),
        ("longer", r"declares 15,680 values, but has more"),
        ("no idx", r"is not an IDX file of unsigned bytes: it begins with 504b0304"),
        ("other type", r"is not an IDX file of unsigned bytes: it begins with 00000d03"),
        ("bomb", r"declares \d[\d,]+ bytes, but stores"),
        ("empty", r"is truncated or not an IDX file of unsigned bytes"),
        ("lengths", r"x_train has 30 samples, but y_train has 29 labels"),
        ("code", r"test_batch asks for builtins.eval, which may run code"),
        ("cut", r"test_batch is truncated or not a pickle of arrays"),
        ("no labels", r"test_batch is not a batch of CIFAR, which has data, labels"),
        ("not rows", r"data has shape \[2, 9\] of float64; CIFAR's is \[N, 3072\] of uint8"),
        ("objects", r"has no numbers as data"),
        ("few labels", r"has 2 images, but 1 labels"),
    ],
)
def test_damaged_and_foreign_files_are_one_sentence(how: str, message: str, tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=False)
    write_cifar10(tmp_path)
    path, change = spoiled(how, tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FedscopeError, match=message):
        load_data(f"{'mnist' if 'ubyte' in path.name else 'cifar10'}:{tmp_path}")


def test_the_pickles_of_these_tests_are_like_those_of_python_2(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    stored = (tmp_path / "test_batch").read_bytes()
    asked = {argument for op, argument, _ in pickletools.genops(stored) if op.name == "GLOBAL"}
    assert asked == {"numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype", "_codecs encode"}


def test_other_values_of_svhn_and_usps_are_refused(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    savemat(tmp_path / "test_32x32.mat", {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.ones((3, 1), np.uint8)})
    with pytest.raises(FedscopeError, match=r"X \[32, 32, 3, 4\] and 3 labels; SVHN's is \[32, 32, 3, N\] with N"):
        load_data(f"svhn:{tmp_path}")
    savemat(tmp_path / "test_32x32.mat", {"other": np.zeros(3)})
    with pytest.raises(FedscopeError, match="is truncated or not a MATLAB file of SVHN"):
        load_data(f"svhn:{tmp_path}")
    write_usps(tmp_path)
    (tmp_path / "usps.t.bz2").write_bytes(bz2.compress(b"11 1:0.5\n"))
    with pytest.raises(FedscopeError, match=r"has pixels beyond -1..1 or labels beyond 1..10"):
        load_data(f"usps:{tmp_path}")


def write_pacs(folder: Path, per_class: int = 10) -> None:
    for number, domain in enumerate(("art_painting", "cartoon", "photo", "sketch")):
        for label, name in enumerate(("dog", "elephant")):
            (folder / domain / name).mkdir(parents=True)
            for i in range(per_class):
                pixels = np.full((6, 6, 3), 10 * (2 * number + label) + i, np.uint8)
                Image.fromarray(pixels).save(folder / domain / name / f"pic_{i:03d}.png")


def test_pacs_keeps_its_domains_and_a_tenth_of_each_for_testing(tmp_path: Path) -> None:
    write_pacs(tmp_path / "PACS")
    data = load_data(f"pacs:{tmp_path}")
    assert (len(data.y_train), len(data.y_test), data.classes, data.shape) == (72, 8, 2, (3, 6, 6))
    domains = data.groups["domain"]
    assert domains.names == ("art_painting", "cartoon", "photo", "sketch")
    assert np.bincount(domains.test).tolist() == [2] * 4
    # every image has the brightness of its domain, class and number, so what belongs together can be read off
    level = np.round((np.asarray(data.x_train)[:, 0, 0, 0] * data.deviations[0] + data.means[0]) * 255).astype(int)
    expected = {(10 * (2 * d + y) + i, d, y) for d in range(4) for y in range(2) for i in range(10)}
    assert set(zip(level.tolist(), domains.train.tolist(), data.y_train.tolist(), strict=True)) <= expected
    again = load_data(f"pacs:{tmp_path / 'PACS'}")
    np.testing.assert_array_equal(again.x_test, data.x_test)


def test_pacs_without_a_domain_or_with_other_classes_is_refused(tmp_path: Path) -> None:
    write_pacs(tmp_path, per_class=2)
    (tmp_path / "sketch" / "dog").rename(tmp_path / "sketch" / "cat")
    with pytest.raises(FedscopeError, match="art_painting and sketch differ in the classes cat, dog"):
        load_data(f"pacs:{tmp_path}")
    (tmp_path / "sketch").rename(tmp_path / "drawing")
    with pytest.raises(FedscopeError, match="found no folders art_painting, cartoon, photo, sketch; looked in"):
        load_data(f"pacs:{tmp_path}")


def test_cifar100_knows_its_superclasses(tmp_path: Path) -> None:
    made = write_cifar100(tmp_path)
    groups = load_data(f"cifar100:{tmp_path}").groups["superclass"]
    np.testing.assert_array_equal(groups.train, made["y_train"] // 5)
    np.testing.assert_array_equal(groups.test, made["y_test"] // 5)
    assert groups.names == ("0", "1", "2", "3")


DIGIT5 = {"MNIST": (28, 28), "SVHN": (32, 32, 3), "USPS": (16, 16), "SynthDigits": (32, 32, 3), "MNIST_M": (28, 28, 3)}


def write_digit5(folder: Path) -> dict[str, list[np.ndarray]]:
    made: dict[str, list[np.ndarray]] = {}
    for domain, shape in DIGIT5.items():
        (folder / domain / "partitions").mkdir(parents=True)
        for part in (*(f"partitions/train_part{i}.pkl" for i in range(10)), "test.pkl"):
            x, y = RNG.integers(0, 256, (3, *shape), dtype=np.uint8), RNG.permutation(10)[:3]
            (folder / domain / part).write_bytes(pickle.dumps((x, y)))
            made.setdefault(domain, []).append(x)
    return made


def test_digit5_has_five_domains_of_one_shape(tmp_path: Path) -> None:
    made = write_digit5(tmp_path / "digits")
    (tmp_path / "digits/USPS/test.pkl").write_bytes(pickle.dumps((np.zeros((2, 16, 16), np.uint8), np.array([9, 0]))))
    data = load_data(f"digit5:{tmp_path}")
    assert (data.shape, data.classes, len(data.y_train), len(data.y_test)) == ((3, 28, 28), 10, 150, 14)
    domain = data.groups["domain"]
    assert np.bincount(domain.train).tolist() == [30] * 5
    assert np.bincount(domain.test).tolist() == [3, 3, 2, 3, 3]
    pixels = np.round(
        (np.asarray(data.x_train) * np.array(data.deviations)[:, None, None] + np.array(data.means)[:, None, None])
        * 255
    )
    # what has its size already keeps its pixels: grey ones three times, coloured ones as they are
    np.testing.assert_array_equal(pixels[:3], np.stack([made["MNIST"][0]] * 3, axis=1))
    np.testing.assert_array_equal(pixels[domain.train == 4][:3], made["MNIST_M"][0].transpose(0, 3, 1, 2))
    # a picture of one brightness keeps it when it is resized
    test = np.asarray(data.x_test)[domain.test == 2]
    assert np.ptp(test, axis=(0, 2, 3)).max() == 0


def write_femnist(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    made = {}
    for split, writers in (("train", ("f1_02", "f0_11", "f9_07")), ("test", ("f0_11", "f5_01"))):
        with h5py.File(folder / f"fed_emnist_{split}.h5", "w") as file:
            for n, writer in enumerate(writers, start=2):
                x, y = RNG.integers(0, 256, (n, 28, 28)), RNG.integers(0, 62, n)
                file[f"examples/{writer}/pixels"] = (x / 255).astype(np.float32)
                file[f"examples/{writer}/label"] = y.astype(np.int32)
                made[f"{split}/{writer}"] = x, y
    return made


def test_femnist_knows_the_writer_of_every_image(tmp_path: Path) -> None:
    made = write_femnist(tmp_path)
    data = load_data(f"femnist:{tmp_path}")
    user = data.groups["user"]
    assert user.names == ("f0_11", "f1_02", "f5_01", "f9_07")
    pixels = np.round((np.asarray(data.x_train) * data.deviations[0] + data.means[0]) * 255).astype(int)[:, 0]
    for number, writer in enumerate(user.names):
        for split, of, y in (("train", user.train, data.y_train), ("test", user.test, data.y_test)):
            expected = made.get(f"{split}/{writer}", (np.empty((0, 28, 28)), np.empty(0)))
            np.testing.assert_array_equal(y[of == number], expected[1])
            if split == "train":
                np.testing.assert_array_equal(pixels[of == number], expected[0])
    split = partition("natural", data.y_train, data.classes, 3, seed=0, groups={"user": user.train})
    assert [len(part) for part in split.clients] == [3, 2, 4]  # f0_11, f1_02, f9_07


def test_damaged_writers_and_pairs_are_refused(tmp_path: Path) -> None:
    write_femnist(tmp_path)
    with h5py.File(tmp_path / "fed_emnist_test.h5", "r+") as file:
        file["examples/f5_01/pixels"][0, 0, 0] = 7.0
    with pytest.raises(FedscopeError, match=r"fed_emnist_test.h5: writer f5_01 has a pixel of 7; they are within 0..1"):
        load_data(f"femnist:{tmp_path}")
    for pixels, labels, message in (
        (
            np.zeros((2, 27, 28)),
            [0, 1],
            r"writer f1 has pixels \[2, 27, 28\] of float64 and 2 labels; they are numbers ",
        ),
        (np.zeros((2, 28, 28)), [0], r"writer f1 has pixels \[2, 28, 28\] of float64 and 1 labels"),
        (np.zeros((2, 28, 28), "S1"), [0, 1], r"writer f1 has pixels \[2, 28, 28\] of \|S1 and 2 labels"),
        (np.zeros((2, 28, 28)), [0, 62], r"writer f1 has the label 62; the classes of FEMNIST are 0 to 61"),
        (np.zeros((2, 28, 28)), [0, 0.5], r"writer f1 has labels that are not whole numbers; copy the file again"),
    ):
        with h5py.File(tmp_path / "fed_emnist_test.h5", "w") as file:
            file["examples/f1/pixels"], file["examples/f1/label"] = pixels, labels
        with pytest.raises(FedscopeError, match=message):
            load_data(f"femnist:{tmp_path}")
    with h5py.File(tmp_path / "fed_emnist_test.h5", "w") as file:
        file.create_group("examples")
    with pytest.raises(FedscopeError, match="has no writers"):
        load_data(f"femnist:{tmp_path}")
    (tmp_path / "fed_emnist_test.h5").write_bytes(b"no hdf5")
    with pytest.raises(FedscopeError, match=r"fed_emnist_test\.h5"):
        load_data(f"femnist:{tmp_path}")
    write_digit5(tmp_path)
    for held, message in (
        ([1, 2, 3], "is not a pair of images and labels"),
        ((np.zeros((2, 28, 28)), np.zeros(2)), r"has images \[2, 28, 28\] of float64 and 2 labels"),
        ((np.zeros((2, 28, 28), np.uint8), np.zeros(3)), "and 3 labels"),
    ):
        (tmp_path / "SVHN/test.pkl").write_bytes(pickle.dumps(held))
        with pytest.raises(FedscopeError, match=message):
            load_data(f"digit5:{tmp_path}")
