"""Servers that look into models: what they ask of whoever measures models for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from ....checkpoints import Weights
from ..base import Cohort


@dataclass(frozen=True)
class Linear:
    """Outputs of a linear layer that have the same inputs.

    Attributes:
        name: of its weight.
        start, stop: which outputs these are.
        turned: the weight is [in, out], and not [out, in].
    """

    name: str
    start: int
    stop: int
    turned: bool = False

    def of(self, weight: np.ndarray) -> np.ndarray:
        """Return the outputs' own part [outputs, in] of the weight, as a view."""
        return (weight.T if self.turned else weight)[self.start : self.stop]


class Probe(Protocol):
    """Models on the samples that a server names (:attr:`~fedscope.training.methods.base.ServerMethod.validates_on`)."""

    def squared_gradients(self, model: Weights, labels: str) -> np.ndarray:
        """Return the diagonal of the Fisher information, float64 [P]."""

    def input_products(self, model: Weights) -> Mapping[Linear, np.ndarray]:
        """Return XᵀX [in, in] of the inputs of every linear layer."""


def probe_of(cohort: Cohort) -> Probe:
    """Return what measures models for the server of a cohort."""
    assert cohort.validator is not None, "whoever steps with a server that judges gives it a validator"
    return cast(Probe, cohort.validator)
