"""Architectures by name, what a new one supplies, and the user's own code in the place of one."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..checkpoints import FedscopeError, FedscopeWarning
from .calls import Call, kind
from .own_task import refuse_unknown_task
from .settings import Settings, setting


@dataclass(frozen=True)
class Architecture(Settings):
    """An architecture's own settings; :meth:`build` makes the module."""

    section: ClassVar[str] = "model"

    head: str | None = setting(None, "the head's name in the module, where it is not the last linear layer")
    task: str | None = setting(
        None, "what is learnt: regression, sequences or your own module:factory; default classification"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task is not None:
            refuse_unknown_task(self.task, "model.task")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A freshly initialised module for samples of ``shape`` (without the batch) and ``classes`` outputs."""
        raise NotImplementedError


def _hidden(widths: Sequence[int]) -> Iterator[tuple[str, nn.Module]]:
    """Linear layers ``fc1``, ``fc2``, ... of these widths, a ReLU after each."""
    for i, (before, after) in enumerate(pairwise(widths), start=1):
        yield f"fc{i}", nn.Linear(before, after)
        yield f"relu{i}", nn.ReLU()


class Recurrent(nn.Module):
    """Tokens [n, L], embedded, through a recurrent network, then ``head`` at every position."""

    def __init__(self, embedding: nn.Embedding, rnn: nn.GRU, head: nn.Linear) -> None:
        super().__init__()
        self.embedding, self.rnn, self.head = embedding, rnn, head

    def forward(self, x: Tensor) -> Tensor:
        """Logits, [n, L, classes]."""
        logits: Tensor = self.head(self.rnn(self.embedding(x))[0])
        return logits


@dataclass(frozen=True)
class MLP(Architecture):
    """Flattened input, ReLU after each hidden layer, linear head."""

    hidden: tuple[int, ...] = setting((128, 64), "widths of the hidden layers", least=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``fc1``, ``fc2``, ... and ``head``."""
        widths = [prod(shape), *self.hidden]
        layers = OrderedDict([("flatten", nn.Flatten()), *_hidden(widths), ("head", nn.Linear(widths[-1], classes))])
        return nn.Sequential(layers)


@dataclass(frozen=True)
class CNN(Architecture):
    """Two convolutions with max-pooling, two hidden linear layers, linear head.

    64 and 64 channels for colour images, 32 and 32 for grey ones; 5 x 5 kernels without padding, 3 x 3 with padding
    for images under 16 pixels. The ReLU stands behind the pooling: the same function (both are monotone) at a quarter
    of the work.
    """

    channels: int | None = setting(None, "channels of both convolutions; default 64 (colour) or 32 (grey)", least=1)
    hidden: tuple[int, ...] = setting((384, 128), "widths of the hidden linear layers", least=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv1``, ``conv2``, ``fc1``, ``fc2`` and ``head``."""
        if len(shape) != 3 or min(shape[1:]) < 4:
            raise FedscopeError(
                f"model.name = 'cnn' needs images of at least 4 x 4 pixels, but a sample has shape {list(shape)}; "
                "use --model mlp"
            )
        depth, height, width = shape
        channels = self.channels or (64 if depth > 1 else 32)
        kernel, padding = (5, 0) if min(height, width) >= 16 else (3, 1)
        lost = kernel - 1 - 2 * padding
        sides = [((side - lost) // 2 - lost) // 2 for side in (height, width)]
        widths = [channels * sides[0] * sides[1], *self.hidden]
        layers: list[tuple[str, nn.Module]] = [
            ("conv1", nn.Conv2d(depth, channels, kernel, padding=padding)),
            ("pool1", nn.MaxPool2d(2)),
            ("act1", nn.ReLU()),
            ("conv2", nn.Conv2d(channels, channels, kernel, padding=padding)),
            ("pool2", nn.MaxPool2d(2)),
            ("act2", nn.ReLU()),
            ("flatten", nn.Flatten()),
            *_hidden(widths),
            ("head", nn.Linear(widths[-1], classes)),
        ]
        return nn.Sequential(OrderedDict(layers))


@dataclass(frozen=True)
class GRU(Architecture):
    """Tokens [n, L] to outputs [n, L, classes], each position from those up to it; for the task ``sequences``.

    ``head(rnn(embedding(x)))``. Padding at the end changes no output before it.
    """

    embedding: int = setting(16, "width of a token's embedding", least=1)
    hidden: int = setting(64, "width of the recurrent state", least=1)
    depth: int = setting(1, "recurrent layers above each other", least=1)
    vocabulary: int | None = setting(None, "tokens that there are in x; default as many as classes", least=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``embedding``, ``rnn`` and ``head``."""
        if len(shape) != 1:
            raise FedscopeError(
                f"model.name = 'gru' needs tokens [n, L], but a sample has shape {list(shape)}; use --model mlp or cnn"
            )
        embedding = nn.Embedding(self.vocabulary or classes, self.embedding)
        rnn = nn.GRU(self.embedding, self.hidden, self.depth, batch_first=True)
        return Recurrent(embedding, rnn, nn.Linear(self.hidden, classes))


@dataclass(frozen=True)
class Factory(Architecture):
    """``mypkg.nets:resnet20``: what ``resnet20()`` of the module ``mypkg.nets`` returns, a class being called likewise.

    ``mypkg.nets:resnet(20, width=1.5)`` gives it arguments, which are literals. The module is found in the current
    folder, then in the environment. The factory knows shapes and classes by itself; whether they are the data's is seen
    by the evaluator.

    Raises:
        FedscopeError: no way to write a factory; an argument that is no literal.

    >>> Factory(path="torch.nn:Linear(64, 10, bias=False)").build((64,), 10)
    Linear(in_features=64, out_features=10, bias=False)
    """

    path: str = setting("", "module:factory")

    def __post_init__(self) -> None:
        super().__post_init__()
        Call.parse("--model", self.path)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module, freshly made; ``shape`` and ``classes`` are the factory's own business.

        One in half precision is taken in float32, which a :class:`FedscopeWarning` says.

        Raises:
            FedscopeError: no such module or name, nothing that can be called, an exception or an exit in it, no
                ``nn.Module``, one whose parameters have no shape yet.
        """
        call = Call.parse("--model", self.path)
        made = call()
        place = f"--model {self.path}: {call.spoken}"
        if not isinstance(made, nn.Module):
            raise FedscopeError(f"{place} returned {kind(made)}, not a torch.nn.Module; return the model itself")
        _refuse_shapeless(made, place)
        halves = {value.dtype for value in made.parameters()} & {torch.float16, torch.bfloat16}
        if halves:
            names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in halves))
            warnings.warn(
                f"{place} returned a model in {names}, which is taken in float32 (--precision bf16 measures in less)",
                FedscopeWarning,
                stacklevel=2,
            )
        return made.float() if halves else made


def _refuse_shapeless(module: nn.Module, where: str) -> None:
    """Refuse a lazy module, which gets its shapes from the first input it sees."""
    for name, values in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(values):
            raise FedscopeError(
                f"{where} returned a module whose {name} has no shape yet; name its sizes (nn.Linear for "
                "nn.LazyLinear), or call it once on a sample before returning it"
            )


PROVIDES = {"mlp": MLP, "cnn": CNN, "gru": GRU}
