"""LEAF's JSON of FEMNIST and Shakespeare, as its scripts write it."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.training import load_data, partition
from fedscope.training.data.formats import cache, leaf
from fedscope.training.data.published.shakespeare import CHARACTERS, UNKNOWN

pytestmark = pytest.mark.same_elsewhere

RNG = np.random.default_rng(5)


def user_of(count: int) -> dict[str, list[Any]]:
    """A writer's samples, as ``data_to_json.py`` makes them of pictures: bytes / 255."""
    images = RNG.integers(0, 256, (count, 784)) / 255
    return {"x": images.tolist(), "y": RNG.integers(0, 61, count).tolist()}


def windows_of(line: str) -> dict[str, list[Any]]:
    """A role's samples, as ``shake_utils.py`` makes them of a line: every window of 80 and the character behind it."""
    line = " " * 80 + line
    starts = range(len(line) - 80)
    return {"x": [line[i : i + 80] for i in starts], "y": [line[i + 80] for i in starts]}


def write_leaf(path: Path, data: dict[str, dict[str, list[Any]]], **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = [len(own["y"]) for own in data.values()]
    path.write_text(json.dumps({"users": list(data), "num_samples": counts, "user_data": data, **more}))


@pytest.fixture
def femnist(tmp_path: Path) -> tuple[Path, dict[str, dict[str, list[Any]]]]:
    """Two files of all samples; a writer has one sample, and one has none."""
    first = {"f0001_41": user_of(20), "f0000_14": user_of(1), "f0009_00": user_of(0)}
    second = {"f0002_07": user_of(9)}
    write_leaf(tmp_path / "all_data" / "all_data_0.json", first)
    write_leaf(tmp_path / "all_data" / "all_data_1.json", second)
    return tmp_path, {**first, **second}


def bytes_of(own: dict[str, list[Any]]) -> np.ndarray:
    return np.round(np.array(own["x"]).reshape(-1, 28, 28) * 255).astype(int)


def pixels(data: Any, split: str) -> np.ndarray:
    x = np.asarray(getattr(data, f"x_{split}"))[:, 0]
    whole: np.ndarray = np.round((x * data.deviations[0] + data.means[0]) * 255).astype(int)
    return whole


def test_samples_together_are_split_by_writer_and_none_is_lost(femnist: Any) -> None:
    folder, written = femnist
    data = load_data(f"femnist:{folder}")
    user = data.groups["user"]
    assert user.names == ("f0000_14", "f0001_41", "f0002_07", "f0009_00")
    assert np.bincount(user.train, minlength=4).tolist() == [1, 18, 8, 0]
    assert np.bincount(user.test, minlength=4).tolist() == [0, 2, 1, 0]
    assert (data.classes, data.shape) == (62, (1, 28, 28)), "no sample has the last class"
    for number, name in enumerate(user.names):
        own = bytes_of(written[name]).reshape(-1, 784).tolist()
        expected = {(tuple(x), y) for x, y in zip(own, written[name]["y"], strict=True)}
        found: list[Any] = []
        for split, of, y in (("train", user.train, data.y_train), ("test", user.test, data.y_test)):
            rows = of == number
            found += zip(map(tuple, pixels(data, split)[rows].reshape(-1, 784).tolist()), y[rows].tolist(), strict=True)
        assert set(found) == expected
        assert len(found) == len(expected)
    again = load_data(f"femnist:{folder / 'all_data'}/..")
    assert again.sha256 == data.sha256, "always the same samples"
    # drawn: a writer's last samples may be its last classes
    tested = {y for y, of in zip(data.y_test.tolist(), user.test.tolist(), strict=True) if of == 1}
    assert tested != set(written["f0001_41"]["y"][18:])
    split = partition("natural", data.y_train, data.classes, 3, seed=0, groups={"user": user.train})
    assert [len(part) for part in split.clients] == [1, 18, 8]


@pytest.mark.parametrize("below", ["", "data", "femnist/data"])
def test_leafs_own_split_is_kept(tmp_path: Path, below: str) -> None:
    """As ``split_data.py`` writes it: users of one sample are no longer listed, but stand in ``user_data``, empty."""
    writers: dict[str, dict[str, dict[str, list[Any]]]] = {"train": {}, "test": {}}
    for split, counts in (("train", (3, 2)), ("test", (1, 2))):
        writers[split] = {f"f000{i}_00": user_of(count) for i, count in enumerate(counts)}
        data = {**writers[split], "f0007_00": {"x": [], "y": []}}
        listed = list(writers[split])
        path = tmp_path / below / split / f"all_data_0_niid_0_keep_0_{split}_9.json"
        write_leaf(path, data, users=listed, num_samples=list(counts))
    write_leaf(tmp_path / below / "all_data" / "all_data_0.json", {"f0000_00": user_of(1)})
    data = load_data(f"femnist:{tmp_path}")
    user = data.groups["user"]
    assert (user.names, user.train.tolist(), user.test.tolist()) == (
        *(("f0000_00", "f0001_00"), [0, 0, 0, 1, 1], [0, 1, 1]),
    )
    for split, y in (("train", data.y_train), ("test", data.y_test)):
        own = writers[split].values()
        np.testing.assert_array_equal(pixels(data, split), np.concatenate([bytes_of(held) for held in own]))
        assert y.tolist() == [label for held in own for label in held["y"]]


def test_windows_become_sequences_that_end_with_the_character_that_was_given(tmp_path: Path) -> None:
    lines = {"HAMLET_HAMLET": "To be, or not to be: caf\xe9 \U0001f3ad", "MACBETH_MACBETH": "Out!"}
    for split in ("train", "test"):
        write_leaf(
            tmp_path / split / "a.json", {role: windows_of(line) for role, line in lines.items()}, hierarchies=["", ""]
        )
    data = load_data(f"shakespeare:{tmp_path}")
    assert (data.task.name, data.classes, data.shape) == ("sequences", 90, (80,))
    known = {character: i + 1 for i, character in enumerate(CHARACTERS)}
    expected = [
        [known.get(character, UNKNOWN) for character in f"{' ' * 80}{line}"[i : i + 81]]
        for line in lines.values()
        for i in range(len(line))
    ]
    np.testing.assert_array_equal(data.x_test, np.array(expected)[:, :-1])
    np.testing.assert_array_equal(data.y_test, np.array(expected)[:, 1:])
    assert np.bincount(data.groups["user"].train).tolist() == [len(line) for line in lines.values()]


def test_a_role_is_tested_on_the_end_of_what_it_says(tmp_path: Path) -> None:
    line = "".join(CHARACTERS[i % 30] for i in range(40))
    write_leaf(tmp_path / "all_data" / "all_data.json", {"A_A": windows_of(line), "B_B": windows_of("B")})
    data = load_data(f"shakespeare:{tmp_path}")
    assert data.y_test[:, -1].tolist() == [CHARACTERS.index(character) + 1 for character in line[36:]]
    assert data.groups["user"].train.tolist() == [0] * 36 + [1]


def test_a_run_on_leafs_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_leaf(Path("s/all_data/a.json"), {name: windows_of(name * 8) for name in ("ROMEO", "JULIET")})
    write_leaf(Path("f/all_data/a.json"), {name: user_of(12) for name in ("f0", "f1")})
    how = ["--method", "fma", "--partition", "natural", "--clients", "2", "--rounds", "1", "--epochs", "1"]
    for data, model in (("shakespeare:s", "gru"), ("femnist:f", "mlp")):
        words = ["--data", data, "--model", model, "--participation", "1", "--out", model]
        assert run(["train", *how, *words]) == 0
        assert np.isfinite(Run.open(model).metrics()["test_loss"]).all()


# --- what is wrong with files ---


def spoiled(held: dict[str, Any], how: str) -> dict[str, Any]:
    """A file's content with something wrong in the writer f0001_41."""
    own = held["user_data"]["f0001_41"]
    if how == "pixels":
        own["x"][3] = own["x"][3][:-1]
    elif how == "no list":
        own["x"][3] = "pixels"
    elif how == "dark":
        own["x"][3][5] = -0.25
    elif how == "bright":
        own["x"][3][5] = 255
    elif how == "nan":
        own["x"][3][5] = float("nan")
    elif how == "text":
        own["x"][3][5] = "0.5"
    elif how == "deep":
        own["x"][3][5] = [0.5]
    elif how == "class":
        own["y"][3] = 62
    elif how == "below":
        own["y"][3] = -1
    elif how == "half":
        own["y"][3] = 1.5
    elif how == "fewer":
        own["y"].pop()
    elif how == "count":
        held["num_samples"][0] += 1
    elif how == "without":
        held["user_data"]["f0001_42"] = held["user_data"].pop("f0001_41")
        held["user_data"]["f0001_42"] = {"x": [], "y": []}
    elif how == "unlisted":
        held["users"], held["num_samples"] = held["users"][1:], held["num_samples"][1:]
    elif how == "twice":
        held["users"][1] = held["users"][0]
    elif how == "lists":
        held["num_samples"].pop()
    elif how == "no x":
        del own["x"]
    elif how == "no data":
        del held["user_data"]
    else:
        held = {"words": ["users", "num_samples"]}
    return held


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("pixels", r"all_data_0.json: user f0001_41 has an image of 783 pixels; those of FEMNIST have 784 pixels"),
        ("no list", r"user f0001_41 has an image of no list but pixels; those of FEMNIST have"),
        ("dark", r"user f0001_41 has a pixel of -0.25; they are within 0..1"),
        ("bright", r"user f0001_41 has a pixel of 255; they are within 0..1"),
        ("nan", r"user f0001_41 has a pixel of nan; they are within 0..1"),
        ("text", r"user f0001_41 has pixels that are not numbers; copy the file again"),
        ("deep", r"user f0001_41 has pixels that are not numbers; copy the file again"),
        ("class", r"user f0001_41 has the label 62; the classes of FEMNIST are 0 to 61"),
        ("below", r"user f0001_41 has the label -1; the classes of FEMNIST are 0 to 61"),
        ("half", r"user f0001_41 has labels that are not whole numbers; copy the file again"),
        ("fewer", r"user f0001_41 has 20 x and 19 y, and num_samples says 20; copy it again"),
        ("count", r"user f0001_41 has 20 x and 20 y, and num_samples says 21; copy it again"),
        ("without", r"all_data_0.json lists the user f0001_41, but user_data has none of that name; copy it again"),
        ("unlisted", r"all_data_0.json has samples of the user f0001_41, whom its users do not list; copy it again"),
        ("twice", r"all_data_0.json lists the user f0001_41 twice; copy it again"),
        ("lists", r"is not a JSON file of LEAF: it does not list users and as many num_samples; copy it again"),
        ("no x", r"user f0001_41 has no lists x and y; copy it again"),
        ("no data", r"all_data_0.json is not a JSON file of LEAF: it has no user_data; copy it again"),
        ("foreign", r"is not a JSON file of LEAF: it does not list users and as many num_samples; copy it again"),
    ],
)
def test_what_is_wrong_with_a_user_is_one_sentence(
    femnist: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, message: str
) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    path = femnist[0] / "all_data" / "all_data_0.json"
    path.write_text(json.dumps(spoiled(json.loads(path.read_text()), how)))
    with pytest.raises(FedscopeError, match=message):
        load_data(f"femnist:{femnist[0]}")
    assert list((tmp_path / "cache").iterdir()) == [], "nothing half written"


@pytest.mark.parametrize("at", [0.0, 0.001, 0.3, 0.999])
def test_a_file_that_was_cut_is_refused(femnist: Any, at: float) -> None:
    path = femnist[0] / "all_data" / "all_data_0.json"
    whole = path.read_text()
    path.write_text(whole[: int(at * len(whole))])
    with pytest.raises(FedscopeError, match=r"all_data_0.json is (truncated or )?not a JSON file of LEAF"):
        load_data(f"femnist:{femnist[0]}")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("x", "too short", r"user A_A has a window of 9 characters; it has 80 in LEAF's Shakespeare"),
        ("x", 3, r"user A_A has a window of no text but 3; it has 80 in LEAF's Shakespeare"),
        ("y", "ab", r"user A_A has a next character of 2 characters; it has 1 in LEAF's Shakespeare"),
        ("y", 0, r"user A_A has a next character of no text but 0; it has 1"),
    ],
)
def test_windows_of_other_lengths_are_refused(tmp_path: Path, key: str, value: Any, message: str) -> None:
    own = windows_of("But soft!")
    own[key][4] = value
    write_leaf(tmp_path / "all_data" / "a.json", {"A_A": own})
    with pytest.raises(FedscopeError, match=message):
        load_data(f"shakespeare:{tmp_path}")


def test_what_is_missing_is_named_with_both_layouts(femnist: Any, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    sentence = r"found no fed_emnist_train.h5, fed_emnist_test.h5, nor LEAF's train/\*.json and test/\*.json or all_dat"
    with pytest.raises(FedscopeError, match=sentence):
        load_data(f"femnist:{tmp_path / 'none'}")
    with pytest.raises(FedscopeError, match=r"found no shakespeare_train.h5, shakespeare_test.h5, nor LEAF's train/"):
        load_data(f"shakespeare:{tmp_path / 'none'}")
    write_leaf(tmp_path / "half" / "train" / "a.json", {"f": user_of(2)})
    with pytest.raises(
        FedscopeError, match=r"half has train/\*.json, but no test/\*.json; copy that folder, too, or ma"
    ):
        load_data(f"femnist:{tmp_path / 'half'}")
    # another set's files
    with pytest.raises(FedscopeError, match=r"user f0001_41 has a window of no text but \[0"):
        load_data(f"shakespeare:{tmp_path}")
    # and where both layouts are, the first one
    for split in ("train", "test"):
        with h5py.File(tmp_path / f"fed_emnist_{split}.h5", "w") as file:
            file["examples/f1/pixels"], file["examples/f1/label"] = np.zeros((2, 28, 28), np.float32), [0, 1]
    assert len(load_data(f"femnist:{tmp_path}").y_train) == 2


def test_a_file_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight files take no more than two, beside what is decoded, and each is read whole once."""
    peaks: dict[int, int] = {}
    real: Callable[..., Any] = leaf._users
    whole: list[str] = []
    monkeypatch.setattr(leaf, "_users", lambda path, head: (whole.append(path.name), real(path, head))[1])
    for count in (2, 8):
        for i in range(count):
            write_leaf(tmp_path / str(count) / "all_data" / f"all_data_{i}.json", {f"f{i}": user_of(60)})
        found = leaf.located_in_leaf("femnist", str(tmp_path / str(count)), [("no",)], inside=(), source="")
        assert isinstance(found, leaf.LeafFiles)
        rooms = {name: cache.in_memory((60 * count, 28, 28)) for name in ("x_train", "x_test")}

        def room(name: str, shape: tuple[int, ...], rooms: dict[str, np.ndarray] = rooms) -> np.ndarray:
            return rooms[name][: shape[0]]

        from fedscope.training.data.published.femnist import from_lists

        whole.clear()
        tracemalloc.start()
        leaf.read_leaf(found, room, (28, 28), from_lists, np.empty(0, np.int64), drawn=True)
        peaks[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sorted(whole) == sorted(path.name for path in found.files)
    assert peaks[8] < 1.2 * peaks[2]
