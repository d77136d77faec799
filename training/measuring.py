"""What is measured after each round: test loss and error of the global, averaged and client models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from ..checkpoints import Weights
from ..landscape import Evaluator, Samples


@dataclass(frozen=True)
class Measured:
    """Test loss and error (share misclassified) of a round's models; NaN where there was nothing to measure."""

    test_loss: float
    test_error: float
    averaged_test_loss: float
    averaged_test_error: float
    client_error_mean: float
    client_error_std: float


class Meter:
    """Measures rounds on a test split, its evaluators made once.

    Args:
        client_samples: how many test samples (a seeded, stratified subset) the clients' models see; 0 leaves them out.
    """

    def __init__(
        self, module: nn.Module, test: Samples, *, client_samples: int, seed: int, device: str = "cpu"
    ) -> None:
        self._whole = Evaluator(module, test, device=device)
        self._clients: Evaluator | None = None
        if client_samples:
            part = test.limit(client_samples, seed)
            self._clients = self._whole if part is test else Evaluator(module, part, device=device)

    def measure(self, global_: Weights, averaged: Weights | None, clients: Weights) -> Measured:
        """The clients' deviation is over the cohort (divided by C), not a standard error."""
        models = [global_] if averaged is None else [global_, averaged]
        losses, errors = self._whole.models(models)
        client_errors = np.array([np.nan])
        if self._clients is not None:
            _, client_errors = self._clients.models(clients)
        return Measured(
            test_loss=float(losses[0]),
            test_error=float(errors[0]),
            averaged_test_loss=float(losses[1]) if averaged is not None else np.nan,
            averaged_test_error=float(errors[1]) if averaged is not None else np.nan,
            client_error_mean=float(client_errors.mean()),
            client_error_std=float(client_errors.std()),
        )
