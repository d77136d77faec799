"""Which units of a network may be permuted, and that permuted networks compute the same."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from permutable import NETS, Fourier, PlainAttention, Vit, cnn, made
from torch import Tensor, nn
from torch.nn.utils import parametrizations, weight_norm

from fedscope.checkpoints import FedscopeError
from fedscope.distributed.torchvision_import import torchvision_part
from fedscope.landscape.alignment.apply import Mover, identity, random_permutation
from fedscope.landscape.alignment.groups import Specification
from fedscope.landscape.alignment.tracing import specification_of

SLOW = ("resnet18", "resnet18_gn")
EACH = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NETS]


def moved_at_random(module: nn.Module, found: Specification, seed: int = 0) -> nn.Module:
    """The same module with its units permuted."""
    draw = np.random.default_rng(seed)
    arrays = {name: values.numpy().copy() for name, values in module.state_dict().items()}
    moved = Mover(found).arrays(arrays, [random_permutation(group, draw) for group in found.groups])
    other = copy.deepcopy(module)
    other.load_state_dict({name: torch.from_numpy(values) for name, values in moved.items()})
    return other


def difference(one: nn.Module, other: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        before, after = one(x), other(x)
    return float((before - after).norm() / before.norm())


@pytest.mark.parametrize("name", EACH)
def test_a_permuted_network_computes_the_same_with_other_numbers(name: str) -> None:
    module, x = made(name)
    found = specification_of(module, x)
    assert found.stopped == ()
    other = moved_at_random(module, found)
    assert difference(module, other, x) < 1e-6
    changed = {key for key, values in module.state_dict().items() if not torch.equal(values, other.state_dict()[key])}
    weights = {key for key, values in module.state_dict().items() if key.endswith("weight") and values.dim() > 1}
    assert weights <= changed, "each layer has units before it or behind it"


def test_units_of_a_gru_go_through_its_three_gates() -> None:
    torch.manual_seed(0)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.read, self.out = nn.Linear(5, 6), nn.GRU(6, 7, batch_first=True), nn.Linear(7, 3)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.out(self.read(self.first(x))[0][:, -1])
            return made

    module, x = Last(), torch.randn(3, 4, 5)
    found = specification_of(module, x)
    assert (found.stopped, sorted(group.size for group in found.groups)) == ((), [6, 7])
    assert difference(module, moved_at_random(module, found), x) < 1e-6


def test_the_mask_of_causal_attention_stops_nothing() -> None:
    torch.manual_seed(0)

    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.value, self.out = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            read = self.read(x)
            seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
            weights = (read @ read.transpose(1, 2)).masked_fill(~seen, -1e9).softmax(-1)
            made: Tensor = self.out(weights @ self.value(read))
            return made

    module, x = Causal(), torch.randn(3, 4, 5)
    found = specification_of(module, x)
    assert (found.stopped, [group.size for group in found.groups]) == ((), [6, 6])
    assert difference(module, moved_at_random(module, found), x) < 1e-6


def test_groups_inside_of_groups_stay() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, groups=8), nn.ReLU()),
        *(nn.Conv2d(16, 12, 3, groups=4), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 64, 3)),
    )
    x = torch.randn(2, 1, 14, 14)
    found = specification_of(module, x)
    assert [(group.name, group.size) for group in found.groups] == [("4.weight", 3)] * 4, "within their groups"
    assert difference(module, moved_at_random(module, found), x) < 1e-6


def test_a_wrong_permutation_is_seen() -> None:
    module, x = made("mlp")
    found = specification_of(module, x)
    arrays = {name: values.numpy().copy() for name, values in module.state_dict().items()}
    arrays["0.weight"] = arrays["0.weight"][::-1].copy()
    other = copy.deepcopy(module)
    other.load_state_dict({name: torch.from_numpy(values) for name, values in arrays.items()})
    assert difference(module, other, x) > 0.01
    assert [(group.name, group.size) for group in found.groups] == [("0.weight", 40), ("2.weight", 30)]


def test_residual_sums_tie_channels_and_group_norm_moves_whole_groups() -> None:
    module, x = made("cnn")
    found = {group.name: group for group in specification_of(module, x).groups}
    groups = found["4.weight"]
    assert (groups.size, [units.size for units in groups.inner]) == (3, [2]), "3 groups of 2 channels"
    assert {place.tensor for place in found["0.weight"].places} == {
        *("0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var", "4.weight")
    }


@pytest.mark.slow
def test_channels_of_a_stage_are_one_group() -> None:
    module, x = made("resnet18")
    found = {group.name: group for group in specification_of(module, x).groups}
    stem = {place.tensor for place in found["conv1.weight"].places}
    assert {"conv1.weight", "layer1.0.conv2.weight", "layer1.1.bn2.running_var", "layer2.0.downsample.0.weight"} <= stem
    assert len(found) == 12, "four stages, eight blocks"


@pytest.mark.parametrize("make", [Vit, PlainAttention])
def test_heads_move_as_a_whole_and_the_units_inside_them(make: type[nn.Module]) -> None:
    module, x = made("vit" if make is Vit else "attention")
    heads = [group for group in specification_of(module, x).groups if group.inner]
    assert heads
    for group in heads:
        assert (group.size, [units.size for units in group.inner]) == (4, [4, 4]), "queries with keys, and values"
    one = identity(heads[0])
    assert one.moved == 0
    one.outer[[0, 1]] = [1, 0]
    assert one.moved == 16, "all queries, keys and values of two heads"
    one.outer[:] = range(4)
    one.inner[0][2] = [1, 0, 2, 3]
    assert one.moved == 2


def test_tied_weights_move_together() -> None:
    module, x = made("tied")
    found = specification_of(module, x)
    assert found.aliases == {"head.weight": "embed.weight"}
    other = moved_at_random(module, found).state_dict()
    assert torch.equal(other["head.weight"], other["embed.weight"])


@pytest.mark.parametrize(
    ("norm", "how"),
    [
        (parametrizations.spectral_norm, {}),
        (parametrizations.weight_norm, {}),
        (parametrizations.weight_norm, {"dim": 1}),
        (parametrizations.weight_norm, {"dim": None}),
        (weight_norm, {}),
        (weight_norm, {"dim": 1}),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_units_of_weights_that_are_computed_of_others(norm: Any, how: dict[str, Any]) -> None:
    """Directions and lengths move together, and the vectors of a norm with the units that they are of."""
    torch.manual_seed(0)
    module = nn.Sequential(
        *(norm(nn.Conv2d(1, 6, 3), **how), nn.ReLU(), norm(nn.Conv2d(6, 8, 3, groups=2), **how), nn.ReLU()),
        *(norm(nn.ConvTranspose2d(8, 4, 3), **how), nn.Flatten(), norm(nn.Linear(400, 5), **how), nn.Tanh()),
        norm(nn.Linear(5, 3), **how),
    ).eval()
    with torch.no_grad():
        for parameter in module.parameters():  # lengths that are those of the directions say nothing
            parameter.mul_(torch.rand_like(parameter) + 0.5)
    x = torch.randn(3, 1, 12, 12)
    found = specification_of(module, x)
    assert found.stopped == ()
    # the six that a kernel of two groups takes are permuted alike in both
    assert sum(group.units for group in found.groups) == 3 + 8 + 4 + 5
    # a permuted spectral norm is the product with permuted vectors, in another order
    assert difference(module, moved_at_random(module, found), x) < 1e-5


def test_an_operation_that_is_not_followed_is_named_and_its_units_stay() -> None:
    torch.manual_seed(0)
    module, x = Fourier().eval(), torch.randn(2, 12)
    found = specification_of(module, x)
    assert found.stopped == ("aten._fft_r2c in the model itself",)
    assert [group.name for group in found.groups] == ["second.weight"]
    assert difference(module, moved_at_random(module, found), x) < 1e-6


def test_a_network_without_units_to_permute_is_refused() -> None:
    with pytest.raises(FedscopeError, match="no units of Linear can be permuted: no layer has units between two oth"):
        specification_of(nn.Linear(4, 3), torch.randn(2, 4))

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.mid, self.last = nn.Linear(4, 6), nn.Sequential(Spectrum()), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            answer: Tensor = self.last(self.mid(self.first(x)))
            return answer

    class Spectrum(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.fft.fft(x).real

    said = r"no units of Odd can be permuted: aten\._fft_r2c in mid\.0 cannot be followed; align other models"
    with pytest.raises(FedscopeError, match=said):
        specification_of(Odd(), torch.randn(2, 4))


def test_a_network_that_computes_by_its_numbers_is_refused() -> None:
    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            scale = float(abs(self.first.weight.detach().numpy()[0]).sum())
            answer: Tensor = self.last(torch.relu(self.first(x))) * scale
            return answer

    torch.manual_seed(0)
    with pytest.raises(FedscopeError, match="Sorted answers otherwise when the units that seem exchangeable"):
        specification_of(Sorted(), torch.randn(2, 4))


def test_tracing_leaves_the_module_as_it_is() -> None:
    module, x = cnn().train(), torch.randn(2, 1, 14, 14)
    before = copy.deepcopy(module.state_dict())
    specification_of(module, x)
    assert all(layer.training for layer in module.modules())
    assert all(torch.equal(values, before[name]) for name, values in module.state_dict().items())
    assert not module[0]._forward_hooks
    assert not module[0]._forward_pre_hooks


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "resnext50_32x4d", "mobilenet_v3_small", "densenet121"])
def test_networks_of_torchvision_have_a_specification(name: str) -> None:
    torch.manual_seed(0)
    module, x = getattr(torchvision_part("models"), name)().eval(), torch.randn(2, 3, 64, 64)
    found = specification_of(module, x)
    assert found.stopped == ()
    assert difference(module, moved_at_random(module, found), x) < 1e-5
