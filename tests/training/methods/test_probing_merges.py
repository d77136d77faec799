"""Fisher merging and RegMean, against torch.func and least squares solved by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap
from torch.utils.checkpoint import checkpoint

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Weights, stack
from fedscope.evaluation.device import CPU
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.tasks import Task
from fedscope.training import Config
from fedscope.training.data.dataset import Dataset
from fedscope.training.loop import model_probe
from fedscope.training.loop.model_probe import ModelProbe
from fedscope.training.loop.server import validator_of
from fedscope.training.methods.base import Cohort
from fedscope.training.methods.servers.fisher import Fisher
from fedscope.training.methods.servers.regmean import RegMean
from fedscope.training.methods.shared.probes import Linear
from fedscope.training.tasks import given_task


class Squares(Task):
    """The square of what is missing."""

    def loss(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (outputs - y).square().sum(dim=-1)


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.BatchNorm1d(6), nn.Linear(6, 3)).double()


def model(module: nn.Module) -> Weights:
    return Layout.of(module).flatten({name: value.numpy() for name, value in module.state_dict().items()})


def samples(n: int = 23, **more: Any) -> Samples:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(n, 4, generator=draw, dtype=torch.float64)
    return Samples(x, torch.randint(3, (n,), generator=draw), 3, "toy", "train", np.arange(n), **more)


def cohort(p: Any, probe: Any) -> Cohort:
    n = len(p)
    return Cohort(1, np.arange(n), np.ones(n, np.int64), np.ones(n, np.int64), np.asarray(p, float), validator=probe)


def drawn(count: int) -> tuple[list[nn.Module], Weights]:
    modules = [net(k) for k in range(count)]
    for k, module in enumerate(modules):  # statistics are the models' own, too
        module[2].running_mean += 0.1 * k
    return modules, stack([model(module) for module in modules])


def fisher_by_hand(module: nn.Module, x: torch.Tensor, y: torch.Tensor, labels: str) -> np.ndarray:
    """From the Jacobian of all log-probabilities of all samples at once."""
    module.eval()
    named = {name: value.detach() for name, value in module.named_parameters()}
    buffers = dict(module.named_buffers())

    def logs(own: Any, one: torch.Tensor) -> torch.Tensor:
        return functional_call(module, (own, buffers), (one[None],))[0].log_softmax(0)

    found = vmap(jacrev(logs), (None, 0))(named, x)
    p = vmap(logs, (None, 0))(named, x).exp()
    if labels == "data":
        p = nn.functional.one_hot(y, 3).double()
    parts = []
    for name in named:
        squares = found[name].reshape(len(x), 3, -1).square()
        parts.append((squares * p[:, :, None]).sum(1).mean(0))
    return torch.cat(parts).numpy()


@pytest.mark.parametrize("labels", ["model", "data"])
def test_fisher_is_the_mean_weighted_with_squared_gradients(labels: Any) -> None:
    modules, clients = drawn(3)
    known = samples()
    probe, p = ModelProbe(net(), known, CPU), np.array([0.2, 0.5, 0.3])
    each = np.stack([fisher_by_hand(module, known.x, known.y, labels) for module in modules])
    for k, own in enumerate(each):
        np.testing.assert_allclose(probe.squared_gradients(clients.row(k), labels), own, rtol=1e-6, atol=1e-12)
    weights = p[:, None] * np.maximum(each, 1e-6)
    expected = (weights * clients.parameters).sum(0) / weights.sum(0)
    served = Fisher(labels=labels).step({}, clients.row(0), clients, cohort(p, probe))
    np.testing.assert_allclose(served.parameters, expected, rtol=1e-6)
    assert np.abs(expected - p @ clients.parameters).max() > 0.01, "it is not the plain mean"


class Odd(torch.autograd.Function):
    """Of a user's own, which cannot be asked for several gradients at once."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, ahead: torch.Tensor) -> torch.Tensor:
        assert np.asarray(ahead.tolist()).ndim == 2  # one sample, as every layer sees it
        return 2 * ahead


class Own(nn.Module):
    """Classes of which one hangs on no weight, and a weight that nothing hangs on."""

    def __init__(self, odd: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.idle, self.odd = nn.Linear(4, 3), nn.Parameter(torch.ones(5)), odd
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.first(x)
        return Odd.apply(seen) if self.odd else seen * 2


@pytest.mark.parametrize("at_once", [1, 40, 2**24])
@pytest.mark.parametrize("odd", [False, True])
def test_fisher_is_the_same_however_many_gradients_are_asked_for_at_once(
    at_once: int, odd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 numbers a gradient: one, two or all three classes at once. A layer that cannot be asked for several is asked
    for one after the other; both have twice the weight's gradient."""
    monkeypatch.setattr(model_probe, "AT_ONCE", at_once)
    module, known = Own(odd), samples()
    found = ModelProbe(module, known, CPU).squared_gradients(model(module), "model")
    with torch.no_grad():
        p = module(known.x).softmax(1)
    # d log p_c / d f_i = [i = c] - p_i, and f = 2 (W x + b), or its like
    one = torch.eye(3, dtype=torch.float64)[None] - p[:, None]
    squares = 4 * torch.einsum("nc,nci,nj->nij", p, one.square(), known.x.square()).mean(0)
    bias = 4 * torch.einsum("nc,nci->ni", p, one.square()).mean(0)
    expected = model(module).layout.flatten(
        {"first.weight": squares.numpy(), "first.bias": bias.numpy(), "idle": np.zeros(5)}
    )
    np.testing.assert_allclose(found, expected.parameters, rtol=1e-6, atol=1e-12)


def test_a_module_without_a_gradient_is_said() -> None:
    module = net()
    module.register_forward_hook(lambda *given: given[2].detach())
    with pytest.raises(FedscopeError) as refusal:
        ModelProbe(module, samples(), CPU).squared_gradients(model(module), "model")
    assert str(refusal.value) == (
        "the outputs of the Sequential have no gradient, and --server fisher needs one: its forward computes under "
        "torch.no_grad() or in a checkpoint with use_reentrant=True, or detaches what it returns; take that out"
    )


def test_where_nothing_depends_on_a_parameter_it_is_the_mean() -> None:
    _, clients = drawn(3)
    p = np.array([0.2, 0.5, 0.3])
    served = Fisher(floor=1e6).step({}, clients.row(0), clients, cohort(p, ModelProbe(net(), samples(), CPU)))
    np.testing.assert_allclose(served.parameters, p @ clients.parameters, rtol=1e-12)


def test_gradients_of_any_task_take_the_datas_labels() -> None:
    module = nn.Linear(4, 2).double()
    x, y = samples().x, torch.randn(23, 2, dtype=torch.float64)
    known = Samples(x, y, 2, "toy", "train", np.arange(23), task=Squares())
    probe = ModelProbe(module, known, CPU)
    left = (module(x) - y).detach()
    by_weight = (2 * left[:, :, None] * x[:, None, :]).square().mean(0).reshape(-1)
    expected = torch.cat([by_weight, (2 * left).square().mean(0)]).numpy()
    np.testing.assert_allclose(probe.squared_gradients(model(module), "data"), expected, rtol=1e-6)
    with pytest.raises(
        FedscopeError, match=r"^--server fisher draws labels from the model, and the task Squares has no"
    ):
        probe.squared_gradients(model(module), "model")


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_samples_count_as_in_the_tasks_mean(smoothing: float) -> None:
    weight = torch.tensor([1.0, 2.0, 30.0], dtype=torch.float64)
    criterion = nn.CrossEntropyLoss(weight, label_smoothing=smoothing)
    module, known = nn.Linear(4, 3).double(), samples(task=given_task(criterion))
    c = weight[known.y]
    squares = 0.0
    for one, label, count in zip(known.x, known.y, c, strict=True):
        # alone a sample's loss is l/c, as its weight is divided by
        gradients = torch.autograd.grad(criterion(module(one[None]), label[None]), list(module.parameters()))
        squares = squares + count * torch.cat([part.reshape(-1) for part in gradients]).square()
    found = ModelProbe(module, known, CPU).squared_gradients(model(module), "data")
    np.testing.assert_allclose(found, (squares / c.sum()).numpy(), rtol=1e-6)


def inputs_by_hand(module: nn.Module, x: torch.Tensor) -> list[np.ndarray]:
    module.eval()
    with torch.no_grad():
        return [x.numpy(), module[:3](x).numpy()]


@pytest.mark.parametrize("alpha", [1.0, 0.9, 0.0])
def test_regmean_solves_the_regression_of_every_linear_layer(alpha: float) -> None:
    modules, clients = drawn(3)
    known, p = samples(), np.array([0.2, 0.5, 0.3])
    served = RegMean(alpha=alpha).step({}, clients.row(0), clients, cohort(p, ModelProbe(net(), known, CPU)))
    made = clients.layout.views(served.parameters)
    plain = clients.layout.views(p @ clients.parameters)
    for place, name in enumerate(("0.weight", "3.weight")):
        left, right = 0.0, 0.0
        for k, module in enumerate(modules):
            x = inputs_by_hand(module, known.x)[place]
            products = x.T @ x
            off = ~np.eye(len(products), dtype=bool)
            products[off] *= alpha
            left = left + p[k] * products
            right = right + p[k] * products @ clients.row(k).arrays()[name].T
        np.testing.assert_allclose(made[name], np.linalg.solve(left, right).T, rtol=1e-6, atol=1e-9)
        # the first layer of all models sees the same samples, so that all agree on what its inputs are
        assert (np.abs(made[name] - plain[name]).max() > 0.001) == (place > 0)
    for name in ("0.bias", "2.weight", "2.bias", "3.bias"):
        np.testing.assert_allclose(made[name], plain[name], rtol=1e-12)


def test_regmean_is_the_least_squares_answer() -> None:
    """With α = 1 no other weight answers more like the models' layers."""
    modules, clients = drawn(2)
    known, p = samples(), np.array([0.5, 0.5])
    served = RegMean(alpha=1.0).step({}, clients.row(0), clients, cohort(p, ModelProbe(net(), known, CPU)))
    made = clients.layout.views(served.parameters)["3.weight"]
    x = [inputs_by_hand(module, known.x)[1] for module in modules]
    y = [own @ clients.row(k).arrays()["3.weight"].T for k, own in enumerate(x)]
    best, *_ = np.linalg.lstsq(np.concatenate(x), np.concatenate(y), rcond=None)
    np.testing.assert_allclose(made, best.T, rtol=1e-6, atol=1e-9)


def test_where_no_input_was_seen_regmean_is_the_mean() -> None:
    _, clients = drawn(3)
    known, p = samples(), np.array([0.2, 0.5, 0.3])
    known.x[:, 1] = 0.0
    served = RegMean().step({}, clients.row(0), clients, cohort(p, ModelProbe(net(), known, CPU)))
    made, plain = (clients.layout.views(w)["0.weight"] for w in (served.parameters, p @ clients.parameters))
    np.testing.assert_allclose(made[:, 1], plain[:, 1], rtol=1e-12)


def test_a_client_of_weight_0_is_not_looked_at() -> None:
    _, clients = drawn(3)
    for server in (Fisher(), RegMean()):
        probe = ModelProbe(net(), samples(), CPU)
        p = np.array([0.4, 0.6, 0.0])
        whole = server.step({}, clients.row(0), clients, cohort(p, probe))
        two = Weights(clients.layout, clients.parameters[:2], {n: v[:2] for n, v in clients.buffers.items()})
        alone = server.step({}, clients.row(0), two, cohort(p[:2], probe))
        np.testing.assert_array_equal(whole.parameters, alone.parameters)


def test_tied_weights_and_sequences() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(4, 4, bias=False)
            self.two = nn.Linear(4, 4, bias=False)
            self.two.weight = self.one.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(torch.tanh(self.one(x)))

    module = Twice().double()
    x = samples().x
    known = Samples(x, torch.randint(4, (23,)), 4, "toy", "train", np.arange(23))
    probe = ModelProbe(module, known, CPU)
    found = probe.squared_gradients(model(module), "data").reshape(2, -1)
    np.testing.assert_array_equal(found[0], found[1])
    gradient = 0.0
    for one, label in zip(x, known.y, strict=True):
        loss = nn.functional.cross_entropy(module(one[None]), label[None])
        gradient = gradient + torch.autograd.grad(loss, module.one.weight)[0].square()
    np.testing.assert_allclose(found[0], (gradient / 23).reshape(-1).numpy(), rtol=1e-6)
    # a weight that is two layers' has the inputs of both
    given = torch.cat([x.double(), torch.tanh(module.one(x.double()))]).detach().numpy()
    products = probe.input_products(model(module))
    assert {layer.name: layer for layer in products} == {n: Linear(n, 0, 4) for n in ("one.weight", "two.weight")}
    for own in products.values():
        np.testing.assert_allclose(own, given.T @ given, rtol=1e-9)

    # a layer that sees positions of sequences
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.line(x).mean(1)

    deep, pooled = torch.randn(5, 7, 4, dtype=torch.float64), Pooled().double()
    products = ModelProbe(pooled, Samples(deep, torch.arange(5) % 3, 3, "toy", "train", np.arange(5)), CPU)
    flat = deep.reshape(-1, 4).numpy()
    np.testing.assert_allclose(
        products.input_products(model(pooled))[Linear("line.weight", 0, 3)], flat.T @ flat, rtol=1e-9
    )


def test_the_samples_are_drawn_once_and_seeded() -> None:
    known = samples(40)
    x = known.x.float()
    data = Dataset("toy", "", x.numpy(), known.y.numpy(), x[:9].numpy(), known.y[:9].numpy(), 3, "", (), ())
    module = net().float()
    one, two, other = (validator_of(Fisher(samples=9), data, module, None, seed, CPU) for seed in (0, 0, 1))
    found = [probe.squared_gradients(model(module), "model") for probe in (one, two, other)]  # type: ignore[union-attr]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 0


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize("server", ["fisher", "regmean"])
def test_a_recorded_round_is_merged(server: str, tmp_path: Path) -> None:
    settings = {
        "data": {"clients": 4},
        "model": {"hidden": [8]},
        "client": {"epochs": 1},
        "run": {"rounds": 1, "participation": 1.0},
    }
    run = fedscope.train(Config.read({**settings, "server": {"method": server, "samples": 30}}), tmp_path / "run")
    found = fedscope.reaggregate(f"{run.path}@1", server, settings={"samples": 30})
    assert found.measured[-1].identical, "the run's own server gives the recorded model bit for bit"
    assert found.measured[1].distance > 0


def test_a_model_without_linear_layers_is_refused() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.line = nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.w)[:, :3]

    module = Plain().double()
    probe = ModelProbe(module, Samples(samples().x, torch.arange(23) % 3, 3, "toy", "train", np.arange(23)), CPU)
    one = model(module)
    clients = Weights(one.layout, np.stack([one.parameters] * 2), {})
    with pytest.raises(FedscopeError, match=r"^the server regmean merges linear layers, and the model calls none"):
        RegMean().step({}, one, clients, cohort([0.5, 0.5], probe))


@pytest.mark.parametrize("labels", ["model", "data"])
def test_fisher_takes_sparse_gradients_and_leaves_out_no_layer(labels: str) -> None:
    class Words(nn.Module):
        def __init__(self, sparse: bool, reentrant: bool = False) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.words, self.body, self.head = nn.EmbeddingBag(6, 4, sparse=sparse), nn.Linear(4, 4), nn.Linear(4, 3)
            self.reentrant = reentrant

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.words(x)
            if self.reentrant:
                h = h + checkpoint(self.body, torch.ones(len(x), 4, requires_grad=True), use_reentrant=True)
            return self.head(h)  # type: ignore[no-any-return]

    x = torch.randint(6, (7, 3), generator=torch.Generator().manual_seed(0))
    known = Samples(x, torch.arange(7) % 3, 3, "toy", "train", np.arange(7))

    def fisher(module: nn.Module) -> np.ndarray:
        return ModelProbe(module, known, CPU).squared_gradients(model(module), labels)

    np.testing.assert_allclose(fisher(Words(True)), fisher(Words(False)), rtol=1e-6)
    with pytest.raises(FedscopeError) as refusal:
        fisher(Words(False, True))
    assert str(refusal.value) == (
        "backward() gives the Words other gradients than torch.autograd.grad, as it does behind a checkpoint with "
        "use_reentrant=True; give that use_reentrant=False"
    )


class Frees(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: torch.Tensor) -> torch.Tensor:
        ctx.z = z
        return z**3

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        z = ctx.z
        del ctx.z
        return g * 3 * torch.from_numpy(np.square(z.detach().numpy()))


@pytest.mark.parametrize("at_once", [model_probe.AT_ONCE, 1])
@pytest.mark.parametrize("labels", ["model", "data"])
def test_fisher_takes_a_backward_that_frees_what_it_saved(
    labels: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cubes(nn.Module):
        def __init__(self, frees: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.head, self.frees = nn.Linear(4, 5), nn.Linear(5, 3), frees

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.body(x)
            return self.head(Frees.apply(h) if self.frees else h**3)  # type: ignore[no-untyped-call, no-any-return]

    monkeypatch.setattr(model_probe, "AT_ONCE", at_once)

    def fisher(frees: bool) -> np.ndarray:
        module = Cubes(frees).double()
        return ModelProbe(module, samples(), CPU).squared_gradients(model(module), labels)

    np.testing.assert_allclose(fisher(True), fisher(False), rtol=1e-9)
