"""A recurrent network on tokens: embedding, GRU, linear head at every position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError
from ..architectures import Architecture
from ..settings import setting

if TYPE_CHECKING:
    from torch import nn


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
        from torch import nn

        from ..architectures import Recurrent

        if len(shape) != 1:
            raise FedscopeError(
                f"model.name = 'gru' needs tokens [n, L], but a sample has shape {list(shape)}; use --model mlp or cnn"
            )
        embedding = nn.Embedding(self.vocabulary or classes, self.embedding)
        rnn = nn.GRU(self.embedding, self.hidden, self.depth, batch_first=True)
        return Recurrent(embedding, rnn, nn.Linear(self.hidden, classes))


PROVIDES = GRU
