"""The matrix of what lies between all pairs of models, against losses that are known on every segment."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout, Model, Weights
from fedscope.evaluation.samples import Samples
from fedscope.landscape import Line, connectivity, draw_connectivity, line


def models_of(module: nn.Module, rows: np.ndarray) -> list[Model]:
    layout = Layout.of(module)
    return [Model(f"ima@4/client-{k}", "", Weights(layout, row, {})) for k, row in enumerate(rows, start=5)]


@pytest.fixture
def measured() -> tuple[Line, np.ndarray, Any]:
    """Four linear models of two classes, all their pairs, and their cross-entropy as a function of the row."""
    module = nn.Linear(3, 2, bias=False)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, generator=draw), torch.randint(0, 2, (40,), generator=draw)
    samples = Samples(x, y, 2, "noise", "test", np.arange(40))
    rows = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32) * 2

    def loss(row: np.ndarray) -> float:
        logits = x.double() @ torch.from_numpy(row.astype(np.float64)).reshape(2, 3).T
        return float(nn.functional.cross_entropy(logits, y))

    models = models_of(module, rows)
    made = line(module, samples, list(combinations(models, 2)), betas=np.linspace(0, 1, 5))
    return made, rows, loss


def test_the_middle_is_the_loss_of_the_mean_less_the_mean_loss(measured: tuple[Line, np.ndarray, Any]) -> None:
    made, rows, loss = measured
    labels, barriers, middles = connectivity(made)
    assert labels == tuple(f"ima@4/client-{k}" for k in (5, 6, 7, 8))
    assert np.isnan(np.diag(middles)).all()
    for i, j in combinations(range(4), 2):
        expected = loss((rows[i].astype(np.float64) + rows[j]) / 2) - (loss(rows[i]) + loss(rows[j])) / 2
        assert middles[i, j] == middles[j, i] == pytest.approx(expected, abs=1e-6)
        # cross-entropy is convex in a linear model's weights: below the straight line, and no barrier
        assert middles[i, j] < 0
        assert barriers[i, j] == barriers[j, i] == pytest.approx(0, abs=1e-6)


def test_barriers_are_those_of_the_pairs_wherever_they_stand_in_the_line(
    measured: tuple[Line, np.ndarray, Any],
) -> None:
    made, _, _ = measured
    order = [4, 0, 3, 5, 1, 2]
    ends = tuple(made.ends[k][::-1] if k % 2 else made.ends[k] for k in order)
    mixed = replace(made, ends=ends, loss=made.loss[order], barrier=np.arange(6.0)[order])
    labels, barriers, _ = connectivity(mixed)
    for k, ends in enumerate(made.ends):
        i, j = (labels.index(end) for end in ends)
        assert barriers[i, j] == barriers[j, i] == k


def test_what_is_no_matrix_is_refused(measured: tuple[Line, np.ndarray, Any]) -> None:
    made, _, _ = measured
    some = replace(made, ends=(*made.ends[:2], made.ends[4]), loss=made.loss[:3], barrier=made.barrier[:3])
    with pytest.raises(FedscopeError, match=r"needs all pairs of its 4 models, but the line has 3 of them; draw it as"):
        connectivity(some)
    off = replace(made, beta=made.beta[[0, 1, 4]], loss=made.loss[:, [0, 1, 4]])
    with pytest.raises(
        FedscopeError, match=r"the 3 points of the line do not hold its middle, beta = 0\.5; give it one"
    ):
        connectivity(off)


@pytest.mark.parametrize("width", [3.5, 7.0])
def test_the_figure_has_the_cells_of_the_matrix_on_a_scale_about_zero(
    measured: tuple[Line, np.ndarray, Any], width: float
) -> None:
    made, _, _ = measured
    figure = draw_connectivity(made, width)
    axes = figure.axes[0]
    (image,) = axes.images
    np.testing.assert_array_equal(np.ma.filled(image.get_array(), np.nan), connectivity(made)[2])
    low, high = image.get_clim()
    assert low == -high
    assert [text.get_text() for text in axes.get_xticklabels()] == ["5", "6", "7", "8"]
    assert axes.get_xlabel() == "client"
    assert figure.get_figwidth() == width
    plt.close(figure)
