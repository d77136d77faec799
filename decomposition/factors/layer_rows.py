"""The factors of a round by layer: rows of each selection of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ...results import Serializable
from .rows import FactorRow, MissingRowError, RoundFactors

# What the table of a round does not say of it.
LAYER_ROUND_FIELDS = ("round", "count", "independent", "outputs", "samples", "population", "split")


@dataclass(frozen=True)
class LayerFactors(Serializable):
    """The factors with the locality of some layers.

    Attributes:
        layer: a layer's name, a pattern, or ``all layers``.
        parameters: how many numbers these are.
    """

    layer: str
    parameters: int
    rows: tuple[FactorRow, ...]

    def row(self, factor: str, estimate: str | None = None) -> FactorRow:
        """Return the row of a factor; by default what is measured, else the unbiased estimate where there is one, else
        the plug-in one."""
        kinds = ("measured", "unbiased", "plugin") if estimate is None else (estimate,)
        known = [row for kind in kinds for row in self.rows if (row.factor, row.estimate) == (factor, kind)]
        if not known:
            raise MissingRowError(
                f"the decomposition has no row {factor} of {self.layer}, so its table was changed; compute it again "
                "with --force"
            )
        return next((row for row in known if row.value is not None), known[0])


@dataclass(frozen=True)
class RoundLayerFactors(Serializable):
    """One round: the factors of every selection of layers, that of all layers last; the other fields are those of
    :class:`~fedscope.decomposition.RoundFactors`."""

    round: int
    count: int
    independent: bool
    outputs: str
    samples: int
    population: bool
    split: bool
    cells: tuple[LayerFactors, ...]

    @classmethod
    def of(cls, whole: RoundFactors, cells: Sequence[LayerFactors]) -> Self:
        """Take what the rows of all layers were measured on."""
        return cls(**{name: getattr(whole, name) for name in LAYER_ROUND_FIELDS}, cells=tuple(cells))
