"""FedJAX's CNN for Federated EMNIST, as Caldarola et al. (WIMA) train it: two convolutions, dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...settings.settings import setting
from ..base import Architecture

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class CNNFEMNIST(Architecture):
    """conv3 32, ReLU, conv3 64, ReLU, max-pooling, dropout 0.25, 9216-128, ReLU, dropout 0.5, C; no padding.

    Masks of dropout are drawn by round and client, so that a client's training can be replayed alone.
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((1, 28, 28), 62)

    pool_dropout: float = setting(0.25, "dropout after pooling", least=0, below=1)
    dropout: float = setting(0.5, "dropout after the hidden layer", least=0, below=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv1``, ``conv2``, ``fc1`` and ``head``."""
        from torch import nn

        from ..base import image_shape
        from ..sequential import Classifier

        depth, height, width = image_shape(self, shape, 6)
        layers: list[tuple[str, nn.Module]] = [
            ("conv1", nn.Conv2d(depth, 32, 3)),
            ("act1", nn.ReLU()),
            ("conv2", nn.Conv2d(32, 64, 3)),
            ("act2", nn.ReLU()),
            ("pool", nn.MaxPool2d(2)),
            ("dropout1", nn.Dropout(self.pool_dropout)),
            ("flatten", nn.Flatten()),
            ("fc1", nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128)),
            ("relu1", nn.ReLU()),
            ("dropout2", nn.Dropout(self.dropout)),
        ]
        return Classifier(layers, nn.Linear(128, classes))


PROVIDES = CNNFEMNIST
