"""Averages of models whose masks or whole numbers differ: whoever forms one says what it has instead of a mean."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeWarning, Layout
from fedscope.evaluation.unlike_buffers import warn_of_averaged
from fedscope.training.inputs.samples import averaged_buffers

SAID = r"models that are averaged differ in the buffer keep \(truth values\), and their average has that of one of them"


class Masked(nn.Module):
    """A network that masks its hidden units: a batch of training says which are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 2)
        self.register_buffer("keep", torch.ones(16, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        if self.training and x.shape[0] > 1:
            self.keep.copy_(h.detach()[:2].sum(0) > 0)  # type: ignore[operator]
        return self.b(torch.relu(h) * self.keep)  # type: ignore[operator, no-any-return]


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


def test_masks_that_clients_train_are_told_by_training_and_by_analyses(tmp_path: Path) -> None:
    """The average had the mask of the client with most samples, without a word."""
    how = {"clients": 3, "participation": 1.0, "rounds": 2, "data": data()}
    with pytest.warns(FedscopeWarning, match=SAID):
        run = fedscope.train(model=Masked, out=tmp_path / "run", **how)
    assert run.round(1).clients().buffers["keep"].any(axis=1).all()
    asked = {"model": Masked(), "data": data()}
    for analysis, words in (
        (fedscope.subsets, {"rounds": "last"}),
        (fedscope.decompose, {"rounds": "last", "draws": "none"}),
        (fedscope.theory, {"rounds": "last"}),
        (fedscope.predictors, {"rounds": "last"}),
        (fedscope.reaggregate, {"servers": "fedavgm"}),
    ):
        given = f"{run.path}@2" if analysis is fedscope.reaggregate else run
        with pytest.warns(FedscopeWarning, match=SAID):
            analysis(given, **words, **asked)
    clients = [f"{run.path}@2/client-{k}" for k in range(2)]
    with pytest.warns(FedscopeWarning, match=SAID):
        fedscope.align(clients, **asked)


def test_an_average_over_rounds_says_so_too(tmp_path: Path) -> None:
    """One client a round has one mask, and the rounds have several."""
    how = {"clients": 1, "participation": 1.0, "rounds": 2, "data": data(), "average": "wima"}
    with pytest.warns(FedscopeWarning, match=SAID):
        fedscope.train(model=Masked, out=tmp_path / "run", **how)


def rows(*values: list[float], dtype: type = float) -> list[np.ndarray]:
    return [np.array(one, dtype) for one in values]


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("own", rows([1, 0], [1, 1], dtype=int), "own (a mask of 0 and 1), and their average has that of one of them"),
        ("own", rows([1, 0], [1, 1], dtype=bool), "own (truth values), and their average has that of one of them"),
        ("own", rows([1, 2], [1, 3], dtype=int), ""),  # counts of each class
        ("own", rows([1, 0], [1, 3], dtype=int), ""),
        ("own", rows([0.0, 1], [-0.0, 1]), ""),
        (
            "own",
            rows([1, 0], [0, 0]),
            "own (a mask of 0 and 1), and their average has the mean of all, which is no mask",
        ),
        ("0.weight_mask", rows([1, 0], [0, 0]), "torch.nn.utils.prune.remove(layer, 'weight')"),
        ("own", rows([1, 0], [1, 0]), ""),
        ("own", rows([1, 0.5], [0, 1]), ""),  # floating numbers have a mean
        ("count", rows([3], [4], dtype=int), ""),
        ("bn.running_mean", rows([0, 0], [1, 1]), ""),
    ],
)
def test_what_has_no_mean_is_told(name: str, values: list[np.ndarray], said: str) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_averaged({name: values}, [name, "0.weight_orig"])
        warn_of_averaged({name: values}, [name, "0.weight_orig"], [1.0, 0.0])  # of one model
    assert [said in str(one.message) for one in found] == ([True] if said else [])


@pytest.mark.parametrize("size", [0, 3, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, bool])
def test_the_same_masks_are_compared_by_their_bits_alone(
    monkeypatch: pytest.MonkeyPatch, dtype: type, size: int
) -> None:
    """Training asks in each round; whether numbers are a mask is asked where they differ."""

    def never(*_: object) -> bool:
        raise AssertionError

    for one in (True, np.nan)[: 1 if dtype is bool else 2]:
        square = np.full((size, 3), one, dtype).T
        with monkeypatch.context() as patch:
            patch.setattr("fedscope.evaluation.unlike_buffers.is_mask", never)
            patch.setattr("numpy.allclose", never)
            warn_of_averaged({"bias": [square.copy(), square.copy("C"), square.copy()]}, ["bias"])


def test_only_statistics_of_normalization_are_told_to_be_averaged_as_such() -> None:
    spectral = nn.utils.spectral_norm(nn.Linear(2, 2))
    assert averaged_buffers(Layout.of(spectral)) == {}
    assert averaged_buffers(Layout.of(nn.BatchNorm1d(2))) == {"normalization_policy": "averaged"}
