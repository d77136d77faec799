"""What ``curves`` can draw: every column of ``metrics.csv``, its name on an axis, its scale, and how it is smoothed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checkpoints import FedscopeError, nearest
from ..checkpoints.metrics import COLUMNS

#: in the order of ``BASE.curves.csv``, where a new column comes last
_FIRST = (
    *("train_loss", "test_loss", "test_error", "averaged_test_loss", "averaged_test_error"),
    *("client_error_mean", "client_error_std"),
)
MEASURES = (*_FIRST, *(column for column in COLUMNS if column not in (*_FIRST, "round")))

#: what is drawn where nothing is asked for
USUAL = ("test_loss", "test_error")

_LABELS = {
    "train_loss": "training loss",
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
}


@dataclass(frozen=True)
class Measure:
    """A column of ``metrics.csv``, or the accuracy that an error column leaves: 1 less the error.

    Attributes:
        name: as it is asked for, ``test_accuracy``.
        column: of ``metrics.csv``, ``test_error``.
    """

    name: str
    column: str

    @property
    def is_accuracy(self) -> bool:
        """Whether 1 less the column is drawn; a deviation is that of error and accuracy alike."""
        return self.name != self.column and not self.column.endswith("_std")

    @property
    def is_share(self) -> bool:
        """Whether it is drawn in per cent."""
        return "error" in self.column

    @property
    def is_loss(self) -> bool:
        """Whether its axis is logarithmic."""
        return self.column.endswith("_loss")

    @property
    def deviation(self) -> str | None:
        """The column of the deviation over clients that belongs to a mean over them."""
        return self.column.removesuffix("_mean") + "_std" if self.column.endswith("_mean") else None

    @property
    def label(self) -> str:
        """On an axis, with the unit."""
        label = _LABELS.get(self.column, self.column.replace("_", " "))
        return label.replace("error", "accuracy") if self.name != self.column else label

    @property
    def words(self) -> str:
        """In a sentence, without the unit."""
        return self.label.rpartition(" (")[0] or self.label


def measure_of(name: str) -> Measure:
    """A measure by name: a column of ``metrics.csv``, or an error column with ``accuracy`` in the place of ``error``.

    Raises:
        FedscopeError: another name; says which there are.

    >>> measure_of("client_test_accuracy_mean")
    Measure(name='client_test_accuracy_mean', column='client_test_error_mean')
    """
    column = name.replace("accuracy", "error")
    if column not in MEASURES:
        raise FedscopeError(
            f"--measure {name} is no column of metrics.csv{nearest(name, MEASURES) or ';'} there are "
            f"{', '.join(MEASURES)}, and accuracy for error"
        )
    return Measure(name, column)


#: the shortest window: three points lie on a parabola already
LEAST = 5


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """The value, at each round, of the parabola fitted to the ``window`` measured rounds about it (least squares).

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
