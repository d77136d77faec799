"""Models of a run that are too many for the memory: read when they are asked for, with the same numbers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedscope
from fedscope.checkpoints import Weights
from fedscope.checkpoints.models.stored_weights import RecentWeights, StoredWeights
from fedscope.training.inputs import models

pytestmark = pytest.mark.same_elsewhere

WORDS = "--method fma --clients 4 --participation 1 --rounds 5 --set model.hidden=[6] --set run.evaluate_clients=0"
QUESTIONS: dict[str, Callable[[str], Any]] = {
    "line": lambda run: fedscope.line(run, rounds="all", points=5, limit=50),
    "sharpness": lambda run: fedscope.sharpness(run, rounds="all", limit=50, draws=2, top=1, probes=1, seed=0),
    "re-estimate": lambda run: fedscope.line(
        [f"{run}@{t}/{which}" for t in (1, 2, 3) for which in ("client-0", "mean(1,2)")],
        points=3,
        limit=50,
        normalization="re-estimate",
    ),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> str:
    return str(recorded(tmp_path_factory.mktemp("stored") / "fma", *WORDS.split()))


@pytest.mark.parametrize("name", QUESTIONS)
def test_numbers_of_stored_models_are_the_same(name: str, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, and no more than a pair's models are held, however often they are asked for."""
    plain = QUESTIONS[name](run)
    monkeypatch.setattr(models, "HELD", 0)
    most, read = [0], [0]
    load = models.read_address

    def counted(*words: Any) -> Any:
        read[0] += 1
        alive = [one for one in gc.get_objects() if type(one) is RecentWeights]
        most[0] = max(most[0], *(len(one._held) for one in alive))
        return load(*words)

    monkeypatch.setattr(models, "read_address", counted)
    stored = QUESTIONS[name](run)
    assert read[0] > len(stored.attrs["addresses"])
    assert most[0] == 2
    for field, values in vars(plain).items():
        if field != "attrs":
            again = vars(stored)[field]  # rows of a sharpness are equal only to themselves
            np.testing.assert_equal(*(repr(one) if isinstance(one, tuple) else one for one in (again, values)))
    assert stored.attrs["models_sha256"] == plain.attrs["models_sha256"]


def test_models_stay_stored_where_they_are_too_many(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a run; what is in memory or was read by the user already is not read again."""
    from fedscope.analysis.settings import EvaluationConfig

    own = fedscope.load_model(f"{run}@1/client-0")
    asked = [f"{run}@{t}/global" for t in (1, 2, 3)]
    source = EvaluationConfig.of("test", {"limit": 10})
    for held, stored in ((2**30, 0), (0, 3)):
        monkeypatch.setattr(models, "HELD", held)
        resolved = models.resolve_models([*asked, own], source)
        assert sum(isinstance(one.weights, StoredWeights) for one in resolved.models) == stored
        for one, name in zip(resolved.models, asked, strict=False):
            np.testing.assert_array_equal(one.weights.parameters, fedscope.load_model(name).weights.parameters)
            assert one.weights.arrays().keys() == one.weights.layout.slices.keys()


def test_as_many_are_held_as_there_is_room_for() -> None:
    """The latest, of so many bytes; two at least."""
    layout = fedscope.checkpoints.Layout.of(torch.nn.Linear(2, 3))
    made: list[int] = []

    def read(k: int) -> Weights:
        made.append(k)
        return Weights(layout, np.full(9, k, np.float32), {})

    for room, again in ((0, [1, 0]), (3 * 36, [0]), (4 * 36, [])):
        made.clear()
        recent = RecentWeights(room)
        ask = [StoredWeights(layout, lambda k=k: read(k), recent) for k in range(4)]  # type: ignore[misc]
        assert [one.parameters[0] for one in ask] == [0, 1, 2, 3] == made
        assert [ask[k].parameters[0] for k in (3, 2, 3, 1, 0)] == [3, 2, 3, 1, 0]
        assert made[4:] == again


def test_clients_of_many_rounds_are_aligned_round_by_round(run: str) -> None:
    """What each round alone says."""
    together = fedscope.align(run, rounds="all", limit=50)
    alone = [row for t in range(1, 6) for row in fedscope.align(f"{run}@{t}", limit=50).moved]
    assert list(together.moved) == alone
