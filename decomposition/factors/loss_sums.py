"""Sums over samples that suffice for the bias and variance of a loss, streamed chunk by chunk in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """The factors of one chunk of B samples: by name [B], the same without each of the draws [R, B], and the clients'
    own variances [K, B]."""

    factors: Mapping[str, Tensor]
    left_out: Mapping[str, Tensor]
    clients: Tensor


@dataclass(frozen=True)
class LossSums:
    """Of n samples: `mean` and `squares`, by row of the result, the mean over samples and the sum of squared deviations
    from it; `left_out` [R], the sums over samples without each of the draws; `clients` [K], the sums of their
    variances."""

    n: int
    mean: Mapping[str, float]
    squares: Mapping[str, float]
    left_out: Mapping[str, Array]
    clients: Array

    def merge(self, more: LossSums) -> LossSums:
        """The sums of both sets of samples; squares about the common mean (Chan et al. 1983)."""
        n = self.n + more.n
        step = {name: more.mean[name] - value for name, value in self.mean.items()}
        return LossSums(
            n=n,
            mean={name: value + step[name] * (more.n / n) for name, value in self.mean.items()},
            squares={
                name: value + more.squares[name] + step[name] ** 2 * (self.n * more.n / n)
                for name, value in self.squares.items()
            },
            left_out={name: value + more.left_out[name] for name, value in self.left_out.items()},
            clients=self.clients + more.clients,
        )


def chunk_sums(parts: Split, over_draws: Mapping[str, Tensor], models: Mapping[str, Tensor]) -> LossSums:
    """The sums of one chunk of B samples.

    Args:
        parts: the factors.
        over_draws: what is a mean over draws, by name [R, B].
        models: what is one number a sample, by name [B].
    """
    columns = {**parts.factors, **{name: values.mean(0) for name, values in over_draws.items()}, **models}
    without = {**parts.left_out, **{name: without_each(values) for name, values in over_draws.items()}}
    mean = {name: float(values.mean()) for name, values in columns.items()}
    return LossSums(
        n=parts.clients.shape[1],
        mean=mean,
        squares={name: float((values - mean[name]).square().sum()) for name, values in columns.items()},
        left_out={name: values.sum(1).cpu().numpy() for name, values in without.items()},
        clients=parts.clients.sum(1).cpu().numpy(),
    )


def without_each(values: Tensor) -> Tensor:
    """Means over the R−1 draws other than each, [R, ...] from [R, ...].

    >>> import torch
    >>> without_each(torch.tensor([1.0, 2.0, 6.0]))
    tensor([4.0000, 3.5000, 1.5000])
    """
    return (values.sum(0) - values) / (values.shape[0] - 1)
