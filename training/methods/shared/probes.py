"""Servers that look into models: what they ask of whoever measures models for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import numpy as np

from ....checkpoints import Weights
from ..base import Cohort


class Probe(Protocol):
    """Models on the samples that a server names (:attr:`~fedscope.training.methods.base.ServerMethod.validates_on`)."""

    def squared_gradients(self, model: Weights, labels: str) -> np.ndarray:
        """Return the diagonal of the Fisher information, float64 [P]."""

    def input_products(self, model: Weights) -> Mapping[str, np.ndarray]:
        """Return XᵀX [in, in] of the inputs of every linear layer, by the name of its weight."""


def probe_of(cohort: Cohort) -> Probe:
    """Return what measures models for the server of a cohort."""
    assert cohort.validator is not None, "whoever steps with a server that judges gives it a validator"
    return cast(Probe, cohort.validator)
