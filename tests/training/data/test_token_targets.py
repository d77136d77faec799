"""Targets of language models that stand at the wrong tokens are told, wherever they enter."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fedscope
from fedscope.checkpoints import FedscopeWarning
from fedscope.checkpoints.recorder.token_targets import are_inputs, are_next
from fedscope.evaluation.criteria import LabelCriterion
from fedscope.evaluation.standard_tasks import Sequences
from fedscope.training.build import load_data
from fedscope.training.data.custom import taken_data

pytestmark = pytest.mark.same_elsewhere
RNG = np.random.default_rng(3)
TOKENS = RNG.integers(1, 20, (8, 10))
X, Y = TOKENS[:, :-1], TOKENS[:, 1:]
SAME, TWICE = "is x_test, token by token", "labels of which each is the next token of input_ids already"


class Shifting(Sequences):
    """One that moves its targets by itself."""


def said(work: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(one.message) for one in caught if issubclass(one.category, FedscopeWarning)]


def padded(tokens: np.ndarray, lengths: np.ndarray, fill: int) -> np.ndarray:
    return np.where(np.arange(tokens.shape[1]) < lengths[:, None], tokens, fill)


def pairs(x: np.ndarray, y: np.ndarray) -> TensorDataset:
    return TensorDataset(torch.from_numpy(x.copy()), torch.from_numpy(y.copy()))


LENGTHS = np.array([4, 10, 7, 6, 5, 9, 8, 10])


@pytest.mark.parametrize(
    "given",
    [
        (TOKENS, TOKENS),
        ((X, Y), (TOKENS[:, :-1], TOKENS[:, :-1])),
        {"x_test": TOKENS.astype(np.int32), "y_test": TOKENS},
        (TOKENS, padded(TOKENS, LENGTHS, -100)),  # padding does not count
        pairs(TOKENS, TOKENS),
        DataLoader(pairs(TOKENS, TOKENS), batch_size=3),
        (TOKENS, np.where(np.arange(10) < 3, -100, TOKENS)),  # a prompt does not
    ],
)
def test_targets_that_are_the_tokens_are_told(given: Any) -> None:
    found = said(lambda: taken_data(given, Sequences()))
    assert len(found) == 1
    assert SAME in found[0]
    assert "give x = tokens[:, :-1] and y = tokens[:, 1:]" in found[0]


@pytest.mark.parametrize(
    "given",
    [
        {"input_ids": X, "labels": Y},
        {"input_ids": X, "labels": padded(Y, LENGTHS - 1, -100), "attention_mask": padded(X, LENGTHS, 0) > 0},
        DataLoader([{"input_ids": torch.tensor(x), "labels": torch.tensor(y)} for x, y in zip(X, Y, strict=True)]),  # type: ignore[arg-type]
    ],
)
def test_labels_that_were_moved_before_are_told(given: Any) -> None:
    found = said(lambda: taken_data(given, Sequences()))
    assert len(found) == 1
    assert TWICE in found[0]


@pytest.mark.parametrize(
    "given",
    [
        (X, Y),
        {"input_ids": TOKENS},
        {"input_ids": TOKENS, "labels": TOKENS},
        {"input_ids": TOKENS, "labels": padded(TOKENS, LENGTHS, -100)},
        (TOKENS, np.where(RNG.random(TOKENS.shape) < 0.15, TOKENS, -100)),
        (np.full((8, 10), 3), np.full((8, 10), 3)),  # one token alone
        {"input_ids": np.full((8, 10), 3), "labels": np.full((8, 10), 3)},
        (TOKENS[:1, :5], TOKENS[:1, :5]),  # a few positions
        (TOKENS, TOKENS % 2),  # a tag a token
        (TOKENS % 2, (TOKENS % 2) ^ (RNG.random(TOKENS.shape) < 0.1)),
        {"input_ids": TOKENS, "labels": np.where(TOKENS % 5 == 0, TOKENS, -100)},
        (RNG.normal(size=(8, 4, 4)).astype(np.float32), RNG.integers(0, 2, (8, 4, 4))),
    ],
)
def test_targets_that_are_right_or_not_to_be_judged_are_silent(given: Any) -> None:
    assert said(lambda: taken_data(given, Sequences())) == []


@pytest.mark.parametrize("labels", [TOKENS % 3, np.where(TOKENS % 4 == 0, TOKENS + 1, -100)], ids=["tags", "masked"])
def test_labels_that_are_other_tokens_are_told_to_be_moved(labels: np.ndarray) -> None:
    """A collator for tags or masked tokens leaves them at their places, which a causal model's are not."""
    (sentence,) = said(lambda: taken_data({"input_ids": TOKENS, "labels": labels}, Sequences()))
    assert "labels of which most are other tokens than input_ids has at their places" in sentence
    assert "give these two as x and y for labels that stay at their places" in sentence
    assert said(lambda: taken_data((TOKENS, labels), Sequences())) == []


def test_tags_are_fewer_than_the_tokens_that_the_data_s_classes_are_counted_by() -> None:
    net = torch.nn.Sequential(torch.nn.Embedding(int(TOKENS.max()) + 1, 4), torch.nn.Linear(4, 3))
    made = fedscope.sharpness({"tagger": net}, data=(TOKENS, TOKENS % 3), task="sequences", hessian=False, draws=2)
    assert len(made.list_names()) == 1


def test_a_masked_language_model_is_silent() -> None:
    """Its targets are the tokens, at scattered positions."""
    x = RNG.integers(1, 20, (200, 40))
    for share in (0.1, 0.15, 0.3):
        assert not are_inputs(x, np.where(RNG.random(x.shape) < share, x, -100))
    assert not are_next(x[:, :-1], np.where(RNG.random((200, 39)) < 0.15, x[:, :-1], -100), x[:, 1:] > 0)


def test_tasks_that_may_move_targets_themselves_are_silent_and_criteria_are_not() -> None:
    assert said(lambda: taken_data((TOKENS, TOKENS), Shifting())) == []
    criterion = LabelCriterion(torch.nn.CrossEntropyLoss(), "crossentropy")
    found = said(lambda: taken_data((TOKENS, TOKENS), criterion.taken(TOKENS)[0]))
    assert len(found) == 1


def test_one_other_target_at_the_end_is_seen(tmp_path: Path) -> None:
    """All targets are looked at, though the first ones are read first."""
    x = RNG.integers(1, 20, (300, 10))
    y = x.copy()
    assert are_inputs(x, y)
    y[-1, -1] += 1
    assert not are_inputs(x, y)


def test_tokens_are_looked_at_some_at_a_time() -> None:
    """Of tokens that are mapped from a file, all rows at once need the room of several times the file."""
    x = np.arange(2_000_000, dtype=np.int32).reshape(-1, 1000)
    there = np.ones(x.shape, bool)
    for ask in (lambda: are_inputs(x, x), lambda: are_next(x, x + 1, there)):
        tracemalloc.start()
        assert ask()
        # x + 1 is 8 MB; beside it a block of 1 MB of tokens, and what is made of it
        assert tracemalloc.get_traced_memory()[1] < 14e6
        tracemalloc.stop()
    last = x + 1
    last[-1, 3] = 0
    assert not are_next(x, last, there)


def test_files_are_told_of(tmp_path: Path) -> None:
    for name, arrays, expected in (
        ("same", {"x": TOKENS, "y": TOKENS}, SAME),
        ("both", {"x_train": X, "y_train": X, "x_test": X, "y_test": X}, SAME),
        ("twice", {"input_ids": X, "labels": Y}, TWICE),
        ("right", {"x": X, "y": Y}, ""),
        ("own", {"input_ids": TOKENS, "labels": TOKENS}, ""),
    ):
        path = tmp_path / f"{name}.npz"
        np.savez(path, **arrays)  # type: ignore[arg-type]
        found = said(lambda path=path: load_data(f"npz:{path}", Sequences()))  # type: ignore[misc]
        assert bool(found) == bool(expected), found
        assert all(expected in one for one in found) or name == "both"
