"""Consensus of nodes: a plain loop of gossip against what is told of its record."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from legible import assert_apart, assert_inside
from torch import nn

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError
from fedscope.decomposition.consensus.distances import mixing_of
from fedscope.decomposition.consensus.merged import _of_counts
from fedscope.decomposition.consensus.result import Consensus, MeasuredRound, MixingWeight, RoundConsensus

NODES, ROUNDS, CLASSES = 16, 6, 3


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def samples(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three clouds that overlap."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=draw)
    centres = torch.tensor([[1.0, 0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0, 0]])
    return centres[y] + 0.8 * torch.randn(count, 6, generator=draw), y


def ring() -> np.ndarray:
    """Each node and its two neighbours."""
    own = np.eye(NODES)
    return (own + np.roll(own, 1, axis=1) + np.roll(own, -1, axis=1)) / 3


def gossip(draw: np.random.Generator) -> np.ndarray:
    """Random pairs that take their mean, the others keep theirs."""
    matrix, order = np.eye(NODES), draw.permutation(NODES)
    for i, j in order[:12].reshape(-1, 2):
        matrix[[[i], [j]], [i, j]] = 0.5
    return matrix


def consensus_distance(models: Any) -> float:
    """√(1/C Σ_c ‖w_c − w̄‖²) of models [C, P], as in Kong et al., ICML 2021, equation 2."""
    rows = np.asarray(models, np.float64)
    return float(np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum() / len(rows)))


@dataclass
class Plain:
    """A loop's own numbers, by round."""

    merged: list[tuple[float, float]] = field(default_factory=list)
    nodes: list[tuple[float, float]] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    mixing: list[np.ndarray] = field(default_factory=list)


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    with torch.no_grad():
        outputs = model(x)
        losses = nn.functional.cross_entropy(outputs, y, reduction="none").double()
        return float(losses.mean()), float((outputs.argmax(1) != y).double().mean())


def loop(path: Path, how: str, *, tell: bool, rounds: int = ROUNDS) -> Plain:
    """A plain loop without a server: local steps, then each node takes a mean of some; recorded as it goes."""
    model, test, plain = net(), samples(1, 400), Plain()
    own = [samples(10 + k, 40) for k in range(NODES)]
    draw = np.random.default_rng(3)
    flat = nn.utils.parameters_to_vector(model.parameters()).detach().double().numpy()
    states = [flat.astype(np.float32) for _ in range(NODES)]
    initial = flat.astype(np.float32).astype(float)

    def load(values: np.ndarray) -> nn.Module:
        nn.utils.vector_to_parameters(torch.from_numpy(values.copy()), model.parameters())
        return model

    def arrays(values: np.ndarray) -> dict[str, np.ndarray]:
        return {name: value.numpy().copy() for name, value in load(values).state_dict().items()}

    with Recorder(path, model=net, data=((samples(5, 200)), test)) as recorder:
        for t in range(rounds):
            starts, trained = [values.copy() for values in states], []
            for (x, y), values in zip(own, states, strict=True):
                load(values)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
                for _ in range(3):
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
                trained.append(nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy())
            w = np.array(trained, float)
            matrix = ring() if how == "ring" else gossip(draw)
            mixed = (matrix @ w).astype(np.float32)
            recorder.round(
                starts=[arrays(values) for values in starts],
                clients=[arrays(values) for values in trained],
                mixing=matrix if tell else None,
                staleness=[t % 2] * NODES if tell else None,
            )
            plain.merged.append(loss_of(load(w.mean(axis=0).astype(np.float32)), *test))
            each = np.array([loss_of(load(values), *test) for values in trained])
            plain.nodes.append((float(each[:, 0].mean()), float(each[:, 1].mean())))
            plain.before.append(float(np.sqrt(((w - w.mean(axis=0)) ** 2).sum() / NODES)))
            plain.after.append(float(np.sqrt(((mixed - mixed.mean(axis=0, dtype=float)) ** 2).sum() / NODES)))
            plain.moved.append(float(np.linalg.norm(w.mean(axis=0) - initial)))
            plain.mixing.append(matrix)
            states = list(mixed)
    return plain


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Plain]]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        f"{how}-{'told' if tell else 'silent'}": (
            folder / f"{how}-{tell}",
            loop(folder / f"{how}-{tell}", how, tell=tell),
        )
        for how in ("ring", "gossip")
        for tell in (True, False)
    }


@pytest.mark.parametrize("name", ["ring-told", "ring-silent", "gossip-told", "gossip-silent"])
def test_a_plain_loops_counterfactual_curve_comes_back(runs: dict[str, tuple[Path, Plain]], name: str) -> None:
    """To 2e-7: a sum of float32 losses in another order is off by an ulp, 1.2e-7, at most."""
    path, plain = runs[name]
    found = [one.row for one in fedscope.consensus(path, model=net).rounds]
    assert [row.round for row in found] == list(range(1, ROUNDS + 1))
    np.testing.assert_allclose([row.merged_loss for row in found], [loss for loss, _ in plain.merged], rtol=2e-7)
    np.testing.assert_allclose([row.merged_error for row in found], [error for _, error in plain.merged], rtol=1e-12)
    np.testing.assert_allclose([row.nodes_loss for row in found], [loss for loss, _ in plain.nodes], rtol=2e-7)
    np.testing.assert_allclose([row.nodes_error for row in found], [error for _, error in plain.nodes], rtol=1e-12)
    # distances are sums of squares in float64; after mixing as told, the next starts' rounding is left out at the end
    np.testing.assert_allclose([row.before for row in found], plain.before, rtol=1e-12)
    np.testing.assert_allclose([row.moved for row in found], plain.moved, rtol=1e-12)
    np.testing.assert_allclose([row.after for row in found[:-1]], plain.after[:-1], rtol=1e-12)
    if name.endswith("told"):
        assert found[-1].after == pytest.approx(plain.after[-1], rel=1e-5)
        assert [row.staleness for row in found] == [t % 2 for t in range(ROUNDS)]
    else:
        assert (found[-1].after, found[-1].mixing, found[-1].contraction) == (None, "unknown", None)
        assert {row.staleness for row in found} == {None}
    for row in found[:-1]:
        assert row.mixing == ("given" if name.endswith("told") else "identified")
        assert row.residual is not None
        assert row.residual < 1e-5
        assert row.after is not None
        assert row.after_relative == row.after / (row.moved or 1)
    assert [row.loss_gain for row in found] == pytest.approx([row.nodes_loss - row.merged_loss for row in found])


@pytest.mark.parametrize("name", ["ring-silent", "gossip-silent"])
def test_the_mixing_is_found_and_its_weights_are_written(runs: dict[str, tuple[Path, Plain]], name: str) -> None:
    path, plain = runs[name]
    result = fedscope.consensus(path, model=net)
    run = fedscope.Run.open(path)
    for one, matrix in zip(result.rounds[:-1], plain.mixing[:-1], strict=True):
        found = mixing_of(run, one.row.round)
        assert found is not None
        assert found.matrix is not None
        np.testing.assert_allclose(found.matrix, matrix, atol=1e-3)
        weights = {(own.node, own.of): own.weight for own in one.weights}
        assert weights.keys() == set(zip(*(axis.tolist() for axis in np.nonzero(matrix)), strict=True))
        # of a symmetric matrix it is the second largest of the absolute eigenvalues
        second = np.sort(abs(np.linalg.eigvalsh(matrix)))[-2]
        assert one.row.contraction == pytest.approx(second, abs=1e-3)


def test_a_wrong_matrix_is_told_by_its_residual(tmp_path: Path) -> None:
    """A ring that goes the other way round, where each node takes its successor's model."""
    draw = np.random.default_rng(0)
    w = [draw.normal(size=200).astype(np.float32) for _ in range(4)]
    turned = np.roll(np.eye(4), 1, axis=1)
    with Recorder(tmp_path / "run", data=samples(1, 20)) as recorder:
        recorder.round(starts=[{"w": v} for v in w], clients=[{"w": v} for v in w], mixing=turned.T)
        nexts = (turned @ np.array(w)).astype(np.float32)
        recorder.round(starts=[{"w": v} for v in nexts], clients=[{"w": v} for v in w])
    found = mixing_of(fedscope.Run.open(tmp_path / "run"), 1)
    assert found is not None
    assert found.residual is not None
    assert found.residual > 1


def test_a_run_with_one_start_has_no_distance_after_it(two_rounds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two_rounds)
    first, last = (one.row for one in fedscope.consensus("runs/fma", rounds="1,2").rounds)
    assert (first.mixing, first.after, first.residual) == ("one", 0.0, None)
    assert (last.mixing, last.after, last.residual) == ("one", 0.0, None)  # a server has one model for all
    run = fedscope.Run.open("runs/fma")
    clients, start = run.round(1).clients().parameters.astype(float), run.round(1).read("start").parameters
    assert first.before == pytest.approx(consensus_distance(clients))
    assert first.moved == pytest.approx(float(np.linalg.norm(clients.mean(axis=0) - start)))


@pytest.mark.parametrize("keep", ["all", "every:2"])
def test_a_recorded_server_sends_one_model_behind_the_last_round_too(tmp_path: Path, keep: str) -> None:
    """Nodes with starts of their own get what nobody has recorded, and so do models of which no start is known, and
    those of a single round that may have begun gossip."""
    from fedscope.decomposition.consensus.analysis import _served_last
    from fedscope.decomposition.consensus.distances import measure_distances

    draw = np.random.default_rng(5)
    w = [{"w": v} for v in draw.normal(size=(5, 40)).astype(np.float32)]
    given: dict[str, dict[str, Any]] = {"server": {"start": w[3], "global_": w[4]}, "gossip": {"starts": w[2:]}, "": {}}
    found = {}
    for name, models in given.items():
        with Recorder(tmp_path / f"run-{name}", keep=keep) as recorder:
            for _ in range(4):
                recorder.round(clients=w[:3], **models)
        run = fedscope.Run.open(tmp_path / f"run-{name}")
        # what tells a stored result of an earlier version, which did not know it, from this one
        assert _served_last([(run, 2), (run, 4)]) == ([run.name] if name == "server" else [])
        distances = measure_distances(run, 4)
        found[name] = (distances.after, "one" if distances.mixing is None else distances.mixing.source)
    assert found == {"server": (0.0, "one"), "gossip": (None, "unknown"), "": (None, "unknown")}
    for name, models in (("begun", {"start": w[3]}), ("served", {"start": w[3], "global_": w[4]})):
        with Recorder(tmp_path / name) as recorder:
            recorder.round(clients=w[:3], **models)
        assert measure_distances(fedscope.Run.open(tmp_path / name), 1).after == {"begun": None, "served": 0.0}[name]


@pytest.mark.parametrize("own", [True, False], ids=["starts", "start"])
def test_only_the_start_of_round_1_is_the_initial_model(tmp_path: Path, own: bool) -> None:
    """A loop of nodes that keeps every third round has no initial model, and a later start is not taken for it; the one
    start of a round with a server is kept in every round."""
    draw, size = np.random.default_rng(2), 40
    w = [draw.normal(size=(3, size)).astype(np.float32) for _ in range(7)]  # starts of rounds 1 to 6, and what follows
    for keep in ("all", "every:3"):
        with Recorder(tmp_path / keep.replace(":", "-"), keep=keep) as recorder:
            for t in range(6):
                clients = [{"w": v} for v in w[t + 1]]
                if own:
                    recorder.round(starts=[{"w": v} for v in w[t]], clients=clients)
                else:
                    recorder.round(start={"w": w[t][0]}, clients=clients, global_={"w": w[t + 1][0]})
    from fedscope.decomposition.consensus.distances import measure_distances

    whole, some = (fedscope.Run.open(tmp_path / name) for name in ("all", "every-3"))
    initial = (w[0] if own else w[0][:1]).astype(float).mean(axis=0)
    for t in (3, 6):
        expected = float(np.linalg.norm(w[t].astype(float).mean(axis=0) - initial))
        assert measure_distances(whole, t).moved == pytest.approx(expected)
        found = measure_distances(some, t)
        assert found.moved == (None if own else pytest.approx(expected))
        assert found.before == pytest.approx(consensus_distance(w[t]))


def test_a_run_without_its_first_start_has_no_shares_and_says_so(tmp_path: Path) -> None:
    kept = {"record": {"globals": "none", "clients": "2"}}
    run = fedscope.train(kept, clients=4, participation=1, rounds=2, out=tmp_path / "run")
    result = fedscope.consensus(run)
    row = result.rounds[-1].row
    assert (row.round, row.moved, row.before_relative, row.after_relative) == (2, None, None, None)
    assert "how far the mean has come is not known, because round 1's start was not recorded" in result.summary()
    result.figure()


def test_nodes_that_come_and_go_are_compared_where_they_stay(tmp_path: Path) -> None:
    """Nodes 0 to 3, then 1, 2 and 9: after mixing are the starts of 1 and 2."""
    draw = np.random.default_rng(0)
    w = draw.normal(size=(4, 50)).astype(np.float32)
    s = {k: draw.normal(size=50).astype(np.float32) for k in (1, 2, 9)}
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(starts=[{"w": v} for v in w], clients=[{"w": v} for v in w], mixing=np.full((4, 4), 0.25))
        recorder.round(starts={k: {"w": v} for k, v in s.items()}, clients={k: {"w": v} for k, v in s.items()})
        recorder.round(starts={7: {"w": w[0]}}, clients={7: {"w": w[1]}})
    from fedscope.decomposition.consensus.distances import measure_distances

    run = fedscope.Run.open(tmp_path / "run")
    first, second, third = (measure_distances(run, t) for t in run.rounds)
    assert first.after == pytest.approx(consensus_distance([s[1], s[2]]))
    assert first.mixing is not None
    assert first.mixing.residual is not None
    assert first.mixing.matrix is not None
    left = np.array([s[1], s[2]]) - w.mean(axis=0)
    assert first.mixing.residual == pytest.approx(np.sqrt((left**2).sum() / 2) / consensus_distance(w))
    assert first.mixing.matrix.shape == (4, 4)
    # nobody of the second round is in the third
    assert (second.after, second.mixing is not None and second.mixing.source) == (None, "unknown")
    assert (third.before, third.after) == (0.0, None)


def test_a_node_that_diverged_is_named_and_nothing_is_made_up(tmp_path: Path) -> None:
    states = [{name: value.numpy() for name, value in net().state_dict().items()} for _ in range(3)]
    broken = {name: value.copy() for name, value in states[0].items()}
    broken["0.weight"][0, 0] = np.nan
    with warnings.catch_warnings(), Recorder(tmp_path / "run", model=net, data=samples(1, 50)) as recorder:
        warnings.simplefilter("ignore")
        recorder.round(starts=states, clients=[states[0], broken, states[2]], mixing=np.full((3, 3), 1 / 3))
    result = fedscope.consensus(tmp_path / "run", model=net)
    row = result.rounds[0].row
    assert np.isnan([row.before, row.merged_loss, row.nodes_loss]).all()
    assert "the model of client 1 in round 1 is not finite" in result.summary()
    assert "nan" in result.summary()
    result.figure()


# --- what is said and kept ---


def row(run: str, number: int, **others: Any) -> RoundConsensus:
    known: dict[str, Any] = {
        **{"nodes": 16, "before": 0.5, "after": 0.25, "moved": 2.0, "before_relative": 0.25, "after_relative": 0.125},
        **{"mixing": "given", "residual": 1e-7, "contraction": 0.9, "staleness": None},
        **{"merged_loss": 0.2, "merged_error": 0.05, "nodes_loss": 0.4, "nodes_error": 0.1},
        **{"loss_gain": 0.2, "loss_gain_stderr": 0.01, "error_gain": 0.05, "error_gain_stderr": 0.004},
    }
    return RoundConsensus(run, number, **{**known, **others})


def test_a_summary_says_distances_and_what_merging_would_do() -> None:
    attrs = {"split": "test"}
    one = Consensus((MeasuredRound(row("ring", 40)),), attrs)
    assert one.summary() == (
        "ring, round 40: 16 nodes, consensus distance 0.5 (25 % of the mean's way) before mixing, 0.25 after it; test "
        "error of their merged model 5 %, of the nodes 10 % on average (5 ± 0.4 points less, one standard "
        "error over samples); mixing as given leaves 1e-05 % of the next starts unexplained at most"
    )
    silent = row("ring", 41, after=None, mixing="unknown", residual=None, error_gain=-0.01)
    both = Consensus((*one.rounds, MeasuredRound(silent, why="nobody says it")), attrs)
    assert "0.5 (25 % of the mean's way) before mixing, after it not known" in both.summary()
    assert "(1 ± 0.4 points more, one standard error over samples); it is better in 1 of 2 rounds" in both.summary()
    broken = MeasuredRound(row("ring", 39, error_gain=np.nan, error_gain_stderr=np.nan))
    three = Consensus((broken, *both.rounds), attrs).summary()
    assert "it is better in 1 of 3 rounds; round 39 is not finite; mixing" in three
    wrong = Consensus((MeasuredRound(row("ring", 3, residual=0.34)),), attrs)
    assert (
        "mixing as given does not explain the next starts: 34 % of the distance is left in round 3" in wrong.summary()
    )
    lost = Consensus((MeasuredRound(silent, why="nobody says it"),), attrs)
    assert "mixing not known in round 41: nobody says it" in lost.summary()
    regression = row("ring", 1, merged_error=np.nan, nodes_error=np.nan, error_gain=np.nan, error_gain_stderr=np.nan)
    assert "test loss of their merged model 0.2, of the nodes 0.4 on average (0.2 ± 0.01 less, one standard error" in (
        Consensus((MeasuredRound(regression),), attrs).summary()
    )
    single = [MeasuredRound(row("ring", number, nodes=1, merged_error=0.1, error_gain=0.0)) for number in (1, 2)]
    assert Consensus(tuple(single), attrs).summary() == (  # no node is compared with itself
        "ring, round 2: one node, consensus distance 0.5 (25 % of the mean's way) before mixing, 0.25 after it; test "
        "error of its model 10 %; mixing as given leaves 1e-05 % of the next starts unexplained at most"
    )
    with pytest.raises(FedscopeError, match=r"round 40 of ring is there twice"):
        Consensus((*one.rounds, *one.rounds))


def test_an_unknown_residual_hides_no_matrix_that_explains_nothing() -> None:
    """Neither of a round that diverged nor of one before which all nodes have one model; in any order."""
    wrong = "mixing as given does not explain the next starts: 145 % of the distance is left in round 2"
    numbers = {1: {"residual": np.nan, "before": np.nan}, 2: {"residual": 1.45}, 3: {"residual": 1e-7}}
    rounds = [MeasuredRound(row("ring", number, **own)) for number, own in numbers.items()]
    broken = "what mixing leaves is not known in round 1, where a model is not finite"
    assert Consensus(tuple(rounds)).summary().endswith(f"; {wrong}; {broken}")
    assert Consensus((rounds[1], rounds[0])).summary().endswith(f"; {wrong}; {broken}")
    alike = [MeasuredRound(row("ring", number, residual=np.nan, before=0.0)) for number in (4, 5)]
    same = "what mixing leaves is not known in rounds 4-5, where all nodes have one model"
    assert Consensus((*rounds, *alike)).summary().endswith(f"; {wrong}; {same}; {broken}")
    assert Consensus(tuple(alike)).summary().endswith(f"; {same}")
    single = MeasuredRound(row("ring", 1, residual=np.nan, before=0.0, after=0.0, nodes=1))
    alone = "what mixing leaves is not known in round 1, where there is one node"
    assert Consensus((single,)).summary().endswith(f"; {alone}")
    broken_start = MeasuredRound(row("ring", 1, residual=np.nan, before=0.0, after=np.nan))
    assert Consensus((broken_start,)).summary().endswith(f"; {broken}")


def test_a_round_that_diverged_is_named_and_neither_better_nor_drawn() -> None:
    """Of a classification, too, whose error is then that of no answers, 1."""
    lost = {"merged_loss": np.nan, "merged_error": 1.0, "nodes_loss": np.nan, "nodes_error": 1.0, "error_gain": 0.0}
    lost |= {"loss_gain": np.nan, "loss_gain_stderr": np.nan, "error_gain_stderr": 0.0}
    broken = {number: MeasuredRound(row("ring", number, **lost), (), (0, 1)) for number in (1, 3)}
    fine = MeasuredRound(row("ring", 2))
    attrs = {"split": "test", "data": "digits", "samples": 9}
    said = "their merged model has no finite loss, so nothing is gained or lost (NaN outputs count as wrong)"
    two = Consensus((broken[1], fine), attrs)
    assert "; it is better in 1 of 2 rounds; round 1 is not finite; mixing" in two.summary()
    all_ = Consensus((broken[1], fine, broken[3]), attrs)
    assert (
        f"before mixing, 0.25 after it; {said}; it is better in 1 of 3 rounds; rounds 1, 3 are not finite; "
        "mixing as given leaves 1e-05 % of the next starts unexplained at most; "
        "the models of clients 0, 1 in round 3 are not finite"
    ) in all_.summary()
    one_node = MeasuredRound(row("ring", 1, **{**lost, "nodes": 1}), (), (0,))
    assert "; its model has no finite loss, so nothing is gained or lost (NaN outputs count as wrong);" in (
        Consensus((one_node,), attrs).summary()
    )
    for result, words in (
        (two, "the models of clients 0, 1 in round 1 are not finite;"),
        (all_, "; rounds 1, 3 are not finite;"),
        (Consensus((*all_.rounds, MeasuredRound(row("other", 1, **lost))), attrs), "; ring: rounds 1, 3 are not"),
    ):
        figure = result.figure()
        assert words in " ".join(" ".join(text.get_text() for text in figure.texts).split())
        errors = next(line for line in figure.axes[1].lines if len(line.get_ydata()) == len(result.only("ring").rounds))
        shown = np.ma.filled(np.ma.asarray(errors.get_ydata(), float), np.nan)
        assert np.isnan(shown).tolist() == [one.is_lost for one in result.only("ring").rounds]


def test_an_infinite_loss_of_answers_loses_no_round() -> None:
    """Of a probability of 0; where the loss is what is shown it has no difference."""
    infinite = {"merged_loss": np.inf, "nodes_loss": np.inf, "loss_gain": np.nan, "loss_gain_stderr": np.nan}
    attrs = {"split": "test", "data": "digits", "samples": 9}
    rounds = tuple(MeasuredRound(row("ring", number, **infinite)) for number in (1, 2))
    result = Consensus(rounds, attrs)
    assert result.summary() == (
        "ring, round 2: 16 nodes, consensus distance 0.5 (25 % of the mean's way) before mixing, 0.25 after it; test "
        "error of their merged model 5 %, of the nodes 10 % on average (5 ± 0.4 points less, one standard error over "
        "samples); it is better in 2 of 2 rounds; mixing as given leaves 1e-05 % of the next starts unexplained at most"
    )
    figure = result.figure()
    assert [line.get_ydata().tolist() for line in figure.axes[1].lines[:2]] == [[5.0, 5.0], [10.0, 10.0]]
    assert "not finite" not in " ".join(text.get_text() for text in figure.texts)
    no_errors = {"merged_error": np.nan, "nodes_error": np.nan, "error_gain": np.nan, "error_gain_stderr": np.nan}
    of_losses = MeasuredRound(row("ring", 1, **infinite, **no_errors))
    assert "; their merged model has no finite loss, so nothing is gained or lost; " in (
        Consensus((of_losses,), attrs).summary()
    )
    masked = MeasuredRound(row("ring", 1), (), (0, 1))  # a buffer of -inf, and answers all the same
    assert [one.is_lost for one in (rounds[0], of_losses, MeasuredRound(rounds[0].row, (), (0,)), masked)] == [
        False,
        True,
        True,
        False,
    ]


def test_errors_that_cancel_are_a_difference_of_exactly_0() -> None:
    """As many wrong answers, of other samples."""
    nodes = np.array([[1] * 9, [0, 1, 0, 0, 1, 1, 1, 1, 0], [1, 0, 0, 1, 1, 1, 1, 1, 1]], float)
    errors = np.stack([nodes.mean(axis=0), [1, 1, 1, 1, 0, 1, 1, 0, 1]])
    assert np.mean(errors[0] - errors[1]) != 0, "the case is one of rounding"
    assert _of_counts(errors, np.ones(9), 3) == (7 / 9, 7 / 9, 0.0)
    assert _of_counts(errors / 7, np.ones(9), 3) is None


def test_the_caption_says_whether_a_node_has_the_merged_model() -> None:
    """Mixing gives all nodes one model where there is a server."""
    one, other = MeasuredRound(row("fma", 1, mixing="one", after=0.0)), MeasuredRound(row("fma", 2))
    for rounds, words in (
        ((one,), "merged: the mean of all nodes; mixing gives all one model;"),
        ((other,), "merged: the mean of all nodes, which no node has;"),
        ((one, other), "merged: the mean of all nodes;"),
    ):
        figure = Consensus(rounds, {"split": "test", "data": "digits", "samples": 9}).figure()
        assert words in " ".join(" ".join(text.get_text() for text in figure.texts).split())


@pytest.mark.parametrize("count", [3, 40])
def test_methods_of_one_colour_have_markers_of_their_own(count: int) -> None:
    """Also of many rounds, whose lines have few marks, and of dashed lines."""
    rounds = tuple(MeasuredRound(row(run, 1 + t)) for run in ("fma", "fedadam") for t in range(count))
    axes = Consensus(rounds, {"split": "test"}).figure().axes[0]
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_tie")]
    assert len({line.get_color() for line in lines}) == 1, "the case is one of methods that share a colour"
    assert [line.get_marker() for line in lines] == ["o", "o", "s", "s"]
    assert len({line.get_markerfacecolor() for line in lines}) == 2, "dashed lines have hollow ones"
    marked = [line.get_markevery() for line in lines]
    assert marked == [None] * 4 if count == 3 else all(3 < len(at) < 10 for at in marked)


def test_words_stand_apart_where_errors_are_near_the_top() -> None:
    """What is after mixing is 0, and the label of the panel below stood in it."""
    numbers = {"mixing": "one", "after": 0.0, "merged_error": 0.797, "nodes_error": 0.801}
    result = Consensus((MeasuredRound(row("ima", 1, **numbers)), MeasuredRound(row("ima", 2, **numbers))))
    assert_apart(assert_inside(result.figure(), 3.5))


def test_only_runs_of_adapters_have_distances_of_products() -> None:
    """Whichever run is first; a label is known, too."""
    rounds = tuple(MeasuredRound(row(run, 3)) for run in ("head", "lora"))
    said = "distances are between the products B·A that the adapters add"
    every = Consensus(rounds, {"split": "test", "adapters": "products of factors"})
    assert [said in line for line in every.summary().splitlines()] == [True, True]
    some = Consensus(rounds, {**every.attrs, "adapter_runs": ["lora"]})
    for result in (some, some.renamed({"lora": "ours", "head": "lora"})):
        assert [said in line for line in result.summary().splitlines()] == [False, True]


def test_a_result_comes_back_from_its_files(tmp_path: Path) -> None:
    weights = (MixingWeight(0, 0, 0.5), MixingWeight(0, 1, 0.5))
    result = Consensus(
        (
            MeasuredRound(row("ring", 1), weights),
            MeasuredRound(row("ring", 2, after=None, after_relative=None), (), (3,), "no"),
            MeasuredRound(row("gossip", 1)),
        ),
        {"split": "test"},
    )
    result.save(tmp_path / "m")
    again = fedscope.load(tmp_path / "m.consensus.csv")
    assert isinstance(again, Consensus)
    assert again.rounds == result.rounds
    lines = (tmp_path / "m.mixing.csv").read_text().splitlines()
    assert lines == ["run,round,node,of,weight", "ring,1,0,0,0.5", "ring,1,0,1,0.5"]
    (tmp_path / "m.mixing.csv").unlink()
    with pytest.raises(
        FedscopeError,
        match=r"m\.mixing\.csv does not exist: a result of consensus is ",
    ):
        fedscope.load(tmp_path / "m.consensus.csv")
    Consensus(result.rounds[2:], result.attrs).save(tmp_path / "m")
    assert not (tmp_path / "m.mixing.csv").exists()


@pytest.mark.drawn
@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("names", [("ring",), ("ring", "a-gossip-with-a-long-name", "exponential")])
@pytest.mark.parametrize("width", [2.5, 3.5, 7.0])
def test_figures_are_legible(count: int, names: tuple[str, ...], width: float) -> None:
    rounds = [
        MeasuredRound(
            row(name, t + 1, before=0.5 + 0.01 * t + 0.2 * i, merged_error=0.3 / (t + 1), nodes_error=0.4 / (i + 1))
        )
        for i, name in enumerate(names)
        for t in range(count)
    ]
    attrs = {"data": "digits", "split": "test", "samples": 360}
    figure = Consensus(tuple(rounds), attrs).figure(width)
    assert_apart(assert_inside(figure, width))


@pytest.mark.drawn
@pytest.mark.parametrize("scale", [1e-5, 1.0, 4e4])
def test_a_power_of_ten_of_distances_and_losses_stands_in_their_units(scale: float) -> None:
    lost: dict[str, Any] = {"merged_error": np.nan, "nodes_error": np.nan, "error_gain": np.nan}
    rounds = [
        MeasuredRound(
            row("ring", t, before=3 * scale * t, after=scale, merged_loss=scale, nodes_loss=2 * scale, **lost)
        )
        for t in (1, 2)
    ]
    figure = Consensus(tuple(rounds), {"split": "test"}).figure(3.5)
    assert_apart(assert_inside(figure, 3.5))
    upper, lower = figure.axes[:2]
    power = {1e-5: (-5, -5), 1.0: (0, 0), 4e4: (5, 4)}[scale]
    units = [f"$10^{{{one}}}$" if one else "" for one in power]
    assert upper.get_ylabel() == (f"distance ({units[0]} $L_2$)" if power[0] else "distance ($L_2$)")
    assert lower.get_ylabel() == (f"test loss ({units[1]})" if power[1] else "test loss")
    np.testing.assert_allclose(upper.lines[0].get_ydata(), np.array([3, 6]) * scale / 10.0 ** power[0])
    np.testing.assert_allclose(lower.lines[1].get_ydata(), np.array([2, 2]) * scale / 10.0 ** power[1])
    figure.canvas.draw()
    for axes in (upper, lower):
        assert axes.yaxis.get_offset_text().get_text() == ""


def test_negative_losses_are_within_their_panel() -> None:
    lost: dict[str, Any] = {"merged_error": np.nan, "nodes_error": np.nan, "error_gain": np.nan}
    rounds = tuple(MeasuredRound(row("ring", t, merged_loss=-2.0 - t, nodes_loss=-1.5, **lost)) for t in (1, 2))
    upper, lower = Consensus(rounds, {"split": "test"}).figure().axes
    assert upper.get_ylim()[0] == 0
    low, high = lower.get_ylim()
    assert low < -4 < -1.5 < high


def test_many_runs_have_panels_as_high_as_their_names() -> None:
    rounds = [
        MeasuredRound(row(f"run-{i}", t, before=0.5 + 0.01 * i, merged_error=0.3, nodes_error=0.31))
        for i in range(20)
        for t in (1, 2)
    ]
    figure = Consensus(tuple(rounds), {"data": "digits", "split": "test", "samples": 360}).figure()
    assert_apart(assert_inside(figure, 3.5))
