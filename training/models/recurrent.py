"""Parts of models on tokens: an embedding, recurrent layers, a linear head at every position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError
from ..data.dataset import Dataset
from ..settings.registry import method_name
from ..settings.settings import setting
from .base import Architecture


@dataclass(frozen=True)
class OnTokens(Architecture):
    """Tokens [n, L] to outputs [n, L, classes]; each position sees itself and earlier ones; for the task
    ``sequences``."""

    vocabulary: int | None = setting(None, "number of different tokens in x; default: the number of classes", least=1)

    def tokens(self, shape: tuple[int, ...], classes: int) -> int:
        """V, how many tokens the embedding knows.

        Raises:
            FedscopeError: samples that are no rows of tokens.
        """
        if len(shape) != 1:
            raise FedscopeError(
                f"model.name = {method_name(self)!r} needs tokens [n, L], but a sample has shape {list(shape)}; use "
                "--model mlp or cnn"
            )
        return self.vocabulary or classes

    def refuse_samples(self, data: Dataset) -> None:
        """Refuse samples that are no tokens, or tokens beyond the vocabulary."""
        known = self.tokens(data.shape, data.classes)
        for x in (np.asarray(x) for x in (data.x_train, data.x_test) if len(x)):
            if not np.issubdtype(x.dtype, np.integer):
                raise FedscopeError(
                    f"model.name = {method_name(self)!r} needs tokens, but {data.name} has numbers in {x.dtype}; give "
                    "whole numbers [n, L] and --task sequences, or use --model mlp"
                )
            high = int(x.max())
            if high >= known:
                raise FedscopeError(
                    f"{data.name} has the token {high}, but the vocabulary of {method_name(self)} has {known}, counted "
                    f"from 0; give --set model.vocabulary={high + 1}"
                )


class Recurrent(nn.Module):
    """Tokens [n, L], embedded, through a recurrent network, then ``head`` at every position."""

    def __init__(self, embedding: nn.Embedding, rnn: nn.GRU, head: nn.Linear) -> None:
        super().__init__()
        self.embedding, self.rnn, self.head = embedding, rnn, head

    def forward(self, x: Tensor) -> Tensor:
        """Logits, [n, L, classes]."""
        logits: Tensor = self.head(self.rnn(self.embedding(x))[0])
        return logits


class OneBiasLSTM(nn.LSTM):
    """One layer of ``nn.LSTM`` with one bias a gate.

    torch's gates are W x + b + U h + b', and b + b' is all that an output depends on. Here b' is 0 and no parameter,
    so the functions are the same and P is smaller by 4 x hidden.

    cuDNN wants the weights of a layer at the beginning of a block of memory that has nothing else before them, in an
    order of its own. Here all of a model lies in one vector of P numbers in the order of its file, the embedding first
    and b' in none. So cuDNN copies a layer's weights at each call and remarks on it once; ``flatten_parameters`` would
    take them out of the vector.
    """

    bias_hh_l0: Tensor | None

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden, batch_first=True)
        del self.bias_hh_l0
        self.register_buffer("bias_hh_l0", None, persistent=False)  # in no layout, and in no file
        self.bias_hh_l0 = torch.zeros(4 * hidden)


class StackedLSTM(nn.Module):
    """Tokens [n, L], embedded, through LSTMs with a tanh after each, then ``head`` at every position."""

    def __init__(self, embedding: nn.Embedding, layers: Sequence[OneBiasLSTM], head: nn.Linear) -> None:
        super().__init__()
        self.embedding = embedding
        self._order = [f"lstm{i}" for i, _ in enumerate(layers, start=1)]
        for name, layer in zip(self._order, layers, strict=True):
            self.add_module(name, layer)
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """Logits, [n, L, classes]."""
        x = self.embedding(x)
        for name in self._order:
            x = torch.tanh(self.get_submodule(name)(x)[0])
        logits: Tensor = self.head(x)
        return logits
