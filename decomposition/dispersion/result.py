"""Dispersion over rounds and runs: a result that saves, loads and draws itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError
from .records import LayerMap, RoundDispersion
from .tables import read_tables, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Dispersion:
    """How clients differ, layer by layer, in rounds of one or more runs of one layout.

    Attributes:
        rounds: a run after the other, rounds ascending.
        fdr: the false discovery rate of the test of skewness.
        maps: single layers, parameter by parameter; none where clients are fewer than three.
        attrs: provenance: runs, rounds, versions.

    Raises:
        FedscopeError: two rounds that could not be told apart; runs of different layers.
    """

    rounds: tuple[RoundDispersion, ...]
    fdr: float
    maps: tuple[LayerMap, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [(one.run, one.round) for one in self.rounds]
        for run, number in named:
            if named.count((run, number)) > 1:
                raise FedscopeError(
                    f"round {number} of {run} is there twice, and its rows could not be told apart; rename one of two "
                    "runs with the same name"
                )
        for one in self.rounds:
            if [row.layer for row in one.layers] != [row.layer for row in self.rounds[0].layers]:
                raise FedscopeError(f"{self.rounds[0].run} and {one.run} have different layers; ask for one at a time")

    @property
    def runs(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(dict.fromkeys(one.run for one in self.rounds))

    def save(self, base: Path | str) -> list[Path]:
        """Write BASE.dispersion.csv (a row a layer, ``all`` for the whole model; empty where a value does not exist),
        BASE.layers.skewness.csv and BASE.layers.map.csv (single layers), BASE.dispersion.json (counts and provenance);
        returns their paths. Floats survive."""
        return write_tables(self, Path(base))

    @classmethod
    def load(cls, base: Path | str) -> Dispersion:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: a file is missing or is no such result.
        """
        return read_tables(Path(base))

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Heat maps of layers by rounds, a column a run: median cv, and the share of parameters whose skewness is
        rejected (with fewer than 8 clients their mean |skewness|); ``width`` in inches.

        Raises:
            FedscopeError: there is no round to draw.
        """
        from .figure import draw_dispersion

        return draw_dispersion(self, width, title)

    def layers_figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Single layers: the histogram of skewness, and its mean by mean and deviation; ``width`` in inches.

        Raises:
            FedscopeError: there is no map.
        """
        from .layer_figure import draw_layers

        return draw_layers(self.maps, width, title)


def most_skewed(one: RoundDispersion) -> str | None:
    """The layer with the greatest share rejected in a round, else with the greatest mean |skewness|; the first layer of
    equals, None where no layer has a skewness. Layers of fewer than 100 parameters make no histogram, and count only
    where there are no others."""
    layers = [row for row in one.layers if row.parameters >= 100] or one.layers
    for name in ("skew_rejected_share", "skew_mean_abs"):
        known = {row.layer: value for row in layers if (value := getattr(row, name)) is not None}
        if any(value > 0 for value in known.values()):
            return max(known, key=lambda layer: known[layer])
    return None
