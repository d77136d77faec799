"""FedJAX's character model for Shakespeare, as Caldarola et al. (WIMA) train it: embedding, two LSTMs, linear head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...settings.settings import setting
from ..recurrent import OnTokens

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LSTM(OnTokens):
    """Embedding of 8, two LSTMs of 256, each followed by a tanh, head at every position; for the task ``sequences``.

    90 tokens are 86 characters and four marks. ``nn.LSTM`` has two biases a gate, of which an output sees the sum
    alone; the published count has one, and so has this one (see
    :class:`~fedscope.training.models.recurrent.OneBiasLSTM`). Initialised as torch does.

    >>> sum(values.numel() for values in LSTM().build((80,), 90).parameters())
    820522
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((80,), 90)

    embedding: int = setting(8, "width of a token's embedding", least=1)
    hidden: int = setting(256, "width of each recurrent state", least=1)
    depth: int = setting(2, "number of stacked LSTMs", least=1, most=1000)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``embedding``, ``lstm1``, ``lstm2`` and ``head``."""
        from torch import nn

        from ..recurrent import OneBiasLSTM, StackedLSTM

        embedding = nn.Embedding(self.tokens(shape, classes), self.embedding)
        inputs = [self.embedding, *[self.hidden] * (self.depth - 1)]
        layers = [OneBiasLSTM(width, self.hidden) for width in inputs]
        return StackedLSTM(embedding, layers, nn.Linear(self.hidden, classes))


PROVIDES = LSTM
