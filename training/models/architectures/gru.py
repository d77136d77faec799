"""A recurrent network on tokens: embedding, GRU, linear head at every position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...settings.settings import setting
from ..recurrent import OnTokens

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class GRU(OnTokens):
    """Tokens [n, L] to outputs [n, L, classes]; each position sees itself and earlier ones; for the task ``sequences``.

    ``head(rnn(embedding(x)))``. Padding at the end changes no output before it.
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((80,), 90)

    embedding: int = setting(16, "width of a token's embedding", least=1)
    hidden: int = setting(64, "width of the recurrent state", least=1)
    depth: int = setting(1, "number of stacked recurrent layers", least=1, most=1000)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``embedding``, ``rnn`` and ``head``."""
        from torch import nn

        from ..recurrent import Recurrent

        embedding = nn.Embedding(self.tokens(shape, classes), self.embedding)
        rnn = nn.GRU(self.embedding, self.hidden, self.depth, batch_first=True)
        return Recurrent(embedding, rnn, nn.Linear(self.hidden, classes))


PROVIDES = GRU
