"""Units found again: planted permutations, and the best assignment among all."""

from __future__ import annotations

import copy
from itertools import permutations

import numpy as np
import pytest
import torch
from permutable import NETS, made
from torch import nn

import fedscope
from fedscope.landscape.alignment.apply import Mover, random_permutation
from fedscope.landscape.alignment.matching import match_activations, match_weights
from fedscope.landscape.alignment.repair import Repaired, measure, repair
from fedscope.landscape.alignment.tracing import specification_of

SLOW = ("resnet18", "resnet18_gn")
#: recurrences and grouped kernels hold a group twice in a tensor, for which no start is certain
PLANTED = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
    for name in NETS
    if name not in ("tied", "kernels")
]


def arrays_of(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: values.numpy().copy() for name, values in module.state_dict().items()}


@pytest.mark.parametrize("by", ["weights", "activations"])
@pytest.mark.parametrize("name", PLANTED)
def test_planted_permutations_are_found(name: str, by: str) -> None:
    module, x = made(name)
    found = specification_of(module, x)
    draw = np.random.default_rng(1)
    here = arrays_of(module)
    there = Mover(found).arrays(here, [random_permutation(group, draw) for group in found.groups])
    if by == "weights":
        moves = match_weights(found, here, there)
    else:
        other = copy.deepcopy(module)
        other.load_state_dict({name: torch.from_numpy(values) for name, values in there.items()})
        batches = [torch.randn(48, *x.shape[1:]) for _ in range(2)]
        moves = match_activations(found, module, other, batches)
    back = Mover(found).arrays(there, moves)
    assert [name for name in here if not np.array_equal(here[name], back[name])] == []


def test_the_best_of_all_permutations_of_a_small_layer_is_found() -> None:
    torch.manual_seed(3)
    one, two = (nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)) for _ in range(2))
    found = specification_of(one, torch.randn(2, 3))
    a, b = arrays_of(one), arrays_of(two)
    (moves,) = match_weights(found, a, b)

    def product(order: tuple[int, ...]) -> float:
        at = list(order)
        first = np.vdot(a["0.weight"], b["0.weight"][at]) + np.vdot(a["0.bias"], b["0.bias"][at])
        return float(first + np.vdot(a["2.weight"], b["2.weight"][:, at]))

    best = max(permutations(range(5)), key=product)
    assert tuple(moves.outer) == best


def test_a_network_stays_where_it_is_beside_itself() -> None:
    module, x = made("vit")
    found = specification_of(module, x)
    here = arrays_of(module)
    near = {name: values + 0.01 * np.random.default_rng(0).normal(size=values.shape) for name, values in here.items()}
    assert [one.moved for one in match_weights(found, here, near)] == [0] * len(found.groups)


def test_repaired_units_answer_with_the_mean_and_spread_of_the_networks() -> None:
    torch.manual_seed(0)
    make = lambda: nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3))  # noqa: E731
    nets, x = [make() for _ in range(3)], torch.randn(200, 6)
    average = make()
    average.load_state_dict({k: sum(net.state_dict()[k] for net in nets) / 3 for k in average.state_dict()})
    last = copy.deepcopy(average[4].state_dict())
    measured = [measure(net, [x]) for net in nets]
    before = measure(average, [x])
    assert repair(average, measured, x, 64).layers == 2
    after = measure(average, [x])
    for name in ("0", "2"):
        for k, of_all in enumerate(zip(*(one[name] for one in measured), strict=True)):
            wanted = torch.stack(of_all).mean(0)
            torch.testing.assert_close(after[name][k], wanted, rtol=1e-4, atol=1e-5)
        wanted = torch.stack([one[name][1] for one in measured]).mean(0)
        assert not torch.allclose(before[name][1], wanted, rtol=1e-2), "an average varies less"
    assert all(torch.equal(values, last[k]) for k, values in average[4].state_dict().items()), "answers stay"


def test_the_layer_that_answers_is_the_one_that_is_run_last() -> None:
    """Wherever it stands in the class, and whether it has a bias or not."""

    class Turned(nn.Module):
        def __init__(self, bias: bool) -> None:
            super().__init__()
            self.last, self.mid, self.first = nn.Linear(20, 3, bias=bias), nn.Linear(20, 20), nn.Linear(6, 20)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = self.last(self.mid(self.first(x).relu()).relu())
            return answer

    torch.manual_seed(0)
    for bias in (True, False):
        nets, x = [Turned(bias) for _ in range(3)], torch.randn(200, 6)
        average = Turned(bias)
        average.load_state_dict({k: sum(net.state_dict()[k] for net in nets) / 3 for k in average.state_dict()})
        last = copy.deepcopy(average.last.state_dict())
        assert repair(average, [measure(net, [x]) for net in nets], x, 64) == Repaired(2)
        assert all(torch.equal(values, last[k]) for k, values in average.last.state_dict().items()), "answers stay"
        assert list(measure(average, [x])) == ["first", "mid"]


class Experts(nn.Module):
    """The layer that a sample goes to is chosen by a number of the network; ``always``: layers without samples run."""

    def __init__(self, chosen: float, always: bool = False) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 20) for _ in range(2))
        self.last = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 3))
        self.chosen, self.always = nn.Parameter(torch.tensor(chosen)), always

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.zeros(len(x), 20)
        for k, expert in enumerate(self.experts):
            rows = torch.arange(len(x) if k == int(self.chosen > 0.5) else 0)
            if self.always or len(rows):
                made[rows] = expert(x[rows]).relu()
        answer: torch.Tensor = self.last(made)
        return answer


@pytest.mark.parametrize("always", [False, True])
def test_layers_that_not_every_network_runs_stay_and_are_named(always: bool) -> None:
    torch.manual_seed(0)
    nets, x = [Experts(chosen, always) for chosen in (0.0, 2.0, 2.0)], torch.randn(50, 6)
    average = Experts(1.3, always)
    before = copy.deepcopy(average.experts.state_dict())
    done = repair(average, [measure(net, [x]) for net in nets], x, 64)
    assert done == Repaired(1, ("experts.0", "experts.1"))
    assert all(torch.equal(values, before[k]) for k, values in average.experts.state_dict().items())
    # of networks that agree, their mean may run another
    average = Experts(0.0, always)
    assert repair(average, [measure(net, [x]) for net in nets[1:]], x, 64) == Repaired(1, ("experts.1",))


def test_align_says_which_layers_of_the_mean_stay() -> None:
    torch.manual_seed(0)
    nets, x = [Experts(chosen) for chosen in (0.0, 2.0)], torch.randn(50, 6)
    found = fedscope.align(nets, data=(x, torch.arange(50) % 3))
    assert "  not repaired: experts.0, experts.1, which not every model and their mean run" in found.summary()
    assert "not repaired" not in fedscope.align([nets[0], Experts(0.2)], data=(x, torch.arange(50) % 3)).summary()


def test_a_linear_layer_of_gpt2_is_repaired_as_any_other() -> None:
    class Conv1D(nn.Module):
        """Its weight is [in, out]."""

        def __init__(self, nf: int, nx: int) -> None:
            super().__init__()
            self.nf, self.weight, self.bias = nf, nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.randn(nf))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)

    def build(turned: bool) -> nn.Module:
        torch.manual_seed(0)
        layers = [Conv1D(8, 6) if turned else nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3)]
        return nn.Sequential(*layers)

    x, states = torch.randn(50, 5, 6), [build(True).state_dict() for _ in range(3)]
    for k, state in enumerate(states):
        states[k] = {name: values + 0.3 * k * torch.randn_like(values) for name, values in state.items()}
    found = []
    for turned in (True, False):
        nets = []
        mean = {name: sum(state[name] for state in states) / 3 for name in states[0]}
        for state in [*states, mean]:
            net = build(turned)
            net.load_state_dict({k: v if turned or k != "0.weight" else v.t() for k, v in state.items()})
            nets.append(net)
        *own, average = nets
        assert repair(average, [measure(one, [x]) for one in own], x, 20).layers == 2
        found.append(average.state_dict())
    for name, values in found[0].items():
        torch.testing.assert_close(values.t() if name == "0.weight" else values, found[1][name], rtol=1e-5, atol=1e-6)
        assert name.startswith("4") or not torch.allclose(values, mean[name], rtol=1e-3), "it was rescaled"


def test_batch_norm_is_measured_on_the_average_instead() -> None:
    torch.manual_seed(0)
    average, x = (
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval(),
        torch.randn(99, 3),
    )
    weight = average[0].weight.detach().clone()
    assert repair(average, [], x, 50).layers == 1
    assert torch.equal(average[0].weight, weight)
    torch.testing.assert_close(average[1].running_mean, average[0](x).mean(0).detach(), rtol=1e-4, atol=1e-5)
