"""Signs of updates of a client that diverged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedscope
from fedscope.checkpoints import Layout, TensorEntry, Weights
from fedscope.checkpoints.rounds.drift import drift_in
from fedscope.decomposition.adapters.recorded_adapters import adapters_of_run
from fedscope.decomposition.reaggregation.conflicts import conflicts_in, sign_conflict

SIZE = 60


def start_and_clients() -> tuple[np.ndarray, np.ndarray]:
    """A start [60] and clients [2, 60], of which all numbers have moved."""
    draw = np.random.default_rng(4)
    return draw.normal(size=SIZE).astype(np.float32), draw.normal(size=(2, SIZE)).astype(np.float32)


@pytest.mark.parametrize("broken", [np.inf, -np.inf, np.nan])
def test_a_client_that_diverged_has_no_sign(broken: float) -> None:
    """It neither raises nor lowers anything, whichever of the three it has become; where it is finite it counts."""
    start, clients = start_and_clients()
    layout = Layout((TensorEntry("w", (SIZE,), "float32", "parameter"),))
    sent = Weights(layout, start, {})

    def share(rows: np.ndarray) -> float:
        return conflicts_in(sent, [(slice(0, 25), rows[:, :25]), (slice(25, SIZE), rows[:, 25:])])

    away = np.sign(clients - start)
    expected = float(np.mean(away[0] != away[1]))
    assert 0 < expected < 1
    whole = np.full((1, SIZE), broken, np.float32)
    assert share(np.concatenate([clients, whole])) == share(clients) == expected
    half = np.where(np.arange(SIZE) < 30, broken, start + 1)[None].astype(np.float32)
    some = np.concatenate([away, np.where(np.arange(SIZE) < 30, 0, 1)[None]])
    torn = (some > 0).any(axis=0) & (some < 0).any(axis=0)
    assert share(np.concatenate([clients, half])) == float(torn.mean())


@pytest.mark.parametrize("broken", [np.inf, -np.inf, np.nan])
def test_drift_while_training_counts_the_same_signs(broken: float) -> None:
    """Of a client without weight, with which the other numbers of a round exist."""
    start, clients = start_and_clients()
    rows = np.concatenate([clients, np.full((1, SIZE), broken, np.float32)])
    sent = Weights(Layout((TensorEntry("w", (SIZE,), "float32", "parameter"),)), start, {})
    found = drift_in([(start, rows, None)], np.array([0.5, 0.5, 0.0]))
    assert found["drift_conflict"] == conflicts_in(sent, [(slice(0, SIZE), rows)])


@pytest.mark.filterwarnings("ignore:.*(has diverged|factors of a product)")
@pytest.mark.parametrize("broken", [np.inf, -np.inf, np.nan])
def test_adapters_that_diverged_have_no_sign(tmp_path: Path, broken: float) -> None:
    """Of entries of B·A: an infinite entry of B spoils one row of the products and leaves the others."""

    def adapter(seed: int) -> dict[str, np.ndarray]:
        draw = np.random.default_rng(seed)
        return {
            "q.lora_A.weight": draw.normal(size=(2, 9)).astype(np.float32),
            "q.lora_B.weight": draw.normal(size=(6, 2)).astype(np.float32),
        }

    def product(one: dict[str, np.ndarray]) -> np.ndarray:
        return one["q.lora_B.weight"].astype(float) @ one["q.lora_A.weight"].astype(float)

    start, clients = adapter(0), [adapter(k) for k in (1, 2, 3)]
    clients[2]["q.lora_B.weight"][4] = broken
    with fedscope.Recorder(tmp_path / "run", lora_alpha=2) as recorder:
        recorder.round(start=start, clients=clients)
    run = fedscope.Run.open(tmp_path / "run")
    with np.errstate(invalid="ignore"):
        away = np.array([product(one) for one in clients]) - product(start)
    away[2, 4] = 0.0
    torn = (away > 0).any(axis=0) & (away < 0).any(axis=0)
    assert sign_conflict(run.round(1), adapters_of_run(run)) == float(torn.mean())
