"""Networks of all kinds, for tests of alignment."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3))


def cnn() -> nn.Module:
    """Both norms, and channels that are flattened."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 6, 3), nn.GroupNorm(3, 6), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(6 * 16, 7), nn.ReLU(), nn.Linear(7, 3)),
    )


def kernels() -> nn.Module:
    """Depthwise, grouped and transposed convolutions."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16), nn.ReLU()),
        *(nn.Conv2d(16, 12, 3, groups=4), nn.BatchNorm2d(12), nn.ReLU(), nn.ConvTranspose2d(12, 9, 3)),
        *(nn.Conv2d(9, 8, 1), nn.ReLU(), nn.ConvTranspose2d(8, 6, 3, groups=2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)),
    )


class Vit(nn.Module):
    """A small vision transformer with torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, 16, 4, 4)
        self.token, self.place = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 10, 16))
        layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        answer: Tensor = self.head(self.encoder(x)[:, 0])
        return answer


class PlainAttention(nn.Module):
    """Attention written by hand: one matrix for queries, keys and values, and heads."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out = nn.Linear(5, 16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        n, length, width = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = (q @ k.transpose(-2, -1) * 0.5).softmax(-1) @ v
        x = self.norm(x + self.out(mixed.transpose(1, 2).reshape(n, length, width)))
        answer: Tensor = self.head(x.mean(1))
        return answer


class Tied(nn.Module):
    """A recurrence, whose embedding is its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cells = nn.Embedding(11, 8), nn.LSTM(8, 6, 2, batch_first=True)
        self.back, self.head = nn.Linear(6, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.back(self.cells(self.embed(x))[0][:, -1]))
        return answer


class Fourier(nn.Module):
    """An operation between two layers that no rule follows, and units behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(12, 6), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.last(torch.relu(self.second(torch.fft.fft(self.first(x)).real)))
        return answer


class Pool(nn.Module):
    """Products of two layers' units, side by side in one dimension: each of four queries keeps all it looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.score, self.head = nn.Linear(5, 6), nn.Linear(5, 4), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        shares = self.score(x).softmax(1).transpose(1, 2)
        answer: Tensor = self.head((shares @ self.embed(x).relu()).flatten(1))
        return answer


def resnet18(name: str) -> Callable[[], nn.Module]:
    """The project's own, with either norm."""

    def make() -> nn.Module:
        from fedscope.training.models.architectures import resnet18 as batch
        from fedscope.training.models.architectures import resnet18_gn as group

        module: nn.Module = {"batch": batch, "group": group}[name].PROVIDES().build((3, 32, 32), 10)
        return module

    return make


IMAGE, FLAT = torch.randn(2, 1, 14, 14), torch.randn(2, 12)
#: by name: what makes it, and two inputs
NETS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "mlp": (mlp, FLAT),
    "cnn": (cnn, IMAGE),
    "kernels": (kernels, IMAGE),
    "vit": (Vit, torch.randn(2, 1, 12, 12)),
    "attention": (PlainAttention, torch.randn(2, 7, 5)),
    "pool": (Pool, torch.randn(2, 7, 5)),
    "tied": (Tied, torch.randint(11, (2, 5))),
    "resnet18": (resnet18("batch"), torch.randn(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)),
    "resnet18_gn": (resnet18("group"), torch.randn(2, 3, 32, 32)),
}


def made(name: str) -> tuple[nn.Module, Tensor]:
    """One of them whose every number counts, in evaluation mode."""
    torch.manual_seed(0)
    make, x = NETS[name]
    module = make()
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
        if isinstance(layer, _BatchNorm | nn.GroupNorm | nn.LayerNorm):
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
        if isinstance(layer, nn.MultiheadAttention):
            nn.init.normal_(layer.in_proj_bias)
            nn.init.normal_(layer.out_proj.bias)
    return module.eval(), x
