"""Partitions: properties every split has, and what each kind promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError
from fedscope.training import draw_cohort, partition
from fedscope.training.partitions.dirichlet_clients import drawn
from fedscope.training.splitting import parse_partition

LABELS = np.random.default_rng(0).integers(0, 10, 400)


@settings(max_examples=30, deadline=None)
@given(
    text=st.sampled_from(
        [
            "iid",
            "shards:1",
            "shards:5",
            "dirichlet:0.05",
            "dirichlet:100",
            "dirichlet-clients:0.001",
            "dirichlet-clients:1",
        ]
    ),
    clients=st.integers(1, 40),
    seed=st.integers(0, 5),
    client_test=st.sampled_from([0.0, 0.25]),
)
def test_every_sample_belongs_to_exactly_one_client(text: str, clients: int, seed: int, client_test: float) -> None:
    split = partition(text, LABELS, 10, clients, seed=seed, client_test=client_test)
    everything = np.concatenate([*split.clients, *(split.test or ())])
    np.testing.assert_array_equal(np.sort(everything), np.arange(len(LABELS)))
    assert len(split.clients) == clients
    assert min(map(len, split.clients)) >= 1
    for part, counts in zip(split.clients, split.label_counts, strict=True):
        np.testing.assert_array_equal(np.bincount(LABELS[part], minlength=10), counts)
    again = partition(text, LABELS, 10, clients, seed=seed, client_test=client_test)
    for a, b in zip(split.clients, again.clients, strict=True):
        np.testing.assert_array_equal(a, b)


def test_client_test_parts_are_the_stated_share() -> None:
    split = partition("iid", LABELS, 10, 4, seed=0, client_test=0.25)
    assert split.test is not None
    assert [len(part) for part in split.test] == [25] * 4
    assert [len(part) for part in split.clients] == [75] * 4


def test_another_seed_gives_another_split() -> None:
    a, b = (partition("iid", LABELS, 10, 5, seed=seed).clients[0] for seed in (0, 1))
    assert not np.array_equal(a, b)


def test_a_shard_is_a_run_of_the_sorted_labels() -> None:
    # 400 samples of 10 equal classes in 10 shards of 40: every shard is one whole class.
    labels = np.repeat(np.arange(10), 40)
    split = partition("shards:1", labels, 10, 10, seed=3)
    assert sorted(int(counts.argmax()) for counts in split.label_counts) == list(range(10))
    assert all(counts.max() == 40 for counts in split.label_counts)


def test_two_shards_hold_at_most_as_many_classes_as_their_borders_allow() -> None:
    labels = np.repeat(np.arange(10), 40)
    split = partition("shards:2", labels, 10, 20, seed=3)
    assert all((counts > 0).sum() <= 2 for counts in split.label_counts)
    assert all(counts.sum() == 20 for counts in split.label_counts)


def test_shards_of_a_given_size_leave_the_other_samples_to_nobody() -> None:
    """10 clients of two shards of 12: 240 of 400 samples; a class of 40 makes 3 shards and a bit."""
    labels = np.repeat(np.arange(10), 40)
    split = partition("shards:2,12", labels, 10, 10, seed=3, client_test=0.25)
    assert split.test is not None
    owned = np.concatenate([*split.clients, *split.test])
    assert len(owned) == len(set(owned.tolist())) == 240
    for own, test in zip(split.clients, split.test, strict=True):
        counts = np.bincount(labels[np.concatenate([own, test])], minlength=10)
        assert counts.sum() == 24
        assert (counts > 0).sum() <= 4  # a shard of 12 lies in two classes at most
    # shards are drawn from all of the data, not from its first classes
    assert {int(label) for label in labels[owned]} >= {0, 9}


def test_a_size_that_uses_all_samples_deals_the_shards_of_no_size() -> None:
    labels = np.repeat(np.arange(10), 40)
    one, other = (partition(text, labels, 10, 20, seed=3) for text in ("shards:2", "shards:2,10"))
    for a, b in zip(one.clients, other.clients, strict=True):
        np.testing.assert_array_equal(a, b)


def test_dirichlet_shares_spread_with_alpha_and_keep_ten_samples() -> None:
    labels = np.repeat(np.arange(10), 400)

    def spread(alpha: float) -> float:
        counts = partition(f"dirichlet:{alpha}", labels, 10, 10, seed=0).label_counts
        assert counts.sum(1).min() >= 10
        return float((counts / counts.sum(1, keepdims=True)).max(1).mean())

    # The largest class's share: about 1 where a client has one class, 0.1 where it has all alike.
    assert spread(0.05) > 0.5 > 0.2 > spread(1000)


def test_dirichlet_ends_where_ten_samples_a_client_are_hopeless() -> None:
    split = partition("dirichlet:0.001", LABELS[:60], 10, 12, seed=0)
    assert min(map(len, split.clients)) >= 5


@settings(max_examples=30, deadline=None)
@given(clients=st.integers(1, 60), each=st.integers(1, 10), seed=st.integers(0, 5))
def test_pathological_clients_hold_exactly_so_many_classes_in_equal_shares(clients: int, each: int, seed: int) -> None:
    assume(clients * each >= 10)
    labels = np.random.default_rng(seed).integers(0, 10, 2000)
    counts = partition(f"pathological:{each}", labels, 10, clients, seed=seed).label_counts
    assert ((counts > 0).sum(1) == each).all()
    holders = (counts > 0).sum(0)
    assert set(holders.tolist()) <= {clients * each // 10, -(-clients * each // 10)}
    for column in counts.T:
        shares = column[column > 0]
        assert shares.max() - shares.min() <= 1
    np.testing.assert_array_equal(counts.sum(0), np.bincount(labels, minlength=10))


@settings(max_examples=30, deadline=None)
@given(clients=st.integers(1, 60), alpha=st.sampled_from([1e-6, 0.05, 1.0, 1e3]), seed=st.integers(0, 5))
def test_dirichlet_clients_have_equal_sizes(clients: int, alpha: float, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 10, 601)
    counts = partition(f"dirichlet-clients:{alpha}", labels, 10, clients, seed=seed).label_counts
    sizes = counts.sum(1)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(counts.sum(0), np.bincount(labels, minlength=10))


@settings(max_examples=40, deadline=None)
@given(clients=st.integers(10, 40), seed=st.integers(0, 5))
def test_dirichlet_clients_of_alpha_0_have_one_class_each(clients: int, seed: int) -> None:
    labels = np.repeat(np.arange(10), 60)
    counts = partition("dirichlet-clients:0", labels, 10, clients, seed=seed).label_counts
    assert ((counts > 0).sum(1) == 1).all()
    if clients % 10 == 0:
        assert set(counts.sum(1).tolist()) == {600 // clients}


@settings(max_examples=40, deadline=None)
@given(clients=st.integers(1, 50), each=st.integers(1, 30), seed=st.integers(0, 5))
def test_natural_clients_are_users(clients: int, each: int, seed: int) -> None:
    user = np.random.default_rng(seed).permutation(np.repeat(np.arange(50), each))
    labels = user % 7
    split = partition("natural", labels, 7, clients, seed=seed, groups={"user": user})
    held = [set(user[part].tolist()) for part in split.clients]
    assert all(len(users) == 1 for users in held)
    assert len(set().union(*held)) == clients
    assert [len(part) for part in split.clients] == [each] * clients


@settings(max_examples=40, deadline=None)
@given(
    each=st.integers(1, 8),
    inside=st.sampled_from(["", ",iid", ",shards:2", ",dirichlet:0.5", ",dirichlet-clients:0.1"]),
    seed=st.integers(0, 5),
)
def test_every_client_has_one_domain_and_a_domain_all_its_samples(each: int, inside: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    domain, labels = random.integers(0, 3, 900), random.integers(0, 5, 900)
    split = partition(f"domains:{each}{inside}", labels, 5, 3 * each, seed=seed, groups={"domain": domain})
    for k, part in enumerate(split.clients):
        assert set(domain[part].tolist()) == {k // each}
    np.testing.assert_array_equal(np.sort(np.concatenate(split.clients)), np.arange(900))


@settings(max_examples=20, deadline=None)
@given(clients=st.integers(1, 60), seed=st.integers(0, 5))
def test_pachinko_clients_have_equal_sizes_and_all_samples(clients: int, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(100), 20))
    split = partition("pachinko", labels, 100, clients, seed=seed, groups={"superclass": labels // 5})
    sizes = split.label_counts.sum(1)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(split.clients)), np.arange(2000))


def test_pachinko_skews_superclasses_and_spreads_the_classes_inside() -> None:
    """Before any class runs out a client's superclass shares are Dir(0.1) over 20 and its classes' Dir(10) over 5."""
    labels = np.repeat(np.arange(100), 500)
    split = partition("pachinko:0.1,10", labels, 100, 500, seed=0, groups={"superclass": labels // 5})
    shares = split.label_counts.reshape(500, 20, 5) / 100
    first = np.random.default_rng(0)  # of all clients: those drawn last take what is left, so the spread is a bound
    largest = shares.sum(2).max(1).mean()
    drawn_shares = first.dirichlet(np.full(20, 0.1), 4000).max(1).mean()
    assert drawn_shares * 0.75 < largest < drawn_shares * 1.1
    root = shares.sum(2)
    inside = (shares[root > 0.3] / root[root > 0.3][:, None]).max(1).mean()
    # the greatest of five shares of Dir(10) is 0.31 on average, of Dir(0.1) 0.87; thirty draws or more add 0.05
    assert 0.25 < inside < 0.5


def test_a_partition_by_groups_says_what_it_went_without() -> None:
    for text, kind in (("natural", "user"), ("domains:2", "domain"), ("pachinko", "superclass")):
        with pytest.raises(FedscopeError, match=rf"goes by the {kind} of a sample, which these data do not know; take"):
            partition(text, LABELS, 10, 4, seed=0)
    with pytest.raises(FedscopeError, match=r"they know the domain of a sample; take another partition"):
        partition("natural", LABELS, 10, 4, seed=0, groups={"domain": LABELS})
    with pytest.raises(
        FedscopeError, match=r"'natural' with 11 clients, but the data have 10 users; give --clients 10"
    ):
        partition("natural", LABELS, 10, 11, seed=0, groups={"user": LABELS})
    with pytest.raises(
        FedscopeError, match=r"'domains:2,iid' splits each of 10 domains into 2 clients; give --clients 20"
    ):
        partition("domains:2", LABELS, 10, 4, seed=0, groups={"domain": LABELS})
    with pytest.raises(FedscopeError, match=r"domain 0 has \d+ samples for 100 clients; take fewer clients a domain"):
        partition("domains:100", LABELS[:200], 10, 200, seed=0, groups={"domain": LABELS[:200] // 5})
    with pytest.raises(FedscopeError, match="splits domains by domain"):
        parse_partition("domains:2,domains:3")
    with pytest.raises(FedscopeError, match="'many' is not a number"):
        parse_partition("domains:many")
    assert parse_partition("domains:3,shards").written() == "domains:3,shards:2"
    assert parse_partition(parse_partition("domains:3,dirichlet:0.5").written()) == parse_partition(
        "domains:3,dirichlet:0.5"
    )


def test_mixtures_of_dirichlet_clients_are_those_of_their_distribution() -> None:
    """Of the clients that chose first, while no class has run out: E q_j = 1/C, var q_j = (1/C)(1 − 1/C)/(Cα + 1)."""
    labels, alpha = np.repeat(np.arange(4), 20_000), 0.5
    random = np.random.default_rng(0)
    left = np.bincount(labels)
    first = np.array([drawn(random.dirichlet(np.full(4, alpha)), left, 400, random) for _ in range(2000)]) / 400
    # 2,000 draws: standard errors 0.0056 of the mean, about 3 % of the variance; the multinomial adds q(1-q)/400
    assert np.abs(first.mean(0) - 0.25).max() < 4 * 0.0056
    variance = 0.25 * 0.75 / (4 * alpha + 1)
    assert first.var(0) == pytest.approx(variance + (0.1875 - variance) / 400, rel=0.12)


def test_a_class_that_has_run_out_is_left_out() -> None:
    random = np.random.default_rng(0)
    assert drawn(np.array([1.0, 0, 0]), np.array([3, 5, 0]), 8, random).tolist() == [3, 5, 0]
    assert drawn(np.array([0.5, 0, 0.5]), np.array([2, 9, 1]), 3, random).tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("text", "clients", "message"),
    [
        ("shards:20", 50, r"data.partition = 'shards:20' with 50 clients needs 1000 shards, but there are only 400"),
        ("iid", 401, r"data.clients = 401 is more than the 400 training samples"),
        ("shard:2", 5, r"'shard' is not a partition .*did you mean \Wshards"),
        ("shards:x", 5, r"'x' is not a number \(shards:shards\)"),
        ("shards:0", 5, r"data.partition.shards = 0 is out of range"),
        ("dirichlet:-1", 5, r"data.partition.alpha = -1 is out of range"),
        (
            "shards:2,30",
            7,
            r"'shards:2,30' with 7 clients needs 14 shards of 30 samples, but the 400 training samples make only 13",
        ),
        ("shards:2,0", 5, r"data.partition.size = 0 is out of range"),
        ("shards:2,1.5", 5, r"data.partition.size = 1.5 has the wrong type: it takes a whole number"),
        ("pathological:11", 5, r"wants 11 classes a client, but the training samples have 10; take at most that many"),
        ("pathological:2", 4, r"with 4 clients has room for 8 of the 10 classes; take more clients, or more classes"),
        ("pathological:10", 90, r"class 0 has \d+ training samples for the 90 clients that are to hold it"),
        ("dirichlet-clients:-0.1", 5, r"data.partition.alpha = -0.1 is out of range"),
        ("dirichlet-clients:0", 9, r"one class a client, but there are 10 classes and 9 clients; take at least 10"),
        ("iid:3", 5, r"gives 1 values, but iid takes 0"),
    ],
)
def test_impossible_partitions_are_refused(text: str, clients: int, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        partition(text, LABELS, 10, clients, seed=0)


@given(clients=st.integers(1, 100), participation=st.floats(0.001, 1.0), round=st.integers(1, 100))
def test_a_cohort_has_the_stated_size_and_distinct_ascending_ids(
    clients: int, participation: float, round: int
) -> None:
    ids = draw_cohort(0, round, clients, participation)
    assert len(ids) == max(1, int(np.round(participation * clients)))
    assert (np.diff(ids) > 0).all()
    assert ids[0] >= 0
    assert ids[-1] < clients


def test_cohorts_cover_all_clients_evenly() -> None:
    counts = np.bincount(np.concatenate([draw_cohort(0, t, 20, 0.25) for t in range(1, 401)]), minlength=20)
    # Binomial(400, 1/4): deviation 8.7, so five of them cover 20 clients with room to spare.
    assert abs(counts - 100).max() < 44
