"""Measures that ``curves`` can draw: every column of ``metrics.csv`` and sums over rounds, its name on an axis, its
scale, and how it is smoothed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.rounds.metrics import COLUMNS, FURTHER, is_own_column

#: in the order of ``BASE.curves.csv``, where a new column comes last
_FIRST = (
    *("train_loss", "test_loss", "test_error", "averaged_test_loss", "averaged_test_error"),
    *("client_error_mean", "client_error_std"),
)
MEASURES = (*_FIRST, *(column for column in COLUMNS if column not in (*_FIRST, "round")))

#: what is no column: the sum of one over the rounds until then
TOTALS = {f"parameters_{way}_total": f"parameters_{way}" for way in ("down", "up")}

#: the means that a deviation stands beside, ``..._mean`` and ``..._std``
MEANS = (
    "client_error",
    "client_test_error",
    "all_client_test_error",
    "all_client_deployed_error",
    "domain_error",
    "averaged_domain_error",
)
_STDS = tuple(f"{name}_std" for name in MEANS)

#: what is drawn where nothing is asked for
USUAL = ("test_loss", "test_error")
#: and where there is nothing of these
OWN_TEST = "client_test_error_mean"

_LABELS = {
    "train_loss": "training loss (nats)",
    "test_loss": "test loss (nats)",
    "test_error": "test error (%)",
    "averaged_test_loss": "averaged test loss (nats)",
    "averaged_test_error": "averaged test error (%)",
    "client_error_mean": "clients' test error (%)",
    "client_error_std": "s.d. of clients' error (%)",
    "client_test_error_mean": "own-test error (%)",
    "client_test_error_std": "s.d. of own-test error (%)",
    "lr": "learning rate",
    "participants": "clients a round",
    "seconds": "seconds a round",
    "parameters_down": "parameters to clients",
    "parameters_up": "parameters from clients",
    "parameters_down_total": "parameters to clients, in all",
    "parameters_up_total": "parameters from clients, in all",
    "all_client_test_error_mean": "own-test error of all clients (%)",
    "all_client_test_error_std": "s.d. of own-test error of all clients (%)",
    "all_client_test_error_worst": "worst own-test error of all clients (%)",
    "all_client_deployed_error_mean": "deployed model's own-test error of all clients (%)",
    "all_client_deployed_error_std": "s.d. of the deployed model's own-test error (%)",
    "all_client_deployed_error_worst": "deployed model's worst own-test error (%)",
    "drift_norm": "mean L2 length of updates",
    "drift_mean_norm": "L2 length of the mean update",
    "drift_kept": "length kept by the mean update",
    "drift_cosine": "mean cosine between updates",
    "drift_to_mean": "mean cosine to the mean update",
    "drift_conflict": "share of parameters with opposite signs",
    "drift_distance": "L2 step of the server's model",
    "drift_step": "step / mean update",
    "consensus_before": "consensus distance before mixing (L2)",
    "consensus_start": "consensus distance of starts (L2)",
    "domain_error_mean": "mean error over domains (%)",
    "domain_error_std": "s.d. of error over domains (%)",
}
#: tasks whose loss is a cross-entropy
_IN_NATS = {None, "classification", "sequences", "sequence-classification"}
_DOMAIN = re.compile(r"test_error_(.+)")


@dataclass(frozen=True)
class CurveMeasure:
    """A column of ``metrics.csv``, or the accuracy that an error column leaves: 1 less the error.

    Attributes:
        name: as it is asked for, ``test_accuracy``.
        column: of ``metrics.csv``, ``test_error``.
    """

    name: str
    column: str

    @property
    def is_accuracy(self) -> bool:
        """True if 1 less the column is drawn; a deviation is that of error and accuracy alike."""
        return self.name != self.column and self.column not in _STDS

    @property
    def is_share(self) -> bool:
        """True if it is drawn in per cent; whether a loop's own error is a share, is not known."""
        return "error" in self.column and not is_own_column(self.column)

    @property
    def is_reachable(self) -> bool:
        """True if it leaves an accuracy that a curve can reach."""
        return self.is_share and self.column not in _STDS

    @property
    def is_loss(self) -> bool:
        """True if its axis is logarithmic."""
        return self.column.endswith("_loss") and not self.is_share

    @property
    def is_deployed(self) -> bool:
        """True if it is the averaged model's where there is one."""
        return self.column in USUAL or self.column.startswith(("test_error_", "domain_error_"))

    @property
    def direction(self) -> int:
        """1 if less is better, -1 if more is, 0 where neither is known: a learning rate, a cosine, a deviation."""
        if self.is_accuracy:
            return -1
        costs = self.column == "seconds" or self.column.startswith("parameters_")
        return int(self.is_loss or self.is_reachable or costs)

    @property
    def deviation(self) -> str | None:
        """The column of the deviation over clients or domains that belongs to a mean over them."""
        name = self.column.removesuffix("_mean")
        return f"{name}_std" if name in MEANS else None

    @property
    def label(self) -> str:
        """On an axis, with the unit."""
        before, column = "", self.column
        if column not in _LABELS and column.startswith("averaged_"):
            before, column = "averaged ", column.removeprefix("averaged_")
        if domain := _DOMAIN.fullmatch(column):
            kind = "accuracy" if self.name != self.column else "error"
            return f"{before}test {kind}, {domain[1]} (%)"
        label = before + _LABELS.get(column, column.replace("_", " "))
        return label.replace("error", "accuracy") if self.name != self.column else label

    def label_in(self, tasks: Iterable[str | None]) -> str:
        """Return the label beside runs of these tasks, None for the usual one: without a unit where one's loss may have
        another than nats."""
        return self.label if set(tasks) <= _IN_NATS else self.label.replace(" (nats)", "")

    @property
    def words(self) -> str:
        """In a sentence, without the unit."""
        return self.label.rpartition(" (")[0] or self.label


def measure_of(name: str) -> CurveMeasure:
    """A measure by name: a column of ``metrics.csv``, an error column with ``accuracy`` in the place of ``error``, or
    one of :data:`TOTALS`. Which columns of their own runs have, is for :func:`refuse_unknown`.

    Raises:
        FedscopeError: what is no column's name; says which there are.

    >>> measure_of("client_test_accuracy_mean")
    CurveMeasure(name='client_test_accuracy_mean', column='client_test_error_mean')
    """
    column = name.replace("accuracy", "error", 1)
    if _is_known(column):
        return CurveMeasure(name, column)
    if is_own_column(name):
        return CurveMeasure(name, name)
    raise _unknown(name)


def reachable(measures: Sequence[CurveMeasure], target: float) -> list[CurveMeasure]:
    """Return the measures that leave an accuracy.

    Raises:
        FedscopeError: there is none.
    """
    found = [measure for measure in measures if measure.is_reachable]
    if not found:
        raise FedscopeError(
            f"--target {target:g} is an accuracy, and {' and '.join(measure.name for measure in measures)} leaves "
            "none; ask for an error or an accuracy too, as --measure test_accuracy"
        )
    return found


def refuse_unknown(names: Sequence[str], columns: Iterable[str]) -> None:
    """Make sure that each measure is a column that every run has, or one of these.

    Raises:
        FedscopeError: another name; says which there are.
    """
    own = [column for column in columns if is_own_column(column)]
    for name in names:
        if name not in own and not _is_known(name.replace("accuracy", "error", 1)):
            raise _unknown(name, own)


def _is_known(column: str) -> bool:
    return column in (*MEASURES, *TOTALS) or FURTHER.fullmatch(column) is not None


def _unknown(name: str, own: Sequence[str] = ()) -> FedscopeError:
    known = (*MEASURES, *TOTALS)
    several = [part.strip() for part in name.split(",")]
    if len(several) > 1 and all(part in own or _is_known(part.replace("accuracy", "error", 1)) for part in several):
        return FedscopeError(f"--measure {name} are {len(several)} columns; give {' '.join(map(_option, several))}")
    return FedscopeError(
        f"--measure {name} is not a column of metrics.csv{nearest(name, (*known, 'test_accuracy', *own)) or ';'} there "
        f"are {', '.join((*known, *own[:24]))}, those of domains, of all clients and of drift if a run has them, and "
        "accuracy for error"
    )


def _option(name: str) -> str:
    return f"--measure {name}"


#: the shortest window: three points lie on a parabola already
LEAST = 5


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Compute the value, at each round, of the parabola fitted to the ``window`` measured rounds about it (least
    squares).

    An odd window reaches as far back as ahead, and the result is scipy's ``savgol_filter`` with its usual ends: there
    the window stays within the run and the round moves off its middle. An even window of n rounds has n/2 rounds before
    the round and n/2 - 1 after it. scipy takes even windows too, but evaluates the parabola in the window's middle,
    half a round ahead of where it is drawn; here it is evaluated at the round itself, so a curve that is a parabola
    comes out unchanged.

    Args:
        values: [R], the measured rounds, equally far apart.
        window: 3 to R rounds.

    >>> np.allclose(smooth(np.arange(12.0) ** 2, 10), np.arange(12.0) ** 2)
    True
    """
    from scipy.signal import savgol_coeffs

    rounds = np.arange(len(values))
    first = np.clip(rounds - window // 2, 0, len(values) - window)
    at = {int(place): savgol_coeffs(window, 2, pos=int(place), use="dot") for place in np.unique(rounds - first)}
    with np.errstate(invalid="ignore"):  # an infinite loss is none
        return np.array([at[int(i - s)] @ values[s : s + window] for i, s in zip(rounds, first, strict=True)])


def refuse_smoothing(smoothing: int, run: str, rounds: int) -> None:
    """Check a window against a run.

    Raises:
        FedscopeError: it is shorter than 5 or longer than the run.
    """
    if not smoothing or LEAST <= smoothing <= rounds:
        return
    fits = f"a number from {LEAST} to {rounds}" if rounds > LEAST else f"--smooth {LEAST}"
    remedy = f"give {fits}" if rounds >= LEAST else f"leave it out, for smoothing needs {LEAST}"
    raise FedscopeError(
        f"--smooth {smoothing} does not fit {run}, measured in {rounds} round{'s' if rounds != 1 else ''}; {remedy}"
    )
