"""Units matched by what they answer: found whatever product a layer is computed by, and else by their weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.landscape.alignment.apply import Mover, random_permutation
from fedscope.landscape.alignment.tracing import specification_of


class Encoder(nn.Module):
    """torch's own transformer layer, whose packed projection is of a transposed input."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 16), nn.Linear(16, 3)
        self.layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=batch_first)
        self.dim = 1 if batch_first else 0

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.reshape(len(x), 2, 4))
        made = self.layer(x if self.dim else x.transpose(0, 1))
        answer: Tensor = self.head(made.mean(self.dim))
        return answer


class Mixer(nn.Module):
    """Linear layers on tokens and on channels, with units of both in one result.

    Args:
        embeds: whether channels are units, too, and not the input's.
        joined: whether tokens are brought behind channels in memory, where all of a batch are rows of one product.
    """

    def __init__(self, embeds: bool = True, joined: bool = False) -> None:
        super().__init__()
        width = 6 if embeds else 2
        self.embed = nn.Linear(2, width) if embeds else nn.Identity()
        self.up, self.down, self.head = nn.Linear(4, 20), nn.Linear(20, 4), nn.Linear(4 * width, 3)
        self.joined = joined

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.reshape(len(x), 4, 2))
        turned = x.transpose(1, 2).contiguous() if self.joined else x.transpose(1, 2)
        answer: Tensor = self.head((x + self.down(self.up(turned).relu()).transpose(1, 2)).flatten(1))
        return answer


class Turned(nn.Module):
    """W xᵀ, and einsum that gives units the first place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(9, 8)), nn.Parameter(torch.randn(7, 9))
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        made = (self.first @ x.T).relu()
        answer: Tensor = self.head(torch.einsum("oi,ib->ob", self.second, made).T.relu())
        return answer


class Packed(nn.Module):
    """Attention with one packed layer, whose keys are the queries with the other sign."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out, self.head = (nn.Linear(*s) for s in ((4, 16), (16, 48), (16, 16), (16, 3)))
        with torch.no_grad():
            for values in (self.qkv.weight, self.qkv.bias):
                values[16:32] = -values[:16]

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.reshape(len(x), 2, 4))
        q, k, v = (one.reshape(len(x), 2, 2, 8).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(len(x), 2, 16)
        answer: Tensor = self.head((x + self.out(y)).mean(1))
        return answer


class Recurrent(nn.Module):
    def __init__(self, cells: type[nn.Module]) -> None:
        super().__init__()
        self.cells, self.head = cells(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.cells(x.reshape(len(x), 2, 4))[0][:, -1])
        return answer


def grouped() -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 8, 2), nn.ReLU(), nn.Conv1d(8, 8, 2, groups=8), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16, 3)),
    )


#: by name: what makes them
PLANTED: dict[str, Callable[[], nn.Module]] = {
    "encoder": lambda: Encoder(batch_first=True),
    "encoder, sequence first": lambda: Encoder(batch_first=False),
    "mixer": Mixer,
    "mixer, joined": lambda: Mixer(joined=True),
    "mixer of inputs": lambda: Mixer(embeds=False),
    "turned": Turned,
    "packed": Packed,
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "grouped": grouped,
}


def planted(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """A network, and the same function with its units in another order."""
    torch.manual_seed(0)
    one = make().eval()
    found = specification_of(copy.deepcopy(one), torch.randn(2, 8))
    draw = np.random.default_rng(1)
    here = {name: values.numpy() for name, values in one.state_dict().items()}
    moved = Mover(found).arrays(here, [random_permutation(group, draw) for group in found.groups])
    two = make().eval()
    two.load_state_dict({name: torch.tensor(values) for name, values in moved.items()})
    return one, two


def data(count: int = 101) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(5)
    return torch.randn(count, 8, generator=draw), torch.arange(count) % 3


@pytest.mark.parametrize("name", PLANTED)
def test_planted_units_come_back(name: str) -> None:
    one, two = planted(PLANTED[name])
    found = fedscope.align([one, two], by="activations", data=data())
    back = list(found.models.values())[1].arrays()
    own = one.state_dict()
    assert [name for name in own if not np.array_equal(back[name], own[name].numpy())] == []
    assert sum(row.moved for row in found.moved) > 0


def test_a_last_batch_of_one_sample_is_seen_too() -> None:
    """A transposed input of one sample is a matrix, for which torch takes another product."""
    one, two = planted(PLANTED["mixer"])
    found = fedscope.align([one, two], by="activations", data=data(501))
    back = list(found.models.values())[1].arrays()
    assert all(np.array_equal(back[name], values.numpy()) for name, values in one.state_dict().items())


def test_a_line_between_planted_networks_has_no_length() -> None:
    """The step of other questions follows units as align itself does."""
    with pytest.raises(FedscopeError, match=r"^Encoder 1 and Encoder 2 are the same model \(distance 0\)"):
        fedscope.line(list(planted(PLANTED["encoder"])), points=3, align="activations", data=data())


class Scaled(nn.Module):
    """A layer whose product is a sum of products of single numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(5, 8)), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head((x[:, None] * self.weight).sum(-1).relu())
        return answer


class Ranked(nn.Module):
    """Weights with a product of two beside them, whose inner units nothing shows, and a step from a state of zeros,
    whose units affect nothing by the layer that takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.a, self.b = (nn.Parameter(torch.randn(*size)) for size in ((12, 8), (3, 8), (12, 3)))
        self.cell, self.head = nn.LSTMCell(12, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        made = nn.functional.linear(x, self.weight + self.b @ self.a).relu()
        answer: Tensor = self.head(self.cell(made)[0])
        return answer


UNSEEN: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "scaled": (Scaled, "weight"),
    "ranked": (Ranked, "b, cell.weight_hh"),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_units_that_no_operation_shows_are_matched_by_weights(name: str) -> None:
    make, layers = UNSEEN[name]
    one, two = planted(make)
    with pytest.warns(FedscopeWarning) as told:
        found = fedscope.align([one, two], by="activations", data=data())
    assert [str(warning.message) for warning in told] == [
        f"the units of {layers} are matched by their weights, for no product or norm shows what they answer"
    ]
    back, own = list(found.models.values())[1].arrays(), one.state_dict()
    assert [key for key in own if not np.array_equal(back[key], own[key].numpy())] == []


class Latents(nn.Module):
    """Attention of learnt tokens without places, which are units outside of the samples where these come second."""

    def __init__(self, beside: bool) -> None:
        super().__init__()
        self.embed, self.tokens = nn.Linear(2, 8), nn.Parameter(torch.randn(5, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head, self.beside = nn.Linear(8, 3), beside

    def forward(self, x: Tensor) -> Tensor:
        seen, asking = self.embed(x.reshape(len(x), 4, 2)), self.tokens.expand(len(x), 5, 8)
        if self.beside:
            asking = seen = torch.cat([asking, seen], 1)
        answer: Tensor = self.head(self.attention(asking, seen, seen, need_weights=False)[0].mean(1))
        return answer


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_learnt_tokens_are_aligned(beside: bool) -> None:
    one, two = planted(lambda: Latents(beside))
    found = fedscope.align([one, two], by="activations", data=data())
    back, own = list(found.models.values())[1].arrays(), one.state_dict()
    assert [key for key in own if not np.array_equal(back[key], own[key].numpy())] == []


def huge(size: float) -> list[nn.Module]:
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)) for _ in "ab"]
    with torch.no_grad():
        for net in nets:
            for values in net.parameters():
                values.mul_(size)
    return nets


def test_huge_weights_are_matched_as_others_are() -> None:
    """By a power of 2 all digits stay."""
    found = [fedscope.align(huge(size), data=data()) for size in (1.0, 2.0**67)]
    (one, other) = ([vars(row) for row in each.moved] for each in found)
    assert one == other


def test_a_mean_that_is_not_finite_is_refused() -> None:
    nets = [net.double() for net in [*huge(1.0), *huge(1.0)[:1]]]
    with torch.no_grad():
        for net in nets:
            net[2].weight.fill_(1.5e308)  # type: ignore[index]
    x, y = data()
    with pytest.raises(FedscopeError) as caught:
        fedscope.align(nets, to="mean", data=(x.double(), y))
    assert str(caught.value) == (
        "the mean of 2 models is not finite in 2.weight, so no units can be matched to it; give to='first'"
    )


def test_answers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(FedscopeError) as caught:
        fedscope.align(huge(1e20), by="activations", data=data())
    assert str(caught.value) == (
        "units of 2.weight answer with a NaN or an infinity, so they cannot be matched by activations; "
        "give by='weights'"
    )


def test_statistics_that_are_not_finite_are_refused() -> None:
    made: list[Any] = [nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)) for _ in "ab"]
    made[1][1].running_var[2] = float("nan")
    with pytest.raises(FedscopeError) as caught:
        fedscope.align(made, data=data())
    assert str(caught.value) == "Sequential 2 holds a NaN or an infinity, so its units cannot be matched; leave it out"


class Masked(nn.Module):
    """A mask and the best loss so far, which are kept with the weights and are infinite on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.up, self.head = nn.Linear(2, 6), nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))
        self.register_buffer("best", torch.tensor(float("inf")))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.reshape(len(x), 4, 2))
        seen = (x @ x.transpose(1, 2) + self.mask).softmax(-1) @ x
        answer: Tensor = self.head(self.up(seen).relu()[:, -1])
        return answer


@pytest.mark.parametrize(("by", "to"), [("weights", "first"), ("weights", "mean"), ("activations", "mean")])
def test_buffers_without_units_may_be_infinite(by: str, to: str) -> None:
    one, two = planted(Masked)
    found = fedscope.align([one, two, copy.deepcopy(one)], by=by, to=to, data=data())
    own = one.state_dict()
    for made in list(found.models.values())[1:3]:
        assert [name for name, values in own.items() if not np.array_equal(made.arrays()[name], values.numpy())] == []
