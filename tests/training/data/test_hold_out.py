"""Samples of one split are divided for tests: by class, always alike, and never twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError
from fedscope.training import train
from fedscope.training.data.custom import taken_data
from fedscope.training.data.hold_out import SHARE, hold_out


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5).filter(lambda counts: sum(counts) > 1))
def test_a_fifth_of_every_class_is_set_aside_and_nothing_is_lost(counts: list[int]) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    made = hold_out(taken_data((x, y)))
    train, test = np.asarray(made.x_train)[:, 0], np.asarray(made.x_test)[:, 0]
    assert sorted([*train, *test]) == list(range(len(y)))
    assert (made.y_train == y[train.astype(int)]).all(), "labels stay with their samples"
    assert (made.y_test == y[test.astype(int)]).all()
    for kind, count in enumerate(counts):
        if max(counts) > 1:
            assert (made.y_test == kind).sum() == min(max(1, round(SHARE * count)), count - 1)
    assert made.held_out
    again = hold_out(taken_data((x, y)))
    assert np.array_equal(np.asarray(again.x_test), np.asarray(made.x_test))


def test_one_sample_cannot_be_divided() -> None:
    with pytest.raises(FedscopeError, match=r"has 1 samples, of which none can be set aside for tests; give more"):
        hold_out(taken_data((np.zeros((1, 2), np.float32), np.zeros(1, np.int64))))


@pytest.mark.parametrize(
    ("data", "more", "words"),
    [
        ("one", {}, r"a fifth of data=\(x, y\) is set aside for tests, so that these numbers are other samples of x"),
        ("two", {"data.share": 0.5}, r"data.share = 0.5 leaves some of them out; leave data.share out"),
        ("two", {}, ""),
    ],
)
def test_samples_listed_by_number_are_those_that_were_given(
    data: str, more: dict[str, float], words: str, tmp_path: Path
) -> None:
    y = (np.arange(100) >= 40).astype(int)
    x = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    given = {"one": (x, y), "two": ((x, y), (x[:9], y[:9]))}[data]
    parts = [list(range(40)), list(range(40, 80))]
    how = {"data": given, "partition": parts, "model": torch.nn.Linear(3, 2), "rounds": 1, "participation": 1.0}
    if words:
        with pytest.raises(FedscopeError, match=words):
            train(more, tmp_path / "run", **how)
        return
    made = train(more, tmp_path / "run", **how)
    np.testing.assert_array_equal(made.partition.label_counts, [[40, 0], [0, 40]])
