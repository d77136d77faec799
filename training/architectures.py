"""What a model on the shelf ``models/`` supplies, and the shape they share: features, then a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from .own_task import refuse_unknown_task
from .settings import Settings, setting


@dataclass(frozen=True)
class Architecture(Settings):
    """An architecture's own settings; :meth:`build` makes the module."""

    section: ClassVar[str] = "model"

    head: str | None = setting(None, "the head's name in the module, where it is not the last linear layer")
    task: str | None = setting(
        None,
        "what is learnt: regression, sequences or your own module:factory; default classification, of shakespeare "
        "sequences",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task is not None:
            refuse_unknown_task(self.task, "model.task")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A freshly initialised module for samples of ``shape`` (without the batch) and ``classes`` outputs."""
        raise NotImplementedError


class Classifier(nn.Module):
    """Named layers in a row, then ``head``: ``head(features(x))``.

    The layers are the module's own attributes, so parameters are called ``conv1.weight``, ``head.bias``.
    """

    head: nn.Linear

    def __init__(self, layers: Sequence[tuple[str, nn.Module]], head: nn.Linear) -> None:
        super().__init__()
        self._order = [name for name, _ in layers]
        for name, layer in layers:
            self.add_module(name, layer)
        self.head = head

    def features(self, x: Tensor) -> Tensor:
        """What the head sees, [n, features]."""
        for name in self._order:
            x = self.get_submodule(name)(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits, [n, classes]."""
        logits: Tensor = self.head(self.features(x))
        return logits


class Recurrent(nn.Module):
    """Tokens [n, L], embedded, through a recurrent network, then ``head`` at every position."""

    def __init__(self, embedding: nn.Embedding, rnn: nn.GRU, head: nn.Linear) -> None:
        super().__init__()
        self.embedding, self.rnn, self.head = embedding, rnn, head

    def forward(self, x: Tensor) -> Tensor:
        """Logits, [n, L, classes]."""
        logits: Tensor = self.head(self.rnn(self.embedding(x))[0])
        return logits
