"""Which rounds are kept, and the estimate of their size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    RetentionPolicy,
    RoundRecord,
    TensorEntry,
    Weights,
    size_on_disk,
    write_round,
)


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_and_last_keep_what_they_say(n, total):
    rounds = range(1, total + 1)
    assert [t for t in rounds if RetentionPolicy.parse(f"every:{n}").keeps(t, total)] == list(range(n, total + 1, n))
    assert [t for t in rounds if RetentionPolicy.parse(f"last:{n}").keeps(t, total)] == list(rounds)[-n:]


def test_all_none_and_lists():
    assert [RetentionPolicy.parse(value).keeps(3, 9) for value in ("all", "none", [1, 3], [2])] == [
        True,
        False,
        True,
        False,
    ]
    assert RetentionPolicy.parse([3, 1, 3]) == RetentionPolicy.parse((1, 3))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("evry:5", r'record.globals = "evry:5" is not a recording policy; did you mean "every"\? give "all", "none"'),
        ("sometimes", r'"sometimes" is not a recording policy; give "all", "none", "every:N", "last:N" or a list'),
        ("every", r'"every" needs a whole number from 1 on, as in "every:10"'),
        ("last:0", 'needs a whole number from 1 on, as in "last:10"'),
        ("all:3", "is not a recording policy"),
        (7, "record.globals = 7 is not a recording policy"),
        ([1, 0], "record.globals names round 0; rounds are whole numbers from 1 on"),
        ([True], "names round True"),
    ],
)
def test_other_policies_are_refused_by_name(value, sentence):
    with pytest.raises(FedscopeError, match=sentence):
        RetentionPolicy.parse(value, place="record.globals")


def test_estimate_is_the_size_of_the_file(tmp_path):
    layout = Layout(tuple(TensorEntry(f"layer{i}.weight", (100, 10 + i), "float32", "parameter") for i in range(8)))
    w = Weights(layout, np.ones(layout.size, np.float32), {})
    clients = Weights(layout, np.ones((6, layout.size), np.float32), {})
    ids = np.arange(6)
    record = RoundRecord(1, w, clients, w, w, ids, ids, ids, ids / 1, ids / 15)
    write_round(tmp_path / "00001.h5", record)
    estimate = size_on_disk(layout, 6, 1, RetentionPolicy.parse("all"), RetentionPolicy.parse("all"))
    assert estimate == pytest.approx((tmp_path / "00001.h5").stat().st_size, rel=0.03)


def test_estimate_of_the_large_example():
    layout = Layout((TensorEntry("w", (11_180_000,), "float32", "parameter"),))
    size = size_on_disk(layout, 20, 1000, RetentionPolicy.parse("all"), RetentionPolicy.parse("none"))
    assert size / 1e12 == pytest.approx(0.9, abs=0.05)
    less = size_on_disk(layout, 20, 1000, RetentionPolicy.parse("every:10"), RetentionPolicy.parse("none"))
    assert less == pytest.approx(size / 10, rel=0.01)
