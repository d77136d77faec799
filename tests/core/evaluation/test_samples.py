"""Subsets keep the classes' proportions and depend on their seed alone."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError
from fedscope.evaluation.samples import Samples


def make(labels: list[int], classes: int) -> Samples:
    n = len(labels)
    x = torch.arange(n, dtype=torch.float32).reshape(n, 1)
    return Samples(x, torch.tensor(labels), classes, "toy", "test", np.arange(n) + 100, "abc")


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=60), count=st.integers(1, 60), seed=st.integers(0, 2**32)
)
def test_subset_is_stratified_by_largest_remainder(labels: list[int], count: int, seed: int) -> None:
    whole = make(labels, 5)
    part = whole.limit(count, seed)
    if count >= len(labels):
        assert part is whole
        return
    assert len(part) == count
    have = np.bincount(labels, minlength=5)
    got = np.bincount(part.y.numpy(), minlength=5)
    shares = [Fraction(count * int(n), len(labels)) for n in have]
    up = [c for c in range(5) if got[c] > int(shares[c])]
    assert all(int(share) <= g <= int(share) + 1 for share, g in zip(shares, got, strict=True))
    left_out = [c for c in range(5) if c not in up]
    rest = [share - int(share) for share in shares]
    assert all(rest[i] >= rest[j] for i in up for j in left_out), "the largest remainders are rounded up"
    # rows, labels and indices stay together and in order, each sample at most once
    rows = part.indices - 100
    assert (np.diff(rows) > 0).all()
    assert part.x[:, 0].tolist() == rows.tolist()
    assert part.y.tolist() == [labels[i] for i in rows]
    again = whole.limit(count, seed)
    assert np.array_equal(again.indices, part.indices)
    assert (part.sha256, part.name, part.split) == ("abc", "toy", "test")


def test_another_seed_draws_other_samples() -> None:
    whole = make([0, 1] * 50, 2)
    assert not np.array_equal(whole.limit(10, 0).indices, whole.limit(10, 1).indices)


def test_channels_last_images_stay_channels_last() -> None:
    x = torch.randn(20, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    whole = Samples(x, torch.zeros(20, dtype=torch.int64), 2, "toy", "test", np.arange(20))
    part = whole.limit(5)
    assert torch.equal(part.x, x[torch.from_numpy(part.indices)])


def test_bad_samples_are_refused() -> None:
    whole = make([0, 1, 2], 3)
    with pytest.raises(FedscopeError, match=r"a limit of 0 leaves no sample of toy test; take at least 1"):
        whole.limit(0)
    with pytest.raises(FedscopeError, match=r"labels from 0 to 2, but its 2 classes count from 0"):
        make([0, 1, 2], 2)
    with pytest.raises(FedscopeError, match=r"3 inputs, 2 labels and 3 indices"):
        Samples(whole.x, whole.y[:2], 3, "toy", "test", whole.indices)
    with pytest.raises(FedscopeError, match="toy test has no samples"):
        Samples(whole.x[:0], whole.y[:0], 3, "toy", "test", whole.indices[:0])
    with pytest.raises(FedscopeError, match=r"toy test has the label 5, but its 5 classes count from 0"):
        make([5, 5], 5)


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (torch.tensor([0.5, 2.0]), r"float32 labels of shape \[2\]"),
        (torch.tensor([0.0, 1.0], dtype=torch.float64), r"float64 labels of shape \[2\]"),
        (torch.tensor([[0], [1]]), r"labels of shape \[2, 1\]"),
        (torch.tensor([[1, 0, 1], [0, 1, 1]]), r"labels of shape \[2, 3\]"),
        (torch.tensor([[True, False], [True, True]]), r"labels of shape \[2, 2\]"),
        (torch.eye(2), r"float32 labels of shape \[2, 2\]"),
    ],
)
def test_targets_of_a_regression_and_several_labels_are_refused(y: torch.Tensor, kind: str) -> None:
    remedy = (
        r"one class a sample; give whole numbers from 0, \[n\] \(of one-hot rows y\.argmax\(1\)\), or another --task$"
    )
    with pytest.raises(FedscopeError, match=f"^toy test has {kind}, as of a regression or .*{remedy}") as refusal:
        Samples(torch.ones(2, 4), y, 3, "toy", "test", np.arange(2))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.bool])
def test_whole_numbers_of_any_type_are_labels(dtype: torch.dtype) -> None:
    made = Samples(torch.ones(2, 4), torch.tensor([1, 0], dtype=dtype), 2, "toy", "test", np.arange(2))
    assert made.y.dtype == torch.int64
    assert made.y.tolist() == [1, 0]
