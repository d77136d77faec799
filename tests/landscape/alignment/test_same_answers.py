"""A model that would answer otherwise once its units are permuted is refused, and no other is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.landscape.alignment.same_answers import count_others
from fedscope.landscape.alignment.tracing import specification_of

SAMPLES = 60
DATA = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0)), torch.arange(SAMPLES) % 3


class Experts(nn.Module):
    """One of two layers for each sample, by the sign of its first input; a layer without samples is not run."""

    def __init__(self, dense: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.dense = nn.Linear(4, 6), nn.Linear(6, 3), dense
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 6)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        h, which = self.first(x).relu(), (x[:, 0] > 0).long()
        made = torch.zeros_like(h)
        for k, expert in enumerate(self.experts):
            if self.dense or (which == k).any():
                made = torch.where((which == k)[:, None], expert(h), made)
        answer: Tensor = self.last(h + made)
        return answer


def pair(make: Any, **how: Any) -> list[nn.Module]:
    made = []
    for seed in range(2):
        torch.manual_seed(seed)
        made.append(make(**how).eval())
    return made


def one_sided(ends: int) -> tuple[Tensor, Tensor]:
    """Data whose first samples go to one expert, but for as many as are asked for at the end."""
    x = DATA[0].clone()
    x[:, 0] = x[:, 0].abs()
    x[SAMPLES - ends :, 0] *= -1
    return x, DATA[1]


UNMET = (
    r"its first samples do not reach experts\.0\.0\.weight, experts\.0\.0\.bias, experts\.0\.2\.weight, \.\.\. "
    r"\(4 in all\)"
)


@pytest.mark.parametrize(
    "question",
    [
        lambda nets, data: fedscope.align(nets, data=data),
        lambda nets, data: fedscope.line(nets, data=data, align="weights", points=3),
    ],
)
def test_layers_that_the_first_samples_do_not_reach_are_named(question: Any) -> None:
    said = (
        "^Experts 2 answers otherwise on [1-7] of 60 samples when its units are permuted, so its layers cannot be "
        f"aligned: {UNMET}; align other models, or ask without aligning them$"
    )
    with pytest.raises(FedscopeError, match=said):
        question(pair(Experts), one_sided(7))


def test_answers_of_layers_that_the_first_samples_do_not_reach_are_not_compared() -> None:
    said = f"cannot be compared: {UNMET}; align other models, or ask without aligning them$"
    with pytest.raises(FedscopeError, match=said):
        fedscope.align(pair(Experts), data=one_sided(7), by="activations")


class Spare(nn.Module):
    """A layer that is never run, as of a head for training."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.spare = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.last(self.first(x).relu())
        return answer


class Exact(nn.Module):
    """Most in float64, and a norm in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 32), nn.Linear(32, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.last(nn.functional.layer_norm(self.first(x).relu().float(), (32,)).double())
        return answer


class Overflowing(nn.Module):
    """Finite weights whose answers are no finite numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.last(self.first(x).relu() * 3e38) * 1e10
        return answer


@pytest.mark.parametrize(
    ("make", "how"),
    [(Experts, {"dense": True}), (Spare, {}), (Exact, {}), (Overflowing, {})],
)
def test_models_that_answer_what_they_did_are_aligned(make: Any, how: dict[str, Any]) -> None:
    found = fedscope.align(pair(make, **how), data=one_sided(7))
    assert sum(row.moved for row in found.moved) > 0


def test_experts_of_which_each_is_reached_at_once_are_aligned() -> None:
    x = DATA[0].clone()
    x[0, 0], x[1, 0] = 1.0, -1.0
    assert fedscope.align(pair(Experts), data=(x, DATA[1])).moved


def test_a_head_of_zeros_hides_no_other_function() -> None:
    """An architecture's own numbers may be such that any order of units answers the same."""

    class Ranked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)

        def forward(self, x: Tensor) -> Tensor:
            scale = float(self.first.bias.detach().numpy()[0])
            answer: Tensor = self.last(torch.relu(self.first(x))) * scale
            return answer

    torch.manual_seed(0)
    with pytest.raises(FedscopeError, match="Ranked answers otherwise when the units that seem exchangeable"):
        specification_of(Ranked(), torch.randn(2, 4))


def test_samples_are_counted_by_what_answers_are_usually() -> None:
    x = torch.ones(4, 2)
    x[3] = torch.tensor([torch.nan, 1.0])

    def other(rows: Tensor) -> Tensor:
        made = rows.clone()
        made[0] += 1e-2
        made[1] += 1e-5
        made[2] = torch.nan
        return made

    assert count_others(lambda rows: rows, other, [x], 1e-3) == 2
    # answers that are none of samples count as one
    assert count_others(lambda rows: {"sum": rows.sum()}, lambda rows: (rows.sum() + 1, rows), [x[:3]], 1e-3) == 1
