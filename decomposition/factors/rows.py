"""Numbers of one round: rows of factors, rows of clients. Empty (None) where a quantity does not exist, never
0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError
from ...results import Serializable

if TYPE_CHECKING:
    from ..draws.cohort_draws import CohortDraws

Outputs = Literal["probabilities", "logits"]
Loss = Literal["squared", "cross-entropy", "zero-one"]
Estimate = Literal["plugin", "unbiased", "measured"]

# The order of the rows of a round. "bias" is the total squared bias, train_bias + heter_bias + bias_cross, and exists
# also where nothing splits it.
FACTORS = ("train_bias", "heter_bias", "bias_cross", "bias", "variance", "covariance", "locality")
MEASURED = (
    "ensemble_loss",
    "fma_loss",
    "global_loss",
    "server_step",
    "averaged_loss",
    "delta_max",
    "delta_mean",
    "closure_error",
)
# The same of every loss: of the others it is the clients' mean loss that has factors (`other_losses.decompose_loss`).
_CLIENTS_MEASURED = ("client_loss", "remainder", *MEASURED[1:])
FACTORS_OF: Mapping[str, tuple[str, ...]] = {
    "squared": FACTORS,
    "cross-entropy": ("bias", "variance"),
    "zero-one": ("bias", "variance", "variance_where_right", "variance_where_wrong"),
}
MEASURED_OF: Mapping[str, tuple[str, ...]] = {
    "squared": MEASURED,
    "cross-entropy": _CLIENTS_MEASURED,
    "zero-one": _CLIENTS_MEASURED,
}


class MissingRowError(FedscopeError, KeyError):
    """A row that a decomposition does not have; as of any mapping a :class:`KeyError`, and a sentence."""

    __str__ = Exception.__str__


@dataclass(frozen=True)
class FactorRow:
    """One estimate of one factor, in units of the loss (`delta_*`: L2 distance in weight space; `closure_error`:
    relative)."""

    factor: str
    estimate: str
    value: float | None
    stderr_draws: float | None = None
    stderr_samples: float | None = None


@dataclass(frozen=True)
class ClientRow:
    """One client of the cohort: means over samples of ||y - mean_r f_k^r||^2, inside (`train_bias`) and outside
    (`heter_bias`) of its own ones, `variance` = mean over all samples of mean_r ||f_k^r - mean_r f_k^r||^2, `distance`
    = mean_r ||w_k^r - w_FMA^r||; `samples` it trained with, where that is known, and its `weight` p_k. All plug-in, so
    that sum_k p_k^2 variance_k is the plug-in variance.

    `trained` is the round in which the model was trained, where that is not the decomposed one for all.

    Of the other losses the biases are empty; `variance` is, for cross-entropy, the mean KL divergence of the client
    from f̂, and sum_k p_k variance_k the variance; for 0-1 loss the share of predictions unlike the main one."""

    client: int
    samples: int | None
    weight: float
    train_bias: float | None
    heter_bias: float | None
    variance: float | None
    distance: float
    trained: int | None = None


def is_recorded(rounds: Sequence[RoundFactors]) -> bool:
    """Tell whether they are of the recorded models alone, without draws."""
    return bool(rounds) and all(one.draws == "none" for one in rounds)


@dataclass(frozen=True)
class RoundFactors(Serializable):
    """The decomposition of one round.

    `draws` is the draws' source (`local:4`), `count` their number R, `independent` whether unbiased estimates exist;
    `samples` the number of samples in every mean, `population` whether they are all of D (then no error over samples
    exists), `split` whether samples belong to clients, so that bias divides into training and heterogeneous bias;
    `classes` C; `outputs` what f is ("predictions" for the 0-1 loss); `loss` "squared", "cross-entropy" or "zero-one".
    """

    round: int
    draws: str
    count: int
    independent: bool
    outputs: str
    samples: int
    classes: int
    population: bool
    split: bool
    rows: tuple[FactorRow, ...]
    clients: tuple[ClientRow, ...]
    loss: str = "squared"

    @classmethod
    def of(
        cls,
        cohort: CohortDraws,
        distance: npt.NDArray[np.float64],
        variance: npt.NDArray[np.float64] | None,
        biases: Sequence[tuple[float | None, float | None]] = (),
        **known: Any,
    ) -> Self:
        """Take those of a cohort, with a row a client in its order.

        Args:
            distance: ||w_k^r - w_FMA^r|| [K, R].
            variance: the clients' [K]; None of a single draw, which has none.
            biases: theirs inside and outside of their own samples, where something splits them.
            known: the other fields.
        """
        clients = tuple(
            ClientRow(
                int(client),
                None if cohort.client_samples is None else int(cohort.client_samples[k]),
                float(cohort.p[k]),
                *(biases[k] if biases else (None, None)),
                None if variance is None else float(variance[k]),
                float(distance[k].mean()),
                None if cohort.trained is None else int(cohort.trained[k]),
            )
            for k, client in enumerate(cohort.client_ids)
        )
        where: dict[str, Any] = {"round": cohort.round, "draws": cohort.source, "count": cohort.count}
        return cls(**where, independent=cohort.independent, clients=clients, **known)

    def row(self, factor: str, estimate: str | None = None) -> FactorRow:
        """Return the row of a factor: `estimate` by default "measured" where it is measured, else "unbiased" where such
        an estimate exists (the squared error, independent draws), else "plugin". KeyError for an unknown pair."""
        if estimate is None:
            measured = any((row.factor, row.estimate) == (factor, "measured") for row in self.rows)
            unbiased = self.independent and self.loss == "squared"
            estimate = "measured" if measured else "unbiased" if unbiased else "plugin"
        for row in self.rows:
            if (row.factor, row.estimate) == (factor, estimate):
                return row
        raise MissingRowError(
            f"the decomposition has no row {factor} ({estimate}) of round {self.round}, so its table was changed; "
            "compute it again with --force"
        )


def refuse_one_name(names: Sequence[tuple[str, str]]) -> None:
    """Refuse a run's name and model that are there twice.

    Raises:
        FedscopeError: names the run.
    """
    for name in names:
        if names.count(name) > 1:
            raise FedscopeError(f"two runs are called {name[0]}: their rows could not be told apart; rename one")
