"""Which weights RegMean merges: those of every product of inputs with a weight, whatever layer computes it."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedscope.checkpoints import FedscopeWarning, Layout, Weights, stack
from fedscope.evaluation.device import CPU
from fedscope.evaluation.samples import Samples
from fedscope.training.loop.model_probe import ModelProbe
from fedscope.training.methods.base import Cohort
from fedscope.training.methods.servers.regmean import RegMean

P = np.array([0.2, 0.5, 0.3])
WIDTH, HEADS = 6, 2


class Conv1D(nn.Module):
    """A linear layer as GPT-2 has it: the weight is [nx, nf]."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.weight, self.bias = nf, nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.randn(nf))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


class Function(nn.Module):
    """A linear layer that calls none."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(outputs, inputs)), nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Matrix(Function):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.mT + self.bias


class Batched(Function):
    """One product a sample, of the same weight."""

    def forward(self, x: Tensor) -> Tensor:
        return x.bmm(self.weight.t().expand(len(x), -1, -1)) + self.bias


class Left(Function):
    """The weight on the left."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([(self.weight @ one.mT).mT for one in x]) + self.bias


class Single(Function):
    """A vector at a time."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.stack([self.weight.mv(row) for row in one]) for one in x]) + self.bias


class Parts(Function):
    """Its outputs in two parts, which share some inputs with a call of the whole."""

    def forward(self, x: Tensor) -> Tensor:
        half = len(self.weight) // 2
        parts = [
            nn.functional.linear(x, w, b) for w, b in zip(self.weight.split(half), self.bias.split(half), strict=True)
        ]
        return torch.cat(parts, -1)


class Derived(nn.Linear):
    """Of a class of its own."""


class Net(nn.Module):
    """Sequences [n, L, 5] through two layers of a kind."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        make = (lambda i, o: Conv1D(o, i)) if kind is Conv1D else kind
        self.first, self.second, self.out = make(5, WIDTH), make(WIDTH, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.out(torch.tanh(self.second(torch.tanh(self.first(x)))).mean(1))
        return answer


def weights(module: nn.Module) -> Weights:
    return Layout.of(module).flatten({name: values.numpy() for name, values in module.state_dict().items()})


def samples(n: int = 19) -> Samples:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(n, 7, 5, generator=draw, dtype=torch.float64)
    return Samples(x, torch.randint(3, (n,), generator=draw), 3, "toy", "train", np.arange(n))


def merged(modules: list[nn.Module], **how: Any) -> dict[str, np.ndarray]:
    clients, n = stack([weights(module) for module in modules]), len(modules)
    p = P if n == 3 else np.full(n, 1 / n)
    probe = ModelProbe(copy.deepcopy(modules[0]), samples(), CPU)
    cohort = Cohort(1, np.arange(n), np.ones(n, np.int64), np.ones(n, np.int64), p, validator=probe)
    served = RegMean(**how).step({}, clients.row(0), clients, cohort)
    return {name: values.copy() for name, values in clients.layout.views(served.parameters).items()}


def nets(kind: Any, count: int = 3) -> list[nn.Module]:
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        made.append(Net(kind).double())
    return made


def as_linear(module: nn.Module) -> nn.Module:
    """The same network of linear layers."""
    made, turned = Net(nn.Linear).double(), isinstance(module.first, Conv1D)
    state = dict(module.state_dict())
    for name in ("first.weight", "second.weight") if turned else ():
        state[name] = state[name].t()
    made.load_state_dict(state)
    return made


KINDS = [Conv1D, Function, Matrix, Batched, Left, Single, Parts, Derived]


@pytest.mark.parametrize("kind", KINDS)
def test_a_linear_layer_is_merged_whatever_it_is_called(kind: Any) -> None:
    modules = nets(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = merged(modules)
    known = merged([as_linear(module) for module in modules])
    plain = {name: sum(p * m.state_dict()[name].numpy() for p, m in zip(P, modules, strict=True)) for name in found}
    assert np.abs(found["second.weight"] - plain["second.weight"]).max() > 0.001
    for name, values in found.items():
        own = values.T if kind is Conv1D and name in ("first.weight", "second.weight") else values
        np.testing.assert_allclose(own, known[name], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", [Conv1D, Matrix])
def test_it_is_the_least_squares_answer(kind: Any) -> None:
    modules, known = nets(kind, 2), samples()
    found = merged(modules, alpha=1.0)["second.weight"]
    with torch.no_grad():
        x = [torch.tanh(module.first(known.x)).reshape(-1, WIDTH).numpy() for module in modules]
    own = [module.second.weight.detach().numpy() for module in modules]
    y = [a @ (w if kind is Conv1D else w.T) for a, w in zip(x, own, strict=True)]
    best, *_ = np.linalg.lstsq(np.concatenate(x), np.concatenate(y), rcond=None)
    np.testing.assert_allclose(found if kind is Conv1D else found.T, best, rtol=1e-6, atol=1e-9)


class Attends(nn.Module):
    """Attention of torch on itself, or on three inputs, for which its matrix is used a third at a time."""

    def __init__(self, three: bool) -> None:
        super().__init__()
        self.three, self.embed = three, nn.Linear(5, WIDTH)
        self.mix, self.out = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.embed(x))
        q, k, v = (x, x.sin(), x.cos()) if self.three else (x, x, x)
        answer: Tensor = self.out(self.mix(q, k, v, need_weights=False)[0].mean(1))
        return answer


class ByHand(nn.Module):
    """The same of linear layers."""

    def __init__(self, module: Attends) -> None:
        super().__init__()
        self.three, self.embed, self.out = module.three, module.embed, module.out
        own = module.mix
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.back = nn.Linear(WIDTH, WIDTH)
        self.back.load_state_dict(own.out_proj.state_dict())
        matrices, shifts = own.in_proj_weight.detach().chunk(3), own.in_proj_bias.detach().chunk(3)
        for layer, matrix, shift in zip(self.parts, matrices, shifts, strict=True):
            layer.load_state_dict({"weight": matrix, "bias": shift})
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.embed(x))
        given = (x, x.sin(), x.cos()) if self.three else (x, x, x)
        split = [
            layer(one).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer, one in zip(self.parts, given, strict=True)
        ]
        q, k, v = split
        mixed = (q @ k.mT / (WIDTH // HEADS) ** 0.5).softmax(-1) @ v
        answer: Tensor = self.out(self.back(mixed.transpose(1, 2).flatten(2)).mean(1))
        return answer


@pytest.mark.parametrize("three", [False, True])
def test_the_matrices_of_attention_are_merged(three: bool) -> None:
    modules: list[Any] = []
    for seed in range(3):
        torch.manual_seed(seed)
        modules.append(Attends(three).double())
    found, known = merged(modules), merged([ByHand(module) for module in modules])
    of_parts = np.concatenate([known[f"parts.{i}.weight"] for i in range(3)])
    np.testing.assert_allclose(found["mix.in_proj_weight"], of_parts, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["mix.out_proj.weight"], known["back.weight"], rtol=1e-6, atol=1e-9)
    plain = sum(p * m.mix.in_proj_weight.detach().numpy() for p, m in zip(P, modules, strict=True))
    assert np.abs(found["mix.in_proj_weight"] - plain).max() > 0.001


def test_no_fused_form_hides_a_layer_of_attention() -> None:
    def make(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 8, dropout=0.0, batch_first=True)
        return nn.Sequential(nn.Linear(5, WIDTH), layer, nn.Flatten(), nn.Linear(7 * WIDTH, 3)).double()

    modules = [make(seed) for seed in range(2)]
    fast = torch.backends.mha.get_fastpath_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        found = merged(modules)
    assert torch.backends.mha.get_fastpath_enabled() == fast
    for name in ("1.self_attn.in_proj_weight", "1.self_attn.out_proj.weight", "1.linear1.weight", "1.linear2.weight"):
        plain = sum(module.state_dict()[name].numpy() for module in modules) / 2
        assert np.abs(found[name] - plain).max() > 1e-6, name


class Mixed(nn.Module):
    """Layers that cannot be merged, beside one that can."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cells, self.pair = nn.Embedding(4, 5), nn.LSTM(5, 4, batch_first=True), nn.Bilinear(4, 4, 3)
        self.unused, self.out = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        last = self.cells(x + self.table(torch.zeros(7, dtype=torch.long)))[0][:, -1]
        answer: Tensor = self.out(self.pair(last, last))
        return answer


def test_matrices_that_stay_the_mean_are_named_once() -> None:
    torch.manual_seed(0)
    modules: list[nn.Module] = [Mixed().double(), Mixed().double()]
    with pytest.warns(FedscopeWarning) as heard:
        found = merged(modules)
    assert len(heard) == 1, "not once a model"
    assert str(heard[0].message).startswith(
        "of 5 matrices of the model 4 are the plain mean, as no product of inputs with them was found "
        "(cells.weight_ih_l0, cells.weight_hh_l0, pair.weight, ...); recurrent layers, and"
    )
    for name in found.keys() - {"out.weight"}:
        plain = sum(module.state_dict()[name].numpy() for module in modules) / 2
        np.testing.assert_allclose(found[name], plain, rtol=1e-12)


def test_a_weight_that_is_used_both_ways_has_the_inputs_of_the_layer() -> None:
    class Coder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.code = nn.Linear(5, WIDTH), nn.Linear(WIDTH, 4, bias=False)
            self.out = nn.Linear(WIDTH, 3)

        def forward(self, x: Tensor) -> Tensor:
            back = torch.tanh(self.code(torch.tanh(self.first(x)))) @ self.code.weight
            answer: Tensor = self.out(back.mean(1))
            return answer

    class Frozen(Coder):
        """The way back by a copy, which is no weight."""

        def forward(self, x: Tensor) -> Tensor:
            back = torch.tanh(self.code(torch.tanh(self.first(x)))) @ self.code.weight.clone()
            answer: Tensor = self.out(back.mean(1))
            return answer

    found = []
    for kind in (Coder, Frozen):
        torch.manual_seed(0)
        found.append(merged([kind().double() for _ in range(3)]))
    for name in found[0]:
        np.testing.assert_array_equal(found[0][name], found[1][name])
