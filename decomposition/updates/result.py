"""The geometry of a run's updates over rounds: a result that saves, loads and draws itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError
from .files import read_updates, write_updates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]
_ARRAYS = {"client_ids": np.int64, "weights": np.float64, "norm": np.float64, "cosine": np.float64}


@dataclass(frozen=True, eq=False)
class RoundUpdates:
    """One round of C clients: updates Δ_i = w_i − start [P], weights p_i. NaN where a quantity does not exist.

    Attributes:
        round: its number; client_ids: [C] int64; weights: p, [C].
        norm: ‖Δ_i‖, [C]; 0 for a client that is where it started.
        cosine: ⟨Δ_i, Δ_j⟩/(‖Δ_i‖ ‖Δ_j‖), [C, C]; NaN in the rows and columns of clients that have not moved.
        cosine_mean, cosine_min, cosine_max: over the pairs i < j of clients that have moved, unweighted.
        cosine_stderr: of the mean, a jackknife over clients; NaN for fewer than three.
        mean_norm: Σ p_i ‖Δ_i‖; norm_of_mean: ‖Σ p_i Δ_i‖.
        orthogonal: what ``cancellation`` would be were the updates, with their norms and weights, orthogonal to each
            other: √(Σ p_i² ‖Δ_i‖²)/Σ p_i ‖Δ_i‖, which is 1/√C where all p_i ‖Δ_i‖ are equal.
        diversity: Σ p_i ‖Δ_i‖² / ‖Σ p_i Δ_i‖², the gradient diversity of Yin et al. (AISTATS 2018, Definition 1) with
            weights: 1 where all updates are equal, and C times the paper's number where all p_i are 1/C. Infinite where
            the updates cancel entirely.
    """

    round: int
    client_ids: npt.NDArray[np.int64]
    weights: Array
    norm: Array
    cosine: Array
    cosine_mean: float
    cosine_stderr: float
    cosine_min: float
    cosine_max: float
    mean_norm: float
    norm_of_mean: float
    orthogonal: float
    diversity: float

    @property
    def cancellation(self) -> float:
        """‖Σ p_i Δ_i‖ / Σ p_i ‖Δ_i‖: 1 where all go the same way, near 0 where drifts cancel; NaN where none moves."""
        return self.norm_of_mean / self.mean_norm if self.mean_norm else math.nan

    @property
    def unmoved(self) -> list[int]:
        """The clients whose update is zero, by their ids."""
        return [int(k) for k in self.client_ids[self.norm == 0]]

    @property
    def diverged(self) -> list[int]:
        """The clients whose update has no finite length, by their ids; of their round no mean exists."""
        return [int(k) for k in self.client_ids[~np.isfinite(self.norm)]]

    def to_json(self) -> dict[str, Any]:
        """As what JSON holds, NaN too."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RoundUpdates:
        """The inverse of :meth:`to_json`."""
        arrays = {name: np.array(values[name], dtype) for name, dtype in _ARRAYS.items()}
        return cls(**{**values, **arrays})


@dataclass(frozen=True, eq=False)
class ClientUpdates:
    """The geometry of a run's updates, round by round.

    ``attrs`` is the provenance: run, rounds, versions.

    Raises:
        FedscopeError: no round.
    """

    rounds: tuple[RoundUpdates, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rounds:
            raise FedscopeError("the geometry of updates needs a round; give at least one (--rounds last)")

    @property
    def run(self) -> str:
        """The run's name, "" where it is not known."""
        known = self.attrs.get("run")
        return Path(known["path"]).name if isinstance(known, dict) else ""

    def save(self, path: Path | str) -> None:
        """Write ``BASE.nc``: ``cosine[round, client, client2]``, ``client_ids[round, client]``, ``norm`` and
        ``weights`` alike, and the numbers of each round.

        Rounds of fewer clients are padded, ids with -1 and numbers with NaN.
        """
        write_updates(self, Path(path))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: no such file, or another result's.
        """
        rounds, attrs = read_updates(Path(path))
        return cls(tuple(RoundUpdates(**values) for values in rounds), attrs)

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Mean cosine and cancellation over rounds, and the last round's cosines; ``width`` in inches."""
        from .figure import draw_updates

        return draw_updates([self], width, title)
