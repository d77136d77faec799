"""What a recorder says at once of data that questions refuse, or misread; and what it stays silent about."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.recorder import unmeasurable_data

pytestmark = pytest.mark.same_elsewhere
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 4)).astype(np.float32), RNG.integers(0, 3, 20)
TOKENS = RNG.integers(1, 30, (6, 9))
IMAGES = RNG.integers(0, 9, (20, 1, 2, 2))
BROKEN = X.copy()
BROKEN[3, 1] = np.nan
ONE_HOT = np.eye(3, dtype=np.float32)[Y]


def told(path: Path, **given: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Recorder(path / "run", **given).close()
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((BROKEN, Y), "x_test has 1 value that is not finite, so questions will refuse it; fill in numbers, or leave"),
        ((X, np.where(Y == 0, np.nan, 1.5)), "values that are not finite, so questions will refuse it"),
        (((X[:, :3], Y), (X, Y)), "x_train has samples of shape [3], and x_test of [4], so questions will refuse them"),
        ((X, ONE_HOT), "y_test has shape [20, 3], one 1 a row, and questions about classes take the classes' numbers"),
        ((X, ONE_HOT.astype(int)), "give y_test.argmax(1), or with each question the task that takes it (--task)"),
        ((IMAGES, Y), "x_test has type int64 and shape [20, 1, 2, 2], so questions about classes will refuse it; give"),
        ((TOKENS, TOKENS), "y_test is x_test, token by token, so each is told from itself; to have the next one told"),
    ],
)
def test_arrays_that_questions_refuse_are_told_as_the_recorder_is_made(data: Any, said: str, tmp_path: Path) -> None:
    found = told(tmp_path, data=data)
    assert len(found) == 1
    assert said in found[0]
    assert found[0].startswith(f"{tmp_path}/run: in data= ")


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        (X, Y[:, None]),  # as keras has labels
        ((X[:10], Y[:10]), (X[10:], Y[10:])),
        (X, X[:, 0]),  # one number
        (X, X[:, :1]),
        (X, X),  # of an auto-encoder
        (X, RNG.normal(size=(20, 3))),
        (X, (RNG.random((20, 5)) < 0.5).astype(np.float32)),  # several labels
        (X, RNG.integers(0, 2, 20)),
        (X[:3], np.eye(3)),  # three samples
        (X, ((X[:, 0] > 0) * 1.0)[:, None]),  # one logit
        (X.reshape(20, 2, 2), RNG.integers(0, 3, (20, 2, 2))),  # maps
        (TOKENS[:, :-1], TOKENS[:, 1:]),
        (TOKENS, np.arange(6) % 2),  # a class a text
        (TOKENS.astype(np.uint8), TOKENS.astype(np.uint8)),  # pixels
        (IMAGES.astype(np.uint8), Y),
        {"input_ids": TOKENS, "labels": TOKENS},
    ],
)
def test_what_a_task_takes_is_silent(data: Any, tmp_path: Path) -> None:
    assert told(tmp_path, data=data) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "digts",
            "data='digts' is not a data set that fedscope knows, so each question needs data of its own (data=); did",
        ),
        ("mine", "data='mine' is not a data set that fedscope knows, so each question needs data of its own (data=)"),
        ("npz:nowhere.npz", "data='npz:nowhere.npz' is not here, and questions will look for it; put it there before"),
        ("nowhere.npz", "data='npz:nowhere.npz' is not here"),
        ("folder:nowhere", "data='folder:nowhere' is not here"),
        ("text:no.txt@model", "data='text:no.txt@model' is not here"),
    ],
)
def test_a_name_that_questions_do_not_find_is_told(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = told(tmp_path, data=name)
    assert len(found) == 1
    assert said in found[0]


def test_a_file_is_read_as_questions_will(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, arrays, said in (
        ("good", {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}, ""),
        ("short", {"x": X, "y": Y}, ""),
        ("tokens", {"x": TOKENS}, ""),
        ("batch", {"input_ids": TOKENS, "attention_mask": TOKENS > 0}, ""),
        ("nan", {"x": BROKEN, "y": Y}, "nan.npz' x_test has 1 value that is not finite"),
        # of any type and shape a run may name it
        ("texts", {"x": X, "y": np.array([["animal", "cat"]] * 20)}, ""),
        ("dates", {"x": X.astype("datetime64[s]"), "y": Y}, ""),
        ("one", {"x": np.float32(3), "y": Y}, "x_test has shape [], so questions will refuse it; give samples"),
        ("none", {"x": X, "y": np.float32(3)}, ""),
        (
            "other",
            {"images": X, "labels": Y},
            "the file has images, labels, and no x_test, so questions will refuse it",
        ),
    ):
        np.savez(tmp_path / f"{name}.npz", **arrays)  # type: ignore[arg-type]
        found = told(tmp_path, data=f"npz:{name}.npz")
        assert len(found) == bool(said), found
        assert not said or said in found[0]
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    assert len(told(tmp_path, data="npz:broken.npz")) == 1


def test_a_file_is_read_where_its_arrays_are_not_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed file is small, and its arrays need not be."""
    monkeypatch.setattr(unmeasurable_data, "MOST_READ", 1e5)
    large = np.zeros((50_000, 4), np.float32)
    large[7] = np.nan
    np.savez_compressed(tmp_path / "large.npz", x=large, y=np.zeros(50_000))
    assert (tmp_path / "large.npz").stat().st_size < 1e5
    assert told(tmp_path, data=f"npz:{tmp_path}/large.npz") == []
    np.savez(tmp_path / "other.npz", x=BROKEN, y=Y, more=large)
    assert len(told(tmp_path, data=f"npz:{tmp_path}/other.npz")) == 1, "what else there is, is not read"


def test_names_of_code_and_of_sets_that_are_here_are_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    for name in ("digits", "cifar10", "rotated-digits:8", "mydata:load", "mydata.py:load(2)", "folder:images"):
        assert told(tmp_path, data=name) == [], name


def test_labels_of_whole_numbers_in_floats_are_told_how_they_count(tmp_path: Path) -> None:
    """The remedy was that of data without classes."""
    floats = (X, Y.astype(np.float32))
    with pytest.raises(FedscopeError, match=r"whole numbers as float32, .* give them as y_train\.astype\(np\.int64\)"):
        Recorder(tmp_path / "run", data=(floats, floats), partition={0: [0, 1]})
    assert told(tmp_path, data=((X, Y), (X, Y)), partition={0: [0, 1]}) == []
