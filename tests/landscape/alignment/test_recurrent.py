"""Recurrent layers: each layer and direction has an order of units of its own, followed through what it hands on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.landscape.alignment.apply import Mover, random_permutation
from fedscope.landscape.alignment.groups import Specification
from fedscope.landscape.alignment.matching import match_activations, match_weights
from fedscope.landscape.alignment.tracing import specification_of

#: inputs, hidden units, projected units
N, H, P = 6, 7, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class Read(nn.Module):
    """A linear layer, recurrent layers, and a head on what ``read`` takes of their outputs and states."""

    def __init__(self, cells: nn.Module, read: Callable[..., Tensor], width: int) -> None:
        super().__init__()
        self.first, self.cells, self.out, self.read = nn.Linear(5, N), cells, nn.Linear(width, 3), read

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        outputs, states = self.cells(x if self.cells.batch_first else x.transpose(0, 1))
        hidden = states[0] if isinstance(states, tuple) else states
        outputs = outputs if self.cells.batch_first else outputs.transpose(0, 1)
        made: Tensor = self.out(self.read(outputs, hidden, states))
        return made


def net(kind: str = "LSTM", layers: int = 2, *, read: Callable[..., Tensor], width: int, **how: Any) -> Read:
    torch.manual_seed(0)
    cells = getattr(nn, kind)(N, H, layers, **{"batch_first": True, "bidirectional": True, **how})
    return Read(cells, read, width).eval()


def rows(states: Tensor) -> Tensor:
    """States [layers, B, units] as [B, layers * units]."""
    return states.transpose(0, 1).flatten(1)


READ: dict[str, Callable[..., Tensor]] = {
    "outputs": lambda outputs, *_: outputs,
    "last": lambda outputs, *_: outputs[:, -1],
    "states": lambda _, hidden, __: rows(hidden),
    "cells": lambda _, __, states: rows(states[1]),
}
SORTS = [
    (kind, layers, both, first, size, read)
    for kind, layers, both, first, size, read in product(
        GATES, (1, 2, 3), (False, True), (True, False), (0, P), ("last", "states")
    )
    if not size or kind == "LSTM"
]


def by_hand(module: Read, kind: str, draw: np.random.Generator, read: str) -> dict[str, Tensor]:
    """Permute a network's units from the formulas of torch's documentation: gate by gate, a layer and direction at a
    time."""
    state = {name: values.clone() for name, values in module.state_dict().items()}
    cells = module.cells
    directions = ["", "_reverse"] if cells.bidirectional else [""]
    inputs = torch.from_numpy(draw.permutation(N))
    state["first.weight"], state["first.bias"] = state["first.weight"][inputs], state["first.bias"][inputs]
    seen, size = [], cells.proj_size or H
    for layer in range(cells.num_layers):
        handed = []
        for d, direction in enumerate(directions):
            units = torch.from_numpy(draw.permutation(H))
            shown = torch.from_numpy(draw.permutation(P)) if cells.proj_size else units
            gates = torch.cat([units + g * H for g in range(GATES[kind])])
            of = {k: f"cells.{k}_l{layer}{direction}" for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
            for name in of.values():
                state[name] = state[name][gates]
            state[of["weight_ih"]] = state[of["weight_ih"]][:, inputs]
            state[of["weight_hh"]] = state[of["weight_hh"]][:, shown]
            if cells.proj_size:
                name = f"cells.weight_hr_l{layer}{direction}"
                state[name] = state[name][shown][:, units]
            handed.append(shown + d * size)
            seen.append(shown + (len(directions) * layer + d) * size)
        inputs = torch.cat(handed)
    state["out.weight"] = state["out.weight"][:, torch.cat(seen) if read == "states" else inputs]
    return state


def difference(one: nn.Module, other: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        return float((one(x) - other(x)).norm() / one(x).norm())


def expected_groups(module: Read) -> list[tuple[str, int]]:
    cells, found = module.cells, [("first.weight", N)]
    for layer, direction in product(range(cells.num_layers), ["", "_reverse"] if cells.bidirectional else [""]):
        found.append((f"cells.weight_ih_l{layer}{direction}", H))
        if cells.proj_size:
            found.append((f"cells.weight_hh_l{layer}{direction}", P))
    return found


@pytest.mark.parametrize(("kind", "layers", "both", "first", "size", "read"), SORTS)
def test_units_permuted_by_hand_are_found(
    kind: str, layers: int, both: bool, first: bool, size: int, read: str
) -> None:
    width = (size or H) * (1 + both) * (layers if read == "states" else 1)
    how: dict[str, Any] = {"proj_size": size} if size else {}
    how |= {"dropout": 0.3} if layers > 1 else {}
    module = net(kind, layers, read=READ[read], width=width, bidirectional=both, batch_first=first, **how)
    x = torch.randn(3, 4, 5)
    found = specification_of(module, x)
    assert (found.stopped, [(group.name, group.size) for group in found.groups]) == ((), expected_groups(module))
    other = copy.deepcopy(module)
    other.load_state_dict(by_hand(module, kind, np.random.default_rng(layers), read))
    assert difference(module, other, x) < 1e-6
    here, there = ({k: v.numpy().copy() for k, v in one.state_dict().items()} for one in (module, other))
    batches = [torch.randn(48, 4, 5) for _ in range(2)]
    for moves in (match_weights(found, here, there), match_activations(found, module, other, batches)):
        back = Mover(found).arrays(there, moves)
        assert [name for name in here if not np.array_equal(here[name], back[name])] == []


@pytest.mark.parametrize("read", ["outputs", "cells"])
def test_each_step_and_the_state_of_the_cells_are_followed(read: str) -> None:
    module = net(read=READ[read], width=2 * H if read == "outputs" else 4 * H)
    moved_computes_the_same(module, 5)


def moved_computes_the_same(module: nn.Module, groups: int, x: Tensor | None = None) -> Specification:
    """Permuted at random, a module answers alike and has other numbers; it has so many groups, and nothing stopped."""
    x = torch.randn(3, 4, 5) if x is None else x
    found = specification_of(module, x)
    draw = np.random.default_rng(0)
    arrays = {name: values.numpy().copy() for name, values in module.state_dict().items()}
    moved = Mover(found).arrays(arrays, [random_permutation(group, draw) for group in found.groups])
    other = copy.deepcopy(module)
    other.load_state_dict({name: torch.from_numpy(values) for name, values in moved.items()})
    assert difference(module, other, x) < 1e-6
    assert len(found.groups) == groups, [(group.name, group.size) for group in found.groups]
    assert found.stopped == ()
    return found


#: what is done with states of two layers and two directions, and in how many groups their units are then; width
STATES: dict[str, tuple[Callable[..., Tensor], int, int]] = {
    "two of them": (lambda _, h, __: torch.cat([h[-2], h[-1]], 1), 4, 2 * H),
    "the last layer": (lambda _, h, __: rows(h[-2:]), 4, 2 * H),
    "one alone": (lambda _, h, __: h[3:][0], 4, H),
    "every other": (lambda _, h, __: rows(h[::2]), 4, 2 * H),
    "layers and directions": (lambda _, h, __: rows(h.view(2, 2, -1, H)[-1]), 4, 2 * H),
    "directions": (lambda _, h, __: rows(sum(h.split(2)) / 2), 2, 2 * H),
    "both directions summed": (lambda o, *_: o[..., :H] + o[..., H:], 3, H),
    "the greatest over time": (lambda o, *_: o.max(1)[0], 4, 2 * H),
    "attention": (lambda o, *_: (o.sum(2, keepdim=True).softmax(1) * o).sum(1), 4, 2 * H),
    "repeated": (lambda _, h, __: rows(h[3:].repeat(2, 1, 1)[1:]), 4, H),
    # what mixes or moves layers needs one order in all
    "a mean": (lambda _, h, __: rows(h.mean(0) * h), 1, 4 * H),
    "shares": (lambda _, h, __: rows(h.softmax(0)), 1, 4 * H),
    "turned": (lambda _, h, __: rows(h.flip(0)), 1, 4 * H),
    "chosen": (lambda _, h, __: rows(h[torch.tensor([2, 0, 1, 3])] * h), 1, 4 * H),
    "selected": (lambda _, h, __: rows(h.index_select(0, torch.tensor([2, 0, 1, 3])) * h), 1, 4 * H),
    "padded": (lambda _, h, __: rows(nn.functional.pad(h, (0, 0, 0, 0, 1, 0))[:4] * h), 1, 4 * H),
    "pooled": (
        lambda _, h, __: rows(nn.functional.max_pool1d(h.permute(1, 2, 0), 3, 1, 1).permute(2, 0, 1) * h),
        1,
        28,
    ),
    "weighed": (lambda _, h, __: rows((torch.arange(1.0, 5.0) @ h.reshape(4, -1)).reshape(-1, H) * h), 1, 4 * H),
    "weighed by sample": (
        lambda _, h, __: rows((torch.arange(1.0, 5.0).repeat(h.shape[1], 1, 1) @ h.transpose(0, 1))[:, 0] * h),
        *(1, 4 * H),
    ),
    "normalised": (lambda _, h, __: rows(nn.functional.layer_norm(h.permute(1, 2, 0), [4]).permute(2, 0, 1)), 1, 4 * H),
    "met": (lambda _, h, __: h.flatten(0, 1) @ h.flatten(0, 1).mT, 1, 12),
    "pairs": (lambda _, h, __: rows((h[:, None] * h[None])[:, 1]), 1, 4 * H),
    "in another order": (lambda _, h, __: rows(torch.cat([h[1:], h[:1]]) * h), 1, 4 * H),
}


@pytest.mark.parametrize("name", STATES)
def test_states_of_layers_are_followed_wherever_they_go(name: str) -> None:
    read, groups, width = STATES[name]
    moved_computes_the_same(net(read=read, width=width), 1 + groups)


class From(nn.Module):
    """Two layers in both directions, with first states that ``begin`` makes."""

    def __init__(self, begin: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.cells, self.out, self.begin = (
            nn.GRU(5, H, 2, batch_first=True, bidirectional=True),
            nn.Linear(14, 3),
            begin,
        )

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.out(self.cells(x, self.begin(x))[0][:, -1])
        return made


@pytest.mark.parametrize(
    ("begin", "groups"),
    [
        (lambda x: torch.zeros(4, len(x), H).to(x.dtype), 4),
        (lambda x: x.new_zeros(2, 2, len(x), H).view(4, len(x), H) * 2, 4),
        (lambda x: torch.ones(1, 1, H).expand(4, len(x), H).contiguous(), 4),
        (lambda x: torch.zeros(4, len(x), H).copy_(torch.arange(float(H))), 0),  # no longer alike
    ],
)
def test_first_states_that_are_alike_tie_no_layers(begin: Callable[[Tensor], Tensor], groups: int) -> None:
    torch.manual_seed(0)
    module = From(begin)
    if groups:
        moved_computes_the_same(module, groups)
    else:
        with pytest.raises(FedscopeError, match="no units of From can be permuted"):
            specification_of(module, torch.randn(3, 4, 5))


def test_a_learnt_first_state_keeps_its_layers_in_one_order() -> None:
    class Learnt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.begin, self.cells = nn.Parameter(torch.randn(2, 1, H)), nn.GRU(5, H, 2, batch_first=True)
            self.out = nn.Linear(H, 3)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.out(self.cells(x, self.begin.repeat(1, len(x), 1))[0][:, -1])
            return made

    torch.manual_seed(0)
    moved_computes_the_same(Learnt(), 1)


def test_what_is_written_into_zeros_is_in_them() -> None:
    class Written(nn.Module):
        """Answers of two layers, written over a view of zeros of which another part was taken before."""

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.out = nn.Linear(5, H), nn.Linear(5, H), nn.Linear(H, 3)

        def forward(self, x: Tensor) -> Tensor:
            held = torch.zeros(2, len(x), H)
            first = held.view(2 * len(x), H)[: len(x)]
            held[0], held[1] = self.one(x).tanh(), self.two(x).tanh()
            made: Tensor = self.out(first + held.mean(0))
            return made

    torch.manual_seed(0)
    moved_computes_the_same(Written(), 1, torch.randn(3, 5))


def test_sequences_of_several_lengths_are_followed() -> None:
    class Packed(From):
        def forward(self, x: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x.relu(), torch.arange(4, 1, -1), batch_first=True)
            _, hidden = self.cells(packed)
            made: Tensor = self.out(rows(hidden[-2:]))
            return made

    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(5, 5), Packed(lambda x: x))
    moved_computes_the_same(first, 5)


def test_the_units_of_the_projects_own_recurrences_move() -> None:
    """A bias that is no parameter is zeros, and holds nothing fast."""
    from fedscope.training.models.architectures import gru, lstm

    torch.manual_seed(0)
    x = torch.randint(20, (3, 6))
    for build in (lstm.PROVIDES(hidden=12), gru.PROVIDES(hidden=12, depth=2)):
        found = moved_computes_the_same(build.build((6,), 20).eval(), 3, x)
        assert [group.size for group in found.groups][1:] == [12, 12]


def test_activations_are_those_of_the_same_operations_whatever_else_a_network_makes() -> None:
    """A tensor that is made on the way is one operation more while it is followed, and moved all numbers by one."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.out = nn.Linear(5, 12), nn.Linear(12, 12), nn.Linear(12, 3)

        def forward(self, x: Tensor) -> Tensor:
            kept = torch.ones(x.shape[1], x.shape[1]).tril()
            made: Tensor = self.out(self.second(kept @ self.first(x).tanh()).tanh())
            return made

    torch.manual_seed(0)
    module = Masked()
    found = specification_of(module, torch.randn(3, 4, 5))
    here = {name: values.numpy().copy() for name, values in module.state_dict().items()}
    draw = np.random.default_rng(1)
    there = Mover(found).arrays(here, [random_permutation(group, draw) for group in found.groups])
    other = copy.deepcopy(module)
    other.load_state_dict({name: torch.from_numpy(values) for name, values in there.items()})
    back = Mover(found).arrays(there, match_activations(found, module, other, [torch.randn(64, 4, 5)]))
    assert [name for name in here if not np.array_equal(here[name], back[name])] == []


def test_tensors_above_each_other_that_one_layer_takes_are_seen_in_its_answers() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.norm, self.out = nn.Linear(5, 6), nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.out(self.norm(torch.stack([self.one(x), self.two(x)])).sum(0))
            return made

    torch.manual_seed(0)
    found = specification_of(Two(), torch.randn(3, 5))
    assert [(tap.call, tap.dim, tap.group) for tap in found.taps] == [(0, -1, 0), (1, -1, 0), (2, -1, 0)]


def test_activations_of_a_network_that_computes_otherwise_on_other_samples_are_refused() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.out = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x)
            for _ in range(1 + len(x) // 10):
                hidden = self.again(hidden).tanh()
            made: Tensor = self.out(hidden)
            return made

    torch.manual_seed(0)
    module, other = Steps(), Steps()
    found = specification_of(module, torch.randn(3, 5))
    with pytest.raises(
        FedscopeError, match="Steps computes 3 products and norms of its first samples, but 5 of others"
    ):
        match_activations(found, module, other, [torch.randn(20, 5)])


@pytest.mark.parametrize("by", ["weights", "activations"])
def test_a_permuted_network_is_brought_back(by: str) -> None:
    module = net("LSTM", 2, read=READ["last"], width=2 * H)
    other = copy.deepcopy(module)
    other.load_state_dict(by_hand(module, "LSTM", np.random.default_rng(3), "last"))
    data = torch.randn(80, 4, 5), torch.randint(3, (80,))
    found = fedscope.align([module, other], data=data, by=by)
    moved = {row.layer: row.moved for row in found.moved}
    assert set(moved) == {name for name, _ in expected_groups(module)}
    aligned = list(found.models.values())[1].arrays()
    assert all(np.array_equal(aligned[name], values.numpy()) for name, values in module.state_dict().items())
    plain, mean = found.averages[2:4]
    assert plain.loss != pytest.approx(mean.loss, abs=1e-4)
    assert mean.loss == pytest.approx(found.averages[0].loss, rel=1e-6)
