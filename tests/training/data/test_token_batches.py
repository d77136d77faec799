"""Tokens in batches of dictionaries and in files, against targets written by hand."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.evaluation.standard_tasks import TASKS
from fedscope.training import load_data
from fedscope.training.data.custom import taken_data

pytestmark = pytest.mark.same_elsewhere

SEQUENCES, TEXTS = TASKS["sequences"], TASKS["sequence-classification"]
IDS = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [1, 2, 3, 0]])
REAL = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])
#: what is to be told at each position: the next token, where it is no padding
NEXT = np.array([[4, 5, 6, -100], [8, -100, -100, -100], [2, 3, -100, -100]])


def batches(**columns: np.ndarray) -> Any:
    return [{name: torch.tensor(values[i]) for name, values in columns.items()} for i in range(len(IDS))]


class Items(torch.utils.data.Dataset):
    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


@pytest.mark.parametrize("labelled", [False, True])
def test_labels_stand_at_their_own_tokens(labelled: bool) -> None:
    columns = {"input_ids": IDS, "attention_mask": REAL} | ({"labels": IDS} if labelled else {})
    rows = Items(batches(**columns))
    for given in (columns, rows, torch.utils.data.DataLoader(rows, batch_size=2)):
        data = taken_data(given, SEQUENCES)
        assert data.x_test.tolist() == IDS.tolist()
        assert data.y_test.tolist() == NEXT.tolist()
    marked = np.where(REAL == 1, IDS, -100)  # in place of a mask
    assert taken_data({"input_ids": IDS, "labels": marked}, SEQUENCES).y_test.tolist() == NEXT.tolist()


def test_a_label_a_text_is_a_classification_of_tokens() -> None:
    given = {"input_ids": IDS, "labels": np.array([2, 0, 1])}
    data = taken_data(given, TEXTS)
    assert (data.task.name, data.classes, data.x_test.dtype) == ("sequence-classification", 3, np.int64)
    assert data.x_test.tolist() == IDS.tolist()
    with pytest.warns(FedscopeWarning, match="padding, the token 0, which the network has to leave out by itself: it"):
        taken_data({**given, "attention_mask": REAL}, TEXTS)
    with pytest.raises(FedscopeError, match=r"tokens = True, as sequences or sequence-classification\)"):
        taken_data(given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"input_ids": IDS[0]}, r"input_ids of shape \[4\] and type int64; give whole numbers \[N, L\]"),
        ({"input_ids": IDS / 2}, r"input_ids of shape \[3, 4\] and type float64; give whole numbers"),
        (
            {"input_ids": IDS, "labels": IDS[:2]},
            r"labels of shape \[2, 4\] for input_ids of \[3, 4\]; give a label a t",
        ),
        ({"input_ids": IDS, "attention_mask": REAL[:, 1:]}, r"attention_mask of shape \[3, 3\] for input_ids of"),
        (
            {"input_ids": IDS, "attention_mask": REAL[:, ::-1]},
            r"a sample \(the first is 1\) whose attention_mask is 0 before its last token, .*; put padding at the end",
        ),
        (
            {"input_ids": IDS + (IDS == 0) * 3, "attention_mask": REAL, "labels": np.array([2, 0, 1])},
            r"padding of the tokens 3, which stand for more than padding, .*; fill up with a token of its own",
        ),
        (
            Items([{"input_ids": [1, 2]}, {"input_ids": [1]}]),
            r"items of shapes \[2\] and \[1\]; fill all up to one len",
        ),
        (
            Items([{"input_ids": [1, 2]}, {"input_ids": [1, 2], "labels": 1}]),
            "items of input_ids and of input_ids, labels; give all the same",
        ),
        (Items([{"ids": [1, 2]}]), r"item 0 is a dict; give pairs \(x, y\), or dictionaries with input_ids"),
    ],
)
def test_batches_that_are_none_are_named(given: Any, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        taken_data(given)


def test_files_of_tokens(tmp_path: Path) -> None:
    def loaded(task: Any = SEQUENCES, **arrays: np.ndarray) -> Any:
        np.savez(tmp_path / "a.npz", **arrays)
        return load_data(f"npz:{tmp_path}/a.npz", task)

    following = np.concatenate([IDS[:, 1:], np.full((3, 1), -100)], axis=1).tolist()
    with pytest.warns(FedscopeWarning, match="has no y_test: the next token is told at every position"):
        assert loaded(x=IDS).y_test.tolist() == following
    with pytest.warns(FedscopeWarning, match="has no y_train and y_test: the next token"):
        both = loaded(x_train=IDS[:2], x_test=IDS)
    assert (both.y_train.tolist(), both.y_test.tolist()) == (following[:2], following)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loaded(input_ids=IDS, attention_mask=REAL).y_test.tolist() == NEXT.tolist()
        assert loaded(x=IDS, y=NEXT).y_test.tolist() == NEXT.tolist()
        labelled = loaded(TEXTS, x=IDS, y=np.array([0, 1, 1]))
    assert (labelled.x_test.dtype, labelled.classes) == (np.int64, 2)
    with pytest.raises(FedscopeError, match="lacks y_test; it has x_test"):
        loaded(TEXTS, x=IDS)


class Bag(nn.Module):
    """Classes of a bag of tokens, answered as transformers answers."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(self.embed(input_ids).mean(1))}


def test_networks_of_tokens_take_batches() -> None:
    y = np.array([2, 0, 1])
    nets = [Bag(k) for k in range(2)]
    with pytest.warns(FedscopeWarning, match='a dict, of which "logits" is taken'):
        line = fedscope.line(nets, data=Items(batches(input_ids=IDS, labels=y)), task=TEXTS, points=3, range=(0, 1))
    with torch.no_grad():
        own = [
            float(nn.functional.cross_entropy(net(torch.from_numpy(IDS))["logits"], torch.from_numpy(y)))
            for net in nets
        ]
    assert line.loss[0, [0, -1]] == pytest.approx(own[::-1], rel=1e-6)
