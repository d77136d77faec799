"""Partitions: properties every split has, and what each kind promises."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fedscope.training.data.split as split_module
from fedscope.training import draw_cohort, partition
from fedscope.training.data.partitions.dirichlet import Dirichlet
from fedscope.training.data.partitions.dirichlet_clients import drawn
from fedscope.training.data.partitions.domains import Domains
from fedscope.training.data.split import parse_partition
from fedscope.training.rng import generator
from fedscope.training.settings.registry import find, names

LABELS = np.random.default_rng(0).integers(0, 10, 400)


#: what else is known of the samples: 25 users, three domains, and superclasses of two or three classes
GROUPS = {"user": np.arange(400) % 25, "domain": np.arange(400) % 3, "superclass": LABELS // 3}

#: partitions, and how many clients of the samples above they can serve
SERVES = {
    "iid": (1, 40),
    "shards:1": (1, 40),
    "shards:5": (1, 40),
    "shards:2,5": (1, 40),
    "pathological:1": (10, 40),
    "pathological:3": (4, 40),
    "dirichlet:0.05": (1, 40),
    "dirichlet:100": (1, 40),
    "dirichlet-clients:0": (10, 40),
    "dirichlet-clients:0.001": (1, 40),
    "dirichlet-clients:1": (1, 40),
    "pachinko": (1, 40),
    "pachinko:1e-300,1e300": (1, 40),
    "natural": (1, 25),
    "domains": (1, 13),
    "domains,shards:2": (1, 13),
    "domains,dirichlet:0.1": (1, 13),
    "domains,dirichlet-clients:0.5": (1, 13),
}


@st.composite
def federations(draw: st.DrawFn) -> tuple[str, int]:
    """A partition and a number of clients that it can serve."""
    text = draw(st.sampled_from([*SERVES]))
    clients = draw(st.integers(*SERVES[text]))
    if text.startswith("domains"):
        return text.replace("domains", f"domains:{clients}", 1), 3 * clients
    return text, clients


@settings(max_examples=150, deadline=None)
@given(federation=federations(), seed=st.integers(0, 5), client_test=st.sampled_from([0.0, 0.25, 0.9]))
def test_every_sample_belongs_to_one_client_and_every_client_has_some(
    federation: tuple[str, int], seed: int, client_test: float
) -> None:
    text, clients = federation
    split = partition(text, LABELS, 10, clients, seed=seed, client_test=client_test, groups=GROUPS)
    everything = np.concatenate([*split.clients, *(split.test or ())])
    assert len(everything) == len(set(everything.tolist()))
    if text not in ("shards:2,5", "natural"):  # these leave samples to nobody
        np.testing.assert_array_equal(np.sort(everything), np.arange(len(LABELS)))
    assert len(split.clients) == clients
    assert min(map(len, split.clients)) >= 1
    for part, counts in zip(split.clients, split.label_counts, strict=True):
        np.testing.assert_array_equal(np.bincount(LABELS[part], minlength=10), counts)
    # a client's test part is some of the samples that it has without one
    whole = partition(text, LABELS, 10, clients, seed=seed, groups=GROUPS)
    for k, own in enumerate(whole.clients):
        aside = split.test[k] if split.test is not None else own[:0]
        assert len(aside) == min(round(client_test * len(own)), len(own) - 1)
        np.testing.assert_array_equal(np.sort(np.concatenate([split.clients[k], aside])), own)


def test_every_partition_on_the_shelf_is_held_to_it() -> None:
    # another package's, which test_flwr.py asks
    assert {text.partition(":")[0].partition(",")[0] for text in SERVES} | {"flwr"} == set(names("partitions"))


@settings(max_examples=30, deadline=None)
@given(clients=st.integers(1, 400), seed=st.integers(0, 5))
def test_iid_clients_have_equal_sizes(clients: int, seed: int) -> None:
    sizes = partition("iid", LABELS, 10, clients, seed=seed).label_counts.sum(1)
    assert sizes.max() - sizes.min() <= 1


@settings(max_examples=60, deadline=None)
@given(
    clients=st.integers(1, 20),
    shards=st.integers(1, 5),
    size=st.integers(1, 9),
    spare=st.integers(0, 50),
    sized=st.booleans(),
    seed=st.integers(0, 5),
)
def test_a_hand_is_so_many_shards_of_the_sorted_labels(
    clients: int, shards: int, size: int, spare: int, sized: bool, seed: int
) -> None:
    """By hand: the sorted labels cut every ``size``; a client's samples are ``shards`` of these pieces, none twice."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 6, clients * shards * size + (spare if sized else 0))
    text = f"shards:{shards},{size}" if sized else f"shards:{shards}"
    parts = parse_partition(text).split(labels, clients, random, {})
    whole = len(labels) // size * size
    made = Counter(map(tuple, np.sort(labels)[:whole].reshape(-1, size).tolist()))
    held = Counter(tuple(sorted(row)) for part in parts for row in labels[part].reshape(shards, size).tolist())
    assert held <= made
    assert sized or held == made


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(1, 50),
    alpha=st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
    samples=st.integers(50, 500),
    seed=st.integers(0, 5),
)
def test_dirichlet_is_what_a_loop_over_clients_gives(clients: int, alpha: float, samples: int, seed: int) -> None:
    """Draw by draw and sample by sample, as the definition reads."""
    labels = np.random.default_rng(seed).integers(0, 7, samples)
    least, random = min(10, samples // clients), generator(seed, "partition")
    for _ in range(100):
        hands: list[list[int]] = [[] for _ in range(clients)]
        for label in range(7):
            members = random.permutation(np.flatnonzero(labels == label)).tolist()
            ends = np.round(np.cumsum(random.dirichlet([alpha] * clients)) * len(members)).astype(int)
            begin = 0
            for hand, end in zip(hands, [*ends[:-1], len(members)], strict=True):
                hand += members[begin:end]
                begin = end
        if min(map(len, hands)) >= least:
            break
    while min(map(len, hands)) < least:
        poorest, richest = min(hands, key=len), max(hands, key=len)
        poorest.append(richest.pop(random.integers(len(richest))))
    found = partition(f"dirichlet:{alpha}", labels, 7, clients, seed=seed)
    assert [part.tolist() for part in found.clients] == [sorted(hand) for hand in hands]
    assert min(map(len, found.clients)) >= least


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


@pytest.mark.parametrize(
    ("text", "samples", "share"),
    [
        ("dirichlet:0.1", 1000, "8.4 %"),
        ("dirichlet:0.1", 10_000, ""),
        ("domains:20,dirichlet:0.05", 1000, "11.8 %"),
        ("domains:10,dirichlet:5", 1000, ""),
    ],
)
def test_a_dirichlet_split_that_moves_many_samples_is_told_once(text: str, samples: int, share: str) -> None:
    labels = np.arange(samples) % 10
    clients = 2 * int(text[8:10]) if "domains" in text else 50
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        split = partition(text, labels, 10, clients, seed=0, groups={"domain": np.arange(samples) // (samples // 2)})
    said = (
        f"data.partition = {text!r} moves {share} of the samples, so that each of {clients} clients has at least "
        f"{min(map(len, split.clients))}: that is no more the split that was drawn; take fewer clients, a greater "
        "alpha, or a partition of your own"
    )
    assert [str(one.message) for one in caught] == ([said] if share else [])


class FirstFive(Dirichlet):
    """As of an installed package."""

    def split(self, *given: Any) -> list[np.ndarray]:
        return [part[:5] for part in super().split(*given)]


class FirstFour(Domains):
    def split(self, *given: Any) -> list[np.ndarray]:
        return [part[:4] for part in super().split(*given)]


@pytest.mark.parametrize(("text", "sizes"), [("five:0.5", 5), ("domains:5,five:0.5", 5), ("four:5,five:0.5", 4)])
def test_a_class_that_derives_from_one_that_counts_is_split_by_its_own(
    text: str, sizes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"five": FirstFive, "four": FirstFour}
    monkeypatch.setattr(split_module, "find", lambda shelf, name: own.get(name) or find(shelf, name))
    monkeypatch.setattr(split_module, "installed", lambda _: own)
    split = partition(text, np.arange(1000) % 10, 10, 10, seed=0, groups={"domain": np.arange(1000) // 500})
    assert [len(part) for part in split.clients] == 10 * [sizes]


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


@settings(max_examples=40, deadline=None)
@given(each=st.integers(3, 8), seed=st.integers(0, 5))
def test_inside_a_domain_clients_are_what_the_split_inside_promises(each: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    domain, labels = random.permutation(np.repeat(np.arange(3), [300, 200, 100])), random.integers(0, 5, 600)

    def counts(inside: str) -> np.ndarray:
        text = f"domains:{each},{inside}"
        return partition(text, labels, 5, 3 * each, seed=seed, groups={"domain": domain}).label_counts

    assert ((counts("pathological:2") > 0).sum(1) == 2).all()
    for own, least in zip(counts("dirichlet:0.05").sum(1).reshape(3, each), (300, 200, 100), strict=True):
        assert own.min() >= min(10, least // each)
        assert own.sum() == least
    for own in counts("dirichlet-clients:0.1").sum(1).reshape(3, each):
        assert own.max() - own.min() <= 1
    # a domain's labels sorted and cut into one piece a client: the pieces' labels, in some order
    pieces = [piece for d in range(3) for piece in np.array_split(np.sort(labels[domain == d]), each)]
    made = Counter(tuple(np.bincount(piece, minlength=5).tolist()) for piece in pieces)
    assert Counter(map(tuple, counts("shards:1").tolist())) == made


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
