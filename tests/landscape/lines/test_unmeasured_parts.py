"""Lines that leave out what lies between their ends, or a part of it: their barriers are unknown, and the part is
said."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from drawable import two_pairs
from random_models import random_models, random_samples
from torch import Tensor, nn

from fedscope.checkpoints import Layout, Model, Weights
from fedscope.evaluation.samples import Samples
from fedscope.landscape import Connectivity, Line, barrier_of, betas_on, layer_lines, line
from fedscope.landscape.lines.betas import measured_parts
from fedscope.landscape.lines.result import ends_words
from fedscope.results import Result

#: of a line from β = 1 on, and what its sentence says
BEYOND, NONE = betas_on((1.0, 2.0), 9), "no point between the ends was measured"


class Wall(nn.Module):
    """Loss 0.2 + 0.7 (1 − w²)² whatever the sample: a barrier of 0.7 between w = ±1."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.log(torch.expm1(0.2 + 0.7 * (1 - self.w[0] ** 2) ** 2)) + 0 * x[:, 0]
        return torch.stack([torch.zeros_like(z), z], dim=1)


def walled(betas: np.ndarray) -> Line:
    layout = Layout.of(Wall())
    models = [Model(f"m{i}", "", Weights(layout, np.array([w]), {})) for i, w in enumerate((1.0, -1.0))]
    samples = Samples(torch.ones(5, 1), torch.zeros(5, dtype=torch.int64), 2, "toy", "test", np.arange(5))
    return line(Wall(), samples, [(models[0], models[1])], betas=betas)


def remark(result: Result) -> str:
    return " ".join(text.get_text() for text in result.figure().texts).replace("\n", " ")


@pytest.mark.parametrize(
    ("span", "points", "parts"),
    [
        ((-0.5, 1.5), 9, [(0.0, 1.0)]),
        ((-0.5, 1.5), 3, [(0.0, 1.0)]),
        ((-0.4, 1.6), 3, [(0.0, 1.0)]),
        ((1.0, 2.0), 9, []),
        ((-2.0, -1.0), 9, []),
        ((-5.0, 5.0), 9, [(0.0, 1.0)]),
        ((0.9, 1.5), 9, [(0.9, 1.0)]),
        ((-0.5, 0.5), 9, [(0.0, 0.5)]),
        ((0.25, 0.75), 9, [(0.25, 0.75)]),
    ],
)
def test_the_parts_of_the_way_that_points_cover(
    span: tuple[float, float], points: int, parts: list[tuple[float, float]]
) -> None:
    assert measured_parts(np.union1d(betas_on(span, points), [0.0, 1.0])) == parts


def test_a_line_without_a_point_between_its_ends_knows_no_barrier(tmp_path: Path) -> None:
    assert walled(np.linspace(0, 1, 9)).barrier[0] == pytest.approx(0.7)
    found = walled(BEYOND)
    assert np.isnan([found.barrier[0], found.barrier_beta[0]]).all()
    assert np.isnan(found.findings()["barrier"]).all()
    assert found.findings()["measured"] == []
    assert found.summary().endswith(f": unknown (m0 - m1); {NONE}")
    assert "barrier unknown" in remark(found)
    assert NONE in remark(found)
    earlier = replace(found, barrier=np.zeros(1), barrier_beta=np.zeros(1))  # as files of earlier versions have it
    earlier.save(tmp_path / "line")
    assert Line.load(tmp_path / "line").summary() == found.summary()


def test_a_line_that_covers_a_part_says_which() -> None:
    found = walled(betas_on((0.9, 1.5), 9))
    w = 0.8  # of β = 0.9
    assert found.barrier[0] == pytest.approx(0.7 * (1 - w**2) ** 2)
    assert found.summary().endswith(
        "0.0907 at beta = 0.90 (m0 - m1); between the ends only beta = 0.9 to 1 was measured"
    )
    assert found.findings()["measured"] == [[0.9, 1.0]]
    assert r"between the ends only $\beta$ = 0.9 to 1 was measured" in remark(found)
    for span in ((0.0, 1.0), (-0.5, 1.5)):
        whole = walled(betas_on(span, 9))
        assert "measured" not in whole.summary() + remark(whole)
        assert "measured" not in whole.findings()


def test_layers_without_a_point_between_know_no_barrier() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    a, b = random_models(module, 2, 1.0)
    for layers in ("each", "cumulative", "0"):
        found = layer_lines(module, random_samples(40, (6,)), (a, b), layers=layers, betas=BEYOND)
        assert np.isnan(found.barrier).all()
        assert found.carrier is None
        assert found.summary() == f"loss barrier between {a.label} and {b.label}: unknown; {NONE}"
        assert NONE in remark(found)
        assert found.findings()["measured"] == []
    part = layer_lines(module, random_samples(40, (6,)), (a, b), betas=betas_on((0.9, 1.5), 9))
    assert part.summary().endswith("; between the ends only beta = 0.9 to 1 was measured")


def test_pairs_of_clients_say_that_the_middle_alone_was_measured() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    models = [replace(model, label=f"r@1/client-{k}") for k, model in enumerate(random_models(module, 3, 1.0))]
    asked = np.union1d(BEYOND, [0.5])  # as the command measures
    found = line(module, random_samples(40, (6,)), list(combinations(models, 2)), betas=asked)
    assert "; between the ends only beta = 0.5 was measured" in Connectivity(**vars(found)).summary()


def test_pairs_whose_barrier_is_unknown_are_not_said_to_have_none() -> None:
    beta, ends = np.linspace(0, 1, 5), tuple(combinations([f"r@1/client-{k}" for k in range(3)], 2))
    loss = np.array([[1.0, 1.0, 1.5, 1.0, 1.0], [1.0, np.nan, 0.5, 0.5, 1.0], [1.0, 0.5, 0.5, 0.5, 1.0]])
    barriers = np.transpose([barrier_of(beta, curve) for curve in loss])
    made = Connectivity(("",) * 3, ends, beta, loss, loss, *barriers, {}, loss[:, [4, 0]], loss[:, [4, 0]])
    said = made.summary()
    assert "of 1 the barrier is unknown, because losses are not finite; 1 with a barrier, the greatest 0.5 " in said
    assert "nan" not in said
    flat = replace(made, barrier=np.where(made.barrier > 0, 0.0, made.barrier))
    assert "not finite; no other pair has a barrier" in flat.summary()


def test_ends_without_a_finite_loss_hide_no_change_of_the_others() -> None:
    made = two_pairs()
    own = made.own_loss + 0.25
    own[0] = np.nan
    about = replace(made, own_loss=own, attrs={**made.attrs, "normalization_policy": "re-estimate"})
    assert "which change the loss of the ends by -0.25 to -0.25" in ends_words(about)
    lost = ends_words(replace(about, own_loss=np.full_like(own, np.nan)))
    assert lost.startswith("; normalization statistics re-estimated")
    assert "change" not in lost
