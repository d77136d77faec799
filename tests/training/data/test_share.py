"""``data.share``: a share of every class, seeded; and a partition of what is left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError
from fedscope.training import Config, load_data, partition
from fedscope.training.data.split import NO_GROUPS, used_samples


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    share=st.floats(0.001, 0.999),
    seed=st.integers(0, 10**6),
)
def test_of_each_class_its_share_and_at_least_one_sample(counts: list[int], share: float, seed: int) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    used = used_samples(labels, share, seed, NO_GROUPS)
    assert used.tolist() == sorted(set(used.tolist())), "ascending, none twice"
    assert [int((labels[used] == k).sum()) for k in range(len(counts))] == [
        max(1, round(share * count)) for count in counts
    ]
    assert used_samples(labels, share, seed, NO_GROUPS).tolist() == used.tolist()


def test_the_seed_draws_which_samples_and_a_larger_share_holds_a_smaller_one() -> None:
    labels = np.arange(1000) % 7
    some = {seed: set(used_samples(labels, 0.3, seed, NO_GROUPS).tolist()) for seed in range(3)}
    assert len(some[0] & some[1]) < 200, "two draws of 300 of 1000 share about 90"
    assert some[1] != some[2]
    assert some[0] < set(used_samples(labels, 0.5, 0, NO_GROUPS).tolist())
    assert used_samples(labels, 1.0, 0, NO_GROUPS).tolist() == list(range(1000))


def test_of_every_domain_the_share_of_every_class() -> None:
    labels, domain = np.arange(1200) % 3, np.arange(1200) // 400
    used = used_samples(labels, 0.25, 5, {"domain": domain})
    pairs = domain[used] * 3 + labels[used]
    assert set(np.bincount(pairs).tolist()) <= {33, 34}, "a quarter of 133 or 134"
    without = used_samples(labels, 0.25, 5, NO_GROUPS)
    assert set(np.bincount(domain[without] * 3 + labels[without]).tolist()) != {33, 34}, "by chance alone"


@pytest.mark.parametrize("text", ["iid", "shards:2", "dirichlet:0.5", "pathological:2", "dirichlet-clients:0.5"])
def test_a_partition_deals_out_what_the_share_uses_and_nothing_else(text: str) -> None:
    labels = np.random.default_rng(1).integers(0, 5, 2000)
    used = used_samples(labels, 0.2, 3, NO_GROUPS)
    split = partition(text, labels, 5, 8, seed=3, share=0.2, client_test=0.25)
    assert split.test is not None
    dealt = np.concatenate([*split.clients, *split.test])
    assert len(set(dealt.tolist())) == len(dealt), "no sample is dealt twice"
    assert set(dealt.tolist()) <= set(used.tolist())
    if text != "pathological:2":  # which leaves out what no client has a place for
        assert len(dealt) == len(used)
    assert split.label_counts.sum() == sum(map(len, split.clients))


def test_without_a_share_the_split_is_what_it_was() -> None:
    labels = np.random.default_rng(1).integers(0, 5, 500)
    one, other = (partition("shards:2", labels, 5, 8, seed=3, **more) for more in ({}, {"share": 1.0}))
    assert all(np.array_equal(a, b) for a, b in zip(one.clients, other.clients, strict=True))


def test_more_clients_than_the_share_has_samples_are_refused() -> None:
    digits = load_data("digits")
    with pytest.raises(
        FedscopeError,
        match=r"data\.clients = 50 is more than the 10 training samples that data\.share = 0\.01 uses; use fewer "
        "clients or a larger share",
    ):
        partition("iid", digits.y_train, 10, 50, seed=0, share=0.01)


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (0, r"data\.share = 0 is out of range: it must be greater than 0"),
        (1.5, r"data\.share = 1\.5 is out of range: it must be at most 1"),
        ("half", r"data\.share = 'half' has the wrong type: it takes a number"),
    ],
)
def test_what_is_no_share_is_refused(share: object, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        Config.read({"data": {"share": share}})
