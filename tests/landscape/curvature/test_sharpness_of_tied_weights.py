"""Sharpness of a model that holds a weight under two names: that of the same model with one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope import Sharpness

X, Y = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
HOW: dict[str, Any] = {"data": (X, Y), "probes": 3}


class Once(nn.Module):
    """A layer of many weights that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(6, 6, bias=False), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.out(torch.tanh(self.first(torch.tanh(self.first(x)))))
        return answer


class Tied(Once):
    """The same, with another name for it."""

    def __init__(self) -> None:
        super().__init__()
        del self.out
        self.other, self.out = nn.Linear(6, 6, bias=False), nn.Linear(6, 3)
        self.other.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.out(torch.tanh(self.other(torch.tanh(self.first(x)))))
        return answer


def both() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    once, tied = Once(), Tied()
    optimiser = torch.optim.Adam(once.parameters(), lr=0.02)
    for _ in range(100):  # to where the loss rises in nearly all directions, which scatters less
        optimiser.zero_grad()
        nn.functional.cross_entropy(once(X), Y).backward()
        optimiser.step()
    tied.load_state_dict({**once.state_dict(), "other.weight": once.first.weight})
    return once, tied


def values(found: Sharpness, of: str = "") -> dict[str, float]:
    (model,) = [one for one in found.models if not of or one.layer == of]
    made = {measure.name: measure.value for measure in model.measures}
    return {name: value for name, value in made.items() if value is not None}


def test_what_is_not_drawn_is_that_of_the_model_with_one_name() -> None:
    once, tied = (values(fedscope.sharpness(net, top=5, draws=1, **HOW)) for net in both())
    assert once.keys() == tied.keys()
    for name in once.keys() - {"ball_mean", "filter_mean"}:
        # ascents begin at other points, and end at bounds a few percent apart; the trace has the same probes
        close = 0.1 if name.endswith("worst_case") else 1e-4
        assert tied[name] == pytest.approx(once[name], rel=close, abs=1e-6), name


def test_there_are_as_many_eigenvalues_as_weights_that_count() -> None:
    once, tied = (fedscope.sharpness(net, top=57, draws=1, **HOW) for net in both())
    assert [one.attrs["parameters"] for one in (once, tied)] == [57, 57]
    mine, other = (sorted(v for k, v in values(one).items() if k.startswith("eig")) for one in (once, tied))
    np.testing.assert_allclose(other, mine, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["ball_mean", "filter_mean"])
def test_no_draw_goes_into_directions_without_effect(name: str) -> None:
    found = [
        fedscope.sharpness(net, hessian=False, draws=300, data=HOW["data"]).models[0].measure(name) for net in both()
    ]
    (mine, error), (other, beside) = ((one.value, one.stderr) for one in found if one)
    assert mine is not None
    assert other is not None
    assert error is not None
    assert beside is not None
    assert abs(mine - other) < 3 * np.hypot(error, beside)
    assert abs(mine * 57 / 93 - other) > 3 * np.hypot(error, beside), "as it was: 36 of 93 directions had none"


def test_layers_that_share_a_weight_have_one_row() -> None:
    _, tied = both()
    found = fedscope.sharpness(tied, layers="each", top=2, draws=2, **HOW)
    one, two = values(found, "first"), values(found, "other")
    assert one == two
    assert one["worst_case"] > 0, "it is moved where it has an effect"
    assert {model.layer: model.parameters for model in found.models} == {
        **{"first": 36, "other": 36, "out": 21, "all layers": 57}
    }
