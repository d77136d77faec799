"""``fedscope synergy`` as a user gives it, and what its clusters have to do with labels."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from legible import assert_inside

from fedscope.checkpoints import FedscopeError, Layout, Run, TensorEntry, Weights
from fedscope.cli.main import run
from fedscope.decomposition import Synergy
from fedscope.decomposition.synergy.diagnosis import synergy
from fedscope.decomposition.synergy.label_agreement import label_agreement, overlap

pytestmark = pytest.mark.usefixtures("few_digits")
COMMAND = "synergy"

TINY = "--clients 8 --rounds 3 --epochs 1 --set model.hidden=[8]"
RUNS = {
    "fma": f"{TINY} --participation 0.75 --method fma",
    "fedsa": f"{TINY} --participation 0.75 --method fedsa --set server.similarity=model",
    "iid": f"{TINY} --participation 0.5 --partition iid --method fma",
    "few": f"{TINY} --participation 0.5 --method fma --set record.clients=every:2",
    "one": f"{TINY} --participation 0.125 --rounds 1 --method fma",
}


# --- labels ---


def rand_by_pairs(one: list[int], other: list[int]) -> float:
    """Hubert and Arabie's index from the pairs of clients, without a table of contingency."""
    pairs = list(combinations(range(len(one)), 2))
    both = sum(one[a] == one[b] and other[a] == other[b] for a, b in pairs)
    left, right = (sum(own[a] == own[b] for a, b in pairs) for own in (one, other))
    chance = left * right / len(pairs)
    return (both - chance) / ((left + right) / 2 - chance)


COUNTS = np.array([[5, 5, 0], [9, 1, 0], [2, 7, 0], [0, 3, 3], [0, 8, 2], [4, 0, 0]])
SIMILAR = np.array(
    [
        [1.0, 0.9, 0.8, 0.3, 0.2, 0.5],
        [0.9, 1.0, 0.6, 0.1, 0.2, 0.7],
        [0.8, 0.6, 1.0, 0.4, 0.5, 0.3],
        [0.3, 0.1, 0.4, 1.0, 0.9, 0.1],
        [0.2, 0.2, 0.5, 0.9, 1.0, 0.2],
        [0.5, 0.7, 0.3, 0.1, 0.2, 1.0],
    ]
)


def test_the_rand_index_counts_pairs_and_those_in_no_cluster_alone() -> None:
    found = label_agreement(((0, 1, 3), (2, 4)), SIMILAR, COUNTS, permutations=99)
    # label sets {0, 1}, {1, 2}, {0}; client 5 is in no cluster
    assert found.label_sets == 3
    assert found.rand == pytest.approx(rand_by_pairs([0, 0, 1, 0, 1, 2], [0, 0, 0, 1, 1, 2]))
    # two in no cluster are two clusters, not one
    found = label_agreement(((0, 1, 2),), SIMILAR, COUNTS, permutations=99)
    assert found.rand == pytest.approx(rand_by_pairs([0, 0, 0, 1, 2, 3], [0, 0, 0, 1, 1, 2]))


def test_label_sets_do_not_count_samples() -> None:
    assert label_agreement(((0, 1),), SIMILAR[:3, :3], np.array([[1, 99], [99, 1], [5, 0]])).label_sets == 2


@pytest.mark.parametrize(
    ("clusters", "counts"),
    [
        (((0, 1), (2, 3)), np.eye(6, dtype=int)),  # each its own label set
        (((0, 1), (2, 3)), np.ones((6, 3), int)),  # all the same one
        (((0, 1, 2, 3, 4, 5),), COUNTS),  # one cluster, or each its own: 0 for all labels whatever
        ((), COUNTS),
        (None, COUNTS),  # the layers' own clusters
    ],
)
def test_where_it_would_say_nothing_there_is_no_rand_index(clusters: Any, counts: np.ndarray) -> None:
    found = label_agreement(clusters, SIMILAR, counts, permutations=9)
    assert (found.rand, found.rand_p) == (None, None)
    # overlaps that are all equal correlate with nothing
    assert (found.correlation is None) == (found.correlation_p is None) == (counts is not COUNTS)


@pytest.mark.parametrize("count", [3, 4])
def test_of_few_clients_all_matchings_are_gone_through_and_the_least_p_value_is_known(count: int) -> None:
    """In a loop over all of them, that of the best one too; no seed matters."""
    from scipy.stats import spearmanr

    upper = np.triu_indices(count, 1)
    similar, counts = SIMILAR[:count, :count], COUNTS[3 - count // 4 : 3 - count // 4 + count]
    shared = overlap(counts)
    every = [
        abs(spearmanr(similar[np.ix_(order, order)][upper], shared[upper]).statistic)
        for order in map(list, permutations(range(count)))
    ]
    found = label_agreement(None, similar, counts)
    assert found.permutations == math.factorial(count) - 1
    assert found.correlation_p == pytest.approx(np.mean(np.array(every) >= every[0] - 1e-9))
    assert found.correlation_least == pytest.approx(np.mean(np.array(every) >= max(every) - 1e-9))
    assert (found.correlation_least < found.correlation_p) == (count == 4)
    assert label_agreement(None, similar, counts, seed=7).correlation_p == found.correlation_p


def test_the_least_p_value_of_the_rand_index_is_that_of_the_same_groups() -> None:
    """Of 24 matchings of groups of two and two, 8 give the same groups, as many as are possible."""
    counts = np.array([[1, 0], [0, 1], [1, 0], [0, 1]])
    same, across = (
        label_agreement(clusters, SIMILAR[:4, :4], counts) for clusters in (((0, 2), (1, 3)), ((0, 1), (2, 3)))
    )
    assert (same.rand, same.rand_p, same.rand_least) == (1.0, pytest.approx(8 / 24), pytest.approx(8 / 24))
    assert (across.rand_p, across.rand_least) == (1.0, pytest.approx(8 / 24))
    five = label_agreement(((0, 2), (1, 3)), SIMILAR[:5, :5], COUNTS[:5])
    assert (five.rand_least, five.correlation_least) == (None, None)


def test_overlaps_that_are_equal_tie_whatever_their_sum_rounds_to() -> None:
    """0.1 + 0.2 + 0.3 > 0.3 + 0.2 + 0.1 in float64; the reference ranks fractions."""
    from scipy.stats import spearmanr

    counts = np.array(
        [[1, 2, 3, 4, 0, 0], [1, 2, 3, 0, 4, 0], [3, 2, 1, 0, 0, 4], [3, 2, 1, 0, 4, 0], [0, 0, 9, 0, 0, 1]]
    )
    upper = np.triu_indices(5, 1)
    pairs = list(combinations(range(5), 2))
    exact = [float(sum(Fraction(int(min(counts[a, c], counts[b, c])), 10) for c in range(6))) for a, b in pairs]
    assert len(set(overlap(counts)[upper])) > len(set(exact))
    found = label_agreement(None, SIMILAR[:5, :5], counts, permutations=9)
    assert found.correlation == pytest.approx(spearmanr(SIMILAR[:5, :5][upper], exact).statistic, rel=1e-12)


def test_the_correlation_is_spearman_s_over_pairs_and_its_p_value_that_of_all_permutations() -> None:
    """All 720 matchings instead of random ones; the tolerance is four binomial errors of 9,999 draws."""
    from scipy.stats import spearmanr

    def drawn(p: float) -> float:
        return 4 * math.sqrt(p * (1 - p) / 9_999)

    upper = np.triu_indices(6, 1)
    shared = overlap(COUNTS)
    found = label_agreement(((0, 1, 2), (3, 4)), SIMILAR, COUNTS)
    assert (found.permutations, found.seed) == (9_999, 0)
    expected = spearmanr(SIMILAR[upper], shared[upper]).statistic
    assert found.correlation == pytest.approx(expected)
    far = [
        abs(spearmanr(SIMILAR[np.ix_(order, order)][upper], shared[upper]).statistic) >= abs(expected) - 1e-9
        for order in map(list, permutations(range(6)))
    ]
    assert found.correlation_p == pytest.approx(np.mean(far), abs=drawn(np.mean(far)))
    # two-sided: the opposite similarity is as far from chance
    opposite = label_agreement(((0, 1, 2), (3, 4)), 1 - SIMILAR, COUNTS)
    assert opposite.correlation == pytest.approx(-expected)
    assert opposite.correlation_p == found.correlation_p
    sets, own = [0, 0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 2]
    index = [rand_by_pairs([own[k] for k in order], sets) for order in permutations(range(6))]
    assert found.rand == pytest.approx(1)
    far = [abs(value) >= 1 - 1e-9 for value in index]
    assert found.rand_p == pytest.approx(np.mean(far), abs=drawn(np.mean(far)))


def test_the_overlap_is_one_less_the_total_variation() -> None:
    shares = COUNTS / COUNTS.sum(axis=1, keepdims=True)
    for a, b in combinations(range(6), 2):
        assert overlap(COUNTS)[a, b] == pytest.approx(1 - np.abs(shares[a] - shares[b]).sum() / 2)


def test_seeds_draw_other_permutations_and_p_is_never_0() -> None:
    one, again, other = (label_agreement(None, SIMILAR, COUNTS, seed=s, permutations=99) for s in (0, 0, 1))
    assert one == again
    assert one.correlation_p != other.correlation_p
    assert one.correlation == other.correlation
    counts = np.repeat(np.eye(4, dtype=int), 5, axis=0)
    like = counts @ counts.T + 0.001 * np.add.outer(np.arange(20), np.arange(20))
    assert label_agreement(None, like, counts, permutations=99).correlation_p == 1 / 100


@pytest.mark.filterwarnings("error")
def test_two_clients_and_clients_without_samples_have_no_correlation() -> None:
    two = label_agreement(((0, 1),), np.array([[1, 0.5], [0.5, 1]]), np.array([[1, 2], [3, 4]]))
    assert (two.correlation, two.correlation_p, two.rand) == (None, None, None)
    empty = np.array([[1, 2], [3, 0], [0, 0], [1, 1]])
    assert label_agreement(None, SIMILAR[:4, :4], empty).correlation is None


# --- the command ---


def test_a_round_of_any_method_and_the_one_it_reports(runs: Path, said: Any) -> None:
    words = said("runs/fma@2")
    base = "runs/fma/figures/synergy-2"
    assert words.splitlines()[2:] == [f"  {base}.{end}" for end in ("nc", "pdf", "png")]
    made = Synergy.load(f"{base}.nc")
    round_ = Run.open("runs/fma").round(2)
    direct = synergy(round_.clients(), keep_masks=True, client_ids=round_.client_ids)
    np.testing.assert_array_equal(made.similarity, direct.similarity)
    np.testing.assert_array_equal(made.client_ids, round_.client_ids)
    assert made.clusters == direct.clusters
    assert made.layers[0].mic is not None
    high = sum(layer.high_count for layer in direct.layers)
    assert words.startswith(f"fma@2: {high} of ")
    labels = made.attrs["labels"]
    counts = Run.open("runs/fma").partition.label_counts[round_.client_ids]  # type: ignore[union-attr]
    agreed = label_agreement(direct.clusters[0], direct.similarity[0], counts)
    assert labels == agreed.to_json()
    assert agreed.correlation is not None
    assert f"rank correlation of similarity with label overlap {agreed.correlation:.3g} (p = " in words
    # once more: kept, and with other criteria refused
    assert said("runs/fma@2") == words
    with pytest.raises(FedscopeError, match=r"synergy-2\.nc holds another result, of "):
        said("runs/fma@2", "--classes", "5")


def test_it_is_fedsa_s_own_diagnosis(runs: Path, said: Any) -> None:
    out = json.loads(said("runs/fedsa@3", "--json", "--out", "s"))
    state = Run.open("runs/fedsa").round(3).state()
    made = Synergy.load("s.nc")
    np.testing.assert_array_equal(made.similarity[0], state["similarity"])
    np.testing.assert_allclose([layer.high_share for layer in made.layers], state["high_share"])
    for k, s in zip(made.client_ids.tolist(), state["cluster"].tolist(), strict=True):
        assert (k in out["clusters"][0][s]) if s >= 0 else (k in out["left_out"][0])


def test_every_option_reaches_the_result(runs: Path, said: Any) -> None:
    ways: dict[str, list[str]] = {
        "plain": [],
        "classes": ["--classes", "9"],
        "cv": ["--cv-threshold", "0.05"],
        "both": ["--clusters", "1", "--sim-threshold", "0.99"],
        "layer": ["--similarity", "layer"],
        "quantile": ["--quantile", "0.9"],
    }
    found = set()
    for name, words in ways.items():
        out = json.loads(said("runs/fma@3", *words, "--json", "--out", name))
        shared = Synergy.load(f"{name}.nc").similarity.tobytes()
        found.add((json.dumps([out["layers"], out["clusters"], out["left_out"]]), shared))
    assert len(found) == len(ways)
    # clients are left over only where there are no more clusters to found, and join unless they are too unlike
    for words in (["--clusters", "1"], ["--sim-threshold", "0.99"]):
        assert json.loads(said("runs/fma@3", *words, "--json", "--out", words[0]))["left_out"] == [[]]
    assert json.loads(said("runs/fma@3", *ways["both"], "--json", "--out", "both"))["left_out"] != [[]]
    told = said("runs/fma@3", "--similarity", "layer", "--quantile", "0.9")
    assert "clusters of the 6 clients a layer\nlabels: each layer has its own clusters, so there is no Rand" in told
    assert "  runs/fma/figures/synergy-3-q0.9-layer.nc" in told
    seeds = [json.loads(said("runs/fma@3", "--seed", s, "--json", "--out", s))["labels"] for s in "12"]
    assert seeds[0]["correlation"] == seeds[1]["correlation"]
    assert seeds[0]["correlation_p"] != seeds[1]["correlation_p"]


def test_what_cannot_be_said_of_labels_is_not_said(runs: Path, said: Any) -> None:
    words = said("runs/iid@3")
    assert "labels: the 4 clients have one label set, so there is no Rand index; rank correlation" in words
    Path("runs/iid/partition.h5").unlink()
    words = said("runs/iid@2")
    assert "\nlabels: the run has no partition.h5, so nothing is known of them\n" in words


def test_a_round_with_a_client_that_diverged_has_no_clusters(runs: Path, said: Any, rewrite: Any) -> None:
    who = rewrite("runs/fma", 2, lambda models: models["clients"].parameters.__setitem__(3, np.nan), keep=6)[3]
    lines = said("runs/fma@2").splitlines()
    assert lines[0].endswith("(0 %); nothing is of high dispersion, so clients form no clusters")
    names = ", ".join(layer.name for layer in Synergy.load("runs/fma/figures/synergy-2.nc").layers)
    assert lines[1] == f"client {who} has parameters that are not finite: 4 of 4 layers left out ({names})"
    assert lines[2] == (
        "labels: there are no clusters, so there is no Rand index; no correlation of similarity with label overlap "
        "exists"
    )
    out = json.loads(said("runs/fma@2", "--json"))
    assert (out["diverged"], out["clusters"], out["layers_left_out"]) == ([who], [[]], names.split(", "))
    layers = said("runs/fma@2", "--similarity", "layer").splitlines()
    assert layers[0].endswith("nothing is of high dispersion, so clients form no clusters")


def test_of_few_clients_it_is_said_what_they_can_show(runs: Path, said: Any, rewrite: Any) -> None:
    one, other = rewrite("runs/fma", 2, keep=2)
    lines = said("runs/fma@2", "--quantile", "0.9").splitlines()
    assert lines[0].endswith(f"; 1 cluster of 2 clients ({one}, {other})")
    assert lines[1].startswith("two clients: (w₁ − μ)² = (w₂ − μ)² always, so their similarity is 1 by definition")
    assert "so there is no Rand index; no correlation of similarity with label overlap exists" in lines[2]
    rewrite("runs/fma", 3, keep=4)
    words = said("runs/fma@3", "--quantile", "0.9", "--clusters", "1")
    labels = Synergy.load("runs/fma/figures/synergy-3-q0.9.nc").attrs["labels"]
    p, least = labels["correlation_p"], labels["correlation_least"]
    assert f"(p = {p:.2g}, least possible {least:.2g}, all 24 matchings)" in words


def test_one_cluster_of_all_has_no_rand_index() -> None:
    found = example(6)
    sets = COUNTS[[0, 0, 0, 3, 3, 3]]
    for clusters, words in (
        (((0, 1, 2, 3, 4, 5),), "labels: the 6 clients form one cluster, so there is no Rand index; rank correlation "),
        (((0, 1, 2),), "labels: adjusted Rand index of clusters and the 2 label sets 0.545 (p = 0.1), those in no "),
    ):
        labels = label_agreement(clusters, found.mean_similarity, sets).to_json()
        one = replace(found, clusters=(clusters,), attrs={"source": "a@2", "labels": labels})
        assert one.summary().splitlines()[1].startswith(words)
        assert "least possible" not in one.summary()


def test_a_run_that_was_trained_again_is_another_one(runs: Path, said: Any) -> None:
    said("runs/iid@2", "--out", "s")
    words = "--method fma --clients 8 --rounds 2 --epochs 1 --set model.hidden=[8] --seed 1 --force"
    assert run(["train", "--out", "runs/iid", *words.split()]) == 0
    with pytest.raises(FedscopeError, match=r"s\.nc holds another result, of runs/"):
        said("runs/iid@2", "--out", "s")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/one@1"], r"runs/one@1 has a cohort of one, so there is nobody to disagree with; .* \(--clients, --par"),
        (["runs/few@1"], r"runs/few@1: the clients of round 1 were not recorded; round 2 has them"),
        (["runs/fma"], r"runs/fma names no round; give RUN@ROUND, as in runs/fma@last"),
        (["elsewhere"], r"elsewhere names no round; give RUN@ROUND, as in runs/ima@40"),
        (["runs/fma@2/global"], r"names a model, but all clients of a round are asked for; give runs/fma@2$"),
        (["model@2.pt"], r"model@2\.pt names a model, but all clients of a round are asked for; give RUN@ROUND"),
        (
            ["runs/fma@2", "--cv-threshold", "1"],
            r"^--cv-threshold 1 is out of range: it must be at least 0 and less than 1$",
        ),
        (
            ["runs/fma@2", "--quantile", "99"],
            r"^--quantile 99 is out of range: it must be greater than 0 and at most 1$",
        ),
    ],
)
def test_mistakes_end_in_one_sentence(runs: Path, said: Any, words: list[str], message: str) -> None:
    with pytest.raises(FedscopeError, match=message) as caught:
        said(*words)
    assert "\n" not in str(caught.value)


# --- the figure ---


def example(count: int = 7, layers: int = 3, scope: Any = "model") -> Synergy:
    rng = np.random.default_rng(4)
    layout = Layout(tuple(TensorEntry(f"l{j}", (200,), "float32", "parameter") for j in range(layers)))
    kinds = rng.normal(size=(2, layout.size))[np.arange(count) % 2]
    rows = rng.normal(size=layout.size) + 0.5 * kinds + 0.2 * rng.normal(size=(count, layout.size))
    weights = Weights(layout, rows.astype(np.float32), {})
    ids = 7 * np.arange(count)
    return synergy(weights, quantile=0.9, similarity=scope, keep_masks=True, client_ids=ids, clusters=2)


def test_the_dendrogram_is_average_linkage_with_each_leaf_s_cluster_below() -> None:
    from matplotlib.colors import to_hex
    from scipy.cluster.hierarchy import linkage

    from fedscope.decomposition.synergy.figure_panels import cluster_colour

    result = example(11)
    assert [len(members) for members in result.clusters[0]] == [9, 2]
    axes = result.figure().axes
    tree = next(one for one in axes if one.get_ylabel() == "1 − similarity")
    strip = axes[axes.index(tree) + 1]
    distance = 1 - result.similarity[0]
    merges = linkage(distance[np.triu_indices(11, 1)], "average")
    heights = sorted(segment[1, 1] for segment in tree.collections[0].get_segments())  # type: ignore[attr-defined]
    np.testing.assert_allclose(heights, merges[:, 2])
    leaves = [tick.get_text() for tick in strip.get_xticklabels()]
    assert sorted(map(int, leaves)) == [7 * k for k in range(11)]
    for leaf, bar in zip(leaves, strip.patches, strict=True):
        (own,) = (s for s, members in enumerate(result.clusters[0]) if int(leaf) // 7 in members)
        assert to_hex(bar.get_facecolor()) == cluster_colour(own).lower()
    # the two that are joined first stand side by side
    places = [leaves.index(str(7 * int(k))) for k in merges[0, :2]]
    assert abs(places[0] - places[1]) == 1


def test_the_maps_show_classes_in_the_matrix_s_order_and_the_clusters_weights() -> None:
    result = example(11)
    axes = result.figure().axes
    classes, weights = [one for one in axes if one.images and one.get_xlabel() != "client"]
    order = [k for members in result.clusters[0] for k in members]
    assert order != list(range(11))
    mic = np.concatenate([layer.mic for layer in result.layers], axis=1)  # type: ignore[misc]
    alpha = np.concatenate([layer.alpha for layer in result.layers], axis=1)  # type: ignore[misc]
    np.testing.assert_array_equal(np.asarray(classes.images[0].get_array()), mic[order])
    np.testing.assert_array_equal(np.asarray(weights.images[0].get_array()), alpha)
    np.testing.assert_allclose(alpha.sum(axis=0), 1)
    # between layers
    counts = np.cumsum([layer.high_count for layer in result.layers])[:-1]
    ticks = [line.get_xdata()[0] for line in classes.lines if line.get_xdata()[0] > 1]  # type: ignore[index]
    np.testing.assert_allclose(ticks, counts - 0.5)


def test_of_many_entries_some_are_shown_and_that_is_said() -> None:
    result = example(layers=20)
    figure = result.figure(2.0)
    high = sum(layer.high_count for layer in result.layers)
    said = [text.get_text() for text in figure.texts if text.get_text().startswith("high entries")]
    assert len(said) == 1
    shown = int(said[0].split("(")[1].split()[0])
    assert said[0] == f"high entries ({shown} of {high:,})"
    (classes,) = [one.images[0] for one in figure.axes if one.images and one.images[0].get_array().shape[0] == 7][1:]  # type: ignore[union-attr]
    assert classes.get_array().shape == (7, shown)  # type: ignore[union-attr]
    assert shown < high


@pytest.mark.parametrize("width", [2, pytest.param(3.5, marks=pytest.mark.slow), 7])
@pytest.mark.parametrize(
    "result",
    [example(), example(35, 20), example(4, 3, "layer"), example(2)],
    ids=["few", "many", "layer", "two"],
)
def test_nothing_is_cut_off(result: Synergy, width: float) -> None:
    assert_inside(result.figure(width, title="round 40"), width)
