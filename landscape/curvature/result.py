"""The curvature of several models: a result that saves, loads and draws itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from .tables import read_tables, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Measure:
    """One number of one model.

    ``name``: ``loss`` (nats), ``error`` (share), ``gradient_norm`` (‖∇L‖, nats per unit of weight); rises of the loss
    in nats: ``sam``, ``worst_case`` (a lower bound), ``ball_mean``, ``filter_mean``, ``filter_worst_case`` (a lower
    bound); of the Hessian in nats per unit of weight squared: ``eigenvalue_1`` (the largest) to ``eigenvalue_k``,
    ``eigenvalue_min``, ``trace``.

    ``radius``: of the ball, in units of weight, or relative to the filters for ``filter_*``. ``stderr``: over the draws
    of ``ball_mean``, ``filter_mean``, ``trace``; of an eigenvalue its residual ‖H v − λ v‖, a bound. Each is None
    where it does not exist, so also a ``value`` that did not converge.
    """

    name: str
    value: float | None
    radius: float | None = None
    stderr: float | None = None


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The spectral density of a Hessian: ``density`` over ``eigenvalue``, [points] each, integral 1."""

    eigenvalue: np.ndarray
    density: np.ndarray


@dataclass(frozen=True, eq=False)
class Curvature:
    """One model: its run and round ("" and None for a file), which model of the round (a file's name), its measures."""

    run: str
    round: int | None
    model: str
    measures: tuple[Measure, ...]
    spectrum: Spectrum | None = None

    @property
    def label(self) -> str:
        """``ima@40/global``, for figures and sentences."""
        return self.model if self.round is None else f"{self.run}@{self.round}/{self.model}"

    def measure(self, name: str) -> Measure | None:
        """The measure of a name; None where it was not asked for."""
        return next((one for one in self.measures if one.name == name), None)


@dataclass(frozen=True, eq=False)
class Sharpness:
    """How sharp the loss is at several models, all on the same samples.

    ``attrs`` is the provenance: data, split, samples, radii, draws, seed, device, versions.

    Raises:
        FedscopeError: two models that could not be told apart.

    >>> made = Sharpness((Curvature("ima", 4, "global", (Measure("sam", 0.5, 0.05),)),), {"split": "train"})
    >>> [(model.label, one.name, one.value) for model, one in made.rows()]
    [('ima@4/global', 'sam', 0.5)]
    """

    models: tuple[Curvature, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        labels = [model.label for model in self.models]
        for label in labels:
            if labels.count(label) > 1:
                raise FedscopeError(
                    f"{label} stands for {labels.count(label)} of the models, whose rows could not be told apart; "
                    "name each once, and rename one of two runs with the same name"
                )

    def rows(self) -> Iterator[tuple[Curvature, Measure]]:
        """Every measure of every model."""
        return ((model, one) for model in self.models for one in model.measures)

    def save(self, base: Path | str) -> list[Path]:
        """Write BASE.sharpness.csv, BASE.spectrum.csv where there is one, and BASE.sharpness.json (provenance).

        Tidy tables, one value a row, empty where it does not exist; floats survive. Returns their paths.
        """
        return write_tables(self, Path(base))

    @classmethod
    def load(cls, base: Path | str) -> Sharpness:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: a file is missing or is no such result.
        """
        return read_tables(Path(base))

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Over rounds, a colour a run; of models of no several rounds, a row a model; ``width`` in inches."""
        from .figure import draw_sharpness

        return draw_sharpness(self, width, title)
