"""Buffers that are no statistics of normalization layers: combined, left alone or refused, under every policy.

The references are plain torch: modules whose buffers are set by hand.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from random_models import random_samples
from torch import Tensor, nn
from torch.nn.utils import prune

from fedscope.checkpoints import FedscopeError, Layout, Model
from fedscope.evaluation.normalization import Normalization
from fedscope.evaluation.unlike_buffers import statistics_names
from fedscope.landscape import layer_lines, line, near_clients, random_directions, survey, through_models

POLICIES = ("interpolate", "re-estimate", "keep")
DATA, CALIBRATION = random_samples(80, (6,), seed=1), random_samples(300, (6,), seed=2, split="train")


class Net(nn.Module):
    """A network that multiplies its hidden units with a buffer, behind BatchNorm where that is asked."""

    def __init__(self, buffer: Tensor | None = None, norm: bool = False, unused: bool = False) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.unused = unused
        if buffer is not None:
            self.register_buffer("own", buffer)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.norm(self.a(x)))
        return self.b(h if self.unused or not hasattr(self, "own") else h * self.own)  # type: ignore[operator]


def drawn(net: nn.Module, seed: int) -> nn.Module:
    """The network with other parameters, and with other statistics where it has any."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) / 2)
        for name, buffer in net.named_buffers():
            if "running" in name:
                buffer.copy_(torch.rand(buffer.shape, generator=draw) + 0.5)
    return net.eval()


def model(name: str, net: nn.Module) -> Model:
    state = {key: value.detach().numpy() for key, value in net.state_dict().items()}
    return Model(name, f"{name}.pt", Layout.of(net).flatten(state))


def mixed(nets: list[nn.Module], shares: list[float]) -> nn.Module:
    """The combination of networks, all of its floating tensors combined."""
    made = copy.deepcopy(nets[0])
    states = [net.state_dict() for net in nets]
    made.load_state_dict(
        {
            name: sum(c * one[name].double() for c, one in zip(shares, states, strict=True)).to(value.dtype)
            if value.is_floating_point()
            else value
            for name, value in states[0].items()
        }
    )
    return made.eval()


def loss_of(net: nn.Module) -> float:
    with torch.no_grad():
        return float(nn.functional.cross_entropy(net(DATA.x).double(), DATA.y))


MASKS = {
    "truth values": [torch.arange(8) % 2 == 0, torch.arange(8) < 4],
    "whole numbers": [torch.arange(8), torch.arange(8) + 1],
    "a mask of 0 and 1": [(torch.arange(8) % 2).float(), (torch.arange(8) < 4).float()],
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("policy", POLICIES)
def test_masks_that_differ_are_refused_in_any_order(kind: str, order: tuple[int, int], policy: str) -> None:
    """They jumped at one end of a line, which one depended on the order, or half a mask was taken."""
    nets = [drawn(Net(MASKS[kind][i], norm=True), i) for i in order]
    a, b = model("a", nets[0]), model("b", nets[1])
    c = model("c", drawn(Net(MASKS[kind][order[0]], norm=True), 5))
    options: dict[str, Any] = {"normalization": policy, "calibration": CALIBRATION}
    said = f"a and b differ in the buffer own \\({kind}\\), on which outputs depend, so there is no model"
    with pytest.raises(FedscopeError, match=said + " between them; give the models the same"):
        line(nets[0], DATA, [(a, b)], betas=3, **options)
    with pytest.raises(FedscopeError, match=said + " between them"):
        layer_lines(nets[0], DATA, (a, b), betas=3, **options)
    for span in (through_models([a, b, c]), near_clients([a, b, c]), random_directions(a)):
        shown = [b] if span.kind == "random" else []
        with pytest.raises(FedscopeError, match=said + " on the plane between them"):
            survey(nets[0], [DATA], span, shown=shown, grid=2, **options)
    # between models of one mask there are models
    line(nets[0], DATA, [(a, c)], betas=3, **options)


def test_masks_of_pruning_are_refused_with_what_to_do_and_dense_weights_are_not() -> None:
    """Of pruned weights both factors were combined, which is no line between the weights."""

    def pruned(seed: int) -> nn.Module:
        net = drawn(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            prune.random_unstructured(net[0], "weight", amount=0.5)  # type: ignore[index]
        return net

    nets = [pruned(seed) for seed in (1, 2)]
    a, b = (model(name, net) for name, net in zip("ab", nets, strict=True))
    with pytest.raises(
        FedscopeError,
        match=r"a and b differ in the buffer 0\.weight_mask \(a mask of 0 and 1\), on which outputs depend, so there "
        r"is no model between them; .* with torch\.nn\.utils\.prune\.remove\(layer, 'weight'\)$",
    ):
        line(nets[0], DATA, [(a, b)], betas=3)
    for net in nets:
        prune.remove(net[0], "weight")  # type: ignore[index]
    a, b = (model(name, net) for name, net in zip("ab", nets, strict=True))
    found = line(nets[0], DATA, [(a, b)], betas=3)
    assert found.loss[0, 2] == pytest.approx(loss_of(mixed(nets, [0.5, 0.5])), rel=1e-5)


@pytest.mark.parametrize("counts", [(torch.tensor(3), torch.tensor(7)), (torch.arange(4), torch.arange(4) * 2)])
def test_counters_on_which_nothing_depends_are_no_matter(counts: tuple[Tensor, Tensor]) -> None:
    plain = [drawn(Net(), i) for i in range(3)]
    counting = [drawn(Net(counts[i % 2], unused=True), i) for i in range(3)]
    without, with_them = ([model(n, net) for n, net in zip("abc", nets, strict=True)] for nets in (plain, counting))
    for policy in POLICIES:
        one = line(plain[0], DATA, [(without[0], without[1])], betas=5, normalization=policy)
        two = line(counting[0], DATA, [(with_them[0], with_them[1])], betas=5, normalization=policy)
        np.testing.assert_array_equal(one.loss, two.loss)
        assert one.summary() == two.summary()
        assert one.attrs["normalization_policy"] == two.attrs["normalization_policy"] == "none"
    three = [survey(n[0], [DATA], through_models(m), grid=3)[0] for n, m in ((plain, without), (counting, with_them))]
    np.testing.assert_array_equal(three[0].loss, three[1].loss)


def test_constants_are_no_statistics_and_stay_as_they_are() -> None:
    """An infinite one became NaN beyond the ends: −∞ · 1.5 + ∞ · 0.5."""

    class Constants(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.b(torch.tanh(torch.maximum(self.a(x), self.own)))  # type: ignore[arg-type]

    constant = torch.tensor([-torch.inf, 0.1] * 4)
    nets: list[nn.Module] = [drawn(Constants(constant), i) for i in range(2)]
    a, b = (model(name, net) for name, net in zip("ab", nets, strict=True))
    for policy in POLICIES:  # of a network without normalization
        found = line(nets[0], DATA, [(a, b)], betas=5, normalization=policy)
        assert "normalization" not in found.summary()
        assert "buffer" not in found.summary()
        for beta, loss in zip(found.beta, found.loss[0], strict=True):
            made = mixed(nets, [beta, 1 - beta])
            made.own.copy_(constant)  # type: ignore[operator, union-attr]
            assert loss == pytest.approx(loss_of(made), rel=1e-5)


@pytest.mark.parametrize("policy", POLICIES)
def test_floating_buffers_are_combined_whatever_the_policy_of_statistics(policy: str) -> None:
    """``keep`` and ``re-estimate`` gave the end B the buffers of A."""
    scales = [torch.linspace(0.2, 2.0, 8), torch.linspace(2.0, 0.2, 8), torch.linspace(1.0, 3.0, 8)]
    nets: list[nn.Module] = [drawn(Net(scales[i], norm=True), i) for i in range(3)]
    models = [model(name, net) for name, net in zip("abc", nets, strict=True)]
    options: dict[str, Any] = {"normalization": policy, "calibration": CALIBRATION}

    def expected(shares: list[float]) -> float:
        made = mixed(nets[: len(shares)], shares)
        norm = made.norm
        assert isinstance(norm, nn.BatchNorm1d)
        if policy == "keep":
            norm.load_state_dict({**norm.state_dict(), **_statistics(nets[0])})
        elif policy == "re-estimate":  # one batch, of which the layer's inputs are known
            with torch.no_grad():
                h = made.a(CALIBRATION.x).double()  # type: ignore[operator]
            norm.running_mean, norm.running_var = h.mean(0).float(), h.var(0).float()
        return loss_of(made)

    found = line(nets[0], DATA, [(models[0], models[1])], betas=5, **options)
    for beta, loss in zip(found.beta, found.loss[0], strict=True):
        assert loss == pytest.approx(expected([beta, 1 - beta]), rel=1e-5)
    ends = [int(np.flatnonzero(found.beta == end)[0]) for end in (1, 0)]
    assert found.own_loss[0].tolist() == pytest.approx([loss_of(net) for net in nets[:2]], rel=1e-5)
    assert (policy == "interpolate") == (found.own_loss[0].tolist() == found.loss[0, ends].tolist())
    assert "; buffer own interpolated; normalization statistics " in found.summary()
    # each layer alone: the buffer is a layer of its own name
    one = layer_lines(nets[0], DATA, (models[0], models[1]), betas=3, layers="own", **options)
    half = copy.deepcopy(nets[0])
    half.own.copy_((scales[0] + scales[1]) / 2)  # type: ignore[operator, union-attr]
    if policy != "re-estimate":
        assert one.loss[0, 0, 1] == pytest.approx(loss_of(half), rel=1e-5)
    span = through_models(models)
    wide = span.places(models)[1][0]
    plane = survey(nets[0], [DATA], span, grid=(3, 2), ranges=((0.0, wide), (0.0, 1.0)), **options)[0]
    assert plane.loss[0].tolist() == pytest.approx([expected([1 - s, s]) for s in (0.0, 0.5, 1.0)], rel=1e-4)
    assert plane.models[1].loss == pytest.approx(plane.loss[0, 2], rel=1e-4)
    assert "; buffer own interpolated; normalization statistics " in plane.summary()


def _statistics(net: nn.Module) -> dict[str, Tensor]:
    return {name.removeprefix("norm."): value for name, value in net.named_buffers() if "running" in name}


def test_vectors_of_spectral_normalization_are_combined_and_said() -> None:
    nets: list[nn.Module] = []
    for seed in range(3):
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            nn.utils.spectral_norm(net[0])
        nets.append(drawn(net, seed))
    models = [model(name, net) for name, net in zip("abc", nets, strict=True)]
    found = line(nets[0], DATA, [(models[0], models[1])], betas=3)
    for beta, loss in zip(found.beta, found.loss[0], strict=True):
        assert loss == pytest.approx(loss_of(mixed(nets[:2], [beta, 1 - beta])), rel=1e-5)
    assert found.summary().endswith("; buffers 0.weight_u, 0.weight_v interpolated")
    assert "buffers 0.weight_u, 0.weight_v interpolated" in " ".join(t.get_text() for t in found.figure().texts)
    # along directions, which have no buffers, points have the origin's, and models their own besides
    plane = survey(nets[0], [DATA], near_clients(models), grid=3, ranges=((-1.0, 1.0), (-1.0, 1.0)))[0]
    mean = mixed(nets, [1 / 3] * 3)
    assert plane.loss[1, 1] == pytest.approx(loss_of(mean), rel=1e-5)
    for one, net in zip(plane.models, nets, strict=False):
        swapped = copy.deepcopy(net)
        swapped[0].weight_u.copy_(mean[0].weight_u)  # type: ignore[index]
        swapped[0].weight_v.copy_(mean[0].weight_v)  # type: ignore[index]
        assert one.loss == pytest.approx(loss_of(swapped), rel=1e-5)
        assert one.own_loss == pytest.approx(loss_of(net), rel=1e-5)
    assert "; buffers 0.weight_u, 0.weight_v of their mean (with the models' own buffers, " in plane.summary()
    assert "statistics" not in plane.summary()


def own_norm() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2))
    net[0].register_buffer("running_mean", torch.zeros(2))
    net[0].register_buffer("mean", torch.zeros(2))
    return net


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True), nn.InstanceNorm1d(2)), 3),
        (lambda: nn.Sequential(nn.BatchNorm2d(2), nn.LayerNorm(2), nn.BatchNorm1d(2, track_running_stats=False)), 3),
        (own_norm, 1),
        (lambda: nn.utils.spectral_norm(nn.Linear(2, 2)), 0),
    ],
)
def test_statistics_are_those_of_normalization_layers(make: Callable[[], nn.Module], names: int) -> None:
    net = make()
    found = statistics_names(net)
    assert len(found) == names
    assert all(name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked") for name in found)
    buffers = {name: value.numpy() for name, value in net.named_buffers()}
    policy = Normalization.of(net, buffers, "keep", None, lambda x: x)
    assert (policy.policy, policy.statistics) == (("keep", found) if names else ("none", frozenset()))


def test_models_that_differ_in_buffers_alone_are_told_so() -> None:
    """They were called the same model, which they are not."""
    nets: list[nn.Module] = [drawn(Net(norm=True), i) for i in range(3)]
    with torch.no_grad():
        for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
            other.copy_(one)
    a, b, c = (model(name, net) for name, net in zip("abc", nets, strict=True))
    said = r"a and b differ in buffers alone \(norm\.running_mean, norm\.running_var; distance 0\); a "
    with pytest.raises(FedscopeError, match=said + "line needs two whose parameters differ"):
        line(nets[0], DATA, [(a, b)], betas=3)
    with pytest.raises(FedscopeError, match=said + "line needs two whose parameters differ"):
        layer_lines(nets[0], DATA, (a, b), betas=3)
    with pytest.raises(FedscopeError, match=said + "plane needs three whose parameters differ"):
        through_models([c, a, b])
    with pytest.raises(FedscopeError, match=r"a and a are the same model \(distance 0\); a plane needs three"):
        through_models([c, a, a])
    with pytest.raises(FedscopeError, match=r"the 3 clients have all the same parameters \(distance 0\)"):
        near_clients([a, b, a])
