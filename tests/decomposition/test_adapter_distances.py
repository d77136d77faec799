"""Consensus distances and predictors of adapters: those of dense products, whatever factors these have."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeWarning, Run
from fedscope.decomposition.adapters.recorded_adapters import adapters_of_run
from fedscope.decomposition.consensus.distances import measure_distances
from fedscope.decomposition.predictors.round_predictors import DIRECTIONS
from fedscope.decomposition.reaggregation import conflicts
from fedscope.decomposition.reaggregation.conflicts import sign_conflict

#: of numbers that are told from factors in float32: those round to 6e-8
ROUNDED = 1e-6
RANK, WIDTH, OUT, SCALE = 6, 12, 10, 8 / 6
State = dict[str, np.ndarray]


class Low(nn.Module):
    """A fixed layer with an adapter."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.lora_A, self.lora_B = nn.Linear(into, RANK, bias=False), nn.Linear(RANK, out, bias=False)
        fixed = torch.randn(out, into, generator=torch.Generator().manual_seed(0)) / 4
        self.register_buffer("fixed", fixed, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x @ self.fixed.T + SCALE * self.lora_B(self.lora_A(x))
        return made


def network() -> nn.Module:
    """Two adapted layers, and a head that is trained whole."""
    return nn.Sequential(Low(WIDTH, OUT), nn.ReLU(), Low(OUT, WIDTH), nn.Linear(WIDTH, 9))


X, Y = torch.randn(60, WIDTH, generator=torch.Generator().manual_seed(1)), torch.arange(60) % 9
HOW: dict[str, Any] = {"model": network, "data": ((X, Y), (X, Y))}


def adapter(seed: int, size: float = 0.3) -> State:
    draw = np.random.default_rng(seed)
    shapes = {name: value.shape for name, value in network().state_dict().items()}
    return {name: (size * draw.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}


def turned(state: State, seed: int) -> State:
    """The same products from other factors, B G⁻¹ and G A."""
    made, draw = dict(state), np.random.default_rng(seed)
    for layer in ("0", "2"):
        g = np.linalg.qr(draw.normal(size=(RANK, RANK)))[0] @ np.diag([2.0, 0.5, 1, 1, 1, -1.5])
        made[f"{layer}.lora_A.weight"] = (g @ state[f"{layer}.lora_A.weight"]).astype(np.float32)
        made[f"{layer}.lora_B.weight"] = (state[f"{layer}.lora_B.weight"] @ np.linalg.inv(g)).astype(np.float32)
    return made


def dense(state: State) -> list[np.ndarray]:
    """What the adapters add, in float64, and the head."""
    whole = {name: value.astype(np.float64) for name, value in state.items()}
    made = [SCALE * whole[f"{layer}.lora_B.weight"] @ whole[f"{layer}.lora_A.weight"] for layer in ("0", "2")]
    return [*made, whole["3.weight"], whole["3.bias"]]


def flat(states: Sequence[State]) -> np.ndarray:
    return np.array([np.concatenate([value.ravel() for value in dense(state)]) for state in states])


def about_mean(rows: np.ndarray) -> float:
    return float(np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum() / len(rows)))


def mixed(matrix: np.ndarray, states: Sequence[State]) -> list[State]:
    return [
        {
            name: sum(w * s[name].astype(np.float64) for w, s in zip(row, states, strict=True)).astype(np.float32)
            for name in states[0]
        }
        for row in matrix
    ]


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """What is said of adapters is tested where it is the subject."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*factors of a product.*")
        yield


NODES = [adapter(k) for k in range(5, 9)]
MIXING = np.array([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]])


def gossip(path: Path, *, told: bool, starts: bool) -> Run:
    """A run of two rounds without a server; the first starts are one model in other factors for each node."""
    first = [turned(adapter(0), k) for k in range(4)]
    how: dict[str, Any] = {"mixing": MIXING} if told else {}
    with fedscope.Recorder(path, lora_alpha=8, **HOW) as recorder:
        recorder.round(starts=dict(enumerate(first)), clients=dict(enumerate(NODES)), **how)
        if starts:
            then = mixed(MIXING, NODES)
            recorder.round(starts=dict(enumerate(then)), clients=dict(enumerate(NODES)), **how)
    return Run.open(path)


@pytest.mark.parametrize(("told", "starts"), [(True, True), (False, True), (True, False)])
def test_consensus_distances_are_those_of_dense_products(tmp_path: Path, told: bool, starts: bool) -> None:
    found = measure_distances(gossip(tmp_path / "run", told=told, starts=starts), 1)
    rows = flat(NODES)
    assert found.before == pytest.approx(about_mean(rows), rel=ROUNDED)
    assert found.after == pytest.approx(about_mean(flat(mixed(MIXING, NODES))), rel=ROUNDED)
    assert found.moved == pytest.approx(np.linalg.norm(rows.mean(axis=0) - flat([adapter(0)])[0]), rel=ROUNDED)
    # the mean of products is not the product of means, whose way would be another
    way = np.linalg.norm(flat(mixed(np.full((1, 4), 0.25), NODES))[0] - flat([adapter(0)])[0])
    assert abs(way / found.moved - 1) > 0.03
    assert found.mixing is not None
    assert found.mixing.source == ("given" if told else "identified")
    assert found.mixing.matrix == pytest.approx(MIXING, abs=1e-4)


def test_starts_of_great_numbers_are_squared_in_float64(tmp_path: Path) -> None:
    great = [{**adapter(k), "3.bias": np.full(9, k * 1e20, np.float32)} for k in (1, 2, 4)]
    with fedscope.Recorder(tmp_path / "run", lora_alpha=8) as recorder:
        recorder.round(starts=great, clients=great)
        recorder.round(starts=great, clients=great)
    found = measure_distances(Run.open(tmp_path / "run"), 1)
    want = 1e20 * np.sqrt(9 * np.var([1.0, 2.0, 4.0]))
    assert found.before == pytest.approx(want, rel=ROUNDED)
    assert found.after == pytest.approx(want, rel=ROUNDED)


def test_nodes_with_one_product_from_other_factors_are_not_apart(tmp_path: Path) -> None:
    one = adapter(3)
    nodes = [one, *(turned(one, k) for k in range(3))]
    with fedscope.Recorder(tmp_path / "run", lora_alpha=8, **HOW) as recorder:
        recorder.round(start=one, clients=nodes)
    factors = np.array([np.concatenate([value.ravel() for value in node.values()]) for node in nodes], float)
    size = np.linalg.norm(flat([one]))
    assert about_mean(factors) > 0.3 * size  # as the factors tell it
    found = measure_distances(Run.open(tmp_path / "run"), 1)
    assert found.before < ROUNDED * size
    assert found.moved is not None
    assert found.moved < ROUNDED * size


def test_models_that_are_the_same_are_not_apart_at_all(tmp_path: Path) -> None:
    with fedscope.Recorder(tmp_path / "run", lora_alpha=8, **HOW) as recorder:
        recorder.round(start=adapter(3), clients=[adapter(3)] * 3)
    found = measure_distances(Run.open(tmp_path / "run"), 1)
    assert (found.before, found.moved) == (0.0, 0.0)


def test_a_node_that_diverged_leaves_no_distance(tmp_path: Path) -> None:
    broken = {name: np.full_like(value, np.nan) for name, value in adapter(1).items()}
    with fedscope.Recorder(tmp_path / "run", lora_alpha=8, **HOW) as recorder:
        recorder.round(start=adapter(0), clients=[adapter(1), broken])
    found = measure_distances(Run.open(tmp_path / "run"), 1)
    assert np.isnan(found.before)
    assert np.isnan(found.moved or 0.0)


def federation(path: Path, other: Callable[[State, int], State] = lambda state, seed: state) -> Run:
    """A run of five rounds, or the same with other factors, alike in all models of a round: means of factors have the
    same products then."""
    with fedscope.Recorder(path, lora_alpha=8, **HOW) as recorder:
        for t in range(5):
            states = [adapter(100 * t), *(moved(adapter(100 * t), 100 * t + k) for k in range(1, 4))]
            start, *clients = (other(state, t) for state in states)
            recorder.round(start=start, clients=clients)
    return Run.open(path)


def moved(state: State, seed: int) -> State:
    return {name: value + step for (name, value), step in zip(state.items(), adapter(seed, 0.1).values(), strict=True)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("predictors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return federation(folder / "one" / "run"), federation(folder / "other" / "run", turned)


def test_predictors_are_those_of_dense_products(runs: tuple[Run, Run]) -> None:
    found = fedscope.predictors(runs[0], model=network)
    for t, one in enumerate(found.rounds):
        start = adapter(100 * t)
        clients = [moved(start, 100 * t + k) for k in range(1, 4)]
        away = flat(clients) - flat([start])
        lengths = np.linalg.norm(away, axis=1)
        cosines = away @ away.T / np.outer(lengths, lengths)
        assert one.cosine == pytest.approx(cosines[np.triu_indices(3, 1)].mean(), abs=ROUNDED)
        assert one.kept == pytest.approx(np.linalg.norm(away.mean(axis=0)) / lengths.mean(), rel=ROUNDED)
        shares = np.linalg.svd(away, compute_uv=False) ** 2
        shares /= shares.sum()
        assert one.rank == pytest.approx(np.exp(-(shares * np.log(shares)).sum()) / 3, rel=ROUNDED)
        overlaps = []
        for layer in range(3):  # the head is large enough, too
            steps = [dense(client)[layer] - dense(start)[layer] for client in clients]
            steps = [step if step.shape[0] <= step.shape[1] else step.T for step in steps]
            first = [np.linalg.svd(step)[0][:, :DIRECTIONS] for step in steps]
            overlaps += [np.sum((first[i].T @ first[(i + 1) % 3]) ** 2) / DIRECTIONS for i in range(3)]
        assert one.overlap == pytest.approx(np.mean(overlaps), abs=1e-5)
        assert one.conflict == np.mean((away > 0).any(axis=0) & (away < 0).any(axis=0))
        assert 0.2 < one.conflict < 0.95
    assert "updates are those of the products B·A, the mean is that of factors" in found.summary()


def test_other_factors_of_one_product_are_no_conflict(tmp_path: Path) -> None:
    one = adapter(3)
    raised = {**one, "3.bias": one["3.bias"] + np.float32(1)}
    lowered = {**turned(one, 1), "3.bias": one["3.bias"] - (np.arange(9) < 3).astype(np.float32)}
    with fedscope.Recorder(tmp_path / "run", lora_alpha=8, **HOW) as recorder:
        recorder.round(start=one, clients=[turned(one, 0), turned(one, 1)])
        recorder.round(start=one, clients=[raised, lowered])
    run = Run.open(tmp_path / "run")
    adapters = adapters_of_run(run)
    first, second = (sign_conflict(run.round(number), adapters) for number in run.rounds)
    assert first is not None
    assert np.isnan(first)
    assert second == 3 / 9


def test_reaggregation_counts_conflicts_over_products(runs: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    (wanted,) = fedscope.predictors(runs[0], model=network, rounds=2).rounds
    found = fedscope.reaggregate(runs[0], ["ties"], model=network, rounds=2)
    assert found.attrs["sign_conflict"] == wanted.conflict
    assert f"{100 * wanted.conflict:.3g} % of the entries of B·A that moved were raised" in found.summary()
    # in blocks of a row, too
    monkeypatch.setattr(conflicts, "ENTRIES", 1)
    assert sign_conflict(runs[0].round(2), adapters_of_run(runs[0])) == wanted.conflict


@pytest.mark.parametrize("question", [fedscope.predictors, fedscope.consensus], ids=["predictors", "consensus"])
def test_no_number_depends_on_the_choice_of_factors(runs: tuple[Run, Run], question: Callable[..., Any]) -> None:
    def numbers(value: Any) -> list[float]:
        if isinstance(value, dict):
            return numbers(list(value.values()))
        if isinstance(value, list | tuple):
            return list(itertools.chain(*map(numbers, value)))
        return [value] if isinstance(value, float) else []

    one, other = (np.array(numbers(question(run, model=network).findings())) for run in runs)
    assert len(one) > 20
    assert np.allclose(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_answers_say_whether_they_are_of_products(runs: tuple[Run, Run], tmp_path: Path) -> None:
    run = runs[0]

    def said(question: Callable[[], Any]) -> tuple[Any, str]:
        with pytest.warns(FedscopeWarning, match="factors of a product") as caught:
            answer = question()
        (sentence,) = {str(one.message) for one in caught if "factors of a product" in str(one.message)}
        return answer, sentence

    for question in (fedscope.consensus, fedscope.predictors):
        answer, sentence = said(lambda question=question: question(run, model=network))
        assert "losses here are those of factors' means, distances and angles those between products" in sentence
        assert answer.attrs["adapters"] == "products of factors"
        assert answer.attrs["adapter_scales"] == [SCALE]
        assert answer.attrs["models_read"] in sentence
        answer.save(tmp_path / "answer")
        assert "the products B·A" in fedscope.load(next(tmp_path.glob("answer.*.json"))).summary()
        [file.unlink() for file in tmp_path.glob("answer*")]
    for single in (
        lambda: fedscope.disperse(run, rounds=1),
        lambda: fedscope.synergy(f"{run.path}@1"),
        lambda: fedscope.parameters(run, rounds=1, parameters=["0.lora_A.weight[0,0]"]),
    ):
        _, sentence = said(single)
        assert "this answer is of single numbers of A and B, which are others in another pair" in sentence
        assert sentence.endswith("fedscope updates and fedscope disperse --embed compare products")


def test_other_kinds_of_adapters_and_unknown_scales_are_said(tmp_path: Path) -> None:
    with fedscope.Recorder(tmp_path / "run", **HOW) as recorder:
        recorder.round(start=adapter(0), clients=[adapter(1), adapter(2)])
    with pytest.warns(FedscopeWarning, match=r"the scale alpha / rank of its adapters was not recorded"):
        found = fedscope.consensus(tmp_path / "run", model=network)
    (row,) = json.loads(json.dumps(found.findings()))["rounds"]
    assert row["before"] != pytest.approx(about_mean(flat([adapter(1), adapter(2)])), rel=0.01)
    assert found.attrs["adapter_scale_known"] is False
